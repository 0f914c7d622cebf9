"""KafkaWindowClosedSensor, in the worker and in the triggerer."""

from __future__ import annotations

import asyncio
import inspect
import json
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from airflow.providers.common.compat.sdk import (  # noqa: TID253 - after AIRFLOW_HOME is set, see conftest
    AirflowFailException,
    AirflowSensorTimeout,
    TaskDeferred,
)

from airflow_provider_kafka_s3 import Daily, KafkaLagSensor, KafkaToS3Operator
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.sensors.window_closed import KafkaWindowClosedSensor
from airflow_provider_kafka_s3.triggers.polling import KafkaWindowClosedTrigger
from tests.unit.sensors.test_lag_sensor import first_event

if TYPE_CHECKING:
    from tests.unit.operators.conftest import Bench

Interval = tuple[datetime, datetime]

DAY_2 = 1_357_084_800_000
"""2013-01-02, in epoch milliseconds: the end of the fixture ``day``."""


def sensor(**parameters: Any) -> KafkaWindowClosedSensor:
    """A sensor that polls once and then times out."""
    return KafkaWindowClosedSensor(
        task_id="wait", **{"topics": "orders", "timeout": 0, "poke_interval": 0, **parameters}
    )


def context(interval: Interval) -> Any:
    """The context of a run with a data interval."""
    return {"data_interval_start": interval[0], "data_interval_end": interval[1]}


@pytest.fixture
def orders(bench: Bench) -> Bench:
    """A topic of two partitions; one has passed the end of the day."""
    bench.kafka.create_topic("orders", 2)
    bench.fill("orders", [{"n": 1}], at=DAY_2)
    bench.fill("orders", [{"n": 1}], partition=1, at=DAY_2 - 1)
    return bench


def test_a_quiet_partition_is_waited_for_until_the_grace_is_over(orders: Bench, day: Interval) -> None:
    """With a long grace the sensor waits for a later record; with a short one its result has the quiet partition."""
    decades = timedelta(days=36_500)
    with pytest.raises(AirflowSensorTimeout):
        sensor(grace=decades).execute(context(day))
    window = ["2013-01-01T00:00:00+00:00", "2013-01-02T00:00:00+00:00"]
    assert sensor(grace=60).execute(context(day)) == {
        "window": window,
        "topics": {"orders": {"passed": [0], "quiet": [1]}},
    }
    orders.fill("orders", [{"n": 2}], partition=1, at=DAY_2 + 1)
    assert sensor(grace=decades).execute(context(day)) == {
        "window": window,
        "topics": {"orders": {"passed": [0, 1], "quiet": []}},
    }


def test_every_topic_has_to_have_passed(orders: Bench, day: Interval) -> None:
    """The sensor waits for the last one."""
    orders.kafka.create_topic("clicks")
    orders.fill("orders", [{"n": 2}], partition=1, at=DAY_2)
    both = sensor(topics=["orders", "clicks"], grace=timedelta(days=36_500))
    with pytest.raises(AirflowSensorTimeout):
        both.execute(context(day))
    orders.fill("clicks", [{"n": 1}], at=DAY_2)
    assert set(both.execute(context(day))["topics"]) == {"orders", "clicks"}


def test_a_window_that_has_not_ended_is_waited_for(orders: Bench) -> None:
    """The operator refuses it, the sensor waits. The grace begins at the end."""
    now = datetime.now(UTC)
    with pytest.raises(AirflowSensorTimeout):
        sensor(grace=0).execute(context((now, now + timedelta(hours=1))))


def test_a_deferred_sensor_waits_in_the_triggerer(orders: Bench, day: Interval) -> None:
    """The window is resolved in the worker, and stored in the database as two numbers."""
    waiting = sensor(deferrable=True, grace=timedelta(days=36_500), timeout=30)
    with pytest.raises(TaskDeferred) as deferred:
        waiting.execute(context(day))
    path, arguments = deferred.value.trigger.serialize()
    assert path == "airflow_provider_kafka_s3.triggers.polling.KafkaWindowClosedTrigger"
    assert arguments["end"] == DAY_2
    trigger = KafkaWindowClosedTrigger(**json.loads(json.dumps(arguments)))
    event = asyncio.run(
        first_event(trigger, lambda: orders.fill("orders", [{"n": 2}], partition=1, at=DAY_2)),
    )
    assert waiting.execute_complete(context(day), event)["topics"] == {"orders": {"passed": [0, 1], "quiet": []}}


