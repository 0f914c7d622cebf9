"""CSV: common readers read the same values, and the bytes depend on the rows alone."""

from __future__ import annotations

import base64
import csv
import datetime
import decimal
import gzip
import io
import itertools
import re
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_kafka_s3.config import CompressionName, Csv
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.formats.compression import make_compression
from airflow_provider_kafka_s3.formats.csv import CsvEncoder, CsvWriter

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=6) | st.text(
    '",\n\r;\\ aN', max_size=5
)


def write(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, compression: CompressionName = "none", **settings: Any
) -> bytes:
    """An object of these batches."""
    encoder = CsvEncoder(schema, Csv(**settings))
    writer = CsvWriter(encoder.header, make_compression(compression))
    out = b"".join(bytes(data) for batch in batches for data in writer.write(encoder.encode(batch)))
    return out + b"".join(bytes(data) for data in writer.close())


def batch_of(**columns: Any) -> pa.RecordBatch:
    """A batch of columns of text, or of arrays."""
    arrays = [c if isinstance(c, pa.Array) else pa.array(c, pa.string()) for c in columns.values()]
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))


def lines(batch: pa.RecordBatch, **settings: Any) -> str:
    """The lines of a batch, with header."""
    return write([batch], batch.schema, **settings).decode()


@given(st.lists(st.tuples(TEXTS, TEXTS | st.none()), max_size=8), st.sampled_from(",;|\t\x01"))
def test_the_csv_module_reads_the_same_texts(rows: list[tuple[str, str | None]], separator: str) -> None:
    """Separators, quotes and line breaks are in the text that is read."""
    batch = batch_of(a=[a for a, _ in rows], b=[b for _, b in rows])
    text = lines(batch, separator=separator, null="NULL")
    read = list(csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True))
    assert read == [["a", "b"], *([a, "NULL" if b is None else b] for a, b in rows)]


