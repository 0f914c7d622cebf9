"""Avro schemas as text, which readers of Avro files have to understand without help."""

from __future__ import annotations

import json
from typing import Any

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_kafka_s3.schemas.avro import parse_schema
from airflow_provider_kafka_s3.schemas.avro_text import node_text
from airflow_provider_kafka_s3.schemas.nodes import ArrayOf, Enum, Field, Fixed, MapOf, Node, Primitive, Record, Union

NAMES = ["E", "R", "MapEntry", "a.E", "a.R", "a.b.R", "b.E", "b.MapEntry", "E.R", "R.E"]


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    """Schemas whose types are used in several places, some of them without a namespace."""
    types: list[Node] = [Primitive("long"), Primitive("string")]
    for name in draw(st.lists(st.sampled_from(NAMES), min_size=1, unique=True)):
        some = st.sampled_from(types)
        kind = draw(st.sampled_from(["enum", "fixed", "record", "record", "record"]))
        if kind == "enum":
            types.append(Enum(name, ("A",)))
        elif kind == "fixed":
            types.append(Fixed(name, 2))
        else:
            part = some | some.map(ArrayOf) | some.map(MapOf) | some.map(lambda t: MapOf(t, Primitive("long")))
            part |= some.map(lambda t: Union((Primitive("null"), t)))
            inside = draw(st.lists(part, min_size=1, max_size=4))
            types.append(Record(name, tuple(Field(f"f{n}", t) for n, t in enumerate(inside))))
    return types[-1]


def shape(node: Node) -> Any:
    """A schema without the names of its types."""
    match node:
        case ArrayOf(items=items):
            return ["array", shape(items)]
        case MapOf(values=values, keys=Primitive("string")):
            return ["map", shape(values)]
        case MapOf(values=values, keys=keys):
            return ["array", [("key", shape(keys)), ("value", shape(values))]]
        case Union(branches=branches):
            return ["union", *map(shape, branches)]
        case Enum(symbols=symbols):
            return symbols
        case Fixed(size=size):
            return size
        case Record(fields=fields):
            return [(field.name, shape(field.type)) for field in fields]
    return node


@settings(max_examples=200)
@given(nodes())
def test_a_text_has_the_types_of_the_schema(node: Node) -> None:
    """Also if types without a namespace are used inside others with one: for fastavro, which looks nowhere else."""
    text = node_text(node)
    assert shape(parse_schema(text)) == shape(node)
    fastavro.parse_schema(json.loads(text))


def test_a_type_without_a_namespace_is_defined_in_each_one() -> None:
    """As a name alone it belongs to the namespace around it; types with one are defined once, and then named."""
    state, size = Enum("State", ("A",)), Fixed("shop.Size", 2)
    order = Record("shop.Order", (Field("a", state), Field("b", state), Field("c", size)))
    whole = Record("Whole", (Field("a", state), Field("order", order), Field("size", size), Field("state", state)))
    definition = {"type": "enum", "name": "State", "symbols": ["A"]}
    fields = [
        {"name": "a", "type": definition},
        {"name": "b", "type": "State"},
        {"name": "c", "type": {"type": "fixed", "name": "shop.Size", "size": 2}},
    ]
    assert json.loads(node_text(whole)) == {
        "type": "record",
        "name": "Whole",
        "fields": [
            {"name": "a", "type": definition},
            {"name": "order", "type": {"type": "record", "name": "shop.Order", "fields": fields}},
            {"name": "size", "type": "shop.Size"},
            {"name": "state", "type": "State"},
        ],
    }


@pytest.mark.parametrize("namespace", ["", "a"])
def test_two_types_have_two_names_in_the_text(namespace: str) -> None:
    """A type without a namespace gets a number where another type has its name and the namespace around it."""
    inner = Record("a.R", (Field("x", Fixed("E", 1)), Field("y", Enum("a.E", ("A",)))))
    node = inner if namespace else Record("Top", (Field("inner", inner),))
    text = node_text(node)
    assert shape(parse_schema(text)) == shape(node)
    fastavro.parse_schema(json.loads(text))
    assert '"name":"E2"' in text
