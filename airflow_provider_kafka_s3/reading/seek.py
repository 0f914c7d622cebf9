"""Finds landed records by their offset.

The log has the batch of an offset, and its manifest the objects that may have it. The index of an object of blocks has
the block: one request gets it, whatever the size of the object. Of other objects all bytes are read.
"""

from __future__ import annotations

import base64
import copy
import gzip
import heapq
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Final

import msgspec

from airflow_provider_kafka_s3.batch.coverage import covering_downward
from airflow_provider_kafka_s3.batch.log import TopicLog
from airflow_provider_kafka_s3.config import BlockGzip, Envelope, Format, JsonLines, SiblingObjects
from airflow_provider_kafka_s3.documents.manifest import Manifest, ObjectEntry, SlicePart
from airflow_provider_kafka_s3.documents.marker import Marker
from airflow_provider_kafka_s3.documents.offsets import Offsets, Ranges, certain_ranges, coalesce, subtract
from airflow_provider_kafka_s3.documents.plan import Plan
from airflow_provider_kafka_s3.exceptions import (
    ConfigurationError,
    DataLossError,
    LogTamperedError,
)
from airflow_provider_kafka_s3.messages import count
from airflow_provider_kafka_s3.reading.committed_objects import CommittedObjects
from airflow_provider_kafka_s3.reading.rows import Json, Row, Unreadable, as_text, rows_of, uncompressed

__all__ = ["SoughtRecord", "seek"]

