"""The records of flights, loaded into a real broker."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Any

import msgspec
import pytest

from airflow_provider_kafka_s3.kafka.offsets import KafkaCluster
from airflow_provider_kafka_s3.kafka.records import read_records
from dev.flights import FLIGHTS, flights, load, messages
from dev.kafka_broker import KafkaBroker


@pytest.fixture(scope="module")
def all_flights() -> list[dict[str, Any]]:
    """Every flight, in time order."""
    return list(flights())


def test_every_flight_is_there_in_time_order(all_flights: list[dict[str, Any]]) -> None:
    """Not in the order of the file, whose tenth month comes second; unknown values are None, not NaN or "NA"."""
    hours = [str(f["time_hour"]) for f in all_flights]
    assert len(all_flights) == FLIGHTS
    assert hours == sorted(hours)
    assert all_flights[0] == {
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
    kinds = {name: {type(f[name]).__name__ for f in all_flights} for name in all_flights[0]}
    assert kinds["dep_time"] == {"int", "NoneType"}
    assert kinds["tailnum"] == {"str", "NoneType"}
    assert not any(value == "NA" for f in all_flights for value in f.values())


def test_a_shuffle_is_the_same_every_time(all_flights: list[dict[str, Any]]) -> None:
    """All flights, out of order, reproducibly."""
    shuffled = [msgspec.json.decode(m.value or b"") for m in messages("shuffled")]

    assert [(f["carrier"], f["flight"], f["time_hour"]) for f in shuffled[:2]] == [
        ("DL", 2454, "2013-11-27T00:00:00Z"),
        ("UA", 689, "2013-01-21T22:00:00Z"),
    ]
    key = msgspec.json.encode
    assert shuffled != all_flights
    assert sorted(map(key, shuffled)) == sorted(map(key, all_flights))


def test_loaded_flights_keep_their_order_and_time(
    kafka_broker: KafkaBroker, kafka_config: dict[str, object], all_flights: list[dict[str, Any]]
) -> None:
    """Four partitions, none empty; every record's timestamp is its hour; a carrier's flights are in one partition."""
    topic = f"flights-{uuid.uuid4()}"

    assert load(kafka_broker, topic) == FLIGHTS

    ends = KafkaCluster(kafka_config).ends(topic, range(4), "read_committed")
    assert sum(ends.values()) == FLIGHTS
    milliseconds = {t: int(datetime.fromisoformat(t).timestamp()) * 1000 for t in {f["time_hour"] for f in all_flights}}
    for partition, end in ends.items():
        batches = list(read_records(kafka_config, topic, partition, 0, end, isolation="read_committed"))
        records = [msgspec.json.decode(v) for batch in batches for v in batch.column("value").to_pylist()]
        carriers = {r["carrier"] for r in records}
        assert carriers
        assert records == [f for f in all_flights if f["carrier"] in carriers]
        times = [t for batch in batches for t in batch.column("timestamp").to_pylist()]
        assert times == [milliseconds[r["time_hour"]] for r in records]
