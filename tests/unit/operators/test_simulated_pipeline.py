"""Tests of DAGs with ``SimulatedPipeline``, without Kafka, S3 and Spark. No connection of these tasks exists."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from airflow_provider_kafka_s3.testing.invariants import InvariantViolation
from airflow_provider_kafka_s3.testing.pipeline import SimulatedPipeline
from tests.unit.operators.conftest import make_context, make_operator

DAY = datetime(2026, 1, 1, tzinfo=UTC)


def test_an_operator_lands_what_was_appended_and_its_rerun_writes_nothing() -> None:
    """Names, bytes and XCom are those of the product; the records can be compared with what a DAG expects."""
    with SimulatedPipeline() as simulated:
        simulated.append("orders", {"id": 1}, {"id": 2}, at=DAY)
        task = make_operator(partitioner="daily")
        assert task.execute(make_context())["landed"]["records"] == 2
        assert list(simulated.objects()) == ["topics/orders/year=2026/month=01/day=01/orders+0+0000000000.json"]
        before = simulated.objects()
        task.execute(make_context())
        assert simulated.objects() == before
        simulated.append("orders", b'{"id": 3}', at=DAY)
        assert task.execute(make_context(run_id="manual__2"))["landed"]["records"] == 1
    assert before.items() < simulated.objects().items()
    assert simulated.records("orders") == [{"id": 1}, {"id": 2}, {"id": 3}]
    assert simulated.check()["orders"].records == 3


def test_an_error_of_a_record_fails_the_task_as_it_would_with_spark() -> None:
    """The task fails for good, with topic, partition and offset; the good topic is landed."""
    from airflow.providers.common.compat.sdk import AirflowFailException

    with SimulatedPipeline() as simulated:
        simulated.append("orders", {"id": 1}, b"{")
        simulated.append("flights", {"id": 1})
        with pytest.raises(AirflowFailException, match="partition 0, offset 1"):
            make_operator(topics=["orders", "flights"]).execute(make_context())
    assert simulated.records("flights") == [{"id": 1}]
    assert simulated.records("orders") == []


def test_a_sensor_sees_the_lag_of_the_simulated_pipeline() -> None:
    """It waits while too few records are there, and returns the lag when there are enough."""
    from airflow_provider_kafka_s3.sensors.kafka_lag import KafkaLagSensor

    sensor = KafkaLagSensor(task_id="wait", topics="orders", bucket="lake", pipeline="orders-to-lake", min_records=2)
    with SimulatedPipeline() as simulated:
        simulated.append("orders", {"id": 1})
        assert not sensor.poke(make_context())
        simulated.append("orders", {"id": 2})
        assert sensor.poke(make_context()).xcom_value == {"orders": 2}


def test_a_check_finds_an_object_that_somebody_replaced() -> None:
    """It reads the objects back, and compares them with what was appended."""
    with SimulatedPipeline() as simulated:
        simulated.append("orders", {"id": 1})
        make_operator().execute(make_context())
    (key,) = simulated.objects()
    stored = simulated.bucket.get(key)
    assert stored is not None
    simulated.bucket.put_if_match(key, b'{"id": 9}\n', etag=stored.etag)
    with pytest.raises(InvariantViolation):
        simulated.check()


def test_tables_get_no_partitions_of_a_simulated_run(caplog: pytest.LogCaptureFixture) -> None:
    """No catalog is asked, and nothing is warned of."""
    table = {"kind": "glue", "table": "lake.{topic}"}
    with SimulatedPipeline() as simulated:
        simulated.append("orders", {"id": 1})
        assert make_operator(partitions_in=table).execute(make_context())["landed"]["records"] == 1
    assert not [record for record in caplog.records if record.levelname == "WARNING"]


def test_after_the_block_operators_use_real_connections_again() -> None:
    """Nothing stays redirected."""
    with SimulatedPipeline():
        pass
    with pytest.raises(Exception, match="there is no connection"):
        make_operator().execute(make_context())
