"""Lineage of tasks for OpenLineage: datasets by the names of its naming page, their fields, offsets and counts.

An operator imports this only when the OpenLineage provider asks for its lineage, behind the task: nothing here affects
the task, and without the provider nothing is loaded. What only the bucket has is read within seconds, or left out.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit, urlunsplit

import attrs
import msgspec
import pyarrow as pa
from airflow.providers.openlineage.extractors import OperatorLineage  # noqa: TID253 - it has called
from openlineage.client.event_v2 import InputDataset, OutputDataset
from openlineage.client.facet_v2 import (
    InputDatasetFacet,
    RunFacet,
    dataset_version_dataset,
    output_statistics_output_dataset,
    schema_dataset,
    symlinks_dataset,
)

from airflow_provider_kafka_s3.airflow import connections
from airflow_provider_kafka_s3.batch.log import TopicLog
from airflow_provider_kafka_s3.config.tables import HiveTable, PartitionsIn, table_of_topic
from airflow_provider_kafka_s3.documents.addresses import TopicAddress
from airflow_provider_kafka_s3.documents.offsets import NO_OFFSETS, Offsets
from airflow_provider_kafka_s3.layout.keys import below, data_prefix
from airflow_provider_kafka_s3.parallel import in_threads
from airflow_provider_kafka_s3.reading.snapshot import Snapshot
from airflow_provider_kafka_s3.reading.snapshot_objects import snapshot_objects
from airflow_provider_kafka_s3.retry import Retrier, RetryPolicy
from airflow_provider_kafka_s3.storage import bucket as s3_bucket
from airflow_provider_kafka_s3.tables.ddl.columns import columns_of_objects

if TYPE_CHECKING:
    from airflow_provider_kafka_s3.airflow.connections import S3Access
    from airflow_provider_kafka_s3.airflow.run_context import RunContext
    from airflow_provider_kafka_s3.batch.location import TopicLocation
    from airflow_provider_kafka_s3.replay.run import Replayed
    from airflow_provider_kafka_s3.tables.iceberg.topic_table import Added

__all__ = [
    "KafkaS3LandingRunFacet",
    "KafkaS3OffsetsInputDatasetFacet",
    "replay_lineage",
    "run_lineage",
    "table_lineage",
]

log = logging.getLogger(__name__)

_SECONDS: Final = 5.0
"""For everything that is read: by default the provider gives up an event after ten."""

_TIMEOUT: Final = 2.0
_ONE_TRY: Final = RetryPolicy(max_retries=0)
_READERS: Final = 16
_OBJECTS: Final = 16
"""Objects of a batch whose own columns are read."""

_KAFKA_PORT: Final = 9092
"""That librdkafka uses for a broker without one."""

_SCHEMAS: Final = "urn:airflow-provider-kafka-s3:openlineage"
"""Of our facets, whose schemas are in ``docs/lineage``: an address would have to stay, and the project has none."""

_TYPES: Final[Mapping[pa.DataType, str]] = {
    pa.bool_(): "boolean",
    pa.int32(): "integer",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.date32(): "date",
    pa.string(): "string",
    pa.large_string(): "string",
    pa.binary(): "binary",
    pa.large_binary(): "binary",
}
"""Names of types in events of Spark."""


@attrs.define
class KafkaS3OffsetsInputDatasetFacet(InputDatasetFacet):  # type: ignore[misc]  # Any without the client
    """The offsets of a topic that a run landed.

    Attributes:
        offsets: by Kafka partition, as the task's XCom has them.
        skipped: those that the run recorded as lost.
    """

    offsets: dict[str, list[list[int]]]
    skipped: dict[str, list[list[int]]]

    @staticmethod
    def _get_schema() -> str:
        return _schema_url("KafkaS3OffsetsInputDatasetFacet")


@attrs.define
class KafkaS3LandingRunFacet(RunFacet):  # type: ignore[misc]  # likewise
    """Fields of the task's XCom; the counts are those of its ``landed``."""

    action: str
    status: str
    unknown_fields: dict[str, Any]
    batches: int
    records: int
    tombstones: int
    ignored: int
    dead_letters: int
    objects: int
    size: int
    window: dict[str, Any] | None = None

    @staticmethod
    def _get_schema() -> str:
        return _schema_url("KafkaS3LandingRunFacet")


