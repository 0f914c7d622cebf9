"""Finds out what a table over a topic has: by its log, and by the schemas of its objects."""

from __future__ import annotations

import logging
from typing import Final

from airflow_provider_kafka_s3.config import (
    Csv,
    CustomFormat,
    Envelope,
    JsonConverter,
    JsonLines,
    Layout,
    RawBytes,
    SiblingObjects,
)
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.layout import keys
from airflow_provider_kafka_s3.messages import count
from airflow_provider_kafka_s3.reading.snapshot import Snapshot
from airflow_provider_kafka_s3.reading.snapshot_objects import SnapshotObject
from airflow_provider_kafka_s3.tables.ddl.columns import columns_of_objects
from airflow_provider_kafka_s3.tables.ddl.folders import folder_parts, table_folders
from airflow_provider_kafka_s3.tables.ddl.model import LandedTable

__all__ = ["landed_table"]

log = logging.getLogger(__name__)

_LISTED: Final = (
    "The table lists the bucket: it also shows objects of a batch that is not committed yet. Exactly the committed "
    "records are those of a snapshot (airflow_provider_kafka_s3.reading)."
)


def landed_table(snapshot: Snapshot) -> LandedTable:
    """The objects of a topic as a table of the newest layout.

    Args:
        snapshot: with the objects whose schemas and folders are looked at; each of Parquet and Avro takes one or two
            requests.

    Raises:
        ConfigurationError: there is no object, the format is one of another package, or the columns of objects do not
            go together.
        MissingObjectError: an object is gone.
        ForeignObjectError: an object is not of its format.
    """
    topic = snapshot.log.topic
    log.info("topic %s: looking at the objects up to batch %d", topic, snapshot.batch)
    objects = sorted(snapshot.objects(), key=lambda data_object: data_object.batch)
    if not objects:
        raise ConfigurationError(
            f"topic {topic!r} of pipeline {snapshot.log.pipeline!r} has no objects up to batch {snapshot.batch}, so "
            f"neither its columns nor its folders are known. Land records first, or look at more batches (--last)"
        )
    newest = objects[-1]
    layout = newest.layout
    if isinstance(layout.format, CustomFormat):
        raise ConfigurationError(
            f"topic {topic!r}: the format of its objects is the class {layout.format.import_path!r} of another "
            f"package, whose files no engine is known to read. Its author has to say how a table of them is declared"
        )
    parts, rows, prefix = folder_parts(newest), _rows(layout), keys.data_prefix(layout, topic)
    here = [
        one
        for one in objects
        if _rows(one.layout) == rows and folder_parts(one) == parts and one.key.startswith(prefix)
    ]
    columns = columns_of_objects(snapshot.log, layout, here)
    return LandedTable(
        topic=topic,
        pipeline=snapshot.log.pipeline,
        batch=snapshot.batch,
        bucket=snapshot.log.bucket,
        prefix=prefix,
        layout=layout,
        parts=parts,
        folders=table_folders(layout, parts, here, columns.columns),
        extensions=tuple(sorted({one.layout.format.object_extension for one in here})),
        has_siblings=any(isinstance(one.layout.content, SiblingObjects) for one in objects),
        has_index=any(one.layout.has_index for one in objects),
        remarks=(*_about(snapshot, layout), *_others(objects, here)),
        **columns._asdict(),
    )


def _rows(layout: Layout) -> tuple[object, ...]:
    """What has to be equal for the rows of two layouts to be in one table."""
    settings = layout.record_format
    kind, is_enveloped = type(settings), isinstance(layout.content, Envelope)
    match settings:
        case JsonLines(decimal_format=decimals):
            return (
                kind,
                is_enveloped,
                decimals,
                *((layout.key_converter, layout.value_converter) if is_enveloped else ()),
            )
        case Csv(separator=separator, header=header, null=null):
            return kind, separator, header, null
        case RawBytes(separator=separator):
            return kind, separator
    return (kind,)


def _about(snapshot: Snapshot, layout: Layout) -> list[str]:
    """Remarks on every table over a folder."""
    since = f"of batches {snapshot.since + 1} to" if snapshot.since else "up to batch"
    topic, pipeline = snapshot.log.topic, snapshot.log.pipeline
    remarks = [
        f"Topic {topic} of pipeline {pipeline}, {type(layout.format).__name__}, by the log {since} {snapshot.batch}.",
        _LISTED,
    ]
    if isinstance(layout.value_converter, JsonConverter) and layout.value_converter.schemas_enable:
        remarks.append("Each value had its own schema in Kafka, and the log does not have these.")
    if keys.is_hidden(layout, snapshot.log.topic):
        names = ", ".join(keys.hidden_names(layout, snapshot.log.topic))
        remarks.append(f"Hive, Athena, Trino and Spark skip names that begin with _ or a dot: {names}.")
    return remarks


def _others(objects: list[SnapshotObject], here: list[SnapshotObject]) -> list[str]:
    """Remarks on objects of earlier layouts, which the table does not show as they are."""
    keys_here = {one.key for one in here}
    others = [one for one in objects if one.key not in keys_here]
    remarks = []
    if others:
        remarks.append(
            f"{count(len(others), 'object')} up to batch {max(one.batch for one in others)} have another format, "
            f"other settings of it, or other folders, such as {others[-1].url}: the table has them wrongly, or not "
            f"at all."
        )
    return remarks
