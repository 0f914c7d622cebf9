"""Decoding of JSON documents to columns."""

from __future__ import annotations

import base64
import json
import math
import subprocess
import sys
from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from airflow_provider_kafka_s3.converters.json_decode import DecimalFormat, DecodedJson, JsonDecoder
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.schemas.arrow_types import arrow_type
from airflow_provider_kafka_s3.schemas.avro import parse_schema
from airflow_provider_kafka_s3.schemas.nodes import ArrayOf, Decimal, Fixed, MapOf, Node, Primitive, Record, Union
from tests.avro_values import column_value, column_values, schemas, text, values

EXAMPLES = settings(max_examples=150, deadline=None)
FORMATS: Final = st.sampled_from(["BASE64", "NUMERIC"])


def array_of(rows: Sequence[bytes | None], *, large: bool = False) -> Any:
    """Rows as an Arrow array."""
    return pa.array(rows, pa.large_binary() if large else pa.binary())


def refuse(text: bytes) -> Any:
    """Decodes nothing, so every row is converted on its own."""
    raise ValueError


def decode(node: Node, rows: Sequence[bytes | None], decimal_format: DecimalFormat = "BASE64") -> DecodedJson:
    """Decode rows by both paths, which have to be equal."""
    return decode_alike(node, rows, decoders(node, decimal_format))


def decoders(node: Node, decimal_format: DecimalFormat) -> tuple[JsonDecoder, JsonDecoder]:
    """One that converts columns, and one that converts each row on its own."""
    by_objects, one_by_one = (JsonDecoder(node, decimal_format=decimal_format) for _ in range(2))
    one_by_one._decode = refuse
    return by_objects, one_by_one


def decode_alike(node: Node, rows: Sequence[bytes | None], both: tuple[JsonDecoder, JsonDecoder]) -> DecodedJson:
    """Decode rows by both decoders of a schema, which have to be equal."""
    fast, slow = (decoder.decode(array_of(rows)) for decoder in both)
    assert list(fast.reasons) == [row for row, bad in enumerate(fast.bad.tolist()) if bad]
    for decoded in (fast, slow):
        decoded.values.validate(full=True)
        assert decoded.values.type == arrow_type(node)
        assert repr(column_values(decoded.values)) == repr(column_values(fast.values))
        assert decoded.bad.tolist() == fast.bad.tolist()
        assert decoded.reasons == fast.reasons
    return fast


def without_unions(schema: Any) -> Any:
    """A schema whose unions are of one type, with null or without it."""
    if isinstance(schema, list):
        nulls, others = schema.count("null"), [s for s in schema if s != "null"]
        return [*["null"] * nulls, *map(without_unions, others[:1])]
    if not isinstance(schema, dict):
        return schema
    if "fields" in schema:
        return {**schema, "fields": [{**f, "type": without_unions(f["type"])} for f in schema["fields"]]}
    return {k: without_unions(v) if k in {"items", "values"} else v for k, v in schema.items()}


def json_value(node: Node, value: Any, decimal_format: str) -> Any:
    """A value, as the generated ones are, for json.dumps."""
    match node:
        case Primitive(logical=Decimal(scale=scale)) | Fixed(logical=Decimal(scale=scale)):
            if decimal_format == "BASE64":
                return base64.b64encode(value.to_bytes(33, signed=True)).decode()
            digits = str(abs(value)).rjust(scale + 1, "0")
            return (
                ("-" if value < 0 else "")
                + digits[: len(digits) - scale]
                + "." * bool(scale)
                + digits[len(digits) - scale :]
            )
        case Primitive(name="float" | "double") if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case Primitive(name="bytes") | Fixed():
            return base64.b64encode(value).decode()
        case ArrayOf(items=items):
            return [json_value(items, item, decimal_format) for item in value]
        case MapOf(values=inner):
            return {k: json_value(inner, v, decimal_format) for k, v in value}
        case Union(branches=branches):
            return json_value(branches[value[0]], value[1], decimal_format)
        case Record(fields=fields):
            return {f.name: json_value(f.type, value[f.name], decimal_format) for f in fields}
    return value


