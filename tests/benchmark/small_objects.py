"""Very many small objects made few large ones: time, requests and memory of one process, without Spark.

A topic of ten Kafka partitions was landed by hours, an object of about 10 kB for each partition and hour. A process of
its own makes objects of 128 MB of them, with the encoder that a Spark task uses.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from msgspec.structs import replace

from airflow_provider_kafka_s3.arrays import RECORD_SCHEMA, binary_array, int64_array
from airflow_provider_kafka_s3.batch.object_metadata import BATCH_METADATA, NONCE_METADATA
from airflow_provider_kafka_s3.batch.request import RunRequest
from airflow_provider_kafka_s3.config import Hourly, JsonLines, Landed, Layout, Limits, Rotation, TimePattern
from airflow_provider_kafka_s3.documents import addresses
from airflow_provider_kafka_s3.documents.codec import encode
from airflow_provider_kafka_s3.documents.manifest import ContentHash, ObjectEntry
from airflow_provider_kafka_s3.documents.marker import PartitionState
from airflow_provider_kafka_s3.documents.plan import Plan
from airflow_provider_kafka_s3.extensions.records import Batch
from airflow_provider_kafka_s3.layout import keys
from airflow_provider_kafka_s3.layout.partitioners import make_partitioner
from airflow_provider_kafka_s3.pipeline import TopicPipeline
from airflow_provider_kafka_s3.reading.landed_source import LandedSource
from airflow_provider_kafka_s3.retry import Retrier
from airflow_provider_kafka_s3.storage.durable import DurableStore
from airflow_provider_kafka_s3.storage.s3 import S3Store, make_client
from airflow_provider_kafka_s3.testing.kafka import SimulatedKafka
from dev.versitygw import VersityGateway
from tests.benchmark.measure import measured, peak_memory
from tests.protocol.made_history import checksum_of
from tests.spark.pipeline import CREDENTIALS, ROOT, s3_settings

_BUCKET: Final = "small-objects"
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


def small_objects(objects: int = OBJECTS, hours: int = _HOURS) -> dict[str, float]:
    """Compact objects in a process of its own; its figures.

    Args:
        objects: that are landed, about.
        hours: of a batch: each has an object for each hour and Kafka partition.
    """
    with tempfile.TemporaryDirectory(prefix="small-objects-", dir="/dev/shm") as folder:
        login = {"access_key_id": CREDENTIALS.access_key_id, "secret_access_key": CREDENTIALS.secret_access_key}
        with VersityGateway(folder=Path(folder), **login) as server:
            make_client(s3_settings(server.endpoint), CREDENTIALS).create_bucket(Bucket=_BUCKET)
            batches = -(-objects // (_PARTITIONS * hours))
            _land(DurableStore(_counted(server.endpoint), Retrier()), Path(folder) / _BUCKET, batches, hours)
            command = [sys.executable, "-m", "tests.benchmark.small_objects", server.endpoint]
            done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return {"batches": float(batches), **figures}


def table(figures: dict[str, float]) -> list[str]:
    """The figures as lines of text."""
    return [f"    {name:30}{value:12,.1f}" for name, value in figures.items()]


def _counted(endpoint: str) -> _Counted:
    return _Counted(make_client(s3_settings(endpoint), CREDENTIALS), _BUCKET)


def _pipeline(store: DurableStore, source: Any, layout: Layout) -> TopicPipeline:
    place = {"topics_dir": layout.topics_dir, "pipeline": layout.topics_dir, "topic": _TOPIC}
    return TopicPipeline(store, source, **place)


def _request(run: str, layout: Layout) -> RunRequest:
    limits = Limits(records_per_slice=1_000_000)
    return RunRequest(run=run, offsets="incremental", layout=layout, starting="earliest", limits=limits)


def _land(store: DurableStore, folder: Path, batches: int, hours: int) -> None:
    """Land the first batch, and put the files of all others beside its own: by requests it would take an hour."""
    kafka = SimulatedKafka(records_per_poll=500)
    kafka.create_topic(_TOPIC, _PARTITIONS)
    for hour in range(hours):
        for partition in range(_PARTITIONS):
            kafka.append(_TOPIC, partition, _VALUE, hour * _HOUR)
    pipeline = _pipeline(store, kafka, _RAW)
    pipeline.land(_request("first", _RAW))
    topic_log, (plan, _), (decision, _) = pipeline.log, pipeline.log.require_plan(1), pipeline.log.require_decision(1)
    first = folder / decision.objects[0].key
    partitioner = make_partitioner(_RAW)
    for number in range(2, batches + 1):
        move = functools.partial(_moved, plan=plan, partitioner=partitioner, batch=number, by=(number - 1) * hours)
        entries = [move(entry) for entry in decision.objects]
        slices = [
            replace(s, start=s.start + (number - 1) * hours, end=s.end + (number - 1) * hours) for s in plan.slices
        ]
        moved_plan = replace(plan, batch=number, slices=tuple(slices), start=None)
        ends = {s.id: s.end for s in slices}
        moved = replace(
            decision,
            batch=number,
            plan_sha256=checksum_of(moved_plan),
            slices=tuple(replace(result, next_offset=ends[result.id]) for result in decision.slices),
            objects=tuple(entries),
        )
        for entry in entries:
            _put(folder / entry.key, first, _VALUE + b"\n", {BATCH_METADATA: str(number), NONCE_METADATA: entry.nonce})
        store.create(addresses.plan_key(topic_log.prefix, number), encode(moved_plan, {}))
        store.create(addresses.manifest_key(topic_log.prefix, number), encode(moved, {}))
    marker, etag = topic_log.require_marker()
    state = PartitionState(covered=((0, batches * hours),))
    everything = dict.fromkeys(range(_PARTITIONS), state)
    marker = replace(marker, revision=marker.revision + 1, resolved=((1, batches + 1),), partitions=everything)
    assert topic_log.replace_marker(marker, etag)


def _moved(entry: ObjectEntry, *, plan: Plan, partitioner: Any, batch: int, by: int) -> ObjectEntry:
    """An object of the first batch as one of another batch, some hours and offsets later."""
    partition, offset = plan.slices[entry.slices[0]].partition, entry.min_offset + by
    hour = entry.min_timestamp // _HOUR + by
    columns = [int64_array(np.array([offset])), int64_array(np.array([hour * _HOUR])), binary_array([b""], large=False)]
    records = pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA)
    encoded_folder = partitioner.encode(Batch(records, _TOPIC, partition, {})).paths[0]
    content = ContentHash(plan.topic_id, partition)
    content.update([offset])
    return replace(
        entry,
        key=keys.data_key(
            _RAW,
            topic=_TOPIC,
            encoded_partition=encoded_folder,
            partition=partition,
            first_offset=offset,
            generation=plan.generation,
        ),
        nonce=f"{batch}-{entry.nonce}",
        content=content.hexdigest(),
        min_offset=offset,
        max_offset=offset,
        min_timestamp=hour * _HOUR,
        max_timestamp=hour * _HOUR,
    )


def _put(path: Path, like: Path, body: bytes, metadata: dict[str, str]) -> None:
    """Write an object as the server does, with the attributes of another one of the same bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(body)
    for name in os.listxattr(like):
        os.setxattr(path, name, os.getxattr(like, name))
    os.setxattr(path, "user.metadata", json.dumps(metadata).encode())


def main() -> None:
    """Compact what is landed; prints the figures as a line of JSON."""
    counted = _counted(sys.argv[1])
    store = DurableStore(counted, Retrier())
    source = LandedSource(store, Landed(pipeline="raw", topics_dir="raw"))
    pipeline = _pipeline(store, source, _LARGE)
    before = peak_memory()
    with measured({}) as cost:
        result = pipeline.land(_request("compact", _LARGE))
    figures = {
        "small objects": float(sum(batch.records for batch in result.batches)),
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


if __name__ == "__main__":
    main()
