"""JSON of Arrow values: the documents that Kafka Connect writes, whatever the batches."""

from __future__ import annotations

import base64
import io
import json
import math
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_kafka_s3.formats.json_values import encode_json

ALL_TYPES = [
    pa.null(),
    pa.bool_(),
    pa.int32(),
    pa.int64(),
    pa.float32(),
    pa.float64(),
    pa.string(),
    pa.binary(),
    pa.binary(12),
    pa.date32(),
    pa.time32("ms"),
    pa.time64("us"),
    pa.timestamp("ms", "UTC"),
    pa.timestamp("us"),
    pa.decimal128(10, 2),
    pa.decimal128(38, 18),
    pa.decimal256(50, 0),
    pa.list_(pa.string()),
    pa.map_(pa.string(), pa.float64()),
    pa.map_(pa.int32(), pa.string()),
    pa.struct([("a", pa.int64()), ("b", pa.string())]),
    pa.struct([]),
]


def texts(values: pa.Array, **options: Any) -> list[str]:
    """The documents of an array."""
    documents = encode_json(values, **options)
    documents.validate(full=True)
    assert documents.type == pa.large_binary()
    assert documents.null_count == 0
    return [document.decode() for document in documents.to_pylist()]


def one(value: Any, kind: pa.DataType, **options: Any) -> str:
    """The document of one value, which is the same between nulls and other values."""
    values = pa.array([value, None, value, value], kind)
    first, null, *others = texts(values, **options)
    assert null == "null"
    assert others == [first, first]
    assert texts(values.slice(2), **options) == others
    assert texts(values[:1], **options) == [first]
    return first


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        (True, pa.bool_(), "true"),
        (False, pa.bool_(), "false"),
        (-(2**31), pa.int32(), "-2147483648"),
        (2**63 - 1, pa.int64(), "9223372036854775807"),
        (-(2**63), pa.int64(), "-9223372036854775808"),
        (20_000, pa.date32(), "20000"),
        (86_399_999, pa.time32("ms"), "86399999"),
        (86_399_999_999, pa.time64("us"), "86399999999"),
        (1_700_000_000_123, pa.timestamp("ms", "UTC"), "1700000000123"),
        (-1, pa.timestamp("us"), "-1"),
        (2**63 - 1, pa.timestamp("us", "UTC"), "9223372036854775807"),
    ],
)
def test_integers_dates_and_times_are_integers_of_their_unit(value: int, kind: pa.DataType, expected: str) -> None:
    """Connect writes what is stored, without a zone."""
    assert one(value, kind) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1.0, "1.0"),
        (-0.0, "-0.0"),
        (0.0, "0.0"),
        (0.1, "0.1"),
        (-2.5, "-2.5"),
        (9_999_999_999.0, "9999999999.0"),
        (1e10, "1e+10"),
        (12_345_678_901.0, "1.2345678901e+10"),
        (2.0**53, "9.007199254740992e+15"),
        (1e-5, "0.00001"),
        (1e-7, "1e-7"),
        (5e-324, "5e-324"),
        (1.7976931348623157e308, "1.7976931348623157e+308"),
        (math.nan, '"NaN"'),
        (-math.nan, '"NaN"'),
        (math.inf, '"Infinity"'),
        (-math.inf, '"-Infinity"'),
    ],
)
def test_doubles_are_shortest_numbers_of_floating_point(value: float, expected: str) -> None:
    """A reader takes none for an integer; what JSON has no number for is a string, as Jackson writes it."""
    assert one(value, pa.float64()) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.1, "0.1"),
        (16_777_216.0, "16777216.0"),
        (-0.0, "-0.0"),
        (3.4028234663852886e38, "3.4028235e+38"),
        (1e-45, "1e-45"),
        (math.inf, '"Infinity"'),
        (math.nan, '"NaN"'),
    ],
)
def test_floats_are_shortest_for_32_bits(value: float, expected: str) -> None:
    """Not the longer text of the equal double."""
    assert one(value, pa.float32()) == expected


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
def test_floating_point_of_any_size_is_not_read_as_integer(kind: pa.DataType) -> None:
    """Powers of ten, up and down, with a fraction or an exponent; read back, they are the same."""
    values = pa.array([sign * float(f"1e{power}") for power in range(-37, 38) for sign in (1, -1)], kind)
    documents = texts(values)
    assert all("." in text or "e" in text for text in documents)
    assert pa.array([json.loads(text) for text in documents], kind).equals(values)


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_strings_are_escaped_as_little_as_possible(kind: pa.DataType) -> None:
    """Control characters, quotes and backslashes; DEL, U+2028 and emoji are written as they are."""
    assert one("", kind) == '""'
    assert one('a"b\\n', kind) == r'"a\"b\\n"'
    assert one("\b\t\n\f\r", kind) == r'"\b\t\n\f\r"'
    assert one("\x00\x1f\x0b", kind) == r'"\u0000\u001F\u000B"'
    assert one("é日本😀\x7f\u2028/", kind) == '"é日本😀\x7f\u2028/"'
    everything = "".join(map(chr, range(256)))
    assert json.loads(one(everything, kind)) == everything


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()])
def test_bytes_are_base64(kind: pa.DataType) -> None:
    """With padding, for each length."""
    assert one(b"", kind) == '""'
    for size in range(10):
        value = bytes(range(250, 256)) * 2
        assert one(value[:size], kind) == f'"{base64.b64encode(value[:size]).decode()}"'