def _schema_url(name: str) -> str:
    return f"{_SCHEMAS}:1-0-0:{name}.json#/$defs/{name}"


def run_lineage(run: RunContext, returned: Mapping[str, Any] | None) -> Any:
    """The lineage of a landing run: from topics, or the objects of another pipeline, to the prefixes of their objects.

    Args:
        run: of the task.
        returned: XCom of the task; None: the task has not succeeded.
    """
    results: Mapping[str, Any] = {} if returned is None else returned["topics"]
    batches = {
        run.runs[topic].log.address: max(b["batch"] for b in landed)
        for topic, result in results.items()
        if (landed := _landed(result))
    }
    columns = {place.topic: shown.columns for place, shown in _read(run.bucket, run.access, batches).items()}
    if (source := run.settings.source) is None:
        kafka = _kafka(run.kafka)
        inputs = [InputDataset(kafka, topic, inputFacets=_offsets_facets(results.get(topic))) for topic in run.runs]
    else:
        places = (TopicAddress(**msgspec.structs.asdict(source), topic=topic) for topic in run.runs)
        inputs = _landed_topics(run.bucket, run.access, dict.fromkeys(places))
    topics_of: dict[str, list[str]] = {}
    for topic, topic_run in run.runs.items():
        topics_of.setdefault(data_prefix(topic_run.request.layout, topic), []).append(topic)
    outputs = []
    for prefix, topics in topics_of.items():
        facets: dict[str, Any] = {}
        # Several topics in one prefix have no fields in common, and no table.
        if len(topics) == 1:
            facets = _fields_facets(columns.get(topics[0], ()))
            facets |= _symlink_facets(_partitioned_table(run.settings.partitions_in, topics[0]))
        counts = [results[topic]["landed"] for topic in topics if topic in results]
        outputs.append(
            OutputDataset(
                *_s3(run.bucket, prefix),
                facets=facets,
                outputFacets=_counts_facets(*_sums(counts, "records", "objects", "size")) if counts else {},
            )
        )
    return OperatorLineage(
        inputs=inputs,
        outputs=outputs,
        run_facets={} if returned is None else {"kafkaS3_landing": _landing_facet(returned)},
    )


def replay_lineage(
    place: TopicLocation, kafka: Mapping[str, Any], target: str, written_by: str | None, replayed: Replayed | None
) -> Any:
    """The lineage of a replay: from the prefix of a topic's objects to another topic.

    Args:
        place: of the landed topic.
        kafka: settings of librdkafka.
        target: the topic that records are sent to.
        written_by: the sink that wrote the objects; None: the pipeline.
        replayed: the result; None: the task has not succeeded.
    """
    if written_by is None:
        batches = {place.address: None if replayed is None else replayed.batch}
        inputs = _landed_topics(place.bucket, connections.S3Access(place.s3, place.credentials), batches)
    else:
        folder = "" if written_by == "deviantart" else place.address.topic
        inputs = [InputDataset(*_s3(place.bucket, f"{below(place.address.topics_dir)}{folder}"))]
    counts = {} if replayed is None else _counts_facets(sum(replayed.sent.values()))
    return OperatorLineage(inputs=inputs, outputs=[OutputDataset(_kafka(kafka), target, outputFacets=counts)])


def table_lineage(
    bucket: str, access: S3Access, catalog: Mapping[str, Any], added: Mapping[TopicAddress, Added]
) -> Any:
    """The lineage of a task that fills tables: from the prefixes of topics' objects to tables.

    Args:
        bucket: name of the bucket.
        access: to the bucket.
        catalog: properties of the catalog.
        added: what was added to the table of each topic.
    """
    by_table: dict[str, list[Added]] = {}
    for of_topic in added.values():
        if of_topic.location is not None:
            by_table.setdefault(of_topic.table, []).append(of_topic)
    return OperatorLineage(
        inputs=_landed_topics(bucket, access, {place: of_topic.last for place, of_topic in added.items()}),
        outputs=[_table(catalog, of_table) for of_table in by_table.values()],
    )


# -- what the bucket has ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Landed:
    """What a batch shows of its topic.

    Attributes:
        prefix: of the objects.
        columns: of them; empty: they are not known.
    """

    prefix: str
    columns: Sequence[pa.Field[Any]]


