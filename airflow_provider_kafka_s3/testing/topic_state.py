"""The control documents of one topic, and their invariants; pure functions."""

from __future__ import annotations

import collections
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from msgspec import UNSET

from airflow_provider_kafka_s3.documents import addresses
from airflow_provider_kafka_s3.documents.codec import Document, decode
from airflow_provider_kafka_s3.documents.expiry import Expiry
from airflow_provider_kafka_s3.documents.log_index import IndexedBatch, LogIndex
from airflow_provider_kafka_s3.documents.manifest import Amend, Manifest, ObjectEntry
from airflow_provider_kafka_s3.documents.marker import Marker
from airflow_provider_kafka_s3.documents.offsets import NO_OFFSETS, Offsets
from airflow_provider_kafka_s3.documents.owning_table import OwningTable
from airflow_provider_kafka_s3.documents.pinned_schema import decode_pinned_schema
from airflow_provider_kafka_s3.documents.plan import Plan
from airflow_provider_kafka_s3.documents.replay import ReplayBegin, ReplayEnd, ReplayEpoch, ReplayPlan
from airflow_provider_kafka_s3.documents.run import RunRecord
from airflow_provider_kafka_s3.documents.topic_summary import Activity, TopicSummary

__all__ = [
    "TopicState",
    "accounted_for",
    "check_documents",
    "check_indexes",
    "check_summary",
    "expected_in_index",
    "landed_ends",
]

_SCHEMA_NAME: Final = re.compile(r"schemas/(\d{1,10})\.json")
_REPLAY_NAME: Final = re.compile(r"replays/[A-Za-z0-9._-]+/(plan|begin|end|epoch)(?:-[0-9a-f]{8}-\d+)?\.json")
_INDEX_NAME: Final = re.compile(r"index/(\d{10})-(\d{10})\.json")
_CONTROL_NAME: Final = re.compile(r"batches/(\d{10})\.(plan|manifest|amend)(?:\.([1-9]\d*))?\.json")


