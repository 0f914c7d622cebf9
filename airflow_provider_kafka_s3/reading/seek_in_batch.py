"""Records of one batch by their offset: its objects, in the order of their offsets, and what is beside them."""

from __future__ import annotations

import copy
import gzip
import heapq
import itertools
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Final

from airflow_provider_kafka_s3.batch.log import TopicLog
from airflow_provider_kafka_s3.config import BlockGzip, Envelope, Format, JsonLines, SiblingObjects
from airflow_provider_kafka_s3.documents.manifest import Manifest, ObjectEntry, SlicePart
from airflow_provider_kafka_s3.documents.offsets import Ranges, coalesce, subtract
from airflow_provider_kafka_s3.documents.plan import Plan
from airflow_provider_kafka_s3.exceptions import ConfigurationError, DataLossError
from airflow_provider_kafka_s3.messages import count
from airflow_provider_kafka_s3.reading.committed_objects import CommittedObjects
from airflow_provider_kafka_s3.reading.formats.registry import format_reader
from airflow_provider_kafka_s3.reading.row_offsets import RowOffsets
from airflow_provider_kafka_s3.reading.rows import Row, Unreadable
from airflow_provider_kafka_s3.reading.sought import SoughtRecord, of_dead_letter, of_envelope, text_headers

__all__ = ["BatchSeek"]

_FIRST_ROWS: Final = 1_000
"""Rows of a block or an object that are made first; then twice as many each time."""
_NAMES: Final = {".keys": "key", ".headers": "headers"}
"""The parts of records that objects beside others have."""


class BatchSeek:
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

    def _beginning_at(self, offset: int) -> BatchSeek:
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
            records: Iterator[SoughtRecord | int] = self._whole(JsonLines(), entry, part, before, of_dead_letter)
        elif self.objects.sibling(entry) is not None:
            records = self._tombstones(entry, part, before)
        else:
            of = of_envelope if isinstance(self.layout.content, Envelope) else None
            whole = partial(self._whole, self.layout.format, entry, part, before, of)
            records = whole()
            if isinstance(self.layout.format, BlockGzip):
                records = self._blocks(self.layout.format, entry, whole)
        for position, record in enumerate(records):
            if isinstance(record, int):
                yield max(record, self.within[0]), number, position, None
            else:
                yield self.within[0] if record.offset is None else record.offset, number, position, record

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
        unit = _Unit(RowOffsets.of_part(part), before)
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
            unit = _Unit(RowOffsets.of_chunk(chunk), before)
            before += chunk.num_records
            if unit.offsets.end > self.within[0] and unit.offsets.first < self.within[1]:
                yield unit.offsets.first
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
        except (OSError, EOFError, ValueError, zlib.error) as e:
            raise self.objects.unreadable(entry, f"its block at byte {place[0]} is damaged ({e})") from e

        def rows(wanted: slice) -> list[Row]:
            inside = slice(wanted.start - unit.before, wanted.stop - unit.before)
            return self._rows(entry, settings.lines, text, unit.offsets.records, inside)

        if is_enveloped:
            whole = rows(slice(unit.before, unit.before + unit.offsets.records))
            yield from self._from(of_envelope(entry, row) for row in whole)
        else:
            yield from self._unit(entry, unit, rows)

    def _tombstones(self, entry: ObjectEntry, part: SlicePart, before: int) -> Iterator[SoughtRecord]:
        """Records without values: their keys and headers alone."""
        unit = _Unit(RowOffsets.of_part(part), before)
        none = Row(b"", None)
        yield from self._unit(entry, unit, lambda wanted: [none] * (wanted.stop - wanted.start))

    def _unit(self, entry: ObjectEntry, unit: _Unit, rows: Callable[[slice], list[Row]]) -> Iterator[SoughtRecord]:
        """Records of a block or an object whose rows have no offsets."""
        beside, offsets = _Beside(self, entry), unit.offsets
        if not offsets.is_known and not unit.is_edge(self.within[0]):
            self._require_known(entry, unit, "object")
            selected = rows(slice(unit.before, unit.before + offsets.records))
            for number, row in enumerate(selected, start=unit.before):
                yield beside.record(row, number, None, (offsets.first, offsets.end))
            return
        for numbers in unit.pieces(*self.within):
            first = unit.before + numbers[0][0]
            selected = rows(slice(first, first + len(numbers)))
            for (number, offset), row in zip(numbers, selected, strict=True):
                yield beside.record(row, unit.before + number, offset, None)
        if not offsets.is_known and self.within[0] <= offsets.first < offsets.end - 1:
            container = "block" if offsets.records < entry.records else "object"
            raise self._unknown(entry, unit, container, offsets.first + 1)

    def _from(self, records: Iterator[SoughtRecord]) -> Iterator[SoughtRecord]:
        """Those in the range, of records that have their offset and their partition."""
        for record in records:
            assert record.offset is not None, "the object keeps it"
            if record.partition == self.partition and self.within[0] <= record.offset < self.within[1]:
                yield record

    def _rows(self, entry: ObjectEntry, settings: Format, body: bytes, count: int, wanted: slice) -> list[Row]:
        try:
            return format_reader(settings).rows(body, count, wanted)
        except Unreadable as e:
            raise self.objects.unreadable(entry, str(e)) from e

    def _expanded(self, entry: ObjectEntry, settings: Format) -> bytes:
        try:
            return format_reader(settings).uncompressed(self.objects.get(entry))
        except Unreadable as e:
            raise self.objects.unreadable(entry, str(e)) from e

    def _require_known(self, entry: ObjectEntry, unit: _Unit, what: str) -> None:
        """Refuse rows whose offsets are not known, unless one of them may be the sought record and all are wanted."""
        wanted = self.whole_block and unit.offsets.first <= self.within[0] < unit.offsets.end
        if not (unit.offsets.is_known or wanted or unit.is_edge(self.within[0])):
            raise self._unknown(entry, unit, what, self.within[0])

    def _unknown(self, entry: ObjectEntry, unit: _Unit, what: str, offset: int) -> ConfigurationError:
        why = "an earlier version wrote its index without them" if what == "block" else "its format keeps no offsets"
        rows = unit.offsets
        return ConfigurationError(
            f"topic {self.plan.topic!r}, partition {self.partition}: which record has offset {offset} is not known. "
            f"Its {what} has {count(rows.records, 'record')} with offsets from {rows.first} to {rows.end - 1}, so "
            f"there are gaps between them, and {why} (content='envelope' keeps offsets). To get all of them, one of "
            f"which it may be, use --whole-block (whole_block=True): {self.objects.url(entry)}"
        )


