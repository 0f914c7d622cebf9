"""`dev/check.sh`: one line with the remedy for whatever a machine lacks."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

CHECK = Path(__file__).parents[3] / "dev" / "check.sh"


class Machine:
    """A machine with these commands and no others."""

    def __init__(self, root: Path) -> None:
        self.bin = root / "bin"
        self.bin.mkdir()
        self.environment = {"PATH": str(self.bin)}
        for tool in ("sed", "head"):
            (self.bin / tool).symlink_to(str(shutil.which(tool)))

    def has(self, name: str, script: str, directory: Path | None = None) -> Path:
        """Install a command."""
        command = (directory or self.bin) / name
        command.parent.mkdir(parents=True, exist_ok=True)
        command.write_text(f"#!/bin/sh\n{script}\n")
        command.chmod(0o755)
        return command

    def has_python(self, name: str, *, version: tuple[int, int] = (3, 11), modules: bool = True) -> Path:
        """Install a Python that answers the two queries of the check."""
        suits, found = int(version < (3, 11)), int(not modules)
        label = ".".join(map(str, version))
        script = f'case "$*" in --version) echo Python {label};; *version_info*) exit {suits};; *) exit {found};; esac'
        return self.has(name, script)

    def has_java(self, version: str, directory: Path | None = None) -> Path:
        """Install a Java that prints this version."""
        return self.has("java", f"echo 'openjdk version \"{version}\" 2025-04-15' >&2", directory)

    def check(self, *what: str) -> subprocess.CompletedProcess[str]:
        """Run the check."""
        return subprocess.run(
            ["/bin/sh", str(CHECK), *what], env=self.environment, capture_output=True, text=True, check=False
        )


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine with nothing on it."""
    return Machine(tmp_path)


def refused(result: subprocess.CompletedProcess[str]) -> str:
    """The one line of a failed check."""
    assert result.returncode == 2
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    return line


def test_a_complete_machine_passes_without_output(machine: Machine) -> None:
    """Python 3.11, Java 17 and Maven are sufficient."""
    machine.has_python("python3")
    machine.has_java("17.0.15")
    machine.has("mvn", "exit 0")

    result = machine.check("python", "java", "maven")

    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_a_missing_python_is_named_with_the_package(machine: Machine) -> None:
    """The check itself needs no Python."""
    line = refused(machine.check("python"))

    assert "Python 3.11" in line
    assert "apt-get install python3" in line


def test_an_old_python_is_named_with_its_version(machine: Machine) -> None:
    """The error explains why the installed python3 is not used."""
    machine.has_python("python3", version=(3, 9))

    assert "found: Python 3.9" in refused(machine.check("python"))


def test_a_newer_python_beside_an_old_one_is_found(machine: Machine) -> None:
    """The default python3 may be the system's old one."""
    machine.has_python("python3", version=(3, 9))
    newer = machine.has_python("python3.12", version=(3, 12))

    assert machine.check("--python").stdout.strip() == str(newer)


def test_the_python_of_the_lock_is_preferred(machine: Machine) -> None:
    """Python 3.11, as the lock was made for it."""
    machine.has_python("python3", version=(3, 13))
    eleven = machine.has_python("python3.11")

    assert machine.check("--python").stdout.strip() == str(eleven)


def test_the_newest_python_is_found_among_those_of_pyenv(machine: Machine) -> None:
    """Its command on the PATH fails unless the version is selected, so the folder is looked up."""
    machine.has_python("python3.11")
    newest = machine.has_python("python", version=(3, 13))
    home = newest.parent.parent
    machine.has("python3.13", "exit 1")
    machine.has("pyenv", f'case "$*" in "latest 3.13") echo 3.13.0;; "prefix 3.13.0") echo {home};; *) exit 1;; esac')

    assert machine.check("--newest-python").stdout.strip() == str(newest)


def test_a_python_of_one_minor_version_is_found_or_not_at_all(machine: Machine) -> None:
    """A release is checked with each tested one, and no other is taken for it."""
    machine.has_python("python3.11")
    twelve = machine.has_python("python3.12", version=(3, 12))

    assert machine.check("--python-3.12").stdout.strip() == str(twelve)
    assert machine.check("--python-3.13").stdout == ""


