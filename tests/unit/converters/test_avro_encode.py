"""Encoding of columns as Avro datums."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_kafka_s3.converters.avro_decode import AvroDecoder
from airflow_provider_kafka_s3.converters.avro_encode import encode_datums
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.schemas.arrow_types import arrow_type
from airflow_provider_kafka_s3.schemas.avro import parse_schema
from airflow_provider_kafka_s3.schemas.nodes import Primitive, Union
from tests.avro_values import encode, schemas, text, values


@settings(max_examples=250, deadline=None)
@given(st.data())
def test_decoded_columns_are_encoded_as_they_were(data: st.DataObject) -> None:
    """The bytes are those of the plain encoder, of a slice as well, and wherever rows are null or bad."""
    node = parse_schema(text(data.draw(schemas())))
    some = data.draw(st.lists(values(node), min_size=1, max_size=5))
    rows: list[bytes | None] = [encode(node, v) for v in data.draw(st.lists(st.sampled_from(some), max_size=30))]
    if not isinstance(node, Union) and node != Primitive("null"):
        rows += [None, *rows, None]
    column = AvroDecoder(node).decode(pa.array(rows, pa.binary())).values
    assert encode_datums(column, node).to_pylist() == rows
    start = data.draw(st.integers(0, len(rows)))
    stop = data.draw(st.integers(start, len(rows)))
    encoded = encode_datums(column[start:stop], node)
    encoded.validate(full=True)
    assert encoded.to_pylist() == rows[start:stop]


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_built_columns_are_encoded(data: st.DataObject) -> None:
    """Columns that Arrow built, with values of its own below nulls, are encoded and decoded to the same."""
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 50, "scale": 2}
    fields = [
        {"name": "a", "type": {"type": "array", "items": "string"}},
        {"name": "m", "type": {"type": "map", "values": ["null", "long"]}},
        {"name": "d", "type": decimal},
    ]
    node = parse_schema(text(["null", {"type": "record", "name": "R", "fields": fields}]))
    row = st.fixed_dictionaries(
        {
            "a": st.lists(st.text(max_size=5), max_size=4),
            "m": st.dictionaries(st.text(max_size=3), st.none() | st.integers(-(2**63), 2**63 - 1), max_size=3),
            "d": st.integers(-(10**50) + 1, 10**50 - 1).map(lambda n: Decimal(n).scaleb(0)).map(number),
        }
    )
    rows = data.draw(st.lists(st.none() | row, max_size=20))
    column = pa.array([r and {**r, "m": list(r["m"].items())} for r in rows], arrow_type(node))
    mask = pa.array([n % 3 == 0 for n in range(len(rows))])
    column = pa.compute.if_else(mask, pa.nulls(len(rows), column.type), column)
    decoded = AvroDecoder(node).decode(encode_datums(column, node))
    assert not decoded.bad.any()
    assert decoded.values.to_pylist() == column.to_pylist()


def number(value: Decimal) -> Decimal:
    """The same digits with two of them behind the point."""
    return Decimal((value.as_tuple().sign, value.as_tuple().digits, -2))


@pytest.mark.parametrize(
    ("schema", "column", "message"),
    [
        ('{"type": "array", "items": "int"}', pa.array([[1, None]], pa.list_(pa.int32())), "has no null"),
        ('["int", "string"]', pa.array([{"int": 1, "string": "a"}]), "exactly one"),
        ('["int", "string"]', pa.array([None], pa.struct([("int", pa.int32()), ("string", pa.string())])), "exactly"),
        ('{"type": "enum", "name": "E", "symbols": ["A"]}', pa.array(["A", "B"]), "no symbols"),
        ('{"type": "array", "items": "int"}', pa.array([1]), "needs list"),
        ('{"type": "record", "name": "R", "fields": []}', pa.array([{"a": 1}]), "needs struct"),
        ("int", pa.array([2**31]), "needs int32"),
        (
            '{"type": "fixed", "name": "F", "size": 2, "logicalType": "decimal", "precision": 4}',
            pa.array([Decimal(-32769)], pa.decimal128(10, 0)).cast(pa.decimal128(4, 0), safe=False),
            "more than 2 bytes",
        ),
    ],
)
def test_what_does_not_fit_is_refused(schema: str, column: Any, message: str) -> None:
    """With the path of the field."""
    with pytest.raises(ValueError, match=f"the value.*{message}"):
        encode_datums(column, parse_schema(schema))


def test_other_widths_are_cast() -> None:
    """Numbers and texts of a wider or narrower type that fit."""
    assert encode_datums(pa.array([1], pa.int64()), parse_schema("int")).to_pylist() == [b"\x02"]
    assert encode_datums(pa.array(["a"], pa.large_string()), parse_schema("string")).to_pylist() == [b"\x02a"]
    assert encode_datums(pa.nulls(2), parse_schema('["null", "int"]')).to_pylist() == [b"\0", b"\0"]


def test_a_recursive_schema_is_refused() -> None:
    """It has no Arrow type."""
    schema = '{"type": "record", "name": "R", "fields": [{"name": "n", "type": ["null", "R"]}]}'
    with pytest.raises(ConfigurationError, match="recursive"):
        encode_datums(pa.nulls(1), parse_schema(schema))
