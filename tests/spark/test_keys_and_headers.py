"""Whole records from Kafka to objects by Spark: in envelopes, or with keys and headers beside the values."""

from __future__ import annotations

import base64
import datetime as dt
import io
import json
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import pytest

from airflow_provider_kafka_s3.config import (
    AvroContainer,
    Envelope,
    JsonLines,
    Layout,
    Parquet,
    Rotation,
    SiblingObjects,
    parse_converter,
)
from airflow_provider_kafka_s3.registry.settings import RegistrySettings
from dev.kafka_broker import KafkaBroker, Message
from dev.s3_server import S3Server
from dev.schema_registry import SchemaRegistry
from tests.landed_rows import rows
from tests.spark.pipeline import Pipeline, land_together

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# pyspark leaves the socket for the rows of collect() open until it is garbage-collected.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

COUNT = 24
EPOCH = dt.datetime.fromtimestamp(0, dt.UTC)
START = 1_767_225_600_000
KEY = {"type": "record", "name": "Key", "namespace": "shop", "fields": [{"name": "id", "type": "long"}]}
VALUE = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [{"name": "n", "type": "long"}, {"name": "note", "type": ["null", "string"], "default": None}],
}
HEADERS: tuple[tuple[tuple[str, bytes | None], ...], ...] = (
    (),
    (("trace", b"1"),),
    (("trace", None), ("trace", b""), ("ü", b"\xff\x00")),
    (("", b"no name"),),
)
FORMATS = {
    "json": JsonLines(on_null="write", compression="gzip"),
    "avro": AvroContainer(on_null="write", codec="deflate"),
    "parquet": Parquet(on_null="write"),
}
CASES = [(kind, name) for kind in ("text", "typed") for name in FORMATS]

Record = tuple[int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]
"""Offset, timestamp, key, value and headers."""


@dataclass(frozen=True)
class Schemas:
    """Ids of the schemas of keys and values."""

    key: int
    value: int

    def datum(self, part: str, row: Any) -> bytes | None:
        """A key or a value as a producer writes it."""
        if row is None:
            return None
        schema_id, schema = (self.key, KEY) if part == "key" else (self.value, VALUE)
        body = io.BytesIO()
        fastavro.schemaless_writer(body, fastavro.parse_schema(schema), row)
        return b"\0" + schema_id.to_bytes(4, "big") + body.getvalue()


def text_record(number: int) -> tuple[bytes | None, bytes | None]:
    """A key of text and a value of any bytes; some are null, the first ones too, and some are empty."""
    key = None if number % 5 in (0, 4) else f"ü{number}".encode() * (number % 3)
    return key, None if number % 4 in (0, 3) else bytes([number, 0, 255, 10]) * (number % 3)


def typed_record(schemas: Schemas, number: int) -> tuple[bytes | None, bytes | None]:
    """A key and a value with schemas; some are null, the first ones too."""
    key = None if number % 5 in (0, 4) else {"id": number}
    value = None if number % 4 in (0, 3) else {"n": number, "note": None if number % 3 else ""}
    return schemas.datum("key", key), schemas.datum("value", value)


def produced(records: list[tuple[bytes | None, bytes | None]]) -> list[Record]:
    """The records as they are in Kafka."""
    return [(n, START + 7_200_000 * n, *record, HEADERS[n % len(HEADERS)]) for n, record in enumerate(records)]


def send(broker: KafkaBroker, records: list[Record]) -> str:
    """Make a topic of one partition."""
    topic = broker.create_topic(f"whole-{uuid.uuid4()}")
    broker.produce(
        topic,
        [Message(value, key=key, partition=0, timestamp=at, headers=headers) for _, at, key, value, headers in records],
    )
    return topic


@dataclass(frozen=True)
class Landed:
    """A topic that Spark has landed, and what is in Kafka."""

    pipeline: Pipeline
    topic: str
    records: list[Record]


@pytest.fixture(scope="module")
def schemas(registry: SchemaRegistry) -> Schemas:
    """Of keys and values."""
    return Schemas(registry.register("whole-key", json.dumps(KEY)), registry.register("whole-value", json.dumps(VALUE)))


@pytest.fixture(scope="module")
def landed(
    spark: SparkSession, s3_server: S3Server, kafka_broker: KafkaBroker, schemas: Schemas, login: RegistrySettings
) -> Iterator[Mapping[tuple[str, str], Landed]]:
    """Envelopes of each kind and format, and values with keys and headers beside them, all landed by one job."""
    bucket = f"lake-{uuid.uuid4().hex}"
    text = produced([text_record(n) for n in range(COUNT)])
    typed = produced([typed_record(schemas, n) for n in range(COUNT)])

    def make(name: str, records: list[Record], converters: tuple[str, str], **layout: Any) -> Landed:
        key, value = converters
        pipeline = Pipeline(
            kafka={"bootstrap.servers": kafka_broker.bootstrap_servers},
            endpoint=s3_server.endpoint,
            layout=Layout(key_converter=parse_converter(key), value_converter=parse_converter(value), **layout),
            bucket=bucket,
            name=name,
            registry=login,
        )
        return Landed(pipeline, send(kafka_broker, records), records)

    cases = {}
    for kind, name in CASES:
        records, converters = (text, ("string", "bytes")) if kind == "text" else (typed, ("avro", "avro"))
        cases[kind, name] = make(f"{kind}-{name}", records, converters, format=FORMATS[name], content=Envelope())
    cases["siblings", "json"] = make(
        "siblings",
        [
            (n, at, schemas.datum("key", {"id": n}), b'{"n":%d}' % n if n % 4 else None, (("h", b"%d" % n),) * (n % 3))
            for n, at, _, _, _ in text
        ],
        ("avro", "json"),
        format=FORMATS["json"],
        content=SiblingObjects(keys=Parquet(), headers=AvroContainer()),
        rotation=Rotation(flush_size=10),
    )
    land_together(spark, {case.pipeline: case.topic for case in cases.values()})
    yield cases
    for case in cases.values():
        case.pipeline.close()


