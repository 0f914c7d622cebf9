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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import structs

from airflow_provider_kafka_s3.arrays import int64_values
from airflow_provider_kafka_s3.config import MIB, ByPartition, ClockTime, JsonLines, Layout, RawBytes, ValuesOnly
from airflow_provider_kafka_s3.exceptions import UnknownOutcomeError
from airflow_provider_kafka_s3.formats.parts import MAIN
from airflow_provider_kafka_s3.formats.registry import make_formats
from airflow_provider_kafka_s3.layout.keys import data_prefix, encoded_partition_parser, named_object_parser
from airflow_provider_kafka_s3.layout.split import Append, LeaveOut, Splitter
from airflow_provider_kafka_s3.registry.schemas import SchemaSource
from airflow_provider_kafka_s3.storage.durable import DurableStore

if TYPE_CHECKING:
    import pyarrow as pa

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
    found: dict[int, list[Leftover]] = {partition: [] for partition in bounds}
    for info in store.list(data_prefix(layout, topic)):
        named = parse(info.key)
        if named is None or named.partition not in bounds:
            continue
        first, end = bounds[named.partition]
        if first <= named.first_offset < end:
            found[named.partition].append(
                Leftover(info.key, named.folders, named.ending, named.first_offset, info.size)
            )
    return {partition: sorted(some, key=lambda one: (one.start, one.key)) for partition, some in found.items()}


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
        return Comparison(start, (), [(one, reason) for one in leftovers])
    others: list[tuple[Leftover, str]] = []
    bodies: dict[Leftover, bytes] = {}
    room = _MAX_COMPARED
    for one in leftovers:
        body = _read(store, one, room, layout) if one.ending == layout.format.object_extension else None
        if body is None:
            others.append((one, "it has another format, is damaged, or is too large to be compared"))
        else:
            room -= len(body)
            bodies[one] = body
    expected = _Expected(layout, topic, partition, by_folder=not _by_clock(layout))
    expected.read(records, schemas, until=sum(expected.measure(body) for body in bodies.values()))
    owners: dict[int, Leftover] = {}
    ends: dict[Leftover, int] = {}
    stop = min((one.start for one, _ in others), default=None)
    for one, body in bodies.items():
        offsets = expected.offsets_of(one, body)
        if offsets is None or owners.keys() & offsets:
            why = "its records are not those of Kafka" if offsets is None else "its records are in another object, too"
            others.append((one, why))
            stop = one.start if stop is None else min(stop, one.start)
        else:
            owners |= dict.fromkeys(offsets, one)
            ends[one] = offsets[-1]
    end = _end_of_all(expected.records, owners, ends, start, stop)
    held = [one for one, last in ends.items() if last < end]
    others += [(one, "others of its records are in no object") for one, last in ends.items() if last >= end]
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
    if not isinstance(layout.format, JsonLines | RawBytes):
        return f"objects of the format {layout.format.__struct_config__.tag} are not compared with Kafka"
    if not isinstance(layout.content, ValuesOnly):
        return "objects with keys or headers beside them are not compared with Kafka"
    if sum(one.size for one in leftovers) > _MAX_COMPARED:
        return f"the objects of the partition are too large to be compared, more than {_MAX_COMPARED // MIB} MiB"
    return ""


def _by_clock(layout: Layout) -> bool:
    return layout.by_time is not None and isinstance(layout.by_time.timestamp_from, ClockTime)


def _read(store: DurableStore, one: Leftover, room: int, layout: Layout) -> bytes | None:
    """The decompressed bytes of an object; None if they are invalid, or too many."""
    pieces = []
    etag = None
    for at in range(0, one.size, _PIECE):
        piece = store.get(one.key, start=at, end=min(at + _PIECE, one.size))
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


