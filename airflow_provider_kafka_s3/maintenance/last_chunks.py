"""How far DeviantArt's sink of Kafka Connect is, by its own objects.

The sink writes a data object of gzip members (chunks), then an index of them, then a marker object that names the
index. Its next offset is behind the last record of the last chunk. The index has the first offset of the chunk and the
number of its records; since offsets may have gaps, the records are counted in Kafka, and compared with the chunk.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Final, Literal

from airflow_provider_kafka_s3.batch.source import Isolation, Source
from airflow_provider_kafka_s3.config import MIB
from airflow_provider_kafka_s3.exceptions import ConfigurationError, DataLossError
from airflow_provider_kafka_s3.formats.block_index import Chunk, chunks_of
from airflow_provider_kafka_s3.layout import keys
from airflow_provider_kafka_s3.maintenance.leftovers import Leftover
from airflow_provider_kafka_s3.messages import count, few
from airflow_provider_kafka_s3.storage.durable import DurableStore

if TYPE_CHECKING:
    import pyarrow as pa

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
            Kafka has other records than the chunk.
        DataLossError: Kafka has deleted the records of a last chunk.
    """
    partitions = source.describe(topic).partitions
    _require_partitions(store, topics_dir, topic, partitions)
    earliest = source.earliest(topic, partitions)
    ends = source.ends(topic, partitions, isolation)
    found: dict[int, int] = {}
    absent: list[str] = []
    for p in partitions:
        key = keys.chunk_marker_key(topics_dir, topic, p)
        chunk = _last_chunk(store, key)
        if chunk is not None:
            found[p] = _behind(store, source, topic, p, chunk, earliest=earliest[p], end=ends[p], isolation=isolation)
        elif without_offset == "earliest" or (earliest[p] == ends[p] == 0):
            found[p] = earliest[p]
        else:
            absent.append(store.url(key))
    if absent:
        raise ConfigurationError(
            f"partitions of topic {topic!r} have records and no marker of the sink: {few(absent)}. Nothing was "
            f"changed. Check s3.prefix and the bucket. If the sink has never ended an object of them, begin at the "
            f"first offset in Kafka: --without-offset earliest"
        )
    return found


def find_data_objects(
    store: DurableStore, topics_dir: str, topic: str, bounds: Mapping[int, tuple[int, int]]
) -> dict[int, list[Leftover]]:
    """Data objects, and their indices, whose names have offsets ``[first, end)``; per Kafka partition."""
    folder = re.escape(keys.below(topics_dir))
    named = re.compile(rf"{folder}(\d{{4}}-\d\d-\d\d)/{re.escape(topic)}-(\d+)-(\d+)(\.gz|\.index\.json)")
    found: dict[int, list[Leftover]] = {partition: [] for partition in bounds}
    for info in store.list(keys.below(topics_dir)):
        match = named.fullmatch(info.key)
        if match is None or (partition := int(match[2])) not in bounds:
            continue
        first, end = bounds[partition]
        if first <= int(match[3]) < end:
            found[partition].append(Leftover(info.key, match[1], match[4], int(match[3]), info.size))
    return found


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
    name = marker.body.decode("utf-8", "replace").strip()
    index = store.get(name) if name.endswith(".index.json") and len(name) <= 1_024 else None
    try:
        found = () if index is None else chunks_of(index.body)
    except ValueError:
        found = ()
    chunks = [one for one in found if one.num_records > 0 and one.byte_offset >= 0 and one.byte_length > 0]
    if not chunks:
        raise ConfigurationError(
            f"the marker {store.url(key)} does not lead to an index with chunks. Nothing was changed. Look at the "
            f"object that it names, then choose where the pipeline begins, by starting_offsets of the operator"
        )
    return f"{name.removesuffix('.index.json')}.gz", chunks[-1]


def _behind(
    store: DurableStore,
    source: Source,
    topic: str,
    partition: int,
    found: tuple[str, Chunk],
    *,
    earliest: int,
    end: int,
    isolation: Isolation,
) -> int:
    """The offset behind the last record of a chunk, by the records in Kafka."""
    key, chunk = found
    first = chunk.first_record_offset
    choose = "Look at the object, then choose where the pipeline begins, by starting_offsets of the operator"
    if first < earliest:
        raise DataLossError(
            f"topic {topic!r}, partition {partition}: Kafka has deleted offsets [{first}, {earliest}), and with them "
            f"records of the last chunk of {store.url(key)}, so it is unknown behind which offset it ends (at "
            f"{first + chunk.num_records} if offsets have no gaps). Nothing was changed. {choose}"
        )
    text = _text_of(store, key, chunk)
    last, lines = first - 1, []
    if text is not None and first < end:
        for offset, value in _values(source.read(topic, partition, first, end, isolation)):
            lines.append(value if value.endswith(b"\n") else value + b"\n")
            last = offset
            if len(lines) == chunk.num_records:
                break
    if text is None or b"".join(lines) != text:
        raise ConfigurationError(
            f"topic {topic!r}, partition {partition}: the {chunk.num_records} records of the last chunk of "
            f"{store.url(key)} are not those in Kafka from offset {first} on: the topic was created again, the Kafka "
            f"connection is to another cluster, or the object is damaged. Nothing was changed. {choose}"
        )
    return last + 1


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


def _values(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, bytes]]:
    """Offsets and values, up to a null value, which the sink cannot write."""
    for batch in batches:
        for offset, value in zip(batch.column("offset"), batch.column("value"), strict=True):
            if not value.is_valid:
                return
            yield offset.as_py(), value.as_py()
