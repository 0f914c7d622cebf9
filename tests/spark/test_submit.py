"""The job as the operator starts it: spark-submit in a process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections import Counter
from importlib.metadata import version
from pathlib import Path

import psutil
import pytest

from airflow_provider_kafka_s3.config import MIB, JsonLines, Layout
from airflow_provider_kafka_s3.spark.package_zip import package_zip
from airflow_provider_kafka_s3.spark.spec import JobResult, TopicOutcome
from dev.kafka_broker import KafkaBroker, Message
from dev.s3_server import ThreadedS3Server
from dev.spark_cluster import WORKER_PYTHON
from dev.waiting import wait_for_end
from tests.spark.pipeline import CREDENTIALS, MakePipeline, Pipeline, submit, submitted
from tests.spark.probes import Gate


def kill_all(process: subprocess.Popen[str]) -> None:
    """Kill -9 of the JVM, the Python driver and the workers at once, as when a machine fails."""
    tree = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for member in tree:
            # Spark starts short-lived helpers, too.
            with contextlib.suppress(psutil.NoSuchProcess):
                member.send_signal(number)
    wait_for_end(tree, "the job")
    process.communicate()


def test_a_driver_killed_after_a_part_was_uploaded_leaves_nothing_and_the_next_one_finishes(
    kafka_broker: KafkaBroker, make_topic: object, make_pipeline: MakePipeline, tmp_path: Path
) -> None:
    """Kill -9 before the decision: nothing is visible; the rerun lands every record once.

    Nothing secret is shown. The log of the rerun has no errors, and lists the steps until the read begins. Workers are
    forked from a process with all their modules.
    """
    topic = make_topic(2)  # type: ignore[operator]
    sent = [
        Message(json.dumps({"n": n, "fill": "x" * 300}).encode(), partition=n % 2, timestamp=n) for n in range(60_000)
    ]
    kafka_broker.produce(topic, sent)
    gate = Gate()
    with ThreadedS3Server(middleware=gate) as server:
        pipeline = make_pipeline(endpoint=server.endpoint, layout=Layout(format=JsonLines(), part_size=5 * MIB))
        plan = pipeline.plan(topic, "run")
        spec = pipeline.spec({topic: plan}, "run", tmp_path / "result.json")

        with submit(spec, tmp_path) as first:
            assert gate.held.wait(120)
            assert list(pipeline.store.pending_uploads(""))
            arguments = [psutil.Process(first.pid).cmdline(), *_commands(first.pid)]
            kill_all(first)
        gate.open()
        assert pipeline.data_keys() == []
        assert pipeline.decision(topic) is None
        assert JobResult.read(spec.result_path) is None

        result, output, code = submitted(spec, tmp_path)
        assert code == 0, output
        assert result is not None
        assert result.succeeded
        assert pipeline.topic_run(topic, "run").advance().status == "ok"  # type: ignore[union-attr]
        assert pipeline.lines() == Counter(m.value for m in sent)
        assert set(pipeline.data_keys()) == {o.key for o in pipeline.objects(topic)}

        shown = json.dumps(arguments) + output
        assert "--job-file" in shown
        assert "spark.worker_daemon" in shown
        assert CREDENTIALS.secret_access_key not in shown
        assert [p.name for p in tmp_path.iterdir()] == ["result.json"]

        assert "ERROR " not in output
        steps = ("looking up the plans of 1 topic ", "1 topic to be read", "starting Spark at master local[2,4]")
        steps += (f"Spark {version('pyspark')} is up after", "session is ready after", "Spark plans the read of")
        steps += (f"{topic}: reading", f"topic {topic}: batch 1 is committed")
        assert [output.index(step) for step in steps] == sorted(output.index(step) for step in steps)


def _commands(root: int) -> list[list[str]]:
    commands = []
    for process in psutil.Process(root).children(recursive=True):
        # Spark starts short-lived helpers, too; they may end at any moment.
        with contextlib.suppress(psutil.NoSuchProcess):
            commands.append(process.cmdline())
    return commands


def _one_record(kafka_broker: KafkaBroker, make_topic: object, make_pipeline: MakePipeline) -> tuple[str, Pipeline]:
    """A topic of one record, and a pipeline that has not landed it."""
    topic = make_topic(1)  # type: ignore[operator]
    kafka_broker.produce(topic, [Message(b"{}")])
    return topic, make_pipeline(layout=Layout(format=JsonLines()))


def _failed_outcome(pipeline: Pipeline, topic: str, folder: Path, **settings: str) -> TopicOutcome:
    """The outcome that a driver wrote for its only topic before it ended with exit code 1."""
    spec = pipeline.spec({topic: pipeline.plan(topic, "run")}, "run", folder / "result.json")
    result, output, code = submitted(spec, folder, **settings)
    assert code == 1, output
    assert result is not None
    (outcome,) = result.topics
    return outcome


@pytest.mark.newest_spark
def test_a_local_master_with_a_python_of_the_users_gets_the_package_by_py_files(
    kafka_broker: KafkaBroker,
    make_topic: object,
    make_pipeline: MakePipeline,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its workers land the record, although the process that forks them cannot import the package."""
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.chdir(tmp_path)
    topic, pipeline = _one_record(kafka_broker, make_topic, make_pipeline)
    spec = pipeline.spec({topic: pipeline.plan(topic, "run")}, "run", tmp_path / "result.json")
    settings = {
        "spark_submit_pyFiles": str(package_zip(tmp_path)),
        "spark_pyspark_python": str(WORKER_PYTHON),
        "spark_pyspark_driver_python": sys.executable,
    }
    result, output, _ = submitted(spec, tmp_path, **settings)
    assert result is not None, output
    assert result.succeeded, output


def test_a_driver_without_the_connector_reports_the_package_to_add(
    kafka_broker: KafkaBroker, make_topic: object, make_pipeline: MakePipeline, tmp_path: Path
) -> None:
    """The result names the package, and the exit code is 1."""
    topic, pipeline = _one_record(kafka_broker, make_topic, make_pipeline)
    outcome = _failed_outcome(pipeline, topic, tmp_path, spark_jars="")
    assert outcome.kind == "configuration"
    assert "packages='org.apache.spark:spark-sql-kafka-0-10_2.13:4." in str(outcome.message)
    assert os.listdir(tmp_path) == ["result.json"]


def test_a_master_that_accepts_connections_and_never_answers_is_named(
    kafka_broker: KafkaBroker, make_topic: object, make_pipeline: MakePipeline, tmp_path: Path
) -> None:
    """Spark itself would wait for a minute and then report a stopped SparkContext; no upload stays open."""
    topic, pipeline = _one_record(kafka_broker, make_topic, make_pipeline)
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        master = f"spark://127.0.0.1:{listening.getsockname()[1]}"
        outcome = _failed_outcome(pipeline, topic, tmp_path, spark_master=master)
    assert outcome.kind == "spark_job"
    assert str(outcome.message).startswith("no answer from the Spark master: ")
    assert str(outcome.message).endswith(master)
    assert "did not answer for 20 s" in str(outcome.message)
    assert "stopped SparkContext" not in str(outcome.message)
    assert list(pipeline.store.pending_uploads("")) == []
