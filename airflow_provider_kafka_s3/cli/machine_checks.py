"""Checks of ``kafka-s3 doctor`` on this machine: pyspark, Java, Spark's connector, and Kafka seen from here."""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from airflow_provider_kafka_s3.cli.findings import Finding, good, guarded
from airflow_provider_kafka_s3.messages import few
from airflow_provider_kafka_s3.submit.versions import (
    TESTED,
    connector_flaw,
    installed_versions,
    pyspark_flaw,
    reinstall,
)

if TYPE_CHECKING:
    from airflow_provider_kafka_s3.cli.access import Access

__all__ = ["check_jars", "check_kafka", "check_machine", "pyspark_findings"]

_NAMED: Final = 3


def check_machine(jars: str | None) -> list[Finding]:
    """Everything that Spark needs here."""
    return [
        *guarded(
            "pyspark",
            lambda: pyspark_findings([importlib.metadata.distribution(name) for name in installed_versions()]),
        ),
        *guarded("java", _java),
        *guarded("connector", lambda: check_jars(jars)),
    ]


def pyspark_findings(installed: list[importlib.metadata.Distribution]) -> Iterator[Finding]:
    """Whether pyspark is there, and is one pyspark: two distributions install the same files.

    Args:
        installed: those of pyspark and pyspark-client that are there.
    """
    versions = {d.name: d.version for d in installed}
    if "pyspark" not in versions:
        yield Finding(
            "pyspark",
            "error",
            "pyspark is not installed here, so a local master and the driver cannot run",
            "pip install 'airflow-provider-kafka-s3[spark]', unless the driver runs from a Spark of its own",
        )
        return
    if (flaw := pyspark_flaw(versions)) is not None:
        yield Finding("pyspark", "error", flaw.what, flaw.fix)
        return
    changed = [f"{file}" for d in installed for file in _changed(d)]
    if changed:
        named = few(changed, most=_NAMED)
        yield Finding(
            "pyspark", "error", f"files of pyspark are not those of its version: {named}", reinstall(versions)
        )
        return
    if versions["pyspark"] not in TESTED:
        yield Finding(
            "pyspark",
            "warning",
            f"pyspark {versions['pyspark']} is whole, but this package is tested with {' and '.join(TESTED)} only",
            reinstall(versions),
        )
        return
    yield good("pyspark", f"pyspark {versions['pyspark']} is whole, and agrees with what shares its files")


def _changed(distribution: importlib.metadata.Distribution) -> Iterator[str]:
    """Files that are not what the distribution says it installed."""
    for file in distribution.files or ():
        if file.suffix != ".py" or file.hash is None:
            continue
        try:
            digest = hashlib.new(file.hash.mode, file.read_binary()).digest()
        except OSError:
            yield f"{file} (missing)"
            continue
        if base64.urlsafe_b64encode(digest).decode().rstrip("=") != file.hash.value:
            yield str(file)


def _java() -> Iterator[Finding]:
    from airflow_provider_kafka_s3.submit.spark_command import find_spark_submit, require_java

    require_java({})
    command = find_spark_submit(local=True) or "spark-submit"
    yield good("java", f"Java is found, and Spark is submitted by {command}")


def check_jars(jars: str | None) -> Iterator[Finding]:
    """Whether the jars that the operator gets are those that this pyspark needs.

    Args:
        jars: paths, separated by commas; None: it gets none.
    """
    from airflow_provider_kafka_s3.submit.connector import connector_packages
    from airflow_provider_kafka_s3.submit.jars import jars_of_spark, local_jars, missing_beside, unreadable_jars
    from airflow_provider_kafka_s3.submit.settings import SparkSettings
    from airflow_provider_kafka_s3.submit.spark_command import environment_of, find_spark_submit

    version = installed_versions().get("pyspark")
    if version is None:
        yield Finding(
            "connector", "unknown", "not looked at: which one fits is told by pyspark, which is not installed"
        )
        return
    command = find_spark_submit(local=True) or "spark-submit"
    if not jars:
        fetched = connector_packages(command, environment_of({}), SparkSettings(conn_id=""))
        how = f"{fetched} is fetched by every job" if fetched else "this Spark or its settings may bring it"
        yield good("connector", f"{how}; not looked at. To check jars of the operator, name them by --jars")
        return
    if unreadable := unreadable_jars(jars):
        yield Finding(
            "connector", "error", f"these jars cannot be read: {', '.join(unreadable)}", "correct their paths"
        )
        return
    names = [path.name for path in local_jars(jars)[0]]
    missing = missing_beside(jars, jars_of_spark(command, environment_of({})))
    if missing:
        yield Finding(
            "connector",
            "error",
            f"{', '.join(missing)} is not among the jars",
            "add it, or leave jars= out: it is fetched",
        )
    if (flaw := connector_flaw(version, jars=names)) is not None:
        yield Finding("connector", "error", flaw.what, flaw.fix)
    elif not missing:
        yield good("connector", f"the jars fit pyspark {version}")


def check_kafka(access: Access) -> list[Finding]:
    """Whether Kafka answers, and lets topics be described and read. Nothing is consumed: no group is joined."""
    if not access.has_kafka:
        return [
            Finding("kafka", "unknown", "not asked; name it by --kafka-conn-id, --kafka-config or --bootstrap-server")
        ]
    found = guarded("kafka options", lambda: _options(access))
    topics = access.arguments.topic or sorted({log.topic for log in access.topic_logs()})
    if not topics:
        found.append(Finding("kafka", "unknown", "no topic to ask for; name one by --pipeline and --topic"))
    for topic in topics:
        found += guarded(f"topic {topic}", lambda: _topic(access, topic))  # noqa: B023 - called at once
    return found


def _options(access: Access) -> Iterator[Finding]:
    from airflow_provider_kafka_s3.kafka.options import spark_options

    spark_options(access.kafka_config)
    yield good("kafka options", "every setting has a translation for Spark")


def _topic(access: Access, topic: str) -> Iterator[Finding]:
    source, check = access.source, f"topic {topic}"
    info = source.describe(topic)
    if info.topic_id is None:
        yield Finding(
            check,
            "warning",
            "the brokers give no topic ids (before Kafka 2.8): a topic that is deleted and created again is only "
            "noticed when it is shorter than the stored offsets",
            "upgrade the brokers",
        )
    starts = source.earliest(topic, info.partitions)
    ends = source.ends(topic, info.partitions, "read_committed")
    with_records = [p for p in info.partitions if ends[p] > starts[p]]
    if not with_records:
        yield good(check, f"{len(info.partitions)} partitions, no records; whether they may be read is not known")
        return
    # The last offset: the first one may be deleted any moment.
    partition = with_records[0]
    for _ in source.read(topic, partition, ends[partition] - 1, ends[partition], "read_committed"):
        pass
    yield good(check, f"{len(info.partitions)} partitions, may be described and read")
