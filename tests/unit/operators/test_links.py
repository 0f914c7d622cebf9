"""Buttons of a task in Airflow's UI, and the XComs with their URLs."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from airflow.providers.common.compat.sdk import (  # noqa: TID253 - after AIRFLOW_HOME is set, see conftest
    AirflowException,
    AirflowFailException,
    XCom,
)

from airflow_provider_kafka_s3.config import Limits
from airflow_provider_kafka_s3.exceptions import KafkaUnavailableError

if TYPE_CHECKING:
    from airflow_provider_kafka_s3.operators.kafka_to_s3 import KafkaToS3Operator
    from tests.unit.operators.conftest import Bench

AT_THE_ENDPOINT = "http://lake:9000/lake/topics/_kafka_s3/orders-to-lake/"


def shown_by(task: KafkaToS3Operator, ti_key: object = None) -> dict[str, str]:
    """The URL of each button."""
    return {link.name: link.get_link(task, ti_key=ti_key) for link in task.operator_extra_links}


def test_the_links_of_one_topic_lead_to_its_marker_and_its_last_manifest(
    topics: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By URLs for a browser; they are also XComs, for processes that have not run the task."""
    task = topics.task(limits=Limits(records_per_batch=1))
    topics.run(task)
    log = f"{AT_THE_ENDPOINT}orders"
    assert topics.pushed == {
        "marker_url": f"{log}/marker.json",
        "manifest_url": f"{log}/batches/0000000002.manifest.json",
    }
    for url in topics.pushed.values():
        assert topics.store.head(url.removeprefix("http://lake:9000/lake/")) is not None
    shown = {"Stored offsets": topics.pushed["marker_url"], "Manifest": topics.pushed["manifest_url"], "Spark": ""}
    monkeypatch.setattr(XCom, "get_value", lambda *, key, ti_key: topics.pushed.get(key))
    of_the_webserver: Any = SimpleNamespace()
    for link in task.operator_extra_links:
        assert link.get_link(of_the_webserver, ti_key=object()) == shown[link.name]
    assert shown_by(task) == shown


@pytest.mark.parametrize("fails", [None, "in Spark", "before anything"])
def test_no_missing_xcom_is_read(topics: Bench, monkeypatch: pytest.MonkeyPatch, fails: str | None) -> None:
    """Airflow 3 reads all links when a task ends, however it ends, and logs each XCom that is missing as an ERROR."""

    def missing(**_: object) -> None:
        raise AssertionError("Airflow would log an ERROR")

    monkeypatch.setattr(XCom, "get_value", missing)
    task = topics.task()
    if fails == "in Spark":
        topics.spark.failing["orders"] = ("record", "offset 0 is no JSON")
    if fails == "before anything":
        monkeypatch.delenv("AIRFLOW_CONN_AWS_DEFAULT")
    with contextlib.suppress(AirflowException):
        topics.run(task)
    linked = {name for name, url in shown_by(task).items() if url}
    by_failure = {None: {"Stored offsets", "Manifest"}, "in Spark": {"Stored offsets"}, "before anything": set[str]()}
    assert linked == by_failure[fails]


def test_a_task_object_that_runs_again_has_the_links_of_its_last_run(topics: Bench) -> None:
    """As in tests of a DAG, in one process: after a run without a batch there is no link to a manifest."""
    task = topics.task()
    topics.run(task, run_id="r1")
    assert shown_by(task)["Manifest"] != ""
    topics.run(task, run_id="r2")
    assert (shown_by(task)["Manifest"], shown_by(task)["Stored offsets"]) == (
        "",
        f"{AT_THE_ENDPOINT}orders/marker.json",
    )


def test_an_operator_that_another_task_executes_keeps_its_own_links(topics: Bench) -> None:
    """A function of a ``@task`` may call it: the task of the context has no links then."""
    task = topics.task()
    topics.run(task, context={"task": object()})
    assert shown_by(task)["Stored offsets"] == f"{AT_THE_ENDPOINT}orders/marker.json"


def test_the_links_of_several_topics_lead_to_the_folder_of_the_pipeline(topics: Bench) -> None:
    """One button is for all of them."""
    topics.run(topics.task(topics="orders,clicks"))
    listing = "http://lake:9000/lake?list-type=2&prefix=topics%2F_kafka_s3%2Forders-to-lake%2F"
    assert set(topics.pushed.values()) == {listing}


def test_a_task_that_failed_has_links_to_what_is_there(topics: Bench) -> None:
    """To the stored offsets, and to the manifest of a topic that was landed."""
    topics.spark.failing["orders"] = ("record", "offset 0 is no JSON")
    with pytest.raises(AirflowFailException):
        topics.run(topics.task())
    assert set(topics.pushed) == {"marker_url"}
    topics.pushed.clear()
    with pytest.raises(AirflowFailException):
        topics.run(topics.task(topics="orders,clicks"), run_id="both")
    assert set(topics.pushed) == {"marker_url", "manifest_url"}


def test_no_link_leads_to_a_marker_that_does_not_exist(topics: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A first run may fail before it stores offsets."""

    def away(_: str) -> None:
        raise KafkaUnavailableError("no broker answers")

    monkeypatch.setattr(topics.kafka, "describe", away)
    with pytest.raises(AirflowException):
        topics.run(topics.task())
    assert topics.pushed == {}


@pytest.mark.parametrize("crash", [None, "Error code is: 137."])
def test_a_spark_application_is_shown_by_the_history_server_that_the_connection_names(
    topics: Bench, monkeypatch: pytest.MonkeyPatch, crash: str | None
) -> None:
    """Also one that crashed. Without a history server there is no button: the application's own UI ends with it."""
    from airflow_provider_kafka_s3.spark.conf import APPLICATION_FILE

    submit = topics.spark.submit

    def with_an_id(hook: Any, application: str = "") -> None:
        Path(hook._conf[APPLICATION_FILE]).write_text("local-17")
        submit(hook, application)

    monkeypatch.setattr(topics.spark, "submit", with_an_id)
    topics.spark.crash = crash
    for history, shown in (("https://history:18080/", "https://history:18080/history/local-17/"), (None, None)):
        extra = {"history-url": history} if history else {}
        connection = {"conn_type": "spark", "host": "local[2]", "extra": extra}
        monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(connection))
        topics.pushed.clear()
        topics.fill("orders", [{"n": 3}])
        with contextlib.suppress(AirflowException):
            topics.run(topics.task(), run_id=f"with {history}")
        assert topics.pushed.get("spark_url") == shown
