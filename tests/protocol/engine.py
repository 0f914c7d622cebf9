"""The engine without Spark: one process that lands a topic with the product's protocol, over any store and source.

Records become lines in one object per slice and parity of their timestamps, and their keys, with :data:`WITH_KEYS`, in
another one beside it. With :data:`MERGED` the slices of a group share an object. This has all the properties of layout
and formats that the protocol depends on: deterministic names, several objects per slice, several objects of the same
records, several slices per batch, several slices per object.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import random
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, TypeVar

import pytest

from airflow_provider_kafka_s3.arrays import DIVISIBLE
from airflow_provider_kafka_s3.batch.object_metadata import BATCH_METADATA, NONCE_METADATA
from airflow_provider_kafka_s3.batch.rebuild import BuildObjects, BuiltObject, ReadSlice, spans
from airflow_provider_kafka_s3.batch.request import RunRequest, TargetOffsets, TopicResult
from airflow_provider_kafka_s3.batch.source import Source, source_of_plan
from airflow_provider_kafka_s3.config import (
    BlockGzip,
    Daily,
    DeviantArtNaming,
    Landed,
    Layout,
    Limits,
    RawBytes,
    Rotation,
    SiblingObjects,
    default_partitioner,
)
from airflow_provider_kafka_s3.documents import addresses
from airflow_provider_kafka_s3.documents.addresses import TopicAddress
from airflow_provider_kafka_s3.documents.manifest import (
    ContentHash,
    Manifest,
    ObjectEntry,
    SlicePart,
    SliceResult,
    SliceRows,
)
from airflow_provider_kafka_s3.documents.plan import Plan, Slice
from airflow_provider_kafka_s3.exceptions import DataLossError
from airflow_provider_kafka_s3.layout import keys
from airflow_provider_kafka_s3.pipeline import Run, TopicPipeline
from airflow_provider_kafka_s3.reading.landed_source import LandedSource
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
MERGED = Layout(topics_dir=TOPICS_DIR, format=RawBytes(), partitioner=Daily(), rotation=Rotation(merge_partitions=True))
"""Slices of several Kafka partitions share objects."""
NAMED = Layout(
    topics_dir=TOPICS_DIR,
    format=BlockGzip(lines=RawBytes(extension="")),
    naming=DeviantArtNaming(),
    partitioner=default_partitioner(DeviantArtNaming()),
)
"""Each object has an index beside it, and there are marker files, which name the newest ones."""
KEY = b"key of "
CONTROL = addresses.control_prefix(TOPICS_DIR, PIPELINE, TOPIC)
ADDRESS = TopicAddress(topics_dir=TOPICS_DIR, pipeline=PIPELINE, topic=TOPIC)
SUMMARY = addresses.summary_key(ADDRESS)


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
    given = {"source": kafka.all_records(), "topics_dir": TOPICS_DIR, "pipeline": PIPELINE, **options}
    check_bucket(bucket, topic=TOPIC, **given)


def in_turn(function: Callable[[T], R], items: Sequence[T], *, threads: int = 1) -> list[R]:
    """``parallel.in_threads`` in one thread."""
    return [function(item) for item in items]


class OneThread:
    """A ``ThreadPoolExecutor`` whose calls end before ``submit`` returns, in the thread that submits them."""

    def __init__(self, max_workers: int = 1, thread_name_prefix: str = "") -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    def submit(self, function: Callable[..., T], *arguments: Any) -> Future[T]:
        """Call a function; its error is that of the result."""
        future: Future[T] = Future()
        try:
            future.set_result(function(*arguments))
        except Exception as e:  # noqa: BLE001 - whatever it is, the caller gets it
            future.set_exception(e)
        return future

    def shutdown(self, *, cancel_futures: bool = False) -> None:
        """Nothing is left to do."""


@dataclass
class Lines:
    """One object: its key, its records' offsets by slice, and its bytes."""

    key: str
    offsets: dict[Slice, list[int]]
    times: list[int]
    body: bytes
    text: bytes

    @property
    def digest(self) -> str:
        """Of the values, whatever the object has of them."""
        return hashlib.sha256(self.text).hexdigest()[:32]

    def content(self, plan: Plan) -> str:
        digest: ContentHash | None = None
        for s, offsets in self.offsets.items():
            if digest is None:
                digest = ContentHash(plan.topic_id, s.partition)
            else:
                digest.next_slice(s.partition)
            digest.update(offsets)
        assert digest is not None
        return digest.hexdigest()

    @property
    def parts(self) -> tuple[SlicePart, ...]:
        return tuple(
            SlicePart(id=s.id, records=len(offsets), min_offset=offsets[0], max_offset=offsets[-1])
            for s, offsets in self.offsets.items()
        )


def offset_in(value: bytes) -> int:
    """The offset of a record of the simulation, where a landed object does not keep it: its value has it."""
    return int(value.rpartition(b"/")[2])


