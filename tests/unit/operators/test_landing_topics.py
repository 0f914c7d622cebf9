"""The objects, the XCom and the errors of the operator."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_kafka_s3.batch.request import TopicResult
from airflow_provider_kafka_s3.config import Limits
from airflow_provider_kafka_s3.documents.offsets import NO_OFFSETS
from airflow_provider_kafka_s3.submit.topic_runs import land_topics
from airflow_provider_kafka_s3.testing.invariants import check_bucket, check_unchanged, read_source, snapshot

if TYPE_CHECKING:
    from tests.unit.operators.conftest import Bench

DAY = 86_400_000
JANUARY_1 = 1_356_998_400_000


def test_new_records_are_landed_and_returned(bench: Bench) -> None:
    """A first run from the earliest offset lands everything, and its XCom has the counts and the manifests."""
    bench.kafka.create_topic("orders", 2)
    bench.fill("orders", [{"n": 1}, {"n": 2}])
    bench.fill("orders", [{"n": 3}], partition=1)
    returned = bench.run(bench.task())
    assert bench.objects() == {
        "topics/orders/partition=0/orders+0+0000000000.json": [{"n": 1}, {"n": 2}],
        "topics/orders/partition=1/orders+1+0000000000.json": [{"n": 3}],
    }
    size = sum(i.size for i in bench.store.list("topics/orders/"))
    assert returned == {
        "status": "ok",
        "action": "land",
        "window": None,
        "topics": {
            "orders": {
                "status": "ok",
                "batches": [
                    {
                        "batch": 1,
                        "manifest": (
                            "s3://lake/topics/_kafka_s3/orders-to-lake/orders/batches/0000000001.manifest.json"
                        ),
                        "planned_here": True,
                        "landed_here": True,
                        "tombstones": 0,
                        "ignored": 0,
                        "dead_letters": 0,
                        "objects": 2,
                        "records": 3,
                        "size": size,
                        "offsets": {"0": [[0, 2]], "1": [[0, 1]]},
                    }
                ],
                "records": 3,
                "tombstones": 0,
                "ignored": 0,
                "dead_letters": 0,
                "objects": 2,
                "size": size,
                "landed": {
                    "batches": 1,
                    "records": 3,
                    "tombstones": 0,
                    "ignored": 0,
                    "dead_letters": 0,
                    "objects": 2,
                    "size": size,
                },
                "unknown_fields": {"records": 0, "landed": 0, "names": []},
                "batch_ranges": [[1, 1]],
                "shared": False,
                "skipped": {},
                "verified": 0,
                "wrote": True,
                "held_back": {},
                "verification": None,
            }
        },
        "batches": 1,
        "records": 3,
        "tombstones": 0,
        "ignored": 0,
        "dead_letters": 0,
        "objects": 2,
        "size": size,
        "landed": {
            "batches": 1,
            "records": 3,
            "tombstones": 0,
            "ignored": 0,
            "dead_letters": 0,
            "objects": 2,
            "size": size,
        },
        "unknown_fields": {"records": 0, "landed": 0, "names": []},
        "wrote": True,
    }


def test_dead_letters_are_limited_for_each_topic_over_all_batches_of_a_run(bench: Bench) -> None:
    """A topic with too many ends at the batch that exceeds the limit, in every try; another one is landed."""
    from airflow.providers.common.compat.sdk import AirflowFailException

    for topic, values in {"orders": [b"{", b"1", b"{", b"2", b"{", b"3"], "clicks": [b"{", b"1", b"{", b"2"]}.items():
        bench.kafka.create_topic(topic)
        for value in values:
            bench.kafka.append(topic, 0, value, 0)
    settings: dict[str, Any] = {
        "topics": ["orders", "clicks"],
        "errors": "dead_letter",
        "max_dead_letters": 2,
        "limits": Limits(records_per_batch=2),
    }
    for number in (1, 2):
        with pytest.raises(
            AirflowFailException, match=r"batch 3 of topic 'orders' has more dead letters than max_dead_letters=2"
        ):
            bench.run(bench.task(**settings), try_number=number)
    landed = {key: len(documents) for key, documents in bench.objects().items() if "/_dead_letters/" in key}
    assert sorted(key.split("/")[1] for key in landed) == ["clicks", "clicks", "orders", "orders"]
    returned = bench.run(bench.task(**{**settings, "max_dead_letters": 3}), try_number=3)
    assert {name: topic["dead_letters"] for name, topic in returned["topics"].items()} == {"orders": 3, "clicks": 2}


def test_latest_lands_exactly_what_comes_after_the_first_run(bench: Bench) -> None:
    """A first run with latest finds nothing and starts no Spark; the second reads exactly the records since."""
    bench.kafka.create_topic("orders")
    bench.fill("orders", [{"old": 1}])
    task = bench.task(starting_offsets="latest")
    assert bench.run(task, run_id="r1")["status"] == "empty"
    assert bench.spark.commands == []
    bench.fill("orders", [{"new": 1}, {"new": 2}])
    assert bench.run(task, run_id="r2")["topics"]["orders"]["batches"][0]["offsets"] == {"0": [[1, 3]]}
    assert list(bench.objects().values()) == [[{"new": 1}, {"new": 2}]]


def test_nothing_new_writes_nothing_and_starts_no_spark(bench: Bench) -> None:
    """Another run over an unchanged topic succeeds."""
    bench.kafka.create_topic("orders")
    bench.fill("orders", [{"n": 1}])
    bench.run(bench.task(), run_id="r1")
    before = snapshot(bench.store)
    returned = bench.run(bench.task(), run_id="r2")
    assert (returned["status"], returned["wrote"], returned["records"]) == ("empty", False, 0)
    check_unchanged(before, snapshot(bench.store))
    assert len(bench.spark.commands) == 1


def test_a_repeated_run_returns_its_batches_again(bench: Bench) -> None:
    """After a task that succeeded is cleared, it checks its objects, writes nothing and returns the same batches."""
    bench.kafka.create_topic("orders")
    bench.fill("orders", [{"n": 1}])
    first = bench.run(bench.task())
    bench.fill("orders", [{"n": 2}])
    before = snapshot(bench.store)
    again = bench.run(bench.task(), try_number=2)
    check_unchanged(before, snapshot(bench.store))
    assert again["topics"]["orders"]["batches"] == first["topics"]["orders"]["batches"]
    assert (again["topics"]["orders"]["verified"], again["wrote"]) == (1, False)


def test_a_run_in_several_batches_submits_several_jobs(bench: Bench) -> None:
    """A cap on a batch makes one run land several of them, one job after the other."""
    bench.kafka.create_topic("orders")
    bench.fill("orders", [{"n": n} for n in range(5)])
    returned = bench.run(bench.task(limits=Limits(records_per_batch=2)))
    assert [b["offsets"] for b in returned["topics"]["orders"]["batches"]] == [
        {"0": [[0, 2]]},
        {"0": [[2, 4]]},
        {"0": [[4, 5]]},
    ]
    assert len(bench.spark.commands) == 3


def test_a_cap_on_the_run_leaves_the_rest_to_the_next(bench: Bench) -> None:
    """``records_per_run`` is shared by the partitions, and later runs continue from there."""
    bench.kafka.create_topic("orders", 2)
    for partition in (0, 1):
        bench.fill("orders", [{"n": n} for n in range(4)], partition=partition)
    task = bench.task(limits=Limits(records_per_run=4))
    offsets = [bench.run(task, run_id=f"r{i}")["topics"]["orders"]["batches"][0]["offsets"] for i in (1, 2)]
    assert offsets == [{"0": [[0, 2]], "1": [[0, 2]]}, {"0": [[2, 4]], "1": [[2, 4]]}]


def test_all_topics_share_one_job(bench: Bench) -> None:
    """Several topics are one submit, and each has its own log of batches."""
    for topic in ("orders", "clicks", "idle"):
        bench.kafka.create_topic(topic)
    bench.fill("orders", [{"n": 1}])
    bench.fill("clicks", [{"n": 2}])
    returned = bench.run(bench.task(topics=["orders", "clicks", "idle"]))
    assert {topic: (r["status"], r["records"]) for topic, r in returned["topics"].items()} == {
        "orders": ("ok", 1),
        "clicks": ("ok", 1),
        "idle": ("empty", 0),
    }
    assert [[ref.topic for ref in spec.plans] for spec in bench.spark.specs] == [["orders", "clicks"]]


def test_a_failing_topic_neither_stops_nor_undoes_the_others(bench: Bench) -> None:
    """The others are committed; the error names the failed topic and the others; a retry finds them covered."""
    from airflow.providers.common.compat.sdk import AirflowFailException

    for topic in ("orders", "clicks"):
        bench.kafka.create_topic(topic)
        bench.fill(topic, [{"n": 1}])
    bench.spark.failing["clicks"] = ("record", "topic 'clicks' partition 0 offset 0: not JSON")
    task = bench.task(topics="orders, clicks")
    with pytest.raises(AirflowFailException) as failed:
        bench.run(task)
    assert str(failed.value).splitlines() == [
        "topic 'clicks' partition 0 offset 0: not JSON [topic 'clicks': RecordError]",
        "done, and committed for good: 'orders'",
    ]
    assert list(bench.objects()) == ["topics/orders/partition=0/orders+0+0000000000.json"]
    bench.spark.failing.clear()
    assert bench.run(task, try_number=2)["records"] == 2
    assert [ref.topic for ref in bench.spark.specs[-1].plans] == ["clicks"]


def test_one_transient_error_makes_the_task_worth_a_retry(bench: Bench) -> None:
    """Airflow retries if a retry may succeed for one of the failed topics."""
    from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException

    for topic in ("orders", "clicks"):
        bench.kafka.create_topic(topic)
        bench.fill(topic, [{"n": 1}])
    bench.spark.failing = {"clicks": ("record", "not JSON"), "orders": ("kafka_unavailable", "no broker")}
    with pytest.raises(AirflowException) as failed:
        bench.run(bench.task(topics="orders,clicks"))
    assert not isinstance(failed.value, AirflowFailException)
    assert str(failed.value).splitlines() == [
        "not JSON [topic 'clicks': RecordError]",
        "no broker [topic 'orders': KafkaUnavailableError]",
    ]


def test_a_job_that_dies_is_transient_and_its_last_output_is_in_the_error(bench: Bench) -> None:
    """A driver without a result fails the task with the output of spark-submit; the next try finishes the batch."""
    from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException

    bench.kafka.create_topic("orders")
    bench.fill("orders", [{"n": 1}])
    bench.spark.crash = "Cannot execute: spark-submit. Error code is: 1.\nLast spark-submit output:\nError: no room"
    with pytest.raises(AirflowException, match=r"^Error: no room\. The Spark driver ended.*SparkJobError") as failed:
        bench.run(bench.task())
    assert not isinstance(failed.value, AirflowFailException)
    assert bench.objects() == {}
    bench.spark.crash = None
    returned = bench.run(bench.task(), try_number=2)
    assert (returned["batches"], returned["records"]) == (1, 1)


def test_the_task_s_error_names_the_ways_out_of_credentials_that_end_during_a_job(bench: Bench) -> None:
    """A session of a role may be shorter than a job, and a retry alone would only start the batch again."""
    from airflow.providers.common.compat.sdk import AirflowException

    bench.kafka.create_topic("orders")
    bench.fill("orders", [{"n": 1}])
    bench.spark.failing["orders"] = ("transient", "UploadPart s3://lake/k: 400 ExpiredToken: it has expired")
    with pytest.raises(AirflowException, match=r"ExpiredToken.*DurationSeconds.*aws_conn_id=None"):
        bench.run(bench.task())


def test_a_job_that_decided_counts_whatever_its_exit_status(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the log has the decision, the task continues, even if spark-submit reports a failure."""
    from airflow.providers.common.compat.sdk import AirflowException

    bench.kafka.create_topic("orders")
    bench.fill("orders", [{"n": 1}])
    execute = bench.spark.submit

    def lost_at_the_end(hook: Any, application: str = "") -> None:
        execute(hook, application)
        raise AirflowException("connection to the driver lost")

    monkeypatch.setattr(bench.spark, "submit", lost_at_the_end)
    assert bench.run(bench.task())["records"] == 1


