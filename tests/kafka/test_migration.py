"""The page about the move of a connector: each command as it is written, on a real broker, registry and S3 server."""

from __future__ import annotations

import io
import json
import re
import runpy
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import duckdb
import fastavro
import pytest

from airflow_provider_kafka_s3.batch.request import RunRequest
from airflow_provider_kafka_s3.cli import main
from airflow_provider_kafka_s3.kafka.source import KafkaSource
from airflow_provider_kafka_s3.kafka_connect.convert import convert, layout_of
from airflow_provider_kafka_s3.pipeline import TopicPipeline
from airflow_provider_kafka_s3.registry.client import RegistryClient
from airflow_provider_kafka_s3.registry.settings import RegistrySettings
from airflow_provider_kafka_s3.retry import Retrier
from airflow_provider_kafka_s3.storage.durable import DurableStore
from airflow_provider_kafka_s3.storage.s3 import S3Credentials, S3Settings, S3Store, make_client
from dev.kafka_broker import KafkaBroker, Message
from dev.s3_server import ThreadedS3Server
from dev.schema_registry import SchemaRegistry
from tests.documentation import ROOT, blocks, commands, snippets

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

PAGE: Final = ROOT / "docs" / "migration.md"
START: Final = 1_767_312_000_000  # 2026-01-02T00:00:00Z
COUNTS: Final = {0: 16, 1: 11}
COMMITTED: Final = {0: 12, 1: 6}
LOGIN: Final = ("lander", "canary-of-the-registry")
ORDER: Final = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "order_id", "type": "long"}, {"name": "amount", "type": "double"}],
}


def order(partition: int, offset: int) -> dict[str, Any]:
    """A record."""
    return {"order_id": offset * 2 + partition, "amount": offset / 2}


class Stopped:
    """The connector of the page, which has stopped, and what its commands are run with."""

    def __init__(
        self, broker: KafkaBroker, login: Mapping[str, object], bucket: S3Client, registry: SchemaRegistry
    ) -> None:
        self._broker, self._login, self._bucket = broker, login, bucket
        schema = fastavro.parse_schema(ORDER)
        header = b"\0" + registry.register("orders-value", json.dumps(ORDER)).to_bytes(4, "big")
        # Other tests of this process may have made one of this name, which is the page's.
        if "orders" in broker.admin.list_topics(timeout=30).topics:
            broker.delete_topic("orders")
        broker.create_topic("orders", len(COUNTS))
        for partition, count in COUNTS.items():
            for offset in range(count):
                datum = io.BytesIO()
                fastavro.schemaless_writer(datum, schema, order(partition, offset))
                value = header + datum.getvalue()
                broker.produce("orders", [Message(value, partition=partition, timestamp=START + offset * 1000)])
        # One object of partition 1 was uploaded, and its offset never committed.
        for partition, end in ((0, 12), (1, 9)):
            for first in range(0, end, 3):
                lines = [json.dumps({**order(partition, first + n), "origin": "shop"}) + "\n" for n in range(3)]
                key = f"topics/orders/day=2026-01-02/orders+{partition}+{first:010}.json"
                bucket.put_object(Bucket="lake", Key=key, Body="".join(lines).encode())
        self.set_offsets(COMMITTED)
        settings = RegistrySettings(urls=(registry.url,), user=LOGIN[0], password=LOGIN[1])
        self._registry = RegistryClient(settings)

    def set_offsets(self, offsets: Mapping[int, int]) -> None:
        """Set the offsets of the consumer group, as Connect does, by the login of the connector."""
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer({**self._login, "group.id": "connect-orders-to-s3"})
        positions = [TopicPartition("orders", p, offset) for p, offset in offsets.items()]
        consumer.commit(offsets=positions, asynchronous=False)
        consumer.close()

    def move(self, command: str) -> None:
        """Do what ``aws s3 mv`` does."""
        source, target = (word.removeprefix("s3://lake/") for word in shlex.split(command)[-2:])
        self._bucket.copy_object(Bucket="lake", Key=target, CopySource={"Bucket": "lake", "Key": source})
        self._bucket.delete_object(Bucket="lake", Key=source)

    def land(self, connector: Path) -> None:
        """Run the task of the converted DAG, without Spark."""
        parameters = convert(connector).parameters
        pipeline = TopicPipeline(
            DurableStore(S3Store(self._bucket, "lake"), Retrier()),
            KafkaSource(self._login),
            topics_dir="topics",
            pipeline=parameters["pipeline"],
            topic="orders",
            registry=self._registry,
        )
        pipeline.land(RunRequest(run="first", offsets="incremental", layout=layout_of(parameters), starting="earliest"))

    def download(self, folder: Path) -> None:
        """Copy the objects that readers see."""
        for stored in self._bucket.list_objects_v2(Bucket="lake", Prefix="topics/orders/")["Contents"]:
            path = folder / stored["Key"]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(self._bucket.get_object(Bucket="lake", Key=stored["Key"])["Body"].read())


