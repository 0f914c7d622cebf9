"""Actions in the UI of Airflow 3, in a real browser; its screenshots are in ``artifacts/ui``."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from playwright.sync_api import expect

from dev.waiting import wait_for_end, wait_until
from tests.airflow.airflow_ui import Ui
from tests.airflow.conftest import BUCKET, PIPELINE, SECRET_KEY, SPARK_SECRET
from tests.airflow.days import RECORDS, check_days, make_days
from tests.conftest import PASSWORD
from tests.spark.probes import running

if TYPE_CHECKING:
    from airflow_provider_kafka_s3.storage.s3 import S3Store
    from airflow_provider_kafka_s3.testing.invariants import BucketSummary
    from dev.airflow_servers import AirflowServers
    from dev.kafka_broker import KafkaBroker
    from tests.airflow.conftest import Gate

pytestmark = pytest.mark.timeout(1800)

JANUARY_3 = {"kafka_s3": {"window": ["2013-01-03T00:00:00Z", "2013-01-04T00:00:00Z"]}}


@pytest.fixture(scope="module")
def ui(servers: AirflowServers) -> Iterator[Ui]:
    """A browser."""
    with Ui(servers.url) as opened:
        yield opened


def test_trigger_clear_delete_and_restore(
    ui: Ui,
    servers: AirflowServers,
    kafka_broker: KafkaBroker,
    store: S3Store,
    delete_by_hand: Callable[[str], object],
    listing: Callable[[], dict[str, Any]],
    check: Callable[..., BucketSummary],
) -> None:
    """A run lands the window of its conf; cleared it writes nothing; a deleted object is reported, and restored."""
    topic, run = "clicked", "by-hand"
    make_days(kafka_broker, topic)
    servers.unpause(topic)
    ui.trigger(topic, run, "2013/01/03", JANUARY_3)
    ui.open_task(topic, run, "land")
    ui.wait_for_state("Success")
    ui.picture("triggered")
    log = f"/{BUCKET}/topics/_kafka_s3/{PIPELINE}/{topic}"
    ui.open_task(topic, run, "land", "details")
    assert ui.link("Stored offsets").endswith(f"{log}/marker.json")
    assert ui.link("Manifest").endswith(f"{log}/batches/0000000001.manifest.json")
    assert red_lines(servers, topic, run, 1) == []
    check_days(store, topic, [3])
    assert check(topic, complete=False).records == RECORDS

    landed = listing()
    ui.clear(topic, run, "land")
    wait_for_try(servers, topic, run, 2)
    ui.wait_for_state("Success")
    ui.picture("cleared")
    assert red_lines(servers, topic, run, 2) == []
    assert listing() == landed

    key = min(info.key for info in store.list(f"topics/{topic}/"))
    lost = store.get(key)
    assert lost is not None
    delete_by_hand(key)
    ui.clear(topic, run, "land")
    wait_for_try(servers, topic, run, 3)
    ui.wait_for_state("Failed")
    ui.wait_for_text(key)
    ui.picture("object-missing")
    page = f"{servers.url}/kafka-s3/topic/0/{PIPELINE}/{topic}"
    assert json.loads(red_lines(servers, topic, run, 3)[0])["event"].endswith(f"\nThe page: {page}")
    assert [line for line in red_lines(servers, topic, run, 3) if "XCom" in line] == []

    ui.backfill_again(topic, "2013/01/03", {"kafka_s3": {"action": "restore", **JANUARY_3["kafka_s3"]}})
    wait_for_try(servers, topic, run, 4)
    ui.open_task(topic, run, "land")
    ui.wait_for_state("Success")
    ui.picture("restored")
    restored = store.get(key)
    assert restored is not None
    assert restored.body == lost.body
    assert check(topic, complete=False).records == RECORDS
    now = listing()
    assert [k for k in landed if k != key and now[k] != landed[k]] == []


def test_marking_a_running_task_failed_ends_its_driver_and_clearing_it_completes_the_batch(
    ui: Ui,
    servers: AirflowServers,
    gate: Gate,
    kafka_broker: KafkaBroker,
    store: S3Store,
    check: Callable[..., BucketSummary],
) -> None:
    """Before the manifest is decided nothing is visible; the next try lands the same batch."""
    topic, run = "stopped", "by-hand"
    make_days(kafka_broker, topic)
    manifest = f"topics/_kafka_s3/{PIPELINE}/{topic}/batches/0000000001.manifest.json"
    gate.hold("PUT", manifest)
    servers.unpause(topic)
    servers.trigger(topic, dag_run_id=run, conf=JANUARY_3)
    gate.wait_for("PUT", manifest)
    scheduler = psutil.Process(servers.process_id("scheduler"))
    spark = running(scheduler.children(recursive=True), lambda p: any("kafka_to_s3.py" in word for word in p.cmdline()))
    assert running(spark, lambda process: process.name() == "java")
    ui.mark_failed(topic, run, "land")
    began = time.monotonic()
    wait_for_end(spark, "the driver")
    print(f"the driver was gone after {time.monotonic() - began:.1f} s")
    assert servers.wait_for_run(topic, run) == "failed"
    ui.wait_for_state("Failed")
    ui.picture("marked-failed")
    assert store.head(manifest) is None
    assert list(store.list(f"topics/{topic}/")) == []

    ui.clear(topic, run, "land")
    wait_for_try(servers, topic, run, 2)
    ui.wait_for_state("Success")
    ui.picture("cleared-after-failure")
    assert [b["batch"] for b in servers.returned(topic, run, "land")["topics"][topic]["batches"]] == [1]
    check_days(store, topic, [3])
    summary = check(topic, complete=False)
    assert (summary.records, summary.batches) == (RECORDS, 1)


def test_the_page_of_pipelines_is_in_the_menu_and_in_a_tab_of_each_dag(ui: Ui, servers: AirflowServers) -> None:
    """Inside of Airflow's pages: all topics, a topic, a batch; the tab of a DAG has its own topics alone."""
    ui.open_menu("Browse", "Kafka to S3")
    rows = ui.frame().locator("tbody tr")
    for topic in ("clicked", "stopped"):
        expect(rows.filter(has=ui.frame().get_by_role("link", name=topic, exact=True))).to_contain_text(
            "2013-01-03 20:00:00"
        )
    ui.picture("page-topics")
    ui.frame().get_by_role("link", name="clicked", exact=True).click()
    expect(ui.frame().get_by_role("heading", level=1)).to_contain_text("clicked")
    ui.picture("page-topic")
    ui.frame().get_by_role("link", name="1", exact=True).click()
    objects = ui.frame().get_by_role("rowheader").filter(has_text="topics/clicked/year=2013/month=01/day=03/")
    expect(objects).to_have_count(2)
    ui.picture("page-batch")
    ui.open_tab("clicked", "Kafka to S3")
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("clicked")
    ui.picture("page-topics-of-a-dag")


