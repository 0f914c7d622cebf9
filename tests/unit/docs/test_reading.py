"""The DuckDB statements of docs/reading.md, on objects that the package wrote."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from airflow_provider_kafka_s3.storage.port import ObjectStore
from airflow_provider_kafka_s3.testing.stores import Fault, FaultyStore, SimulatedCrash
from tests.documentation import ROOT, snippets
from tests.unit.docs.lake import Lake, filled_lake, parquet_lake


@pytest.fixture
def lake() -> Lake:
    """A lake for one test, which may land more."""
    return filled_lake()


@pytest.fixture
def database() -> Iterator[duckdb.DuckDBPyConnection]:
    """An empty database in memory."""
    with duckdb.connect() as connection:
        yield connection


def statements(section: str, store: ObjectStore, folder: Path) -> list[str]:
    """The statements of a section, about the files of a folder in place of the bucket, which are written there."""
    page = (ROOT / "docs" / "reading.md").read_text()
    text = folder / "section.md"
    text.write_text(page.split(f"# {section}\n")[1].split("\n#")[0])
    for info in store.list(""):
        stored = store.get(info.key)
        assert stored is not None
        path = folder / info.key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(stored.body)
    return [code.replace("s3://lake/", f"{folder}/") for code in snippets(text, "sql")]


def test_duckdb_reads_records_by_folder_with_partition_and_offset(
    lake: Lake, database: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    """The view has every record once; file names have the partition and the first offset of each object."""
    credentials, view, by_hour, by_object = statements("DuckDB", lake.store, tmp_path)
    assert "CREATE SECRET" in credentials
    database.execute(view)
    assert database.sql("SELECT count(*), count(DISTINCT order_id) FROM orders").fetchall() == [(20, 20)]
    assert database.sql(by_hour).fetchall() == [(0, 10, 25.0), (1, 6, 15.0), (2, 4, 10.0)]
    assert database.sql(by_object).fetchall() == [(p, o, n) for p in (0, 1) for o, n in ((0, 5), (5, 3), (8, 2))]


def test_duckdb_reads_fields_that_are_called_like_a_folder(
    lake: Lake, database: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    """The record's value, and not that of the folder, which DuckDB shows unless it is switched off."""
    (query,) = statements("Fields that are called like a folder", lake.store, tmp_path)
    assert database.sql(query).fetchall() == [(1999, 20)]
    by_folder = query.replace(",\n    hive_partitioning = false", "")
    assert database.sql(by_folder).fetchall() == [(2026, 20)]


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
    view, query = statements("Whole batches", lake.store, tmp_path)
    database.execute(view)
    counted = database.sql("SELECT batch, count(*), sum(records) FROM batches GROUP BY batch ORDER BY batch")
    assert counted.fetchall() == [(1, 4, 16), (2, 2, 4)]
    names, total = query.split(";\n")[:2]
    database.execute(names)
    assert database.sql(total).fetchall() == [(20,)]


def test_duckdb_reads_parquet_of_several_schemas(database: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    """One view of both schemas: a field that an object does not have is null. Times are times."""
    view, by_currency = statements("Parquet", parquet_lake(), tmp_path)
    database.execute(view)
    assert database.sql(by_currency).fetchall() == [("EUR", 3, 7.5), (None, 3, 7.5)]
    days = database.sql("SELECT day, count(*), count(DISTINCT id), epoch_ms(min(paid_at)) FROM payments GROUP BY day")
    start = 1_767_312_000_000
    assert sorted(days.fetchall()) == [(2, 6, 6, start), (3, 4, 4, start + 86_400_000)]
