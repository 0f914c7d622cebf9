"""Checks that the jars of Spark's Kafka connector exist, before Spark is started."""

from __future__ import annotations

import glob
import os
import re
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.submit.spark_command import environment_of, find_spark_submit, spark_home

__all__ = ["CONNECTOR_JARS", "jars_of_spark", "local_jars", "missing_jars", "require_jars", "unreadable_jars"]

CONNECTOR_JARS: Final[Mapping[str, str]] = {
    "spark-sql-kafka-0-10": "org/apache/spark/sql/kafka010/KafkaSourceProvider.class",
    "spark-token-provider-kafka-0-10": "org/apache/spark/kafka010/KafkaTokenUtil.class",
    "kafka-clients": "org/apache/kafka/clients/consumer/KafkaConsumer.class",
    "commons-pool2": "org/apache/commons/pool2/ObjectPool.class",
}
"""The connector's artifacts, and a class in the jar of each."""


def local_jars(jars: str) -> tuple[list[Path], list[str]]:
    """Split the value of ``--jars`` into local files and remote URLs.

    Args:
        jars: paths, patterns and URLs, separated by commas.

    Returns:
        The files of this machine, which need not exist; and the URLs that cannot be read from here (``hdfs://``,
        ``s3a://``, ``https://``, and ``local:/``, which is a path on the cluster's machines).
    """
    files, remote = [], []
    for jar in filter(None, (part.strip() for part in jars.split(","))):
        url = urlsplit(jar)
        if url.scheme not in ("", "file"):
            remote.append(jar)
            continue
        path = unquote(url.path) if url.scheme else jar
        matches = sorted(glob.glob(path)) if glob.has_magic(path) else []
        files += [Path(name) for name in matches] or [Path(path)]
    return files, remote


def unreadable_jars(jars: str) -> list[str]:
    """Files of this machine among the jars that do not exist or may not be read."""
    return [str(path) for path in local_jars(jars)[0] if not path.is_file() or not os.access(path, os.R_OK)]


def missing_jars(jars: str, provided: Iterable[str] = ()) -> list[str]:
    """Artifacts of the connector that are not among the given jars, by file name or by content.

    Args:
        jars: as for :func:`local_jars`.
        provided: names of the jars that Spark has already.

    Returns:
        Names of artifacts; none if a remote jar may hold them.
    """
    files, remote = local_jars(jars)
    names = [*(path.name for path in files), *(jar.rpartition("/")[2] for jar in remote), *provided]
    missing = [artifact for artifact in CONNECTOR_JARS if not any(_is(name, artifact) for name in names)]
    if any(not any(_is(jar.rpartition("/")[2], artifact) for artifact in CONNECTOR_JARS) for jar in remote):
        return []
    # A jar of another name may hold several artifacts, such as an assembled one.
    classes = {name for path in files if missing for name in _classes(path)}
    return [artifact for artifact in missing if CONNECTOR_JARS[artifact] not in classes]


def jars_of_spark(command: str, environment: Mapping[str, str]) -> list[str] | None:
    """Names of the jars in a Spark installation.

    Args:
        command: its submit command.
        environment: of the command.

    Returns:
        None if unknown, or if settings of the installation may add jars.
    """
    home = spark_home(command, environment)
    if home is None or environment.get("SPARK_DIST_CLASSPATH"):
        return None
    configured = Path(environment.get("SPARK_CONF_DIR") or home / "conf")
    if any((configured / name).exists() for name in ("spark-defaults.conf", "spark-env.sh")):
        return None
    folder = home / "jars"
    return os.listdir(folder) if folder.is_dir() else None


def require_jars(jars: str, *, more: bool, command: str | None, local: bool, env: Mapping[str, object]) -> None:
    """Check that jars exist and include all of Spark's Kafka connector, as far as that can be determined.

    Args:
        jars: as ``spark-submit`` takes them.
        more: whether other settings may add jars: packages, the driver's class path, a properties file.
        command: configured submit command; None: the one that
            :func:`~airflow_provider_kafka_s3.submit.spark_command.find_spark_submit` finds.
        local: whether the master is a local one.
        env: the job's own environment variables, in addition to the worker's.

    Raises:
        ConfigurationError: a file does not exist or may not be read, or a jar of the connector is not among them.
    """
    if unreadable := unreadable_jars(jars):
        raise ConfigurationError(
            f"jars: {', '.join(unreadable)} cannot be read on this worker. Correct the path, or give Spark the "
            f"connector with packages="
        )
    if more or not missing_jars(jars):
        return
    environment = environment_of(env)
    provided = jars_of_spark(command or find_spark_submit(local=local) or "spark-submit", environment)
    if provided is not None and (missing := missing_jars(jars, provided)):
        raise ConfigurationError(
            f"jars: {', '.join(missing)} is missing. Spark's Kafka connector consists of "
            f"{', '.join(CONNECTOR_JARS)}: add the path, or leave jars= out, and Spark fetches them"
        )


def _is(name: str, artifact: str) -> bool:
    return re.match(rf"{re.escape(artifact)}[_.-]", name) is not None


def _classes(path: Path) -> list[str]:
    try:
        with zipfile.ZipFile(path) as jar:
            return jar.namelist()
    except (OSError, zipfile.BadZipFile):
        return []
