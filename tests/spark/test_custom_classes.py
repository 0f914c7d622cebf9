"""Partitioners and formats of another package on Spark: its workers have it by ``py_files`` alone."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from airflow_provider_kafka_s3.config import (
    Chain,
    CustomFormat,
    CustomPartitioner,
    Daily,
    JsonConverter,
    JsonLines,
    Layout,
)
from airflow_provider_kafka_s3.spark.spec import ConnectServer
from airflow_provider_kafka_s3.submit.connect_job import ConnectJob
from dev.kafka_broker import KafkaBroker, Message
from dev.spark_connect import SparkConnectServer
from tests.outside.shelf import packed
from tests.spark.pipeline import MakePipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# pyspark leaves the socket for the rows of collect() open until it is garbage-collected.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

BATCH_SIZE = "spark.sql.execution.arrow.maxRecordsPerBatch"
DAY = 86_400_000


@pytest.fixture
def on_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The zip file of the package, which this process can import, as the task on the Airflow worker can."""
    package = packed(tmp_path)
    monkeypatch.syspath_prepend(package)
    yield package
    for name in [name for name in sys.modules if name.partition(".")[0] == "shelf_layouts"]:
        del sys.modules[name]


def test_workers_use_classes_that_py_files_ship(
    spark: SparkSession,
    kafka_broker: KafkaBroker,
    make_topic: Callable[[int], str],
    make_pipeline: MakePipeline,
    on_worker: Path,
) -> None:
    """Without it nothing is landed, and the error names the class; with it objects are those of this process."""
    topic = make_topic(2)
    sent = [
        Message(
            json.dumps({"tenant": f"t{n % 3}", "n": n}).encode(),
            key=f"k{n}".encode(),
            partition=n % 2,
            timestamp=1_700_000_000_000 + n % 4 * DAY,
        )
        for n in range(200)
    ]
    kafka_broker.produce(topic, sent)
    tenants = CustomPartitioner(
        import_path="shelf_layouts.tenants:TenantPartitioner", options={"tiers": {"t1": "gold"}}
    )
    layout = Layout(
        format=CustomFormat(import_path="shelf_layouts.lengths:WholeRecords", extension=".txt", compression="gzip"),
        value_converter=JsonConverter(),
        partitioner=Chain(partitioners=(tenants, Daily())),
    )
    pipeline = make_pipeline(layout=layout)
    outcome = pipeline.execute(spark, topic, run="run")[topic]
    assert outcome.kind == "configuration"
    assert "import_path='shelf_layouts" in str(outcome.message)
    assert "cannot be imported in" in str(outcome.message)
    assert pipeline.data_keys() == []

    # What --py-files does when a session begins.
    spark.sparkContext.addPyFile(str(on_worker))
    usual = spark.conf.get(BATCH_SIZE)
    try:
        spark.conf.set(BATCH_SIZE, "7")
        assert pipeline.land(spark, topic)[0].status == "ok"
    finally:
        spark.conf.set(BATCH_SIZE, usual)
        for path in [path for path in sys.path if path.endswith(on_worker.name) and path != str(on_worker)]:
            sys.path.remove(path)
    rows = [json.loads(line) for line in pipeline.lines().elements()]
    assert sorted((row["key"], row["value"]) for row in rows) == sorted(
        (m.key.decode(), m.value.decode()) for m in sent
    )
    assert {key.split("/")[2] for key in pipeline.data_keys()} == {"shelf=gold", "shelf=other"}
    assert len(pipeline.data_keys()) == 12

    here = make_pipeline(layout=layout)
    assert here.land_here(topic).status == "ok"
    assert here.bodies() == pipeline.bodies()


def test_a_connect_server_uses_classes_that_py_files_ship(
    connect_server: SparkConnectServer,
    kafka_broker: KafkaBroker,
    make_topic: Callable[[int], str],
    make_pipeline: MakePipeline,
    on_worker: Path,
    tmp_path: Path,
) -> None:
    """The driver adds them to the session; without them nothing is landed, and the error names the class."""
    topic = make_topic(1)
    kafka_broker.produce(topic, [Message(b"{}", key=b"k"), Message(b"{}", headers=[("region", b"eu")])])
    regions = CustomPartitioner(import_path="shelf_layouts.tenants:RegionPartitioner")
    pipeline = make_pipeline(layout=Layout(format=JsonLines(), partitioner=regions))
    spec = pipeline.spec({topic: pipeline.plan(topic, "run")}, "run", tmp_path / "result.json")
    job = ConnectJob({}, logging.getLogger(__name__))
    for files, status in (((), "error"), ((str(on_worker),), "decided")):
        connect = ConnectServer(url=connect_server.url, py_files=files)
        outcome = job.run(msgspec.structs.replace(spec, connect=connect))
        assert outcome.result is not None, outcome.output
        (landed,) = outcome.result.topics
        assert landed.status == status, landed
        assert ("cannot be imported in" in str(landed.message)) == (status == "error")
    folders = {key.split("/")[2] for key in pipeline.data_keys()}
    assert folders == {"region=unknown", "region=eu"}
