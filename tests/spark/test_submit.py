"""The job as the operator starts it: spark-submit in a process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections import Counter
from pathlib import Path

import psutil
import pytest

from airflow_provider_kafka_s3.config import MIB, Format, Layout
from airflow_provider_kafka_s3.spark.spec import JobResult
from dev.kafka_broker import KafkaBroker, Message
from dev.s3_server import ThreadedS3Server
from tests.spark.pipeline import CREDENTIALS, MakePipeline, submit
from tests.spark.probes import Gate


def kill_all(process: subprocess.Popen[str]) -> None:
    """Kill -9 of the JVM, the Python driver and the workers, at once, as a machine dies."""
    tree = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
    for member in tree:
        member.send_signal(signal.SIGSTOP)
    for member in tree:
        member.kill()
    psutil.wait_procs(tree, timeout=30)
    process.communicate()


@pytest.mark.timeout(240)
def test_a_driver_killed_after_a_part_was_uploaded_leaves_nothing_and_the_next_one_finishes(
    kafka_broker: KafkaBroker, make_topic: object, make_pipeline: MakePipeline, tmp_path: Path
) -> None:
    """Kill -9 before the decision: nothing is visible; the rerun lands every record once. Nothing secret is shown."""
    topic = make_topic(2)  # type: ignore[operator]
    sent = [
        Message(json.dumps({"n": n, "fill": "x" * 300}).encode(), partition=n % 2, timestamp=n) for n in range(60_000)
    ]
    kafka_broker.produce(topic, sent)
    gate = Gate()
    with ThreadedS3Server(middleware=gate) as server:
        pipeline = make_pipeline(endpoint=server.endpoint, layout=Layout(format=Format(kind="json"), part_size=5 * MIB))
        plan = pipeline.plan(topic, "run")
        spec = pipeline.spec({topic: plan}, "run", tmp_path / "result.json")

        first = submit(spec, tmp_path)
        assert gate.held.wait(120)
        assert list(pipeline.store.pending_uploads(""))
        arguments = [psutil.Process(first.pid).cmdline(), *_commands(first.pid)]
        kill_all(first)
        gate.open()
        assert pipeline.data_keys() == []
        assert pipeline.decision(topic) is None
        assert JobResult.read(spec.result_path) is None

        again = submit(spec, tmp_path)
        output, _ = again.communicate()
        assert again.returncode == 0, output
        result = JobResult.read(spec.result_path)
        assert result is not None
        assert result.succeeded
        assert pipeline.topic_run(topic, "run").advance().status == "ok"  # type: ignore[union-attr]
        assert pipeline.lines() == Counter(m.value for m in sent)
        assert set(pipeline.data_keys()) == {o.key for o in pipeline.objects(topic)}

        shown = json.dumps(arguments) + output
        assert "--job-file" in shown
        assert CREDENTIALS.secret_access_key not in shown
        assert [p.name for p in tmp_path.iterdir()] == ["result.json"]


def _commands(root: int) -> list[list[str]]:
    commands = []
    for process in psutil.Process(root).children(recursive=True):
        # Spark starts short-lived helpers, too; they may end at any moment.
        with contextlib.suppress(psutil.NoSuchProcess):
            commands.append(process.cmdline())
    return commands


def test_a_driver_without_the_connector_says_how_to_get_it(
    kafka_broker: KafkaBroker, make_topic: object, make_pipeline: MakePipeline, tmp_path: Path
) -> None:
    """The result names the package; the exit code tells that the job failed."""
    topic = make_topic(1)  # type: ignore[operator]
    kafka_broker.produce(topic, [Message(b"{}")])
    pipeline = make_pipeline(layout=Layout(format=Format(kind="json")))
    spec = pipeline.spec({topic: pipeline.plan(topic, "run")}, "run", tmp_path / "result.json")
    process = submit(spec, tmp_path, spark_jars="")
    output, _ = process.communicate()
    assert process.returncode == 1, output
    result = JobResult.read(spec.result_path)
    assert result is not None
    (outcome,) = result.topics
    assert outcome.error == "ConfigurationError"
    assert "packages='org.apache.spark:spark-sql-kafka-0-10_2.13:4." in str(outcome.message)
    assert os.listdir(tmp_path) == ["result.json"]
