"""A frame of Spark's own readers over exactly the committed objects of a topic."""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.layout.folders import NULL_FOLDER
from airflow_provider_kafka_s3.layout.keys import data_prefix
from airflow_provider_kafka_s3.reading.folder_columns import folder_types
from airflow_provider_kafka_s3.reading.formats.registry import format_reader
from airflow_provider_kafka_s3.reading.object_schemas import field_names, schema_of_objects
from airflow_provider_kafka_s3.reading.snapshot import Snapshot
from airflow_provider_kafka_s3.reading.snapshot_objects import SnapshotObject
from airflow_provider_kafka_s3.reading.text_columns import are_base64
from airflow_provider_kafka_s3.schemas.arrow_fields import names_alike, parts_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.types import DataType as PySparkType
    from pyspark.sql.types import StructField, StructType

__all__ = ["spark_frame"]

_PATTERN: Final = re.compile(r"[\\{}\[\]*?]")
"""Characters of Hadoop's patterns of paths."""
_DECIMAL_DIGITS: Final = 38
"""Of Spark's decimals, at most."""
_ALIKE: Final = (
    "fields of topic {topic!r} have names that differ in case only, which Spark takes for one: {names}. Set "
    "spark.sql.caseSensitive to true in the session, or give a schema without these columns"
)


@dataclass(frozen=True)
class _Group:
    """Objects that one reader of Spark can read together.

    Attributes:
        source: of Spark.
        options: of the source.
        base: the folder of the topic, as Spark finds it.
        delimiter: of folders.
        folders: the names of the columns that are folders, and as the keys have them.
        base64: whether bytes are texts in base64 for which Spark takes the letters.
    """

    source: str
    options: tuple[tuple[str, str], ...]
    base: str
    delimiter: str
    folders: tuple[tuple[str, str], ...]
    base64: bool


