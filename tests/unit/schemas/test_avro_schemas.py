"""Avro schemas as nodes and as Arrow types."""

from __future__ import annotations

import contextlib
import copy
import json
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.schemas.arrow_types import arrow_type
from airflow_provider_kafka_s3.schemas.avro import parse_schema
from airflow_provider_kafka_s3.schemas.nodes import Decimal, Fixed, Primitive, Record, Union, branch_names, is_recursive
from tests.avro_values import schemas, text

RECORD = {
    "type": "record",
    "name": "R",
    "namespace": "a.b",
    "fields": [
        {"name": "x", "type": "int", "default": 1, "field-id": 7},
        {"name": "y", "type": ["null", "R"]},
        {"name": "z", "type": {"type": "enum", "name": "E", "symbols": ["A", "B"], "default": "A"}},
        {"name": "e", "type": "a.b.E"},
    ],
}
SCHEMAS = [
    RECORD,
    {"type": "fixed", "name": "F", "size": 12, "logicalType": "duration"},
    {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2},
    {
        "type": "array",
        "items": {"type": "map", "values": ["null", "string", {"type": "fixed", "name": "n.F", "size": 2}]},
    },
    ["null", "int", {"type": "record", "name": "ns.R", "fields": []}],
]
ATOMS: list[Any] = [
    *["null", "int", "bytes", "string", "record", "enum", "fixed", "array", "map", "R", "a.b.R", "E", "", ".", "x-y"],
    *["decimal", "int\n", "Ü", "\ud800", None, True, 0, 1, -1, 2**40, 1.5, [], {}],
]


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every container of a JSON value with each of its keys."""
    if not isinstance(value, dict | list):
        return []
    keys = list(value) if isinstance(value, dict) else list(range(len(value)))
    return [(value, key) for key in keys] + [place for key in keys for place in places(value[key])]


@st.composite
def hostile(draw: st.DrawFn) -> Any:
    """Schemas with something replaced or missing."""
    schema = copy.deepcopy(draw(st.sampled_from(SCHEMAS) | schemas(2)))
    for _ in range(draw(st.integers(0, 3))):
        if found := places(schema):
            container, key = draw(st.sampled_from(found))
            if draw(st.booleans()):
                container[key] = draw(st.sampled_from(ATOMS) | st.sampled_from(SCHEMAS))
            else:
                del container[key]
            schema = copy.deepcopy(schema)
    return schema


@settings(max_examples=300, deadline=None)
@given(schemas())
def test_valid_schemas_are_accepted(schema: Any) -> None:
    """What fastavro accepts of generated schemas has nodes and an Arrow type."""
    fastavro.parse_schema(json.loads(text(schema)))
    node = parse_schema(text(schema))
    assert not is_recursive(node)
    assert arrow_type(node) == arrow_type(parse_schema(text(schema)))


@settings(max_examples=600, deadline=None)
@given(hostile())
def test_a_schema_is_accepted_or_a_configuration_error(schema: Any) -> None:
    """No other error; and fastavro refuses of the accepted ones only what Avro ignores or leaves to readers."""
    try:
        node = parse_schema(json.dumps(schema))
    except ConfigurationError:
        return
    with contextlib.suppress(ConfigurationError):
        arrow_type(node)
    reason = ""
    # It raises TypeError where the type of a type is a mapping.
    with contextlib.suppress(TypeError):
        try:
            fastavro.parse_schema(json.loads(json.dumps(schema)))
        except fastavro.schema.SchemaParseException as e:
            reason = str(e)
    assert not reason or any(part in reason for part in ("decimal", "Default", "aliases"))


@pytest.mark.parametrize(
    "schema",
    [
        "",
        "{",
        "[]",
        "[" * 100_000,
        '{"type": "array", "items": ' * 150 + '"int"' + "}" * 150,
        '"nothing"',
        '{"type": 5}',
        '{"type": null}',
        '["int", {"type": "int", "logicalType": "date"}]',
        '["null", ["int"]]',
        '{"type": "record", "name": "R"}',
        '{"type": "record", "name": "int", "fields": []}',
        '{"type": "record", "name": "R", "namespace": "a..b", "fields": []}',
        '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}, {"name": "a", "type": "int"}]}',
        '{"type": "enum", "name": "E", "symbols": ["A", "A"]}',
        '{"type": "enum", "name": "E", "symbols": ["\\ud800"]}',
        '{"type": "enum", "name": "E", "symbols": ["A"], "default": "B"}',
        '{"type": "fixed", "name": "F", "size": -1}',
        '{"type": "fixed", "name": "F", "size": true}',
        '{"type": "fixed", "name": "F", "size": ' + "9" * 10_000 + "}",
    ],
)
def test_what_avro_does_not_allow_is_refused(schema: str) -> None:
    """As a configuration error with a message of bounded length."""
    with pytest.raises(ConfigurationError) as caught:
        parse_schema(schema)
    assert len(str(caught.value)) < 400


def test_a_schema_of_doubling_records_is_refused_in_time() -> None:
    """Each record has the one before it twice: 2**60 columns are counted, not made."""
    records = ['{"type": "record", "name": "R0", "fields": [{"name": "a", "type": "int"}]}']
    for n in range(60):
        fields = ", ".join(f'{{"name": "{name}", "type": "R{n}"}}' for name in "ab")
        records.append(f'{{"type": "record", "name": "R{n + 1}", "fields": [{fields}]}}')
    node = parse_schema(records[-1], records[:-1])
    with pytest.raises(ConfigurationError, match="more than 10,000"):
        arrow_type(node)


def test_a_fixed_too_large_for_a_column_is_refused() -> None:
    """Its bytes are there for every row, null or not."""
    fixed = '["null", {{"type": "fixed", "name": "F", "size": {}}}]'
    assert arrow_type(parse_schema(fixed.format(65_536))) == pa.binary(65_536)
    with pytest.raises(ConfigurationError, match="65,537 bytes"):
        arrow_type(parse_schema(fixed.format(65_537)))


def test_references_nested_deeper_than_100_are_refused() -> None:
    """Also if each schema is flat by itself."""
    records = ['{"type": "record", "name": "R0", "fields": [{"name": "a", "type": "int"}]}']
    records += [
        f'{{"type": "record", "name": "R{n + 1}", "fields": [{{"name": "a", "type": "R{n}"}}]}}' for n in range(2000)
    ]
    with pytest.raises(ConfigurationError, match="nested too deeply"):
        parse_schema(records[-1], records[:-1])
    assert not is_recursive(parse_schema(records[90], records[:90]))


def test_a_recursive_schema_has_no_arrow_type() -> None:
    """It is parsed, found recursive, and refused as a type."""
    node = parse_schema(json.dumps(RECORD))
    assert is_recursive(node)
    with pytest.raises(ConfigurationError, match="recursive"):
        arrow_type(node)
    assert isinstance(node, Record)
    assert (node.fields[0].number, node.fields[0].default, node.fields[1].has_default) == (7, 1, False)


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        ("null", pa.null()),
        ('["null"]', pa.null()),
        ("string", pa.string()),
        ('{"type": "fixed", "name": "F", "size": 3}', pa.binary(3)),
        ('{"type": "long", "logicalType": "timestamp-micros"}', pa.timestamp("us", "UTC")),
        ('{"type": "long", "logicalType": "local-timestamp-millis"}', pa.timestamp("ms")),
        ('{"type": "int", "logicalType": "timestamp-millis"}', pa.int32()),
        ('{"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 3}', pa.decimal128(38, 3)),
        ('{"type": "bytes", "logicalType": "decimal", "precision": 39}', pa.decimal256(39, 0)),
        ('{"type": "bytes", "logicalType": "decimal", "precision": true}', pa.binary()),
        ('{"type": "bytes", "logicalType": "decimal", "precision": 3, "scale": 3}', pa.decimal128(3, 3)),
        ('{"type": "bytes", "logicalType": "decimal", "precision": 3, "scale": 4}', pa.binary()),
        ('{"type": "bytes", "logicalType": "decimal", "precision": 3, "scale": -1}', pa.binary()),
        ('{"type": "fixed", "name": "F", "size": 1, "logicalType": "decimal", "precision": 3}', pa.binary(1)),
        ('["null", "int"]', pa.int32()),
        ('["int", "string"]', pa.struct([("int", pa.int32()), ("string", pa.string())])),
        ('{"type": "array", "items": ["null", "int"]}', pa.list_(pa.field("element", pa.int32()))),
        ('{"type": "map", "values": "int"}', pa.map_(pa.string(), pa.field("value", pa.int32(), nullable=False))),
        (
            '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}',
            pa.struct([pa.field("a", pa.int32(), nullable=False)]),
        ),
    ],
)
def test_types_of_columns(schema: str, kind: pa.DataType) -> None:
    """The column of each type; a logical type that does not fit its type is ignored."""
    assert arrow_type(parse_schema(schema)) == kind


def test_branches_of_one_name_have_names_of_their_own() -> None:
    """The namespace tells two types apart that have the same name."""
    node = parse_schema(
        '["null", {"type": "fixed", "name": "a.X", "size": 1}, {"type": "fixed", "name": "b.X", "size": 1},'
        ' {"type": "fixed", "name": "array", "size": 1}, {"type": "array", "items": "int"}]'
    )
    assert isinstance(node, Union)
    assert branch_names(node) == ["X", "b_X", "array", "array_2"]


def test_names_are_found_in_their_namespace_first() -> None:
    """A name without a namespace is one of the namespace around it, or one without any."""
    fixed = '{{"type": "fixed", "name": "{}", "size": {}}}'
    references = [fixed.format("F", 1), fixed.format("n.F", 2), fixed.format("G", 3)]
    node = parse_schema(
        '{"type": "record", "name": "R", "namespace": "n", "fields": '
        '[{"name": "f", "type": "F"}, {"name": "g", "type": "G"}]}',
        references,
    )
    assert isinstance(node, Record)
    assert [f.type for f in node.fields] == [Fixed("n.F", 2), Fixed("G", 3)]
    assert parse_schema(' "string" ') == parse_schema("string") == Primitive("string")
    decimal = parse_schema('{"type": "bytes", "logicalType": "decimal", "precision": 5}')
    assert decimal == Primitive("bytes", Decimal(5, 0))
