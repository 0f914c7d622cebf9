"""The installed package: the wheel and the editable install work from anywhere, and Airflow lists the provider."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

from airflow_provider_kafka_s3 import __version__
from dev.distributions import wheel_problems
from tests.packaging.conftest import OURS, ROOT, Environment


def test_the_wheel_holds_the_package_the_script_and_the_licences_and_nothing_else(wheel: Path) -> None:
    """One top-level package; no tests, no development tools, no module called spark_jobs beside it."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {OURS}
    assert {f"{OURS}/spark_jobs/kafka_to_s3.py", f"{OURS}/spark_jobs/requirements.txt", f"{OURS}/py.typed"} <= names
    assert wheel_problems(wheel, ROOT, __version__) == []


def test_the_wheel_runs_from_its_own_place(installed: Environment) -> None:
    """Nothing comes from the checkout."""
    place = Path(installed.result(f"import {OURS}; print(json.dumps({OURS}.__file__))"))
    assert place.is_relative_to(installed.site)


def test_the_script_for_spark_is_found_from_anywhere(either: Environment) -> None:
    """Inside the installed package, or beside the package in a checkout."""
    code = f"from {OURS}.submit.job_script import job_script; print(json.dumps(str(job_script())))"
    script = Path(either.result(code))
    assert script.is_absolute()
    assert script.read_text() == (ROOT / "spark_jobs" / "kafka_to_s3.py").read_text()
    assert "--job-file" in either.run(
        f"import runpy, sys; sys.argv=['x', '--help']; runpy.run_path({str(script)!r}, run_name='__main__')"
    )


def test_the_command_is_installed(either: Environment) -> None:
    """Errors print commands that begin with it."""
    version = either.result(f"import {OURS}; print(json.dumps({OURS}.__version__))")
    assert either.call([str(either.python.with_name("kafka-s3")), "--version"]) == f"kafka-s3 {version}\n"


def test_airflow_discovers_the_provider(either: Environment) -> None:
    """Airflow validates the metadata against its schema when it lists its providers."""
    listed = json.loads(either.airflow("providers", "list", "--output", "json").splitlines()[-1])
    (ours,) = [p for p in listed if p["package_name"] == "airflow-provider-kafka-s3"]
    version = either.result(f"import {OURS}; print(json.dumps({OURS}.__version__))")
    assert ours["version"] == version


def test_the_operators_of_the_metadata_can_be_imported(either: Environment) -> None:
    """The classes that the provider's metadata name exist."""
    code = (
        "import importlib\n"
        f"from {OURS}.get_provider_info import get_provider_info\n"
        "modules = [m for o in get_provider_info()['operators'] for m in o['python-modules']]\n"
        "print(json.dumps([n for m in modules for n in importlib.import_module(m).__all__]))"
    )
    assert either.result(code) == [
        "KafkaS3ExpireOperator",
        "KafkaS3ToIcebergOperator",
        "KafkaToS3Operator",
        "S3ToKafkaOperator",
    ]
