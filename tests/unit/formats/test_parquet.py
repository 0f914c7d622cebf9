"""Parquet files: common readers read them, and their bytes depend on the rows alone."""

from __future__ import annotations

import datetime
import decimal
import io
import itertools
import random
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_kafka_s3.config import Parquet
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.formats.parquet import ParquetWriter
from airflow_provider_kafka_s3.formats.row_sizes import row_sizes
from airflow_provider_kafka_s3.formats.waiting_rows import SpilledRows, WaitingRows
from airflow_provider_kafka_s3.schemas.field_ids import field_id, field_ids, with_field_ids

MIB = 1024 * 1024
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False, metadata={"PARQUET:field_id": "7"}),
        pa.field("name", pa.string(), metadata={"PARQUET:field_id": "9"}),
        pa.field("data", pa.binary()),
        pa.field("tags", pa.list_(pa.field("item", pa.string(), metadata={"PARQUET:field_id": "12"}))),
        pa.field("attributes", pa.map_(pa.string(), pa.int32())),
        pa.field("place", pa.struct([pa.field("lat", pa.float64()), pa.field("name", pa.string())])),
        pa.field("price", pa.decimal128(12, 2)),
        pa.field("huge", pa.decimal256(50, 3)),
        pa.field("at", pa.timestamp("us", "UTC")),
        pa.field("local", pa.timestamp("ms")),
        pa.field("there", pa.timestamp("ms", "Europe/Berlin")),
        pa.field("day", pa.date32()),
        pa.field("time", pa.time64("us")),
        pa.field("ok", pa.bool_()),
        pa.field("nothing", pa.null()),
        pa.field("digest", pa.binary(4)),
    ],
    metadata={"made.by": "tests"},
)


def rows(count: int, seed: int = 1) -> pa.RecordBatch:
    """Rows of every type, with nulls at every level."""
    r = random.Random(seed)

    def maybe(value: Any) -> Any:
        return None if r.random() < 0.2 else value

    def row(i: int) -> dict[str, Any]:
        now = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC) + datetime.timedelta(milliseconds=i)
        return {
            "id": i,
            "name": maybe(r.choice(["a", "b", "é" * r.randrange(40)])),
            "data": maybe(r.randbytes(r.randrange(60))),
            "tags": maybe([maybe("t" * r.randrange(5)) for _ in range(r.randrange(4))]),
            "attributes": maybe([(f"k{k}", maybe(k)) for k in range(r.randrange(3))]),
            "place": maybe({"lat": maybe(r.random()), "name": maybe("here")}),
            "price": maybe(decimal.Decimal(i).scaleb(-2)),
            "huge": maybe(decimal.Decimal(10**40 + i)),
            "at": maybe(now),
            "local": maybe(now.replace(tzinfo=None)),
            "there": maybe(now),
            "day": maybe(now.date()),
            "time": maybe(datetime.time(1, 2, 3, i)),
            "ok": maybe(i % 2 == 0),
            "nothing": None,
            "digest": maybe(i.to_bytes(4, "big")),
        }

    return pa.RecordBatch.from_pylist([row(i) for i in range(count)], SCHEMA)


ROWS = rows(600)
LONG_ROWS = pa.RecordBatch.from_pydict(
    {
        "id": list(range(60)),
        "v": [None if i % 7 == 0 else random.Random(i).randbytes(i * 3_001 % 120_000) for i in range(60)],
    }
)


def write(batches: Iterable[pa.RecordBatch], schema: pa.Schema = SCHEMA, **how: Any) -> bytes:
    """A file of these batches."""
    writer = ParquetWriter(schema, Parquet(**how))
    out = b"".join(bytes(data) for batch in batches for data in writer.write(batch))
    return out + b"".join(bytes(data) for data in writer.close())


def cut(batch: pa.RecordBatch, edges: Sequence[int]) -> list[pa.RecordBatch]:
    """The same rows in other batches, some of them empty."""
    at = [0, *sorted(edges), batch.num_rows]
    return [batch.slice(a, b - a) for a, b in itertools.pairwise(at)]


def groups(body: bytes) -> list[int]:
    """Rows of each row group."""
    metadata = pq.read_metadata(io.BytesIO(body))
    return [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]


