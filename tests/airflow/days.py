"""Topics whose records contain their day, and a check that each day is in its folder of the bucket."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from dev.kafka_broker import KafkaBroker, Message

if TYPE_CHECKING:
    from airflow_provider_kafka_s3.storage.s3 import S3Store

JANUARY_1: Final = 1_356_998_400_000
"""Of 2013, in epoch milliseconds."""

DAY: Final = 86_400_000

RECORDS: Final = 6
"""Of each day, half of them in either partition."""


def make_days(kafka_broker: KafkaBroker, topic: str, days: Iterable[int] = range(7)) -> None:
    """Make a topic of two partitions with records of these days of January 2013 (0: the last of December)."""
    kafka_broker.create_topic(topic, 2)
    kafka_broker.produce(
        topic,
        [
            Message(
                json.dumps({"day": day, "n": n}).encode(),
                partition=n % 2,
                timestamp=JANUARY_1 + (day - 1) * DAY + n * DAY // RECORDS,
            )
            for day in days
            for n in range(RECORDS)
        ],
    )


def check_days(store: S3Store, topic: str, days: Iterable[int]) -> None:
    """Check that every object is in the folder of its records' day, and that all records of these days are there."""
    found: dict[int, int] = {}
    for info in store.list(f"topics/{topic}/"):
        stored = store.get(info.key)
        assert stored is not None
        for line in stored.body.splitlines():
            day = json.loads(line)["day"]
            assert f"/year=2013/month=01/day={day:02}/" in info.key
            found[day] = found.get(day, 0) + 1
    assert found == dict.fromkeys(days, RECORDS)
