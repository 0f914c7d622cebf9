"""Decoding of Avro datums to columns."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tracemalloc
from typing import Any, cast

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from airflow_provider_kafka_s3.arrays import binary_array
from airflow_provider_kafka_s3.converters.avro_decode import AvroDecoder
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.schemas.arrow_types import arrow_type
from airflow_provider_kafka_s3.schemas.avro import parse_schema
from airflow_provider_kafka_s3.schemas.nodes import Node
from tests.avro_values import (
    BadDatum,
    column_value,
    column_values,
    decode,
    encode,
    fastavro_value,
    in_unions_of_one,
    schemas,
    text,
    values,
    varint,
    without_logical,
)

EXAMPLES = settings(max_examples=150, deadline=None)


def expected(node: Node, data: bytes | None) -> tuple[Any, bool]:
    """Value and whether the row is bad."""
    if data is None:
        return None, False
    try:
        return column_value(node, decode(node, data)), False
    except BadDatum:
        return None, True


def assert_decodes(node: Node, rows: list[bytes | None], header: bytes = b"") -> None:
    """Values and bad rows are those of the plain decoder, with and without building columns."""
    decoder = AvroDecoder(node)
    given = array_of([None if row is None else header + row for row in rows])
    decoded = decoder.decode(given, len(header))
    decoded.values.validate(full=True)
    assert decoded.values.type == arrow_type(node)
    wanted = [expected(node, row) for row in rows]
    assert decoded.bad.tolist() == [bad for _, bad in wanted]
    assert decoder.check(given, len(header)).tolist() == [bad for _, bad in wanted]
    assert repr(column_values(decoded.values)) == repr([value for value, _ in wanted])
    assert [row is not None and decoder.fault(row) is not None for row in rows] == [bad for _, bad in wanted]


def array_of(rows: list[bytes | None], *, large: bool = False) -> Any:
    """Rows as an Arrow array."""
    return pa.array(rows, pa.large_binary() if large else pa.binary())


@st.composite
def batches(draw: st.DrawFn, size: int = 40) -> tuple[Node, Any, list[Any]]:
    """A schema and values of it."""
    schema = draw(schemas())
    node = parse_schema(text(schema))
    some = draw(st.lists(values(node), min_size=1, max_size=6))
    chosen = draw(st.lists(st.sampled_from(some), max_size=size))
    return node, schema, chosen


@EXAMPLES
@given(batches(), st.integers(0, 3))
def test_a_batch_has_the_values_that_were_written(batch: Any, blocks: int) -> None:
    """Arrays in one block or in several ones with sizes give the same columns."""
    node, _, chosen = batch
    assert_decodes(node, [encode(node, value, blocks=blocks) for value in chosen], b"\0\0\0\0\x07")


@EXAMPLES
@given(batches(size=5))
def test_fastavro_writes_what_is_decoded(batch: Any) -> None:
    """The bytes of fastavro are decoded, and fastavro reads from them what the plain decoder reads."""
    node, schema, chosen = batch
    parsed = fastavro.parse_schema(without_logical(schema))
    rows = []
    for value in chosen:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, parsed, fastavro_value(node, value, write=True))
        rows.append(out.getvalue())
        read = fastavro.schemaless_reader(io.BytesIO(out.getvalue()), parsed, None)
        assert repr(read) == repr(fastavro_value(node, decode(node, out.getvalue()), write=False))
    assert_decodes(node, rows)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_mutated_bytes_are_bad_exactly_if_they_are_no_datum(data: st.DataObject) -> None:
    """Bytes that were changed, cut, or are random: the same rows are bad as for the plain decoder."""
    node, _, chosen = data.draw(batches(size=10))
    rows: list[bytes | None] = []
    for value in chosen:
        row = bytearray(encode(node, value, blocks=data.draw(st.integers(0, 2))))
        for _ in range(data.draw(st.integers(0, 3))):
            place = data.draw(st.integers(0, len(row)))
            row[place : place + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=3) | HOSTILE)
        rows.append(bytes(row))
    rows += data.draw(st.lists(st.none() | st.binary(max_size=60), max_size=10))
    repeated = rows * data.draw(st.sampled_from([1, 1, 20]))
    assert_decodes(node, repeated)


HOSTILE = st.sampled_from(
    [
        b"\xff" * 9 + b"\x01",
        b"\xff" * 9 + b"\x02",
        b"\xff" * 10 + b"\0",
        b"\xfe" + b"\xff" * 8 + b"\x01",
        b"\x80\x00",
        b"\x82\x80\x80\x80\x00",
        b"\x82\x80\x80\x80\x80\x00",
        b"\xff\xff\xff\xff\x0f",
        b"\x80\x80\x80\x80\x10",
        b"\x01\x01",
        b"\xc3\x28",
        b"\xed\xa0\x80",
    ]
)


@EXAMPLES
@given(batches(), st.data())
def test_a_slice_has_the_values_of_the_batch(batch: Any, data: st.DataObject) -> None:
    """Any slice of a batch, of either offset width, decodes to that slice of the values."""
    node, _, chosen = batch
    rows: list[bytes | None] = [encode(node, value) for value in chosen]
    rows += [None, b"\xff", b""]
    start = data.draw(st.integers(0, len(rows)))
    stop = data.draw(st.integers(start, len(rows)))
    decoder = AvroDecoder(node)
    whole = decoder.decode(array_of(rows))
    for large in (False, True):
        part = decoder.decode(array_of(rows, large=large)[start:stop])
        assert part.bad.tolist() == whole.bad[start:stop].tolist()
        assert repr(column_values(part.values)) == repr(column_values(whole.values)[start:stop])


LIST = '{"type": "array", "items": "long"}'
TABLE = [
    ("boolean", b"\x01", False),
    ("boolean", b"\x02", True),
    ("null", b"", False),
    ("null", b"\0", True),
    ("int", varint(2**31 - 1), False),
    ("int", varint(2**31), True),
    ("int", varint(-(2**31)), False),
    ("int", varint(-(2**31) - 1), True),
    ("int", b"\x82\x80\x80\x80\x00", False),
    ("int", b"\x82\x80\x80\x80\x80\x00", True),
    ("int", b"\x82" + b"\x80" * 8 + b"\x00", True),
    ("long", b"\xff" * 9 + b"\x01", False),
    ("long", b"\xff" * 9 + b"\x02", True),
    ("long", b"\xff" * 10, True),
    ("long", b"\x80" * 9 + b"\0", False),
    ("long", b"\x80" * 10 + b"\0", True),
    ("long", b"\x80" * 8, True),
    ("long", b"", True),
    ("string", b"\x02", True),
    ("string", b"\x01", True),
    ("string", b"\x02\xff", True),
    ("string", b"\x04\xc3\xa4", False),
    ("string", varint(2**62), True),
    ("string", varint(-(2**63)), True),
    ('{"type": "fixed", "name": "F", "size": 3}', b"abc", False),
    ('{"type": "fixed", "name": "F", "size": 3}', b"ab", True),
    ('{"type": "enum", "name": "E", "symbols": ["A"]}', b"\x02", True),
    ('{"type": "enum", "name": "E", "symbols": ["A"]}', b"\x01", True),
    ('{"type": "enum", "name": "E", "symbols": ["A"]}', b"\x80\x80\x80\x80\x80\x00", True),
    ('["null", "long"]', b"\x04", True),
    ('["null", "long"]', b"\x82\x80\x80\x80\x80\x00\x02", True),
    ('["null", "long"]', b"\x02\x82\x80\x80\x80\x80\x00", False),
    ('["null", "long"]', b"\0", False),
    ('{"type": "int", "logicalType": "time-millis"}', varint(86_400_000), True),
    ('{"type": "int", "logicalType": "time-millis"}', varint(-1), True),
    ('{"type": "int", "logicalType": "time-millis"}', b"\x82\x80\x80\x80\x80\x00", True),
    ('{"type": "long", "logicalType": "time-micros"}', b"\x82\x80\x80\x80\x80\x00", False),
    ('{"type": "bytes", "logicalType": "decimal", "precision": 2}', b"\x02\x63", False),
    ('{"type": "bytes", "logicalType": "decimal", "precision": 2}', b"\x02\x64", True),
    ('{"type": "bytes", "logicalType": "decimal", "precision": 2}', b"\x02\x9c", True),
    ('{"type": "bytes", "logicalType": "decimal", "precision": 2}', b"\0", False),
    ('{"type": "bytes", "logicalType": "decimal", "precision": 2}', varint(40) + b"\xff" * 40, False),
    ('{"type": "bytes", "logicalType": "decimal", "precision": 2}', varint(40) + b"\x7f" + b"\0" * 39, True),
    ('{"type": "bytes", "logicalType": "decimal", "precision": 38}', varint(16) + b"\x7f" + b"\0" * 15, True),
    (LIST, b"\x03\x04\x02\x04\0", False),
    (LIST, b"\x03\x01\x02\x04\0", True),
    (LIST, b"\x03\x02\x02\x04\0", True),
    (LIST, b"\x03\x06\x02\x04\0", True),
    (LIST, b"\x03\x04\x02\x04\x01\x04\x02\0", True),
    ('{"type": "array", "items": "double"}', b"\x01\x10" + b"\0" * 9, False),
    ('{"type": "array", "items": "double"}', b"\x01\x0e" + b"\0" * 9, True),
    ('{"type": "array", "items": "null"}', b"\x03\x02\0", True),
    ('{"type": "array", "items": "int"}', b"\x04\x02\x82\x80\x80\x80\x80\x00\0", True),
    (LIST, b"\x02\x02", True),
    (LIST, varint(2**62), True),
    (LIST, varint(-(2**63)) + b"\x02", True),
    ('{"type": "array", "items": "null"}', varint(1000) + b"\0", False),
    ('{"type": "array", "items": "null"}', varint(1001) + b"\0", True),
    ('{"type": "array", "items": "null"}', varint(2**62) + b"\0", True),
    ('{"type": "map", "values": "int"}', b"\x04\x02a\x02\x02a\x04\0", False),
    ('{"type": "map", "values": "int"}', b"\x02\x02\xff\x02\0", True),
    ('{"type": "map", "values": "int"}', b"\x01\x06\x02a\x02\0", False),
    ('{"type": "map", "values": "int"}', b"\x01\x04\x02a\x02\0", True),
]


@pytest.mark.parametrize(("schema", "row", "bad"), TABLE)
@pytest.mark.parametrize("copies", [1, 50])
def test_faults_of_a_datum(schema: str, row: bytes, bad: bool, copies: int) -> None:
    """Each fault is noticed, in one record and in many, beside rows that are good."""
    node = parse_schema(schema)
    assert expected(node, row)[1] is bad
    assert_decodes(node, [row, None] * copies)


@EXAMPLES
@given(st.data())
def test_a_union_of_one_type_has_the_column_of_that_type(data: st.DataObject) -> None:
    """At any depth: the same type of Arrow, and the same values."""
    schema = data.draw(schemas())
    node = parse_schema(text(in_unions_of_one(schema)))
    assert arrow_type(node) == arrow_type(parse_schema(text(schema)))
    assert_decodes(node, [encode(node, value) for value in data.draw(st.lists(values(node), max_size=5))])


@EXAMPLES
@given(
    st.lists(st.lists(st.tuples(st.sampled_from(["", "a", "b", "é"]), st.integers(0, 9)), max_size=6), max_size=60),
    st.integers(0, 2),
)
def test_the_last_entry_of_a_key_is_the_value_of_it(maps: list[list[tuple[str, int]]], blocks: int) -> None:
    """In maps, and in maps inside of arrays, whichever block an entry is in."""
    node = parse_schema('{"type": "map", "values": "int"}')
    assert_decodes(node, [encode(node, entries, blocks=blocks) for entries in maps])
    inside = parse_schema('{"type": "array", "items": {"type": "map", "values": ["null", "int"]}}')
    as_union = [[(key, (1, value)) for key, value in entries] for entries in maps]
    assert_decodes(inside, [encode(inside, as_union[n : n + 3], blocks=blocks) for n in range(0, len(maps), 3)])


def test_a_value_shorter_than_its_header_is_bad() -> None:
    """The header is counted from each row's own start."""
    decoder = AvroDecoder(parse_schema("long"))
    decoded = decoder.decode(array_of([b"12345\x02", b"1234", None, b"12345", b""]), 5)
    assert decoded.bad.tolist() == [False, True, False, True, True]
    assert decoded.values.to_pylist() == [1, None, None, None, None]
    decoded = decoder.decode(array_of([b"12345\x02", b"\x04", b"1\x06"]), np.array([5, 0, 1]))
    assert decoded.values.to_pylist() == [1, 2, 3]


