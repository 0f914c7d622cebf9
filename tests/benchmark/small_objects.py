"""Very many small objects made few large ones: time, requests and memory of one process, without Spark.

A topic of ten Kafka partitions is landed by hours, an object of about 10 kB for each partition and hour. Then a process
of its own makes objects of 128 MB of them, with the encoder that a Spark task uses.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
import uuid
from collections import Counter
from typing import Any, Final

from airflow_provider_kafka_s3.batch.request import RunRequest
from airflow_provider_kafka_s3.config import Hourly, JsonLines, Landed, Layout, Limits, Rotation, TimePattern
from airflow_provider_kafka_s3.pipeline import TopicPipeline
from airflow_provider_kafka_s3.reading.landed_source import LandedSource
from airflow_provider_kafka_s3.retry import Retrier
from airflow_provider_kafka_s3.storage.durable import DurableStore
from airflow_provider_kafka_s3.storage.s3 import S3Store, make_client
from airflow_provider_kafka_s3.testing.kafka import SimulatedKafka
from tests.benchmark.measure import measured, peak_memory
from tests.spark.pipeline import CREDENTIALS, ROOT, s3_settings

OBJECTS: Final = 100_000
_PARTITIONS: Final = 10
_HOURS: Final = 100
"""Hours of a batch."""
_HOUR: Final = 3_600_000
_VALUE: Final = b'{"text": "' + b"x" * 10_000 + b'"}'
_TOPIC: Final = "events"
_RAW: Final = Layout(topics_dir="raw", format=JsonLines(), partitioner=Hourly())
_LARGE: Final = Layout(
    topics_dir="large",
    format=JsonLines(),
    partitioner=TimePattern(path_format="'year'=YYYY", duration_ms=365 * 24 * _HOUR),
    rotation=Rotation(merge_partitions=True, max_bytes=128 * 1024 * 1024),
)


class _Counted(S3Store):
    """A bucket that counts its requests by operation."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.requests: Counter[str] = Counter()

    def _send(self, kind: Any, action: str, *more: Any, **options: Any) -> Any:
        self.requests[action] += 1
        return super()._send(kind, action, *more, **options)


def small_objects(endpoint: str, objects: int = OBJECTS) -> dict[str, float]:
    """Land and compact, each in a process of its own; the figures of the second one.

    Args:
        endpoint: of the S3 server.
        objects: that are landed, about.
    """
    bucket = f"small-{uuid.uuid4().hex}"
    make_client(s3_settings(endpoint), CREDENTIALS).create_bucket(Bucket=bucket)
    figures: dict[str, float] = {}
    for step in ("land", "compact"):
        command = [sys.executable, "-m", "tests.benchmark.small_objects", step, endpoint, bucket, str(objects)]
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
        figures = json.loads(done.stdout.splitlines()[-1])
    return figures


def table(figures: dict[str, float]) -> list[str]:
    """The figures as lines of text."""
    return [f"    {name:30}{value:12,.1f}" for name, value in figures.items()]


def _pipeline(store: DurableStore, source: Any, layout: Layout) -> TopicPipeline:
    place = {"topics_dir": layout.topics_dir, "pipeline": layout.topics_dir, "topic": _TOPIC}
    return TopicPipeline(store, source, **place)


def _request(run: str, layout: Layout) -> RunRequest:
    limits = Limits(records_per_slice=1_000_000)
    return RunRequest(run=run, offsets="incremental", layout=layout, starting="earliest", limits=limits)


def _land(store: DurableStore, objects: int) -> None:
    kafka = SimulatedKafka(records_per_poll=500)
    kafka.create_topic(_TOPIC, _PARTITIONS)
    per_batch = _PARTITIONS * _HOURS
    for batch in range(-(-objects // per_batch)):
        for hour in range(batch * _HOURS, (batch + 1) * _HOURS):
            for partition in range(_PARTITIONS):
                kafka.append(_TOPIC, partition, _VALUE, hour * _HOUR)
        _pipeline(store, kafka, _RAW).land(_request(f"batch {batch}", _RAW))
        print(f"  {(batch + 1) * per_batch:,} objects landed", file=sys.stderr, flush=True)
    print("{}")


def _compact(store: DurableStore, counted: _Counted, objects: int) -> None:
    source = LandedSource(store, Landed(pipeline="raw", topics_dir="raw"))
    pipeline = _pipeline(store, source, _LARGE)
    before = peak_memory()
    with measured({}) as cost:
        result = pipeline.land(_request("compact", _LARGE))
    records = sum(batch.records for batch in result.batches)
    assert records >= objects, result
    figures = {
        "small objects": float(records),
        "large objects": float(sum(batch.objects for batch in result.batches)),
        "MB": sum(batch.size for batch in result.batches) / 1e6,
        "wall seconds": cost.wall,
        "CPU seconds of the process": time.process_time(),
        "memory at the start, MB": before / 1e6,
        "memory at most, MB": peak_memory() / 1e6,
        "requests": float(counted.requests.total()),
        **{f"requests: {name}": float(number) for name, number in counted.requests.most_common(6)},
    }
    print(json.dumps(figures))


def main() -> None:
    """One step; prints its figures as a line of JSON."""
    step, endpoint, bucket, objects = sys.argv[1:5]
    counted = _Counted(make_client(s3_settings(endpoint), CREDENTIALS), bucket)
    store = DurableStore(counted, Retrier())
    if step == "land":
        _land(store, int(objects))
    else:
        _compact(store, counted, int(objects))


if __name__ == "__main__":
    main()
