"""Read every object of a window back and compare it with its manifest. ``restore`` also writes missing objects again.

Nothing is planned or decided here, and no document is written: ``verify`` only reads, ``restore`` only creates missing
objects that a committed batch lists, and writes the marker files of DeviantArt's names.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from isal import isal_zlib

from airflow_provider_kafka_s3.batch.commit import Committer
from airflow_provider_kafka_s3.batch.coverage import Covering, covering_downward, covering_upward
from airflow_provider_kafka_s3.batch.derived.registry import follow_run
from airflow_provider_kafka_s3.batch.expiry import expired_objects
from airflow_provider_kafka_s3.batch.given_away import GivenAway
from airflow_provider_kafka_s3.batch.incarnation import require_topic_id
from airflow_provider_kafka_s3.batch.object_metadata import has_crc32, matches
from airflow_provider_kafka_s3.batch.presence import missing_objects
from airflow_provider_kafka_s3.batch.rebuild import places
from airflow_provider_kafka_s3.batch.remedies import RESTORE_RUN
from airflow_provider_kafka_s3.batch.request import BatchSummary, RunRequest, TopicResult, Verification
from airflow_provider_kafka_s3.batch.window_offsets import window_of
from airflow_provider_kafka_s3.config import MIB
from airflow_provider_kafka_s3.documents.manifest import ObjectEntry
from airflow_provider_kafka_s3.documents.marker import Marker
from airflow_provider_kafka_s3.documents.offsets import NO_OFFSETS, Offsets
from airflow_provider_kafka_s3.documents.plan import Plan
from airflow_provider_kafka_s3.documents.run import RunRecord
from airflow_provider_kafka_s3.exceptions import BatchLossError, ForeignObjectError, UnknownOutcomeError
from airflow_provider_kafka_s3.messages import count, few, printable
from airflow_provider_kafka_s3.progress import Advance, progress

__all__ = ["VerifyRun"]

log = logging.getLogger(__name__)

_READERS: Final = 8
_PIECE: Final = 8 * MIB
"""Bytes of one request; each reader has one response in memory."""

_GROUP: Final = 256
"""Objects that are read as one group. Larger groups only need more memory, for their manifests."""


class VerifyRun:
    """One attempt of a run that reads landed objects back, and restores missing ones if its action is ``restore``.

    Attributes:
        dead_letters: that it has landed: none.
    """

    dead_letters: Final = 0

    def __init__(self, committer: Committer, request: RunRequest) -> None:
        """Prepare an attempt; nothing is read yet.

        Args:
            committer: decides and completes the batches of the topic.
            request: with the action ``verify`` or ``restore``.
        """
        self.log = committer.log
        self.source = committer.source
        self._committer = committer
        self.request = request

    def advance(self) -> TopicResult:
        """Read all objects of the run and compare them with their manifests.

        Raises:
            MissingObjectError: objects are gone (``verify``, unless ``on_missing`` is ``ignore``).
            ForeignObjectError: objects differ from their manifests; all others were checked, and restored.
            BatchLossError: objects are gone and Kafka no longer has their records; all others were restored.
        """
        return _verify(self._committer, self.request, self.log.read_run(self.request.run))


def _verify(committer: Committer, request: RunRequest, record: RunRecord | None) -> TopicResult:
    marker = _marker(committer, record)
    selected, generation, undated = _selected(committer, request, record, marker)
    covered = NO_OFFSETS if marker is None else marker.covered_in(generation)
    target, uncovered = selected & covered, selected - covered
    log.info(
        "topic %s: %s of the landed part of %s", committer.log.topic, request.action, count(selected.count, "offset")
    )
    if uncovered:
        log.warning(
            "topic %s: not landed of the window: %s: %s. A run with action='land' lands what is left out",
            committer.log.topic,
            count(uncovered.count, "offset"),
            uncovered,
        )
    if undated:
        log.warning(
            "topic %s: the window begins before the log, whose start retention has moved. It is unknown which landed "
            "offsets below that start belong to the window, since their timestamps are gone. They are not checked: %s. "
            "Give offsets instead of times to check them",
            committer.log.topic,
            undated,
        )
    findings = _Findings(committer, request, target)
    if marker is not None:
        findings.read(_covering(committer, target, generation, record, marker))
    written = False
    if marker is not None and request.action == "restore":
        written = follow_run(committer.log, marker, request.layout, committer.parallel, every_batch=True)
    findings.raise_problems()
    return TopicResult(
        topic=committer.log.topic,
        status="ok" if target else "empty",
        target=target,
        batches=tuple(sorted(findings.batches, key=lambda b: b.batch)),
        skipped=NO_OFFSETS if marker is None else marker.lost_in(generation) & target,
        verified=findings.intact + len(findings.restored),
        wrote=bool(findings.restored) or written,
        verification=Verification(
            objects=findings.intact + len(findings.restored),
            size=findings.size,
            missing=tuple(findings.missing),
            restored=tuple(findings.restored),
            accepted=tuple(findings.accepted),
            given=tuple(findings.given),
            expired=findings.expired,
            uncovered=uncovered,
            undated=undated,
        ),
    )


def _marker(committer: Committer, record: RunRecord | None) -> Marker | None:
    stored = committer.log.read_marker()
    # Runs and plans are recorded after the marker is created.
    if stored is None and (record is not None or committer.log.read_plan(1) is not None):
        stored = committer.log.require_marker()
    return None if stored is None else stored[0]


def _selected(
    committer: Committer, request: RunRequest, record: RunRecord | None, marker: Marker | None
) -> tuple[Offsets, int, Offsets]:
    """The offsets to check, their generation, and landed ones of which it is unknown whether the window has them."""
    generation = 0 if marker is None else marker.generation
    if record is not None and (request.window is None or record.generation != generation):
        return record.target, record.generation, NO_OFFSETS
    if request.window is None:
        return NO_OFFSETS if marker is None else marker.covered, generation, NO_OFFSETS
    pinned = NO_OFFSETS if record is None else record.target
    if isinstance(request.window, Mapping):
        # The marker has the coverage; Kafka may no longer have the records.
        return Offsets({p: [bounds] for p, bounds in request.window.items()}) | pinned, generation, NO_OFFSETS
    source, topic = committer.source, committer.log.topic
    if marker is not None:
        require_topic_id(source, committer.log, committer.log.view().topic_id, cluster_id=marker.cluster_id)
    partitions = source.describe(topic).partitions
    earliest = source.earliest(topic, partitions)
    ends = source.ends(topic, partitions, request.isolation)
    # Checking more than the window is harmless.
    window = window_of(
        source, topic, request.window, ends, now_ms=int(time.time() * 1000), on_future_timestamp="read_to_end"
    )
    selected = window.offsets() | pinned
    # If the window begins with the log, retention may have deleted its first records.
    cut = [p for p in partitions if earliest[p] in (window.starts[p], ends[p])]
    below = Offsets({p: [(0, earliest[p])] for p in cut})
    undated = NO_OFFSETS if marker is None else (below & marker.covered) - selected
    return selected, generation, undated


def _covering(
    committer: Committer, target: Offsets, generation: int, record: RunRecord | None, marker: Marker
) -> Iterator[Covering]:
    if record is not None and target <= record.target:
        return covering_upward(
            committer.log,
            target,
            generation=generation,
            low=record.low,
            marker=marker,
            parallel=committer.parallel,
        )
    return covering_downward(committer.log, target, generation=generation, marker=marker, parallel=committer.parallel)


@dataclass
class _Findings:
    """The findings so far."""

    committer: Committer
    request: RunRequest
    target: Offsets
    batches: list[BatchSummary] = field(default_factory=list)
    intact: int = 0
    size: int = 0
    missing: list[str] = field(default_factory=list)
    missing_batches: list[int] = field(default_factory=list)
    restored: list[str] = field(default_factory=list)
    accepted: list[str] = field(default_factory=list)
    given: dict[str, str] = field(default_factory=dict)
    expired: int = 0
    damaged: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    lost_batches: list[int] = field(default_factory=list)
    origins: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._given_away = GivenAway(self.committer.log)
        self._expired = expired_objects(self.committer.log)

    def read(self, covering: Iterator[Covering]) -> None:
        """Read the objects of all these batches."""
        group: list[tuple[Plan, ObjectEntry]] = []
        operation = f"topic {self.committer.log.topic}: {self.request.action}"
        with progress(operation, total=self.target.count, unit="offset") as advance:
            for batch in covering:
                self.batches.append(batch.summary(self.committer.log, self.request.run))
                left = self._unexpired(batch.plan, batch.objects(self.target))
                group += [(batch.plan, entry) for entry in left]
                self.committer.log.forget(batch.plan.batch)
                if len(group) >= _GROUP:
                    self._read_group(group, advance)
                    group = []
            self._read_group(group, advance)

    def _unexpired(self, plan: Plan, entries: Sequence[ObjectEntry]) -> list[ObjectEntry]:
        """The objects that were not deleted on purpose; the others are counted."""
        left = [entry for entry in entries if not self._expired.has(plan.batch, entry)]
        self.expired += len(entries) - len(left)
        return left

    def _read_group(self, group: list[tuple[Plan, ObjectEntry]], advance: Advance) -> None:
        absent: dict[int, tuple[Plan, list[ObjectEntry]]] = {}

        def read(item: tuple[Plan, ObjectEntry]) -> tuple[int, str | None]:
            reading = _read_back(self.committer, *item)
            advance(item[1].records)
            return reading

        readings = self.committer.parallel(read, group, threads=_READERS)
        for (plan, entry), (size, wrong) in zip(group, readings, strict=True):
            self.size += size
            if wrong is None:
                self.intact += 1
            elif wrong:
                self.damaged.append(f"{self.committer.store.url(entry.key)} of batch {plan.batch} ({wrong})")
            else:
                absent.setdefault(plan.batch, (plan, []))[1].append(entry)
        if absent:
            # Objects may have expired since this run began.
            self._expired = expired_objects(self.committer.log)
        for batch, (plan, entries) in absent.items():
            amended = self.committer.log.amended_keys(batch)[0]
            self.accepted += [entry.key for entry in entries if entry.key in amended]
            gone = self._unexpired(plan, [entry for entry in entries if entry.key not in amended])
            for entry in gone:
                self.committer.store.require_gone(entry.key, by="GET")
            if self.request.action != "restore" or not self.committer.unsafe_given_objects:
                of_tables = self._given_away.tables(plan, gone)
                self.given |= of_tables
                gone = [entry for entry in gone if entry.key not in of_tables]
            if self.request.action == "restore":
                self._restore(plan, gone)
            elif gone:
                self.missing += [entry.key for entry in gone]
                self.missing_batches.append(batch)
        log.info(
            "topic %s: intact so far: %s of %s, %d bytes read; %d missing, %d restored, %d foreign",
            self.committer.log.topic,
            count(self.intact, "object"),
            count(len(self.batches), "batch"),
            self.size,
            len(self.missing) + len(self.lost),
            len(self.restored),
            len(self.damaged),
        )

    def _restore(self, plan: Plan, entries: list[ObjectEntry]) -> None:
        for entry, built in self.committer.objects.rebuild(plan, entries):
            where = self.committer.store.url(entry.key)
            if isinstance(built, str):
                self.lost_batches.append(plan.batch)
                self.origins.add(plan.origin)
                self.lost.append(f"{where} of batch {plan.batch} ({places(plan, entry)}: {built})")
                continue
            try:
                self.committer.objects.put_again(plan, entry, built, only_unresolved=False)
            except ForeignObjectError:
                self.damaged.append(f"{where} of batch {plan.batch} (another object was written there meanwhile)")
            else:
                log.info("object %s of batch %d is written again from %s", where, plan.batch, plan.origin)
                self.restored.append(entry.key)

    def raise_problems(self) -> None:
        """Raise the error about the findings, if there are problems, after all objects were processed."""
        topic = self.committer.log.topic
        if self.given:
            log.info(
                "topic %s: %s %s gone that %s given to a table (%s), which may delete them%s: %s",
                topic,
                count(len(self.given), "object"),
                _verb([*self.given], "is", "are"),
                _verb([*self.given], "was", "were"),
                few(sorted({printable(table) for table in self.given.values()})),
                f"; write them again by {self.committer.log.remedies.restore_given()}"
                if self.request.action == "restore"
                else "",
                few([self.committer.store.url(key) for key in self.given]),
            )
        problems: list[str] = []
        if self.damaged:
            problems.append(
                f"{count(len(self.damaged), 'object')} of topic {topic!r} {_verb(self.damaged, 'differs', 'differ')} "
                f"from what the manifests have: {few(self.damaged)}. Nothing of this was changed. Move what differs "
                f"away, then write it again: by {RESTORE_RUN}"
            )
        if self.lost:
            problems.append(
                f"{count(len(self.lost), 'object')} of topic {topic!r} {_verb(self.lost, 'is', 'are')} gone and cannot "
                f"be written again from {few(sorted(self.origins))}: {few(self.lost)}. Restore what is gone, with its "
                f"metadata, from a backup or an earlier version (bucket versioning), or accept that it is gone: for "
                f"this run with on_missing='ignore', for good by "
                f"{self.committer.log.remedies.accept_deleted(self.lost_batches)}"
            )
        if self.missing and self.request.on_missing == "ignore":
            log.warning(
                "topic %s: %s %s gone, ignored since on_missing='ignore': %s",
                topic,
                count(len(self.missing), "object"),
                _verb(self.missing, "is", "are"),
                few([self.committer.store.url(key) for key in self.missing]),
            )
        elif self.missing:
            problems.append(str(missing_objects(self.committer, self.missing_batches, self.missing)))
        if self.restored and problems:
            others = count(len(self.restored), "other object")
            problems.append(f"{others} {_verb(self.restored, 'was', 'were')} written again")
        if self.damaged:
            raise ForeignObjectError(". ".join(problems))
        if self.lost:
            raise BatchLossError(". ".join(problems))
        if problems:
            raise missing_objects(self.committer, self.missing_batches, self.missing)


def _verb(things: list[str], one: str, several: str) -> str:
    return one if len(things) == 1 else several


def _read_back(committer: Committer, plan: Plan, entry: ObjectEntry) -> tuple[int, str | None]:
    """Read an object: number of bytes, and the difference from its manifest; empty: it is absent; None: none."""
    size, wrong = _read_once(committer, plan, entry)
    if not wrong:
        return size, wrong
    # Bytes may be damaged in transit; an object that is damaged in the bucket differs on every read.
    again, wrong = _read_once(committer, plan, entry)
    return size + again, wrong


def _read_once(committer: Committer, plan: Plan, entry: ObjectEntry) -> tuple[int, str | None]:
    store = committer.store
    info = store.head(entry.key)
    if info is None:
        return 0, ""
    if not matches(info, plan.batch, entry):
        return 0, f"{info.size} bytes instead of {entry.size}, metadata {dict(info.metadata)}"[:300]
    checksum = position = 0
    while position < info.size:
        piece = store.get(entry.key, start=position, end=min(position + _PIECE, info.size))
        if piece is None:
            return position, ""
        if piece.etag != info.etag or not piece.body:
            raise UnknownOutcomeError(
                f"an object of topic {plan.topic!r}, batch {plan.batch}, changed while it was read. Nothing was "
                f"written; try again: {store.url(entry.key)}"
            )
        checksum = isal_zlib.crc32(piece.body, checksum)
        position += len(piece.body)
    if not has_crc32(checksum, entry, lambda: info):
        return position, f"CRC32 {checksum:08x} instead of {entry.crc32}"
    return position, None
