"""Whatever has become of the text of a stored schema: its records are landed, or invalid; never another error."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from typing import Final

import pytest
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto

from airflow_provider_kafka_s3.arrays import binary_array
from airflow_provider_kafka_s3.batch.pinned_schemas import NoRegistry, PinnedSchemas
from airflow_provider_kafka_s3.converters.avro import AvroRegistryConverter
from airflow_provider_kafka_s3.converters.json_schema import JsonSchemaRegistryConverter
from airflow_provider_kafka_s3.converters.port import ValueConverter
from airflow_provider_kafka_s3.converters.protobuf import ProtobufRegistryConverter
from airflow_provider_kafka_s3.documents import addresses
from airflow_provider_kafka_s3.documents.codec import encode
from airflow_provider_kafka_s3.documents.pinned_schema import PinnedSchema
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.registry.schemas import RegisteredSchema, SchemaReference, SchemaSource, SchemaType
from airflow_provider_kafka_s3.retry import Retrier, RetryPolicy
from airflow_provider_kafka_s3.schemas.protobuf import Mapping
from airflow_provider_kafka_s3.storage.durable import DurableStore
from airflow_provider_kafka_s3.storage.memory import MemoryStore

PREFIX: Final = addresses.control_prefix("topics", "pipeline", "events")

AVRO: Final = """{"type":"record","name":"R","fields":[{"name":"a","type":["null","int"],"default":null},
{"name":"d","type":{"type":"bytes","logicalType":"decimal","precision":4,"scale":2}},{"name":"e","type":{"type":"enum",
"name":"E","symbols":["A","B"]}},{"name":"f","type":{"type":"fixed","name":"F","size":2}},{"name":"l","type":{"type":
"array","items":"x.Other"}},{"name":"m","type":{"type":"map","values":"string"}}]}"""
OTHER: Final = '{"type":"record","namespace":"x","name":"Other","fields":[{"name":"n","type":"long"}]}'
JSON: Final = """{"type":"object","properties":{"a":{"type":"integer"},"b":{"$ref":"#/definitions/d"},"c":{"oneOf":[
{"type":"null"},{"type":"string"}]},"o":{"$ref":"o.json"},"n":{"type":"number","title":
"org.apache.kafka.connect.data.Decimal","connect.parameters":{"scale":"2"}}},"required":["a"],"definitions":{"d":{"type":
"array","items":{"enum":["x","y"]}}}}"""
PROTO: Final = """syntax = "proto3"; package p; import "o.proto"; message M { map<string,int32> a = 1; repeated E e = 2;
oneof x { string s = 3; Other o = 4; } optional double d = 5; message In { fixed64 f = 1 [deprecated = true]; }
In i = 6; enum E { option allow_alias = true; A = 0; B = 0x1; } reserved 7 to 9; } service S { rpc R (M)
returns (M); }"""


def descriptor() -> bytes:
    """A file with a map, an enum, a message in a message, and a default."""
    file = FileDescriptorProto(name="m.proto", package="p", syntax="proto2")
    message = file.message_type.add(name="M")
    entry = message.nested_type.add(name="AEntry")
    entry.options.map_entry = True
    field = FieldDescriptorProto
    entry.field.add(name="key", number=1, type=field.TYPE_STRING, label=field.LABEL_OPTIONAL)
    entry.field.add(name="value", number=2, type=field.TYPE_INT32, label=field.LABEL_OPTIONAL)
    named = {"type": field.TYPE_MESSAGE, "type_name": ".p.M.AEntry"}
    message.field.add(name="a", number=1, label=field.LABEL_REPEATED, **named)
    message.field.add(name="b", number=2, label=field.LABEL_OPTIONAL, type=field.TYPE_UINT64, default_value="12")
    message.field.add(name="e", number=3, label=field.LABEL_OPTIONAL, type=field.TYPE_ENUM, type_name=".p.E")
    file.enum_type.add(name="E").value.add(name="Z", number=0)
    return bytes(file.SerializeToString())


SCHEMAS: Final[dict[SchemaType, tuple[str, SchemaReference]]] = {
    "AVRO": (AVRO, SchemaReference(name="x.Other", subject="o", version=1, text=OTHER)),
    "JSON": (JSON, SchemaReference(name="o.json", subject="o", version=1, text='{"type":["boolean","null"]}')),
    "PROTOBUF": (
        PROTO,
        SchemaReference(
            name="o.proto", subject="o", version=1, text='syntax = "proto3"; package p; message Other { bool b = 1; }'
        ),
    ),
}
CONVERTERS: Final[dict[SchemaType, Callable[[SchemaSource], ValueConverter]]] = {
    "AVRO": AvroRegistryConverter,
    "JSON": JsonSchemaRegistryConverter,
    "PROTOBUF": lambda schemas: ProtobufRegistryConverter(schemas, Mapping()),
}
DATUMS: Final[dict[SchemaType, bytes]] = {"AVRO": b"\0" * 20, "JSON": b'{"a":1}', "PROTOBUF": b"\0\x0a\x03\x0a\x01k"}


def convert(schema: RegisteredSchema) -> None:
    """Convert a value with a stored schema; an error that is not ours, or does not name the schema, is raised."""
    store = DurableStore(MemoryStore(), Retrier(RetryPolicy(max_retries=0)))
    key = addresses.schema_key(PREFIX, schema.id)
    store.create(key, encode(PinnedSchema(schema=schema), {}))
    converter = CONVERTERS[schema.type](PinnedSchemas(store, PREFIX, NoRegistry()))
    values = binary_array([b"\0" + schema.id.to_bytes(4, "big") + DATUMS[schema.type]], large=False)
    try:
        found = converter.convert(values, decode=True)
    except ConfigurationError as e:
        errors = [str(e)]
    else:
        errors = [i.remedy for i in found.invalid if "cannot be used" in i.reason]
        for group in found.groups:
            group.datums()
    assert all(store.url(key) in error for error in errors), errors


def damaged(text: str) -> Iterator[str]:
    """The text without each character, cut there, and with another one in its place."""
    for at in range(len(text)):
        yield text[:at] + text[at + 1 :]
        if at % 3 == 0:
            yield text[:at]
            yield text[:at] + text[at:].replace(text[at], '{0"'[at % 9 // 3], 1)


@pytest.mark.parametrize("kind", SCHEMAS)
def test_a_schema_with_a_damaged_text_has_invalid_records_or_other_ones(kind: SchemaType) -> None:
    """Its own text, and that of a schema that it refers to; the error names the stored document."""
    text, reference = SCHEMAS[kind]
    for changed in damaged(text):
        convert(RegisteredSchema(id=7, type=kind, text=changed, references=(reference,)))
    for changed in damaged(reference.text):
        other = SchemaReference(name=reference.name, subject="o", version=1, text=changed)
        convert(RegisteredSchema(id=7, type=kind, text=text, references=(other,)))


def test_a_damaged_descriptor_has_invalid_records_or_other_ones() -> None:
    """Without each of its bytes, with another one, and cut."""
    data = descriptor()
    for at in range(len(data)):
        for changed in (b"", b"\0", b"\x01", b"\x7f", b"\xff", bytes([data[at] ^ 1]), bytes([data[at] ^ 8])):
            text = base64.b64encode(data[:at] + changed + data[at + 1 :]).decode()
            convert(RegisteredSchema(id=7, type="PROTOBUF", text=text))
        convert(RegisteredSchema(id=7, type="PROTOBUF", text=base64.b64encode(data[:at]).decode()))
