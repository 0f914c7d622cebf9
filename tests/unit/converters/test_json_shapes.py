"""Decoding of JSON documents of the same shape."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_kafka_s3.converters.json_decode import JsonDecoder
from airflow_provider_kafka_s3.schemas.avro import parse_schema
from airflow_provider_kafka_s3.schemas.nodes import Node
from tests.avro_values import column_values

EXAMPLES = settings(max_examples=200, deadline=None)

ORDER: Final = parse_schema(
    json.dumps(
        {
            "type": "record",
            "name": "Order",
            "fields": [
                {"name": "id", "type": "long"},
                {"name": "name", "type": ["null", "string"]},
                {"name": "weight", "type": "double"},
                {"name": "rating", "type": ["null", "float"]},
                {"name": "gift", "type": "boolean"},
                {"name": "status", "type": {"type": "enum", "name": "Status", "symbols": ["NEW", "PAID"]}},
                {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
                {"name": "due", "type": ["null", {"type": "int", "logicalType": "date"}]},
                {"name": "total", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
                {
                    "name": "place",
                    "type": {
                        "type": "record",
                        "name": "Place",
                        "fields": [{"name": "city", "type": "string"}, {"name": "zip", "type": ["null", "int"]}],
                    },
                },
                {"name": "tags", "type": {"type": "array", "items": "string"}},
                {"name": "more", "type": {"type": "map", "values": "int"}},
                {"name": "count", "type": "int", "default": 7},
            ],
        }
    )
)
NESTED: Final = parse_schema(
    '{"type": "record", "name": "R", "fields": [{"name": "b", "type": ["null", "int"]}, '
    '{"name": "d", "type": ["null", "string"]}]}'
)


def order(**changed: Any) -> dict[str, Any]:
    """An order as a producer writes it."""
    fields = {
        "id": 17,
        "name": "Ada",
        "weight": 0.25,
        "rating": None,
        "gift": False,
        "status": "PAID",
        "at": "2026-01-31T23:59:58.125Z",
        "due": "2026-02-01",
        "total": "13.50",
        "place": {"city": "Zürich", "zip": 8001},
        "tags": ["a", "b,c"],
        "more": {"x": 1},
        "unknown": [{"id": 3}, "}"],
    }
    return {**fields, **changed}


def text(value: Any) -> bytes:
    """A document without white space."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


@functools.cache
def decoders(node: Node) -> tuple[JsonDecoder, JsonDecoder]:
    """One that decodes by shapes whatever it can, and one by way of objects only."""
    shapes, objects = (JsonDecoder(node, decimal_format="NUMERIC") for _ in range(2))
    assert shapes._shapes is not None
    shapes._shapes.fewest = 1
    objects._shapes = None
    return shapes, objects


def decoded(node: Node, rows: Sequence[bytes | None]) -> tuple[int, list[Any]]:
    """How many rows the shapes took; and the values, which have to be those by way of objects."""
    array: Any = pa.array(rows, pa.binary())
    shapes, objects = decoders(node)
    assert shapes._shapes is not None
    shapes._shapes._wait = 0
    found = shapes._shapes.decode(array)
    shapes._shapes._wait = 0
    fast, slow = shapes.decode(array), objects.decode(array)
    fast.values.validate(full=True)
    assert repr(column_values(fast.values)) == repr(column_values(slow.values))
    assert fast.reasons == slow.reasons
    assert fast.bad.tolist() == slow.bad.tolist()
    return 0 if found is None else len(found[0]), column_values(fast.values)


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
def test_orders_of_one_shape_need_no_objects(separators: tuple[str, str]) -> None:
    """Numbers, texts, times, decimals, enums, records, arrays and maps of all documents are decoded by their shape."""
    rows = [
        json.dumps(
            order(
                id=n - 50,
                name=None if n % 3 else f"name {n}",
                weight=n / 7,
                rating=n / 2 if n % 2 else None,
                gift=n % 5 == 0,
                status="NEW" if n % 4 else "PAID",
                at=f"2026-01-{1 + n % 28:02d}T00:00:00{('', '.125', '.125000')[n % 3]}Z",
                due=None if n % 3 else f"20{n % 90 + 10}-06-30",
                total=f"{n}.{n % 100:02d}",
                place={"city": "x" * n, "zip": n if n % 2 else None},
                tags=[str(i) for i in range(n % 4)],
            ),
            separators=separators,
        ).encode()
        for n in range(100)
    ]
    taken, values = decoded(ORDER, rows)
    assert taken == 100
    assert [v["id"] for v in values] == [n - 50 for n in range(100)]
    assert {v["count"] for v in values} == {7}


