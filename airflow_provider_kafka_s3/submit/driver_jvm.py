"""Options of the JVMs of ``spark-submit`` with which a job begins sooner.

A micro-batch spends most of its time on the start of Java. Java's second compiler costs a small job more than it saves.
And every JVM reads and checks the classes of Spark again, unless it maps an archive of them that an earlier one has
made (class-data sharing).

Options are given by environment variables that Spark's scripts read. The options of the job, of ``spark-defaults.conf``
and of properties files come behind them, so they have precedence.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import shlex
import shutil
import subprocess
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.spark.conf import SMALL_JOB
from airflow_provider_kafka_s3.submit.spark_command import environment_of, spark_home

log = logging.getLogger(__name__)

__all__ = ["ClassArchive", "class_archive", "jvm_variables"]

_FIRST_COMPILER: Final = "-XX:TieredStopAtLevel=1"
"""With the second one, two million records take 28 instead of 20 CPU seconds, and eight million 52 instead of 54."""

_UNFINISHED_SECONDS: Final = 86_400
"""Age at which an archive that was not finished is that of a JVM that was killed."""


@dataclass(frozen=True)
class ClassArchive:
    """The archive of the classes of one Spark installation and one Java, in a folder of this machine.

    Attributes:
        java: the JVM that maps it.
        path: of the archive, or where the JVM of this job makes it.
        finished: path of the archive once it is finished, without its size; None: it is finished.
    """

    java: Path
    path: Path
    finished: Path | None

    @property
    def option(self) -> str:
        """The option of the driver's JVM. An archive of another class path is ignored without a message."""
        return f"-XX:{'SharedArchiveFile' if self.finished is None else 'ArchiveClassesAtExit'}={self.path} {_QUIET}"

    def keep(self) -> None:
        """Give the archive that the JVM of a job has made its name, if it made one that a JVM can use.

        An empty file takes its place if there is none: this Java cannot make one, and another try would delay every
        job. Called only when the job has succeeded.
        """
        if self.finished is None:
            return
        with contextlib.suppress(OSError):
            if any(self.finished.parent.glob(f"{self.finished.name}.*.jsa")):
                # Another job was faster. Its archive may be in use, and one is enough.
                self.path.unlink(missing_ok=True)
            elif self._is_usable():
                os.replace(self.path, self.finished.with_suffix(f".{self.path.stat().st_size}.jsa"))
            else:
                self.path.unlink(missing_ok=True)
                self.finished.with_suffix(".0.jsa").touch()

    def discard(self) -> None:
        """Remove what the JVM of a failed job may have written."""
        if self.finished is not None:
            with contextlib.suppress(OSError):
                self.path.unlink(missing_ok=True)

    def _is_usable(self) -> bool:
        checks = ["-XX:+VerifySharedSpaces", f"-XX:SharedArchiveFile={self.path}"]
        if not self.path.is_file():
            return False
        done = subprocess.run([str(self.java), *checks, "-version"], capture_output=True, check=False)
        return done.returncode == 0


_QUIET: Final = "-Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"


def jvm_variables(env: Mapping[str, object], *, offsets: int, archive: ClassArchive | None) -> dict[str, str]:
    """Environment variables with the options of the JVMs of one job.

    Args:
        env: the job's own environment variables, in addition to the worker's; options in them have precedence.
        offsets: that the job reads.
        archive: of the classes of its driver.
    """
    environment = environment_of(env)
    driver = [_FIRST_COMPILER] if offsets <= SMALL_JOB else []
    if archive is not None:
        driver.append(archive.option)
    return {
        name: " ".join(filter(None, [*options, environment.get(name, "")]))
        for name, options in {"SPARK_SUBMIT_OPTS": driver, "SPARK_LAUNCHER_OPTS": [_FIRST_COMPILER]}.items()
        if options
    }


def class_archive(folder: str | Path, command: str, env: Mapping[str, object]) -> ClassArchive | None:
    """The archive for the driver of a job; None if there is none, and none can be made.

    There is one for each Java and each set of jars of Spark. Several jobs may make the same one at the same time: that
    of the first one to end stays.

    Args:
        folder: of archives, which is created if there is none; only its owner should be able to write there.
        command: submit command.
        env: the job's own environment variables, in addition to the worker's.

    Raises:
        ConfigurationError: the path has characters that cannot be passed to Java.
    """
    environment = environment_of(env)
    home, java = spark_home(command, environment), _java(environment)
    if home is None or java is None:
        return None
    finished = Path(folder) / f"spark-{_digest(home, java)}"
    # Spark's scripts split their options as a shell does, and leave no way to quote every character.
    if shlex.quote(str(finished)) != str(finished):
        raise ConfigurationError(
            f"class_archives={str(folder)!r} of the section kafka_s3 of Airflow's configuration has characters that "
            f"Spark's scripts cannot pass to Java, such as spaces; choose another folder"
        )
    try:
        Path(folder).mkdir(mode=0o700, parents=True, exist_ok=True)
        for path in Path(folder).glob(f"{finished.name}.*"):
            about = path.stat()
            if path.suffix == ".jsa" and path.name == f"{finished.name}.{about.st_size}.jsa":
                return ClassArchive(java, path, None) if about.st_size else None
            # A JVM ends at an archive whose end is gone. Others may be making theirs at this time.
            if path.suffix == ".jsa" or about.st_mtime < time.time() - _UNFINISHED_SECONDS:
                path.unlink(missing_ok=True)
    except OSError as e:
        log.warning("classes of Spark are not shared: %s", e)
        return None
    return ClassArchive(java, finished.with_suffix(f".{uuid.uuid4().hex}"), finished)


def _java(environment: Mapping[str, str]) -> Path | None:
    if home := environment.get("JAVA_HOME"):
        return Path(home, "bin", "java").resolve()
    found = shutil.which("java", path=environment.get("PATH"))
    return None if found is None else Path(found).resolve()


def _digest(home: Path, java: Path) -> str:
    """Of what an archive depends on: the release of Java, and the paths, sizes and times of Spark's jars."""
    release = java.parent.parent / "release"
    jars = sorted((home / "jars").glob("*.jar"))
    files = jars if release.exists() else [java, *jars]
    about = [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    text = release.read_text(errors="replace") if release.exists() else ""
    return hashlib.sha256(repr((text, about)).encode()).hexdigest()[:16]