def _read(bucket: str, access: S3Access, batches: Mapping[TopicAddress, int | None]) -> dict[TopicAddress, _Landed]:
    """What batches show; topics that cannot be read in time are left out. None: the last complete batch."""
    if not batches:
        return {}
    # A client of its own: the provider forks the process, and the connections of the task are shared since.
    settings = msgspec.structs.replace(access.settings, connect_timeout=_TIMEOUT, read_timeout=_TIMEOUT)
    store = s3_bucket.open_bucket(bucket, settings, access.credentials, retrier=Retrier(_ONE_TRY))
    deadline = time.monotonic() + _SECONDS

    def read(place: TopicAddress) -> _Landed | None:
        if time.monotonic() > deadline:
            return None
        try:
            topic_log = TopicLog(store, place)
            batch = batches[place]
            return _landed_batch(topic_log, Snapshot(topic_log).batch if batch is None else batch, deadline)
        except Exception:
            log.debug("what is landed of topic %s could not be read", place.topic, exc_info=True)
            return None

    answers = zip(batches, in_threads(read, [*batches], threads=_READERS), strict=True)
    return {place: landed for place, landed in answers if landed is not None}


def _landed_batch(topic_log: TopicLog, batch: int, deadline: float) -> _Landed:
    layout = topic_log.last_layout(batch + 1)
    prefix = data_prefix(layout, topic_log.topic)
    try:
        plan, _ = topic_log.require_plan(batch)
        decision, _ = topic_log.require_decision(batch)
        objects = snapshot_objects(topic_log, plan, decision, frozenset())[-_OBJECTS:]
        # Objects have their columns at their ends, which is most of the time.
        in_time = objects and time.monotonic() <= deadline
        known = columns_of_objects(topic_log, layout, objects) if in_time else None
    except Exception:
        log.debug("the fields of batch %d of topic %s are not known", batch, topic_log.topic, exc_info=True)
        known = None
    if known is None or known.shape != "columns":
        return _Landed(prefix, ())
    return _Landed(prefix, [pa.field(column.name, column.type) for column in known.columns])


def _landed_topics(bucket: str, access: S3Access, batches: Mapping[TopicAddress, int | None]) -> list[Any]:
    """Topics as inputs of what reads their objects; several may have one prefix."""
    by_prefix: dict[str, list[_Landed]] = {}
    for landed in _read(bucket, access, batches).values():
        by_prefix.setdefault(landed.prefix, []).append(landed)
    return [
        InputDataset(*_s3(bucket, prefix), facets=_fields_facets(of_prefix[0].columns if len(of_prefix) == 1 else ()))
        for prefix, of_prefix in by_prefix.items()
    ]


# -- names ------------------------------------------------------------------------------------------------------------


def _kafka(settings: Mapping[str, Any]) -> str:
    """The namespace of a cluster: as most clients do, by the first of its brokers."""
    broker = str(settings["bootstrap.servers"]).partition(",")[0].strip().rpartition("://")[2]
    return f"kafka://{broker}" if re.search(r":\d+$", broker) else f"kafka://{broker}:{_KAFKA_PORT}"


def _s3(bucket: str, prefix: str) -> tuple[str, str]:
    # The bucket itself has the name "/".
    return f"s3://{bucket}", prefix.strip("/") or "/"


def _location(url: str) -> tuple[str, str]:
    """Namespace and name of the folder of a table."""
    parts = urlsplit(url)
    if parts.scheme in ("", "file"):
        return "file", parts.path.rstrip("/") or "/"
    scheme = "s3" if parts.scheme in ("s3a", "s3n") else parts.scheme
    return f"{scheme}://{parts.netloc}", parts.path.strip("/") or "/"


def _catalog_table(properties: Mapping[str, Any], table: str) -> tuple[str, str] | None:
    """Namespace and name of a table of Iceberg in its catalog, as events of Spark have them; None: there are none."""
    uri = urlsplit(str(properties.get("uri", "")).partition(",")[0])
    host = uri.netloc.rpartition("@")[2]
    match properties.get("type"):
        case "rest":
            return urlunsplit(uri._replace(netloc=host, query="", fragment="")), table
        case "hive":
            return f"hive://{host}", table
        case "glue":
            region = properties.get("glue.region") or properties.get("client.region")
            return _glue_table(region, properties.get("glue.id"), table)
    return None


