"""Compatible versions of pyspark, its client and the Kafka connector."""

from __future__ import annotations

import subprocess
import sys

import pytest

from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.submit.versions import (
    TESTED,
    connector_flaw,
    coordinates,
    pyspark_flaw,
    raise_flaw,
    reinstall,
)

PIP = "pip uninstall --yes pyspark pyspark-client && pip install 'pyspark=={0}' 'pyspark-client=={0}'"


@pytest.mark.parametrize("version", [*TESTED, "4.0.4", "4.1.2", "4.2.1"])
def test_one_supported_version_of_both_is_accepted(version: str) -> None:
    """Also versions between the tested ones, and a patch of the newest; and the client alone, for Spark Connect."""
    assert pyspark_flaw({"pyspark": version, "pyspark-client": version}) is None
    assert pyspark_flaw({"pyspark-client": version}) is None
    assert pyspark_flaw({}) is None


@pytest.mark.parametrize(
    ("pyspark", "client", "expected"),
    [
        ("4.3.0", "4.2.0", "4.2.0"),
        ("4.0.0", "4.2.0", "4.0.0"),
        ("4.1.4", "4.0.0", "4.0.0"),
        ("4.2.1", "4.1.3", "4.2.0"),
        ("3.5.9", "4.0.4", "4.2.0"),
    ],
)
def test_unequal_versions_are_refused_with_the_command_to_run(pyspark: str, client: str, expected: str) -> None:
    """The command installs a tested version: an installed one, else the newest."""
    flaw = pyspark_flaw({"pyspark": pyspark, "pyspark-client": client})
    with pytest.raises(ConfigurationError) as refused:
        raise_flaw(flaw)
    message = str(refused.value)
    assert message.startswith(f"pyspark {pyspark} and pyspark-client {client} are incompatible")
    assert message.endswith(f"`{PIP.format(expected)}`")


@pytest.mark.parametrize("version", ["3.5.9", "4.3.0", "4.10.0", "5.0.0.dev1"])
def test_an_unsupported_version_is_refused_with_the_command_to_run(version: str) -> None:
    """Even if both are equal."""
    with pytest.raises(ConfigurationError) as refused:
        raise_flaw(pyspark_flaw({"pyspark": version, "pyspark-client": version}))
    assert f"pyspark {version} and pyspark-client {version}: only Spark from 4.0.0 to below 4.3" in str(refused.value)
    assert str(refused.value).endswith(f"`{PIP.format('4.2.0')}`")


@pytest.mark.parametrize(
    "wrong",
    [
        "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0",
        "g:a:1, org.apache.spark:spark-sql-kafka-0-10_2.12:4.2.0",
    ],
)
def test_a_connector_package_of_another_version_is_refused_with_the_right_one(wrong: str) -> None:
    """Of another Spark, or of another Scala."""
    with pytest.raises(ConfigurationError) as refused:
        raise_flaw(connector_flaw("4.2.0", packages=["g:b:1", wrong]))
    message = str(refused.value)
    assert message.startswith(f"packages='{wrong.rpartition(' ')[2]}' is the Kafka connector of another Spark")
    assert message.endswith("use packages='org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0'")


@pytest.mark.parametrize(
    "wrong",
    [
        "spark-sql-kafka-0-10_2.13-4.0.0.jar",
        "spark-sql-kafka-0-10_2.12-4.2.0.jar",
        "spark-token-provider-kafka-0-10_2.13-3.5.1.jar",
        "spark-token-provider-kafka-0-10_2.12-4.2.0.jar",
    ],
)
def test_a_connector_jar_of_another_version_is_refused_by_name(wrong: str) -> None:
    """In any folder."""
    for place in ("", "/opt/jars/", "hdfs://lake/jars/", "local:///opt/"):
        with pytest.raises(ConfigurationError, match=f"^{wrong} among the jars is of another Spark: pyspark 4.2.0"):
            raise_flaw(connector_flaw("4.2.0", jars=[f"/opt/kafka-clients-3.9.2.jar,{place}{wrong}"]))


def test_compatible_jars_and_jars_without_a_version_are_accepted() -> None:
    """The token provider may be of an older Spark 4: not every registry has each version."""
    names = ("spark-sql-kafka-0-10_2.13-4.2.0", "spark-token-provider-kafka-0-10_2.13-4.0.0", "kafka-clients-3.9.2")
    jars = ",".join(f"/opt/{name}.jar" for name in names)
    assert connector_flaw("4.2.0", packages=[f"{coordinates('4.2.0')}, g:a:1"], jars=[jars]) is None
    assert connector_flaw("4.2.0", jars=["/opt/spark-sql-kafka-0-10_2.13.jar"]) is None
    assert connector_flaw("4.2.0") is None


def test_reading_versions_does_not_import_pyspark() -> None:
    """It takes half a second, and a mixture of two versions may fail at it."""
    code = (
        "import sys; from airflow_provider_kafka_s3.submit import versions as v; "
        "assert v.pyspark_flaw(v.installed_versions()) is None; print('pyspark' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_the_command_removes_both_before_it_installs_both() -> None:
    """Otherwise pip removes files of one distribution with the other."""
    assert reinstall({"pyspark": "4.3.0"}) == PIP.format("4.2.0")


def test_a_vendor_s_suffix_of_a_version_is_ignored() -> None:
    """Connector and Spark are compared, and named, by their release numbers."""
    assert connector_flaw("4.0.1+vendor.1", packages=[coordinates("4.0.1")]) is None
    assert connector_flaw("4.0.1+vendor.1", jars=["spark-sql-kafka-0-10_2.13-4.0.1-vendor.7.jar"]) is None
    flaw = connector_flaw("4.0.1+vendor.1", packages=[coordinates("4.2.0")])
    assert flaw is not None
    assert (flaw.what.endswith(": pyspark 4.0.1 is installed"), "vendor" in flaw.fix) == (True, False)
