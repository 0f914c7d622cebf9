"""Options of the JVMs of ``spark-submit`` with which a job begins sooner.

A micro-batch spends most of its time on the start of Java. Java's second compiler costs a small job more than it saves,
and a larger one if it compiles more than the code that handles each record. And every JVM reads and checks the classes
of Spark again, unless it maps an archive of them that an earlier one has made (class-data sharing).

Options are given by environment variables that Spark's scripts read. The options of the job, of ``spark-defaults.conf``
and of properties files come behind them, so they have precedence.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import re
import shlex
import stat
import subprocess
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.private_paths import require_private
from airflow_provider_kafka_s3.spark.conf import SMALL_JOB
from airflow_provider_kafka_s3.submit.spark_command import environment_of, find_java, spark_conf_folder, spark_home

log = logging.getLogger(__name__)

__all__ = ["ClassArchive", "class_archive", "jvm_variables", "leaves_collector"]

_FIRST_COMPILER: Final = "-XX:TieredStopAtLevel=1"
"""With the second one, two million records take 14.2 instead of 11.8 CPU seconds."""

_LATE_SECOND_COMPILER: Final = (
    "-XX:Tier4InvocationThreshold=50000",
    "-XX:Tier4MinInvocationThreshold=6000",
    "-XX:Tier4CompileThreshold=150000",
    "-XX:Tier4BackEdgeThreshold=400000",
)
"""Ten times Java's defaults. Eight million records take 25 CPU seconds; 28 by default, 32 by the first compiler."""

_SERIAL_COLLECTOR: Final = "-XX:+UseSerialGC"
"""Two million records take 0.7 GB in a JVM with it, and 1.1 GB with Java's default, for a little more CPU time."""

_CHOOSES_COLLECTOR: Final = re.compile(r"-XX:\+Use\w*GC\b|-XX:(Flags|VMOptionsFile)=|(^|\s)@")
_JAVA_VARIABLES: Final = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS")

_FAILED_SECONDS: Final = 3_600
"""Time for which a failure to make an archive counts. Its reason may be gone then, such as a full disk."""
_UNFINISHED_SECONDS: Final = 86_400
"""Age at which an archive that was not finished is that of a JVM that was killed."""


@dataclass(frozen=True)
class ClassArchive:
    """The archive of the classes of one class path and one Java, in a folder of this machine.

    Attributes:
        java: the JVM that maps it.
        path: of the archive, or where the JVM of this job makes it.
        finished: path of the archive once it is finished, without its size; None: it is finished.
        environment: of the job.
    """

    java: Path
    path: Path
    finished: Path | None
    environment: Mapping[str, str] = field(repr=False)

    @property
    def is_mapped(self) -> bool:
        """Whether the JVM of this job reads it, and does not make it."""
        return self.finished is None

    @property
    def option(self) -> str:
        """The option of the driver's JVM. An archive of another class path is ignored without a message."""
        return f"-XX:{'SharedArchiveFile' if self.is_mapped else 'ArchiveClassesAtExit'}={self.path} {_QUIET}"

    def keep(self) -> None:
        """Give the archive that the JVM of a job has made its name, if it made one that a JVM can use.

        Else no job makes another one for an hour, since each try delays a job. Called only when the job has succeeded.
        """
        if self.finished is None or _made(self.finished):
            return
        with contextlib.suppress(OSError):
            if not self._is_usable():
                _mark_failed(self.finished)
                return
            self.path.chmod(0o444)
            with self.path.open("rb") as file:
                os.fsync(file.fileno())
            os.replace(self.path, self.finished.with_suffix(f".{self.path.stat().st_size}.jsa"))

    def distrust(self) -> None:
        """Leave later jobs no archive that may have ended this one. Called when it crashed, or has no result."""
        with contextlib.suppress(OSError):
            if self.finished is None:
                log.warning("the job crashed: the archive of Spark's classes that it used is removed: %s", self.path)
                self.path.unlink(missing_ok=True)
            elif not _made(self.finished):
                _mark_failed(self.finished)

    def discard(self) -> None:
        """Remove what the JVM of a job may have written, unless it was kept."""
        if self.finished is not None:
            with contextlib.suppress(OSError):
                self.path.unlink(missing_ok=True)

    def _is_usable(self) -> bool:
        """Whether a JVM finds no fault but that its own class path is another one. Checksums come first."""
        if not self.path.is_file():
            return False
        checks = ["-Xshare:on", "-XX:+VerifySharedSpaces", f"-XX:SharedArchiveFile={self.path}"]
        done = _run([str(self.java), *checks, "-version"], self.environment)
        return done.returncode == 0 or "shared class paths mismatch" in done.stdout + done.stderr


