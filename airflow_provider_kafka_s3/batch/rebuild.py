"""Builds missing objects of a decided batch again from their records; and the error for the rest.

Nothing is stored here: the caller stores the objects, or reports those whose records Kafka has lost.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from msgspec import UNSET

from airflow_provider_kafka_s3.batch.log import TopicLog
from airflow_provider_kafka_s3.documents.manifest import ObjectEntry
from airflow_provider_kafka_s3.documents.offsets import Offsets
from airflow_provider_kafka_s3.documents.plan import Plan, Slice
from airflow_provider_kafka_s3.exceptions import (
    BatchLossError,
    DataLossError,
    ForeignObjectError,
    MissingObjectError,
    RecordError,
    TopicNotFoundError,
    TopicRecreatedError,
)
from airflow_provider_kafka_s3.layout.keys import INDEX, dead_letters_prefix, sibling_of_key
from airflow_provider_kafka_s3.messages import count, few

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "BuildObjects",
    "BuiltObject",
    "Lost",
    "OtherInstallation",
    "ReadSlice",
    "batch_loss",
    "is_dead_letters",
    "places",
    "rebuild",
    "spans",
]

_BUILT_AT_ONCE: Final = 8
"""Objects built again by one read. Each takes up to one part size of memory, then disk."""


class OtherInstallation(str):
    """Reason why only another installation can build an object again, although Kafka has its records."""


class BuiltObject(Protocol):
    """One object built again from Kafka, not stored yet."""

    @property
    def content(self) -> str:
        """Digest that identifies its records, see :class:`~.manifest.ContentHash`."""
        ...

    @property
    def digest(self) -> str:
        """Digest of its records, see :class:`~.records_digest.RecordsDigest`."""
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
        """Store it unless its key exists. The caller checks the outcome by HEAD."""
        ...


ReadSlice = Callable[[Slice], "Iterable[pa.RecordBatch]"]
"""(slice) -> its records."""

BuildObjects = Callable[[Plan, Sequence[ObjectEntry], ReadSlice], Mapping[str, BuiltObject]]
"""(plan, objects of slices that share objects, what reads the records of a slice in their :func:`spans`) -> by key the
objects that the records yield. Either all objects are of dead letters, or none is."""


@dataclass(frozen=True)
class Lost:
    """An object that is gone and cannot be built again.

    Attributes:
        plan: of its batch.
        entry: the object.
        why: reason why it cannot be built.
        refused: whether its upload is still pending, and the store refuses to complete it.
    """

    plan: Plan
    entry: ObjectEntry
    why: str
    refused: bool = False

    @property
    def rebuildable(self) -> bool:
        """Whether another installation can build it again, so that it is not lost."""
        return isinstance(self.why, OtherInstallation)

    def __str__(self) -> str:
        return places(self.plan, self.entry)


def places(plan: Plan, entry: ObjectEntry) -> str:
    """The records of an object, for errors: Kafka partitions, offsets and number."""
    ranges = [
        f"partition {plan.slices[part.id].partition}, offsets {part.min_offset} to {part.max_offset}"
        for part in entry.by_slice
    ]
    return f"{few(ranges, by=', and ')}, {count(entry.records, 'record')}"


def rebuild(
    plan: Plan,
    entries: Sequence[ObjectEntry],
    read: Callable[[Sequence[ObjectEntry]], Mapping[str, BuiltObject]],
    kept: Callable[[Sequence[int]], Offsets],
    *,
    on_a_persons_word: str | None = None,
) -> Iterator[tuple[ObjectEntry, BuiltObject | str]]:
    """Build objects again from Kafka, some of them together. For one that cannot be built, yield the reason.

    Of a slice only the offsets between the first and the last record of the objects are read, so that an object does
    not depend on what Kafka still has of others. Objects that cannot be built together are built one by one. They are
    kept in memory and temporary files until the next ones are requested.

    Args:
        plan: of the committed batch.
        entries: the objects.
        read: (objects) -> by key those that Kafka's records yield.
        kept: (partitions) -> the offsets between the beginnings and the ends of their logs.
        on_a_persons_word: command with which a person vouches that Kafka has the landed records, for manifests that do
            not show it; None: a person has given this word.
    """
    gone = ""
    for group in _groups(plan, entries):
        blocks = [group[at : at + _BUILT_AT_ONCE] for at in range(0, len(group), _BUILT_AT_ONCE)][::-1]
        left: Offsets | None = None
        while blocks:
            block = blocks.pop()
            if gone:
                yield from ((entry, gone) for entry in block)
                continue
            if left is not None:
                outside = {entry.key: why for entry in block if (why := _outside(plan, entry, left))}
                yield from ((entry, outside[entry.key]) for entry in block if entry.key in outside)
                if not (block := [entry for entry in block if entry.key not in outside]):
                    continue
            try:
                built = dict(read(block))
            except (TopicRecreatedError, TopicNotFoundError) as e:
                gone = str(e)
                blocks.append(block)
                continue
            except (MissingObjectError, ForeignObjectError) as e:
                if plan.source is UNSET:
                    raise
                # The pipeline that was read can have its object again.
                yield from ((entry, OtherInstallation(str(e))) for entry in block)
                continue
            except (DataLossError, RecordError) as e:
                if isinstance(e, DataLossError) and left is None:
                    with contextlib.suppress(DataLossError, TopicNotFoundError):
                        left = kept(sorted({plan.slices[i].partition for entry in group for i in entry.slices}))
                if len(block) == 1:
                    yield block[0], str(e)
                else:
                    half = len(block) // 2
                    blocks += [block[half:], block[:half]]
                continue
            for entry in block:
                yield entry, _check(plan, entry, built.pop(entry.key, None), on_a_persons_word)


def is_dead_letters(plan: Plan, entry: ObjectEntry) -> bool:
    """Whether an object has dead letters."""
    return plan.layout is not None and entry.key.startswith(dead_letters_prefix(plan.layout, plan.topic))


def spans(plan: Plan, entries: Iterable[ObjectEntry]) -> dict[Slice, tuple[int, int]]:
    """The offsets ``[start, end)`` that have to be read of each slice for some objects, in the order of the plan.

    Whether a schema fits the open object of a record may make it a dead letter, so with ``schema_compatibility`` dead
    letters follow from all records of their slice only. Objects of what another pipeline has landed follow from all
    records of their group before them, since their offsets may be unknown.
    """
    bounds: dict[int, tuple[int, int]] = {}
    if plan.source is not UNSET:
        last: dict[int, int] = {}
        for entry in entries:
            first = plan.group_of(entry.slices[0])[0].id
            last[first] = max(last.get(first, 0), entry.slices[-1])
        needed = [s for first, end in last.items() for s in plan.group_of(first) if s.id <= end]
        return {s: (s.start, s.end) for s in sorted(needed)}
    for entry in entries:
        for part in entry.by_slice:
            start, end = part.min_offset, part.max_offset + 1
            if _depends_on_slice(plan, entry):
                start, end = plan.slices[part.id].start, plan.slices[part.id].end
            low, high = bounds.get(part.id, (start, end))
            bounds[part.id] = min(low, start), max(high, end)
    return {plan.slices[i]: bounds[i] for i in sorted(bounds)}


def _depends_on_slice(plan: Plan, entry: ObjectEntry) -> bool:
    return plan.layout is not None and bool(plan.layout.schema_compatibility) and is_dead_letters(plan, entry)


def _groups(plan: Plan, entries: Sequence[ObjectEntry]) -> Iterable[list[ObjectEntry]]:
    """Objects of slices that share objects, in the order of their first records; dead letters apart from others."""
    group_of = {s.id: group[0].id for group in plan.grouped for s in group}
    groups: dict[tuple[int, bool], list[ObjectEntry]] = {}
    for entry in sorted(entries, key=lambda entry: (entry.slices[0], entry.min_offset)):
        groups.setdefault((group_of[entry.slices[0]], is_dead_letters(plan, entry)), []).append(entry)
    return groups.values()


def _outside(plan: Plan, entry: ObjectEntry, kept: Offsets) -> str:
    """Why an object cannot be built if Kafka has no other offsets than these; empty: it can."""
    for s, span in spans(plan, [entry]).items():
        if Offsets({s.partition: [span]}) - kept:
            log = " and ".join(f"[{start}, {end})" for start, end in kept[s.partition]) or "none"
            return f"{plan.origin} has only offsets {log} of topic {plan.topic!r} partition {s.partition}"
    return ""


def _check(
    plan: Plan, entry: ObjectEntry, built: BuiltObject | None, on_a_persons_word: str | None
) -> BuiltObject | str:
    """The built object if it has the records of the missing one; else the reason why it is not written."""
    if built is None or built.content != entry.content or (entry.digest and built.digest != entry.digest):
        return f"{plan.origin} has other records at these offsets now"
    if built.size != entry.size:
        return OtherInstallation(
            f"this installation would write the same records as {built.size} bytes instead of {entry.size}; install "
            f"the versions that planned the batch ({plan.writer}) and run again"
        )
    if built.crc32 == entry.crc32.lower():
        return built
    if _has_to_fit(plan, entry):
        return OtherInstallation(
            f"this installation would write the same records as other bytes, and an object of blocks has to fit its "
            f"index; install the versions that planned the batch ({plan.writer}) and run again"
        )
    if not entry.digest and on_a_persons_word is not None:
        return (
            f"this installation would write other bytes, and the manifest, of an earlier version, does not show "
            f"whether {plan.origin} has the landed records or others: install the versions that planned the batch "
            f"({plan.writer}) and run again, or, if you know that it has them: {on_a_persons_word}"
        )
    return built


def _has_to_fit(plan: Plan, entry: ObjectEntry) -> bool:
    """Whether an object has an index, or is one: the index has the places of the blocks."""
    layout = plan.layout
    if layout is None or not layout.has_index or is_dead_letters(plan, entry):
        return False
    return sibling_of_key(layout, entry.key) in (None, INDEX)


def batch_loss(topic_log: TopicLog, lost: Sequence[Lost], accept: str) -> BatchLossError:
    """The error for objects of decided batches that are lost.

    Args:
        topic_log: the control documents of the topic.
        lost: at least one object.
        accept: sentence with the remedy and its full command.
    """
    batches = sorted({loss.plan.batch for loss in lost})
    of = f"batch {batches[0]}" if len(batches) == 1 else f"{len(batches)} batches from {batches[0]} on"
    reasons: dict[str, list[str]] = {}
    for loss in lost:
        reasons.setdefault(loss.why, []).append(str(loss))
    why_lost = few([f"{why} ({few(where, by='; ')})" for why, where in reasons.items()], by="; ")
    origins = few(sorted({loss.plan.origin for loss in lost}))
    refused = [loss for loss in lost if loss.refused]
    kept = (
        f" The store refuses to complete the uploads of {len(refused):,} of them. These are kept: if the cause can be "
        f"removed (a proxy that changes requests?), remove it and run again before they expire."
        if refused
        else ""
    )
    return BatchLossError(
        f"{count(len(lost), 'object')} of {of} of topic {topic_log.topic!r} cannot be written again from {origins}: "
        f"{why_lost}. Neither HEAD nor GET nor LIST requests find them, the last ones after a pause. All others were "
        f"written. The marker was not changed.{kept} {accept}. Gone: "
        f"{few([topic_log.store.url(loss.entry.key) for loss in lost])}"
    )
