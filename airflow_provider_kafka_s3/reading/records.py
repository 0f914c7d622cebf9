"""The records of an object as Kafka had them: their bytes, and not what these are.

An object is read from its beginning to its end, a few megabytes at a time. What a layout does not keep is known before
anything is read, see :func:`kept_parts`.
"""

from __future__ import annotations

import base64
import functools
import itertools
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, cast

import msgspec
import pyarrow as pa
from isal import isal_zlib

from airflow_provider_kafka_s3.batch.log import TopicLog
from airflow_provider_kafka_s3.config import (
    BlockGzip,
    BytesConverter,
    Converter,
    Envelope,
    Format,
    JsonConverter,
    JsonLines,
    Layout,
    SiblingObjects,
)
from airflow_provider_kafka_s3.documents.manifest import Manifest, ObjectEntry, SlicePart
from airflow_provider_kafka_s3.documents.plan import Plan
from airflow_provider_kafka_s3.exceptions import (
    ConfigurationError,
    DataLossError,
)
from airflow_provider_kafka_s3.messages import count
from airflow_provider_kafka_s3.reading.committed_objects import CommittedObjects
from airflow_provider_kafka_s3.reading.envelope_lines import parse_lines, read_lines
from airflow_provider_kafka_s3.reading.envelopes import EnvelopeColumns
from airflow_provider_kafka_s3.reading.field_bytes import EnvelopedBytes, IgnoredBytes
from airflow_provider_kafka_s3.reading.formats.port import FormatReader
from airflow_provider_kafka_s3.reading.formats.registry import format_reader
from airflow_provider_kafka_s3.reading.lines import LineBlock
from airflow_provider_kafka_s3.reading.record import Record, Records
from airflow_provider_kafka_s3.reading.remote_file import REQUEST, RemoteFile
from airflow_provider_kafka_s3.reading.row_offsets import RowOffsets
from airflow_provider_kafka_s3.reading.rows import AMBIGUOUS

__all__ = [
    "KeptParts",
    "PartName",
    "Record",
    "Records",
    "keeps_offsets",
    "kept_parts",
    "read_object",
    "read_records",
    "record_objects",
]

PartName: TypeAlias = Literal["key", "value", "headers", "timestamp", "offset"]

_PARTS: Final[tuple[PartName, ...]] = ("key", "value", "headers", "timestamp", "offset")
_PIECE: Final = 1024 * 1024
"""Bytes of values that are read at once, about."""
_ROWS: Final = 16_384
"""Values of records without one that are given at once at most."""

_ISAL_ERROR: Final = cast("type[Exception]", isal_zlib.error)
"""Of a damaged gzip member; its stub has an instance in place of the class."""

_Some: TypeAlias = tuple[Records, EnvelopeColumns | None]
"""Records, and the columns that they are made of, if they are."""


@dataclass(frozen=True, kw_only=True)
class KeptParts:
    """Which parts of records the objects of a layout keep exactly.

    Attributes:
        missing: the parts that are not kept, and why.
        notes: what differs in some records, by the part that is kept otherwise.
    """

    missing: Mapping[PartName, str]
    notes: Mapping[PartName, str]

    @property
    def kept(self) -> frozenset[PartName]:
        """The parts that are kept."""
        return frozenset(_PARTS) - self.missing.keys()


def kept_parts(layout: Layout) -> KeptParts:
    """Which of key, value, headers, timestamp and offset the objects of a layout keep as Kafka had them.

    An offset that is not kept is known nevertheless where the offsets of an object have no gaps.

    Args:
        layout: of the objects.
    """
    missing: dict[PartName, str] = {}
    notes: dict[PartName, str] = {}
    content, converter = layout.content, layout.value_converter or BytesConverter()
    is_enveloped = isinstance(content, Envelope)
    reader = format_reader(layout.format)
    key_reader: FormatReader | None = reader
    if isinstance(content, SiblingObjects):
        key_reader = None if content.keys is None else format_reader(content.keys)
        if content.headers is None:
            missing["headers"] = "content='siblings' has no headers: it has headers=None"
    elif not is_enveloped:
        key_reader = None
        missing["headers"] = "content='values' has values only"
    if not is_enveloped:
        missing["timestamp"] = missing["offset"] = f"content={content.__struct_config__.tag!r} keeps none"
    if why := reader.why_changed(converter, "value"):
        missing["value"] = why
    elif note := _note(reader, converter, may_be_null=is_enveloped and layout.format.on_null == "write"):
        notes["value"] = note
    if key_reader is None:
        missing["key"] = f"content={content.__struct_config__.tag!r} has no objects of keys"
    elif why := key_reader.why_changed(layout.key_converter, "key"):
        missing["key"] = why
    elif note := _note(key_reader, layout.key_converter, may_be_null=is_enveloped):
        notes["key"] = note
    return KeptParts(missing=missing, notes=notes)


