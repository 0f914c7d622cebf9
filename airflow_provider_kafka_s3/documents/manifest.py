"""The manifest of a batch: a list of its objects. Writing it decides the batch."""

from __future__ import annotations

import functools
import hashlib
import operator
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final, Literal

import msgspec

from airflow_provider_kafka_s3.config import MAX_PARTS
from airflow_provider_kafka_s3.converters.unknown_fields import LONGEST_NAME, MAX_NAMES
from airflow_provider_kafka_s3.documents.codec import Document
from airflow_provider_kafka_s3.documents.plan import Plan, Slice
from airflow_provider_kafka_s3.layout.hidden_fields import HiddenFields
from airflow_provider_kafka_s3.layout.keys import (
    INDEX,
    data_key_parser,
    dead_letters_prefix,
    sibling_of_key,
    siblings,
    validate_key,
)
from airflow_provider_kafka_s3.storage.port import Part

__all__ = [
    "MAX_OBJECTS",
    "NO_UNKNOWN_FIELDS",
    "Amend",
    "ContentHash",
    "Manifest",
    "ObjectEntry",
    "SlicePart",
    "SliceResult",
    "SliceRows",
    "UnknownFields",
]

MAX_OBJECTS: Final = 100_000
"""Objects of one batch at most: one manifest lists them, and one process completes them."""

# Values from the store are sent back to it in URLs, headers and XML: only characters valid in all of them are accepted.
_TOKEN: Final = re.compile("[\x21-\x7e]{1,2048}")
_CHECKSUM: Final = re.compile("[A-Za-z0-9+/=]{0,64}")
_NO_OFFSET: Final = (-1).to_bytes(8, "little", signed=True)
_NO_TIMESTAMP: Final = -1
_CRC32: Final = re.compile("[0-9A-Fa-f]{8}")
_DIGEST: Final = re.compile("([0-9a-f]{32})?")


