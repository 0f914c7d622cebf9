"""Fields of values: of JSON documents, of decoded records and maps, of keys."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_kafka_s3.arrays import join
from airflow_provider_kafka_s3.converters.field_values import (
    Day,
    DocumentFields,
    FieldValues,
    Fraction,
    Moment,
    Unusable,
    key_values,
    typed_field,
)
from airflow_provider_kafka_s3.converters.json_grammar import are_lines
from airflow_provider_kafka_s3.schemas.arrow_types import arrow_type
from airflow_provider_kafka_s3.schemas.avro import parse_schema
from dev.spark_cluster import WORKER_PYTHON

ROOT = Path(__file__).resolve().parents[3]


def seen(field: FieldValues) -> list[Any]:
    """The value of each record."""
    return [field.values[code] for code in field.codes.tolist()]


def reasons(field: FieldValues) -> list[Any]:
    """The same, with reasons as text."""
    return [value.reason if isinstance(value, Unusable) else value for value in seen(field)]


def documents(texts: list[str | None], *names: str, large: bool = False) -> list[list[Any]]:
    """The fields of JSON documents."""
    values = pa.array([None if t is None else t.encode() for t in texts], pa.large_binary() if large else pa.binary())
    return [reasons(field) for field in DocumentFields([name.split(".") for name in names]).read(values)]


@pytest.mark.parametrize(
    ("document", "value"),
    [
        ('{"a":"x"}', "x"),
        ('{"a":""}', ""),
        ('{"a":"\\u00e9\\n"}', "é\n"),
        ('{"\\u0061":1}', 1),
        ('{"b":{"a":2},"a":1}', 1),
        ('{"a":1,"a":2}', 2),
        ('{"a":-0}', 0),
        ('{"a":18446744073709551616}', 18446744073709551616),
        ('{"a":true}', True),
        ('{"a":null}', None),
        ('{\n "a" : 1\n}', 1),
        ('{"a":1.0}', Fraction("1.0")),
        ('{"a":1e2}', Fraction("1e2")),
        ('{"a":[1]}', "is a record, a map or a list"),
        ('{"a":{}}', "is a record, a map or a list"),
        ('{"b":1}', "is not there"),
        ("{}", "is not there"),
        ("[1]", "is inside a value that is no record"),
        ("1", "is inside a value that is no record"),
        ('{"a":"\\ud800"}', "is a text with a character that does not exist, or a number out of range"),
    ],
)
def test_a_field_of_a_document(document: str, value: Any) -> None:
    """Alone, and beside documents that are no objects, which are read another way."""
    alone, with_others = documents([document], "a"), documents(["7", document], "a")
    assert alone == [[value]]
    assert with_others[0][1] == value
    assert type(alone[0][0]) is type(value)


def test_nested_fields_of_documents() -> None:
    """A null above is null, a scalar above is no record, and what is not there is not there."""
    texts = [
        '{"u":{"a":{"c":"NYC"}}}',
        '{"u":{"a":{"c":null}}}',
        '{"u":{"a":null}}',
        '{"u":null}',
        '{"u":{"a":{}}}',
        '{"u":{}}',
        "{}",
        '{"u":3}',
        '{"u":{"a":[1]}}',
        None,
    ]
    missing, no_record = "is not there", "is inside a value that is no record"
    expected = ["NYC", None, None, None, missing, missing, missing, no_record, no_record, None]
    assert documents(texts, "u.a.c") == [expected]
    assert documents(texts, "u.a.c", large=True) == [expected]


def test_a_field_and_one_inside_it_may_both_be_wanted() -> None:
    """Each is read on its own."""
    assert documents(['{"u":{"a":1}}', '{"u":2}'], "u", "u.a", "b") == [
        ["is a record, a map or a list", 2],
        [1, "is inside a value that is no record"],
        ["is not there", "is not there"],
    ]


@pytest.mark.parametrize("name", ['a"b', "a\\b", "a\nb", "\x01", "", "é", "\x7f"])
def test_fields_may_have_any_name(name: str) -> None:
    """Quotes, backslashes and control characters too, which no field of a struct may have; nested, and as lines."""
    texts = [json.dumps({name: {name: "x"}, "c": 1}), json.dumps({name: 2}), "{}"]
    values = pa.array([text.encode() for text in texts], pa.binary())
    fields = DocumentFields([[name], [name, name], ["c"]])
    expected = [
        ["is a record, a map or a list", 2, "is not there"],
        ["x", "is inside a value that is no record", "is not there"],
        [1, "is not there", "is not there"],
    ]
    assert [reasons(field) for field in fields.read(values)] == expected
    in_lines = fields.read_lines(values, join(values, b"\n"))
    assert in_lines is not None
    assert [reasons(field) for field in in_lines] == expected


VALUES = st.none() | st.booleans() | st.integers() | st.text() | st.lists(st.integers())


@given(st.lists(st.dictionaries(st.sampled_from("abc"), VALUES, max_size=3), max_size=8))
def test_documents_have_the_fields_that_json_has(values: list[dict[str, Any]]) -> None:
    """As the standard library decodes them."""
    texts = [json.dumps(value, ensure_ascii=False).encode("utf-8", "replace") for value in values]
    (field,) = DocumentFields([["a"]]).read(pa.array(texts, pa.binary()))
    for found, text in zip(reasons(field), texts, strict=True):
        value = json.loads(text).get("a", "is not there")
        assert found == ("is a record, a map or a list" if isinstance(value, list) else value)


MEMBERS = st.one_of(
    *(st.just(text) for text in ('"u":null', '"u":3', '"u":{}', '"u":[]', '"\\u0075":{"a":"z"}', '"b":"\\ud800"')),
    st.builds('"u":{{"a":{}}}'.format, st.sampled_from(['"x"', '""', "null", "1", "1.0", "true", '{"a":"x"}', '"é"'])),
    st.builds('"b":{}'.format, st.sampled_from(['"x"', '"\\u0078"', "null", "1", "1.0", "[1]", "1e400", "tru", "01"])),
)
DOCUMENTS = st.lists(MEMBERS, max_size=3).map(lambda members: "{" + ",".join(members) + "}") | st.sampled_from(
    ["7", "[]", "null", "", "{", "}", '{"b":"\n"}', '{\n"b":"x"}', '{"b":', '"x"}', "{}{}", '{"c":{"a":01}}', "\ud800"]
)


@given(st.lists(DOCUMENTS, min_size=1, max_size=6))
def test_reading_lines_checks_them_and_finds_the_same_fields(texts: list[str]) -> None:
    """What is read while the grammar is checked is valid, and has the fields that are read from valid documents."""
    values = pa.array([text.encode("utf-8", "surrogatepass") for text in texts], pa.binary())
    for names in (["b"], ["u.a"], ["u.a", "b"], ["u", "u.a"]):
        fields, frames = DocumentFields([name.split(".") for name in names]), join(values, b"\n")
        for _ in range(2):  # the second time as further records of the same topic
            found = fields.read_lines(values, frames)
            if found is None:
                assert not are_lines(values, frames) or not all(text.startswith("{") for text in texts)
            else:
                assert are_lines(values, frames)
                assert [reasons(field) for field in found] == [reasons(field) for field in fields.read(values)]


def inner(name: str, field: str, kind: str) -> dict[str, Any]:
    """A record of one field."""
    return {"type": "record", "name": name, "fields": [{"name": field, "type": kind}]}


TEXT = json.dumps(
    {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "s", "type": "string"},
            {"name": "i", "type": ["null", "long"]},
            {"name": "b", "type": "boolean"},
            {"name": "d", "type": "double"},
            {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["X", "Y"]}},
            {"name": "t", "type": {"type": "long", "logicalType": "timestamp-micros"}},
            {"name": "day", "type": {"type": "int", "logicalType": "date"}},
            {"name": "money", "type": {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}},
            {"name": "raw", "type": "bytes"},
            {"name": "list", "type": {"type": "array", "items": "int"}},
            {"name": "m", "type": ["null", {"type": "map", "values": ["null", "string"]}]},
            {
                "name": "u",
                "type": [
                    "null",
                    "string",
                    "int",
                    inner("N", "x", "int"),
                ],
            },
            {
                "name": "n",
                "type": ["null", inner("I", "s", "string")],
            },
        ],
    }
)
SCHEMA = parse_schema(TEXT)
PLAIN: dict[str, Any] = {
    "s": "x",
    "b": True,
    "d": 1.5,
    "e": "X",
    "t": 1,
    "day": 17227,
    "money": Decimal("1.50"),
    "raw": b"",
    "list": [],
}
ROWS = [
    {**PLAIN, "i": 5, "m": [("k", "v"), ("k", "w")], "u": {"string": "a", "int": None, "N": None}, "n": {"s": "in"}},
    {**PLAIN, "s": "y", "i": None, "b": False, "m": None, "u": None, "n": None, "e": "Y"},
    {**PLAIN, "i": 7, "m": [("j", "v")], "u": {"string": None, "int": 3, "N": None}, "n": {"s": "x"}},
    {**PLAIN, "i": 7, "m": [("k", None)], "u": {"string": None, "int": None, "N": {"x": 9}}, "n": {"s": "in"}},
]
NOT_SCALAR = "is a record, a map or a list"


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("s", ["x", "y", "x", "x"]),
        ("i", [5, None, 7, 7]),
        ("b", [True, False, True, True]),
        ("d", ["is a floating-point number"] * 4),
        ("e", ["X", "Y", "X", "X"]),
        ("t", [Moment(1, "us")] * 4),
        ("day", [Day(17227)] * 4),
        ("money", [Decimal("1.50")] * 4),
        ("raw", ["is of the type binary"] * 4),
        ("list", [NOT_SCALAR] * 4),
        ("list.x", ["is inside a value that is no record"] * 4),
        ("m", [NOT_SCALAR, None, NOT_SCALAR, NOT_SCALAR]),
        ("m.k", ["w", None, "is not there", None]),
        ("m.zz", ["is not there", None, "is not there", "is not there"]),
        ("m.k.x", ["is inside a value that is no record", None, "is not there", None]),
        ("u", ["a", None, 3, NOT_SCALAR]),
        ("u.x", ["is inside a value that is no record", None, "is inside a value that is no record", 9]),
        ("n", [NOT_SCALAR, None, NOT_SCALAR, NOT_SCALAR]),
        ("n.s", ["in", None, "x", "in"]),
        ("n.zz", ["is not there", None, "is not there", "is not there"]),
        ("s.x", ["is inside a value that is no record"] * 4),
        ("zz", ["is not there"] * 4),
    ],
)
def test_a_field_of_decoded_values(name: str, values: list[Any]) -> None:
    """Of records, maps and unions; the same for any part of an array."""
    array = pa.array(ROWS, arrow_type(SCHEMA))
    assert reasons(typed_field(array, SCHEMA, name.split("."))) == values
    for start in range(4):
        for stop in range(start, 5):
            part = typed_field(array.slice(start, stop - start), SCHEMA, name.split("."))
            assert reasons(part) == values[start:stop]


FIELDS_IN_A_WORKER = """
import sys
import pyarrow as pa
from airflow_provider_kafka_s3.arrays import join
from airflow_provider_kafka_s3.converters.field_values import DocumentFields, key_values, typed_field
from airflow_provider_kafka_s3.schemas.avro import parse_schema

