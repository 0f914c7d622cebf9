"""Projection: what Kafka Connect's SchemaProjector does, over Arrow arrays."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from fastavro.read import SchemaResolutionError

from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.schemas.arrow_types import arrow_type
from airflow_provider_kafka_s3.schemas.avro import parse_schema
from airflow_provider_kafka_s3.schemas.nodes import Node
from airflow_provider_kafka_s3.schemas.projection import SchemaChangeError, mismatch, projection, same_schema

MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
MICROS = {"type": "long", "logicalType": "timestamp-micros"}
DATE = {"type": "int", "logicalType": "date"}
COLOURS = {"type": "enum", "name": "Colour", "symbols": ["RED", "GREEN"]}
MORE_COLOURS = {"type": "enum", "name": "Colour", "symbols": ["GREEN", "BLUE", "RED"]}


def parsed(schema: Any) -> Node:
    """A schema given as Python values."""
    return parse_schema(json.dumps(schema))


def record(*fields: Any, name: str = "acme.R") -> dict[str, Any]:
    """A record schema; fields are pairs of name and type, with a default as third."""
    return {
        "type": "record",
        "name": name,
        "fields": [{"name": f[0], "type": f[1], **({"default": f[2]} if len(f) == 3 else {})} for f in fields],
    }


def project(source: Any, target: Any, values: list[Any]) -> list[Any]:
    """Project values; whole, and every slice of them."""
    of, wanted = parsed(source), parsed(target)
    array = pa.array(values, arrow_type(of))
    to_target = projection(of, wanted)
    result = to_target.apply(array)
    result.validate(full=True)
    assert result.type.equals(arrow_type(wanted), check_metadata=True)
    for start in range(len(values) + 1):
        for stop in range(start, len(values) + 1):
            part = to_target.apply(array.slice(start, stop - start))
            part.validate(full=True)
            assert part.equals(result.slice(start, stop - start))
    return result.to_pylist()


def why(source: Any, target: Any) -> str:
    """Why values cannot be projected."""
    with pytest.raises(SchemaChangeError) as raised:
        projection(parsed(source), parsed(target))
    assert mismatch(parsed(source), parsed(target)) is not None
    return str(raised.value)


@pytest.mark.parametrize(
    ("source", "target", "given", "expected"),
    [
        ("int", "long", [1, -(2**31)], [1, -(2**31)]),
        ("int", "float", [16777217], [16777216.0]),
        ("int", "double", [16777217], [16777217.0]),
        ("long", "float", [2**53 + 1], [2.0**53]),
        ("long", "double", [2**53 + 1], [2.0**53]),
        ("float", "double", [0.5], [0.5]),
    ],
)
def test_numbers_are_promoted_as_java_does(source: Any, target: Any, given: list[Any], expected: list[Any]) -> None:
    """Towards long, float and double; what cannot be represented is rounded."""
    assert project(source, target, given) == expected
    assert project(
        record(("n", ["null", source])), record(("n", ["null", target])), [{"n": given[0]}, {"n": None}]
    ) == [
        {"n": expected[0]},
        {"n": None},
    ]


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("long", "int"),
        ("double", "float"),
        ("float", "long"),
        ("string", "bytes"),
        ("bytes", "string"),
        ("boolean", "int"),
        ("int", "string"),
        ({"type": "array", "items": "int"}, {"type": "map", "values": "int"}),
        (record(), {"type": "map", "values": "int"}),
        (["int", "string"], "int"),
        ("int", ["int", "string"]),
    ],
)
def test_other_types_are_not_converted(source: Any, target: Any) -> None:
    """Not to smaller numbers, and not between strings and bytes, which Avro's own resolution allows."""
    assert "the type" in why(source, target)


