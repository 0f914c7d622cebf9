"""Checks that the jars of Spark's Kafka connector exist, before Spark is started."""

from __future__ import annotations

import glob
import os
import re
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.spark.connector import CONNECTOR
from airflow_provider_kafka_s3.submit.settings import JAR_SETTINGS, SparkSettings
from airflow_provider_kafka_s3.submit.spark_command import (
    environment_of,
    find_spark_submit,
    spark_conf_folder,
    spark_home,
)

__all__ = [
    "CONNECTOR_JARS",
    "SparkJars",
    "is_artifact",
    "jars_of_spark",
    "local_jars",
    "missing_beside",
    "missing_jars",
    "require_jars",
    "unreadable_jars",
]

CONNECTOR_JARS: Final[Mapping[str, str]] = {
    CONNECTOR: "org/apache/spark/sql/kafka010/KafkaSourceProvider.class",
    "spark-token-provider-kafka-0-10": "org/apache/spark/kafka010/KafkaTokenUtil.class",
    "kafka-clients": "org/apache/kafka/clients/consumer/KafkaConsumer.class",
    "commons-pool2": "org/apache/commons/pool2/ObjectPool.class",
}
"""The connector's artifacts, and a class in the jar of each."""

_JAR_SETTING: Final = re.compile(rf"^\s*(?:{'|'.join(map(re.escape, JAR_SETTINGS.values()))})[ \t=:]+\S", re.MULTILINE)


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
    missing = [artifact for artifact in CONNECTOR_JARS if not any(is_artifact(name, artifact) for name in names)]
    if any(not any(is_artifact(jar.rpartition("/")[2], artifact) for artifact in CONNECTOR_JARS) for jar in remote):
        return []
    # A jar of another name may hold several artifacts, such as an assembled one.
    classes = {name for path in files if missing for name in _classes(path)}
    return [artifact for artifact in missing if CONNECTOR_JARS[artifact] not in classes]


@dataclass(frozen=True)
class SparkJars:
    """The jars of a Spark installation.

    Attributes:
        names: of the jars in its folder and on ``SPARK_DIST_CLASSPATH``.
        configured: whether its settings add other jars, or may do so.
        scripted: whether it has a ``spark-env.sh``, which may add other jars.
    """

    names: Sequence[str]
    configured: bool
    scripted: bool


def jars_of_spark(command: str, environment: Mapping[str, str], properties_file: str | None = None) -> SparkJars | None:
    """The jars that a job has without naming any.

    Args:
        command: the submit command of the Spark installation.
        environment: of the command.
        properties_file: of the job; it replaces the installation's default settings.

    Returns:
        None if the installation is unknown or has no jars.
    """
    home = spark_home(command, environment)
    names = [] if home is None else _file_names(str(home / "jars" / "*"))
    if home is None or not names:
        return None
    for entry in filter(None, environment.get("SPARK_DIST_CLASSPATH", "").split(os.pathsep)):
        names += _file_names(entry)
    folder = spark_conf_folder(home, environment)
    settings = _text(Path(properties_file or folder / "spark-defaults.conf"))
    # A properties file that cannot be read may be on the machine of the driver only.
    configured = properties_file is not None if settings is None else _JAR_SETTING.search(settings) is not None
    return SparkJars(names, configured, (folder / "spark-env.sh").exists())


def require_jars(settings: SparkSettings, *, command: str | None, local: bool) -> None:
    """Check that a job's jars exist and include all of Spark's Kafka connector, as far as that can be determined.

    Args:
        settings: of the job; it names jars.
        command: configured submit command; None: the one that
            :func:`~airflow_provider_kafka_s3.submit.spark_command.find_spark_submit` finds.
        local: whether the master is a local one.

    Raises:
        ConfigurationError: a file does not exist or may not be read, or a jar of the connector is not among them.
    """
    # --jars replaces spark.jars.
    jars = settings.jars_by("jars")[0]
    if unreadable := unreadable_jars(jars):
        raise ConfigurationError(
            f"jars: {', '.join(unreadable)} cannot be read on this worker. Correct the path, or give Spark the "
            f"connector with packages="
        )
    if settings.jars_by("packages") or settings.jars_by("driver_class_path") or not missing_jars(jars):
        return
    binary = command or find_spark_submit(local=local) or "spark-submit"
    if missing := missing_beside(jars, jars_of_spark(binary, environment_of(settings.env), settings.properties_file)):
        raise ConfigurationError(
            f"jars: {', '.join(missing)} is missing. Spark's Kafka connector consists of "
            f"{', '.join(CONNECTOR_JARS)}: add the path, or leave jars= out, and Spark fetches them"
        )


def missing_beside(jars: str, installed: SparkJars | None) -> list[str]:
    """Artifacts of the connector that are neither among the given jars nor in Spark; none if that is not certain.

    Args:
        jars: as for :func:`local_jars`.
        installed: the jars that Spark has.
    """
    if installed is None or installed.configured or installed.scripted:
        return []
    return missing_jars(jars, installed.names)


def is_artifact(name: str, artifact: str) -> bool:
    """Whether a file name is that of a jar of an artifact."""
    return re.match(rf"{re.escape(artifact)}[_.-]", name) is not None


def _classes(path: Path) -> list[str]:
    try:
        with zipfile.ZipFile(path) as jar:
            return jar.namelist()
    except (OSError, zipfile.BadZipFile):
        return []


def _file_names(pattern: str) -> list[str]:
    """Names of the files of a path, which may be a pattern."""
    return [Path(path).name for path in glob.glob(pattern)]


def _text(file: Path) -> str | None:
    """The text of a file; None if it cannot be read."""
    try:
        return file.read_text(errors="replace")
    except OSError:
        return None
