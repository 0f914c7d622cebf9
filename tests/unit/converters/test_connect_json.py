"""Envelopes of Kafka Connect's JsonConverter."""

from __future__ import annotations

import decimal
import json
import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_kafka_s3.converters.avro_decode import AvroDecoder
from airflow_provider_kafka_s3.converters.avro_encode import encode_datums
from airflow_provider_kafka_s3.converters.connect_json import connect_schema, split_envelopes
from airflow_provider_kafka_s3.converters.json_decode import JsonDecoder
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.formats.json_values import encode_json
from airflow_provider_kafka_s3.schemas.arrow_types import arrow_type
from airflow_provider_kafka_s3.schemas.avro import parse_schema
from airflow_provider_kafka_s3.schemas.avro_text import node_text
from airflow_provider_kafka_s3.schemas.nodes import ArrayOf, Decimal, MapOf, Node, Primitive, Record, Union

CONNECT = "org.apache.kafka.connect.data."
NULL = Primitive("null")


def field(field_name: str, kind: str, **more: Any) -> dict[str, Any]:
    """A field of a struct."""
    return {"field": field_name, "type": kind, "optional": False, **more}


def struct(*fields: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A struct."""
    return {"type": "struct", "optional": False, "fields": list(fields), **more}


def as_avro(node: Node) -> Any:
    """A schema as JSON, with the names of records only where they are used again."""
    seen: set[str] = set()

    def value(current: Node) -> Any:
        match current:
            case Record(name=name, fields=fields):
                if name in seen:
                    return name
                seen.add(name)
                parts = [
                    {"name": f.name, "type": value(f.type), **({"default": f.default} if f.has_default else {})}
                    for f in fields
                ]
                return {"type": "record", "name": name, "fields": parts}
            case ArrayOf(items=items):
                return {"type": "array", "items": value(items)}
            case MapOf(values=values):
                return {"type": "map", "values": value(values)}
            case Union(branches=branches):
                return [value(b) for b in branches]
            case Primitive(name=name, logical=Decimal(precision=precision, scale=scale)):
                return {"type": name, "logicalType": "decimal", "precision": precision, "scale": scale}
            case Primitive(name=name, logical=None):
                return name
            case Primitive(name=name, logical=logical):
                return {"type": name, "logicalType": logical}
        raise AssertionError(current)

    return value(node)


ORDER = struct(
    field("tiny", "int8"),
    field("small", "int16"),
    field("count", "int32", optional=True, default=3),
    field("id", "int64"),
    field("ratio", "float"),
    field("price", "double"),
    field("paid", "boolean", default=True),
    field("limit", "double", default="Infinity"),
    field("note", "string", optional=True),
    field("raw", "bytes", default="/w=="),
    field("amount", "bytes", name=CONNECT + "Decimal", parameters={"scale": "2"}, default="AJY="),
    field("exact", "bytes", name=CONNECT + "Decimal", parameters={"scale": "1", "connect.decimal.precision": "5"}),
    field("day", "int32", name=CONNECT + "Date"),
    field("clock", "int32", name=CONNECT + "Time"),
    field("at", "int64", name=CONNECT + "Timestamp", version=1),
    field("zoned", "string", name="io.debezium.time.ZonedTimestamp"),
    field("tags", "array", items={"type": "string", "optional": True}),
    field("more", "map", keys={"type": "string"}, values={"type": "int32", "optional": False}),
    field("from", "struct", fields=[field("x", "int32")], name="a.b.Place"),
    field("to", "struct", fields=[field("x", "int32")], name="a.b.Place", optional=True),
    field("other", "struct", fields=[field("y", "int32")], name="a.b.Place", optional=True),
    field("plain", "struct", fields=[], default={}),
    name="a.b.Order",
    optional=True,
)


def test_a_schema_of_connect_has_its_avro_schema() -> None:
    """Types, logical types, names, defaults and optional values."""
    node = connect_schema(ORDER)
    assert as_avro(node) == [
        "null",
        {
            "type": "record",
            "name": "a.b.Order",
            "fields": [
                {"name": "tiny", "type": "int"},
                {"name": "small", "type": "int"},
                {"name": "count", "type": ["int", "null"], "default": 3},
                {"name": "id", "type": "long"},
                {"name": "ratio", "type": "float"},
                {"name": "price", "type": "double"},
                {"name": "paid", "type": "boolean", "default": True},
                {"name": "limit", "type": "double", "default": "Infinity"},
                {"name": "note", "type": ["null", "string"], "default": None},
                {"name": "raw", "type": "bytes", "default": "\xff"},
                {
                    "name": "amount",
                    "type": {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 2},
                    "default": "\x00\x96",
                },
                {"name": "exact", "type": {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 1}},
                {"name": "day", "type": {"type": "int", "logicalType": "date"}},
                {"name": "clock", "type": {"type": "int", "logicalType": "time-millis"}},
                {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
                {"name": "zoned", "type": "string"},
                {"name": "tags", "type": {"type": "array", "items": ["null", "string"]}},
                {"name": "more", "type": {"type": "map", "values": "int"}},
                {
                    "name": "from",
                    "type": {"type": "record", "name": "a.b.Place", "fields": [{"name": "x", "type": "int"}]},
                },
                {"name": "to", "type": ["null", "a.b.Place"], "default": None},
                {
                    "name": "other",
                    "type": [
                        "null",
                        {"type": "record", "name": "a.b.Place2", "fields": [{"name": "y", "type": "int"}]},
                    ],
                    "default": None,
                },
                {"name": "plain", "type": {"type": "record", "name": "ConnectDefault", "fields": []}, "default": {}},
            ],
        },
    ]
    assert arrow_type(parse_schema(json.dumps(as_avro(node)))) == arrow_type(node)


def test_payloads_are_decoded_by_their_schema() -> None:
    """A payload with all fields, and one without those that have a default."""
    payload = {
        "tiny": 1, "small": 2, "count": None, "id": 3, "ratio": 0.5, "price": 1.5, "paid": False, "note": "n",
        "raw": "AA==", "amount": "AJc=", "exact": "Dw==", "day": 0, "clock": 1, "at": 2, "zoned": "z", "tags": [None],
        "more": {"k": 1}, "from": {"x": 1}, "to": None, "other": {"y": 2}, "plain": {},
    }  # fmt: skip
    short = {k: v for k, v in payload.items() if k not in ("count", "paid", "raw", "amount", "to", "other", "plain")}
    decoded = JsonDecoder(connect_schema(ORDER)).decode(pa.array([json.dumps(p).encode() for p in (payload, short)]))
    assert decoded.reasons == {}
    found: Any = decoded.values.to_pylist()
    first, second = found
    assert (str(first["amount"]), str(first["exact"]), first["count"]) == ("1.51", "1.5", None)
    assert (str(second["amount"]), second["raw"], second["count"]) == ("1.50", b"\xff", 3)
    assert (second["paid"], second["limit"], second["to"], second["plain"]) == (True, math.inf, None, {})


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({}, "has the type 'None'"),
        ({"type": "int128"}, "has the type 'int128'"),
        ({"type": []}, "has the type"),
        ({"type": "int32", "optional": "yes"}, "'optional', which is no boolean"),
        ({"type": "array"}, "is no JSON object"),
        ({"type": "struct"}, "has no list of fields"),
        ({"type": "map", "values": {"type": "int32"}}, "is no JSON object"),
        ({"type": "map", "keys": struct(), "values": {"type": "int32"}}, "keys have no primitive type"),
        (struct(field("a\ud800", "int32")), "the name 'a.ud800', which is no text"),
        (struct({"type": "int32"}), "the name 'None', which is no text"),
        (struct(field("a", "int32"), field("a", "int32")), "has a field twice"),
        (struct(field("a", "int32", default="x")), "default of field 'a' .* does not fit its type"),
        ({"type": "bytes", "name": CONNECT + "Decimal"}, "a scale that is no integer"),
        ({"type": "bytes", "name": CONNECT + "Decimal", "parameters": {"scale": "-1"}}, "no negative scale"),
        ({"type": "bytes", "name": CONNECT + "Decimal", "parameters": {"scale": "77"}}, "77 digits"),
    ],
)
def test_what_is_no_schema_of_connect_is_refused(schema: Any, message: str) -> None:
    """Each fault has a message."""
    with pytest.raises(ConfigurationError, match=message):
        connect_schema(schema)


def values_of(schema: Any, *payloads: Any) -> tuple[list[Any], Any, pa.Array[Any]]:
    """What payloads of a schema are, as Python has it and after their way through a datum; and the column."""
    node = connect_schema(schema)
    decoded = JsonDecoder(node, null_is_default=True).decode(pa.array([json.dumps(p).encode() for p in payloads]))
    assert decoded.reasons == {}
    decoded.values.validate(full=True)
    written = parse_schema(node_text(node))
    datums = AvroDecoder(written).decode(encode_datums(decoded.values, node))
    assert not datums.bad.any()
    return decoded.values.to_pylist(), datums.values.to_pylist(), decoded.values


def test_maps_with_keys_that_are_no_strings_have_entries() -> None:
    """Columns have maps, Avro an array of keys and values, and JSON pairs, as Kafka Connect writes them."""
    schema = struct(
        field("i", "map", keys={"type": "int32"}, values={"type": "string", "optional": True}),
        field("d", "map", keys={"type": "bytes", "name": CONNECT + "Decimal", "parameters": {"scale": "1"}},
              values={"type": "map", "keys": {"type": "boolean"}, "values": {"type": "int64"}}, optional=True),
    )  # fmt: skip
    first = {"i": [[2, "b"], [1, None], [2, "c"]], "d": [["Dw==", [[True, 5]]]]}
    second = {"i": [{"key": 3, "value": "x"}], "d": None}
    found, written, column = values_of(schema, first, second)
    assert [[[*row["i"]], row["d"]] for row in found] == [
        [[(2, "c"), (1, None)], [(decimal.Decimal("1.5"), [(True, 5)])]],
        [[(3, "x")], None],
    ]
    assert written == [
        {
            "i": [{"key": 2, "value": "c"}, {"key": 1, "value": None}],
            "d": [{"key": decimal.Decimal("1.5"), "value": [{"key": True, "value": 5}]}],
        },
        {"i": [{"key": 3, "value": "x"}], "d": None},
    ]
    assert [bytes(text) for text in encode_json(column).to_pylist()] == [
        b'{"i":[[2,"c"],[1,null]],"d":[["Dw==",[[true,5]]]]}',
        b'{"i":[[3,"x"]],"d":null}',
    ]


@pytest.mark.parametrize("entries", ['{"1": "a"}', "[1]", "[[1]]", '[[1, "a", 2]]', '[["1", "a"]]', '[[null, "a"]]'])
def test_what_is_no_entry_of_a_map_is_refused(entries: str) -> None:
    """By itself, with the name of the field and without its content."""
    node = connect_schema(struct(field("m", "map", keys={"type": "int32"}, values={"type": "string"})))
    rows = [b'{"m": []}', b'{"m": %s}' % entries.encode()]
    decoded = JsonDecoder(node, null_is_default=True).decode(pa.array(rows))
    assert decoded.bad.tolist() == [False, True]
    assert decoded.reasons[1].startswith("field m")


def test_null_is_the_default_of_its_field() -> None:
    """As Kafka Connect reads it, whether the field is optional or not, whatever its type is, and at any depth."""
    default_of: dict[str, Any] = {
        "string": ("x", "x"),
        "int32": (3, 3),
        "double": ("NaN", math.nan),
        "bytes": ("AA==", b"\0"),
        "boolean": (False, False),
    }
    fields = [
        field(f"{kind}_{optional}".lower(), kind, optional=optional, default=default)
        for kind, (default, _) in default_of.items()
        for optional in (False, True)
    ]
    amount = field("amount", "bytes", name=CONNECT + "Decimal", parameters={"scale": "2"}, default="AJY=")
    tags = field("tags", "array", items={"type": "string"}, default=["t"])
    pairs = field("pairs", "map", keys={"type": "int32"}, values={"type": "string"}, default=[[1, "a"]])
    inner = struct(*fields, amount, tags, pairs, field("none", "string", optional=True), field="inner")
    schema = struct(field("list", "array", items=inner))
    nulls = {part["field"]: None for part in inner["fields"]}
    found, written, _ = values_of(schema, {"list": [nulls, {}]})
    expected = {part["field"]: default_of[part["type"]][1] for part in fields}
    expected |= {"amount": decimal.Decimal("1.50"), "tags": ["t"], "pairs": [(1, "a")], "none": None}
    assert repr(found) == repr([{"list": [expected, expected]}])
    expected["pairs"] = [{"key": 1, "value": "a"}]
    assert repr(written) == repr([{"list": [expected, expected]}])


def test_names_that_avro_does_not_allow_are_changed_in_its_schema_only() -> None:
    """Columns and JSON keep them; in Avro they are as Kafka Connect's ``scrub.invalid.names`` writes them."""
    names = ["a-b", "a_b", "a b", "a~b", "1", "", "ü", 'q"\\\n', "*"]
    schema = struct(*(field(name, "int32") for name in names))
    payload = {name: number for number, name in enumerate(names)}
    found, written, column = values_of(schema, payload, payload)
    assert found == [payload, payload]
    allowed = ["a_b2", "a_b", "a_b3", "a_7Eb", "x1", "x", "x_C3_BC", "q_22_5C_0A", "x_"]
    assert [list(row.items()) for row in written] == [list(zip(allowed, range(len(names)), strict=True))] * 2
    assert [json.loads(text) for text in encode_json(column).to_pylist()] == [payload, payload]


def test_deep_schemas_are_refused() -> None:
    """Before Python's stack ends."""
    schema: dict[str, Any] = {"type": "int32"}
    for _ in range(60):
        schema = {"type": "array", "items": schema}
    with pytest.raises(ConfigurationError, match="more than 50 types"):
        connect_schema(schema)


def test_envelopes_are_grouped_by_the_text_of_their_schema() -> None:
    """Rows of each schema, payloads as they stand, and reasons of the bad rows."""
    rows = [
        b'{"schema": {"type": "int32"}, "payload": 1}',
        b'{"payload": {"a": [1, 2 ]}, "x": 0, "schema": {"type":"int32"}}',
        None,
        b'{"schema": {"type": "int32"}, "payload": null}',
        b'{"schema": null, "payload": 1}',
        b'{"payload": 1}',
        b'{"schema": {}}',
        b"[]",
        b"{",
        b'{"schema": "\xff", "payload": 1}',
        b'{"schema": {}, "payload": %s1%s}' % (b"[" * 200, b"]" * 200),
        b'{"schema": {}, "payload": "\\ud800"}',
    ]
    for kind in (pa.binary(), pa.large_binary()):
        split = split_envelopes(pa.array([b"", *rows, b"{}"], kind)[1:-1])
        assert {schema: numbers.tolist() for schema, numbers in split.rows.items()} == {
            '{"type": "int32"}': [0, 3],
            '{"type":"int32"}': [1],
        }
        split.payloads.validate(full=True)
        assert split.payloads.type == kind
        assert split.payloads.to_pylist() == [b"1", b'{"a": [1, 2 ]}', None, b"null", *[None] * 8]
        assert split.bad.tolist() == [False] * 4 + [True] * 8
        assert split.reasons == {
            4: "field schema is null",
            5: "field schema is missing",
            6: "field payload is missing",
            7: "the value is no object with the fields schema and payload",
            8: "the value is not one JSON document: Expecting property name enclosed in double quotes at character 1",
            9: "the value is not UTF-8: byte 12",
            10: "the value has more than 200 objects and arrays inside each other",
            11: "the value has half of a surrogate pair",
        }


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(JSON, JSON), max_size=8))
def test_every_envelope_is_split(pairs: list[tuple[Any, Any]]) -> None:
    """The parts of any envelope are those that were put together."""
    rows = [json.dumps({"schema": schema, "payload": payload}).encode() for schema, payload in pairs]
    split = split_envelopes(pa.array(rows, pa.binary()))
    found = {row: schema for schema, numbers in split.rows.items() for row in numbers.tolist()}
    payloads = split.payloads.to_pylist()
    for row, (schema, payload) in enumerate(pairs):
        assert bool(split.bad[row]) is (schema is None and payload is not None)
        if schema is not None:
            assert (found[row], payloads[row]) == (json.dumps(schema), json.dumps(payload).encode())
