"""What a run tells the rest of Airflow: assets, links, lineage."""

from __future__ import annotations

import contextlib
import json
import sys
from collections import defaultdict
from datetime import datetime
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from airflow.providers.common.compat.sdk import (  # noqa: TID253 - after AIRFLOW_HOME is set, see conftest
    AirflowException,
    AirflowFailException,
    Asset,
    AssetAlias,
    XCom,
)

from airflow_provider_kafka_s3.airflow import links
from airflow_provider_kafka_s3.config import Limits
from tests.unit.operators.conftest import CANARY

if TYPE_CHECKING:
    from airflow_provider_kafka_s3.operators.kafka_to_s3 import KafkaToS3Operator
    from tests.unit.operators.conftest import Bench

Interval = tuple[datetime, datetime]


@pytest.fixture
def topics(bench: Bench) -> Bench:
    """Two topics with records, and an empty one."""
    for topic in ("orders", "clicks", "quiet"):
        bench.kafka.create_topic(topic)
    bench.fill("orders", [{"n": 1}, {"n": 2}], at=1_356_998_400_000)
    bench.fill("clicks", [{"n": 1}], at=1_356_998_400_000)
    bench.outlet_events = defaultdict(SimpleNamespace)
    return bench


# -- assets -----------------------------------------------------------------------------------------------------------


def test_an_outlet_is_told_counts_and_offsets_of_the_window(topics: Bench, day: Interval) -> None:
    """What a DAG that is scheduled by the asset has to know: this day is complete, with these offsets."""
    lake = Asset("s3://lake/topics")
    task = topics.task(topics="orders,clicks,quiet", offsets="data_interval", outlets=[lake])
    topics.run(task, interval=day)
    assert list(topics.outlet_events) == [lake]
    extra = json.loads(json.dumps(topics.outlet_events[lake].extra))
    for counts in (extra["landed"], *(t["landed"] for t in extra["topics"].values()), *extra["topics"].values()):
        assert (counts.pop("size") > 0) == (counts["records"] > 0)
    nothing = {"batches": 0, "records": 0, "objects": 0}
    assert extra == {
        "bucket": "lake",
        "pipeline": "orders-to-lake",
        "action": "land",
        "window": {
            "source": "data interval",
            "start": "2013-01-01T00:00:00+00:00",
            "end": "2013-01-02T00:00:00+00:00",
        },
        "status": "ok",
        "landed": {"batches": 2, "records": 3, "objects": 2},
        "topics": {
            "clicks": {
                "status": "ok",
                "records": 1,
                "objects": 1,
                "landed": {"batches": 1, "records": 1, "objects": 1},
                "batches": [1],
                "offsets": {"0": [[0, 1]]},
                "skipped": {},
            },
            "orders": {
                "status": "ok",
                "records": 2,
                "objects": 1,
                "landed": {"batches": 1, "records": 2, "objects": 1},
                "batches": [1],
                "offsets": {"0": [[0, 2]]},
                "skipped": {},
            },
            "quiet": {
                "status": "empty",
                "records": 0,
                "objects": 0,
                "landed": nothing,
                "batches": [],
                "offsets": {},
                "skipped": {},
            },
        },
    }


def test_a_run_that_leaves_every_topic_out_tells_that_it_did_nothing(topics: Bench) -> None:
    """Whoever is scheduled by the asset always finds the same fields."""
    lake = Asset("s3://lake/topics")
    topics.run(topics.task(outlets=[lake]), conf={"kafka_s3": {"offsets": {"orders": {}}}})
    extra = topics.outlet_events[lake].extra
    assert (extra["status"], extra["pipeline"], extra["topics"]) == ("empty", "orders-to-lake", {})
    assert extra["landed"] == {"batches": 0, "records": 0, "objects": 0, "size": 0}


def test_the_offsets_of_several_batches_are_one_range(topics: Bench) -> None:
    """How a run was cut into batches is no concern of who reads the event."""
    lake = Asset("s3://lake/topics")
    topics.run(topics.task(limits=Limits(records_per_batch=1), outlets=[lake]))
    told = topics.outlet_events[lake].extra["topics"]["orders"]
    assert (told["batches"], told["offsets"]) == ([1, 2], {"0": [[0, 2]]})


def test_only_declared_assets_are_told_and_only_by_success(topics: Bench) -> None:
    """Neither an alias, nor anything else that may be an outlet, nor anybody when a topic failed."""
    topics.run(topics.task(outlets=[AssetAlias("lake")]))
    topics.spark.failing["clicks"] = ("record", "offset 0 is no JSON")
    with pytest.raises(AirflowFailException):
        topics.run(topics.task(topics="clicks", outlets=[Asset("s3://lake/topics")]))
    assert not topics.outlet_events
    context_without = topics.run(topics.task())
    assert context_without["status"] == "ok"


# -- links ------------------------------------------------------------------------------------------------------------


AT_THE_ENDPOINT = "http://lake:9000/lake/topics/_kafka_s3/orders-to-lake/"


def shown_by(task: KafkaToS3Operator, ti_key: object = None) -> dict[str, str]:
    """What each button leads to."""
    return {link.name: link.get_link(task, ti_key=ti_key) for link in task.operator_extra_links}


