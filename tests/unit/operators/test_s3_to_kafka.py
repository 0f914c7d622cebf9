"""The parameters of the operator that replays; what it sends is tested with a real broker."""

from __future__ import annotations

import datetime as dt
import json
from types import SimpleNamespace
from typing import Any, Literal

import pytest
from airflow.providers.common.compat.sdk import (  # noqa: TID253 - the task raises them
    DAG,
    AirflowException,
    AirflowFailException,
    AirflowSkipException,
)

from airflow_provider_kafka_s3 import S3ToKafkaOperator
from airflow_provider_kafka_s3.airflow import connections
from airflow_provider_kafka_s3.exceptions import ConfigurationError, NothingToReplayError
from airflow_provider_kafka_s3.replay import run
from airflow_provider_kafka_s3.replay.process import ReplayProcess
from airflow_provider_kafka_s3.storage.s3 import S3Settings
from tests.unit.replay.test_process import job

try:
    from airflow.serialization.serialized_objects import DagSerialization
except ImportError:  # Airflow 2
    from airflow.serialization.serialized_objects import SerializedDAG as DagSerialization

REQUIRED = {"task_id": "replay", "bucket": "lake", "topic": "orders", "pipeline": "orders", "target": "again"}


def context(**more: Any) -> Any:
    """Of a task."""
    ti = {"dag_id": "a dag", "task_id": "g.replay", "run_id": "scheduled__2026-01-01T00:00:00+00:00", "map_index": -1}
    return {"ti": SimpleNamespace(**{**ti, **more})}


def test_the_id_is_that_of_the_task_in_its_run(bench: object) -> None:
    """The same for all tries; another run, task or mapped instance has another one."""
    task = S3ToKafkaOperator(**REQUIRED)
    ids = [
        task._request(each).replay
        for each in (context(), context(try_number=2), context(run_id="b"), context(map_index=1), context(dag_id="_"))
    ]
    assert ids[0] == ids[1]
    assert len(set(ids)) == 4
    assert ids[0].startswith("a_dag-g.replay-")
    assert S3ToKafkaOperator(**REQUIRED, replay_id="mine")._request(context()).replay == "mine"


def test_times_are_those_of_templates(bench: object) -> None:
    """ISO 8601, as Airflow renders them."""
    request = S3ToKafkaOperator(**REQUIRED, since="2026-01-02 00:00:00+00:00", key="k")._request(context())
    assert (request.since, request.until, request.key) == (dt.datetime(2026, 1, 2, tzinfo=dt.UTC), None, b"k")


def test_a_key_is_a_text_or_any_bytes(bench: object) -> None:
    """Also of a task in a DAG that Airflow has stored."""
    for key, expected in (("é", "é".encode()), (b"\xff\x00", b"\xff\x00"), (None, None)):
        with DAG("dag", schedule=None, start_date=dt.datetime(2026, 1, 1, tzinfo=dt.UTC)) as dag:
            task = S3ToKafkaOperator(**REQUIRED, key=key)
        assert task._request(context()).key == expected
        json.dumps(DagSerialization.to_dict(dag))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"target": ""}, "target='' must be text"),
        ({"without": "key"}, "without='key' must be a list"),
        ({"on_empty": "success"}, "on_empty='success'"),
        ({"tagret": "x"}, "has no parameter 'tagret'; did you mean 'target'"),
    ],
)
def test_a_wrong_parameter_fails_when_the_dag_is_parsed(bench: object, given: dict[str, Any], message: str) -> None:
    """With the parameter."""
    with pytest.raises(ConfigurationError, match=message):
        S3ToKafkaOperator(**{**REQUIRED, **given})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"since": "yesterday"}, "since='yesterday' is not a time"),
        ({"without": ["values"]}, r"without=\['values'\]: use key, headers, .*, lost, gaps"),
        ({"replay_id": "a/b"}, "replay='a/b' is not a legal id"),
        ({"records_per_second": 0.0}, "records_per_second=0.0 must be a number above 0, or None"),
        ({"offsets": {0: (5, 5)}}, r"offsets: 0: \[5, 5\) is no range of offsets"),
    ],
)
def test_a_wrong_value_fails_before_anything_is_sent(bench: object, given: dict[str, Any], message: str) -> None:
    """With the value."""
    with pytest.raises(ConfigurationError, match=message):
        S3ToKafkaOperator(**{**REQUIRED, **given})._request(context())


@pytest.fixture
def _connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections that are not used."""
    monkeypatch.setattr(connections, "s3_access", lambda _: SimpleNamespace(settings=S3Settings(), credentials=None))
    monkeypatch.setattr(connections, "kafka_config", lambda _: {"bootstrap.servers": "kafka:9092"})


@pytest.mark.usefixtures("_connections")
@pytest.mark.parametrize(("on_empty", "error"), [("fail", AirflowFailException), ("skip", AirflowSkipException)])
def test_a_task_without_records_fails_or_is_skipped(
    bench: object, monkeypatch: pytest.MonkeyPatch, on_empty: Literal["fail", "skip"], error: type[Exception]
) -> None:
    """As its parameter says; a retry would not help."""

    def replay(*_: object, **__: object) -> None:
        raise NothingToReplayError("no record is in the selection")

    monkeypatch.setattr(run, "replay", replay)
    with pytest.raises(error, match="no record is in the selection"):
        S3ToKafkaOperator(**REQUIRED, on_empty=on_empty).execute(context())


@pytest.mark.usefixtures("_connections")
@pytest.mark.parametrize("begun", [True, False])
def test_a_killed_task_starts_no_process_any_more(bench: object, monkeypatch: pytest.MonkeyPatch, begun: bool) -> None:
    """Also if it is killed before it begins."""

    def replay(*_: object, process: ReplayProcess) -> None:
        if begun:
            task.on_kill()
        process._require_not_killed(job())

    monkeypatch.setattr(run, "replay", replay)
    task = S3ToKafkaOperator(**REQUIRED)
    if not begun:
        task.on_kill()
    with pytest.raises(AirflowException, match="was killed"):
        task.execute(context())