def _glue_table(region: str | None, account: str | None, table: str) -> tuple[str, str] | None:
    if not region or not account or not str(account).isdigit():
        return None
    return f"arn:aws:glue:{region}:{account}", f"table/{table.replace('.', '/')}"


def _partitioned_table(setting: PartitionsIn | None, topic: str) -> tuple[str, str] | None:
    """Namespace and name of the table over the folders of a topic."""
    if setting is None:
        return None
    table = table_of_topic(setting.table, topic)
    if not isinstance(setting, HiveTable):
        return _glue_table(setting.region, setting.catalog_id, table)
    try:
        metastore = connections.metastore_access(setting.hive_conn_id)
    except Exception:
        log.debug("the name of table %s is not known", table, exc_info=True)
        return None
    return f"hive://{metastore.hosts[0]}:{metastore.port}", table


# -- facets -----------------------------------------------------------------------------------------------------------


def _landed(result: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The batches that this run landed."""
    return [batch for batch in result["batches"] if batch["landed_here"]]


def _offsets_facets(result: Mapping[str, Any] | None) -> dict[str, Any]:
    if result is None:
        return {}
    offsets = NO_OFFSETS
    for batch in _landed(result):
        offsets |= Offsets.from_json(batch["offsets"])
    return {"kafkaS3_offsets": KafkaS3OffsetsInputDatasetFacet(offsets=offsets.to_json(), skipped=result["skipped"])}


def _landing_facet(returned: Mapping[str, Any]) -> Any:
    fields = {name: returned[name] for name in ("action", "window", "status", "unknown_fields")}
    return KafkaS3LandingRunFacet(**fields, **returned["landed"])


def _sums(counts: Sequence[Mapping[str, int]], *names: str) -> list[int]:
    return [sum(count[name] for count in counts) for name in names]


def _counts_facets(records: int, objects: int | None = None, size: int | None = None) -> dict[str, Any]:
    counts = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
        rowCount=records, fileCount=objects, size=size
    )
    return {"outputStatistics": counts}


def _symlink_facets(name: tuple[str, str] | None) -> dict[str, Any]:
    if name is None:
        return {}
    return {"symlinks": symlinks_dataset.SymlinksDatasetFacet([symlinks_dataset.Identifier(*name, "TABLE")])}


def _table(catalog: Mapping[str, Any], added: Sequence[Added]) -> Any:
    newest = added[-1]
    facets = _symlink_facets(_catalog_table(catalog, newest.table))
    if newest.schema is not None:
        facets |= _fields_facets(newest.schema.as_arrow())
    if newest.snapshot is not None:
        facets["version"] = dataset_version_dataset.DatasetVersionDatasetFacet(str(newest.snapshot))
    counts = _counts_facets(sum(each.records for each in added), sum(each.files for each in added))
    return OutputDataset(*_location(str(newest.location)), facets=facets, outputFacets=counts)


def _fields_facets(columns: Iterable[pa.Field[Any]]) -> dict[str, Any]:
    fields = [_field(column.name, column.type) for column in columns]
    return {"schema": schema_dataset.SchemaDatasetFacet(fields)} if fields else {}


def _field(name: str, kind: Any) -> Any:
    types, inner = pa.types, []
    if types.is_struct(kind):
        text, inner = "struct", [_field(part.name, part.type) for part in kind]
    elif types.is_list(kind) or types.is_large_list(kind):
        text, inner = "array", [_field("_element", kind.value_type)]
    elif types.is_map(kind):
        text, inner = "map", [_field("key", kind.key_type), _field("value", kind.item_type)]
    elif types.is_decimal(kind):
        text = f"decimal({kind.precision},{kind.scale})"
    elif types.is_timestamp(kind):
        text = "timestamp_ntz" if kind.tz is None else "timestamp"
    else:
        text = "binary" if types.is_fixed_size_binary(kind) else _TYPES.get(kind, str(kind))
    return schema_dataset.SchemaDatasetFacetFields(name=name, type=text, fields=inner)
