"""What a replay costs: CPU of the process that reads objects and sends their records, beside a plain producer.

The plain producer has the same records in memory, with key, partition and timestamp, and sends them in transactions as
large, with the same settings. Each turn is a process of its own, that sends to a topic of its own.
"""

from __future__ import annotations

import itertools
import json
import statistics
import subprocess
import sys
import time
import uuid
from typing import Any, Final

from airflow_provider_kafka_s3.config import (
    AvroContainer,
    BytesConverter,
    Envelope,
    JsonConverter,
    JsonLines,
    Layout,
    Parquet,
)
from airflow_provider_kafka_s3.kafka.records import read_records
from airflow_provider_kafka_s3.kafka.source import KafkaSource
from airflow_provider_kafka_s3.reading.records import kept_parts
from airflow_provider_kafka_s3.replay.plan import plan_replay
from airflow_provider_kafka_s3.replay.request import ReplayRequest
from airflow_provider_kafka_s3.replay.run import Place, send
from dev.kafka_broker import KafkaBroker, Message
from tests.benchmark.data import load, messages
from tests.spark.pipeline import CREDENTIALS, ROOT, Pipeline, s3_settings

PLAIN_VALUES: Final = "plain producer, values"
PLAIN: Final = "plain producer, whole records"
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
WHOLE: Final = frozenset(name for name, layout in LAYOUTS.items() if isinstance(layout.content, Envelope))
GOAL: Final = 1.5
RECORDS: Final = 400_000
_PARTITIONS: Final = 2
_TRANSACTION: Final = 10_000


def replays(endpoint: str, broker: KafkaBroker, rounds: int) -> dict[str, Any]:
    """Measure; microseconds of CPU per record, by the name of a case."""
    topic = f"replayed-{uuid.uuid4().hex[:8]}"
    keyed = (
        Message(m.value, partition=m.partition, timestamp=m.timestamp, key=f"key-{n % 10_000}".encode())
        for n, m in enumerate(messages(RECORDS, _PARTITIONS))
    )
    load(broker, topic, keyed, _PARTITIONS)
    found: dict[str, list[float]] = {}
    cases: dict[str, dict[str, Any]] = {PLAIN_VALUES: {"without": ["key", "timestamp"]}, PLAIN: {"without": []}}
    for name, layout in LAYOUTS.items():
        pipeline = Pipeline(kafka={"bootstrap.servers": broker.bootstrap_servers}, endpoint=endpoint, layout=layout)
        pipeline.land_here(topic)
        cases[name] = {
            "bucket": pipeline.bucket,
            "pipeline": pipeline.name,
            "topics_dir": layout.topics_dir,
            "without": [*kept_parts(layout).missing.keys() - {"offset"}],
        }
    for _, (name, case) in itertools.product(range(rounds), cases.items()):
        broker.create_topic(target := f"target-{uuid.uuid4().hex[:8]}", _PARTITIONS)
        job = {**case, "servers": broker.bootstrap_servers, "endpoint": endpoint, "topic": topic, "target": target}
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
    return {name: found[name] / found[PLAIN if name in WHOLE else PLAIN_VALUES] for name in LAYOUTS}


def table(found: dict[str, Any]) -> list[str]:
    """The figures as lines of text."""
    beside = ratios(found)
    return [
        f"  {name:32}{us:8.2f} us of CPU a record" + (f", {beside[name]:.2f} times" if name in beside else "")
        for name, us in found.items()
    ]


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
        columns = ["value", "key", "timestamp"]
        batches = read_records(
            config, job["topic"], partition, 0, RECORDS // _PARTITIONS, isolation="read_committed", whole=True
        )
        records = (record for batch in batches for record in batch.select(columns).to_pylist())
        held.append([{name: part for name, part in record.items() if name not in job["without"]} for record in records])
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


def _replay(job: dict[str, Any]) -> float:
    place = Place(
        bucket=job["bucket"],
        topics_dir=job["topics_dir"],
        pipeline=job["pipeline"],
        topic=job["topic"],
        s3=s3_settings(job["endpoint"]),
        credentials=CREDENTIALS,
    )
    request = ReplayRequest(replay=uuid.uuid4().hex, target=job["target"], without=tuple(job["without"]))
    config = {"bootstrap.servers": job["servers"]}
    plan = plan_replay(place.log(), request, KafkaSource(config).describe(job["target"]))
    start = time.process_time()
    sent = send(place, config, request, plan)
    if sum(sent.values()) != RECORDS:
        raise RuntimeError(f"{sent} were sent instead of {RECORDS} records")
    return time.process_time() - start


if __name__ == "__main__":
    main()