def _made(finished: Path) -> bool:
    """Whether another job was faster. Its archive may be in use, and one is enough."""
    return any(finished.parent.glob(f"{finished.name}.*.jsa"))


def _mark_failed(finished: Path) -> None:
    marker = finished.with_suffix(".0.jsa")
    marker.touch()
    log.warning("this job made no archive of Spark's classes; the next try is an hour later, or without %s", marker)


_QUIET: Final = "-Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"


def leaves_collector(
    command: str, env: Mapping[str, object], conf: Mapping[str, str], properties_file: str | None = None
) -> bool:
    """Whether no option of the user chooses Java's garbage collector; Java ends where two are chosen.

    Args:
        command: submit command.
        env: the job's own environment variables.
        conf: the job's Spark configuration.
        properties_file: of the job; it replaces the installation's default settings.

    Returns:
        False also if that is not certain.
    """
    environment = environment_of(env)
    if (home := spark_home(command, environment)) is None:
        return False
    folder = spark_conf_folder(home, environment)
    files = [folder / "java-opts", Path(properties_file or folder / "spark-defaults.conf")]
    try:
        texts = [file.read_text(errors="replace") for file in files if file.exists() or str(file) == properties_file]
    except OSError:
        return False
    texts += [*map(str, conf.values()), *(environment.get(name, "") for name in _JAVA_VARIABLES)]
    return not (folder / "spark-env.sh").exists() and not any(map(_CHOOSES_COLLECTOR.search, texts))


def jvm_variables(
    env: Mapping[str, object], *, offsets: int, archive: ClassArchive | None, serial: bool
) -> dict[str, str]:
    """Environment variables with the options of the JVMs of one job.

    Args:
        env: the job's own environment variables, in addition to the worker's; options in them have precedence.
        offsets: that the job reads.
        archive: of the classes of its driver.
        serial: a small job has the serial collector: see :func:`leaves_collector`.
    """
    environment = environment_of(env)
    driver = [_FIRST_COMPILER] if offsets <= SMALL_JOB else [*_LATE_SECOND_COMPILER]
    if serial and offsets <= SMALL_JOB:
        driver.append(_SERIAL_COLLECTOR)
    if archive is not None:
        driver.append(archive.option)
    return {
        name: " ".join(filter(None, [*options, environment.get(name, "")]))
        for name, options in {"SPARK_SUBMIT_OPTS": driver, "SPARK_LAUNCHER_OPTS": [_FIRST_COMPILER]}.items()
        if options
    }


