"""The files of docker/: without an engine, their content is compared with the rest of the repository."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
import yaml

from dev.airflow_home import SPARK_JARS

ROOT = Path(__file__).resolve().parents[3]
DOCKER = ROOT / "docker"
ONCE = {"topics", "bucket"}
"""Services that run once and end; the others keep running."""


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    """The services of the compose file, without its anchors."""
    found: dict[str, Any] = yaml.safe_load((DOCKER / "compose.yaml").read_text())["services"]
    return found


@pytest.fixture(scope="module")
def dockerfile() -> list[list[str]]:
    """The instructions of the Dockerfile as words."""
    text = re.sub(r"^#.*\n", "", (DOCKER / "Dockerfile").read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    return [line.split() for line in text.splitlines() if line.strip()]


@pytest.fixture(scope="module")
def pom() -> dict[str, str]:
    """The properties of dev/pom.xml."""
    namespace = "{http://maven.apache.org/POM/4.0.0}"
    properties = ET.parse(ROOT / "dev" / "pom.xml").getroot().find(f"{namespace}properties")
    assert properties is not None
    return {p.tag.removeprefix(namespace): p.text or "" for p in properties}


def locked(name: str) -> str:
    """The version of a package in the lock for Airflow 3.3."""
    (version,) = re.findall(
        rf"^{re.escape(name)}==(\S+)", (ROOT / "requirements" / "airflow-3.3.lock").read_text(), re.MULTILINE
    )
    return str(version)


def test_images_have_a_version_and_those_of_kafka_and_the_registry_are_the_tested_ones(
    services: dict[str, Any], pom: dict[str, str]
) -> None:
    """So later pulls get the same image."""
    pulled = {service["image"] for service in services.values() if "build" not in service}
    assert all(re.fullmatch(r"[a-z0-9./-]+:v?\d+\.\d+\.\d+", image) for image in pulled), pulled
    assert {image for image in pulled if "kafka" in image} == {f"apache/kafka:{pom['kafka.version']}"}
    (registry,) = re.findall(r"^APICURIO_VERSION := (\S+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert services["registry"]["image"] == f"apicurio/apicurio-registry:{registry}"


def test_the_image_is_built_from_the_lock_and_the_pom(dockerfile: list[list[str]], pom: dict[str, str]) -> None:
    """The versions in the image are those that the tests run with: none is repeated."""
    assert locked("pyspark") == locked("pyspark-client") == pom["spark.version"]
    (install,) = [line for line in dockerfile if line[:3] == ["RUN", "pip", "install"]]
    assert install[install.index("--constraint") + 1] == "/src/requirements/airflow-3.3.lock"
    # Not the extra, which is about the newest Spark.
    assert {"/src", "pyspark", "pyspark-client"} <= set(install)
    assert not [word for word in install if "==" in word]
    (maven,) = [line for line in dockerfile if line[:2] == ["RUN", "mvn"]]
    assert maven[maven.index("--file") + 1] == "/build/pom.xml"
    (python,) = set(re.findall(r"--python-version (\S+)", (ROOT / "Makefile").read_text()))
    assert [line[1] for line in dockerfile if line[0] == "FROM"][-1] == f"python:{python}-slim-bookworm"


def test_the_jars_of_the_image_are_those_of_the_connector(dockerfile: list[list[str]]) -> None:
    """Each by the name that Maven gives it when it leaves its version out."""
    ((_, source, target),) = [line for line in dockerfile if line[0] == "COPY" and "spark-defaults.conf" in line[-1]]
    assert ["ENV", f"SPARK_CONF_DIR={Path(target).parent}"] in dockerfile
    setting, jars = (ROOT / source).read_text().split()
    assert setting == "spark.jars"
    named = {Path(jar).stem for jar in jars.split(",")}
    copied = {re.sub(r"-\d+(\.\d+)+\.jar$", "", jar.name) for jar in SPARK_JARS.glob("*.jar")}
    assert named == copied


def test_what_is_copied_exists_and_is_in_the_build_context(dockerfile: list[list[str]]) -> None:
    """Nothing else is sent to the engine."""
    lines = (DOCKER / "Dockerfile.dockerignore").read_text().splitlines()
    allowed = {line.removeprefix("!") for line in lines if line.startswith("!")}
    copied = {s for line in dockerfile if line[0] == "COPY" and "--from=jars" not in line for s in line[1:-1]}
    assert "*" in lines
    assert copied == allowed
    assert all((ROOT / source).exists() for source in copied)
    # All files of the wheel are copied: hatchling needs each that pyproject.toml names.
    assert {"pyproject.toml", "README.md", "LICENSE", "NOTICE", "airflow_provider_kafka_s3", "spark_jobs"} <= copied


def test_nothing_in_the_image_runs_as_root(dockerfile: list[list[str]]) -> None:
    """The last user is Airflow's, which the image has under this number."""
    ((_, user),) = [line for line in dockerfile if line[0] == "USER"]
    (added,) = [line for line in dockerfile if "useradd" in line]
    assert added[added.index("--uid") + 1] == user
    assert "airflow" in added


