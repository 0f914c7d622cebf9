"""Records arrive unchanged, at any size and any boundaries of Spark's batches."""

from __future__ import annotations

import itertools
import re
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_kafka_s3.arrays import RECORD_SCHEMA, WHOLE_RECORD_SCHEMA
from airflow_provider_kafka_s3.config import JsonLines, Layout
from airflow_provider_kafka_s3.documents.plan import Plan
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.spark.packing import PIECE_BYTES, RecordPacking
from tests.unit.spark.test_slice_ranks import plan_of

PARTITION = 5
SHIFT = 60
"""Of a plan whose largest partition is 5: it takes three bits."""

Row = tuple[int, int, bytes | None]
Headers = list[tuple[str, bytes | None]] | None
WholeRow = tuple[int, int, bytes | None, bytes | None, Headers]

SPARK_HEADERS = pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))
"""Type of the headers of Spark's Kafka source in Arrow."""


def rows_of(records: list[Row]) -> list[Row]:
    """``(offset, microseconds, value)`` as Spark's SQL cuts them."""
    rows: list[Row] = []
    for offset, at, value in records:
        pieces = range(0, max(len(value or b""), 1), PIECE_BYTES)
        rows += [(offset, at, None if value is None else value[start : start + PIECE_BYTES]) for start in pieces]
    return rows


