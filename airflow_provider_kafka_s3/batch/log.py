"""The batch log of one topic: every control document there is, by name, read and created through the durable store.

Plans, manifests, run records and amends are created once and never change, so what was read once is remembered. The
marker is read anew every time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from airflow_provider_kafka_s3.batch.nesting import refuse_nesting
from airflow_provider_kafka_s3.batch.remedies import Remedies
from airflow_provider_kafka_s3.batch.view import View
from airflow_provider_kafka_s3.config import JsonLines, Layout
from airflow_provider_kafka_s3.documents.codec import (
    MAX_BATCH,
    Document,
    corrupt,
    decode,
    encode,
    printable,
    write_stamp,
)
from airflow_provider_kafka_s3.documents.manifest import Amend, Manifest
from airflow_provider_kafka_s3.documents.marker import Marker
from airflow_provider_kafka_s3.documents.offsets import NO_OFFSETS
from airflow_provider_kafka_s3.documents.owner import Owner, decode_owner
from airflow_provider_kafka_s3.documents.plan import Plan
from airflow_provider_kafka_s3.documents.planner import PlannerProcess, PlannerTask, planner_of, planner_stamp
from airflow_provider_kafka_s3.documents.run import RunRecord
from airflow_provider_kafka_s3.exceptions import (
    ConditionalConflict,
    CorruptControlError,
    LogTamperedError,
    MarkerMissingError,
    PipelineConflictError,
    PreconditionFailed,
    UnknownOutcomeError,
    UnsupportedStoreError,
)
from airflow_provider_kafka_s3.layout import keys
from airflow_provider_kafka_s3.storage.durable import DurableStore

__all__ = ["TopicLog", "prove_conditions"]

log = logging.getLogger(__name__)

D = TypeVar("D", bound=Document)


class TopicLog:
    """The control documents of one topic of a pipeline."""

    def __init__(
        self, store: DurableStore, *, topics_dir: str, pipeline: str, topic: str, connection_options: Sequence[str] = ()
    ) -> None:
        """Name a log; nothing is read or written yet.

        Args:
            store: the bucket.
            topics_dir: prefix of all keys.
            pipeline: name of the pipeline.
            topic: name of the topic.
            connection_options: how the command line reaches the same store and cluster, such as ``("--kafka-conn-id",
                "kafka_default")``: errors print commands that a person may copy.
        """
        self.store = store
        self.topics_dir = topics_dir
        self.pipeline = pipeline
        self.topic = topic
        self.prefix = keys.control_prefix(topics_dir, pipeline, topic)
        self.remedies = Remedies(
            bucket=store.url("").removeprefix("s3://").rstrip("/"),
            topics_dir=topics_dir,
            pipeline=pipeline,
            topic=topic,
            connection_options=tuple(connection_options),
        )
        self._known: dict[str, tuple[Any, dict[str, Any]]] = {}

    # -- addresses ----------------------------------------------------------------------------------------------------

    def marker_url(self) -> str:
        """Where the marker lies."""
        return self.store.url(keys.marker_key(self.prefix))

    def plan_url(self, batch: int) -> str:
        """Where a plan lies."""
        return self.store.url(keys.plan_key(self.prefix, batch))

    def manifest_url(self, batch: int) -> str:
        """Where a manifest lies."""
        return self.store.url(keys.manifest_key(self.prefix, batch))

    # -- marker -------------------------------------------------------------------------------------------------------

    def read_marker(self) -> tuple[Marker, str] | None:
        """The marker and its ETag, or None if there is none."""
        try:
            found = self._fetch(Marker, keys.marker_key(self.prefix))
            if found is None:
                return None
            marker, _, etag = found
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
        found = self.read_marker()
        if found is None:
            raise MarkerMissingError(
                f"the marker of topic {self.topic!r} is gone, although batches exist. Nothing was changed. Build it "
                f"again from the log: {self.remedies.repair()}; or restore its last version (bucket versioning). "
                f"Deleting the log does not help, it would land everything twice. The marker: {self.marker_url()}"
            )
        return found

    def decode_marker(self, body: bytes) -> Marker:
        """What the bytes of a marker say.

        Raises:
            CorruptControlError: they cannot be trusted.
        """
        marker, _ = decode(Marker, body, self.marker_url())
        self._check_topic(marker.topic, self.marker_url())
        return marker

    def create_marker(self, marker: Marker, *, data_prefix: str, unsafe_single_writer: bool = False) -> bool:
        """Take ownership of the topic, prove that the store honours conditions, and create the marker.

        Args:
            marker: before any batch.
            data_prefix: what the keys of the topic's objects will begin with.
            unsafe_single_writer: do not prove it.

        Returns:
            Whether this marker is the one that is stored: another run may have been faster.

        Raises:
            PipelineConflictError: another pipeline owns the topic, or a folder around or below.
            UnsupportedStoreError: the store ignores conditions; no marker was written.
        """
        key = keys.owner_key(self.topics_dir, self.topic)
        refuse_nesting(self.store, topics_dir=self.topics_dir, topic=self.topic, data_prefix=data_prefix)
        body = encode(Owner(pipeline=self.pipeline, topic=self.topic), write_stamp())
        stored = self.store.create(key, body)
        owner = decode_owner(stored, key, self.store.url(key), topics_dir=self.topics_dir)
        if owner.pipeline != self.pipeline:
            raise PipelineConflictError(
                f"topic {self.topic!r} under topics_dir {self.topics_dir!r} belongs to pipeline {owner.pipeline!r}, so "
                f"{self.pipeline!r} cannot land it there. Use that pipeline's name, or another topics_dir. The record "
                f"of it: {self.store.url(key)}"
            )
        if unsafe_single_writer:
            log.warning(
                "unsafe_single_writer: the store is not checked for conditional writes. Two runs of pipeline %s at the "
                "same time may lose or duplicate records",
                self.pipeline,
            )
        else:
            prove_conditions(self.store, key, stored)
        body = encode(marker, write_stamp())
        return self.store.create(keys.marker_key(self.prefix), body) == body

    def replace_marker(self, marker: Marker, etag: str) -> bool:
        """Compare-and-swap the marker; False means: read it again (it may be our own write)."""
        return self.store.replace(keys.marker_key(self.prefix), encode(marker, write_stamp()), etag)

    # -- batches ------------------------------------------------------------------------------------------------------

    def view(self, seen: tuple[Marker, str] | None = None) -> View:
        """The marker and every plan it has not resolved.

        Args:
            seen: the marker and its ETag, if they were read just now.

        Raises:
            MarkerMissingError: there is no marker.
            LogTamperedError: marker and log do not fit together.
        """
        marker, etag = seen or self.require_marker()
        open_plans: dict[int, Plan] = {}
        batch = 1
        gaps = iter(marker.resolved)
        upcoming = next(gaps, None)
        while True:
            if upcoming is not None and batch == upcoming[0]:
                batch, upcoming = upcoming[1], next(gaps, None)
                continue
            plan = self.read_plan(batch) if batch <= MAX_BATCH else None
            if plan is None:
                if upcoming is not None or batch > MAX_BATCH:
                    raise self._tampered(batch, marker)
                return View(marker=marker, etag=etag, open_plans=open_plans, next=batch)
            twice = plan.claim & marker.covered if plan.generation == marker.generation else NO_OFFSETS
            if twice and not self._is_given_up(batch):
                raise LogTamperedError(
                    f"topic {self.topic!r}: marker or log was changed: the plan of batch {batch} claims offsets "
                    f"{printable(str(twice))}, which the marker has as landed by other batches. Nothing was written, "
                    f"since records would be landed twice. Restore the one that was changed (bucket versioning): "
                    f"{self.plan_url(batch)} or {self.marker_url()}"
                )
            open_plans[batch] = plan
            batch += 1

    def _is_given_up(self, batch: int) -> bool:
        """Whether a batch was abandoned for others to land its offsets.

        It is open although they have done so, if the marker was put back to an older version, and if theirs was the
        first batch to be resolved then.
        """
        decision = self.read_manifest(batch)
        return decision is not None and decision.status == "abandoned" and decision.release == "debt"

    def read_plan(self, batch: int) -> Plan | None:
        """The plan of a batch, or None."""
        found = self._read(Plan, keys.plan_key(self.prefix, batch), lambda plan: self._check_plan(plan, batch))
        return None if found is None else found[0]

    def require_plan(self, batch: int) -> tuple[Plan, str]:
        """The plan of a batch that must exist, and its checksum."""
        found = self._read(Plan, keys.plan_key(self.prefix, batch), lambda plan: self._check_plan(plan, batch))
        if found is None:
            raise LogTamperedError(
                f"topic {self.topic!r}: the plan of batch {batch} is gone, although later documents refer to it. "
                f"Nothing was changed. Restore the object (bucket versioning): {self.plan_url(batch)}"
            )
        return found

    def last_layout(self, before: int) -> Layout:
        """The layout of the latest batch with a lower number; a plain one, for batches without objects, if none has."""
        for batch in range(before - 1, 0, -1):
            plan, _ = self.require_plan(batch)
            if plan.layout is not None:
                return plan.layout
        return Layout(topics_dir=self.topics_dir, format=JsonLines())

    def create_plan(self, plan: Plan, *, attempt: str = "", task: PlannerTask | None = None) -> bool:
        """Append a plan; False if another plan took its number first.

        Args:
            plan: with the number to take.
            attempt: which try of its run plans it; information.
            task: of Airflow that plans it, if one does; information.
        """
        key = keys.plan_key(self.prefix, plan.batch)
        body = encode(plan, write_stamp(attempt) | planner_stamp(task))
        return self.store.create(key, body) == body

    def planned_by(self, batch: int) -> str:
        """Who planned a batch and when, for people: ``try 1 on worker-1 (worker-1/4711) at 2026-01-01T…``."""
        key = keys.plan_key(self.prefix, batch)
        self.require_plan(batch)
        beside = self._known[key][1]
        # What stands there was never validated, as nobody decides by it; a log has lines of bounded length.
        who, when = (
            printable(" ".join(str(beside[name] or "unknown").split()), shown=200)
            for name in ("written_by", "created_at")
        )
        return f"{who} at {when}"

    def planner(self, batch: int) -> tuple[PlannerProcess | None, PlannerTask | None]:
        """The process and the task that planned a batch, as far as its plan names them."""
        self.require_plan(batch)
        return planner_of(self._known[keys.plan_key(self.prefix, batch)][1])

    def read_manifest(self, batch: int) -> Manifest | None:
        """The decision about a batch, or None while it is undecided."""
        key = keys.manifest_key(self.prefix, batch)
        found = self._read(Manifest, key, lambda manifest: self._check_manifest(manifest, batch))
        return None if found is None else found[0]

    def create_manifest(self, manifest: Manifest) -> Manifest:
        """Decide a batch, unless it is decided; returns the decision that is stored, whoever made it."""
        key = keys.manifest_key(self.prefix, manifest.batch)
        stored = self.store.create(key, encode(manifest, write_stamp()))
        decision, _ = decode(Manifest, stored, self.store.url(key))
        self._check_manifest(decision, manifest.batch)
        return decision

    def forget(self, batch: int) -> None:
        """Free the memory that a batch takes which is not looked at again: a manifest may list many objects."""
        for key in (keys.plan_key(self.prefix, batch), keys.manifest_key(self.prefix, batch)):
            self._known.pop(key, None)

    def amended_keys(self, batch: int) -> tuple[frozenset[str], int]:
        """Keys of a committed batch that were accepted as lost, and the number of the next amend."""
        lost: set[str] = set()
        number = 1
        while (found := self._read(Amend, keys.amend_key(self.prefix, batch, number))) is not None:
            if found[0].batch != batch:
                where = self.store.url(keys.amend_key(self.prefix, batch, number))
                raise corrupt(where, f"it says it is about batch {found[0].batch}")
            lost.update(found[0].keys)
            number += 1
        return frozenset(lost), number

    def create_amend(self, amend: Amend, number: int) -> None:
        """Record keys as lost, unless somebody else took the number: read :meth:`amended_keys` again."""
        self.store.create(keys.amend_key(self.prefix, amend.batch, number), encode(amend, write_stamp()))

    # -- runs ---------------------------------------------------------------------------------------------------------

    def read_run(self, run: str) -> RunRecord | None:
        """The pinned target of a run, or None."""
        found = self._read(RunRecord, keys.run_key(self.prefix, run))
        return None if found is None else self._of_run(found[0], run)

    def create_run(self, record: RunRecord, *, attempt: str = "") -> RunRecord:
        """Pin the target of a run, unless it is pinned; returns the record that is stored.

        Args:
            record: of the run.
            attempt: which try pins it; information.
        """
        key = keys.run_key(self.prefix, record.run)
        stored = decode(RunRecord, self.store.create(key, encode(record, write_stamp(attempt))), self.store.url(key))
        return self._of_run(stored[0], record.run)

    # -- reading ------------------------------------------------------------------------------------------------------

    def _read(self, kind: type[D], key: str, check: Callable[[D], None] | None = None) -> tuple[D, str] | None:
        """A document that never changes, with its checksum; decoded and checked once."""
        if key not in self._known:
            found = self._fetch(kind, key)
            if found is None:
                return None
            document, beside, _ = found
            if check is not None:
                check(document)
            self._known[key] = (document, beside)
        document, beside = self._known[key]
        return document, beside["sha256"]

    def _fetch(self, kind: type[D], key: str) -> tuple[D, dict[str, Any], str] | None:
        """A document, what stands beside it, and its ETag."""
        stored = self.store.get(key)
        if stored is None:
            return None
        where = self.store.url(key)
        try:
            return *decode(kind, stored.body, where), stored.etag
        except CorruptControlError:
            # Where neither TLS nor a checksum protects an answer, it may be damaged on its way. What lies in the bucket
            # reads the same twice.
            again = self.store.get(key)
            if again is None or again.body == stored.body:
                raise
        return *decode(kind, again.body, where), again.etag

    def _check_plan(self, plan: Plan, batch: int) -> None:
        self._check_topic(plan.topic, self.plan_url(batch))
        if plan.batch != batch:
            raise corrupt(self.plan_url(batch), f"it says it is batch {plan.batch}")
        if plan.layout is not None and plan.layout.topics_dir != self.topics_dir:
            raise corrupt(self.plan_url(batch), f"it writes below {plan.layout.topics_dir!r}")

    def _check_manifest(self, manifest: Manifest, batch: int) -> None:
        where = self.manifest_url(batch)
        plan, plan_sha256 = self.require_plan(batch)
        if manifest.plan_sha256 != plan_sha256:
            raise corrupt(where, "it decides another plan than the one that is stored")
        try:
            manifest.check_against(plan)
        except ValueError as e:
            raise corrupt(where, str(e)) from e

    def _check_topic(self, topic: str, where: str) -> None:
        if topic != self.topic:
            raise corrupt(where, f"it belongs to topic {topic!r}")

    def _of_run(self, record: RunRecord, run: str) -> RunRecord:
        if record.run != run:
            raise corrupt(self.store.url(keys.run_key(self.prefix, run)), f"it is of run {record.run!r}")
        return record

    def _tampered(self, batch: int, marker: Marker) -> LogTamperedError:
        return LogTamperedError(
            f"topic {self.topic!r}: marker or log was changed: the marker has batches up to {marker.last_resolved} as "
            f"complete, and there is no plan {batch}. Nothing was written. Compare the two: {self.remedies.repair()}; "
            f"restore what is missing (bucket versioning): {self.plan_url(batch)} or {self.marker_url()}"
        )


def prove_conditions(store: DurableStore, key: str, stored: bytes) -> None:
    """Prove on an existing object that writes which must fail do fail.

    On a store that ignores conditions it is rewritten with the same bytes, so nothing is lost either way.

    Args:
        store: the bucket.
        key: of an object that exists.
        stored: its bytes.

    Raises:
        UnsupportedStoreError: the store ignores a condition.
    """
    raw, retrier = store.store, store.retrier
    for what, request in {
        "If-None-Match": lambda: raw.put_new(key, stored),
        "If-Match": lambda: raw.put_if_match(key, stored, etag='"00000000000000000000000000000000"'),
    }.items():
        try:
            retrier.call(_undecided(request), what=f"probe {what} on {store.url(key)}")
        except PreconditionFailed:
            continue
        raise UnsupportedStoreError(
            f"the store does not support conditional writes, it ignored {what}: two runs at the same time could lose "
            f"or duplicate records. Use a store that does (AWS S3, R2, MinIO, Ceph, versitygw, …). If you can "
            f"guarantee that only one run of this pipeline ever runs at a time, and accept the risk, pass "
            f"unsafe_single_writer=True. The key that was tried: {store.url(key)}"
        )


def _undecided(request: Callable[[], object]) -> Callable[[], None]:
    """The same request, with 409 as an error that is worth a repeat: it tells nothing about conditions."""

    def attempt() -> None:
        try:
            request()
        except ConditionalConflict as answer:
            raise UnknownOutcomeError(str(answer)) from answer

    return attempt
