"""The records of flights, loaded into a real broker."""

from __future__ import annotations

import sys
import uuid
import zlib
from collections import defaultdict
from datetime import datetime
from typing import NamedTuple

import msgspec
import pytest

from airflow_provider_kafka_s3.kafka.offsets import KafkaCluster
from airflow_provider_kafka_s3.kafka.records import read_records
from dev.flights import FLIGHTS, flights, load, messages
from dev.kafka_broker import KafkaBroker


class Flight(NamedTuple):
    """What is kept of a flight: all of them take a gigabyte.

    Attributes:
        carrier: of the flight.
        number: of the flight.
        hour: of its departure.
        checksum: of its record.
    """

    carrier: str
    number: int
    hour: str
    checksum: int


def kept(value: bytes) -> Flight:
    """A flight by its record."""
    flight = msgspec.json.decode(value)
    return Flight(sys.intern(flight["carrier"]), flight["flight"], sys.intern(flight["time_hour"]), zlib.crc32(value))


@pytest.fixture(scope="module")
def all_flights() -> list[Flight]:
    """Every flight, in time order."""
    return [kept(msgspec.json.encode(flight)) for flight in flights()]


def test_every_flight_is_there_in_time_order() -> None:
    """Not in the order of the file, whose tenth month comes second; unknown values are None, not NaN or "NA"."""
    first, hours, kinds = None, list[str](), defaultdict[str, set[str]](set)
    for flight in flights():
        first = first or flight
        hours.append(sys.intern(str(flight["time_hour"])))
        for name, value in flight.items():
            kinds[name].add(type(value).__name__)
            assert value != "NA"
    assert len(hours) == FLIGHTS
    assert hours == sorted(hours)
    assert first == {
        "year": 2013,
        "month": 1,
        "day": 1,
        "dep_time": 517,
        "sched_dep_time": 515,
        "dep_delay": 2,
        "arr_time": 830,
        "sched_arr_time": 819,
        "arr_delay": 11,
        "carrier": "UA",
        "flight": 1545,
        "tailnum": "N14228",
        "origin": "EWR",
        "dest": "IAH",
        "air_time": 227,
        "distance": 1400,
        "hour": 5,
        "minute": 15,
        "time_hour": "2013-01-01T10:00:00Z",
    }
    assert kinds["dep_time"] == {"int", "NoneType"}
    assert kinds["tailnum"] == {"str", "NoneType"}


def test_a_shuffle_is_the_same_every_time(all_flights: list[Flight]) -> None:
    """All flights, out of order, reproducibly."""
    shuffled = [kept(message.value or b"") for message in messages("shuffled")]
    assert [(f.carrier, f.number, f.hour) for f in shuffled[:2]] == [
        ("DL", 2454, "2013-11-27T00:00:00Z"),
        ("UA", 689, "2013-01-21T22:00:00Z"),
    ]
    assert shuffled != all_flights
    assert sorted(shuffled) == sorted(all_flights)


def test_loaded_flights_keep_their_order_and_time(
    kafka_broker: KafkaBroker, kafka_config: dict[str, object], all_flights: list[Flight]
) -> None:
    """Four partitions, none empty; every record's timestamp is its hour; a carrier's flights are in one partition."""
    topic = f"flights-{uuid.uuid4()}"

    assert load(kafka_broker, topic) == FLIGHTS

    ends = KafkaCluster(kafka_config).ends(topic, range(4), "read_committed")
    assert sum(ends.values()) == FLIGHTS
    milliseconds = {t: int(datetime.fromisoformat(t).timestamp()) * 1000 for t in {f.hour for f in all_flights}}
    for partition, end in ends.items():
        records, times = list[Flight](), list[int]()
        for batch in read_records(kafka_config, topic, partition, 0, end, isolation="read_committed"):
            records += map(kept, batch.column("value").to_pylist())
            times += batch.column("timestamp").to_pylist()
        carriers = {record.carrier for record in records}
        assert carriers
        assert records == [f for f in all_flights if f.carrier in carriers]
        assert times == [milliseconds[record.hour] for record in records]
