"""The records of the benchmark: position reports of flights as JSON, 357 bytes each on average, in order of time.

As with real events, a report has an id and numbers of its own, and other fields that many reports share; gzip at level
6 makes them 4.5 times smaller.
"""

from __future__ import annotations

import io
import itertools
import random
from collections.abc import Iterable, Iterator
from typing import Any, Final

import fastavro
import msgspec

from dev.flights import flights
from dev.kafka_broker import KafkaBroker, Message

START = 1_735_689_600_000
"""2025-01-01 in UTC, epoch milliseconds."""
SPACING = 86
"""Milliseconds between two records: 2,000,000 of them fill two days."""

_TEXTS: Final = ("carrier", "tailnum", "origin", "dest", "time_hour")
SCHEMA_ID: Final = 1
SCHEMA: Final[dict[str, Any]] = {
    "type": "record",
    "name": "Report",
    "fields": [
        {"name": "report_id", "type": "string"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        *(
            {"name": name, "type": "double"}
            for name in ("latitude", "longitude", "altitude", "heading", "ground_speed", "air_temperature")
        ),
        *(
            {"name": name, "type": ["null", "string" if name in _TEXTS else "int"], "default": None}
            for name in (
                *("carrier", "flight", "tailnum", "origin", "dest", "distance", "sched_dep_time", "dep_delay"),
                "time_hour",
            )
        ),
    ],
}
"""Of a report in Avro, and of the columns of Parquet."""
SPARK_SCHEMA: Final = (
    "report_id STRING, at BIGINT, latitude DOUBLE, longitude DOUBLE, altitude DOUBLE, heading DOUBLE, "
    "ground_speed DOUBLE, air_temperature DOUBLE, carrier STRING, flight INT, tailnum STRING, origin STRING, "
    "dest STRING, distance INT, sched_dep_time INT, dep_delay INT, time_hour STRING"
)
"""Of a report as JSON, for Spark, whose timestamps in JSON are texts."""


def messages(count: int, partitions: int) -> Iterator[Message]:
    """``count`` reports, each of a flight and with an id of its own, dealt to the partitions in turn."""
    fields = ("carrier", "flight", "tailnum", "origin", "dest", "distance", "sched_dep_time", "dep_delay", "time_hour")
    planes = [
        msgspec.json.encode({name: flight[name] for name in fields})[1:]
        for flight in itertools.islice(flights(), 100_000)
    ]
    rng = random.Random(2025)
    for n in range(count):
        at = START + n * SPACING
        x, y, z = rng.random(), rng.random(), rng.random()
        report = (
            f'{{"report_id":"{rng.getrandbits(128):032x}","at":{at},"latitude":{25 + 24 * x:.6f},'
            f'"longitude":{-125 + 58 * y:.6f},"altitude":{12_000 * z:.2f},"heading":{360 * x * y:.3f},'
            f'"ground_speed":{200 + 60 * x * z:.3f},"air_temperature":{20 - 70 * z * y:.2f},'
        )
        yield Message(report.encode() + planes[n % len(planes)], partition=n % partitions, timestamp=at)


def avro_messages(count: int, partitions: int) -> Iterator[Message]:
    """The same reports in Avro, with the header of a schema registry."""
    schema, header = fastavro.parse_schema(SCHEMA), b"\0" + SCHEMA_ID.to_bytes(4, "big")
    for message in messages(count, partitions):
        body = io.BytesIO()
        body.write(header)
        fastavro.schemaless_writer(body, schema, msgspec.json.decode(message.value or b""))
        yield Message(body.getvalue(), partition=message.partition, timestamp=message.timestamp)


def load(
    broker: KafkaBroker, topic: str, some: Iterable[Message], partitions: int, *, compression: str = "lz4"
) -> None:
    """Make a topic and fill it."""
    broker.create_topic(topic, partitions)
    broker.produce(
        topic,
        some,
        compression_type=compression,
        batch_size=1_000_000,
        queue_buffering_max_messages=200_000,
    )