def test_bytes_of_fixed_length_are_base64() -> None:
    """Also those of no length."""
    assert one(b"\xfb\xff\x00\x01", pa.binary(4)) == '"+/8AAQ=="'
    assert one(b"", pa.binary(0)) == '""'


@pytest.mark.parametrize("kind", [pa.decimal128(38, 2), pa.decimal256(76, 2)])
@pytest.mark.parametrize(
    ("unscaled", "expected"),
    [
        (0, b"\x00"),
        (-1, b"\xff"),
        (127, b"\x7f"),
        (128, b"\x00\x80"),
        (-128, b"\x80"),
        (-129, b"\xff\x7f"),
        (2**63 - 1, b"\x7f" + b"\xff" * 7),
        (2**63, b"\x00\x80" + b"\x00" * 7),
        (-(2**63), b"\x80" + b"\x00" * 7),
        (-(2**63) - 1, b"\xff\x7f" + b"\xff" * 7),
        (2**64, b"\x01" + b"\x00" * 8),
    ],
)
def test_decimals_are_base64_of_as_few_bytes_as_possible(unscaled: int, expected: bytes, kind: pa.DataType) -> None:
    """Those of Java's BigInteger.toByteArray, also beyond 64 bits and beside smaller values."""
    text = f'"{base64.b64encode(expected).decode()}"'
    assert one(Decimal(f"{unscaled}e-2"), kind) == text
    values = [Decimal(f"{unscaled}e-2"), Decimal(10) ** 30, Decimal("-0.01")]
    assert texts(pa.array(values, kind)) == [text, texts(pa.array([values[1]], kind))[0], '"/w=="']


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        ("1.50", pa.decimal128(10, 2), "1.50"),
        ("-0.01", pa.decimal128(10, 2), "-0.01"),
        ("0", pa.decimal128(10, 2), "0.00"),
        ("-7", pa.decimal128(10, 0), "-7"),
        ("1", pa.decimal128(38, 6), "1.000000"),
        ("0.000001", pa.decimal128(38, 6), "0.000001"),
        ("0", pa.decimal128(38, 18), "0.000000000000000000"),
        ("-1e-18", pa.decimal128(38, 18), "-0.000000000000000001"),
        ("12345678901234567890.5", pa.decimal128(38, 18), "12345678901234567890.500000000000000000"),
        ("-" + "9" * 38, pa.decimal128(38, 0), "-" + "9" * 38),
        ("0." + "9" * 76, pa.decimal256(76, 76), "0." + "9" * 76),
    ],
)
def test_numeric_decimals_keep_their_scale(value: str, kind: pa.DataType, expected: str) -> None:
    """All digits, without an exponent."""
    assert one(Decimal(value), kind, decimal_format="NUMERIC") == expected


def test_structs_are_objects_with_all_fields() -> None:
    """In the order of the type; names are escaped."""
    kind = pa.struct([("z", pa.int64()), ('a"\n', pa.string()), ("é", pa.struct([("n", pa.null())]))])
    assert one({"z": 1, 'a"\n': "x", "é": {}}, kind) == r'{"z":1,"a\"\n":"x","é":{"n":null}}'
    assert one({}, kind) == r'{"z":null,"a\"\n":null,"é":null}'
    assert one({}, pa.struct([])) == "{}"


def test_maps_are_objects() -> None:
    """In the order of the entries; keys are escaped, and null values written."""
    kind = pa.map_(pa.string(), pa.int64())
    assert one([("b", 1), ('"', None), ("", 3)], kind) == r'{"b":1,"\"":null,"":3}'
    assert one([], kind) == "{}"
    assert one([(2, "b"), (1, None)], pa.map_(pa.int32(), pa.string())) == '[[2,"b"],[1,null]]'
    assert one([], pa.map_(pa.int32(), pa.string())) == "[]"


