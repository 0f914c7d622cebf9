"""Each step of the commit rule is needed: without it, a batch is in twice, or the table is lost."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table, Transaction

from airflow_provider_kafka_s3.exceptions import TransientError
from airflow_provider_kafka_s3.tables.iceberg import commit as rule
from airflow_provider_kafka_s3.tables.iceberg.commit import Change
from dev.fault_proxy import FaultProxy
from dev.faults import Lose, Twice
from tests.tables.conftest import TableOfTopic
from tests.tables.test_commit_faults import COMMIT, NO_RETRY, numbers


def by_the_library(table: Table, transaction: Transaction) -> None:
    """Send a commit with the library's retries and clean-up."""
    transaction.commit_transaction()


def test_a_commit_by_the_library_after_a_lost_answer_destroys_the_table(
    table_of: Callable[..., TableOfTopic], proxy: FaultProxy, behind_proxy: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second answer is a refusal, so it deletes the manifest list of the commit that landed."""
    made = table_of()
    made.land({"n": 1})
    made.topic_table().add()
    with made.catalog.load_table(made.table).transaction() as transaction:
        transaction.set_properties({"commit.retry.num-retries": "0"})
    made.land({"n": 2})
    monkeypatch.setattr(rule, "_send", by_the_library)
    proxy.add(Twice(), **COMMIT)
    made.topic_table(behind_proxy).add()
    with pytest.raises(FileNotFoundError):
        made.rows()


def test_retries_by_the_library_add_a_batch_of_two_processes_twice(
    table_of: Callable[..., TableOfTopic], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They take the new head without a look at the property."""
    made = table_of()
    made.land({"n": 1})
    made.topic_table().add()
    made.land({"n": 2})
    other = made.topic_table()

    def after_another(table: Table, transaction: Transaction) -> None:
        monkeypatch.undo()
        other.add()
        by_the_library(table, transaction)

    monkeypatch.setattr(rule, "_send", after_another)
    made.topic_table().add()
    assert numbers(made) == [1, 2, 2]


def test_a_second_try_without_a_look_at_the_property_adds_a_batch_twice(
    table_of: Callable[..., TableOfTopic], proxy: FaultProxy, behind_proxy: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one had landed, and its answer was lost."""
    made = table_of()
    made.land({"n": 1})
    made.topic_table().add()
    made.land({"n": 2})
    original = rule.commit
    looks: list[bool] = []

    def blind(*arguments: Any, is_done: Callable[[Table], bool], **more: Any) -> Any:
        def once(table: Table) -> bool:
            looks.append(is_done(table))
            return looks[0] if len(looks) <= 2 else is_done(table)

        return original(*arguments, is_done=once, **more)

    monkeypatch.setattr("airflow_provider_kafka_s3.tables.iceberg.topic_table.commit", blind)
    monkeypatch.setattr(rule, "last_batch", lambda *_: 1)
    proxy.add(Lose(), **COMMIT)
    made.topic_table(behind_proxy).add()
    assert numbers(made) == [1, 2, 2]


def test_a_batch_without_objects_that_makes_no_snapshot_is_not_fenced(
    table_of: Callable[..., TableOfTopic], proxy: FaultProxy, behind_proxy: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its late commit sets the property back, and the next batch is added twice."""
    made = table_of(errors="dead_letter")
    made.land({"n": 1})
    made.topic_table().add()
    made.topic.append(b"no JSON")
    made.topic.land("bad")
    original = rule.stage

    def unfenced(table: Table, change: Change) -> Transaction:
        if change.files:
            return original(table, change)
        transaction = table.transaction().set_properties({change.name: str(change.last)})
        nothing: Any = SimpleNamespace(_snapshot_id=0, _written_manifests=[], _written_manifest_lists=[])
        transaction._snapshot_producers.append(nothing)
        return transaction

    monkeypatch.setattr(rule, "stage", unfenced)
    held = proxy.hold(**COMMIT)
    late = made.topic_table(behind_proxy)
    late.retrier = NO_RETRY
    with pytest.raises(TransientError):
        late.add()
    monkeypatch.undo()
    made.land({"n": 2})
    made.topic_table().add()
    held.release()
    proxy.wait_until_idle()
    assert made.catalog.load_table(made.table).properties[made.topic_table().name] == "2"