class _Record(NamedTuple):
    """A record that has to be in an object."""

    offset: int
    folders: str
    line: bytes | None
    """What is written for it; None: it cannot be written."""


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

    def measure(self, body: bytes) -> int:
        """Lines of JSON, or bytes."""
        return body.count(b"\n") if isinstance(self.layout.format, JsonLines) else len(body)

    def read(self, batches: Iterable[pa.RecordBatch], schemas: SchemaSource | None, *, until: int) -> None:
        """Read records, until there are as many as all objects can hold."""
        left = until
        if left <= 0:
            return
        layout = structs.replace(
            self.layout,
            format=structs.replace(self.layout.format, compression="none", compression_level=None),
            **({} if self.by_folder else {"partitioner": ByPartition()}),
        )
        for record in _written(layout, self.topic, self.partition, batches, schemas):
            self.records.append(record)
            self._of_folder.setdefault(record.folders if self.by_folder else "", []).append(record)
            left -= self.measure(record.line or b"")
            if left <= 0:
                return

    def offsets_of(self, one: Leftover, body: bytes) -> list[int] | None:
        """Offsets of the records in an object; None if it has others."""
        rows = self._of_folder.get(one.folders if self.by_folder else "", [])
        at = bisect.bisect_left(rows, one.start, key=lambda record: record.offset)
        if at == len(rows) or rows[at].offset != one.start:
            return None
        count = self._lines(rows, at, body) if isinstance(self.layout.format, JsonLines) else _bytes(rows, at, body)
        return [record.offset for record in rows[at : at + count]] if count else None

    def _lines(self, rows: Sequence[_Record], at: int, body: bytes) -> int:
        """Number of the records that an object has, by its lines; 0 if they differ."""
        lines = body.split(b"\n")
        if lines.pop() or at + len(lines) > len(rows):
            return 0
        for record, line in zip(itertools.islice(rows, at, at + len(lines)), lines, strict=True):
            if record.line is None or _value_of(line) != _value_of(record.line):
                return 0
        return len(lines)


def _bytes(rows: Sequence[_Record], at: int, body: bytes) -> int:
    """Number of the records that an object has, by its bytes; 0 if they differ."""
    done = count = 0
    while done < len(body):
        line = rows[at + count].line if at + count < len(rows) else None
        if line is None or not body.startswith(line, done):
            return 0
        done += len(line)
        count += 1
    return count


def _value_of(line: bytes) -> str | bytes:
    """A JSON document in one notation: the sink writes values again, with other spaces and another order of members."""
    try:
        return json.dumps(json.loads(line), sort_keys=True)
    except (ValueError, RecursionError):
        return line.rstrip(b"\n")


def _written(
    layout: Layout, topic: str, partition: int, batches: Iterable[pa.RecordBatch], schemas: SchemaSource | None
) -> Iterator[_Record]:
    """What is written for each record, and where."""
    formats = make_formats(layout, topic=topic, partition=partition, schemas=schemas)
    splitter = Splitter(layout, topic=topic, partition=partition, generation=0)
    folders_of = encoded_partition_parser(layout, topic)
    for batch in batches:
        prepared = formats.prepare(batch)
        raw_offsets = int64_values(batch.column("offset"))
        found = [_Record(int(raw_offsets[one.row]), "", None) for one in prepared.rejected]
        for event in splitter.feed(
            prepared.records,
            prepared.sizes,
            prepared.schemas,
            prepared.versions,
            prepared.tombstones,
            fields=prepared.fields,
        ):
            if isinstance(event, LeaveOut):
                offset = int64_values(prepared.records.column("offset"))[event.row]
                found.append(_Record(int(offset), "", None))
            elif isinstance(event, Append):
                key, schema = event.object.key, event.object.schema
                folders = folders_of(key)
                rows = (
                    range(event.rows.start, event.rows.stop) if isinstance(event.rows, slice) else event.rows.tolist()
                )
                for row, offset in zip(rows, event.offsets.tolist(), strict=True):
                    writer = formats.open(MAIN, key, schema)
                    line = b"".join(map(bytes, writer.write(prepared.take(MAIN, slice(row, row + 1), schema))))
                    found.append(_Record(offset, folders, line + b"".join(map(bytes, writer.close()))))
        yield from sorted(found)
