"""The job file is private, used once, and its content is never shown."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from airflow_provider_kafka_s3.config import Upload
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.spark.job import main
from airflow_provider_kafka_s3.spark.spec import JobResult, JobSpec, PlanRef, TopicOutcome
from airflow_provider_kafka_s3.storage.s3 import S3Credentials

CANARY = "canary-7f3a"
PLAN = PlanRef(topics_dir="topics", pipeline="lake", topic="flights", batch=3)
SPEC = JobSpec(
    run="run",
    plans=(PLAN,),
    kafka={"bootstrap.servers": "broker:9092", "sasl.password": CANARY},
    kafka_overrides={"kafka.ssl.key.password": CANARY},
    bucket="bucket",
    result_path="/somewhere/result.json",
    credentials=S3Credentials(access_key_id="id", secret_access_key=CANARY),
)


def test_a_job_file_is_private_and_gone_once_it_is_read(tmp_path: Path) -> None:
    """Only its owner may read it, it never replaces a file, and reading removes it."""
    path = tmp_path / "job.json"
    with SPEC.offered(path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        with pytest.raises(ConfigurationError, match=r"File exists.*set the variable TMPDIR"):
            SPEC.offered(path).__enter__()
        assert JobSpec.read(path) == SPEC
        assert not path.exists()
    assert not path.exists()


def test_a_job_file_may_be_longer_than_a_pipe(tmp_path: Path) -> None:
    """It is written while the driver reads it; one that nobody reads holds nobody up."""
    path = tmp_path / "job.json"
    long = msgspec.structs.replace(SPEC, kafka={"ssl.ca.pem": "x" * 1_000_000})
    with long.offered(path), ThreadPoolExecutor(1) as driver:
        assert driver.submit(JobSpec.read, path).result(30) == long
    with long.offered(path):
        pass
    assert not path.exists()


def test_nothing_of_a_job_file_is_left_when_its_task_is_killed(tmp_path: Path) -> None:
    """A driver that begins later finds no secret, and says that the task has ended."""
    path = tmp_path / "job.json"
    script = (
        "import sys; from tests.unit.spark.test_job_spec import SPEC\n"
        "with SPEC.offered(sys.argv[1]): print(flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", script, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as task:
        assert task.stdout is not None
        task.stdout.readline()
        task.kill()
    assert [left.name for left in tmp_path.iterdir() if left.is_file()] == []
    with pytest.raises(ConfigurationError, match="the task that submitted this job has ended"):
        JobSpec.read(path)
    assert list(tmp_path.iterdir()) == []


def test_a_job_file_that_is_gone_is_explained(tmp_path: Path) -> None:
    """It serves one submit, on the machine of the driver."""
    with pytest.raises(ConfigurationError, match="deploy mode 'client'"):
        JobSpec.read(tmp_path / "job.json")


@pytest.mark.parametrize("body", [b"{", b'{"later": "canary-7f3a"}', b'{"run": 1, "kafka": {"p": "canary-7f3a"}}'])
def test_a_job_file_of_another_version_is_refused_without_its_content(tmp_path: Path, body: bytes) -> None:
    """The error has the reason, no value, and the file is gone."""
    path = tmp_path / "job.json"
    path.write_bytes(body)
    with pytest.raises(ConfigurationError, match="same version") as caught:
        JobSpec.read(path)
    assert CANARY not in str(caught.value)
    assert caught.value.__context__ is None
    assert not path.exists()


def test_a_job_file_of_another_version_is_answered(tmp_path: Path) -> None:
    """Its result has a terminal error for each of its topics."""
    path, result_path = tmp_path / "job.json", tmp_path / "result.json"
    stored = {"plans": [{"topic": "a", "shard": 1}, {"topic": "b"}], "result_path": str(result_path), "later": CANARY}
    path.write_bytes(json.dumps(stored).encode())
    assert main(["--job-file", str(path)]) == 1
    result = JobResult.read(result_path)
    assert result is not None
    assert [(o.topic, o.status, o.kind) for o in result.topics] == [
        ("a", "error", "configuration"),
        ("b", "error", "configuration"),
    ]
    assert all("install the same version" in str(o.message) for o in result.topics)
    assert CANARY not in result_path.read_text()


def test_a_job_file_of_another_version_without_an_address_is_a_one_line_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The last output of the driver reaches the task."""
    path = tmp_path / "job.json"
    path.write_text("{}")
    assert main(["--job-file", str(path)]) == 1
    (record,) = caplog.records
    assert "install the same version" in record.getMessage()
    assert "\n" not in record.getMessage()
    assert list(tmp_path.iterdir()) == []


def test_secrets_do_not_show() -> None:
    """Neither repr nor str nor an error about the spec names them."""
    assert CANARY not in f"{SPEC!r} {SPEC} {(SPEC,)}"
    assert "broker:9092" not in repr(SPEC)


def test_a_job_needs_plans_of_different_topics() -> None:
    """Two plans of one topic cannot be executed together, and none is nothing to do."""
    for plans in ((), (PLAN, PLAN)):
        with pytest.raises(ConfigurationError, match="one plan of each"):
            JobSpec(run="run", plans=plans, kafka={}, bucket="b", result_path="r")


def test_impossible_upload_settings_are_refused() -> None:
    """The error names the setting."""
    with pytest.raises(ConfigurationError, match="threads=0"):
        Upload(threads=0)
    with pytest.raises(ConfigurationError, match="memory=5 must be a whole number of bytes, 1,048,576 or more"):
        Upload(memory=5)


def test_a_result_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    """The caller reads the driver's result; before that there is none."""
    path = tmp_path / "result.json"
    assert JobResult.read(path) is None
    good = TopicOutcome(topic="a", status="decided")
    bad = TopicOutcome(topic="b", status="error", kind="record", message="offset 3")
    JobResult(topics=(good, bad)).write(path)
    assert JobResult.read(path) == JobResult(topics=(good, bad))
    assert not JobResult(topics=(good, bad)).succeeded
    assert JobResult(topics=(good,)).succeeded
    assert [p.name for p in tmp_path.iterdir()] == ["result.json"]
