"""The batch log of one topic: reads and creates its control documents through the durable store.

Plans, manifests, run records and amends are created once and never change, so they are cached. The marker is read every
time.
"""

from __future__ import annotations

import datetime as dt
import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

import msgspec

from airflow_provider_kafka_s3.batch.nesting import refuse_nesting
from airflow_provider_kafka_s3.batch.remedies import Remedies
from airflow_provider_kafka_s3.batch.view import View
from airflow_provider_kafka_s3.config import JsonLines, Layout
from airflow_provider_kafka_s3.documents import addresses
from airflow_provider_kafka_s3.documents.addresses import TopicAddress
from airflow_provider_kafka_s3.documents.codec import (
    MAX_BATCH,
    Document,
    corrupt,
    decode,
    encode,
    printable,
    write_stamp,
    written_at,
)
from airflow_provider_kafka_s3.documents.log_index import INDEX_SIZES, LogIndex
from airflow_provider_kafka_s3.documents.manifest import Amend, Manifest
from airflow_provider_kafka_s3.documents.marker import Marker
from airflow_provider_kafka_s3.documents.offsets import NO_OFFSETS
from airflow_provider_kafka_s3.documents.owner import Owner, decode_owner, read_owner
from airflow_provider_kafka_s3.documents.plan import Plan
from airflow_provider_kafka_s3.documents.planner import PlannerProcess, PlannerTask, planner_of, planner_stamp
from airflow_provider_kafka_s3.documents.run import RunRecord
from airflow_provider_kafka_s3.exceptions import (
    ConditionalConflict,
    ControlError,
    CorruptControlError,
    LogTamperedError,
    MarkerMissingError,
    PipelineConflictError,
    PreconditionFailed,
    UnknownOutcomeError,
    UnsupportedStoreError,
)
from airflow_provider_kafka_s3.messages import count
from airflow_provider_kafka_s3.storage.durable import DurableStore

__all__ = ["TopicLog", "prove_conditions"]

log = logging.getLogger(__name__)

D = TypeVar("D", bound=Document)

_OWNER_TRIES: Final = 5
"""Compare-and-swaps of the owner document; one that is lost to another process is followed by an answer."""

_INDEX_NAME: Final = re.compile(r"(\d{10})-(\d{10})\.json")


