"""Airflow 2's backfills of daily intervals, by its own processes, Kafka, Spark, and an S3 server over HTTP.

Then its web server shows in a browser what they have landed.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from playwright.sync_api import expect

from airflow_provider_kafka_s3.storage.s3 import S3Credentials, S3Settings, make_client
from dev.airflow_connections import connection_variables
from dev.airflow_home import AirflowHome
from dev.airflow_webserver import PASSWORD, USER, AirflowWebServer
from dev.browser import chromium
from tests.airflow.airflow_ui import PATIENCE
from tests.airflow.conftest import BUCKET, PIPELINE, STORES
from tests.airflow.days import RECORDS, check_days, make_days

if TYPE_CHECKING:
    from airflow_provider_kafka_s3.storage.s3 import S3Store
    from airflow_provider_kafka_s3.testing.invariants import BucketSummary
    from dev.kafka_broker import KafkaBroker
    from tests.airflow.conftest import Gate

# Six small Spark jobs, two at a time.
pytestmark = pytest.mark.timeout(900)

DAYS: Final = [f"2013-01-0{n}" for n in range(1, 4)]


@dataclass(frozen=True)
class Task:
    """The result of the task of a day.

    Attributes:
        state: ``success`` or ``failed``.
        tries: number of tries.
        start: of the last try.
        end: of the last try.
    """

    state: str
    tries: int
    start: str
    end: str


class Backfills:
    """Runs ``airflow dags backfill --local``, and reads the state of its tasks afterwards."""

    def __init__(self, home: AirflowHome) -> None:
        self.home = home

    def run(self, dag_id: str, *options: str) -> tuple[int, str]:
        """Backfill the three days; the exit status, and what was printed."""
        arguments = ["dags", "backfill", "--local", "--yes", "-s", DAYS[0], "-e", DAYS[-1], *options, dag_id]
        return self.home.run(arguments)

    def tasks(self, dag_id: str) -> dict[str, Task]:
        """The tasks by the day of their data interval."""
        rows = self.home.query(
            "SELECT substr(r.data_interval_start, 1, 10), t.state, t.try_number, t.start_date, t.end_date "
            "FROM task_instance t JOIN dag_run r ON r.dag_id = t.dag_id AND r.run_id = t.run_id "
            "WHERE t.dag_id = ? ORDER BY 1",
            dag_id,
        )
        return {day: Task(*row) for day, *row in rows}

    def states(self, dag_id: str) -> dict[str, tuple[str, int]]:
        """State and number of tries by day."""
        return {day: (task.state, task.tries) for day, task in self.tasks(dag_id).items()}

    def at_once(self, dag_id: str) -> int:
        """Largest number of tasks that ran at the same time, by the times in Airflow's database."""
        tasks = self.tasks(dag_id).values()
        return max(sum(other.start <= task.start < other.end for other in tasks) for task in tasks)


@pytest.fixture(scope="module")
def backfills(airflow_home: AirflowHome, tmp_path_factory: pytest.TempPathFactory) -> Backfills:
    """An Airflow with the DAGs of ``server_dags.py``, and the same connections as the other Airflows."""
    folder, dags = tmp_path_factory.mktemp("airflow-backfills"), tmp_path_factory.mktemp("backfill-dags")
    shutil.copy(airflow_home.folder / "airflow.db", folder)
    shutil.copy(Path(__file__).with_name("server_dags.py"), dags)
    settings = {
        **airflow_home.connections,
        **connection_variables({"spark_default": {"conn_type": "spark", "host": "local[1]"}}),
        # That many workers are started for every backfill; the default is 32.
        "AIRFLOW__CORE__PARALLELISM": "2",
        "SERVER_TESTS_BUCKET": BUCKET,
        "SERVER_TESTS_PIPELINE": PIPELINE,
        "AIRFLOW__KAFKA_S3__STORES": STORES,
    }
    return Backfills(AirflowHome(folder, dags, environment=settings))


@pytest.fixture
def listing(s3_gate: tuple[str, Gate]) -> Callable[[], dict[str, Any]]:
    """ETag and time of every object, from the listing of the bucket."""
    settings = S3Settings(endpoint_url=s3_gate[0], region="us-east-1", addressing_style="path")
    client = make_client(settings, S3Credentials(access_key_id="a", secret_access_key="b"))

    def read() -> dict[str, Any]:
        pages = client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET)
        return {o["Key"]: (o["ETag"], o["LastModified"]) for page in pages for o in page.get("Contents", ())}

    return read


