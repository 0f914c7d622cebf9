"""The package of Spark's Kafka connector, for a job that names no connector."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from airflow_provider_kafka_s3.spark.connector import CONNECTOR, coordinates
from airflow_provider_kafka_s3.submit.spark_command import spark_home

__all__ = ["connector_packages"]

_SETTINGS: Final = ("spark.jars", "spark.jars.packages", "spark.driver.extraClassPath")
"""Settings of Spark by which jars come to a driver."""

_SET: Final = re.compile(rf"^\s*(?:{'|'.join(map(re.escape, _SETTINGS))})[ \t=:]+\S", re.MULTILINE)
_CORE: Final = re.compile(r"spark-core_(?P<scala>[\d.]+)-(?P<version>\d.*)\.jar")


def connector_packages(
    command: str,
    environment: Mapping[str, str],
    *,
    named: Iterable[object] = (),
    conf: Mapping[str, object],
    properties_file: str | None = None,
) -> str | None:
    """The value of ``--packages`` with which a job without jars can read Kafka.

    Args:
        command: that submits.
        environment: of the command.
        named: parameters of the job that provide jars: jars, packages, the driver's class path.
        conf: the job's Spark configuration.
        properties_file: of the job, in the place of Spark's own defaults.

    Returns:
        Maven coordinates of the connector for the Spark that the command starts. None: that Spark has it, a parameter
        or a setting may provide it, or the version of that Spark is unknown.
    """
    if any(named) or any(conf.get(setting) for setting in _SETTINGS):
        return None
    home = spark_home(command, environment)
    if home is None:
        return None
    defaults = Path(environment.get("SPARK_CONF_DIR") or home / "conf") / "spark-defaults.conf"
    if _SET.search(_text(Path(properties_file) if properties_file else defaults)):
        return None
    jars = _names(str(home / "jars" / "*"))
    class_path = environment.get("SPARK_DIST_CLASSPATH", "").split(os.pathsep)
    if any(name.startswith(f"{CONNECTOR}_") for name in [*jars, *(n for entry in class_path for n in _names(entry))]):
        return None
    core = next((found for name in jars if (found := _CORE.fullmatch(name))), None)
    return None if core is None else coordinates(core["version"], scala=core["scala"])


def _names(pattern: str) -> list[str]:
    """Names of the files of a path, which may be a pattern."""
    return [Path(path).name for path in glob.glob(pattern)]


def _text(file: Path) -> str:
    try:
        return file.read_text(errors="replace")
    except OSError:
        return ""
