"""A table has each committed record of its topic once, and follows the log."""

from __future__ import annotations

import io
import json
import re
import time
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import msgspec
import pytest
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField, StringType

from airflow_provider_kafka_s3.batch.expiry import read_expiry
from airflow_provider_kafka_s3.batch.given_away import begin_table, owning_tables
from airflow_provider_kafka_s3.batch.request import RunRequest
from airflow_provider_kafka_s3.cli import main
from airflow_provider_kafka_s3.config import (
    AvroConverter,
    ByField,
    Chain,
    Daily,
    FieldTime,
    Hourly,
    JsonLines,
    Landed,
    Layout,
    Parquet,
    RawBytes,
    Rotation,
    SiblingObjects,
    TimePattern,
)
from airflow_provider_kafka_s3.config.tables import TableSettings
from airflow_provider_kafka_s3.exceptions import ConfigurationError, MissingObjectError, TableRolledBackError
from airflow_provider_kafka_s3.maintenance.expiry_rule import Expired, ExpiryRule
from airflow_provider_kafka_s3.pipeline import TopicPipeline
from airflow_provider_kafka_s3.reading.landed_elsewhere import landed_elsewhere
from airflow_provider_kafka_s3.reading.landed_source import LandedSource
from airflow_provider_kafka_s3.reading.snapshot import Snapshot
from airflow_provider_kafka_s3.retry import Retrier
from airflow_provider_kafka_s3.schemas.field_ids import field_id
from airflow_provider_kafka_s3.storage.durable import DurableStore
from airflow_provider_kafka_s3.storage.s3 import S3Settings
from airflow_provider_kafka_s3.tables.iceberg import topic_table
from airflow_provider_kafka_s3.tables.iceberg.catalog import file_properties, open_catalog
from airflow_provider_kafka_s3.tables.iceberg.commit import last_batch
from airflow_provider_kafka_s3.tables.iceberg.table_files import TableFiles
from airflow_provider_kafka_s3.tables.iceberg.topic_table import Difference, TopicTable
from dev.iceberg_catalog import IcebergCatalog
from dev.iceberg_readers import duckdb_with_iceberg
from tests.tables.conftest import CREDENTIALS, NAMESPACE, TableOfTopic, schema_of


def nullable(kind: Any) -> list[Any]:
    """A type that has null, too."""
    return ["null", kind]


def record(name: str, *fields: tuple[str, Any]) -> dict[str, Any]:
    """A record as a type."""
    return {"type": "record", "name": name, "fields": [{"name": n, "type": t} for n, t in fields]}


AT = schema_of(("n", "long"), ("at", nullable({"type": "long", "logicalType": "timestamp-millis"})))
BY_HOUR = Hourly(timestamp_from=FieldTime(name="at"), timezone="UTC")


def test_a_table_has_each_batch_once_however_often_it_is_added(table_of: Callable[..., TableOfTopic]) -> None:
    """Created with the first objects; later batches are added, and nothing by a run that finds none."""
    made = table_of()
    made.land({"n": 1, "name": "a"}, {"n": 2, "name": None})
    made.land({"n": 3, "name": "c"})
    added = made.topic_table().add()
    assert (added.first, added.last, added.files, added.records, added.commits) == (1, 2, 3, 3, 1)
    made.land({"n": 4, "name": "d"})
    added = made.topic_table().add()
    assert (added.first, added.last, added.files, added.records, added.commits) == (3, 3, 1, 1, 1)
    added = made.topic_table().add()
    assert (added.first, added.last, added.commits) == (4, 3, 0)
    assert made.rows() == [{"n": n, "name": name} for n, name in ((1, "a"), (2, None), (3, "c"), (4, "d"))]
    table = made.catalog.load_table(made.table)
    assert last_batch(table, made.topic_table().name) == 3
    assert table.properties["gc.enabled"] == "false"


def test_lines_of_small_objects_are_rows_of_a_table_by_their_compaction(table_of: Callable[..., TableOfTopic]) -> None:
    """Another pipeline makes one file of Parquet of them, which the table has; later small objects are added once."""
    made = table_of(partitioner=Daily())
    rotation = Rotation(merge_partitions=True)
    files = msgspec.structs.replace(made.topic.layout, topics_dir="compacted", rotation=rotation)
    made.topic.layout = Layout(topics_dir="lake", format=JsonLines())
    store = DurableStore(made.topic.bucket, Retrier())
    source = LandedSource(store, Landed(pipeline="orders-to-lake", topics_dir="lake"))
    compacted = TopicPipeline(store, source, topics_dir="compacted", pipeline="orders-by-day", topic="orders")
    for run in range(2):
        for n in range(3):
            for partition in range(2):
                value = json.dumps({"n": 6 * run + 2 * n + partition, "name": "b"}).encode()
                made.topic.append(value, partition=partition, timestamp=n * 3_600_000)
            made.topic.land(f"{run}, hour {n}")
        compacted.land(RunRequest(run=f"run-{run}", offsets="incremental", layout=files, starting="earliest"))
        added = TopicTable(made.catalog, made.table, compacted.log, TableSettings()).add()
        assert (added.first, added.files, added.records) == (run + 1, 1, 6)
    assert sorted(row["n"] for row in made.rows()) == [*range(12)]


