"""Texts in JSON documents have one meaning, whether a column of them is converted together or each by itself."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_kafka_s3.converters import json_columns
from airflow_provider_kafka_s3.schemas.avro import parse_schema
from airflow_provider_kafka_s3.schemas.nodes import Node
from tests.avro_values import column_values
from tests.unit.converters.test_json_decode import decode_alike, decoders

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


decoders_of = functools.cache(functools.partial(decoders, decimal_format="NUMERIC"))


def decoded(node: Node, rows: Sequence[bytes | None]) -> list[Any]:
    """The values, which both have to give."""
    return column_values(decode_alike(node, rows, decoders_of(node)).values)


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
def test_columns_of_usual_texts_are_converted_together(
    separators: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Decimals, dates and timestamps of a column with and without nulls have the values of each alone."""
    rows = [
        json.dumps(
            order(
                id=n - 50,
                at=f"2026-01-{1 + n % 28:02d}T00:00:00{('', '.125', '.125000')[n % 3]}Z",
                due=None if n % 3 else f"20{n % 90 + 10}-06-30",
                total=f"{n}.{n % 100:02d}",
            ),
            separators=separators,
        ).encode()
        for n in range(100)
    ]
    values = decoded(ORDER, rows)
    assert [v["id"] for v in values] == [n - 50 for n in range(100)]
    assert {v["count"] for v in values} == {7}
    columns: list[Any] = []
    convert = json_columns._Texts._together
    monkeypatch.setattr(
        json_columns._Texts, "_together", lambda column, texts: columns.append(convert(column, texts)) or columns[-1]
    )
    assert decoded(ORDER, rows) == values
    assert [len(column) for column in columns if column is not None] == [100, 100, 100]


def test_documents_that_differ_are_decoded_as_well() -> None:
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
    for other in others:
        decoded(ORDER, [text(order()), other, text(order())])


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
    *(
        "0." + "9" * 38,
        "9." + "9" * 38,
        *(quote + "9" * digits + quote for digits in range(35, 80) for quote in ("", '"')),
    ),
    *("0.1", "1.7976931348623157e308", "4.9e-324", "3.4028235e38", "3.4028236e38", "123456789012345678901234567890"),
)
KINDS: Final = (
    *('"int"', '"long"', '"float"', '"double"', '"string"', '"boolean"'),
    *(
        f'{{"type": "bytes", "logicalType": "decimal", "precision": {precision}, "scale": {scale}}}'
        for precision, scale in ((9, 2), (38, 0), (38, 2), (38, 38), (76, 2))
    ),
    '{"type": "long", "logicalType": "timestamp-millis"}',
)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("field", ["{}", "[{}]", '["null", {}]'])
def test_every_text_of_a_number_has_one_meaning(kind: str, field: str) -> None:
    """Each text, alone and between others, is the same number, or bad for the same reason, together and alone."""
    node = parse_schema(f'{{"type": "record", "name": "R", "fields": [{{"name": "n", "type": {field.format(kind)}}}]}}')
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
    """Each text is the same time, or bad for the same reason, together and alone."""
    kind = f'{{"type": "{name}", "logicalType": "{logical}"}}'
    node = parse_schema(f'{{"type": "record", "name": "R", "fields": [{{"name": "t", "type": ["null", {kind}]}}]}}')
    rows = [f'{{"t":"{time}"}}'.encode() for time in TIMES]
    for row in rows:
        decoded(node, [row, row])
        decoded(node, [b'{"t":null}', row, b'{"t":"2026-01-31T23:59:59Z"}', b'{"t":"2026-01-31"}', b'{"t":1}'])


@EXAMPLES
@given(st.data())
def test_a_changed_document_is_decoded_as_alone(data: st.DataObject) -> None:
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