@dataclass
class TopicState:
    """The stored control documents of one topic.

    Attributes:
        topic: the Kafka topic.
        marker: None if there is none.
        plans: by batch number.
        plan_sums: checksums of the plans, by batch number.
        claims: the offsets that the plans claim, by batch number.
        manifests: by batch number.
        amended: keys accepted as lost, by batch number.
        runs: by run key.
        manifest_sums: checksums of the manifests, by batch number.
        indexes: by the numbers of their first and their last batch.
        tables: of the topic, by the names of their documents.
        expiry: the objects that were deleted on purpose; None: there are none.
    """

    topic: str
    marker: Marker | None = None
    plans: dict[int, Plan] = field(default_factory=dict)
    plan_sums: dict[int, str] = field(default_factory=dict)
    claims: dict[int, Offsets] = field(default_factory=dict)
    manifests: dict[int, Manifest] = field(default_factory=dict)
    amended: dict[int, frozenset[str]] = field(default_factory=dict)
    runs: dict[str, RunRecord] = field(default_factory=dict)
    manifest_sums: dict[int, str] = field(default_factory=dict)
    indexes: dict[tuple[int, int], LogIndex] = field(default_factory=dict)
    tables: dict[str, OwningTable] = field(default_factory=dict)
    expiry: Expiry | None = None

    def add(self, name: str, body: bytes) -> None:
        """Decode and add a document, by its name below the topic's control prefix.

        Raises:
            ControlError: the document is invalid.
            ValueError: the name is not one of a document.
        """
        if name == "marker.json":
            self.marker, _ = decode(Marker, body, name)
        elif name == "expiry.json":
            self.expiry, _ = decode(Expiry, body, name)
        elif name.startswith("runs/"):
            record, _ = decode(RunRecord, body, name)
            self.runs[record.run] = record
        elif name.startswith("tables/"):
            owner, _ = decode(OwningTable, body, name)
            self.tables[name] = owner
        elif (schema := _SCHEMA_NAME.fullmatch(name)) is not None:
            decode_pinned_schema(body, int(schema[1]), name)
        elif (numbers := _INDEX_NAME.fullmatch(name)) is not None:
            index, _ = decode(LogIndex, body, name)
            self.indexes[int(numbers[1]), int(numbers[2])] = index
        elif (replay := _REPLAY_NAME.fullmatch(name)) is not None:
            kinds: dict[str, type[Document]] = {
                "plan": ReplayPlan,
                "begin": ReplayBegin,
                "end": ReplayEnd,
                "epoch": ReplayEpoch,
            }
            decode(kinds[replay[1]], body, name)
        elif (match := _CONTROL_NAME.fullmatch(name)) is not None and (match[2] == "amend") == (match[3] is not None):
            batch = int(match[1])
            if match[2] == "plan":
                self.plans[batch], envelope = decode(Plan, body, name)
                self.plan_sums[batch] = envelope["sha256"]
                self.claims[batch] = self.plans[batch].claim
            elif match[2] == "manifest":
                self.manifests[batch], envelope = decode(Manifest, body, name)
                self.manifest_sums[batch] = envelope["sha256"]
            else:
                self.amended[batch] = self.amended.get(batch, frozenset()) | set(decode(Amend, body, name)[0].keys)
        else:
            raise ValueError(f"{name} is not the name of a control document")

    def is_resolved(self, batch: int) -> bool:
        """Whether the marker has the batch folded in."""
        return self.marker is not None and self.marker.is_resolved(batch)

    def is_given(self, batch: int) -> bool:
        """Whether a table has the objects of values of a batch, and may have deleted them."""
        return any(batch <= owner.last for owner in self.tables.values())

    def may_be_deleted(self, batch: int, entry: ObjectEntry) -> bool:
        """Whether an object is recorded as deleted on purpose, or about to be."""
        return self.expiry is not None and self.expiry.objects.has(batch, entry)

    def is_deleted(self, batch: int, entry: ObjectEntry) -> bool:
        """Whether an object is recorded as deleted on purpose."""
        return self.expiry is not None and self.expiry.deleted.has(batch, entry)

    def committed(self) -> Iterable[tuple[Plan, Manifest]]:
        """Batches whose decision is to commit, resolved or not."""
        for batch, manifest in sorted(self.manifests.items()):
            if manifest.status == "commit" and batch in self.plans:
                yield self.plans[batch], manifest


def check_documents(state: TopicState, *, recovered: bool = False) -> list[str]:
    """Check the control documents of a topic against each other.

    Args:
        state: the documents.
        recovered: whether all runs have ended and ``recover`` ran last, so that no batch is open and no debt is left.

    Returns:
        The violations; empty if there are none.
    """
    findings = [*_check_log(state), *_check_claims(state)]
    if state.marker is not None:
        findings += [*_check_fold(state, state.marker), *_check_left_out(state, state.marker)]
        if recovered:
            findings += [f"I6 batch {n} is planned and not resolved" for n in state.plans if not state.is_resolved(n)]
            if state.marker.debt:
                findings.append(f"I6 offsets {state.marker.debt} are debt that was never landed")
    elif state.plans:
        findings.append("I4 there are batches but no marker")
    return [*findings, *check_indexes(state), *_check_tables(state), *_check_expiry(state)]


def check_indexes(state: TopicState) -> Iterable[str]:
    """Compare the indexes of the log with plans, manifests and marker; yields findings."""
    for (first, last), index in sorted(state.indexes.items()):
        if (index.topic, index.first, len(index.batches)) != (state.topic, first, last - first + 1):
            yield f"I9 index {first}-{last} is of {len(index.batches)} batches of {index.topic!r} from {index.first} on"
            continue
        layouts: dict[object, int] = {}
        for indexed in index.batches:
            n = indexed.batch
            if not state.is_resolved(n) or n not in state.plans or n not in state.manifests:
                yield f"I9 index {first}-{last} has batch {n}, which is not resolved"
                continue
            plan = state.plans[n]
            like = None if plan.layout is None else layouts.setdefault(plan.layout.at(0), n)
            if indexed != expected_in_index(state, n, like):
                yield f"I9 index {first}-{last} has batch {n} other than plan and manifest: {indexed}"


