"""The operator that adds landed objects to tables of Iceberg."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from airflow.providers.common.compat.sdk import BaseOperator  # noqa: TID253 - it is the base class

from airflow_provider_kafka_s3.airflow import connections, parameters
from airflow_provider_kafka_s3.airflow.assets import announce
from airflow_provider_kafka_s3.airflow.metrics import task_metrics
from airflow_provider_kafka_s3.airflow.task_errors import as_task_error, page_line
from airflow_provider_kafka_s3.config.tables import TableSettings, tables_of_topics
from airflow_provider_kafka_s3.config.values import require_type
from airflow_provider_kafka_s3.documents.addresses import TopicAddress
from airflow_provider_kafka_s3.exceptions import ConfigurationError, KafkaS3Error, raise_first
from airflow_provider_kafka_s3.messages import count

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context
    from pyiceberg.catalog import Catalog

    from airflow_provider_kafka_s3.airflow.connections import S3Access
    from airflow_provider_kafka_s3.tables.iceberg.topic_table import Added

__all__ = ["KafkaS3ToIcebergOperator"]


class KafkaS3ToIcebergOperator(BaseOperator):
    """Add the landed objects of topics to tables of Iceberg, each batch once.

    A task of its own behind the landing one, or in a DAG that is scheduled by its asset: a catalog that is down never
    stops landing. Each run adds all complete batches that the table lacks, so whatever was missed is caught up, and a
    rerun adds nothing twice, whoever races. Objects stay where they are, and must be of Parquet. The table is created
    with the first objects. ``docs/tables.md`` has the rules. The extra ``iceberg`` has to be installed.

    Args:
        bucket: name of the bucket. (templated)
        pipeline: the pipeline that lands the topics. (templated)
        topics: a topic, or several. (templated)
        table: name of the table of each topic; ``{topic}`` in it is the name of the topic, with ``_`` for other
            characters than letters, digits and ``_``. (templated)
        topics_dir: prefix of the pipeline's keys. (templated)
        partition_by: partitions of a new table: ``"hour(column)"``, ``"day(column)"``, ``"identity(column)"``. Each
            object has to be inside of one.
        owned_by: who may delete the objects of a new table: ``"pipeline"`` alone, or also ``"table"``: whoever expires
            snapshots, rewrites files or drops it with its files.
        location: URL of the folder of a new table's metadata; None: the catalog chooses. (templated)
        files_per_commit: objects of a commit, about; a batch is never divided.
        keep_snapshots: newest snapshots that are kept of a table with ``owned_by="pipeline"``; None: all. No file is
            deleted.
        keep_snapshots_hours: age up to which others are kept, too.
        iceberg_conn_id: connection of type ``iceberg`` to the catalog.
        aws_conn_id: connection of type ``aws`` to the bucket; None: boto3's own chain of credentials.

    Returns:
        By topic ``{"table": "lake.orders", "batches": [8, 12], "files": 20, "records": 40000, "commits": 1,
        "removed": 0, "snapshot": 3051729675574597004}``; ``batches`` are the first and the last one that were added, or
        null; ``removed`` is the number of objects that were removed, since they were accepted as lost.

    Raises:
        AirflowFailException: a retry cannot succeed.
        AirflowException: a retry may succeed.
    """

    template_fields: Sequence[str] = ("bucket", "pipeline", "topics", "table", "topics_dir", "location")
    ui_color = "#dff0f7"

    def __init__(
        self,
        *,
        bucket: str,
        pipeline: str,
        topics: str | Sequence[str],
        table: str,
        topics_dir: str = "topics",
        partition_by: Sequence[str] = (),
        owned_by: Literal["pipeline", "table"] = "pipeline",
        location: str | None = None,
        files_per_commit: int = 1000,
        keep_snapshots: int | None = 100,
        keep_snapshots_hours: float = 24.0,
        iceberg_conn_id: str = "iceberg_default",
        aws_conn_id: str | None = "aws_default",
        **kwargs: Any,
    ) -> None:
        parameters.require_known(type(self), kwargs)
        super().__init__(**kwargs)
        self.bucket = bucket
        self.pipeline = pipeline
        self.topics = topics
        self.table = table
        self.topics_dir = topics_dir
        self.partition_by = partition_by
        self.owned_by = owned_by
        self.location = location
        self.files_per_commit = files_per_commit
        self.keep_snapshots = keep_snapshots
        self.keep_snapshots_hours = keep_snapshots_hours
        self.iceberg_conn_id = iceberg_conn_id
        self.aws_conn_id = aws_conn_id
        # For OpenLineage: the bucket, the catalog, and what was added.
        self._lineage: tuple[S3Access, dict[str, Any], dict[TopicAddress, Added]] | None = None
        for name in ("bucket", "pipeline", "table", "iceberg_conn_id"):
            parameters.require_text(name, getattr(self, name))
        require_type("owned_by", owned_by, Literal["pipeline", "table"])
        if isinstance(partition_by, str):
            raise ConfigurationError(f"partition_by={partition_by!r} must be a list, such as [{partition_by!r}]")
        self._settings()
        if not isinstance(topics, str):
            tables_of_topics(table, [str(topic) for topic in topics])

    def execute(self, context: Context) -> dict[str, Any]:
        """Add all complete batches that the tables lack."""
        topics = [self.topics] if isinstance(self.topics, str) else [*self.topics]
        with (
            task_metrics(context, self.pipeline) as metrics,
            as_task_error(self.log, page=lambda: page_line(self, topics)),
        ):
            tables = tables_of_topics(self.table, topics)
            added: dict[str, Added] = {}
            errors: list[KafkaS3Error] = []
            access = connections.s3_access(self.aws_conn_id)
            properties = connections.catalog_properties(self.iceberg_conn_id)
            with self._catalog(properties, access) as catalog:
                for topic, table in tables.items():
                    try:
                        added[topic] = self._add(catalog, access, topic, table)
                    except KafkaS3Error as e:
                        # Other topics have tables of their own.
                        errors.append(e)
            self._lineage = access, properties, {self._address(topic): each for topic, each in added.items()}
            returned = {topic: _to_xcom(each) for topic, each in added.items()}
            for topic, each in added.items():
                metrics.send("table_records", each.records, topic=topic)
                metrics.send("table_objects", each.files, topic=topic)
            raise_first(errors)
        announce(context, self.outlets, {"bucket": self.bucket, "pipeline": self.pipeline, "tables": returned})
        return returned

    def _settings(self) -> TableSettings:
        return TableSettings(
            partition_by=tuple(self.partition_by),
            owned_by=self.owned_by,
            location=self.location,
            files_per_commit=self.files_per_commit,
            keep_snapshots=self.keep_snapshots,
            keep_snapshots_hours=self.keep_snapshots_hours,
        )

    def get_openlineage_facets_on_complete(self, task_instance: object) -> Any:  # noqa: ARG002 - Airflow calls it so
        """Prefixes, tables and counts for OpenLineage; None: the task failed before anything was added."""
        if self._lineage is None:
            return None
        from airflow_provider_kafka_s3.airflow.lineage import table_lineage

        return table_lineage(self.bucket, *self._lineage)

    def _catalog(self, properties: Mapping[str, Any], access: S3Access) -> Catalog:
        from airflow_provider_kafka_s3.tables.installed import require_iceberg

        require_iceberg()
        from airflow_provider_kafka_s3.tables.iceberg.catalog import open_catalog, with_files

        return open_catalog(self.iceberg_conn_id, with_files(properties, access.settings, access.credentials))

    def _add(self, catalog: Catalog, access: S3Access, topic: str, table: str) -> Added:
        from airflow_provider_kafka_s3.batch.location import TopicLocation
        from airflow_provider_kafka_s3.tables.iceberg.topic_table import TopicTable

        place = TopicLocation(self.bucket, self._address(topic), access.settings, access.credentials)
        added = TopicTable(catalog, table, place.open_log(), self._settings()).add()
        self.log.info(
            "topic %s: %s with %s added to table %s, which has batches up to %d",
            topic,
            count(added.files, "object"),
            count(added.records, "record"),
            table,
            added.last,
        )
        return added

    def _address(self, topic: str) -> TopicAddress:
        return TopicAddress(topics_dir=self.topics_dir, pipeline=self.pipeline, topic=topic)


def _to_xcom(added: Added) -> dict[str, Any]:
    return {
        "table": added.table,
        "batches": [added.first, added.last] if added.first <= added.last else None,
        "files": added.files,
        "records": added.records,
        "commits": added.commits,
        "removed": added.removed,
        "snapshot": added.snapshot,
    }