node = parse_schema(sys.argv[1])
for batch in pa.ipc.open_stream(sys.stdin.buffer):
    for field in node.fields:
        typed_field(batch.column("typed"), node, [field.name, "k"] if field.name == "m" else [field.name])
    documents = DocumentFields([["a"], ["b", "c"]])
    documents.read(batch.column("document"))
    documents.read_lines(batch.column("document").drop_null(), join(batch.column("document").drop_null(), b"\\n"))
    key_values(batch.column("document"))
print("pandas" in sys.modules)
"""


def test_nothing_imports_pandas() -> None:
    """Reading fields does not load pandas into a worker, whatever their types."""
    texts = pa.array([b'{"a":1}', b"{}", None, b'{"b":{"c":"x"}}'], pa.binary())
    batch = pa.RecordBatch.from_pydict({"typed": pa.array(ROWS, arrow_type(SCHEMA)), "document": texts})
    stream = io.BytesIO()
    with pa.ipc.new_stream(stream, batch.schema) as writer:
        writer.write_batch(batch)
    script = [sys.executable, "-c", FIELDS_IN_A_WORKER, TEXT]
    done = subprocess.run(script, input=stream.getvalue(), capture_output=True, check=False)
    assert (done.stdout.decode(), done.stderr.decode()) == ("False\n", "")


READ_BY_ANY_VERSION = """
import sys
from airflow_provider_kafka_s3.arrays import binary_array, join
from airflow_provider_kafka_s3.converters.field_values import DocumentFields