def check_summary(state: TopicState, summary: TopicSummary) -> Iterable[str]:
    """Compare the summary of a topic with the batches that it has as resolved; yields findings.

    It may be behind the marker, and is ahead of one that somebody has restored.
    """
    amended = {batch for first, end in summary.amended for batch in range(first, end)}
    if not amended <= state.amended.keys():
        yield f"I9 the summary has losses in batches {sorted(amended)}, and the log in {sorted(state.amended)}"
    resolved = [number for number in sorted(state.plans) if summary.marker.is_resolved(number)]
    if len(resolved) != sum(end - first for first, end in summary.marker.resolved):
        yield f"I9 the summary has batches {summary.marker.resolved} as resolved, and the log has {resolved}"
    elif undecided := [number for number in resolved if number not in state.manifests]:
        yield f"I9 the summary has batches {undecided} as resolved, which are not decided"
    else:
        landed = [number for number in resolved if state.plans[number].layout is not None]
        activity = Activity().plus(expected_in_index(state, number, number) for number in landed)
        if activity != summary.activity:
            yield f"I9 the summary has {summary.activity}, and the log {activity}"
        committed = [number for number in resolved if state.manifests[number].status == "commit"]
        if (committed[-1] if committed else None) != (summary.last and summary.last.batch):
            yield f"I9 the summary has {summary.last} as its last batch, and the log {committed[-1:]}"


def _check_tables(state: TopicState) -> Iterable[str]:
    for name, owner in sorted(state.tables.items()):
        if (owner.topic, name) != (state.topic, addresses.table_key("", owner.table)):
            yield f"I11 document {name} is of table {owner.table!r} and topic {owner.topic!r}"
        if open_batches := [n for n in range(1, owner.last + 1) if not state.is_resolved(n)]:
            yield f"I11 table {owner.table} has batches up to {owner.last}, and {open_batches[:10]} are not resolved"


def _check_expiry(state: TopicState) -> Iterable[str]:
    if state.expiry is None:
        return
    if state.expiry.topic != state.topic:
        yield f"I12 the expired objects are those of topic {state.expiry.topic!r}"
    objects = state.expiry.objects
    numbers = {*state.plans, *(n for first, end in objects.numbers() for n in (first, end - 1))}
    expired = [n for n in sorted(numbers) if objects.has_all(n) or n in dict(objects.before)]
    if open_batches := [n for n in expired if not state.is_resolved(n)]:
        yield f"I12 objects of batches {open_batches[:10]} have expired, which are not resolved"


def expected_in_index(state: TopicState, batch: int, same_layout_as: int | None) -> IndexedBatch:
    """What an index has to have of a batch."""
    plan, manifest = state.plans[batch], state.manifests[batch]
    claim, skipped = state.claims[batch], plan.skipped
    times = [(o.min_timestamp, o.max_timestamp) for o in manifest.objects]
    known = bool(times) and (-1, -1) not in times
    fits = sum(len(offsets[p]) for offsets in (claim, skipped) for p in offsets) <= 1_000
    return IndexedBatch(
        batch=batch,
        type="reset" if plan.type == "reset" else "data",  # a release is not decided
        status=manifest.status,
        release=manifest.release,
        generation=plan.generation,
        topic_id=plan.topic_id,
        new_topic_id=plan.new_topic_id,
        tail=plan.tail,
        run=plan.run,
        decided_by=manifest.run,
        claim=claim if fits else None,
        skipped=skipped if fits else NO_OFFSETS,
        hull=() if fits else expected_hull(claim),
        objects=len(manifest.objects),
        records=sum(s.records for s in manifest.slices),
        tombstones=sum(s.tombstones for s in manifest.slices),
        ignored=sum(s.ignored for s in manifest.slices),
        dead_letters=sum(s.dead_letters for s in manifest.slices),
        size=sum(o.size for o in manifest.objects),
        min_timestamp=min(low for low, _ in times) if known else -1,
        max_timestamp=max(high for _, high in times) if known else -1,
        plan_sha256=state.plan_sums[batch],
        manifest_sha256=state.manifest_sums[batch],
        same_layout_as=same_layout_as,
    )


