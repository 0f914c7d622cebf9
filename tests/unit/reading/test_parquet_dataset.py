"""Committed Parquet as a dataset of Arrow, and the list of files for DuckDB."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import pyarrow.compute as pc
import pytest

from airflow_provider_kafka_s3.config import Hourly, JsonConverter, JsonLines, Layout, Parquet
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.reading import Snapshot, arrow_dataset
from airflow_provider_kafka_s3.retry import Retrier
from airflow_provider_kafka_s3.storage.durable import DurableStore
from airflow_provider_kafka_s3.testing.stores import FaultyStore
from tests.unit.batch.simulated_topic import Topic

FIELDS = [{"name": "n", "type": "long"}, {"name": "text", "type": "string"}]
TYPED = JsonConverter(schema=json.dumps({"type": "record", "name": "Row", "fields": FIELDS}))
START = 1_767_312_000_000


def landed(rows: int = 6) -> Topic:
    """Rows in two hours, and an object of no batch in one of them."""
    topic = Topic(Layout(topics_dir="lake", format=Parquet(), value_converter=TYPED, partitioner=Hourly()))
    for n in range(rows):
        topic.append(json.dumps({"n": n, "text": "x" * 1000}).encode(), timestamp=START + n % 2 * 3_600_000)
    topic.land()
    (key, body), *_ = topic.objects().items()
    topic.bucket.put_new(key.replace("orders+0+", "orders+9+"), body)
    return topic


def test_a_dataset_has_exactly_the_committed_rows_and_their_folders() -> None:
    """Also filtered by a folder and by a field."""
    dataset = arrow_dataset(Snapshot(landed().pipeline.log))
    assert sorted(dataset.to_table(columns=["n"]).column("n").to_pylist()) == [*range(6)]
    hour = dataset.to_table(columns=["n", "hour"], filter=(pc.field("hour") == 1) & (pc.field("n") > 1))
    assert sorted(hour.to_pylist(), key=str) == [{"n": 3, "hour": 1}, {"n": 5, "hour": 1}]


def test_one_column_of_one_folder_takes_few_requests() -> None:
    """Objects of other folders are not opened, and other columns not read."""
    topic = landed(2_000)
    store = FaultyStore(topic.bucket)
    log = topic.pipeline.log
    log.store = DurableStore(store, Retrier())
    dataset = arrow_dataset(Snapshot(log))
    store.requests.clear()
    assert dataset.to_table(columns=["n"], filter=pc.field("hour") == 0).num_rows == 1_000
    assert len(store.requests) <= 6


def test_duckdb_reads_the_list_of_objects(tmp_path: Path) -> None:
    """Only the committed ones."""
    topic = landed()
    for key, body in topic.objects().items():
        file = tmp_path / key
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(body)
    files = [url.replace("s3://memory", str(tmp_path)) for url in Snapshot(topic.pipeline.log).urls()]
    with duckdb.connect() as database:
        found = database.execute("SELECT n FROM read_parquet(?) ORDER BY n", [files]).fetchall()
    assert found == [(n,) for n in range(6)]


def test_what_is_no_parquet_is_refused() -> None:
    """With the object, or that there is none."""
    topic = Topic(Layout(topics_dir="lake", format=JsonLines()))
    with pytest.raises(ConfigurationError, match="there is no object"):
        arrow_dataset(Snapshot(topic.pipeline.log))
    topic.append(b"{}")
    topic.land()
    with pytest.raises(
        ConfigurationError, match=r"orders\+0\+0000000000\.json is JsonLines\. Read it by arrow_batches"
    ):
        arrow_dataset(Snapshot(topic.pipeline.log))
