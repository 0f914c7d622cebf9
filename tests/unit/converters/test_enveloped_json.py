"""JSON values with their schemas: generated envelopes are landed as they were, any other bytes are invalid."""

from __future__ import annotations

import base64
import io
import json
from typing import Any, Final

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_kafka_s3.converters.avro_decode import AvroDecoder
from airflow_provider_kafka_s3.converters.enveloped_json import EnvelopedJsonConverter
from airflow_provider_kafka_s3.converters.port import TypedValues
from airflow_provider_kafka_s3.formats.json_values import encode_json
from airflow_provider_kafka_s3.schemas.avro import parse_schema
from tests.avro_values import column_values

CONNECT: Final = "org.apache.kafka.connect.data."

# A schema, payloads of it, and the payloads as they are written.
Generated = tuple[dict[str, Any], st.SearchStrategy[Any], Any]


def plain(value: Any) -> Any:
    """A payload that is written as it is."""
    return value


def integers(bits: int) -> st.SearchStrategy[int]:
    """Whole numbers of a type."""
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def encoded(value: int) -> str:
    """A decimal as Kafka Connect writes it: with as few bytes as its number needs."""
    return base64.b64encode(value.to_bytes((8 + (value + (value < 0)).bit_length()) // 8, signed=True)).decode()


TEXT: Final = st.text(st.characters(exclude_categories=("Cs",)), max_size=5)
LEAVES: Final[list[Generated]] = [
    ({"type": "int8"}, integers(8), plain),
    ({"type": "int16"}, integers(16), plain),
    ({"type": "int32"}, integers(32), plain),
    ({"type": "int64"}, integers(64), plain),
    ({"type": "float"}, integers(16).map(lambda n: n / 8), float),
    ({"type": "double"}, st.floats(allow_nan=False, allow_infinity=False) | st.integers(-9, 9), float),
    ({"type": "boolean"}, st.booleans(), plain),
    ({"type": "string"}, TEXT, plain),
    ({"type": "bytes"}, st.binary(max_size=5).map(lambda b: base64.b64encode(b).decode()), plain),
    ({"type": "int32", "name": f"{CONNECT}Date"}, integers(20), plain),
    ({"type": "int32", "name": f"{CONNECT}Time"}, st.integers(0, 86_399_999), plain),
    ({"type": "int64", "name": f"{CONNECT}Timestamp"}, integers(46), plain),
    (
        {"type": "bytes", "name": f"{CONNECT}Decimal", "parameters": {"scale": "2"}},
        st.integers(-(10**38) + 1, 10**38 - 1).map(encoded),
        plain,
    ),
]
NAMES: Final = st.sampled_from([None, "a.R", "R", "b.R", "x-y.1", ""])


@st.composite
def schemas(draw: st.DrawFn, depth: int = 0) -> Generated:
    """A schema with its payloads."""
    kind = draw(st.sampled_from(["leaf", "leaf", "array", "map", "pairs", "struct"] if depth < 3 else ["leaf"]))
    if depth == 0 and draw(st.booleans()):
        kind = "struct"
    if kind == "leaf":
        made = draw(st.sampled_from(LEAVES))
    elif kind == "struct":
        made = draw(structs(depth))
    else:
        made = draw(containers(kind, depth))
    schema, values, written = made
    if draw(st.booleans()):
        return {**schema, "optional": True}, st.none() | values, lambda v: None if v is None else written(v)
    return {**schema, "optional": False}, values, written


@st.composite
def containers(draw: st.DrawFn, kind: str, depth: int) -> Generated:
    """An array or a map, whose keys may be no strings."""
    inner, items, written = draw(schemas(depth + 1))
    if kind == "array":
        return {"type": "array", "items": inner}, st.lists(items, max_size=3), lambda v: [written(i) for i in v]
    keys, of_keys = ("string", TEXT) if kind == "map" else ("int64", integers(64))
    made = {"type": "map", "keys": {"type": keys, "optional": False}, "values": inner}
    pairs = st.lists(st.tuples(of_keys, items), max_size=3, unique_by=lambda pair: pair[0])
    if kind == "map":
        return made, pairs.map(dict), lambda v: {k: written(i) for k, i in v.items()}
    return made, pairs.map(lambda p: [list(pair) for pair in p]), lambda v: [[k, written(i)] for k, i in v]


@st.composite
def structs(draw: st.DrawFn, depth: int) -> Generated:
    """A struct, some of whose fields have a default."""
    names = draw(st.lists(TEXT.filter(bool), min_size=1, max_size=4, unique=True))
    parts: dict[str, Any] = {}
    fields = []
    for name in names:
        schema, values, written = draw(schemas(depth + 1))
        default = draw(st.none() | values) if draw(st.integers(0, 3)) == 0 else None
        fields.append({"field": name, **schema, **({} if default is None else {"default": default})})
        may_be_left_out = schema["optional"] or default is not None
        # In Kafka Connect, null in a field with a default is the default.
        absent = None if default is None else written(default)
        parts[name] = (
            st.none() | values if may_be_left_out else values,
            lambda v, w=written, a=absent: a if v is None else w(v),
            may_be_left_out,
        )
    name = draw(NAMES)
    schema = {"type": "struct", "fields": fields, **({} if name is None else {"name": name})}
    payloads = st.fixed_dictionaries(
        {n: p[0] for n, p in parts.items() if not p[2]},
        optional={n: p[0] for n, p in parts.items() if p[2]} | {"\0more": st.integers()},
    )
    return schema, payloads, lambda v: {n: p[1](v.get(n)) for n, p in parts.items()}


def convert(values: list[bytes], converter: EnvelopedJsonConverter | None = None) -> tuple[TypedValues, dict[int, Any]]:
    """Convert values: every row is in one place. With the documents that are written, by row."""
    converter = converter or EnvelopedJsonConverter("BASE64", names_and_versions=True)
    typed = converter.convert(pa.array(values, pa.binary()), decode=True)
    rows = sorted([int(row) for group in typed.groups for row in group.rows] + [i.row for i in typed.invalid])
    assert rows == list(range(len(values)))
    found: dict[int, Any] = {}
    for group in typed.groups:
        assert group.values is not None
        group.values.validate(full=True)
        texts = encode_json(group.values, decimal_format="BASE64").to_pylist()
        found |= {int(row): json.loads(text) for row, text in zip(group.rows, texts, strict=True)}
        node = parse_schema(converter.schemas[group.schema].text)
        decoded = AvroDecoder(node).decode(group.datums())
        assert not decoded.bad.any()
        assert len(decoded.values) == len(group.rows)
    return typed, found


@settings(max_examples=80)
@given(st.data())
def test_envelopes_of_any_schema_are_read_back(data: st.DataObject) -> None:
    """As JSON lines, Avro files and Parquet files, each read by another library; a null of an optional root is none."""
    generated = data.draw(st.lists(schemas(), min_size=1, max_size=2))
    values, wanted = [], {}
    for row in range(data.draw(st.integers(0, 6))):
        schema, payloads, written = generated[row % len(generated)]
        payload = data.draw(payloads)
        values.append(json.dumps({"schema": schema, "payload": payload}, ensure_ascii=row % 2 == 0).encode())
        wanted[row] = written(payload)
    converter = EnvelopedJsonConverter("BASE64", names_and_versions=True)
    nulls = converter.nulls(pa.array(values, pa.binary()))
    assert nulls.tolist() == [document is None for document in wanted.values()]
    values = [value for value, null in zip(values, nulls, strict=True) if not null]
    wanted = dict(enumerate(document for document in wanted.values() if document is not None))
    typed, found = convert(values, converter)
    assert typed.invalid == []
    assert found == wanted
    for group in typed.groups:
        parsed = fastavro.parse_schema(json.loads(converter.schemas[group.schema].text))
        for datum in group.datums().to_pylist():
            stream = io.BytesIO(datum)
            fastavro.schemaless_reader(stream, parsed, None, return_record_name=True)
            assert stream.read() == b""
        assert group.values is not None
        if not any(_is_empty(kind) for kind in _kinds(group.values.type)):
            file = io.BytesIO()
            pq.write_table(pa.table({"value": group.values}), file)
            again = pq.read_table(file).column(0).combine_chunks()
            assert repr(column_values(again)) == repr(column_values(group.values))


def _kinds(kind: Any) -> list[Any]:
    """A type, and those inside."""
    return [kind, *(inner for i in range(kind.num_fields) for inner in _kinds(kind.field(i).type))]


def _is_empty(kind: Any) -> bool:
    return bool(pa.types.is_struct(kind)) and kind.num_fields == 0


BIG: Final = b"9" * 5000
HOSTILE_SCHEMAS: Final = {
    "a default of 5000 digits": b'{"type":"struct","fields":[{"field":"a","type":"int64","default":' + BIG + b"}]}",
    "a version of 5000 digits": b'{"type":"int32","version":' + BIG + b"}",
    "a scale of 5000 digits": b'{"type":"bytes","name":"%sDecimal","parameters":{"scale":"%s"}}'
    % (CONNECT.encode(), BIG),
    "a default that is infinite": b'{"type":"struct","fields":[{"field":"a","type":"double","default":1e999}]}',
    "no object": b'"int32"',
    "no type": b"{}",
    "a list as type": b'{"type":["int32"]}',
    "a field without a name": b'{"type":"struct","fields":[{"type":"int32"}]}',
    "a field twice": b'{"type":"struct","fields":[{"field":"a","type":"int32"},{"field":"a","type":"int32"}]}',
    "fields that are no list": b'{"type":"struct","fields":{"a":1}}',
    "a map with keys that are lists": b'{"type":"map","keys":{"type":"array","items":{"type":"int32"}},"values":{}}',
    "a text as flag": b'{"type":"int32","optional":"yes"}',
    "60 arrays": b'{"type":"array","items":' * 60 + b'{"type":"int32"}' + b"}" * 60,
    "10000 arrays": b'{"type":"array","items":' * 10_000 + b'{"type":"int32"}' + b"}" * 10_000,
    "half of a surrogate pair": b'{"type":"struct","name":"\\ud800","fields":[]}',
}


@pytest.mark.parametrize("name", HOSTILE_SCHEMAS)
def test_a_schema_that_cannot_be_used_makes_its_records_invalid(name: str) -> None:
    """And no others: no producer can make a batch fail that sets such records aside."""
    good = b'{"schema":{"type":"int32"},"payload":1}'
    bad = b'{"schema":' + HOSTILE_SCHEMAS[name] + b',"payload":{"a":1}}'
    typed, found = convert([good, bad, bad, good])
    assert found == {0: 1, 3: 1}
    assert [invalid.row for invalid in typed.invalid] == [1, 2]
    assert all(len(invalid.reason) < 500 for invalid in typed.invalid)


PIECES: Final = st.sampled_from(
    [b"{", b"}", b"[", b"]", b":", b",", b'"', b"null", b"true", b"1", b"-0", b"1e999", b"1e-999", b"NaN", b"9" * 30,
     b"\\ud800", b"\xff", b"\xed\xa0\x80", b"\0", b" ", b"\n", b'"schema"', b'"payload"', b'"type"', b'"struct"',
     b'"int64"', b'"fields"',
     b'"field"', b'"default"', b'"optional"', b'"name"', b'"items"', b'"keys"', b'"version"', b'"bytes"', b'""']
)  # fmt: skip


@settings(max_examples=80)
@given(st.data())
def test_changed_envelopes_are_converted_or_invalid(data: st.DataObject) -> None:
    """Never another error, and what a record is does not depend on the records around it."""
    schema, payloads, _ = data.draw(schemas())
    values = []
    for _ in range(data.draw(st.integers(1, 5))):
        value = json.dumps({"schema": schema, "payload": data.draw(payloads)}).encode()
        for _ in range(data.draw(st.integers(0, 3))):
            place = data.draw(st.integers(0, len(value)))
            value = value[:place] + data.draw(PIECES) + value[place + data.draw(st.integers(0, 8)) :]
        values.append(value)
    together, found = convert(values)
    reasons = {invalid.row: invalid.reason for invalid in together.invalid}
    for row, value in enumerate(values):
        alone, documents = convert([value])
        assert repr(documents.get(0)) == repr(found.get(row))
        assert [invalid.reason for invalid in alone.invalid] == ([reasons[row]] if row in reasons else [])


def test_null_inside_a_default_is_the_default_of_its_field() -> None:
    """As null in a payload is."""
    inner = [{"field": "a", "type": "int32", "default": 7}, {"field": "b", "type": "string", "optional": True}]
    outer = {"field": "o", "type": "struct", "fields": inner, "default": {"a": None, "b": None}}
    schema = {"type": "struct", "fields": [outer]}
    _, found = convert([json.dumps({"schema": schema, "payload": payload}).encode() for payload in ({}, {"o": None})])
    assert found == {0: {"o": {"a": 7, "b": None}}, 1: {"o": {"a": 7, "b": None}}}
