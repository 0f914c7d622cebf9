"""Builds missing objects of a decided batch again from the records of their slices; and the error for the rest.

Nothing is stored here: the caller stores the objects, or reports those whose records Kafka has lost.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from airflow_provider_kafka_s3.batch.log import TopicLog
from airflow_provider_kafka_s3.documents.manifest import ObjectEntry
from airflow_provider_kafka_s3.documents.plan import Plan, Slice
from airflow_provider_kafka_s3.exceptions import (
    BatchLossError,
    DataLossError,
    RecordError,
    TopicNotFoundError,
    TopicRecreatedError,
)
from airflow_provider_kafka_s3.layout.keys import INDEX, dead_letters_prefix, sibling_of_key
from airflow_provider_kafka_s3.messages import few

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["BuildObjects", "BuiltObject", "Lost", "OtherInstallation", "ReadSlice", "batch_loss", "places", "rebuild"]

_BUILT_AT_ONCE: Final = 8
"""Objects built again by one read of their slice. Each takes up to one part size of memory, then disk."""

_OTHER_RECORDS: Final = "Kafka has other records at these offsets now"


class OtherInstallation(str):
    """Reason why only another installation can build an object again, although Kafka has its records."""


class BuiltObject(Protocol):
    """One object built again from Kafka, not stored yet."""

    @property
    def content(self) -> str:
        """Digest that identifies its records, see :class:`~.manifest.ContentHash`."""
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

BuildObjects = Callable[[Plan, Sequence[Slice], Collection[str], ReadSlice], Mapping[str, BuiltObject]]
"""(plan, slices that share objects, keys, what reads a slice) -> the objects of these keys that the records yield."""


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
    return f"{few(ranges, by=', and ')}, {entry.records} records"


def rebuild(
    plan: Plan,
    entries: Sequence[ObjectEntry],
    read: Callable[[Sequence[Slice], Sequence[str]], Mapping[str, BuiltObject]],
) -> Iterator[tuple[ObjectEntry, BuiltObject | str]]:
    """Build objects again from Kafka, those of a slice together. For one that cannot be built, yield the reason.

    Slices that share objects are read in turn, in the order of the plan. The objects are kept in memory and temporary
    files until the next ones are requested. Slices whose records are gone are not read a second time.

    Args:
        plan: of the committed batch.
        entries: the objects.
        read: (slices, keys) -> the objects of these keys that the records of the slices yield.
    """
    group_of = {s.id: group for group in plan.grouped for s in group}
    by_group: dict[tuple[Slice, ...], list[ObjectEntry]] = {}
    for entry in sorted(entries, key=lambda entry: entry.slices[0]):
        by_group.setdefault(group_of[entry.slices[0]], []).append(entry)
    for slices, group_entries in by_group.items():
        gone = ""
        for at in range(0, len(group_entries), _BUILT_AT_ONCE):
            block = group_entries[at : at + _BUILT_AT_ONCE]
            built: dict[str, BuiltObject] = {}
            if not gone:
                try:
                    built.update(read(slices, [entry.key for entry in block]))
                except (DataLossError, TopicRecreatedError, TopicNotFoundError, RecordError) as e:
                    gone = str(e)
            for entry in block:
                yield entry, _check(plan, entry, built.pop(entry.key, None), gone or _OTHER_RECORDS)


def _check(plan: Plan, entry: ObjectEntry, built: BuiltObject | None, why: str) -> BuiltObject | str:
    """The built object if it matches the missing one; else the reason why it does not."""
    if built is None:
        return why
    if built.content != entry.content:
        return _OTHER_RECORDS
    if built.size != entry.size:
        return OtherInstallation(
            f"this installation would write the same records as {built.size} bytes instead of {entry.size}; install "
            f"the versions that planned the batch ({plan.writer}) and run again"
        )
    if built.crc32 != entry.crc32.lower() and _has_to_fit(plan, entry):
        return OtherInstallation(
            f"this installation would write the same records as other bytes, and an object of blocks has to fit its "
            f"index; install the versions that planned the batch ({plan.writer}) and run again"
        )
    return built


def _has_to_fit(plan: Plan, entry: ObjectEntry) -> bool:
    """Whether an object has an index, or is one: the index has the places of the blocks."""
    layout = plan.layout
    if layout is None or not layout.has_index or entry.key.startswith(dead_letters_prefix(layout, plan.topic)):
        return False
    return sibling_of_key(layout, entry.key) in (None, INDEX)


def batch_loss(topic_log: TopicLog, lost: Sequence[Lost], accept: str) -> BatchLossError:
    """The error for objects of decided batches that are lost.

    Args:
        topic_log: of the topic.
        lost: at least one object.
        accept: sentence with the remedy and its full command.
    """
    batches = sorted({one.plan.batch for one in lost})
    of = f"batch {batches[0]}" if len(batches) == 1 else f"{len(batches)} batches from {batches[0]} on"
    objects = "1 object" if len(lost) == 1 else f"{len(lost):,} objects"
    reasons: dict[str, list[str]] = {}
    for one in lost:
        reasons.setdefault(one.why, []).append(str(one))
    why_lost = few([f"{why} ({few(where, by='; ')})" for why, where in reasons.items()], by="; ")
    refused = [one for one in lost if one.refused]
    kept = (
        f" The store refuses to complete the uploads of {len(refused):,} of them. These are kept: if the cause can be "
        f"removed (a proxy that changes requests?), remove it and run again before they expire."
        if refused
        else ""
    )
    return BatchLossError(
        f"{objects} of {of} of topic {topic_log.topic!r} cannot be written again from Kafka: {why_lost}. All "
        f"others were written. The marker was not changed.{kept} {accept}. Gone: "
        f"{few([topic_log.store.url(one.entry.key) for one in lost])}"
    )
