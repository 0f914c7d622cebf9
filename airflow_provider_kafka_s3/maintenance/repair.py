"""Build a lost or damaged marker again, as the fold of the log.

Objects are checked by HEAD and never completed or written. A batch stays open if one of its objects is absent and the
upload of that object is pending: the batch was never complete, and the next run completes it. If both are gone, no
document shows whether the batch was never completed or the object was deleted later. If the batch stayed open, a
deleted object would be written again. So a person has to decide it, once for all batches.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

import msgspec

from airflow_provider_kafka_s3.batch.commit import Committer
from airflow_provider_kafka_s3.batch.derived.log_indexes import LogIndexes
from airflow_provider_kafka_s3.batch.derived.port import Rewritten
from airflow_provider_kafka_s3.batch.derived.registry import repair_derived
from airflow_provider_kafka_s3.batch.expiry import expired_objects
from airflow_provider_kafka_s3.batch.given_away import GivenAway
from airflow_provider_kafka_s3.batch.log import TopicLog
from airflow_provider_kafka_s3.batch.log_index import summaries
from airflow_provider_kafka_s3.documents import addresses
from airflow_provider_kafka_s3.documents.codec import encode, write_stamp
from airflow_provider_kafka_s3.documents.manifest import Manifest, ObjectEntry
from airflow_provider_kafka_s3.documents.marker import Marker, fold, fold_batch
from airflow_provider_kafka_s3.documents.offsets import Ranges, coalesce, subtract
from airflow_provider_kafka_s3.documents.plan import Plan
from airflow_provider_kafka_s3.exceptions import (
    ConfigurationError,
    CorruptControlError,
    KafkaS3Error,
    LogTamperedError,
    TransientError,
)
from airflow_provider_kafka_s3.maintenance.accept_loss import record_gone
from airflow_provider_kafka_s3.messages import count, few
from airflow_provider_kafka_s3.progress import progress
from airflow_provider_kafka_s3.storage.port import StoredObject

__all__ = ["Gone", "GoneRule", "Repaired", "repair"]

_NAME: Final = re.compile(r"batches/(\d{10})\.(plan|manifest)\.json")
_REPAIR_TRIES: Final = 5
_READERS: Final = 16
"""Documents read at the same time; a manifest may list many objects."""


@dataclass(frozen=True)
class Gone:
    """Absent objects of a decided batch without pending uploads.

    Attributes:
        batch: its number.
        objects: absent objects that no amend records.
        decided: when its manifest was written, by the store's clock, in epoch seconds; None if unknown.
    """

    batch: int
    objects: tuple[ObjectEntry, ...]
    decided: float | None

    @property
    def keys(self) -> tuple[str, ...]:
        """Keys of the objects."""
        return tuple(entry.key for entry in self.objects)


@dataclass(frozen=True)
class Repaired:
    """Result of a repair.

    Attributes:
        marker: the fold of the log.
        was: state of the stored marker: ``missing``, ``corrupt``, ``wrong`` (valid, but not the fold) or ``right``.
        open: numbers of the batches that are not folded, with the reason; the next run completes them. A repair
            completes no batch.
        ambiguous: batches for which a person has to decide whether their objects stay gone; until then nothing is
            written.
        recorded: batches whose objects are recorded as gone, by the rule.
        written: whether the marker was replaced.
        derived: what was written, or would be, behind the marker, by the name of its kind.
    """

    marker: Marker
    was: str
    open: Mapping[int, str] = field(default_factory=dict)
    ambiguous: Sequence[Gone] = ()
    recorded: Sequence[Gone] = ()
    written: bool = False
    derived: Mapping[str, Rewritten] = field(default_factory=dict)

    @property
    def indexes(self) -> int:
        """Number of indexes of the log that were written, or would be."""
        return self._of_indexes.written

    @property
    def skipped_indexes(self) -> Mapping[str, str]:
        """Indexes that could not be written, with the reason: first and last batch, such as ``1-100``."""
        return self._of_indexes.skipped

    @property
    def _of_indexes(self) -> Rewritten:
        return self.derived.get(LogIndexes.name, Rewritten())


@dataclass(frozen=True)
class GoneRule:
    """A person's decision about objects that are gone without an upload.

    Attributes:
        before: objects of batches decided before this time stay gone (epoch seconds, by the store's clock).
        batches: batches to which ``before`` applies, as ranges of numbers with both ends included; None: all.
        restore: all other objects are to be written again: their batches stay open. False: no decision about them.
        reason: reason why they stay gone, for the record.
        operator: person who decided it, for the record.
    """

    before: float | None = None
    batches: Sequence[tuple[int, int]] | None = None
    restore: bool = False
    reason: str = ""
    operator: str = ""

    def accepts(self, gone: Gone) -> bool:
        """Whether these objects stay gone."""
        if self.batches is not None and not any(first <= gone.batch <= last for first, last in self.batches):
            return False
        return self.before is not None and gone.decided is not None and gone.decided < self.before


def repair(
    committer: Committer,
    *,
    start: Mapping[int, int],
    cluster_id: str = "",
    rule: GoneRule = GoneRule(),
    every_document: bool = False,
    dry_run: bool = False,
) -> Repaired:
    """Rebuild the marker from the log, unless it is right, and what is derived behind it.

    A readable marker is first compared with the index of the log. If they agree, and a listing has all plans and
    manifests, nothing would be written, so no document is read. Whatever is written is made from plans and manifests.
    An error behind the marker has a note if the marker was written. What follows the log and cannot be written, as its
    documents are damaged or a newer version wrote it, is no error: the result has it.

    Args:
        committer: decides and completes the batches of the topic.
        start: start offsets of the partitions, if neither the marker nor the first plan has them.
        cluster_id: of the Kafka cluster, if the marker is unreadable; information.
        rule: for objects that are gone; not needed for batches that a readable marker has as complete.
        every_document: read all plans and manifests, and compare every index with them.
        dry_run: write nothing.

    Raises:
        ConfigurationError: there is no log; or a marker without batches is corrupt, and its topic cannot be looked up.
        LogTamperedError: a plan or a decision is missing in the middle of the log; it has to be restored first.
        CorruptControlError: another document than the marker cannot be trusted; it has to be restored first.
        PipelineConflictError: the topic belongs to another pipeline.
    """
    done = _repair_marker(committer, start, cluster_id, rule, every_document=every_document, dry_run=dry_run)
    if done.was != "right" and not done.written:
        return done
    topic_log = committer.log
    try:
        derived = repair_derived(
            topic_log, done.marker, committer.parallel, every_document=every_document, dry_run=dry_run
        )
    except KafkaS3Error as e:
        if done.written:
            e.add_note(
                f"before this, the marker of topic {topic_log.topic!r} was {done.was}, and was written again. Repair "
                f"again to write what is derived from it: {topic_log.remedies.repair()}"
            )
        raise
    return replace(done, derived=derived)


def _repair_marker(
    committer: Committer,
    start: Mapping[int, int],
    cluster_id: str,
    rule: GoneRule,
    *,
    every_document: bool,
    dry_run: bool,
) -> Repaired:
    topic_log = committer.log
    recorded: list[Gone] = []
    for _ in range(_REPAIR_TRIES):
        topic_log.require_owner()
        # Read before the plans, which are never deleted: a marker read later could include batches planned since.
        stored, known = _read_marker(topic_log)
        planned, decided = _numbers(topic_log)
        if planned:
            topic_log.refuse_release(topic_log.read_plan(planned[-1]))
        if known is not None and not every_document:
            indexed = _by_index(committer, known, planned, decided, start)
            if indexed is not None:
                return replace(indexed, recorded=recorded)
        if stored is None and not planned:
            raise ConfigurationError(
                f"there is nothing to repair: pipeline {topic_log.pipeline!r} has no batches of topic "
                f"{topic_log.topic!r} below {topic_log.store.url(topic_log.prefix)}"
            )
        was = "missing" if stored is None else "corrupt" if known is None else "wrong"
        base = _base(committer, planned, known, start, cluster_id)
        folded = _fold(committer, base, planned, known, rule, dry_run=dry_run)
        marker = folded.marker
        if known is not None and _content(known) == _content(marker):
            return Repaired(known, "right", folded.open, recorded=recorded)
        recorded += folded.accepted
        repaired = Repaired(marker, was, folded.open, folded.ambiguous, recorded)
        if dry_run or repaired.ambiguous:
            now = topic_log.store.head(addresses.marker_key(topic_log.prefix))
            if (now and now.etag) == (stored and stored.etag):
                return repaired
            # A run has replaced the marker since: start again, with the batches that the run has completed.
            recorded = recorded[: len(recorded) - len(folded.accepted)]
            continue
        for gone in folded.accepted:
            record_gone(committer, gone.batch, {*gone.keys}, reason=rule.reason, operator=rule.operator)
        if stored is None:
            body = encode(marker, write_stamp(), topic_log.marker_url())
            if topic_log.store.create(addresses.marker_key(topic_log.prefix), body) == body:
                return replace(repaired, written=True)
        elif topic_log.replace_marker(marker, stored.etag):
            return replace(repaired, written=True)
    raise TransientError(
        f"the marker of topic {topic_log.topic!r} changed {_REPAIR_TRIES} times during the repair; check it and try "
        f"again: {topic_log.marker_url()}"
    )


def _read_marker(topic_log: TopicLog) -> tuple[StoredObject | None, Marker | None]:
    """The stored object of the marker, and the decoded marker if it is valid."""
    stored = None
    # A response may be damaged in transit; a damaged object reads the same twice.
    for _ in range(2):
        stored = topic_log.store.get(addresses.marker_key(topic_log.prefix))
        if stored is None:
            break
        try:
            return stored, topic_log.decode_marker(stored.body)
        except CorruptControlError:
            continue
    return stored, None


def _numbers(topic_log: TopicLog) -> tuple[range, Ranges]:
    """The numbers of all plans, and of all manifests; listed, since plans may be missing in the middle."""
    infos = topic_log.store.walk(addresses.batches_prefix(topic_log.prefix))
    names = (info.key.removeprefix(topic_log.prefix) for info in infos)
    # As ranges, since a long log has millions of names.
    by_kind: dict[str, list[tuple[int, int]]] = {"plan": [], "manifest": []}
    for match in filter(None, map(_NAME.fullmatch, names)):
        number, ranges = int(match[1]), by_kind[match[2]]
        if ranges and ranges[-1][1] == number:
            ranges[-1] = (ranges[-1][0], number + 1)
        else:
            ranges.append((number, number + 1))
    plans = coalesce(by_kind["plan"])
    if plans and (len(plans) > 1 or plans[0][0] != 1):
        expected = plans[0][1] if plans[0][0] == 1 else 1
        topic_log.store.require_gone(addresses.plan_key(topic_log.prefix, expected), by="LIST")
        raise LogTamperedError(
            f"topic {topic_log.topic!r}: the plan of batch {expected} is gone from the middle of the log, whose last "
            f"plan is {plans[-1][1] - 1}, and with it the offsets that it claimed. Nothing was changed. Restore it "
            f"(bucket versioning), then repair again: {topic_log.plan_url(expected)}"
        )
    return range(1, plans[0][1] if plans else 1), coalesce(by_kind["manifest"])


def _by_index(
    committer: Committer, known: Marker, planned: range, decided: Ranges, start: Mapping[int, int]
) -> Repaired | None:
    """The result for a marker that agrees with the index of the log; None unless it certainly does."""
    topic_log = committer.log
    if any(end - 1 > len(planned) for _, end in known.resolved):
        return None
    if decided != known.resolved:
        # A document is gone; or a batch is decided, so that its objects have to be looked at.
        return None
    if not any(end - begin >= topic_log.index_sizes[0] for begin, end in known.resolved):
        return None
    of_plans = ((planned.start, planned.stop),)
    unresolved = [n for begin, end in subtract(of_plans, known.resolved) for n in range(begin, end)]
    plans = [topic_log.require_plan(n)[0] for n in unresolved]
    marker = _base(committer, planned, known, start, known.cluster_id)
    try:
        for batch in summaries(topic_log, known, parallel=committer.parallel):
            if batch.status == "reset" and unresolved and unresolved[0] < batch.batch:
                return None
            marker = fold_batch(marker, batch.folded)
    except LogTamperedError:
        return None
    # Plans alone have the leader epochs; no index has them.
    if _content(known) != _content(msgspec.structs.replace(marker, reached=known.reached)):
        return None
    still_open: dict[int, str] = {}
    for plan in plans:
        still_open[plan.batch] = _not_foldable(plan, None, marker, still_open)
    return Repaired(known, "right", still_open)


def _base(
    committer: Committer, planned: range, known: Marker | None, start: Mapping[int, int], cluster_id: str
) -> Marker:
    """The initial marker, before any batch."""
    topic = committer.log.topic
    first = committer.log.require_plan(planned[0])[0] if planned else None
    if known is not None:
        topic_id = known.history[0].topic_id if known.history else known.topic_id
    elif first is not None:
        topic_id = first.topic_id
    else:
        # With an empty id, it would not be detected if the topic were created again.
        topic_id = committer.source.describe(topic).topic_id or ""
    if known is not None and known.generation == 0:
        start = known.start
    elif first is not None and first.start is not None:
        start = first.start
    return Marker(
        topic=topic,
        cluster_id=known.cluster_id if known is not None else cluster_id,
        topic_id=topic_id,
        start=dict(start),
    )


@dataclass
class _Folded:
    """The fold so far."""

    marker: Marker
    open: dict[int, str] = field(default_factory=dict)
    ambiguous: list[Gone] = field(default_factory=list)
    accepted: list[Gone] = field(default_factory=list)


_Decided: TypeAlias = tuple[Plan, Manifest | None, str, Gone | None]
"""A plan, its decision, why it stays open (empty: it does not), and its objects that are gone."""


def _fold(
    committer: Committer, base: Marker, planned: range, known: Marker | None, rule: GoneRule, *, dry_run: bool
) -> _Folded:
    folded = _Folded(base)
    still_open = folded.open
    for plan, decision, missing, gone in _reported(committer, planned, known, dry_run=dry_run):
        marker = folded.marker
        if known is not None and known.is_resolved(plan.batch):
            if decision is None:
                raise _tampered(committer.log, plan.batch, committer.log.manifest_url(plan.batch))
            if decision.status == "reset" and still_open:
                raise LogTamperedError(
                    f"the marker of topic {plan.topic!r} has the reset {plan.batch} of the topic as resolved, but not "
                    f"batches {sorted(still_open)} before it, whose records would be lost: it was changed. Nothing was "
                    f"written. Restore its last version (bucket versioning): {committer.log.marker_url()}"
                )
            # A user may delete objects of a complete batch: the batch stays complete.
            folded.marker = fold(marker, plan, decision)
        elif reason := _not_foldable(plan, decision, marker, still_open) or _still_missing(folded, rule, missing, gone):
            still_open[plan.batch] = reason
        elif decision is not None:
            folded.marker = fold(marker, plan, decision)
    if known is not None and known.last_resolved > len(planned):
        beyond = next(max(a, len(planned) + 1) for a, b in known.resolved if b > len(planned) + 1)
        committer.store.require_gone(addresses.plan_key(committer.log.prefix, beyond), by="LIST")
        raise _tampered(committer.log, beyond, committer.log.plan_url(beyond))
    return folded


def _still_missing(folded: _Folded, rule: GoneRule, missing: str, gone: Gone | None) -> str:
    """Why a batch that could be folded stays open for its objects; empty if they exist, or stay gone."""
    if gone is not None and rule.accepts(gone):
        folded.accepted.append(gone)
        return ""
    if gone is not None and not rule.restore:
        folded.ambiguous.append(gone)
    return missing


def _reported(committer: Committer, planned: range, known: Marker | None, *, dry_run: bool) -> Iterator[_Decided]:
    """As :func:`_decided`, with its progress."""
    with progress(f"topic {committer.log.topic}: repair", total=len(planned), unit="batch") as advance:
        for decided in _decided(committer, planned, known, dry_run=dry_run):
            yield decided
            advance(1)


def _decided(committer: Committer, planned: range, known: Marker | None, *, dry_run: bool) -> Iterator[_Decided]:
    """Per plan its decision, and its absent objects unless the marker has it as complete; a block at a time."""
    given_away, expired = GivenAway(committer.log), expired_objects(committer.log)
    for start in range(0, len(planned), _READERS):
        numbers = planned[start : start + _READERS]
        block = committer.parallel(lambda n: committer.log.require_plan(n)[0], numbers, threads=_READERS)
        decisions = committer.parallel(
            lambda n: committer.log.read_manifest(n, expected=known is not None and known.is_resolved(n)),
            numbers,
            threads=_READERS,
        )
        decided = list(zip(block, decisions, strict=True))
        unresolved = [(p, decision) for p, decision in decided if known is None or not known.is_resolved(p.batch)]
        entries = [
            (plan, entry)
            for plan, decision in unresolved
            if decision
            for entry in decision.objects
            # Only objects of complete batches expire.
            if not expired.has(plan.batch, entry)
        ]
        intact = committer.parallel(lambda item: committer.objects.is_intact(*item), entries)
        if not dry_run:
            # A store may keep an upload beside its object. Once the batch is complete, a late request could complete
            # the upload again, behind somebody who has deleted the object.
            visible = [entry for (_, entry), exists in zip(entries, intact, strict=True) if exists]
            committer.objects.abort(visible)
        missing: dict[int, list[ObjectEntry]] = {}
        for (plan, entry), exists in zip(entries, intact, strict=True):
            if not exists:
                missing.setdefault(plan.batch, []).append(entry)
        for plan, decision in decided:
            amended = committer.log.amended_keys(plan.batch)[0] if plan.batch in missing else frozenset()
            left = [entry for entry in missing.get(plan.batch, ()) if entry.key not in amended]
            if amended and not dry_run:
                # They are accepted as lost, and must not become visible later.
                committer.objects.abort([entry for entry in missing[plan.batch] if entry.key in amended])
            # A table has complete batches only.
            of_tables = given_away.tables(plan, left)
            left = [entry for entry in left if entry.key not in of_tables]
            absent, gone = _gone(committer, plan, left)
            total = count(0 if decision is None else len(decision.objects), "object")
            reason = f"absent: {len(absent)} of its {total}, such as {absent[0].key}" if absent else ""
            yield plan, decision, reason, gone
            committer.log.forget(plan.batch)


def _gone(committer: Committer, plan: Plan, absent: Sequence[ObjectEntry]) -> tuple[Sequence[ObjectEntry], Gone | None]:
    """The objects that are still absent, and a ``Gone`` for them unless one of their uploads is pending.

    A batch with a pending upload was never complete.
    """
    store = committer.store
    if not absent or any(committer.parallel(lambda e: store.upload_exists(e.key, e.upload_id), absent)):
        return absent, None
    # A driver may complete an upload between the two checks; then the upload is gone and its object exists.
    absent = committer.objects.gone(plan, absent)
    if not absent:
        return absent, None
    manifest = store.head(addresses.manifest_key(committer.log.prefix, plan.batch))
    return absent, Gone(plan.batch, tuple(absent), None if manifest is None else manifest.modified)


def _not_foldable(plan: Plan, decision: Manifest | None, marker: Marker, still_open: Mapping[int, str]) -> str:
    """Why a batch cannot be folded, whether its objects exist or not; empty if it can."""
    if plan.generation != marker.generation:
        return "it follows a reset that is not complete"
    if decision is None:
        return "it is undecided"
    if decision.status == "reset" and still_open:
        return f"not complete below the reset: {count(len(still_open), 'batch')}, {few(sorted(still_open))}"
    return ""


def _tampered(topic_log: TopicLog, batch: int, where: str) -> LogTamperedError:
    return LogTamperedError(
        f"topic {topic_log.topic!r}: a document of batch {batch}, which the marker has as complete, is gone. Nothing "
        f"was changed. Restore it (bucket versioning), then repair again: {where}"
    )


def _content(marker: Marker) -> Marker:
    """The marker without its revision, for comparison."""
    return msgspec.structs.replace(marker, revision=0)
