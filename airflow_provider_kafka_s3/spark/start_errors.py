"""Derives the reason why Spark could not start from its output or an exception."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import urlsplit

from airflow_provider_kafka_s3.exceptions import ConfigurationError, KafkaS3Error, SparkJobError

__all__ = ["about_start"]

_NO_YARN: Final = re.compile(r"either HADOOP_CONF_DIR or YARN_CONF_DIR must be set")
_NO_MASTER: Final = re.compile(
    r"(?:Could not parse Master URL: '(?P<parsed>[^']*)'|Invalid master URL: (?P<invalid>\S+)|"
    r"Master must either be yarn or start with)"
)
_OLD_JAVA: Final = re.compile(r"UnsupportedClassVersionError: .{1,300}")
_NO_JAVA: Final = re.compile(r"JAVA_HOME is not set")
_UNRESPONSIVE: Final = re.compile(r"All masters are unresponsive")
_UNRESOLVED: Final = re.compile(r"unresolved dependency: (?P<what>[^\s:,\]]+): (?P<why>[^,\]\n]+)")
_SEARCHED: Final = re.compile(r"^\s*(?:-- artifact .*|)(?P<url>https?://\S+)\s*$", re.MULTILINE)
_NO_HOST: Final = re.compile(r"Host (?P<host>\S+) not found")
_NO_ACCESS: Final = re.compile(r"Server access error at url (?P<url>\S+) \((?P<why>.*)\)")
_CONNECTOR: Final = re.compile(r"spark-(?:sql|token-provider)-kafka-0-10_")
_WAYS: Final = (
    "name a repository that the worker reaches (repositories=, or a file of Ivy's settings: spark.jars.ivySettings in "
    "conf), or give the files that are on the worker by jars="
)
_ADDED: Final = ". Spark's Kafka connector is fetched if neither jars nor packages nor Spark's settings provide it"


def about_start(text: str) -> KafkaS3Error | None:
    """The error for the text of an output or an exception, if it shows a known reason why Spark could not start."""
    if _NO_YARN.search(text):
        return ConfigurationError(
            "Spark has no configuration of YARN: HADOOP_CONF_DIR is not set. Set it to the folder with yarn-site.xml "
            "and core-site.xml, on the worker or in env_vars"
        )
    if master := _NO_MASTER.search(text):
        name = master["parsed"] or master["invalid"]
        return ConfigurationError(
            f"{f'{name!r} is no Spark master' if name else 'the Spark master is invalid'}: correct host and port of "
            f"the connection of spark_conn_id, such as 'local[2]', 'yarn', 'spark://host:7077' or "
            f"'k8s://https://host:443'"
        )
    if java := _OLD_JAVA.search(text):
        return ConfigurationError(
            f"Java is too old for this Spark, which needs Java 17 or 21: set JAVA_HOME on the worker or in env_vars. "
            f"Java's error: {java[0]}"
        )
    if _NO_JAVA.search(text):
        return ConfigurationError("there is no Java for Spark: install Java 17 or 21 on the worker, or set JAVA_HOME")
    if _UNRESPONSIVE.search(text):
        return SparkJobError(
            "the Spark master does not answer: check that it runs, and host and port of the connection of spark_conn_id"
        )
    if unresolved := dict.fromkeys(match["what"] for match in _UNRESOLVED.finditer(text)):
        return _about_packages(text, unresolved)
    return None


def _about_packages(text: str, unresolved: Iterable[str]) -> KafkaS3Error:
    """The error for unresolved packages. They are missing only if all repositories could be reached.

    Ivy reports packages of unreachable repositories as missing as well.
    """
    packages = ", ".join(name.replace("#", ":").replace(";", ":") for name in unresolved)
    searched = {urlsplit(match["url"]).netloc for match in _SEARCHED.finditer(text)}
    failed = {urlsplit(match["url"]).netloc: match["why"] for match in _NO_ACCESS.finditer(text)}
    failed |= {match["host"]: "no such host" for match in _NO_HOST.finditer(text)}
    reached = searched - failed.keys()
    about = _ADDED if _CONNECTOR.search(packages) else ""
    failures = "; ".join(f"{host}: {why}" for host, why in failed.items())
    if failed and reached:
        return SparkJobError(
            f"packages: {packages} was not found, and not all repositories could be reached: {failures}. It is not in "
            f"{', '.join(sorted(reached))}. If it is in none, correct the coordinates (group:artifact:version); else "
            f"{_WAYS}{about}"
        )
    if failed:
        return SparkJobError(
            f"packages: no repository can be reached for {packages}: {failures}. To fix it, {_WAYS}{about}"
        )
    where = f" ({', '.join(sorted(reached))})" if reached else ""
    return ConfigurationError(
        f"packages: {packages} is in none of the searched repositories{where}. Correct the coordinates "
        f"(group:artifact:version), or {_WAYS}{about}"
    )
