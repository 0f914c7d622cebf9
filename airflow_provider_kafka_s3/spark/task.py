"""The function of a Spark task: find the slices of its records, write their objects, return their rows.

It runs in the Python workers of executors, inside ``mapInArrow``. It has only its pickled state, so it creates its own
client of the store, once per worker.
"""

from __future__ import annotations

import functools
import itertools
import pickle
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

import msgspec
import numpy as np

from airflow_provider_kafka_s3.arrays import FAITHFUL_FROM, int64_array, int64_values
from airflow_provider_kafka_s3.batch.dead_letter_limit import DeadLetterLimit
from airflow_provider_kafka_s3.batch.encode import write_slices
from airflow_provider_kafka_s3.batch.pinned_schemas import NoRegistry, PinnedSchemas
from airflow_provider_kafka_s3.batch.rebuild import ReadSlice
from airflow_provider_kafka_s3.config import Upload
from airflow_provider_kafka_s3.documents.plan import Plan, Slice
from airflow_provider_kafka_s3.exceptions import SparkJobError, SparkTimestampError, TerminalError
from airflow_provider_kafka_s3.registry.client import RegistryClient
from airflow_provider_kafka_s3.registry.settings import RegistrySettings
from airflow_provider_kafka_s3.retry import Retrier, RetryPolicy
from airflow_provider_kafka_s3.spark.executor import python_of_worker
from airflow_provider_kafka_s3.spark.packing import RecordPacking, SlicePositions
from airflow_provider_kafka_s3.spark.reorder import OrderedSlices
from airflow_provider_kafka_s3.spark.rows import Row, error_row, rows_of_slice, to_batch, uploads_of
from airflow_provider_kafka_s3.spark.worker_process import exempt_from_collections, forget_zip_importers
from airflow_provider_kafka_s3.storage.durable import DurableStore
from airflow_provider_kafka_s3.storage.s3 import S3Credentials, S3Settings, S3Store, make_client
from airflow_provider_kafka_s3.storage.uploads import UploadPool

if TYPE_CHECKING:
    import pyarrow as pa
    from mypy_boto3_s3 import S3Client
    from pyspark.accumulators import Accumulator

__all__ = ["LandedTask", "SliceTask"]

_ROWS_PER_BATCH: Final = 1_000

_SLICES_AT_ONCE: Final = 8
"""Slices of few bytes that a task writes at the same time."""

_FEW_BYTES: Final = 256 * 1024
"""Bytes of the records of such a slice at most: converters take several times as much."""

_counting = threading.Lock()


@dataclass(frozen=True)
class _TravellingPlan:
    """A plan of the job. A task needs one of them, and Spark unpickles the function for every task."""

    topic: str
    batch: int
    pickled: bytes

    @property
    def plan(self) -> Plan:
        return _unpickled(self.pickled)


@functools.lru_cache(maxsize=32)
def _unpickled(plan: bytes) -> Plan:
    return cast("Plan", pickle.loads(plan))


