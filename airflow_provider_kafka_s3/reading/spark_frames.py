"""A frame of Spark's own readers over exactly the committed objects of a topic."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from airflow_provider_kafka_s3.config import AvroContainer, BlockGzip, Csv, Format, JsonLines, Parquet, RawBytes
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.layout.keys import data_prefix
from airflow_provider_kafka_s3.reading.object_schemas import schema_of_objects
from airflow_provider_kafka_s3.reading.snapshot import Snapshot

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
    columns, with the types that Spark infers. Spark prunes them, and pushes filters down to Parquet.

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
        ConfigurationError: there is no object, the objects have several formats, or one that Spark cannot read, or the
            types of a column do not go together.
    """
    objects = snapshot.objects(**selection)
    if not objects:
        raise ConfigurationError(
            f"topic {snapshot.log.topic!r} has no objects of this selection at batch {snapshot.batch}, so Spark "
            f"cannot make a frame of them"
        )
    kinds = {type(one.layout.format): one.layout.format for one in objects}
    if len(kinds) > 1:
        raise ConfigurationError(
            f"the objects of topic {snapshot.log.topic!r} have several formats, "
            f"{', '.join(k.__name__ for k in kinds)}: select the batches of one of them, by batches="
        )
    (settings,) = kinds.values()
    base = (root or f"s3a://{snapshot.log.store.url('').removeprefix('s3://').rstrip('/')}").rstrip("/")
    reader = spark.read.format(_source(settings)).options(**_options(settings))
    reader = reader.option("basePath", f"{base}/{data_prefix(objects[0].layout, objects[0].topic)}")
    if schema is None and isinstance(settings, Parquet):
        from pyspark.sql.pandas.types import from_arrow_schema

        schema = from_arrow_schema(schema_of_objects(snapshot.log.store, objects))
    if schema is not None:
        reader = reader.schema(schema)
    return reader.load([f"{base}/{_PATTERN.sub(_escaped, one.key)}" for one in objects])


def _escaped(found: re.Match[str]) -> str:
    return f"\\{found[0]}"


def _source(settings: Format) -> str:
    match settings:
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
        f"Spark has no source for the format {settings!r}: read the objects by the format kafka_s3, or by their URLs"
    )


def _options(settings: Format) -> dict[str, str]:
    if not isinstance(settings, Csv):
        return {}
    return {
        "header": str(settings.header).lower(),
        "sep": settings.separator,
        "nullValue": settings.null,
        "escape": '"',
        "multiLine": "true",
    }