def without_nulls(value: Any) -> Any:
    """A value without the fields that are null."""
    if isinstance(value, dict):
        return {k: without_nulls(v) for k, v in value.items() if v is not None}
    return [without_nulls(v) for v in value] if isinstance(value, list) else value


@st.composite
def batches(draw: st.DrawFn, *, unions: bool, size: int = 20) -> tuple[Node, list[Any], Any]:
    """A schema, values of it, and a format of decimals."""
    schema = draw(schemas())
    node = parse_schema(text(schema if unions else without_unions(schema)))
    some = draw(st.lists(values(node), min_size=1, max_size=6))
    return node, draw(st.lists(st.sampled_from(some), max_size=size)), draw(FORMATS)


@EXAMPLES
@given(batches(unions=False), st.booleans(), st.sampled_from([None, 1]))
def test_a_batch_has_the_values_that_were_written(batch: Any, ascii_only: bool, indent: int | None) -> None:
    """Documents in any layout give the values, dates and timestamps also as they are stored."""
    node, chosen, decimal_format = batch
    rows = [
        json.dumps(json_value(node, value, decimal_format), ensure_ascii=ascii_only, indent=indent).encode()
        for value in chosen
    ]
    decoded = decode(node, [*rows, None], decimal_format)
    assert not decoded.bad.any()
    assert repr(column_values(decoded.values)) == repr([*(column_value(node, value) for value in chosen), None])


HOSTILE: Final = st.sampled_from(
    [
        *(b"1.0", b"1e2", b"-0", b"1e400", b"01", b"1.", b"-", b"0.5", b"1_0", b"1E+2", b"2147483648", b"9" * 23),
        *(
            b"null",
            b"true",
            b"NaN",
            b"Infinity",
            b'"NaN"',
            b'"',
            b",",
            b"]",
            b"}",
            b"{",
            b"[",
            b":",
            b"[[1]]",
            b"{} {}",
        ),
        *(
            b"\\ud800",
            b"\\u0000",
            b"\\/",
            b"\xff",
            b"\xed\xa0\x80",
            b"\xef\xbb\xbf",
            b"\n",
            b"\x0b",
            b"\x00",
            b"=",
            b"//w=",
        ),
        *(b'"2026-01-02"', b'"2026-01-02T03:04:05.5Z"', b'"2026-01-02 03:04"', b'"03:04:05.000"', b'"f0":', b'"x":1,'),
    ]
)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_mutated_documents_are_the_same_by_both_paths(data: st.DataObject) -> None:
    """Documents that were changed or cut, and numbers and texts of any form, are bad by both paths or by none."""
    node, chosen, decimal_format = data.draw(batches(unions=True, size=8))
    rows: list[bytes | None] = []
    for value in chosen:
        row = bytearray(json.dumps(json_value(node, value, decimal_format), ensure_ascii=False).encode())
        for _ in range(data.draw(st.integers(0, 3))):
            place = data.draw(st.integers(0, len(row)))
            row[place : place + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3) | HOSTILE)
        rows.append(bytes(row))
    rows += data.draw(st.lists(st.none() | st.binary(max_size=20) | HOSTILE, max_size=5))
    decode(node, rows, decimal_format)


ANY_JSON: Final = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**40), 10**40)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=10)
    | st.sampled_from(["S0", "AA==", "AAA=", "NaN", "12.50", "2026-01-31", "23:59", "2026-01-31T23:59:01Z"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["f0", "f1", "f2", "é"]), inner),
    max_leaves=12,
)


@settings(max_examples=200, deadline=None)
@given(schemas(), st.lists(ANY_JSON, min_size=1, max_size=8), FORMATS)
def test_values_of_any_other_schema_are_the_same_by_both_paths(schema: Any, given_values: Any, numbers: Any) -> None:
    """Documents that were not written for the schema."""
    decode(parse_schema(text(schema)), [json.dumps(value).encode() for value in given_values], numbers)