def _note(reader: FormatReader, converter: Converter, *, may_be_null: bool) -> str | None:
    if not reader.rewrites_documents(converter):
        return None
    note = "a document with newlines was rewritten in one line"
    return (
        f"{note}; the document `null`, or one of no bytes, is a null, as all are written alike" if may_be_null else note
    )


def record_objects(log: TopicLog, plan: Plan, decision: Manifest) -> list[ObjectEntry]:
    """The objects of a committed batch that records are read from: of values, dead letters and of null values.

    Objects beside these, and indices, are read with them.

    Args:
        log: the control documents of the topic.
        plan: of the batch.
        decision: its manifest.
    """
    return CommittedObjects(log, plan, decision).of_records()


def read_records(log: TopicLog, plan: Plan, decision: Manifest, entry: ObjectEntry) -> Iterator[Records]:
    """The records of an object, in their order there, about a megabyte at a time.

    Args:
        log: the control documents of the topic.
        plan: of the batch.
        decision: its manifest.
        entry: one of :func:`record_objects`.

    Raises:
        ConfigurationError: its layout does not keep the values, see :func:`kept_parts`.
        DataLossError: the object was accepted as lost.
        MissingObjectError: the object is gone.
        ForeignObjectError: it is not readable as the manifest and the plan describe it.
    """
    return read_object(CommittedObjects(log, plan, decision), entry)


def read_object(
    objects: CommittedObjects, entry: ObjectEntry, *, without: Sequence[str] = (), request: int = REQUEST
) -> Iterator[Records]:
    """The records of an object, as :func:`read_records` gives them.

    Args:
        objects: of the batch.
        entry: one of ``objects.of_records()``.
        without: what is not read beside it, ``.keys`` or ``.headers``: it is lost.
        request: bytes of a request, for readers of many objects at once. Less than a megabyte also bounds the records
            that are given at a time.
    """
    return _Object(objects, entry, without, request).records()


def keeps_offsets(objects: CommittedObjects, entry: ObjectEntry, part: SlicePart, *, with_index: bool = True) -> bool:
    """Whether the offset of each record of a slice in an object is known.

    Args:
        objects: of the batch.
        entry: one of ``objects.of_records()``.
        part: one of ``entry.by_slice``.
        with_index: whether the index of an object of blocks is read, if it depends on that.
    """
    if isinstance(objects.layout.content, Envelope) or objects.is_dead_letters(entry):
        return True
    if RowOffsets.of_part(part).is_known:
        return True
    return with_index and _Object(objects, entry).has_offsets_in_index()