def test_running_services_have_health_checks_and_dependents_wait_for_them(services: dict[str, Any]) -> None:
    """A dependent service waits until the other is healthy, or has ended with success."""
    for name, service in services.items():
        assert ("healthcheck" in service) == (name not in ONCE), name
        for needed, how in service.get("depends_on", {}).items():
            expected = "service_completed_successfully" if needed in ONCE else "service_healthy"
            assert how == {"condition": expected}, (name, needed)


def test_ports_are_open_to_this_machine_only(services: dict[str, Any]) -> None:
    """The services have no real passwords."""
    ports = [port for service in services.values() for port in service.get("ports", [])]
    assert ports
    assert all(re.fullmatch(r"127\.0\.0\.1:\d+:\d+", port) for port in ports)
    assert len({port.split(":")[1] for port in ports}) == len(ports)


def test_connections_lead_to_services_of_the_stack(services: dict[str, Any]) -> None:
    """Airflow's connections are JSON, and name hosts and ports of the stack."""
    environment = services["airflow"]["environment"]
    plain = {n: re.sub(r"\$\{\w+:-(.*?)\}", r"\1", v) for n, v in environment.items()}
    kafka, aws, spark, registry = (
        json.loads(plain[f"AIRFLOW_CONN_{n}_DEFAULT"]) for n in ("KAFKA", "AWS", "SPARK", "REGISTRY")
    )
    broker = services["kafka"]["environment"]
    assert f"INSIDE://{kafka['extra']['bootstrap.servers']}" in broker["KAFKA_ADVERTISED_LISTENERS"].split(",")
    assert aws["extra"]["endpoint_url"] == "http://s3" + services["s3"]["environment"]["VGW_PORT"]
    assert environment["AIRFLOW_CONN_AWS_DEFAULT"].count(services["s3"]["environment"]["ROOT_SECRET_KEY"]) == 1
    master = services["spark-master"]["command"]
    assert (spark["host"], str(spark["port"])) == (
        master[master.index("--host") + 1],
        master[master.index("--port") + 1],
    )
    published = services["registry"]["ports"][0].rpartition(":")[2]
    assert registry["host"] == f"http://registry:{published}/apis/ccompat/v7"
    assert services["spark-worker"]["command"][-1] == f"spark://{spark['host']}:{spark['port']}"


def test_python_and_shell_in_the_compose_file_are_valid(services: dict[str, Any]) -> None:
    """Python and the shell parse them."""
    ast.parse(services["bucket"]["command"][-1])
    shell = services["topics"]["command"][0].replace("$$", "$")
    done = subprocess.run(["/bin/bash", "-n", "-c", shell], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_topics_and_buckets_of_the_examples_are_made(services: dict[str, Any]) -> None:
    """Every example can be unpaused without changes."""
    (listed,) = re.findall(r"for topic in (.*?); do", services["topics"]["command"][0])
    made = set(listed.split())
    for file in (ROOT / "dags").glob("*.py"):
        for topic in topics_of(ast.parse(file.read_text())):
            assert topic in made or any(m.startswith(topic) for m in made if topic.endswith(".")), (file.name, topic)
    buckets = {v for n, v in services["airflow"]["environment"].items() if n.endswith("_BUCKET")}
    assert all(f'Bucket="{bucket}"' in services["bucket"]["command"][-1] for bucket in buckets)
    read = {n for file in (ROOT / "dags").glob("*.py") for n in re.findall(r'"(\w+_BUCKET)"', file.read_text())}
    assert read == {n for n in services["airflow"]["environment"] if n.endswith("_BUCKET")}


def topics_of(tree: ast.AST) -> list[str]:
    """The topics that an example names, or the prefix that it looks for."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg == "topics" and not isinstance(node.value, ast.Call):
            found.append(node.value)
        elif isinstance(node, ast.Dict):
            found += [v for k, v in zip(node.keys, node.values, strict=True) if ast.unparse(k or v) == "'topics'"]
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "topics_of":
            found += node.args
    values = [ast.literal_eval(node) for node in found]
    return [topic for value in values for topic in ([value] if isinstance(value, str) else value)]


def test_volumes_are_declared_and_mounts_exist(services: dict[str, Any]) -> None:
    """A misspelt mount would be an empty folder."""
    declared = set(yaml.safe_load((DOCKER / "compose.yaml").read_text())["volumes"])
    sources = {v.split(":")[0] for service in services.values() for v in service.get("volumes", [])}
    assert {s for s in sources if "/" not in s} == declared
    assert all((DOCKER / s).is_dir() for s in sources if "/" in s)
