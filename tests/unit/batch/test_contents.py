"""Keys, headers and null values: whole records as rows, or keys and headers in objects beside those of values."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path
from typing import Any

import duckdb
import fastavro
import pyarrow.parquet as pq
import pytest

from airflow_provider_kafka_s3.config import (
    AvroContainer,
    AvroConverter,
    BytesConverter,
    Csv,
    Daily,
    Envelope,
    JsonConverter,
    JsonLines,
    Layout,
    Parquet,
    RawBytes,
    Rotation,
    SiblingObjects,
    StringConverter,
    TimePattern,
    parse_content,
)
from airflow_provider_kafka_s3.exceptions import ConfigurationError, RecordError
from airflow_provider_kafka_s3.testing.invariants import InvariantViolation
from tests.unit.batch.simulated_topic import Topic
from tests.unit.batch.test_typed_values import V1, V2, append, datum, order, rows

RECORDS: list[tuple[bytes | None, bytes | None, int, list[tuple[str, bytes | None]]]] = [
    (b"k0", b"v0", 1_767_225_600_000, []),
    (None, b"\xff\x00\n", 1_767_225_600_001, [("trace", b"\x01\xfe")]),
    (b"", b"", -1, [("a", None), ("a", b""), ("b", b"text")]),
    (b"\x80key", None, 1_767_312_000_000, []),
    (None, None, 0, [("only", b"header")]),
]
MORE: list[dict[str, Any]] = [
    {"name": "d", "type": {"type": "bytes", "logicalType": "decimal", "precision": 40, "scale": 2}},
    {"name": "f", "type": {"type": "fixed", "name": "F", "size": 40}},
    {"name": "b", "type": "boolean"},
    {"name": "l", "type": {"type": "array", "items": {"type": "map", "values": "double"}}},
    {"name": "m", "type": {"type": "map", "values": "bytes"}},
    {"name": "n", "type": "null"},
    {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["A"]}},
    {"name": "u", "type": ["int", "string"]},
    {"name": "t", "type": {"type": "int", "logicalType": "time-millis"}},
]
"""Fields of every kind of column, none of which can be null."""
DOCUMENT = {
    "d": "0.01",
    "f": base64.b64encode(bytes(40)).decode(),
    "b": True,
    "l": [{"x": 0.5}],
    "m": {"y": "AA=="},
    "n": None,
    "e": "A",
    "u": 1,
    "t": 5,
}
FORMATS = [JsonLines(on_null="write"), AvroContainer(on_null="write"), Parquet(on_null="write")]


def fill(topic: Topic) -> None:
    """Append records with everything that a record may have."""
    for key, value, timestamp, headers in RECORDS:
        topic.append(value, timestamp=timestamp, key=key, headers=headers)


def restored(key: str, body: bytes) -> list[tuple[Any, ...]]:
    """The records of an object of envelopes, as they were in Kafka."""
    found = []
    for row in rows(key, body):
        in_json = isinstance(row["value"], str) or isinstance(row["key"], str) or ".json" in key
        read: Any = (lambda text: None if text is None else base64.b64decode(text)) if in_json else (lambda data: data)
        headers = [(h["key"], read(h["value"])) for h in row["headers"]]
        timestamp = -1 if row["timestamp"] is None else row["timestamp"]
        found.append(
            (row["topic"], row["partition"], row["offset"], read(row["key"]), read(row["value"]), timestamp, headers)
        )
    return found


@pytest.mark.parametrize("record_format", FORMATS, ids=lambda f: type(f).__name__)
def test_a_record_can_be_restored_from_its_envelope(record_format: Any) -> None:
    """Key, value, headers, place and time, nulls and any bytes included; a rerun gives the same bytes."""
    layout = Layout(topics_dir="lake", format=record_format, value_converter=BytesConverter(), content=Envelope())
    topic, again = Topic(layout), Topic(layout, records_per_poll=7)
    for each in (topic, again):
        fill(each)
    topic.land()
    ((key, body),) = topic.objects().items()
    assert restored(key, body) == [
        ("orders", 0, offset, k, v, t, headers) for offset, (k, v, t, headers) in enumerate(RECORDS)
    ]
    again.land()
    assert again.objects() == topic.objects()
    assert topic.pipeline.land(topic.request("again")).batches == ()
    assert topic.check(lambda key, body: [value for _, _, _, _, value, _, _ in restored(key, body)]) == len(RECORDS)
    with pytest.raises(InvariantViolation, match=r"I1 .*records \[3, 4\] are in no object"):
        topic.check(lambda key, body: [value or b"" for _, _, _, _, value, _, _ in restored(key, body)])


def test_columns_of_an_envelope_have_types() -> None:
    """Keys as text and values as records of a registry become columns of Parquet, with the times of the records."""
    topic = Topic(
        Layout(
            topics_dir="lake",
            format=Parquet(on_null="write"),
            value_converter=AvroConverter(),
            key_converter=StringConverter(),
            content=Envelope(),
        )
    )
    schema_id = topic.registry.register(json.dumps(V1))
    append(topic, schema_id, V1, order(3), key=b"three", timestamp=1_767_225_600_000)
    topic.append(None, key=b"gone", timestamp=1_767_225_600_001)
    topic.land()
    ((_, body),) = topic.objects().items()
    table = pq.read_table(io.BytesIO(body))
    assert [str(field.type) for field in table.schema][:2] == [
        "string",
        "struct<id: int64 not null, customer: string, at: timestamp[ms, tz=UTC] not null>",
    ]
    assert table.column("key").to_pylist() == ["three", "gone"]
    assert [value and value["id"] for value in table.column("value").to_pylist()] == [3, None]
    assert [t.timestamp() for t in table.column("timestamp").to_pylist()] == [1_767_225_600.0, 1_767_225_600.001]


def test_null_values_share_the_object_of_the_schema_before_them() -> None:
    """A null has no schema of its own, so it makes no object of its own, wherever the batches end."""
    layout = Layout(
        topics_dir="lake", format=AvroContainer(on_null="write"), value_converter=AvroConverter(), content=Envelope()
    )
    bodies = []
    for per_poll in (1, 3, 100):
        topic = Topic(layout, records_per_poll=per_poll)
        first, second = (topic.registry.register(json.dumps(schema)) for schema in (V1, V2))
        topic.append(None, key=b"early")
        append(topic, first, V1, order(1), order(2))
        topic.append(None, key=b"gone")
        append(topic, second, V2, order(3, tags=["x"]))
        topic.append(None, None, key=b"gone")
        topic.land()
        bodies.append(topic.objects())
    offsets = [[row["offset"] for row in fastavro.reader(io.BytesIO(body))] for body in bodies[0].values()]
    assert sorted(offsets) == [[0], [1, 2, 3], [4, 5, 6]]
    assert bodies[0] == bodies[1] == bodies[2]


@pytest.mark.parametrize("record_format", FORMATS, ids=lambda f: type(f).__name__)
@pytest.mark.parametrize(
    "converter",
    [BytesConverter(), StringConverter(), JsonConverter(schema=json.dumps(V1 | {"fields": [*V1["fields"], *MORE]}))],
    ids=lambda c: type(c).__name__,
)
def test_keys_and_values_of_one_schema_have_its_type_before_the_first_of_them(
    record_format: Any, converter: Any
) -> None:
    """Nulls are in the same objects as other records, and a topic without keys has a column that fits keys."""
    layout = Layout(
        topics_dir="lake", format=record_format, value_converter=converter, key_converter=converter, content=Envelope()
    )
    value = json.dumps({"id": 1, "at": 5, **{f["name"]: DOCUMENT[f["name"]] for f in MORE}}).encode()
    filled, empty = Topic(layout), Topic(layout, records_per_poll=7)
    for each, some in ((filled, value), (empty, None)):
        each.append(None, None, None, None)
        each.append(some, key=some)
        each.land()
    (with_values,), (without,) = (each.objects().items() for each in (filled, empty))
    assert [row["offset"] for row in rows(*with_values)] == [row["offset"] for row in rows(*without)] == [0, 1, 2, 3, 4]
    assert [(row["key"], row["value"]) for row in rows(*without)] == [(None, None)] * 5
    assert [row["key"] is None for row in rows(*with_values)] == [True] * 4 + [False]
    if isinstance(record_format, Parquet):
        types = [pq.read_schema(io.BytesIO(body)) for _, body in (with_values, without)]
        assert types[0].equals(types[1])


def test_parquet_has_no_column_of_keys_or_values_before_the_first_schema(tmp_path: Path) -> None:
    """So readers of all objects of a topic find one type in each column, and null where it is missing."""
    layout = Layout(
        topics_dir="lake",
        format=Parquet(on_null="write"),
        key_converter=AvroConverter(),
        value_converter=AvroConverter(),
        content=Envelope(),
    )
    topic = Topic(layout)
    first = topic.registry.register(json.dumps(V1))
    key_of = topic.registry.register('"long"')
    topic.append(None, None)
    topic.append(None, key=topic.registry.frame(key_of, datum("long", 7)))
    append(topic, first, V1, order(3))
    topic.land()
    for number, body in enumerate(topic.objects().values()):
        (tmp_path / f"{number}.parquet").write_bytes(body)
    files = [pq.read_schema(file) for file in sorted(tmp_path.iterdir())]
    others = ["headers", "topic", "partition", "offset", "timestamp"]
    assert [file.names for file in files] == [others, ["key", *others], ["key", "value", *others]]
    with duckdb.connect() as database:
        read = database.sql(
            f"SELECT \"offset\", key, value.id FROM read_parquet('{tmp_path}/*', union_by_name = true) ORDER BY 1"
        )
        assert read.fetchall() == [(0, None, None), (1, None, None), (2, 7, None), (3, None, 3)]


def test_json_documents_stand_in_envelopes_as_they_are() -> None:
    """A value that is a JSON document is a part of the line, with all its digits; a key may be one, too."""
    topic = Topic(Layout(topics_dir="lake", format=JsonLines(), key_converter=JsonConverter(), content=Envelope()))
    topic.append(b'{"n": 1.50,\n "big": 12345678901234567890}', key=b'{"id":1}', timestamp=5)
    topic.append(b"[]", key=None, timestamp=-1)
    topic.land()
    ((_, body),) = topic.objects().items()
    place = b',"headers":[],"topic":"orders","partition":0,"offset":%d,"timestamp":%s}\n'
    assert body == (
        b'{"key":{"id":1},"value":{"n":1.50,"big":12345678901234567890}'
        + place % (0, b"5")
        + b'{"key":null,"value":[]'
        + place % (1, b"null")
    )


@pytest.mark.parametrize("content", [Envelope(), SiblingObjects()], ids=lambda c: type(c).__name__)
def test_a_key_that_cannot_be_converted_is_named_or_a_dead_letter(content: Any) -> None:
    """Topic, partition and offset, and that it is the key; or the record is set aside, and the others are landed."""
    layout = Layout(topics_dir="lake", format=JsonLines(), key_converter=StringConverter(), content=content)
    topic = Topic(layout)
    topic.append(b"{}", key=b"fine")
    topic.append(b"{}", key=b"\xff")
    with pytest.raises(RecordError, match=r"'orders', partition 0, offset 1: the key is not text in UTF-8 \(byte 0\)"):
        topic.land()
    other = Topic(Layout(**{**{n: getattr(layout, n) for n in layout.__struct_fields__}, "errors": "dead_letter"}))
    other.append(b"{}", key=b"fine")
    other.append(b"{}", key=b"\xff")
    other.append(b"broken", key=b"\xff")
    other.land()
    assert [(d["offset"], d["stage"]) for d in other.dead_letters()] == [(1, "key"), (2, "value")]
    lines = [body for key, body in other.objects().items() if "/_dead_letters/" not in key]
    assert [len(body.splitlines()) for body in lines] == [1] * len(lines)


def test_keys_and_headers_are_in_objects_beside_the_values() -> None:
    """Objects of the same records, with the names of Kafka Connect, each in its own format."""
    content = SiblingObjects(keys=RawBytes(), headers=JsonLines(compression="gzip"))
    topic = Topic(Layout(topics_dir="lake", format=JsonLines(), content=content, rotation=Rotation(flush_size=2)))
    for n in range(3):
        topic.append(b'{"n":%d}' % n, key=b"k%d" % n, headers=[("h", b"%d" % n)] * n)
    topic.land()
    found = topic.objects()
    name = "lake/orders/partition=0/orders+0+"
    assert sorted(found) == [
        f"{name}000000000{first}{ending}" for first in (0, 2) for ending in (".headers.json.gz", ".json", ".keys.bin")
    ]
    assert found[f"{name}0000000000.keys.bin"] == b"k0\nk1\n"
    assert topic.check() == 3


def test_keys_of_null_values_are_below_tombstone() -> None:
    """They have no object of values; they count for flush_size, and the others are where they would be."""
    content = SiblingObjects(keys=JsonLines())
    layout = Layout(
        topics_dir="lake",
        format=JsonLines(on_null="write"),
        key_converter=StringConverter(),
        content=content,
        partitioner=Daily(),
        rotation=Rotation(flush_size=3),
    )
    topic = Topic(layout)
    for n, value in enumerate([b"0", None, b"2", None, None, b"5"]):
        topic.append(value, key=b"k%d" % n, timestamp=-1 if value is None else 1_767_225_600_000)
    topic.land()
    day = "lake/orders/year=2026/month=01/day=01/orders+0+000000000"
    gone = "lake/orders/tombstone/orders+0+000000000"
    assert topic.objects() == {
        f"{day}0.json": b"0\n2\n",
        f"{day}0.keys.json": b'"k0"\n"k2"\n',
        f"{gone}1.keys.json": b'"k1"\n',
        f"{gone}3.keys.json": b'"k3"\n"k4"\n',
        f"{day}5.json": b"5\n",
        f"{day}5.keys.json": b'"k5"\n',
    }
    assert topic.check() == 3
    assert topic.land("again").batches == ()


def test_keys_of_several_schemas_have_objects_of_their_own() -> None:
    """A record's objects hold records of the same schemas of key and value; nothing is lost."""
    layout = Layout(
        topics_dir="lake",
        format=AvroContainer(on_null="write"),
        value_converter=AvroConverter(),
        key_converter=AvroConverter(),
        content=SiblingObjects(keys=AvroContainer()),
    )
    topic = Topic(layout)
    first, second = (topic.registry.register(json.dumps(schema)) for schema in (V1, V2))
    key_of = topic.registry.register('"long"')
    other_key = topic.registry.register('"string"')
    for n in range(6):
        key = (
            topic.registry.frame(key_of, datum("long", n))
            if n < 4
            else topic.registry.frame(other_key, datum("string", f"{n}"))
        )
        schema_id, schema, value = (first, V1, order(n)) if n % 2 else (second, V2, order(n, tags=[]))
        append(topic, schema_id, schema, value, key=key)
    topic.append(None, key=topic.registry.frame(key_of, datum("long", 6)))
    topic.land()
    found = {key.rpartition("/")[2]: rows(key, body) for key, body in topic.objects().items()}
    assert {key: value for key, value in found.items() if ".keys." in key} == {
        "orders+0+0000000000.keys.avro": [0, 2],
        "orders+0+0000000001.keys.avro": [1, 3],
        "orders+0+0000000004.keys.avro": ["4"],
        "orders+0+0000000005.keys.avro": ["5"],
        "orders+0+0000000006.keys.avro": [6],
    }
    assert [row["id"] for row in found["orders+0+0000000001.avro"]] == [1, 3]
    assert "orders+0+0000000006.avro" not in found


