"""Landed records are found by their offset where offsets have gaps: as far as these are known, each of them."""

from __future__ import annotations

import json
from bisect import bisect_left
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_kafka_s3.config import BlockGzip, ByField, JsonLines, Limits
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.formats.block_offsets import BlockOffsets
from airflow_provider_kafka_s3.reading.seek import seek
from tests.unit.batch.simulated_topic import Topic
from tests.unit.reading.sought_records import counted, layout_of, offsets, plain, topic_of


def with_gaps(gaps: list[bool], block_size: int) -> Topic:
    """A topic in blocks, with numbers as values, but at the gaps."""
    record_format = BlockGzip(lines=JsonLines(on_null="ignore"), block_size=block_size)
    topic = topic_of(layout_of(record_format), records_per_poll=5000)
    topic.append(*(None if gap else b"%d" % n for n, gap in enumerate(gaps)))
    topic.land(limits=Limits(records_per_slice=len(gaps)))
    return topic


def test_offsets_without_a_record_are_passed_over() -> None:
    """As by a consumer: markers of transactions and null values that were left out, with an index that has the gaps."""
    topic = topic_of(layout_of(BlockGzip(lines=JsonLines(on_null="ignore"))))
    topic.append(b"0", None, None, b"3", b"4", None, b"6")
    topic.land()
    assert offsets(seek(topic.pipeline.log, 0, 1)) == [3]
    assert offsets(seek(topic.pipeline.log, 0, 0, records=9)) == [0, 3, 4, 6]
    assert [plain(r)["value"] for r in seek(topic.pipeline.log, 0, 4, records=2)] == [4, 6]


def test_the_end_of_a_batch_may_have_no_records() -> None:
    """Nothing is found behind the last one, which is no error: the offset is landed."""
    topic = topic_of(layout_of(JsonLines(on_null="ignore")))
    topic.append(b"0", None)
    topic.land()
    assert seek(topic.pipeline.log, 0, 1) == []


def test_what_is_not_known_is_an_error_and_the_whole_object_is_there_on_request() -> None:
    """Lines keep no offsets: with gaps only the first and the last record of an object are known."""
    topic = topic_of(layout_of(JsonLines(on_null="ignore")))
    topic.append(b"0", None, b"2", b"3", None, b"5")
    topic.land()
    log = topic.pipeline.log
    assert [plain(seek(log, 0, n)[0])["value"] for n in (0, 5)] == [0, 5]
    with pytest.raises(ConfigurationError) as error:
        seek(log, 0, 2)
    assert (
        "topic 'orders', partition 0: which record has offset 2 is not known. Its object has 4 records with offsets "
        "from 0 to 5, so there are gaps between them, and its format keeps no offsets"
    ) in str(error.value)
    assert "use --whole-block (whole_block=True): s3://memory/lake/orders/partition=0/" in str(error.value)
    found = seek(log, 0, 2, whole_block=True)
    assert [(r["offset"], r["offset_between"], r["value"]) for r in map(plain, found)] == [
        (None, [0, 6], value) for value in (0, 2, 3, 5)
    ]
    with pytest.raises(ConfigurationError, match="which record has offset 1 is not known"):
        seek(log, 0, 0, records=2)


def test_of_two_records_with_a_gap_both_are_known() -> None:
    """They are the first and the last one of their object."""
    topic = topic_of(layout_of(JsonLines(on_null="ignore")))
    topic.append(b"0", None, b"2")
    topic.land()
    assert offsets(seek(topic.pipeline.log, 0, 0, records=5)) == [0, 2]


@settings(max_examples=10)
@given(
    gap=st.sampled_from([0.2, 0.5, 0.8]),
    seed=st.integers(0, 2**32),
    sought=st.lists(st.tuples(st.integers(0, 20_000), st.integers(1, 3_000)), min_size=5, max_size=20),
)
def test_every_record_of_blocks_with_thousands_of_gaps_is_found_by_its_offset(
    gap: float, seed: int, sought: list[tuple[int, int]]
) -> None:
    """Offsets of gaps are passed over, as in blocks of few; a block has more than 1,000 ranges."""
    chance = Random(seed)
    gaps = [chance.random() < gap for _ in range(20_000)]
    topic = with_gaps(gaps, 40_000)
    log, there = topic.pipeline.log, [n for n, is_gap in enumerate(gaps) if not is_gap]
    index = next(body for key, body in topic.objects().items() if key.endswith(".index.json"))
    assert any("offset_runs" in chunk for chunk in json.loads(index)["chunks"])
    assert [(r.offset, r.raw) for r in seek(log, 0, there[0], records=20_000)] == [(n, b"%d" % n) for n in there]
    for number, records in sought:
        start = number % (there[-1] + 1)
        behind = bisect_left(there, start)
        assert [(r.offset, r.raw) for r in seek(log, 0, start, records=records)] == [
            (n, b"%d" % n) for n in there[behind : behind + records]
        ]