class TopicLog:
    """The control documents of one topic of a pipeline.

    Attributes:
        bucket: name of the bucket.
        index_sizes: batches of one index document, ascending; each size divides the next one.
    """

    def __init__(self, store: DurableStore, address: TopicAddress, connection_options: Sequence[str] = ()) -> None:
        """Create a handle; nothing is read or written yet.

        Args:
            store: the bucket.
            address: of the topic in it.
            connection_options: options with which the command line reaches the same store and cluster, such as
                ``("--kafka-conn-id", "kafka_default")``, for the commands in error messages.
        """
        self.store = store
        self.address = address
        self.topics_dir = address.topics_dir
        self.pipeline = address.pipeline
        self.topic = address.topic
        self.prefix = address.prefix
        self.bucket = store.url("").removeprefix("s3://").rstrip("/")
        self.remedies = Remedies(self.bucket, address, tuple(connection_options))
        self.index_sizes: tuple[int, ...] = INDEX_SIZES
        self._cache: dict[str, tuple[Any, dict[str, Any]]] = {}

    # -- addresses ----------------------------------------------------------------------------------------------------

    def marker_url(self) -> str:
        """URL of the marker."""
        return self.store.url(addresses.marker_key(self.prefix))

    def plan_url(self, batch: int) -> str:
        """URL of a plan."""
        return self.store.url(addresses.plan_key(self.prefix, batch))

    def manifest_url(self, batch: int) -> str:
        """URL of a manifest."""
        return self.store.url(addresses.manifest_key(self.prefix, batch))

    # -- marker -------------------------------------------------------------------------------------------------------

    def read_marker(self) -> tuple[Marker, str] | None:
        """The marker and its ETag, or None if there is none."""
        try:
            fetched = self._fetch(Marker, addresses.marker_key(self.prefix))
            if fetched is None:
                return None
            marker, _, etag = fetched
            self._check_topic(marker.topic, self.marker_url())
        except CorruptControlError as e:
            e.add_note(f"or build the marker again from the log: {self.remedies.repair()}")
            raise
        return marker, etag

    def require_marker(self) -> tuple[Marker, str]:
        """The marker and its ETag.

        Raises:
            MarkerMissingError: there is none, although batches exist.
        """
        stored = self.read_marker()
        if stored is None:
            self.refuse_release(self.read_plan(1))
            self.store.settle(addresses.marker_key(self.prefix))
            stored = self.read_marker()
        if stored is None:
            raise MarkerMissingError(
                f"the marker of topic {self.topic!r} is gone, although batches exist: neither GET nor HEAD nor LIST "
                f"requests find it, the last ones after a pause. Nothing was changed. Build it again from the log: "
                f"{self.remedies.repair()}; or restore its last version (bucket versioning). Do not delete the log: "
                f"everything would be landed twice. The marker: {self.marker_url()}"
            )
        return stored

    def decode_marker(self, body: bytes) -> Marker:
        """Decode the bytes of a marker.

        Raises:
            CorruptControlError: they are invalid.
        """
        marker, _ = decode(Marker, body, self.marker_url())
        self._check_topic(marker.topic, self.marker_url())
        return marker

    def create_marker(self, marker: Marker, *, data_prefix: str, unsafe_single_writer: bool = False) -> bool:
        """Take ownership of the topic, check that the store honours conditions, and create the marker.

        Args:
            marker: initial marker, before any batch.
            data_prefix: prefix of the keys of the topic's objects.
            unsafe_single_writer: skip the check.

        Returns:
            Whether this marker is the stored one: another run may have been faster.

        Raises:
            PipelineConflictError: another pipeline owns the topic, or a folder around or below it; or this one has
                released it.
            UnsupportedStoreError: the store ignores conditions; no marker was written.
        """
        key = self.address.owner_key
        refuse_nesting(self.store, topics_dir=self.topics_dir, topic=self.topic, data_prefix=data_prefix)
        stored = self._take_topic(key)
        if unsafe_single_writer:
            log.warning(
                "unsafe_single_writer: the store is not checked for conditional writes. Two runs of pipeline %s at the "
                "same time may lose or duplicate records",
                self.pipeline,
            )
        else:
            prove_conditions(self.store, key, stored)
        body = encode(marker, write_stamp(), self.marker_url())
        return self.store.create(addresses.marker_key(self.prefix), body) == body

    def _take_topic(self, key: str) -> bytes:
        """Create the owner document, or take the topic over from a pipeline that has released it; returns its bytes."""
        body = encode(Owner(pipeline=self.pipeline, topic=self.topic), write_stamp())
        for _ in range(_OWNER_TRIES):
            stored = self.store.create(key, body)
            owner = decode_owner(stored, key, self.store.url(key), topics_dir=self.topics_dir)
            if not owner.released:
                self._check_owner(owner)
                return stored
            self.refuse_release(self.read_plan(1))
            # Compared by its bytes: another pipeline may have taken the topic since.
            now = self.store.get(key)
            if now is not None and now.body == stored:
                self.store.replace(key, body, now.etag)
        raise self._owner_kept()

    def require_owner(self) -> Owner | None:
        """The owner document of the topic, or None if there is none.

        Raises:
            PipelineConflictError: the topic belongs to another pipeline.
        """
        stored = self._read_owner()
        if stored is None:
            return None
        if not stored[0].released:
            self._check_owner(stored[0])
        return stored[0]

    def release_owner(self) -> None:
        """Mark the owner document, behind :meth:`released`, so that another pipeline may take the topic."""
        for _ in range(_OWNER_TRIES):
            stored = self._read_owner()
            if stored is None or stored[0].released or stored[0].pipeline != self.pipeline:
                return
            released = encode(Owner(pipeline=self.pipeline, topic=self.topic, released=True), write_stamp())
            if self.store.replace(self.address.owner_key, released, stored[1]):
                return
        raise self._owner_kept()

    def _owner_kept(self) -> UnknownOutcomeError:
        owner_url = self.store.url(self.address.owner_key)
        return UnknownOutcomeError(
            f"the owner document of topic {self.topic!r} could not be replaced: the store gave no usable answer "
            f"{_OWNER_TRIES} times. Nothing is lost; try again: {owner_url}"
        )

    def _read_owner(self) -> tuple[Owner, str] | None:
        return read_owner(self.store, self.address.owner_key, topics_dir=self.topics_dir)

    def _check_owner(self, owner: Owner) -> None:
        if owner.pipeline == self.pipeline:
            return
        address = msgspec.structs.replace(self.address, pipeline=owner.pipeline)
        release = replace(self.remedies, address=address).release()
        raise PipelineConflictError(
            f"topic {self.topic!r} under topics_dir {self.topics_dir!r} belongs to pipeline {owner.pipeline!r}, not to "
            f"{self.pipeline!r}. Nothing was changed. Use that pipeline's name, or another topics_dir; or, if that "
            f"pipeline has landed nothing, as its name was misspelt, release the topic: {release}. The owner document: "
            f"{self.store.url(self.address.owner_key)}"
        )

    def released(self) -> Plan | None:
        """The plan by which the pipeline has released the topic, the last one of the log; None: it has not."""
        marker = self.read_marker()
        batch = 1
        while marker is not None and marker[0].is_resolved(batch):
            batch += 1
        while (plan := self.read_plan(batch)) is not None and plan.type != "release":
            batch += 1
        return plan

    def refuse_release(self, plan: Plan | None) -> None:
        """Raise PipelineConflictError for a plan by which the pipeline has released the topic."""
        if plan is None or plan.type != "release":
            return
        raise PipelineConflictError(
            f"pipeline {self.pipeline!r} has released topic {self.topic!r} by {printable(plan.run)}, having landed "
            f"nothing of it, and cannot land it any more. Nothing was changed. Use another name of the pipeline, or "
            f"that of the pipeline that lands the topic now. To use this name again, end all its runs and delete its "
            f"documents: {self.store.url(self.prefix)}"
        )

    def replace_marker(self, marker: Marker, etag: str) -> bool:
        """Compare-and-swap the marker. False if it has changed (perhaps by this write): read it again."""
        body = encode(marker, write_stamp(), self.marker_url())
        return self.store.replace(addresses.marker_key(self.prefix), body, etag)

    # -- batches ------------------------------------------------------------------------------------------------------

    def view(self, seen: tuple[Marker, str] | None = None) -> View:
        """The marker and every plan it has not resolved.

        Args:
            seen: the marker and its ETag, if just read.

        Raises:
            MarkerMissingError: there is no marker.
            PipelineConflictError: the pipeline has released the topic.
            LogTamperedError: marker and log are inconsistent.
        """
        marker, etag = seen or self.require_marker()
        open_plans: dict[int, Plan] = {}
        batch = 1
        resolved = iter(marker.resolved)
        upcoming = next(resolved, None)
        while True:
            if upcoming is not None and batch == upcoming[0]:
                batch, upcoming = upcoming[1], next(resolved, None)
                continue
            plan = self.read_plan(batch, expected=upcoming is not None) if batch <= MAX_BATCH else None
            if plan is None:
                if upcoming is not None or batch > MAX_BATCH:
                    raise self._tampered(batch, marker)
                return View(marker=marker, etag=etag, open_plans=open_plans, next=batch)
            self.refuse_release(plan)
            twice = plan.claim & marker.covered if plan.generation == marker.generation else NO_OFFSETS
            if twice and not self._is_released(batch):
                raise LogTamperedError(
                    f"topic {self.topic!r}: marker or log was changed: the plan of batch {batch} claims offsets "
                    f"{printable(str(twice))}, which the marker has as landed by other batches. Nothing was written, "
                    f"since records would be landed twice. Restore the changed document (bucket versioning): "
                    f"{self.plan_url(batch)} or {self.marker_url()}"
                )
            open_plans[batch] = plan
            batch += 1

    def _is_released(self, batch: int) -> bool:
        """Whether a batch was abandoned so that others land its offsets.

        It can be open after they were landed if the marker was restored to an older version, and the batch that landed
        them was the first to be resolved then.
        """
        decision = self.read_manifest(batch)
        return decision is not None and decision.is_released

    def read_plan(self, batch: int, *, expected: bool = False) -> Plan | None:
        """The plan of a batch, or None.

        Args:
            batch: its number.
            expected: it should exist, so that None is an error.
        """
        stored = self._read(
            Plan, addresses.plan_key(self.prefix, batch), lambda plan: self._check_plan(plan, batch), expected=expected
        )
        return None if stored is None else stored[0]

    def require_plan(self, batch: int) -> tuple[Plan, str]:
        """The plan of a batch that must exist, and its checksum."""
        stored = self._read(
            Plan, addresses.plan_key(self.prefix, batch), lambda plan: self._check_plan(plan, batch), expected=True
        )
        if stored is None:
            raise LogTamperedError(
                f"topic {self.topic!r}: the plan of batch {batch} is gone, although later documents refer to it. "
                f"Nothing was changed. Restore the object (bucket versioning): {self.plan_url(batch)}"
            )
        return stored

    def last_layout(self, before: int) -> Layout:
        """The layout of the latest batch with a lower number; a default, for batches without objects, if none has."""
        for batch in range(before - 1, 0, -1):
            plan, _ = self.require_plan(batch)
            if plan.layout is not None:
                return plan.layout
        return Layout(topics_dir=self.topics_dir, format=JsonLines())

    def create_plan(self, plan: Plan, *, attempt: str = "", task: PlannerTask | None = None) -> bool:
        """Append a plan; False if another plan took its number first.

        Args:
            plan: with the number to take.
            attempt: try of the run that plans it; information.
            task: Airflow task that plans it, if any; information.
        """
        key = addresses.plan_key(self.prefix, plan.batch)
        body = encode(plan, write_stamp(attempt) | planner_stamp(task), self.store.url(key))
        return self.store.create(key, body) == body

    def planned_by(self, batch: int) -> str:
        """Writer of a plan and time, for people: ``try 1 on worker-1 (worker-1/4711) at 2026-01-01T…``."""
        key = addresses.plan_key(self.prefix, batch)
        self.require_plan(batch)
        envelope = self._cache[key][1]
        # These fields are not validated, since no decision depends on them; the length of a log line is bounded.
        who, when = (
            printable(" ".join(str(envelope[name] or "unknown").split()), shown=200)
            for name in ("written_by", "created_at")
        )
        return f"{who} at {when}"

    def planner(self, batch: int) -> tuple[PlannerProcess | None, PlannerTask | None]:
        """The process and the task that planned a batch; None for one that its plan does not name."""
        self.require_plan(batch)
        return planner_of(self._cache[addresses.plan_key(self.prefix, batch)][1])

    def times(self, batch: int) -> tuple[dt.datetime | None, dt.datetime | None]:
        """When a batch was planned, and decided, by the clocks of the writers; None: it is not, or has no such time."""
        self.read_plan(batch)
        self.read_manifest(batch)
        keys = addresses.plan_key(self.prefix, batch), addresses.manifest_key(self.prefix, batch)
        planned, decided = (written_at(self._cache[key][1]) if key in self._cache else None for key in keys)
        return planned, decided

    def read_manifest(self, batch: int, *, expected: bool = False) -> Manifest | None:
        """The decision about a batch, or None while it is undecided.

        Args:
            batch: its number.
            expected: it should be decided, so that None is an error.
        """
        key = addresses.manifest_key(self.prefix, batch)
        stored = self._read(Manifest, key, lambda manifest: self._check_manifest(manifest, batch), expected=expected)
        return None if stored is None else stored[0]

    def create_manifest(self, manifest: Manifest) -> Manifest:
        """Decide a batch, unless it is decided; returns the stored decision."""
        key = addresses.manifest_key(self.prefix, manifest.batch)
        stored = self.store.create(key, encode(manifest, write_stamp(), self.store.url(key)))
        decision, _ = decode(Manifest, stored, self.store.url(key))
        self._check_manifest(decision, manifest.batch)
        return decision

    def require_decision(self, batch: int) -> tuple[Manifest, str]:
        """The decision about a resolved batch, and its checksum."""
        key = addresses.manifest_key(self.prefix, batch)
        stored = self._read(Manifest, key, lambda manifest: self._check_manifest(manifest, batch), expected=True)
        if stored is None:
            raise LogTamperedError(
                f"topic {self.topic!r}: the decision about batch {batch} is gone, although the marker has the batch as "
                f"complete. Nothing was changed. Restore the object (bucket versioning): {self.manifest_url(batch)}"
            )
        return stored

    def forget(self, batch: int) -> None:
        """Drop a batch's documents from the cache: a manifest may list many objects."""
        for key in (addresses.plan_key(self.prefix, batch), addresses.manifest_key(self.prefix, batch)):
            self._cache.pop(key, None)

    def amended_keys(self, batch: int) -> tuple[frozenset[str], int]:
        """Keys of a committed batch that were accepted as lost, and the number of the next amend."""
        lost: set[str] = set()
        number = 1
        while (stored := self._read(Amend, addresses.amend_key(self.prefix, batch, number))) is not None:
            if stored[0].batch != batch:
                where = self.store.url(addresses.amend_key(self.prefix, batch, number))
                raise corrupt(where, f"it is of batch {stored[0].batch}")
            lost.update(stored[0].keys)
            number += 1
        return frozenset(lost), number

    def create_amend(self, amend: Amend, number: int) -> None:
        """Record keys as lost, unless the number is taken: read :meth:`amended_keys` again."""
        key = addresses.amend_key(self.prefix, amend.batch, number)
        self.store.create(key, encode(amend, write_stamp(), self.store.url(key)))

    # -- index --------------------------------------------------------------------------------------------------------

    def indexes(self, first: int = 1, last: int | None = None) -> dict[range, int]:
        """The batches of each index document that exists, whatever is in it, and its bytes.

        Args:
            first: only indexes that may have this batch or a higher one; names are listed by their first batch.
            last: only indexes that may have this batch or a lower one; None: all from ``first`` on.
        """
        prefix, largest = addresses.indexes_prefix(self.prefix), self.index_sizes[-1]
        begin = (first - 1) // largest * largest + 1
        sizes = {}
        # No name is equal to it, and all that begin with this number are greater.
        for info in self.store.walk(prefix, after=f"{prefix}{begin:010d}" if begin > 1 else ""):
            name = _INDEX_NAME.fullmatch(info.key.removeprefix(prefix))
            numbers = range(int(name[1]), int(name[2]) + 1) if name is not None else range(0)
            if last is not None and numbers and numbers[0] > last:
                break
            if numbers and numbers[-1] < first:
                continue
            if len(numbers) in self.index_sizes and numbers.start >= 1 and (numbers.start - 1) % len(numbers) == 0:
                sizes[numbers] = info.size
        return sizes

    def read_index(self, numbers: range) -> LogIndex | None:
        """The index of these batches, or None if there is none; not cached.

        Raises:
            CorruptControlError: it is damaged, or that of other batches. No step depends on it, so it can be ignored.
            UnsupportedFormatError: a newer version wrote it.
        """
        key = addresses.index_key(self.prefix, numbers.start, len(numbers))
        fetched = self._fetch(LogIndex, key)
        if fetched is None:
            return None
        index, where = fetched[0], self.store.url(key)
        self._check_topic(index.topic, where)
        if (index.first, len(index.batches)) != (numbers.start, len(numbers)):
            raise corrupt(where, f"it is of {count(len(index.batches), 'batch')} from {index.first} on")
        return index

    def create_index(self, index: LogIndex) -> int | None:
        """Create the index of some batches, unless there is one.

        Returns:
            Its bytes; None if another index of these batches is stored, or one that this version cannot read.
        """
        key = addresses.index_key(self.prefix, index.first, len(index.batches))
        body = encode(index, write_stamp(), self.store.url(key))
        stored = self.store.create(key, body)
        try:
            # Another process may have been faster; it has written the same, unless one of the two is wrong.
            is_same = stored == body or decode(LogIndex, stored, self.store.url(key))[0] == index
        except ControlError:
            is_same = False
        return len(stored) if is_same else None

    def replace_index(self, index: LogIndex) -> bool:
        """Write an index in place of a damaged one; False if the stored one may be another one by now."""
        key = addresses.index_key(self.prefix, index.first, len(index.batches))
        info = self.store.head(key)
        if info is None:
            return self.create_index(index) is not None
        return self.store.replace(key, encode(index, write_stamp(), self.store.url(key)), info.etag)

    def index_url(self, numbers: range) -> str:
        """URL of an index."""
        return self.store.url(addresses.index_key(self.prefix, numbers.start, len(numbers)))

    # -- runs ---------------------------------------------------------------------------------------------------------

    def read_run(self, run: str) -> RunRecord | None:
        """The pinned target of a run, or None."""
        stored = self._read(RunRecord, addresses.run_key(self.prefix, run))
        return None if stored is None else self._of_run(stored[0], run)

    def create_run(self, record: RunRecord, *, attempt: str = "") -> RunRecord:
        """Pin the target of a run, unless it is pinned; returns the stored record.

        Args:
            record: of the run.
            attempt: try of the run that pins it; information.
        """
        key = addresses.run_key(self.prefix, record.run)
        where = self.store.url(key)
        stored = self.store.create(key, encode(record, write_stamp(attempt), where))
        return self._of_run(decode(RunRecord, stored, where)[0], record.run)

    # -- replays ------------------------------------------------------------------------------------------------------

    def replay_url(self, replay: str, name: str) -> str:
        """URL of a document of a replay."""
        return self.store.url(addresses.replay_key(self.prefix, replay, name))

    def read_replay(self, kind: type[D], replay: str, name: str) -> D | None:
        """A document of a replay into Kafka, or None."""
        fetched = self._fetch(kind, addresses.replay_key(self.prefix, replay, name))
        return None if fetched is None else fetched[0]

    # -- reading ------------------------------------------------------------------------------------------------------

    def _read(
        self, kind: type[D], key: str, check: Callable[[D], None] | None = None, *, expected: bool = False
    ) -> tuple[D, str] | None:
        """An immutable document with its checksum; decoded and checked once. None is certain if it is expected."""
        if key not in self._cache:
            fetched = self._fetch(kind, key)
            if fetched is None and expected:
                self.store.settle(key)
                fetched = self._fetch(kind, key)
            if fetched is None:
                return None
            document, envelope, _ = fetched
            if check is not None:
                check(document)
            self._cache[key] = (document, envelope)
        document, envelope = self._cache[key]
        return document, envelope["sha256"]

    def _fetch(self, kind: type[D], key: str) -> tuple[D, dict[str, Any], str] | None:
        """A document, its envelope, and its ETag."""
        stored = self.store.get(key)
        if stored is None:
            return None
        where = self.store.url(key)
        try:
            return *decode(kind, stored.body, where), stored.etag
        except CorruptControlError:
            # Without TLS or a checksum, a response may be damaged in transit. A damaged object reads the same twice.
            again = self.store.get(key)
            if again is None or again.body == stored.body:
                raise
        return *decode(kind, again.body, where), again.etag

    def _check_plan(self, plan: Plan, batch: int) -> None:
        self._check_topic(plan.topic, self.plan_url(batch))
        if plan.batch != batch:
            raise corrupt(self.plan_url(batch), f"it is of batch {plan.batch}")
        if plan.layout is not None and plan.layout.topics_dir != self.topics_dir:
            raise corrupt(self.plan_url(batch), f"it writes below {plan.layout.topics_dir!r}")

    def _check_manifest(self, manifest: Manifest, batch: int) -> None:
        where = self.manifest_url(batch)
        plan, plan_sha256 = self.require_plan(batch)
        if manifest.plan_sha256 != plan_sha256:
            why = "the manifest decides another plan than the stored one; one of the two was changed"
            raise corrupt(f"{where} or {self.plan_url(batch)}", why)
        try:
            manifest.check_against(plan)
        except ValueError as e:
            raise corrupt(where, str(e)) from e

    def _check_topic(self, topic: str, where: str) -> None:
        if topic != self.topic:
            raise corrupt(where, f"it belongs to topic {topic!r}")

    def _of_run(self, record: RunRecord, run: str) -> RunRecord:
        if record.run != run:
            raise corrupt(self.store.url(addresses.run_key(self.prefix, run)), f"it is of run {record.run!r}")
        return record

    def _tampered(self, batch: int, marker: Marker) -> LogTamperedError:
        return LogTamperedError(
            f"topic {self.topic!r}: marker or log was changed: the marker has batches up to {marker.last_resolved} as "
            f"complete, and there is no plan {batch}. Nothing was written. Compare the two: {self.remedies.repair()}; "
            f"restore the missing document (bucket versioning): {self.plan_url(batch)} or {self.marker_url()}"
        )


