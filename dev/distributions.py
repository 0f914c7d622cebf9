"""The wheel and the sdist: how they are built, and whether they hold what they should."""

from __future__ import annotations

import configparser
import email
import os
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

__all__ = ["NAME", "PACKAGE", "build", "sdist_problems", "wheel_problems"]

NAME: Final = "airflow-provider-kafka-s3"
PACKAGE: Final = "airflow_provider_kafka_s3"
_LICENSES: Final = ("LICENSE", "NOTICE")
_ENTRY_POINTS: Final = {
    "airflow.plugins": "kafka_s3",
    "apache_airflow_provider": "provider_info",
    "console_scripts": "kafka-s3",
}
_NOT_IN_SDIST: Final = (".ci/",)
_BUILD_TABLE: Final = "[tool.hatch.build.targets] of pyproject.toml"


def build(source: Path, target: Path, *options: str, environment: Mapping[str, str] | None = None) -> list[Path]:
    """Build distributions with the hatchling of this environment, without a registry.

    Args:
        source: folder of the project.
        target: folder of the result; it may exist.
        options: of ``python -m build``, such as ``--wheel``.
        environment: more variables for it, such as SOURCE_DATE_EPOCH.

    Raises:
        RuntimeError: the build failed; with its output.
    """
    command = [sys.executable, "-m", "build", "--no-isolation", *options, "--outdir", str(target), str(source)]
    variables = {**os.environ, **(environment or {})}
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{source} cannot be built:\n{done.stdout}{done.stderr}")
    return sorted(target.iterdir())


def wheel_problems(wheel: Path, source: Path, version: str) -> list[str]:
    """What is wrong with a wheel, and what to do about it.

    It has to hold each file of the package and of the Spark job as it is in the source, the licences, the entry points
    of Airflow, and nothing else.

    Args:
        wheel: file of the wheel.
        source: folder that it was built from.
        version: that it has to have.
    """
    expected = _files(source / PACKAGE, PACKAGE) | _files(source / "spark_jobs", f"{PACKAGE}/spark_jobs")
    with zipfile.ZipFile(wheel) as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    about = f"{PACKAGE}-{version}.dist-info/"
    expected |= {f"{about}licenses/{name}": (source / name).read_bytes() for name in _LICENSES}
    generated = {f"{about}{name}" for name in ("METADATA", "WHEEL", "RECORD", "entry_points.txt")}
    problems = list(_differences(content, expected, generated))
    metadata = email.message_from_bytes(content.get(f"{about}METADATA", b""))
    licenses = metadata.get_all("License-File", [])
    problems += [
        f"METADATA does not name {name} as License-File: add it to license-files of pyproject.toml"
        for name in _LICENSES
        if name not in licenses
    ]
    if not metadata["License-Expression"]:
        problems.append("METADATA has no License-Expression: set license of pyproject.toml to an SPDX expression")
    if (metadata["Name"], metadata["Version"]) != (NAME, version):
        problems.append(
            f"METADATA is of {metadata['Name']} {metadata['Version']}, not of {NAME} {version}: see name of "
            "pyproject.toml and version.py"
        )
    entry_points = configparser.ConfigParser()
    entry_points.read_string(content.get(f"{about}entry_points.txt", b"").decode())
    problems += [
        f"entry_points.txt has no {name} in [{group}]: Airflow or a user would not see it; see pyproject.toml"
        for group, name in _ENTRY_POINTS.items()
        if not entry_points.has_option(group, name)
    ]
    return problems


def sdist_problems(sdist: Path, source: Path, version: str) -> list[str]:
    """What is wrong with an sdist, and what to do about it.

    It has to hold every file of the source but those of the CI.

    Args:
        sdist: file of the sdist.
        source: folder that it was built from.
        version: that it has to have.
    """
    root = f"{PACKAGE}-{version}/"
    with tarfile.open(sdist) as archive:
        members = {member.name: archive.extractfile(member) for member in archive if member.isfile()}
        content = {name: file.read() for name, file in members.items() if file is not None}
    expected = {f"{root}{name}": data for name, data in _files(source).items() if not name.startswith(_NOT_IN_SDIST)}
    return list(_differences(content, expected, {f"{root}PKG-INFO"}))


def _files(folder: Path, prefix: str = "") -> dict[str, bytes]:
    """The content of all files in a folder by their names in a distribution; compiled modules are no content."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and "__pycache__" not in path.parts)
    return {str(Path(prefix) / path.relative_to(folder)): path.read_bytes() for path in files}


def _differences(content: Mapping[str, bytes], expected: Mapping[str, bytes], generated: set[str]) -> Iterator[str]:
    for name in sorted((expected.keys() | generated) - content.keys()):
        yield f"{name} is missing: add it to {_BUILD_TABLE}, or remove it from the repository"
    for name in sorted(content.keys() - expected.keys() - generated):
        yield f"{name} does not belong in it: leave it out by {_BUILD_TABLE}"
    for name in sorted(expected.keys() & content.keys()):
        if content[name] != expected[name]:
            yield f"{name} is not the file of the repository: build again from a clean checkout"
