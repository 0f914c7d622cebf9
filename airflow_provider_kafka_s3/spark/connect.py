"""Sessions on a Spark Connect server, kept warm from one run to the next.

Spark gives the files of every session Python workers of their own, and never ends the daemon that forks them. A session
per run would therefore start cold every time, and leave a process on every executor behind. So runs whose code and
settings are equal share one session, found by its id, and nobody releases it: the server ends it when it was idle long
enough (``spark.connect.session.manager.defaultSessionTimeout``). What a run asks of a session is its own by a tag.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import sys
import tempfile
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final
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
from airflow_provider_kafka_s3.spark.ship import package_zip
from airflow_provider_kafka_s3.spark.spec import ConnectServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["open_session", "session_id"]

log = logging.getLogger(__name__)

_SESSIONS: Final = 1_000
"""Ids to try; the server remembers no more closed ones than that."""

_RETRIES: Final = {"max_retries": 6, "max_backoff": 20_000}
"""37 seconds in all, where pyspark's client would go on for ten minutes: beyond that Airflow tries the task again."""

_ENDED: Final = re.compile(r"INVALID_HANDLE\.SESSION_(CLOSED|CHANGED|NOT_FOUND)")
_REFUSED: Final = re.compile(r"StatusCode\.(UNAUTHENTICATED|PERMISSION_DENIED)")
_UNREACHABLE: Final = re.compile(r"StatusCode\.UNAVAILABLE|RETRIES_EXCEEDED")


def session_id(package: str, conf: dict[str, str], week: tuple[int, int], generation: int) -> str:
    """The id of the session that all runs with the same code and settings share.

    Args:
        package: name of the zip with the code, which holds a hash of it.
        conf: settings of the session.
        week: ISO year and week: a session is not used for ever, and the ids that are over stay few.
        generation: counts the sessions of the week that the server has ended.
    """
    named = json.dumps([package, sys.version_info[:2], sorted(conf.items()), week, generation])
    return str(uuid.UUID(bytes=hashlib.sha256(named.encode()).digest()[:16], version=4))


def open_session(server: ConnectServer) -> SparkSession:
    """A session that has the settings of the job and the code of this package.

    Raises:
        AccessDeniedError: the server refuses the token.
        ConfigurationError: it refuses a setting.
        SparkJobError: it does not answer.
    """
    conf = session_conf(server.conf)
    year, week, _ = datetime.now(UTC).isocalendar()
    with tempfile.TemporaryDirectory(prefix="kafka-s3-") as folder:
        package = package_zip(folder)
        for generation in range(_SESSIONS):
            try:
                return _open(server, session_id(package.name, conf, (year, week), generation), conf, package)
            except Exception as e:
                if not _ENDED.search(str(e)):
                    raise _explain(server, e) from e
    raise SparkJobError(f"the Spark Connect server {_address(server)} has ended every session of this week. Restart it")


def _open(server: ConnectServer, session: str, conf: dict[str, str], package: Path) -> SparkSession:
    from pyspark.sql.connect.client.retries import DefaultPolicy
    from pyspark.sql.connect.session import SparkSession

    url = server.url if "/;" in server.url else f"{server.url.rstrip('/')}/"
    spark = SparkSession(f"{url};session_id={session}")
    try:
        spark.client.set_retry_policies([DefaultPolicy(**_RETRIES)])
        version = spark.version
        for name, value in conf.items():
            spark.conf.set(name, value)
        _add(spark.addArtifacts, package)
    except BaseException:
        spark.client.close()
        raise
    log.info("Spark Connect server %s, Spark %s, session %s", _address(server), version, session)
    return spark  # type: ignore[return-value]


def _add(add_artifacts: Callable[..., None], package: Path) -> None:
    try:
        add_artifacts(str(package), pyfile=True)
    except Exception as e:  # noqa: BLE001 - whatever the server made of it, the second answer counts
        # Runs that share a session may add the same file at the same moment, and the server moves both to one place.
        # Once it is there, the server compares what it is given with it.
        log.info("adding %s again, since the server said: %s", package.name, message_of(e))
        add_artifacts(str(package), pyfile=True)


def _address(server: ConnectServer) -> str:
    return urlsplit(server.url).netloc


def _explain(server: ConnectServer, error: Exception) -> KafkaS3Error:
    text = "; ".join(message_of(e) for e in (error, error.__cause__) if e is not None)
    where = f"the Spark Connect server {_address(server)} of spark_conn_id"
    if _REFUSED.search(text):
        return AccessDeniedError(f"{where} refuses the connection's password, which is its token")
    if _UNREACHABLE.search(text):
        return SparkJobError(
            f"{where} does not answer. Check that it runs and that the connection has its host and port, and use_ssl "
            f"if it wants TLS"
        )
    if "CANNOT_MODIFY_CONFIG" in text or "CANNOT_PARSE" in text or "INVALID_CONF_VALUE" in text:
        return ConfigurationError(f"{where} refuses a setting of conf: {explain(error)}")
    return explain(error)