@given(st.lists(st.tuples(TEXTS | st.none(), TEXTS | st.none()), min_size=1, max_size=8))
def test_nulls_and_empty_texts_are_different(rows: list[tuple[str | None, str | None]]) -> None:
    """pyarrow, told that quoted fields are never null, returns the same rows."""
    batch = batch_of(a=[a for a, _ in rows], b=[b for _, b in rows])
    read = arrow_csv.read_csv(
        pa.BufferReader(lines(batch).encode()),
        parse_options=arrow_csv.ParseOptions(newlines_in_values=True),
        convert_options=arrow_csv.ConvertOptions(
            column_types={"a": pa.string(), "b": pa.string()},
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    assert read.to_pylist() == batch.to_pylist()


def test_values_have_the_documented_texts() -> None:
    """One row of every type, and one of nulls."""
    there = datetime.datetime(2026, 1, 2, 3, 4, 5, 6000, datetime.UTC)
    at = there.replace(tzinfo=None)
    columns: dict[str, Any] = {
        "i": pa.array([7, None], pa.int64()),
        "f": pa.array([1e20, None], pa.float64()),
        "b": pa.array([True, None]),
        "d": pa.array([decimal.Decimal("1.10"), None], pa.decimal128(6, 2)),
        "day": pa.array([at.date(), None]),
        "time": pa.array([at.time(), None], pa.time32("ms")),
        "at": pa.array([at, None], pa.timestamp("ms")),
        "utc": pa.array([at, None], pa.timestamp("us", "UTC")),
        "there": pa.array([there, None], pa.timestamp("ms", "Europe/Berlin")),
        "bytes": pa.array([b"\xff\x00", None], pa.binary()),
        "fixed": pa.array([b"ab", None], pa.binary(2)),
        "large": pa.array(["x", None], pa.large_string()),
        "none": pa.array([None, None], pa.null()),
    }
    assert lines(batch_of(**columns)).splitlines() == [
        "i,f,b,d,day,time,at,utc,there,bytes,fixed,large,none",
        (
            "7,1e+20,true,1.10,2026-01-02,03:04:05.006,2026-01-02 03:04:05.006,2026-01-02 03:04:05.006000Z,"
            "2026-01-02 03:04:05.006Z,/wA=,YWI=,x,"
        ),
        ",,,,,,,,,,,,",
    ]


def test_only_fields_that_need_quotes_have_them() -> None:
    """Separator, quotes, line breaks, and the text of nulls; names of fields, too."""
    batch = batch_of(**{"a,b": ["x y", "", 'say "no"', "1\n2"], "c": ["-", "NULL", None, "\r"]})
    assert lines(batch) == '"a,b",c\nx y,-\n"",NULL\n"say ""no""",\n"1\n2","\r"\n'
    assert lines(batch, null="NULL", separator="|", header=False) == (
        'x y|-\n""|"NULL"\n"say ""no"""|NULL\n"1\n2"|"\r"\n'
    )


def test_a_number_with_the_text_of_nulls_is_quoted() -> None:
    """So it is not null."""
    batch = batch_of(i=pa.array([0, 1, None]), f=pa.array([0.5, 0.0, None]))
    assert lines(batch, null="0", header=False) == '"0",0.5\n1,"0"\n0,0\n'


def test_duckdb_reads_what_was_written(tmp_path: Any) -> None:
    """Nulls, empty texts, quotes and line breaks."""
    path = tmp_path / "x.csv"
    batch = batch_of(id=["1", "2", "3"], a=["x", "", None], b=['"q"', "1\n2", "é,"])
    path.write_text(lines(batch), newline="")
    with duckdb.connect() as database:
        read = database.execute(
            "SELECT * FROM read_csv(?, header = true, delim = ',', quote = '\"', escape = '\"', "
            "allow_quoted_nulls = false, columns = {'id': 'BIGINT', 'a': 'VARCHAR', 'b': 'VARCHAR'})",
            [str(path)],
        ).fetchall()
    assert read == [(1, "x", '"q"'), (2, "", "1\n2"), (3, None, "é,")]


@given(
    st.lists(st.tuples(TEXTS | st.none(), st.binary(max_size=7) | st.none()), max_size=20),
    st.lists(st.integers(0, 20), max_size=5),
    st.sampled_from(["none", "gzip", "zstd", "bzip2"]),
)
def test_bytes_do_not_depend_on_the_sizes_of_the_writes(
    rows: list[tuple[str | None, bytes | None]], edges: list[int], compression: Any
) -> None:
    """The same rows in other batches are the same file."""
    batch = batch_of(a=[a for a, _ in rows], b=pa.array([b for _, b in rows], pa.binary()))
    at = [0, *sorted(e % (len(rows) + 1) for e in edges), len(rows)]
    pieces = [batch.slice(a, b - a) for a, b in itertools.pairwise(at)]
    assert write(pieces, batch.schema, compression) == write([batch], batch.schema, compression)


@given(st.lists(st.binary(max_size=9) | st.none(), max_size=9), st.integers(0, 9))
def test_bytes_are_base64(values: list[bytes | None], first: int) -> None:
    """As the standard library makes it, of slices too."""
    batch = batch_of(a=[""] * len(values), b=pa.array(values, pa.binary())).slice(min(first, len(values)))
    text = lines(batch, null="-", header=False)
    expected = ["-" if v is None else base64.b64encode(v).decode() for v in values[first:]]
    assert [row[1] for row in csv.reader(io.StringIO(text))] == expected


def test_long_values_are_base64_too() -> None:
    """Values of more than a part, beside short ones."""
    values = [b"a", bytes(range(256)) * 5000, b"", b"bc" * 400_000, b"d" * 300_000, b"e"]
    text = lines(batch_of(a=[""] * len(values), b=pa.array(values, pa.binary())), null="-", header=False)
    assert [base64.b64decode(line.split(",")[1].strip('"')) for line in text.splitlines()] == values


@pytest.mark.parametrize(
    "kind",
    [pa.list_(pa.int32()), pa.struct({"x": pa.int32()}), pa.map_(pa.string(), pa.string())],
    ids=["list", "struct", "map"],
)
def test_nested_values_are_refused(kind: Any) -> None:
    """The error has the field and its type."""
    with pytest.raises(ConfigurationError, match=r"field 'deep' of type .* cannot be a field of CSV"):
        CsvEncoder(pa.schema([pa.field("flat", pa.int32()), pa.field("deep", kind)]), Csv())


def test_a_single_field_needs_a_text_for_nulls() -> None:
    """Its null would be an empty line, which readers leave out."""
    schema = pa.schema([pa.field("a", pa.string())])
    with pytest.raises(ConfigurationError, match="field 'a' is the only one"):
        CsvEncoder(schema, Csv())
    assert lines(batch_of(a=["", None, "NULL"]), null="NULL") == 'a\n""\nNULL\n"NULL"\n'
    required = pa.schema([pa.field("a", pa.string(), nullable=False)])
    batch = pa.RecordBatch.from_arrays([pa.array(["", "x"])], schema=required)
    assert write([batch], required) == b'a\n""\nx\n'


def test_records_without_fields_are_refused() -> None:
    """They would be empty lines."""
    with pytest.raises(ConfigurationError, match="without fields"):
        CsvEncoder(pa.schema([]), Csv())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"separator": ""}, "separator='' is not known; use ',', ';'"),
        ({"separator": ",;"}, "separator=',;' is not known"),
        ({"separator": "a"}, "separator='a' is not known"),
        ({"separator": None}, "separator=None must be ','"),
        ({"null": "a,b"}, "null='a,b' must not hold the separator"),
        ({"null": '"'}, "must not hold the separator"),
        ({"null": "a\n"}, "has characters that no field should have"),
        ({"null": "\ud800"}, "has characters that no field should have"),
        ({"null": None}, "null=None must be text"),
        ({"header": "no"}, "header='no' must be True or False"),
        ({"compression": "snappy"}, "compression='snappy' is not known"),
        ({"compression": "zstd", "compression_level": 20}, "compression_level=20 must be"),
    ],
)
def test_impossible_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    """Each error has the value."""
    with pytest.raises(ConfigurationError, match=message):
        Csv(**settings)


