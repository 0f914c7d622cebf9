"""The documents of a replay of landed records into Kafka. Each is created once."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from airflow_provider_kafka_s3.documents.codec import MAX_PARTITION, Document

__all__ = [
    "ForeignReplayObject",
    "PinnedObject",
    "ReplayBegin",
    "ReplayEnd",
    "ReplayEpoch",
    "ReplayObject",
    "ReplayPlan",
]

_NONCE: Final = re.compile("[0-9a-f]{8}")


class ReplayObject(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Records of one slice in an object. An object may have several slices of a Kafka partition.

    Attributes:
        batch: number of the object's batch.
        key: of the object.
        slice: id of the slice in its batch.
        records: number of records of the slice in the object.
        low: lowest offset of these records.
        high: highest offset of these records.
        has_offsets: whether the offset of each of them is known. By the index of an object of blocks only if its
            offsets interleave with those of others.
        without: objects beside it that are lost, ``.keys`` or ``.headers``: the records are sent without these.
    """

    batch: int
    key: str
    slice: int
    records: int
    low: int
    high: int
    has_offsets: bool = True
    without: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.batch < 1 or self.slice < 0 or not 0 < self.records <= self.high - self.low + 1 or self.low < 0:
            raise ValueError(
                f"{self.records} records with offsets from {self.low} to {self.high} of slice {self.slice}, batch "
                f"{self.batch}, are not possible"
            )


class PinnedObject(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An object of other software as it was when a replay was planned.

    Attributes:
        key: of the object.
        etag: of the object.
        size: in bytes.
    """

    key: str
    etag: str
    size: int


class ForeignReplayObject(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Records of one Kafka partition that other software wrote.

    Attributes:
        values: the object of their values.
        records: their number; None: only the bytes of the object have it.
        keys: the object of their keys; None: there is none, or it is not read.
    """

    values: PinnedObject
    records: int | None = None
    keys: PinnedObject | None = None


class ReplayPlan(Document, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a replay sends, in its order. A later batch, or another selection, cannot change it.

    Attributes:
        replay: its id.
        nonce: eight random hex digits: replays of other pipelines or buckets may have the same id, and send to the same
            cluster.
        topic: the topic that was landed.
        target: the topic that records are sent to.
        cluster_id: of its cluster; empty if the brokers return none.
        target_id: identifies the target among all topics that ever had its name; empty if the brokers return none.
        batch: number of the last batch that it has records of.
        settings: all other settings; a run with other ones is refused.
        partitions: per Kafka partition the objects in order; objects whose offsets interleave are one step.
        oldest: no record has a lower timestamp, in milliseconds since the epoch; None: unknown.
        newest: no record has a higher one; None: unknown.
        foreign: per Kafka partition the objects of other software in order; there are either these or ``partitions``.
        notes: what differs in some records from those in Kafka, for people.
    """

    replay: str
    nonce: str
    topic: str
    target: str
    cluster_id: str
    target_id: str
    batch: int
    settings: dict[str, str]
    partitions: dict[int, tuple[tuple[ReplayObject, ...], ...]]
    oldest: int | None = None
    newest: int | None = None
    foreign: dict[int, tuple[ForeignReplayObject, ...]] = {}  # noqa: RUF012 - msgspec copies it
    notes: tuple[str, ...] = ()

    def name(self, partition: int) -> str:
        """A name of the replay of a Kafka partition that no other one has."""
        return f"{self.replay}-{self.nonce}-{partition}"

    def document(self, name: str, number: int) -> str:
        """The name of a document of a Kafka partition or an epoch: those of an earlier plan of this id have others."""
        return f"{name}-{self.nonce}-{number}"

    @property
    def numbers(self) -> tuple[int, ...]:
        """The Kafka partitions that have records."""
        return tuple(sorted({*self.partitions, *self.foreign}))

    @property
    def records(self) -> dict[int, int | None]:
        """Number of records in the objects of each Kafka partition; None: it is not known."""
        totals: dict[int, int | None] = {
            partition: sum(one.records for step in steps for one in step)
            for partition, steps in self.partitions.items()
        }
        for partition, objects in self.foreign.items():
            counts = [one.records for one in objects if one.records is not None]
            totals[partition] = sum(counts) if len(counts) == len(objects) else None
        return totals

    def __post_init__(self) -> None:
        if self.batch < 0 or any(not 0 <= p <= MAX_PARTITION for p in self.numbers):
            raise ValueError("a batch or a Kafka partition is out of range")
        if _NONCE.fullmatch(self.nonce) is None:
            raise ValueError(f"{self.nonce[:20]!r} is no nonce of eight hex digits")
        if any(not steps or () in steps for steps in self.partitions.values()) or () in self.foreign.values():
            raise ValueError("a partition without objects is not part of a plan")


class ReplayEpoch(Document, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A process has begun to send. Of processes at the same time, that of the highest epoch goes on.

    Attributes:
        replay: its id.
        epoch: number of the process among those that have sent this replay, from 1.
    """

    replay: str
    epoch: int


class ReplayBegin(Document, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A partition has begun: from then on Kafka has its progress.

    Attributes:
        replay: its id.
        partition: the Kafka partition.
    """

    replay: str
    partition: int


class ReplayEnd(Document, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A partition is complete.

    Attributes:
        replay: its id.
        partition: the Kafka partition.
        records: number of records that were sent.
    """

    replay: str
    partition: int
    records: int