class _Object:
    """An object, and those beside it."""

    def __init__(
        self, objects: CommittedObjects, entry: ObjectEntry, without: Sequence[str] = (), request: int = REQUEST
    ) -> None:
        self._objects = objects
        self._request = request
        self._without = without
        self._plan = objects.plan
        self._layout = objects.layout
        self._entry = entry
        self._sibling = objects.sibling(entry)

    def records(self) -> Iterator[Records]:
        """See :func:`read_records`."""
        kept, is_dead = kept_parts(self._layout), self._objects.is_dead_letters(self._entry)
        if not is_dead and "value" in kept.missing:
            raise ConfigurationError(
                f"topic {self._plan.topic!r}, batch {self._plan.batch}: the values of its objects are not those of "
                f"Kafka ({kept.missing['value']}). Nothing was read: {self._objects.url(self._entry)}"
            )
        if is_dead:
            rows_of_letters = self._rows(self._entry, JsonLines())
            return self._whole((Records.of(map(_of_dead_letter, rows)), None) for rows in rows_of_letters)
        if isinstance(self._layout.content, Envelope):
            return self._whole(self._envelopes(kept))
        return self._values(kept)

    def _whole(self, found: Iterator[_Some]) -> Iterator[Records]:
        """Records that have their partition and offset, which the manifest has, too."""
        parts = iter(self._entry.by_slice)
        partition, low, high, left = -1, 0, 0, 0
        try:
            for records, columns in found:
                start = 0
                while start < len(records):
                    if not left:
                        part = next(parts)  # rows are as many as records
                        partition, low, high = self._plan.slices[part.id].partition, part.min_offset, part.max_offset
                        left = part.records
                    piece = slice(start, min(start + left, len(records)))
                    if columns is None or not columns.are_between(piece, partition, low, high):
                        self._require_between(records[piece], partition, low, high)
                    start, left = piece.stop, left - (piece.stop - start)
                yield records
        except (KeyError, TypeError, ValueError) as e:
            raise self._objects.unreadable(self._entry, f"a row is no record ({e})") from e

    def _require_between(self, records: Records, partition: int, low: int, high: int) -> None:
        for record in records:
            offset = record.offset
            if record.partition != partition or offset is None or not low <= offset <= high:
                raise self._objects.unreadable(
                    self._entry,
                    f"it has a record of partition {record.partition}, offset {record.offset}, and the manifest others",
                )

    def _values(self, kept: KeptParts) -> Iterator[Records]:
        layout, content = self._layout, self._layout.content
        beside: dict[str, Iterator[Any]] = {}
        if isinstance(content, SiblingObjects):
            for name, settings in content.siblings.items():
                if name in self._without:
                    continue
                part_of: Callable[[Any], Any] | None = _text_headers
                if name == ".keys":
                    part_of = format_reader(settings).part_bytes(layout.key_converter) if "key" in kept.kept else None
                beside[name] = self._beside(self._objects.beside(self._entry, name), settings, part_of)
        value_of = format_reader(layout.format).part_bytes(layout.value_converter or BytesConverter())
        pieces: Iterator[list[Any]] = self._nulls()
        if self._sibling is None:
            pieces = self._rows(self._entry, layout.format)
        partitions, offsets = self._places()
        row_keys, row_headers = beside.get(".keys"), beside.get(".headers")
        try:
            for rows in pieces:
                values = rows if value_of is None or self._sibling is not None else [*map(value_of, rows)]
                of_keys = of_headers = None
                if row_keys is not None:
                    of_keys = _next(row_keys, len(rows))
                    if "key" in kept.missing:
                        of_keys = None
                if row_headers is not None:
                    of_headers = _next(row_headers, len(rows))
                places = _next(partitions, len(rows)), _next(offsets, len(rows))
                yield Records(*places, None, of_keys, values, headers=of_headers)
            for parts in beside.values():
                next(parts, None)  # the end, where the bytes are compared
        except (KeyError, TypeError, ValueError) as e:
            raise self._objects.unreadable(self._entry, f"a row is no record ({e})") from e

    def _beside(self, entry: ObjectEntry, settings: Format, part_of: Callable[[Any], Any] | None) -> Iterator[Any]:
        """The parts of records in an object beside that of values."""
        for row in itertools.chain.from_iterable(self._rows(entry, settings)):
            try:
                yield row if row is None or part_of is None else part_of(row)
            except (KeyError, TypeError, ValueError) as e:
                raise self._objects.unreadable(entry, f"a row is no part of a record ({e})") from e

    def _nulls(self) -> Iterator[list[None]]:
        """The values of records that have none."""
        for start in range(0, self._entry.records, _ROWS):
            yield [None] * min(_ROWS, self._entry.records - start)

    def _places(self) -> tuple[Iterator[int], Iterator[int | None]]:
        """Partition and offset of each row."""
        parts = [*(self._by_index() if self._has_index else self._by_slice())]
        partitions = (itertools.repeat(self._plan.slices[id_].partition, rows.records) for id_, rows in parts)
        offsets = map(_offsets, (rows for _, rows in parts))
        return itertools.chain.from_iterable(partitions), itertools.chain.from_iterable(offsets)

    def has_offsets_in_index(self) -> bool:
        """Whether there is an index, which has the offset of each record."""
        return self._has_index and all(rows.is_known for _, rows in self._by_index())

    @property
    def _has_index(self) -> bool:
        return isinstance(self._layout.format, BlockGzip) and self._sibling is None

    def _by_slice(self) -> Iterator[tuple[int, RowOffsets]]:
        """The id of each slice, and the offsets of its rows."""
        return ((part.id, RowOffsets.of_part(part)) for part in self._entry.by_slice)

    def _by_index(self) -> Iterator[tuple[int, RowOffsets]]:
        """The same by the blocks of the index; an object of blocks has one slice."""
        try:
            chunks = self._objects.chunks(self._entry)
        except DataLossError:
            return self._by_slice()
        return ((self._entry.slices[0], RowOffsets.of_chunk(chunk)) for chunk in chunks)

    def _envelopes(self, kept: KeptParts) -> Iterator[_Some]:
        layout = self._layout
        reader, converter = format_reader(layout.format), layout.value_converter or BytesConverter()
        has_documents = isinstance(converter, JsonConverter) and layout.format.on_null != "write"
        value_bytes = EnvelopedBytes(reader, converter, null_is_document=has_documents)
        key_bytes = (EnvelopedBytes if "key" in kept.kept else IgnoredBytes)(reader, layout.key_converter)
        for rows in self._rows(self._entry, layout.format, enveloped=True):
            if isinstance(rows, LineBlock):
                yield _of_lines(rows, key_bytes, value_bytes)
            elif isinstance(rows, EnvelopeColumns):
                yield _of_columns(rows, key_bytes.of_bytes(rows.keys), value_bytes.of_bytes(rows.values)), rows
            else:
                yield _of_rows(rows, key_bytes, value_bytes), None

    def _rows(self, entry: ObjectEntry, settings: Format, *, enveloped: bool = False) -> Iterator[Any]:
        """Rows of an object, some at a time, exactly as many as its manifest has.

        They are bytes of lines, or Python values; envelopes may be blocks of lines, or columns.
        """
        reader = format_reader(settings)
        if reader.may_hold_separator:
            # Then there are more rows than records, which only the end shows.
            self._require_count(entry, reader, sum(map(len, self._all_rows(entry, reader))))
        number = 0
        for rows in self._all_rows(entry, reader, enveloped=enveloped):
            number += len(rows)
            if number > entry.records:
                self._require_count(entry, reader, number)
            yield rows
        self._require_count(entry, reader, number)

    def _require_count(self, entry: ObjectEntry, reader: FormatReader, number: int) -> None:
        if number != entry.records:
            more = "more" if number > entry.records else f"{number:,}"
            why = f"it has {more} rows for {count(entry.records, 'record')}"
            if reader.may_hold_separator and number > entry.records:
                why += f": {AMBIGUOUS}"
            raise self._objects.unreadable(entry, why)

    def _all_rows(self, entry: ObjectEntry, reader: FormatReader, *, enveloped: bool = False) -> Iterator[Any]:
        file = RemoteFile(functools.partial(self._objects.get, entry), entry.size, self._request)
        piece = min(_PIECE, file.request)
        try:
            yield from reader.record_rows(file, topic=self._plan.topic, piece=piece, enveloped=enveloped)
        except (ValueError, LookupError, OSError, EOFError, _ISAL_ERROR, zlib.error, pa.ArrowException) as e:
            raise self._objects.unreadable(entry, str(e)) from e
        if reader.reads_every_byte:
            self._objects.require_crc32(entry, file.crc32)