def test_a_topic_that_is_not_there_is_a_terminal_error_that_names_it(bench: Bench) -> None:
    """The other topics are landed nevertheless."""
    from airflow.providers.common.compat.sdk import AirflowFailException

    bench.kafka.create_topic("orders")
    bench.fill("orders", [{"n": 1}])
    with pytest.raises(AirflowFailException, match=r"^topic 'oders' .*\[topic 'oders': TopicNotFoundError\]"):
        bench.run(bench.task(topics=["orders", "oders"]))
    assert len(bench.objects()) == 1


def test_added_partitions_are_read_from_their_beginning(bench: Bench) -> None:
    """Records of a partition that was added later are landed by the next run, and none is lost."""
    bench.kafka.create_topic("orders")
    bench.fill("orders", [{"n": 1}])
    bench.run(bench.task(), run_id="r1")
    bench.kafka.add_partitions("orders", 3)
    bench.fill("orders", [{"n": 2}], partition=2)
    assert bench.run(bench.task(), run_id="r2")["topics"]["orders"]["batches"][0]["offsets"] == {"2": [[0, 1]]}
    summary = check_bucket(
        bench.store,
        topics_dir="topics",
        pipeline="orders-to-lake",
        topic="orders",
        source=read_source(bench.kafka, "orders"),
        recovered=True,
        complete=True,
    )
    assert summary.records == 2