def test_new_fields_and_wider_types_come_with_the_first_batch_that_has_them(
    table_of: Callable[..., TableOfTopic],
) -> None:
    """In one commit; rows of earlier batches have null there, and a filter finds rows of both."""
    made = table_of(schema_of(("n", "int"), ("place", nullable(record("Place", ("city", "string"))))))
    made.land({"n": 1, "place": {"city": "Oslo"}}, {"n": 2, "place": None})
    made.topic_table().add()
    place = record("Place", ("city", "string"), ("zip", nullable("int")))
    made.change_schema(
        schema_of(("n", "long"), ("place", nullable(place)), ("tags", {"type": "array", "items": "string"}))
    )
    made.land({"n": 2**40, "place": {"city": "Bergen", "zip": 5003}, "tags": ["new"]})
    added = made.topic_table().add()
    assert added.commits == 1
    assert made.rows() == [
        {"n": 1, "place": {"city": "Oslo", "zip": None}, "tags": None},
        {"n": 2**40, "place": {"city": "Bergen", "zip": 5003}, "tags": ["new"]},
        {"n": 2, "place": None, "tags": None},
    ]
    table = made.catalog.load_table(made.table)
    assert table.scan(row_filter="n > 4000000000").to_arrow().num_rows == 1
    assert table.scan(row_filter="n < 2").to_arrow().num_rows == 1


def test_objects_of_narrower_types_are_added_to_wider_columns(table_of: Callable[..., TableOfTopic]) -> None:
    """Batches of both types in one commit: filters find the rows of each."""
    narrow = {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}
    made = table_of(schema_of(("n", "int"), ("ratio", "float"), ("price", narrow)))
    made.land({"n": 1, "ratio": 0.5, "price": "1.25"})
    made.change_schema(schema_of(("n", "long"), ("ratio", "double"), ("price", {**narrow, "precision": 20})))
    made.land({"n": 2**40, "ratio": 1e300, "price": "100000000000.25"})
    assert made.topic_table().add().commits == 1
    table = made.catalog.load_table(made.table)
    for chosen, numbers in (("n < 5", [1]), ("ratio < 1", [1]), ("price > 1000", [2**40]), ("n > 5", [2**40])):
        assert table.scan(row_filter=chosen).to_arrow().column("n").to_pylist() == numbers
    assert [row["price"] for row in made.rows()] == [Decimal("1.25"), Decimal("100000000000.25")]


def test_a_type_that_iceberg_cannot_widen_stops_the_table_alone(table_of: Callable[..., TableOfTopic]) -> None:
    """The error names the column and both types; what was in stays, and landing goes on."""
    made = table_of(schema_of(("n", "long"), ("code", nullable("int"))))
    made.land({"n": 1, "code": 7})
    made.topic_table().add()
    made.change_schema(schema_of(("n", "long"), ("code", nullable("string"))))
    made.land({"n": 2, "code": "seven"})
    with pytest.raises(ConfigurationError, match=r"column code does not fit: its type is int in the table and string"):
        made.topic_table().add()
    assert made.rows() == [{"n": 1, "code": 7}]
    assert Snapshot(made.topic.pipeline.log).batch == 2


def test_columns_without_a_type_in_iceberg_are_named(table_of: Callable[..., TableOfTopic]) -> None:
    """Also those inside others; no table is made, since pyiceberg could not read such objects."""
    opens = {"type": "int", "logicalType": "time-millis"}
    made = table_of(schema_of(("n", "long"), ("opens", opens), ("place", record("Place", ("closes", nullable(opens))))))
    made.land({"n": 1, "opens": "10:00:00", "place": {"closes": None}})
    with pytest.raises(ConfigurationError, match=r"column opens: a time of day .*; column place.closes: a time of day"):
        made.topic_table().add()
    assert not made.catalog.table_exists(made.table)


def test_objects_without_ids_are_read_by_name_beside_those_that_have_them(
    table_of: Callable[..., TableOfTopic],
) -> None:
    """As batches are that were planned by an earlier version; also behind a column that was renamed in the table."""
    made = table_of(format=Parquet(field_ids="schema"))
    made.land({"n": 1, "name": "old"})
    assert made.topic_table().add().last == 1
    made.topic.layout = msgspec.structs.replace(made.topic.layout, format=Parquet())
    made.land({"n": 2, "name": "new"})
    made.topic_table().add()
    with made.catalog.load_table(made.table).update_schema() as update:
        update.rename_column("name", "customer")
    made.topic.layout = msgspec.structs.replace(made.topic.layout, format=Parquet(field_ids="schema"))
    made.land({"n": 3, "name": "old again"})
    made.topic_table().add()
    assert [(row["n"], row["customer"]) for row in made.rows()] == [(1, "old"), (2, "new"), (3, "old again")]


