"""Decide a batch, carry the decision out, fold it into the marker. Anyone may do any step, at any time, again.

The decision is the manifest, created once. Before it nothing of a batch is visible; after it only the uploads that it
lists are ever completed, and an upload id works once, so no process that comes late can undo or repeat anything.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeVar

from airflow_provider_kafka_s3.batch import commands
from airflow_provider_kafka_s3.batch.log import TopicLog
from airflow_provider_kafka_s3.batch.manifest import Manifest, ObjectEntry, SliceRows
from airflow_provider_kafka_s3.batch.marker import fold
from airflow_provider_kafka_s3.batch.plan import Plan, Slice
from airflow_provider_kafka_s3.batch.source import Source, require_topic_id
from airflow_provider_kafka_s3.exceptions import (
    BatchLossError,
    DataLossError,
    ForeignObjectError,
    RecordError,
    SparkJobError,
    TopicNotFoundError,
    TopicRecreatedError,
    UnknownOutcomeError,
)
from airflow_provider_kafka_s3.storage.durable import CompleteAnswer
from airflow_provider_kafka_s3.storage.port import ObjectInfo

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "BATCH_METADATA",
    "CONTENT_METADATA",
    "CRC32_METADATA",
    "NONCE_METADATA",
    "BuildObjects",
    "BuiltObject",
    "Committer",
    "in_threads",
    "matches",
]

log = logging.getLogger(__name__)

T = TypeVar("T")
R = TypeVar("R")

BATCH_METADATA: Final = "kafka-s3-batch"
NONCE_METADATA: Final = "kafka-s3-nonce"
CONTENT_METADATA: Final = "kafka-s3-content"
CRC32_METADATA: Final = "kafka-s3-crc32"
"""Of an object that was written again: another version of a library may make other bytes of the same records."""

_SETTLE_LOOKS: Final = 6
"""How often to look for an object whose upload is gone before it counts as absent: a Complete may be in progress."""

_BUILT_AT_ONCE: Final = 8
"""Objects of a slice that are built again by one read of it. Each takes up to a part of memory, then disk."""

_TRIES: Final = 4
"""How often to ask again when the store gives no usable answer."""


class BuiltObject(Protocol):
    """One object built again from Kafka, not stored yet."""

    @property
    def content(self) -> str:
        """Digest of which records it holds, see :class:`~.manifest.ContentHash`."""
        ...

    @property
    def size(self) -> int:
        """Bytes of the object."""
        ...

    @property
    def crc32(self) -> str:
        """Of the bytes, eight hex digits."""
        ...

    def put(self, metadata: dict[str, str]) -> None:
        """Store it unless its key exists. What happened the caller finds out with HEAD."""
        ...


BuildObjects = Callable[[Plan, Slice, Collection[str], "Iterator[pa.RecordBatch]"], Mapping[str, BuiltObject]]
"""(plan, slice, keys, records of the slice) -> the objects of these keys, as far as the records make such objects."""


def in_threads(function: Callable[[T], R], items: Sequence[T], *, threads: int = 64) -> list[R]:
    """Map over items with a pool of threads; the first error is raised when the ones under way have ended."""
    if len(items) <= 1:
        return [function(item) for item in items]
    with ThreadPoolExecutor(max_workers=min(threads, len(items)), thread_name_prefix="kafka-s3") as pool:
        futures = [pool.submit(function, item) for item in items]
        try:
            return [f.result() for f in futures]
        finally:
            for f in futures:
                f.cancel()


class Parallel(Protocol):
    """Maps over items, several at a time: see :func:`in_threads`."""

    def __call__(self, function: Callable[[T], R], items: Sequence[T], *, threads: int = ...) -> list[R]:
        """Results in the order of the items; the first error is raised."""
        ...


class Committer:
    """Carries batches of one topic from their rows to the marker."""

    def __init__(
        self,
        topic_log: TopicLog,
        source: Source,
        build: BuildObjects,
        *,
        parallel: Parallel = in_threads,
    ) -> None:
        """Bind a topic's log to Kafka.

        Args:
            topic_log: where the documents lie.
            source: to check the topic's incarnation, and to read again what an expired upload lost.
            build: how objects are built again from records.
            parallel: how several objects are completed, looked at or read at once.
        """
        self.log = topic_log
        self.source = source
        self.store = topic_log.store
        self._build = build
        self.parallel = parallel

    # -- decide -------------------------------------------------------------------------------------------------------

    def decide(self, plan: Plan, rows: Sequence[SliceRows], *, run: str) -> Manifest:
        """Decide to commit these rows, unless the batch is decided. Returns the stored decision.

        The rows are of no use afterwards: their uploads are given up unless the decision lists them, or may list them.

        Args:
            plan: of the batch.
            rows: one per slice, each from exactly one attempt.
            run: key of the run that executes.

        Raises:
            SparkJobError: rows are missing or do not fit the plan; nothing was decided.
            TopicRecreatedError: the topic changed while it was read; nothing was decided.
        """
        try:
            manifest = self._commit(plan, sorted(rows, key=lambda r: r.result.id), run)
            require_topic_id(self.source, self.log, plan.topic_id)
        except Exception:
            # No decision that lists these uploads was ever sent, so none can arrive.
            self.parallel(self._give_up, [o for r in rows for o in r.objects])
            raise
        decision = self.log.create_manifest(manifest)
        # Only a decision that was read proves that nobody will complete the uploads which it does not list.
        listed = {o.upload_id for o in decision.objects}
        self.parallel(self._give_up, [o for o in manifest.objects if o.upload_id not in listed])
        return decision

    def _commit(self, plan: Plan, rows: Sequence[SliceRows], run: str) -> Manifest:
        plan_sha256 = self.log.require_plan(plan.batch)[1]
        try:
            manifest = Manifest(
                batch=plan.batch,
                plan_sha256=plan_sha256,
                status="commit",
                run=run,
                slices=tuple(r.result for r in rows),
                objects=tuple(o for r in rows for o in r.objects),
            )
            manifest.check_against(plan)
        except ValueError as e:
            raise SparkJobError(
                f"batch {plan.batch} of topic {plan.topic!r} was not read as planned: {e}. Nothing was decided; try "
                "again"
            ) from e
        return manifest

    def abandon(
        self, plan: Plan, *, release: Literal["debt", "lost"], reason: str, operator: str, run: str
    ) -> Manifest:
        """Decide to abandon a batch, unless it is decided. Returns the stored decision."""
        return self.log.create_manifest(
            Manifest(
                batch=plan.batch,
                plan_sha256=self.log.require_plan(plan.batch)[1],
                status="abandoned",
                run=run,
                release=release,
                reason=reason,
                operator=operator,
            )
        )

    # -- carry out ----------------------------------------------------------------------------------------------------

    def carry_out(self, plan: Plan, decision: Manifest) -> None:
        """Do what a decision says and fold it into the marker; harmless if it is done already.

        Raises:
            ForeignObjectError: a key holds something else.
            BatchLossError: an object can be neither completed nor built again.
        """
        if decision.status == "commit" and not self.roll_forward(plan, decision):
            return
        self.resolve(plan, decision)

    def roll_forward(self, plan: Plan, decision: Manifest) -> bool:
        """Make every object of a committed batch visible; False if the batch turned out to be resolved already."""
        # This look precedes any Complete: a resolved batch may have lost objects since, to a user's own clean-up, and
        # they must not come back.
        if self.log.require_marker()[0].is_resolved(plan.batch):
            return False
        visible = self.parallel(lambda entry: self._make_visible(plan, entry), decision.objects)
        lost = [entry for entry, there in zip(decision.objects, visible, strict=True) if not there]
        return self._build_again(plan, lost)

    def resolve(self, plan: Plan, decision: Manifest) -> None:
        """Fold a decided batch into the marker, by compare-and-swap, until somebody has done it."""
        tries, last_etag = 0, ""
        while True:
            marker, etag = self.log.require_marker()
            if marker.is_resolved(plan.batch):
                return
            # A lost swap means that somebody else advanced; only tries that changed nothing are counted.
            tries = tries + 1 if etag == last_etag else 1
            if tries > _TRIES:
                raise UnknownOutcomeError(
                    f"marker {self.log.marker_url()} could not be replaced: the store gave no usable answer {_TRIES} "
                    f"times. Batch {plan.batch} is decided and loses nothing; try again"
                )
            last_etag = etag
            if self.log.replace_marker(fold(marker, plan, decision), etag):
                return
            self.store.retrier.pause(tries)

    def complete(self, plan: Plan, entry: ObjectEntry) -> bool:
        """Make one object visible; False if the batch turned out to be resolved already."""
        return self._make_visible(plan, entry) or self._build_again(plan, [entry])

    def _make_visible(self, plan: Plan, entry: ObjectEntry) -> bool:
        """Complete an upload; False if it is gone and its object is not there."""
        for attempt in range(1, _TRIES + 1):
            answer = self.store.complete(entry.key, entry.upload_id, entry.upload_parts())
            if self.is_intact(plan, entry):
                if answer not in (CompleteAnswer.DONE, CompleteAnswer.GONE):
                    self._give_up(entry)
                return True
            if answer in (CompleteAnswer.DONE, CompleteAnswer.GONE):
                return self._appears(plan, entry)
            if answer is CompleteAnswer.REFUSED:
                self._give_up(entry)
                return self._appears(plan, entry)
            self.store.retrier.pause(attempt)
        if not self.store.upload_exists(entry.key, entry.upload_id):
            return self._appears(plan, entry)
        raise UnknownOutcomeError(
            f"object {self.store.url(entry.key)} of batch {plan.batch} could not be completed: the store gave no "
            f"usable answer {_TRIES} times. The batch is decided and loses nothing; try again"
        )

    def are_intact(self, plan: Plan, entries: Sequence[ObjectEntry]) -> list[bool]:
        """See :meth:`is_intact`, for many."""
        return self.parallel(lambda entry: self.is_intact(plan, entry), entries)

    def is_intact(self, plan: Plan, entry: ObjectEntry) -> bool:
        """Whether the object is there; ForeignObjectError if something else is."""
        info = self.store.head(entry.key)
        if info is not None and not matches(info, plan.batch, entry):
            # An answer that breaks off before the metadata looks whole: nobody is sent after a stranger for one look.
            info = self.store.head(entry.key)
        if info is None:
            return False
        if not matches(info, plan.batch, entry):
            raise ForeignObjectError(
                f"{self.store.url(entry.key)} holds an object of {info.size} bytes that batch {plan.batch} of topic "
                f"{plan.topic!r} did not write (expected {entry.size} bytes, metadata {BATCH_METADATA}={plan.batch}). "
                f"It was not touched. Move it away and run again"
            )
        return True

    def _give_up(self, entry: ObjectEntry) -> bool:
        """Abort an upload as well as possible; one that stays pending is for the lifecycle rule."""
        self.store.abort_uploads([(entry.key, entry.upload_id)])
        return True

    def _appears(self, plan: Plan, entry: ObjectEntry) -> bool:
        """Whether an object whose upload is gone comes to light: somebody else's Complete may be in progress."""
        for attempt in range(1, _SETTLE_LOOKS + 1):
            if self.is_intact(plan, entry):
                return True
            self.store.retrier.pause(attempt)
        return False

    def _build_again(self, plan: Plan, entries: Sequence[ObjectEntry]) -> bool:
        for entry in entries:
            log.warning(
                "object %s of batch %d lost its upload; it is read again from Kafka",
                self.store.url(entry.key),
                plan.batch,
            )
        return self.restore(plan, entries, only_unresolved=True)

    def restore(self, plan: Plan, entries: Sequence[ObjectEntry], *, only_unresolved: bool = False) -> bool:
        """Write absent objects again from Kafka. A key that was accepted as lost stays absent if Kafka lost it too.

        Args:
            plan: of the committed batch.
            entries: the objects.
            only_unresolved: stop, with False, if the batch is resolved by now.

        Raises:
            BatchLossError: Kafka no longer has the same records.
            ForeignObjectError: a key holds something else.
        """
        for entry, built in self.rebuild(plan, entries):
            if not isinstance(built, str):
                if not self.put_again(plan, entry, built, only_unresolved=only_unresolved):
                    return False
            elif entry.key not in self.log.amended_keys(plan.batch)[0]:
                partition = plan.slices[entry.slices[0]].partition
                # To a batch that is complete already, its loss cannot be a reason to stay open.
                accept = (
                    f"Complete the batch without what cannot be written: {commands.accept_loss(self.log, plan.batch)}"
                    if only_unresolved
                    else f"Accept that it is gone: {commands.accept_deleted(self.log, [plan.batch])}"
                )
                raise BatchLossError(
                    f"object {self.store.url(entry.key)} of batch {plan.batch} (topic {plan.topic!r}, partition "
                    f"{partition}, offsets {entry.min_offset} to {entry.max_offset}, {entry.records} records) is gone "
                    f"and cannot be written again from Kafka: {built}. The marker was not changed. {accept}"
                )
        return True

    def rebuild(self, plan: Plan, entries: Sequence[ObjectEntry]) -> Iterator[tuple[ObjectEntry, BuiltObject | str]]:
        """Build objects again from Kafka, those of a slice together; instead of one that cannot be built, say why.

        The objects wait in memory and temporary files until the next ones are asked for.
        """
        by_slice: dict[int, list[ObjectEntry]] = {}
        for entry in entries:
            by_slice.setdefault(entry.slices[0], []).append(entry)
        for number, found in sorted(by_slice.items()):
            for at in range(0, len(found), _BUILT_AT_ONCE):
                some = found[at : at + _BUILT_AT_ONCE]
                built: dict[str, BuiltObject] = {}
                why = "Kafka has other records there now"
                try:
                    built.update(self._read_again(plan, plan.slices[number], [entry.key for entry in some]))
                except (DataLossError, TopicRecreatedError, TopicNotFoundError, RecordError) as e:
                    why = str(e)
                for entry in some:
                    yield entry, _fit(plan, entry, built.pop(entry.key, None), why)

    def _read_again(self, plan: Plan, s: Slice, wanted: Sequence[str]) -> Mapping[str, BuiltObject]:
        require_topic_id(self.source, self.log, plan.topic_id)
        built = self._build(plan, s, wanted, self.source.read(plan.topic, s.partition, s.start, s.end, plan.isolation))
        require_topic_id(self.source, self.log, plan.topic_id)
        return built

    def put_again(self, plan: Plan, entry: ObjectEntry, built: BuiltObject, *, only_unresolved: bool) -> bool:
        """Store an object that was built again, unless its key exists.

        Args:
            plan: of the committed batch.
            entry: the object.
            built: its bytes.
            only_unresolved: do nothing, and return False, if the batch is resolved by now.

        Raises:
            ForeignObjectError: the key holds something else.
        """
        metadata = {
            BATCH_METADATA: str(plan.batch),
            CONTENT_METADATA: entry.content,
            CRC32_METADATA: built.crc32,
        }
        for attempt in range(1, _TRIES + 1):
            # The last look before each write: what a user deleted after the batch was resolved must not come back.
            if only_unresolved and self.log.require_marker()[0].is_resolved(plan.batch):
                return False
            built.put(metadata)
            if self.is_intact(plan, entry):
                return True
            self.store.retrier.pause(attempt)
        raise UnknownOutcomeError(
            f"object {self.store.url(entry.key)} of batch {plan.batch} could not be written again; try again"
        )


def _fit(plan: Plan, entry: ObjectEntry, built: BuiltObject | None, why: str) -> BuiltObject | str:
    """An object that was built again, if it is the one that is missing; else why it is not."""
    if built is None:
        return why
    if built.content != entry.content:
        return "Kafka has other records there now"
    if built.size != entry.size:
        return (
            f"this installation would write the same records as {built.size} bytes instead of {entry.size}; install "
            f"what planned the batch ({plan.writer}) and run again"
        )
    return built


def matches(info: ObjectInfo, batch: int, entry: ObjectEntry) -> bool:
    """Whether an object is the one that a batch listed, or holds the same records under that batch."""
    metadata = info.metadata
    return (
        info.size == entry.size
        and metadata.get(BATCH_METADATA) == str(batch)
        and (metadata.get(NONCE_METADATA) == entry.nonce or metadata.get(CONTENT_METADATA) == entry.content)
    )