def test_the_links_of_one_topic_lead_to_its_marker_and_its_last_manifest(
    topics: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By addresses that a browser opens; they are XComs, too, which a process that has not run the task reads."""
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
def test_no_xcom_is_looked_for_that_is_not_there(
    topics: Bench, monkeypatch: pytest.MonkeyPatch, fails: str | None
) -> None:
    """Airflow 3 reads all links when a task ends, however it ends, and logs each XCom that is missing as an ERROR."""

    def missing(**_: object) -> None:
        raise AssertionError("this would be a red line")

    monkeypatch.setattr(XCom, "get_value", missing)
    task = topics.task()
    if fails == "in Spark":
        topics.spark.failing["orders"] = ("record", "offset 0 is no JSON")
    if fails == "before anything":
        monkeypatch.delenv("AIRFLOW_CONN_AWS_DEFAULT")
    with contextlib.suppress(AirflowException):
        topics.run(task)
    led = {name for name, url in shown_by(task).items() if url}
    by_failure = {None: {"Stored offsets", "Manifest"}, "in Spark": {"Stored offsets"}, "before anything": set[str]()}
    assert led == by_failure[fails]


def test_a_task_object_that_runs_again_forgets_its_links(topics: Bench) -> None:
    """As tests of a DAG do it, in one process: a run without a batch has no manifest to show."""
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
    """There is one button for all of them."""
    topics.run(topics.task(topics="orders,clicks"))
    assert set(topics.pushed.values()) == {AT_THE_ENDPOINT}


def test_a_task_that_failed_has_a_link_to_the_stored_offsets(topics: Bench) -> None:
    """That is when somebody wants to look."""
    topics.spark.failing["orders"] = ("record", "offset 0 is no JSON")
    with pytest.raises(AirflowFailException):
        topics.run(topics.task())
    assert set(topics.pushed) == {"marker_url"}


@pytest.mark.parametrize(
    ("endpoint", "region", "expected"),
    [
        ("http://minio:9000", "us-east-1", "http://minio:9000/lake/a%20b/c"),
        ("https://u:secret@store/s3/", None, "https://store/s3/lake/a%20b/c"),
        (None, None, "https://console.aws.amazon.com/s3/object/lake?prefix=a+b%2Fc"),
        (
            "https://s3.eu-central-1.amazonaws.com",
            "eu-central-1",
            "https://console.aws.amazon.com/s3/object/lake?region=eu-central-1&prefix=a+b%2Fc",
        ),
        (None, "cn-north-1", "https://console.amazonaws.cn/s3/object/lake?region=cn-north-1&prefix=a+b%2Fc"),
    ],
)
def test_a_bucket_at_aws_is_shown_by_its_console(endpoint: str | None, region: str | None, expected: str) -> None:
    """Of another store nobody knows the console, so its links lead to the object at its endpoint."""
    settings = SimpleNamespace(endpoint_url=endpoint, region=region)
    work: Any = SimpleNamespace(bucket="lake", access=SimpleNamespace(settings=settings))
    assert links.object_url(work, "a b/c") == expected


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


# -- lineage ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def openlineage(monkeypatch: pytest.MonkeyPatch) -> None:
    """The classes of the OpenLineage provider and client that are used, as plain namespaces."""
    import attrs

    class RunFacet:
        pass

    def module(name: str, **members: Any) -> None:
        made = ModuleType(name)
        made.__dict__.update(members)
        monkeypatch.setitem(sys.modules, name, made)

    module("airflow.providers.openlineage")
    module("airflow.providers.openlineage.extractors", OperatorLineage=SimpleNamespace)
    module(
        "airflow.providers.common.compat.openlineage.facet",
        Dataset=SimpleNamespace,
        OutputDataset=SimpleNamespace,
        OutputStatisticsOutputDatasetFacet=SimpleNamespace,
        RunFacet=attrs.define(RunFacet),
    )
    from airflow_provider_kafka_s3.airflow import lineage

    lineage._facet_class.cache_clear()
    monkeypatch.setattr(lineage, "_facet_class", lineage._facet_class.__wrapped__)


def test_lineage_leads_from_topics_to_prefixes(topics: Bench, openlineage: None) -> None:
    """With the counts of each, and the run's own; nothing of the connections but the broker's address."""
    task = topics.task(topics="orders,clicks")
    assert task.get_openlineage_facets_on_complete(None) is None
    returned = topics.run(task)
    told = task.get_openlineage_facets_on_complete(None)
    assert [(d.namespace, d.name) for d in told.inputs] == [
        ("kafka://broker:9092", "orders"),
        ("kafka://broker:9092", "clicks"),
    ]
    assert [(d.namespace, d.name) for d in told.outputs] == [
        ("s3://lake", "topics/orders"),
        ("s3://lake", "topics/clicks"),
    ]
    counts = told.outputs[0].outputFacets["outputStatistics"]
    assert (counts.rowCount, counts.fileCount) == (2, 1)
    facet = told.run_facets["kafkaToS3"]
    assert (facet.records, facet.objects, facet.status) == (3, 2, returned["status"])
    assert CANARY not in repr(told)


def test_lineage_of_a_failed_run_has_no_counts(topics: Bench, openlineage: None) -> None:
    """What it was about is known all the same."""
    task = topics.task()
    topics.spark.failing["orders"] = ("record", "offset 0 is no JSON")
    with pytest.raises(AirflowFailException):
        topics.run(task)
    told = task.get_openlineage_facets_on_complete(None)
    assert ([d.name for d in told.inputs], told.run_facets) == (["orders"], {})
