"""What a replay costs: CPU of the process that reads objects and sends their records, beside a plain producer.

The plain producer has the same records in memory, with key, partition, timestamp and headers, and sends them in
transactions as large, with the same settings. Each turn is a process of its own, that sends to a topic of its own.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import statistics
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from typing import Any, Final

from airflow_provider_kafka_s3.batch.location import TopicLocation
from airflow_provider_kafka_s3.config import (
    AvroContainer,
    BytesConverter,
    Envelope,
    JsonConverter,
    JsonLines,
    Layout,
    Parquet,
)
from airflow_provider_kafka_s3.documents.addresses import TopicAddress
from airflow_provider_kafka_s3.kafka.records import read_records
from airflow_provider_kafka_s3.kafka.source import KafkaSource
from airflow_provider_kafka_s3.reading.records import kept_parts
from airflow_provider_kafka_s3.replay.job import collect_seldom, send
from airflow_provider_kafka_s3.replay.plan import plan_replay
from airflow_provider_kafka_s3.replay.request import ReplayRequest
from dev.kafka_broker import KafkaBroker, Message
from tests.benchmark.data import load, messages
from tests.spark.pipeline import CREDENTIALS, ROOT, Pipeline, s3_settings

PLAIN_VALUES: Final = "plain producer, values"
PLAIN: Final = "plain producer, whole records"
PLAIN_HEADERS: Final = "plain producer, three headers"
PARTS: Final = {
    PLAIN_VALUES: ["value"],
    PLAIN: ["value", "key", "timestamp"],
    PLAIN_HEADERS: ["value", "key", "timestamp", "headers"],
}
"""What each plain producer sends."""
LAYOUTS: Final = {
    "JSON lines, gzip": Layout(value_converter=JsonConverter(), format=JsonLines(compression="gzip")),
    "JSON envelope, gzip": Layout(
        value_converter=JsonConverter(), content=Envelope(), format=JsonLines(compression="gzip")
    ),
    "Avro envelope, zstandard": Layout(
        value_converter=BytesConverter(), content=Envelope(), format=AvroContainer(codec="zstandard")
    ),
    "Parquet envelope, zstd": Layout(value_converter=BytesConverter(), content=Envelope(), format=Parquet()),
}
_HEADERS: Final = ", three headers"
PLAIN_OF: Final = {
    **{name: PLAIN if isinstance(layout.content, Envelope) else PLAIN_VALUES for name, layout in LAYOUTS.items()},
    **{f"{name}{_HEADERS}": PLAIN_HEADERS for name, layout in LAYOUTS.items() if isinstance(layout.content, Envelope)},
}
"""The replays, and the plain producer that sends the same parts of records."""
GOAL: Final = 1.5
RECORDS: Final = 400_000
_PARTITIONS: Final = 2
_TRANSACTION: Final = 10_000


def replays(endpoint: str, broker: KafkaBroker, rounds: int) -> dict[str, Any]:
    """Measure; microseconds of CPU per record, by the name of a case."""
    topics = {has_headers: f"replayed-{uuid.uuid4().hex[:8]}" for has_headers in (False, True)}
    for has_headers, topic in topics.items():
        load(broker, topic, _messages(has_headers=has_headers), _PARTITIONS)
    found: dict[str, list[float]] = {}
    cases: dict[str, dict[str, Any]] = {
        name: {"topic": topics[name == PLAIN_HEADERS], "parts": parts} for name, parts in PARTS.items()
    }
    for name, plain in PLAIN_OF.items():
        layout = LAYOUTS[name.removesuffix(_HEADERS)]
        pipeline = Pipeline(kafka={"bootstrap.servers": broker.bootstrap_servers}, endpoint=endpoint, layout=layout)
        pipeline.land_here(topic := topics[plain == PLAIN_HEADERS])
        cases[name] = {
            "topic": topic,
            "bucket": pipeline.bucket,
            "pipeline": pipeline.name,
            "topics_dir": layout.topics_dir,
            "without": [*kept_parts(layout).missing.keys() - {"offset"}],
        }
    for _, (name, case) in itertools.product(range(rounds), cases.items()):
        broker.create_topic(target := f"target-{uuid.uuid4().hex[:8]}", _PARTITIONS)
        job = {**case, "servers": broker.bootstrap_servers, "endpoint": endpoint, "target": target}
        done = subprocess.run(
            [sys.executable, "-m", "tests.benchmark.replay", json.dumps(job)],
            stdout=subprocess.PIPE,
            check=True,
            cwd=ROOT,
        )
        found.setdefault(name, []).append(json.loads(done.stdout)["us"])
        broker.delete_topic(target)
    return {name: round(statistics.median(turns), 2) for name, turns in found.items()}


def ratios(found: dict[str, Any]) -> dict[str, float]:
    """CPU beside that of a plain producer of the same parts of records."""
    return {name: found[name] / found[plain] for name, plain in PLAIN_OF.items()}


def table(found: dict[str, Any]) -> list[str]:
    """The figures as lines of text."""
    beside = ratios(found)
    return [
        f"  {name:32}{us:8.2f} us of CPU a record" + (f", {beside[name]:.2f} times" if name in beside else "")
        for name, us in found.items()
    ]


def _messages(*, has_headers: bool) -> Iterator[Message]:
    for n, m in enumerate(messages(RECORDS, _PARTITIONS)):
        trace = b"00-%032x-%016x-01" % (n * 0x9E3779B97F4A7C15F39CC0605CEDC835 % 2**128, n)
        headers = ("traceparent", trace), ("source", b"reports"), ("content-type", b"application/json")
        key = f"key-{n % 10_000}".encode()
        yield dataclasses.replace(m, key=key, headers=headers if has_headers else None)


def main() -> None:
    """One turn, in this process."""
    job = json.loads(sys.argv[1])
    measured = _replay if "bucket" in job else _plain
    print(json.dumps({"us": measured(job) / RECORDS * 1e6}))


def _plain(job: dict[str, Any]) -> float:
    from confluent_kafka import Producer

    config = {"bootstrap.servers": job["servers"]}
    held = []
    for partition in range(_PARTITIONS):
        batches = read_records(
            config, job["topic"], partition, 0, RECORDS // _PARTITIONS, isolation="read_committed", whole=True
        )
        held.append([_parts(record) for batch in batches for record in batch.select(job["parts"]).to_pylist()])
    if sum(map(len, held)) != RECORDS:
        raise RuntimeError(f"the topic has {[*map(len, held)]} records")
    start = time.process_time()
    for partition, kept in enumerate(held):
        producer = Producer({**config, "transactional.id": job["target"], "linger.ms": 200})
        producer.init_transactions(60)
        remaining = iter(kept)
        while batch := [*itertools.islice(remaining, _TRANSACTION)]:
            producer.begin_transaction()
            for record in batch:
                producer.produce(job["target"], **record, partition=partition)
                producer.poll(0)
            producer.commit_transaction(60)
    return time.process_time() - start


def _parts(record: dict[str, Any]) -> dict[str, Any]:
    """The arguments of the call that sends a record."""
    if "headers" in record:
        record["headers"] = [(header["key"], header["value"]) for header in record["headers"]]
    return record


def _replay(job: dict[str, Any]) -> float:
    address = TopicAddress(topics_dir=job["topics_dir"], pipeline=job["pipeline"], topic=job["topic"])
    place = TopicLocation(job["bucket"], address, s3_settings(job["endpoint"]), CREDENTIALS)
    request = ReplayRequest(replay=uuid.uuid4().hex, target=job["target"], without=tuple(job["without"]))
    config = {"bootstrap.servers": job["servers"]}
    plan = plan_replay(place.open_log(), request, KafkaSource(config).describe(job["target"]))
    collect_seldom()
    start = time.process_time()
    sent = send(place, config, request, plan)
    if sum(sent.values()) != RECORDS:
        raise RuntimeError(f"{sent} were sent instead of {RECORDS} records")
    return time.process_time() - start


if __name__ == "__main__":
    main()
