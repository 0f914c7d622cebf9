"""A bucket of DeviantArt's sink, taken over by the command line and landed by Spark: real Kafka, S3 over HTTP."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_kafka_s3.cli import main
from airflow_provider_kafka_s3.kafka_connect.convert import convert, layout_of
from dev.kafka_broker import KafkaBroker, Message
from tests.deviantart_sink import blocks_of, next_offset_of_their_recovery, sink_objects
from tests.spark.pipeline import CREDENTIALS, MakePipeline, Pipeline
from tests.unit.kafka_connect.connectors import DEVIANTART

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# pyspark leaves sockets open until they are garbage-collected.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

JAN_31 = 1_769_817_600_000
"""2026-01-31, 00:00 UTC."""
HOUR = 3_600_000
PREFIX = "backup/"


def take_over(
    pipeline: Pipeline, connector: Path, capsys: pytest.CaptureFixture[str], *more: str, code: int = 0
) -> dict[int, int]:
    """Run the command; returns per partition where the pipeline begins."""
    line = [
        *("takeover", str(connector), "--bucket", pipeline.bucket, "--json"),
        *("--bootstrap-server", str(pipeline.kafka["bootstrap.servers"])),
        *("--endpoint-url", pipeline.endpoint, "--region", "us-east-1", *more),
    ]
    capsys.readouterr()
    assert main.main(line) == code
    (topic,) = json.loads(capsys.readouterr().out)["topics"]
    return {one["partition"]: one["start"] for one in topic["partitions"]}


def test_a_bucket_of_the_sink_is_taken_over_and_goes_on_exactly_once(
    spark: SparkSession,
    kafka_broker: KafkaBroker,
    make_topic: Any,
    make_pipeline: MakePipeline,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Offsets have gaps; its objects stay, each record is there once, and all blocks are read by index and by Java."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", CREDENTIALS.access_key_id)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", str(CREDENTIALS.secret_access_key))
    topic = make_topic(3)

    def messages(first: int, last: int) -> list[Message]:
        """Records of two partitions, one for each hour."""
        return [Message(b"%d of %d" % (n, p), None, p, JAN_31 + n * HOUR) for n in range(first, last) for p in (0, 1)]

    kafka_broker.produce_transaction(topic, messages(0, 16))
    kafka_broker.produce(topic, messages(16, 32))
    connector = {**DEVIANTART, "name": "p", "topics": topic, "s3.prefix": PREFIX, "compressed_block_size": "50"}
    (tmp_path / "connector.json").write_text(json.dumps(connector))
    pipeline = make_pipeline(layout=layout_of(convert(connector).parameters), name="p")

    # The sink has uploaded 18 of 32 records of partition 0 in two flushes, 7 of partition 1, and none of partition 2.
    theirs: dict[str, bytes] = {}
    for partition, flushes in {0: [(0, 12), (12, 18)], 1: [(0, 7)]}.items():
        # The mark of the transaction has offset 16.
        records = [(n + (n >= 16), f"{n} of {partition}") for n in range(32)]
        for first, last in flushes:
            theirs |= sink_objects(PREFIX, "2026-02-07", topic, partition, records[first:last], block_size=50)
    for key, body in theirs.items():
        pipeline.client.put_object(Bucket=pipeline.bucket, Key=key, Body=body)
    assert next_offset_of_their_recovery(theirs, PREFIX, topic, 0) == 18

    assert take_over(pipeline, tmp_path / "connector.json", capsys) == {0: 19, 1: 7, 2: 0}
    assert pipeline.bodies() == theirs
    assert take_over(pipeline, tmp_path / "connector.json", capsys, "--apply") == {0: 19, 1: 7, 2: 0}
    pipeline.land(spark, topic, run="first")
    kafka_broker.produce(topic, messages(32, 44))
    pipeline.land(spark, topic, run="second")
    assert take_over(pipeline, tmp_path / "connector.json", capsys, "--apply") == {0: 19, 1: 7, 2: 0}

    assert pipeline.check(topic, recovered=True).records == 26 + 37
    found = pipeline.bodies(PREFIX)
    assert {key: body for key, body in found.items() if "last_chunk" not in key}.items() >= {
        (key, body) for key, body in theirs.items() if "last_chunk" not in key
    }
    lines: Counter[bytes] = Counter()
    for block in blocks_of(found, PREFIX):
        assert block.topic == topic
        assert block.end is None or block.end >= block.first + block.count
        assert next(int(line.split()[0]) for line in block.lines) == block.first - (block.first > 16)
        lines.update(block.lines)
    assert lines == Counter(b"%d of %d" % (n, p) for n in range(44) for p in (0, 1))

    for partition in (0, 1):
        newest = found[f"{PREFIX}last_chunk_index.{topic}-{partition:05d}.txt"].decode()
        assert newest.startswith(f"{PREFIX}2026-02-01/{topic}-{partition:05d}-")
        # The last record of 44 is at offset 44, behind the mark.
        assert json.loads(found[newest])["chunks"][-1]["next_record_offset"] == 45
    assert f"{PREFIX}last_chunk_index.{topic}-00002.txt" not in found

    java, by_java = spark.sparkContext._jvm.java, b""  # type: ignore[union-attr]
    for number, (key, body) in enumerate(found.items()):
        if key.endswith(".gz"):
            file = tmp_path / f"{number}.gz"
            file.write_bytes(body)
            stream = java.util.zip.GZIPInputStream(java.io.FileInputStream(str(file)))
            by_java += bytes(stream.readAllBytes())
            stream.close()
    assert Counter(by_java.splitlines()) == lines
