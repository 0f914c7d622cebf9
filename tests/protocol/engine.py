"""The engine without Spark: one process that lands a topic with the product's protocol, over any store and source.

Records become lines in one object per slice and parity of their timestamps, and their keys, with :data:`WITH_KEYS`, in
another one beside it. This has all the properties of layout and formats that the protocol depends on: deterministic
names, several objects per slice, several objects of the same records, several slices per batch.
"""

from __future__ import annotations

import random
import time
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from airflow_provider_kafka_s3.batch.object_metadata import BATCH_METADATA, NONCE_METADATA
from airflow_provider_kafka_s3.batch.rebuild import BuildObjects, BuiltObject
from airflow_provider_kafka_s3.batch.request import RunRequest, TargetOffsets, TopicResult
from airflow_provider_kafka_s3.batch.source import Source
from airflow_provider_kafka_s3.config import Layout, Limits, RawBytes, SiblingObjects
from airflow_provider_kafka_s3.documents.manifest import ContentHash, Manifest, ObjectEntry, SliceResult, SliceRows
from airflow_provider_kafka_s3.documents.plan import Plan, Slice
from airflow_provider_kafka_s3.exceptions import DataLossError
from airflow_provider_kafka_s3.layout import keys
from airflow_provider_kafka_s3.pipeline import Run, TopicPipeline
from airflow_provider_kafka_s3.retry import Retrier, RetryPolicy
from airflow_provider_kafka_s3.storage.durable import DurableStore
from airflow_provider_kafka_s3.storage.port import ObjectStore
from airflow_provider_kafka_s3.testing.invariants import check_bucket
from airflow_provider_kafka_s3.testing.kafka import SimulatedKafka
from airflow_provider_kafka_s3.testing.stores import Fault, FaultyStore, SimulatedCrash

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")
R = TypeVar("R")

TOPIC = "events"
PIPELINE = "pipeline"
TOPICS_DIR = "topics"
LAYOUT = Layout(topics_dir=TOPICS_DIR, format=RawBytes())
WITH_KEYS = Layout(topics_dir=TOPICS_DIR, format=RawBytes(), content=SiblingObjects(keys=RawBytes()))
"""Beside each object of values there is one of keys; the key of a record is its value behind :data:`KEY`."""
KEY = b"key of "
CONTROL = keys.control_prefix(TOPICS_DIR, PIPELINE, TOPIC)


class Clock:
    """A clock that advances only by sleeping."""

    def __init__(self) -> None:
        self.now = 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def monotonic(self) -> float:
        return self.now


def check_landed(bucket: ObjectStore, kafka: SimulatedKafka, **options: Any) -> None:
    """Check that the bucket has the records of the cluster; ``options`` are those of ``check_bucket``."""
    check_bucket(bucket, topics_dir=TOPICS_DIR, pipeline=PIPELINE, topic=TOPIC, source=kafka.all_records(), **options)


def in_turn(function: Callable[[T], R], items: Sequence[T], *, threads: int = 1) -> list[R]:
    """``parallel.in_threads`` in one thread."""
    return [function(item) for item in items]


@dataclass
class Lines:
    """One object of a slice: its key, its records' offsets and its bytes."""

    key: str
    offsets: list[int]
    body: bytes

    def content(self, plan: Plan, partition: int) -> str:
        digest = ContentHash(plan.topic_id, partition)
        digest.update(self.offsets)
        return digest.hexdigest()


def split(plan: Plan, s: Slice, batches: Iterable[pa.RecordBatch]) -> list[Lines]:
    """The objects of a slice, a pure function of plan and records."""
    groups: dict[int, list[tuple[int, bytes]]] = {}
    for batch in batches:
        columns = batch.to_pydict()
        for offset, timestamp, value in zip(columns["offset"], columns["timestamp"], columns["value"], strict=True):
            groups.setdefault(timestamp % 2, []).append((offset, value))
    layout, found = plan.layout or LAYOUT, []
    for parity, records in sorted(groups.items()):
        key = keys.data_key(
            layout,
            topic=plan.topic,
            encoded_partition=f"parity={parity}",
            partition=s.partition,
            first_offset=records[0][0],
            generation=plan.generation,
        )
        offsets = [offset for offset, _ in records]
        found.append(Lines(key, offsets, b"".join(value + b"\n" for _, value in records)))
        for name in keys.siblings(layout):
            body = b"".join(KEY + value + b"\n" for _, value in records)
            found.append(Lines(keys.sibling_key(layout, key, name), offsets, body))
    return found


def upload_slice(
    store: DurableStore, plan: Plan, s: Slice, batches: Iterable[pa.RecordBatch], new_nonce: Callable[[], str]
) -> SliceRows:
    """Act as a Spark task: upload the parts of every object, complete none, return the rows."""
    entries = []
    for lines in split(plan, s, batches):
        nonce = new_nonce()
        upload_id = store.create_upload(lines.key, {BATCH_METADATA: str(plan.batch), NONCE_METADATA: nonce})
        parts = [store.upload_part(lines.key, upload_id, 1, lines.body)]
        entries.append(
            ObjectEntry(
                key=lines.key,
                slices=(s.id,),
                nonce=nonce,
                upload_id=upload_id,
                parts=tuple((part.etag, part.checksum) for part in parts),
                checksum_algorithm="CRC32",
                size=len(lines.body),
                crc32=f"{zlib.crc32(lines.body):08x}",
                content=lines.content(plan, s.partition),
                records=len(lines.offsets),
                min_offset=lines.offsets[0],
                max_offset=lines.offsets[-1],
            )
        )
    layout = plan.layout or LAYOUT
    records = sum(e.records for e in entries if keys.sibling_of_key(layout, e.key) is None)
    result = SliceResult(id=s.id, records=records, ignored=0, next_offset=s.end)
    return SliceRows(result=result, objects=tuple(entries))