def test_records_of_transactions_are_found_in_a_block_of_all_of_them() -> None:
    """Each has a control record behind its records, so a block of many has more than 1,000 gaps."""
    topic = topic_of(layout_of(BlockGzip()), records_per_poll=5000)
    for transaction in range(1_200):
        topic.append(*(b"%d" % (transaction * 4 + n) for n in range(3)))
        topic.kafka.append_marker("orders", 0)
    topic.land(limits=Limits(records_per_slice=5000))
    log, store, _ = counted(topic)
    assert [plain(r)["value"] for n in (0, 2401, 4798) for r in seek(log, 0, n)] == [0, 2401, 4798]
    assert offsets(seek(log, 0, 2403, records=4)) == [2404, 2405, 2406, 2408]
    # Marker, index and block each time; plan and manifest once.
    assert len(store.requests) == 4 * 3 + 2


def test_of_a_block_whose_index_has_no_ranges_the_block_is_there_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """Earlier versions had none of more than 1,000 gaps. Not the whole object: the others are not read."""
    with monkeypatch.context() as patch:
        patch.setattr(BlockOffsets, "found", lambda self: (None, None))
        topic = with_gaps([n % 2 == 1 for n in range(6000)], 7000)
    log, store, _ = counted(topic)
    with pytest.raises(
        ConfigurationError,
        match=r"which record has offset 4 is not known\. Its block has 1,511 .* an earlier version wrote its index",
    ):
        seek(log, 0, 4)
    before = len(store.requests)
    found = seek(log, 0, 4, whole_block=True)
    assert [record.raw for record in found[:3]] == [b"0", b"2", b"4"]
    assert {record.between for record in found} == {(0, 2 * len(found) - 1)}
    assert len(found) < 2000
    # The marker, the index and the block; plan and manifest do not change.
    assert len(store.requests) - before == 3


def test_records_of_several_objects_are_merged_by_their_offsets() -> None:
    """A partitioner by field gives each object gaps, which its index has."""
    topic = topic_of(layout_of(BlockGzip(block_size=60), partitioner=ByField(names=["k"])))
    topic.append(*(b'{"k":%d,"n":%d}' % (n % 3, n) for n in range(40)))
    topic.land()
    found = seek(topic.pipeline.log, 0, 11, records=17)
    assert [(r["offset"], r["value"]["n"]) for r in map(plain, found)] == [(n, n) for n in range(11, 28)]


def test_candidates_of_several_objects_are_all_there_on_request() -> None:
    """Which of them has the offset is not known either."""
    topic = topic_of(layout_of(JsonLines(), partitioner=ByField(names=["k"])))
    topic.append(*(b'{"k":%d,"n":%d}' % (n % 2, n) for n in range(10)))
    topic.land()
    with pytest.raises(ConfigurationError, match="which record has offset 5 is not known"):
        seek(topic.pipeline.log, 0, 5)
    found = seek(topic.pipeline.log, 0, 5, whole_block=True)
    assert sorted(plain(r)["value"]["n"] for r in found) == list(range(10))
    assert {r.between for r in found} == {(0, 9), (1, 10)}


def test_an_object_without_gaps_is_believed_before_others_whose_offsets_overlap() -> None:
    """Its offsets are in no other object, so those are read where it ends only."""
    topic = topic_of(layout_of(JsonLines(), partitioner=ByField(names=["k"])))
    folders = [0, 1, 2, 2, 2, 2, 0, 1, 0]
    topic.append(*(b'{"k":%d,"n":%d}' % (k, n) for n, k in enumerate(folders)))
    topic.land()
    for n, count in ((2, 4), (3, 1), (5, 1)):
        found = seek(topic.pipeline.log, 0, n, records=count)
        assert [(r["offset"], r["value"]["n"]) for r in map(plain, found)] == [(o, o) for o in range(n, n + count)]
    with pytest.raises(ConfigurationError, match="which record has offset 6 is not known"):
        seek(topic.pipeline.log, 0, 5, records=2)


VALUES = st.lists(st.one_of(st.none(), st.integers(0, 10**30)), min_size=1, max_size=25)


@given(values=VALUES, block_size=st.integers(1, 80), start=st.integers(0, 24), records=st.integers(1, 30))
def test_any_part_of_a_topic_of_blocks_is_read_exactly(
    values: list[int | None], block_size: int, start: int, records: int
) -> None:
    """Whatever is null and left out, and wherever blocks end."""
    topic = topic_of(layout_of(BlockGzip(lines=JsonLines(on_null="ignore"), block_size=block_size)))
    topic.append(*(None if value is None else b"%d" % value for value in values))
    topic.land(limits=Limits(records_per_slice=10))
    start %= len(values)
    expected = [(n, b"%d" % value) for n, value in enumerate(values) if value is not None and n >= start][:records]
    found = seek(topic.pipeline.log, 0, start, records=records)
    assert [(record.offset, record.raw) for record in found] == expected