class SliceTask:
    """The function of the Spark job: the records of the slices of a task in; rows out.

    Pickled; its repr shows no secrets.

    Args:
        plans: of the job, in its order.
        bucket: name of the bucket.
        s3: connection settings of the store.
        credentials: None: boto3's default chain on the executor.
        retry: policy of the requests.
        upload: threads and memory.
        registry: how to reach the schema registry; None: there is none.
        prefixes: of the control documents of each plan's topic.
        max_dead_letters: limit of each plan's batch; empty: no limits.
        written: accumulator for the bytes of ended slices, for the progress; None: not counted.
    """

    def __init__(
        self,
        plans: Sequence[Plan],
        *,
        bucket: str,
        s3: S3Settings,
        credentials: S3Credentials | None,
        retry: RetryPolicy,
        upload: Upload,
        registry: RegistrySettings | None = None,
        prefixes: Sequence[str] = (),
        max_dead_letters: Sequence[DeadLetterLimit | None] = (),
        written: Accumulator[int] | None = None,
    ) -> None:
        self._plans = tuple(_TravellingPlan(plan.topic, plan.batch, pickle.dumps(plan)) for plan in plans)
        self._packing = RecordPacking(plans)
        self._bucket = bucket
        self._s3 = s3
        self._credentials = credentials
        self._retry = retry
        self._upload = upload
        self._registry = registry
        self._prefixes = tuple(prefixes)
        self._max_dead_letters = tuple(max_dead_letters) or (None,) * len(self._plans)
        self._written = written

    def __repr__(self) -> str:
        return f"SliceTask({[(planned.topic, planned.batch) for planned in self._plans]}, bucket={self._bucket!r})"

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write a slice, a group of slices that share objects, or small slices one after another.

        Rows are yielded when everything is uploaded. Until then an attempt that fails aborts its uploads; from the
        first row on it never does, since a decision may list them.

        Args:
            batches: all records of the task, as :func:`~airflow_provider_kafka_s3.spark.frames.record_frame` has them.

        Yields:
            Batches of :class:`~airflow_provider_kafka_s3.spark.rows.Row`.

        Raises:
            TransientError: a retry may help.
        """
        nonempty = (batch for batch in batches if batch.num_rows)
        first = next(nonempty, None)
        attempt = uuid.uuid4().hex
        if first is None:
            rows = [Row(-1, -1, attempt, "empty")]
        else:
            rows = self._write(first, itertools.chain([first], nonempty), attempt)
        yield from _as_batches(_ended(rows))

    def write_landed(self, topic: int, group: Sequence[int]) -> list[Row]:
        """Read slices of a plan from the objects of another pipeline, and write their objects; returns the rows.

        Args:
            topic: index of the plan.
            group: ids of the slices, which share objects if they are several.

        Raises:
            TransientError: a retry may help.
        """
        from airflow_provider_kafka_s3.reading.landed_source import records_of_plan

        plan, attempt = self._plans[topic].plan, uuid.uuid4().hex
        slices = [plan.slices[number] for number in group]

        def write() -> list[Row]:
            return self._write_records(topic, slices, records_of_plan(self._store(), plan), attempt)

        return _ended(_or_error_row(topic, slices[0], attempt, write))

    def _write(self, first: pa.RecordBatch, batches: Iterable[pa.RecordBatch], attempt: str) -> list[Row]:
        # Spark gives a task no other identification than its records.
        topic, number, _ = next(self._runs([first.slice(0, 1)]))
        plan = self._plans[topic].plan
        if len(group := plan.group_of(number)) > 1:

            def write_group() -> list[Row]:
                with OrderedSlices(self._packing, group, batches, self._upload.spill_dir) as ordered:
                    return self._write_slices(topic, group, ordered.of, attempt, ordered.end)

            return _or_error_row(topic, plan.slices[number], attempt, write_group)
        return self._write_each(batches, attempt)

    def _write_each(self, batches: Iterable[pa.RecordBatch], attempt: str) -> list[Row]:
        """Write slices that share no objects. Those of few bytes wait for the store at the same time."""
        rows: list[Row] = []
        waiting: list[Future[list[Row]]] = []
        self._store()  # threads would make a client each
        with ThreadPoolExecutor(_SLICES_AT_ONCE, thread_name_prefix="slice") as pool:
            try:
                for (topic, number), of_slice in itertools.groupby(self._runs(batches), key=lambda run: run[:2]):
                    for future in waiting:
                        if future.done():
                            future.result()  # an error ends the task before others are read
                    slice_, *others = self._plans[topic].plan.group_of(number)
                    if others:
                        raise SparkJobError(f"slice {number} of {self!r} was read apart from its group. Try again")
                    records = (batch for _, _, batch in of_slice)
                    held, is_whole = _held(records)
                    if is_whole and self._is_written_aside(topic):
                        if len(running := [future for future in waiting if not future.done()]) >= _SLICES_AT_ONCE:
                            wait(running, return_when=FIRST_COMPLETED)
                        copied = [batch.take(int64_array(np.arange(batch.num_rows))) for batch in held]
                        waiting.append(pool.submit(self._write_alone, topic, slice_, copied, attempt))
                    else:
                        rows += self._write_alone(topic, slice_, itertools.chain(held, records), attempt)
                return [*rows, *itertools.chain.from_iterable(future.result() for future in waiting)]
            except BaseException:
                begun = [future for future in waiting if not future.cancel()]
                wait(begun)
                rows += itertools.chain.from_iterable(future.result() for future in begun if future.exception() is None)
                uploads = [uploads_of(topic, rows) for topic in {row.topic for row in rows}]
                self._store().abort_uploads(itertools.chain.from_iterable(uploads))
                raise

    def _write_alone(self, topic: int, slice_: Slice, batches: Iterable[pa.RecordBatch], attempt: str) -> list[Row]:
        return _or_error_row(
            topic, slice_, attempt, lambda: self._write_slices(topic, [slice_], lambda _: batches, attempt)
        )

    def _runs(self, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, int, pa.RecordBatch]]:
        """The rows of batches by topic and number of the slice, adjacent ones of a batch together, in their order.

        Raises:
            SparkJobError: a row is in no slice.
        """
        numbers = {planned.topic: number for number, planned in enumerate(self._plans)}
        slices: dict[int, SlicePositions] = {}
        for batch in batches:
            for name, rows in self._packing.by_topic(batch):
                topic = 0 if name is None else numbers.get(name)
                if topic is None:
                    raise SparkJobError(f"a record of topic {name!r} is in no slice of {self!r}. Try again")
                if topic not in slices:
                    by_position = sorted(self._plans[topic].plan.slices, key=lambda s: (s.partition, s.start))
                    slices[topic] = self._packing.slice_positions(by_position)
                for slice_, run in self._packing.runs(rows, slices[topic]):
                    yield topic, slice_.id, run

    def _write_slices(
        self,
        topic: int,
        slices: Sequence[Slice],
        packed: ReadSlice,
        attempt: str,
        check_end: Callable[[], None] = lambda: None,
    ) -> list[Row]:
        plan = self._plans[topic].plan
        reads_timestamps = plan.layout is not None and plan.layout.reads_timestamps

        def read(slice_: Slice) -> Iterator[pa.RecordBatch]:
            records = self._packing.records(packed(slice_))
            return _faithful(records, plan.topic, slice_) if reads_timestamps else records

        return self._write_records(topic, slices, read, attempt, check_end)

    def _write_records(
        self,
        topic: int,
        slices: Sequence[Slice],
        read: ReadSlice,
        attempt: str,
        check_end: Callable[[], None] = lambda: None,
    ) -> list[Row]:
        plan = self._plans[topic].plan
        assert plan.layout is not None, "a reset has no slices"
        store = self._store()
        schemas = self._schemas(topic, store) if plan.layout.needs_registry else None
        with UploadPool(
            store,
            part_size=plan.layout.part_size,
            threads=self._upload.threads,
            memory=self._upload.memory,
            spill_dir=self._upload.spill_dir,
            tags=plan.layout.tags.own_tags,
        ) as pool:
            try:
                rows = write_slices(
                    plan,
                    slices,
                    read,
                    pool.open,
                    max_dead_letters=self._max_dead_letters[topic],
                    schemas=schemas,
                    upload=self._upload,
                )
                check_end()
            except BaseException:
                pool.abort_all()
                raise
        if self._written is not None:
            with _counting:
                self._written += sum(entry.size for of_slice in rows for entry in of_slice.objects)
        return [row for of_slice in rows for row in rows_of_slice(topic, attempt, of_slice)]

    def _is_written_aside(self, topic: int) -> bool:
        """Whether only this package's code writes the objects, of values as they are: others take much memory."""
        layout = self._plans[topic].plan.layout
        return layout is not None and not (layout.extensions or layout.needs_registry or layout.has_typed_values)

    def _store(self) -> DurableStore:
        client = _client(self._s3, self._credentials)
        return DurableStore(S3Store(client, self._bucket, self._s3), Retrier(self._retry))

    def _schemas(self, topic: int, store: DurableStore) -> PinnedSchemas:
        source = NoRegistry() if self._registry is None else _registry_client(self._registry, self._retry)
        return PinnedSchemas(store, self._prefixes[topic], source)


