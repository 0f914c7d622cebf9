"""Options of the JVMs of a job, and the archive of Spark's classes."""

from __future__ import annotations

import os
import shlex
import subprocess
import time
from pathlib import Path

import pytest

from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.spark.conf import SMALL_JOB, start_conf
from airflow_provider_kafka_s3.submit.driver_jvm import ClassArchive, class_archive, jvm_variables, leaves_collector
from dev.java import find_java

JAVA = """#!/bin/sh
for option; do
  case "$option" in
    -XX:ArchiveClassesAtExit=*) echo classes >"${option#*=}";;
    -XX:+VerifySharedSpaces) exit CODE;;
  esac
done
"""


@pytest.fixture
def spark(tmp_path: Path) -> dict[str, str]:
    """The environment of a Spark with one jar, and a Java to which every archive is valid."""
    java, jar = tmp_path / "java" / "bin" / "java", tmp_path / "spark" / "jars" / "spark-core.jar"
    for file in (java, jar):
        file.parent.mkdir(parents=True)
    java.write_text(JAVA.replace("CODE", "0"))
    java.chmod(0o755)
    jar.write_bytes(b"classes")
    return {"JAVA_HOME": str(tmp_path / "java"), "SPARK_HOME": str(tmp_path / "spark")}


@pytest.fixture
def real(spark: dict[str, str]) -> dict[str, str]:
    """The same with the Java of this machine."""
    return spark | {"JAVA_HOME": str(Path(find_java()).parent.parent)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where archives go."""
    return tmp_path / "archives"


def find(folder: Path, spark: dict[str, str], **conf: str) -> ClassArchive | None:
    """The archive of a job; keywords have ``_`` for ``.``."""
    return class_archive(folder, "spark-submit", spark, {name.replace("_", "."): conf[name] for name in conf})


def begin(folder: Path, spark: dict[str, str], **conf: str) -> ClassArchive:
    """The archive of a job that makes it."""
    archive = find(folder, spark, **conf)
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


def java(archive: ClassArchive, real: dict[str, str]) -> int:
    """Run a JVM as that of a job's driver; returns its exit status."""
    options = shlex.split(archive.option)
    return subprocess.run([archive.java, *options, "-version"], env={**os.environ, **real}, check=False).returncode


def test_the_first_job_makes_the_archive_and_the_next_ones_map_it(folder: Path, spark: dict[str, str]) -> None:
    """The folder is private; a job of the same Spark and Java finds the archive by its name and size."""
    assert f"-XX:ArchiveClassesAtExit={folder}" in begin(folder, spark).option
    path = make(folder, spark)
    assert folder.stat().st_mode & 0o777 == 0o700
    found = find(folder, spark)
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
    path.chmod(0o644)
    path.write_bytes(body)
    assert make(folder, spark) == path
    assert path.read_bytes() == b"archive"


def test_an_archive_that_java_cannot_use_is_not_kept_nor_made_again_within_an_hour(
    folder: Path, spark: dict[str, str]
) -> None:
    """Another try would delay every job; an hour later its reason may be gone."""
    Path(spark["JAVA_HOME"], "bin", "java").write_text(JAVA.replace("CODE", "1"))
    marker = make(folder, spark)
    assert marker.stat().st_size == 0
    assert find(folder, spark) is None
    os.utime(marker, (time.time() - 3_700,) * 2)
    assert make(folder, spark) == marker
    os.utime(marker, (time.time() - 3_700,) * 2)
    begin(folder, spark)


def test_an_archive_whose_pages_never_reached_the_disk_is_not_kept(folder: Path, real: dict[str, str]) -> None:
    """Java compares checksums; every later job would crash at it."""
    archive = begin(folder, real)
    assert java(archive, real) == 0
    whole = archive.path.read_bytes()
    archive.keep()
    (path,) = folder.iterdir()
    assert path.read_bytes() == whole
    path.unlink()
    archive.path.write_bytes(whole[:-4_096] + bytes(4_096))
    archive.keep()
    archive.discard()
    assert [path.stat().st_size for path in folder.iterdir()] == [0]


def test_a_crashed_job_leaves_no_archive_to_the_next_one(folder: Path, spark: dict[str, str]) -> None:
    """What it mapped may be damaged; what it made is no archive, and no job tries again within an hour."""
    make(folder, spark)
    mapped = find(folder, spark)
    assert mapped is not None
    mapped.distrust()
    made = begin(folder, spark)
    made.path.write_bytes(b"half")
    made.distrust()
    made.discard()
    assert [path.stat().st_size for path in folder.iterdir()] == [0]
    assert find(folder, spark) is None


def test_a_crashed_job_leaves_the_archive_of_another_one(folder: Path, spark: dict[str, str]) -> None:
    """It has not used it."""
    crashed = begin(folder, spark)
    path = make(folder, spark)
    crashed.distrust()
    assert [*folder.iterdir()] == [path]


@pytest.mark.parametrize("variable", ["JAVA_TOOL_OPTIONS", "SPARK_SUBMIT_OPTS", "spark.driver.extraJavaOptions"])
def test_a_java_that_can_make_no_archive_runs_without(
    folder: Path, real: dict[str, str], caplog: pytest.LogCaptureFixture, variable: str
) -> None:
    """It would end at its start. The log has the reason, and the next job makes one as soon as it is gone."""
    off = {variable: "-Xshare:off"}
    assert class_archive(folder, "spark-submit", real | off, off) is None
    assert "classes of Spark are not shared: this Java makes no archives" in caplog.text
    assert [*folder.iterdir()] == []
    begin(folder, real)


def test_a_debugger_of_the_job_is_left_to_the_job(folder: Path, real: dict[str, str]) -> None:
    """A JVM that is only to show whether it makes an archive loads no agents."""
    begin(folder, real | {"SPARK_SUBMIT_OPTS": "-agentlib:no-such-agent -Da='b c'"})


@pytest.mark.parametrize(
    "variable",
    ["SPARK_HOME", "SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_DIST_CLASSPATH", "driver_class_path"],
)
def test_a_folder_of_files_on_the_class_path_means_no_archive(
    tmp_path: Path, folder: Path, spark: dict[str, str], caplog: pytest.LogCaptureFixture, variable: str
) -> None:
    """Java would end a successful job with an error. The next job makes the archive as soon as the folder is empty."""
    files = tmp_path / "spark" / "conf" if variable == "SPARK_HOME" else tmp_path / "files"
    env, conf = dict(spark), {}
    if variable == "driver_class_path":
        conf = {"spark_driver_extraClassPath": f"/a.jar:{files}"}
    elif variable != "SPARK_HOME":
        env[variable] = str(files)
    files.mkdir()
    (files / "core-site.xml").touch()
    assert find(folder, env, **conf) is None
    assert f"holds files: {files}" in caplog.text
    (files / "core-site.xml").unlink()
    begin(folder, env, **conf)


def test_every_class_path_has_an_archive_of_its_own(tmp_path: Path, folder: Path, spark: dict[str, str]) -> None:
    """Java ignores that of another one. Jars of a wildcard count one by one."""
    (tmp_path / "more").mkdir()
    extra = {"spark_driver_extraClassPath": f"{tmp_path}/more/*"}
    names = {begin(folder, spark).finished, begin(folder, spark | {"HADOOP_CONF_DIR": "/nowhere"}).finished}
    (tmp_path / "more" / "a.jar").touch()
    names.add(begin(folder, spark, **extra).finished)
    (tmp_path / "more" / "b.jar").touch()
    names.add(begin(folder, spark, **extra).finished)
    assert len(names) == 4


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
    assert find(tmp_path / "file" / "archives", spark) is None
    assert "classes of Spark are not shared" in caplog.text


def give_away(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a path that of another user."""
    if os.geteuid() == 0:
        os.chown(path, 65_534, 65_534)
    else:
        other = os.geteuid() + 1
        monkeypatch.setattr(os, "geteuid", lambda: other)


def test_a_folder_of_another_user_means_no_archive(
    folder: Path, spark: dict[str, str], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Java would run what another user has put there."""
    make(folder, spark)
    give_away(folder, monkeypatch)
    assert find(folder, spark) is None
    assert f"{folder} belongs to user" in caplog.text


@pytest.mark.parametrize("mode", [0o770, 0o703])
def test_a_folder_into_which_others_can_write_means_no_archive(
    folder: Path, spark: dict[str, str], caplog: pytest.LogCaptureFixture, mode: int
) -> None:
    """The log has the command that corrects it."""
    make(folder, spark)
    folder.chmod(mode)
    assert find(folder, spark) is None
    assert f"chmod go-w {folder}" in caplog.text


def test_an_archive_that_others_can_write_or_that_is_a_link_is_not_mapped(
    tmp_path: Path, folder: Path, spark: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    """Its content may be that of another user."""
    path = make(folder, spark)
    path.chmod(0o664)
    assert find(folder, spark) is None
    assert f"chmod go-w {path}" in caplog.text
    path.unlink()
    target = tmp_path / "target"
    target.touch()
    path.with_suffix("").with_suffix(f".{len(str(target))}.jsa").symlink_to(target)
    assert find(folder, spark) is None
    assert "is no file (symbolic links are not followed)" in caplog.text
    (tmp_path / "link").symlink_to(folder)
    assert find(tmp_path / "link", spark) is None
    assert "link is no folder (symbolic links are not followed)" in caplog.text


def test_an_archive_of_another_user_is_not_mapped(
    folder: Path, spark: dict[str, str], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder may have been open to others before."""
    path = make(folder, spark)
    give_away(path, monkeypatch)
    assert find(folder, spark) is None
    assert "belongs to user" in caplog.text


def test_links_that_lead_nowhere_stop_neither_jobs_nor_archives(folder: Path, spark: dict[str, str]) -> None:
    """One among the jars of Spark, and one among the archives."""
    Path(spark["SPARK_HOME"], "jars", "gone.jar").symlink_to("/no/such.jar")
    path = make(folder, spark)
    path.with_suffix("").with_suffix(".unfinished").symlink_to("/no/such/file")
    found = find(folder, spark)
    assert found is not None
    assert found.path == path


@pytest.mark.parametrize("name", ["my archives", "a:b"])
def test_a_folder_that_cannot_be_passed_to_java_is_refused(tmp_path: Path, spark: dict[str, str], name: str) -> None:
    """Spark's scripts would make two options of it, or Java two paths."""
    with pytest.raises(ConfigurationError, match=rf"class_archives='.*{name}' of the section kafka_s3"):
        find(tmp_path / name, spark)


def test_without_spark_or_java_there_is_no_archive(folder: Path, spark: dict[str, str]) -> None:
    """A remote or unknown installation."""
    nowhere = {"SPARK_HOME": "", "JAVA_HOME": spark["JAVA_HOME"]}
    assert class_archive(folder, "no-such-command", nowhere, {}) is None
    assert find(folder, {**spark, "JAVA_HOME": "", "PATH": "/nowhere"}) is None


@pytest.mark.parametrize(
    "variable", ["JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "SPARK_LAUNCHER_OPTS", "SPARK_SUBMIT_OPTS"]
)
@pytest.mark.parametrize("collector", ["G1", "Parallel", "Serial"])
def test_any_collector_of_the_user_suits_both_jvms(variable: str, collector: str) -> None:
    """Java ends where two are chosen, and with it the job."""
    env = {variable: f"-XX:+Use{collector}GC"}
    small, large = (jvm_variables(env, offsets=offsets, archive=None, serial=False) for offsets in (1, SMALL_JOB + 1))
    for options in (small["SPARK_LAUNCHER_OPTS"], small["SPARK_SUBMIT_OPTS"], large["SPARK_SUBMIT_OPTS"]):
        command = [find_java(), *options.split(), "-version"]
        subprocess.run(command, env={**os.environ, **env}, check=True)


def leaves(spark: dict[str, str], properties_file: str | None = None, **conf: str) -> bool:
    """Whether the collector is left to the package; keywords have ``_`` for ``.``."""
    names = {name.replace("_", "."): value for name, value in conf.items()}
    return leaves_collector("spark-submit", spark, names, properties_file)


def test_a_small_job_has_the_serial_collector_and_a_large_one_that_of_java() -> None:
    """It takes a third less memory; many cores that collect pay for large jobs only."""
    small, large = (
        jvm_variables({}, offsets=offsets, archive=None, serial=True)["SPARK_SUBMIT_OPTS"]
        for offsets in (SMALL_JOB, SMALL_JOB + 1)
    )
    assert ("-XX:+UseSerialGC" in small, "Use" in large) == (True, False)


def test_a_collector_that_the_user_chooses_is_the_only_one(
    spark: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever it is: in the job's configuration, in variables, in files of Spark; or where that is not certain."""
    choice = "-XX:+UseG1GC"
    assert leaves(spark)
    assert leaves(spark, spark_driver_extraJavaOptions="-XX:MaxGCPauseMillis=9")
    assert not leaves(spark, spark_driver_extraJavaOptions=f"-Da=b {choice}")
    assert not leaves(spark, spark_driver_defaultJavaOptions="-XX:+UseZGC")
    for variable in ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS"):
        assert not leaves({**spark, variable: choice})
    assert not leaves({**spark, "JDK_JAVA_OPTIONS": "@options"})
    properties = tmp_path / "job.properties"
    assert not leaves(spark, str(properties))
    properties.write_text("spark.driver.memory 1g\n")
    assert leaves(spark, str(properties))
    conf = tmp_path / "spark" / "conf"
    conf.mkdir()
    for name, text in (("spark-defaults.conf", f"spark.driver.extraJavaOptions {choice}"), ("java-opts", choice)):
        (conf / name).write_text(text)
        assert not leaves(spark)
        (conf / name).unlink()
    assert leaves(spark)
    (conf / "spark-env.sh").write_text("export SPARK_SUBMIT_OPTS=unknown\n")
    assert not leaves(spark)
    monkeypatch.setenv("PATH", "/nowhere")
    assert not leaves({"SPARK_HOME": "", "JAVA_HOME": spark["JAVA_HOME"]})


def test_options_of_the_user_come_behind_ours_and_so_have_precedence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the job, or else those of the worker."""
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-Da=worker")
    assert (
        jvm_variables({}, offsets=1, archive=None, serial=False)["SPARK_SUBMIT_OPTS"]
        == "-XX:TieredStopAtLevel=1 -Da=worker"
    )
    given = jvm_variables({"SPARK_SUBMIT_OPTS": "-Da=job"}, offsets=1, archive=None, serial=False)
    assert given["SPARK_SUBMIT_OPTS"] == "-XX:TieredStopAtLevel=1 -Da=job"


def test_a_large_job_has_the_second_compiler_for_what_runs_often_and_the_web_interface() -> None:
    """They pay there."""
    options = jvm_variables({}, offsets=SMALL_JOB + 1, archive=None, serial=False)["SPARK_SUBMIT_OPTS"].split()
    command = [find_java(), *options, "-XX:+PrintFlagsFinal", "-version"]
    flags = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = {words[1]: words[3] for line in flags.splitlines() if len(words := line.split()) > 3}
    assert (found["TieredStopAtLevel"], found["Tier4InvocationThreshold"]) == ("4", "50000")
    assert start_conf("yarn", offsets=SMALL_JOB + 1, installed=True) == {}
    assert start_conf("yarn", offsets=SMALL_JOB, installed=True) == {"spark.ui.enabled": "false"}


def test_workers_are_forked_with_all_modules_only_where_they_are_installed() -> None:
    """On this machine, if the workers' Python has them without a file of the job."""
    assert [*start_conf("local[2,4]", offsets=SMALL_JOB + 1, installed=True)] == ["spark.python.daemon.module"]
    assert start_conf("local[2,4]", offsets=SMALL_JOB + 1, installed=False) == {}