@pytest.mark.parametrize("compression", ["none", "snappy", "gzip", "brotli", "lz4", "zstd"])
def test_pyarrow_reads_what_was_written(compression: str) -> None:
    """All types and nulls, in several row groups, with each compression."""
    body = write([ROWS], compression=compression, row_group_records=250)
    assert groups(body) == [250, 250, 100]
    read = pq.read_table(io.BytesIO(body))
    assert read.schema.equals(SCHEMA.remove_metadata(), check_metadata=False)
    assert read.to_pylist() == pa.Table.from_batches([ROWS]).to_pylist()
    column = pq.read_metadata(io.BytesIO(body)).row_group(0).column(1)
    assert column.compression == {"none": "UNCOMPRESSED"}.get(compression, compression.upper())


def test_duckdb_reads_what_was_written(tmp_path: Any) -> None:
    """A reader that is not Arrow's sees the same values; times with a zone are the same times."""
    path = tmp_path / "x.parquet"
    path.write_bytes(write([ROWS], row_group_records=100))
    with duckdb.connect() as database:
        read = database.execute(
            'SELECT id, name, data, tags, place.lat, price, local, day, ok, epoch_us("at"), map_keys(attributes) '
            "FROM read_parquet(?) ORDER BY id",
            [str(path)],
        ).fetchall()
    expected = [
        (
            row["id"],
            row["name"],
            row["data"],
            row["tags"],
            (row["place"] or {}).get("lat"),
            row["price"],
            row["local"],
            row["day"],
            row["ok"],
            None if row["at"] is None else round(row["at"].timestamp() * 1000) * 1000,
            None if row["attributes"] is None else [key for key, _ in row["attributes"]],
        )
        for row in ROWS.to_pylist()
    ]
    assert read == expected


def test_fields_keep_their_ids_units_and_zones() -> None:
    """As the schema has them."""
    body = write([ROWS], field_ids="schema")
    read = pq.read_schema(io.BytesIO(body))
    assert [read.field(name).metadata[b"PARQUET:field_id"] for name in ("id", "name")] == [b"7", b"9"]
    assert read.field("tags").type.value_field.metadata == {b"PARQUET:field_id": b"12"}
    assert not read.field("id").nullable
    assert (read.field("there").type, read.field("local").type) == (SCHEMA.field("there").type, pa.timestamp("ms"))
    assert read.metadata[b"made.by"] == b"tests"
    metadata = pq.read_metadata(io.BytesIO(body))
    assert metadata.format_version == "2.6"
    assert metadata.created_by.startswith("parquet-cpp-arrow")
    assert metadata.schema.column(3).path == "tags.list.element"


def test_columns_have_statistics_and_dictionaries() -> None:
    """Readers leave out row groups by the first, and repeated values take little room by the second."""
    column = pq.read_metadata(io.BytesIO(write([ROWS]))).row_group(0).column(1)
    assert column.is_stats_set
    assert column.has_dictionary_page
    assert column.statistics.null_count == ROWS.column("name").null_count


_ENCODED = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("small", pa.int32()),
        pa.field("at", pa.timestamp("us", tz="UTC")),
        pa.field("day", pa.date32()),
        pa.field("opens", pa.time64("us")),
        pa.field("counts", pa.list_(pa.int64())),
        pa.field("repeated", pa.int64()),
        pa.field("measured", pa.float64()),
        pa.field("amount", pa.decimal128(12, 2)),
        pa.field("text", pa.string()),
    ]
)


def test_every_column_has_an_id_by_its_path_that_no_other_schema_changes() -> None:
    """Columns inside others too; the id is the same with other columns beside it, and whatever id a schema gives."""
    read = pq.read_schema(io.BytesIO(write([ROWS])))
    ids = {path: _id_in_file(read, path) for path in field_ids(SCHEMA)}
    assert ids == field_ids(SCHEMA)
    assert {("tags", "element"), ("attributes", "key"), ("attributes", "value"), ("place", "lat")} <= ids.keys()
    assert len({*ids.values()}) == len(ids)
    assert all(0 < number < 2**30 for number in ids.values())
    place = pa.schema([SCHEMA.field("place")])
    alone = pq.read_schema(io.BytesIO(write([ROWS.select(["place"])], place)))
    assert {path: _id_in_file(alone, path) for path in field_ids(place)} == {
        path: number for path, number in ids.items() if path[0] == "place"
    }


def test_columns_have_no_ids_where_two_would_have_the_same() -> None:
    """Readers then take all columns by their names, and none for another."""
    names: dict[int, str] = {}
    for n in itertools.count():
        other = names.setdefault(field_id(f"c{n}"), f"c{n}")
        if other != f"c{n}":
            break
    schema = pa.schema([pa.field(name, pa.int32()) for name in (other, f"c{n}", "id")])
    assert [field.metadata for field in with_field_ids(schema)] == [None, None, None]


