"""The manifest of a batch: a list of its objects. Writing it decides the batch."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable
from typing import Final, Literal

import msgspec

from airflow_provider_kafka_s3.config import MAX_PARTS
from airflow_provider_kafka_s3.documents.codec import Document
from airflow_provider_kafka_s3.documents.plan import Plan
from airflow_provider_kafka_s3.layout.keys import (
    data_key_parser,
    dead_letters_prefix,
    sibling_of_key,
    siblings,
    validate_key,
)
from airflow_provider_kafka_s3.storage.port import Part

__all__ = ["MAX_OBJECTS", "Amend", "ContentHash", "Manifest", "ObjectEntry", "SliceResult", "SliceRows"]

MAX_OBJECTS: Final = 100_000
"""Objects of one batch at most: one manifest lists them, and one process completes them."""

# Values from the store are sent back to it in URLs, headers and XML: only characters valid in all of them are accepted.
_TOKEN: Final = re.compile("[\x21-\x7e]{1,2048}")
_CHECKSUM: Final = re.compile("[A-Za-z0-9+/=]{0,64}")
_CRC32: Final = re.compile("[0-9A-Fa-f]{8}")


class SliceResult(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a slice was read.

    Attributes:
        id: of the slice.
        records: number of records written.
        ignored: number of null values skipped, as configured in the layout.
        dead_letters: number of records that could not be written and are dead letters.
        tombstones: number of the records whose value is null and that have no object of values.
        next_offset: one past the last offset that was read; equal to the slice's end.
    """

    id: int
    records: int
    ignored: int
    dead_letters: int = 0
    tombstones: int = 0
    next_offset: int

    def __post_init__(self) -> None:
        if not 0 <= self.tombstones <= self.records or self.ignored < 0 or self.dead_letters < 0:
            raise ValueError(
                f"slice {self.id} cannot have {self.records} records with {self.tombstones} tombstones, {self.ignored} "
                f"ignored ones and {self.dead_letters} dead letters"
            )


class ObjectEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One object of a batch, and the upload that holds its bytes until it is completed.

    Attributes:
        key: in the bucket.
        slices: ids of the slices its records come from.
        nonce: random per upload; also in the object's metadata.
        upload_id: of the multipart upload; it can be completed or aborted only once.
        parts: ``[etag, checksum]`` of part 1, 2, …
        checksum_algorithm: of the parts' checksums.
        size: bytes.
        crc32: of the whole object, eight hex digits.
        content: digest that identifies its records, see :class:`ContentHash`.
        records: number of records.
        min_offset: lowest offset of its records.
        max_offset: highest offset of its records.
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

    def upload_parts(self) -> tuple[Part, ...]:
        """The parts, as the store's port takes them."""
        return tuple(Part(number, etag, checksum) for number, (etag, checksum) in enumerate(self.parts, start=1))


class SliceRows(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The result of one attempt at a slice, returned to the driver: what was read, and the uploads of its objects."""

    result: SliceResult
    objects: tuple[ObjectEntry, ...]


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
        for entry in self.objects:
            # The driver completes, checks and may write every listed object, so each key has to follow from this plan.
            key = validate_key(entry.key)
            if len(entry.slices) != 1 or entry.slices[0] not in by_id:
                raise ValueError(f"object {key} belongs to slices {entry.slices[:3]}, which the plan does not have")
            s = by_id[entry.slices[0]]
            if not (
                s.start <= entry.min_offset <= entry.max_offset < s.end
                and 0 < entry.records <= entry.max_offset - entry.min_offset + 1
            ):
                raise ValueError(f"object {key} does not lie within its slice [{s.start}, {s.end})")
            if parse(key) != (s.partition, entry.min_offset, plan.generation):
                raise ValueError(
                    f"object {key} is not named as one of topic {plan.topic!r}, partition {s.partition}, offset "
                    f"{entry.min_offset}, generation {plan.generation} would be"
                )
        records: Counter[tuple[int, str | None]] = Counter()
        for entry in self.objects:
            part = dead if entry.key.startswith(dead) else sibling_of_key(plan.layout, entry.key)
            records[entry.slices[0], part] += entry.records
        for result in self.slices:
            expected: dict[str | None, tuple[int, str]] = dict.fromkeys(
                siblings(plan.layout), (result.records, "records")
            )
            expected[None] = (result.records - result.tombstones, "records with values")
            expected[dead] = (result.dead_letters, "dead letters")
            for part, (count, what) in expected.items():
                if records[result.id, part] != count:
                    raise ValueError(f"the objects of slice {result.id} do not add up to its {count} {what}")


class Amend(Document, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Keys of a committed batch that an operator accepted as lost."""

    batch: int
    keys: tuple[str, ...]
    reason: str
    operator: str


class ContentHash:
    """Digest that identifies the records of an object.

    SHA-256 over the topic id, then per slice the Kafka partition and the record offsets as little-endian int64 in file
    order. A Kafka record never changes, so equal digests under one plan mean equal data, whatever library wrote it.
    """

    def __init__(self, topic_id: str, partition: int) -> None:
        self._hash = hashlib.sha256(topic_id.encode() + b"\0" + partition.to_bytes(8, "little"))

    def update(self, offsets: Iterable[int] | memoryview | bytes) -> None:
        """Add offsets: their little-endian int64 bytes, or integers."""
        if not isinstance(offsets, bytes | memoryview):
            offsets = b"".join(o.to_bytes(8, "little") for o in offsets)
        self._hash.update(offsets)

    def hexdigest(self) -> str:
        """The digest so far."""
        return self._hash.hexdigest()