def test_a_column_of_a_foreign_table_with_another_id_is_refused(table_of: Callable[..., TableOfTopic]) -> None:
    """The library itself would accept the object, and readers would have null."""
    made = table_of()
    made.land({"n": 1, "name": "a"})
    foreign = Schema(NestedField(1, "n", LongType(), required=False))
    made.catalog.create_table(made.table, foreign)
    with pytest.raises(ConfigurationError, match=r"column n does not fit: it has the id 1 in the table and \d+ in the"):
        made.topic_table().add()
    assert made.rows() == []


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        ({"format": JsonLines()}, "is of JsonLines; a table of Iceberg takes objects of Parquet"),
        ({"content": SiblingObjects(keys=RawBytes())}, "has keys or headers in objects beside it"),
        ({"partitioner": TimePattern(path_format="'h#'HH", duration_ms=3_600_000)}, "has a # or a"),
    ],
)
def test_objects_that_a_table_would_misread_are_refused(
    table_of: Callable[..., TableOfTopic], layout: dict[str, Any], message: str
) -> None:
    """Before anything is sent: there is no table."""
    made = table_of(**layout)
    made.topic.append(b'{"n": 1, "name": "a"}', key=b"k", timestamp=1)
    made.topic.land("run")
    with pytest.raises(ConfigurationError, match=message):
        made.topic_table().add()
    assert not made.catalog.table_exists(made.table)


def test_a_table_by_hour_has_each_object_in_the_hour_of_its_records(table_of: Callable[..., TableOfTopic]) -> None:
    """A scan of one hour reads one object."""
    made = table_of(AT, partitioner=BY_HOUR)
    made.land(*({"n": n, "at": f"2026-01-05T0{n}:30:00Z"} for n in range(3)))
    made.topic_table(partition_by=("hour(at)",)).add()
    table = made.catalog.load_table(made.table)
    files = [
        *table.scan(row_filter="at >= '2026-01-05T01:00:00+00:00' and at < '2026-01-05T02:00:00+00:00'").plan_files()
    ]
    assert [task.file.record_count for task in files] == [1]
    assert [row["n"] for row in made.rows()] == [0, 1, 2]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([{"n": 1, "at": "2026-01-05T01:30:00Z"}, {"n": 3, "at": None}], "has nulls in the column 'at'"),
        (
            [{"n": 1, "at": "2026-01-05T01:30:00Z"}, {"n": 3, "at": "2026-01-05T02:30:00Z"}],
            "is not inside of one partition of the table",
        ),
    ],
)
def test_an_object_that_is_not_in_one_partition_is_refused(
    table_of: Callable[..., TableOfTopic], values: list[dict[str, Any]], message: str
) -> None:
    """Readers would miss its other records."""
    made = table_of(AT)
    for value in values:
        made.topic.append(json.dumps(value).encode())
    made.topic.land("run")
    with pytest.raises(ConfigurationError, match=message):
        made.topic_table(partition_by=("hour(at)",)).add()
    assert made.rows() == []


def test_a_refused_object_has_an_error_with_a_layout_that_keeps_partitions_apart(
    table_of: Callable[..., TableOfTopic], caplog: pytest.LogCaptureFixture
) -> None:
    """Objects that are inside of one are added though the layout does not promise it: a warning says so."""
    made = table_of(AT)
    made.land({"n": 1, "at": "2026-01-05T01:30:00Z"})
    wanted = (
        r"landed by ByPartition\(\), which does not keep .* Land it by Daily\(timestamp_from=FieldTime\(name='at'\)"
    )
    made.topic_table(partition_by=("day(at)",)).add()
    assert re.search(wanted, caplog.text)
    made.topic.append(*(json.dumps({"n": n, "at": f"2026-01-0{n}T00:00:00Z"}).encode() for n in (6, 7)))
    made.topic.land("two days")
    with pytest.raises(ConfigurationError, match=wanted):
        made.topic_table().add()
    assert [row["n"] for row in made.rows()] == [1]


@pytest.mark.parametrize("partitioner", [BY_HOUR, Chain(partitioners=(ByField(names=("n",)), BY_HOUR))])
def test_a_layout_that_keeps_partitions_apart_gets_no_warning(
    table_of: Callable[..., TableOfTopic], caplog: pytest.LogCaptureFixture, partitioner: Any
) -> None:
    """Hours are inside of days."""
    made = table_of(AT, partitioner=partitioner)
    made.land({"n": 1, "at": "2026-01-05T01:30:00Z"})
    made.topic_table(partition_by=("day(at)", *(("identity(n)",) if partitioner != BY_HOUR else ()))).add()
    assert "does not keep" not in caplog.text


