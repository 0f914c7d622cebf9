"""Error of a task, last line of its log, and counts that add up over runs."""

from __future__ import annotations

import logging
from collections import defaultdict
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from airflow.providers.common.compat.sdk import (  # noqa: TID253 - after AIRFLOW_HOME is set, see conftest
    AirflowException,
    AirflowFailException,
    Asset,
)

from airflow_provider_kafka_s3.testing.invariants import check_bucket, read_source

if TYPE_CHECKING:
    from tests.unit.operators.conftest import Bench

DAY = 86_400_000
JANUARY_1 = 1_356_998_400_000
MARKER = "topics/_kafka_s3/orders-to-lake/orders/marker.json"
FIRST = "topics/orders/partition=0/orders+0+0000000000.json"


@pytest.fixture
def orders(bench: Bench) -> Bench:
    """A topic with ten records on each of five days."""
    bench.kafka.create_topic("orders")
    for n in range(50):
        bench.fill("orders", [{"n": n}], at=JANUARY_1 + n * DAY // 10)
    bench.outlet_events = defaultdict(SimpleNamespace)
    return bench


def days(first: int, last: int) -> tuple[datetime, datetime]:
    """The window from the beginning of the first day to the end of the last."""
    return datetime(2013, 1, first, tzinfo=UTC), datetime(2013, 1, last + 1, tzinfo=UTC)


@pytest.fixture(autouse=True)
def task_log(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Tasks use a logger of the standard library: Airflow 3 has another one."""
    from airflow_provider_kafka_s3.operators.kafka_to_s3 import KafkaToS3Operator

    monkeypatch.setattr(KafkaToS3Operator, "log", logging.getLogger("task"))
    caplog.set_level(logging.INFO)


def logged(caplog: pytest.LogCaptureFixture, level: int = logging.INFO) -> list[str]:
    """Messages that a task has logged at a level."""
    return [r.getMessage() for r in caplog.records if r.name == "task" and r.levelno == level]


# -- errors ---------------------------------------------------------------------------------------------------------


def test_an_error_begins_with_what_happened_and_its_commands_are_logged_on_lines_of_their_own(
    orders: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """The UI shows only the beginning of the exception, so that each command can be copied from the log."""
    orders.run(orders.task(), run_id="r1")
    orders.store.delete(FIRST)
    with pytest.raises(AirflowFailException) as failed:
        orders.run(orders.task(), run_id="r1", try_number=2)
    message = str(failed.value)
    assert message.startswith("1 object")
    assert message.endswith("[topic 'orders': MissingObjectError]")
    (shown,) = logged(caplog, logging.ERROR)
    commands = message.split("`")[1::2]
    assert len(commands) == 2
    assert [line.strip() for line in shown.splitlines() if line.strip().startswith("kafka-s3 ")] == commands
    assert [line for line in shown.splitlines() if len(line) > 110 and line.strip() not in commands] == []


def test_an_error_before_the_first_request_is_logged_too(
    orders: Bench, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A missing connection, with the command that adds one."""
    monkeypatch.delenv("AIRFLOW_CONN_KAFKA_DEFAULT")
    with pytest.raises(AirflowFailException, match=r"^there is no connection 'kafka_default'"):
        orders.run(orders.task())
    (shown,) = logged(caplog, logging.ERROR)
    assert "    airflow connections add kafka_default --conn-type kafka --conn-extra" in shown


def test_the_note_of_an_error_is_in_the_exception_and_in_the_log(
    orders: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """The end of a session of credentials comes with its ways out, which are added to S3's message."""
    orders.spark.failing["orders"] = ("transient", "UploadPart s3://lake/k: 400 ExpiredToken: it has expired")
    with pytest.raises(AirflowException, match=r"^UploadPart.*DurationSeconds"):
        orders.run(orders.task())
    (shown,) = logged(caplog, logging.ERROR)
    assert "DurationSeconds" in shown


# -- the last line ----------------------------------------------------------------------------------------------------


def test_the_last_line_is_a_summary_of_the_run(orders: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """Of runs that land, check, find nothing, verify and restore: with counts."""

    def last(run_id: str, **parameters: Any) -> str:
        caplog.clear()
        task = orders.task(**parameters.pop("task", {}))
        orders.run(task, run_id=run_id, **parameters)
        assert logged(caplog, logging.ERROR) == logged(caplog, logging.WARNING) == []
        return logged(caplog)[-1]

    window = {"task": {"offsets": "data_interval", "partitioner": "daily"}, "interval": days(1, 3)}
    assert last("r1", **window).startswith("topic orders: 1 batch, 30 records in 3 objects (")
    assert last("r1", **window) == "topic orders: already landed: 3 objects checked, nothing written"
    assert last("r2", **window) == "topic orders: already landed: 3 objects checked, nothing written"
    assert last("r3", task={"partitioner": "daily", "limits": {"records_per_batch": 19}}).startswith(
        "topic orders: 2 batches, 20 records in 3 objects ("
    )
    assert last("r4") == "topic orders: nothing to land, nothing written"
    size = sum(info.size for info in orders.store.list("topics/orders/"))
    verified = f"{size} B) as committed"
    assert last("r6", conf={"kafka_s3": {"action": "verify"}}) == f"topic orders: 6 objects ({verified}"
    key = min(info.key for info in orders.store.list("topics/orders/"))
    orders.store.delete(key)
    restored = last("r7", conf={"kafka_s3": {"action": "restore"}})
    assert restored.endswith("; 1 object of these written again")


def test_the_summary_has_tombstones_ignored_values_and_dead_letters_if_there_are_any(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """They are in XCom as well, where they are also 0."""
    bench.kafka.create_topic("orders")
    task = bench.task(format={"kind": "json", "on_null": "write"}, content={"kind": "siblings"}, errors="dead_letter")
    ignoring = bench.task(format={"kind": "json", "on_null": "ignore"}, errors="dead_letter")

    def landed(run_id: str, *values: bytes | None, by: Any = task) -> tuple[str, tuple[int, ...]]:
        for value in values:
            bench.kafka.append("orders", 0, value, JANUARY_1, key=b"k")
        returned = bench.run(by, run_id=run_id)
        (batch,) = returned["topics"]["orders"]["batches"]
        topic, names = returned["topics"]["orders"], ("records", "tombstones", "ignored", "dead_letters")
        counts = tuple(batch[name] for name in names)
        for other in (returned, returned["landed"], topic, topic["landed"]):
            assert tuple(other[name] for name in names) == counts
        return logged(caplog)[-1].partition("landed")[2], counts

    assert landed("r1", b"1") == ("", (1, 0, 0, 0))
    assert landed("r2", b"1", None) == ("; 1 tombstone among the records", (2, 1, 0, 0))
    assert landed("r3", b"{", None, None) == (
        "; 2 tombstones among the records; 1 dead letter below _dead_letters",
        (2, 2, 0, 1),
    )
    assert landed("r4", None, b"1", by=ignoring) == ("; 1 null value ignored", (1, 0, 1, 0))
    assert landed("r5", None, b"{", None, by=ignoring) == (
        "; 2 null values ignored; 1 dead letter below _dead_letters",
        (0, 0, 2, 1),
    )


def test_a_batch_that_another_run_decided_is_in_the_summary(
    orders: Bench, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have executed it; the one that did not decide it has landed nothing."""
    execute, others = orders.spark.submit, ["r2"]

    def start_another_first(hook: Any, application: str = "") -> None:
        if others:
            orders.run(orders.task(), run_id=others.pop())
        execute(hook, application)

    monkeypatch.setattr(orders.spark, "submit", start_another_first)
    orders.run(orders.task(), run_id="r1")
    last = [line for line in logged(caplog) if line.startswith("topic orders: 1 batch")]
    assert last[0].startswith("topic orders: 1 batch, 50 records in 1 object (")
    assert last[1:] == ["topic orders: 1 batch landed by other runs"]


def test_several_topics_have_a_line_each_and_a_sum(orders: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """The sum is the last."""
    orders.kafka.create_topic("clicks")
    orders.fill("clicks", [{"n": 1}])
    orders.run(orders.task(topics="clicks,orders"))
    assert [line.partition(" (")[0] for line in logged(caplog)[-3:]] == [
        "topic clicks: 1 batch, 1 record in 1 object",
        "topic orders: 1 batch, 50 records in 1 object",
        "2 topics: 2 batches, 51 records in 2 objects",
    ]


@pytest.mark.parametrize("action", ["verify", "restore"])
def test_a_run_that_verifies_does_not_log_a_target_to_land(
    orders: Bench, caplog: pytest.LogCaptureFixture, action: str
) -> None:
    """It reads landed objects, and no new records."""
    orders.run(orders.task())
    caplog.clear()
    orders.run(orders.task(action=action), run_id="another")
    assert logged(caplog)[0] == f"{action} the batches that this run landed; if it is a new run, all landed batches"


# -- counts that add up -----------------------------------------------------------------------------------------------


class Died(BaseException):
    """The end of a worker."""


def checked(orders: Bench) -> int:
    """The number of landed records, after a check that each is landed once."""
    source = read_source(orders.kafka, "orders")
    return check_bucket(
        orders.store,
        topics_dir="topics",
        pipeline="orders-to-lake",
        topic="orders",
        source=source,
        recovered=True,
        complete=True,
    ).records


def land(orders: Bench, run_id: str, window: tuple[datetime, datetime], **parameters: Any) -> dict[str, Any]:
    """A run of a day or more; its asset event has the counts of its XCom."""
    lake = Asset("s3://lake/topics")
    orders.outlet_events = defaultdict(SimpleNamespace)
    task = orders.task(offsets="data_interval", partitioner="daily", outlets=[lake])
    events = orders.outlet_events
    returned = orders.run(task, run_id=run_id, interval=window, **parameters)
    assert events[lake].extra["landed"] == returned["landed"]
    return returned


def test_landed_adds_up_to_the_records_of_the_topic_when_windows_overlap_in_parallel(
    orders: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five runs, each in the middle of the job of the one before: a run that needs a batch of another adopts it."""
    execute = orders.spark.submit
    waiting = {f"r{n}": days(n, min(n + 1, 5)) for n in range(1, 6)}
    returned: dict[str, dict[str, Any]] = {}

    def start_another_first(hook: Any, application: str = "") -> None:
        if waiting:
            run_id = next(iter(waiting))
            returned[run_id] = land(orders, run_id, waiting.pop(run_id))
        execute(hook, application)

    monkeypatch.setattr(orders.spark, "submit", start_another_first)
    returned["r0"] = land(orders, "r0", days(1, 1))
    assert checked(orders) == 50
    assert len(returned) == 6
    assert sum(r["landed"]["records"] for r in returned.values()) == 50
    assert sum(r["records"] for r in returned.values()) > 50
    listed = [b for r in returned.values() for b in r["topics"]["orders"]["batches"]]
    assert any(b["landed_here"] and not b["planned_here"] for b in listed)
    landed = [b["manifest"] for b in listed if b["landed_here"]]
    assert sorted(landed) == sorted({b["manifest"] for b in listed})
    assert len(landed) == sum(r["landed"]["batches"] for r in returned.values())


@pytest.mark.parametrize("decided", [False, True])
def test_a_batch_that_a_dead_run_left_is_counted_once(
    orders: Bench, monkeypatch: pytest.MonkeyPatch, decided: bool
) -> None:
    """By the run whose driver decided it: the one that adopts it, or the dead one when it is retried."""
    execute = orders.spark.submit

    def die(hook: Any, application: str = "") -> None:
        if decided:
            execute(hook, application)
        raise Died

    monkeypatch.setattr(orders.spark, "submit", die)
    with pytest.raises(Died):
        land(orders, "r1", days(1, 2))
    monkeypatch.setattr(orders.spark, "submit", execute)
    adopting = land(orders, "r2", days(1, 5))
    again = land(orders, "r1", days(1, 2), try_number=2)
    assert checked(orders) == 50
    # What was covered before a run began is not among its offsets.
    assert (adopting["records"], again["records"]) == (30 if decided else 50, 20)
    assert adopting["landed"]["records"] == (30 if decided else 50)
    assert again["landed"]["records"] == (20 if decided else 0)
    assert [b["planned_here"] for b in again["topics"]["orders"]["batches"]] == [True]


def test_a_repeated_run_has_the_same_counts_and_one_that_verifies_has_none(orders: Bench) -> None:
    """Its XCom replaces the one before, so the sum over runs stays right."""
    first = land(orders, "r1", days(1, 5))
    assert land(orders, "r1", days(1, 5), try_number=2)["landed"] == first["landed"]
    looked = land(orders, "r2", days(1, 5), conf={"kafka_s3": {"action": "verify"}})
    assert (looked["records"], looked["landed"]["records"]) == (50, 0)
