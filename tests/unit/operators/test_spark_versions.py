"""A Spark, or a connector, of a version that does not fit is refused before anything is planned."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_kafka_s3.submit import checks
from airflow_provider_kafka_s3.submit.versions import coordinates, installed_versions

if TYPE_CHECKING:
    from tests.unit.operators.conftest import Bench

UNEQUAL = {"pyspark": "4.2.0", "pyspark-client": "4.0.1"}
MENDED = "`pip uninstall --yes pyspark pyspark-client && pip install 'pyspark==4.2.0' 'pyspark-client==4.2.0'`"
OTHER = "org.apache.spark:spark-sql-kafka-0-10_2.13:3.5.1"


@pytest.fixture
def orders(bench: Bench) -> Bench:
    """A topic with one record that is not landed yet."""
    bench.kafka.create_topic("orders")
    bench.fill("orders", [{"n": 1}])
    return bench


def refusal(orders: Bench, **parameters: Any) -> str:
    """The error of a task that is refused for good, with nothing written."""
    from airflow.providers.common.compat.sdk import AirflowFailException

    with pytest.raises(AirflowFailException) as refused:
        orders.run(orders.task(**parameters))
    assert list(orders.store.list("")) == []
    assert orders.spark.commands == []
    return str(refused.value)


@pytest.mark.parametrize("host", ["local[2]", "sc://connect"])
def test_an_unequal_pair_is_refused_with_the_line_that_mends_it(
    orders: Bench, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    """Whether the driver is started by spark-submit or is a client of Spark Connect."""
    monkeypatch.setattr(checks, "installed_versions", lambda: UNEQUAL)
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", "host": host}))
    message = refusal(orders)
    assert message.startswith("pyspark 4.2.0 and pyspark-client 4.0.1 are incompatible")
    assert message.endswith(MENDED)


@pytest.mark.parametrize(
    "connector",
    [
        {"packages": OTHER},
        {"conf": {"spark.jars.packages": f"g:a:1,{OTHER}"}},
        {"jars": "/opt/spark-sql-kafka-0-10_2.13-3.5.1.jar"},
        {"conf": {"spark.jars": "/opt/a.jar,/opt/spark-sql-kafka-0-10_2.13-3.5.1.jar"}},
    ],
)
def test_a_connector_of_another_version_is_refused_with_the_right_one(orders: Bench, connector: dict[str, Any]) -> None:
    """By any parameter."""
    message = refusal(orders, **connector)
    assert "3.5.1" in message.partition(" is ")[0]
    assert coordinates(installed_versions()["pyspark"]) in message


def test_a_spark_of_the_users_own_is_not_checked(
    orders: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its version is unknown: a command that is named, or one from SPARK_HOME or PATH."""
    monkeypatch.setattr(checks, "installed_versions", lambda: UNEQUAL)
    own = tmp_path / "spark" / "bin" / "spark-submit"
    own.parent.mkdir(parents=True)
    own.touch(mode=0o755)
    orders.run(orders.task(spark_binary=str(own), packages=OTHER))
    orders.fill("orders", [{"n": 2}])
    orders.run(orders.task(packages=OTHER, env_vars={"SPARK_HOME": str(own.parents[1])}), run_id="r2")
    orders.fill("orders", [{"n": 3}])
    monkeypatch.setenv("PATH", f"{own.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", "spark://sparkmaster:7077")
    orders.run(orders.task(packages=OTHER), run_id="r3")
    assert len(orders.spark.commands) == 3


def test_the_spark_of_this_environment_is_checked_however_it_is_named(
    orders: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By default, by the command that pip has installed beside Python, or by SPARK_HOME."""
    from airflow_provider_kafka_s3.submit.spark_command import find_spark_submit

    inside = find_spark_submit(local=True)
    assert inside is not None
    beside = shutil.which("spark-submit", path=str(Path(sys.executable).parent))
    assert beside is not None
    for parameters in ({}, {"spark_binary": inside}, {"spark_binary": beside}):
        assert OTHER in refusal(orders, packages=OTHER, **parameters)
    home = str(Path(inside).parents[1])
    assert OTHER in refusal(orders, packages=OTHER, spark_binary="spark3-submit", env_vars={"SPARK_HOME": home})


def test_a_run_that_only_verifies_needs_no_spark(orders: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """It only reads the bucket."""
    orders.run(orders.task())
    monkeypatch.setattr(checks, "installed_versions", lambda: UNEQUAL)
    assert orders.run(orders.task(action="verify"))["status"] == "ok"