@pytest.mark.parametrize("text", ["hour(name)", "day(n)"])
def test_a_partition_of_a_column_of_another_type_is_refused(table_of: Callable[..., TableOfTopic], text: str) -> None:
    """Before there is a table."""
    made = table_of()
    made.land({"n": 1, "name": "a"})
    with pytest.raises(ConfigurationError, match="of which Iceberg makes no"):
        made.topic_table(partition_by=(text,)).add()
    assert not made.catalog.table_exists(made.table)


def test_a_check_finds_lost_and_missing_objects_and_repairs_them_in_one_commit(
    table_of: Callable[..., TableOfTopic],
) -> None:
    """One was accepted as lost behind its commit, another one was deleted from the table by somebody."""
    made = table_of()
    made.land({"n": 1})
    made.land({"n": 2})
    made.land({"n": 3})
    made.topic_table().add()
    assert made.topic_table().check() == Difference(made.table, 3, 3, 3)
    lost, _, removed = (found.url for found in Snapshot(made.topic.pipeline.log).objects())
    made.topic.bucket.delete(lost.partition(f"{made.bucket}/")[2])
    made.topic.pipeline.accept_deleted(1, reason="test", operator="me")
    made.catalog.load_table(made.table).delete("n = 3")
    difference = made.topic_table().check()
    assert (difference.lost, difference.missing) == ((lost,), (removed,))
    before = len(made.catalog.load_table(made.table).snapshots())
    repaired = made.topic_table().check(repair=True)
    assert (repaired.removed, repaired.added) == ((lost,), (removed,))
    assert len(made.catalog.load_table(made.table).snapshots()) == before + 1
    assert made.topic_table().check() == Difference(made.table, 3, 2, 2)
    assert [row["n"] for row in made.rows()] == [2, 3]
    made.land({"n": 4})
    assert made.topic_table().add().commits == 1


def lose(made: TableOfTopic, batch: int) -> str:
    """Delete the object of a batch and accept its loss; its URL."""
    (gone,) = Snapshot(made.topic.pipeline.log).objects(batches=[batch])
    made.topic.bucket.delete(gone.key)
    made.topic.pipeline.accept_deleted(batch, reason="test", operator="me")
    return gone.url


def test_objects_leave_the_table_before_they_are_deleted_on_purpose(table_of: Callable[..., TableOfTopic]) -> None:
    """What is recorded as expired is removed by the next add; what the table still has is kept until then."""
    made = table_of()
    made.land({"n": 1})
    made.land({"n": 2})
    made.topic_table().add()

    def expire() -> Expired:
        pipeline, table = made.topic.pipeline, made.topic_table()
        pipeline._now = lambda: time.time() + 60
        rule = ExpiryRule(
            older_than=0.0, least_age=0.0, grace=0.0, tables=frozenset({table.table}), operator="ann@desk"
        )
        return pipeline.expire(rule, landed_in=landed_elsewhere(pipeline), guards=[TableFiles(table)])

    first = expire()
    (why,) = first.kept
    assert (first.recorded, first.deleted, first.kept[why]) == (2, 0, [1, 2])
    assert why.startswith(f"table {made.table} has them")
    added = made.topic_table().add()
    assert (added.removed, added.commits, made.rows()) == (2, 1, [])
    assert expire().deleted == 2
    made.land({"n": 3})
    again = made.topic_table().add()
    assert (again.removed, [row["n"] for row in made.rows()]) == (0, [3])
    difference = made.topic_table().check()
    assert (difference.missing, difference.lost, difference.unknown) == ((), (), ())


@pytest.mark.parametrize("is_there", [False, True], ids=["no table", "a table of something else"])
def test_nothing_expires_by_another_catalog_than_that_of_the_table(
    table_of: Callable[..., TableOfTopic], *, is_there: bool
) -> None:
    """There is no table of this name, or one that has nothing of the topic: nothing is recorded or deleted."""
    made = table_of()
    made.land({"n": 1})
    begin_table(made.topic.pipeline.log, made.table)
    if is_there:
        made.catalog.create_table(made.table, Schema(NestedField(1, "n", LongType())))
    pipeline, before = made.topic.pipeline, made.topic.objects()
    pipeline._now = lambda: time.time() + 60
    rule = ExpiryRule(older_than=0.0, least_age=0.0, grace=0.0, tables=frozenset({made.table}), operator="ann@desk")
    with pytest.raises(ConfigurationError, match=made.table):
        pipeline.expire(rule, landed_in=landed_elsewhere(pipeline), guards=[TableFiles(made.topic_table())])
    assert read_expiry(pipeline.log) is None
    assert made.topic.objects() == before


