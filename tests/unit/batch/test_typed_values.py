"""Values with a schema, of a registry or declared, landed as Avro, Parquet and JSON lines."""

from __future__ import annotations

import base64
import io
import json
import re
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider_kafka_s3.airflow.parameters import usable_layout
from airflow_provider_kafka_s3.batch.request import TopicResult
from airflow_provider_kafka_s3.config import (
    MIB,
    AvroContainer,
    AvroConverter,
    ByField,
    ByPartition,
    Csv,
    Daily,
    FieldTime,
    JsonConverter,
    JsonLines,
    Layout,
    Limits,
    Parquet,
    Rotation,
)
from airflow_provider_kafka_s3.exceptions import ConfigurationError, RecordError
from airflow_provider_kafka_s3.registry.schemas import SchemaReference
from airflow_provider_kafka_s3.testing.registry import SimulatedRegistry
from tests import landed_rows
from tests.avro_values import in_unions_of_one, without_logical
from tests.landed_rows import MILLISECOND, plain
from tests.unit.batch.simulated_topic import Topic
from tests.unit.batch.written_slice import written_slice

VECTORS = Path(__file__).parents[2] / "vectors"

V1 = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": ["null", "string"], "default": None},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}
V2: dict[str, Any] = {**V1, "fields": [*V1["fields"], {"name": "tags", "type": {"type": "array", "items": "string"}}]}  # type: ignore[misc]
FORMATS = [AvroContainer(), AvroContainer(codec="deflate"), Parquet(), Parquet(compression="none"), JsonLines()]


def layout(record_format: Any, **more: Any) -> Layout:
    """Of Avro values."""
    return Layout(topics_dir="lake", format=record_format, value_converter=AvroConverter(), **more)


def datum(schema: Any, value: Any) -> bytes:
    """A value in Avro's binary encoding."""
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(schema), value)
    return body.getvalue()


def order(number: int, **more: Any) -> dict[str, Any]:
    """An order of the first version, or of the second one with tags."""
    return {"id": number, "customer": None if number % 3 else f"c{number}", "at": 1_767_225_600_000 + number, **more}


def append(topic: Topic, schema_id: int, schema: Any, *values: Any, **more: Any) -> None:
    """Append values as a serializer writes them."""
    for value in values:
        topic.append(topic.registry.frame(schema_id, datum(schema, value)), **more)


def rows(key: str, body: bytes) -> list[Any]:
    """The records of an object, with plain numbers in the place of times."""
    found = landed_rows.rows(key, body)
    return [{name: _plain(value) for name, value in row.items()} if isinstance(row, dict) else row for row in found]


def _plain(value: Any) -> Any:
    return plain(value, MILLISECOND) if isinstance(value, datetime) else value


def values_of(topic: Topic, first: int, last: int) -> list[dict[str, Any]]:
    """All landed orders."""
    landed = [row for key, body in topic.objects().items() if "/_dead_letters/" not in key for row in rows(key, body)]
    return sorted((row for row in landed if first <= row["id"] <= last), key=lambda row: int(row["id"]))


@pytest.mark.parametrize("record_format", FORMATS)
def test_values_are_landed_as_they_were_written(record_format: Any) -> None:
    """Read back by fastavro, pyarrow and json; a rerun of the slice in other batches gives the same bytes."""
    topic = Topic(layout(record_format))
    schema_id = topic.registry.register(json.dumps(V1))
    append(topic, schema_id, V1, *(order(n) for n in range(20)))
    topic.land()
    assert values_of(topic, 0, 19) == [order(n) for n in range(20)]
    again = Topic(layout(record_format), records_per_poll=7)
    assert again.registry.register(json.dumps(V1)) == schema_id
    append(again, schema_id, V1, *(order(n) for n in range(20)))
    again.land()
    assert again.objects() == topic.objects()


