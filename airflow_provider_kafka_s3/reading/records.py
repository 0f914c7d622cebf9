"""The records of an object as Kafka had them: their bytes, and not what these are.

An object is read from its beginning to its end, a few megabytes at a time. What a layout does not keep is known before
anything is read, see :func:`kept_parts`.
"""

from __future__ import annotations

import base64
import binascii
import functools
import io
import itertools
import operator
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, cast

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from airflow_provider_kafka_s3.batch.log import TopicLog
from airflow_provider_kafka_s3.config import (
    AvroContainer,
    BlockGzip,
    BytesConverter,
    Converter,
    Csv,
    CustomFormat,
    Envelope,
    Format,
    JsonConverter,
    JsonLines,
    Layout,
    Parquet,
    RawBytes,
    SiblingObjects,
    StringConverter,
    record_format,
)
from airflow_provider_kafka_s3.documents.manifest import Manifest, ObjectEntry, SlicePart
from airflow_provider_kafka_s3.documents.offsets import certain_ranges
from airflow_provider_kafka_s3.documents.plan import Plan
from airflow_provider_kafka_s3.exceptions import (
    ConfigurationError,
    DataLossError,
)
from airflow_provider_kafka_s3.reading.avro_file import datums
from airflow_provider_kafka_s3.reading.committed_objects import CommittedObjects
from airflow_provider_kafka_s3.reading.lines import expanded, lines_of
from airflow_provider_kafka_s3.reading.remote_file import REQUEST, RemoteFile
from airflow_provider_kafka_s3.structs import decode_struct

__all__ = ["KeptParts", "Record", "keeps_offsets", "kept_parts", "read_object", "read_records", "record_objects"]

PartName: TypeAlias = Literal["key", "value", "headers", "timestamp", "offset"]

_PARTS: Final[tuple[PartName, ...]] = ("key", "value", "headers", "timestamp", "offset")
_PIECE: Final = 1024 * 1024
"""Bytes of values that are read at once, about."""
_ROWS: Final = 16_384
"""Rows that are read at once at most."""
_SPACE: Final = b" \t\r"
_QUOTE: Final = ord('"')
_FIELDS: Final = ("key", "value", "headers", "partition", "offset", "timestamp")
_ENVELOPE: Final = operator.itemgetter(*_FIELDS)
_KEY: Final = b'{"key":'
_VALUE: Final = b',"value":'
_HEADERS: Final = b',"headers":'


class Record(msgspec.Struct, frozen=True, gc=False):
    """A record as Kafka had it.

    Attributes:
        partition: the Kafka partition.
        offset: of the record; None: the object does not keep it, and there are gaps between the offsets.
        timestamp: in milliseconds; None: it has none, or it is not kept.
        key: of the record; None: it is null, or not kept.
        value: of the record; None: it is null.
        headers: of the record, in their order; empty if they are not kept.
    """

    partition: int
    offset: int | None
    timestamp: int | None
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


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
    key_format: Format | None = layout.format
    if isinstance(content, SiblingObjects):
        key_format = content.keys
        if content.headers is None:
            missing["headers"] = "content='siblings' has no headers: it has headers=None"
    elif not is_enveloped:
        key_format = None
        missing["headers"] = "content='values' has values only"
    if not is_enveloped:
        missing["timestamp"] = missing["offset"] = f"content={content.__struct_config__.tag!r} keeps none"
    if why := _changed(layout.format, converter, "value"):
        missing["value"] = why
    elif note := _note(layout.format, converter, may_be_null=is_enveloped and layout.format.on_null == "write"):
        notes["value"] = note
    if key_format is None:
        missing["key"] = f"content={content.__struct_config__.tag!r} has no objects of keys"
    elif why := _changed(key_format, layout.key_converter, "key"):
        missing["key"] = why
    elif note := _note(key_format, layout.key_converter, may_be_null=is_enveloped):
        notes["key"] = note
    return KeptParts(missing=missing, notes=notes)


