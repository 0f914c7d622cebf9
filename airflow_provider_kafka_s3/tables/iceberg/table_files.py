"""Keeps objects that a table of Iceberg still has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from airflow_provider_kafka_s3.maintenance.expiry_rule import CommittedBatch, ExpiryGuard
from airflow_provider_kafka_s3.overriding import override
from airflow_provider_kafka_s3.tables.iceberg.topic_table import TopicTable

__all__ = ["TableFiles"]


class TableFiles(ExpiryGuard):
    """Keeps objects while a table has them; the next run that adds to the table removes what is recorded as expired.

    Args:
        topic_table: the table, and the topic.
    """

    def __init__(self, topic_table: TopicTable) -> None:
        self._topic_table = topic_table
        self._is_known = False
        self._urls: frozenset[str] | None = None

    @override
    def kept(self, batches: Sequence[CommittedBatch], *, final: bool) -> Mapping[int, str]:
        if not final:
            if not self._is_known:
                # Another catalog may have a table of this name: then nothing is recorded either.
                self._topic_table.require()
                self._is_known = True
            return {}
        if self._urls is None:
            self._urls = self._topic_table.urls()
        url, table = self._topic_table.log.store.url, self._topic_table.table
        why = f"table {table} has them: its next add removes them; then drop branches and tags that have them"
        return {
            plan.batch: why for plan, decision in batches if any(url(one.key) in self._urls for one in decision.objects)
        }