def split(plan: Plan, slices: Sequence[Slice], read: ReadSlice) -> list[Lines]:
    """The objects of slices that share them, a pure function of plan and records."""
    groups: dict[int, list[tuple[Slice, int, int, bytes]]] = {}
    for s in slices:
        for batch in read(s):
            columns = batch.to_pydict()
            offsets_of = columns["offset"] if DIVISIBLE not in columns else map(offset_in, columns["value"])
            for offset, timestamp, value in zip(offsets_of, columns["timestamp"], columns["value"], strict=True):
                groups.setdefault(timestamp % 2, []).append((s, offset, timestamp, value))
    for records in groups.values():
        records.sort(key=lambda record: (record[0].id, record[1]))
    layout, found = plan.layout or LAYOUT, []
    for parity, records in sorted(groups.items()):
        first, first_offset, _, _ = records[0]
        key = keys.data_key(
            layout,
            topic=plan.topic,
            encoded_partition=f"2026-01-0{parity + 1}" if layout.has_index else f"parity={parity}",
            partition=first.partition,
            first_offset=first_offset,
            generation=plan.generation,
        )
        offsets: dict[Slice, list[int]] = {}
        for s, offset, _, _ in records:
            offsets.setdefault(s, []).append(offset)
        times = [timestamp for _, _, timestamp, _ in records]
        text = b"".join(value + b"\n" for *_, value in records)
        if layout.has_index:
            block = gzip.compress(text, mtime=0)
            found.append(Lines(key, offsets, times, block, text))
            index = index_of(text, block, [offset for _, offset, _, _ in records])
            found.append(Lines(keys.sibling_key(layout, key, keys.INDEX), offsets, times, index, text))
            continue
        found.append(Lines(key, offsets, times, text, text))
        for name in keys.siblings(layout):
            body = b"".join(KEY + value + b"\n" for *_, value in records)
            found.append(Lines(keys.sibling_key(layout, key, name), offsets, times, body, text))
    return found


def index_of(text: bytes, block: bytes, offsets: Sequence[int]) -> bytes:
    """The index of an object of one block."""
    chunk = {
        "byte_length_uncompressed": len(text),
        "num_records": len(offsets),
        "byte_length": len(block),
        "byte_offset": 0,
        "first_record_offset": offsets[0],
        "next_record_offset": offsets[-1] + 1,
    }
    return json.dumps({"chunks": [chunk]}, separators=(",", ":")).encode()


def upload_slices(
    store: DurableStore, plan: Plan, slices: Sequence[Slice], read: ReadSlice, new_nonce: Callable[[], str]
) -> list[SliceRows]:
    """Act as a Spark task: upload the parts of every object, complete none, return the rows."""
    entries = []
    for lines in split(plan, slices, read):
        nonce = new_nonce()
        upload_id = store.create_upload(lines.key, {BATCH_METADATA: str(plan.batch), NONCE_METADATA: nonce})
        parts = [store.upload_part(lines.key, upload_id, 1, lines.body)]
        of_slices = lines.parts
        entries.append(
            ObjectEntry(
                key=lines.key,
                slices=tuple(part.id for part in of_slices),
                nonce=nonce,
                upload_id=upload_id,
                parts=tuple((part.etag, part.checksum) for part in parts),
                checksum_algorithm="CRC32",
                size=len(lines.body),
                crc32=f"{zlib.crc32(lines.body):08x}",
                content=lines.content(plan),
                records=sum(part.records for part in of_slices),
                min_offset=of_slices[0].min_offset,
                max_offset=of_slices[0].max_offset,
                ranges=of_slices if len(of_slices) > 1 else (),
                min_timestamp=min(lines.times),
                max_timestamp=max(lines.times),
                digest=lines.digest,
            )
        )
    layout = plan.layout or LAYOUT
    rows = []
    for s in slices:
        read_of = [p for e in entries if keys.sibling_of_key(layout, e.key) is None for p in e.by_slice if p.id == s.id]
        result = SliceResult(id=s.id, records=sum(p.records for p in read_of), ignored=0, next_offset=s.end)
        rows.append(SliceRows(result=result, objects=tuple(e for e in entries if e.slices[0] == s.id)))
    return rows


@dataclass
class _Rebuilt:
    store: DurableStore
    lines: Lines
    content: str

    @property
    def digest(self) -> str:
        return self.lines.digest

    @property
    def size(self) -> int:
        return len(self.lines.body)

    @property
    def crc32(self) -> str:
        return f"{zlib.crc32(self.lines.body):08x}"

    def put(self, metadata: dict[str, str]) -> None:
        self.store.create(self.lines.key, self.lines.body, metadata)


def builder(store: DurableStore) -> BuildObjects:
    """Builds objects of slices again."""

    def build(plan: Plan, entries: Sequence[ObjectEntry], read: ReadSlice) -> dict[str, BuiltObject]:
        requested = {entry.key for entry in entries}
        return {
            lines.key: _Rebuilt(store, lines, lines.content(plan))
            for lines in split(plan, tuple(spans(plan, entries)), read)
            if lines.key in requested
        }

    return build


class Engine:
    """One process with a store, a source and a clock. Its state is in memory only."""

    def __init__(
        self,
        store: ObjectStore,
        source: Source | Landed,
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
        self.store = DurableStore(store, Retrier(policy, sleep=self.sleep, monotonic=self.monotonic, rng=rng.random))
        self.source = LandedSource(self.store, source) if isinstance(source, Landed) else source
        self.pipeline = TopicPipeline(
            self.store,
            self.source,
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
            rows = [row for group in plan.grouped for row in self.read_slices(plan, group)]
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
        """One Spark task of a slice that shares objects with no other."""
        (rows,) = self.read_slices(plan, (s,))
        return rows

    def read_slices(self, plan: Plan, slices: Sequence[Slice]) -> list[SliceRows]:
        """One Spark task."""

        def read(s: Slice) -> Iterator[pa.RecordBatch]:
            return source_of_plan(self.source, plan).read(plan.topic, s.partition, s.start, s.end, plan.isolation)

        return upload_slices(self.store, plan, slices, read, self.new_nonce)


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
