"""The orders of the benchmark with other kinds of schemas: JSON Schema, Protobuf, and a later version in Avro."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import Message

_STRING: Final = {"type": "string"}
JSON_SCHEMA: Final[dict[str, Any]] = {
    "title": "Order",
    "type": "object",
    "properties": {
        "order_id": _STRING,
        "number": {"type": "integer"},
        "customer": _STRING,
        "status": {"enum": ["NEW", "PAID", "SENT", "BACK"]},
        "at": _STRING,
        "due": _STRING,
        "total": _STRING,
        "weight": {"type": "number"},
        "rating": {"type": "number"},
        "items": {"type": "integer"},
        "gift": {"type": "boolean"},
        "address": {
            "title": "Address",
            "type": "object",
            "properties": {"street": _STRING, "city": _STRING, "zip": _STRING},
        },
        "tags": {"type": "array", "items": _STRING},
        "attributes": {"type": "object", "additionalProperties": _STRING},
        "note": _STRING,
    },
}

_F: Any = descriptor_pb2.FieldDescriptorProto
_SCALARS: Final = {
    "order_id": _F.TYPE_STRING,
    "number": _F.TYPE_INT64,
    "customer": _F.TYPE_STRING,
    "status": _F.TYPE_STRING,
    "at": _F.TYPE_INT64,
    "due": _F.TYPE_INT32,
    "total": _F.TYPE_INT64,
    "weight": _F.TYPE_DOUBLE,
    "rating": _F.TYPE_FLOAT,
    "items": _F.TYPE_INT32,
    "gift": _F.TYPE_BOOL,
    "note": _F.TYPE_STRING,
}


def _file() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    order = file.message_type.add(name="Order")
    for number, (name, kind) in enumerate(_SCALARS.items(), 1):
        order.field.add(name=name, number=number, type=kind, label=_F.LABEL_OPTIONAL)
    address = order.nested_type.add(name="Address")
    for number, name in enumerate(("street", "city", "zip"), 1):
        address.field.add(name=name, number=number, type=_F.TYPE_STRING, label=_F.LABEL_OPTIONAL)
    entry = order.nested_type.add(name="AttributesEntry")
    entry.options.map_entry = True
    for number, name in enumerate(("key", "value"), 1):
        entry.field.add(name=name, number=number, type=_F.TYPE_STRING, label=_F.LABEL_OPTIONAL)
    of_message: dict[str, Any] = {"type": _F.TYPE_MESSAGE}
    order.field.add(name="address", number=20, type_name=".shop.Order.Address", label=_F.LABEL_OPTIONAL, **of_message)
    order.field.add(name="tags", number=21, type=_F.TYPE_STRING, label=_F.LABEL_REPEATED)
    order.field.add(
        name="attributes", number=22, type_name=".shop.Order.AttributesEntry", label=_F.LABEL_REPEATED, **of_message
    )
    return file


_ARROW: Final = {
    _F.TYPE_STRING: pa.string(),
    _F.TYPE_INT64: pa.int64(),
    _F.TYPE_INT32: pa.int32(),
    _F.TYPE_DOUBLE: pa.float64(),
    _F.TYPE_FLOAT: pa.float32(),
    _F.TYPE_BOOL: pa.bool_(),
}
_FIELDS: Final[dict[str, pa.DataType]] = {
    **{name: _ARROW[kind] for name, kind in _SCALARS.items()},
    "address": pa.struct({name: pa.string() for name in ("street", "city", "zip")}),
    "tags": pa.list_(pa.string()),
    "attributes": pa.map_(pa.string(), pa.string()),
}
COLUMNS: Final = pa.schema(_FIELDS)
"""Of the rows of messages."""
_FILE: Final = _file()
PROTOBUF: Final = base64.b64encode(_FILE.SerializeToString()).decode()
"""The file of the message, as a registry has it."""
_pool: Final = descriptor_pool.DescriptorPool()
_pool.Add(_FILE)
OrderMessage: Final[type[Message]] = message_factory.GetMessageClass(_pool.FindMessageTypeByName("shop.Order"))


def as_message(order: Mapping[str, Any]) -> bytes:
    """The Protobuf message of an order: times, dates and decimals are integers."""
    plain = {name: value for name, value in order.items() if value is not None}
    plain["address"] = {name: value for name, value in order["address"].items() if value is not None}
    plain["at"] = int(order["at"].timestamp() * 1000)
    plain["due"] = order["due"].toordinal()
    plain["total"] = int(order["total"].scaleb(2))
    return OrderMessage(**plain).SerializeToString()


def as_row(message: Any) -> dict[str, Any]:
    """A row of columns of a message."""
    return {
        **{name: getattr(message, name) for name in _SCALARS},
        "address": {name: getattr(message.address, name) for name in ("street", "city", "zip")},
        "tags": list(message.tags),
        "attributes": dict(message.attributes),
    }


def newer(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A version of an Avro schema with one more field, and wider numbers."""
    widened = [{**field, "type": "long"} if field["name"] == "items" else field for field in schema["fields"]]
    coupon = {"name": "coupon", "type": ["null", "string"], "default": None}
    return {**schema, "fields": [*widened, coupon]}