def test_the_quickstart_of_kafka_connect_has_the_same_objects() -> None:
    """K1 of the acceptance vectors: nine records of one field with ``flush.size`` 3."""
    (case,) = (c for c in json.loads((VECTORS / "object_keys.json").read_text())["cases"] if c["id"] == "K1")
    schema = {"type": "record", "name": "myrecord", "fields": [{"name": "f1", "type": "string"}]}
    values = [{"f1": f"value{n}"} for n in range(1, case["records"] + 1)]
    registry = SimulatedRegistry()
    schema_id = registry.register(json.dumps(schema))
    written = written_slice(
        Layout(
            format=AvroContainer(),
            value_converter=AvroConverter(),
            rotation=Rotation(flush_size=case["flush_size"]),
        ),
        [registry.frame(schema_id, datum(schema, value)) for value in values],
        topic=case["topic"],
        schemas=registry,
    )
    assert [*written.objects] == case["expect"]
    assert [rows(*item) for item in written.objects.items()] == [values[:3], values[3:6], values[6:]]


@pytest.mark.parametrize("record_format", FORMATS[:4])
def test_each_schema_has_objects_of_its_own(record_format: Any) -> None:
    """Interleaved schemas make one open object each, not one object per record; nothing is lost or projected."""
    topic = Topic(layout(record_format))
    first, second = (topic.registry.register(json.dumps(schema)) for schema in (V1, V2))
    for n in range(10):
        schema_id, schema, value = (first, V1, order(n)) if n % 2 else (second, V2, order(n, tags=[f"t{n}"]))
        append(topic, schema_id, schema, value)
    topic.land()
    assert [len(rows(*item)) for item in topic.objects().items()] == [5, 5]
    assert values_of(topic, 0, 9) == [order(n) if n % 2 else order(n, tags=[f"t{n}"]) for n in range(10)]


def test_json_lines_of_several_schemas_keep_the_order_of_the_records() -> None:
    """Lines need no schema, so the records of a partition stay together."""
    topic = Topic(layout(JsonLines()))
    first, second = (topic.registry.register(json.dumps(schema)) for schema in (V1, V2))
    for n in range(10):
        schema_id, schema, value = (first, V1, order(n)) if n % 2 else (second, V2, order(n, tags=[]))
        append(topic, schema_id, schema, value)
    topic.land()
    (body,) = topic.objects().values()
    assert [json.loads(line)["id"] for line in body.splitlines()] == list(range(10))


@pytest.mark.parametrize("record_format", FORMATS)
def test_what_is_not_avro_of_its_schema_becomes_a_dead_letter(record_format: Any) -> None:
    """No header, an unknown id, a schema of another type, cut off, trailing bytes, null: each with its reason."""
    topic = Topic(layout(record_format, errors="dead_letter"))
    schema_id = topic.registry.register(json.dumps(V1))
    other = topic.registry.register("{}", type="JSON")
    whole = datum(V1, order(1))
    append(topic, schema_id, V1, order(0))
    bad = [
        b"",
        b"\1" + topic.registry.frame(schema_id, whole)[1:],
        b"\0\0\0",
        topic.registry.frame(99, whole),
        topic.registry.frame(other, b"{}"),
        topic.registry.frame(schema_id, whole[:-1]),
        topic.registry.frame(schema_id, whole + b"x"),
        None,
    ]
    topic.append(*bad)
    append(topic, schema_id, V1, order(9))
    (batch,) = topic.land().batches
    assert (batch.records, batch.dead_letters) == (2, len(bad))
    assert values_of(topic, 0, 9) == [order(0), order(9)]
    reasons = [letter["reason"] for letter in topic.dead_letters()]
    words = ["header", "header", "header", "no schema 99", "of JSON", "not Avro", "not Avro", "null"]
    assert all(word in reason for word, reason in zip(words, reasons, strict=True)), reasons


def test_a_bad_value_fails_the_batch_by_name() -> None:
    """The default: topic, partition, offset, schema and what to do."""
    topic = Topic(layout(AvroContainer()))
    schema_id = topic.registry.register(json.dumps(V1))
    append(topic, schema_id, V1, order(0))
    topic.append(topic.registry.frame(schema_id, b"\xff"))
    with pytest.raises(
        RecordError,
        match=r"topic 'orders', partition 0, offset 1: the value is not Avro of schema 1: field id goes "
        r"on beyond the end of the value; correct the producer",
    ):
        topic.land()
    assert topic.objects() == {}


