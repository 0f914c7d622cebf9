"""pyspark and pyspark-client install the same files: at different versions the result is a mixture of both."""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import re
import xml.etree.ElementTree as ET

import pytest

from airflow_provider_kafka_s3.submit.versions import TESTED
from dev.airflow_home import SPARK_JARS
from tests.packaging.conftest import ROOT, Environment

pytestmark = pytest.mark.newest_spark


@pytest.fixture
def pyspark() -> importlib.metadata.Distribution:
    """Spark with its jars and commands."""
    return importlib.metadata.distribution("pyspark")


@pytest.fixture
def client() -> importlib.metadata.Distribution:
    """Spark Connect's client, which Airflow's Spark provider depends on."""
    return importlib.metadata.distribution("pyspark-client")


def test_both_have_the_same_version(
    pyspark: importlib.metadata.Distribution, client: importlib.metadata.Distribution
) -> None:
    """The lock pins them equal, at a version that the package lists as tested; the jars have it too."""
    assert pyspark.version == client.version
    assert pyspark.version in TESTED
    assert [jar.name for jar in SPARK_JARS.glob("spark-sql-*")] == [f"spark-sql-kafka-0-10_2.13-{pyspark.version}.jar"]


def test_the_extra_installs_the_newest_tested_version_of_both(installed: Environment) -> None:
    """The documented command is enough, whatever versions the index has."""
    required = installed.result(
        "import importlib.metadata as m; print(json.dumps(m.requires('airflow-provider-kafka-s3')))"
    )
    extra = {line.partition(";")[0].strip() for line in required if "extra == 'spark'" in line.replace('"', "'")}
    assert extra == {f"pyspark=={TESTED[-1]}", f"pyspark-client=={TESTED[-1]}"}


def test_no_example_names_a_version_of_the_connector() -> None:
    """Examples work with any Spark: the operator takes the connector of the installed one."""
    files = [ROOT / "README.md", *(ROOT / "dags").glob("*.py"), *(ROOT / "docs").rglob("*.md")]
    assert len(files) > 20
    assert [file.name for file in files if re.search(r"spark-sql-kafka-0-10_2\.1\d:\d", file.read_text())] == []


def test_the_versions_listed_as_tested_are_those_of_the_locks() -> None:
    """The oldest by the locks of Airflow, the newest by a lock of its own; the jars are of the same two."""
    for lock, version in {"airflow-3.3": TESTED[0], "airflow-2.11": TESTED[0], "spark-4.2": TESTED[-1]}.items():
        lines = (ROOT / "requirements" / f"{lock}.lock").read_text().splitlines()
        assert {f"pyspark=={version}", f"pyspark-client=={version}"} <= set(lines), lock
    space = "{http://maven.apache.org/POM/4.0.0}"
    versions = [found.text for found in ET.parse(ROOT / "dev" / "pom.xml").iter(f"{space}spark.version")]
    assert versions == list(TESTED)


def test_the_installed_tree_is_not_mixed(
    pyspark: importlib.metadata.Distribution, client: importlib.metadata.Distribution
) -> None:
    """Every file on disk is the one in the records of both distributions."""
    changed = []
    shared = {str(f) for f in pyspark.files or ()} & {str(f) for f in client.files or ()}
    for distribution in (pyspark, client):
        for file in distribution.files or ():
            if file.suffix == ".py" and file.hash is not None:
                digest = hashlib.new(file.hash.mode, file.read_binary()).digest()
                if base64.urlsafe_b64encode(digest).decode().rstrip("=") != file.hash.value:
                    changed.append(f"{distribution.name}: {file}")
    assert changed == []
    assert len(shared) > 100
