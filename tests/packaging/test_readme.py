"""The steps of the README: install, connections, the DAG, and the command that an error prints."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import venv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from airflow_provider_kafka_s3.kafka.source import KafkaSource
from airflow_provider_kafka_s3.storage.s3 import S3Credentials, S3Settings, S3Store, make_client
from airflow_provider_kafka_s3.testing.invariants import check_bucket, read_source
from dev.airflow_home import SPARK_JARS, AirflowHome, spark_defaults
from dev.kafka_broker import KafkaBroker, Message
from dev.s3_server import ThreadedS3Server
from tests.documentation import README, ROOT, snippets

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

AIRFLOW: Final = ".".join(version("apache-airflow").split(".")[:2])
TOPICS: Final = ("orders", "refunds")
BUCKET: Final = "lake"
RECORDS: Final = 50

# uv installs the same as pip, from its cache in seconds, and downloads only what the cache lacks.
PIP: Final = """#!/bin/sh
'{uv}' pip "$@" --quiet --offline 2>/dev/null || '{uv}' pip "$@" --quiet --system-certs
"""


@dataclass(frozen=True)
class Output:
    """The exit code of a shell, and both of its outputs as one text."""

    code: int
    text: str


class Shell:
    """A shell in the environment of a new user, beside a checkout with the built wheel.

    Attributes:
        bucket: a client, to damage the bucket.
        store: the bucket.
    """

    def __init__(self, folder: Path, environment: dict[str, str], endpoint: str) -> None:
        self._folder = folder
        self._environment = environment
        settings = S3Settings(endpoint_url=endpoint, region="us-east-1", addressing_style="path")
        self.bucket: S3Client = make_client(settings, S3Credentials(access_key_id="a", secret_access_key="b"))
        self.store = S3Store(self.bucket, BUCKET)

    def run(self, script: str) -> Output:
        """Run some lines in a shell, which stops at the first that fails."""
        done = subprocess.run(
            ["/bin/bash", "-euo", "pipefail", "-c", script],
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        return Output(done.returncode, done.stdout)

    def succeed(self, script: str) -> str:
        """Run some lines that must not fail; return their output."""
        output = self.run(script)
        assert output.code == 0, f"{script}\n{output.text}"
        return output.text


@pytest.fixture(scope="module")
def lines() -> Sequence[str]:
    """The shell commands of the README, one per line."""
    blocks = "".join(snippets(README, "sh"))
    return blocks.replace("\\\n", " ").splitlines()


@pytest.fixture(scope="module")
def own_broker() -> Iterator[KafkaBroker]:
    """A broker without topics, since other tests use the README's names too."""
    with KafkaBroker() as broker:
        yield broker


@pytest.fixture(scope="module")
def new_user(
    wheel: Path, lines: Sequence[str], own_broker: KafkaBroker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Shell]:
    """An environment made by the README's lines, with connections in the database of its Airflow, and its DAG."""
    checkout, programs = tmp_path_factory.mktemp("checkout"), tmp_path_factory.mktemp("programs")
    environment = tmp_path_factory.mktemp("environment")
    # The wheel comes from the same command, without a registry.
    assert "pip install build && python -m build --wheel" in lines
    (checkout / "dist").mkdir()
    shutil.copy(wheel, checkout / "dist")
    shutil.copytree(ROOT / "requirements", checkout / "requirements")
    (uv,) = (ROOT / ".build").glob("uv-*/bin/uv")
    (programs / "pip").write_text(PIP.format(uv=uv))
    (programs / "pip").chmod(0o755)
    venv.create(environment, symlinks=True)
    # The connector comes from local jars by Spark's settings, since not every registry has all its parts.
    defaults = spark_defaults(tmp_path_factory.mktemp("spark"), _jars(lines))
    home = AirflowHome(tmp_path_factory.mktemp("airflow"), tmp_path_factory.mktemp("dags"), environment=defaults)
    path = f"{programs}:{environment / 'bin'}:{os.environ['PATH']}"
    with ThreadedS3Server(buckets=[BUCKET]) as s3:
        shell = Shell(checkout, home.environment | {"VIRTUAL_ENV": str(environment), "PATH": path}, s3.endpoint)
        shell.succeed(_line_to_install(lines))
        connections = "\n".join(line for line in lines if line.startswith(("airflow db ", "airflow connections ")))
        here = connections.replace("localhost:9092", own_broker.bootstrap_servers)
        shell.succeed(here.replace("http://localhost:7070", s3.endpoint))
        (dag,) = snippets(README, "python")
        dags = Path(home.environment["AIRFLOW__CORE__DAGS_FOLDER"])
        (dags / "orders.py").write_text(dag)
        yield shell