TIME = {"type": "int", "logicalType": "time-millis"}
MICROS = {"type": "long", "logicalType": "time-micros"}
CENTS = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}
NULLS = {"type": "array", "items": "null"}
OUT_OF_RANGE = [
    (TIME, 86_400_000, "field x has the time-millis 86400000, outside 0 to 86399999"),
    (TIME, -1, "field x has the time-millis -1, outside 0 to 86399999"),
    (MICROS, 2**62, "field x has the time-micros 4611686018427387904, outside 0 to 86399999999"),
    (CENTS, b"\x27\x10", "field x has the decimal 100.00, which has more digits than its precision of 4"),
    (CENTS, b"\x80" + b"\0" * 2000, "field x has the decimal of 16008 bits, which has more digits than its precision"),
    ({**CENTS, "type": "fixed", "name": "F", "size": 2}, b"\xd8\xf0", "field x has the decimal -100.00, which"),
    (NULLS, [None] * 1001, "field x has 1001 items without bytes, such as nulls, with those before it; 1000 are read"),
    ({"type": "array", "items": ["null", TIME]}, [None, 1, -1], "field x[*] has the time-millis -1"),
    ({"type": "map", "values": TIME}, {"k": -1}, "field x[*] has the time-millis -1"),
    ({"type": "record", "name": "In", "fields": [{"name": "y", "type": TIME}]}, {"y": -1}, "field x.y has the time"),
]


@pytest.mark.parametrize("record_format", [JsonLines(), AvroContainer(), Parquet()], ids=["json", "avro", "parquet"])
def test_a_datum_out_of_a_range_is_named_with_its_field_its_value_and_the_range(record_format: Any) -> None:
    """Avro allows it, so it is not called something else than Avro."""
    topic = Topic(layout(record_format, errors="dead_letter"))
    for number, (kind, value, _) in enumerate(OUT_OF_RANGE, 1):
        schema = {"type": "record", "name": "Row", "fields": [{"name": "x", "type": kind}]}
        schema_id = topic.registry.register(json.dumps(schema))
        topic.append(topic.registry.frame(schema_id, datum(without_logical(schema), {"x": value})))
        assert schema_id == number
    topic.land()
    reasons = [letter["reason"] for letter in topic.dead_letters()]
    expected = [f"the value of schema {n} is out of range: {why}" for n, (_, _, why) in enumerate(OUT_OF_RANGE, 1)]
    assert [reason[: len(why)] for reason, why in zip(reasons, expected, strict=True)] == expected


def test_headers_of_other_registries_are_named() -> None:
    """Apicurio's ids of eight bytes, Confluent's GUIDs, AWS Glue."""
    topic = Topic(layout(JsonLines(), errors="dead_letter"))
    whole = datum(V1, order(1))
    topic.append(b"\0" + (7).to_bytes(8) + whole, b"\1" + bytes(16) + whole, b"\3\5" + bytes(16) + whole, b"{}")
    topic.land()
    reasons = [letter["reason"] for letter in topic.dead_letters()]
    words = ["no schema 0; .* apicurio.registry.as-confluent=true", "as a GUID", "of AWS Glue", "id of a schema$"]
    assert all(re.search(word, reason) for word, reason in zip(words, reasons, strict=True)), reasons


@pytest.mark.parametrize("record_format", [JsonLines(), AvroContainer(), Parquet(), Csv()], ids=lambda f: str(f)[:7])
@pytest.mark.parametrize(
    "partitioner", [ByPartition(), ByField(names=("id",)), Daily(timestamp_from=FieldTime(name="at"))], ids=str
)
def test_a_union_of_one_type_is_that_type(record_format: Any, partitioner: Any) -> None:
    """As field, item, value of a map, record and whole value; in objects, columns and folders, as in Kafka Connect."""
    more = [
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {
            "name": "map",
            "type": {"type": "map", "values": {"type": "record", "name": "In", "fields": [V1["fields"][0]]}},
        },
    ]
    schema = {**V1, "fields": [*V1["fields"], *([] if isinstance(record_format, Csv) else more)]}
    value = {"id": 7, "customer": "c", "at": 1_767_225_600_000}
    value |= {} if isinstance(record_format, Csv) else {"tags": ["a"], "map": {"k": {"id": 8}}}
    found = []
    for one in (schema, in_unions_of_one(schema)):
        topic = Topic(layout(record_format, partitioner=partitioner))
        append(topic, topic.registry.register(json.dumps(one)), one, value)
        topic.land()
        ((key, body),) = topic.objects().items()
        found.append((key, rows(key, body) if isinstance(record_format, AvroContainer) else body))
    assert found[0] == found[1]


