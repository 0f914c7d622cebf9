"""The digest of records: of what Kafka has, and of nothing else."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_kafka_s3.arrays import WHOLE_RECORD_SCHEMA, Scattered
from airflow_provider_kafka_s3.batch import records_digest
from airflow_provider_kafka_s3.batch.records_digest import RecordsDigest, RecordsOfBatch

Record = tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]
"""Timestamp, value, key and headers."""

texts = st.one_of(st.none(), st.binary(max_size=5))
headers = st.lists(st.tuples(st.text(max_size=3), texts), max_size=2)
records = st.lists(st.tuples(st.integers(-1, 2**42), texts, texts, headers), min_size=1, max_size=12)


def batch_of(some: Sequence[Record]) -> pa.RecordBatch:
    """Records as they are read."""
    rows: list[dict[str, Any]] = [
        {
            "offset": offset,
            "timestamp": time,
            "value": value,
            "key": key,
            "headers": [{"key": name, "value": of} for name, of in named] or None,
        }
        for offset, (time, value, key, named) in enumerate(some)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=WHOLE_RECORD_SCHEMA)


def digest_of(some: Sequence[Record], *, whole: bool = True) -> str:
    """The digest of records in one batch."""
    digest = RecordsDigest()
    RecordsOfBatch(batch_of(some), whole=whole).add_to(digest, slice(0, len(some)))
    return digest.hexdigest()


ONE: Record = (1_000, b"value", b"key", [("a", b"1"), ("b", None)])


@settings(deadline=None)
@given(records, st.lists(st.integers(0, 12), max_size=3), st.booleans(), st.randoms(use_true_random=False))
def test_batches_and_other_records_between_do_not_matter(
    some: list[Record], cuts: list[int], whole: bool, random: Any
) -> None:
    """Cut anywhere, as slices of larger batches, or picked out of batches in which others lie between."""
    expected = digest_of(some, whole=whole)
    edges = [0, *sorted(min(cut, len(some)) for cut in cuts), len(some)]
    cut, picked = RecordsDigest(), RecordsDigest()
    for start, stop in itertools.pairwise(edges):
        RecordsOfBatch(batch_of([ONE, *some, ONE]).slice(1), whole=whole).add_to(cut, slice(start, stop))
        mixed, places = list[Record](), list[int]()
        for record in some[start:stop]:
            mixed += [ONE] * random.randrange(3)
            places.append(len(mixed))
            mixed.append(record)
        others = [i for i in range(len(mixed)) if i not in places]
        order = Scattered(np.array([*others, *places], np.int64), len(others), len(mixed))
        RecordsOfBatch(batch_of(mixed), whole=whole).add_to(picked, order)
    assert cut.hexdigest() == picked.hexdigest() == expected


def test_large_batches_are_copied_group_by_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same digest, without the whole batch in memory twice."""
    some: list[Record] = [(n, b"%d" % n, None, []) for n in range(9)]
    expected = digest_of(some[1::2])
    monkeypatch.setattr(records_digest, "_MOVED_BYTES", 1)
    digest = RecordsDigest()
    odd = Scattered(np.array([0, 2, 4, 6, 8, 1, 3, 5, 7], np.int64), 5, 9)
    RecordsOfBatch(batch_of(some), whole=True).add_to(digest, odd)
    assert digest.hexdigest() == expected


@pytest.mark.parametrize(
    "other",
    [
        [(1_001, *ONE[1:])],
        [(ONE[0], b"valuE", *ONE[2:])],
        [(ONE[0], None, *ONE[2:])],
        [(*ONE[:2], b"keY", ONE[3])],
        [(*ONE[:2], None, ONE[3])],
        [(*ONE[:3], [("a", b"1"), ("b", b"")])],
        [(*ONE[:3], [("b", None), ("a", b"1")])],
        [(*ONE[:3], [("a", b"1b")])],
        [(*ONE[:3], [])],
        [ONE, ONE],
    ],
)
def test_any_other_record_has_another_digest(other: list[Record]) -> None:
    """Time, value, key, names and values of headers, their order, their number, and null instead of empty."""
    assert digest_of(other) != digest_of([ONE])


def test_it_matters_where_a_record_ends() -> None:
    """The same bytes in other records, and an empty record in place of a null."""
    assert digest_of([(0, b"ab", None, []), (0, b"c", None, [])]) != digest_of(
        [(0, b"a", None, []), (0, b"bc", None, [])]
    )
    assert digest_of([(0, b"", None, [])]) != digest_of([(0, None, None, [])])
    assert digest_of([(0, b"a", b"b", [])]) != digest_of([(0, b"b", b"a", [])])


def test_keys_and_headers_count_only_where_they_are_read() -> None:
    """A layout of values alone reads neither, whichever other topics the same job reads."""
    assert digest_of([ONE], whole=False) == digest_of([(*ONE[:2], None, [])], whole=False)
    assert digest_of([ONE], whole=False) != digest_of([(ONE[0], b"valuE", *ONE[2:])], whole=False)


def test_timestamps_that_spark_shifts_do_not_count() -> None:
    """Those before the year 1900; all others do, -1 for none among them."""
    assert digest_of([(-3_000_000_000_000, b"", None, [])]) == digest_of([(-2_999_000_000_000, b"", None, [])])
    assert len({digest_of([(time, b"", None, [])]) for time in (-2, -1, 0)}) == 3


def test_a_digest_is_the_same_in_every_version() -> None:
    """It is stored in manifests: another one would make all landed objects those of other records."""
    assert digest_of([ONE, (-1, None, b"", [])]) == "860151ef706ce79ba3d08b72806a0a93"
    assert digest_of([ONE, (-1, None, b"", [])], whole=False) == "b70c6612c8c37ca66e73de5c8970bcae"
