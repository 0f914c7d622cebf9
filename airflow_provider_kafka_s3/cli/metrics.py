"""The command ``kafka-s3 metrics``."""

from __future__ import annotations

import logging
import time
from typing import Final

from airflow_provider_kafka_s3.cli.access import Access
from airflow_provider_kafka_s3.cli.command import Command
from airflow_provider_kafka_s3.cli.output import FINDINGS, OK, Answer
from airflow_provider_kafka_s3.exceptions import KafkaS3Error, message_of
from airflow_provider_kafka_s3.inspect.metrics import prometheus_text
from airflow_provider_kafka_s3.parallel import in_threads
from airflow_provider_kafka_s3.pipeline import TopicPipeline

__all__ = ["COMMANDS", "metrics"]

log = logging.getLogger(__name__)

_TOPICS: Final = 8
"""Topics that are read at the same time."""


def metrics(access: Access) -> Answer:
    """The gauges of topics; those of a topic that cannot be read are left out, and it is not up."""

    def gauges_of(topic: TopicPipeline) -> dict[str, float]:
        try:
            return topic.gauges(use_kafka=access.has_kafka, now=time.time())
        except KafkaS3Error as e:
            log.warning("pipeline %s, topic %s: %s", topic.log.pipeline, topic.log.topic, message_of(e))
            return {"up": 0}

    topics = access.topic_pipelines()
    gauges = in_threads(gauges_of, topics, threads=_TOPICS)
    labels = [{"pipeline": topic.log.pipeline, "topic": topic.log.topic} for topic in topics]
    is_up = all(of_topic.get("up", 1) for of_topic in gauges)
    data = {"topics": [{**names, "metrics": of_topic} for names, of_topic in zip(labels, gauges, strict=True)]}
    return Answer(data, prometheus_text(zip(labels, gauges, strict=True)).splitlines(), OK if is_up else FINDINGS)


COMMANDS: Final = (
    Command(
        name="metrics",
        run=metrics,
        summary="Print the metrics of topics in the text format of Prometheus.",
        examples=(
            "--bucket lake --bootstrap-server broker:9092",
            "--bucket lake --pipeline orders --json",
        ),
        findings="the state of a topic could not be read",
        topics="many",
        has_dry_run=False,
    ),
)