def test_lists_are_arrays() -> None:
    """Of anything, also of empty and null lists, and of nulls alone."""
    assert one([1, None, 3], pa.list_(pa.int64())) == "[1,null,3]"
    assert one(["a", "", None], pa.list_(pa.string())) == '["a","",null]'
    assert one([], pa.list_(pa.string())) == "[]"
    assert one([[], None, [[b"\x00"]]], pa.list_(pa.list_(pa.list_(pa.binary())))) == '[[],null,[["AA=="]]]'
    assert one([None, None], pa.list_(pa.null())) == "[null,null]"
    assert one([{}, None], pa.list_(pa.struct([]))) == "[{},null]"
    assert one([[("k", [])], []], pa.list_(pa.map_(pa.string(), pa.list_(pa.bool_())))) == '[{"k":[]},{}]'


def test_a_null_struct_is_null_whatever_its_fields_contain() -> None:
    """Readers may leave values below nulls."""
    fields = [pa.array([1, 2, 3]), pa.array(["a", "b", "c"]), pa.array([[1], [2], []])]
    inner = pa.StructArray.from_arrays(fields, names=["a", "b", "c"], mask=pa.array([False, True, False]))
    outer = pa.StructArray.from_arrays([inner], names=["s"], mask=pa.array([False, False, True]))
    assert texts(outer) == ['{"s":{"a":1,"b":"a","c":[1]}}', '{"s":null}', "null"]
    assert texts(outer.slice(1)) == ['{"s":null}', "null"]


def test_a_null_list_is_null_whatever_its_bounds_are() -> None:
    """Its items are not written into its neighbours."""
    values = pa.ListArray.from_arrays([0, 1, 3, 3, 4], pa.array(["a", "b", "c", "d"]), mask=pa.array([False, True] * 2))
    assert texts(values) == ['["a"]', "null", "[]", "null"]


@pytest.mark.parametrize("kind", ALL_TYPES, ids=str)
@pytest.mark.parametrize("decimal_format", ["BASE64", "NUMERIC"])
def test_there_may_be_no_rows_and_no_values(kind: pa.DataType, decimal_format: str) -> None:
    """Empty arrays, empty slices, nulls alone; also as fields and items."""
    for nested in (kind, pa.struct([("f", kind)]), pa.list_(kind), pa.map_(pa.string(), kind)):
        assert texts(pa.array([], nested), decimal_format=decimal_format) == []
        nulls = pa.array([None, None, None], nested)
        assert texts(nulls, decimal_format=decimal_format) == ["null"] * 3
        assert texts(nulls.slice(1, 1), decimal_format=decimal_format) == ["null"]
        assert texts(nulls.slice(2, 0), decimal_format=decimal_format) == []
    assert texts(pa.array([[None]], pa.list_(kind)), decimal_format=decimal_format) == ["[null]"]


@pytest.mark.parametrize(
    "kind",
    [
        pa.float16(),
        pa.date64(),
        pa.duration("s"),
        pa.dictionary(pa.int32(), pa.string()),
        pa.list_(pa.int64(), 2),
    ],
    ids=str,
)
def test_other_types_are_refused(kind: pa.DataType) -> None:
    """Also before there are values of them."""
    for values in (pa.array([], kind), pa.array([], pa.list_(pa.struct([("f", kind)])))):
        with pytest.raises(TypeError, match=r"Arrow type .* cannot be encoded as JSON"):
            encode_json(values)


def test_values_of_a_megabyte_are_written() -> None:
    """With escapes, on either side of small ones."""
    big = "x\n" * 2**19
    assert texts(pa.array([["a"], [big, big], ["b"]])) == [
        '["a"]',
        json.dumps([big, big], separators=(",", ":")),
        '["b"]',
    ]


SCRIPT = """
import sys
import pyarrow as pa
from airflow_provider_kafka_s3.formats.json_values import encode_json
for batch in pa.ipc.open_stream(sys.stdin.buffer):
    for column in batch.columns:
        for decimal_format in ("BASE64", "NUMERIC"):
            encode_json(column, decimal_format=decimal_format)
            encode_json(column.slice(1), decimal_format=decimal_format)
print("pandas" in sys.modules)
"""


