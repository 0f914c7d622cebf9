"""Objects of a decided batch that are gone, built again from the records of their slices; and the error about the rest.

Nothing is stored here: whoever asks for the objects stores them, or reports what Kafka has lost.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
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
from airflow_provider_kafka_s3.messages import few

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["BuildObjects", "BuiltObject", "Elsewhere", "Lost", "batch_loss", "rebuild"]

_BUILT_AT_ONCE: Final = 8
"""Objects of a slice that are built again by one read of it. Each takes up to a part of memory, then disk."""

_OTHER_RECORDS: Final = "Kafka has other records there now"


class Elsewhere(str):
    """Why an object cannot be built here, although Kafka has its records."""


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


@dataclass(frozen=True)
class Lost:
    """An object that is gone and cannot be built again.

    Attributes:
        plan: of its batch.
        entry: the object.
        why: what Kafka has instead of its records.
        refused: whether its upload is still pending, and the store does not complete it.
    """

    plan: Plan
    entry: ObjectEntry
    why: str
    refused: bool = False

    @property
    def elsewhere(self) -> bool:
        """Whether it can be built again by another installation, so that it is not lost."""
        return isinstance(self.why, Elsewhere)

    def __str__(self) -> str:
        partition = self.plan.slices[self.entry.slices[0]].partition
        return (
            f"partition {partition}, offsets {self.entry.min_offset} to {self.entry.max_offset}, "
            f"{self.entry.records} records"
        )


def rebuild(
    plan: Plan, entries: Sequence[ObjectEntry], read: Callable[[Slice, Sequence[str]], Mapping[str, BuiltObject]]
) -> Iterator[tuple[ObjectEntry, BuiltObject | str]]:
    """Build objects again from Kafka, those of a slice together; instead of one that cannot be built, say why.

    The objects wait in memory and temporary files until the next ones are asked for. A slice whose records are gone is
    read no second time.

    Args:
        plan: of the committed batch.
        entries: the objects.
        read: (slice, keys) -> the objects of these keys, as far as the slice's records make such objects.
    """
    by_slice: dict[int, list[ObjectEntry]] = {}
    for entry in entries:
        by_slice.setdefault(entry.slices[0], []).append(entry)
    for number, found in sorted(by_slice.items()):
        gone = ""
        for at in range(0, len(found), _BUILT_AT_ONCE):
            some = found[at : at + _BUILT_AT_ONCE]
            built: dict[str, BuiltObject] = {}
            if not gone:
                try:
                    built.update(read(plan.slices[number], [entry.key for entry in some]))
                except (DataLossError, TopicRecreatedError, TopicNotFoundError, RecordError) as e:
                    gone = str(e)
            for entry in some:
                yield entry, _fit(plan, entry, built.pop(entry.key, None), gone or _OTHER_RECORDS)


def _fit(plan: Plan, entry: ObjectEntry, built: BuiltObject | None, why: str) -> BuiltObject | str:
    """An object that was built again, if it is the one that is missing; else why it is not."""
    if built is None:
        return why
    if built.content != entry.content:
        return _OTHER_RECORDS
    if built.size != entry.size:
        return Elsewhere(
            f"this installation would write the same records as {built.size} bytes instead of {entry.size}; install "
            f"what planned the batch ({plan.writer}) and run again"
        )
    return built


def batch_loss(topic_log: TopicLog, lost: Sequence[Lost], accept: str) -> BatchLossError:
    """The error about all objects of decided batches that cannot be had any more.

    Args:
        topic_log: of the topic.
        lost: at least one.
        accept: what a person can do about it, with the whole command.
    """
    batches = sorted({one.plan.batch for one in lost})
    of = f"batch {batches[0]}" if len(batches) == 1 else f"{len(batches)} batches from {batches[0]} on"
    objects = "1 object" if len(lost) == 1 else f"{len(lost):,} objects"
    reasons: dict[str, list[str]] = {}
    for one in lost:
        reasons.setdefault(one.why, []).append(str(one))
    told = few([f"{why} ({few(where, by='; ')})" for why, where in reasons.items()], by="; ")
    refused = [one for one in lost if one.refused]
    kept = (
        f" The store refuses to complete the uploads of {len(refused):,} of them. These are kept: if what refuses them "
        f"can be mended (a proxy that changes requests?), mend it and run again before they expire."
        if refused
        else ""
    )
    return BatchLossError(
        f"{objects} of {of} of topic {topic_log.topic!r} cannot be written again from Kafka: {told}. All "
        f"that could be written was written. The marker was not changed.{kept} {accept}. Gone: "
        f"{few([topic_log.store.url(one.entry.key) for one in lost])}"
    )