DIGITS: Final = st.integers(0, 10**6) | st.integers(0, 10**45)
NUMBERS: Final = st.builds(
    lambda sign, whole, fraction, power: f"{sign}{whole}{fraction}{power}",
    st.sampled_from(["", "-"]),
    DIGITS,
    st.just("") | DIGITS.map(".{:05}".format),
    st.just("") | st.builds("{}{}".format, st.sampled_from(["e", "E+", "e-"]), st.integers(0, 60) | DIGITS),
)
NUMERIC_TYPES: Final = [
    '"int"',
    '"long"',
    '"float"',
    '"double"',
    '{"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 4}',
    '{"type": "bytes", "logicalType": "decimal", "precision": 76, "scale": 40}',
    '["null", "int", "long", "double"]',
]


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(NUMERIC_TYPES), st.lists(NUMBERS, max_size=8), FORMATS)
@example('"float"', ["3.4028234663852886e38", "3.4028235677973366e38", "-0", "-0.0", "1e-400", "1e400"], "NUMERIC")
@example('"long"', ["1e999999999999", "-1e-999999999999", "0e999999999999", "9223372036854775808"], "NUMERIC")
def test_numbers_are_the_same_by_both_paths(schema: str, numbers: Any, decimal_format: Any) -> None:
    """Numbers of any length and exponent, also as strings."""
    rows = [number.encode() for number in numbers]
    decode(parse_schema(schema), [*rows, *(b'"%s"' % row for row in rows)], decimal_format)


@EXAMPLES
@given(st.binary(max_size=30) | st.text(max_size=30).map(lambda t: json.dumps(t).encode()))
def test_base64_is_the_same_by_both_paths(value: bytes) -> None:
    """Base64, and what nearly is."""
    assume(b"\n" not in value)
    good = base64.b64encode(value)
    rows = [b'"%s"' % good, b'"%s"' % good[:-1], b'"%s"' % good.replace(b"=", b""), b'"%s=" ' % good, b'"%s"' % value]
    rows += [b'"' + good.replace(b"A", b"B", 1) + b'"', b'"' + good[:3] + b" " + good[3:] + b'"', b'"AB=="', b'"AAB="']
    decode(parse_schema("bytes"), rows)
    decode(parse_schema('{"type": "bytes", "logicalType": "decimal", "precision": 30}'), rows)


@EXAMPLES
@given(batches(unions=True), st.data())
def test_a_slice_has_the_values_of_the_batch(batch: Any, data: st.DataObject) -> None:
    """Any slice of a batch, of either offset width, decodes to that slice of the values."""
    node, chosen, _ = batch
    rows: list[bytes | None] = [json.dumps(json_value(node, value, "BASE64")).encode() for value in chosen]
    rows += [None, b"\xff", b"", b"[" * 300]
    start = data.draw(st.integers(0, len(rows)))
    stop = data.draw(st.integers(start, len(rows)))
    decoder = JsonDecoder(node)
    whole = decoder.decode(array_of(rows))
    for large in (False, True):
        part = decoder.decode(array_of(rows, large=large)[start:stop])
        assert part.bad.tolist() == whole.bad[start:stop].tolist()
        assert {row + start: reason for row, reason in part.reasons.items()} == {
            row: reason for row, reason in whole.reasons.items() if start <= row < stop
        }
        assert repr(column_values(part.values)) == repr(column_values(whole.values)[start:stop])


def record(*fields: str) -> str:
    """A record of fields, each as JSON."""
    return f'{{"type": "record", "name": "R", "fields": [{", ".join(fields)}]}}'


def logical(kind: str, name: str) -> str:
    """A logical type."""
    return f'{{"type": "{kind}", "logicalType": "{name}"}}'


