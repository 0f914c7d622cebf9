"""The job on a real Spark Connect server: the same guarantees, by a driver without a JVM."""

from __future__ import annotations

import contextlib
import json
import logging
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

import httpx
import psutil
import pytest

from airflow_provider_kafka_s3.config import MIB, Daily, JsonLines, Layout, Limits, Rotation
from airflow_provider_kafka_s3.spark.spec import ConnectServer, JobResult, JobSpec
from airflow_provider_kafka_s3.submit.connect_job import ConnectJob
from dev.kafka_broker import KafkaBroker, Message
from dev.s3_server import ThreadedS3Server
from dev.spark_connect import SparkConnectServer
from dev.waiting import wait_until
from tests.spark.pipeline import CREDENTIALS, MakePipeline, Pipeline
from tests.spark.probes import Gate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# pyspark leaves the socket for the rows of collect() open until it is garbage-collected.
pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
    pytest.mark.timeout(900),  # the first test starts a broker, a Spark and a server
]

MakeTopic = Callable[..., str]
JSON = Layout(format=JsonLines(), part_size=5 * MIB)
DAY = 86_400_000
WORKER = """
import logging, sys
from airflow_provider_kafka_s3.submit.connect_job import ConnectJob
from airflow_provider_kafka_s3.spark.spec import JobSpec
ConnectJob({}, logging.getLogger()).run(JobSpec.read(sys.argv[1]))
"""
"""A process that runs a job, in place of an Airflow task."""