def expected_hull(claim: Offsets) -> tuple[tuple[int, int, int, int], ...]:
    """Bounds of a claim of many ranges: of a hundred groups of partitions at most, as many in each but the last one."""
    partitions = sorted(claim)
    width = (len(partitions) + 99) // 100
    groups = [partitions[start : start + width] for start in range(0, len(partitions), width)]
    return tuple(
        (group[0], group[-1], min(a for p in group for a, _ in claim[p]), max(b for p in group for _, b in claim[p]))
        for group in groups
    )


def accounted_for(state: TopicState, marker: Marker) -> Offsets:
    """The offsets of the marker's generation that are landed, accepted as lost, owed, claimed, or a run's target."""
    mine = [n for n, plan in state.plans.items() if plan.generation == marker.generation]
    claims = [state.claims[n] for n in mine if not state.is_resolved(n)]
    targets = [run.target for run in state.runs.values() if run.generation == marker.generation]
    return _union([marker.covered, marker.debt, *claims, *targets])


def landed_ends(marker: Marker) -> dict[int, int]:
    """Per partition one past the highest offset that is landed or accepted as lost."""
    return {p: ranges[-1][1] for p, ranges in marker.covered.items()}


def _check_left_out(state: TopicState, marker: Marker) -> Iterable[str]:
    if any(plan.source is not UNSET for plan in state.plans.values()):
        return  # the pipeline that it reads may have gaps, which a later run lands when they are filled
    expected = Offsets({p: [(marker.start.get(p, 0), end)] for p, end in landed_ends(marker).items()})
    if left_out := expected - accounted_for(state, marker):
        yield f"I8 offsets {left_out} lie between the start {marker.start} and landed ones, and no run will land them"


def _check_log(state: TopicState) -> Iterable[str]:
    if sorted(state.plans) != list(range(1, len(state.plans) + 1)):
        yield f"I4 the plans have numbers {sorted(state.plans)}, not 1, 2, …"
    resets = 0
    for batch, plan in sorted(state.plans.items()):
        if plan.batch != batch or plan.topic != state.topic:
            yield f"I4 plan {batch} is of batch {plan.batch} of topic {plan.topic!r}"
        if plan.generation != resets:
            yield f"I4 plan {batch} is of generation {plan.generation}, after {resets} resets"
        if plan.type == "release" and (batch != len(state.plans) or any(m.objects for m in state.manifests.values())):
            yield f"I4 plan {batch} releases the topic, although there is a later one, or something is landed"
        if plan.type == "data" and plan.run not in state.runs:
            yield f"I4 plan {batch} has no record of its run {plan.run!r}: a retry would have another target"
        manifest = state.manifests.get(batch)
        if manifest is not None and manifest.status == "reset":
            resets += 1
            if state.is_resolved(batch) and not all(state.is_resolved(n) for n in range(1, batch)):
                yield f"I4 reset {batch} is resolved before batches that lie below it"
    for batch, manifest in sorted(state.manifests.items()):
        if batch not in state.plans:
            yield f"I4 manifest {batch} has no plan"
            continue
        if manifest.plan_sha256 != state.plan_sums[batch]:
            yield f"I4 manifest {batch} decides another plan than the stored one"
        yield from (f"I2 manifest {batch}: {why}" for why in _check_decision(state.plans[batch], manifest))


