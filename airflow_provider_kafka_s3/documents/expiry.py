"""The document of the objects that a topic has deleted on purpose, or will delete."""

from __future__ import annotations

import bisect
from collections.abc import Iterable
from typing import Final

import msgspec

from airflow_provider_kafka_s3.config import Landed
from airflow_provider_kafka_s3.documents.codec import MAX_BATCH, Document
from airflow_provider_kafka_s3.documents.manifest import ObjectEntry
from airflow_provider_kafka_s3.documents.offsets import Ranges, coalesce, subtract

__all__ = ["ExpiredObjects", "Expiry", "WaitingExpiry"]

_MAX_TIME: Final = 2**53


class ExpiredObjects(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Objects of complete batches, as a function of their manifests: few numbers, however many objects.

    Attributes:
        batches: ranges ``[first, end)`` of batches: all of their objects.
        before: of other batches, ascending, ``(batch, milliseconds since the epoch)``: those of their objects all of
            whose records are older.
    """

    batches: tuple[tuple[int, int], ...] = ()
    before: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        edges = [edge for first, end in self.batches for edge in (first, end)]
        numbers = [batch for batch, _ in self.before]
        if edges != sorted(set(edges)) or (edges and not 1 <= edges[0] < edges[-1] <= MAX_BATCH + 1):
            raise ValueError(f"ranges of batches {self.batches[:10]} are not ascending and apart")
        if numbers != sorted(set(numbers)) or any(not 1 <= n <= MAX_BATCH or self.has_all(n) for n in numbers):
            raise ValueError(f"batches {numbers[:10]} are not ascending, or beside those that are expired as a whole")
        if any(not 0 <= time <= _MAX_TIME for _, time in self.before):
            raise ValueError("a time is out of range")

    def __bool__(self) -> bool:
        return bool(self.batches or self.before)

    def has_all(self, batch: int) -> bool:
        """Whether all objects of a batch are among them."""
        index = bisect.bisect_right(self.batches, batch, key=lambda one: one[0]) - 1
        return index >= 0 and batch < self.batches[index][1]

    def has(self, batch: int, entry: ObjectEntry) -> bool:
        """Whether an object of a batch is among them."""
        if self.has_all(batch):
            return True
        index = bisect.bisect_left(self.before, batch, key=lambda one: one[0])
        if index == len(self.before) or self.before[index][0] != batch:
            return False
        return entry.has_times and entry.max_timestamp < self.before[index][1]

    def numbers(self) -> Ranges:
        """Ranges of all batches that have some of them."""
        return coalesce([*self.batches, *((batch, batch + 1) for batch, _ in self.before)])

    def of(self, batches: Iterable[int]) -> ExpiredObjects:
        """Those of some batches."""
        numbers = {*batches}
        return ExpiredObjects(
            batches=coalesce((batch, batch + 1) for batch in numbers if self.has_all(batch)),
            before=tuple((batch, time) for batch, time in self.before if batch in numbers),
        )

    def __or__(self, other: ExpiredObjects) -> ExpiredObjects:
        batches = coalesce([*self.batches, *other.batches])
        whole = ExpiredObjects(batches=batches)
        before: dict[int, int] = {}
        for batch, time in (*self.before, *other.before):
            if not whole.has_all(batch):
                before[batch] = max(time, before.get(batch, 0))
        return ExpiredObjects(batches=batches, before=tuple(sorted(before.items())))

    def without(self, other: ExpiredObjects) -> ExpiredObjects:
        """These, but for batches of which the other one has as much."""
        times = dict(other.before)
        left = tuple(
            (batch, time) for batch, time in self.before if not other.has_all(batch) and time > times.get(batch, -1)
        )
        return ExpiredObjects(batches=subtract(self.batches, other.batches), before=left)


class WaitingExpiry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Objects that are still in the bucket, or may be.

    Attributes:
        objects: they, but for those of earlier decisions.
        number: how many there are, about: what others delete at the same time counts here, too.
        size: their bytes, about.
        delete_from: they are deleted at this time, in milliseconds since the epoch, or later.
        reason: why, for people.
        operator: who decided it.
        landed_in: the pipeline that has their records; None: none has to.
        has_begun: whether some of them may be deleted, so that the decision cannot be withdrawn.
    """

    objects: ExpiredObjects
    number: int
    size: int
    delete_from: int
    reason: str
    operator: str
    landed_in: Landed | None = None
    has_begun: bool = False

    def __post_init__(self) -> None:
        if not self.objects or self.number < 0 or self.size < 0 or not 0 <= self.delete_from <= _MAX_TIME:
            raise ValueError("a record of expired objects has impossible numbers, or none of them")


class Expiry(Document, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All objects of a topic that readers do not expect any more.

    Attributes:
        topic: the Kafka topic.
        number: how many objects were decided about; it grows with each decision.
        deleted: those that are deleted.
        waiting: those that are not, in the order of the decisions.
    """

    topic: str
    number: int = 0
    deleted: ExpiredObjects = ExpiredObjects()
    waiting: tuple[WaitingExpiry, ...] = ()

    @property
    def objects(self) -> ExpiredObjects:
        """All of them."""
        objects = self.deleted
        for waiting in self.waiting:
            objects |= waiting.objects
        return objects
