"""The archive of Spark's classes, and the ends of a job: Airflow's own hook runs a command instead of spark-submit."""

from __future__ import annotations

import itertools
import json
import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from airflow_provider_kafka_s3.airflow.spark_submit_job import SparkSubmitJob
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.spark.spec import JobResult, JobSpec, PlanRef, TopicOutcome
from airflow_provider_kafka_s3.submit.job import JobOutcome
from airflow_provider_kafka_s3.submit.settings import SparkSettings
from airflow_provider_kafka_s3.submit.target import SparkTarget
from dev.java import find_java

JAVA = """for option in $SPARK_SUBMIT_OPTS; do
  case "$option" in *ClassesAtExit=*|*SharedArchiveFile=*) "$JAVA_HOME/bin/java" "$option" -version;; esac
done
"""
"""Runs a JVM with the archive."""
RESULT = 'cp succeeded.json "$(dirname "$SPARK_JOB_FILE")/result.json"\n'

Submit = Callable[..., JobOutcome]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where archives go, of a Spark without jars and the Java of this machine."""
    (tmp_path / "spark" / "jars").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
    monkeypatch.setenv("JAVA_HOME", str(Path(find_java()).parent.parent))
    monkeypatch.setenv("AIRFLOW__KAFKA_S3__CLASS_ARCHIVES", str(tmp_path / "archives"))
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", "host": "local[2]"}))
    return tmp_path / "archives"


@pytest.fixture
def submit(tmp_path: Path, folder: Path) -> Submit:
    """Runs a job by a shell script of these lines; ``RESULT`` among them writes that the job succeeded."""
    ref = PlanRef(topics_dir="topics", pipeline="orders-to-lake", topic="orders", batch=1, offsets=1)
    JobResult(topics=(TopicOutcome(topic="orders", status="decided"),)).write(tmp_path / "succeeded.json")
    command, numbers = tmp_path / "my-submit", itertools.count()

    def run(*lines: str, interpreter: str = "/bin/sh") -> JobOutcome:
        result = tmp_path / str(next(numbers)) / "result.json"
        result.parent.mkdir()
        command.write_text("".join([f"#!{interpreter}\n", *lines]))
        command.chmod(0o755)
        settings = SparkSettings(
            conn_id="spark_default",
            spark_binary=str(command),
            packages="org:connector:1",
            env={"SPARK_JOB_FILE": str(result)},
        )
        job = SparkSubmitJob(settings, SparkTarget("local[2]", None, None), logging.getLogger())
        try:
            return job.run(JobSpec(run="r", plans=(ref,), kafka={}, bucket="lake", result_path=str(result)))
        finally:
            # Airflow's hook leaves it to the collector of garbage.
            if job._hook is not None and job._hook._submit_sp is not None:
                job._hook._submit_sp.stdout.close()

    return run


def sizes(folder: Path) -> list[bool]:
    """Of each file: whether there is anything in it."""
    return [path.stat().st_size > 0 for path in folder.iterdir()]


def test_a_successful_job_leaves_the_archive_that_it_made(submit: Submit, folder: Path) -> None:
    """The next one maps it, and leaves it as it is."""
    for _ in range(2):
        assert submit(JAVA, RESULT).result is not None
        assert sizes(folder) == [True]


def test_a_job_whose_archive_fails_at_its_end_has_succeeded_and_none_tries_again(submit: Submit, folder: Path) -> None:
    """Its batches are decided. Java ends with an error if the disk is full, for example."""
    outcome = submit(RESULT, "exit 1\n")
    assert outcome.result is not None
    assert outcome.result.succeeded
    assert sizes(folder) == [False]
    submit(JAVA, RESULT)
    assert sizes(folder) == [False]


@pytest.mark.parametrize("crash", [("exit 1\n",), (RESULT, "kill -ABRT $$\n"), (RESULT, "exit 134\n")])
def test_a_job_that_crashed_leaves_no_archive(submit: Submit, folder: Path, crash: tuple[str, ...]) -> None:
    """Without a result, or by a signal, as a JVM ends that reads damaged classes. The next job makes one."""
    submit(JAVA, RESULT)
    submit(*crash)
    assert sizes(folder) == []
    submit(JAVA, RESULT)
    assert sizes(folder) == [True]


@pytest.mark.parametrize("end", ["kill -KILL $$\n", "exit 137\n", "kill -TERM $$\n"])
def test_a_job_that_was_killed_leaves_the_archive(submit: Submit, folder: Path, end: str) -> None:
    """Damaged classes end no JVM by these signals, and without the archive every job takes seconds longer."""
    submit(JAVA, RESULT)
    (archive,) = folder.iterdir()
    submit(end)
    assert list(folder.iterdir()) == [archive]


def test_a_job_that_fails_before_an_archive_is_made_prevents_no_later_one(submit: Submit, folder: Path) -> None:
    """Such as one with too small a heap."""
    submit("exit 1\n")
    assert sizes(folder) == []
    submit(JAVA, RESULT)
    assert sizes(folder) == [True]


def test_a_command_that_never_began_leaves_the_archive(submit: Submit, folder: Path) -> None:
    """It has not used it."""
    submit(JAVA, RESULT)
    with pytest.raises(ConfigurationError, match="spark-submit cannot be executed"):
        submit(interpreter="/no/such/shell")
    assert sizes(folder) == [True]
