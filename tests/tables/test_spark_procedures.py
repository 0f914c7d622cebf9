"""Spark's procedures on a table: nothing of ours disappears unless the table owns it, and batches are added on once."""

from __future__ import annotations

import json
from collections.abc import Callable

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider_kafka_s3.reading.snapshot import Snapshot
from airflow_provider_kafka_s3.tables.iceberg.topic_table import Difference
from dev.iceberg_readers import SparkWithIceberg
from tests.tables.conftest import TableOfTopic

pytestmark = pytest.mark.timeout(600)  # it starts Spark

REWRITE = "call lake.system.rewrite_data_files(table => 'lake.{table}', options => map('rewrite-all', 'true'))"
EXPIRE = "call lake.system.expire_snapshots(table => 'lake.{table}', older_than => timestamp '2999-01-01')"
ORPHANS = "call lake.system.remove_orphan_files(table => 'lake.{table}')"
PURGE = "drop table lake.{table} purge"


def objects(made: TableOfTopic) -> list[str]:
    """Keys of the objects in the bucket."""
    return sorted(made.topic.objects())


def filled(made: TableOfTopic, owned_by: str) -> list[str]:
    """Land three batches and add them; the keys of the objects."""
    for n in range(3):
        made.land({"n": n})
    made.topic_table(owned_by=owned_by).add()
    return objects(made)


def rows(made: TableOfTopic, spark: SparkWithIceberg) -> list[int]:
    """The numbers of all rows, which Spark and pyiceberg read alike."""
    spark.query(f"refresh table lake.{made.table}")
    by_spark: list[int] = spark.query(f"select n from lake.{made.table} order by n").column("n").to_pylist()
    assert by_spark == [row["n"] for row in made.rows()]
    return by_spark


def values(key: str, body: bytes) -> list[bytes]:
    """The values of an object in Kafka."""
    assert key.endswith(".parquet")
    return [json.dumps({"n": n}).encode() for n in pq.read_table(pa.BufferReader(body)).column("n").to_pylist()]


def verified(made: TableOfTopic) -> tuple[int, int]:
    """Numbers of objects that are as committed, and that are gone and given to the table; all invariants hold."""
    made.topic.check(values)
    result = made.topic.pipeline.run(made.topic.request("verified", action="verify")).advance()
    verification = getattr(result, "verification", None)
    assert verification is not None
    return verification.objects, len(verification.given)


def test_no_procedure_deletes_an_object_of_the_pipeline(
    table_of: Callable[..., TableOfTopic], spark: SparkWithIceberg
) -> None:
    """A rewrite moves the rows; the others are refused, but for a purge by the catalog, which drops the table."""
    made = table_of()
    landed = filled(made, "pipeline")
    spark.query(REWRITE.format(table=made.table))
    for refused in (EXPIRE, ORPHANS, PURGE):
        with pytest.raises(RuntimeError, match="GC is disabled"):
            spark.query(refused.format(table=made.table))
    assert (objects(made), rows(made, spark)) == (landed, [0, 1, 2])
    made.land({"n": 3})
    assert made.topic_table().add().files == 1
    assert rows(made, spark) == [0, 1, 2, 3]
    difference = made.topic_table().check()
    assert (len(difference.rewritten), difference.missing, difference.others) == (3, (), 1)
    made.catalog.purge_table(made.table)
    assert not made.catalog.table_exists(made.table)
    assert verified(made) == (4, 0)


def test_a_table_that_owns_its_objects_is_compacted_expired_and_purged(
    table_of: Callable[..., TableOfTopic], spark: SparkWithIceberg
) -> None:
    """Expiry deletes what was rewritten, a purge what the table still has; batches are added on, each once."""
    made = table_of()
    filled(made, "table")
    spark.query(ORPHANS.format(table=made.table))
    assert verified(made) == (3, 0)
    spark.query(REWRITE.format(table=made.table))
    assert verified(made) == (3, 0)
    spark.query(EXPIRE.format(table=made.table))
    assert (objects(made), rows(made, spark)) == ([], [0, 1, 2])
    assert verified(made) == (0, 3)
    made.land({"n": 3})
    added = made.topic_table().add()
    assert (added.first, added.files) == (4, 1)
    assert rows(made, spark) == [0, 1, 2, 3]
    table = made.topic_table()
    difference = table.check(repair=True)
    assert difference == Difference(made.table, 4, 1, 1, rewritten=difference.rewritten, others=1)
    assert len(difference.rewritten) == 3
    assert made.topic.land("run-1").status == "ok"
    made.land({"n": 4})
    (unknown,) = Snapshot(made.topic.pipeline.log).objects(batches=[5])
    spark.query(PURGE.format(table=made.table))
    assert not made.catalog.table_exists(made.table)
    assert objects(made) == [unknown.key]
    assert verified(made) == (1, 4)
