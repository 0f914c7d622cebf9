"""`dev.distributions`: what is missing in a wheel or an sdist, or too much, is named with the remedy."""

from __future__ import annotations

import io
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from dev.distributions import sdist_problems, wheel_problems

PACKAGE: Final = "airflow_provider_kafka_s3"
ABOUT: Final = f"{PACKAGE}-1.2.3.dist-info"
METADATA: Final = """Metadata-Version: 2.4
Name: airflow-provider-kafka-s3
Version: 1.2.3
License-Expression: Apache-2.0
License-File: LICENSE
License-File: NOTICE
"""
ENTRY_POINTS: Final = """[airflow.plugins]
kafka_s3 = a:b

[apache_airflow_provider]
provider_info = a:b

[console_scripts]
kafka-s3 = a:b
"""
FILES: Final = {
    "LICENSE": "the licence",
    "NOTICE": "the notice",
    ".ci/run": "make test",
    f"{PACKAGE}/__init__.py": "",
    f"{PACKAGE}/names.json.gz": "data",
    "spark_jobs/job.py": "job",
    "tests/test_it.py": "test",
}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A small project, which has also been run."""
    for name, text in (FILES | {f"{PACKAGE}/__pycache__/x.pyc": "compiled"}).items():
        path = tmp_path / "source" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "source"


def in_wheel() -> dict[str, str]:
    """The files of its wheel."""
    return {
        f"{PACKAGE}/__init__.py": "",
        f"{PACKAGE}/names.json.gz": "data",
        f"{PACKAGE}/spark_jobs/job.py": "job",
        f"{ABOUT}/METADATA": METADATA,
        f"{ABOUT}/WHEEL": "",
        f"{ABOUT}/RECORD": "",
        f"{ABOUT}/entry_points.txt": ENTRY_POINTS,
        f"{ABOUT}/licenses/LICENSE": "the licence",
        f"{ABOUT}/licenses/NOTICE": "the notice",
    }


def of_wheel(files: Mapping[str, str], source: Path) -> list[str]:
    """The problems of a wheel with these files."""
    wheel = source.parent / "built.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return wheel_problems(wheel, source, "1.2.3")


def of_sdist(files: Mapping[str, str], source: Path) -> list[str]:
    """The problems of an sdist with these files."""
    sdist = source.parent / "built.tar.gz"
    with tarfile.open(sdist, "w:gz") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(f"{PACKAGE}-1.2.3/{name}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    return sdist_problems(sdist, source, "1.2.3")


def test_a_complete_wheel_has_no_problem(source: Path) -> None:
    """Compiled modules of the checkout are not missed."""
    assert of_wheel(in_wheel(), source) == []


@pytest.mark.parametrize("name", sorted(in_wheel().keys() - {f"{ABOUT}/METADATA", f"{ABOUT}/entry_points.txt"}))
def test_a_file_that_the_wheel_lacks_is_named(source: Path, name: str) -> None:
    """Licences, data and the Spark job as well as modules."""
    files = {other: text for other, text in in_wheel().items() if other != name}

    (problem,) = of_wheel(files, source)

    assert problem.startswith(f"{name} is missing: add it to ")


def test_a_wheel_with_tests_is_refused(source: Path) -> None:
    """They would be installed beside all other packages, as `tests`."""
    (problem,) = of_wheel(in_wheel() | {"tests/test_it.py": "test"}, source)

    assert problem.startswith("tests/test_it.py does not belong in it")


def test_a_stale_file_is_named(source: Path) -> None:
    """The content is compared, not only the names."""
    (problem,) = of_wheel(in_wheel() | {f"{PACKAGE}/names.json.gz": "old data"}, source)

    assert problem.startswith(f"{PACKAGE}/names.json.gz is not the file of the repository")


@pytest.mark.parametrize(
    ("left_out", "named"),
    [
        ("License-File: NOTICE\n", "does not name NOTICE as License-File"),
        ("License-Expression: Apache-2.0\n", "no License-Expression"),
        ("Version: 1.2.3\n", "of airflow-provider-kafka-s3 None, not of airflow-provider-kafka-s3 1.2.3"),
    ],
)
def test_what_the_metadata_lack_is_named(source: Path, left_out: str, named: str) -> None:
    """Installers and licence scanners read only these."""
    (problem,) = of_wheel(in_wheel() | {f"{ABOUT}/METADATA": METADATA.replace(left_out, "")}, source)

    assert named in problem


@pytest.mark.parametrize("name", ["kafka_s3", "provider_info", "kafka-s3"])
def test_an_entry_point_that_is_missing_is_named(source: Path, name: str) -> None:
    """Without them Airflow sees no provider and no page, and a user no command."""
    (problem,) = of_wheel(in_wheel() | {f"{ABOUT}/entry_points.txt": ENTRY_POINTS.replace(name, "other")}, source)

    assert f"has no {name} in [" in problem


def test_an_sdist_has_every_file_but_those_of_the_ci(source: Path) -> None:
    """Who has it can run the tests."""
    files = {name: text for name, text in FILES.items() if not name.startswith(".ci/")} | {"PKG-INFO": ""}

    assert of_sdist(files, source) == []
    (problem,) = of_sdist({name: text for name, text in files.items() if name != "tests/test_it.py"}, source)
    assert problem.startswith(f"{PACKAGE}-1.2.3/tests/test_it.py is missing")
    (problem,) = of_sdist(files | {".build/cache": ""}, source)
    assert problem.startswith(f"{PACKAGE}-1.2.3/.build/cache does not belong in it")