for texts in (
    [b'{"a":"x","u":{"b":"y"}}', b"{}"],
    [b'{"a":1,"u":3}', b"7"],
    [b'{"a":1.0,"u":{"b":3}}', b'{"a":"\\ud800"}'],
):
    values, fields = binary_array(texts, large=False), DocumentFields([["a"], ["u", "b"]])
    for found in (fields.read_lines(values, join(values, b"\\n")), fields.read(values)):
        print(found and [[field.values[code] for code in field.codes.tolist()] for field in found])
"""


def test_the_oldest_libraries_read_the_same() -> None:
    """Those that workers may have: errors and numbers of theirs differ."""
    read = [
        subprocess.run([python, "-c", READ_BY_ANY_VERSION], cwd=ROOT, capture_output=True, check=True, text=True).stdout
        for python in (sys.executable, str(WORKER_PYTHON))
    ]
    assert read[0] == read[1]
    assert len(read[0].splitlines()) == 6


def test_keys_are_texts() -> None:
    """Bytes that are not UTF-8 are kept apart from every text."""
    keys = pa.array([b"a", None, b"\xff", b"a", b"", "é".encode()], pa.binary())
    assert seen(key_values(keys)) == ["a", None, "\udcff", "a", "", "é"]
    assert seen(key_values(keys.slice(2, 2))) == ["\udcff", "a"]


def test_fields_can_be_taken() -> None:
    """In any order, and none."""
    field = FieldValues(np.array([0, 1, 0]), ["x", None])
    assert seen(field.take(np.array([1, 0]))) == [None, "x"]
    assert seen(field.take(np.zeros(0, np.int64))) == []
