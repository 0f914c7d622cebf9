"""Objects that a sink of Kafka Connect left behind the committed offsets of its group, and the records in them.

The sink uploads objects first and commits offsets later, so a stopped one may leave whole objects whose records are
past the committed offset. Their records are found by content: what this package would write for each record of Kafka is
compared with the lines of the objects.
"""

from __future__ import annotations

import bisect
import itertools
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import structs

from airflow_provider_kafka_s3.arrays import int64_values
from airflow_provider_kafka_s3.batch.encode import split
from airflow_provider_kafka_s3.config import (
    MIB,
    ByPartition,
    ClockTime,
    JsonLines,
    Layout,
    Parquet,
    RawBytes,
    ValuesOnly,
)
from airflow_provider_kafka_s3.exceptions import UnknownOutcomeError
from airflow_provider_kafka_s3.formats.parts import MAIN
from airflow_provider_kafka_s3.formats.port import ObjectWriter, Payload
from airflow_provider_kafka_s3.formats.registry import make_formats
from airflow_provider_kafka_s3.layout.keys import data_prefix, encoded_partition_parser, named_object_parser
from airflow_provider_kafka_s3.layout.split import Append, LeaveOut, Splitter
from airflow_provider_kafka_s3.registry.schemas import SchemaSource
from airflow_provider_kafka_s3.storage.durable import DurableStore

__all__ = ["Comparison", "Leftover", "compare", "find_leftovers"]

_PIECE: Final = 8 * MIB
_MAX_COMPARED: Final = 512 * MIB
"""Bytes of the objects of one Kafka partition that are compared; they are in memory."""


@dataclass(frozen=True)
class Leftover:
    """An object of the sink.

    Attributes:
        key: of the object.
        folders: of the partitioner.
        ending: of its name, behind the offset.
        start: offset of its first record, by its name.
        size: in bytes.
    """

    key: str
    folders: str
    ending: str
    start: int
    size: int


def find_leftovers(
    store: DurableStore, layout: Layout, topic: str, bounds: Mapping[int, tuple[int, int]]
) -> dict[int, list[Leftover]]:
    """Objects whose names begin with offsets ``[first, end)``, per Kafka partition, in the order of their offsets.

    Args:
        store: the bucket.
        layout: of the keys; the endings of names may be any.
        topic: its name.
        bounds: per Kafka partition.
    """
    parse = named_object_parser(layout, topic)
    leftovers: dict[int, list[Leftover]] = {partition: [] for partition in bounds}
    for info in store.list(data_prefix(layout, topic)):
        named = parse(info.key)
        if named is None or named.partition not in bounds:
            continue
        first, end = bounds[named.partition]
        if first <= named.first_offset < end:
            leftovers[named.partition].append(
                Leftover(info.key, named.folders, named.ending, named.first_offset, info.size)
            )
    return {partition: sorted(group, key=lambda one: (one.start, one.key)) for partition, group in leftovers.items()}


@dataclass(frozen=True)
class Comparison:
    """The records in leftover objects of one Kafka partition.

    Attributes:
        end: the objects ``held`` have all records from the committed offset to here, each once, and no other.
        held: these objects.
        others: all other objects, with what was found.
    """

    end: int
    held: Sequence[Leftover]
    others: Sequence[tuple[Leftover, str]]


def compare(
    store: DurableStore,
    layout: Layout,
    *,
    topic: str,
    partition: int,
    start: int,
    leftovers: Sequence[Leftover],
    records: Iterator[pa.RecordBatch],
    schemas: SchemaSource | None,
) -> Comparison:
    """Compare leftover objects with the records of Kafka.

    Args:
        store: the bucket.
        layout: that the sink's configuration stands for.
        topic: its name.
        partition: Kafka partition of the objects.
        start: committed offset.
        leftovers: objects at or past it.
        records: of Kafka from the committed offset on; read as far as needed.
        schemas: of the registry, by id; None: the layout needs none.
    """
    if reason := _incomparable(layout, leftovers):
        return Comparison(start, (), [(leftover, reason) for leftover in leftovers])
    others: list[tuple[Leftover, str]] = []
    contents: dict[Leftover, _Content] = {}
    room = _MAX_COMPARED
    for leftover in leftovers:
        body = _read(store, leftover, room, layout) if leftover.ending == layout.format.object_extension else None
        parsed = None if body is None else _content(layout, body)
        if body is None or not parsed:
            others.append((leftover, "it has another format, is damaged or empty, or is too large to be compared"))
        else:
            room -= len(body)
            contents[leftover] = parsed
    expected = _Expected(layout, topic, partition, by_folder=not _by_clock(layout))
    expected.read(records, schemas, until=sum(map(len, contents.values())))
    owners: dict[int, Leftover] = {}
    ends: dict[Leftover, int] = {}
    stop = min((leftover.start for leftover, _ in others), default=None)
    for leftover, content in contents.items():
        offsets = expected.offsets_of(leftover, content)
        if offsets is None or owners.keys() & offsets:
            why = "its records are not those of Kafka" if offsets is None else "its records are in another object, too"
            others.append((leftover, why))
            stop = leftover.start if stop is None else min(stop, leftover.start)
        else:
            owners |= dict.fromkeys(offsets, leftover)
            ends[leftover] = offsets[-1]
    end = _end_of_all(expected.records, owners, ends, start, stop)
    held = [leftover for leftover, last in ends.items() if last < end]
    others += [(leftover, "others of its records are in no object") for leftover, last in ends.items() if last >= end]
    return Comparison(end, held, sorted(others, key=lambda item: (item[0].start, item[0].key)))


