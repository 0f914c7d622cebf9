"""Sessions on a Spark Connect server, shared by consecutive runs.

Spark starts separate Python workers for the files of every session, and never ends the daemon that forks them. A
session per run would start cold every time, and leave a process on every executor. So runs with equal code and settings
share one session, identified by its id. No run releases it: the server ends it when it was idle long enough
(``spark.connect.session.manager.defaultSessionTimeout``). A tag marks the actions of each run.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import sys
import tempfile
import uuid
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from airflow_provider_kafka_s3.exceptions import (
    AccessDeniedError,
    ConfigurationError,
    KafkaS3Error,
    SparkJobError,
    message_of,
)
from airflow_provider_kafka_s3.spark.conf import session_conf
from airflow_provider_kafka_s3.spark.failures import explain
from airflow_provider_kafka_s3.spark.package_zip import package_zip
from airflow_provider_kafka_s3.spark.registration import connection_error
from airflow_provider_kafka_s3.spark.spec import ConnectServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["code_of", "open_session", "session_id"]

log = logging.getLogger(__name__)

_SESSIONS: Final = 1_000
"""Ids to try; the server stores at most this many closed ones."""

_CONNECT_TIMEOUT: Final = 25.0
"""Seconds to wait for a server, which may be starting; then Airflow retries the task."""

_RETRIES: Final = {"max_retries": 5, "max_backoff": 20_000}
"""17 seconds in total for a request to a reachable server; pyspark's client would retry for ten minutes."""

_PORT: Final = 15002
"""Default port of a Spark Connect server."""

_CHECK: Final = "Check that it runs and that the connection has its host and port, and use_ssl if it requires TLS"

_ENDED: Final = re.compile(r"INVALID_HANDLE\.SESSION_(CLOSED|CHANGED|NOT_FOUND)")
_REFUSED: Final = re.compile(r"StatusCode\.(UNAUTHENTICATED|PERMISSION_DENIED)")
_UNREACHABLE: Final = re.compile(r"StatusCode\.UNAVAILABLE|RETRIES_EXCEEDED")


def code_of(files: Sequence[Path]) -> str:
    """The identity of the code of a session: names of files, and digests of those that are not this package's.

    Args:
        files: the zip of this package, whose name contains a hash of its content, and others.
    """
    package, *others = files
    return "|".join([package.name, *(f"{f.name}:{hashlib.sha256(f.read_bytes()).hexdigest()}" for f in others)])


def session_id(code: str, conf: dict[str, str], week: tuple[int, int], generation: int) -> str:
    """The id of the session that all runs with the same code and settings share.

    Args:
        code: see :func:`code_of`.
        conf: settings of the session.
        week: ISO year and week: it limits the age of a session and the number of closed ids to try.
        generation: number of sessions of the week that the server has ended.
    """
    identity = json.dumps([code, sys.version_info[:2], sorted(conf.items()), week, generation])
    return str(uuid.UUID(bytes=hashlib.sha256(identity.encode()).digest()[:16], version=4))


def open_session(server: ConnectServer) -> SparkSession:
    """Open a session with the settings of the job, the code of this package and the files of the job.

    Raises:
        AccessDeniedError: the server refuses the token.
        ConfigurationError: it refuses a setting.
        SparkJobError: it does not answer.
    """
    conf = session_conf(server.conf)
    year, week, _ = datetime.now(UTC).isocalendar()
    with tempfile.TemporaryDirectory(prefix="kafka-s3-") as folder:
        files = [package_zip(folder), *map(Path, server.py_files)]
        code = code_of(files)
        for generation in range(_SESSIONS):
            try:
                return _open(server, session_id(code, conf, (year, week), generation), conf, files)
            except Exception as e:
                if not _ENDED.search(str(e)):
                    raise _explain(server, e) from e
    raise SparkJobError(f"Spark Connect has ended every session of this week. Restart {_where(server)}")


def _open(server: ConnectServer, session: str, conf: dict[str, str], files: Sequence[Path]) -> SparkSession:
    from pyspark.sql.connect.client.retries import DefaultPolicy
    from pyspark.sql.connect.session import SparkSession

    url = server.url if "/;" in server.url else f"{server.url.rstrip('/')}/"
    spark = SparkSession(f"{url};session_id={session}")
    try:
        _wait_until_ready(spark.client, server)
        spark.client.set_retry_policies([DefaultPolicy(**_RETRIES)])
        version = spark.version
        for name, value in conf.items():
            spark.conf.set(name, value)
        for file in files:
            _add(spark.addArtifacts, file)
    except BaseException:
        spark.client.close()
        raise
    log.info("Spark Connect server %s, Spark %s, session %s", _address(server), version, session)
    return spark  # type: ignore[return-value]


def _wait_until_ready(client: Any, server: ConnectServer) -> None:
    """Wait until the server accepts requests; accepting connections is not enough."""
    import grpc  # type: ignore[import-untyped]

    ready = grpc.channel_ready_future(client._channel)
    try:
        ready.result(timeout=_CONNECT_TIMEOUT)
    except grpc.FutureTimeoutError:
        ready.cancel()
        url = urlsplit(server.url)
        reason = connection_error(f"{url.hostname}:{url.port or _PORT}") or "it accepts connections, but not requests"
        raise SparkJobError(
            f"Spark Connect does not answer: {reason}. {_CHECK}. Waited {_CONNECT_TIMEOUT:.0f} s for {_where(server)}"
        ) from None


def _add(add_artifacts: Callable[..., None], file: Path) -> None:
    try:
        add_artifacts(str(file), pyfile=True)
    except Exception as e:  # noqa: BLE001 - the second attempt decides
        # Runs that share a session may add the same file at the same time, and the server moves both to one path. Once
        # it exists, the server compares further uploads with it.
        log.info("adding %s again after an error of the server: %s", file.name, message_of(e))
        add_artifacts(str(file), pyfile=True)


def _address(server: ConnectServer) -> str:
    return urlsplit(server.url).netloc


def _where(server: ConnectServer) -> str:
    return f"the server {_address(server)} of spark_conn_id"


def _explain(server: ConnectServer, error: Exception) -> KafkaS3Error:
    text = "; ".join(message_of(e) for e in (error, error.__cause__) if e is not None)
    if _REFUSED.search(text):
        return AccessDeniedError(
            f"Spark Connect refuses the token: correct the password of the connection. Refused by {_where(server)}"
        )
    if _UNREACHABLE.search(text):
        return SparkJobError(f"Spark Connect does not answer: no connection. {_CHECK}: {_where(server)}")
    if "CANNOT_MODIFY_CONFIG" in text or "CANNOT_PARSE" in text or "INVALID_CONF_VALUE" in text:
        return ConfigurationError(
            f"Spark Connect refuses a setting of conf: {explain(error)}. Refused by {_where(server)}"
        )
    return explain(error)
