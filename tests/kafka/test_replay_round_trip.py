"""Generated records of a real topic are landed, replayed into another one, and equal there to what they were."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any, Final

import pytest

from airflow_provider_kafka_s3.config import (
    AvroContainer,
    BlockGzip,
    BytesConverter,
    Envelope,
    JsonLines,
    Layout,
    Parquet,
    RawBytes,
    SiblingObjects,
)
from airflow_provider_kafka_s3.reading.records import Record, kept_parts
from airflow_provider_kafka_s3.replay.request import ReplayRequest
from airflow_provider_kafka_s3.replay.run import replay
from dev.kafka_broker import KafkaBroker, Message
from dev.s3_server import S3Server
from tests.kafka.test_replay_sender import committed
from tests.spark.pipeline import Pipeline

COUNT: Final = 300
NOW: Final = 1_750_000_000_000
NO_TIMESTAMP: Final = -1
BYTES: Final = BytesConverter()
WHOLE: Final[dict[str, Any]] = {"content": Envelope(), "key_converter": BYTES, "value_converter": BYTES}
BESIDE: Final[dict[str, Any]] = {
    "content": SiblingObjects(keys=AvroContainer(), headers=JsonLines()),
    "key_converter": BYTES,
    "value_converter": BYTES,
}
LAYOUTS: Final = {
    "bytes": {
        "json": Layout(format=JsonLines(compression="gzip", on_null="write"), **WHOLE),
        "blocks": Layout(format=BlockGzip(lines=JsonLines(on_null="write"), block_size=10_000), **WHOLE),
        "avro": Layout(format=AvroContainer(codec="deflate", on_null="write"), **WHOLE),
        "parquet": Layout(format=Parquet(on_null="write", row_group_records=100), **WHOLE),
    },
    "documents": {
        "avro-siblings": Layout(format=AvroContainer(), **BESIDE),
        "lines": Layout(format=RawBytes(compression="gzip")),
    },
}
"""Layouts by the records that they keep: any bytes, or documents without nulls."""


@pytest.fixture(scope="module")
def s3_server() -> Iterator[S3Server]:
    """A store that child processes reach."""
    with S3Server() as server:
        yield server


def generated(kind: str, random: Random) -> list[Message]:
    """Records of two partitions: nulls, empty values, equal keys, headers, any times, and a value of a megabyte."""

    def some() -> bytes | None:
        size = random.choice((0, 1, 30))
        if kind == "bytes":
            return None if random.random() < 0.2 else random.randbytes(size)
        return json.dumps({"text": "".join(random.choices('aé\u2028"\\{ 0', k=size))}).encode()

    found = [
        Message(
            some(),
            key=random.choice((b"", b"k", some())),
            partition=random.randrange(2),
            # librdkafka sends 0 as the present time.
            timestamp=random.choice((NO_TIMESTAMP, 1, -7, -(2**40), random.randrange(1, NOW))),
            headers=tuple((random.choice(("h", "é", "")), b"%d" % n) for n in range(random.randrange(3))) or None,
        )
        for _ in range(COUNT)
    ]
    megabyte = b'"%b"' % (b"x" * 1_000_000) if kind == "documents" else b"x" * 1_000_000
    return [*found, Message(megabyte, key=b"k", partition=1, timestamp=5)]


def as_kept(layout: Layout, record: Record) -> tuple[Any, ...]:
    """The parts of a record that a layout keeps."""
    kept = kept_parts(layout).kept
    return tuple(getattr(record, name) for name in ("key", "value", "headers", "timestamp") if name in kept)


def test_generated_records_of_every_format_come_back_as_they_were(
    kafka_broker: KafkaBroker, s3_server: S3Server
) -> None:
    """In their order, by one topic for each format; the replay names what a layout does not keep."""
    config = {"bootstrap.servers": kafka_broker.bootstrap_servers}
    random = Random(7)

    def round_trip(name: str, layout: Layout, messages: list[Message]) -> None:
        source, target = (
            kafka_broker.create_topic(
                f"{kind}-{name}-{uuid.uuid4().hex[:8]}", 2, {"max.message.bytes": "3000000", "retention.ms": "-1"}
            )
            for kind in ("landed", "replayed")
        )
        kafka_broker.produce(source, messages, message_max_bytes=3_000_000)
        pipeline = Pipeline(kafka=config, endpoint=s3_server.endpoint, layout=layout)
        pipeline.land_here(source)
        place = pipeline.location(source)
        pipeline.close()
        missing: Any = tuple(part for part in kept_parts(layout).missing if part != "offset")
        done = replay(place, config, ReplayRequest(replay=target, target=target, without=missing))
        assert sum(done.sent.values()) == len(messages)
        for partition in (0, 1):
            before, after = (
                [as_kept(layout, one) for one in committed(kafka_broker, topic, partition)]
                for topic in (source, target)
            )
            assert len(before) == sum(message.partition == partition for message in messages)
            wrong = [offset for offset, pair in enumerate(zip(before, after, strict=True)) if pair[0] != pair[1]]
            assert wrong == [], f"{name}: {before[wrong[0]]!r:.200} came back as {after[wrong[0]]!r:.200}"

    with ThreadPoolExecutor(4) as threads:
        runs = [
            threads.submit(round_trip, name, layout, generated(kind, random))
            for kind, layouts in LAYOUTS.items()
            for name, layout in layouts.items()
        ]
        for run in runs:
            run.result()