_CONTROL: Final = re.compile("[\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


@dataclass(frozen=True, kw_only=True)
class SoughtRecord:
    """A record as an object holds it.

    Attributes:
        partition: the Kafka partition.
        offset: of the record; None: its object does not keep it, see ``between``.
        between: if the offset is not known, the range ``[first, end)`` that it is in.
        timestamp: in milliseconds, if the object keeps it.
        key: of the record, if the object or one beside it keeps it; None: it is null, or not kept.
        value: what the object has as value: a document, text, a row; bytes that are no text as their base64.
        headers: of the record, if they are kept.
        raw: bytes of the row in the object.
        object: key of the object.
        reason: why the record is a dead letter; None: it is none.
        kept: which of ``timestamp``, ``key`` and ``headers`` are kept.
    """

    partition: int
    offset: int | None
    between: tuple[int, int] | None = None
    timestamp: int | None = None
    key: Json = None
    value: Json = None
    headers: Json = None
    raw: bytes = b""
    object: str = ""
    reason: str | None = None
    kept: frozenset[str] = frozenset()

    def fields(self) -> dict[str, Any]:
        """The record for people and programs: what is known of it."""
        found: dict[str, Any] = {"partition": self.partition, "offset": self.offset}
        if self.between is not None:
            found["offset_between"] = list(self.between)
        for name in ("timestamp", "key", "headers"):
            if name in self.kept:
                found[name] = getattr(self, name)
        found["value"] = self.value
        if self.reason is not None:
            found["dead_letter"] = self.reason
        return {**found, "object": self.object}

    def line(self) -> str:
        """:meth:`fields` as a line of JSON; documents are as they were written, but for control characters."""
        text = msgspec.json.encode(self.fields()).decode()
        # JSON allows some of them in texts, where an escape means the same.
        return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def seek(
    log: TopicLog,
    partition: int,
    offset: int,
    *,
    records: int = 1,
    whole_block: bool = False,
    generation: int | None = None,
) -> list[SoughtRecord]:
    """The landed records of a Kafka partition from an offset on, in the order of their offsets.

    Offsets without a record (such as markers of transactions, and null values that were left out) are passed over, as a
    consumer does.

    Args:
        log: of the topic.
        partition: the Kafka partition.
        offset: the first one.
        records: how many, at most; fewer are returned at the end of what is landed, and before a gap.
        whole_block: if the format does not keep which record has the offset, return all records of the block, or of the
            object, that has it.
        generation: how many times the topic had been reset when the records were landed; None: the latest one.

    Raises:
        ConfigurationError: the offset is not landed; or which record has it is not known, without ``whole_block``.
        DataLossError: the offset was accepted as lost.
        MissingObjectError: an object is gone.
        ForeignObjectError: an object is not readable as the manifest and the plan describe it.
    """
    marker, _ = log.require_marker()
    generation = marker.generation if generation is None else generation
    if not 0 <= generation <= marker.generation:
        raise ConfigurationError(
            f"topic {log.topic!r} has no generation {generation}: it was reset {count(marker.generation, 'time')}"
        )
    _require_landed(log, marker, generation, partition, offset)
    found: list[SoughtRecord] = []
    at, covered, lost = offset, marker.covered_in(generation), marker.lost_in(generation)
    while covered & _one(partition, at) and not lost & _one(partition, at):
        plan, decision = _batch_of(log, marker, generation, partition, at)
        end = next(end for start, end in plan.claim[partition] if start <= at < end)
        for record in _Batch(log, plan, decision, partition, (at, end), whole_block=whole_block).records():
            if record.offset is None or not found or found[-1].offset is not None:
                found.append(record)
            if len(found) >= records and found[-1].offset is not None:
                return found
        if found and found[-1].offset is None:
            return found
        at = end
    return found


def _one(partition: int, offset: int) -> Offsets:
    return Offsets({partition: [(offset, offset + 1)]})


def _require_landed(log: TopicLog, marker: Marker, generation: int, partition: int, offset: int) -> None:
    where = f"topic {log.topic!r}, partition {partition}, offset {offset}"
    one = _one(partition, offset) if offset >= 0 and partition >= 0 else None
    covered = marker.covered_in(generation)
    if one is None or not covered & one:
        ranges = covered[partition] if partition >= 0 else ()
        landed = ", ".join(f"[{start}, {end})" for start, end in ranges[-3:])
        known = f"landed are {landed}" if landed else "nothing is landed of the partition"
        raise ConfigurationError(f"{where} is not landed: {known}. `kafka-s3 status` shows open batches and gaps")
    if marker.lost_in(generation) & one:
        raise DataLossError(f"{where} was accepted as lost: it is in no object")


def _batch_of(log: TopicLog, marker: Marker, generation: int, partition: int, offset: int) -> tuple[Plan, Manifest]:
    """The committed batch with an offset."""
    low, high = 1, marker.last_resolved
    # Most batches continue where others ended, so their order is that of the offsets.
    while low <= high:
        middle = (low + high) // 2
        plan, _ = log.require_plan(middle)
        ranges = plan.claim[partition] if plan.generation == generation else ()
        if (decision := _committed(log, plan, generation, partition, offset)) is not None:
            return plan, decision
        if plan.generation < generation or (ranges and offset >= ranges[-1][1]):
            low = middle + 1
        elif plan.generation > generation or (ranges and offset < ranges[0][0]):
            high = middle - 1
        else:
            break
    for found in covering_downward(log, _one(partition, offset), generation=generation, marker=marker):
        return found.plan, found.decision
    raise LogTamperedError(
        f"topic {log.topic!r}, partition {partition}: the marker has offset {offset} as landed, and its batch was "
        f"abandoned. Nothing was changed. Compare the marker with the log: {log.remedies.repair()}"
    )


def _committed(log: TopicLog, plan: Plan, generation: int, partition: int, offset: int) -> Manifest | None:
    """The decision about a batch that has an offset; None if it has not landed it."""
    if plan.generation != generation or not plan.claim & _one(partition, offset):
        return None
    decision = log.read_manifest(plan.batch)
    return decision if decision is not None and decision.status == "commit" else None


class _Batch:
    """The records of a Kafka partition in a range of offsets that one batch has landed."""

    def __init__(
        self,
        log: TopicLog,
        plan: Plan,
        decision: Manifest,
        partition: int,
        within: tuple[int, int],
        *,
        whole_block: bool,
    ) -> None:
        self.objects = CommittedObjects(log, plan, decision)
        self.plan = plan
        self.layout = self.objects.layout
        self.partition = partition
        self.within = within
        self.whole_block = whole_block

    def records(self) -> Iterator[SoughtRecord]:
        """In the order of their offsets; an object is read when its first offset is reached."""
        objects = [*self._objects()]
        whole = {entry.key: (p.min_offset, p.max_offset + 1) for entry, p, _ in objects if not p.has_gaps}
        without_gaps = coalesce(whole.values())
        readers = []
        for number, (entry, part, before) in enumerate(objects):
            # What an object without gaps has is in no other one.
            left: Ranges = ((max(part.min_offset, self.within[0]), min(part.max_offset + 1, self.within[1])),)
            if entry.key not in whole:
                left = subtract(left, without_gaps)
            if left:
                readers.append(self._beginning_at(left[0][0])._object(number, entry, part, before))
        merged, candidates = heapq.merge(*readers), False
        for place, _, _, record in merged:
            if candidates and place > self.within[0]:
                return  # what follows is not read
            if record is not None:
                candidates |= record.offset is None
                yield record

    def _beginning_at(self, offset: int) -> _Batch:
        """The same, from an offset on; candidates are wanted for the sought offset only."""
        other = copy.copy(self)
        other.within = (offset, self.within[1])
        other.whole_block = self.whole_block and offset == self.within[0]
        return other

    def _objects(self) -> Iterator[tuple[ObjectEntry, SlicePart, int]]:
        """The objects with records in the range: of values, dead letters, and of null values; with the rows before."""
        for entry in self.objects.of_records():
            before = 0
            for part in entry.by_slice:
                is_here = self.plan.slices[part.id].partition == self.partition
                if is_here and part.min_offset < self.within[1] and part.max_offset >= self.within[0]:
                    yield entry, part, before
                before += part.records

    def _object(
        self, number: int, entry: ObjectEntry, part: SlicePart, before: int
    ) -> Iterator[tuple[int, int, int, SoughtRecord | None]]:
        # Until this is the smallest item, nothing of the object is read.
        yield self.within[0], number, -1, None
        if self.objects.is_dead_letters(entry):
            found: Iterator[SoughtRecord | int] = self._whole(JsonLines(), entry, part, before, _of_dead_letter)
        elif self.objects.sibling(entry) is not None:
            found = self._tombstones(entry, part, before)
        else:
            of = _of_envelope if isinstance(self.layout.content, Envelope) else None
            whole = partial(self._whole, self.layout.format, entry, part, before, of)
            found = whole()
            if isinstance(self.layout.format, BlockGzip):
                found = self._blocks(self.layout.format, entry, whole)
        for at, record in enumerate(found):
            if isinstance(record, int):
                yield max(record, self.within[0]), number, at, None
            else:
                yield self.within[0] if record.offset is None else record.offset, number, at, record

    def _whole(
        self,
        settings: Format,
        entry: ObjectEntry,
        part: SlicePart,
        before: int,
        complete: Callable[[ObjectEntry, Row], SoughtRecord] | None,
    ) -> Iterator[SoughtRecord]:
        """Records of an object that is read as a whole."""
        body = self._expanded(entry, settings)
        if complete is not None:
            rows = self._rows(entry, settings, body, entry.records, slice(before, before + part.records))
            yield from self._from(complete(entry, row) for row in rows)
            return
        unit = _Unit(part.min_offset, part.max_offset + 1, part.records, before, None)
        yield from self._unit(entry, unit, lambda wanted: self._rows(entry, settings, body, entry.records, wanted))

    def _blocks(
        self, settings: BlockGzip, entry: ObjectEntry, whole: Callable[[], Iterator[SoughtRecord]]
    ) -> Iterator[SoughtRecord | int]:
        """Records of an object of blocks, and before those of a block its first offset.

        There is a request for the index, and one for each block when it is needed. Of an object whose index was
        accepted as lost, all bytes are read.
        """
        try:
            chunks, before = self.objects.chunks(entry), 0
        except DataLossError:
            yield from whole()
            return
        for chunk in chunks:
            end = chunk.next_record_offset
            assert end is not None, "its bytes are those that were written"
            unit = _Unit(chunk.first_record_offset, end, chunk.num_records, before, chunk.offset_ranges)
            before += chunk.num_records
            if unit.end > self.within[0] and unit.first < self.within[1]:
                yield unit.first
                place = (chunk.byte_offset, chunk.byte_offset + chunk.byte_length)
                yield from self._block(settings, entry, unit, place)

    def _block(
        self, settings: BlockGzip, entry: ObjectEntry, unit: _Unit, place: tuple[int, int]
    ) -> Iterator[SoughtRecord]:
        is_enveloped = isinstance(self.layout.content, Envelope)
        if not is_enveloped:
            self._require_known(entry, unit, "block")
        piece = self.objects.get(entry, *place)
        try:
            text = gzip.decompress(piece)
        except (OSError, EOFError, ValueError) as e:
            raise self.objects.unreadable(entry, f"its block at byte {place[0]} is damaged ({e})") from e

        def rows(wanted: slice) -> list[Row]:
            inside = slice(wanted.start - unit.before, wanted.stop - unit.before)
            return self._rows(entry, settings.lines, text, unit.records, inside)

        if is_enveloped:
            whole = rows(slice(unit.before, unit.before + unit.records))
            yield from self._from(_of_envelope(entry, row) for row in whole)
        else:
            yield from self._unit(entry, unit, rows)

    def _tombstones(self, entry: ObjectEntry, part: SlicePart, before: int) -> Iterator[SoughtRecord]:
        """Records without values: their keys and headers alone."""
        unit = _Unit(part.min_offset, part.max_offset + 1, part.records, before, None)
        none = Row(b"", None)
        yield from self._unit(entry, unit, lambda wanted: [none] * (wanted.stop - wanted.start))

    def _unit(self, entry: ObjectEntry, unit: _Unit, rows: Callable[[slice], list[Row]]) -> Iterator[SoughtRecord]:
        """Records of a block or an object whose rows have no offsets."""
        beside = _Beside(self, entry)
        if not unit.is_known and not unit.is_edge(self.within[0]):
            self._require_known(entry, unit, "object")
            found = rows(slice(unit.before, unit.before + unit.records))
            for number, row in enumerate(found, start=unit.before):
                yield beside.record(row, number, None, (unit.first, unit.end))
            return
        for numbers in unit.runs(*self.within):
            first = unit.before + numbers[0][0]
            found = rows(slice(first, first + len(numbers)))
            for (number, offset), row in zip(numbers, found, strict=True):
                yield beside.record(row, unit.before + number, offset, None)
        if not unit.is_known and self.within[0] <= unit.first < unit.end - 1:
            raise self._unknown(entry, unit, "block" if unit.records < entry.records else "object", unit.first + 1)

    def _from(self, records: Iterator[SoughtRecord]) -> Iterator[SoughtRecord]:
        """Those in the range, of records that have their offset and their partition."""
        for record in records:
            assert record.offset is not None, "the object keeps it"
            if record.partition == self.partition and self.within[0] <= record.offset < self.within[1]:
                yield record

    def _rows(self, entry: ObjectEntry, settings: Format, body: bytes, count: int, wanted: slice) -> list[Row]:
        try:
            return rows_of(settings, body, count, wanted)
        except Unreadable as e:
            raise self.objects.unreadable(entry, str(e)) from e

    def _expanded(self, entry: ObjectEntry, settings: Format) -> bytes:
        try:
            return uncompressed(settings, self.objects.get(entry))
        except Unreadable as e:
            raise self.objects.unreadable(entry, str(e)) from e

    def _require_known(self, entry: ObjectEntry, unit: _Unit, what: str) -> None:
        """Refuse rows whose offsets are not known, unless one of them may be the sought record and all are wanted."""
        wanted = self.whole_block and unit.first <= self.within[0] < unit.end
        if not (unit.is_known or wanted or unit.is_edge(self.within[0])):
            raise self._unknown(entry, unit, what, self.within[0])

    def _unknown(self, entry: ObjectEntry, unit: _Unit, what: str, offset: int) -> ConfigurationError:
        return ConfigurationError(
            f"topic {self.plan.topic!r}, partition {self.partition}: which record has offset {offset} is not "
            f"known. Its {what} has {unit.records:,} records with offsets from {unit.first} to {unit.end - 1}, so "
            f"there are gaps between them, and its format keeps no offsets (content='envelope' does). To get all of "
            f"them, one of which it may be, use --whole-block (whole_block=True): {self.objects.url(entry)}"
        )


@dataclass(frozen=True)
class _Unit:
    """Rows of an object, and their offsets.

    Attributes:
        first: offset of the first one.
        end: one past the offset of the last one.
        records: number of rows.
        before: rows of the object before them.
        ranges: of their offsets; None: these are not kept.
    """

    first: int
    end: int
    records: int
    before: int
    ranges: Sequence[Sequence[int]] | None

    @property
    def is_known(self) -> bool:
        """Whether the offset of each row is known."""
        return self.known is not None

    @property
    def known(self) -> Sequence[Sequence[int]] | None:
        """The ranges of the offsets of the rows; None: they are not known."""
        return certain_ranges(self.first, self.end, self.records) if self.ranges is None else self.ranges

    def is_edge(self, offset: int) -> bool:
        """Whether the first row, which a reader from an offset on gets first, or the last one, has a known offset."""
        return offset <= self.first or offset == self.end - 1

    def runs(self, start: int, stop: int) -> Iterator[list[tuple[int, int]]]:
        """Number of the row and offset, of those in a range of offsets, as far as they are known."""
        known = self.known
        if known is None:
            known = [(self.first, self.first + 1)] if start <= self.first else []
            if start == self.end - 1:
                yield [(self.records - 1, start)]
        number = 0
        for first, end in known:
            if found := [(number + o - first, o) for o in range(max(first, start), min(end, stop))]:
                yield found
            number += end - first


class _Beside:
    """Keys and headers of the rows of an object, read when the first one is needed."""

    def __init__(self, batch: _Batch, entry: ObjectEntry) -> None:
        self._batch = batch
        self._entry = entry

    @cached_property
    def _parts(self) -> dict[str, list[Row]]:
        content, batch = self._batch.layout.content, self._batch
        if not isinstance(content, SiblingObjects):
            return {}
        found: dict[str, list[Row]] = {}
        for name, settings in content.siblings.items():
            entry = batch.objects.beside(self._entry, name)
            body = batch._expanded(entry, settings)
            found[name] = batch._rows(entry, settings, body, entry.records, slice(0, entry.records))
        return found

    def record(self, row: Row, number: int, offset: int | None, between: tuple[int, int] | None) -> SoughtRecord:
        """The record of a row."""
        beside = {name: rows[number].json for name, rows in self._parts.items()}
        return SoughtRecord(
            partition=self._batch.partition,
            offset=offset,
            between=between,
            key=beside.get(".keys"),
            headers=_headers(beside.get(".headers")),
            value=row.json,
            raw=row.raw,
            object=self._entry.key,
            kept=frozenset({".keys": "key", ".headers": "headers"}[name] for name in beside),
        )


def _headers(found: Json) -> Json:
    """JSON lines of headers are records with one field."""
    parsed = msgspec.json.decode(found) if isinstance(found, msgspec.Raw) else found
    return parsed["headers"] if isinstance(parsed, dict) and "headers" in parsed else parsed


def _of_envelope(entry: ObjectEntry, row: Row) -> SoughtRecord:
    found, null = msgspec.json.decode(row.raw, type=dict[str, msgspec.Raw]), msgspec.Raw(b"null")
    return SoughtRecord(
        partition=msgspec.json.decode(found["partition"], type=int),
        offset=msgspec.json.decode(found["offset"], type=int),
        timestamp=msgspec.json.decode(found["timestamp"]),
        # Parquet has no column of nulls before the first key, and value, with a schema.
        key=found.get("key", null),
        value=found.get("value", null),
        headers=found["headers"],
        raw=row.raw,
        object=entry.key,
        kept=frozenset({"timestamp", "key", "headers"}),
    )


def _of_dead_letter(entry: ObjectEntry, row: Row) -> SoughtRecord:
    found = json.loads(row.raw)

    def data(text: str | None) -> Json:
        return None if text is None else as_text(base64.b64decode(text))

    return SoughtRecord(
        partition=found["partition"],
        offset=found["offset"],
        timestamp=found["timestamp"],
        key=data(found["key"]),
        value=data(found["value"]),
        headers=[{"key": h["key"], "value": data(h["value"])} for h in found["headers"]],
        raw=b"" if found["value"] is None else base64.b64decode(found["value"]),
        object=entry.key,
        reason=found["reason"],
        kept=frozenset({"timestamp", "key", "headers"}),
    )