def test_no_page_and_no_api_response_shows_a_secret(ui: Ui, servers: AirflowServers) -> None:
    """Not the log, rendered templates, XComs or details in the browser, and not the API or a file of the servers."""
    topic, run = "clicked", "by-hand"
    seen: dict[str, str] = {}
    for tab, shown in (("", BUCKET), ("rendered_templates", "topics_dir"), ("xcom", BUCKET), ("details", run)):
        ui.open_task(topic, run, "land", tab)
        ui.wait_for_text(shown)
        ui.picture(f"secrets-{tab or 'log'}")
        seen[f"page {tab}"] = ui.text()
        assert shown in seen[f"page {tab}"]
    assert BUCKET in seen["page rendered_templates"]
    task = f"/dags/{topic}/dagRuns/{run}/taskInstances/land"
    for path in (task, f"{task}/xcomEntries/return_value", f"{task}/logs/1", f"/dags/{topic}/dagRuns/{run}"):
        seen[path] = json.dumps(servers.api("GET", path))
    assert BUCKET in seen[task]
    for path in ("", f"topic/0/{PIPELINE}/{topic}", f"batch/0/{PIPELINE}/{topic}/1", "metrics"):
        ui.page.goto(f"{servers.url}/kafka-s3/{path}")
        seen[f"kafka-s3/{path}"] = ui.text()
        assert topic in seen[f"kafka-s3/{path}"]
    for file in servers.home.folder.rglob("*"):
        if file.is_file() and file.suffix in {".log", ".json"}:
            seen[file.name] = file.read_text(errors="replace")
    for secret in (PASSWORD, SECRET_KEY, SPARK_SECRET):
        forms = {secret, json.dumps(secret)[1:-1], repr(secret)[1:-1]}
        assert [place for place, text in seen.items() if any(form in text for form in forms)] == []


def red_lines(servers: AirflowServers, dag_id: str, run_id: str, attempt: int) -> list[str]:
    """The red lines of the log of a try."""
    lines = servers.task_log(dag_id, run_id, "land", attempt).splitlines()
    assert lines
    return [line for line in lines if json.loads(line)["level"] in ("error", "critical")]


def wait_for_try(servers: AirflowServers, dag_id: str, run_id: str, number: int) -> None:
    """Wait until a run has ended with this number of tries of its task."""
    wait_until(
        lambda: servers.task(dag_id, run_id, "land")["try_number"] == number,
        f"try {number}",
        timeout=600,
        interval=0.5,
    )
    servers.wait_for_run(dag_id, run_id)
