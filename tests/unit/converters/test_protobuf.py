"""Protobuf values whose schemas are in a registry."""

from __future__ import annotations

import random
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_kafka_s3.converters.port import TypedValues
from airflow_provider_kafka_s3.converters.protobuf import ProtobufRegistryConverter
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.registry.schemas import SchemaReference
from airflow_provider_kafka_s3.schemas.protobuf import Mapping
from airflow_provider_kafka_s3.testing.registry import SimulatedRegistry
from tests.avro_values import column_values
from tests.protobuf_values import mutated
from tests.unit.converters.converted import convert

SHOP: Final = """
    syntax = "proto3";
    package shop;
    import "place.proto";
    message Order { int64 id = 1; map<string, Order.Item> items = 2; Place to = 3; message Item { int32 count = 1; } }
    message Other { Inner inner = 1; message Inner { string text = 1; } message Last { bool ok = 1; } }
"""
PLACE: Final = SchemaReference(
    name="place.proto",
    subject="place",
    version=1,
    text='syntax = "proto3"; package shop; message Place { string city = 1; }',
)


def shop() -> tuple[SimulatedRegistry, int]:
    """A registry with a schema."""
    registry = SimulatedRegistry()
    return registry, registry.register(SHOP, type="PROTOBUF", references=[PLACE])


def values_of(typed: TypedValues, converter: ProtobufRegistryConverter) -> dict[int, Any]:
    """Name of the schema and value, by row."""
    found: dict[int, Any] = {}
    for group in typed.groups:
        name = converter.schemas[group.schema].name
        found |= {int(row): (name, v) for row, v in zip(group.rows, column_values(group.values), strict=True)}
    return found


@pytest.mark.parametrize("large", [False, True])
def test_the_header_names_the_message(large: bool) -> None:
    """By its place in the file; the first one by a single zero byte, or by the number and the index."""
    registry, schema = shop()
    converter = ProtobufRegistryConverter(registry, Mapping())
    city = b"\x08\x05\x1a\x03\x0a\x01z"
    headers = [b"\0", b"\2\0", b"\2\2", b"\4\2\0", b"\4\2\2", b"\4\0\0"]
    bodies = [city, city, b"\x0a\x03\x0a\x01a", b"\x0a\x01b", b"\x08\1", b"\x08\7"]
    typed = convert(
        converter,
        *(registry.frame(schema, header + body) for header, body in zip(headers, bodies, strict=True)),
        large=large,
    )
    order = f"message shop.Order of schema {schema}"
    assert values_of(typed, converter) == {
        0: (order, {"id": 5, "items": [], "to": {"city": "z"}}),
        1: (order, {"id": 5, "items": [], "to": {"city": "z"}}),
        2: (f"message shop.Other of schema {schema}", {"inner": {"text": "a"}}),
        3: (f"message shop.Other.Inner of schema {schema}", {"text": "b"}),
        4: (f"message shop.Other.Last of schema {schema}", {"ok": True}),
        5: (f"message shop.Order.Item of schema {schema}", {"count": 7}),
    }
    assert registry.requests > 0


