"""What a replay sends: which objects, in which order, and what their records lack."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from airflow_provider_kafka_s3.batch.log import TopicLog
from airflow_provider_kafka_s3.documents.manifest import SlicePart
from airflow_provider_kafka_s3.documents.offsets import Offsets
from airflow_provider_kafka_s3.documents.replay import ReplayObject, ReplayPlan
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.kafka.offsets import TopicInfo
from airflow_provider_kafka_s3.reading.records import kept_parts, record_objects
from airflow_provider_kafka_s3.reading.snapshot import Snapshot, milliseconds, overlap
from airflow_provider_kafka_s3.replay.request import ReplayRequest, require_acknowledged

__all__ = ["plan_replay"]


def plan_replay(log: TopicLog, request: ReplayRequest, target: TopicInfo) -> ReplayPlan:
    """Choose the objects of a replay; only documents are read.

    Args:
        log: of the landed topic.
        request: the replay.
        target: the topic that records are sent to.

    Raises:
        ConfigurationError: records lack what ``without`` does not name, or what the selection needs.
        DataLossError: objects of the selection were accepted as lost.
    """
    snapshot = Snapshot(log, at=request.at)
    low, high = milliseconds("since", request.since), milliseconds("until", request.until)
    wanted = None if request.offsets is None else Offsets({p: [bounds] for p, bounds in request.offsets.items()})
    only = None if request.partitions is None else frozenset(request.partitions)
    generation = snapshot.generation if request.generation is None else request.generation
    missing: dict[str, str] = {}
    parts: dict[int, list[ReplayObject]] = {}
    oldest: list[int | None] = []
    not_indexed = False
    batches = snapshot.select_batches(low, high, wanted, only, generation=generation)
    for plan, decision, lost in snapshot.documents(batches):
        assert plan.layout is not None, "it is committed"
        kept, has_index = kept_parts(plan.layout).missing, plan.layout.has_index
        not_indexed = not_indexed or not has_index
        for entry in record_objects(log, plan, decision):
            if entry.has_times and not overlap((entry.min_timestamp, entry.max_timestamp), low, high):
                continue
            chosen = [
                (partition, part)
                for partition, part in ((plan.slices[part.id].partition, part) for part in entry.by_slice)
                if (only is None or partition in only) and (wanted is None or _span(partition, part) & wanted)
            ]
            if not chosen:
                continue
            if entry.key in lost:
                missing.setdefault("lost", f"{log.store.url(entry.key)} was accepted as lost")
                continue
            missing = {**{str(name): why for name, why in kept.items()}, **missing}
            if wanted is not None and "offset" in kept and not has_index:
                _require_whole(request, log.store.url(entry.key), chosen, wanted)
            oldest.append(entry.min_timestamp if entry.has_times else None)
            for partition, part in chosen:
                found = ReplayObject(
                    batch=plan.batch,
                    key=entry.key,
                    slice=part.id,
                    records=part.records,
                    low=part.min_offset,
                    high=part.max_offset,
                )
                parts.setdefault(partition, []).append(found)
    steps = {partition: _steps(found) for partition, found in sorted(parts.items())}
    if not_indexed and "offset" in missing and any(len(step) > 1 for some in steps.values() for step in some):
        missing["order"] = "objects of several folders have offsets in turn, and do not keep them"
    require_acknowledged(log, request, missing)
    return ReplayPlan(
        replay=request.replay,
        nonce=uuid.uuid4().hex[:8],
        topic=log.topic,
        target=request.target,
        cluster_id=target.cluster_id or "",
        target_id=target.topic_id or "",
        batch=snapshot.batch,
        settings=request.settings,
        partitions=steps,
        oldest=None if None in oldest or not oldest else min(time for time in oldest if time is not None),
    )


def _span(partition: int, part: SlicePart) -> Offsets:
    return Offsets({partition: [(part.min_offset, part.max_offset + 1)]})


def _require_whole(request: ReplayRequest, url: str, chosen: Sequence[tuple[int, SlicePart]], wanted: Offsets) -> None:
    """Refuse offsets that end inside of records whose offsets are not known."""
    for partition, part in chosen:
        if part.has_gaps and not _span(partition, part) <= wanted:
            raise ConfigurationError(
                f"the offsets of replay {request.replay!r} begin or end inside of {url}, which has offsets from "
                f"{part.min_offset} to {part.max_offset} with gaps, and does not keep them. Nothing was sent. Select "
                f"all of these offsets, or none"
            )


def _steps(parts: list[ReplayObject]) -> tuple[tuple[ReplayObject, ...], ...]:
    """Objects in the order of their offsets; those whose offsets interleave together."""
    steps: list[list[ReplayObject]] = []
    end = -1
    for part in sorted(parts, key=lambda one: (one.low, one.key)):
        if part.low > end:
            steps.append([])
        steps[-1].append(part)
        end = max(end, part.high)
    return tuple(map(tuple, steps))