@pytest.mark.parametrize(
    ("source", "target", "problem"),
    [
        (record(), record(name="acme.Other"), "'acme.R' in the source schema, 'acme.Other'"),
        (record(), record(name="other.R"), "'other.R' in the target schema"),
        (DATE, "int", "org.apache.kafka.connect.data.Date"),
        ("long", MILLIS, "org.apache.kafka.connect.data.Timestamp"),
        ("string", COLOURS, "'Colour' in the target schema"),
        (COLOURS, "string", "'Colour' in the source schema"),
        ({"type": "fixed", "name": "F", "size": 2}, "bytes", "'F' in the source schema"),
        ({"type": "fixed", "name": "F", "size": 2}, {"type": "fixed", "name": "F", "size": 3}, "('size', 3)"),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
            {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 3},
            "('scale', 3)",
        ),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
            {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2},
            "('precision', 10)",
        ),
        (MORE_COLOURS, COLOURS, "the symbols ['BLUE']"),
        ({"type": "array", "items": MORE_COLOURS}, {"type": "array", "items": COLOURS}, "an item of the value"),
        (
            {"type": "map", "values": "long"},
            {"type": "map", "values": "int"},
            "a value of the value has the type int64",
        ),
        (["null", "int"], "int", "optional in the source schema"),
        (record(("a", ["null", "int"])), record(("a", "int")), "field 'a' of 'acme.R' is optional"),
        ({"type": "array", "items": ["null", "int"]}, {"type": "array", "items": "int"}, "is optional"),
        (record(), record(("a", "int")), "field 'a' of 'acme.R' is missing"),
        (record(("r", record(name="x.I"))), record(("r", record(("a", "int"), name="x.I"))), "field 'a' of 'x.I'"),
        (["int", "string"], ["int", "boolean"], "may be 'string' in the source schema"),
    ],
)
def test_what_cannot_be_projected_is_an_error_with_the_place(source: Any, target: Any, problem: str) -> None:
    """The message names the field and both sides."""
    assert problem in why(source, target)


DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}
OTHER_SCALE = {**DECIMAL, "scale": 3}
RENAMED = {"name": "new", "type": ["null", "string"], "default": None, "aliases": ["old"]}


@pytest.mark.parametrize(
    ("source", "target", "value", "resolved", "projected"),
    [
        (record(), record(("x", ["null", "int"])), {}, "error", {"x": None}),
        (record(("x", ["null", "int"])), record(("x", "int", 7)), {"x": None}, "error", {"x": 7}),
        (record(("x", "string")), record(("x", "bytes")), {"x": "v"}, {"x": b"v"}, "roll"),
        (record(("x", "bytes")), record(("x", "string")), {"x": b"v"}, {"x": "v"}, "roll"),
        (record(("old", "string")), {**record(), "fields": [RENAMED]}, {"old": "v"}, {"new": "v"}, {"new": None}),
        (
            record(("x", MORE_COLOURS)),
            record(("x", {**COLOURS, "default": "RED"})),
            {"x": "BLUE"},
            {"x": "RED"},
            "roll",
        ),
        (
            record(("x", DECIMAL)),
            record(("x", OTHER_SCALE)),
            {"x": Decimal("1.00")},
            {"x": Decimal("1.00")},  # with the scale of the writer: a column of the other scale cannot hold it
            "roll",
        ),
    ],
)
def test_projection_is_not_the_resolution_of_avro(
    source: Any, target: Any, value: Any, resolved: Any, projected: Any
) -> None:
    """Seven cases in which a reader's schema gives something else than the rules of Kafka Connect."""
    encoded = io.BytesIO()
    fastavro.schemaless_writer(encoded, source, value)
    encoded.seek(0)
    if resolved == "error":
        with pytest.raises((fastavro.schema.SchemaParseException, SchemaResolutionError)):
            fastavro.schemaless_reader(encoded, source, target)
    else:
        assert fastavro.schemaless_reader(encoded, source, target) == resolved

    if projected == "roll":
        assert mismatch(parsed(source), parsed(target)) is not None
    else:
        assert project(source, target, [value]) == [projected]


def test_fields_are_matched_by_name_dropped_and_filled() -> None:
    """Too many: dropped. Missing: the default, else null. The order is that of the target."""
    source = record(("a", "int"), ("b", "string"), ("gone", "double"))
    target = record(
        ("b", "string"),
        ("a", "long"),
        ("x", ["null", "string"], None),
        ("y", "string", "d"),
        ("z", ["string", "null"], "e"),
    )
    assert project(source, target, [{"a": 1, "b": "p", "gone": 1.5}, {"a": 2, "b": "q", "gone": 2.5}]) == [
        {"b": "p", "a": 1, "x": None, "y": "d", "z": "e"},
        {"b": "q", "a": 2, "x": None, "y": "d", "z": "e"},
    ]


