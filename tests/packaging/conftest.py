"""The built wheel in an environment of its own, and the checkout installed as editable in another."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sysconfig
import venv
from pathlib import Path
from typing import Any, Final

import pytest

from dev.distributions import build

ROOT: Final = Path(__file__).resolve().parents[2]
OURS: Final = "airflow_provider_kafka_s3"


class Environment:
    """A virtual environment with this package, which borrows all others from the one that runs the tests.

    Attributes:
        python: its interpreter.
        site: where its own packages are.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        # With the pip that comes with Python: the environment of the tests may have none.
        venv.create(folder / "venv", symlinks=True, with_pip=True)
        self.python = folder / "venv" / "bin" / "python"
        self.site = Path(self.run("import sysconfig; print(sysconfig.get_path('purelib'))").strip())
        borrowed = folder / "borrowed"
        borrowed.mkdir()
        # All but this package, which has to come from this environment.
        for entry in Path(sysconfig.get_path("purelib")).iterdir():
            if OURS not in entry.name and not entry.name.endswith(".pth"):
                (borrowed / entry.name).symlink_to(entry)
        (self.site / "borrowed.pth").write_text(f"{borrowed}\n")

    def run(self, code: str) -> str:
        """The output of a Python program."""
        return self.call([str(self.python), "-c", code])

    def result(self, code: str) -> Any:
        """The value that a program prints by ``print(json.dumps(...))`` on its last line."""
        return json.loads(self.run(f"import json\n{code}").splitlines()[-1])

    def airflow(self, *arguments: str) -> str:
        """Output of an ``airflow`` command."""
        return self.call([str(self.python), "-m", "airflow", *arguments])

    def call(self, command: list[str]) -> str:
        """The output of a command, run from a folder outside of the checkout."""
        away = self._folder / "away"
        away.mkdir(exist_ok=True)
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "AIRFLOW"))}
        environment = {**clean, "AIRFLOW_HOME": str(self._folder / "airflow"), "NO_COLOR": "1"}
        done = subprocess.run(command, cwd=away, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built offline from a copy of the checkout's own files."""
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    for name in ("pyproject.toml", "README.md", "LICENSE", "NOTICE"):
        shutil.copy(ROOT / name, source)
    for name in (OURS, "spark_jobs"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    (built,) = build(source, target, "--wheel")
    return built


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment with the wheel."""
    environment = Environment(tmp_path_factory.mktemp("installed"))
    _install(environment, str(wheel))
    return environment


@pytest.fixture(scope="session")
def editable(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment with the checkout installed as editable."""
    environment = Environment(tmp_path_factory.mktemp("editable"))
    _install(environment, "--no-build-isolation", "--editable", str(ROOT))
    return environment


@pytest.fixture(params=["installed", "editable"])
def either(request: pytest.FixtureRequest) -> Environment:
    """Both environments in turn."""
    environment: Environment = request.getfixturevalue(request.param)
    return environment


def _install(environment: Environment, *what: str) -> None:
    command = [
        str(environment.python),
        "-m",
        "pip",
        "--disable-pip-version-check",
        "install",
        "--no-deps",
        "--no-index",
    ]
    done = subprocess.run([*command, "--quiet", *what], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