class Runner:
    """Runs jobs as the operator does, on one server."""

    def __init__(self, server: SparkConnectServer, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
        self.server = server
        self.folder = folder
        self._log = logging.getLogger("tests.connect")
        self._caplog = caplog
        caplog.set_level(logging.INFO)
        self._jobs = 0

    def spec(self, pipeline: Pipeline, topic: str, **more: Any) -> JobSpec:
        """The job of the next batch of a topic."""
        self._jobs += 1
        folder = self.folder / str(self._jobs)
        folder.mkdir()
        connect = ConnectServer(url=self.server.url)
        plan = pipeline.plan(topic, "run")
        return pipeline.spec({topic: plan}, "run", folder / "result.json", connect=connect, **more)

    def job(self) -> ConnectJob:
        """A job whose driver's output is in the test's log."""
        return ConnectJob({}, self._log)

    def run(self, pipeline: Pipeline, topic: str, **more: Any) -> JobResult:
        """Land the next batch of a topic."""
        outcome = self.job().run(self.spec(pipeline, topic, **more))
        assert outcome.result is not None, outcome.output
        return outcome.result

    @property
    def output(self) -> str:
        """Output of all drivers."""
        return self._caplog.text

    def page(self, path: str) -> str:
        """A page of the server's web interface."""
        response = httpx.get(
            f"http://127.0.0.1:{self.server.ui_port}/{path}", timeout=30, trust_env=False, follow_redirects=True
        )
        return response.raise_for_status().text

    def active_stages(self) -> list[Any]:
        """The stages that the server runs."""
        (application,) = json.loads(self.page("api/v1/applications"))
        found: list[Any] = json.loads(self.page(f"api/v1/applications/{application['id']}/stages?status=active"))
        return found


@pytest.fixture
def runner(connect_server: SparkConnectServer, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Runner:
    """A runner on the shared server."""
    return Runner(connect_server, tmp_path, caplog)


def records(count: int, *, partitions: int = 2, size: int = 0) -> list[Message]:
    """Records of five days."""
    fill = "x" * size
    return [
        Message(json.dumps({"n": n, "fill": fill}).encode(), partition=n % partitions, timestamp=n * 7 % 5 * DAY)
        for n in range(count)
    ]


def daemons_of(server: SparkConnectServer) -> list[psutil.Process]:
    """The processes that fork the Python workers of a server."""
    found = []
    for process in psutil.Process(server.pid).children():
        with contextlib.suppress(psutil.Error):  # short-lived helpers
            if "pyspark.daemon" in process.cmdline():
                found.append(process)
    return found


def driver_of(folder: Path) -> psutil.Process:
    """The child process whose job file is below a folder."""
    for process in psutil.Process().children():
        if str(folder) in " ".join(process.cmdline()):
            return process
    raise AssertionError("no driver runs")


@pytest.mark.newest_spark
@pytest.mark.parametrize(
    ("rotation", "objects"), [(Rotation(flush_size=300), 30), (Rotation(merge_partitions=True), 25)], ids=["", "merged"]
)
def test_a_connect_server_writes_the_same_bytes_as_a_spark_of_its_own(
    rotation: Rotation,
    objects: int,
    spark: SparkSession,
    kafka_broker: KafkaBroker,
    make_topic: MakeTopic,
    make_pipeline: MakePipeline,
    runner: Runner,
) -> None:
    """Names and bytes are equal in two empty buckets, gzip, rotation, many slices and groups of slices included."""
    topic = make_topic(2)
    kafka_broker.produce(topic, records(2_000))
    layout = Layout(format=JsonLines(compression="gzip"), partitioner=Daily(), rotation=rotation)
    settings = {"limits": Limits(records_per_slice=400)}
    submitted = make_pipeline(layout=layout, settings=settings)
    remote = make_pipeline(layout=layout, settings=settings)
    submitted.land(spark, topic)
    result = runner.run(remote, topic)
    assert result.succeeded, result
    assert remote.topic_run(topic, "run").advance().status == "ok"  # type: ignore[union-attr]
    assert remote.bodies() == submitted.bodies()
    assert len(remote.bodies()) >= objects
    assert remote.lines() == Counter(m.value for m in records(2_000))


def test_a_killed_driver_leaves_nothing_and_the_next_try_finishes(
    kafka_broker: KafkaBroker, make_topic: MakeTopic, make_pipeline: MakePipeline, runner: Runner
) -> None:
    """Kill -9 after a part was uploaded: nothing is visible while the server continues; every record is landed once."""
    topic = make_topic(2)
    sent = records(60_000, size=300)
    kafka_broker.produce(topic, sent)
    gate = Gate()
    with ThreadedS3Server(middleware=gate) as server:
        pipeline = make_pipeline(endpoint=server.endpoint, layout=JSON)
        spec = runner.spec(pipeline, topic)
        with ThreadPoolExecutor(1) as pool:
            first = pool.submit(runner.job().run, spec)
            assert gate.held.wait(120)
            driver_of(Path(spec.result_path).parent).send_signal(signal.SIGKILL)
            outcome = first.result(240)
        assert outcome.result is None
        assert "exit code is -9" in outcome.output
        gate.open()
        assert pipeline.data_keys() == []
        assert pipeline.decision(topic) is None

        assert runner.run(pipeline, topic).succeeded
        assert pipeline.topic_run(topic, "run").advance().status == "ok"  # type: ignore[union-attr]
        assert pipeline.lines() == Counter(m.value for m in sent)
        assert set(pipeline.data_keys()) == {o.key for o in pipeline.objects(topic)}


def test_killing_a_task_stops_its_work_on_the_server_within_five_seconds(
    kafka_broker: KafkaBroker, make_topic: MakeTopic, make_pipeline: MakePipeline, runner: Runner
) -> None:
    """The driver is gone, the server reads nothing any more, and nothing is visible or decided."""
    topic = make_topic(2)
    kafka_broker.produce(topic, records(60_000, size=300))
    gate = Gate()
    with ThreadedS3Server(middleware=gate) as server:
        pipeline = make_pipeline(endpoint=server.endpoint, layout=JSON)
        spec, job = runner.spec(pipeline, topic), runner.job()
        running = Thread(target=job.run, args=(spec,))
        running.start()
        assert gate.held.wait(120)
        driver = driver_of(Path(spec.result_path).parent)
        assert runner.active_stages()
        started = time.monotonic()
        job.kill()
        assert time.monotonic() - started < 30
        running.join(60)
        assert not driver.is_running()
        wait_until(lambda: not runner.active_stages(), "the server to read nothing", interval=0.1)
        gate.open()
        assert pipeline.data_keys() == []
        assert pipeline.decision(topic) is None
    assert "nothing more is decided" in runner.output


def test_a_driver_ends_with_its_parent_process(
    kafka_broker: KafkaBroker, make_topic: MakeTopic, make_pipeline: MakePipeline, runner: Runner
) -> None:
    """After SIGKILL of the worker no driver is left that could decide: it interrupts its work and ends."""
    topic = make_topic(2)
    kafka_broker.produce(topic, records(60_000, size=300))
    gate = Gate()
    with ThreadedS3Server(middleware=gate) as server:
        pipeline = make_pipeline(endpoint=server.endpoint, layout=JSON)
        spec = runner.spec(pipeline, topic)
        given = Path(spec.result_path).with_name("given.json")
        command = [sys.executable, "-c", WORKER, str(given)]
        with spec.offered(given), subprocess.Popen(command, stderr=subprocess.DEVNULL) as worker:
            assert gate.held.wait(120)
            (driver,) = psutil.Process(worker.pid).children()
            worker.kill()
        driver.wait(60)
        wait_until(lambda: not runner.active_stages(), "the server to read nothing", interval=0.1)
        gate.open()
        assert pipeline.data_keys() == []
        assert pipeline.decision(topic) is None


def test_concurrent_runs_share_a_session_and_nothing_else(
    kafka_broker: KafkaBroker, make_topic: MakeTopic, make_pipeline: MakePipeline, runner: Runner
) -> None:
    """Two pipelines land at the same time; the server keeps one set of Python workers for all runs."""
    topics = [make_topic(2), make_topic(1)]
    pipelines = [make_pipeline(layout=JSON), make_pipeline(layout=JSON)]
    for topic, partitions in zip(topics, (2, 1), strict=True):
        kafka_broker.produce(topic, records(1_000, partitions=partitions))
    specs = [runner.spec(pipeline, topic) for pipeline, topic in zip(pipelines, topics, strict=True)]
    before = set(daemons_of(runner.server))
    with ThreadPoolExecutor(2) as pool:
        for outcome in pool.map(lambda spec: runner.job().run(spec), specs):
            assert outcome.result is not None, outcome.output
            assert outcome.result.succeeded, outcome.result
    for pipeline in pipelines:
        assert pipeline.lines() == Counter(m.value for m in records(1_000))
    assert len(set(re.findall(r"session ([0-9a-f-]{36})", runner.output))) == 1
    # Files of a task, as in other tests on this server, take workers of their own.
    assert len(set(daemons_of(runner.server)) - before) <= 1


def test_a_server_shows_no_secret_of_a_job(
    kafka_broker: KafkaBroker, make_topic: MakeTopic, make_pipeline: MakePipeline, runner: Runner
) -> None:
    """Neither its pages, nor its log, nor the driver's."""
    topic = make_topic(1)
    kafka_broker.produce(topic, records(10, partitions=1))
    jaas = 'org.example.Login required username="u" password="canary-of-kafka";'
    result = runner.run(make_pipeline(layout=JSON), topic, kafka_overrides={"kafka.sasl.jaas.config": jaas})
    assert result.succeeded, result
    pages = [runner.page(path) for path in ("connect/", "SQL/", "environment/", "stages/")]
    # The pages of sessions and statements, with the plans.
    links = re.findall(r'href="[^"]*?((?:connect/session|SQL/execution)/\?id=[^"]+)"', "".join(pages))
    assert links
    pages += [runner.page(link.replace("&amp;", "&")) for link in sorted(set(links))]
    # The statement is among them.
    assert any("SliceTask" in page and "map_partitions" in page for page in pages)
    shown = "".join(pages) + runner.server.log.read_text() + runner.output
    assert "canary-of-kafka" not in shown
    assert CREDENTIALS.secret_access_key not in shown


def test_an_error_of_a_task_reaches_the_result(
    kafka_broker: KafkaBroker, make_topic: MakeTopic, make_pipeline: MakePipeline, runner: Runner
) -> None:
    """A bucket that is gone is an error that names it."""
    topic = make_topic(1)
    kafka_broker.produce(topic, [Message(b"{", partition=0, timestamp=1)])
    pipeline = make_pipeline(layout=JSON)
    (outcome,) = runner.run(pipeline, topic).topics
    assert outcome.kind == "record", outcome
    assert f"{topic}" in str(outcome.message)
    assert pipeline.data_keys() == []
