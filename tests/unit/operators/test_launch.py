"""Finding Spark, Java and Python on a worker."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from airflow_provider_kafka_s3.exceptions import ConfigurationError, DataLossError, SparkJobError
from airflow_provider_kafka_s3.operators import launch
from airflow_provider_kafka_s3.spark.spec import JobResult, TopicOutcome


def executable(path: Path) -> Path:
    """Make a file that can be run."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o755)
    return path


@pytest.mark.parametrize(
    ("master", "becomes"),
    [
        ("local", "local[1,4]"),
        ("local[2]", "local[2,4]"),
        ("local[*]", "local[*,4]"),
        ("local[2,1]", "local[2,1]"),
        ("local-cluster[2,1,1024]", "local-cluster[2,1,1024]"),
        ("yarn", "yarn"),
        ("spark://h:7077", "spark://h:7077"),
    ],
)
def test_local_masters_try_tasks_again(master: str, becomes: str) -> None:
    """Only a local master that does not say how often is told to; others do by themselves."""
    assert launch.local_master(master) == becomes


def test_a_local_master_runs_the_spark_of_this_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whatever spark-submit PATH leads to; other masters take that one."""
    monkeypatch.setenv("PATH", str(executable(tmp_path / "spark-submit").parent))
    command = launch.spark_submit(local=True)
    assert command is not None
    assert Path(command).parts[-3:] == ("pyspark", "bin", "spark-submit")
    assert Path(command).is_relative_to(sys.prefix)
    assert launch.spark_submit(local=False) is None


def test_without_spark_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """pyspark-client brings the package pyspark without the command, so the package alone proves nothing."""
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "pyspark").mkdir()
    (tmp_path / "pyspark" / "__init__.py").touch()
    for name in [name for name in sys.modules if name.partition(".")[0] == "pyspark"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    with pytest.raises(ConfigurationError, match=r"pip install 'airflow-provider-kafka-s3\[spark\]'"):
        launch.spark_submit(local=True)


def test_java_is_found_by_java_home_and_by_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As spark-submit finds it: JAVA_HOME first, of the job or of the worker."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    java = executable(tmp_path / "jre" / "bin" / "java")
    launch.require_java({"JAVA_HOME": tmp_path / "jre", "PATH": ""})
    launch.require_java({"PATH": java.parent})


def test_without_java_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The two ways in which Java can be missing are told apart."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(ConfigurationError, match=r"no java on PATH.*openjdk-17-jre-headless"):
        launch.require_java({"PATH": str(tmp_path)})
    with pytest.raises(ConfigurationError, match=r"JAVA_HOME=\S+ holds no bin/java.*openjdk-17-jre-headless"):
        launch.require_java({"JAVA_HOME": str(tmp_path)})


def test_workers_of_a_local_master_run_this_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless the user chose one: in the job's environment, in the worker's, or in Spark's configuration."""
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        monkeypatch.delenv(name, raising=False)
    here = sys.executable
    assert launch.python_of_local_master({}, {}) == {"PYSPARK_PYTHON": here, "PYSPARK_DRIVER_PYTHON": here}
    assert launch.python_of_local_master({}, {"PYSPARK_PYTHON": "x"}) == {"PYSPARK_DRIVER_PYTHON": here}
    assert launch.python_of_local_master({"spark.pyspark.driver.python": "x"}, {}) == {"PYSPARK_PYTHON": here}
    monkeypatch.setenv("PYSPARK_PYTHON", "x")
    assert launch.python_of_local_master({}, {}) == {"PYSPARK_DRIVER_PYTHON": here}


def test_a_job_is_killed_with_all_it_started_and_nothing_else_is() -> None:
    """A job is known by its file; what its processes started goes along, however much, in a moment."""
    wait = "import sys; sys.stdin.read()"
    many = f"import subprocess, sys; [subprocess.Popen(['sleep', '600']) for _ in range(200)]; {wait}"
    start = (
        f"import subprocess, sys; subprocess.run([sys.executable, '-c', {many!r}, '--job-file', sys.argv[1]], "
        f"start_new_session=True)"
    )
    started = [
        subprocess.Popen([sys.executable, "-c", code, path], stdin=subprocess.PIPE)
        for code, path in ((start, "/job/1"), (wait, "/job/2"))
    ]
    tree: list[psutil.Process] = []
    try:
        one = psutil.Process(started[0].pid)
        while sum(process.name() == "sleep" for process in tree) < 200:
            assert one.is_running()
            tree = [one, *one.children(recursive=True)]
        began = time.monotonic()
        launch.kill_job("/job/1")
        assert time.monotonic() - began < 2
        assert psutil.wait_procs(tree, timeout=2)[1] == []
        assert started[1].poll() is None
    finally:
        for process in tree:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        for child in started:
            child.communicate()


def test_what_the_driver_wrote_counts_and_its_last_words_stand_in_for_what_it_did_not() -> None:
    """Errors keep their kind; an unknown kind, or no result at all, is a transient SparkJobError."""
    result = JobResult(
        topics=(
            TopicOutcome(topic="fine", status="decided"),
            TopicOutcome(topic="gone", status="error", kind="data_loss", message="offsets are gone"),
            TopicOutcome(topic="new", status="error", kind="of_the_future", message="?"),
        )
    )
    told = launch.told_by(result, "exit status 1", ["fine", "gone", "new", "silent"])
    assert {topic: (type(e), str(e)) for topic, e in told.items()} == {
        "gone": (DataLossError, "offsets are gone"),
        "new": (SparkJobError, "?"),
        "silent": (SparkJobError, "exit status 1. The Spark driver ended without a result."),
    }
    assert set(launch.told_by(None, "", ["fine"])) == {"fine"}


def test_credentials_that_end_during_a_job_come_with_the_ways_out() -> None:
    """Whether the driver wrote it down or it was its last words; other errors are left alone."""
    said = "UploadPart s3://lake/k: 400 ExpiredToken: The provided token has expired."
    outcomes = (
        TopicOutcome(topic="slow", status="error", kind="transient", message=said),
        TopicOutcome(topic="gone", status="error", kind="data_loss", message="offsets are gone"),
    )
    told = launch.told_by(JobResult(topics=outcomes), said, ["slow", "gone", "silent"])
    notes = {topic: "".join(getattr(error, "__notes__", [])) for topic, error in told.items()}
    assert notes["gone"] == ""
    for way_out in ("max_records_per_batch", "DurationSeconds", "aws_conn_id=None"):
        assert way_out in notes["slow"]
        assert way_out in notes["silent"]