@pytest.fixture
def stopped(
    kafka_broker: KafkaBroker,
    secured: Mapping[str, Mapping[str, object]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Stopped]:
    """The connector, in a folder with its configuration, and with the connections of the page."""
    with SchemaRegistry(users=dict([LOGIN])) as registry, ThreadedS3Server(buckets=["lake"]) as s3:
        aws = {
            "login": "test",
            "password": "test",
            "extra": {"endpoint_url": s3.endpoint, "region_name": "us-east-1"},
        }
        connections = {
            "KAFKA": {"conn_type": "kafka", "extra": secured["scram"]},
            "AWS": {"conn_type": "aws", **aws},
            "REGISTRY": {"conn_type": "http", "host": registry.url, "login": LOGIN[0], "password": LOGIN[1]},
        }
        for name, connection in connections.items():
            monkeypatch.setenv(f"AIRFLOW_CONN_{name}_DEFAULT", json.dumps(connection))
        monkeypatch.chdir(tmp_path)
        (connector,) = snippets(PAGE, "json")
        Path("connector.json").write_text(connector)
        settings = S3Settings(endpoint_url=s3.endpoint, region="us-east-1")
        client = make_client(settings, S3Credentials(access_key_id="test", secret_access_key="test"))
        yield Stopped(kafka_broker, secured["scram"], client, registry)
        kafka_broker.delete_topic("orders")


def test_a_connector_is_moved_and_moved_back_by_the_commands_of_the_page(
    stopped: Stopped, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Outputs are those of the page, each record is in the visible objects once, and so goes on the connector."""
    given = iter(
        [
            words[1:]
            for block in blocks(PAGE)
            if block.language == "sh"
            for words in commands(block.code)
            if words[0] == "kafka-s3"
        ]
    )

    def run(name: str, *codes: int) -> str:
        arguments = next(given)
        assert arguments[0] == name
        capsys.readouterr()
        code = main.main(arguments)
        output = capsys.readouterr()
        assert code in (codes or (0,)), output.out + output.err
        return re.sub(r" --endpoint-url \S+", "", output.out)

    (query,) = snippets(PAGE, "sql")
    dag, make_offsets = snippets(PAGE, "python")
    warnings, dry_run, applied, landed = snippets(PAGE, "text")
    (moves,) = [code for code in snippets(PAGE, "sh") if code.startswith("aws s3 mv")]

    converted = run("convert")
    assert converted.startswith(dag)
    assert warnings in converted
    # It also checks Java and pyspark of this machine.
    assert "ok       conditional writes" in run("doctor", 0, 1)
    printed = run("takeover", 1)
    assert printed == dry_run
    assert moves == "".join(line + "\n" for line in printed.splitlines() if line.startswith("aws "))
    for move in moves.splitlines():
        stopped.move(move)
    assert run("takeover") == applied
    stopped.land(Path("connector.json"))
    assert re.sub(r"(planned by\n.*  )\S.*", r"\1…", run("status")) + run("verify") == landed

    stopped.download(tmp_path)
    rows = duckdb.sql(query.replace("s3://lake/", f"{tmp_path}/")).fetchall()
    expected = [order(p, offset) for p, count in COUNTS.items() for offset in range(count)]
    assert sorted(rows) == sorted((one["order_id"], one["amount"], "shop") for one in expected)

    Path("status.json").write_text(run("status"))
    Path("offsets.py").write_text(make_offsets)
    capsys.readouterr()
    runpy.run_path("offsets.py")
    offsets = json.loads(capsys.readouterr().out)["offsets"]
    assert {one["partition"]["kafka_topic"] for one in offsets} == {"orders"}
    assert {one["partition"]["kafka_partition"]: one["offset"]["kafka_offset"] for one in offsets} == COUNTS
    assert list(given) == []
