"""The parameters of the operator that fills tables; what it adds is tested with a real catalog."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import (  # noqa: TID253 - the task raises them
    DAG,
    AirflowException,
    AirflowFailException,
    Asset,
)

from airflow_provider_kafka_s3 import KafkaS3ToIcebergOperator
from airflow_provider_kafka_s3.airflow import connections
from airflow_provider_kafka_s3.exceptions import CatalogUnavailableError, ConfigurationError
from airflow_provider_kafka_s3.storage.s3 import S3Settings
from airflow_provider_kafka_s3.tables.iceberg import catalog, topic_table
from airflow_provider_kafka_s3.tables.iceberg.topic_table import Added

try:
    from airflow.serialization.serialized_objects import DagSerialization
except ImportError:  # Airflow 2
    from airflow.serialization.serialized_objects import SerializedDAG as DagSerialization

REQUIRED: dict[str, Any] = {
    "task_id": "add",
    "bucket": "lake",
    "pipeline": "shop",
    "topics": ["a.b", "c"],
    "table": "db.{topic}",
}


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Connections that are not used, and the tables that are opened; that of topic ``gone`` cannot be reached."""
    tables: list[str] = []

    class Table:
        def __init__(self, catalog: object, table: str, *_: object) -> None:
            self.table = table

        def add(self) -> Added:
            tables.append(self.table)
            if self.table.endswith("gone"):
                raise CatalogUnavailableError("no answer")
            if self.table.endswith("bad"):
                raise ConfigurationError("a column does not fit")
            return Added(self.table, 3, 4, files=2, records=10, commits=1, snapshot=7)

    monkeypatch.setattr(connections, "s3_access", lambda _: SimpleNamespace(settings=S3Settings(), credentials=None))
    monkeypatch.setattr(connections, "catalog_properties", lambda _: {"uri": "http://catalog:8181"})
    monkeypatch.setattr(catalog, "open_catalog", lambda *_: contextlib.nullcontext())
    monkeypatch.setattr(topic_table, "TopicTable", Table)
    return tables


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"table": ""}, "table='' must be text"),
        ({"owned_by": "me"}, "owned_by='me'"),
        ({"partition_by": "day(at)"}, r"partition_by='day\(at\)' must be a list"),
        ({"partition_by": ["week(at)"]}, r"partition_by='week\(at\)' is not known; use hour\(column\)"),
        ({"partition_by": ["day( at)"]}, r"partition_by='day\( at\)' is not known"),
        ({"partition_by": ["bucket(16, id)"]}, r"partition_by='bucket\(16, id\)' is not known"),
        ({"partition_by": ["day(at)", "day(at)"]}, r"partition_by has 'day\(at\)' twice"),
        ({"files_per_commit": 0}, "files_per_commit=0"),
        ({"keep_snapshots": 0}, "keep_snapshots=0"),
        ({"topics": ["a.b", "a_b"]}, "topics 'a.b' and 'a_b' have one table"),
        ({"tabel": "x"}, "has no parameter 'tabel'; did you mean 'table'"),
    ],
)
def test_a_wrong_parameter_fails_when_the_dag_is_parsed(bench: object, given: dict[str, Any], message: str) -> None:
    """With the parameter."""
    with pytest.raises(ConfigurationError, match=message):
        KafkaS3ToIcebergOperator(**{**REQUIRED, **given})


def test_each_topic_has_a_table_of_its_name(bench: object, opened: list[str]) -> None:
    """With _ for dots, which divide the names of namespaces; what was added is returned by topic."""
    returned = KafkaS3ToIcebergOperator(**REQUIRED).execute({})  # type: ignore[typeddict-item]  # not used
    assert opened == ["db.a_b", "db.c"]
    rest = {"batches": [3, 4], "files": 2, "records": 10, "commits": 1, "removed": 0, "snapshot": 7}
    assert returned == {"a.b": {"table": "db.a_b", **rest}, "c": {"table": "db.c", **rest}}


def test_the_event_of_an_outlet_has_what_was_added_to_each_table(bench: object, opened: list[str]) -> None:
    """A DAG that is scheduled by the asset of the table reads which batches are new in it."""
    table = Asset("lake-c")
    event = SimpleNamespace(extra={})
    task = KafkaS3ToIcebergOperator(**{**REQUIRED, "topics": "c"}, outlets=[table])
    returned = task.execute({"outlet_events": {table: event}})  # type: ignore[typeddict-item]  # the rest is not used
    assert json.loads(json.dumps(event.extra)) == {"bucket": "lake", "pipeline": "shop", "tables": returned}
    assert returned["c"]["batches"] == [3, 4]


@pytest.mark.parametrize(
    ("topics", "error"), [(["gone", "c"], AirflowException), (["gone", "bad", "c"], AirflowFailException)]
)
def test_a_topic_whose_table_fails_does_not_affect_the_others(
    bench: object, opened: list[str], topics: list[str], error: type[Exception]
) -> None:
    """They are added; a retry of the task may help, unless one of the errors is terminal."""
    with pytest.raises(error) as raised:
        KafkaS3ToIcebergOperator(**{**REQUIRED, "topics": topics}).execute({})  # type: ignore[typeddict-item]
    assert opened[-1] == "db.c"
    assert type(raised.value) is error


def test_a_dag_with_it_can_be_stored(bench: object) -> None:
    """As Airflow stores DAGs."""
    with DAG("dag", schedule=None, start_date=dt.datetime(2026, 1, 1, tzinfo=dt.UTC)) as dag:
        KafkaS3ToIcebergOperator(**REQUIRED, partition_by=["day(at)"])
    json.dumps(DagSerialization.to_dict(dag))
