"""How far DeviantArt's sink of Kafka Connect is, by its own objects.

The sink writes a data object of gzip members (chunks), then an index of them, then a marker object that names the
index. Its next offset is behind the last record of the last chunk. The index has a first offset of the chunk and the
number of its records. Since offsets may have gaps, the records are found in Kafka by the text of the chunk. An index
that a pipeline of this package wrote has the next offset.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from airflow_provider_kafka_s3.arrays import int64_values
from airflow_provider_kafka_s3.batch.source import Isolation, Source
from airflow_provider_kafka_s3.config import MIB
from airflow_provider_kafka_s3.exceptions import ConfigurationError, DataLossError
from airflow_provider_kafka_s3.formats.block_index import Chunk, chunks_of
from airflow_provider_kafka_s3.layout import keys
from airflow_provider_kafka_s3.maintenance.chunk_place import ChunkText, Ends
from airflow_provider_kafka_s3.maintenance.leftovers import Leftover
from airflow_provider_kafka_s3.maintenance.takeover import FoundObjects
from airflow_provider_kafka_s3.messages import count, few
from airflow_provider_kafka_s3.storage.durable import DurableStore

__all__ = ["find_data_objects", "offsets_of_last_chunks"]

_MAX_CHUNK: Final = 512 * MIB


def offsets_of_last_chunks(
    store: DurableStore,
    source: Source,
    *,
    topics_dir: str,
    topic: str,
    isolation: Isolation = "read_uncommitted",
    without_offset: Literal["fail", "earliest"] = "fail",
) -> dict[int, int]:
    """The next offset of each Kafka partition.

    Args:
        store: the bucket.
        source: the Kafka cluster.
        topics_dir: prefix of the sink's keys.
        topic: its name.
        isolation: of the sink's consumer.
        without_offset: what a partition with records and without a marker does: it is an error, or begins at the first
            offset in Kafka.

    Raises:
        ConfigurationError: a marker is absent, leads to no chunk, or is of a partition that Kafka does not have; or
            Kafka has other records than the chunk, or these records more than once.
        DataLossError: Kafka has deleted records of a last chunk or behind it, and it is not certain that none is lost.
    """
    partitions = source.describe(topic).partitions
    _require_partitions(store, topics_dir, topic, partitions)
    earliest = source.earliest(topic, partitions)
    ends = source.ends(topic, partitions, isolation)
    committed = ends if isolation == "read_committed" else source.ends(topic, partitions, "read_committed")
    offsets: dict[int, int] = {}
    absent: list[str] = []
    for p in partitions:
        key = keys.chunk_marker_key(topics_dir, topic, p)
        chunk = _last_chunk(store, key)
        if chunk is not None:
            last = _LastChunk(
                store, source, topic, p, *chunk, earliest=earliest[p], end=ends[p], committed_end=committed[p]
            )
            offsets[p] = last.next_offset(isolation)
        elif without_offset == "earliest" or (earliest[p] == ends[p] == 0):
            offsets[p] = earliest[p]
        else:
            absent.append(store.url(key))
    if absent:
        raise ConfigurationError(
            f"partitions of topic {topic!r} have records and no marker of the sink: {few(absent)}. Nothing was "
            f"changed. Check s3.prefix and the bucket. If the sink has never ended an object of them, begin at the "
            f"first offset in Kafka: --without-offset earliest"
        )
    return offsets


def find_data_objects(
    store: DurableStore, topics_dir: str, topic: str, bounds: Mapping[int, tuple[int, int]]
) -> FoundObjects:
    """Objects of the sink that are not finished, or that readers may read twice.

    The sink counts records, so that offsets in names may be lower than those of the records; their order is right. An
    object behind the one that the marker leads to is not finished, also if its name has an offset before the one at
    which the pipeline begins, unless its index has its next offset: a pipeline wrote it, for another day. If the sink
    stops before it has written the marker and starts again on another day, it writes the same records to another
    folder.

    Args:
        store: the bucket.
        topics_dir: prefix of the sink's keys.
        topic: its name.
        bounds: per Kafka partition where the pipeline begins, and the offset from which on objects are the pipeline's.
    """
    folder = re.escape(keys.below(topics_dir))
    named = re.compile(rf"({folder}(\d{{4}}-\d\d-\d\d)/{re.escape(topic)}-(\d+)-(\d+))(\.gz|\.index\.json)")
    marked: dict[int, tuple[str, int]] = {}
    for partition in bounds:
        marker = store.get(keys.chunk_marker_key(topics_dir, topic, partition))
        match = None if marker is None else named.fullmatch(_name_in(marker.body))
        if match is not None and int(match[3]) == partition:
            marked[partition] = match[1], int(match[4])
    leftovers: dict[int, list[Leftover]] = {partition: [] for partition in bounds}
    names: dict[tuple[int, int], str] = {}
    several: dict[tuple[int, int], list[str]] = {}
    for info in store.list(keys.below(topics_dir)):
        match = named.fullmatch(info.key)
        if match is None or (partition := int(match[3])) not in bounds:
            continue
        first, (begin, end) = int(match[4]), bounds[partition]
        if first >= end:
            continue
        is_behind = partition in marked and first > marked[partition][1]
        if first >= begin or (is_behind and not _is_landed(store, f"{match[1]}.index.json", begin)):
            leftovers[partition].append(Leftover(info.key, match[2], match[5], first, info.size))
        elif match[5] == ".gz" and names.setdefault((partition, first), match[1]) != match[1]:
            several.setdefault((partition, first), [names[partition, first]]).append(match[1])
    duplicates: dict[str, str] = {}
    for (partition, _), same in several.items():
        # Names differ by the day. Without a marker that leads to one of them, the sink went on behind the latest one.
        marked_one = marked[partition][0] if partition in marked else ""
        kept = marked_one if marked_one in same else max(same)
        why = "to which the marker leads" if kept == marked_one else "of a later day"
        for name in same:
            if name != kept:
                others = [info.key for info in store.list(f"{name}.") if named.fullmatch(info.key)]
                duplicates |= dict.fromkeys(others, f"begins at the same offset as {store.url(kept)}.gz, {why}")
    return FoundObjects(leftovers, duplicates)


def _require_partitions(store: DurableStore, topics_dir: str, topic: str, partitions: Collection[int]) -> None:
    """Refuse markers of Kafka partitions that the topic does not have."""
    infos = store.list(keys.chunk_markers_prefix(topics_dir, topic))
    named = {info.key: keys.chunk_marker_partition(topics_dir, topic, info.key) for info in infos}
    if beyond := [key for key, partition in named.items() if partition is not None and partition not in partitions]:
        raise ConfigurationError(
            f"topic {topic!r} has {count(len(partitions), 'partition')} in Kafka, and the sink has markers of others: "
            f"{few([store.url(key) for key in beyond])}. The topic was created again with fewer partitions, or the "
            f"Kafka connection is to another cluster. Nothing was changed. Land the topic as a new one, under another "
            f"topics_dir, with starting_offsets; if the markers are of another topic's past, move them away"
        )


def _last_chunk(store: DurableStore, key: str) -> tuple[str, Chunk] | None:
    """The key of the last data object, and its last chunk with records; None if there is no marker."""
    marker = store.get(key)
    if marker is None:
        return None
    name = _name_in(marker.body)
    index = store.get(name) if name.endswith(".index.json") and len(name) <= 1_024 else None
    try:
        listed = () if index is None else chunks_of(index.body)
    except ValueError:
        listed = ()
    chunks = [chunk for chunk in listed if chunk.num_records > 0]
    if not chunks or not _is_valid(chunks[-1]):
        raise ConfigurationError(
            f"the marker {store.url(key)} does not lead to an index with chunks. Nothing was changed. Look at the "
            f"object that it names, then choose where the pipeline begins, by starting_offsets of the operator"
        )
    return f"{name.removesuffix('.index.json')}.gz", chunks[-1]


def _is_landed(store: DurableStore, index: str, begin: int) -> bool:
    """Whether a pipeline wrote this index, and all records of its object are before this offset."""
    stored = store.get(index)
    try:
        chunks = () if stored is None else chunks_of(stored.body)
    except ValueError:
        return False
    ends = [chunk.next_record_offset for chunk in chunks]
    return bool(ends) and all(end is not None and end <= begin for end in ends)


def _name_in(marker: bytes) -> str:
    """The key of the index that a marker names."""
    return marker.decode("utf-8", "replace").strip()


def _is_valid(chunk: Chunk) -> bool:
    first, end = chunk.first_record_offset, chunk.next_record_offset
    has_place = chunk.byte_offset >= 0 and chunk.byte_length > 0
    return has_place and first >= 0 and (end is None or end >= first + chunk.num_records)


@dataclass(frozen=True)
class _LastChunk:
    """The last chunk of a Kafka partition, and the offsets that the partition has.

    Attributes:
        store: the bucket.
        source: the Kafka cluster.
        topic: its name.
        partition: its number.
        key: of the data object.
        chunk: in the index.
        earliest: the first offset in Kafka.
        end: one past the last offset that the sink was able to read.
        committed_end: likewise, of committed transactions.
    """

    store: DurableStore
    source: Source
    topic: str
    partition: int
    key: str
    chunk: Chunk
    earliest: int
    end: int
    committed_end: int

    def next_offset(self, isolation: Isolation) -> int:
        """The offset behind its last record; an error if it is not certain.

        Args:
            isolation: of the sink's consumer.
        """
        text = _text_of(self.store, self.key, self.chunk)
        known = self.chunk.next_record_offset
        if text is None or max(self._least_end, known or 0) > self.end:
            raise self._other_records()
        if known is not None:
            return self._require_known(text, known)
        ends = self._chunk_text(text).find(self._values(self.end, isolation), self.earliest, self.end)
        if ends.is_certain or (ends.is_in_place and self._has_no_gaps_before(isolation)):
            return ends.offsets[0]
        if not ends.offsets:
            raise self._other_records()
        raise self._uncertain(ends)

    @property
    def _least_end(self) -> int:
        return self.chunk.first_record_offset + self.chunk.num_records

    @property
    def _what(self) -> str:
        return f"topic {self.topic!r}, partition {self.partition}"

    @property
    def _url(self) -> str:
        return self.store.url(self.key)

    def _begin_at(self, offset: int | str) -> str:
        return f"starting_offsets={{{self.topic!r}: {{{self.partition}: {offset}, …}}}} of the operator"

    def _chunk_text(self, text: bytes) -> ChunkText:
        return ChunkText(text, self.chunk.num_records, self.chunk.first_record_offset)

    def _values(self, end: int, isolation: Isolation) -> Iterator[tuple[int, bytes | None]]:
        """Offsets and values of the records in Kafka that may be those of the chunk."""
        start = max(self.chunk.first_record_offset, self.earliest)
        for batch in self.source.read(self.topic, self.partition, start, max(start, end), isolation):
            offsets = int64_values(batch.column("offset")).tolist()
            yield from zip(offsets, batch.column("value").to_pylist(), strict=True)

    def _has_no_gaps_before(self, isolation: Isolation) -> bool:
        """Whether all offsets before the chunk have records: then those of the index are right, as the sink counts.

        It began to count at 0 or behind it. Whether offsets that Kafka has deleted had records is not known.
        """
        first, following = self.chunk.first_record_offset, 0
        if self.earliest > 0:
            return False
        for batch in self.source.read(self.topic, self.partition, 0, first, isolation):
            if batch.num_rows:
                following += batch.num_rows
                if batch.column("offset")[-1].as_py() != following - 1:
                    return False
        return following == first

    def _require_known(self, text: bytes, known: int) -> int:
        """The next offset that a pipeline has written into the index; its records may have been compacted since."""
        if known < self.earliest:
            raise DataLossError(
                f"{self._what}: Kafka has deleted offsets [{known}, {self.earliest}), behind the last chunk of "
                f"{self._url}. If they had records, these are in no object. Nothing was changed. To accept their loss, "
                f"begin at the first offset in Kafka, by {self._begin_at(self.earliest)}"
            )
        # What was landed with another isolation level has these records, too.
        values = self._values(min(known, self.committed_end), "read_committed")
        try:
            is_same = self._chunk_text(text).has_in_order(_values_in(values, self._known_ranges(known)))
        except (ValueError, OSError, EOFError, zlib.error):
            is_same = False
        if not is_same:
            raise self._other_records()
        return known

    def _known_ranges(self, known: int) -> Iterable[tuple[int, int]]:
        """Ranges of offsets whose records are in the chunk. Between them may be those of other objects.

        These are of other folders, or dead letters. An index of an earlier version has no ranges if there are many.
        Then only its first and its last offset are known to be the chunk's.
        """
        first = self.chunk.first_record_offset
        if (ranges := self.chunk.ranges()) is not None:
            return ranges
        return ((first, known),) if self._least_end == known else ((first, first + 1), (known - 1, known))

    def _other_records(self) -> ConfigurationError:
        start = max(self.chunk.first_record_offset, self.earliest)
        return ConfigurationError(
            f"{self._what}: the {self.chunk.num_records} records of the last chunk of {self._url} are not those in "
            f"Kafka from offset {start} on: the topic was created again, the Kafka connection "
            f"is to another cluster, or the object is damaged. Nothing was changed. Look at the object, then choose "
            f"where the pipeline begins, by {self._begin_at('OFFSET')}"
        )

    def _uncertain(self, ends: Ends) -> ConfigurationError | DataLossError:
        """The error if the next offset is not certain.

        Args:
            ends: what is possible.
        """
        first, earliest, least = self.chunk.first_record_offset, self.earliest, self._least_end
        several = f"its records are in accordance with those in Kafka before offsets {few(ends.offsets)}"
        if not ends.is_complete:
            several += ", and Kafka has more records behind them than are searched"
        elif len(ends.offsets) == 1:
            several += ", but Kafka does not have all of them"
        choose = (
            f"Nothing was changed. Compare the lines of the object with the records in Kafka, then choose where the "
            f"pipeline begins, by {self._begin_at('OFFSET')}"
        )
        if first >= earliest:
            return ConfigurationError(
                f"{self._what}: it is not certain behind which offset the last chunk of {self._url} ends, since "
                f"offsets have gaps, or may have had some that Kafka has deleted, and values may be repeated: "
                f"{several}. {choose}"
            )
        deleted = (
            f"{self._what}: Kafka has deleted offsets [{first}, {earliest}), which records of the last chunk of "
            f"{self._url} had, so it is not certain behind which offset it ends (at {least} if offsets have no gaps)"
        )
        if ends.offsets != (earliest,) or least == earliest:
            return DataLossError(f"{deleted}: {several}. {choose}")
        return DataLossError(
            f"{deleted}. None of them is found in Kafka. If it has deleted records behind them, too, these are in no "
            f"object. Nothing was changed. To accept that some may be lost, begin at the first offset in Kafka, by "
            f"{self._begin_at(earliest)}"
        )


def _values_in(values: Iterable[tuple[int, bytes | None]], ranges: Iterable[tuple[int, int]]) -> Iterator[bytes]:
    """The values in these ranges of offsets, of those that are not null. Both are ascending."""
    left = iter(ranges)
    start, stop = next(left, (0, 0))
    for offset, value in values:
        while offset >= stop:
            following = next(left, None)
            if following is None:
                return
            start, stop = following
        if offset >= start and value is not None:
            yield value


def _text_of(store: DurableStore, key: str, chunk: Chunk) -> bytes | None:
    """The lines of a chunk; None if there is no such object, or it is damaged."""
    if chunk.byte_length > _MAX_CHUNK:
        return None
    stored = store.get(key, start=chunk.byte_offset, end=chunk.byte_offset + chunk.byte_length)
    unzip = zlib.decompressobj(wbits=31)
    try:
        text = b"" if stored is None else unzip.decompress(stored.body, _MAX_CHUNK)
    except zlib.error:
        return None
    return text if unzip.eof else None
