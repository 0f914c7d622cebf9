"""Objects that other software wrote, Confluent's or DeviantArt's S3 sink, in the order of their records.

Their names have topic, Kafka partition and first offset. No document says which of them are complete, so the listing is
what the names say: it is exact when the sink has stopped.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from airflow_provider_kafka_s3.config import DeviantArtNaming, JsonLines, Layout, Naming, default_partitioner
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.formats.block_index import Chunk, chunks_of
from airflow_provider_kafka_s3.layout.keys import data_prefix, named_object_parser
from airflow_provider_kafka_s3.messages import count, few
from airflow_provider_kafka_s3.parallel import in_threads
from airflow_provider_kafka_s3.storage.durable import DurableStore

__all__ = ["Chunk", "ForeignObject", "compression_of", "list_foreign_objects"]

ForeignFormat = Literal["json", "avro", "parquet", "csv", "bytes"]
Compression = Literal["none", "gzip", "zstd", "bzip2"]

_COMPRESSIONS: Final[Mapping[str, Compression]] = {".gz": "gzip", ".zst": "zstd", ".bz2": "bzip2"}
_FORMATS: Final[Mapping[str, ForeignFormat]] = {
    ".json": "json",
    ".avro": "avro",
    ".parquet": "parquet",
    ".csv": "csv",
    ".bin": "bytes",
    "": "bytes",
}
_INDEX: Final = "index"
_BESIDE: Final = ("keys", "headers", _INDEX)
"""What names of objects beside others have before the extension."""


@dataclass(frozen=True, kw_only=True)
class ForeignObject:
    """An object of values.

    Attributes:
        key: of the object.
        partition: the Kafka partition.
        first_offset: offset of its first record.
        size: in bytes.
        etag: of the object when it was listed.
        folders: of the partitioner, such as ``year=2026/month=01``, or the day.
        format: by its extension; None: it is not known.
        compression: of the object as a whole, by its extension. Avro and Parquet are compressed inside.
        records: number of its records; None: only its bytes have it.
        chunks: of an object with an index.
        beside: keys of the objects with the keys (``keys``) and headers (``headers``) of the same records, and of the
            index (``index``).
    """

    key: str
    partition: int
    first_offset: int
    size: int
    etag: str
    folders: str
    format: ForeignFormat | None
    compression: Compression
    records: int | None = None
    chunks: tuple[Chunk, ...] = ()
    beside: Mapping[str, str] = field(default_factory=dict)


def list_foreign_objects(
    store: DurableStore,
    *,
    topics_dir: str,
    topic: str,
    layout: Literal["confluent", "deviantart"] = "confluent",
    naming: Naming | None = None,
    before: Mapping[int, int] | None = None,
    on_alone: Callable[[int, str], object] | None = None,
) -> dict[int, list[ForeignObject]]:
    """The objects of a topic, per Kafka partition in the order of their first offsets.

    Several folders of a partitioner share the offsets of a partition: their objects are in one order, in which the
    records of one may lie between those of another.

    Args:
        store: the bucket.
        topics_dir: prefix of the sink's keys, without slashes at its ends; may be empty.
        topic: name of the topic.
        layout: whose names they have. DeviantArt's objects need their indices; one without an index was not finished,
            and is left out.
        naming: delimiters of Confluent's names; None: the sink's defaults.
        before: per Kafka partition the first offset of a pipeline that has taken over; later objects are its own.
        on_alone: called with the Kafka partition and the key of each object of keys or headers that is beside no object
            of values: Confluent's sink writes such objects for null values.

    Raises:
        ConfigurationError: two objects begin with one offset, or an index is damaged.
    """
    shown = Layout(topics_dir=topics_dir, format=JsonLines(), naming=naming or Naming())
    if layout == "deviantart":
        by_day = DeviantArtNaming()
        shown = Layout(
            topics_dir=topics_dir, format=JsonLines(), naming=by_day, partitioner=default_partitioner(by_day)
        )
    foreign_objects, alone = _named(store, shown, topic)
    if layout == "deviantart":
        indexed = [one for one in foreign_objects if _INDEX in one.beside]
        foreign_objects = in_threads(lambda one: _with_index(store, one), indexed, threads=16)
    for partition, first, key in alone:
        if on_alone is not None and (before is None or first < before.get(partition, 0)):
            on_alone(partition, key)
    listed: dict[int, list[ForeignObject]] = {}
    for foreign_object in sorted(foreign_objects, key=lambda one: (one.partition, one.first_offset, one.key)):
        if before is None or foreign_object.first_offset < before.get(foreign_object.partition, 0):
            listed.setdefault(foreign_object.partition, []).append(foreign_object)
    for partition, objects in listed.items():
        _require_one_each(store, topic, partition, objects)
    return listed


def _named(store: DurableStore, layout: Layout, topic: str) -> tuple[list[ForeignObject], list[tuple[int, int, str]]]:
    """Objects of values, with what is beside them; and Kafka partition, first offset and key of what is beside none."""
    parse = named_object_parser(layout, topic)
    objects: list[ForeignObject] = []
    beside: dict[tuple[str, int, int], dict[str, str]] = {}
    for info in store.list(data_prefix(layout, topic)):
        named = parse(info.key)
        if named is None or named.generation:
            continue
        others = beside.setdefault((named.folders, named.partition, named.first_offset), {})
        word = named.ending.removeprefix(".").partition(".")[0]
        if word in _BESIDE and named.ending != f".{word}":
            others[word] = info.key
            continue
        record_format, compression = _by_extension(named.ending)
        objects.append(
            ForeignObject(
                key=info.key,
                partition=named.partition,
                first_offset=named.first_offset,
                size=info.size,
                etag=info.etag,
                folders=named.folders,
                format=record_format,
                compression=compression,
                beside=others,
            )
        )
    places = {(one.folders, one.partition, one.first_offset) for one in objects}
    alone = [
        (partition, first, key)
        for (folders, partition, first), others in beside.items()
        if (folders, partition, first) not in places
        for word, key in others.items()
        if word != _INDEX
    ]
    return objects, alone


def compression_of(key: str) -> Compression:
    """The compression of an object as a whole, by the end of its key."""
    return next((name for extension, name in _COMPRESSIONS.items() if key.endswith(extension)), "none")


def _by_extension(ending: str) -> tuple[ForeignFormat | None, Compression]:
    """What an extension such as ``.json.gz`` or ``.snappy.parquet`` says."""
    compression = compression_of(ending)
    for extension in _COMPRESSIONS:
        ending = ending.removesuffix(extension)
    if ending.endswith(".parquet"):
        ending = ".parquet"
    return _FORMATS.get(ending), compression


def _with_index(store: DurableStore, one: ForeignObject) -> ForeignObject:
    key = one.beside[_INDEX]
    stored = store.get(key)
    try:
        chunks = None if stored is None else chunks_of(stored.body)
    except ValueError:
        chunks = None
    if chunks is None or not _is_of(chunks, one):
        raise ConfigurationError(
            f"the index {store.url(key)} is damaged, or not that of its object of {one.size:,} bytes. Nothing was "
            f"changed. Look at both; without the two objects their records are left out"
        )
    return replace(one, chunks=chunks, records=sum(chunk.num_records for chunk in chunks))


def _is_of(chunks: Sequence[Chunk], one: ForeignObject) -> bool:
    """Whether chunks lie one behind another, and end where the object ends."""
    end = 0
    for chunk in chunks:
        if chunk.byte_offset != end or chunk.byte_length <= 0 or chunk.num_records < 0:
            return False
        end += chunk.byte_length
    return end == one.size


def _require_one_each(store: DurableStore, topic: str, partition: int, objects: Sequence[ForeignObject]) -> None:
    twice = [(a, b) for a, b in itertools.pairwise(objects) if a.first_offset == b.first_offset]
    if twice:
        urls = few([store.url(one.key) for one in twice[0]])
        raise ConfigurationError(
            f"topic {topic!r}, partition {partition}: {count(len(twice), 'object')} with the same first offset as "
            f"another, such as {urls}: the sink wrote records again after a failure. Nothing was changed. Move away "
            f"the one that has fewer of the records"
        )
