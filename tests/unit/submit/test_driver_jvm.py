"""Options of the JVMs of a job, and the archive of Spark's classes."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.spark.conf import SMALL_JOB, start_conf
from airflow_provider_kafka_s3.submit.driver_jvm import ClassArchive, class_archive, jvm_variables
from dev.java import find_java

JAVA = """#!/bin/sh
case "$*" in *VerifySharedSpaces*) exit {code};; esac
"""


@pytest.fixture
def spark(tmp_path: Path) -> dict[str, str]:
    """The environment of a Spark with one jar, and a Java to which every archive is valid."""
    java, jar = tmp_path / "java" / "bin" / "java", tmp_path / "spark" / "jars" / "spark-core.jar"
    for file in (java, jar):
        file.parent.mkdir(parents=True)
    java.write_text(JAVA.format(code=0))
    java.chmod(0o755)
    jar.write_bytes(b"classes")
    return {"JAVA_HOME": str(tmp_path / "java"), "SPARK_HOME": str(tmp_path / "spark")}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where archives go."""
    return tmp_path / "archives"


def begin(folder: Path, spark: dict[str, str]) -> ClassArchive:
    """The archive of a job that makes it."""
    archive = class_archive(folder, "spark-submit", spark)
    assert archive is not None
    assert archive.finished is not None
    return archive


def make(folder: Path, spark: dict[str, str], body: bytes = b"archive") -> Path:
    """Run a job that makes the archive; returns its path."""
    archive = begin(folder, spark)
    archive.path.write_bytes(body)
    archive.keep()
    archive.discard()
    (path,) = folder.iterdir()
    return path


def test_the_first_job_makes_the_archive_and_the_next_ones_map_it(folder: Path, spark: dict[str, str]) -> None:
    """The folder is private; a job of the same Spark and Java finds the archive by its name and size."""
    assert f"-XX:ArchiveClassesAtExit={folder}" in begin(folder, spark).option
    path = make(folder, spark)
    assert folder.stat().st_mode & 0o777 == 0o700
    found = class_archive(folder, "spark-submit", spark)
    assert found is not None
    assert found.option.startswith(f"-XX:SharedArchiveFile={path} ")
    found.keep()
    found.discard()
    assert [*folder.iterdir()] == [path]


def test_of_two_first_jobs_at_once_one_archive_stays(folder: Path, spark: dict[str, str]) -> None:
    """That of the job that ends first."""
    archives = [begin(folder, spark), begin(folder, spark)]
    for archive, body in zip(archives, (b"one", b"other"), strict=True):
        archive.path.write_bytes(body)
    for archive in archives:
        archive.keep()
        archive.discard()
    assert [path.read_bytes() for path in folder.iterdir()] == [b"one"]


def test_another_jar_or_another_java_has_an_archive_of_its_own(folder: Path, spark: dict[str, str]) -> None:
    """A JVM would refuse the other one."""
    first = make(folder, spark)
    jar = Path(spark["SPARK_HOME"], "jars", "spark-core.jar")
    jar.write_bytes(b"other classes")
    begin(folder, spark).path.write_bytes(b"second")
    Path(spark["JAVA_HOME"], "release").write_text("21")
    assert begin(folder, spark).finished != first.with_suffix("").with_suffix("")


@pytest.mark.parametrize("body", [b"", b"arch"])
def test_an_archive_whose_end_is_gone_is_made_again(folder: Path, spark: dict[str, str], body: bytes) -> None:
    """Java would crash at such a file."""
    path = make(folder, spark)
    path.write_bytes(body)
    assert make(folder, spark) == path
    assert path.read_bytes() == b"archive"


def test_an_archive_that_java_cannot_use_is_not_kept_and_not_made_again(folder: Path, spark: dict[str, str]) -> None:
    """A Java without an archive of its own classes makes none; another try would delay every job."""
    Path(spark["JAVA_HOME"], "bin", "java").write_text(JAVA.format(code=1))
    assert make(folder, spark).stat().st_size == 0
    assert class_archive(folder, "spark-submit", spark) is None


def test_a_failed_job_leaves_nothing_and_the_next_one_makes_the_archive(folder: Path, spark: dict[str, str]) -> None:
    """What a killed JVM has written is no archive."""
    failed = begin(folder, spark)
    failed.path.write_bytes(b"half")
    failed.discard()
    assert [*folder.iterdir()] == []
    assert make(folder, spark).read_bytes() == b"archive"


def test_what_a_killed_worker_left_is_removed_a_day_later(folder: Path, spark: dict[str, str]) -> None:
    """Another job may be making its own at this time, so younger files stay."""
    files = [begin(folder, spark).path for _ in range(2)]
    for file in files:
        file.write_bytes(b"half")
    os.utime(files[0], (time.time() - 90_000,) * 2)
    begin(folder, spark)
    assert [*folder.iterdir()] == files[1:]


def test_a_folder_that_cannot_be_written_means_no_archive(
    tmp_path: Path, spark: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    """The job runs without one, and its log has the reason."""
    (tmp_path / "file").touch()
    assert class_archive(tmp_path / "file" / "archives", "spark-submit", spark) is None
    assert "classes of Spark are not shared" in caplog.text


def test_a_folder_that_cannot_be_passed_to_java_is_refused(tmp_path: Path, spark: dict[str, str]) -> None:
    """Spark's scripts would make two options of it."""
    with pytest.raises(ConfigurationError, match=r"class_archives='.*my archives' of the section kafka_s3"):
        class_archive(tmp_path / "my archives", "spark-submit", spark)


def test_without_spark_or_java_there_is_no_archive(folder: Path, spark: dict[str, str]) -> None:
    """A remote or unknown installation."""
    assert class_archive(folder, "no-such-command", {"SPARK_HOME": "", "JAVA_HOME": spark["JAVA_HOME"]}) is None
    assert class_archive(folder, "spark-submit", {**spark, "JAVA_HOME": "", "PATH": "/nowhere"}) is None


@pytest.mark.parametrize(
    "variable", ["JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "SPARK_LAUNCHER_OPTS", "SPARK_SUBMIT_OPTS"]
)
@pytest.mark.parametrize("collector", ["G1", "Parallel", "Serial"])
def test_any_collector_of_the_user_suits_both_jvms(variable: str, collector: str) -> None:
    """Java ends where two are chosen, and with it the job."""
    env = {variable: f"-XX:+Use{collector}GC"}
    options = jvm_variables(env, offsets=1, archive=None)
    for name in ("SPARK_LAUNCHER_OPTS", "SPARK_SUBMIT_OPTS"):
        command = [find_java(), *options[name].split(), "-version"]
        subprocess.run(command, env={**os.environ, **env}, check=True)


def test_options_of_the_user_come_behind_ours_and_so_have_precedence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the job, or else those of the worker."""
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-Da=worker")
    assert jvm_variables({}, offsets=1, archive=None)["SPARK_SUBMIT_OPTS"] == "-XX:TieredStopAtLevel=1 -Da=worker"
    given = jvm_variables({"SPARK_SUBMIT_OPTS": "-Da=job"}, offsets=1, archive=None)
    assert given["SPARK_SUBMIT_OPTS"] == "-XX:TieredStopAtLevel=1 -Da=job"


def test_a_large_job_has_the_second_compiler_and_the_web_interface() -> None:
    """They pay there."""
    assert "SPARK_SUBMIT_OPTS" not in jvm_variables({}, offsets=SMALL_JOB + 1, archive=None)
    assert start_conf("yarn", offsets=SMALL_JOB + 1) == {}
    assert start_conf("yarn", offsets=SMALL_JOB) == {"spark.ui.enabled": "false"}