def spark_frame(
    spark: SparkSession, snapshot: Snapshot, *, schema: Any = None, root: str | None = None, **selection: Any
) -> DataFrame:
    """A frame of the objects of a snapshot, read by Spark's own source of their format.

    The list of objects is part of the frame, so every action on it reads the same records. Folders ``name=value`` are
    columns: int if all their values are such numbers, else text. Spark prunes them, and pushes filters down to Parquet.
    A folder with the name of a field, in any case, is none: Spark would show its value in place of the record's. The
    other folders of such objects are computed from their names, and not pruned.

    Objects whose settings differ, such as the separators of CSV, are read each with their own, and the rows are put
    together by the names of columns. A folder that only some of them have is null for the others.

    Args:
        spark: needs a file system for the paths, such as ``s3a`` of ``hadoop-aws``; without one, use the format
            ``kafka_s3`` of :mod:`~airflow_provider_kafka_s3.reading.data_source`. Avro needs ``spark-avro``.
        snapshot: of one topic.
        schema: as ``DataFrameReader.schema`` takes it; None: of Parquet, the columns of all objects, see
            :meth:`~airflow_provider_kafka_s3.reading.snapshot.Snapshot.schema`; of other formats, Spark infers it,
            which reads JSON and CSV twice. With the name of a folder in it the objects are read, too, for the names of
            their fields; the folder has its type if no object has a field of that name.
        root: where Spark finds the bucket, such as ``s3://lake`` or a mounted folder; None: ``s3a://`` and its name.
        selection: which objects, as :meth:`~airflow_provider_kafka_s3.reading.snapshot.Snapshot.objects` takes it.

    Raises:
        ConfigurationError: there is no object, the objects need several of Spark's sources, or one cannot be read by
            Spark, or the columns of objects do not go together, or Spark has no type for one of Parquet, or takes two
            whose names differ in case only for one.
    """
    from pyspark.sql.pandas.types import from_arrow_schema, from_arrow_type
    from pyspark.sql.types import StructType

    objects = snapshot.objects(**selection)
    if not objects:
        raise ConfigurationError(
            f"topic {snapshot.log.topic!r} has no objects of this selection at batch {snapshot.batch}, so Spark "
            f"cannot make a frame of them"
        )
    bucket = (root or f"s3a://{snapshot.log.store.url('').removeprefix('s3://').rstrip('/')}").rstrip("/")
    groups: dict[_Group, list[SnapshotObject]] = {}
    for snapshot_object in objects:
        groups.setdefault(_group(snapshot_object, bucket), []).append(snapshot_object)
    sources = {group.source: peers[0].url for group, peers in groups.items()}
    if len(sources) > 1:
        needed = ", ".join(f"{source} for {url}" for source, url in sources.items())
        raise ConfigurationError(
            f"the objects of topic {snapshot.log.topic!r} need several of Spark's sources, {needed}. Select the "
            f"batches of one of them, by batches="
        )
    (source,) = sources
    paths = {group: [f"{bucket}/{_PATTERN.sub(_escaped, one.key)}" for one in some] for group, some in groups.items()}

    # Spark's default is null for a value that has not the type of the schema.
    strict = {"mode": "FAILFAST"} if schema is not None and source in ("json", "csv") else {}

    def reader(group: _Group) -> DataFrameReader:
        return spark.read.format(source).options(**dict(group.options), **strict)

    folders = folder_types(objects)
    inferred: dict[_Group, StructType] = {}
    if isinstance(schema, str):
        schema = StructType.fromDDL(schema)
    if schema is None and source == "parquet":
        of_files = schema_of_objects(snapshot.log.store, objects)
        _require_readable(spark, snapshot, of_files)
        schema = from_arrow_schema(of_files)
        fields = _folded(schema.names)
    elif schema is not None and _folded(folders).isdisjoint(_folded(schema.names)):
        fields = _folded(schema.names)
    else:
        inferred = {group: _inferred(snapshot, reader(group), paths[group]) for group in groups}
        fields = _folded(name for group, found in inferred.items() for name in _names(group, found, schema))
        if source in ("parquet", "avro"):
            fields |= _folded(field_names(snapshot.log.store, objects))
    declared = {field.name.lower(): field.dataType for field in schema or ()}
    shown = {
        name: declared.get(name.lower(), from_arrow_type(kind))
        for name, kind in folders.items()
        if name.lower() not in fields
    }
    frames: dict[str, DataFrame] = {}
    for group, peers in groups.items():
        columns = inferred[group] if schema is None else schema
        columns = [column for column in columns if column.name.lower() not in _folded(shown)]
        here = [name for name, _ in group.folders if name in shown]
        frames[peers[0].url] = _frame(reader(group), paths[group], group, columns, {name: shown[name] for name in here})
    return _together(snapshot, frames, shown.keys())


def _inferred(snapshot: Snapshot, reader: DataFrameReader, paths: list[str]) -> StructType:
    """The columns of files as Spark infers them, without those of folders."""
    from pyspark.errors import AnalysisException

    try:
        return reader.load(paths).schema
    except AnalysisException as e:
        if "COLUMN_ALREADY_EXISTS" not in str(e):
            raise
        raise ConfigurationError(_ALIKE.format(topic=snapshot.log.topic, names=str(e).splitlines()[0])) from e