def _end_of_all(
    records: Sequence[_Record],
    owners: Mapping[int, Leftover],
    ends: Mapping[Leftover, int],
    start: int,
    stop: int | None,
) -> int:
    """The last offset to which objects hold every record, and no object goes on behind it."""
    end, reach = start, -1
    for record in records:
        owner = owners.get(record.offset)
        if owner is None or (stop is not None and record.offset >= stop):
            break
        reach = max(reach, ends[owner])
        if reach == record.offset:
            end = record.offset + 1
    return end


def _incomparable(layout: Layout, leftovers: Sequence[Leftover]) -> str:
    if not isinstance(layout.format, JsonLines | RawBytes | Parquet):
        return f"objects of the format {layout.format.__struct_config__.tag} are not compared with Kafka"
    if not isinstance(layout.content, ValuesOnly):
        return "objects with keys or headers beside them are not compared with Kafka"
    if sum(leftover.size for leftover in leftovers) > _MAX_COMPARED:
        return f"the objects of the partition are too large to be compared, more than {_MAX_COMPARED // MIB} MiB"
    return ""


def _by_clock(layout: Layout) -> bool:
    return layout.by_time is not None and isinstance(layout.by_time.timestamp_from, ClockTime)


def _read(store: DurableStore, one: Leftover, room: int, layout: Layout) -> bytes | None:
    """The decompressed bytes of an object; None if they are invalid, or too many."""
    pieces = []
    etag = None
    for start in range(0, one.size, _PIECE):
        piece = store.get(one.key, start=start, end=min(start + _PIECE, one.size))
        if piece is None or (etag is not None and piece.etag != etag):
            raise UnknownOutcomeError(
                f"an object changed while it was read: {store.url(one.key)}. Nothing was changed. Make sure that the "
                f"connector is stopped, then try again"
            )
        etag = piece.etag
        pieces.append(piece.body)
    body = b"".join(pieces)
    if isinstance(layout.format, JsonLines | RawBytes) and layout.format.compression == "gzip":
        unzip = zlib.decompressobj(wbits=31)
        try:
            body = unzip.decompress(body, room + 1)
        except zlib.error:
            return None
        if not unzip.eof or unzip.unused_data:
            return None
    return body if len(body) <= room else None


_Content: TypeAlias = bytes | list[str]
"""What is in an object: its bytes, or of JSON and Parquet the value of each record in one notation."""


def _content(layout: Layout, body: bytes) -> _Content | None:
    """The content of an object; None if it is invalid."""
    if isinstance(layout.format, JsonLines):
        lines = body.split(b"\n")
        return None if lines.pop() else [_value_of(line) for line in lines]
    if not isinstance(layout.format, Parquet):
        return body
    try:
        return [_notation(row) for row in pq.read_table(pa.BufferReader(body), use_threads=False).to_pylist()]
    except (pa.ArrowException, OSError, ValueError):
        return None


class _Record(NamedTuple):
    """A record that has to be in an object."""

    offset: int
    folders: str
    content: bytes | str | None
    """What is written for it: bytes, or the value in one notation; None: it cannot be written."""