GOOD: Final = [
    ("int", b" 7\n", 7),
    ("int", b"1.0", 1),
    ("int", b"12e1", 120),
    ("int", b"-2147483648", -(2**31)),
    ("long", b"9223372036854775807", 2**63 - 1),
    ("double", b"1", 1.0),
    ("double", b'"-Infinity"', -math.inf),
    ("float", b"0.1", 0.10000000149011612),
    ("string", b'"\\u00e9\xc3\xa9\\ud83d\\ude00"', "\u00e9\u00e9\U0001f600"),
    ("bytes", b'"//8="', b"\xff\xff"),
    ('{"type": "enum", "name": "E", "symbols": ["A", "B"]}', b'"B"', "B"),
    (logical("int", "date"), b"-1", -1),
    (logical("int", "date"), b'"1970-01-02"', 1),
    (logical("int", "time-millis"), b'"00:01:02.5"', 62_500),
    (logical("long", "time-micros"), b'"00:01:02.000001"', 62_000_001),
    (logical("long", "timestamp-millis"), b'"1970-01-01T00:00:01.25Z"', 1250),
    (logical("long", "timestamp-millis"), b'"1970-01-01 01:00:00+01:00"', 0),
    (logical("long", "timestamp-micros"), b'"1969-12-31T23:59:59.999999000Z"', -1),
    (logical("long", "local-timestamp-millis"), b'"1970-01-01T00:00:01"', 1000),
    ('["string", "int"]', b"1", {"string": None, "int": 1}),
    ('["long", "double"]', b"1.5", {"long": None, "double": 1.5}),
    ('["null", "long", "double"]', b"null", None),
    ('{"type": "map", "values": "int"}', b'{"a": 1, "b": 2, "a": 3}', [("a", 3), ("b", 2)]),
    (record('{"name": "a", "type": "int", "default": 5}'), b"{}", {"a": 5}),
    (record('{"name": "a", "type": ["null", "int"]}'), b'{"b": [1, {}]}', {"a": None}),
    (record('{"name": "a", "type": ["int", "null"], "default": 5}'), b'{"a": null}', {"a": None}),
    (record('{"name": "a", "type": "bytes", "default": "\\u00ff"}'), b"{}", {"a": b"\xff"}),
    (record('{"name": "a", "type": {"type": "array", "items": "int"}, "default": [1]}'), b"{}", {"a": [1]}),
    (record('{"name": "a", "type": "int"}'), b'{"a": "x", "\\u0061": 2}', {"a": 2}),
    (record('{"name": "a", "type": "null"}'), b"{}", {"a": None}),
]


@pytest.mark.parametrize(("schema", "row", "value"), GOOD)
def test_a_document_has_the_value_of_its_schema(schema: str, row: bytes, value: Any) -> None:
    """Each rule of a type, also beside rows that are bad and null."""
    decoded = decode(parse_schema(schema), [row, None, b"?", row])
    assert column_values(decoded.values) == [value, None, None, value]
    assert decoded.bad.tolist() == [False, False, True, False]


ENUM: Final = '{"type": "enum", "name": "E", "symbols": ["A"]}'
BAD: Final = [
    ("int", b"", "the value is empty"),
    ("int", b"1 2", "the value is not one JSON document: Extra data at character 2"),
    ("int", b"NaN", "the value is not one JSON document: NaN is no number of JSON"),
    ("string", b'"\xff"', "the value is not UTF-8: byte 1"),
    ("string", b'"\\ud800"', "the value has half of a surrogate pair"),
    ("int", b'"1"', "the value is a string, not of the type int"),
    ("int", b"1.5", "the value has a fraction"),
    ("int", b"2147483648", "the value is out of the range of int"),
    ("int", b"true", "the value is a boolean, not of the type int"),
    ("long", b"1e99999", "the value is out of range"),
    ("float", b"1e39", "the value is out of the range of float"),
    ("double", b"1e400", "the value is out of the range of double"),
    ("double", b'"1"', "the value is a string, not of the type double"),
    ("boolean", b"1", "the value is a number, not a boolean"),
    ("bytes", b'"/w"', "the value is a string that is no base64"),
    ("bytes", b'"/w ="', "the value is a string that is no base64"),
    ("bytes", b'"/w== "', "the value is a string that is no base64"),
    ("bytes", b'"_w=="', "the value is a string that is no base64"),
    ("null", b"0", "the value is a number, not null"),
    ('{"type": "fixed", "name": "F", "size": 3}', b'"//8="', "the value has 2 bytes, not 3"),
    (
        '{"type": "enum", "name": "E", "symbols": ["A"]}',
        b'"secret"',
        "the value is a string that is no symbol of its enum",
    ),
    (logical("int", "date"), b'"2026-02-30"', "the value is a string that is no date"),
    (logical("int", "time-millis"), b"86400000", "the value is out of the range of time-millis"),
    (logical("int", "time-millis"), b'"24:00"', "the value is a string that is no time-millis"),
    (logical("int", "time-millis"), b'"00:00:00.0001"', "the value has more than 3 digits of a second"),
    (logical("long", "timestamp-millis"), b'"2026-01-01T00:00:00"', "the value is a timestamp without a zone"),
    (logical("long", "local-timestamp-millis"), b'"2026-01-01T00:00:00Z"', "the value is a timestamp with a zone"),
    (logical("long", "timestamp-millis"), b'"2026-01-01"', "the value is a timestamp without a zone"),
    ('["string", "int"]', b"1.5", "the value is a number that fits no branch of its union"),
    ('["string", "int"]', b"null", "the value is null that fits no branch of its union"),
    (record('{"name": "a", "type": "int"}'), b"[]", "the value is an array, not a record"),
    (record('{"name": "a", "type": "int"}'), b'{"b": 1}', "field a is missing"),
    (record('{"name": "a", "type": "int", "default": 5}'), b'{"a": null}', "field a is null, not of the type int"),
    (record('{"name": "a", "type": ["null", "int"]}'), b'{"a": {}}', "field a is an object, not of the type int"),
    (
        record('{"name": "a", "type": {"type": "map", "values": {"type": "array", "items": "int"}}}'),
        b'{"a": {"secret": [1, 2, "secret"]}}',
        "field a[*][2] is a string, not of the type int",
    ),
]