def _changed(settings: Format, converter: Converter, part: Literal["key", "value"]) -> str | None:
    """Why a format has other bytes than Kafka; None: it has the same."""
    match settings:
        case BlockGzip(lines=lines):
            return _changed(lines, converter, part)
        case RawBytes(separator=separator):
            if not separator:
                return "format='bytes' with separator='' keeps no borders between records"
            if any(separator.startswith(separator[i:]) for i in range(1, len(separator))):
                return f"the separator {separator!r} ends as it begins, so the borders between records are ambiguous"
            return None
        case Csv():
            return "format='csv' writes fields, not the bytes of records"
        case CustomFormat():
            return f"the format is a class of another package, {settings.import_path!r}, which only writes"
    match converter:
        case BytesConverter() | StringConverter():
            return None
        case JsonConverter(has_schema=False) if isinstance(settings, JsonLines):
            return None
    kind = converter.__struct_config__.tag
    return f"the {part}s were decoded by {part}_converter={kind!r}, and written again: their bytes are not kept"


def _note(settings: Format, converter: Converter, *, may_be_null: bool) -> str | None:
    lines = record_format(settings)
    if not isinstance(lines, JsonLines) or not isinstance(converter, JsonConverter):
        return None
    note = "a document with newlines was rewritten in one line"
    return f"{note}; the document `null` is a null, as both are written alike" if may_be_null else note


def record_objects(log: TopicLog, plan: Plan, decision: Manifest) -> list[ObjectEntry]:
    """The objects of a committed batch that records are read from: of values, dead letters and of null values.

    Objects beside these, and indices, are read with them.

    Args:
        log: of the topic.
        plan: of the batch.
        decision: its manifest.
    """
    return CommittedObjects(log, plan, decision).of_records()


