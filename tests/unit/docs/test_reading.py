"""The DuckDB statements of docs/reading.md, on objects that the package wrote."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import duckdb
import pytest

from airflow_provider_kafka_s3.batch.commit import Committer
from airflow_provider_kafka_s3.batch.encode import object_builder
from airflow_provider_kafka_s3.batch.execute import execute
from airflow_provider_kafka_s3.batch.log import TopicLog
from airflow_provider_kafka_s3.batch.request import RunRequest, TopicResult
from airflow_provider_kafka_s3.batch.run import TopicRun
from airflow_provider_kafka_s3.config import Format, Layout, Partitioner
from airflow_provider_kafka_s3.retry import Retrier
from airflow_provider_kafka_s3.storage.durable import DurableStore
from airflow_provider_kafka_s3.storage.memory import MemoryStore
from airflow_provider_kafka_s3.storage.port import ObjectStore
from airflow_provider_kafka_s3.testing.kafka import SimulatedKafka
from airflow_provider_kafka_s3.testing.stores import Fault, FaultyStore, SimulatedCrash
from tests.documentation import ROOT, snippets

TOPIC: Final = "orders"
HOUR_MS: Final = 3_600_000
START_MS: Final = 1_767_312_000_000
"""2026-01-02T00:00:00Z."""
LAYOUT: Final = Layout(format=Format(kind="json", compression="gzip"), partitioner=Partitioner(kind="hourly"))


class Lake:
    """A process that lands a topic in a bucket."""

    def __init__(self, store: ObjectStore, kafka: SimulatedKafka) -> None:
        self.kafka, self.store = kafka, store
        durable = DurableStore(store, Retrier())
        topic_log = TopicLog(durable, topics_dir=LAYOUT.topics_dir, pipeline="orders", topic=TOPIC)
        self.committer = Committer(topic_log, self.kafka, object_builder(durable))

    def produce(self, hour: int, records: int) -> None:
        """Orders of one hour, to both partitions in turn."""
        for n in range(records):
            value = json.dumps({"order_id": hour * 100 + n, "amount": 2.5}).encode()
            self.kafka.append(TOPIC, n % 2, value, START_MS + hour * HOUR_MS + n)

    def land(self, run: str) -> None:
        """Land what is new."""
        request = RunRequest(run=run, mode="incremental", layout=LAYOUT, starting="earliest")
        attempt = TopicRun(self.committer, request)
        while not isinstance(plan := attempt.advance(), TopicResult):
            execute(self.committer, plan, run=run)


@pytest.fixture
def lake() -> Lake:
    """A topic of two partitions, landed in two batches: two hours, and one more."""
    kafka = SimulatedKafka()
    kafka.create_topic(TOPIC, 2)
    lake = Lake(MemoryStore(), kafka)
    lake.produce(0, 10)
    lake.produce(1, 6)
    lake.land("first")
    lake.produce(2, 4)
    lake.land("second")
    return lake


@pytest.fixture
def database() -> Iterator[duckdb.DuckDBPyConnection]:
    """An empty database in memory."""
    with duckdb.connect() as connection:
        yield connection


def statements(section: str, lake: Lake, folder: Path) -> list[str]:
    """The statements of a section, about the files of a folder in place of the bucket, which are written there."""
    page = (ROOT / "docs" / "reading.md").read_text()
    text = folder / "section.md"
    text.write_text(page.split(f"# {section}\n")[1].split("\n#")[0])
    for info in lake.store.list(""):
        stored = lake.store.get(info.key)
        assert stored is not None
        path = folder / info.key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(stored.body)
    return [code.replace("s3://lake/", f"{folder}/") for code in snippets(text, "sql")]


def test_duckdb_reads_records_by_folder_and_tells_partition_and_offset(
    lake: Lake, database: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    """The view has every record once; the file names have where each object begins in Kafka."""
    credentials, view, by_hour, by_object = statements("DuckDB", lake, tmp_path)
    assert "CREATE SECRET" in credentials
    database.execute(view)
    assert database.sql("SELECT count(*), count(DISTINCT order_id) FROM orders").fetchall() == [(20, 20)]
    assert database.sql(by_hour).fetchall() == [(0, 10, 25.0), (1, 6, 15.0), (2, 4, 10.0)]
    assert database.sql(by_object).fetchall() == [(p, o, n) for p in (0, 1) for o, n in ((0, 5), (5, 3), (8, 2))]


def test_duckdb_reads_whole_batches_by_their_manifests(
    lake: Lake, database: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    """A batch whose process died while it completed its objects is left out, and so are those that it completed."""
    before = len(list(lake.store.list("topics/orders/")))
    lake.produce(3, 2)
    dying = FaultyStore(lake.store)
    dying.inject(Fault.CRASH_AFTER, operation="complete_upload")
    with pytest.raises(SimulatedCrash):
        Lake(dying, lake.kafka).land("third")
    assert len(list(lake.store.list("topics/orders/"))) > before
    view, query = statements("Whole batches", lake, tmp_path)
    database.execute(view)
    counted = database.sql("SELECT batch, count(*), sum(records) FROM batches GROUP BY batch ORDER BY batch")
    assert counted.fetchall() == [(1, 4, 16), (2, 2, 4)]
    names, total = query.split(";\n")[:2]
    database.execute(names)
    assert database.sql(total).fetchall() == [(20,)]