def test_without_a_newer_python_the_one_of_the_lock_is_the_newest(machine: Machine) -> None:
    """A machine with Python 3.11 alone can run every test."""
    eleven = machine.has_python("python3.11")

    assert machine.check("--newest-python").stdout.strip() == str(eleven)


def test_a_python_without_venv_is_named_with_the_package(machine: Machine) -> None:
    """Debian has it in a package of its own."""
    machine.has_python("python3", modules=False)

    assert "apt-get install python3-venv" in refused(machine.check("python"))


def test_a_missing_java_is_named_with_the_package(machine: Machine) -> None:
    """The error also has the variable to set if it is installed elsewhere."""
    line = refused(machine.check("java"))

    assert "openjdk-17-jre-headless" in line
    assert "JAVA_HOME" in line


@pytest.mark.parametrize(
    ("version", "reported"), [("11.0.22", "11"), ("1.8.0_402", "8"), ("25", "25"), ("rubbish", "unknown")]
)
def test_a_wrong_java_is_named_with_its_version(machine: Machine, version: str, reported: str) -> None:
    """Spark 4 runs on 17 and 21 only."""
    machine.has_java(version)

    line = refused(machine.check("java"))

    assert f"is version {reported})" in line
    assert "openjdk-17-jre-headless" in line


@pytest.mark.parametrize("version", ["17", "17.0.15", "21.0.2", "21-ea"])
def test_java_17_and_21_pass(machine: Machine, version: str) -> None:
    """In any notation of the version."""
    machine.has_java(version)

    assert machine.check("java").returncode == 0


def test_java_home_comes_before_the_path(machine: Machine, tmp_path: Path) -> None:
    """As for every Java program."""
    machine.has_java("11.0.22")
    home = machine.has_java("17.0.15", tmp_path / "jdk" / "bin").parent.parent
    machine.environment["JAVA_HOME"] = str(home)

    assert machine.check("java").returncode == 0


def test_a_java_home_without_java_is_named(machine: Machine) -> None:
    """Instead of silently taking another Java."""
    machine.has_java("17.0.15")
    machine.environment["JAVA_HOME"] = "/nowhere"

    assert "JAVA_HOME=/nowhere" in refused(machine.check("java"))


def test_a_missing_maven_is_named_with_the_package(machine: Machine) -> None:
    """It fetches the jars."""
    assert "apt-get install maven" in refused(machine.check("maven"))


def test_a_missing_chromium_is_named_with_the_package(machine: Machine) -> None:
    """The tests of the UI fail without it; none of them is skipped."""
    line = refused(machine.check("chromium"))

    assert "apt-get install chromium" in line
    assert "CHROMIUM" in line


@pytest.mark.parametrize("name", ["chromium", "chromium-browser"])
def test_chromium_passes_under_both_its_names(machine: Machine, name: str) -> None:
    """Distributions differ."""
    machine.has(name, "exit 0")

    assert machine.check("chromium").returncode == 0


def test_a_chromium_that_cannot_be_run_is_named(machine: Machine) -> None:
    """Instead of silently taking another one."""
    machine.has("chromium", "exit 0")
    machine.environment["CHROMIUM"] = "/nowhere"

    assert "CHROMIUM=/nowhere" in refused(machine.check("chromium"))


def test_help_lists_every_target(tmp_path: Path) -> None:
    """`make help` needs nothing but make, and every target has a line."""
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    text = subprocess.run(
        ["make", "--no-print-directory", "-C", str(CHECK.parents[1]), "help"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    listed = {line.split()[1] for line in text.splitlines()}

    makefile = (CHECK.parents[1] / "Makefile").read_text().replace("\\\n", "")
    (phony,) = [line for line in makefile.splitlines() if line.startswith(".PHONY:")]
    assert listed == set(phony.split()[1:])


def test_ci_runs_what_developers_run() -> None:
    """.ci/run is `make test`, and can be executed."""
    script = CHECK.parents[1] / ".ci" / "run"

    assert os.access(script, os.X_OK)
    assert script.read_text().rstrip().endswith("exec make test")
