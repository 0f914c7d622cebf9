"""A schema registry that does not answer is noticed before Spark starts."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from airflow.providers.common.compat.sdk import AirflowException  # noqa: TID253 - after AIRFLOW_HOME is set

from airflow_provider_kafka_s3.airflow import run_context
from airflow_provider_kafka_s3.documents import addresses
from airflow_provider_kafka_s3.retry import RetryPolicy

if TYPE_CHECKING:
    from tests.unit.operators.conftest import Bench


@pytest.fixture(autouse=True)
def absent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A registry at a port where nothing listens, and retries that do not wait."""
    connection = {"conn_type": "http", "host": "http://127.0.0.1:1"}
    monkeypatch.setenv("AIRFLOW_CONN_REGISTRY_MAIN", json.dumps(connection))
    monkeypatch.setattr(run_context, "_ONE_MORE", RetryPolicy(max_retries=1, base=0))


def landing(bench: Bench, **more: Any) -> Any:
    """A task that decodes values by the registry."""
    return bench.task(format="parquet", value_converter="avro", registry_conn_id="registry_main", **more)


def test_a_registry_that_does_not_answer_is_noticed_before_spark(topics: Bench) -> None:
    """The error names its address and its connection, once for all topics."""
    with pytest.raises(AirflowException) as failed:
        topics.run(landing(topics, topics="orders,clicks"))
    message = str(failed.value)
    assert "no usable answer of the schema registry of the connection 'registry_main' (registry_conn_id): " in message
    assert "http://127.0.0.1:1 does not answer" in message
    assert "[topics 'clicks', 'orders': RegistryUnavailableError]" in message
    assert topics.spark.commands == []


def test_topics_with_schemas_in_the_bucket_are_landed_without_a_registry(topics: Bench) -> None:
    """They may need no other one; the other topics fail."""
    topics.store.put_new(f"{addresses.control_prefix('topics', 'orders-to-lake', 'orders')}schemas/7.json", b"{}")
    with pytest.raises(AirflowException, match=r"\[topic 'clicks': RegistryUnavailableError\]"):
        topics.run(landing(topics, topics="orders,clicks"))
    assert len(topics.spark.commands) == 1