def test_encoding_does_not_import_pandas() -> None:
    """It would need a second and 50 MB in each Python worker."""
    values = {pa.float64(): math.nan, pa.string(): '"', pa.binary(): b"a", pa.decimal128(38, 18): Decimal(1)}
    columns = [pa.array([values.get(kind), None, values.get(kind)], kind) for kind in ALL_TYPES]
    batch = pa.RecordBatch.from_arrays(columns, names=list(map(str, range(len(columns)))))
    stream = io.BytesIO()
    with pa.ipc.new_stream(stream, batch.schema) as writer:
        writer.write_batch(batch)
    done = subprocess.run([sys.executable, "-c", SCRIPT], input=stream.getvalue(), capture_output=True, check=False)
    assert (done.stdout.decode(), done.stderr.decode()) == ("False\n", "")


# Arrays of any type, and a reference that writes one value after the other.


def _decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    bound = 10**precision - 1
    return st.integers(-bound, bound).map(lambda unscaled: Decimal(f"{unscaled}e-{scale}"))


def _int64s() -> st.SearchStrategy[int]:
    return st.integers(-(2**63), 2**63 - 1)


LEAVES: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.null(), st.none()),
    (pa.bool_(), st.booleans()),
    (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    (pa.int64(), _int64s()),
    (pa.float32(), st.floats(width=32) | st.integers(-(2**24), 2**24).map(float)),
    (pa.float64(), st.floats() | st.integers(-(2**53), 2**53).map(float)),
    (pa.string(), st.text(max_size=8) | st.text(alphabet='ab"\\\n\x00', max_size=8)),
    (pa.binary(), st.binary(max_size=8)),
    (pa.binary(5), st.binary(min_size=5, max_size=5)),
    (pa.date32(), st.integers(-(2**31), 2**31 - 1)),
    (pa.time32("ms"), st.integers(0, 86_399_999)),
    (pa.time64("us"), st.integers(0, 86_399_999_999)),
    (pa.timestamp("ms", "UTC"), _int64s()),
    (pa.timestamp("us"), _int64s()),
    (pa.decimal128(9, 2), _decimals(9, 2)),
    (pa.decimal128(38, 18), _decimals(38, 18) | _decimals(5, 18)),
    (pa.decimal256(60, 0), _decimals(60, 0)),
]
MakeArray = Callable[[int], st.SearchStrategy[pa.Array]]


def _leaf(kind: pa.DataType, values: st.SearchStrategy[Any]) -> MakeArray:
    return lambda rows: st.lists(st.none() | values, min_size=rows, max_size=rows).map(
        lambda items: pa.array(items, kind)
    )


def _masks(rows: int) -> st.SearchStrategy[pa.Array | None]:
    return st.none() | st.lists(st.booleans(), min_size=rows, max_size=rows).map(
        lambda mask: pa.array(mask, pa.bool_())
    )


def _struct(fields: list[MakeArray]) -> MakeArray:
    names = [f"f{index}" for index in range(len(fields))]
    return lambda rows: st.builds(
        lambda mask, *arrays: pa.StructArray.from_arrays(arrays, names=names, mask=mask),
        _masks(rows),
        *(field(rows) for field in fields),
    )


def _list(item: MakeArray) -> MakeArray:
    @st.composite
    def arrays(draw: Any, rows: int) -> pa.Array:
        sizes = draw(st.lists(st.integers(0, 3), min_size=rows, max_size=rows))
        bounds = pa.array(np.cumsum([0, *sizes]), pa.int32())
        return pa.ListArray.from_arrays(bounds, draw(item(sum(sizes))), mask=draw(_masks(rows)))

    return arrays


def _map(item: MakeArray) -> MakeArray:
    @st.composite
    def arrays(draw: Any, rows: int) -> pa.Array:
        sizes = draw(st.lists(st.integers(0, 3), min_size=rows, max_size=rows))
        bounds = pa.array(np.cumsum([0, *sizes]), pa.int32())
        keys = draw(st.lists(st.text(max_size=4), min_size=sum(sizes), max_size=sum(sizes)))
        entries = pa.array(keys, pa.string()), draw(item(sum(sizes)))
        return pa.MapArray.from_arrays(bounds, *entries, mask=draw(_masks(rows)))

    return arrays


def _makers() -> st.SearchStrategy[MakeArray]:
    leaves = st.sampled_from(LEAVES).map(lambda leaf: _leaf(*leaf))
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.lists(inner, min_size=1, max_size=4).map(_struct), inner.map(_list), inner.map(_map)
        ),
        max_leaves=6,
    )


@st.composite
def any_arrays(draw: Any) -> pa.Array:
    """Arrays of nested types, with values below nulls, as slices of larger ones."""
    make = draw(_makers())
    rows = draw(st.integers(0, 12))
    before, after = draw(st.integers(0, rows)), draw(st.integers(0, rows))
    return draw(make(rows)).slice(min(before, after), abs(before - after))