def test_a_null_becomes_the_default_only_where_a_value_is_required() -> None:
    """Optional to required with a default: the default. Optional to optional: still null, whatever the default."""
    source = record(("a", ["null", "string"]), ("b", ["null", "int"]))
    target = record(("a", "string", "d"), ("b", ["long", "null"], 7))
    assert project(source, target, [{"a": None, "b": None}, {"a": "v", "b": 1}]) == [
        {"a": "d", "b": None},
        {"a": "v", "b": 1},
    ]


def test_enums_may_gain_symbols() -> None:
    """The symbols of the records are a subset of those of the object; their order does not matter."""
    assert project(COLOURS, MORE_COLOURS, ["RED", "GREEN"]) == ["RED", "GREEN"]


def test_nested_values_are_projected() -> None:
    """Records in lists, maps and records, with nulls at every level."""
    inner, wanted = record(("n", "int"), name="x.I"), record(("n", "long"), ("m", "string", "d"), name="x.I")

    def outer(of: Any, name: str) -> Any:
        return record(
            ("list", ["null", {"type": "array", "items": ["null", of]}]),
            ("map", {"type": "map", "values": [name, "null"]}),
            ("record", ["null", name]),
        )

    given = [
        {"list": [{"n": 1}, None], "map": [("k", {"n": 2}), ("l", None)], "record": {"n": 3}},
        {"list": None, "map": [], "record": None},
        {"list": [], "map": [("k", {"n": 4})], "record": {"n": 5}},
    ]
    assert project(outer(inner, "x.I"), outer(wanted, "x.I"), given) == [
        {
            "list": [{"n": 1, "m": "d"}, None],
            "map": [("k", {"n": 2, "m": "d"}), ("l", None)],
            "record": {"n": 3, "m": "d"},
        },
        {"list": None, "map": [], "record": None},
        {"list": [], "map": [("k", {"n": 4, "m": "d"})], "record": {"n": 5, "m": "d"}},
    ]


def test_items_may_become_optional() -> None:
    """The type of the list changes, its values do not."""
    assert project({"type": "array", "items": "int"}, {"type": "array", "items": ["null", "int"]}, [[1, 2], []]) == [
        [1, 2],
        [],
    ]


def test_unions_may_gain_branches() -> None:
    """A branch that the record's schema does not have is null."""
    source, target = ["null", "int", "string"], ["boolean", "string", "null", "long"]
    given = [{"int": 1, "string": None}, None, {"int": None, "string": "v"}]
    with pytest.raises(SchemaChangeError, match="may be 'int'"):
        projection(parsed(source), parsed(target))
    target.append("int")
    assert project(source, target, given) == [
        {"boolean": None, "string": None, "long": None, "int": 1},
        None,
        {"boolean": None, "string": "v", "long": None, "int": None},
    ]


def test_logical_types_that_connect_does_not_have_are_their_numbers() -> None:
    """A long and a timestamp in microseconds are the same type in Kafka Connect."""
    of, wanted = parsed("long"), parsed(MICROS)
    result = projection(of, wanted).apply(pa.array([5], pa.int64()))
    assert (result.type, result.cast(pa.int64()).to_pylist()) == (arrow_type(wanted), [5])
    assert projection(wanted, parsed("double")).apply(result).to_pylist() == [5.0]


@pytest.mark.parametrize(
    ("of", "default", "expected"),
    [
        ("boolean", True, True),
        ("int", -1, -1),
        ("long", 2**40, 2**40),
        ("float", 1, 1.0),
        ("double", 0.1, 0.1),
        ("string", "é", "é"),
        ("bytes", "\u00ff\u0000", b"\xff\x00"),
        ({"type": "fixed", "name": "F", "size": 2}, "ab", b"ab"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}, "\u00ff", Decimal("-0.01")),
        ({"type": "bytes", "logicalType": "decimal", "precision": 50, "scale": 1}, "\u0001\u0000", Decimal("25.6")),
        (COLOURS, "GREEN", "GREEN"),
        ({"type": "array", "items": ["null", "int"]}, [1, None], [1, None]),
        ({"type": "array", "items": "string"}, [], []),
        ({"type": "map", "values": "string"}, {"k": "v", "l": "w"}, [("k", "v"), ("l", "w")]),
        (record(("a", "int"), ("b", "string", "d"), name="x.I"), {"a": 1}, {"a": 1, "b": "d"}),
        (["int", "string"], "v", {"int": None, "string": "v"}),
        (["string", "null"], "v", "v"),
    ],
)
def test_defaults_of_every_type_fill_missing_fields(of: Any, default: Any, expected: Any) -> None:
    """The JSON of a default is read as the specification of Avro says."""
    assert project(record(), record(("f", of, default)), [{}, {}, {}]) == [{"f": expected}] * 3