def test_lost_objects_beside_others_are_written_again() -> None:
    """A deleted object of keys is restored with its bytes."""
    content = SiblingObjects(keys=JsonLines(), headers=JsonLines())
    topic = Topic(Layout(topics_dir="lake", format=JsonLines(on_null="write"), content=content))
    for value in (b"{}", None):
        topic.append(value, key=b"k", headers=[("h", b"v")])
    topic.land()
    before = topic.objects()
    topic.restore(*(key for key in before if ".keys." in key or "tombstone" in key))
    assert topic.objects() == before
    topic.check()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"format": Parquet()},
            "needs value_converter, what the bytes of values are: 'avro', .*'bytes' or 'landed'",
        ),
        (
            {"format": RawBytes(), "content": Envelope()},
            "content='envelope' needs a format whose fields may be records",
        ),
        (
            {"format": Csv(), "value_converter": AvroConverter(), "content": Envelope()},
            "content='envelope' needs a format whose fields may be records",
        ),
        ({"format": JsonLines(on_null="write")}, "no keys are written; use content='envelope' or 'siblings'"),
        ({"format": JsonLines(), "key_converter": StringConverter()}, "has no effect, as no keys are written"),
        (
            {"format": JsonLines(), "content": SiblingObjects(keys=Parquet()), "key_converter": JsonConverter()},
            "key_converter='json' needs a schema",
        ),
        ({"format": RawBytes(extension=".keys.json"), "content": SiblingObjects()}, "is that of objects beside"),
        (
            {
                "format": AvroContainer(),
                "value_converter": StringConverter(),
                "content": SiblingObjects(keys=RawBytes()),
                "key_converter": StringConverter(),
            },
            "does not go with keys=",
        ),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings: dict[str, Any], message: str) -> None:
    """When the layout is made, with what to use instead."""
    with pytest.raises(ConfigurationError, match=message):
        Layout(**settings)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"kind": "siblings", "keys": None}, "needs keys or headers"),
        ({"kind": "siblings", "headers": "parquet"}, "must be 'json' or 'avro'"),
        ({"kind": "siblings", "keys": {"kind": "json", "on_null": "ignore"}}, "on_null has no effect here"),
        ({"kind": "siblings", "keys": "jsn"}, "content: keys='jsn' is not known"),
        ("envelop", "did you mean 'envelope'"),
    ],
)
def test_contents_that_are_wrong_are_refused(given: Any, message: str) -> None:
    """When the DAG is parsed, with what to use instead."""
    with pytest.raises(ConfigurationError, match=message):
        parse_content(given)


def test_a_pattern_cannot_name_the_folder_of_tombstones() -> None:
    """Two objects would have the same name."""
    layout = Layout(
        topics_dir="lake",
        format=JsonLines(on_null="write"),
        content=SiblingObjects(),
        partitioner=TimePattern(path_format="'tombstone'", timezone="UTC", duration_ms=1),
    )
    topic = Topic(layout)
    topic.append(b"{}", key=b"k", timestamp=0)
    with pytest.raises(ConfigurationError, match="the folder 'tombstone' is that of the keys of null values"):
        topic.land()
