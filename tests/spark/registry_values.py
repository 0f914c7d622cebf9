"""Topics of Protobuf and of JSON values of a schema registry, and their records in a form that all readers share."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf import descriptor_pb2

from dev.kafka_broker import KafkaBroker, Message
from dev.schema_registry import SchemaRegistry
from tests import landed_rows
from tests.landed_rows import normal
from tests.protobuf_values import classes, expected, text_of

__all__ = ["RegistryValues", "key_of", "rows", "send_documents", "send_messages"]

UNKNOWN_ID: Final = 2**31 - 1

_F: Any = descriptor_pb2.FieldDescriptorProto


@dataclass(frozen=True)
class RegistryValues:
    """A topic of values of a schema registry.

    Attributes:
        topic: with two partitions.
        converter: the kind of its converter.
        count: number of its records.
        bad: partition and offset of the records that are invalid, and words of the reason.
        decode: a value of Kafka as :func:`rows` returns it.
    """

    topic: str
    converter: str
    count: int
    bad: Mapping[tuple[int, int], str]
    decode: Callable[[bytes], bytes]


# -- Protobuf ---------------------------------------------------------------------------------------------------------


def _field(name: str, number: int, kind: str, **more: Any) -> Any:
    """A field of a scalar type, or of the type of a name with dots."""
    named = {"type_name": kind, "type": _F.TYPE_MESSAGE} if "." in kind else {"type": getattr(_F, f"TYPE_{kind}")}
    return _F(**{"name": name, "number": number, "label": _F.LABEL_OPTIONAL, **named, **more})


def _message(name: str, *fields: Any, **more: Any) -> Any:
    return descriptor_pb2.DescriptorProto(name=name, field=fields, **more)


def _place_file() -> Any:
    place = _message("Place", _field("lat", 1, "DOUBLE"), _field("lon", 2, "DOUBLE"))
    return descriptor_pb2.FileDescriptorProto(
        name="shop/geo/place.proto", package="shop.geo", syntax="proto3", message_type=[place]
    )


def _order_file() -> Any:
    """Orders, and refunds with a message inside; both refer to places."""
    state = descriptor_pb2.EnumDescriptorProto(name="State")
    for number, name in enumerate(("OPEN", "PAID")):
        state.value.add(name=name, number=number)
    counts = _message("CountsEntry", _field("key", 1, "STRING"), _field("value", 2, "SINT64"))
    counts.options.map_entry = True
    repeated = {"label": _F.LABEL_REPEATED}
    order = _message(
        "Order",
        _field("id", 1, "INT64"),
        _field("customer", 2, "STRING", proto3_optional=True, oneof_index=1),
        _field("place", 3, ".shop.geo.Place"),
        _field("state", 4, ".shop.Order.State", type=_F.TYPE_ENUM),
        _field("sizes", 5, "SINT32", **repeated),
        _field("counts", 6, ".shop.Order.CountsEntry", **repeated),
        _field("at", 7, ".google.protobuf.Timestamp"),
        _field("token", 8, "BYTES"),
        _field("card", 9, "STRING", oneof_index=0),
        _field("cash", 10, "UINT64", oneof_index=0),
        _field("lines", 11, ".shop.Order.Line", **repeated),
        # Beside entries of maps, which serializers do not count.
        nested_type=[counts, _message("Line", _field("sku", 1, "STRING"), _field("weight", 2, "FLOAT"))],
        enum_type=[state],
    )
    order.oneof_decl.add(name="payment")
    order.oneof_decl.add(name="_customer")
    reason = _message("Reason", _field("text", 1, "STRING"), _field("place", 2, ".shop.geo.Place"))
    refund = _message(
        "Refund", _field("reason", 1, ".shop.Refund.Reason"), _field("order", 2, "INT64"), nested_type=[reason]
    )
    return descriptor_pb2.FileDescriptorProto(
        name="shop/order.proto",
        package="shop",
        syntax="proto3",
        dependency=["shop/geo/place.proto", "google/protobuf/timestamp.proto"],
        message_type=[order, refund],
    )


_INDEXES: Final = {
    "shop.Order": b"\0",
    "shop.Order.Line": b"\4\0\0",
    "shop.Refund": b"\2\2",
    "shop.Refund.Reason": b"\4\2\0",
}
"""Of messages: their number and each of them, by zigzag; the first message has the short form."""


def _filled(kinds: Mapping[str, Any], number: int) -> Any:
    """A message of each kind in turn."""
    name = list(_INDEXES)[number % len(_INDEXES)]
    message = kinds[name]()
    if name == "shop.Order.Line":
        message.sku = f"ü{number}"
    elif name == "shop.Refund.Reason":
        message.text = f"reason {number}"
        message.place.lat = -number / 4
    elif name == "shop.Refund":
        message.reason.text = "x" * number
        message.order = -number
    else:
        message.id = number
        message.at.FromMilliseconds(1_767_225_600_000 + number)
        message.state = number // 4 % 2
        message.token = bytes([number, 255])
        message.sizes.extend(range(-1, number % 3))
        message.counts["a"] = -number
        message.lines.add(sku="s", weight=number / 8)
        if number % 8:
            message.customer = ""
            message.place.lon = number / 2
            message.cash = 2**63 - 1 - number
        else:
            message.card = f"card {number}"
    return message


def send_messages(broker: KafkaBroker, registry: SchemaRegistry, *, whole: bool = False) -> RegistryValues:
    """Make a topic of four messages of a file that imports another one, and of three values that are no messages.

    Args:
        broker: where the topic is made.
        registry: of the schemas.
        whole: whether the last value is null, and the records have keys of a JSON Schema (:func:`key_of`) and headers.
    """
    place, file = _place_file(), _order_file()
    registry.register(place.name, text_of(place), "PROTOBUF")
    reference = {"name": place.name, "subject": place.name, "version": 1}
    schema_id = registry.register("shop-orders-value", text_of(file), "PROTOBUF", [reference])
    kinds = classes(file, place)
    good = 40
    values: list[bytes | None] = []
    for number in range(good):
        message = _filled(kinds, number)
        values.append(_framed(schema_id, _INDEXES[message.DESCRIPTOR.full_name] + message.SerializeToString()))
    bad = {
        "its bytes are no such message": _framed(schema_id, b"\0" + _filled(kinds, 4).SerializeToString()[:-1]),
        "has no message of the index": _framed(schema_id, b"\2\6"),
        "is not in the schema registry": _framed(UNKNOWN_ID, b"\0"),
    }

    def decode(value: bytes) -> bytes:
        body = value[5:]
        name = max((n for n, header in _INDEXES.items() if body.startswith(header)), key=lambda n: len(_INDEXES[n]))
        return normal(_with_maps(expected(kinds[name], body[len(_INDEXES[name]) :])))

    if not whole:
        return _sent(broker, "protobuf", values, bad, decode)
    key_id = registry.register("shop-keys", json.dumps(_PLACE), "JSON")
    return _sent(
        broker,
        "protobuf",
        [*values, None],
        bad,
        decode,
        lambda n: {"key": _framed(key_id, json.dumps({"lat": n}).encode()), "headers": (("n", b"%d" % n), ("n", None))},
    )


def key_of(number: int) -> dict[str, Any]:
    """The key of a whole record, as it is landed; the offset is half of its number."""
    return {"lat": float(number), "names": None}


def _with_maps(value: Any) -> Any:
    match value:
        case {"map": pairs}:
            return {key: _with_maps(item) for key, item in pairs}
        case dict():
            return {name: _with_maps(field) for name, field in value.items()}
        case list():
            return [_with_maps(item) for item in value]
    return value


# -- JSON Schema ------------------------------------------------------------------------------------------------------

_PLACE: Final = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "$id": "http://shop/place.json",
    "title": "Place",
    "type": "object",
    "properties": {"lat": {"type": "number"}, "names": {"type": "array", "items": {"type": "string"}}},
    "required": ["lat"],
}
_DOCUMENT: Final = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "Order",
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "customer": {"oneOf": [{"type": "null"}, {"type": "string"}]},
        "place": {"$ref": "http://shop/place.json"},
        "from": {"$ref": "#/definitions/from"},
        "state": {"type": "string", "enum": ["OPEN", "PAID"], "default": "OPEN"},
        "counts": {"type": "object", "additionalProperties": {"type": "integer"}},
        "day": {"type": "integer", "connect.type": "int32", "title": "org.apache.kafka.connect.data.Date"},
    },
    "required": ["id", "day"],
    "definitions": {"from": {"type": "array", "items": {"$ref": "http://shop/place.json"}}},
}


def _document(number: int) -> dict[str, Any]:
    """A document without the properties that it need not have; the schema does not have all properties of some."""
    made: dict[str, Any] = {"id": number, "day": number - 5}
    if number % 2:
        made |= {"customer": f"ü{number}", "place": {"lat": number / 4, "unknown": {"a": []}}, "state": "PAID"}
    if number % 3 == 0:
        made |= {"customer": None, "counts": {"a": -number, "": 2**60}, "from": [{"lat": 1, "names": ["", "y"]}]}
    return made


def _landed_document(document: Mapping[str, Any]) -> dict[str, Any]:
    """What becomes of a document: its properties of the schema, and null or the default for those that are missing."""

    def place(given: Mapping[str, Any]) -> dict[str, Any]:
        return {"lat": float(given["lat"]), "names": given.get("names")}

    return {
        **{name: document.get(name) for name in ("id", "customer", "counts", "day")},
        "place": place(document["place"]) if "place" in document else None,
        "from": [place(item) for item in document["from"]] if "from" in document else None,
        "state": document.get("state", "OPEN"),
    }


def send_documents(broker: KafkaBroker, registry: SchemaRegistry) -> RegistryValues:
    """Make a topic of documents of a schema that refers to another one, and of three values that are none."""
    subject = _PLACE["$id"]
    registry.register(str(subject), json.dumps(_PLACE), "JSON")
    reference = {"name": subject, "subject": subject, "version": 1}
    schema_id = registry.register("shop-documents-value", json.dumps(_DOCUMENT), "JSON", [reference])
    good = 40
    values = [_framed(schema_id, json.dumps(_document(number)).encode()) for number in range(good)]
    bad = {
        "is not one JSON document": _framed(schema_id, json.dumps(_document(3)).encode()[:-1]),
        "field day is missing": _framed(schema_id, b'{"id": 1}'),
        "is not in the schema registry": _framed(UNKNOWN_ID, b"{}"),
    }
    return _sent(broker, "json_schema", values, bad, lambda value: normal(_landed_document(json.loads(value[5:]))))


# -- both -------------------------------------------------------------------------------------------------------------


def _framed(schema_id: int, body: bytes) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + body


def _sent(
    broker: KafkaBroker,
    converter: str,
    good: Sequence[bytes | None],
    bad: Mapping[str, bytes],
    decode: Callable[[bytes], bytes],
    more: Callable[[int], dict[str, Any]] = lambda _: {},
) -> RegistryValues:
    """Make a topic with the values in two partitions in turn; the invalid ones are in the middle.

    ``more`` gives the key and the headers of a record by its number.
    """
    half = len(good) // 2
    values = [*good[:half], *bad.values(), *good[half:]]
    topic = broker.create_topic(f"{converter}-{uuid.uuid4()}", 2)
    broker.produce(topic, [Message(value, partition=n % 2, **more(n)) for n, value in enumerate(values)])
    places = {(n % 2, n // 2): words for n, words in enumerate(bad, half)}
    return RegistryValues(topic, converter, len(values), places, decode)


def rows(key: str, body: bytes) -> list[bytes]:
    """The records of an object, in their normal form."""
    return [normal(row) for row in landed_rows.rows(key, body)]
