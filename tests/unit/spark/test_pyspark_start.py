"""What a driver's process leaves out of pyspark at its start and its end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from airflow_provider_kafka_s3.submit.driver_jvm import jvm_variables
from airflow_provider_kafka_s3.submit.spark_command import pyspark_home

ROOT = Path(__file__).resolve().parents[3]

IMPORT_INSTALLED = """
from airflow_provider_kafka_s3.spark.pyspark_start import import_installed_pyspark
import_installed_pyspark()
"""

IMPORTS = f"""
{IMPORT_INSTALLED}
import py4j.java_gateway, pyspark.sql.types
print(pyspark.sql.types.__file__, py4j.java_gateway.__file__, sep="\\n")
"""

CONVERTERS = """
import sys
from airflow_provider_kafka_s3.spark.pyspark_start import drop_numpy_converters
drop_numpy_converters()
from py4j.protocol import INPUT_CONVERTER
import datetime
for value in ("text", 1, True, None, [1], {"a": 1}, datetime.date(2026, 1, 1)):
    print(next((type(each).__name__ for each in INPUT_CONVERTER if each.can_convert(value)), ""))
assert not {"pandas", "pyspark.testing"} & set(sys.modules)
"""

STOP = f"""
{IMPORT_INSTALLED}
from pyspark.sql import SparkSession
from airflow_provider_kafka_s3.spark.pyspark_start import leave_accumulators
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
context = spark.sparkContext
written, context_of_java = context.accumulator(0), context._jsc.sc()
context.parallelize([3, 4], 2).foreach(written.add)
leave_accumulators(spark)
spark.stop()
print(written.value, context_of_java.isStopped())
"""

MAP = f"""
{IMPORT_INSTALLED}
import sys
from pyspark.sql import SparkSession
from airflow_provider_kafka_s3.spark.pyspark_start import drop_numpy_converters, leave_out_pandas
drop_numpy_converters()
leave_out_pandas()
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
print([row.id for row in spark.range(3).mapInArrow(lambda batches: batches, "id long").collect()])
spark.stop()
assert "pandas" not in sys.modules
"""


@pytest.fixture
def home() -> Path:
    """The home folder of the installed Spark."""
    found = pyspark_home()
    assert found is not None
    return found


def run(script: str, home: Path) -> list[str]:
    """Run Python as Spark's scripts do; returns the lines that it prints."""
    zips = sorted((home / "python" / "lib").glob("*.zip"))
    path = os.pathsep.join(map(str, [*zips, ROOT]))
    env = {
        "SPARK_HOME": str(home),
        "PYTHONPATH": path,
        "PYSPARK_PYTHON": sys.executable,
        **jvm_variables({}, offsets=0, archive=None, serial=True),
    }
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, env={**os.environ, **env}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_pyspark_is_imported_from_where_pip_installed_it(home: Path) -> None:
    """Python need not compile its modules, as it does those of Spark's zip files."""
    types, gateway = run(IMPORTS, home)
    assert Path(types) == home / "sql" / "types.py"
    assert Path(gateway) == home.parent / "py4j" / "java_gateway.py"


def test_another_spark_has_its_own_pyspark(home: Path, tmp_path: Path) -> None:
    """That of its zip files, even if another one is installed."""
    (tmp_path / "pyspark").mkdir()
    (tmp_path / "pyspark" / "python").symlink_to(home / "python")
    assert [".zip" in path for path in run(IMPORTS, tmp_path / "pyspark")] == [True, True]


def test_calls_of_java_import_neither_pandas_nor_tools_for_tests(home: Path) -> None:
    """Values that Java has types for are converted as before."""
    assert run(CONVERTERS, home) == ["", "", "", "", "ListConverter", "MapConverter", "DateConverter"]


def test_a_session_that_leaves_its_accumulators_is_stopped_and_has_all_updates(home: Path) -> None:
    """Of tasks of an action that has returned."""
    assert run(STOP, home) == ["7 True"]


def test_a_job_does_not_import_pandas(home: Path) -> None:
    """``mapInArrow`` needs none."""
    assert run(MAP, home) == ["[0, 1, 2]"]
