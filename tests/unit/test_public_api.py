"""The names that a DAG author imports from the package itself."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import airflow_provider_kafka_s3
from dev import public_api

AGAIN = (
    "the public interface has changed: add a line to CHANGELOG.md, below Unreleased, and run `python -m "
    "dev.public_api`, which writes tests/public_api.txt again; docs/compatibility.md has what may change, and when"
)
HEAVY = ("airflow", "boto3", "confluent_kafka", "numpy", "pyarrow", "pyspark")


@pytest.mark.parametrize("name", airflow_provider_kafka_s3.__all__)
def test_every_public_name_is_there(name: str) -> None:
    """It is also listed for completion."""
    assert getattr(airflow_provider_kafka_s3, name) is not None
    assert name in dir(airflow_provider_kafka_s3)


@pytest.mark.parametrize(
    "path", ["operators.kafka_to_s3", "sensors.kafka_lag", "sensors.window_closed", "triggers.polling"]
)
def test_the_modules_of_operator_sensors_and_triggers_export_the_same_classes(path: str) -> None:
    """Airflow's database and other tools name them by these paths."""
    module = importlib.import_module(f"airflow_provider_kafka_s3.{path}")
    for name in module.__all__:
        assert getattr(airflow_provider_kafka_s3, name, getattr(module, name)) is getattr(module, name)


def test_an_unknown_name_is_an_attribute_error() -> None:
    """As of every module."""
    with pytest.raises(AttributeError, match="has no attribute 'KafkaToS3'"):
        airflow_provider_kafka_s3.KafkaToS3  # noqa: B018


@pytest.mark.parametrize("code", ["import airflow_provider_kafka_s3", "from airflow_provider_kafka_s3 import Daily"])
def test_nothing_heavy_is_imported_before_it_is_used(code: str) -> None:
    """Airflow reads the package's metadata at every start, and executors have no Airflow."""
    program = f"import sys\n{code}\nprint(*set({HEAVY!r}) & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == ""


def test_the_public_interface_is_that_of_the_listing() -> None:
    """Names, parameters, commands, options, exit codes and fields; nobody changes them unnoticed."""
    now, listed = public_api.lines(), public_api.listed()
    assert {*now} ^ {*listed} == set(), AGAIN


def test_a_change_of_the_public_interface_needs_a_line_in_the_changelog(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The listing is not written again before; with the line it is."""
    listing = tmp_path / "public_api.txt"
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## Unreleased\n\n- One.\n\n## 0.1.0\n")
    monkeypatch.setattr(public_api, "ROOT", tmp_path)
    monkeypatch.setattr(public_api, "LISTING", listing)
    monkeypatch.setattr(public_api, "lines", lambda: ["a"])
    assert public_api.main() == 0
    assert public_api.listed() == ["a"]
    monkeypatch.setattr(public_api, "lines", lambda: ["a", "b"])
    assert public_api.main() == 1
    assert "add a line to CHANGELOG.md" in capsys.readouterr().out
    assert public_api.listed() == ["a"]
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## Unreleased\n\n- One.\n- Two.\n\n## 0.1.0\n")
    assert public_api.main() == 0
    assert public_api.listed() == ["a", "b"]
