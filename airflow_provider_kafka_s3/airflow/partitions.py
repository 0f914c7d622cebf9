"""Adds the partitions of a landing run's topics to their tables, after the commit; a failure is a warning."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from airflow_provider_kafka_s3.airflow import connections
from airflow_provider_kafka_s3.config.tables import HiveTable, PartitionsIn, table_of_topic, tables_of_topics
from airflow_provider_kafka_s3.exceptions import ConfigurationError, KafkaS3Error, message_of
from airflow_provider_kafka_s3.messages import count, few, readable
from airflow_provider_kafka_s3.parallel import in_threads
from airflow_provider_kafka_s3.retry import Retrier, RetryPolicy

if TYPE_CHECKING:
    from airflow_provider_kafka_s3.airflow.run_context import RunContext
    from airflow_provider_kafka_s3.batch.log import TopicLog
    from airflow_provider_kafka_s3.batch.request import TopicResult
    from airflow_provider_kafka_s3.tables.partitions import PartitionedTable

__all__ = ["add_partitions", "require_tables"]

log = logging.getLogger(__name__)

_POLICY: Final = RetryPolicy(max_retries=2, throttle_deadline=60.0)
"""A landing run does not wait long for a catalog: the next run adds what is missing, too."""

_THREADS: Final = 16


def require_tables(setting: PartitionsIn, topics: Sequence[str]) -> Mapping[str, str]:
    """The table of each topic.

    Raises:
        ConfigurationError: topics share a table: each has folders of its own, and a partition has one location.
    """
    if len(topics) > 1 and "{topic}" not in setting.table:
        raise ConfigurationError(
            f"partitions_in: table={setting.table!r} is one table of {count(len(topics), 'topic')}, and each has "
            f"folders of its own. Write {{topic}} into the name"
        )
    return tables_of_topics(setting.table, topics)


def add_partitions(run: RunContext, results: Mapping[str, TopicResult]) -> None:
    """Add the partitions that the tables of topics lack, and log what was done. Whatever fails is a warning.

    Args:
        run: the run.
        results: of the topics that succeeded.
    """
    setting = run.settings.partitions_in
    if setting is None or not results:
        return
    try:
        tables = require_tables(setting, [*run.runs])
        open_table = _opener(setting, run)
    except Exception as e:  # noqa: BLE001 - whatever it is: the records are landed
        for topic in results:
            _warn(run.runs[topic].log, table_of_topic(setting.table, topic), setting, e)
        return

    def add(topic: str) -> None:
        topic_log = run.runs[topic].log
        try:
            _add(topic_log, open_table(tables[topic]), [batch.batch for batch in results[topic].batches])
        except Exception as e:  # noqa: BLE001 - as above
            _warn(topic_log, tables[topic], setting, e)

    in_threads(add, [*results], threads=_THREADS)


def _opener(setting: PartitionsIn, run: RunContext) -> Callable[[str], PartitionedTable]:
    retrier = Retrier(_POLICY)
    if isinstance(setting, HiveTable):
        from airflow_provider_kafka_s3.tables.partitions.hive import HivePartitions

        metastore = connections.metastore_access(setting.hive_conn_id)
        return lambda table: HivePartitions(metastore, table, retrier=retrier)
    from airflow_provider_kafka_s3.storage.clients import make_glue_client
    from airflow_provider_kafka_s3.tables.partitions.glue import GluePartitions

    access = connections.glue_access(setting.aws_conn_id or run.settings.aws_conn_id, setting.region)
    client = make_glue_client(access.settings, access.credentials)
    return lambda table: GluePartitions(client, table, catalog_id=setting.catalog_id, retrier=retrier)


def _add(topic_log: TopicLog, table: PartitionedTable, batches: Sequence[int]) -> None:
    from airflow_provider_kafka_s3.tables.partitions import LOOK_BACK, sync_partitions

    synced = sync_partitions(topic_log, table, batches=batches, last=LOOK_BACK)
    added = count(len(synced.added), "partition")
    log.info("topic %s: %s added to %s", topic_log.topic, added, synced.table)
    if synced.differing:
        differing = [f"{each.partition} is at {each.location}, not {each.expected}" for each in synced.differing]
        log.warning(
            "topic %s: %s has %s at other places than the objects, which were left alone: %s",
            topic_log.topic,
            synced.table,
            count(len(differing), "partition"),
            few(differing, most=3, by="; "),
        )


def _warn(topic_log: TopicLog, table: str, setting: PartitionsIn, error: Exception) -> None:
    remedy = topic_log.remedies.sync_partitions(table, *_options(setting))
    message = (
        f"topic {topic_log.topic}: the records are landed, but partitions of {table} were not added: "
        f"{message_of(error)}. Add them when the cause is gone: {remedy}"
    )
    log.warning("%s", readable(message), exc_info=None if isinstance(error, KafkaS3Error) else error)


def _options(setting: PartitionsIn) -> Iterator[str]:
    """Options of ``kafka-s3 table sync`` that lead to the same catalog."""
    if isinstance(setting, HiveTable):
        yield from ("--hive-conn-id", setting.hive_conn_id)
        return
    yield "--glue"
    options = {
        "--glue-conn-id": setting.aws_conn_id,
        "--glue-region": setting.region,
        "--glue-catalog-id": setting.catalog_id,
    }
    yield from (word for name, value in options.items() if value is not None for word in (name, value))