def test_values_are_projected_between_a_type_and_a_union_of_it() -> None:
    """A producer that adds or drops the brackets changes nothing."""
    topic = Topic(layout(Parquet(), schema_compatibility="BACKWARD"))
    schemas = [V1, in_unions_of_one(V1)]
    for schema in schemas:
        topic.registry.register(json.dumps(schema))
    for number in (2, 1, 2):
        append(topic, number, schemas[number - 1], order(number))
    topic.land()
    ((key, body),) = topic.objects().items()
    assert [row["id"] for row in rows(key, body)] == [2, 1, 2]


def test_a_schema_is_pinned_on_first_sight() -> None:
    """A lost object is written again with the same bytes though the registry has lost or changed its schemas."""
    topic = Topic(layout(Parquet(), rotation=Rotation(flush_size=4)))
    schema_id = topic.registry.register(json.dumps(V1))
    append(topic, schema_id, V1, *(order(n) for n in range(10)))
    topic.land(limits=Limits(records_per_slice=5))
    before = topic.objects()
    assert topic.bucket.get("lake/_kafka_s3/orders-to-lake/orders/schemas/1.json") is not None
    topic.registry._schemas.clear()
    topic.bucket.delete([*before][1])
    restored = topic.pipeline.run(topic.request("b", action="restore")).advance()
    assert isinstance(restored, TopicResult)
    assert topic.objects() == before


def test_an_id_that_is_not_pinned_needs_the_registry() -> None:
    """The error names the id and the parameter; nothing is landed."""
    topic = Topic(layout(AvroContainer()))
    append(topic, 1, V1, order(0))
    step = topic.pipeline.run(topic.request()).advance()
    assert not isinstance(step, TopicResult)
    with pytest.raises(ConfigurationError, match=r"schema 1 is not stored .* registry_conn_id"):
        topic.without_registry().execute(step, run="a")


def test_references_are_part_of_the_schema_of_a_file() -> None:
    """A reader of the file needs no registry."""
    address = {"type": "record", "name": "Address", "namespace": "geo", "fields": [{"name": "city", "type": "string"}]}
    customer = {
        "type": "record",
        "name": "Customer",
        "namespace": "shop",
        "fields": [{"name": "home", "type": "geo.Address"}, {"name": "work", "type": ["null", "geo.Address"]}],
    }
    topic = Topic(layout(AvroContainer()))
    reference = SchemaReference(name="geo.Address", subject="geo.Address", version=1, text=json.dumps(address))
    schema_id = topic.registry.register(json.dumps(customer), references=[reference])
    named: dict[str, Any] = {}
    fastavro.parse_schema(address, named)
    body = io.BytesIO()
    value = {"home": {"city": "Bern"}, "work": None}
    fastavro.schemaless_writer(body, fastavro.parse_schema(customer, named), value)
    topic.append(topic.registry.frame(schema_id, body.getvalue()))
    topic.land()
    ((key, stored),) = topic.objects().items()
    assert rows(key, stored) == [value]


@pytest.mark.parametrize("schema", ["string", "long", {"type": "array", "items": "int"}, ["null", "double"]])
@pytest.mark.parametrize("record_format", [AvroContainer(), Parquet(), JsonLines()])
def test_values_that_are_no_records_are_landed(record_format: Any, schema: Any) -> None:
    """Avro and JSON hold the bare values, Parquet a column of them."""
    samples: dict[str, list[Any]] = {"string": ["a", "ü"], "long": [1, -5], "array": [[1], []], "double": [None, 1.5]}
    values = samples[schema if isinstance(schema, str) else schema["type"] if isinstance(schema, dict) else "double"]
    topic = Topic(layout(record_format))
    schema_id = topic.registry.register(json.dumps(schema))
    append(topic, schema_id, schema, *values)
    topic.land()
    ((key, body),) = topic.objects().items()
    found = rows(key, body)
    assert [row["value"] for row in found] == values if key.endswith(".parquet") else found == values


