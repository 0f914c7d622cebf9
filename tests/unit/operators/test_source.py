"""The operator over what another pipeline has landed."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from airflow_provider_kafka_s3.config import Daily, Hourly, Landed
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.testing.pipeline import SimulatedPipeline
from tests.unit.operators.conftest import make_context, make_operator

NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)
SOURCE = {"pipeline": "orders-to-lake", "topics_dir": "topics"}


def compacting(**parameters: Any) -> Any:
    """The operator that makes days of the hours of the pipeline of :func:`make_operator`."""
    return make_operator(
        **{
            "pipeline": "orders-by-day",
            "topics_dir": "compacted",
            "source": SOURCE,
            "partitioner": Daily(),
            "kafka_conn_id": "no-such-connection",
            **parameters,
        }
    )


def test_a_task_lands_what_another_pipeline_has_landed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a connection to Kafka; a retry, a later run and a restore are those of any pipeline."""
    with SimulatedPipeline() as simulated, monkeypatch.context() as without_kafka:
        for hour in range(3):
            simulated.append("orders", {"n": 2 * hour}, {"n": 2 * hour + 1}, at=NOON.replace(hour=hour))
            make_operator(partitioner=Hourly()).execute(make_context(run_id=f"hour {hour}"))
        assert len(simulated.objects("topics/")) == 3
        # Not behind the end of the simulation, which replaces the same function.
        without_kafka.setattr("airflow_provider_kafka_s3.airflow.connections.kafka_config", _unknown)
        task = compacting()
        assert task.execute(make_context(run_id="day"))["landed"]["records"] == 6
        compacted = simulated.objects("compacted/")
        assert [*compacted] == ["compacted/orders/year=2026/month=01/day=05/orders+0+0000000000.json"]
        assert simulated.records("orders", topics_dir="compacted") == [{"n": n} for n in range(6)]
        assert task.execute(make_context(run_id="day"))["wrote"] is False
        assert task.execute(make_context(run_id="next day"))["status"] == "empty"
        simulated.bucket.delete(next(iter(compacted)))
        task.execute(make_context(run_id="day", conf={"kafka_s3": {"action": "restore"}}))
        assert simulated.objects("compacted/") == compacted
    simulated.check()
    simulated.check(topics_dir="compacted")


def test_a_window_has_the_batches_of_its_time() -> None:
    """Each window lands them once, whatever the order of the windows."""
    with SimulatedPipeline() as simulated:
        for hour in range(4):
            simulated.append("orders", {"n": hour}, at=NOON.replace(hour=hour))
            make_operator(partitioner=Hourly()).execute(make_context(run_id=f"hour {hour}"))
        landed = []
        for first in (2, 0):
            window = [NOON.replace(hour=first).isoformat(), NOON.replace(hour=first + 2).isoformat()]
            conf = {"kafka_s3": {"window": window}}
            task = compacting(offsets="data_interval")
            landed.append(task.execute(make_context(run_id=f"window {first}", conf=conf))["landed"]["records"])
        assert landed == [2, 2]
        assert sorted(r["n"] for r in simulated.records("orders", topics_dir="compacted")) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("parameters", "problem"),
    [
        ({"topics_dir": "topics"}, "this pipeline's own"),
        ({"source": {"pipeline": "-"}}, "not a legal name"),
        ({"source": {"pipelines": "orders"}}, "pipeline"),
        ({"source": None, "format": "parquet", "value_converter": "landed"}, "this one reads Kafka"),
        ({"format": "parquet", "value_converter": "landed", "schema_compatibility": "BACKWARD"}, "are unknown"),
        ({"format": "parquet", "value_converter": "landed", "content": "envelope"}, "values only"),
    ],
)
def test_a_wrong_source_is_refused_when_the_dag_is_parsed(parameters: dict[str, Any], problem: str) -> None:
    """With what to do."""
    with pytest.raises(ConfigurationError, match=problem):
        compacting(**parameters)


def test_a_source_that_has_not_begun_is_named() -> None:
    """Nothing is written."""
    from airflow.providers.common.compat.sdk import AirflowException

    with SimulatedPipeline() as simulated:
        with pytest.raises(AirflowException, match="pipeline 'other' below 'topics' has not begun to land topic"):
            compacting(source=Landed(pipeline="other")).execute(make_context())
        assert [*simulated.bucket.list("compacted/")] == []


def _unknown(name: str) -> Any:
    raise AssertionError(f"connection {name} is looked up")