def batch_of(rows: list[Row]) -> pa.RecordBatch:
    """Rows as a batch of Spark's."""
    columns: list[Any] = [
        pa.array([PARTITION << SHIFT | offset for offset, _, _ in rows], pa.int64()),
        pa.array([at for _, at, _ in rows], pa.timestamp("us", "UTC")),
        pa.array([value for _, _, value in rows], pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(columns, names=["position", "timestamp", "value"])


def packing(end: int = 10_000) -> RecordPacking:
    """The packing of one slice."""
    return RecordPacking([plan_of("a", [(PARTITION, 0, end)])])


def arrived(*batches: pa.RecordBatch) -> list[Row]:
    """The unpacked records, with milliseconds."""
    found: list[Row] = []
    for batch in packing().records(batches):
        assert batch.schema == RECORD_SCHEMA
        batch.validate(full=True)
        found += zip(*(batch.column(name).to_pylist() for name in batch.schema.names), strict=True)
    return found


VALUES = st.one_of(
    st.none(),
    st.binary(max_size=9),
    st.sampled_from([0, 1, 2, 3]).flatmap(
        lambda n: st.sampled_from([b"a" * n * PIECE_BYTES, b"b" * (n * PIECE_BYTES + 1), b"c" * (n * PIECE_BYTES - 1)])
    ),
)


@given(st.lists(VALUES, max_size=12), st.lists(st.integers(0, 30), max_size=6))
def test_records_arrive_as_they_were(values: list[bytes | None], cuts: list[int]) -> None:
    """Of no size, of one piece exactly, of several; null; in batches cut anywhere, empty ones among them."""
    records: list[Row] = [(3 * n, 1_000 * n, value) for n, value in enumerate(values)]
    rows = batch_of(rows_of(records))
    edges = [0, *sorted(min(cut, rows.num_rows) for cut in cuts), rows.num_rows]
    batches = [rows.slice(a, b - a) for a, b in itertools.pairwise(edges)]
    assert arrived(*batches) == [(offset, at // 1_000, value) for offset, at, value in records]


HEADERS = st.none() | st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=3)


def whole_plan(topic: str = "a") -> Plan:
    """A plan whose layout needs keys and headers."""
    layout = Layout(format=JsonLines(), errors="dead_letter")
    return msgspec.structs.replace(plan_of(topic, [(PARTITION, 0, 10_000)]), layout=layout)


def whole_rows_of(records: list[WholeRow]) -> list[WholeRow]:
    """``(offset, microseconds, value, key, headers)`` as Spark's SQL cuts them."""

    def piece(data: bytes | None, number: int) -> bytes | None:
        if data is None or len(data) <= PIECE_BYTES:
            return None if number else data
        return data[number * PIECE_BYTES : (number + 1) * PIECE_BYTES]

    rows: list[WholeRow] = []
    for offset, at, value, key, headers in records:
        size = max(len(value or b""), len(key or b""), 1)
        rows += [
            (offset, at, piece(value, n), piece(key, n), None if n else headers) for n in range(-(-size // PIECE_BYTES))
        ]
    return rows


def whole_batch_of(rows: list[WholeRow]) -> pa.RecordBatch:
    """Rows as a batch of Spark's."""
    headers = [None if h is None else [{"key": k, "value": v} for k, v in h] for *_, h in rows]
    first = batch_of([(offset, at, value) for offset, at, value, _, _ in rows])
    columns = [
        *first.columns,
        pa.array([key for _, _, _, key, _ in rows], pa.binary()),
        pa.array(headers, SPARK_HEADERS),
    ]
    return pa.RecordBatch.from_arrays(columns, names=[*first.schema.names, "key", "headers"])


@given(st.lists(st.tuples(VALUES, VALUES, HEADERS), max_size=10), st.lists(st.integers(0, 30), max_size=6))
def test_whole_records_arrive_as_they_were(
    contents: list[tuple[bytes | None, bytes | None, Headers]], cuts: list[int]
) -> None:
    """Values and keys of any sizes, either of them the larger one, and null; headers; in batches cut anywhere."""
    records: list[WholeRow] = [(3 * n, 1_000 * n, *content) for n, content in enumerate(contents)]
    rows = whole_batch_of(whole_rows_of(records))
    edges = [0, *sorted(min(cut, rows.num_rows) for cut in cuts), rows.num_rows]
    found: list[WholeRow] = []
    for batch in RecordPacking([whole_plan()]).records(rows.slice(a, b - a) for a, b in itertools.pairwise(edges)):
        assert batch.schema == WHOLE_RECORD_SCHEMA
        batch.validate(full=True)
        for row in batch.to_pylist():
            headers = None if row["headers"] is None else [(h["key"], h["value"]) for h in row["headers"]]
            found.append((row["offset"], row["timestamp"], row["value"], row["key"], headers))
    assert found == [(offset, at // 1_000, *rest) for offset, at, *rest in records]


def test_keys_and_headers_are_transferred_only_if_a_layout_needs_them() -> None:
    """They cost time per record, which a pipeline without dead letters does not spend; one of two layouts suffices."""
    values, whole = packing(), RecordPacking([plan_of("b", [(PARTITION, 0, 9)]), whole_plan("a")])
    assert values.source_options == {}
    assert not [sql for sql in (*values.pieces, *values.columns) if "key" in sql or "headers" in sql]
    assert whole.source_options == {"includeHeaders": "true"}
    assert [sql.rpartition("AS ")[2] for sql in whole.columns][-3:] == ["`key`", "`headers`", "`topic`"]


def test_a_repeated_small_record_is_not_joined() -> None:
    """It is not taken for two pieces of one value, so the check of the offsets detects it."""
    assert arrived(batch_of([(1, 0, b"x"), (1, 0, b"x")])) == [(1, 0, b"x"), (1, 0, b"x")]


def test_small_values_are_not_copied() -> None:
    """The usual batch is not copied."""
    batch = batch_of([(n, 0, b"small") for n in range(10)])
    (out,) = packing().records([batch])
    assert out.column("value").buffers()[2].address == batch.column("value").buffers()[2].address


def test_timestamps_become_milliseconds_rounded_down() -> None:
    """Before the epoch too; what has none keeps its -1. Slices of a batch keep their own rows."""
    times = [-1_000, 0, 999, 1_000, 1_700_000_000_123_000, -1, -62_135_596_800_000_000]
    expected = [-1, 0, 0, 1, 1_700_000_000_123, -1, -62_135_596_800_000]
    batch = batch_of([(i, t, b"{}") for i, t in enumerate(times)])
    assert [at for _, at, _ in arrived(batch)] == expected
    assert arrived(batch.slice(3, 2)) == [(3, expected[3], b"{}"), (4, expected[4], b"{}")]


@pytest.mark.parametrize("partition", [0, 1, 5, 99_999])
def test_partition_and_offset_share_a_number(partition: int) -> None:
    """The largest offset that fits comes back, too, and so does its partition."""
    shift = 63 - partition.bit_length()
    largest = min((1 << shift) - 1, (1 << 63) - 2)
    number = np.int64(partition << shift | largest)
    batch = pa.RecordBatch.from_arrays([pa.array([number], pa.int64())], names=["position"])
    plan = plan_of("a", [(partition, 0, largest - 1), (partition, largest - 1, largest + 1)])
    packed = RecordPacking([plan])
    ((slice_, rows),) = packed.runs(batch, packed.slice_positions(plan.slices))
    assert (slice_.id, rows.num_rows) == (1, 1)


def test_an_offset_that_does_not_fit_is_refused() -> None:
    """Rather than taken for one of another partition."""
    with pytest.raises(ConfigurationError, match=r"'a' partition 5: offset 1152921504606846977"):
        packing((1 << SHIFT) + 1)


def test_every_column_is_quoted_in_sql() -> None:
    """Which names are words of SQL differs from version to version of Spark: from 4.2 on ``offset`` is one."""
    both = RecordPacking([whole_plan("a"), plan_of("b", [(PARTITION, 0, 9)])])
    columns = r"\b(partition|offset|timestamp|key|value|headers|topic|piece|position)\b"
    for sql in (*both.pieces, *both.columns):
        bare = re.sub(r"`\w+`", "", sql)
        assert re.search(columns, bare, re.IGNORECASE) is None, sql
