"""The names that a DAG author imports from the package itself."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

import airflow_provider_kafka_s3

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