@pytest.mark.parametrize("count", [1, 15, 16, 17, 60])
def test_arrays_of_any_length_keep_their_order(count: int) -> None:
    """Long and short arrays, of few and of many rows, with nested ones."""
    node = parse_schema('{"type": "array", "items": {"type": "array", "items": ["null", "string", "long"]}}')
    rows = []
    for row in range(count):
        items = [[(1, f"{row}-{i}-{j}") if j % 2 else (2, j) for j in range((i * row) % 7)] for i in range(row * 3)]
        rows.append(encode(node, items, blocks=row % 4))
    assert_decodes(node, rows)


@pytest.mark.parametrize("blocks", [0, 1, 3])
@pytest.mark.parametrize("item", ["int", "long"])
@pytest.mark.parametrize("widest", [2**5, 2**31, 2**62, 2**63])
def test_a_long_array_of_numbers_has_them_in_their_order(item: str, widest: int, blocks: int) -> None:
    """Numbers of one to ten bytes, of any count, beside arrays that are cut off in their midst."""
    node = parse_schema(f'{{"type": "array", "items": "{item}"}}')
    counts, numbers = (0, 1, 47, 48, 49, 200, 1000), (3, -widest, widest - 1, widest // 2, -(widest // 130))
    whole = [encode(node, [numbers[n % 5] for n in range(count)], blocks=blocks) for count in counts]
    rows: list[bytes | None] = [*whole, *(row[: len(row) * 2 // 3] for row in whole), whole[-1] + b"\x02", None]
    assert_decodes(node, rows)
    assert_decodes(node, rows * 4)


@pytest.mark.parametrize(
    "item", ["int", "boolean", ["null", "int"], {"type": "enum", "name": "E", "symbols": ["a", "b"]}]
)
def test_an_array_of_many_small_items_takes_bounded_memory(item: Any) -> None:
    """Positions of items take eight bytes each: several of them at a time, not many."""
    items = 500_000
    datum = (b"\x02" if item in ("int", ["null", "int"]) else b"\0") * (items * (2 if item == ["null", "int"] else 1))
    row = varint(items) + datum + b"\0"
    decoder = AvroDecoder(parse_schema(json.dumps({"type": "array", "items": item})))
    tracemalloc.start()
    try:
        decoded = decoder.decode(binary_array([row], large=False))
        assert tracemalloc.get_traced_memory()[1] < 64 * items
    finally:
        tracemalloc.stop()
    assert not decoded.bad.any()
    assert len(cast("Any", decoded.values).values) == items


@given(st.lists(st.binary(max_size=40), max_size=40))
@example([b"\x02" * 1000 + b"\0" * 1000])
@settings(max_examples=100, deadline=None)
def test_a_recursive_schema_is_checked_and_not_decoded(rows: list[bytes]) -> None:
    """A list linked by itself: checked record by record, up to 100 records inside each other."""
    node = parse_schema(
        '{"type": "record", "name": "R", "fields": '
        '[{"name": "v", "type": "int"}, {"name": "n", "type": ["null", "R"]}]}'
    )
    rows += [encode(node, {"v": 7, "n": (0, None)}), encode(node, {"v": 7, "n": (1, {"v": -1, "n": (0, None)})})]
    bad = AvroDecoder(node).check(array_of(rows))
    wanted = [expected(node, row)[1] if len(row) < 200 else True for row in rows]
    assert bad.tolist() == wanted
    with pytest.raises(ConfigurationError, match="recursive"):
        AvroDecoder(node).decode(array_of(rows))


def test_nothing_imports_pandas() -> None:
    """Decoding does not load pandas into a worker."""
    code = (
        "import sys\n"
        "from airflow_provider_kafka_s3.arrays import binary_array\n"
        "from airflow_provider_kafka_s3.converters.avro_decode import AvroDecoder\n"
        "from airflow_provider_kafka_s3.schemas.avro import parse_schema\n"
        'node = parse_schema(\'{"type": "map", "values": ["null", "string"]}\')\n'
        "rows = binary_array([b'\\x02\\x02a\\x02\\x02b\\0'] * 40, large=False)\n"
        "decoded = AvroDecoder(node).decode(rows)\n"
        "assert not decoded.bad.any() and len(decoded.values) == 40\n"
        "print('pandas' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.strip() == "False"


def test_a_large_batch_is_decoded_in_parts_to_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of a few bytes give the column of the whole, with starts of each row as well."""
    node = parse_schema('{"type": "map", "values": ["null", "string", {"type": "array", "items": "int"}]}')
    rows: list[bytes | None] = [encode(node, [("k", (2, list(range(n % 7)))), ("", (1, "ä" * n))]) for n in range(60)]
    rows = [None, b"", *rows, b"\xff", None]
    given = array_of([row and b"#" * (n % 3) + row for n, row in enumerate(rows)])
    starts = np.array([n % 3 if row else 0 for n, row in enumerate(rows)])
    decoder = AvroDecoder(node)
    whole = decoder.decode(given, starts)
    assert whole.bad.sum() == 2
    for size in (1, 100, 1000):
        monkeypatch.setattr("airflow_provider_kafka_s3.converters.avro_decode._CHUNK", size)
        parts = decoder.decode(given, starts)
        assert parts.values.equals(whole.values)
        assert parts.bad.tolist() == decoder.check(given, starts).tolist() == whole.bad.tolist()


@pytest.mark.parametrize(
    "item", ['"int"', '"boolean"', '"null"', '["null", "long"]', '{"type": "array", "items": "int"}']
)
@pytest.mark.parametrize("copies", [1, 60])
def test_a_hostile_count_allocates_nothing(item: str, copies: int) -> None:
    """A count that the bytes cannot have is refused before there is memory for so many items."""
    decoder = AvroDecoder(parse_schema(f'{{"type": "array", "items": {item}}}'))
    counts = [varint(2**62), varint(-(2**63)) + b"\x02", varint(2**40) + b"\0" * 100, varint(2**31)]
    tracemalloc.start()
    try:
        assert decoder.decode(binary_array(counts * copies, large=False)).bad.all()
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()


def test_an_empty_batch_has_an_empty_column() -> None:
    """No rows, of any type."""
    node = parse_schema('{"type": "array", "items": "string"}')
    decoded = AvroDecoder(node).decode(binary_array([], large=False))
    assert (len(decoded.values), decoded.values.type, len(decoded.bad)) == (0, arrow_type(node), 0)