def test_an_object_without_rows_has_its_header() -> None:
    """With compression, too; without header it is empty."""
    schema = batch_of(a=[], b=[]).schema
    assert write([], schema) == b"a,b\n"
    assert gzip.decompress(write([], schema, "gzip")) == b"a,b\n"
    assert write([], schema, header=False) == b""


TIMES = [
    (pa.date32(), -719_162, 2_932_896),
    (pa.timestamp("s"), -62_135_596_800, 253_402_300_799),
    (pa.timestamp("ms", "UTC"), -62_135_596_800_000, 253_402_300_799_999),
    (pa.timestamp("us"), -62_135_596_800_000_000, 253_402_300_799_999_999),
    (pa.timestamp("ns"), -(2**63), 2**63 - 1),
]


@pytest.mark.parametrize(("kind", "first", "last"), TIMES, ids=[str(kind) for kind, *_ in TIMES])
def test_times_without_a_text_are_found(kind: Any, first: int, last: int) -> None:
    """Those outside the years 1 to 9999, also in slices and beside nulls; the name is that of the first such field."""
    numbers = pa.int32() if pa.types.is_date32(kind) else pa.int64()
    least, most = (-(2**31), 2**31 - 1) if numbers == pa.int32() else (-(2**63), 2**63 - 1)
    values = [0, first, last, None, max(first - 1, least), min(last + 1, most), least, most]
    column = pa.array(values, numbers).cast(kind)
    batch = batch_of(x=["x"] * 8, at=column, later=column)
    encoder = CsvEncoder(batch.schema, Csv())
    bad = {} if first == least else dict.fromkeys(range(4, 8), "at")
    assert encoder.invalid(batch) == bad
    assert encoder.invalid(batch.slice(3)) == {row - 3: name for row, name in bad.items()}
    good = batch.slice(0, 4)
    assert all(re.fullmatch(r"x,(\d{4}-.*)?,.*", line) for line in lines(good, header=False).splitlines())


def typed(kind: Any) -> st.SearchStrategy[Any]:
    """Values of a type that DuckDB has, too."""
    if pa.types.is_string(kind):
        return TEXTS
    if pa.types.is_integer(kind):
        return st.integers(-(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1) - 1)
    if pa.types.is_floating(kind):
        return st.floats(allow_nan=False, allow_infinity=False)
    if pa.types.is_decimal(kind):
        digits = st.integers(-(10**kind.precision) + 1, 10**kind.precision - 1)
        return digits.map(lambda n: decimal.Decimal((n < 0, tuple(map(int, str(abs(n)))), -kind.scale)))
    if pa.types.is_date(kind):
        return st.dates()
    return st.datetimes() if pa.types.is_timestamp(kind) else st.booleans()


KINDS: dict[str, Any] = {
    "VARCHAR": pa.string(),
    "INTEGER": pa.int32(),
    "BIGINT": pa.int64(),
    "DOUBLE": pa.float64(),
    "DECIMAL(38, 12)": pa.decimal128(38, 12),
    "DECIMAL(4, 0)": pa.decimal128(4, 0),
    "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("us"),
    "BOOLEAN": pa.bool_(),
}


@given(st.data())
@settings(max_examples=40)
def test_generated_values_are_read_back_by_duckdb_and_by_the_csv_module(data: st.DataObject) -> None:
    """Of any types, with nulls: DuckDB reads the values, Python's reader their texts."""
    names = data.draw(st.lists(st.sampled_from(list(KINDS)), min_size=1, max_size=4))
    row = st.tuples(*(st.none() | typed(KINDS[name]) for name in names))
    rows = data.draw(st.lists(row, min_size=1, max_size=6))
    columns = {f"c{n}": pa.array([r[n] for r in rows], KINDS[name]) for n, name in enumerate(names)}
    text = lines(batch_of(**columns), null="\\N")
    texts = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    assert texts[0] == list(columns)
    for read, values in zip(texts[1:], rows, strict=True):
        for field, value, name in zip(read, values, names, strict=True):
            assert value is None or field != "\\N" or name == "VARCHAR"
            assert _of_text(field, name, value) == value
    with tempfile.TemporaryDirectory() as folder, duckdb.connect() as database:
        path = Path(folder) / "x.csv"
        path.write_text(text, newline="")
        types = {f"c{n}": name for n, name in enumerate(names)}
        found = database.execute(
            "SELECT * FROM read_csv(?, header = true, auto_detect = false, delim = ',', quote = '\"', escape = '\"', "
            f"nullstr = '\\N', allow_quoted_nulls = false, new_line = '\\n', columns = {types})",
            [str(path)],
        ).fetchall()
    assert found == rows


def _of_text(field: str, name: str, value: Any) -> Any:
    """What the text of a field means."""
    if value is None:
        return None if field == "\\N" else field
    if name == "VARCHAR":
        return field
    if name == "BOOLEAN":
        return {"true": True, "false": False}[field]
    if name == "DATE":
        return datetime.date.fromisoformat(field)
    if name == "TIMESTAMP":
        return datetime.datetime.fromisoformat(field)
    return decimal.Decimal(field) if name.startswith("DECIMAL") else float(field) if name == "DOUBLE" else int(field)
