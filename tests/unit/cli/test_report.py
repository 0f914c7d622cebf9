"""``kafka-s3 doctor --report`` has what a report of a bug needs, and no secret."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_kafka_s3.cli import doctor, store_checks
from airflow_provider_kafka_s3.cli.findings import Finding
from airflow_provider_kafka_s3.version import __version__
from tests.unit.cli.conftest import PIPELINE, TOPIC, World

CANARIES = tuple(f"canary/{n}+secret" for n in range(12))
KAFKA = {
    "bootstrap.servers": "broker:9092",
    "security.protocol": "SASL_SSL",
    "sasl.username": CANARIES[0],
    "sasl.password": CANARIES[1],
    "ssl.key.pem": f"-----BEGIN KEY-----\n{CANARIES[2]}\n-----END KEY-----",
    "sasl.oauthbearer.config": f"scope={CANARIES[3]}",
    "a.setting.of.tomorrow": CANARIES[4],
    "fetch.wait.max.ms": 10,
}
CONNECTIONS: dict[str, dict[str, Any]] = {
    "kafka_default": {"conn_type": "kafka", "extra": KAFKA},
    "aws_default": {
        "conn_type": "aws",
        "login": CANARIES[5],
        "password": CANARIES[6],
        "extra": {
            "endpoint_url": f"http://user:{CANARIES[7]}@s3:9000/?key={CANARIES[8]}",
            "aws_session_token": CANARIES[9],
            "config_kwargs": {"proxies": {"https": f"http://me:{CANARIES[10]}@proxy"}, "read_timeout": 7},
        },
    },
    "registry_default": {"conn_type": "http", "host": "registry", "login": "me", "password": CANARIES[11]},
}


@pytest.fixture
def reporter(world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> World:
    """A topic with two batches, one of them open, and connections that are full of secrets."""
    for conn_id, fields in CONNECTIONS.items():
        monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", json.dumps(fields))
    monkeypatch.delenv("KAFKA_S3_BOOTSTRAP_SERVER")
    # The checks are those of test_doctor; one quotes a secret, as a server may.
    quoting = [Finding("read and list", "error", f"refused: {CANARIES[6]} and {CANARIES[1]}")]
    monkeypatch.setattr(doctor, "check_store", lambda _: quoting)
    monkeypatch.setattr(doctor, "check_machine", lambda _: [])
    monkeypatch.chdir(tmp_path)
    world.run("first")
    world.fill(3)
    world.die("*.plan.json", "second")
    return world


def test_the_report_has_versions_settings_findings_and_topics(reporter: World) -> None:
    """On standard output, as JSON; the exit code is that of the checks."""
    output = reporter.on_topic("doctor", "--kafka-conn-id", "kafka_default", "--report")
    assert (output.code, output.err) == (1, "")
    report = output.data
    assert report["versions"]["airflow-provider-kafka-s3"] == __version__
    assert {"python", "java", "apache-airflow", "apache-airflow-providers-apache-spark", "pyspark", "pyarrow"} <= {
        *report["versions"]
    }
    assert {"boto3", "confluent-kafka", "pyiceberg"} <= {*report["versions"]}
    assert report["settings"]["options"]["pipeline"] == PIPELINE
    kafka = report["settings"]["connections"]["kafka_conn_id"]["extra"]
    assert (kafka["bootstrap.servers"], kafka["sasl.password"], kafka["fetch.wait.max.ms"]) == (
        "broker:9092",
        "***",
        10,
    )
    assert report["settings"]["connections"]["spark_conn_id"] == {"id": "spark_default", "exists": False}
    assert report["findings"][0]["check"] == "read and list"
    (topic,) = report["topics"]
    assert (topic["topic"], topic["status"]["lag"], topic["newest_plan"]["batch"]) == (TOPIC, 3, 2)
    assert [batch["state"] for batch in topic["status"]["last"]] == ["committed", "planned"]
    assert topic["status"]["open"][0]["planned_by"]
    assert topic["marker"]["resolved"] == [[1, 2]]
    assert topic["newest_plan"]["layout"]["format"]["kind"] == "bytes"
    assert topic["newest_plan"]["slices"] == 1


def test_no_secret_is_in_the_report(reporter: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of connections, a file of settings, addresses and variables; nor what a check quotes."""
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "canary-of-a-variable")
    Path("kafka.json").write_text(json.dumps({**KAFKA, "sasl.jaas.config": "canary-of-a-file"}))
    for kafka in (("--kafka-conn-id", "kafka_default"), ("--kafka-config", "kafka.json")):
        output = reporter.on_topic("doctor", *kafka, "--registry-conn-id", "registry_default", "--report")
        assert "canary" not in output.out + output.err
        assert output.data["settings"]["connections"]["aws_conn_id"]["extra"]["endpoint_url"] == "http://s3:9000/"
    assert output.data["settings"]["kafka_config"]["security.protocol"] == "SASL_SSL"


def test_a_report_is_made_where_nothing_works(reporter: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """No bucket is named, and Kafka is not: these are findings, and the rest is there."""
    monkeypatch.setattr(doctor, "check_store", store_checks.check_store)
    output = reporter.cli("doctor", "--report")
    assert output.code == 1
    errors = [finding["message"] for finding in output.data["findings"] if finding["level"] == "error"]
    assert any("no bucket is named" in message for message in errors)
    assert (output.data["topics"], output.data["versions"]["airflow-provider-kafka-s3"]) == ([], __version__)


def test_a_report_is_written_into_a_new_file(reporter: World) -> None:
    """Beside the findings on standard output; a file that exists is left as it is."""
    output = reporter.on_topic("doctor", "--report", "report.json")
    assert "report.json was written" in output.out
    assert json.loads(Path("report.json").read_text())["report"] == 1
    before = Path("report.json").read_text()
    again = reporter.on_topic("doctor", "--report", "report.json")
    assert (again.code, "exists" in again.error, Path("report.json").read_text()) == (2, True, before)
