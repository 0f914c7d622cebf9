"""The records of the benchmark: events about flights as JSON, about 370 bytes each, in order of time."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator

import msgspec

from dev.flights import flights
from dev.kafka_broker import KafkaBroker, Message

START = 1_735_689_600_000
"""2025-01-01 in UTC, epoch milliseconds."""
SPACING = 86
"""Milliseconds between two records: 2,000,000 of them fill two days."""


def messages(count: int, partitions: int) -> Iterator[Message]:
    """``count`` events, each of a flight and with an id of its own, dealt to the partitions in turn."""
    bodies = [msgspec.json.encode(flight)[1:] for flight in itertools.islice(flights(), 100_000)]
    for n in range(count):
        at = START + n * SPACING
        event = hashlib.blake2b(n.to_bytes(8, "big"), digest_size=16).hexdigest()
        prefix = f'{{"event_id":"{event}","at":{at},'.encode()
        yield Message(prefix + bodies[n % len(bodies)], partition=n % partitions, timestamp=at)


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
