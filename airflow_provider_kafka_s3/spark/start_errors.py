"""Why Spark could not start, read from its output or from an exception."""

from __future__ import annotations

import re
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
_SILENT: Final = re.compile(r"All masters are unresponsive")
_UNRESOLVED: Final = re.compile(r"unresolved dependency: (?P<what>[^\s:,\]]+): (?P<why>[^,\]\n]+)")
_ASKED: Final = re.compile(r"^\s*(?:-- artifact .*|)(?P<url>https?://\S+)\s*$", re.MULTILINE)
_NO_HOST: Final = re.compile(r"Host (?P<host>\S+) not found")
_NO_ACCESS: Final = re.compile(r"Server access error at url (?P<url>\S+) \((?P<why>.*)\)")
_CONNECTOR: Final = re.compile(r"spark-(?:sql|token-provider)-kafka-0-10_")
_WAYS: Final = (
    "name a repository that the worker reaches (repositories=, or a file of Ivy's settings: spark.jars.ivySettings in "
    "conf), or give the files that are on the worker by jars="
)
_ADDED: Final = ". Spark's Kafka connector is fetched if neither jars nor packages, nor Spark's own settings, bring it"


def about_start(text: str) -> KafkaS3Error | None:
    """The error if Spark could not start for a reason that is known; the text of an output, or of an exception."""
    if _NO_YARN.search(text):
        return ConfigurationError(
            "Spark has no configuration of YARN: HADOOP_CONF_DIR is not set. Set it to the folder with yarn-site.xml "
            "and core-site.xml, on the worker or in env_vars"
        )
    if master := _NO_MASTER.search(text):
        name = master["parsed"] or master["invalid"]
        return ConfigurationError(
            f"{f'{name!r} is no Spark master' if name else 'the Spark master is none that Spark knows'}: correct host "
            f"and port of the connection of spark_conn_id, such as 'local[2]', 'yarn', 'spark://host:7077' or "
            f"'k8s://https://host:443'"
        )
    if java := _OLD_JAVA.search(text):
        return ConfigurationError(
            f"Java is too old for this Spark, which needs Java 17 or 21: set JAVA_HOME on the worker or in env_vars. "
            f"Java said: {java[0]}"
        )
    if _NO_JAVA.search(text):
        return ConfigurationError("there is no Java for Spark: install Java 17 or 21 on the worker, or set JAVA_HOME")
    if _SILENT.search(text):
        return SparkJobError(
            "the Spark master does not answer: check that it runs, and host and port of the connection of spark_conn_id"
        )
    if wanted := {found["what"]: found["why"] for found in _UNRESOLVED.finditer(text)}:
        return _about_packages(text, wanted)
    return None


def _about_packages(text: str, wanted: dict[str, str]) -> KafkaS3Error:
    """Packages are not there only if all repositories say so: of those that cannot be reached Ivy says it, too."""
    named = ", ".join(name.replace("#", ":").replace(";", ":") for name in wanted)
    asked = {urlsplit(found["url"]).netloc for found in _ASKED.finditer(text)}
    failed = {urlsplit(found["url"]).netloc: found["why"] for found in _NO_ACCESS.finditer(text)}
    failed |= {found["host"]: "no such host" for found in _NO_HOST.finditer(text)}
    reached = asked - failed.keys()
    about = _ADDED if _CONNECTOR.search(named) else ""
    told = "; ".join(f"{host}: {why}" for host, why in failed.items())
    if failed and reached:
        return SparkJobError(
            f"packages: {named} was not found, and not all repositories could be reached: {told}. It is not in "
            f"{', '.join(sorted(reached))}. If it is in none, correct the coordinates (group:artifact:version); else "
            f"{_WAYS}{about}"
        )
    if failed:
        return SparkJobError(f"packages: no repository can be reached for {named}: {told}. To mend it, {_WAYS}{about}")
    where = f" ({', '.join(sorted(reached))})" if reached else ""
    return ConfigurationError(
        f"packages: {named} is in no repository that was asked{where}. Correct the coordinates "
        f"(group:artifact:version), or {_WAYS}{about}"
    )