def test_an_empty_topic_is_a_success(bench: Bench) -> None:
    """A topic without records is no error and needs no Spark."""
    bench.kafka.create_topic("orders", 3)
    assert bench.run(bench.task())["status"] == "empty"
    assert bench.spark.commands == []


def test_a_data_interval_is_landed_by_timestamps(bench: Bench, day: tuple[datetime, datetime]) -> None:
    """A run lands the records of its window, and the next window begins at its end."""
    bench.kafka.create_topic("orders")
    for n in range(4):
        bench.fill("orders", [{"n": n}], at=JANUARY_1 + n * DAY // 2)
    task = bench.task(offsets="data_interval", partitioner="daily")
    first = bench.run(task, run_id="r1", interval=day)
    one_day = timedelta(days=1)
    second = bench.run(task, run_id="r2", interval=(day[0] + one_day, day[1] + one_day))
    assert [r["topics"]["orders"]["batches"][0]["offsets"] for r in (first, second)] == [
        {"0": [[0, 2]]},
        {"0": [[2, 4]]},
    ]
    assert list(bench.objects()) == [
        "topics/orders/year=2013/month=01/day=01/orders+0+0000000000.json",
        "topics/orders/year=2013/month=01/day=02/orders+0+0000000002.json",
    ]


def test_a_second_run_of_an_interval_names_the_batches_that_cover_it(
    bench: Bench, day: tuple[datetime, datetime]
) -> None:
    """Another run over a covered interval writes nothing, starts no Spark, and returns the batches that cover it."""
    bench.kafka.create_topic("orders")
    bench.fill("orders", [{"n": 1}], at=JANUARY_1)
    task = bench.task(offsets="data_interval")
    first = bench.run(task, run_id="r1", interval=day)
    before = snapshot(bench.store)
    second = bench.run(task, run_id="r2", interval=day)
    check_unchanged(before, snapshot(bench.store))
    not_here = {"planned_here": False, "landed_here": False}
    assert second["topics"]["orders"]["batches"] == [first["topics"]["orders"]["batches"][0] | not_here]
    assert (second["records"], second["landed"]["records"]) == (1, 0)
    assert (second["status"], second["topics"]["orders"]["shared"], second["wrote"]) == ("ok", True, False)
    assert len(bench.spark.commands) == 1


@pytest.mark.parametrize(
    ("interval", "message"),
    [
        (None, "this run has no data interval.*; schedule the DAG with CronDataIntervalTimetable"),
        (
            (datetime(2013, 1, 1, 5, 30, tzinfo=UTC), datetime(2013, 1, 1, 5, 30, tzinfo=UTC)),
            r"is empty: .*; schedule the DAG with CronDataIntervalTimetable",
        ),
        (
            (datetime(2013, 1, 1, tzinfo=UTC), datetime(9013, 1, 2, tzinfo=UTC)),
            "ends in the future, at 9013-01-02T00:00:00.00:00",
        ),
    ],
)
def test_the_error_of_an_unusable_interval_is_terminal_and_names_a_timetable(
    bench: Bench, interval: tuple[datetime, datetime] | None, message: str
) -> None:
    """No interval, an empty one, and one that has not ended yet are refused before anything is read."""
    from airflow.providers.common.compat.sdk import AirflowFailException

    bench.kafka.create_topic("orders")
    with pytest.raises(AirflowFailException, match=message):
        bench.run(bench.task(offsets="data_interval"), interval=interval)
    assert list(bench.store.list("")) == []


def test_an_interval_that_ends_soon_is_retried(bench: Bench) -> None:
    """So that a slow clock needs no person."""
    from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException

    bench.kafka.create_topic("orders")
    soon = datetime.now(UTC) + timedelta(seconds=30)
    with pytest.raises(AirflowException, match="a retry will succeed after its end") as failed:
        bench.run(bench.task(offsets="data_interval"), interval=(soon - timedelta(hours=1), soon))
    assert not isinstance(failed.value, AirflowFailException)


def test_after_windows_an_incremental_run_begins_untouched_partitions_at_their_earliest_record(
    bench: Bench, day: tuple[datetime, datetime]
) -> None:
    """A pipeline whose first run was a window has stored offsets, so starting_offsets have no effect."""
    bench.kafka.create_topic("orders", 2)
    bench.fill("orders", [{"n": 1}], at=JANUARY_1)
    bench.fill("orders", [{"n": 2}], partition=1, at=JANUARY_1 + 5 * DAY)
    bench.run(bench.task(offsets="data_interval"), run_id="r1", interval=day)
    returned = bench.run(bench.task(starting_offsets="latest"), run_id="r2")
    assert returned["topics"]["orders"]["batches"][0]["offsets"] == {"1": [[0, 1]]}


def test_an_error_prints_a_command_with_the_connections_of_the_task(bench: Bench) -> None:
    """The command uses the same bucket and cluster."""
    from airflow.providers.common.compat.sdk import AirflowFailException

    bench.kafka.create_topic("orders")
    bench.fill("orders", [{"n": 1}])
    bench.run(bench.task())
    bench.kafka.create_topic("orders")
    with pytest.raises(AirflowFailException) as failed:
        bench.run(bench.task(), run_id="manual__2")
    assert (
        "`kafka-s3 reset --kafka-conn-id kafka_default --aws-conn-id aws_default --bucket lake --topics-dir topics "
        "--pipeline orders-to-lake --topic orders`"
    ) in str(failed.value)


def test_hundreds_of_topics_are_processed_concurrently() -> None:
    """Before and after the job: no run continues before sixteen are advancing at the same time."""
    together = threading.Barrier(16, timeout=60)
    topics = [f"topic-{n}" for n in range(480)]

    class Topic:
        """A run that plans once, waits for fifteen others whenever it advances, and is done after the job."""

        def __init__(self, name: str) -> None:
            self.name, self.planned, self.log = name, False, self

        def advance(self) -> Any:
            together.wait()
            if self.planned:
                return TopicResult(topic=self.name, status="ok", target=NO_OFFSETS, batches=(), skipped=NO_OFFSETS)
            self.planned = True
            return SimpleNamespace(topic=self.name, batch=1)

        def read_manifest(self, batch: int) -> object:
            together.wait()
            return batch

    submitted: list[int] = []
    runs: Any = {name: Topic(name) for name in topics}
    landed = land_topics(runs, lambda plans: submitted.append(len(plans)) or {})  # type: ignore[func-returns-value]
    assert (submitted, list(landed.results), landed.errors) == ([480], topics, {})