@pytest.mark.parametrize(("schema", "row", "reason"), BAD)
def test_a_bad_row_has_a_reason_without_its_content(schema: str, row: bytes, reason: str) -> None:
    """Each fault makes its row bad, names the field, and leaves other rows as they are."""
    decoded = decode(parse_schema(schema), [None, row, None])
    assert decoded.bad.tolist() == [False, True, False]
    assert decoded.values.null_count == 3
    assert decoded.reasons == {1: reason}


@pytest.mark.parametrize(
    ("decimal_format", "row", "value"),
    [
        ("BASE64", b"1.5", "1.50"),
        ("BASE64", b'"AJY="', "1.50"),
        ("BASE64", b'"1.50"', None),
        ("BASE64", b'""', None),
        ("NUMERIC", b'""', None),
        ("NUMERIC", b'"100"', "100.00"),
        ("NUMERIC", b'"1E+2"', "100.00"),
        ("NUMERIC", b'"AJY="', None),
        ("NUMERIC", b'"NaN"', None),
        ("NUMERIC", b"-1.500", "-1.50"),
        ("NUMERIC", b"15e-1", "1.50"),
        ("NUMERIC", b'"1.50"', "1.50"),
        ("NUMERIC", b'"\\u0031.5"', "1.50"),
        ("NUMERIC", b"1.505", None),
        ("NUMERIC", b"999.99", "999.99"),
        ("NUMERIC", b"1000", None),
        ("NUMERIC", b'"1_0"', None),
        ("NUMERIC", b'"\xd9\xa1"', None),
        ("NUMERIC", b"0.1000000000000000055511151231257827", None),
    ],
)
def test_a_decimal_is_exact_or_bad(decimal_format: DecimalFormat, row: bytes, value: str | None) -> None:
    """Strings are read by the format, numbers always, and nothing is rounded."""
    node = parse_schema('{"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}')
    decoded = decode(node, [row, b"1"], decimal_format)
    assert [None if v is None else str(v) for v in decoded.values.to_pylist()] == [value, "1.00"]
    assert decoded.bad.tolist() == [value is None, False]


def test_the_depth_of_a_document_has_a_fixed_limit() -> None:
    """200 arrays inside each other are read and 201 are not, wherever they are; brackets in strings do not count."""
    node = parse_schema(record('{"name": "a", "type": "int"}'))
    rows = [b'{"x": %s, "a": 1}' % (b"[" * n + b"]" * n) for n in (199, 200, 100_000)]
    rows += [b'{"x": "%s\\"%s", "a": 1}' % (b"[" * 300, b"{" * 300), b"[" * 100_000]
    decoded = decode(node, rows)
    assert decoded.bad.tolist() == [False, True, True, False, True]
    assert decoded.reasons[1] == "the value has more than 200 objects and arrays inside each other"


