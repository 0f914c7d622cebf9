"""The jars that Spark's Kafka connector consists of: whether they are there, before Spark is started."""

from __future__ import annotations

import glob
import importlib.util
import os
import re
import shutil
import sysconfig
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

__all__ = ["CONNECTOR", "jars_of_spark", "local_jars", "missing_jars", "pyspark_home", "spark_home", "unreadable_jars"]

CONNECTOR: Final[Mapping[str, str]] = {
    "spark-sql-kafka-0-10": "org/apache/spark/sql/kafka010/KafkaSourceProvider.class",
    "spark-token-provider-kafka-0-10": "org/apache/spark/kafka010/KafkaTokenUtil.class",
    "kafka-clients": "org/apache/kafka/clients/consumer/KafkaConsumer.class",
    "commons-pool2": "org/apache/commons/pool2/ObjectPool.class",
}
"""Jars by the names of their artifacts, and a class of each."""


def local_jars(jars: str) -> tuple[list[Path], list[str]]:
    """Sort what ``spark-submit`` is given as ``--jars``.

    Args:
        jars: paths, patterns and URLs, separated by commas.

    Returns:
        The files of this machine, which need not exist; and the URLs that cannot be looked at from here (``hdfs://``,
        ``s3a://``, ``https://``, and ``local:/``, which is a path of the cluster's machines).
    """
    files, elsewhere = [], []
    for jar in filter(None, (part.strip() for part in jars.split(","))):
        url = urlsplit(jar)
        if url.scheme not in ("", "file"):
            elsewhere.append(jar)
            continue
        path = unquote(url.path) if url.scheme else jar
        found = sorted(glob.glob(path)) if glob.has_magic(path) else []
        files += [Path(name) for name in found] or [Path(path)]
    return files, elsewhere


def unreadable_jars(jars: str) -> list[str]:
    """Files of this machine among the jars that do not exist or may not be read."""
    return [str(path) for path in local_jars(jars)[0] if not path.is_file() or not os.access(path, os.R_OK)]


def missing_jars(jars: str, beside: Iterable[str] = ()) -> list[str]:
    """Jars of the connector that are not among those given: by their names, or by what is in them.

    Args:
        jars: as for :func:`local_jars`.
        beside: names of files that Spark has anyway.

    Returns:
        Names of artifacts; none if a jar that cannot be looked at may hold them.
    """
    files, elsewhere = local_jars(jars)
    names = [*(path.name for path in files), *(jar.rpartition("/")[2] for jar in elsewhere), *beside]
    missing = [jar for jar in CONNECTOR if not any(_is(name, jar) for name in names)]
    if any(not any(_is(jar.rpartition("/")[2], known) for known in CONNECTOR) for jar in elsewhere):
        return []
    # A jar of another name may hold several of them, as one that was built for this does.
    held = {name for path in files if missing for name in _classes(path)}
    return [jar for jar in missing if CONNECTOR[jar] not in held]


def jars_of_spark(command: str, environment: Mapping[str, str]) -> list[str] | None:
    """Names of the jars that a Spark brings itself.

    Args:
        command: that submits to it.
        environment: of the command.

    Returns:
        None: that is not known, or settings of its own may name more of them.
    """
    home = spark_home(command, environment)
    if home is None or environment.get("SPARK_DIST_CLASSPATH"):
        return None
    configured = Path(environment.get("SPARK_CONF_DIR") or home / "conf")
    if any((configured / name).exists() for name in ("spark-defaults.conf", "spark-env.sh")):
        return None
    folder = home / "jars"
    return os.listdir(folder) if folder.is_dir() else None


def spark_home(command: str, environment: Mapping[str, str]) -> Path | None:
    """The folder of the Spark that a command starts; None: that is not known.

    Args:
        command: that submits.
        environment: of the command.
    """
    # Spark's scripts obey it, pyspark's own, too.
    if home := environment.get("SPARK_HOME"):
        return Path(home)
    found = shutil.which(command, path=environment.get("PATH"))
    if found is None:
        return None
    folder = Path(found).resolve().parent
    # pip's copy of pyspark's command finds the package by Python.
    return pyspark_home() if folder == Path(sysconfig.get_path("scripts")).resolve() else folder.parent


def pyspark_home() -> Path | None:
    """The folder of this environment's pyspark, which is a Spark; None: there is none."""
    spec = importlib.util.find_spec("pyspark")
    return Path(spec.submodule_search_locations[0]) if spec is not None and spec.submodule_search_locations else None


def _is(name: str, artifact: str) -> bool:
    return re.match(rf"{re.escape(artifact)}[_.-]", name) is not None


def _classes(path: Path) -> list[str]:
    try:
        with zipfile.ZipFile(path) as jar:
            return jar.namelist()
    except (OSError, zipfile.BadZipFile):
        return []
