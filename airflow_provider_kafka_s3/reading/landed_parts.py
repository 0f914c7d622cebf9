"""What a layout needs of landed records, and which of it their objects have."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from airflow_provider_kafka_s3.arrays import RECORD_SCHEMA, binary_array, int64_array
from airflow_provider_kafka_s3.config import (
    ByKey,
    CustomFormat,
    CustomPartitioner,
    Envelope,
    LandedConverter,
    Layout,
    SiblingObjects,
)
from airflow_provider_kafka_s3.documents.manifest import ObjectEntry
from airflow_provider_kafka_s3.exceptions import ConfigurationError, RecordError, message_of
from airflow_provider_kafka_s3.extensions.records import Batch
from airflow_provider_kafka_s3.layout.partitioners import make_partitioner
from airflow_provider_kafka_s3.messages import few
from airflow_provider_kafka_s3.reading.committed_objects import CommittedObjects
from airflow_provider_kafka_s3.reading.landed_values import why_no_schema
from airflow_provider_kafka_s3.reading.records import PartName, keeps_offsets, kept_parts
from airflow_provider_kafka_s3.times import time_text

__all__ = ["divides", "keeps_all_offsets", "require_parts"]

_WHOLE: Final[tuple[PartName, ...]] = ("key", "headers", "timestamp", "offset")
_MOST_STEPS: Final = 100_000
"""Times of an object whose folders are compared, at most."""


def divides(layout: Layout) -> bool:
    """Whether a layout may put the records of one landed object into several, or write their offsets."""
    return "offset" in _needed(layout)


def keeps_all_offsets(objects: CommittedObjects, entry: ObjectEntry) -> bool:
    """Whether the offset of each record of an object is known.

    Args:
        objects: of the batch.
        entry: one of ``objects.of_records()``.
    """
    return all(keeps_offsets(objects, entry, part) for part in entry.by_slice)


def require_parts(objects: CommittedObjects, entries: Sequence[ObjectEntry], layout: Layout) -> None:
    """Refuse a layout that needs something of records that objects do not have.

    Args:
        objects: of the batch.
        entries: some of ``objects.of_records()``.
        layout: to land their records with.

    Raises:
        ConfigurationError: with what is missing, and the layouts that do not need it.
    """
    missing, needed = {**kept_parts(objects.layout).missing}, _needed(layout)
    if isinstance(layout.value_converter, LandedConverter):
        missing.pop("value", None)
        if (why := why_no_schema(objects.layout)) is not None:
            raise _lacks(objects, "schema", why, "value_converter='landed' has it")
    elif "value" in missing and why_no_schema(objects.layout) is None:
        missing["value"] += "; value_converter='landed' takes the values of its files"
    for part, why in needed.items():
        if part in missing and part != "offset":
            raise _lacks(objects, part, missing[part], why)
    if "timestamp" in missing and layout.reads_timestamps and divides(layout):
        raise _lacks(objects, "timestamp", missing["timestamp"], f"{needed['offset']}, and the partitioner reads times")
    for entry in entries:
        if objects.is_dead_letters(entry):
            continue
        if divides(layout) and not keeps_all_offsets(objects, entry):
            raise _lacks(objects, "offset", "there are gaps between its offsets", needed["offset"], entry)
        if layout.reads_timestamps and "timestamp" in missing and objects.sibling(entry) is None:
            if not entry.has_times:
                raise _lacks(
                    objects, "timestamp", "some have none, or it is unknown", "its partitioner reads it", entry
                )
            _require_one_folder(objects, entry, layout)


@functools.lru_cache(maxsize=4)
def _needed(layout: Layout) -> Mapping[PartName, str]:
    """The parts of each record that a layout needs, and what needs them; but for the time of a partitioner."""
    needed: dict[PartName, str] = {"value": "every layout has values"}
    content, rotation = layout.content, layout.rotation
    if isinstance(content, Envelope):
        needed |= dict.fromkeys(_WHOLE, "content='envelope' has it")
    if isinstance(content, SiblingObjects) and content.keys is not None:
        needed["key"] = "content='siblings' has objects of keys"
    if isinstance(content, SiblingObjects) and content.headers is not None:
        needed["headers"] = "content='siblings' has objects of headers"
    if rotation.rotate_interval_ms is not None:
        needed["timestamp"] = "rotate_interval_ms compares it"
    if rotation.flush_size is not None:
        needed["offset"] = "an object that flush_size ends is named by it"
    if layout.has_index:
        needed["offset"] = "the index of format='block_gzip' has it"
    if layout.field_names:
        needed["offset"] = "the partitioner reads a field, and an object that it divides is named by it"
    for partitioner in layout.partitioners:
        if isinstance(partitioner, ByKey):
            needed |= {"key": "ByKey reads it", "offset": "an object that ByKey divides is named by it"}
        if isinstance(partitioner, CustomPartitioner):
            needed |= dict.fromkeys(_WHOLE, "a partitioner of your own may read it")
    if isinstance(layout.format, CustomFormat):
        needed |= dict.fromkeys(_WHOLE, "a format of your own may read it")
    return needed


def _require_one_folder(objects: CommittedObjects, entry: ObjectEntry, layout: Layout) -> None:
    """Refuse an object whose records may be in several folders of a partitioner by time."""
    times = entry.min_timestamp, entry.max_timestamp
    partition = objects.plan.slices[entry.slices[0]].partition
    try:
        folders = _folders(layout, objects.plan.topic, partition, times)
    except RecordError as e:
        raise ConfigurationError(message_of(e)) from e
    if len(folders) > 1:
        raise ConfigurationError(
            f"an object of topic {objects.plan.topic!r}, batch {objects.plan.batch} of pipeline "
            f"{objects.log.pipeline!r}, keeps no timestamps, and has records from {time_text(times[0])} to "
            f"{time_text(times[1])}: which of them are in {few(folders, by=' and which in ')} is unknown. Nothing was "
            f"planned. Use a partitioner whose folders are not smaller than those of that pipeline, or land from Kafka "
            f"with content='envelope': {objects.url(entry)}"
        )


@functools.lru_cache(maxsize=4096)
def _folders(layout: Layout, topic: str, partition: int, times: tuple[int, int]) -> tuple[str, ...]:
    """The folders of all times from one to another; of very many times only those of these two."""
    by_time, (low, high) = layout.by_time, times
    assert by_time is not None, "it reads timestamps"
    # Between two times of one folder there may be others, as between the same hour of two days. No bucket is shorter
    # than half of the duration, also where daylight saving time begins.
    step = max(by_time.duration_ms // 2, 1)
    if high - low > step * _MOST_STEPS:
        return tuple(dict.fromkeys((f"folders from {time_text(low)} on", f"folders up to {time_text(high)}")))
    every = np.append(np.arange(low, high, step, dtype=np.int64), high)
    columns = [int64_array(np.arange(len(every))), int64_array(every), binary_array([b""] * len(every), large=False)]
    records = pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA)
    encoded = _partitioner(layout).encode(Batch(records, topic, partition, {}))
    return tuple(dict.fromkeys(encoded.paths[code] for code in encoded.codes.tolist()))


_partitioner = functools.lru_cache(maxsize=4)(make_partitioner)


def _lacks(
    objects: CommittedObjects, part: str, why_missing: str, why_needed: str, entry: ObjectEntry | None = None
) -> ConfigurationError:
    where = "" if entry is None else f": {objects.url(entry)}"
    return ConfigurationError(
        f"objects of topic {objects.plan.topic!r}, batch {objects.plan.batch} of pipeline {objects.log.pipeline!r}, do "
        f"not have the {part} of each record ({why_missing}), and this pipeline needs it: {why_needed}. Nothing was "
        f"planned. Choose a layout that does not need it, or land the topic from Kafka{where}"
    )