def restored(row: dict[str, Any], topic: str, schemas: Schemas) -> Record:
    """The record of a row of an envelope."""
    assert (row["topic"], row["partition"]) == (topic, 0)
    is_json = isinstance(row["timestamp"], int)
    at = row["timestamp"] if is_json else round((row["timestamp"] - EPOCH) / dt.timedelta(milliseconds=1))

    def part(name: str) -> bytes | None:
        given = row.get(name)  # Parquet has no column of nulls before the first schema
        if given is None or isinstance(given, dict):
            return schemas.datum(name, given)
        return given.encode() if name == "key" else raw(given)

    def raw(given: Any) -> bytes | None:
        return base64.b64decode(given) if isinstance(given, str) else None if given is None else bytes(given)

    headers = tuple((header["key"], raw(header["value"])) for header in row["headers"])
    return row["offset"], at, part("key"), part("value"), headers


@pytest.mark.newest_spark
@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_each_record_can_be_restored_from_its_envelope(
    landed: Mapping[tuple[str, str], Landed], case: tuple[str, str], schemas: Schemas
) -> None:
    """Key, value, headers and timestamp are those that were produced, with nulls, and bytes that are no text."""
    pipeline, topic, records = landed[case].pipeline, landed[case].topic, landed[case].records

    def envelopes(key: str, body: bytes) -> list[Record]:
        return [restored(row, topic, schemas) for row in rows(key, body)]

    found = [record for item in pipeline.bodies(f"topics/{topic}/").items() for record in envelopes(*item)]
    assert sorted(found) == records
    checked = pipeline.check(topic, decoder=lambda key, body: [value for _, _, _, value, _ in envelopes(key, body)])
    assert checked.records == COUNT


@pytest.mark.parametrize("case", [("text", "parquet"), ("typed", "json"), ("siblings", "json")], ids="-".join)
def test_objects_that_spark_has_written_come_back_without_spark(
    landed: Mapping[tuple[str, str], Landed], case: tuple[str, str]
) -> None:
    """Times, nulls, keys and headers have the same digest whoever reads them."""
    pipeline, topic = landed[case].pipeline, landed[case].topic
    before = pipeline.bodies(f"topics/{topic}/")
    for key in before:
        pipeline.client.delete_object(Bucket=pipeline.bucket, Key=key)
    pipeline.settings["action"] = "restore"
    try:
        pipeline.topic_run(topic, f"restore-{topic}").advance()
    finally:
        del pipeline.settings["action"]
    assert pipeline.bodies(f"topics/{topic}/") == before


@pytest.mark.newest_spark
@pytest.mark.parametrize("kind", ["text", "typed"])
def test_spark_reads_envelopes_of_parquet(
    landed: Mapping[tuple[str, str], Landed], kind: str, spark: SparkSession, schemas: Schemas, tmp_path: Path
) -> None:
    """All records of a topic, also those before the first key and value; the folder's partition is the column's."""
    from pyspark.sql.functions import expr

    case = landed[kind, "parquet"]
    for key, body in case.pipeline.bodies(f"topics/{case.topic}/").items():
        file = tmp_path / key
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(body)
    frame = spark.read.option("mergeSchema", "true").parquet(str(tmp_path / "topics" / case.topic))
    read = frame.withColumn("timestamp", expr("unix_millis(timestamp)")).collect()
    assert sorted(restored(row.asDict(recursive=True), case.topic, schemas) for row in read) == case.records


@pytest.mark.newest_spark
def test_keys_and_headers_are_beside_the_values_of_the_same_records(landed: Mapping[tuple[str, str], Landed]) -> None:
    """Row by row; keys and headers of tombstones are in a folder of their own, without an object of values."""
    case = landed["siblings", "json"]
    pipeline, topic = case.pipeline, case.topic
    bodies = {key.removeprefix(f"topics/{topic}/"): body for key, body in pipeline.bodies(f"topics/{topic}/").items()}
    kinds = (".json.gz", ".keys.zstd.parquet", ".headers.avro")
    stems = {name.removesuffix(kind) for name in bodies for kind in kinds if name.endswith(kind)}
    # Of 24 records, 18 have values: objects of 10 records are closed by number, tombstones included.
    assert len([stem for stem in stems if stem.startswith("tombstone/")]) == 3
    numbers = []
    for stem in sorted(stems):
        values, keys, headers = (
            rows(stem + kind, bodies[stem + kind]) if stem + kind in bodies else None for kind in kinds
        )
        assert keys is not None
        assert headers is not None
        ids = [key["id"] for key in keys]
        assert headers == [[{"key": "h", "value": str(n)}] * (n % 3) for n in ids]
        assert values == (None if stem.startswith("tombstone/") else [{"n": n} for n in ids])
        numbers += ids
    assert sorted(numbers) == list(range(COUNT))
    checked = pipeline.check(
        topic,
        decoder=lambda key, body: [
            b'{"n":%d}' % row["n"] if key.endswith(".json.gz") else b"" for row in rows(key, body)
        ],
    )
    assert checked.records == COUNT - COUNT // 4
