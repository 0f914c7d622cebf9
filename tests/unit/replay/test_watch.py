"""A replay that reads is not taken for one that has stalled, whatever it sends."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_kafka_s3.config import BytesConverter, Envelope, JsonLines, RawBytes
from airflow_provider_kafka_s3.replay.foreign import ForeignReplaySource, plan_foreign_replay
from airflow_provider_kafka_s3.replay.job import Watch, WatchedStore
from airflow_provider_kafka_s3.replay.source import ReplaySource
from airflow_provider_kafka_s3.retry import Retrier
from airflow_provider_kafka_s3.storage.durable import DurableStore
from tests.unit.batch.simulated_topic import Topic
from tests.unit.replay.landed import TARGET, layout_of, planned, request
from tests.unit.replay.test_foreign import CONFLUENT, sink


class Seen(Watch):
    """Counts signs."""

    def __init__(self) -> None:
        super().__init__()
        self.signs = 0

    def see(self) -> None:
        """Count."""
        self.signs += 1


@pytest.fixture
def topic() -> Topic:
    """A topic of an object of some megabytes."""
    layout = layout_of(JsonLines(), content=Envelope(), value_converter=BytesConverter())
    topic = Topic(layout, records_per_poll=1_000)
    for n in range(5_000):
        topic.append(b"%d" % n * 100, timestamp=n + 1)
    topic.land()
    return topic


@pytest.mark.parametrize(("selection", "skip"), [({"key": b"of no record"}, 0), ({}, 4_999)])
def test_records_that_are_read_and_not_sent_are_signs_of_progress(
    topic: Topic, selection: dict[str, Any], skip: int
) -> None:
    """Those that the selection leaves out, and those that were sent before."""
    seen = Seen()
    wanted = request(**selection)
    source = ReplaySource(topic.pipeline.log, wanted, planned(topic, **selection), on_read=seen.see)
    assert sum(map(len, source.records(0, skip))) <= 1
    assert seen.signs >= 3


def test_lines_of_other_sinks_that_are_read_and_not_sent_are_signs_of_progress() -> None:
    """Likewise."""
    _, log = sink({"topics/orders/partition=0/orders+0+0000000000.bin": b"line\n" * 1_000_000})
    wanted = request(**CONFLUENT)
    seen = Seen()
    source = ForeignReplaySource(log, wanted, plan_foreign_replay(log, wanted, TARGET), on_read=seen.see)
    assert [*source.records(0, 1_000_000)] == []
    assert seen.signs >= 4


def test_bytes_that_are_read_to_count_records_are_signs_of_progress() -> None:
    """Of an object of bytes with separators, before its first record."""
    topic = Topic(layout_of(RawBytes()))
    topic.append(b"value", timestamp=1)
    topic.land()
    (key,) = topic.objects()
    seen = Seen()
    store = WatchedStore(DurableStore(topic.bucket, Retrier()), seen)
    assert store.get(key, start=0, end=5) is not None
    assert seen.signs == 1