class UnknownFields(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Fields of records that their declared schema does not have, and values that do not fit it.

    Information for people; no decision depends on it.

    Attributes:
        records: number of records with some.
        names: the last of their paths in the order in which they appeared.
    """

    records: int = 0
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.records < 0 or len(self.names) > MAX_NAMES or any(len(name) > LONGEST_NAME for name in self.names):
            raise ValueError(f"there cannot be {self.records} records with {len(self.names)} unknown fields")

    def __or__(self, other: UnknownFields) -> UnknownFields:
        """Those of both; names that are in both are where the first one has them."""
        names = [*dict.fromkeys((*self.names, *other.names))]
        return UnknownFields(records=self.records + other.records, names=tuple(names[-MAX_NAMES:]))


NO_UNKNOWN_FIELDS: Final = UnknownFields()


class SliceResult(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a slice was read.

    Attributes:
        id: of the slice.
        records: number of records written.
        ignored: number of null values skipped, as configured in the layout.
        dead_letters: number of records that could not be written and are dead letters.
        tombstones: number of the records whose value is null and that have no object of values.
        next_offset: one past the last offset that was read; equal to the slice's end.
        unknown: fields that the declared schema of the values does not have; absent: no record has one, or an earlier
            version wrote the batch.
    """

    id: int
    records: int
    ignored: int
    dead_letters: int = 0
    tombstones: int = 0
    next_offset: int
    unknown: UnknownFields | msgspec.UnsetType = msgspec.UNSET

    def __post_init__(self) -> None:
        if not 0 <= self.tombstones <= self.records or self.ignored < 0 or self.dead_letters < 0:
            raise ValueError(
                f"slice {self.id} cannot have {self.records} records with {self.tombstones} tombstones, {self.ignored} "
                f"ignored ones and {self.dead_letters} dead letters"
            )


class SlicePart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The records of one slice in an object.

    Attributes:
        id: of the slice.
        records: number of records.
        min_offset: lowest offset of the records.
        max_offset: highest offset of the records.
    """

    id: int
    records: int
    min_offset: int
    max_offset: int

    @property
    def has_gaps(self) -> bool:
        """Whether offsets between the lowest and the highest one are not among those of the records."""
        return self.records <= self.max_offset - self.min_offset


class ObjectEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One object of a batch, and the upload that holds its bytes until it is completed.

    Attributes:
        key: in the bucket.
        slices: ids of the slices its records come from, in the order of its records.
        nonce: random per upload; also in the object's metadata.
        upload_id: of the multipart upload; it can be completed or aborted only once.
        parts: ``[etag, checksum]`` of part 1, 2, …
        checksum_algorithm: of the parts' checksums.
        size: bytes.
        crc32: of the whole object, eight hex digits.
        content: digest that identifies its records, see :class:`ContentHash`.
        records: number of records.
        min_offset: lowest offset of its records; of several slices, that of the first one's records.
        max_offset: highest offset of its records; of several slices, that of the first one's records.
        ranges: its records by slice, if there are several slices; else empty. See :attr:`by_slice`.
        min_timestamp: lowest timestamp of its records, in milliseconds since the epoch; -1 if it is unknown: no record
            has one, a record is from before the year 1900, or an earlier version wrote the batch. Records without a
            timestamp do not count. Information for readers: no decision depends on it.
        max_timestamp: highest timestamp of its records; -1 exactly if the lowest is unknown.
        digest: of its records as Kafka had them, whatever their encoder, 32 hex digits: an object is written again only
            from records with the same. Empty: an earlier version wrote the batch.
    """

    key: str
    slices: tuple[int, ...]
    nonce: str
    upload_id: str
    parts: tuple[tuple[str, str], ...]
    checksum_algorithm: Literal["CRC32"]
    size: int
    crc32: str
    content: str
    records: int
    min_offset: int
    max_offset: int
    ranges: tuple[SlicePart, ...] = ()
    min_timestamp: int = _NO_TIMESTAMP
    max_timestamp: int = _NO_TIMESTAMP
    digest: str = ""

    def __post_init__(self) -> None:
        if not 1 <= len(self.parts) <= MAX_PARTS or self.size < 0:
            raise ValueError(f"an object of {self.size} bytes with {len(self.parts)} parts is not possible")
        etags = {etag for etag, _ in self.parts}
        if not all(map(_TOKEN.fullmatch, (self.upload_id, self.nonce, *etags))) or not all(
            _CHECKSUM.fullmatch(checksum) for _, checksum in self.parts
        ):
            raise ValueError("an upload id, a nonce, an ETag or a checksum has a form that no store uses")
        if _CRC32.fullmatch(self.crc32) is None:
            raise ValueError("crc32 is not eight hex digits")
        if _DIGEST.fullmatch(self.digest) is None:
            raise ValueError("its digest of records is not 32 hex digits")
        times = (self.min_timestamp, self.max_timestamp)
        if self.min_timestamp > self.max_timestamp or (_NO_TIMESTAMP in times and times != (_NO_TIMESTAMP,) * 2):
            raise ValueError(f"an object cannot have records with timestamps from {times[0]} to {times[1]}")

    @property
    def has_times(self) -> bool:
        """Whether the timestamps of its records are known."""
        return self.min_timestamp != _NO_TIMESTAMP

    @property
    def by_slice(self) -> tuple[SlicePart, ...]:
        """Its records of each slice, in their order."""
        if self.ranges:
            return self.ranges
        only = self.slices[0]
        return (SlicePart(id=only, records=self.records, min_offset=self.min_offset, max_offset=self.max_offset),)

    def upload_parts(self) -> tuple[Part, ...]:
        """The parts, as the store's port takes them."""
        return tuple(Part(number, etag, checksum) for number, (etag, checksum) in enumerate(self.parts, start=1))


class SliceRows(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The result of one attempt at a slice, returned to the driver: what was read, and the uploads of its objects.

    An object of several slices is one of the first of them.

    Attributes:
        result: what was read.
        objects: the uploads.
        hidden: fields of the values that engines do not show.
    """

    result: SliceResult
    objects: tuple[ObjectEntry, ...]
    hidden: HiddenFields = HiddenFields()


class Manifest(Document, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The decision about a batch.

    Attributes:
        batch: its number.
        plan_sha256: of the plan it decides.
        status: ``commit``, ``abandoned`` or ``reset``.
        run: key of the run whose driver decided.
        release: of an abandoned batch: ``debt`` (plan these offsets again) or ``lost`` (accept the gap).
        reason: why it was abandoned.
        operator: who abandoned it.
        slices: of a commit: exactly the plan's.
        objects: of a commit.
    """

    batch: int
    plan_sha256: str
    status: Literal["commit", "abandoned", "reset"]
    run: str
    release: Literal["debt", "lost"] | None = None
    reason: str | None = None
    operator: str | None = None
    slices: tuple[SliceResult, ...] = ()
    objects: tuple[ObjectEntry, ...] = ()

    def __post_init__(self) -> None:
        if (self.status == "abandoned") != (self.release is not None):
            raise ValueError(f"status {self.status!r} does not allow release {self.release!r}")
        if len(self.objects) > MAX_OBJECTS:
            raise ValueError(f"it lists {len(self.objects):,} objects; the limit is {MAX_OBJECTS:,}")
        if self.status != "commit" and (self.slices or self.objects):
            raise ValueError(f"a manifest of status {self.status!r} has no slices or objects")
        if len({o.key for o in self.objects}) != len(self.objects):
            raise ValueError("two of its objects have the same key")

    @property
    def is_released(self) -> bool:
        """Whether the batch was abandoned so that another one lands its offsets."""
        return self.status == "abandoned" and self.release == "debt"

    @property
    def records(self) -> int:
        """Records in its data objects."""
        return sum(s.records for s in self.slices)

    @property
    def tombstones(self) -> int:
        """Of these the records whose value is null and that have no object of values."""
        return sum(s.tombstones for s in self.slices)

    @property
    def ignored(self) -> int:
        """Null values that were left out; no records of its objects."""
        return sum(s.ignored for s in self.slices)

    @property
    def dead_letters(self) -> int:
        """Records in its objects of dead letters."""
        return sum(s.dead_letters for s in self.slices)

    @property
    def unknown_fields(self) -> UnknownFields:
        """Fields that the declared schema of the values does not have."""
        of_slices = (s.unknown for s in self.slices if isinstance(s.unknown, UnknownFields))
        return functools.reduce(operator.or_, of_slices, NO_UNKNOWN_FIELDS)

    @property
    def size(self) -> int:
        """Bytes of all its objects."""
        return sum(o.size for o in self.objects)

    def check_against(self, plan: Plan) -> None:
        """Raise ValueError unless this can decide the plan: the same slices, all read to their ends, objects within."""
        if self.batch != plan.batch:
            raise ValueError(f"it decides batch {self.batch}, not {plan.batch}")
        if self.status == "reset" and plan.type != "reset":
            raise ValueError(f"a plan of type {plan.type!r} cannot be reset")
        if self.status != "commit":
            return
        if plan.layout is None:
            raise ValueError(f"a plan of type {plan.type!r} cannot be committed")
        by_id = {s.id: s for s in plan.slices}
        if [r.id for r in self.slices] != [s.id for s in plan.slices]:
            raise ValueError(
                f"its slices are not the plan's: {[r.id for r in self.slices[:20]]}… ({len(self.slices)}) instead of "
                f"{[s.id for s in plan.slices[:20]]}… ({len(plan.slices)})"
            )
        for result in self.slices:
            if result.next_offset != by_id[result.id].end:
                raise ValueError(f"slice {result.id} was read to {result.next_offset}, not to {by_id[result.id].end}")
        parse = data_key_parser(plan.layout, plan.topic)
        dead = dead_letters_prefix(plan.layout, plan.topic)
        group_of = {i: number for number, group in enumerate(plan.groups) for i in group}
        for entry in self.objects:
            # The driver completes, checks and may write every listed object, so each key has to follow from this plan.
            key = validate_key(entry.key)
            _check_slices(entry, by_id, group_of, may_share=not key.startswith(dead))
            s = by_id[entry.slices[0]]
            if parse(key) != (s.partition, entry.min_offset, plan.generation):
                raise ValueError(
                    f"object {key} is not named as one of topic {plan.topic!r}, partition {s.partition}, offset "
                    f"{entry.min_offset}, generation {plan.generation} would be"
                )
        records: Counter[tuple[int, str | None]] = Counter()
        times: dict[str, tuple[int, int]] = {}
        for entry in self.objects:
            if times.setdefault(entry.content, timestamps := (entry.min_timestamp, entry.max_timestamp)) != timestamps:
                raise ValueError(f"object {entry.key} has other timestamps than the object beside it")
            kind = dead if entry.key.startswith(dead) else sibling_of_key(plan.layout, entry.key)
            for part in entry.by_slice:
                records[part.id, kind] += part.records
        for result in self.slices:
            all_of_them = (result.records, "records")
            with_values = (result.records - result.tombstones, "records with values")
            expected: dict[str | None, tuple[int, str]] = dict.fromkeys(siblings(plan.layout), all_of_them)
            expected |= dict.fromkeys({INDEX} & expected.keys() | {None}, with_values)
            expected[dead] = (result.dead_letters, "dead letters")
            for kind, (count, label) in expected.items():
                if records[result.id, kind] != count:
                    raise ValueError(f"the objects of slice {result.id} do not add up to its {count} {label}")


def _check_slices(
    entry: ObjectEntry, by_id: Mapping[int, Slice], group_of: Mapping[int, int], *, may_share: bool
) -> None:
    """Raise ValueError unless an object lies within slices of a plan, and several are of one group in its order.

    Args:
        entry: the object.
        by_id: the slices of the plan.
        group_of: number of the group of each slice; empty if the plan has no groups.
        may_share: whether it may hold records of several slices.
    """
    slices = entry.slices
    if not slices or not all(i in by_id for i in slices) or (len(slices) > 1 and not may_share):
        raise ValueError(f"object {entry.key} belongs to slices {slices[:3]}, which the plan does not have")
    if len({group_of.get(i, -1 - i) for i in slices}) > 1 or [*slices] != sorted(set(slices)):
        raise ValueError(f"object {entry.key} belongs to slices {slices[:3]}, which are not of one group in its order")
    first, expected = entry.by_slice[0], slices if len(slices) > 1 else ()
    if (
        tuple(part.id for part in entry.ranges) != expected
        or sum(part.records for part in entry.by_slice) != entry.records
        or (first.min_offset, first.max_offset) != (entry.min_offset, entry.max_offset)
    ):
        raise ValueError(f"object {entry.key} has ranges that are not its records of slices {slices[:3]}")
    for part in entry.by_slice:
        s = by_id[part.id]
        if not (
            s.start <= part.min_offset <= part.max_offset < s.end
            and 0 < part.records <= part.max_offset - part.min_offset + 1
        ):
            raise ValueError(f"object {entry.key} does not lie within its slice [{s.start}, {s.end})")


class Amend(Document, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Keys of a committed batch that an operator accepted as lost.

    Attributes:
        batch: its number.
        keys: of its objects.
        reason: why they are lost.
        operator: who accepted it.
    """

    batch: int
    keys: tuple[str, ...]
    reason: str
    operator: str


class ContentHash:
    """Digest that identifies the records of an object.

    SHA-256 over the topic id, then per slice the Kafka partition and the record offsets as little-endian int64 in file
    order. Before the partition of each further slice there is the number -1, which no offset is. So equal digests under
    one plan mean records at the same offsets, whatever library wrote them. Whether they are the same records is shown
    by ``digest`` of the entry: a Kafka record never changes, but a log may lose it and get another one.
    """

    def __init__(self, topic_id: str, partition: int) -> None:
        self._hash = hashlib.sha256(topic_id.encode() + b"\0" + partition.to_bytes(8, "little"))

    def next_slice(self, partition: int) -> None:
        """Begin another slice: the offsets that follow are those of its records."""
        self._hash.update(_NO_OFFSET + partition.to_bytes(8, "little"))

    def update(self, offsets: Iterable[int] | memoryview | bytes) -> None:
        """Add offsets: their little-endian int64 bytes, or integers."""
        if not isinstance(offsets, bytes | memoryview):
            offsets = b"".join(o.to_bytes(8, "little") for o in offsets)
        self._hash.update(offsets)

    def hexdigest(self) -> str:
        """The digest so far."""
        return self._hash.hexdigest()
