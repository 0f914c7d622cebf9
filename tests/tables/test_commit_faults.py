"""Each batch is in the table once, whatever happens to a commit and whoever races."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.table import Table

from airflow_provider_kafka_s3.exceptions import TableRolledBackError, TransientError
from airflow_provider_kafka_s3.retry import Retrier, RetryPolicy
from airflow_provider_kafka_s3.storage.s3 import S3Settings
from airflow_provider_kafka_s3.tables.iceberg.catalog import file_properties, open_catalog
from airflow_provider_kafka_s3.tables.iceberg.commit import last_batch
from airflow_provider_kafka_s3.tables.iceberg.topic_table import Difference
from dev.fault_proxy import FaultProxy
from dev.faults import Answer, Fault, Hang, Lose, Twice
from dev.iceberg_catalog import IcebergCatalog
from dev.waiting import wait_until
from tests.tables.conftest import CREDENTIALS, TableOfTopic

ROOT = Path(__file__).resolve().parents[2]
COMMIT = {"operation": "POST", "key": "namespaces/*/tables/*"}
NO_RETRY = Retrier(RetryPolicy(max_retries=0))


def numbers(made: TableOfTopic) -> list[int]:
    """The numbers of all rows."""
    return sorted(row["n"] for row in made.rows())


def unreferenced(table: Table) -> set[str]:
    """Manifests and their lists that no snapshot refers to."""
    used = {
        Path(urlsplit(path).path).name
        for snapshot in table.snapshots()
        for path in (snapshot.manifest_list, *(m.manifest_path for m in snapshot.manifests(table.io)))
    }
    folder = Path(urlsplit(table.location()).path, "metadata")
    return {path.name for path in folder.glob("*.avro")} - used


@pytest.mark.parametrize(
    "fault",
    [
        Lose(),
        Lose(by="FIN"),
        Hang(applied=True),
        Hang(applied=False),
        Twice(),
        Answer(503, "ServiceUnavailable"),
        Answer(503, "ServiceUnavailable", applied=True),
        Answer(500, "InternalError", applied=True),
        Answer(409, "Conflict", applied=True),
    ],
    ids=str,
)
def test_a_batch_is_in_once_whatever_answer_its_commit_gets(
    table_of: Callable[..., TableOfTopic], proxy: FaultProxy, behind_proxy: Catalog, fault: Fault
) -> None:
    """Applied or not, and answered or not; nothing of an attempt that did not land is left."""
    made = table_of()
    made.land({"n": 1}, {"n": 2})
    made.topic_table().add()
    made.land({"n": 3})
    proxy.add(fault, **COMMIT)
    added = made.topic_table(behind_proxy).add()
    assert (added.last, numbers(made)) == (2, [1, 2, 3])
    assert unreferenced(made.catalog.load_table(made.table)) == set()


def test_a_commit_that_arrives_late_is_refused(
    table_of: Callable[..., TableOfTopic], proxy: FaultProxy, behind_proxy: Catalog
) -> None:
    """Its process has given up, another one has added the batch, and the next one too."""
    made = table_of()
    made.land({"n": 1})
    made.topic_table().add()
    made.land({"n": 2})
    held = proxy.hold(**COMMIT)
    late = made.topic_table(behind_proxy)
    late.retrier = NO_RETRY
    with pytest.raises(TransientError):
        late.add()
    made.topic_table().add()
    made.land({"n": 3})
    made.topic_table().add()
    held.release()
    proxy.wait_until_idle()
    assert proxy.calls[-1].key.endswith(made.table.partition(".")[2])
    assert numbers(made) == [1, 2, 3]
    assert made.topic_table().status().last == 3


def test_batches_without_objects_are_fenced_too(
    table_of: Callable[..., TableOfTopic], proxy: FaultProxy, behind_proxy: Catalog
) -> None:
    """A late commit of a batch of dead letters does not set the table back, which would add the next one twice."""
    made = table_of(errors="dead_letter")
    made.land({"n": 1})
    made.topic_table().add()
    made.topic.append(b"no JSON")
    made.topic.land("bad")
    held = proxy.hold(**COMMIT)
    late = made.topic_table(behind_proxy)
    late.retrier = NO_RETRY
    with pytest.raises(TransientError):
        late.add()
    made.land({"n": 2})
    assert made.topic_table().add().last == 3
    held.release()
    proxy.wait_until_idle()
    assert made.topic_table().status().last == 3
    assert made.topic_table().add().commits == 0
    assert numbers(made) == [1, 2]


def test_processes_that_race_beside_a_foreign_writer_add_each_batch_once(
    table_of: Callable[..., TableOfTopic], catalog_server: IcebergCatalog, s3_settings: S3Settings
) -> None:
    """Four of them with six batches, from the creation of the table on; the rows of the foreign writer stay."""
    made = table_of()
    for batch in range(6):
        made.land({"n": 2 * batch}, {"n": 2 * batch + 1})
    files = file_properties(s3_settings, CREDENTIALS)
    errors: list[Exception] = []

    def client() -> Catalog:
        return open_catalog("racer", {"uri": catalog_server.url, **files})

    def race(seed: int) -> None:
        try:
            made.topic_table(client(), files_per_commit=1 + seed % 3).add()
        except Exception as e:  # noqa: BLE001 - the test shows it
            errors.append(e)

    def append_foreign_rows() -> None:
        mine = client()
        for n in range(3):
            while True:
                try:
                    table = mine.load_table(made.table)
                    table.append(pa.table({"n": [-1 - n], "name": ["foreign"]}, schema=table.schema().as_arrow()))
                    break
                except (CommitFailedException, NoSuchTableError):
                    continue

    threads = [threading.Thread(target=race, args=(seed,)) for seed in range(4)]
    threads.append(threading.Thread(target=append_foreign_rows))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert numbers(made) == [-3, -2, -1, *range(12)]
    assert made.topic_table().status().last == 6
    assert unreferenced(made.catalog.load_table(made.table)) == set()


def test_a_table_that_was_set_back_is_not_changed(table_of: Callable[..., TableOfTopic]) -> None:
    """The property stays in front of the rows: the error names both, and nothing is added behind a gap."""
    made = table_of()
    made.land({"n": 1})
    made.topic_table().add()
    first = made.catalog.load_table(made.table).current_snapshot()
    made.land({"n": 2})
    made.topic_table().add()
    assert first is not None
    made.catalog.load_table(made.table).manage_snapshots().rollback_to_snapshot(first.snapshot_id).commit()
    made.land({"n": 3})
    before = made.catalog.load_table(made.table).metadata
    with pytest.raises(TableRolledBackError, match=r"batches up to 2, .* with them 1"):
        made.topic_table().add()
    assert made.catalog.load_table(made.table).metadata == before


def test_a_process_that_is_killed_between_two_requests_neither_loses_nor_doubles_a_batch(
    table_of: Callable[..., TableOfTopic], proxy: FaultProxy, s3_settings: S3Settings
) -> None:
    """Before and behind each request to the catalog, from the creation of the table on; the next one completes it."""
    made = table_of()
    given = {
        "catalog": proxy.endpoint,
        "endpoint": s3_settings.endpoint_url,
        "bucket": made.bucket,
        "table": made.table,
    }
    killed = 0
    for nth, applied in itertools.product(range(3, 6), (False, True)):
        proxy.clear()
        made.land({"n": killed})
        held = proxy.hold("*", nth=nth, applied=applied)
        command = [sys.executable, "-m", "tests.tables.process", json.dumps(given)]
        with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE) as process:
            wait_until(lambda p=process, h=held: h.is_held or p.poll() is not None, "a request or the end")
            process.kill()
        if held.is_held:
            held.release()
        proxy.wait_until_idle()
        killed += 1
    made.topic_table().add()
    assert numbers(made) == [*range(killed)]
    assert made.topic_table().check() == Difference(made.table, killed, killed, killed)


def test_a_table_that_was_set_back_to_before_all_batches_is_not_changed(
    table_of: Callable[..., TableOfTopic],
) -> None:
    """To a snapshot of somebody else; no snapshot of its line has a batch then."""
    one, other = table_of(), table_of()
    other.table = one.table
    one.land({"n": 1})
    one.topic_table().add()
    before = one.catalog.load_table(one.table).current_snapshot()
    assert before is not None
    other.land({"n": 2})
    other.topic_table().add()
    one.catalog.load_table(one.table).manage_snapshots().rollback_to_snapshot(before.snapshot_id).commit()
    with pytest.raises(TableRolledBackError, match=r"batches up to 1, .* with them 0"):
        other.topic_table().add()
    assert numbers(one) == [1]


def test_two_pipelines_of_one_table_do_not_take_each_others_batches(table_of: Callable[..., TableOfTopic]) -> None:
    """Each has a property of its own, whatever dots their names have."""
    one, other = table_of(), table_of()
    other.table = one.table
    one.land({"n": 1})
    other.land({"n": 2})
    other.land({"n": 3})
    assert [made.topic_table().add().last for made in (one, other, one, other)] == [1, 2, 1, 2]
    assert numbers(one) == [1, 2, 3]
    table = one.catalog.load_table(one.table)
    assert [last_batch(table, made.topic_table().name) for made in (one, other)] == [1, 2]