@pytest.mark.parametrize("copies", [1, 60])
def test_each_bad_record_is_invalid_by_itself(copies: int) -> None:
    """With its reason, which has nothing of its content; the records around it are converted."""
    registry, schema = shop()
    avro = registry.register('"string"')
    wrong = registry.register("message M { Missing a = 1; }", type="PROTOBUF")
    frame = registry.frame
    bad = {
        b"\x08\x01": "does not begin with the header",
        frame(99, b"\0"): "no schema 99",
        frame(avro, b"\0"): f"schema {avro} of the registry is one of AVRO, not of Protobuf",
        frame(
            wrong, b"\0"
        ): f"schema {wrong} of the registry cannot be used: the field 'a' of 'M' has the type 'Missing'",
        frame(schema, b""): "does not have the indexes of a message",
        frame(schema, b"\x80"): "does not have the indexes of a message",
        frame(schema, b"\4\2"): "does not have the indexes of a message",
        frame(schema, b"\1"): "does not have the indexes of a message",
        frame(schema, b"\x80\x80\x80\x80\x08"): "does not have the indexes of a message",
        frame(schema, b"\2\1"): "does not have the indexes of a message",
        frame(schema, b"\2\4"): "has no message of the index",
        frame(schema, b"\6\0\0\0"): "has no message of the index",
        frame(schema, b"\0\x0a\x06secret"): "",
        frame(schema, b"\0\x08"): "is not the message shop.Order of schema 1: its bytes are no such message",
        frame(schema, b"\0\x1a\x03\x0a\x01\xff"): "the field shop.Place.city is not UTF-8",
    }
    bad.pop(frame(schema, b"\0\x0a\x06secret"))
    good = frame(schema, b"\0\x08\x01")
    converter = ProtobufRegistryConverter(registry, Mapping())
    typed = convert(converter, good, *(list(bad) * copies), good)
    assert sorted(values_of(typed, converter)) == [0, len(bad) * copies + 1]
    reasons = [invalid.reason for invalid in typed.invalid]
    wanted = list(bad.values()) * copies
    assert all(part in reason for part, reason in zip(wanted, reasons, strict=True)), reasons


def test_a_schema_is_looked_up_once() -> None:
    """Also one that cannot be used, and whatever messages of it there are."""
    registry, schema = shop()
    wrong = registry.register("message M { Missing a = 1; }", type="PROTOBUF")
    converter = ProtobufRegistryConverter(registry, Mapping())
    convert(converter, registry.frame(schema, b"\0"), registry.frame(wrong, b"\0"))
    before = registry.requests
    convert(converter, *(registry.frame(schema, b"\0"), registry.frame(wrong, b"\0")) * 3)
    assert registry.requests == before


def test_a_message_without_columns_is_no_error_of_a_record() -> None:
    """It names the message: a recursive one is not landed, so its records are no dead letters."""
    registry = SimulatedRegistry()
    schema = registry.register("message Tree { repeated Tree branches = 1; }", type="PROTOBUF")
    converter = ProtobufRegistryConverter(registry, Mapping())
    with pytest.raises(ConfigurationError, match=r"message Tree of schema 1 cannot be landed.*contains itself"):
        convert(converter, registry.frame(schema, b"\0"))


HEADERS: Final = st.sampled_from(
    [
        b"\0\0\0\0\1\0",
        b"\0\0\0\0\1\2\2",
        b"\0\0\0\0\1\4\2\0",
        b"\0\0\0\0\1\4\2\4",
        b"\0\0\0\0\2\0",
        b"\1\0\0\0\1",
        b"\0",
    ]
)
BODIES: Final = [
    b"",
    b"\x08\x05\x1a\x03\x0a\x01z",
    b"\x12\x07\x0a\x01k\x12\x02\x08\x01",
    b"\x0a\x03\x0a\x01a",
    b"\x08\1",
]


@settings(max_examples=100)
@given(st.lists(HEADERS, max_size=12), st.integers(0, 2**32))
def test_no_payload_makes_another_error(headers: list[bytes], seed: int) -> None:
    """Each is converted or invalid, and what a record is does not depend on the records around it."""
    rng = random.Random(seed)
    registry, _ = shop()
    values = [mutated(rng, header + rng.choice(BODIES), BODIES) for header in headers]
    converter = ProtobufRegistryConverter(registry, Mapping())
    together = convert(converter, *values)
    found, reasons = values_of(together, converter), {i.row: i.reason for i in together.invalid}
    for row, value in enumerate(values):
        other = ProtobufRegistryConverter(registry, Mapping())
        alone = convert(other, value)
        assert repr(values_of(alone, other).get(0)) == repr(found.get(row))
        assert [i.reason for i in alone.invalid] == ([reasons[row]] if row in reasons else [])
