"""Folders of fields, keys and times of fields, from Kafka by Spark: each record is in the folder of its value."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pytest

from airflow_provider_kafka_s3.config import ByField, ByKey, Chain, FieldTime, Hourly, JsonLines, Layout, Naming
from dev.kafka_broker import KafkaBroker, Message
from dev.s3_server import S3Server
from tests.spark.pipeline import Pipeline, land_together

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# pyspark leaves the socket for the rows of collect() open until it is garbage-collected.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

COUNT = 120
PARTITIONS = 2
START = 1_767_225_600
NULL = "__HIVE_DEFAULT_PARTITION__"
COUNTRIES = ("NO", "no", "a/b", "..", "", "☃", "50%", None)
KEYS = (b"customer-1", "ü/☃".encode(), b"\xff\xfe", b"", None)
FIELD = ByField(names=("country", "shop.city"))
CHAIN = Chain(partitioners=(ByField(names=("country",)), Hourly(timestamp_from=FieldTime(name="event.time", unit="s"))))
LAYOUTS: dict[str, dict[str, Any]] = {
    "chain": {"partitioner": CHAIN},
    "lower": {"partitioner": CHAIN, "naming": Naming(lowercase_paths=True)},
    "key": {"partitioner": ByKey()},
    "template": {
        "partitioner": FIELD,
        "naming": Naming(file_name_template="{{partition}}-from-{{start_offset:padding=true}}-of-{{topic}}"),
    },
}


def value(n: int) -> dict[str, Any]:
    """Of the n-th record of the topic; times are in order in no partition."""
    event = {"time": START + n * 7_919 % 43_200}
    return {"n": n, "country": COUNTRIES[n % len(COUNTRIES)], "shop": {"city": f"city {n % 3}"}, "event": event}


def key(n: int) -> bytes | None:
    """Of the n-th record."""
    return KEYS[n % len(KEYS)]


def read(folder: str, name: str) -> bytes | None:
    """The value of a folder, as Hive and Spark decode it."""
    found = re.fullmatch(f"{re.escape(name)}=(.+)", folder)
    assert found is not None, folder
    if found[1] == NULL:
        return None
    return (
        b"" if found[1] == "__EMPTY__" else unquote(found[1], errors="surrogateescape").encode(errors="surrogateescape")
    )


def as_bytes(text: str | None) -> bytes | None:
    """A text in UTF-8."""
    return None if text is None else text.encode()


@dataclass(frozen=True)
class Landed:
    """A topic that Spark has landed."""

    pipeline: Pipeline
    topic: str

    def files(self) -> Iterator[tuple[list[str], str, list[dict[str, Any]]]]:
        """Folders, name and records of each object."""
        for path, body in self.pipeline.bodies(f"topics/{self.topic}/").items():
            *folders, name = path.removeprefix(f"topics/{self.topic}/").split("/")
            yield folders, name, [json.loads(line) for line in body.splitlines()]


@pytest.fixture(scope="module")
def landed(spark: SparkSession, s3_server: S3Server, kafka_broker: KafkaBroker) -> Iterator[Mapping[str, Landed]]:
    """The same records with each layout, all landed by one job."""
    bucket, cases = f"lake-{uuid.uuid4().hex}", dict[str, Landed]()
    for name, layout in LAYOUTS.items():
        topic = kafka_broker.create_topic(f"folders-{uuid.uuid4()}", PARTITIONS)
        records = [Message(json.dumps(value(n)).encode(), key=key(n), partition=n % PARTITIONS) for n in range(COUNT)]
        kafka_broker.produce(topic, records)
        pipeline = Pipeline(
            kafka={"bootstrap.servers": kafka_broker.bootstrap_servers},
            endpoint=s3_server.endpoint,
            layout=Layout(format=JsonLines(), **layout),
            bucket=bucket,
            name=name,
        )
        cases[name] = Landed(pipeline, topic)
    land_together(spark, {case.pipeline: case.topic for case in cases.values()})
    yield cases
    for case in cases.values():
        case.pipeline.close()


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_record_is_in_one_object(landed: Mapping[str, Landed], name: str) -> None:
    """Of its topic, with the bytes that were produced."""
    case = landed[name]
    assert case.pipeline.check(case.topic).records == COUNT
    found = sorted((record for _, _, records in case.files() for record in records), key=lambda record: record["n"])
    assert found == [value(n) for n in range(COUNT)]


def test_records_are_in_the_folders_of_a_field_and_of_the_hour_of_another(landed: Mapping[str, Landed]) -> None:
    """Whatever characters the value has, and whatever the order of the times."""
    for (country, *hour), _, records in landed["chain"].files():
        for record in records:
            assert read(country, "country") == as_bytes(record["country"])
            at = datetime.fromtimestamp(record["event"]["time"], UTC)
            assert "/".join(hour) == f"{at:year=%Y/month=%m/day=%d/hour=%H}"


def test_values_that_differ_in_case_share_a_folder_in_lower_case(landed: Mapping[str, Landed]) -> None:
    """Each partition has one object for both; nothing else is merged."""
    folders: dict[str, set[str | None]] = {}
    for (country, *_), _, records in landed["lower"].files():
        folders.setdefault(country, set()).update(record["country"] for record in records)
    assert folders.pop("country=no") == {"NO", "no"}
    assert folders.pop(f"country={NULL}") == {None}
    assert all(len(values) == 1 for values in folders.values())
    assert len(folders) == len(COUNTRIES) - 3


def test_records_are_in_the_folders_of_their_keys(landed: Mapping[str, Landed]) -> None:
    """Keys that are no text, empty ones and null, too."""
    for (folder,), _, records in landed["key"].files():
        assert {key(record["n"]) for record in records} == {read(folder, "key")}


def test_files_have_the_names_of_the_template(landed: Mapping[str, Landed]) -> None:
    """With the partition and the first offset of their records, in the folders of two fields."""
    case = landed["template"]
    for (country, city), name, records in case.files():
        for record in records:
            assert read(country, "country") == as_bytes(record["country"])
            assert read(city, "shop.city") == as_bytes(record["shop"]["city"])
        partition, first = records[0]["n"] % PARTITIONS, records[0]["n"] // PARTITIONS
        assert name == f"{partition}-from-{first:020d}-of-{case.topic}.json"
