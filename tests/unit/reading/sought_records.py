"""Topics whose landed records are sought by their offsets."""

from __future__ import annotations

import json
from typing import Any

from airflow_provider_kafka_s3.batch.log import TopicLog
from airflow_provider_kafka_s3.config import Layout
from airflow_provider_kafka_s3.documents.addresses import TopicAddress
from airflow_provider_kafka_s3.reading.seek import SoughtRecord
from airflow_provider_kafka_s3.retry import Retrier
from airflow_provider_kafka_s3.storage.durable import DurableStore
from airflow_provider_kafka_s3.testing.stores import FaultyStore
from tests.unit.batch.simulated_topic import Topic


def topic_of(layout: Layout, **more: Any) -> Topic:
    """An empty topic of one partition."""
    return Topic(layout, records_per_poll=more.pop("records_per_poll", 7), **more)


def layout_of(record_format: Any, **more: Any) -> Layout:
    """A layout of the tests."""
    return Layout(topics_dir="lake", format=record_format, **more)


def offsets(found: list[SoughtRecord]) -> list[int | None]:
    """Offsets of found records."""
    return [record.offset for record in found]


def plain(record: SoughtRecord) -> dict[str, Any]:
    """The line of a record, parsed."""
    line: dict[str, Any] = json.loads(record.line())
    return line


def counted(topic: Topic) -> tuple[TopicLog, FaultyStore, list[int]]:
    """A new process whose requests, and bytes of objects, are counted."""
    store, sizes = FaultyStore(topic.bucket), [0]
    get = store.get

    def counting(key: str, **place: Any) -> Any:
        stored = get(key, **place)
        if stored is not None and "/_kafka_s3/" not in key:
            sizes[0] += len(stored.body)
        return stored

    store.get = counting  # type: ignore[method-assign]
    log = TopicLog(
        DurableStore(store, Retrier()), TopicAddress(topics_dir="lake", pipeline="orders-to-lake", topic="orders")
    )
    return log, store, sizes