def test_a_backfill_lands_every_day_once_and_again_changes_nothing(
    backfills: Backfills,
    store: S3Store,
    kafka_broker: KafkaBroker,
    check: Callable[..., BucketSummary],
    listing: Callable[[], dict[str, Any]],
    gate: Gate,
) -> None:
    """Three days, two at a time, of which the first may not be written; then every way to run them again."""
    topic = "forwards"
    make_days(kafka_broker, topic)
    with gate.refuse(f"/topics/{topic}/year=2013/month=01/day=01/"):
        status, output = backfills.run(topic)
    assert status == 1
    # The others end as they would.
    assert backfills.states(topic) == {**dict.fromkeys(DAYS, ("success", 1)), DAYS[0]: ("failed", 1)}, output
    assert backfills.at_once(topic) == 2
    check_days(store, topic, [2, 3])

    status, output = backfills.run(topic, "--rerun-failed-tasks")
    assert status == 0, output
    assert backfills.states(topic) == {**dict.fromkeys(DAYS, ("success", 1)), DAYS[0]: ("success", 2)}
    check_days(store, topic, range(1, 4))
    assert check(topic, complete=False).records == len(DAYS) * RECORDS

    before, starts = listing(), len(backfills.home.java_commands)
    status, output = backfills.run(topic)
    assert status == 0, output
    assert listing() == before

    status, output = backfills.run(topic, "--reset-dagruns")
    assert status == 0, output
    assert backfills.states(topic) == {**dict.fromkeys(DAYS, ("success", 2)), DAYS[0]: ("success", 3)}
    assert listing() == before
    assert len(backfills.home.java_commands) == starts


def test_a_backfill_may_go_backwards(
    backfills: Backfills, store: S3Store, kafka_broker: KafkaBroker, check: Callable[..., BucketSummary]
) -> None:
    """The newest days first: each run lands its own day, below what is covered, and nothing twice."""
    topic = "backwards"
    make_days(kafka_broker, topic)
    status, output = backfills.run(topic, "--run-backwards")
    assert status == 0, output
    tasks = backfills.tasks(topic)
    assert backfills.states(topic) == dict.fromkeys(DAYS, ("success", 1))
    assert tasks[DAYS[0]].start > max(task.start for day, task in tasks.items() if day != DAYS[0])
    check_days(store, topic, range(1, 4))
    assert check(topic, complete=False).records == len(DAYS) * RECORDS


def test_the_page_of_pipelines_is_in_the_menu_behind_the_login(backfills: Backfills) -> None:
    """All topics, a topic, a batch, and the topics of one DAG; a login leads back to the page that was asked for."""
    with AirflowWebServer(backfills.home) as server, chromium() as browser:
        page = browser.new_page(locale="en-US", timezone_id="UTC")
        page.set_default_timeout(PATIENCE)
        expect.set_options(timeout=PATIENCE)
        address = f"{server.url}/kafka-s3/topic/0/{PIPELINE}/forwards"
        page.goto(address)
        page.get_by_label("Username").fill(USER)
        page.get_by_label("Password").fill(PASSWORD)
        page.get_by_role("button", name="Sign In").click()
        expect(page).to_have_url(address)
        expect(page.get_by_role("heading", level=1)).to_contain_text("forwards")
        page.goto(server.url)
        page.get_by_role("link", name="Browse").hover()
        page.get_by_role("link", name="Kafka to S3", exact=True).click()
        rows = page.locator("tbody tr")
        expect(rows).to_have_count(2)
        page.get_by_role("link", name="backwards", exact=True).click()
        expect(page.get_by_role("heading", level=1)).to_contain_text("backwards")
        page.get_by_role("link", name="1", exact=True).click()
        objects = page.get_by_role("rowheader").filter(has_text="topics/backwards/year=2013/month=01/day=")
        expect(objects).to_have_count(2)
        page.goto(f"{server.url}/kafka-s3/dag/forwards")
        expect(rows).to_have_count(1)
        expect(rows).to_contain_text("forwards")