def test_partitioner_rotation_and_extension_go_with_typed_formats() -> None:
    """As for lines: day folders, ends after a number of records, Connect's extensions."""
    topic = Topic(layout(Parquet(compression="snappy"), partitioner=Daily(), rotation=Rotation(flush_size=3)))
    schema_id = topic.registry.register(json.dumps(V1))
    for n in range(5):
        append(topic, schema_id, V1, order(n), timestamp=86_400_000 * (n // 4))
    topic.land()
    assert list(topic.objects()) == [
        "lake/orders/year=1970/month=01/day=01/orders+0+0000000000.snappy.parquet",
        "lake/orders/year=1970/month=01/day=01/orders+0+0000000003.snappy.parquet",
        "lake/orders/year=1970/month=01/day=02/orders+0+0000000004.snappy.parquet",
    ]


DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}
WIDE_DECIMAL = {**DECIMAL, "precision": 12}
DECLARED = JsonConverter(schema=json.dumps(V2))


def declared(record_format: Any, **more: Any) -> Layout:
    """Of JSON values with a declared schema."""
    return Layout(topics_dir="lake", format=record_format, value_converter=DECLARED, **more)


@pytest.mark.parametrize("record_format", [AvroContainer(), Parquet(), JsonLines()])
def test_json_values_with_a_declared_schema_are_landed(record_format: Any) -> None:
    """As typed values; what the schema does not have is left out, a missing field with a default is filled."""
    topic = Topic(declared(record_format))
    topic.append(*(json.dumps(order(n, tags=["t"], more=1)).encode() for n in range(5)))
    topic.append(b'{"at": 5, "tags": [], "id": 5}')
    topic.land()
    assert values_of(topic, 0, 5) == [
        *(order(n, tags=["t"]) for n in range(5)),
        {"id": 5, "customer": None, "at": 5, "tags": []},
    ]


def test_json_that_does_not_have_the_declared_schema_becomes_a_dead_letter() -> None:
    """The reason names the field; the default policy names topic, partition and offset."""
    bad = [b"{", b'{"id": "x", "at": 1, "tags": []}', b'{"at": 1, "tags": []}', b"7"]
    topic = Topic(declared(Parquet(), errors="dead_letter"))
    topic.append(*bad, json.dumps(order(1, tags=[])).encode())
    (batch,) = topic.land().batches
    assert (batch.records, batch.dead_letters) == (1, len(bad))
    reasons = [letter["reason"] for letter in topic.dead_letters()]
    assert all("does not have the declared schema" in reason for reason in reasons)
    assert "id" in reasons[1]
    failing = Topic(declared(Parquet()))
    failing.append(json.dumps(order(1, tags=[])).encode(), bad[1])
    with pytest.raises(
        RecordError, match=r"topic 'orders', partition 0, offset 1: the value does not have the declared"
    ):
        failing.land()


ENVELOPE = {
    "type": "struct",
    "optional": False,
    "name": "shop.Order",
    "fields": [
        {"field": "id", "type": "int64", "optional": False},
        {"field": "customer", "type": "string", "optional": True},
        {"field": "at", "type": "int64", "optional": False, "name": "org.apache.kafka.connect.data.Timestamp"},
    ],
}


@pytest.mark.parametrize("record_format", [AvroContainer(), Parquet(), JsonLines()])
def test_json_values_with_their_schemas_are_landed(record_format: Any) -> None:
    """As Kafka Connect writes them; equal schemas of another text share objects, what is no envelope is set aside."""
    converter = JsonConverter(schemas_enable=True)
    topic = Topic(Layout(topics_dir="lake", format=record_format, value_converter=converter, errors="dead_letter"))
    texts = [json.dumps(ENVELOPE), json.dumps(ENVELOPE, indent=1)]
    for n in range(6):
        topic.append(b'{"schema": %s, "payload": %s}' % (texts[n % 2].encode(), json.dumps(order(n)).encode()))
    topic.append(json.dumps(order(7)).encode(), b'{"schema": %s, "payload": {"id": "x"}}' % texts[0].encode())
    topic.append(b'{"schema": {"type": "strict"}, "payload": 1}')
    (batch,) = topic.land().batches
    assert (batch.records, batch.dead_letters, batch.objects) == (6, 3, 2)
    assert values_of(topic, 0, 9) == [order(n) for n in range(6)]
    reasons = [letter["reason"] for letter in topic.dead_letters()]
    assert all(word in reason for word, reason in zip(["envelope", "payload", "strict"], reasons, strict=True)), reasons


def test_decimals_of_json_lines_are_base64_or_numbers() -> None:
    """As ``decimal.format`` of Kafka Connect."""
    schema = {"type": "record", "name": "R", "fields": [{"name": "d", "type": DECIMAL}]}
    for decimal_format, expected in (("BASE64", b'{"d":"AJY="}\n'), ("NUMERIC", b'{"d":1.50}\n')):
        topic = Topic(layout(JsonLines(decimal_format=decimal_format)))  # type: ignore[arg-type]
        schema_id = topic.registry.register(json.dumps(schema))
        append(topic, schema_id, schema, {"d": Decimal("1.50")})
        topic.land()
        assert list(topic.objects().values()) == [expected]


CONNECT_DECIMAL = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "2"}}
ENVELOPED_DECIMAL = {"type": "struct", "fields": [{"field": "d", **CONNECT_DECIMAL}]}
TEXTS = ["1000", "12345678", "1.50", "-7", "AJY=", "", "abc"]
DIGITS = [Decimal("1000.00"), Decimal("12345678.00"), Decimal("1.50"), Decimal("-7.00")]