def test_the_depth_of_a_long_document_is_found_quickly() -> None:
    """A string that does not end, of a million escapes, is read once."""
    row = b"[" * 201 + b'"' + b'\\"' * 500_000
    for ending in (b"", b"\\"):
        assert JsonDecoder(parse_schema("int")).decode(array_of([row + ending])).bad.tolist() == [True]


def test_defaults_inside_each_other_are_prepared_once() -> None:
    """Records with defaults, 40 of them inside each other."""
    schema = '{"type": "record", "name": "R0", "fields": []}'
    for level in range(1, 41):
        schema = (
            f'{{"type": "record", "name": "R{level}", "fields": [{{"name": "a", "default": {{}}, "type": {schema}}}]}}'
        )
    decoded = decode(parse_schema(schema), [b"{}"])
    assert str(decoded.values.to_pylist()[0]).count("a") == 40


def test_documents_of_different_rows_are_not_joined() -> None:
    """A document that ends in the next row is bad, also if another row has two of them."""
    node = parse_schema(record('{"name": "a", "type": {"type": "array", "items": "int"}}'))
    decoded = decode(node, [b'{"a": [1', b"2]}", b'{"a": []}, {"a": []}', b'{"a": []}\n{"a": []}', b'{"a": [3]}'])
    assert decoded.bad.tolist() == [True, True, True, True, False]
    assert decoded.values.to_pylist()[4] == {"a": [3]}


def test_batches_of_many_rows_are_decoded_in_order() -> None:
    """Rows, bad rows and their reasons keep their numbers beyond one block."""
    rows: list[bytes | None] = [str(n).encode() for n in range(20_000)]
    rows[9000], rows[19_999] = b"x", None
    decoded = JsonDecoder(parse_schema("int")).decode(array_of(rows))
    assert decoded.values.to_pylist() == [None if n in (9000, 19_999) else n for n in range(20_000)]
    assert list(decoded.reasons) == [9000]
    assert JsonDecoder(parse_schema("int")).decode(array_of([])).values.to_pylist() == []


def test_fields_that_may_not_be_null_have_no_nulls_below_a_null_record() -> None:
    """Writers that refuse nulls in such a column can write what was decoded."""
    inner = '{"type": "record", "name": "I", "fields": [{"name": "n", "type": "int"}, {"name": "s", "type": "string"}]}'
    decoded = decode(parse_schema(record(f'{{"name": "a", "type": ["null", {inner}]}}')), [b"{}", b"?", None])
    column: Any = decoded.values
    assert column.field(0).null_count == 3
    assert [column.field(0).field(n).null_count for n in (0, 1)] == [0, 0]


def test_schemas_without_columns_are_refused() -> None:
    """A recursive schema and a default of another type."""
    with pytest.raises(ConfigurationError, match="recursive"):
        JsonDecoder(parse_schema(record('{"name": "a", "type": ["null", "R"]}')))
    with pytest.raises(ConfigurationError, match="default of field 'a' does not fit its type: the value is a string"):
        JsonDecoder(parse_schema(record('{"name": "a", "type": "int", "default": "x"}')))


def test_nothing_imports_pandas() -> None:
    """Decoding does not load pandas into a worker."""
    code = (
        "import sys, pyarrow as pa\n"
        "from airflow_provider_kafka_s3.arrays import binary_array\n"
        "from airflow_provider_kafka_s3.converters.connect_json import split_envelopes\n"
        "from airflow_provider_kafka_s3.converters.json_decode import JsonDecoder\n"
        "from airflow_provider_kafka_s3.schemas.avro import parse_schema\n"
        'rows = split_envelopes(binary_array([b\'{"schema": {}, "payload": 1.5}\'] * 9000, large=False)).payloads\n'
        "print(JsonDecoder(parse_schema('double')).decode(rows).values[8999].as_py())\n"
        "assert 'pandas' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("1.5\n", "")