def test_a_default_of_a_logical_type_is_its_number() -> None:
    """A date is days, a timestamp milliseconds."""
    target = parsed(record(("d", DATE, 1), ("t", MILLIS, 2)))
    result = projection(parsed(record()), target).apply(pa.array([{}], pa.struct([])))
    assert [c.view(t).to_pylist() for c, t in zip(result.flatten(), (pa.int32(), pa.int64()), strict=True)] == [
        [1],
        [2],
    ]


@pytest.mark.parametrize(
    ("of", "default"),
    [
        ("int", "1"),
        ("int", True),
        ("int", 2**31),
        ("string", 1),
        ("bytes", "\u0100"),
        ({"type": "fixed", "name": "F", "size": 2}, "abc"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 0}, "\u0001\u0000"),
        (COLOURS, "BLUE"),
        ({"type": "array", "items": "int"}, ["x"]),
        (["int", "string"], 1.5),
        (record(("a", "int"), name="x.I"), {}),
    ],
)
def test_a_default_that_does_not_fit_is_an_error(of: Any, default: Any) -> None:
    """It names the field and the default."""
    with pytest.raises(SchemaChangeError, match="of field 'f' is no value of its type"):
        projection(parsed(record()), parsed(record(("f", of, default))))


def test_a_default_that_is_not_needed_is_not_read() -> None:
    """A record whose schema has the field is projected whatever its default."""
    assert project(record(("f", "int")), record(("f", "long", "no number")), [{"f": 1}]) == [{"f": 1}]


def test_recursive_schemas_are_compared_but_not_projected() -> None:
    """No Arrow type expresses them."""
    tree = parsed(record(("n", "int"), ("next", ["null", "acme.R"])))
    wider = parsed(record(("n", "long"), ("next", ["null", "acme.R"])))
    assert mismatch(tree, wider) is None
    assert mismatch(wider, tree) is not None
    with pytest.raises(ConfigurationError, match="recursive"):
        projection(tree, wider)


def test_the_same_schema_projects_to_the_same_array() -> None:
    """Nothing is copied."""
    values = pa.array([{"a": 1}], arrow_type(parsed(record(("a", "int")))))
    assert projection(parsed(record(("a", "int"))), parsed(record(("a", "int")))).apply(values) is values


def test_schemas_with_other_numbers_of_columns_are_not_the_same() -> None:
    """Readers of Parquet may find columns by these numbers: objects have those of their own schema."""
    source, target = (
        {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int", "field-id": number}]}
        for number in (1, 2)
    )
    assert same_schema(parsed(source), parsed(source))
    assert not same_schema(parsed(source), parsed(target))
    assert project(source, target, [{"a": 7}]) == [{"a": 7}]


def test_schemas_with_other_defaults_are_not_the_same() -> None:
    """Kafka Connect ends the objects of the one before the other, unless they are compatible."""
    assert same_schema(parsed(record(("a", "int", 1))), parsed(record(("a", "int", 1))))
    assert not same_schema(parsed(record(("a", "int", 1))), parsed(record(("a", "int", 2))))


def test_projections_do_not_import_pandas() -> None:
    """It would cost each of Spark's workers a second and 50 MB."""
    code = """
import sys
import pyarrow as pa
from airflow_provider_kafka_s3.arrays import int64_array
from airflow_provider_kafka_s3.schemas.avro import parse_schema
from airflow_provider_kafka_s3.schemas.projection import projection
import numpy as np
def of(*fields):
    import json
    return parse_schema(json.dumps({"type": "record", "name": "R", "fields": list(fields)}))
n = {"name": "n", "type": ["null", "long"]}
source = of(n)
target = of({"name": "n", "type": "double", "default": 1.5}, {"name": "m", "type": {"type": "map", "values": "int"},
            "default": {"k": 1}}, {"name": "l", "type": {"type": "array", "items": "string"}, "default": ["v"]})
struct = pa.StructArray.from_arrays([int64_array(np.arange(3))], fields=[pa.field("n", pa.int64())])
result = projection(source, target).apply(struct)
assert len(result) == 3
assert "pandas" not in sys.modules
"""
    assert subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True).stderr == ""