def _line_to_install(lines: Sequence[str]) -> str:
    """The README's line for this Airflow."""
    (line,) = [line for line in lines if line.startswith("pip install --constraint ")]
    locks = re.findall(r"requirements/[\w.-]+\.lock", README.read_text())
    (lock,) = {name for name in locks if f"apache-airflow=={AIRFLOW}." in (ROOT / name).read_text()}
    return line.replace(locks[0], lock)


def _jars(lines: Sequence[str]) -> Path:
    """Folder of the connector of the Spark that the README installs."""
    (lock,) = re.findall(r"requirements/[\w.-]+\.lock", _line_to_install(lines))
    (found,) = re.findall(r"^pyspark==(\d+\.\d+)", (ROOT / lock).read_text(), re.MULTILINE)
    return SPARK_JARS.parent / f"spark-{found}"


def _remedies(text: str) -> list[str]:
    """The first command line that an error prints for each topic."""
    first: dict[str, str] = {}
    for command in re.findall(r"`(kafka-s3 [^`]+)`", text):
        words = shlex.split(command)
        first.setdefault(words[words.index("--topic") + 1], command)
    return list(first.values())


def _landed(shell: Shell, own_broker: KafkaBroker) -> list[int]:
    """Records of each topic in the bucket, each of which is in exactly one object."""
    source = KafkaSource({"bootstrap.servers": own_broker.bootstrap_servers})
    return [
        check_bucket(
            shell.store,
            topics_dir="topics",
            pipeline="orders",
            topic=topic,
            source=read_source(source, topic),
            recovered=True,
        ).records
        for topic in TOPICS
    ]


@pytest.mark.any_airflow
@pytest.mark.timeout(1200)  # an environment, Spark, and a dozen commands each of which imports Airflow
def test_a_new_user_lands_topics_and_repairs_them_by_the_commands_in_errors(
    new_user: Shell, own_broker: KafkaBroker
) -> None:
    """An object and a marker are gone: the task prints commands, which are run as printed; the next run succeeds."""
    for topic in TOPICS:
        own_broker.create_topic(topic, 2)
        own_broker.produce(topic, [Message(b'{"n": %d}' % n, partition=n % 2) for n in range(RECORDS)])

    new_user.succeed("airflow dags test orders")
    assert _landed(new_user, own_broker) == [RECORDS, RECORDS]

    gone = next(iter(new_user.store.list("topics/orders/"))).key
    for key in (gone, "topics/_kafka_s3/orders/refunds/marker.json"):
        new_user.bucket.delete_object(Bucket=BUCKET, Key=key)
    failed = new_user.run("""airflow dags test orders --conf '{"kafka_s3": {"action": "verify"}}'""")
    assert failed.code != 0, failed.text
    assert gone in failed.text

    remedies = _remedies(failed.text)
    assert len(remedies) == len(TOPICS), failed.text
    for command in remedies:
        new_user.succeed(command)
    assert _landed(new_user, own_broker) == [RECORDS, RECORDS]
    new_user.succeed("airflow dags test orders")
    assert _landed(new_user, own_broker) == [RECORDS, RECORDS]


def test_the_doctor_finds_nothing_wrong_in_the_environment_of_the_readme(new_user: Shell, lines: Sequence[str]) -> None:
    """It reads the connections of the database, Kafka and S3 answer, and pyspark is one version."""
    where = "--bucket lake --aws-conn-id aws_default --kafka-conn-id kafka_default"
    jars = ",".join(map(str, sorted(_jars(lines).glob("*.jar"))))
    output = new_user.succeed(f"kafka-s3 doctor {where} --jars '{jars}'")
    assert "ERROR" not in output
    assert "is complete" in output
