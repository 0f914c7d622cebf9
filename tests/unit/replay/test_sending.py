"""Records of a replay are sent in transactions that fit into memory, and not faster than its rate."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, cast

import pytest

from airflow_provider_kafka_s3.exceptions import MissingObjectError
from airflow_provider_kafka_s3.reading.record import Headers, Record, Records
from airflow_provider_kafka_s3.replay.job import Rate
from airflow_provider_kafka_s3.replay.sender import produce_records, transactions


def records(count: int, size: int = 1) -> Records:
    """Records of one partition."""
    return Records.of(Record(0, n, None, None, b"x" * size) for n in range(count))


def number(transaction: list[Records]) -> int:
    """How many records a transaction has."""
    return sum(map(len, transaction))


class Producer:
    """Notes what is sent, and what is in its queue between two polls."""

    def __init__(self, *, full_at: int = 1_000_000) -> None:
        self.sent: list[Any] = []
        self.queued: list[list[int]] = [[]]
        self._full_at = full_at

    def produce(self, topic: str, value: bytes | None, key: bytes | None, *rest: Any) -> None:
        if len(self.queued[-1]) == self._full_at:
            raise BufferError
        self.sent.append((topic, value, key, *rest))
        self.queued[-1].append(len(value or b"") + len(key or b""))

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


def test_records_are_sent_with_all_their_parts_also_if_the_queue_is_full() -> None:
    """A record that does not fit is sent when there is room again."""
    headers: Headers = (("h", None), ("h", b"1"))
    sent = [Record(1, 0, 5, b"k", None), Record(2, 1, None, None, b"v", headers), Record(1, 2, 7, b"", b"")]
    for keeps_partition, partitions in ((True, [1, 2, 1]), (False, [-1, -1, -1])):
        producer = Producer(full_at=1)
        batch = [Records.of(sent)]
        produce_records(cast("Any", producer), "t", batch, keeps_partition=keeps_partition)
        assert producer.sent == [
            ("t", None, b"k", partitions[0], None, None, 5, None),
            ("t", b"v", None, partitions[1], None, None, 0, [*headers]),
            ("t", b"", b"", partitions[2], None, None, 7, None),
        ]


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