def _ended(rows: list[Row]) -> list[Row]:
    """The rows of a task, at its end."""
    rows[-1] = msgspec.structs.replace(rows[-1], python=python_of_worker())
    forget_zip_importers()
    exempt_from_collections()
    return rows


def _as_batches(rows: Sequence[Row]) -> Iterator[pa.RecordBatch]:
    """Rows as Arrow, some at a time."""
    for start in range(0, len(rows), _ROWS_PER_BATCH):
        yield to_batch(rows[start : start + _ROWS_PER_BATCH])


class LandedTask:
    """The function of tasks that read the objects of another pipeline: numbers of groups in; rows out.

    Args:
        task: writes the slices of a group.
        groups: per task the index of the plan, and the ids of the slices.
    """

    def __init__(self, task: SliceTask, groups: Sequence[tuple[int, Sequence[int]]]) -> None:
        self._task = task
        self._groups = tuple(groups)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the slices of groups.

        Args:
            batches: with the numbers of the groups in their only column.

        Yields:
            Batches of :class:`~airflow_provider_kafka_s3.spark.rows.Row`.

        Raises:
            TransientError: a retry may help.
        """
        for batch in batches:
            for number in int64_values(batch.column(0)).tolist():
                yield from _as_batches(self._task.write_landed(*self._groups[number]))


def _held(batches: Iterator[pa.RecordBatch]) -> tuple[list[pa.RecordBatch], bool]:
    """The first batches of a slice, and whether these are all: its records have few bytes."""
    held, size = [], 0
    for batch in batches:
        held.append(batch)
        size += batch.nbytes
        if size > _FEW_BYTES:
            return held, False
    return held, True


def _or_error_row(topic: int, slice_: Slice, attempt: str, write: Callable[[], list[Row]]) -> list[Row]:
    try:
        return write()
    except TerminalError as e:
        # Not an exception of the task: Spark would retry it in vain.
        return [error_row(topic, slice_.id, attempt, e)]


def _faithful(batches: Iterable[pa.RecordBatch], topic: str, slice_: Slice) -> Iterator[pa.RecordBatch]:
    """The batches; SparkTimestampError if a timestamp may differ from Kafka's."""
    for batch in batches:
        times = int64_values(batch.column("timestamp"))
        if times.min() < FAITHFUL_FROM:
            offset = batch.column("offset")[int(times.argmin())].as_py()
            raise SparkTimestampError(
                f"topic {topic!r}, partition {slice_.partition}, offset {offset}: the record's timestamp is before the "
                f"year 1900, which Spark does not return exactly"
            )
        yield batch


@functools.lru_cache(maxsize=1)
def _client(s3: S3Settings, credentials: S3Credentials | None) -> S3Client:
    """One client per worker: Spark reuses a worker for many tasks."""
    return make_client(s3, credentials)


@functools.lru_cache(maxsize=1)
def _registry_client(registry: RegistrySettings, retry: RetryPolicy) -> RegistryClient:
    """One client per worker: it loads certificates once, and an address that is down costs its timeout once."""
    return RegistryClient(registry, Retrier(retry))