def test_documents_of_other_shapes_are_decoded_as_well() -> None:
    """A document that differs from its neighbours has its own values, whatever it differs in."""
    others = [
        text(order(name='a "quoted" text')),
        text(order(name="a\ttab")),
        text({k: v for k, v in order().items() if k != "due"}),
        text(dict(reversed(order().items()))),
        text(order(place={"zip": 1, "city": "x"})),
        text(order(more={"x": 1, "y": 2})),
        text(order(id="17")),
        text(order(id=1.0)),
        text(order(weight="NaN")),
        text(order(at=1_769_903_998_125)),
        text(order(total=13.5)),
        text(order()) + b" ",
        text(order())[:-1],
        text(order())[1:],
        text(order()).replace(b'"gift":false', b'"gift":falsy'),
        text(order()).replace(b'"id":17', b'"id":017'),
        text(order()).replace(b'"id":17', b'"id": 17'),
        text(order()).replace(b'"id":17', b'"id" :17'),
        text(order()).replace(b'"id":17', b'"id":17,"id":18'),
        text(order()).replace("ü".encode(), b"\xfc"),
        b"",
        None,
        b"[]",
        b'"text"',
        b"{}",
    ]
    rows: list[bytes | None] = []
    for n, other in enumerate(others):
        rows += [text(order(id=n)), other, text(order(id=1000 + n))]
    decoded(ORDER, rows)
    valid = [row for row in rows if row is None or row.isascii() or "ü".encode() in row]
    taken, _ = decoded(ORDER, valid)
    assert taken >= 2 * len(others) - 2
    taken, _ = decoded(ORDER, [b'{"id":"}', text(order())[1:], *valid])
    assert taken >= 2 * len(others) - 2


@pytest.mark.parametrize(
    "other",
    [
        b'{"a":{"x":1,"b":2,"c":{"y":1}}}',
        b'{"a":{"x":1},"b":2},"c":{"y":1}}',
        b'{"a":[{"x":1},{"b":2,"c":{"y":1}}]}',
        b'{"a":{"x":"1},\\"b\\":3","b":2},"c":{"y":1}}',
        b'{"a":{"x":1},"b":[2],"c":{"y":1}}',
        b'{"a":{"x":1},"b":2 ,"c":{"y":1}}',
        b'{"a":{"x":1}, "b":2,"c":{"y":1}}',
        b'{"a":{"x":1},"b":2,"c":{"y":1},"b":3}',
        b'{"a":{"b":1},"x":2,"c":{"y":1}}',
        b'{"a":{"x":1},"b":2,"c":{"y":1}]',
        b'{"a":{"x":},"b":2,"c":{"y":1}}',
        b'{"a":{x:1},"b":2,"c":{"y":1}}',
    ],
)
def test_a_field_is_not_taken_from_another_place(other: bytes) -> None:
    """A document with the same keys in other objects, or with broken ones, has the value of its own structure."""
    usual = b'{"a":{"x":1},"b":2,"c":{"y":1}}'
    for rows in ([usual, other, usual], [other, usual, other], [usual, usual, other]):
        decoded(NESTED, rows)


NUMBERS: Final = (
    *("0", "-0", "-0.0", "0.0", "1", "-1", "1.0", "1e3", "1E3", "1e-3", "1.5e3", "12.50", "12.500", "1e400", "-1e400"),
    *(
        "9223372036854775807",
        "9223372036854775808",
        "-9223372036854775808",
        "1234567.89",
        "12345678.9",
        "1e30",
        "1e-30",
    ),
    *(
        "01",
        "-01",
        "00",
        "+1",
        ".5",
        "-.5",
        "5.",
        "1.e5",
        "1e",
        "1e+",
        "-",
        "--1",
        "0x10",
        "-0x10",
        "1_0",
        "nan",
        "NaN",
    ),
    *("Infinity", "-Infinity", "inf", "-inf", "1 ", " 1", "1\t", "true", "null", '""', '"1"', '"-"', '"1.5"', '".5"'),
    *('"5."', '"+5"', '"1e2"', '"01.50"', '"-01"', '"0x1"', '" 1"', '"1 "', '"1.e1"', "{}", "[]", "[1]", "1,2", "1:2"),
    *("0.1", "1.7976931348623157e308", "4.9e-324", "3.4028235e38", "3.4028236e38", "123456789012345678901234567890"),
)
KINDS: Final = (
    *('"int"', '"long"', '"float"', '"double"', '"string"', '"boolean"'),
    '{"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}',
    '{"type": "long", "logicalType": "timestamp-millis"}',
)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("nullable", [False, True])
def test_every_text_of_a_number_has_one_meaning(kind: str, nullable: bool) -> None:
    """Each text, alone and between others, is the same number, or bad for the same reason, by shapes and by objects."""
    field = f'["null", {kind}]' if nullable else kind
    node = parse_schema(f'{{"type": "record", "name": "R", "fields": [{{"name": "n", "type": {field}}}]}}')
    rows = [f'{{"n":{number},"m":{number}}}'.encode() for number in NUMBERS]
    for row in rows:
        decoded(node, [row, row])
        decoded(node, [b'{"n":1,"m":1}', row, b'{"n":1,"m":1}'])
        decoded(node, [b'{"n":"1","m":1}', row])