def _string(text: str) -> str:
    short = {'"': r"\"", "\\": r"\\", "\b": r"\b", "\t": r"\t", "\n": r"\n", "\f": r"\f", "\r": r"\r"}
    return '"' + "".join(short.get(c, f"\\u{ord(c):04X}" if c < " " else c) for c in text) + '"'


def _float(value: float, kind: pa.DataType) -> str:
    if math.isnan(value):
        return '"NaN"'
    if math.isinf(value):
        return '"Infinity"' if value > 0 else '"-Infinity"'
    return str(np.float32(value)) if kind == pa.float32() else repr(value)


def _decimal(value: Decimal, decimal_format: str) -> str:
    if decimal_format == "NUMERIC":
        return f"{value:f}"
    sign, digits, _scale = value.as_tuple()
    unscaled = int("".join(map(str, digits))) * (-1 if sign else 1)
    size = next(n for n in range(1, 33) if -(2 ** (8 * n - 1)) <= unscaled < 2 ** (8 * n - 1))
    return f'"{base64.b64encode(unscaled.to_bytes(size, "big", signed=True)).decode()}"'


def reference(scalar: Any, decimal_format: str) -> str:
    """The document of one value, by its Python objects."""
    kind = scalar.type
    types = pa.types
    if not scalar.is_valid:
        return "null"
    if types.is_struct(kind):
        fields = (f"{_string(field.name)}:{reference(scalar[field.name], decimal_format)}" for field in kind)
        return "{" + ",".join(fields) + "}"
    if types.is_map(kind):
        entries = (scalar.values[row] for row in range(len(scalar.values)))
        return "{" + ",".join(f"{_string(e[0].as_py())}:{reference(e[1], decimal_format)}" for e in entries) + "}"
    if types.is_list(kind):
        return "[" + ",".join(reference(item, decimal_format) for item in scalar.values) + "]"
    if types.is_temporal(kind):
        return str(scalar.value)
    value = scalar.as_py()
    if types.is_string(kind):
        return _string(value)
    if types.is_binary(kind) or types.is_fixed_size_binary(kind):
        return f'"{base64.b64encode(value).decode()}"'
    if types.is_decimal(kind):
        return _decimal(value, decimal_format)
    if types.is_floating(kind):
        return _float(value, kind)
    return {True: "true", False: "false"}[value] if types.is_boolean(kind) else str(value)


def parsed(text: str) -> Any:
    """A document with all its pairs in their order, and the digits of its numbers."""
    return json.loads(text, object_pairs_hook=tuple, parse_float=Decimal, parse_int=lambda digits: ("int", int(digits)))


def has_floats(kind: pa.DataType) -> bool:
    """Whether the type or one nested in it is floating point."""
    return pa.types.is_floating(kind) or any(has_floats(kind.field(index).type) for index in range(kind.num_fields))


@settings(max_examples=100)
@given(any_arrays(), st.sampled_from(["BASE64", "NUMERIC"]))
def test_documents_are_those_of_one_value_after_the_other(values: pa.Array, decimal_format: str) -> None:
    """Same bytes, but for the notation of exponents: there the digits are the same."""
    documents = texts(values, decimal_format=decimal_format)
    expected = [reference(scalar, decimal_format) for scalar in values]
    assert [parsed(text) for text in documents] == [parsed(text) for text in expected]
    if not has_floats(values.type):
        assert documents == expected


@settings(max_examples=50)
@given(any_arrays(), st.data())
def test_documents_do_not_depend_on_batches(values: pa.Array, data: st.DataObject) -> None:
    """Any split into slices, and a copy without offsets, gives the same documents."""
    cuts = sorted(data.draw(st.lists(st.integers(0, len(values)), max_size=3)))
    slices = [values.slice(a, b - a) for a, b in zip([0, *cuts], [*cuts, len(values)], strict=True)]
    documents = texts(values)
    assert [text for part in slices for text in texts(part)] == documents
    assert texts(pa.concat_arrays([values, values])) == documents * 2


@pytest.mark.parametrize(("kind", "bits"), [(pa.float32(), "<i4"), (pa.float64(), "<i8")], ids=str)
def test_floats_are_read_back_as_they_were(kind: pa.DataType, bits: str) -> None:
    """Whatever their bits are."""
    random = np.random.default_rng(1).integers(-(2**63), 2**63 - 1, 2000, np.int64)
    values = pa.array(random.astype(bits)).view(kind)
    read = np.array([json.loads(text) for text in texts(values)], values.to_numpy().dtype)
    np.testing.assert_array_equal(read, values.to_numpy())
