"""Committed Parquet as a dataset of Arrow, and the list of files for DuckDB."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from airflow_provider_kafka_s3.config import (
    ByField,
    ByKey,
    ByPartition,
    Chain,
    Daily,
    Hourly,
    JsonConverter,
    JsonLines,
    Layout,
    Naming,
    Parquet,
)
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


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("long", [1, -5_000_000_000]),
        ("string", ["001", "1"]),
        ("string", ["North", "north"]),
        ("string", ["x" * 300, "__HIVE_DEFAULT_PARTITION__"]),
        (["null", "string"], [None, ""]),
        ("boolean", [True, False]),
    ],
    ids=str,
)
def test_a_field_that_is_a_folder_as_well_is_read_from_the_files(kind: Any, values: list[Any]) -> None:
    """Folders have its values as text, in lower case, cut or escaped; the columns are those of `Snapshot.schema`."""
    fields = [{"name": "f", "type": kind}, {"name": "n", "type": "long"}]
    topic = Topic(
        Layout(
            topics_dir="lake",
            format=Parquet(),
            value_converter=JsonConverter(schema=json.dumps({"type": "record", "name": "Row", "fields": fields})),
            partitioner=ByField(names=("f",)),
            naming=Naming(lowercase_paths=True),
        )
    )
    rows = [{"f": value, "n": n} for n, value in enumerate(values * 2)]
    topic.append(*(json.dumps(row).encode() for row in rows))
    topic.land()
    snapshot = Snapshot(topic.pipeline.log)
    for schema in (None, snapshot.schema()):
        dataset = arrow_dataset(snapshot, schema=schema)
        assert dataset.schema == snapshot.schema()
        assert dataset.to_table().sort_by("n").to_pylist() == rows
        if values[0] is not None:
            found = dataset.to_table(filter=pc.field("f") == values[0]).sort_by("n").to_pylist()
            assert found == [row for row in rows if row["f"] == values[0]]


def test_folders_have_the_types_of_a_given_schema_or_of_all_their_values() -> None:
    """An object without such a folder has null, and a value of another type is refused."""
    topic = landed(2)
    for run, partitioner in enumerate((Daily(), ByPartition())):
        topic.layout = Layout(topics_dir="lake", format=Parquet(), value_converter=TYPED, partitioner=partitioner)
        topic.append(json.dumps({"n": 2 + run, "text": "x"}).encode(), timestamp=START)
        topic.land(f"run-{run}")
    snapshot = Snapshot(topic.pipeline.log)
    found = arrow_dataset(snapshot)
    names = ("year", "month", "day", "hour", "partition")
    assert {name: found.schema.field(name).type for name in names} == dict.fromkeys(names, pa.int32())
    expected = [(0, 0, None), (1, 1, None), (2, None, None), (3, None, 0)]
    table = found.to_table(columns=["n", "hour", "partition"]).sort_by("n")
    assert [(row["n"], row["hour"], row["partition"]) for row in table.to_pylist()] == expected
    assert found.to_table(columns=["n"], filter=pc.field("hour").is_null()).num_rows == 2

    texts = pa.schema([("n", pa.int64()), ("hour", pa.string())])
    table = arrow_dataset(snapshot, schema=texts).to_table(filter=pc.field("hour") == "01")
    assert table.to_pylist() == [{"n": 1, "hour": "01"}]
    with pytest.raises(ConfigurationError, match=r"folder hour=00 of s3://\S+ is no date32\[day\]: .*such as string"):
        arrow_dataset(snapshot, schema=pa.schema([("hour", pa.date32())]))


@pytest.mark.parametrize("keys", [[b"007", b"7"], [b"007"], [b"-0", b"0"], [b"00"], [b"\xd9\xa7", b"7"]], ids=str)
@pytest.mark.parametrize("partitioner", [ByKey(), Chain(partitioners=(Daily(), ByKey()))], ids=["key", "day and key"])
def test_keys_that_are_no_canonical_numbers_are_texts(keys: list[bytes], partitioner: Any) -> None:
    """007 and 7 are two keys; the month 01 in a folder beside them is a number."""
    topic = Topic(Layout(topics_dir="lake", format=Parquet(), value_converter=TYPED, partitioner=partitioner))
    for n, key in enumerate(keys):
        topic.append(json.dumps({"n": n, "text": "x"}).encode(), key=key, timestamp=START)
    topic.land()
    table = arrow_dataset(Snapshot(topic.pipeline.log)).to_table().sort_by("n")
    assert table.column("key").to_pylist() == [key.decode() for key in keys]
    assert "month" not in table.column_names or table.schema.field("month").type == pa.int32()


def test_fields_that_are_canonical_numbers_are_numbers() -> None:
    """As readers of Hive's folders take them."""
    topic = Topic(Layout(topics_dir="lake", format=Parquet(), value_converter=TYPED, partitioner=ByKey()))
    for n, key in enumerate((b"0", b"-12", b"2147483647")):
        topic.append(json.dumps({"n": n, "text": "x"}).encode(), key=key)
    topic.land()
    table = arrow_dataset(Snapshot(topic.pipeline.log)).to_table().sort_by("n")
    assert table.column("key").to_pylist() == [0, -12, 2147483647]


SCRIPT = """
from airflow_provider_kafka_s3.reading import Snapshot, arrow_dataset
from tests.unit.reading.test_parquet_dataset import landed
dataset = arrow_dataset(Snapshot(landed(200).pipeline.log))
print(dataset.to_table().num_rows)
"""


@pytest.mark.parametrize("ends", ["", "raise SystemExit(0)\n", "del dataset\n"])
def test_a_script_that_has_read_a_dataset_ends_as_it_wants_to(ends: str) -> None:
    """A thread of Arrow that still holds a file when the interpreter ends would abort the process."""
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", SCRIPT + ends], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (0, "200\n"), done.stderr


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
    topic.land("nothing")
    with pytest.raises(ConfigurationError, match="no object is selected"):
        arrow_dataset(Snapshot(topic.pipeline.log))
    topic.append(b"{}")
    topic.land()
    with pytest.raises(
        ConfigurationError,
        match=r"orders\+0\+0000000000\.json is JsonLines\. Read it by arrow_batches.*RecordBatchReader\.from_batches",
    ):
        arrow_dataset(Snapshot(topic.pipeline.log))