@dataclass
class _Expected:
    """The records of a Kafka partition as they are in objects.

    Attributes:
        records: in the order of their offsets, without null values that are left out.
        by_folder: whether the folders of records are known; those by the time of the sink's clock are not.
    """

    layout: Layout
    topic: str
    partition: int
    by_folder: bool
    records: list[_Record] = field(default_factory=list)
    _of_folder: dict[str, list[_Record]] = field(default_factory=dict)

    def read(self, batches: Iterable[pa.RecordBatch], schemas: SchemaSource | None, *, until: int) -> None:
        """Read records, until there are as many as all objects can hold."""
        left = until
        if left <= 0:
            return
        layout = self.layout
        if not self.by_folder:
            layout = structs.replace(layout, partitioner=ByPartition())
        if isinstance(layout.format, JsonLines | RawBytes):
            plain = structs.replace(layout.format, compression="none", compression_level=None)
            layout = structs.replace(layout, format=plain)
        for record in _written(layout, self.topic, self.partition, batches, schemas):
            self.records.append(record)
            self._of_folder.setdefault(record.folders if self.by_folder else "", []).append(record)
            left -= len(record.content) if isinstance(record.content, bytes) else 1
            if left <= 0:
                return

    def offsets_of(self, one: Leftover, content: _Content) -> list[int] | None:
        """Offsets of the records in an object; None if it has others."""
        rows = self._of_folder.get(one.folders if self.by_folder else "", [])
        index = bisect.bisect_left(rows, one.start, key=lambda record: record.offset)
        if index == len(rows) or rows[index].offset != one.start:
            return None
        count = _bytes(rows, index, content) if isinstance(content, bytes) else _values(rows, index, content)
        return [record.offset for record in rows[index : index + count]] if count else None


def _values(rows: Sequence[_Record], at: int, content: Sequence[str]) -> int:
    """Number of the records that an object has, by its values; 0 if they differ."""
    records = itertools.islice(rows, at, at + len(content))
    return len(content) if [record.content for record in records] == content else 0


def _bytes(rows: Sequence[_Record], at: int, content: bytes) -> int:
    """Number of the records that an object has, by its bytes; 0 if they differ."""
    done = count = 0
    while done < len(content):
        expected = rows[at + count].content if at + count < len(rows) else None
        if not isinstance(expected, bytes) or not content.startswith(expected, done):
            return 0
        done += len(expected)
        count += 1
    return count


def _value_of(line: bytes) -> str:
    """A JSON document in one notation: the sink writes values again, with other spaces and another order of members."""
    try:
        return json.dumps(json.loads(line), sort_keys=True)
    except (ValueError, RecursionError):
        return repr(line.rstrip(b"\n"))


def _notation(value: Any) -> str:
    """A row of a file in one notation."""
    return json.dumps(value, sort_keys=True, default=_text)


def _text(value: object) -> str:
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC).isoformat()
    return repr(value)


def _written(
    layout: Layout, topic: str, partition: int, batches: Iterable[pa.RecordBatch], schemas: SchemaSource | None
) -> Iterator[_Record]:
    """What is written for each record, and where."""
    formats = make_formats(layout, topic=topic, partition=lambda: partition, schemas=schemas)
    splitter = Splitter(layout, topic=topic, partition=partition, generation=0)
    folders_of = encoded_partition_parser(layout, topic)
    for batch in batches:
        prepared = formats.prepare(batch)
        raw_offsets = int64_values(batch.column("offset"))
        records = [_Record(int(raw_offsets[rejected.row]), "", None) for rejected in prepared.rejected]
        for event in split(splitter, prepared):
            if isinstance(event, LeaveOut):
                offset = int64_values(prepared.records.column("offset"))[event.row]
                records.append(_Record(int(offset), "", None))
            elif isinstance(event, Append):
                key, schema = event.object.key, event.object.schema
                folders = folders_of(key)
                subset = event.rows
                rows = range(subset.start, subset.stop) if isinstance(subset, slice) else subset.indices.tolist()
                for row, offset in zip(rows, event.offsets.tolist(), strict=True):
                    payload = prepared.take(MAIN, slice(row, row + 1), schema)
                    content = _written_alone(layout, payload, partial(formats.open, MAIN, key, schema))
                    records.append(_Record(offset, folders, content))
        yield from sorted(records)


def _written_alone(layout: Layout, payload: Payload, open_writer: Callable[[], ObjectWriter]) -> bytes | str:
    """What is written for one record."""
    if isinstance(layout.format, Parquet):
        (row,) = payload.to_pylist()
        return _notation(row)
    writer = open_writer()
    written = b"".join([*map(bytes, writer.write(payload)), *map(bytes, writer.close())])
    return _value_of(written) if isinstance(layout.format, JsonLines) else written