def _id_in_file(schema: pa.Schema, path: tuple[str, ...]) -> int:
    """The id of a column, as a reader of Parquet has it."""
    field = schema.field(path[0])
    for name in path[1:]:
        kind: Any = field.type
        members = {"element": "value_field", "key": "key_field", "value": "item_field"}
        field = kind.field(name) if isinstance(kind, pa.StructType) else getattr(kind, members[name])
    assert field.metadata is not None
    return int(field.metadata[b"PARQUET:field_id"])


@pytest.mark.parametrize(("encoding", "expected"), [("delta", "DELTA_BINARY_PACKED"), ("plain", "PLAIN")])
def test_integers_dates_and_times_without_repetitions_are_differences(encoding: Any, expected: str) -> None:
    """Other columns, and those with a dictionary, are what they are with either choice; all hold the same values."""
    made = [
        {
            "id": 7919 * i - 2**62,
            "small": -i,
            "at": datetime.datetime(2025, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(microseconds=i * i),
            "day": datetime.date(1900, 1, 1) + datetime.timedelta(days=i),
            "opens": datetime.time(0, 0, i // 60, i),
            "counts": [i, -i],
            "repeated": i % 9,
            "measured": i / 7,
            "amount": decimal.Decimal(i) / 100,
            "text": f"{i}",
        }
        for i in range(1000)
    ]
    body = write([pa.RecordBatch.from_pylist(made, _ENCODED)], _ENCODED, integer_encoding=encoding)
    group = pq.read_metadata(io.BytesIO(body)).row_group(0)
    # Levels of repetition and definition have an encoding of their own.
    encodings = {c.path_in_schema: {*c.encodings} - {"RLE"} for c in map(group.column, range(group.num_columns))}
    assert encodings == {
        **{key: {expected} for key in ("id", "small", "at", "day", "opens", "counts.list.element")},
        **{key: {"PLAIN"} for key in ("measured", "amount", "text")},
        "repeated": {"PLAIN", "RLE_DICTIONARY"},
    }
    assert pq.read_table(io.BytesIO(body)).to_pylist() == made


def test_columns_without_repetitions_have_no_dictionary() -> None:
    """Ids and measured values are written once, not as indexes first; what repeats has a dictionary, nested, too."""
    inner = pa.struct([pa.field("id", pa.string()), pa.field("city", pa.string())])
    schema = pa.schema(
        [
            pa.field("id", pa.int64()),
            pa.field("name", pa.string()),
            pa.field("place", inner),
            pa.field("ids", pa.list_(pa.int64())),
            pa.field("tags", pa.list_(pa.string())),
            pa.field("attributes", pa.map_(pa.string(), pa.float64())),
        ]
    )
    made = [
        {
            "id": i,
            "name": f"name {i % 50}",
            "place": {"id": f"{i}", "city": f"city {i % 9}"} if i % 3 else None,
            "ids": [i, -i],
            "tags": ["a", "b"],
            "attributes": [("x", i / 7)],
        }
        for i in range(1000)
    ]
    body = write([pa.RecordBatch.from_pylist(made, schema)], schema)
    group = pq.read_metadata(io.BytesIO(body)).row_group(0)
    columns = {c.path_in_schema: c.has_dictionary_page for c in map(group.column, range(group.num_columns))}
    assert columns == {
        "id": False,
        "name": True,
        "place.id": False,
        "place.city": True,
        "ids.list.element": False,
        "tags.list.element": True,
        "attributes.key_value.key": True,
        "attributes.key_value.value": False,
    }
    assert pq.read_table(io.BytesIO(body)).to_pylist() == made


@given(
    edges=st.lists(st.integers(0, 200), max_size=9),
    records=st.integers(30, 300),
    size=st.sampled_from([5_000, 20_000, 16 * MIB]),
    page=st.sampled_from([1, 500, MIB]),
)
def test_bytes_do_not_depend_on_the_sizes_of_the_writes(edges: list[int], records: int, size: int, page: int) -> None:
    """The same rows in other batches are the same file, wherever row groups and pages end."""
    batch = ROWS.slice(0, 200)
    how: dict[str, Any] = {"row_group_records": records, "row_group_bytes": size, "page_bytes": page}
    assert write(cut(batch, edges), **how) == write([batch], **how)


@settings(max_examples=20)
@given(edges=st.lists(st.integers(0, 60), max_size=6), size=st.sampled_from([MIB // 2, 2 * MIB, 16 * MIB]))
def test_bytes_of_long_values_do_not_depend_on_the_sizes_of_the_writes(edges: list[int], size: int) -> None:
    """The same for rows of which few are a page."""
    batch = LONG_ROWS
    once = write([batch], batch.schema, row_group_bytes=size)
    assert write(cut(batch, edges), batch.schema, row_group_bytes=size) == once


def test_rows_that_are_written_one_by_one_make_the_same_file() -> None:
    """Copies of single rows, slices of a batch, and picked rows."""
    once = write([ROWS], row_group_bytes=30_000)
    assert len(groups(once)) > 2
    single = [ROWS.slice(i, 1) for i in range(ROWS.num_rows)]
    assert write(single, row_group_bytes=30_000) == once
    picked = [ROWS.take(pa.array(range(i, i + 3))) for i in range(0, 600, 3)]
    assert write(picked, row_group_bytes=30_000) == once


def test_a_rerun_makes_the_same_file() -> None:
    """Nothing but rows, schema and settings is in it."""
    assert write([rows(200)]) == write([rows(200)])


def test_a_file_without_rows_is_valid() -> None:
    """It has the schema and no row group."""
    for batches in ([], [ROWS.slice(0, 0)]):
        read = pq.read_table(io.BytesIO(write(batches)))
        assert read.num_rows == 0
        assert read.schema.names == SCHEMA.names
        assert groups(write(batches)) == []


def test_row_groups_end_with_the_row_that_reaches_a_bound() -> None:
    """By rows, by bytes, or by a single long value, counted anew in each row group."""
    schema = pa.schema([pa.field("v", pa.binary())])

    def sizes(lengths: Sequence[int], **how: Any) -> list[int]:
        return groups(
            write([pa.RecordBatch.from_arrays([pa.array([b"x" * n for n in lengths])], schema=schema)], schema, **how)
        )

    assert sizes([6] * 7, row_group_records=3) == [3, 3, 1]
    assert sizes([6] * 7, row_group_bytes=20) == [2, 2, 2, 1]
    assert sizes([6] * 7, row_group_bytes=21) == [3, 3, 1]
    assert sizes([6, 500, 6, 6, 500], row_group_bytes=100) == [2, 3]
    assert sizes([6] * 7, row_group_bytes=40, row_group_records=3) == [3, 3, 1]
    assert sizes([6] * 4, row_group_records=2) == [2, 2]


class Counted(WaitingRows):
    """Rows that wait; ``spilled`` is how often some were written to the file."""

    spilled = 0

    def put(self, rows: pa.RecordBatch) -> SpilledRows:
        """See the class."""
        self.spilled += 1
        return super().put(rows)


@pytest.mark.parametrize("memory", [0, 30_000, MIB])
def test_rows_that_wait_in_the_temporary_file_make_the_same_files(memory: int, tmp_path: Path) -> None:
    """Of every type, in files whose row groups fill at the same time, whatever part of them is in memory."""
    batches = [rows(100, seed) for seed in range(12)]

    def files(waiting: WaitingRows | None) -> list[bytes]:
        made = Parquet(row_group_bytes=50_000, page_bytes=4_096)
        writers = [(ParquetWriter(SCHEMA, made, waiting), bytearray()) for _ in range(4)]
        for n, batch in enumerate(batches):
            for writer, body in writers[n % 4 :] + writers[: n % 4]:
                for data in writer.write(batch.slice(n, 80)):
                    body.extend(data)
        for writer, body in writers:
            for data in writer.close():
                body.extend(data)
        return [bytes(body) for _, body in writers]

    expected = files(None)
    assert pq.ParquetFile(pa.BufferReader(expected[0])).num_row_groups > 2
    with Counted(memory, str(tmp_path)) as waiting:
        assert files(waiting) == expected
        assert (waiting.spilled > 0) == (memory < MIB)
    assert list(tmp_path.iterdir()) == []


def test_the_rows_of_open_files_are_in_bounded_memory(tmp_path: Path) -> None:
    """Sixteen row groups of 16 MiB fill at the same time: rows beyond the budget are in the temporary file."""
    schema = pa.schema([pa.field("v", pa.binary())])
    batch = pa.RecordBatch.from_arrays([pa.array([random.Random(3).randbytes(MIB // 4)])], schema=schema)
    before, most = pa.total_allocated_bytes(), 0
    with WaitingRows(8 * MIB, str(tmp_path)) as waiting:
        writers = [ParquetWriter(schema, Parquet(row_group_bytes=16 * MIB), waiting) for _ in range(16)]
        for _ in range(63):
            for writer in writers:
                assert list(writer.write(batch)) == []
                most = max(most, pa.total_allocated_bytes() - before)
    assert most < 12 * MIB


LONG_VALUES = """
import random, resource
import pyarrow as pa
from airflow_provider_kafka_s3.arrays import binary_array
from airflow_provider_kafka_s3.config import Parquet
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.formats.parquet import ParquetWriter

schema = pa.schema([pa.field("v", pa.binary())])
value = random.Random(3).randbytes(2**20)
writer = ParquetWriter(schema, Parquet(row_group_bytes=16 * 2**20, compression="none"))
before, size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, 0
for i in range(150):
    values = binary_array([b"%04d" % i + value], large=False)
    size += sum(len(data) for data in writer.write(pa.RecordBatch.from_arrays([values], schema=schema)))
size += sum(len(data) for data in writer.close())
print(size >> 20, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10)
"""


def test_long_values_do_not_fill_the_memory() -> None:
    """A file of 150 values of 1 MB needs a few times the memory of its row groups of 16 MB, not of the file."""
    done = subprocess.run([sys.executable, "-c", LONG_VALUES], capture_output=True, check=True, text=True)
    size, megabytes = map(int, done.stdout.split())
    assert size == 150
    assert megabytes < 100


def test_few_rows_of_large_batches_do_not_keep_the_batches() -> None:
    """An object may get one row of each batch; the rest of the batch is released."""
    schema = pa.schema([pa.field("v", pa.binary())])
    writer = ParquetWriter(schema, Parquet(row_group_bytes=64 * MIB))
    before = pa.total_allocated_bytes()
    for _ in range(50):
        batch = pa.RecordBatch.from_arrays([pa.array([b"x" * 1000] * 1000)], schema=schema)
        assert list(writer.write(batch.slice(500, 1))) == []
        del batch
    assert pa.total_allocated_bytes() - before < MIB
    for _data in writer.close():
        pass


@given(st.integers(0, 40), st.integers(0, 40))
def test_sizes_of_rows_depend_on_the_row_alone(first: int, count: int) -> None:
    """Slices and copies have the sizes of the same rows in the whole batch, at any offset."""
    batch = ROWS.slice(0, 80)
    whole = row_sizes(batch).tolist()
    part = batch.slice(first, count)
    assert row_sizes(part).tolist() == whole[first : first + count]
    copied = ROWS.take(pa.array(range(first, first + count), pa.int64()))
    assert row_sizes(copied).tolist() == whole[first : first + count]


def test_sizes_of_rows_are_those_of_their_values() -> None:
    """Fixed widths, lengths and lists; what is null takes nothing."""

    def sizes(values: list[Any], kind: Any) -> list[int]:
        return row_sizes(pa.RecordBatch.from_arrays([pa.array(values, kind)], names=["v"])).tolist()

    assert sizes([1, None], pa.int64()) == [8, 0]
    assert sizes([True, False], pa.bool_()) == [1, 1]
    assert sizes(["", "abc", None], pa.string()) == [4, 7, 0]
    assert sizes([b"abc"], pa.large_binary()) == [11]
    assert sizes([[], ["a", None, "bc"], None], pa.list_(pa.string())) == [4, 4 + 5 + 6, 0]
    assert sizes([[("a", 1)], []], pa.map_(pa.string(), pa.int32())) == [4 + 5 + 4, 4]
    assert sizes([{"a": 1, "b": "x"}, None], pa.struct({"a": pa.int32(), "b": pa.string()})) == [9, 0]
    assert sizes([[1, 2], None], pa.list_(pa.int32(), 2)) == [8, 0]
    assert sizes([[1], [1, 2]], pa.large_list(pa.int8())) == [9, 10]
    assert sizes([None, None], pa.null()) == [0, 0]
    assert sizes([decimal.Decimal(1)], pa.decimal256(60, 0)) == [32]


@pytest.mark.parametrize(
    ("how", "message"),
    [
        (
            {"compression": "snappy", "compression_level": 3},
            "compression_level=3 does not apply to compression='snappy'",
        ),
        (
            {"compression": "zstd", "compression_level": 20},
            "compression_level=20 of 'zstd' must be a whole number from 1 to 19",
        ),
        ({"row_group_records": 0}, "row_group_records=0 must be a whole number of rows from 1 to 1,048,576"),
        ({"row_group_bytes": 0}, "row_group_bytes=0 must be a whole number of bytes"),
        ({"page_bytes": 2**31}, "page_bytes=2147483648 must be a whole number of bytes"),
    ],
)
def test_impossible_settings_are_refused(how: dict[str, Any], message: str) -> None:
    """The error has the field, its value and its bounds."""
    with pytest.raises(ConfigurationError, match=message):
        Parquet(**how)
