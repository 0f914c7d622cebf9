"""``kafka-s3`` as a process of its own, against a real broker and an S3 server over HTTP."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from airflow_provider_kafka_s3.batch.request import RunRequest
from airflow_provider_kafka_s3.config import JsonLines, Layout
from airflow_provider_kafka_s3.documents.plan import Plan
from airflow_provider_kafka_s3.kafka.source import KafkaSource
from airflow_provider_kafka_s3.pipeline import TopicPipeline
from airflow_provider_kafka_s3.retry import Retrier
from airflow_provider_kafka_s3.storage.durable import DurableStore
from airflow_provider_kafka_s3.storage.s3 import S3Credentials, S3Settings, S3Store, make_client
from airflow_provider_kafka_s3.testing.invariants import check_bucket, read_source
from dev.kafka_broker import KafkaBroker
from dev.kafka_tools import Message
from dev.s3_server import S3Server
from tests.conftest import PASSWORD

SECRET = "canary-of-the-secret-key"


def kafka_s3(endpoint: str, config: Path, command: str, topic: str, *more: str) -> tuple[int, dict[str, Any], str]:
    """Run a command; return its exit code, its JSON and all of its output."""
    where = ("--endpoint-url", endpoint, "--region", "us-east-1", "--bucket", "lake", "--kafka-config", str(config))
    line = [sys.executable, "-m", "airflow_provider_kafka_s3.cli", command, *where, "--pipeline", "p", "--topic", topic]
    keys = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": SECRET}
    done = subprocess.run(
        [*line, "--json", *more], env=os.environ | keys, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout), done.stdout + done.stderr


def test_an_open_batch_is_landed_by_the_command_line(
    kafka_broker: KafkaBroker, sasl_config: dict[str, object], make_topic: Callable[..., str], tmp_path: Path
) -> None:
    """With a login, without Spark: status lists the batch, recover lands it, verify reads it, doctor finds no error."""
    topic = make_topic(2)
    kafka_broker.produce(topic, [Message(b'{"n": %d}' % n, partition=n % 2) for n in range(1_000)])
    config = tmp_path / "kafka.json"
    config.write_text(json.dumps(sasl_config))
    source = KafkaSource(sasl_config)
    with S3Server(buckets=["lake"]) as server:
        credentials = S3Credentials(access_key_id="test", secret_access_key=SECRET)
        bucket = S3Store(make_client(S3Settings(endpoint_url=server.endpoint, region="us-east-1"), credentials), "lake")
        store = DurableStore(bucket, Retrier())
        pipeline = TopicPipeline(store, source, topics_dir="topics", pipeline="p", topic=topic)
        layout = Layout(format=JsonLines(compression="gzip"))
        request = RunRequest(
            run="left", offsets="incremental", layout=layout, starting="earliest", attempt="try 1 on w"
        )
        assert isinstance(pipeline.run(request).advance(), Plan)

        outputs: list[str] = []

        def run(command: str, *more: str) -> tuple[int, dict[str, Any]]:
            code, data, text = kafka_s3(server.endpoint, config, command, topic, *more)
            outputs.append(text)
            return code, data

        code, data = run("status")
        (found,) = data["topics"]
        assert (code, found["open"][0]["state"], found["lag"]) == (0, "planned", 1_000)
        assert found["open"][0]["planned_by"].startswith("try 1 on w (")
        code, data = run("recover")
        assert (code, data["finished"]) == (0, [1])
        code, data = run("verify")
        assert (code, data["topics"][topic]["objects"]) == (0, 2)
        assert run("status")[1]["topics"][0]["lag"] == 0
        code, data = run("doctor")
        bad = [f for f in data["findings"] if f["level"] == "error"]
        assert (code, bad) == (0, []), bad
        check_bucket(
            bucket, topics_dir="topics", pipeline="p", topic=topic, source=read_source(source, topic), recovered=True
        )
    assert not [text for text in outputs if SECRET in text or PASSWORD in text]


def test_a_refused_login_is_a_finding_of_the_doctor(
    kafka_broker: KafkaBroker, sasl_config: dict[str, object], make_topic: Callable[..., str], tmp_path: Path
) -> None:
    """Exit code 1, and the password is not quoted."""
    config = tmp_path / "kafka.json"
    config.write_text(json.dumps({**sasl_config, "sasl.password": "wrong-canary"}))
    with S3Server(buckets=["lake"]) as server:
        code, data, text = kafka_s3(server.endpoint, config, "doctor", make_topic(), "--dry-run")
    denied = [f for f in data["findings"] if f["check"].startswith("topic ")]
    assert (code, denied[0]["level"], "AccessDeniedError" in denied[0]["message"]) == (1, "error", True)
    assert "wrong-canary" not in text


def test_the_schema_of_a_topic_is_inferred_from_a_broker(
    kafka_broker: KafkaBroker, sasl_config: dict[str, object], make_topic: Callable[..., str], tmp_path: Path
) -> None:
    """With a login: the oldest and the newest records of all partitions; those between are not read."""
    topic = make_topic(2)
    values = [
        {"id": n, **({"old": 1} if n < 10 else {"new": 1.5} if n >= 990 else {"between": 1})} for n in range(1000)
    ]
    kafka_broker.produce(
        topic, [Message(json.dumps(value).encode(), partition=n % 2) for n, value in enumerate(values)]
    )
    config = tmp_path / "kafka.json"
    config.write_text(json.dumps(sasl_config))
    line = [sys.executable, "-m", "airflow_provider_kafka_s3.cli", "infer-schema", "--kafka-config", str(config)]
    done = subprocess.run(
        [*line, "--topic", topic, "--records", "20", "--json"], capture_output=True, text=True, check=False, timeout=120
    )
    assert (done.returncode, done.stderr) == (0, "")
    data = json.loads(done.stdout)
    assert data["offsets"] == {"0": [[0, 5], [495, 500]], "1": [[0, 5], [495, 500]]}
    assert {field["field"]: field["seen"] for field in data["fields"]} == {
        "id": {"long": 20},
        "old": {"long": 10},
        "new": {"double": 10},
    }