def unscaled(text: str) -> Decimal:
    """The decimal of a base64 text."""
    return Decimal(int.from_bytes(base64.b64decode(text), signed=True)).scaleb(-2)


def decimals(topic: Topic) -> list[Any]:
    """All landed values of the field ``d``."""
    bodies = [(key, body) for key, body in topic.objects().items() if "/_dead_letters/" not in key]
    return [row["d"] for key, body in bodies for row in landed_rows.rows(key, body)]


@pytest.mark.parametrize("record_format", [AvroContainer(), Parquet(), JsonLines(decimal_format="NUMERIC")])
@pytest.mark.parametrize("nested", [False, True])
def test_a_decimal_as_text_is_its_digits_by_a_declared_schema(record_format: Any, nested: bool) -> None:
    """Whatever its letters: as Debezium writes it with decimal.handling.mode=string. All other texts are set aside."""
    kind = {"type": "array", "items": {"type": "map", "values": ["null", WIDE_DECIMAL]}} if nested else WIDE_DECIMAL
    schema = {"type": "record", "name": "R", "fields": [{"name": "d", "type": kind}]}
    converter = JsonConverter(schema=json.dumps(schema))
    topic = Topic(Layout(topics_dir="lake", format=record_format, value_converter=converter, errors="dead_letter"))
    topic.append(*(json.dumps({"d": [{"k": text}] if nested else text}).encode() for text in TEXTS))
    topic.land()
    assert [Decimal(str(dict(d[0])["k"] if nested else d)) for d in decimals(topic)] == DIGITS
    assert [letter["offset"] for letter in topic.dead_letters()] == [4, 5, 6]


@pytest.mark.parametrize(
    "converter",
    [
        JsonConverter(
            schema=json.dumps({"type": "record", "name": "R", "fields": [{"name": "d", "type": WIDE_DECIMAL}]}),
            decimal_format="BASE64",
        ),
        JsonConverter(schemas_enable=True),
    ],
)
def test_a_decimal_as_text_is_base64_where_the_setting_has_it_so(converter: JsonConverter) -> None:
    """As Kafka Connect's JsonConverter writes it, which is the default of its envelopes."""
    layout = Layout(topics_dir="lake", format=Parquet(), value_converter=converter, errors="dead_letter")
    topic = Topic(layout)
    for text in ("AJY=", "1000", "1.50", ""):
        document: Any = {"d": text}
        if converter.schemas_enable:
            document = {"schema": ENVELOPED_DECIMAL, "payload": document}
        topic.append(json.dumps(document).encode())
    topic.land()
    assert decimals(topic) == [unscaled("AJY="), unscaled("1000")]
    assert [letter["offset"] for letter in topic.dead_letters()] == [2, 3]


