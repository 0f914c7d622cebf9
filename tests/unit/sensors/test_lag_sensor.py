"""KafkaLagSensor, in the worker and in the triggerer."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from airflow.providers.common.compat.sdk import (  # noqa: TID253 - after AIRFLOW_HOME is set, see conftest
    AirflowException,
    AirflowFailException,
    AirflowSensorTimeout,
    AirflowSkipException,
    TaskDeferred,
)

from airflow_provider_kafka_s3.exceptions import ConfigurationError, KafkaUnavailableError
from airflow_provider_kafka_s3.sensors.kafka_lag import KafkaLagSensor
from airflow_provider_kafka_s3.triggers.polling import KafkaLagTrigger
from tests.unit.operators.conftest import CANARY

if TYPE_CHECKING:
    from airflow.triggers.base import BaseTrigger

    from tests.unit.operators.conftest import Bench


def sensor(**parameters: Any) -> KafkaLagSensor:
    """A sensor that polls once and then times out."""
    defaults = {
        "topics": "orders, clicks",
        "bucket": "lake",
        "pipeline": "orders-to-lake",
        "min_records": 3,
        "timeout": 0,
    }
    return KafkaLagSensor(task_id="wait", **{**defaults, "poke_interval": 0, **parameters})


def stored_again(trigger: BaseTrigger) -> KafkaLagTrigger:
    """A trigger after serialization to Airflow's database and back."""
    path, arguments = trigger.serialize()
    assert path == "airflow_provider_kafka_s3.triggers.polling.KafkaLagTrigger"
    return KafkaLagTrigger(**json.loads(json.dumps(arguments)))


async def first_event(trigger: BaseTrigger, while_waiting: Callable[[], None] = lambda: None) -> dict[str, Any]:
    """The event of a trigger; a function is called while it waits."""
    events = trigger.run()
    waiting = asyncio.ensure_future(anext(events))
    await asyncio.sleep(0)
    while_waiting()
    event = await asyncio.wait_for(waiting, 60)
    with pytest.raises(StopAsyncIteration):
        await anext(events)
    payload: dict[str, Any] = json.loads(json.dumps(event.payload))
    return payload


@pytest.fixture
def topics(bench: Bench) -> Bench:
    """Two topics: one that was landed up to its end, one that was never landed."""
    bench.kafka.create_topic("orders")
    bench.kafka.create_topic("clicks", 2)
    bench.fill("orders", [{"n": 1}, {"n": 2}])
    bench.run(bench.task())
    return bench


def test_all_topics_together_have_to_have_enough(topics: Bench) -> None:
    """One record here and two there are three; the lag of each is returned."""
    topics.fill("orders", [{"n": 3}])
    topics.fill("clicks", [{"n": 1}], partition=1)
    with pytest.raises(AirflowSensorTimeout):
        sensor().execute({})
    topics.fill("clicks", [{"n": 2}])
    assert sensor().execute({}) == {"orders": 1, "clicks": 2}


def test_after_a_run_there_is_no_lag(topics: Bench) -> None:
    """Landed records do not count."""
    topics.fill("orders", [{"n": n} for n in range(5)])
    waiting = sensor(topics="orders")
    assert waiting.execute({}) == {"orders": 5}
    topics.run(topics.task(), run_id="manual__2")
    with pytest.raises(AirflowSensorTimeout):
        waiting.execute({})


def test_a_deferred_sensor_waits_in_the_triggerer(topics: Bench) -> None:
    """The trigger polls until the lag is large enough; its event has the result, as without deferring."""
    waiting = sensor(deferrable=True, timeout=30)
    with pytest.raises(TaskDeferred) as deferred:
        waiting.execute({})
    assert deferred.value.method_name == "execute_complete"
    assert deferred.value.timeout is not None
    assert deferred.value.timeout.total_seconds() == 30
    trigger = stored_again(deferred.value.trigger)
    event = asyncio.run(first_event(trigger, lambda: topics.fill("clicks", [{"n": n} for n in range(4)])))
    assert waiting.execute_complete({}, event) == {"orders": 0, "clicks": 4}
    # Two triggerers may run it, and Airflow may use either event.
    assert asyncio.run(first_event(stored_again(trigger))) == event


def test_a_deferrable_sensor_with_nothing_to_wait_for_never_defers(topics: Bench) -> None:
    """It polls once before."""
    topics.fill("orders", [{"n": n} for n in range(3)])
    assert sensor(deferrable=True).execute({}) == {"orders": 3, "clicks": 0}