def test_objects_that_were_accepted_as_lost_are_removed_by_the_next_add_in_one_commit(
    table_of: Callable[..., TableOfTopic],
) -> None:
    """Scans, which they made fail, have all other rows; a further run changes nothing."""
    made = table_of()
    for n in range(4):
        made.land({"n": n})
    made.topic_table().add()
    lose(made, 1)
    lose(made, 3)
    with pytest.raises(FileNotFoundError):
        made.rows()
    added = made.topic_table().add()
    assert (added.commits, added.removed, added.files) == (1, 2, 0)
    assert [row["n"] for row in made.rows()] == [1, 3]
    assert made.topic_table().check() == Difference(made.table, 4, 2, 2)
    again = made.topic_table().add()
    assert (again.commits, again.removed, again.snapshot) == (0, 0, added.snapshot)


def test_a_run_adds_new_batches_behind_the_removal_of_lost_objects(table_of: Callable[..., TableOfTopic]) -> None:
    """Also a batch of which one object was lost before it was in."""
    made = table_of()
    made.land({"n": 0})
    made.topic_table().add()
    lose(made, 1)
    made.land({"n": 1})
    made.land({"n": 2})
    lose(made, 3)
    added = made.topic_table().add()
    assert (added.commits, added.removed, added.files, added.last) == (2, 1, 1, 3)
    assert [row["n"] for row in made.rows()] == [1]