def read_records(log: TopicLog, plan: Plan, decision: Manifest, entry: ObjectEntry) -> Iterator[list[Record]]:
    """The records of an object, in their order there, about a megabyte at a time.

    Args:
        log: of the topic.
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
) -> Iterator[list[Record]]:
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
    if certain_ranges(part.min_offset, part.max_offset + 1, part.records) is not None:
        return True
    return with_index and _Object(objects, entry).has_offsets_in_index()


class _Damaged(ValueError):
    """The bytes of an object are not what its manifest and its plan describe."""


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

    def records(self) -> Iterator[list[Record]]:
        """See :func:`read_records`."""
        kept, is_dead = kept_parts(self._layout), self._objects.is_dead_letters(self._entry)
        if not is_dead and "value" in kept.missing:
            raise ConfigurationError(
                f"topic {self._plan.topic!r}, batch {self._plan.batch}: the values of its objects are not those of "
                f"Kafka ({kept.missing['value']}). Nothing was read: {self._objects.url(self._entry)}"
            )
        if is_dead:
            return self._whole([*map(_of_dead_letter, rows)] for rows in self._rows(self._entry, JsonLines()))
        if isinstance(self._layout.content, Envelope):
            return self._whole(self._envelopes(kept))
        return self._values(kept)

    def _whole(self, found: Iterator[list[Record]]) -> Iterator[list[Record]]:
        """Records that have their partition and offset, which the manifest has, too."""
        parts = iter(self._entry.by_slice)
        partition, low, high, left = -1, 0, 0, 0
        try:
            for records in found:
                at = 0
                while at < len(records):
                    if not left:
                        part = next(parts)  # rows are as many as records
                        partition, low, high = self._plan.slices[part.id].partition, part.min_offset, part.max_offset
                        left = part.records
                    some = records[at : at + left]
                    for record in some:
                        offset = record.offset
                        if record.partition != partition or offset is None or not low <= offset <= high:
                            raise self._objects.unreadable(
                                self._entry,
                                f"it has a record of partition {record.partition}, offset {record.offset}, and the "
                                f"manifest others",
                            )
                    at, left = at + len(some), left - len(some)
                yield records
        except (KeyError, TypeError, ValueError) as e:
            raise self._objects.unreadable(self._entry, f"a row is no record ({e})") from e

    def _values(self, kept: KeptParts) -> Iterator[list[Record]]:
        layout, content = self._layout, self._layout.content
        beside: dict[str, Iterator[Any]] = {}
        if isinstance(content, SiblingObjects):
            for name, settings in content.siblings.items():
                if name in self._without:
                    continue
                entry = self._objects.beside(self._entry, name)
                beside[name] = itertools.chain.from_iterable(self._rows(entry, settings))
        key_of = None
        if isinstance(content, SiblingObjects) and content.keys is not None and "key" in kept.kept:
            key_of = _decoder(content.keys, layout.key_converter)
        value_of = _decoder(layout.format, layout.value_converter or BytesConverter())
        found: Iterator[list[Any]] = self._nulls()
        if self._sibling is None:
            found = self._rows(self._entry, layout.format)
        places = self._places()
        absent = itertools.repeat(None)
        row_keys, row_headers = beside.get(".keys", absent), beside.get(".headers", absent)
        try:
            for rows in found:
                values = rows if value_of is None or self._sibling is not None else [*map(value_of, rows)]
                of_rows = itertools.islice(places, len(rows))
                if not beside:
                    yield [
                        Record(partition, offset, None, None, value)
                        for value, (partition, offset) in zip(values, of_rows, strict=True)
                    ]
                    continue
                yield [
                    Record(
                        partition,
                        offset,
                        None,
                        None if key is None or "key" in kept.missing else (key if key_of is None else key_of(key)),
                        value,
                        _text_headers(headers),
                    )
                    for value, (partition, offset), key, headers in zip(
                        values,
                        of_rows,
                        itertools.islice(row_keys, len(rows)),
                        itertools.islice(row_headers, len(rows)),
                        strict=True,
                    )
                ]
            for rest in beside.values():
                next(rest, None)  # the end, where the bytes are compared
        except (KeyError, TypeError, ValueError) as e:
            raise self._objects.unreadable(self._entry, f"a row is no record ({e})") from e

    def _nulls(self) -> Iterator[list[None]]:
        """The values of records that have none."""
        for start in range(0, self._entry.records, _ROWS):
            yield [None] * min(_ROWS, self._entry.records - start)

    def _places(self) -> Iterator[tuple[int, int | None]]:
        """Partition and offset of each row."""
        parts = self._parts_by_index() if self._has_index else ((part, None) for part in self._entry.by_slice)
        for part, ranges in parts:
            partition = self._plan.slices[part.id].partition
            known: Iterable[Sequence[int]] | None = ranges
            if known is None:
                known = certain_ranges(part.min_offset, part.max_offset + 1, part.records)
            if known is None:
                yield from itertools.repeat((partition, None), part.records)
            else:
                yield from ((partition, offset) for start, stop in known for offset in range(start, stop))

    def has_offsets_in_index(self) -> bool:
        """Whether there is an index, which has the offset of each record."""
        return self._has_index and all(
            ranges is not None or certain_ranges(part.min_offset, part.max_offset + 1, part.records) is not None
            for part, ranges in self._parts_by_index()
        )

    @property
    def _has_index(self) -> bool:
        return isinstance(self._layout.format, BlockGzip) and self._sibling is None

    def _parts_by_index(self) -> Iterator[tuple[SlicePart, Sequence[Sequence[int]] | None]]:
        """Blocks of the index, as parts of the object."""
        try:
            chunks = self._objects.chunks(self._entry)
        except DataLossError:
            yield from ((part, None) for part in self._entry.by_slice)
            return
        for chunk in chunks:
            assert chunk.next_record_offset is not None, "its bytes are those that were written"
            yield (
                SlicePart(
                    id=self._entry.slices[0],
                    records=chunk.num_records,
                    min_offset=chunk.first_record_offset,
                    max_offset=chunk.next_record_offset - 1,
                ),
                chunk.offset_ranges,
            )

    def _envelopes(self, kept: KeptParts) -> Iterator[list[Record]]:
        layout = self._layout
        is_json = isinstance(layout.record_format, JsonLines)
        value_converter = layout.value_converter or BytesConverter()
        value_of = _nullable(
            layout.record_format,
            value_converter,
            null_is_document=isinstance(value_converter, JsonConverter) and layout.format.on_null != "write",
        )
        key_of = _nullable(layout.record_format, layout.key_converter) if "key" in kept.kept else _nothing
        for rows in self._rows(self._entry, layout.format):
            yield [
                Record(
                    partition,
                    offset,
                    timestamp,
                    key_of(key),
                    value_of(value),
                    tuple([(h["key"], _header(h["value"])) for h in headers]) if headers else (),
                )
                for key, value, headers, partition, offset, timestamp in (_line_fields(rows) if is_json else rows)
            ]

    def _rows(self, entry: ObjectEntry, settings: Format) -> Iterator[list[Any]]:
        """Rows of an object: bytes of lines, or Python values; exactly as many as its manifest has."""
        if isinstance(record_format(settings), RawBytes):
            # A value may hold the separator. Then there are more rows than records, which only the end shows.
            self._require_count(entry, sum(map(len, self._all_rows(entry, settings))))
        number = 0
        for rows in self._all_rows(entry, settings):
            number += len(rows)
            if number > entry.records:
                self._require_count(entry, number)
            yield rows
        self._require_count(entry, number)

    def _require_count(self, entry: ObjectEntry, number: int) -> None:
        if number != entry.records:
            more = "more" if number > entry.records else f"{number:,}"
            raise self._objects.unreadable(entry, f"it has {more} rows for {entry.records:,} records")

    def _all_rows(self, entry: ObjectEntry, settings: Format) -> Iterator[list[Any]]:
        file = RemoteFile(functools.partial(self._objects.get, entry), entry.size, self._request)
        is_envelope = isinstance(self._layout.content, Envelope)
        try:
            match settings:
                case Parquet():
                    yield from _parquet_rows(file, [*_FIELDS] if is_envelope else None)
                    return
                case AvroContainer():
                    found = datums(
                        io.BufferedReader(file, file.request), logical=False, piece=min(_PIECE, file.request)
                    )
                    yield from ([*map(_ENVELOPE, rows)] for rows in found) if is_envelope else found
                case BlockGzip(lines=lines):
                    yield from lines_of(expanded(file, "gzip"), _separator(lines))
                case JsonLines(compression=compression) | RawBytes(compression=compression):
                    yield from lines_of(expanded(file, compression), _separator(settings))
                case _:
                    raise _Damaged(f"the format {settings!r} has no rows")
        except (ValueError, LookupError, OSError, EOFError, zlib.error, pa.ArrowException) as e:
            raise self._objects.unreadable(entry, str(e)) from e
        self._objects.require_crc32(entry, file.crc32)


def _separator(settings: Format) -> bytes:
    return settings.separator.encode() if isinstance(settings, RawBytes) else b"\n"


def _parquet_rows(file: RemoteFile, names: list[str] | None) -> Iterator[list[Any]]:
    """Rows with these columns; None: those of the file, whose only one is not in a tuple."""
    with pq.ParquetFile(cast("Any", pa.PythonFile(file, mode="r")), buffer_size=file.request) as found:
        size = max(sum(found.metadata.row_group(i).total_byte_size for i in range(found.num_row_groups)), 1)
        rows = min(max(min(_PIECE, file.request) * found.metadata.num_rows // size, 1), _ROWS)
        for batch in found.iter_batches(batch_size=rows):
            columns = [_column(batch.column(name)) for name in names or batch.schema.names]
            yield [*(columns[0] if len(columns) == 1 else zip(*columns, strict=True))]


def _column(column: pa.Array[Any]) -> Iterable[Any]:
    """The values of a column; timestamps as numbers, and headers only if a record has some."""
    if pa.types.is_timestamp(column.type):
        return column.view(pa.int64()).to_pylist()
    if isinstance(column, pa.ListArray) and not len(column.flatten()):
        return itertools.repeat((), len(column))
    return column.to_pylist()


class _Line(msgspec.Struct, frozen=True, gc=False):
    """An envelope in JSON."""

    key: msgspec.Raw
    value: msgspec.Raw
    headers: list[dict[str, str | None]]
    partition: int
    offset: int
    timestamp: int | None


def _line_fields(lines: list[bytes]) -> Iterator[tuple[bytes, bytes, Any, int, int, int | None]]:
    """The fields of envelopes in JSON, with key and value byte for byte.

    White space around a document is a part of it, so the fields are found by their order.
    """
    found = decode_struct(b"[%b]" % b",".join(lines), list[_Line])
    for line, one in zip(lines, found, strict=True):
        key, value = bytes(one.key), bytes(one.value)
        end_of_key = len(_KEY) + len(key)
        end_of_value = end_of_key + len(_VALUE) + len(value)
        if not (
            line[len(_KEY)] not in _SPACE
            and line.startswith(_VALUE, end_of_key)
            and line[end_of_key + len(_VALUE)] not in _SPACE
            and line.startswith(_HEADERS, end_of_value)
        ):
            key, at = _verbatim(line, 0, _KEY, key)
            value, at = _verbatim(line, at, _VALUE, value)
            if not line.startswith(_HEADERS, at):
                raise _Damaged("an envelope has other fields")
        yield key, value, one.headers, one.partition, one.offset, one.timestamp


def _verbatim(line: bytes, at: int, name: bytes, raw: bytes) -> tuple[bytes, int]:
    if not line.startswith(name, at):
        raise _Damaged("an envelope has other fields")
    start = at + len(name)
    end = start
    while line[end : end + 1] in (b" ", b"\t", b"\r"):
        end += 1
    end += len(raw.strip(_SPACE))
    while line[end : end + 1] in (b" ", b"\t", b"\r"):
        end += 1
    return line[start:end], end


def _nullable(
    settings: Format, converter: Converter, *, null_is_document: bool = False
) -> Callable[[Any], bytes | None]:
    """Gives the bytes in Kafka of a key or a value of an envelope."""
    decode = _decoder(settings, converter)
    if isinstance(settings, JsonLines):
        if null_is_document:
            return bytes
        if decode is None:
            return lambda found: None if found.strip(_SPACE) == b"null" else found
        return lambda found: None if found == b"null" else decode(found)
    return lambda found: found if found is None or type(found) is bytes else _of_datum(found)


def _nothing(_: object) -> None:
    """A key that is not kept."""


def _decoder(settings: Format, converter: Converter) -> Callable[[Any], bytes] | None:
    """Gives the bytes in Kafka of a key or a value from its row; None: it is the row."""
    lines = record_format(settings)
    if isinstance(lines, RawBytes) or (isinstance(lines, JsonLines) and isinstance(converter, JsonConverter)):
        return None
    if not isinstance(lines, JsonLines):
        return _of_datum
    return _of_base64 if isinstance(converter, BytesConverter) else _of_text


def _of_datum(found: Any) -> bytes:
    return found.encode() if isinstance(found, str) else bytes(found)


def _of_base64(found: bytes) -> bytes:
    if not found[0] == found[-1] == _QUOTE:
        raise _Damaged("a field is no text")
    return binascii.a2b_base64(found[1:-1], strict_mode=True)


def _of_text(found: bytes) -> bytes:
    return msgspec.json.decode(found, type=str).encode()


def _header(found: bytes | str | None) -> bytes | None:
    return base64.b64decode(found, validate=True) if isinstance(found, str) else found


def _text_headers(found: Any) -> tuple[tuple[str, bytes | None], ...]:
    """Headers of an object beside that of values, which are text."""
    if isinstance(found, bytes):
        found = msgspec.json.decode(found)
    if isinstance(found, dict):
        found = found["headers"]
    return tuple((h["key"], h["value"].encode()) for h in found or ())


def _of_dead_letter(line: bytes) -> Record:
    found = msgspec.json.decode(line)

    def data(text: str | None) -> bytes | None:
        return None if text is None else base64.b64decode(text, validate=True)

    return Record(
        found["partition"],
        found["offset"],
        found["timestamp"],
        data(found["key"]),
        data(found["value"]),
        tuple((h["key"], data(h["value"])) for h in found["headers"]),
    )
