"""Checks of ``kafka-s3 doctor`` on this machine: pyspark, Java, Spark's Kafka connector, and access to Kafka."""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from airflow_provider_kafka_s3.cli.findings import Finding, good, guarded
from airflow_provider_kafka_s3.messages import count, few
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
    """Check what Spark needs on this machine.

    Args:
        jars: paths of the operator's jars, separated by commas; None: it has none.
    """
    return [
        *guarded(
            "pyspark",
            lambda: pyspark_findings([importlib.metadata.distribution(name) for name in installed_versions()]),
        ),
        *guarded("java", _java),
        *guarded("connector", lambda: check_jars(jars)),
    ]


def pyspark_findings(installed: list[importlib.metadata.Distribution]) -> Iterator[Finding]:
    """Check that pyspark is installed and complete: pyspark and pyspark-client install the same files.

    Args:
        installed: the installed distributions of pyspark and pyspark-client.
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
            "pyspark", "error", f"files of pyspark differ from those of its version: {named}", reinstall(versions)
        )
        return
    if versions["pyspark"] not in TESTED:
        yield Finding(
            "pyspark",
            "warning",
            f"pyspark {versions['pyspark']} is complete, but this package is tested with {' and '.join(TESTED)} only",
            reinstall(versions),
        )
        return
    yield good("pyspark", f"pyspark {versions['pyspark']} is complete, with its own files")


def _changed(distribution: importlib.metadata.Distribution) -> Iterator[str]:
    """Files that differ from those that the distribution installed, by its record."""
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
    yield good("java", f"Java was found, and Spark is submitted by {command}")


def check_jars(jars: str | None) -> Iterator[Finding]:
    """Check that the operator's jars are those that the installed pyspark needs.

    Args:
        jars: their paths, separated by commas; None: it has none.
    """
    from airflow_provider_kafka_s3.submit.connector import connector_packages
    from airflow_provider_kafka_s3.submit.jars import jars_of_spark, local_jars, missing_beside, unreadable_jars
    from airflow_provider_kafka_s3.submit.settings import SparkSettings
    from airflow_provider_kafka_s3.submit.spark_command import environment_of, find_spark_submit

    version = installed_versions().get("pyspark")
    if version is None:
        yield Finding(
            "connector", "unknown", "not checked: the right version depends on pyspark, which is not installed"
        )
        return
    command = find_spark_submit(local=True) or "spark-submit"
    if not jars:
        fetched = connector_packages(command, environment_of({}), SparkSettings(conn_id=""))
        how = f"every job fetches {fetched}" if fetched else "this Spark or its settings may include it"
        yield good("connector", f"{how}; not checked. To check jars of the operator, name them by --jars")
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
            "add it, or leave jars= out: Spark then fetches all of them",
        )
    if (flaw := connector_flaw(version, jars=names)) is not None:
        yield Finding("connector", "error", flaw.what, flaw.fix)
    elif not missing:
        yield good("connector", f"the jars fit pyspark {version}")


def check_kafka(access: Access) -> list[Finding]:
    """Check that topics can be described and read. No consumer group is joined, and no offset is committed."""
    if not access.has_kafka:
        return [
            Finding("kafka", "unknown", "not checked; name it by --kafka-conn-id, --kafka-config or --bootstrap-server")
        ]
    findings = guarded("kafka options", lambda: _options(access))
    topics = access.arguments.topic or sorted({topic.log.topic for topic in access.known_topics()})
    if not topics:
        findings.append(Finding("kafka", "unknown", "no topic to check; name one by --pipeline and --topic"))
    for topic in topics:
        findings += guarded(f"topic {topic}", lambda: _topic(access, topic))  # noqa: B023 - called at once
    return findings


def _options(access: Access) -> Iterator[Finding]:
    from airflow_provider_kafka_s3.kafka.options import spark_options

    spark_options(access.kafka_config)
    yield good("kafka options", "every setting can be translated for Spark")


def _topic(access: Access, topic: str) -> Iterator[Finding]:
    source, check = access.source, f"topic {topic}"
    info = source.describe(topic)
    if info.topic_id is None:
        yield Finding(
            check,
            "warning",
            "the brokers have no topic ids (before Kafka 2.8): a topic that is deleted and created again is detected "
            "only while it is shorter than the stored offsets",
            "upgrade the brokers",
        )
    starts = source.earliest(topic, info.partitions)
    ends = source.ends(topic, info.partitions, "read_committed")
    with_records = [p for p in info.partitions if ends[p] > starts[p]]
    if not with_records:
        yield good(
            check, f"{count(len(info.partitions), 'partition')}, without records; whether they can be read is unknown"
        )
        return
    # The last offset: the first one may be deleted at any moment.
    partition = with_records[0]
    for _ in source.read(topic, partition, ends[partition] - 1, ends[partition], "read_committed"):
        pass
    yield good(check, f"{count(len(info.partitions), 'partition')}, can be described and read")
