"""A frame of Spark's own readers over exactly the committed objects of a topic."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from airflow_provider_kafka_s3.config import AvroContainer, BlockGzip, Csv, Format, JsonLines, Parquet, RawBytes
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.layout.keys import data_prefix
from airflow_provider_kafka_s3.reading.object_schemas import schema_of_objects
from airflow_provider_kafka_s3.reading.snapshot import Snapshot
from airflow_provider_kafka_s3.reading.snapshot_objects import SnapshotObject

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["spark_frame"]

_PATTERN: Final = re.compile(r"[\\{}\[\]*?]")
"""Characters of Hadoop's patterns of paths."""


def spark_frame(
    spark: SparkSession, snapshot: Snapshot, *, schema: Any = None, root: str | None = None, **selection: Any
) -> DataFrame:
    """A frame of the objects of a snapshot, read by Spark's own source of their format.

    The list of objects is part of the frame, so every action on it reads the same records. Folders ``name=value`` are
    columns, with the types that Spark infers. Spark prunes them, and pushes filters down to Parquet. Objects whose
    settings differ, such as the separators of CSV, are read each with their own, and the rows are put together by the
    names of columns.

    Args:
        spark: needs a file system for the paths, such as ``s3a`` of ``hadoop-aws``; without one, use the format
            ``kafka_s3`` of :mod:`~airflow_provider_kafka_s3.reading.data_source`. Avro needs ``spark-avro``.
        snapshot: of one topic.
        schema: as ``DataFrameReader.schema`` takes it; None: of Parquet, the columns of all objects, see
            :meth:`~airflow_provider_kafka_s3.reading.snapshot.Snapshot.schema`; of other formats, Spark infers it,
            which reads JSON and CSV twice.
        root: where Spark finds the bucket, such as ``s3://lake`` or a mounted folder; None: ``s3a://`` and its name.
        selection: which objects, as :meth:`~airflow_provider_kafka_s3.reading.snapshot.Snapshot.objects` takes it.

    Raises:
        ConfigurationError: there is no object, the objects need several of Spark's sources, or one cannot be read by
            Spark, or the columns of objects do not go together.
    """
    objects = snapshot.objects(**selection)
    if not objects:
        raise ConfigurationError(
            f"topic {snapshot.log.topic!r} has no objects of this selection at batch {snapshot.batch}, so Spark "
            f"cannot make a frame of them"
        )
    base = (root or f"s3a://{snapshot.log.store.url('').removeprefix('s3://').rstrip('/')}").rstrip("/")
    groups: dict[tuple[str, tuple[tuple[str, str], ...]], list[SnapshotObject]] = {}
    for one in objects:
        options = {**_options(one.layout.format), "basePath": f"{base}/{data_prefix(one.layout, one.topic)}"}
        groups.setdefault((_source(one), tuple(options.items())), []).append(one)
    sources = {source: some[0].url for (source, _), some in groups.items()}
    if len(sources) > 1:
        needed = ", ".join(f"{source} for {url}" for source, url in sources.items())
        raise ConfigurationError(
            f"the objects of topic {snapshot.log.topic!r} need several of Spark's sources, {needed}. Select the "
            f"batches of one of them, by batches="
        )
    if schema is None and "parquet" in sources:
        from pyspark.sql.pandas.types import from_arrow_schema

        schema = from_arrow_schema(schema_of_objects(snapshot.log.store, objects))
    frames: dict[str, DataFrame] = {}
    for (source, options_of), some in groups.items():
        reader = spark.read.format(source).options(**dict(options_of))
        if schema is not None:
            reader = reader.schema(schema)
        frames[some[0].url] = reader.load([f"{base}/{_PATTERN.sub(_escaped, one.key)}" for one in some])
    return _together(snapshot, frames)


def _together(snapshot: Snapshot, frames: dict[str, DataFrame]) -> DataFrame:
    """The rows of all frames, whose columns have to be the same; the URLs are of one object of each."""
    (first_url, first), *others = frames.items()
    found = first
    for url, frame in others:
        if sorted(frame.dtypes) != sorted(first.dtypes):
            differ = sorted({*frame.dtypes} ^ {*first.dtypes})
            raise ConfigurationError(
                f"the objects of topic {snapshot.log.topic!r} have different settings or folders, so they are read by "
                f"several frames, and these have different columns: {first_url} and {url} differ in "
                f"{', '.join(f'{name} {kind}' for name, kind in differ)}. Give a schema, or select the batches of one "
                f"of them, by batches="
            )
        found = found.unionByName(frame)
    return found


def _escaped(found: re.Match[str]) -> str:
    return f"\\{found[0]}"


def _source(one: SnapshotObject) -> str:
    match one.layout.format:
        case JsonLines() | BlockGzip(lines=JsonLines()):
            return "json"
        case RawBytes(separator="\n") | BlockGzip(lines=RawBytes(separator="\n")):
            return "text"
        case Parquet():
            return "parquet"
        case AvroContainer():
            return "avro"
        case Csv():
            return "csv"
    raise ConfigurationError(
        f"Spark has no source for {one.url} of topic {one.topic!r}, batch {one.batch}, with the format "
        f"{one.layout.format!r}: read the objects by the format kafka_s3, or by their URLs"
    )


def _options(settings: Format) -> dict[str, str]:
    match settings:
        case RawBytes(separator="\n") | BlockGzip(lines=RawBytes(separator="\n")):
            # By default a carriage return ends a line, too.
            return {"lineSep": "\n"}
        case Csv():
            return {
                "header": str(settings.header).lower(),
                "sep": settings.separator,
                "nullValue": settings.null,
                "escape": '"',
                "multiLine": "true",
            }
    return {}