TIMES: Final = (
    *("2026-01-31T23:59:59Z", "2026-01-31 23:59:59Z", "2026-01-31T23:59:59.5Z", "2026-01-31T23:59:59.125Z"),
    *("2026-01-31T23:59:59.125000Z", "2026-01-31T23:59:59.125001Z", "2026-01-31T23:59:60Z", "2026-02-30T00:00:00Z"),
    *("2026-01-31T24:00:00Z", "0000-01-01T00:00:00Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999Z"),
    *("1969-12-31T23:59:59.999Z", "2026-01-31T23:59Z", "2026-01-31T23:59:59", "2026-01-31T23:59:59.125"),
    *(
        "2026-01-31T23:59:59+01:00",
        "2026-01-31T23:59:59.1+0100Z",
        "2026-01-31",
        "0000-12-31",
        "2026-1-31",
        "2026-01-311",
    ),
    *(
        "2026-01-31T23:59:59z",
        "2026-01-31t23:59:59Z",
        "26-01-31T23:59:59Z",
        "2026-01-31T23:59:59,125Z",
        "23:59:59",
        "x" * 20,
    ),
)
TIME_KINDS: Final = (
    *(("long", f"{zone}timestamp-{unit}") for zone in ("", "local-") for unit in ("millis", "micros")),
    ("int", "date"),
    ("int", "time-millis"),
    ("long", "time-micros"),
)


@pytest.mark.parametrize(("name", "logical"), TIME_KINDS)
def test_every_text_of_a_time_has_one_meaning(name: str, logical: str) -> None:
    """Each text is the same time, or bad for the same reason, by shapes and by objects."""
    kind = f'{{"type": "{name}", "logicalType": "{logical}"}}'
    node = parse_schema(f'{{"type": "record", "name": "R", "fields": [{{"name": "t", "type": ["null", {kind}]}}]}}')
    rows = [f'{{"t":"{time}"}}'.encode() for time in TIMES]
    for row in rows:
        decoded(node, [row, row])
        decoded(node, [b'{"t":null}', row, b'{"t":"2026-01-31T23:59:59Z"}', b'{"t":"2026-01-31"}', b'{"t":1}'])


@EXAMPLES
@given(st.data())
def test_a_changed_document_is_decoded_as_by_objects(data: st.DataObject) -> None:
    """Documents with changed, lost and repeated bytes get no other values, and neither do their neighbours."""
    rows = [text(order(id=n, name=f"name {n}")) for n in range(8)]
    for _ in range(data.draw(st.integers(1, 3))):
        row = data.draw(st.integers(0, len(rows) - 1))
        at = data.draw(st.integers(0, len(rows[row]) - 1))
        size = data.draw(st.integers(0, 6))
        new = data.draw(
            st.one_of(st.binary(max_size=3), st.sampled_from([b'"', b"{", b"}", b",", b":", b"[", b"]", b'":']))
        )
        rows[row] = rows[row][:at] + new + rows[row][at + size :]
    decoded(ORDER, rows)


def test_batches_without_a_common_shape_are_not_tried_each() -> None:
    """After batches of unlike documents the next ones are not looked at, and have the same values; later ones are."""
    decoder = JsonDecoder(NESTED)
    assert decoder._shapes is not None
    unlike: Any = pa.array([f'{{"b":{n},"x{n}":1}}'.encode() for n in range(600)], pa.binary())
    alike: Any = pa.array([f'{{"b":{n}}}'.encode() for n in range(600)], pa.binary())
    for _ in range(3):
        assert column_values(decoder.decode(unlike).values)[:2] == [{"b": 0, "d": None}, {"b": 1, "d": None}]
    tries = [decoder._shapes.decode(alike) for _ in range(10)]
    assert tries[0] is None
    assert tries[-1] is not None
    assert np.array_equal(tries[-1][0], np.arange(600))