def _offsets(rows: RowOffsets) -> Iterator[int | None]:
    """The offset of each row, if all are known."""
    known = rows.ranges()
    if known is None:
        return itertools.repeat(None, rows.records)
    return itertools.chain.from_iterable(range(start, stop) for start, stop in known)


def _next(rows: Iterator[Any], count: int) -> list[Any]:
    """The next ones.

    Raises:
        ValueError: there are fewer.
    """
    parts = [*itertools.islice(rows, count)]
    if len(parts) != count:
        raise ValueError(f"{count - len(parts)} of its parts are missing")
    return parts


def _of_columns(
    columns: EnvelopeColumns, of_keys: Sequence[bytes | None], of_values: Sequence[bytes | None]
) -> Records:
    partitions, offsets = columns.partitions.tolist(), columns.offsets.tolist()
    return Records(partitions, offsets, columns.timestamps, of_keys, of_values, headers=columns.headers)


def _of_rows(rows: list[Any], key_bytes: EnvelopedBytes, value_bytes: EnvelopedBytes) -> Records:
    """Records of tuples with the fields of envelopes."""
    if not rows:
        return Records.of(())
    row_keys, values, headers, partitions, offsets, timestamps = zip(*rows, strict=True)
    return Records(
        partitions, offsets, timestamps, key_bytes.of_rows(row_keys), value_bytes.of_rows(values), headers=headers
    )


def _of_lines(block: LineBlock, key_bytes: EnvelopedBytes, value_bytes: EnvelopedBytes) -> _Some:
    lines = read_lines(block)
    columns = lines.columns
    records = _of_columns(columns, key_bytes.of_texts(columns.keys), value_bytes.of_texts(columns.values))
    if not lines.others:
        return records, columns
    quick, parsed = iter(records), iter(_of_rows([*parse_lines(lines.others)], key_bytes, value_bytes))
    return Records.of(next(quick if has_form else parsed) for has_form in lines.has_form.tolist()), None


def _text_headers(found: Any) -> tuple[tuple[str, bytes | None], ...]:
    """Headers of an object beside that of values, which are text."""
    headers = msgspec.json.decode(found) if isinstance(found, bytes) else found
    if isinstance(headers, dict):
        headers = headers["headers"]
    return tuple((h["key"], h["value"].encode()) for h in headers or ())


def _of_dead_letter(line: bytes) -> Record:
    document = msgspec.json.decode(line)

    def data(text: str | None) -> bytes | None:
        return None if text is None else base64.b64decode(text, validate=True)

    return Record(
        document["partition"],
        document["offset"],
        document["timestamp"],
        data(document["key"]),
        data(document["value"]),
        tuple((h["key"], data(h["value"])) for h in document["headers"]),
    )