def prove_conditions(store: DurableStore, key: str, stored: bytes) -> None:
    """Check on an existing object that the store rejects conditional writes whose condition is false.

    A store that ignores conditions rewrites the object with the same bytes, so nothing is lost either way.

    Args:
        store: the bucket.
        key: of an object that exists.
        stored: its bytes.

    Raises:
        UnsupportedStoreError: the store ignores a condition.
    """
    raw, retrier = store.store, store.retrier
    for condition, request in {
        "If-None-Match": lambda: raw.put_new(key, stored),
        "If-Match": lambda: raw.put_if_match(key, stored, etag='"00000000000000000000000000000000"'),
    }.items():
        try:
            retrier.call(_undecided(request), what=f"probe {condition} on {store.url(key)}")
        except PreconditionFailed:
            continue
        raise UnsupportedStoreError(
            f"the store does not support conditional writes, it ignored {condition}: two runs at the same time could "
            f"lose or duplicate records. Use a store that does (AWS S3, R2, MinIO, Ceph, versitygw, …). If you can "
            f"guarantee that only one run of this pipeline ever runs at a time, and accept the risk, pass "
            f"unsafe_single_writer=True. The tested key: {store.url(key)}"
        )


def _undecided(request: Callable[[], object]) -> Callable[[], None]:
    """The same request, with 409 as an error to retry: it does not show whether the store honours conditions."""

    def attempt() -> None:
        try:
            request()
        except ConditionalConflict as conflict:
            raise UnknownOutcomeError(str(conflict)) from conflict

    return attempt