@dataclass
class _Rebuilt:
    store: DurableStore
    lines: Lines
    content: str

    @property
    def size(self) -> int:
        return len(self.lines.body)

    @property
    def crc32(self) -> str:
        return f"{zlib.crc32(self.lines.body):08x}"

    def put(self, metadata: dict[str, str]) -> None:
        self.store.create(self.lines.key, self.lines.body, metadata)


def builder(store: DurableStore) -> BuildObjects:
    """Builds objects of a slice again."""

    def build(
        plan: Plan, s: Slice, requested: Collection[str], batches: Iterator[pa.RecordBatch]
    ) -> dict[str, BuiltObject]:
        return {
            lines.key: _Rebuilt(store, lines, lines.content(plan, s.partition))
            for lines in split(plan, s, batches)
            if lines.key in requested
        }

    return build


class Engine:
    """One process with a store, a source and a clock. Its state is in memory only."""

    def __init__(
        self,
        store: ObjectStore,
        source: Source,
        *,
        seed: int = 0,
        sleep: Callable[[float], None] | None = None,
        monotonic: Callable[[], float] | None = None,
        now: Callable[[], float] = time.time,
        policy: RetryPolicy | None = None,
        build: Callable[[DurableStore], BuildObjects] = builder,
        topics_dir: str = TOPICS_DIR,
        pipeline: str = PIPELINE,
        topic: str = TOPIC,
    ) -> None:
        clock = Clock()
        rng = random.Random(seed)
        self.sleep = sleep or clock.sleep
        self.monotonic = monotonic or clock.monotonic
        self.source = source
        self.store = DurableStore(store, Retrier(policy, sleep=self.sleep, monotonic=self.monotonic, rng=rng.random))
        self.pipeline = TopicPipeline(
            self.store,
            source,
            topics_dir=topics_dir,
            pipeline=pipeline,
            topic=topic,
            build=build(self.store),
            parallel=in_turn,
            sleep=self.sleep,
            monotonic=self.monotonic,
            now=now,
        )
        self.log = self.pipeline.log
        self.committer = self.pipeline.committer
        self.new_nonce = lambda: f"{rng.getrandbits(128):032x}"

    def request(self, run: str, offsets: TargetOffsets = "incremental", **settings: Any) -> RunRequest:
        """A run with small slices. A window determines the pipeline's start, as with ``offsets="data_interval"``.

        Args:
            run: its key.
            offsets: what it covers.
            settings: further arguments of the request; ``limits`` is a mapping.
        """
        starting = None if offsets == "data_interval" else "earliest"
        defaults: dict[str, Any] = {
            "layout": LAYOUT,
            "starting": starting,
            "adopt_wait": 0.0,
        }
        limits = Limits(**({"records_per_slice": 3} | settings.pop("limits", {})))
        return RunRequest(run=run, offsets=offsets, limits=limits, **(defaults | settings))

    def topic_run(self, request: RunRequest) -> Run:
        """One attempt of a run."""
        return self.pipeline.run(request)

    def run(self, run: str, offsets: TargetOffsets = "incremental", **settings: Any) -> TopicResult:
        """One complete attempt of a run, with the parts of operator and Spark job."""
        request = self.request(run, offsets, **settings)
        attempt = self.topic_run(request)
        while not isinstance(step := attempt.advance(), TopicResult):
            self.execute(step, request)
        return step

    def execute(self, plan: Plan, request: RunRequest) -> Manifest:
        """Act as the Spark job: read every slice, decide, roll forward."""
        try:
            rows = [self.read_slice(plan, s) for s in plan.slices]
        except DataLossError:
            if request.on_data_loss == "fail":
                raise
            decision = self.committer.abandon(
                plan, release="debt", reason="offsets are gone", operator="", run=request.run
            )
        else:
            decision = self.committer.decide(plan, rows, run=request.run)
        self.committer.carry_out(plan, decision)
        return decision

    def read_slice(self, plan: Plan, s: Slice) -> SliceRows:
        """One Spark task."""
        batches = self.source.read(plan.topic, s.partition, s.start, s.end, plan.isolation)
        return upload_slice(self.store, plan, s, batches, self.new_nonce)


def crash_after(
    document: str,
    bucket: ObjectStore,
    kafka: SimulatedKafka,
    run: str,
    offsets: TargetOffsets = "incremental",
    **settings: Any,
) -> None:
    """Run until the process ends, right after it has written a control document.

    Args:
        document: pattern of its key, such as ``*.plan.json``.
        bucket: the bucket.
        kafka: the cluster.
        run: key of the run.
        offsets: of the run.
        settings: further arguments of :meth:`Engine.request`.
    """
    store = FaultyStore(bucket)
    store.inject(Fault.CRASH_AFTER, operation="put_new", key=document)
    with pytest.raises(SimulatedCrash):
        Engine(store, kafka).run(run, offsets, **settings)
