"""Records of objects whose offsets interleave are in order, and few of them are in memory."""

from __future__ import annotations

import random
from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_kafka_s3.config import ByField, Envelope, Hourly, JsonConverter, JsonLines
from airflow_provider_kafka_s3.reading.record import Record, Records
from airflow_provider_kafka_s3.replay.merge import merged, most_at_once
from airflow_provider_kafka_s3.replay.source import ReplaySource
from airflow_provider_kafka_s3.retry import Retrier
from airflow_provider_kafka_s3.storage.durable import DurableStore
from airflow_provider_kafka_s3.storage.port import StoredObject
from tests.unit.batch.simulated_topic import Topic
from tests.unit.replay.landed import layout_of, planned, request

START = 1_700_000_000_000


def records_of(offsets: list[int]) -> Records:
    """Records with these offsets."""
    return Records.of(Record(0, offset, None, None, None) for offset in offsets)


def pieces_of(records: Records, size: int) -> Iterator[Records]:
    """Some at a time, and sometimes none."""
    for at in range(0, len(records), size):
        yield records[at : at + size]
        yield records[:0]


@given(
    st.lists(st.integers(0, 5), max_size=60),
    st.integers(1, 7),
    st.integers(0, 3),
)
def test_streams_are_merged_by_offset(owners: list[int], size: int, below: int) -> None:
    """Whatever the pieces are; a stream may begin behind the offset that it is announced with, or have nothing."""
    streams: dict[int, list[int]] = {owner: [] for owner in range(6)}
    for offset, owner in enumerate(owners):
        streams[owner].append(offset + below)
    found = merged(
        (min(offsets, default=below) - below, pieces_of(records_of(offsets), size)) for offsets in streams.values()
    )
    assert [record.offset for some in found for record in some] == [n + below for n in range(len(owners))]


def test_a_stream_is_begun_when_its_lowest_offset_is_reached() -> None:
    """All records before that have been given then."""
    given_offsets: list[int | None] = []
    begun_at: dict[int, int] = {}

    def stream(low: int) -> Iterator[Records]:
        begun_at[low] = len(given_offsets)
        yield records_of([*range(low, low + 20, 2)])

    for some in merged((low, stream(low)) for low in (0, 1, 100, 201)):
        given_offsets += [record.offset for record in some]
    assert begun_at == {0: 0, 1: 1, 100: 20, 201: 30}


def test_ranges_that_overlap_are_counted() -> None:
    """At the place where most of them do."""
    assert most_at_once([]) == 0
    assert most_at_once([(0, 5), (5, 9), (6, 7), (10, 12)]) == 2
    assert most_at_once([(0, 5), (5, 9), (5, 5), (10, 12)]) == 3


class RecordingStore(DurableStore):
    """A bucket that records the reads of objects."""

    def __init__(self, topic: Topic) -> None:
        super().__init__(topic.bucket, Retrier())
        self.reads: list[tuple[str, int]] = []

    def get(self, key: str, *, start: int | None = None, end: int | None = None) -> StoredObject | None:
        """Record the key and the number of bytes."""
        if start is not None and end is not None:
            self.reads.append((key, end - start))
        return super().get(key, start=start, end=end)


def test_many_objects_that_are_open_at_once_are_read_in_small_requests() -> None:
    """All of them together have 16 MiB of requests; few are read in large ones."""
    count, rng = 64, random.Random(1)
    layout = layout_of(
        JsonLines(), content=Envelope(), value_converter=JsonConverter(), partitioner=ByField(names=("f",))
    )
    topic = Topic(layout, records_per_poll=500)
    for n in range(count * 5):
        topic.append(b'{"f":%d,"pad":"%s"}' % (n % count, rng.randbytes(35_000).hex().encode()), timestamp=START + n)
    topic.land()
    assert min(len(body) for body in topic.objects().values()) > 350_000
    log = topic.pipeline.log
    log.store = store = RecordingStore(topic)
    source = ReplaySource(log, request(), planned(topic))
    found = [record.offset for some in source.records(0) for record in some]
    assert found == [*range(count * 5)]
    assert max(size for _, size in store.reads) <= 16 * 1024 * 1024 // count


def test_objects_of_later_offsets_are_not_read_before_those_of_earlier_ones_are_sent() -> None:
    """Although all of them are one step, as one object has the lowest and the highest offset."""
    topic = Topic(layout_of(JsonLines(), content=Envelope(), value_converter=JsonConverter(), partitioner=Hourly()))
    for hour in (0, *(h for h in range(1, 30) for _ in range(2)), 0):
        topic.append(b"{}", timestamp=START + hour * 3_600_000)
    topic.land()
    log = topic.pipeline.log
    log.store = store = RecordingStore(topic)
    plan = planned(topic)
    assert [len(step) for step in plan.partitions[0]] == [30]
    source = ReplaySource(log, request(), plan).records(0)
    first = next(source)
    assert [record.offset for record in first] == [0]
    assert len({key for key, _ in store.reads}) == 1