def _check_decision(plan: Plan, manifest: Manifest) -> Iterable[str]:
    if manifest.status == "reset" and plan.type != "reset":
        yield "it is a reset, and its plan is for data"
    if manifest.status != "commit":
        return
    slices = {s.id: s for s in plan.slices}
    if {r.id: r.next_offset for r in manifest.slices} != {i: s.end for i, s in slices.items()}:
        yield f"it commits slices {[r.id for r in manifest.slices]} of {sorted(slices)}, or not all to their ends"
    groups = [set(group) for group in plan.groups]
    for entry in manifest.objects:
        for part in entry.by_slice:
            s = slices.get(part.id)
            if s is None or not s.start <= part.min_offset <= part.max_offset < s.end:
                yield f"object {entry.key} lies outside the plan"
        if len(entry.slices) > 1 and not any(group.issuperset(entry.slices) for group in groups):
            yield f"object {entry.key} has records of slices {entry.slices}, which do not share objects"


def _check_claims(state: TopicState) -> Iterable[str]:
    released = _released(state)
    claims: dict[int, list[Offsets]] = collections.defaultdict(list)
    for batch, plan in state.plans.items():
        if batch not in released:
            claims[plan.generation].append(state.claims[batch])
    for generation, sets in claims.items():
        if _union(sets).count != sum(claim.count for claim in sets):
            twice = NO_OFFSETS
            for i, claim in enumerate(sets):
                twice |= claim & _union(sets[:i])
            yield f"I1 offsets {twice} of generation {generation} are claimed by two batches"


def _check_fold(state: TopicState, marker: Marker) -> Iterable[str]:
    resolved = [n for start, end in marker.resolved for n in range(start, end)]
    undecided = [n for n in resolved if n not in state.manifests or n not in state.plans]
    if undecided:
        yield f"I4 batches {undecided} are resolved without a plan and a decision"
        return
    if marker.revision != len(resolved):
        yield f"I4 the marker was written {marker.revision} times for {len(resolved)} batches"
    covered, lost, debt = (collections.defaultdict(list) for _ in range(3))
    resets = [n for n in resolved if state.manifests[n].status == "reset"]
    for n in resolved:
        plan, manifest = state.plans[n], state.manifests[n]
        if manifest.status == "commit":
            covered[plan.generation].append(state.claims[n])
            lost[plan.generation].append(plan.skipped)
        elif manifest.release == "lost":
            covered[plan.generation].append(state.claims[n])
            lost[plan.generation].append(state.claims[n])
        elif plan.tail:
            debt[plan.generation].append(state.claims[n])
    if marker.generation != len(resets):
        yield f"I4 the marker is of generation {marker.generation} after {len(resets)} resets"
        return
    ids = [state.plans[n].new_topic_id for n in resets]
    stored_ids = [closed.topic_id for closed in marker.history[1:]] + [marker.topic_id] * bool(ids)
    if ids != stored_ids:
        yield f"I4 the marker's topic ids are {stored_ids}, those of its resets {ids}"
    for generation in range(marker.generation + 1):
        expected = _union(covered[generation])
        if marker.covered_in(generation) != expected:
            wrong = (marker.covered_in(generation) - expected) | (expected - marker.covered_in(generation))
            yield f"I4 generation {generation}: {wrong} differs from the coverage of the resolved batches"
        if marker.lost_in(generation) != (expected := _union(lost[generation])):
            yield f"I4 generation {generation}: lost offsets are {marker.lost_in(generation)}, of batches {expected}"
    expected = _union(debt[marker.generation]) - marker.covered
    if marker.debt != expected:
        yield f"I4 the debt of the marker is {marker.debt}, of its abandoned batches {expected}"


def _released(state: TopicState) -> set[int]:
    return {n for n, m in state.manifests.items() if m.status == "abandoned" and m.release == "debt"}


def _union(sets: Iterable[Offsets]) -> Offsets:
    ranges: dict[int, list[tuple[int, int]]] = collections.defaultdict(list)
    for offsets in sets:
        for partition, intervals in offsets.items():
            ranges[partition].extend(intervals)
    return Offsets(ranges)
