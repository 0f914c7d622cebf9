"""The locks: one for each major version of Airflow, with the same versions of all other dependencies."""

from __future__ import annotations

from pathlib import Path

import pytest

REQUIREMENTS = Path(__file__).resolve().parents[3] / "requirements"
VERSIONS = ("2.11", "3.3")


def locked(version: str) -> dict[str, str]:
    """The content of a lock: distribution -> version."""
    lines = (REQUIREMENTS / f"airflow-{version}.lock").read_text().splitlines()
    return dict(line.split("==") for line in lines if "==" in line)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_lock_is_for_the_airflow_that_it_is_named_after(version: str) -> None:
    """The minor version; `make lock` chooses the newest patch."""
    assert locked(version)["apache-airflow"].startswith(f"{version}.")


@pytest.mark.parametrize("version", VERSIONS)
def test_pyspark_and_its_client_are_of_one_version(version: str) -> None:
    """They install the same files."""
    assert locked(version)["pyspark"] == locked(version)["pyspark-client"]


@pytest.mark.parametrize(
    "distribution",
    [
        "apache-airflow-providers-amazon",
        "apache-airflow-providers-apache-kafka",
        "apache-airflow-providers-apache-spark",
        "apache-airflow-providers-common-compat",
        "boto3",
        "confluent-kafka",
        "numpy",
        "pyarrow",
        "pyspark",
    ],
)
def test_both_airflows_are_tested_with_the_same_version(distribution: str) -> None:
    """So a test with one Airflow is valid for both."""
    assert len({locked(version)[distribution] for version in VERSIONS}) == 1


def test_workers_of_spark_are_tested_with_the_oldest_versions_that_they_may_have() -> None:
    """They are the lower bounds of spark_jobs/requirements.txt, without Airflow and pyspark."""
    required = (REQUIREMENTS.parent / "spark_jobs" / "requirements.txt").read_text()
    lines = (REQUIREMENTS / "spark-workers.lock").read_text().splitlines()
    workers = dict(line.split("==") for line in lines)
    assert not {"apache-airflow", "pyspark", "airflow-provider-kafka-s3"} & workers.keys()
    bounds = [line.split(">=") for line in required.splitlines() if ">=" in line]
    assert len(bounds) > 5
    for name, oldest in bounds:
        assert f"{workers[name]}.".startswith(f"{oldest}."), name