def test_the_window_is_that_of_the_operator(orders: Bench, day: Interval) -> None:
    """The conf of a run overrides its interval; with explicit offsets there is nothing to wait for."""
    window = ["2012-12-31T00:00:00+00:00", "2013-01-01T00:00:00+00:00"]
    run = context(day) | {"dag_run": SimpleNamespace(conf={"kafka_s3": {"window": window}})}
    assert sensor(grace=timedelta(days=36_500)).execute(run)["window"] == window
    run = context(day) | {"dag_run": SimpleNamespace(conf={"kafka_s3": {"offsets": {"orders": {"0": [0, 1]}}}})}
    for deferrable in (False, True):
        assert sensor(grace=timedelta(days=36_500), deferrable=deferrable).execute(run) == {}


def test_a_missing_topic_connection_or_window_ends_the_wait_for_good(orders: Bench, day: Interval) -> None:
    """A topic, a connection, or the window itself."""
    for parameters, run, message in (
        ({"topics": "nowhere"}, context(day), "topic 'nowhere' does not exist"),
        ({"kafka_conn_id": "kafka_nowhere"}, context(day), "there is no connection 'kafka_nowhere'"),
        ({}, {}, "this run has no data interval"),
    ):
        for deferrable in (False, True):
            with pytest.raises(AirflowFailException, match=message):
                sensor(deferrable=deferrable, **parameters).execute(run)  # type: ignore[arg-type]


@pytest.mark.parametrize("parameters", [{"grace": -1}, {"isolation": "some"}, {"partition_length": 60}, {"topics": []}])
def test_a_wrong_parameter_is_refused_when_the_dag_is_parsed(parameters: dict[str, Any]) -> None:
    """It is named."""
    with pytest.raises(ConfigurationError, match=next(iter(parameters))):
        sensor(**parameters)


def test_default_args_of_the_dag_may_have_parameters_of_operator_and_sensors() -> None:
    """Each task takes the parameters that it has; those of the operator alone do not reach a sensor."""
    from airflow.providers.common.compat.sdk import DAG

    shared = {
        "topics": "orders",
        "bucket": "lake",
        "pipeline": "shop",
        "topics_dir": "raw",
        "isolation": "read_uncommitted",
        "partitioner": {"kind": "daily", "timezone": "Europe/Berlin"},
        "window": {"allow_open": True, "partition_length": timedelta(days=1)},
        "kafka_conn_id": "cluster",
        "aws_conn_id": None,
    }
    own = {
        "format": "json",
        "offsets": "data_interval",
        "action": "verify",
        "rotation": {"flush_size": 5},
        "naming": {"offset_pad_width": 3},
        "limits": {"records_per_batch": 9},
        "upload": {"threads": 3},
        "on_empty": "skip",
        "value_converter": "json",
        "key_converter": "string",
        "content": "envelope",
        "schema_compatibility": None,
        "errors": "dead_letter",
        "max_dead_letters": 5,
        "registry_conn_id": None,
        "on_bad_timestamp": "undated",
        "on_data_loss": "skip",
        "on_future_timestamp": "read_to_end",
        "on_missing": "ignore",
        "partitions_in": {"kind": "glue", "table": "lake.{topic}"},
        "adopt_wait": 1.0,
        "unsafe_single_writer": True,
        "request_retry": {"max_retries": 1},
        "source": None,
        "kafka_options": {},
        "spark_conn_id": "cluster",
        "name": "land",
        "packages": "g:a:1",
        "retries": 7,
    }
    with DAG("shared", schedule=None, start_date=datetime(2026, 1, 1, tzinfo=UTC), default_args=shared | own):
        operator = KafkaToS3Operator(task_id="land")
        lag = KafkaLagSensor(task_id="enough")
        complete = KafkaWindowClosedSensor(task_id="complete")
    assert set(inspect.signature(KafkaToS3Operator.__init__).parameters) - {"self", "kwargs", "starting_offsets"} <= {
        *shared,
        *own,
    }
    assert {task.retries for task in (operator, lag, complete)} == {7}
    assert {task.topics for task in (operator, lag, complete)} == {"orders"}
    assert {task.isolation for task in (operator, lag, complete)} == {"read_uncommitted"}
    assert {(task.bucket, task.pipeline, task.topics_dir) for task in (operator, lag)} == {("lake", "shop", "raw")}
    assert (operator.partitioner, operator.window) == (complete.partitioner, complete.window)
    assert operator.partitioner == Daily(timezone="Europe/Berlin")
    assert complete.mode == lag.mode == "poke"
    assert (lag.kafka_conn_id, lag.aws_conn_id) == ("cluster", None)
