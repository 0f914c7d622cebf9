"""JSON Schemas as Avro schemas."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_kafka_s3.converters.json_schema_nodes import json_schema_node
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.registry.schemas import SchemaReference
from airflow_provider_kafka_s3.schemas.arrow_types import arrow_type
from airflow_provider_kafka_s3.schemas.avro import parse_schema
from airflow_provider_kafka_s3.schemas.avro_text import node_text

CONNECT: Final = "org.apache.kafka.connect.data."
STRING: Final = {"type": "string"}
INTEGER: Final = {"type": "integer"}
NULL: Final = {"type": "null"}


def obj(**properties: Any) -> dict[str, Any]:
    """An object with these properties."""
    return {"type": "object", "properties": properties}


def avro(schema: Any, *references: SchemaReference) -> Any:
    """The Avro schema of a JSON Schema, which Avro accepts and a column can hold."""
    node = json_schema_node(json.dumps(schema), references)
    text = node_text(node)
    arrow_type(parse_schema(text))
    return json.loads(text)


def field(name: str, kind: Any, default: Any = None) -> dict[str, Any]:
    """A field that may be null."""
    return {"name": name, "type": ["null", kind], "default": default}


def record(*fields: Any, name: str = "ConnectDefault") -> dict[str, Any]:
    """A record."""
    return {"type": "record", "name": name, "fields": list(fields)}


def number(kind: str, title: str | None = None, **more: Any) -> dict[str, Any]:
    """A number with a type of Connect."""
    named = {} if title is None else {"title": CONNECT + title}
    return {"type": "number" if "float" in kind else "integer", "connect.type": kind, **named, **more}


DECIMAL: Final = {
    "type": "number",
    "title": f"{CONNECT}Decimal",
    "connect.type": "bytes",
    "connect.parameters": {"scale": "2", "connect.decimal.precision": "9"},
}
AVRO_DECIMAL: Final = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
ENTRY: Final = obj(key=number("int32"), value=STRING)

CASES: Final[dict[str, tuple[Any, Any]]] = {
    "string": (STRING, "string"),
    "string with a format": ({"type": "string", "format": "date-time", "pattern": "x"}, "string"),
    "integer": (INTEGER, "long"),
    "number": ({"type": "number"}, "double"),
    "boolean": ({"type": "boolean"}, "boolean"),
    "null": (NULL, "null"),
    "int8": (number("int8"), "int"),
    "int16": (number("int16"), "int"),
    "int32": (number("int32"), "int"),
    "int64": (number("int64"), "long"),
    "float32": (number("float32"), "float"),
    "float64": (number("float64"), "double"),
    "bytes": ({"type": "string", "connect.type": "bytes"}, "bytes"),
    "decimal": (DECIMAL, AVRO_DECIMAL),
    "decimal of the usual precision": (
        {**DECIMAL, "connect.parameters": {"scale": "0"}},
        {**AVRO_DECIMAL, "precision": 38, "scale": 0},
    ),
    "date": (number("int32", "Date"), {"type": "int", "logicalType": "date"}),
    "time": (number("int32", "Time"), {"type": "int", "logicalType": "time-millis"}),
    "timestamp": (number("int64", "Timestamp"), {"type": "long", "logicalType": "timestamp-millis"}),
    "timestamp without connect.type": (
        {"type": "integer", "title": f"{CONNECT}Timestamp"},
        {"type": "long", "logicalType": "timestamp-millis"},
    ),
    "date of another type": (number("int64", "Date"), "long"),
    "enum": ({"enum": ["a", "b"]}, "string"),
    "enum with null": ({"enum": ["a", None]}, ["null", "string"]),
    "enum of numbers": ({"enum": [1, 2.0]}, "long"),
    "enum of integers and fractions": ({"enum": [1, 2.5]}, "double"),
    "enum of several types": ({"enum": ["a", 1]}, ["string", "long"]),
    "const": ({"const": True}, "boolean"),
    "array": ({"type": "array", "items": INTEGER}, {"type": "array", "items": "long"}),
    "array without a type": ({"items": {"type": ["string", "null"]}}, {"type": "array", "items": ["null", "string"]}),
    "map": ({"type": "object", "additionalProperties": INTEGER}, {"type": "map", "values": "long"}),
    "map of patterns": ({"patternProperties": {"^a": STRING, "^b": STRING}}, {"type": "map", "values": "string"}),
    "map of connect": (
        {**obj(a=INTEGER), "connect.type": "map", "additionalProperties": {"oneOf": [NULL, INTEGER]}},
        {"type": "map", "values": ["null", "long"]},
    ),
    "map with other keys": (
        {"type": "array", "connect.type": "map", "items": ENTRY},
        {"type": "array", "items": record(*({"name": n, "type": t} for n, t in (("key", "int"), ("value", "string"))),
                                          name="MapEntry")},
    ),
    "record": (
        {**obj(a=STRING, b=INTEGER, c={"type": ["null", "string"]}), "required": ["b", "c"]},
        record(field("a", "string"), {"name": "b", "type": "long"}, field("c", "string")),
    ),
    "record without fields": ({"type": "object", "additionalProperties": False}, record()),
    "record in the order of connect.index": (
        obj(a={**STRING, "connect.index": 2}, b={**STRING, "connect.index": 0},
            c={"connect.index": 1, "oneOf": [NULL, STRING]}),
        record(field("b", "string"), field("c", "string"), field("a", "string")),
    ),
    "defaults": (
        {**obj(a={**STRING, "default": "x"}, b={"default": 3, "oneOf": [NULL, INTEGER]},
               c={**DECIMAL, "default": "AJY="}, d={**STRING, "default": None},
               e={"type": ["string", "integer"], "default": 1}), "required": ["d"]},
        record(
            {"name": "a", "type": "string", "default": "x"},
            {"name": "b", "type": ["long", "null"], "default": 3},
            {"name": "c", "type": AVRO_DECIMAL, "default": "\x00\x96"},
            {"name": "d", "type": "string"},
            {"name": "e", "type": ["null", "string", "long"], "default": None},
        ),
    ),
    "titles": (
        {**obj(a={**obj(x=STRING), "title": "shop.Place"}, b={**obj(x=STRING), "title": "shop.Place"},
               c={**obj(y=STRING), "title": "shop.Place"}, d=obj(x=STRING)), "title": "An order, v1.2"},
        record(
            field("a", record(field("x", "string"), name="shop.Place")),
            field("b", "shop.Place"),
            field("c", record(field("y", "string"), name="shop.Place2")),
            field("d", record(field("x", "string"))),
            name="An_order__v1._2",
        ),
    ),
    "type list": ({"type": ["null", "integer", "string"]}, ["null", "long", "string"]),
    "type list of numbers": ({"type": ["integer", "number"]}, "double"),
    "oneOf with null": ({"oneOf": [NULL, INTEGER]}, ["null", "long"]),
    "anyOf with null": ({"anyOf": [{"type": ["string", "null"]}]}, ["null", "string"]),
    "oneOf of several": ({"oneOf": [STRING, {"type": "number"}, {"anyOf": [NULL, STRING]}]},
                         ["null", "string", "double"]),
    "oneOf of objects": (
        {"title": "Pet", "oneOf": [{**obj(a=STRING), "title": "Cat"}, obj(b=STRING)]},
        [record(field("a", "string"), name="Cat"), record(field("b", "string"), name="Pet")],
    ),
    "oneOf beside a type": (
        {"type": ["object", "null"], "oneOf": [{"properties": {"a": STRING}}, {"properties": {"b": STRING}}]},
        ["null", record(field("a", "string")), record(field("b", "string"), name="ConnectDefault2")],
    ),
    "oneOf that restricts": ({"type": "string", "oneOf": [{"format": "date"}, {"format": "time"}]}, "string"),
    "anyOf that requires": (
        {**obj(a=STRING, b=STRING), "anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
        record(field("a", "string"), field("b", "string")),
    ),
    "oneOf that adds properties": (
        {**obj(a=STRING), "required": ["a", "b"],
         "oneOf": [{"properties": {"b": STRING}}, {"properties": {"b": INTEGER, "a": {"const": "x"}}}]},
        record({"name": "a", "type": "string"}, {"name": "b", "type": ["null", "string", "long"], "default": None}),
    ),
    "not beside a type": ({"type": "string", "not": {"const": ""}}, "string"),
    "allOf": (
        {"allOf": [{**obj(a=STRING), "required": ["a"]}, {"properties": {"b": INTEGER, "a": {"minLength": 1}}}]},
        record({"name": "a", "type": "string"}, field("b", "long")),
    ),
    "allOf of numbers": ({"allOf": [INTEGER, {"type": "number", "minimum": 0}]}, "long"),
    "definitions": (
        {"$ref": "#/definitions/Order", "definitions": {
            "Order": obj(at={"$ref": "#/definitions/a~1%7Ez"}, to={"$ref": "#/definitions/a~1%7Ez", "title": "To"}),
            "a/~z": obj(x=STRING)}},
        record(field("at", record(field("x", "string"), name="a_1_7Ez")), field("to", "a_1_7Ez"), name="Order"),
    ),
    "$defs and anchors": (
        {"$id": "http://x/order", "allOf": [{"$ref": "#base"}], "$defs": {"B": {"$anchor": "base", **obj(a=STRING)}}},
        record(field("a", "string"), name="base"),
    ),
    "a reference beside keywords": (
        {"$ref": "#/$defs/B", "properties": {"b": STRING}, "$defs": {"B": obj(a=STRING)}, "title": "T"},
        record(field("b", "string"), field("a", "string"), name="T"),
    ),
    "an identifier inside": (
        {**obj(a={"$ref": "item.json"}, b={"$ref": "http://x/item.json#/definitions/n"}), "$id": "http://x/order.json",
         "definitions": {"i": {"$id": "item.json", "definitions": {"n": INTEGER}, **STRING}}},
        record(field("a", "string"), field("b", "long")),
    ),
    "draft 4": (
        {"$schema": "http://json-schema.org/draft-04/schema#", "id": "http://x/y", "definitions": {"z": STRING},
         **obj(id={"$ref": "y#/definitions/z"})},
        record(field("id", "string")),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_json_schema_has_its_avro_schema(case: str) -> None:
    """As Kafka Connect maps it, with what it leaves open."""
    schema, expected = CASES[case]
    assert avro(schema) == expected


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({}, "it has no type"),
        (True, "it has no type"),
        (7, "is no JSON Schema"),
        (obj(a={}), "'a' has no type"),
        (obj(a=obj(b={"items": {"not": STRING}})), r"'a\.b\[\]' has no type"),
        ({"type": "object"}, "object whose values have no type"),
        ({"type": "array"}, "array without items"),
        ({"type": "array", "items": [STRING]}, "tuple"),
        ({"type": "array", "prefixItems": [STRING]}, "tuple"),
        ({"type": "array", "items": False}, r"'\[\]' allows no value"),
        ({"type": "text"}, "type that JSON Schema does not have"),
        ({"type": []}, "type that JSON Schema does not have"),
        ({"allOf": [STRING, INTEGER]}, "parts have different types"),
        ({"allOf": {}}, "allOf without a list"),
        ({"oneOf": {}}, "oneOf without a list"),
        ({"anyOf": []}, "anyOf without a list"),
        ({"type": "object", "properties": []}, "properties that are no object"),
        ({"type": "object", "patternProperties": []}, "patternProperties that are no object"),
        (obj(a={"$ref": "#"}), "contains itself"),
        ({"$ref": "#"}, "no type"),
        ({"type": "array", "items": {"$ref": "#"}}, "contains itself"),
        ({"$ref": "#/definitions/x"}, "refers to '#/definitions/x', which does not exist"),
        ({"$ref": "#x"}, "refers to '#x', which does not exist"),
        ({"$ref": "http://[/x"}, "which is none of its references"),
        ({"$ref": "other.json"}, "refers to 'other.json', which is none of its references"),
        ({"$dynamicRef": "#x"}, "dynamic reference"),
        ({"oneOf": [{"items": STRING}, {"items": INTEGER}]}, "several types that are arrays"),
        ({"type": "object", "additionalProperties": INTEGER, "patternProperties": {"a": {}}}, "'{}' has no type"),
        ({"type": "integer", "connect.type": "bytes"}, "bytes without the title of a decimal"),
        ({"type": "integer", "connect.type": "int128"}, "connect.type 'int128'"),
        ({**DECIMAL, "connect.parameters": {}}, "is no decimal"),
        (obj(a={**INTEGER, "default": "x"}), "default of the property 'a' that does not fit"),
        (obj(**{"\ud800": STRING}), "whose name is no text"),
        ({"connect.type": "map", "items": obj(key=STRING)}, "do not have the properties key and value"),
        ({"connect.type": "map", "items": obj(key=obj(a=STRING), value=STRING)}, "keys have no primitive type"),
    ],
)  # fmt: skip
def test_what_has_no_avro_schema_has_a_reason(schema: Any, message: str) -> None:
    """It names the part of the schema."""
    with pytest.raises(ConfigurationError, match=message):
        json_schema_node(json.dumps(schema))


def test_hostile_schemas_end() -> None:
    """Text that is not JSON, deep schemas, and references that multiply."""
    deep: Any = STRING
    for _ in range(60):
        deep = {"type": "array", "items": deep}
    pairs = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(60)}
    wide = {f"d{n}": obj(**{name: {"$ref": f"#/$defs/d{n + 1}"} for name in "abc"}) for n in range(45)}
    assert avro({"$ref": "#/$defs/d0", "$defs": {**pairs, "d60": STRING}}) == "string"
    for schema, message in (
        (json.dumps(deep), "more than 50 types"),
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON|too deeply"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            json_schema_node(schema)
    node = json_schema_node(json.dumps({"$ref": "#/$defs/d0", "$defs": {**wide, "d45": STRING}}))
    with pytest.raises(ConfigurationError, match="columns"):
        arrow_type(node)


def reference(name: str, schema: Any) -> SchemaReference:
    """A reference of the registry."""
    return SchemaReference(name=name, subject="s", version=1, text=json.dumps(schema))


PLACE: Final = {"title": "Place", **obj(x={"$ref": "#/definitions/n"}), "definitions": {"n": INTEGER}}
AVRO_PLACE: Final = record(field("x", "long"), name="Place")


@pytest.mark.parametrize(
    ("identifier", "ref", "name", "place"),
    [
        (None, "place.json", "place.json", PLACE),
        ("http://x/schemas/order.json", "place.json", "place.json", PLACE),
        ("http://x/schemas/order.json", "place.json", "http://x/schemas/place.json", PLACE),
        ("http://x/schemas/order.json", "/schemas/place.json", "other", {**PLACE, "$id": "http://x/schemas/place.json"}),
        (None, "http://y/place", "http://y/place", {**PLACE, "$id": "http://x/elsewhere"}),
        ("urn:order", "urn:place#", "urn:place", PLACE),
        (None, "all.json#/definitions/Place", "all.json", {"definitions": {**PLACE["definitions"], "Place": PLACE}}),
    ],
)  # fmt: skip
def test_schemas_that_a_schema_refers_to_are_found(identifier: str | None, ref: str, name: str, place: Any) -> None:
    """By the name of the reference, as it is or against the identifier of the schema, or by their own identifier."""
    schema = {**obj(at={"$ref": ref}), **({} if identifier is None else {"$id": identifier})}
    assert avro(schema, reference(name, place)) == record(field("at", AVRO_PLACE))


def test_references_of_references_are_found() -> None:
    """Each from where it stands."""
    order = {"$id": "http://x/a/order.json", **obj(at={"$ref": "../b/place.json"})}
    place = {"title": "Place", **obj(x={"$ref": "number.json#n"})}
    numbers = {"$defs": {"n": {"$anchor": "n", **INTEGER}}}
    found = avro(order, reference("http://x/b/number.json", numbers), reference("http://x/b/place.json", place))
    assert found == record(field("at", AVRO_PLACE))


KEYWORDS: Final = st.sampled_from(
    ["$ref", "$id", "$anchor", "allOf", "anyOf", "oneOf", "not", "type", "properties", "required", "items", "enum",
     "const", "additionalProperties", "patternProperties", "title", "default", "connect.type", "connect.index",
     "connect.parameters", "prefixItems", "$defs", "a", "key", "value", ""]
)  # fmt: skip
ATOMS: Final = st.sampled_from(
    ["string", "integer", "number", "object", "array", "null", "boolean", "#", "#/$defs/a", "#/properties/a", "#a", "a",
     "map", "int32", "bytes", f"{CONNECT}Decimal", f"{CONNECT}Date", "\ud800", None, True, False, 0, 1.5, 10**400]
)  # fmt: skip
ANY_SCHEMA: Final = st.recursive(
    ATOMS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYWORDS, inner, max_size=5),
    max_leaves=25,
)


@settings(max_examples=500, deadline=None)
@given(ANY_SCHEMA, ANY_SCHEMA)
def test_any_text_has_a_schema_or_a_reason(schema: Any, other: Any) -> None:
    """Whatever is registered: never another error, and what is made is an Avro schema with columns."""
    try:
        node = json_schema_node(json.dumps(schema), [reference("a", other)])
    except ConfigurationError:
        return
    assert arrow_type(parse_schema(node_text(node))).id == arrow_type(node).id or "MapEntry" in node_text(node)
