"""What a new user does, in an environment with nothing but the wheel: a DAG lands topics of a real broker."""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Self

from airflow_provider_kafka_s3.kafka.source import KafkaSource
from airflow_provider_kafka_s3.storage.s3 import S3Credentials, S3Settings, S3Store, make_client
from airflow_provider_kafka_s3.testing.invariants import check_bucket, read_source
from dev.airflow_connections import connection_variables, kafka_connection, s3_connection
from dev.airflow_home import SPARK_JARS, AirflowHome, spark_defaults
from dev.kafka_broker import KafkaBroker, Message
from dev.s3_server import ThreadedS3Server

__all__ = ["Servers", "landing_problems"]

DAG: Final = "kafka_to_s3_hourly"
"""An example: two topics by one Spark job."""
_TOPICS: Final = ("orders", "payments")
_PIPELINE: Final = "shop"
_RECORDS: Final = 50


class Servers:
    """A broker with records of the example's topics, and an S3 server with a bucket for each landing."""

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        self.broker = self._stack.enter_context(KafkaBroker())
        self.s3 = self._stack.enter_context(ThreadedS3Server())
        for topic in _TOPICS:
            self.broker.create_topic(topic, 2)
            self.broker.produce(topic, [Message(b'{"n": %d}' % n, partition=n % 2) for n in range(_RECORDS)])
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    def new_bucket(self, name: str) -> S3Store:
        """An empty bucket."""
        settings = S3Settings(endpoint_url=self.s3.endpoint, region="us-east-1", addressing_style="path")
        client = make_client(settings, S3Credentials(access_key_id="a", secret_access_key="b"))
        client.create_bucket(Bucket=name)
        return S3Store(client, name)


def landing_problems(python: Path, version: str, folder: Path, examples: Path, servers: Servers) -> list[str]:
    """What does not work in an environment; it lands the topics once, and once more, which writes nothing.

    Args:
        python: the interpreter of the environment.
        version: the version of this package that it has to have.
        folder: an existing empty folder; the caller removes it.
        examples: folder of the example DAGs.
        servers: the broker and the S3 server.
    """
    return list(_problems(python, version, folder, examples, servers))


def _problems(python: Path, version: str, folder: Path, examples: Path, servers: Servers) -> Iterator[str]:
    bucket = re.sub(r"[^a-z0-9]+", "-", folder.name.lower())
    store = servers.new_bucket(bucket)
    connections = {
        "kafka_default": kafka_connection({"bootstrap.servers": servers.broker.bootstrap_servers}),
        "aws_default": s3_connection(servers.s3.endpoint, "a", "b"),
        "spark_default": {"conn_type": "spark", "host": "local[2]"},
    }
    spark = ".".join(_output(python, "import pyspark; print(pyspark.__version__)").split(".")[:2])
    # The connector comes from local jars by Spark's settings: not every registry has all its parts.
    defaults = spark_defaults(folder / "spark", SPARK_JARS.parent / f"spark-{spark}")
    (folder / "dags").mkdir()
    shutil.copy(examples / f"{DAG}.py", folder / "dags")
    (folder / "airflow").mkdir()
    home = AirflowHome(
        folder / "airflow",
        folder / "dags",
        environment={**connection_variables(connections), **defaults, "KAFKA_TO_S3_BUCKET": bucket},
        python=python,
    )
    home.migrate()

    _, listed = home.run(["providers", "list", "--output", "plain"])
    if not re.search(rf"^airflow-provider-kafka-s3\s.*\s{re.escape(version)}\s*$", listed, re.MULTILINE):
        yield f"airflow providers list does not have version {version} of this provider; see its output:\n{listed}"
    for attempt in ("landing", "landing again"):
        run = home.test(DAG)
        if not run.succeeded:
            yield f"{attempt} by airflow dags test {DAG} failed; see its output:\n{run.output}"
            return
    if run.java_starts:
        yield f"a second run of {DAG} started Java, though it had nothing to land; see its output:\n{run.output}"
    source = KafkaSource({"bootstrap.servers": servers.broker.bootstrap_servers})
    for topic in _TOPICS:
        landed = check_bucket(
            store,
            topics_dir="topics",
            pipeline=_PIPELINE,
            topic=topic,
            source=read_source(source, topic),
            recovered=True,
        ).records
        if landed != _RECORDS:
            yield f"{landed} of {_RECORDS} records of topic {topic} landed"


def _output(python: Path, code: str) -> str:
    return subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=True).stdout.strip()
