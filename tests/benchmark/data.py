"""The records of the benchmark: position reports of flights as JSON, 357 bytes each on average, in order of time.

As with real events, a report has an id and numbers of its own, and other fields that many reports share; gzip at level
6 makes them 4.5 times smaller.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import msgspec

from dev.flights import flights
from dev.kafka_broker import KafkaBroker, Message

START = 1_735_689_600_000
"""2025-01-01 in UTC, epoch milliseconds."""
SPACING = 86
"""Milliseconds between two records: 2,000,000 of them fill two days."""


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


def load(broker: KafkaBroker, topic: str, count: int, partitions: int = 4) -> None:
    """Make the topic and fill it."""
    broker.create_topic(topic, partitions)
    broker.produce(
        topic,
        messages(count, partitions),
        compression_type="lz4",
        batch_size=1_000_000,
        queue_buffering_max_messages=200_000,
    )
