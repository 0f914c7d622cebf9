"""JSON values whose schemas are in a registry."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_kafka_s3.converters.json_schema import JsonSchemaRegistryConverter
from airflow_provider_kafka_s3.converters.port import TypedValues
from airflow_provider_kafka_s3.formats.json_values import encode_json
from airflow_provider_kafka_s3.testing.registry import SimulatedRegistry
from tests.unit.converters import converted

ORDER: Final = {
    "title": "Order",
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "first-name": {"type": "string", "minLength": 3, "pattern": "^x"},
        "state": {"enum": ["new", "done"], "default": "new"},
        "price": {
            "type": "number",
            "title": "org.apache.kafka.connect.data.Decimal",
            "connect.type": "bytes",
            "connect.parameters": {"scale": "2"},
        },
        "pairs": {
            "type": "array",
            "connect.type": "map",
            "items": {"type": "object", "properties": {"key": {"type": "integer"}, "value": {"type": "string"}}},
        },
        "pet": {
            "oneOf": [
                {"title": "Cat", "type": "object", "properties": {"name": {"type": "string"}}},
                {"title": "Dog", "properties": {"name": {"type": "string"}, "size": {"type": "number"}}},
            ]
        },
    },
    "required": ["id"],
}  # fmt: skip


def convert(converter: JsonSchemaRegistryConverter, *values: bytes, large: bool = False) -> TypedValues:
    """See :func:`~tests.unit.converters.converted.convert`."""
    return converted.convert(converter, *values, large=large, comparable=lambda array: without_names(array.to_pylist()))


def without_names(value: Any) -> Any:
    """A value without the names of fields, which Avro may have changed."""
    if isinstance(value, dict):
        return [without_names(item) for item in value.values()]
    return [without_names(item) for item in value] if isinstance(value, list | tuple) else value


def lines(typed: TypedValues) -> dict[int, Any]:
    """The documents that are written, by row."""
    found: dict[int, Any] = {}
    for group in typed.groups:
        assert group.values is not None
        texts = encode_json(group.values, decimal_format="NUMERIC").to_pylist()
        found |= {int(row): json.loads(text) for row, text in zip(group.rows, texts, strict=True)}
    return found


def test_documents_have_the_values_of_their_schema() -> None:
    """What is missing is null or the default, what the schema does not have is left out, nothing is restricted."""
    registry = SimulatedRegistry()
    schema = registry.register(json.dumps(ORDER), type="JSON")
    whole = {
        "more": [1], "id": 1, "first-name": "a", "state": "else", "price": 1.5, "pairs": [{"key": 2, "value": "b"}],
        "pet": {"name": "n", "size": 2, "x": 1},
    }  # fmt: skip
    nulls = {"id": 2.0, "state": None, "price": "AJY=", "pet": {"name": "n"}}
    typed = convert(
        JsonSchemaRegistryConverter(registry),
        *(registry.frame(schema, json.dumps(document).encode()) for document in (whole, nulls)),
    )
    no_dog = {"Cat": {"name": "n"}, "Dog": None}
    assert lines(typed) == {
        0: {
            "id": 1, "first-name": "a", "state": "else", "price": 1.5, "pairs": [[2, "b"]],
            "pet": {"Cat": None, "Dog": {"name": "n", "size": 2.0}},
        },
        1: {"id": 2, "first-name": None, "state": "new", "price": 1.5, "pairs": None, "pet": no_dog},
    }  # fmt: skip


@pytest.mark.parametrize("large", [False, True])
def test_each_bad_record_is_invalid_by_itself(large: bool) -> None:
    """With its reason, which has nothing of its content; the records around it are converted."""
    registry = SimulatedRegistry()
    orders = registry.register(json.dumps(ORDER), type="JSON")
    texts = registry.register('{"type": "string"}', type="JSON")
    untyped = registry.register('{"type": "object", "properties": {"a": {}}}', type="JSON")
    avro = registry.register('"string"')
    bad = {
        b'{"id": 1}': "does not begin with the header",
        registry.frame(9, b"1"): "no schema 9",
        registry.frame(avro, b"\2a"): f"schema {avro} of the registry is one of AVRO, not a JSON Schema",
        registry.frame(untyped, b"{}"): f"schema {untyped} of the registry cannot be used: its part 'a' has no type",
        registry.frame(orders, b""): f"the value does not have schema {orders} of the registry (the value is empty)",
        registry.frame(orders, b'{"id": 1} '[:-2]): "is not one JSON document",
        registry.frame(orders, b"\xff"): "is not UTF-8",
        registry.frame(orders, b'{"id": "secret"}'): "field id is a string, not of the type long",
        registry.frame(orders, b'{"id": 1, "pet": {"name": 5}}'): "field pet is an object that fits no branch",
        registry.frame(orders, b"{}"): "field id is missing",
    }
    good = [registry.frame(orders, b'{"id": 1}'), registry.frame(texts, b'"a"')]
    typed = convert(JsonSchemaRegistryConverter(registry), good[0], *bad, good[1], good[0], large=large)
    assert sorted(lines(typed)) == [0, len(bad) + 1, len(bad) + 2]
    reasons = [invalid.reason for invalid in typed.invalid]
    assert len(reasons) == len(bad)
    assert all(part in reason for part, reason in zip(bad.values(), reasons, strict=True)), reasons
    assert not any("secret" in reason for reason in reasons)


def test_a_schema_is_looked_up_once() -> None:
    """Also one that cannot be used."""
    registry = SimulatedRegistry()
    converter = JsonSchemaRegistryConverter(registry)
    schemas = [registry.register(text, type="JSON") for text in ('{"type": "integer"}', "{}")]
    for _ in range(3):
        convert(converter, *(registry.frame(schema, b"1") for schema in schemas))
    assert (registry.requests, [schema.name for schema in converter.schemas]) == (2, ["schema 1"])


# A schema, a strategy of its documents, and how a document is written.
Generated = tuple[Any, st.SearchStrategy[Any], Any]

TEXT: Final = st.text(st.characters(exclude_categories=("Cs",)), max_size=4)
LEAVES: Final[list[Generated]] = [
    ({"type": "string"}, TEXT, lambda v: v),
    ({"type": "integer"}, st.integers(-(2**63), 2**63 - 1), lambda v: v),
    ({"type": "number"}, st.floats(allow_nan=False, allow_infinity=False) | st.integers(-9, 9), float),
    ({"type": "boolean"}, st.booleans(), lambda v: v),
    ({"enum": ["a", "b"]}, st.sampled_from("ab"), lambda v: v),
]


@st.composite
def schemas(draw: st.DrawFn, definitions: dict[str, Any], depth: int = 0) -> Generated:
    """A schema with its documents; parts of it are among the definitions."""
    kind = draw(st.sampled_from(["leaf", "leaf", "array", "map", "record", "null"] if depth < 3 else ["leaf"]))
    if depth == 0 and draw(st.booleans()):
        kind = "record"
    made = draw(st.sampled_from(LEAVES)) if kind == "leaf" else draw(nested(kind, definitions, depth))
    if depth and draw(st.integers(0, 3)) == 0:
        name = f"d{len(definitions)}"
        definitions[name] = made[0]
        made = ({"$ref": f"#/definitions/{name}"}, *made[1:])
    return made


@st.composite
def nested(draw: st.DrawFn, kind: str, definitions: dict[str, Any], depth: int) -> Generated:
    """A schema with others inside."""
    if kind == "record":
        return draw(records(definitions, depth))
    schema, values, written = draw(schemas(definitions, depth + 1))
    if kind == "array":
        made = {"type": "array", "items": schema}
        return made, st.lists(values, max_size=3), lambda v: [written(item) for item in v]
    if kind == "map":
        made = {"type": "object", "additionalProperties": schema}
        documents = st.dictionaries(TEXT, values, max_size=3)
        return made, documents, lambda v: {k: written(item) for k, item in v.items()}
    made = {draw(st.sampled_from(["oneOf", "anyOf"])): draw(st.permutations([schema, {"type": "null"}]))}
    return made, st.none() | values, lambda v: None if v is None else written(v)


@st.composite
def records(draw: st.DrawFn, definitions: dict[str, Any], depth: int) -> Generated:
    """An object with properties."""
    names = draw(st.lists(TEXT, min_size=1, max_size=4, unique=True))
    parts = {name: draw(schemas(definitions, depth + 1)) for name in names}
    required = draw(st.lists(st.sampled_from(names), unique=True))
    schema = {
        "type": draw(st.sampled_from(["object", ["object"]])),
        "properties": {name: part[0] for name, part in parts.items()},
        "required": required,
    }
    documents = st.fixed_dictionaries(
        {name: parts[name][1] for name in required},
        optional={name: part[1] for name, part in parts.items() if name not in required} | {"\0more": st.integers()},
    )
    return schema, documents, lambda v: {n: p[2](v[n]) if n in v else None for n, p in parts.items()}


@st.composite
def batches(draw: st.DrawFn) -> tuple[Any, list[Any], list[Any]]:
    """A schema, documents of it, and the documents that are written."""
    definitions: dict[str, Any] = {}
    schema, documents, written = draw(schemas(definitions))
    chosen = draw(st.lists(documents, max_size=8))
    return {**schema, "definitions": definitions}, chosen, [written(document) for document in chosen]


@settings(max_examples=200, deadline=None)
@given(batches(), st.booleans())
def test_any_documents_of_any_schema_are_read_back(batch: Any, ascii_only: bool) -> None:
    """As JSON lines, as columns and as datums: what is missing is null, and what the schema does not have is gone."""
    schema, documents, written = batch
    registry = SimulatedRegistry()
    schema_id = registry.register(json.dumps(schema), type="JSON")
    values = [registry.frame(schema_id, json.dumps(d, ensure_ascii=ascii_only).encode()) for d in documents]
    typed = convert(JsonSchemaRegistryConverter(registry), *values)
    assert typed.invalid == []
    assert lines(typed) == dict(enumerate(written))


HOSTILE: Final = st.sampled_from(
    [b"", b"1", b"-", b"null", b'"', b'"\\ud800"', b"\xff", b"[", b"]", b"{", b"}", b":", b",", b"NaN", b"1e999",
     b"true", b'"id"', b'"first-name"', b'"state"', b'"price"', b'"pairs"',
     b'"pet"', b'"key"', b'"value"', b"[1,2]", b" "]
)  # fmt: skip
PAYLOADS: Final = st.lists(HOSTILE, max_size=12).map(b"".join) | st.binary(max_size=20)
HEADERS: Final = st.sampled_from([b"\0\0\0\0\1", b"\0\0\0\0\2", b"\0\0\0\0\3", b"\1\0\0\0\1", b"\0\0", b""])
WHOLE: Final = [b'{"id": 1}', b'{"id":2,"pairs":[{"key":1,"value":"x"}],"pet":{"size":1}}', b'{"id":3,"state":null}']


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(HEADERS, PAYLOADS | st.sampled_from(WHOLE)), max_size=12))
def test_no_payload_makes_another_error(rows: list[tuple[bytes, bytes]]) -> None:
    """Each is converted or invalid, and what a record is does not depend on the records around it."""
    registry = SimulatedRegistry()
    for schema in (ORDER, {"type": ["string", "integer"]}):
        registry.register(json.dumps(schema), type="JSON")
    values = [header + payload for header, payload in rows]
    together = convert(JsonSchemaRegistryConverter(registry), *values)
    documents, reasons = lines(together), {i.row: i.reason for i in together.invalid}
    for row, value in enumerate(values):
        alone = convert(JsonSchemaRegistryConverter(registry), value)
        assert (lines(alone).get(0), [i.reason for i in alone.invalid]) == (
            documents.get(row),
            [reasons[row]] if row in reasons else [],
        )
