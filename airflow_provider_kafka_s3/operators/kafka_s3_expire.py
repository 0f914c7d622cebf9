"""The operator that deletes landed objects which are no longer needed."""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import BaseOperator  # noqa: TID253 - it is the base class

from airflow_provider_kafka_s3.airflow import connections, parameters
from airflow_provider_kafka_s3.airflow.metrics import task_metrics
from airflow_provider_kafka_s3.airflow.task_errors import as_task_error, page_line
from airflow_provider_kafka_s3.config.sources import parse_source
from airflow_provider_kafka_s3.config.tables import tables_of_topics
from airflow_provider_kafka_s3.documents.addresses import TopicAddress
from airflow_provider_kafka_s3.documents.notation import format_batches
from airflow_provider_kafka_s3.exceptions import ConfigurationError, KafkaS3Error, raise_first
from airflow_provider_kafka_s3.messages import count, few

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from airflow_provider_kafka_s3.config import Landed
    from airflow_provider_kafka_s3.maintenance.expiry_rule import Expired, ExpiryRule
    from airflow_provider_kafka_s3.pipeline import TopicPipeline

__all__ = ["KafkaS3ExpireOperator"]

_DAY = dt.timedelta(days=1)


class KafkaS3ExpireOperator(BaseOperator):
    """Delete objects of topics that are no longer needed; the log has first that they are gone on purpose.

    A run records what is no longer needed, and deletes what an earlier run has recorded, once ``grace`` has passed.
    From the record on, no reader expects these objects, and no run writes them again. A run that is interrupted
    anywhere is continued by the next one. ``docs/expiry.md`` has the rules.

    Args:
        bucket: name of the bucket. (templated)
        pipeline: the pipeline that has landed the topics. (templated)
        topics: a topic, or several. (templated)
        topics_dir: prefix of the pipeline's keys. (templated)
        older_than: age: objects whose records are all older, and those of batches that were landed earlier; None: of
            any age, with ``landed_in``.
        landed_in: only batches whose records this pipeline has landed, too; :class:`Landed`, or a mapping of its
            fields.
        least_age: age of a batch since it was landed, at least.
        grace: time between the record and the deletion, longer than any reader or run takes.
        verify: read the objects of ``landed_in`` back before anything is deleted.
        unsafe_fewer_parts: also where ``landed_in`` does not keep all of each record, such as its key, or the bytes of
            its value.
        tables: names of the tables of Iceberg of each topic, ``{topic}`` as of ``KafkaS3ToIcebergOperator``: what they
            still have is not deleted. (templated)
        unsafe_without_tables: names of tables of the topics that are gone, or have nothing of what is deleted.
        reason: why, for the record. (templated)
        iceberg_conn_id: connection of type ``iceberg`` to the catalog of ``tables``.
        aws_conn_id: connection of type ``aws`` to the bucket, with the right to delete objects; None: boto3's own chain
            of credentials.

    Returns:
        By topic ``{"recorded": 12, "recorded_size": 4096, "deleted": 10, "deleted_size": 4000, "waiting": 12,
        "refused": 0, "kept": {"…": [7, 8]}}``: numbers of objects, bytes, and the batches that are kept, by the reason.

    Raises:
        AirflowFailException: a retry cannot succeed.
        AirflowException: a retry may succeed.
    """

    template_fields: Sequence[str] = ("bucket", "pipeline", "topics", "topics_dir", "tables", "reason")
    ui_color = "#dff0f7"

    def __init__(
        self,
        *,
        bucket: str,
        pipeline: str,
        topics: str | Sequence[str],
        topics_dir: str = "topics",
        older_than: dt.timedelta | None = None,
        landed_in: Landed | Mapping[str, Any] | None = None,
        least_age: dt.timedelta = _DAY,
        grace: dt.timedelta = _DAY,
        verify: bool = False,
        unsafe_fewer_parts: bool = False,
        tables: Sequence[str] = (),
        unsafe_without_tables: Sequence[str] = (),
        reason: str = "none given",
        iceberg_conn_id: str = "iceberg_default",
        aws_conn_id: str | None = "aws_default",
        **kwargs: Any,
    ) -> None:
        parameters.require_known(type(self), kwargs)
        super().__init__(**kwargs)
        self.bucket = bucket
        self.pipeline = pipeline
        self.topics = topics
        self.topics_dir = topics_dir
        self.older_than = older_than
        self.landed_in = landed_in
        self.least_age = least_age
        self.grace = grace
        self.verify = verify
        self.unsafe_fewer_parts = unsafe_fewer_parts
        self.tables = tables
        self.unsafe_without_tables = unsafe_without_tables
        self.reason = reason
        self.iceberg_conn_id = iceberg_conn_id
        self.aws_conn_id = aws_conn_id
        for name in ("bucket", "pipeline"):
            parameters.require_text(name, getattr(self, name))
        if isinstance(tables, str):
            raise ConfigurationError(f"tables={tables!r} must be a list, such as [{tables!r}]")
        self._rule((), "")
        if not isinstance(topics, str):
            self._tables_of([str(topic) for topic in topics])

    def execute(self, context: Context) -> dict[str, Any]:
        """Record what is no longer needed, and delete what was recorded before."""
        topics = [self.topics] if isinstance(self.topics, str) else [*self.topics]
        with (
            task_metrics(context, self.pipeline),
            as_task_error(self.log, page=lambda: page_line(self, topics)),
        ):
            tables = self._tables_of(topics)
            done: dict[str, Expired] = {}
            errors: list[KafkaS3Error] = []
            for topic in topics:
                try:
                    done[topic] = self._expire(context, topic, tables[topic])
                except KafkaS3Error as e:
                    errors.append(e)
            raise_first(errors)
        return {topic: _to_xcom(each) for topic, each in done.items()}

    def _tables_of(self, topics: Sequence[str]) -> dict[str, list[str]]:
        """The tables of each topic."""
        named = [tables_of_topics(table, topics) for table in self.tables]
        return {topic: [of_topics[topic] for of_topics in named] for topic in topics}

    def _rule(self, tables: Sequence[str], operator: str) -> ExpiryRule:
        from airflow_provider_kafka_s3.maintenance.expiry_rule import ExpiryRule

        return ExpiryRule(
            older_than=None if self.older_than is None else self.older_than.total_seconds(),
            landed_in=parse_source(self.landed_in),
            least_age=self.least_age.total_seconds(),
            grace=self.grace.total_seconds(),
            tables=frozenset((*tables, *self.unsafe_without_tables)),
            reason=self.reason,
            operator=operator,
        )

    def _expire(self, context: Context, topic: str, tables: Sequence[str]) -> Expired:
        from airflow_provider_kafka_s3.reading.landed_elsewhere import landed_elsewhere

        pipeline, ti = self._open(topic), context["ti"]
        rule = self._rule(tables, f"{ti.dag_id}.{ti.task_id} {ti.run_id}")
        others = landed_elsewhere(pipeline, verify=self.verify, unsafe_fewer_parts=self.unsafe_fewer_parts)
        with contextlib.ExitStack() as catalogs:
            guards = [self._table_files(pipeline, table, catalogs) for table in tables]
            done = pipeline.expire(rule, landed_in=others, guards=guards)
        self.log.info(
            "topic %s: %s recorded as no longer needed, %s deleted, %s recorded and not deleted yet",
            topic,
            count(done.recorded, "object"),
            count(done.deleted, "object"),
            count(done.waiting, "object"),
        )
        for why, batches in done.kept.items():
            self.log.warning("topic %s: objects of batches %s are kept: %s", topic, format_batches(batches), why)
        if done.refused:
            urls = [f"{pipeline.log.store.url(key)} ({why})" for key, why in done.named.items()]
            self.log.warning("topic %s: %s not deleted: %s", topic, count(done.refused, "object"), few(urls))
        return done

    def _open(self, topic: str) -> TopicPipeline:
        from airflow_provider_kafka_s3.batch.location import TopicLocation
        from airflow_provider_kafka_s3.batch.no_kafka import NoKafka
        from airflow_provider_kafka_s3.pipeline import open_topic

        access = connections.s3_access(self.aws_conn_id)
        address = TopicAddress(topics_dir=self.topics_dir, pipeline=self.pipeline, topic=topic)
        place = TopicLocation(self.bucket, address, access.settings, access.credentials)
        no_kafka = NoKafka("nothing that is deleted is read from Kafka")
        options = connections.connection_options(None, self.aws_conn_id)
        return open_topic(place.open_bucket(), address, no_kafka, connection_options=options)

    def _table_files(self, pipeline: TopicPipeline, table: str, catalogs: contextlib.ExitStack) -> Any:
        from airflow_provider_kafka_s3.tables.installed import require_iceberg

        require_iceberg()
        from airflow_provider_kafka_s3.tables.iceberg.catalog import open_catalog, with_files
        from airflow_provider_kafka_s3.tables.iceberg.table_files import TableFiles
        from airflow_provider_kafka_s3.tables.iceberg.topic_table import TopicTable

        access = connections.s3_access(self.aws_conn_id)
        properties = connections.catalog_properties(self.iceberg_conn_id)
        catalog = open_catalog(self.iceberg_conn_id, with_files(properties, access.settings, access.credentials))
        catalogs.enter_context(catalog)
        return TableFiles(TopicTable(catalog, table, pipeline.log))


def _to_xcom(done: Expired) -> dict[str, Any]:
    return {
        "recorded": done.recorded,
        "recorded_size": done.recorded_size,
        "deleted": done.deleted,
        "deleted_size": done.deleted_size,
        "waiting": done.waiting,
        "refused": done.refused,
        "kept": {why: [*batches] for why, batches in done.kept.items()},
    }