def test_json_without_a_schema_is_refused_for_formats_with_one() -> None:
    """When the DAG is parsed; and a text that is no schema before anything is planned."""
    with pytest.raises(ConfigurationError, match=r"value_converter='json' needs a schema with format=Parquet"):
        Layout(format=Parquet(), value_converter=JsonConverter())
    with pytest.raises(ConfigurationError, match="no Avro schema"):
        usable_layout(Layout(format=Parquet(), value_converter=JsonConverter(schema='{"x": 1}')), ["orders"])


@pytest.mark.parametrize("record_format", [AvroContainer(), Parquet()])
def test_a_format_of_typed_values_without_a_converter_is_refused(record_format: Any) -> None:
    """When the DAG is parsed; the message has the converters that fit: no default would be the right one for all."""
    with pytest.raises(ConfigurationError, match="needs value_converter, what the bytes of values are: 'avro'"):
        Layout(format=record_format)


def test_open_parquet_files_are_limited_by_their_memory() -> None:
    """Whatever the limit of objects is: a record that needs one more closes the least recently written one."""
    assert Layout(format=JsonLines()).max_open_objects == 400
    assert layout(Parquet()).max_open_objects == 16
    assert layout(Parquet(row_group_bytes=1024 * MIB)).max_open_objects == 1
    topic = Topic(layout(Parquet(row_group_bytes=128 * MIB), partitioner=Daily()))
    schema_id = topic.registry.register(json.dumps(V1))
    for n, day in enumerate([0, 1, 0, 2, 1, 0]):
        append(topic, schema_id, V1, order(n), timestamp=86_400_000 * day)
    topic.land()
    firsts = {key.rpartition("+")[2].partition(".")[0]: len(rows(key, body)) for key, body in topic.objects().items()}
    assert firsts == {"0000000000": 2, "0000000001": 1, "0000000003": 1, "0000000004": 1, "0000000005": 1}


def test_parquet_has_the_types_of_the_schema() -> None:
    """Timestamps keep unit and zone; fields that may not be null are required."""
    topic = Topic(layout(Parquet()))
    append(topic, topic.registry.register(json.dumps(V1)), V1, order(0))
    topic.land()
    (body,) = topic.objects().values()
    assert pq.read_schema(io.BytesIO(body)).remove_metadata() == pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            pa.field("customer", pa.string()),
            pa.field("at", pa.timestamp("ms", "UTC"), nullable=False),
        ]
    )


@pytest.mark.parametrize("where", ["itself", "field", "items", "branch"])
@pytest.mark.parametrize(
    "empty", [{"type": "record", "name": "E", "fields": []}, {"type": "fixed", "name": "E", "size": 0}]
)
def test_a_type_without_bytes_is_refused_by_parquet_alone(empty: Any, where: str) -> None:
    """At any depth, before anything is uploaded; the message names the type and the format that holds it."""
    value: Any = {} if empty["type"] == "record" else b""
    inside = {"itself": empty, "field": empty, "items": {"type": "array", "items": empty}, "branch": ["int", empty]}[
        where
    ]
    schema = {"type": "record", "name": "R", "fields": [{"name": "x", "type": inside}]}
    if where == "itself":
        schema = empty
    else:
        value = {"x": [value] if where == "items" else value}
    avro = Topic(layout(AvroContainer()))
    append(avro, avro.registry.register(json.dumps(schema)), schema, value)
    avro.land()
    assert [rows(*item) for item in avro.objects().items()] == [[value]]
    parquet = Topic(layout(Parquet()))
    append(parquet, parquet.registry.register(json.dumps(schema)), schema, value)
    with pytest.raises(ConfigurationError, match=r"schema 1 has the .* 'E' .* cannot hold; use format='avro'"):
        parquet.land()
    assert parquet.objects() == {}
