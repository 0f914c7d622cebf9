"""What a report of a bug needs, without secrets: versions, settings, findings, and the state of topics."""

from __future__ import annotations

import datetime as dt
import importlib.metadata
import json
import os
import platform
import re
import subprocess
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from airflow_provider_kafka_s3.cli.connection_choice import DEFAULT_IDS
from airflow_provider_kafka_s3.cli.stored_connections import has_connection, read_connection
from airflow_provider_kafka_s3.documents.codec import builtins
from airflow_provider_kafka_s3.exceptions import KafkaS3Error, message_of
from airflow_provider_kafka_s3.submit.spark_command import find_java

if TYPE_CHECKING:
    from airflow_provider_kafka_s3.cli.access import Access
    from airflow_provider_kafka_s3.cli.findings import Finding
    from airflow_provider_kafka_s3.pipeline import TopicPipeline

__all__ = ["report_text"]

_DISTRIBUTIONS: Final = re.compile(
    r"airflow-provider-kafka-s3|apache-airflow(-core|-task-sdk|-providers-.+)?|pyspark(-client)?|pyarrow|boto3|botocore|"
    r"confluent-kafka|pyiceberg|msgspec|numpy|isal|deflate"
)
_OPTIONS: Final = (
    *("bucket", "topics_dir", "pipeline", "topic", "aws_conn_id", "endpoint_url", "region", "addressing_style"),
    *("upload", "kafka_conn_id", "bootstrap_server", "registry_conn_id", "registry_url", "dry_run", "jars"),
)
_URLS: Final = {"endpoint_url", "registry_url"}
_SECRET_VARIABLES: Final = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_ACCESS_KEY_ID")
_LAST: Final = 5
"""Batches of a topic."""
_JAVA_SECONDS: Final = 30.0
_UNBOUNDED: Final = ("slices", "groups", "start", "epochs", "skipped")
"""Fields of a plan that grow with the topic: of these a report has the size."""


def report_text(access: Access, findings: Sequence[Finding]) -> str:
    """The report, as JSON.

    Args:
        access: of the command.
        findings: of the checks.
    """
    from airflow.providers.common.compat.sdk import redact

    from airflow_provider_kafka_s3.airflow.connections.stored import mask

    for name in _SECRET_VARIABLES:
        if secret := os.environ.get(name):
            mask(secret)
    # Connections first: their secrets are masked from then on, wherever else they are.
    settings = _settings(access)
    content = {
        "report": 1,
        "made_at": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "versions": _versions(),
        "settings": settings,
        "findings": [vars(finding) for finding in findings],
        "topics": _attempt(lambda: [_topic(access, topic) for topic in _topics(access)]),
    }
    return json.dumps(_each_text(content, lambda text: str(redact(text))), indent=2) + "\n"


def _each_text(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, dict):
        return {change(str(name)): _each_text(item, change) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_each_text(item, change) for item in value]
    return change(value) if isinstance(value, str) else value


def _attempt(make: Callable[[], Any]) -> Any:
    """A part of the report, or why there is none."""
    try:
        return make()
    except KafkaS3Error as e:
        return {"error": f"{type(e).__name__}: {message_of(e)}"}


def _versions() -> dict[str, str]:
    names = {d.metadata["Name"].lower(): d.version for d in importlib.metadata.distributions()}
    return {
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "java": _java(),
        **{name: names[name] for name in sorted(names) if _DISTRIBUTIONS.fullmatch(name)},
    }


def _java() -> str:
    command = find_java(os.environ)
    if command is None:
        return "none"
    try:
        done = subprocess.run([command, "-version"], capture_output=True, text=True, check=False, timeout=_JAVA_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as e:
        return f"unknown ({type(e).__name__})"
    return next(iter(done.stderr.splitlines()), "unknown")


def _settings(access: Access) -> dict[str, Any]:
    from airflow.configuration import conf

    from airflow_provider_kafka_s3.airflow.connections import described_settings

    options = {name: getattr(access.arguments, name) for name in _OPTIONS if getattr(access.arguments, name, None)}
    for name in options.keys() & _URLS:
        # It may have a login.
        options[name] = described_settings({"endpoint_url": options[name]})["endpoint_url"]
    settings: dict[str, Any] = {
        "options": options,
        "connections": {name: _connection(access, name) for name in DEFAULT_IDS},
        "airflow": {
            "executor": conf.get("core", "executor", fallback=None),
            "kafka_s3": conf.getsection("kafka_s3") or {},
        },
        "variables": sorted(name for name in os.environ if name.startswith(("KAFKA_S3_", "SPARK_", "AWS_", "HADOOP_"))),
    }
    if access.option("kafka_config"):
        settings["kafka_config"] = _attempt(lambda: described_settings(access.kafka_config))
    return settings


def _connection(access: Access, parameter: str) -> dict[str, Any]:
    from airflow_provider_kafka_s3.airflow.connections import described_connection

    option = None if parameter == "spark_conn_id" else access.option(parameter)
    conn_id = option or DEFAULT_IDS[parameter]
    if not has_connection(conn_id):
        return {"id": conn_id, "exists": False}

    def read() -> dict[str, Any]:
        return read_connection(conn_id, lambda named: described_connection(named, parameter), parameter)

    return {"id": conn_id, "exists": True, **_attempt(read)}


def _topics(access: Access) -> list[TopicPipeline]:
    return access.known_topics() if access.arguments.pipeline else []


def _topic(access: Access, topic: TopicPipeline) -> Any:
    """The state of a topic: stored offsets, marker, last batches, open ones with their tries, and the newest plan."""
    state: dict[str, Any] = {"pipeline": topic.log.pipeline, "topic": topic.log.topic}

    def with_or_without_kafka() -> Any:
        try:
            return topic.status(last=_LAST, use_kafka=access.has_kafka)
        except KafkaS3Error:
            return topic.status(last=_LAST, use_kafka=False)

    def read() -> dict[str, Any]:
        status = with_or_without_kafka()
        if status is None:
            return {"status": None}
        plan = topic.log.read_plan(topic.log.view().next - 1)
        return {
            "status": status.to_json(),
            "marker": builtins(status.marker),
            "newest_plan": None if plan is None else _shortened(builtins(plan)),
        }

    return state | _attempt(read)


def _shortened(plan: dict[str, Any]) -> dict[str, Any]:
    return {name: len(value) if name in _UNBOUNDED and value else value for name, value in plan.items()}