def test_the_files_of_a_table_are_read_only_for_losses_that_it_does_not_know(
    table_of: Callable[..., TableOfTopic], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither without a loss, nor behind the commit that removed it; but when the table was set back behind it."""
    made = table_of()
    made.land({"n": 0})
    made.land({"n": 1})
    made.topic_table().add()
    before = made.catalog.load_table(made.table).metadata.current_snapshot_id
    reads: list[str] = []
    original = topic_table.TopicTable._files
    monkeypatch.setattr(
        topic_table.TopicTable, "_files", lambda self, table: reads.append(self.table) or original(self, table)
    )
    made.topic_table().add()
    assert reads == []
    lose(made, 1)
    made.topic_table().add()
    assert reads != []
    reads.clear()
    made.topic_table().add()
    made.land({"n": 2})
    made.topic_table().add()
    assert reads == []
    assert before is not None
    made.catalog.load_table(made.table).manage_snapshots().rollback_to_snapshot(before).commit()
    with made.catalog.load_table(made.table).transaction() as transaction:
        transaction.set_properties({made.topic_table().name: "2"})
    assert made.topic_table().add().removed == 1
    assert [row["n"] for row in made.rows()] == [1, 2]


def test_a_commit_of_another_topic_does_not_hide_that_a_table_was_set_back(
    table_of: Callable[..., TableOfTopic],
) -> None:
    """The number of each topic comes from the snapshot, not from the property, which stays."""
    made, other = table_of(), table_of()
    other.table = made.table
    made.land({"n": 1})
    made.topic_table().add()
    other.land({"n": 100})
    other.topic_table().add()
    before = made.catalog.load_table(made.table).metadata.current_snapshot_id
    assert before is not None
    made.land({"n": 2})
    made.topic_table().add()
    made.catalog.load_table(made.table).manage_snapshots().rollback_to_snapshot(before).commit()
    other.land({"n": 101})
    other.topic_table().add()
    assert [row["n"] for row in made.rows()] == [1, 100, 101]
    made.land({"n": 3})
    with pytest.raises(TableRolledBackError, match="batches up to 2, its newest snapshot with them 1"):
        made.topic_table().add()


def test_a_repair_adds_no_rows_that_a_compaction_has_moved(table_of: Callable[..., TableOfTopic]) -> None:
    """The rows are in a file of somebody else, so an object that is missing is not added without a word."""
    made = table_of()
    made.land({"n": 1})
    made.land({"n": 2})
    made.topic_table().add()
    table = made.catalog.load_table(made.table)
    table.overwrite(table.scan().to_arrow())
    difference = made.topic_table().check()
    assert (len(difference.rewritten), difference.missing, difference.others) == (2, (), 1)
    assert made.topic_table().check(repair=True) == difference
    assert [row["n"] for row in made.rows()] == [1, 2]
    made.catalog.load_table(made.table).append(table.scan().to_arrow().slice(0, 1))  # who knows whose row it is
    assert len(made.topic_table().check().missing) == 2
    with pytest.raises(ConfigurationError, match="a repair would add them twice"):
        made.topic_table().check(repair=True)
    made.catalog.load_table(made.table).delete("n > 0")
    made.catalog.load_table(made.table).append(table.scan().to_arrow().slice(0, 0))
    made.topic_table().check(repair=True, unsafe_rows_are_absent=True)
    assert [row["n"] for row in made.rows()] == [1, 2]


def test_two_repairs_at_the_same_time_add_an_object_once(table_of: Callable[..., TableOfTopic]) -> None:
    """The second one finds another object missing, too, and adds only that."""
    made = table_of()
    made.land({"n": 1})
    made.land({"n": 2})
    made.topic_table().add()
    made.catalog.load_table(made.table).delete("n = 1")
    late = made.topic_table()
    original = late._require
    looks: list[int] = []

    def look() -> Table:
        looks.append(1)
        if len(looks) == 2:  # it has compared, and not committed yet
            made.topic_table().check(repair=True)
            made.catalog.load_table(made.table).delete("n = 2")
        return original()

    late._require = look  # type: ignore[method-assign]
    late.check(repair=True)
    assert made.topic_table().check().twice == ()
    assert [row["n"] for row in made.rows()] == [1]
    made.topic_table().check(repair=True)
    assert [row["n"] for row in made.rows()] == [1, 2]


def test_batches_without_objects_hold_nothing_up(
    table_of: Callable[..., TableOfTopic], monkeypatch: pytest.MonkeyPatch
) -> None:
    """More of them than a commit has, before the first object: the table is created with that."""
    monkeypatch.setattr(topic_table, "_BATCHES", 2)
    monkeypatch.setattr(topic_table, "_STEP", 1)
    made = table_of(errors="dead_letter")
    for n in range(4):
        made.topic.append(b"no JSON")
        made.topic.land(f"bad-{n}")
    assert made.topic_table().add().last == 0
    made.land({"n": 1})
    made.land({"n": 2})
    made.topic_table().add()
    assert made.topic_table().status().last == 6
    assert [row["n"] for row in made.rows()] == [1, 2]


def test_a_filter_finds_rows_whose_texts_are_too_long_for_bounds(table_of: Callable[..., TableOfTopic]) -> None:
    """One row group has bounds, the other one has none: the file has none."""
    made = table_of(format=Parquet(row_group_records=1))
    long = "z" * 5000
    made.topic.append(*(json.dumps({"n": n, "name": name}).encode() for n, name in enumerate(("a", long))))
    made.topic.land("run")
    made.topic_table().add()
    assert made.catalog.load_table(made.table).scan(row_filter=f"name = '{long}'").to_arrow().num_rows == 1


def test_a_time_that_python_does_not_have_stops_no_table(table_of: Callable[..., TableOfTopic]) -> None:
    """Its column has no bounds; rows are found by others."""
    schema = schema_of(("n", "long"), ("at", {"type": "long", "logicalType": "timestamp-millis"}))
    made = table_of(value_converter=AvroConverter())
    number = made.topic.registry.register(schema)
    numbers = fastavro.parse_schema(json.loads(schema.replace("timestamp-millis", "none")))
    for n, at in enumerate((0, 10**15)):
        body = io.BytesIO()
        fastavro.schemaless_writer(body, numbers, {"n": n, "at": at})
        made.topic.append(b"\0" + number.to_bytes(4, "big") + body.getvalue())
    made.topic.land("run")
    made.topic_table().add()
    assert made.catalog.load_table(made.table).scan(row_filter="n = 1", selected_fields=("n",)).to_arrow().num_rows == 1


def test_objects_without_ids_fit_a_column_that_was_renamed_before(table_of: Callable[..., TableOfTopic]) -> None:
    """The table had no mapping of names; it gets one with the old name and the new one."""
    made = table_of()
    made.land({"n": 1, "name": "new"})
    made.topic_table().add()
    with made.catalog.load_table(made.table).update_schema() as update:
        update.rename_column("name", "customer")
    made.topic.layout = msgspec.structs.replace(made.topic.layout, format=Parquet(field_ids="schema"))
    made.land({"n": 2, "name": "old"})
    made.topic_table().add()
    assert [(row["n"], row["customer"]) for row in made.rows()] == [(1, "new"), (2, "old")]


def test_a_dropped_column_does_not_come_again_with_another_type(table_of: Callable[..., TableOfTopic]) -> None:
    """Earlier objects have its id, so nobody could read them."""
    made = table_of(schema_of(("n", "long"), ("code", nullable("int"))))
    made.land({"n": 1, "code": 7})
    made.topic_table().add()
    with made.catalog.load_table(made.table).update_schema() as update:
        update.delete_column("code")
    made.change_schema(schema_of(("n", "long"), ("code", nullable("string"))))
    made.land({"n": 2, "code": "seven"})
    with pytest.raises(ConfigurationError, match=r"code does not fit: it was dropped as int and comes again as str"):
        made.topic_table().add()
    assert made.rows() == [{"n": 1}]


def test_nulls_in_a_column_that_the_table_requires_are_refused(table_of: Callable[..., TableOfTopic]) -> None:
    """Engines look for no nulls there."""
    made = table_of()
    made.land({"n": 1, "name": "a"})
    made.topic_table().add()
    with made.catalog.load_table(made.table).update_schema(allow_incompatible_changes=True) as update:
        update._updates[field_id("name")] = NestedField(field_id("name"), "name", StringType(), required=True)
    made.land({"n": 2, "name": None})
    with pytest.raises(ConfigurationError, match="has nulls in the column name, which the table requires"):
        made.topic_table().add()
    assert [row["n"] for row in made.rows()] == [1]


def test_objects_with_maps_that_are_empty_or_null_are_added(table_of: Callable[..., TableOfTopic]) -> None:
    """A footer counts keys that are not there as nulls, and a table requires the keys of maps."""
    made = table_of(schema_of(("n", "long"), ("counts", nullable({"type": "map", "values": "long"}))))
    made.land({"n": 1, "counts": {}}, {"n": 2, "counts": {"a": 1}}, {"n": 3, "counts": None})
    made.topic_table().add()
    assert [(row["n"], row["counts"]) for row in made.rows()] == [(1, []), (2, [("a", 1)]), (3, None)]


def test_a_property_above_the_log_is_an_error(table_of: Callable[..., TableOfTopic]) -> None:
    """Otherwise later batches would be left out without a word."""
    made = table_of()
    made.land({"n": 1})
    made.topic_table().add()
    with made.catalog.load_table(made.table).transaction() as transaction:
        transaction.set_properties({made.topic_table().name: "9"})
        transaction.update_snapshot(snapshot_properties={made.topic_table().name: "9"}).fast_append().commit()
    with pytest.raises(ConfigurationError, match=r"has batches up to 9 of topic 'orders' .* and the log has 1"):
        made.topic_table().add()


def test_a_restored_object_changes_nothing(table_of: Callable[..., TableOfTopic]) -> None:
    """Its bytes are equal, and so is the table."""
    made = table_of()
    made.land({"n": 1}, {"n": 2})
    made.topic_table().add()
    metadata = made.catalog.load_table(made.table).metadata
    made.topic.restore(*(found.key for found in Snapshot(made.topic.pipeline.log).objects()))
    assert made.topic_table().add().commits == 0
    assert made.topic_table().check() == Difference(made.table, 1, 2, 2)
    assert made.catalog.load_table(made.table).metadata == metadata
    assert [row["n"] for row in made.rows()] == [1, 2]


def test_old_snapshots_are_expired_with_a_commit_and_no_file_is_deleted(
    table_of: Callable[..., TableOfTopic],
) -> None:
    """By number and age; all rows stay."""
    made = table_of()
    settings = {"keep_snapshots": 3, "keep_snapshots_hours": 0.0}
    for n in range(6):
        made.land({"n": n})
        made.topic_table(**settings).add()
    assert len(made.catalog.load_table(made.table).snapshots()) == 3
    assert [row["n"] for row in made.rows()] == [*range(6)]
    assert len(Snapshot(made.topic.pipeline.log).objects()) == 6
    assert made.topic_table().check() == Difference(made.table, 6, 6, 6)


@pytest.mark.parametrize("owned_by", ["pipeline", "table"])
def test_files_of_metadata_do_not_pile_up(
    table_of: Callable[..., TableOfTopic], owned_by: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The table keeps as many as it says, whoever owns the objects, and every row; nothing warns."""
    made = table_of()
    made.land({"n": 0})
    made.topic_table(owned_by=owned_by).add()
    table = made.catalog.load_table(made.table)
    with table.transaction() as transaction:
        transaction.set_properties({"write.metadata.previous-versions-max": "2"})
    for n in range(1, 6):
        made.land({"n": n})
        made.topic_table().add()
    folder = Path(table.location().removeprefix("file:")) / "metadata"
    assert len([*folder.glob("*.metadata.json")]) == 3
    assert not [record for record in caplog.records if record.levelname == "WARNING"]
    assert [row["n"] for row in made.rows()] == [*range(6)]
    assert made.topic_table().check() == Difference(made.table, 6, 6, 6)


def test_a_sql_catalog_deletes_old_metadata_and_the_objects_of_a_purged_table(
    table_of: Callable[..., TableOfTopic], s3_settings: S3Settings, tmp_path: Path
) -> None:
    """Here pyiceberg deletes, which looks at no gc.enabled."""
    made = table_of()
    properties = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}"}
    with open_catalog("sql", {**properties, **file_properties(s3_settings, CREDENTIALS)}) as catalog:
        catalog.create_namespace(NAMESPACE)
        for n in range(4):
            made.land({"n": n})
            made.topic_table(catalog).add()
            with catalog.load_table(made.table).transaction() as transaction:
                transaction.set_properties({"write.metadata.previous-versions-max": "2"})
        assert len([*tmp_path.rglob("*.metadata.json")]) == 3
        assert catalog.load_table(made.table).scan().to_arrow().num_rows == 4
        catalog.purge_table(made.table)
    # Its client leaves an empty object for the folder.
    assert not [key for key in made.topic.objects() if key.endswith(".parquet")]


