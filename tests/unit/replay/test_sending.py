"""Records of a replay are sent in transactions that fit into memory, and not faster than its rate."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Final, cast

import pytest

from airflow_provider_kafka_s3.exceptions import MissingObjectError
from airflow_provider_kafka_s3.reading.record import Headers, Record, Records
from airflow_provider_kafka_s3.replay.job import Rate
from airflow_provider_kafka_s3.replay.sender import RequestLimits, produce_records, transactions

LIMITS: Final = RequestLimits.of({})
KEEPS: Final[dict[str, Any]] = {"keeps_partition": True, "keeps_timestamp": True, "timeout": 1}


def records(count: int, size: int = 1) -> Records:
    """Records of one partition."""
    return Records.of(Record(0, n, None, None, b"x" * size) for n in range(count))


def number(transaction: list[Records]) -> int:
    """How many records a transaction has."""
    return sum(map(len, transaction))


class Producer:
    """Notes what is sent, and what is in its queue when it is flushed."""

    def __init__(self, *, full_at: int = 1_000_000) -> None:
        self.sent: list[Any] = []
        self.queued: list[list[int]] = [[]]
        self._full_at = full_at

    def produce(self, topic: str, value: bytes | None, key: bytes | None, *rest: Any) -> None:
        if len(self.queued[-1]) == self._full_at:
            raise BufferError
        self.sent.append((topic, value, key, *rest))
        self.queued[-1].append(len(value or b"") + len(key or b""))

    def flush(self, timeout: float) -> int:
        self.queued.append([])
        return 0

    def poll(self, timeout: float) -> int:
        if len(self.queued[-1]) == self._full_at:
            self.queued.append([])
        return 0


def test_a_transaction_has_no_more_records_than_its_limit_and_the_last_one_has_the_rest() -> None:
    """Whatever the pieces are, that records are read in; all records are sent, in order."""
    sent = records(1_000)
    for pieces in ([sent], [Records.of([one]) for one in sent], [sent[:7], sent[7:500], sent[500:]]):
        found = [*transactions(iter(pieces), 100)]
        assert [one for batch in found for some in batch for one in some] == [*sent]
        assert max(map(number, found)) <= 100
        assert len(found) <= 20
    assert [*transactions(iter([records(0), records(0)]), 100)] == []


def test_a_transaction_of_large_records_ends_at_16_mib() -> None:
    """10,000 records of a megabyte would not fit into memory."""
    sent = records(100, 1_000_000)
    found = [*transactions((Records.of([one]) for one in sent), 10_000)]
    assert [one for batch in found for some in batch for one in some] == [*sent]
    assert max(map(number, found)) == 17


@pytest.mark.parametrize(("count", "size"), [(50_000, 0), (30_000, 300), (40, 300_000), (3, 5_000_000)])
@pytest.mark.parametrize("some", [1, 100, 50_000])
def test_no_more_records_are_queued_than_one_request_has(count: int, size: int, some: int) -> None:
    """Then librdkafka waits without CPU time; a large record is alone, and small ones are not sent one by one."""
    sent, producer = records(count, size), Producer()
    batch = [sent[at : at + some] for at in range(0, count, some)]
    produce_records(cast("Any", producer), "t", batch, LIMITS, **KEEPS)
    assert producer.sent == [("t", value, None, 0, None, None, -1, None) for value in sent.values]
    assert all(sum(queued) < 1_000_000 and len(queued) < 10_000 for queued in producer.queued if len(queued) > 1)
    assert len(producer.queued) <= 2 * (count * (size + 20) // 900_000 + count // 9_000 + 1) or size > 200_000


@pytest.mark.parametrize(
    ("settings", "size", "count"),
    [
        ({"batch.size": 10_000}, 10_000, 10_000),
        ({"batch.size": "50000", "message.max.bytes": 1_000_000}, 50_000, 10_000),
        ({"message.max.bytes": "20000"}, 20_000, 10_000),
        ({"batch.num.messages": "10"}, 1_000_000, 10),
        ({"batch.size": 1}, 1, 10_000),
    ],
)
def test_a_request_is_as_small_as_the_settings_of_the_client_say(
    settings: dict[str, Any], size: int, count: int
) -> None:
    """Such as ``batch.size`` for a target with small batches; headers count, too."""
    sent = [Record(0, n, None, b"key", b"x" * 100, (("header", b"y" * 50),) * (n % 9)) for n in range(3_000)]
    producer, batch = Producer(), [Records.of(sent)]
    limits = RequestLimits.of(settings)
    produce_records(cast("Any", producer), "t", batch, limits, **KEEPS)
    assert [value for _, value, *_ in producer.sent] == [one.value for one in sent]
    place = 0
    for queued in producer.queued:
        some, place = sent[place : place + len(queued)], place + len(queued)
        in_request = sum(103 + 56 * len(one.headers) for one in some)
        assert len(queued) == 1 or (in_request < size and len(queued) <= count)


def test_records_are_sent_with_all_their_parts_also_if_the_queue_is_full() -> None:
    """A record that does not fit is sent when there is room again."""
    headers: Headers = (("h", None), ("h", b"1"))
    sent = [Record(1, 0, 5, b"k", None), Record(2, 1, None, None, b"v", headers), Record(1, 2, 7, b"", b"")]
    kept, any_partition, now = {"keeps_partition": True}, {"keeps_partition": False}, {"keeps_timestamp": False}
    for settings, partitions, times in (
        (kept, [1, 2, 1], [5, -1, 7]),
        (any_partition, [-1, -1, -1], [5, -1, 7]),
        (now, [1, 2, 1], [0, 0, 0]),
    ):
        producer = Producer(full_at=1)
        produce_records(cast("Any", producer), "t", [Records.of(sent)], LIMITS, **{**KEEPS, **settings})
        assert producer.sent == [
            ("t", None, b"k", partitions[0], None, None, times[0], None),
            ("t", b"v", None, partitions[1], None, None, times[1], [*headers]),
            ("t", b"", b"", partitions[2], None, None, times[2], None),
        ]


def test_a_request_without_response_ends_the_transaction() -> None:
    """No more records are queued behind it."""
    from confluent_kafka import KafkaException

    producer = Producer()
    producer.flush = lambda timeout: 1  # type: ignore[method-assign]
    with pytest.raises(KafkaException, match="no response"):
        produce_records(cast("Any", producer), "t", [records(10, 500_000)], LIMITS, **KEEPS)
    assert len(producer.sent) == 1


def test_records_are_sent_in_pieces_at_their_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two seconds for 200 records at 100 per second, also if two threads share it."""
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(time, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    rate = Rate(100.0)
    pieces = [*rate.pieces(records(100)), *rate.pieces(records(100))]
    assert [one for piece in pieces for one in piece] == [*records(100)] * 2
    assert max(map(len, pieces)) == 5
    assert now[0] == pytest.approx(2.0, abs=0.1)
    assert [[*piece] for piece in Rate(None).pieces(records(9))] == [[*records(9)]]
    assert [len(piece) for piece in Rate(0.5).pieces(records(3))] == [1, 1, 1]


@pytest.mark.parametrize(
    ("per_second", "threads", "most"),
    [(None, 8, 10_000), (100.0, 1, 100), (100.0, 8, 12), (0.5, 2, 1), (1e9, 8, 10_000), (5_000.0, 0, 5_000)],
)
def test_transactions_have_the_records_of_a_second_at_most(per_second: float | None, threads: int, most: int) -> None:
    """So that those of all partitions together do not exceed the rate by more, whenever they are sent."""
    assert Rate(per_second).most_together(threads) == most


def test_keys_and_headers_count_as_bytes_of_a_transaction() -> None:
    """Values may be the smallest part."""
    large = [Record(0, n, None, b"k" * 500_000, None, (("h", b"x" * 500_000),)) for n in range(100)]
    found = [*transactions((Records.of([one]) for one in large), 10_000)]
    assert [one for batch in found for some in batch for one in some] == large
    assert max(map(number, found)) == 17


def test_what_was_read_before_an_error_is_sent() -> None:
    """So it is clear what was sent: all before it, and nothing behind."""

    def failing() -> Iterator[Records]:
        yield records(7)
        raise MissingObjectError("gone")

    seen = transactions(failing(), 100)
    assert [[*some] for some in next(seen)] == [[*records(7)]]
    with pytest.raises(MissingObjectError):
        next(seen)