@dataclass(frozen=True)
class _Unit:
    """Rows of an object that follow one another.

    Attributes:
        offsets: of the rows.
        before: rows of the object before them.
    """

    offsets: RowOffsets
    before: int

    def is_edge(self, offset: int) -> bool:
        """Whether the first row, which a reader from an offset on gets first, or the last one, has a known offset."""
        return offset <= self.offsets.first or offset == self.offsets.end - 1

    def pieces(self, start: int, stop: int) -> Iterator[list[tuple[int, int]]]:
        """Number of the row and offset, of those in a range of offsets, as far as they are known.

        Those of a piece follow one another. Pieces grow: few rows are made for a few records, and the lines of a block
        are not counted again and again for many.
        """
        if (ranges := self.offsets.ranges()) is not None:
            numbered, size = _numbered(ranges, start, stop), _FIRST_ROWS
            while piece := [*itertools.islice(numbered, size)]:
                yield piece
                size *= 2
        elif start <= self.offsets.first < stop:
            yield [(0, self.offsets.first)]
        elif start == self.offsets.end - 1:
            yield [(self.offsets.records - 1, start)]


def _numbered(ranges: Iterable[tuple[int, int]], start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Number and offset of each record with an offset in ``[start, stop)``."""
    number = 0
    for first, end in ranges:
        if first >= stop:
            return
        for offset in range(max(first, start), min(end, stop)):
            yield number + offset - first, offset
        number += end - first


class _Beside:
    """Keys and headers of the rows of an object, read when the first one is needed.

    Those in an object that was accepted as lost are left out: the values are there nevertheless.
    """

    def __init__(self, batch: BatchSeek, entry: ObjectEntry) -> None:
        self._batch = batch
        self._entry = entry
        self._lost: set[str] = set()

    @cached_property
    def _parts(self) -> dict[str, list[Row]]:
        content, batch = self._batch.layout.content, self._batch
        if not isinstance(content, SiblingObjects):
            return {}
        parts: dict[str, list[Row]] = {}
        for name, settings in content.siblings.items():
            entry = batch.objects.beside(self._entry, name)
            try:
                body = batch._expanded(entry, settings)
            except DataLossError:
                if entry == self._entry:
                    raise  # of null values it is the record
                self._lost.add(_NAMES[name])
                continue
            parts[name] = batch._rows(entry, settings, body, entry.records, slice(0, entry.records))
        return parts

    def record(self, row: Row, number: int, offset: int | None, between: tuple[int, int] | None) -> SoughtRecord:
        """The record of a row."""
        beside = {name: rows[number].json for name, rows in self._parts.items()}
        return SoughtRecord(
            partition=self._batch.partition,
            offset=offset,
            between=between,
            key=beside.get(".keys"),
            headers=text_headers(beside.get(".headers")),
            value=row.json,
            raw=row.raw,
            object=self._entry.key,
            kept=frozenset(_NAMES[name] for name in beside),
            lost=frozenset(self._lost),
        )
