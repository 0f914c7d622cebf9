"""Keys, headers and whole records: what a record becomes depends on the records before it alone, never on batches."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_kafka_s3.arrays import WHOLE_RECORD_SCHEMA
from airflow_provider_kafka_s3.converters.avro import AvroRegistryConverter
from airflow_provider_kafka_s3.converters.avro_decode import AvroDecoder
from airflow_provider_kafka_s3.converters.declared_json import DeclaredJsonConverter
from airflow_provider_kafka_s3.converters.enveloped_json import EnvelopedJsonConverter
from airflow_provider_kafka_s3.converters.json_schema import JsonSchemaRegistryConverter
from airflow_provider_kafka_s3.converters.port import RecordConverter, ValueConverter
from airflow_provider_kafka_s3.converters.primitive import BytesValueConverter, StringValueConverter
from airflow_provider_kafka_s3.converters.protobuf import ProtobufRegistryConverter
from airflow_provider_kafka_s3.converters.record_parts import ColumnConverter, EnvelopeConverter, HeadersConverter
from airflow_provider_kafka_s3.formats.json_values import encode_json
from airflow_provider_kafka_s3.schemas.avro import parse_schema
from airflow_provider_kafka_s3.schemas.protobuf import Mapping
from airflow_provider_kafka_s3.testing.registry import SimulatedRegistry

ORDER: Final = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
NAMED: Final = {**ORDER, "name": "shop.Order", "fields": [{"name": "at", "type": ["null", "string"], "default": None}]}
REGISTRY: Final = SimulatedRegistry()
AVRO: Final = [REGISTRY.register(json.dumps(schema)) for schema in (ORDER, NAMED, "string")]
PROTO: Final = REGISTRY.register("message Order { optional int64 id = 1; message Line {} }", type="PROTOBUF")
JSON: Final = REGISTRY.register('{"type": "object", "properties": {"id": {"type": "integer"}}}', type="JSON")


def enveloped(schema: str, payload: str) -> bytes:
    """A value with its schema."""
    return f'{{"schema": {schema}, "payload": {payload}}}'.encode()


FRAMED: Final = [
    REGISTRY.frame(AVRO[0], b"\x02"), REGISTRY.frame(AVRO[1], b"\x02\x02a"), REGISTRY.frame(AVRO[2], b"\x02b"),
    REGISTRY.frame(PROTO, b"\0\x08\x01"), REGISTRY.frame(PROTO, b"\4\0\0"), REGISTRY.frame(JSON, b'{"id": 1}'),
    REGISTRY.frame(99, b""), b"\0\0", b"\1\0\0\0\1\0",
]  # fmt: skip
PLAIN: Final = [
    b"", b"a", "ü".encode(), b"\xff", b"1", b"null", b'{"id": 1}', b'{"id": "x"}', b"{",
    enveloped('{"type": "int32"}', "1"), enveloped('{"type": "string", "optional": true}', "null"),
    enveloped('{"type": "int32"}', '"x"'), enveloped("null", "1"),
]  # fmt: skip
CONVERTERS: Final[dict[str, Callable[[], ValueConverter]]] = {
    "bytes": BytesValueConverter,
    "string": StringValueConverter,
    "avro": lambda: AvroRegistryConverter(REGISTRY),
    "protobuf": lambda: ProtobufRegistryConverter(REGISTRY, Mapping()),
    "json_schema": lambda: JsonSchemaRegistryConverter(REGISTRY, "BASE64"),
    "declared": lambda: DeclaredJsonConverter(json.dumps(ORDER)),
    "enveloped": lambda: EnvelopedJsonConverter("BASE64", names_and_versions=True),
}
BYTES: Final = st.sampled_from([*FRAMED, *PLAIN]) | st.binary(max_size=6)
HEADERS: Final = st.lists(st.tuples(st.text(max_size=3), st.none() | BYTES), max_size=3)
RECORDS: Final = st.lists(
    st.tuples(st.none() | BYTES, st.none() | BYTES, st.none() | HEADERS, st.integers(-1, 2**40)), max_size=10
)


def batch_of(records: list[tuple[Any, ...]]) -> pa.RecordBatch:
    """A batch with a gap of one offset between records."""
    rows = [
        {
            "offset": 2 * n,
            "timestamp": timestamp,
            "value": value,
            "key": key,
            "headers": headers and [{"key": k, "value": v} for k, v in headers],
        }
        for n, (key, value, headers, timestamp) in enumerate(records)
    ]
    return pa.RecordBatch.from_pylist(rows, WHOLE_RECORD_SCHEMA)


def converted(converter: RecordConverter, batches: list[pa.RecordBatch]) -> list[Any]:
    """The schema and the document of each record, or why it is invalid; columns and datums are valid and equal."""
    found: list[Any] = []
    for batch in batches:
        typed = converter.convert(batch, decode=True)
        here: dict[int, Any] = {invalid.row: (invalid.stage, invalid.reason) for invalid in typed.invalid}
        for group in typed.groups:
            assert group.values is not None
            group.values.validate(full=True)
            schema = converter.schemas[group.schema]
            decoded = AvroDecoder(parse_schema(schema.text)).decode(group.datums())
            assert not decoded.bad.any()
            assert repr(decoded.values.to_pylist()) == repr(group.values.to_pylist())
            texts = encode_json(group.values, decimal_format="BASE64").to_pylist()
            here |= {int(row): (schema.text, text) for row, text in zip(group.rows, texts, strict=True)}
        assert sorted(here) == list(range(batch.num_rows))
        found += [here[row] for row in range(batch.num_rows)]
    return found


def parts_of(batch: pa.RecordBatch, cuts: list[int]) -> list[pa.RecordBatch]:
    """A batch as several ones, which share its buffers."""
    edges = [0, *sorted(cut % (batch.num_rows + 1) for cut in cuts), batch.num_rows]
    return [batch.slice(a, b - a) for a, b in itertools.pairwise(edges)]


CUTS: Final = st.lists(st.integers(0, 10), max_size=4)


@settings(max_examples=40)
@given(RECORDS, st.sampled_from(list(CONVERTERS)), st.sampled_from(list(CONVERTERS)), CUTS)
def test_whole_records_do_not_depend_on_batches(records: list[Any], key: str, value: str, cuts: list[int]) -> None:
    """Nulls before the first value, schemas in turn and invalid parts: each record has one row or one reason."""

    def converter() -> EnvelopeConverter:
        return EnvelopeConverter(CONVERTERS[key](), CONVERTERS[value](), topic="orders", partition=lambda: 3)

    batch = batch_of(records)
    whole = converted(converter(), [batch])
    assert converted(converter(), parts_of(batch, cuts)) == whole
    for n, (record, found) in enumerate(zip(records, whole, strict=True)):
        if found[0] in ("key", "value"):
            assert record[1 if found[0] == "value" else 0] is not None
            continue
        document = json.loads(found[1])
        assert (document["topic"], document["partition"], document["offset"]) == ("orders", 3, 2 * n)
        assert document["timestamp"] == (None if record[3] == -1 else record[3])
        assert [header["key"] for header in document["headers"]] == [name for name, _ in record[2] or []]
        for part, given_bytes in (("key", record[0]), ("value", record[1])):
            assert given_bytes is not None or document[part] is None


@settings(max_examples=60)
@given(RECORDS, CUTS)
def test_headers_are_texts_or_invalid(records: list[Any], cuts: list[int]) -> None:
    """In their order, those of a name again and again, and an empty list for none."""
    batch = batch_of(records)
    whole = converted(HeadersConverter(in_record=False), [batch])
    assert converted(HeadersConverter(in_record=False), parts_of(batch, cuts)) == whole
    for (_, _, headers, _), found in zip(records, whole, strict=True):
        try:
            wanted = [{"key": name, "value": text.decode()} for name, text in headers or []]
        except (AttributeError, UnicodeDecodeError):
            assert found[0] == "headers"
        else:
            assert json.loads(found[1]) == wanted


@settings(max_examples=60)
@given(st.lists(BYTES, max_size=10), st.sampled_from(list(CONVERTERS)), CUTS)
def test_keys_are_converted_or_invalid(keys: list[bytes], name: str, cuts: list[int]) -> None:
    """A key is what a value of the same bytes is, with reasons that name the key."""
    batch = batch_of([(key, key, None, 0) for key in keys])
    as_keys = converted(ColumnConverter(CONVERTERS[name](), "key"), parts_of(batch, cuts))
    as_values = converted(ColumnConverter(CONVERTERS[name](), "value"), [batch])
    for of_key, of_value in zip(as_keys, as_values, strict=True):
        if of_value[0] == "value":
            assert of_key == ("key", of_value[1].replace("the value", "the key", 1))
        else:
            assert of_key == of_value