def test_the_command_adds_compares_and_repairs(
    table_of: Callable[..., TableOfTopic],
    catalog_server: IcebergCatalog,
    s3_settings: S3Settings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A dry run changes nothing; a table that lacks an object is a finding until it is repaired."""
    made = table_of()
    made.land({"n": 1}, {"n": 2})
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    (tmp_path / "catalog.json").write_text(json.dumps({"uri": catalog_server.url}))
    options = {
        "--bucket": made.bucket,
        "--topics-dir": "lake",
        "--pipeline": "orders-to-lake",
        "--topic": "orders",
        "--endpoint-url": str(s3_settings.endpoint_url),
        "--table": made.table,
        "--catalog-config": str(tmp_path / "catalog.json"),
    }
    where = [text for option in options.items() for text in option]

    def run(*arguments: str, code: int = 0) -> dict[str, Any]:
        assert main.main(["table", *arguments, *where, "--json"]) == code
        answer: dict[str, Any] = json.loads(capsys.readouterr().out)
        return answer

    for action in (("status",), ("add", "--dry-run")):
        answer = run(*action)
        assert (answer["exists"], answer["behind"]) == (False, 1)
    assert (run("add")["files"], run("add")["files"]) == (2, 0)
    assert (run("status")["behind"], run("check")["missing"]) == (0, [])
    made.catalog.load_table(made.table).delete("n = 1")
    (missing,) = run("check", code=1)["missing"]
    assert run("check", "--repair", "--dry-run", code=1)["missing"] == [missing]
    assert run("check", "--repair")["added"] == [missing]
    assert [row["n"] for row in made.rows()] == [1, 2]


def given_away(made: TableOfTopic) -> dict[str, int]:
    """The tables of the topic, by the log, and how far they own its objects."""
    return {owner.table: owner.last for owner in owning_tables(made.topic.pipeline.log)}


def test_the_log_has_up_to_which_batch_a_table_owns_the_objects(table_of: Callable[..., TableOfTopic]) -> None:
    """With each commit, whatever the settings of a later process; a table of the pipeline owns none."""
    made, other = table_of(), table_of()
    other.land({"n": 0})
    other.topic_table().add()
    assert given_away(other) == {other.table: 0}
    made.land({"n": 1})
    made.topic_table(owned_by="table").add()
    assert given_away(made) == {made.table: 1}
    made.land({"n": 2})
    made.topic_table().add()
    assert given_away(made) == {made.table: 2}


def test_what_a_killed_process_has_not_recorded_is_recorded_by_the_next_one(
    table_of: Callable[..., TableOfTopic], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ended between the commit and the log; until then nothing counts as given away."""
    made = table_of()
    made.land({"n": 1})
    with monkeypatch.context() as killed:
        killed.setattr(topic_table.TopicTable, "_give", lambda *_: None)
        made.topic_table(owned_by="table").add()
    assert given_away(made) == {made.table: 0}
    assert made.topic_table().add().commits == 0
    assert given_away(made) == {made.table: 1}


def test_a_new_table_of_the_same_name_owns_nothing_yet(table_of: Callable[..., TableOfTopic]) -> None:
    """What the engines of the dropped one have deleted is missing again, and can be restored for the new one."""
    made = table_of()
    made.land({"n": 1})
    made.topic_table(owned_by="table").add()
    made.catalog.drop_table(made.table)
    (gone,) = Snapshot(made.topic.pipeline.log).objects()
    made.topic.bucket.delete(gone.key)
    with pytest.raises(MissingObjectError, match="Write it again by"):
        made.topic_table().add()
    made.topic.restore()
    made.topic_table().add()
    assert [row["n"] for row in made.rows()] == [1]
    assert given_away(made) == {made.table: 0}


def test_duckdb_reads_every_row_of_the_table(
    table_of: Callable[..., TableOfTopic], catalog_server: IcebergCatalog, s3_settings: S3Settings
) -> None:
    """By the catalog, over rows with a column that the first objects lack."""
    made = table_of(schema_of(("n", "long")))
    made.land({"n": 1}, {"n": 2})
    made.topic_table().add()
    made.change_schema(schema_of(("n", "long"), ("note", nullable("string"))))
    made.land({"n": 3, "note": "x"})
    made.topic_table().add()
    with duckdb_with_iceberg(catalog_server.url, str(s3_settings.endpoint_url)) as connection:
        rows = connection.execute(f"select n, note from lake.{made.table} order by n").fetchall()
    assert rows == [(1, None), (2, None), (3, "x")]