def test_nothing_secret_is_stored_for_the_triggerer(topics: Bench) -> None:
    """Only the names of connections are stored in the database."""
    with pytest.raises(TaskDeferred) as deferred:
        sensor(deferrable=True).execute({})
    stored = deferred.value.trigger.serialize()[1]
    assert CANARY not in json.dumps(stored)
    assert (stored["kafka_conn_id"], stored["aws_conn_id"]) == ("kafka_default", "aws_default")


@pytest.mark.parametrize(
    ("parameters", "kind", "message"),
    [
        ({"topics": "nowhere"}, "topic_not_found", "topic 'nowhere' does not exist"),
        ({"kafka_conn_id": "kafka_nowhere"}, "configuration", "there is no connection 'kafka_nowhere'"),
        ({"aws_conn_id": "aws_nowhere"}, "configuration", "there is no connection 'aws_nowhere'"),
    ],
)
def test_a_missing_topic_bucket_or_connection_ends_the_wait_for_good(
    topics: Bench, parameters: dict[str, str], kind: str, message: str
) -> None:
    """In the worker, in the triggerer, and when the sensor continues after it."""
    for deferrable in (False, True):
        with pytest.raises(AirflowFailException, match=message):
            sensor(deferrable=deferrable, **parameters).execute({})
    with pytest.raises(AirflowSkipException, match=message):
        sensor(deferrable=True, soft_fail=True, **parameters).execute({})
    condition = sensor(**parameters)._condition({})
    event = asyncio.run(first_event(KafkaLagTrigger(**condition.to_json(), poke_interval=0)))
    assert (event["status"], event["kind"], event["terminal"]) == ("error", kind, True)
    with pytest.raises(AirflowFailException, match=message):
        sensor().execute_complete({}, event)


@pytest.mark.parametrize(("forgiving", "level"), [({}, "ERROR"), ({"soft_fail": True}, "WARNING")])
def test_the_way_out_is_logged_in_lines_of_its_own(
    topics: Bench,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    forgiving: dict[str, bool],
    level: str,
) -> None:
    """In the worker, and when it continues after the triggerer; as an ERROR only if the task fails."""
    monkeypatch.setattr(KafkaLagSensor, "log", logging.getLogger("task"))
    waiting = sensor(kafka_conn_id="kafka_nowhere", deferrable=True, **forgiving)
    event = asyncio.run(first_event(KafkaLagTrigger(**waiting._condition({}).to_json(), poke_interval=0)))
    for fail in (lambda: waiting.execute({}), lambda: waiting.execute_complete({}, event)):
        caplog.clear()
        with pytest.raises((AirflowFailException, AirflowSkipException)):
            fail()
        (record,) = [r for r in caplog.records if r.name == "task"]
        assert record.levelname == level
        lines = record.getMessage().splitlines()
        assert lines[0].startswith("there is no connection 'kafka_nowhere'. Name another one by kafka_conn_id")
        assert lines[-1].startswith("    airflow connections add kafka_nowhere --conn-type kafka ")


def test_after_an_unreachable_broker_airflow_retries(topics: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a failure that the task's retries apply to."""

    def silent(*_: object) -> None:
        raise KafkaUnavailableError("no answer")

    monkeypatch.setattr(topics.kafka, "describe", silent)
    event = asyncio.run(first_event(KafkaLagTrigger(**sensor()._condition({}).to_json(), poke_interval=0)))
    for fail in (lambda: sensor().execute({}), lambda: sensor().execute_complete({}, event)):
        with pytest.raises(AirflowException, match="no answer") as failed:
            fail()
        assert not isinstance(failed.value, AirflowFailException)


@pytest.mark.parametrize(
    "parameters", [{"min_record": 1}, {"min_records": 0}, {"min_records": "3"}, {"isolation": "some"}]
)
def test_a_wrong_parameter_is_refused_when_the_dag_is_parsed(parameters: dict[str, Any]) -> None:
    """It is named."""
    with pytest.raises(ConfigurationError, match=next(iter(parameters))):
        sensor(**parameters)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"bucket": "s3://lake/raw"}, "write bucket='lake' and topics_dir='raw'"),
        ({"topics": "or/ders"}, "not a legal Kafka topic name"),
        ({"topics": []}, "name at least one topic"),
        ({"pipeline": "a/b"}, "pipeline='a/b' is not a legal name"),
    ],
)
def test_an_invalid_parameter_fails_when_the_dag_is_parsed(parameters: dict[str, Any], message: str) -> None:
    """Unless it is a template."""
    with pytest.raises(ConfigurationError, match=message):
        sensor(**parameters)
    sensor(**dict.fromkeys(parameters, "{{ params.x }}"))
