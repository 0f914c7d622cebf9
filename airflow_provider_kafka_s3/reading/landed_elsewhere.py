"""Whether another pipeline has what a batch has, so that the objects of the batch may be deleted."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from airflow_provider_kafka_s3.batch.coverage import Covering, covering_downward
from airflow_provider_kafka_s3.batch.expiry import expired_objects, read_expiry
from airflow_provider_kafka_s3.batch.log import TopicLog
from airflow_provider_kafka_s3.batch.presence import require_objects
from airflow_provider_kafka_s3.batch.request import RunRequest
from airflow_provider_kafka_s3.config import Landed
from airflow_provider_kafka_s3.documents.addresses import TopicAddress
from airflow_provider_kafka_s3.documents.expiry import ExpiredObjects
from airflow_provider_kafka_s3.documents.manifest import Manifest
from airflow_provider_kafka_s3.documents.marker import Marker
from airflow_provider_kafka_s3.documents.offsets import NO_OFFSETS, Offsets
from airflow_provider_kafka_s3.documents.plan import Plan
from airflow_provider_kafka_s3.exceptions import ConfigurationError, ForeignObjectError, MissingObjectError, message_of
from airflow_provider_kafka_s3.maintenance.expire import CommittedBatch, ExpiryGuard
from airflow_provider_kafka_s3.messages import few
from airflow_provider_kafka_s3.overriding import override
from airflow_provider_kafka_s3.pipeline import TopicPipeline, open_topic
from airflow_provider_kafka_s3.reading.committed_objects import CommittedObjects
from airflow_provider_kafka_s3.reading.records import kept_parts

__all__ = ["LandedElsewhere", "landed_elsewhere"]


@dataclass(frozen=True)
class _Span:
    """A slice of a batch.

    Attributes:
        plan: of the batch.
        place: Kafka partition, first offset and end.
        left: number of records in objects that are there.
        all: number of records in all of its objects.
        ignored: number of null values that were left out.
    """

    plan: Plan
    place: tuple[int, int, int]
    left: int
    all: int
    ignored: int

    @property
    def offsets(self) -> Offsets:
        return Offsets.of([self.place])


class LandedElsewhere(ExpiryGuard):
    """Keeps batches whose records another pipeline does not have, or has not all of each.

    Offsets and numbers of records are compared, slice by slice; slices that the other pipeline has joined, together.
    Its objects must be there. What its layout does not keep of a record, as a key or the bytes of a value, is missing.

    Args:
        log: of the batches.
        other: the topic in the other pipeline.
        verify: read the objects of the other pipeline back before anything is deleted.
        unsafe_fewer_parts: also where the other pipeline does not keep all parts of each record.
    """

    def __init__(
        self, log: TopicLog, other: TopicPipeline, *, verify: bool = False, unsafe_fewer_parts: bool = False
    ) -> None:
        if log.address == other.log.address:
            raise ConfigurationError(
                f"topic {log.topic!r}: pipeline {log.pipeline!r} is the one whose objects would be deleted. Nothing "
                f"was changed. Name the pipeline that has landed them from this one"
            )
        self._log = log
        self._other = other
        self._verify = verify
        self._unsafe_fewer_parts = unsafe_fewer_parts
        self._name = f"pipeline {other.log.pipeline!r} below {other.log.topics_dir!r}"

    @override
    def kept(self, batches: Sequence[CommittedBatch], *, final: bool) -> Mapping[int, str]:
        stored = self._other.log.read_marker()
        if stored is None:
            return dict.fromkeys((plan.batch for plan, _ in batches), f"{self._name} has not begun to land the topic")
        marker = stored[0]
        kept: dict[int, str] = {}
        of_generation: dict[int, list[CommittedBatch]] = {}
        for plan, decision in batches:
            if plan.topic_id == marker.topic_id:
                of_generation.setdefault(plan.generation, []).append((plan, decision))
            else:
                kept[plan.batch] = f"{self._name} lands another incarnation of the topic"
        for generation, committed in of_generation.items():
            kept |= self._kept_of(committed, generation, marker, final=final)
        return kept

    def _kept_of(
        self, batches: Sequence[CommittedBatch], generation: int, marker: Marker, *, final: bool
    ) -> Mapping[int, str]:
        claimed = NO_OFFSETS
        for plan, _ in batches:
            claimed |= plan.claim
        there = self._covering(self._other.log, claimed, marker.generation, marker)
        try:
            require_objects(self._other.committer, there, claimed, on_missing="fail")
            if final and self._verify:
                self._read_back(claimed)
        except (MissingObjectError, ForeignObjectError) as e:
            return dict.fromkeys((plan.batch for plan, _ in batches), f"{self._name}: {message_of(e)}")
        theirs = _spans(self._other.log, [(one.plan, one.decision) for one in there], expired_objects(self._other.log))
        # Its slices may be those of later batches, too.
        beyond = Offsets.of(span.place for span in theirs) - claimed
        own_marker, _ = self._log.require_marker()
        further = self._covering(self._log, beyond, generation, own_marker)
        # What is recorded and not deleted yet is needed as well.
        own_expiry = read_expiry(self._log)
        deleted = ExpiredObjects() if own_expiry is None else own_expiry[0].deleted
        ours = _spans(self._log, [*batches, *((one.plan, one.decision) for one in further)], deleted)
        kept: dict[int, str] = {}
        for of_us, of_them in _together(ours, theirs):
            if (why := self._difference(of_us, of_them)) is not None:
                kept |= dict.fromkeys((span.plan.batch for span in of_us if span.all), why)
        return {plan.batch: kept[plan.batch] for plan, _ in batches if plan.batch in kept}

    def _covering(self, log: TopicLog, offsets: Offsets, generation: int, marker: Marker) -> list[Covering]:
        landed = offsets & marker.covered_in(generation)
        return [*covering_downward(log, landed, generation=generation, marker=marker)] if landed else []

    def _difference(self, ours: Sequence[_Span], theirs: Sequence[_Span]) -> str | None:
        """Why slices that overlap each other are kept; None: the other pipeline has all of their records."""
        if not sum(span.left for span in ours):
            return None
        has = Offsets.of(span.place for span in theirs)
        if absent := Offsets.of(span.place for span in ours if span.all) - has:
            return f"{self._name} has not landed all of their offsets, such as {_first(absent)}"
        number = sum(span.left + span.ignored for span in theirs)
        least, most = sum(span.left for span in ours), sum(span.all for span in ours)
        if not least <= number <= most:
            place = _first(Offsets.of(span.place for span in ours))
            return f"{self._name} has another number of records of some of them, such as {number} of {least} at {place}"
        if self._unsafe_fewer_parts:
            return None
        missing = {
            part: why
            for span in theirs
            if span.plan.layout is not None
            for part, why in kept_parts(span.plan.layout).missing.items()
        }
        known = [kept_parts(span.plan.layout).missing for span in ours if span.plan.layout is not None]
        fewer = [f"the {part} ({why})" for part, why in missing.items() if any(part not in of for of in known)]
        if fewer:
            return f"{self._name} does not keep all of each record as they do: {few(fewer)}"
        return None

    def _read_back(self, claimed: Offsets) -> None:
        log = self._other.log
        request = RunRequest(
            run=f"operator:expire:{uuid.uuid4()}",
            offsets="data_interval",
            window={p: (ranges[0][0], ranges[-1][1]) for p, ranges in claimed.items()},
            layout=log.last_layout(log.view().next),
            starting="earliest",
            action="verify",
        )
        self._other.run(request).advance()


def landed_elsewhere(
    topic: TopicPipeline, *, verify: bool = False, unsafe_fewer_parts: bool = False
) -> Callable[[Landed], LandedElsewhere]:
    """Gives the guard for each pipeline in the same bucket.

    Args:
        topic: whose objects may be deleted.
        verify: see :class:`LandedElsewhere`.
        unsafe_fewer_parts: see there.
    """

    def guard(landed: Landed) -> LandedElsewhere:
        log = topic.log
        address = TopicAddress(topics_dir=landed.topics_dir, pipeline=landed.pipeline, topic=log.topic)
        other = open_topic(log.store, address, topic.source, connection_options=log.remedies.connection_options)
        return LandedElsewhere(log, other, verify=verify, unsafe_fewer_parts=unsafe_fewer_parts)

    return guard


def _spans(log: TopicLog, batches: Sequence[CommittedBatch], gone: ExpiredObjects) -> list[_Span]:
    """The slices of batches.

    Args:
        log: of the batches.
        batches: by their documents.
        gone: objects that do not count as left.
    """
    return [span for plan, decision in batches for span in _spans_of(log, plan, decision, gone)]


def _spans_of(log: TopicLog, plan: Plan, decision: Manifest, gone: ExpiredObjects) -> Iterator[_Span]:
    objects = CommittedObjects(log, plan, decision)
    accepted = log.amended_keys(plan.batch)[0]
    left, all_ = dict.fromkeys(range(len(plan.slices)), 0), dict.fromkeys(range(len(plan.slices)), 0)
    for entry in objects.of_records():
        is_left = entry.key not in accepted and not gone.has(plan.batch, entry)
        for part in entry.by_slice:
            all_[part.id] += part.records
            left[part.id] += part.records * is_left
    ignored = {result.id: result.ignored for result in decision.slices}
    for s in plan.slices:
        yield _Span(plan, (s.partition, s.start, s.end), left[s.id], all_[s.id], ignored[s.id])
    log.forget(plan.batch)


def _together(ours: Sequence[_Span], theirs: Sequence[_Span]) -> Iterator[tuple[list[_Span], list[_Span]]]:
    """Slices of both that overlap each other, directly or by others."""
    sides = [(span.place, side, span) for side, spans in enumerate((ours, theirs)) for span in spans]
    group: tuple[list[_Span], list[_Span]] = ([], [])
    partition = end = -1
    for place, side, span in sorted(sides, key=lambda one: one[:2]):
        if any(group) and not (place[0] == partition and place[1] < end):
            yield group
            group = ([], [])
        end = place[2] if place[0] != partition else max(end, place[2])
        partition = place[0]
        group[side].append(span)
    if any(group):
        yield group


def _first(offsets: Offsets) -> str:
    partition, ranges = next(iter(offsets.items()))
    return f"{partition}:{ranges[0][0]}-{ranges[0][1]}"