def _frame(
    reader: DataFrameReader,
    paths: list[str],
    group: _Group,
    columns: Sequence[StructField],
    folders: Mapping[str, PySparkType],
) -> DataFrame:
    """The columns of files, and those of folders: a part of the group's folders, if others are called like a column."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import BinaryType, StringType, StructField, StructType

    texts = [one.name for one in columns if group.base64 and isinstance(one.dataType, BinaryType)]
    if texts:
        read_as = [StructField(one.name, StringType()) if one.name in texts else one for one in columns]
        frame = _frame(reader, paths, replace(group, base64=False), read_as, folders)
        return frame.withColumns({name: f.to_binary(f"`{name}`", f.lit("base64")) for name in texts})
    if group.delimiter == "/" and len(folders) == len(group.folders):
        with_folders = StructType([*columns, *(StructField(*folder) for folder in folders.items())])
        return reader.option("basePath", group.base).schema(with_folders).load(paths)
    frame, raw = reader.schema(StructType([*columns])).load(paths), dict(group.folders)
    values = [_folder(frame, raw[name], group.delimiter).cast(kind).alias(name) for name, kind in folders.items()]
    return frame.select("*", *values)


def _require_readable(spark: SparkSession, snapshot: Snapshot, schema: pa.Schema) -> None:
    """Refuse columns of which a single one makes the whole frame unreadable."""
    unreadable = [f"{name!r} is {why}" for name, why in _unreadable("", schema)]
    if unreadable:
        raise ConfigurationError(
            f"Spark cannot read these columns of topic {snapshot.log.topic!r}: {', '.join(unreadable)}. Give a schema "
            f"without them, or read the objects by the format kafka_s3 or by arrow_batches"
        )
    alike = [*names_alike(schema)]
    if alike and str(spark.conf.get("spark.sql.caseSensitive")).lower() != "true":
        raise ConfigurationError(_ALIKE.format(topic=snapshot.log.topic, names=", ".join(alike)))


def _unreadable(path: str, fields: Iterable[pa.Field[Any]]) -> Iterator[tuple[str, str]]:
    """The names of columns, and parts of them, that Spark's reader of Parquet has no type for."""
    for field in fields:
        name = f"{path}{field.name}"
        if pa.types.is_time(field.type):
            yield name, "a time of day"
        elif pa.types.is_decimal(field.type) and field.type.precision > _DECIMAL_DIGITS:
            yield name, f"a decimal of {field.type.precision} digits, more than {_DECIMAL_DIGITS}"
        yield from _unreadable(f"{name}.", parts_of(field.type))


def _group(one: SnapshotObject, bucket: str) -> _Group:
    delimiter = one.layout.naming.directory_delim
    raw = [part.partition("=")[0] for part in one.folders.split(delimiter) if "=" in part]
    source = format_reader(one.layout.format).spark_source
    if source is None:
        raise ConfigurationError(
            f"Spark has no source for {one.url} of topic {one.topic!r}, batch {one.batch}, with the format "
            f"{one.layout.format!r}: read the objects by the format kafka_s3, or by their URLs"
        )
    return _Group(
        source.name,
        tuple(source.options.items()),
        f"{bucket}/{data_prefix(one.layout, one.topic)}",
        delimiter,
        tuple({urllib.parse.unquote(name): name for name in raw}.items()),
        source.has_base64 and are_base64(one.layout),
    )


def _names(group: _Group, inferred: StructType, schema: StructType | None) -> list[str]:
    """The names of the fields of objects; CSV without a header has its columns first, and by their position."""
    if schema is not None and dict(group.options).get("header") == "false":
        return schema.names[: len(inferred)]
    return inferred.names


def _folded(names: Iterable[str]) -> set[str]:
    """Names as Spark compares them."""
    return {name.lower() for name in names}


def _folder(frame: DataFrame, name: str, delimiter: str) -> Column:
    """The text of a folder, from the names of the files of a frame; null where it is that of null."""
    from pyspark.sql import functions as f

    def decoded(text: Column) -> Column:
        return f.url_decode(f.replace(text, f.lit("+"), f.lit("%2B")))

    path = decoded(frame.metadataColumn("_metadata").getField("file_path"))
    ends = re.escape(delimiter)
    text = f.regexp_extract(path, f"(?s).*{ends}{re.escape(name)}=(.*?){ends}", 1)
    # A percent sign may stand for itself.
    text = decoded(f.regexp_replace(text, "%(?![0-9A-Fa-f]{2})", "%25"))
    return f.when(~text.isin("", NULL_FOLDER), text)


def _together(snapshot: Snapshot, frames: dict[str, DataFrame], folders: Collection[str]) -> DataFrame:
    """The rows of all frames, whose columns have to be the same but for folders; the URLs are of one object of each."""
    (first_url, first), *others = frames.items()
    combined = first
    for url, frame in others:
        differ = sorted(column for column in {*frame.dtypes} ^ {*first.dtypes} if column[0] not in folders)
        if differ:
            raise ConfigurationError(
                f"the objects of topic {snapshot.log.topic!r} have different settings, so they are read by several "
                f"frames, and these have different columns: {first_url} and {url} differ in "
                f"{', '.join(f'{name} {kind}' for name, kind in differ)}. Give a schema, or select the batches of "
                f"one of them, by batches="
            )
        combined = combined.unionByName(frame, allowMissingColumns=True)
    return combined


def _escaped(found: re.Match[str]) -> str:
    return f"\\{found[0]}"
