"""A topic of Avro values of a schema registry, and its records in a form that readers of all formats share."""

from __future__ import annotations

import base64
import datetime as dt
import io
import json
import uuid
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import fastavro

from dev.kafka_broker import KafkaBroker, Message
from dev.schema_registry import SchemaRegistry
from tests import landed_rows
from tests.landed_rows import MILLISECOND

__all__ = ["BAD", "COUNT", "SUBJECT", "V1", "V2", "Orders", "normal", "order", "rows", "send_orders"]

SUBJECT: Final = "orders-value"
COUNT: Final = 60
BAD: Final = {17: "not Avro", 40: "is not in the schema registry"}
"""Numbers of the records that are no Avro of a schema, and words of the reason."""

_PLACE: Final = {"type": "record", "name": "Place", "fields": [{"name": "lat", "type": "double"}]}
V1: Final[dict[str, Any]] = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": ["null", "string"], "default": None},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["OPEN", "PAID"]}},
        {"name": "place", "type": ["null", _PLACE]},
    ],
}
_TAGS: Final[dict[str, Any]] = {"name": "tags", "type": {"type": "array", "items": "string"}, "default": []}
_COUNTS: Final[dict[str, Any]] = {"name": "counts", "type": {"type": "map", "values": "long"}, "default": {}}
V2: Final[dict[str, Any]] = {**V1, "fields": [*V1["fields"], _TAGS, _COUNTS]}

_EPOCH: Final = dt.datetime.fromtimestamp(0, dt.UTC)


def order(number: int) -> dict[str, Any]:
    """An order; every second one has the fields of the second version."""
    made: dict[str, Any] = {
        "id": number,
        "customer": None if number % 3 else f"ü{number}",
        "at": _EPOCH + dt.timedelta(milliseconds=1_767_225_600_000 + number),
        "day": dt.date(1970, 1, 1) + dt.timedelta(days=number - 5),
        "price": Decimal(number * 7 - 100).scaleb(-2),
        "state": ("OPEN", "PAID")[number % 5 == 0],
        "place": {"lat": number / 4} if number % 4 else None,
    }
    return {**made, "tags": [f"t{n}" for n in range(number % 3)], "counts": {"a": number}} if number % 2 else made


@dataclass(frozen=True)
class Orders:
    """A topic of Avro values.

    Attributes:
        topic: with two partitions, and both schemas in each of them.
        ids: of the two schemas.
    """

    topic: str
    ids: tuple[int, int]

    def decode(self, value: bytes) -> bytes:
        """A value of Kafka as :func:`rows` returns it."""
        schema = (V1, V2)[self.ids.index(int.from_bytes(value[1:5]))]
        return normal(fastavro.schemaless_reader(io.BytesIO(value[5:]), fastavro.parse_schema(schema), None))


def send_orders(broker: KafkaBroker, registry: SchemaRegistry) -> Orders:
    """Make a topic whose schemas alternate, with a value that is cut off, and one whose schema was never registered."""
    topic = broker.create_topic(f"orders-{uuid.uuid4()}", 2)
    first, second = (registry.register(SUBJECT, json.dumps(schema)) for schema in (V1, V2))

    def value(number: int) -> bytes:
        schema, schema_id = (V2, second) if number % 2 else (V1, first)
        body = io.BytesIO()
        fastavro.schemaless_writer(body, fastavro.parse_schema(schema), order(number))
        datum = body.getvalue()
        if number in BAD:
            schema_id, datum = (schema_id, datum[:-1]) if "Avro" in BAD[number] else (2**31 - 1, datum)
        return b"\0" + schema_id.to_bytes(4, "big") + datum

    messages = [Message(value(n), key=b"%d" % n, partition=n // 2 % 2, headers=(("n", None),)) for n in range(COUNT)]
    broker.produce(topic, messages)
    return Orders(topic, (first, second))


def normal(row: Any) -> bytes:
    """A row in the form that all readers share; times of these orders are in milliseconds."""
    return landed_rows.normal(row, MILLISECOND)


def rows(key: str, body: bytes) -> list[bytes]:
    """The records of an object, in their normal form."""
    found = landed_rows.rows(key, body)
    if not key.endswith((".avro", ".parquet")):
        found = [row | {"price": int.from_bytes(base64.b64decode(row["price"]), signed=True)} for row in found]
    return [normal(row) for row in found]