def class_archive(
    folder: str | Path, command: str, env: Mapping[str, object], conf: Mapping[str, str]
) -> ClassArchive | None:
    """The archive for the driver of a job; None if there is none, and none can be made.

    There is one for each Java and each class path. Several jobs may make the same one at the same time: that of the
    first one to end stays. Why there is none is in the log.

    Args:
        folder: of archives, which is created if there is none. Nobody but its owner may be able to write there, who is
            this user or root.
        command: submit command.
        env: the job's own environment variables, in addition to the worker's.
        conf: the job's Spark configuration.

    Raises:
        ConfigurationError: the path has characters that cannot be passed to Java.
    """
    folder, environment = Path(folder), environment_of(env)
    home, java = spark_home(command, environment), find_java(environment)
    if home is None or java is None:
        return None
    # Spark's scripts split their options as a shell does, and leave no way to quote every character. Java splits paths.
    if shlex.quote(str(folder)) != str(folder) or ":" in str(folder):
        raise ConfigurationError(
            f"class_archives={str(folder)!r} of the section kafka_s3 of Airflow's configuration has characters that "
            f"Spark's scripts cannot pass to Java, such as spaces and colons; choose another folder"
        )
    try:
        class_path = list(_class_path(home, environment, conf.get("spark.driver.extraClassPath", "")))
        if full := next((path for path in class_path if path.is_dir() and any(path.iterdir())), None):
            raise OSError(f"Java can share none while a folder of their class path holds files: {full}")
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Java runs what an archive holds.
        require_private(folder, stat.S_ISDIR, "folder")
        finished = folder / f"spark-{_digest(java, class_path)}"
        if (path := _find(finished)) is not None:
            if not path.lstat().st_size:
                log.info("classes of Spark are not shared: a job has failed to make the archive, see %s", path)
                return None
            require_private(path, stat.S_ISREG, "file")
            return ClassArchive(java, path, None, environment)
        archive = ClassArchive(java, finished.with_suffix(f".{uuid.uuid4().hex}"), finished, environment)
        options = [environment.get("SPARK_SUBMIT_OPTS", ""), conf.get("spark.driver.extraJavaOptions", "")]
        _try(archive, shlex.split(" ".join(options)))
    except (OSError, ValueError) as e:
        log.warning("classes of Spark are not shared: %s", e)
        return None
    return archive


def _find(finished: Path) -> Path | None:
    """The finished archive, or the mark of a failure of the last hour; removes what no JVM can map."""
    for path in finished.parent.glob(f"{finished.name}.*"):
        try:
            about = path.lstat()
        except FileNotFoundError:
            continue  # another job has just given it its name
        age = time.time() - about.st_mtime
        if path.name == f"{finished.name}.{about.st_size}.jsa" and (about.st_size or age < _FAILED_SECONDS):
            return path
        # A JVM ends at an archive whose end is gone. Others may be making theirs at this time.
        if path.suffix == ".jsa" or age > _UNFINISHED_SECONDS:
            path.unlink(missing_ok=True)
    return None


def _try(archive: ClassArchive, options: list[str]) -> None:
    """Have a JVM without Spark make an archive: one that cannot ends at its start, and a job would end with it.

    Args:
        archive: that will be made.
        options: of the driver's JVM. Agents are left out: some wait for a debugger.

    Raises:
        OSError: none was made.
    """
    flags = [*(option for option in options if option.startswith("-X")), f"-XX:ArchiveClassesAtExit={archive.path}"]
    done = _run([str(archive.java), *flags, "-version"], archive.environment)
    made = archive.path.is_file()
    archive.path.unlink(missing_ok=True)
    if done.returncode or not made:
        reason = next(reversed(done.stdout.strip().splitlines()), f"exit status {done.returncode}")
        raise OSError(f"this Java makes no archives: {archive.java}: {reason}")


def _run(command: list[str], environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, env=environment, capture_output=True, text=True, errors="replace", check=False)


def _class_path(home: Path, environment: Mapping[str, str], extra: str) -> Iterator[Path]:
    """The class path that Spark's scripts give to the driver, with each jar of a wildcard."""
    entries = [extra, str(spark_conf_folder(home, environment)), str(home / "jars" / "*")]
    entries += [environment.get(name, "") for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_DIST_CLASSPATH")]
    for entry in filter(None, ":".join(entries).split(":")):
        if Path(entry).name == "*":
            yield from sorted(Path(entry).parent.glob("*.jar"))
        else:
            yield Path(entry)


def _digest(java: Path, class_path: list[Path]) -> str:
    """Of what an archive depends on: the release of Java, and paths, sizes and times of what is on the class path."""
    release = java.parent.parent / "release"
    of_java = release.read_text(errors="replace") if release.exists() else _about(java)
    return hashlib.sha256(repr((of_java, [_about(path) for path in class_path])).encode()).hexdigest()[:16]


def _about(path: Path) -> tuple[str, int, int] | tuple[str, str]:
    try:
        about = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return str(path), "missing"
    return (str(path), "folder") if stat.S_ISDIR(about.st_mode) else (str(path), about.st_size, about.st_mtime_ns)
