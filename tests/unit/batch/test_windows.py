"""Windows of a run, by time or by offsets: nothing is read twice, and no gap is left below landed offsets."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_kafka_s3.batch.request import TopicResult
from airflow_provider_kafka_s3.batch.source import Isolation
from airflow_provider_kafka_s3.documents.offsets import Offsets
from airflow_provider_kafka_s3.documents.plan import Plan
from airflow_provider_kafka_s3.exceptions import ConfigurationError, DataLossError
from airflow_provider_kafka_s3.storage.memory import MemoryStore
from airflow_provider_kafka_s3.testing.invariants import check_unchanged, snapshot
from airflow_provider_kafka_s3.testing.kafka import SimulatedKafka
from airflow_provider_kafka_s3.testing.stores import Fault, FaultyStore, SimulatedCrash
from tests.protocol.engine import CONTROL, TOPIC, Clock, Engine, check_landed, crash_after

if TYPE_CHECKING:
    import pyarrow as pa


class Pipeline:
    """A bucket and a cluster with one topic; a record's value identifies it."""

    def __init__(self, partitions: int = 1) -> None:
        self.kafka = SimulatedKafka(records_per_poll=2)
        self.kafka.create_topic(TOPIC, partitions)
        self.bucket = MemoryStore()

    def records(self, *timestamps: int, partition: int = 0) -> None:
        for timestamp in timestamps:
            offset = self.kafka.bounds(TOPIC, partition)[1]
            self.kafka.append(TOPIC, partition, b"%d/%d" % (partition, offset), timestamp)

    def lands(self, run: str, window: Any, **settings: Any) -> TopicResult:
        return Engine(self.bucket, self.kafka).run(run, "data_interval", window=window, **settings)

    def dies_after(self, document: str, run: str, window: Any, **settings: Any) -> None:
        crash_after(f"*.{document}.json", self.bucket, self.kafka, run, "data_interval", window=window, **settings)

    def covered(self) -> Offsets:
        marker = Engine(self.bucket, self.kafka).log.read_marker()
        assert marker is not None
        return marker[0].covered

    def check(self, **how: Any) -> None:
        check_landed(self.bucket, self.kafka, is_optional=self.kafka.is_optional, **how)


def offsets(*ranges: tuple[int, int], partition: int = 0) -> Offsets:
    """Ranges of one partition."""
    return Offsets({partition: ranges})


class ReadOnce(SimulatedKafka):
    """A cluster that records its reads."""

    def __init__(self) -> None:
        super().__init__(records_per_poll=2)
        self.read_offsets: list[tuple[int, int]] = []

    def read(
        self, topic: str, partition: int, start: int, end: int, isolation: Isolation, *, whole: bool = False
    ) -> Iterator[pa.RecordBatch]:
        self.read_offsets += [(partition, offset) for offset in range(start, end)]
        return super().read(topic, partition, start, end, isolation, whole=whole)


# -- windows of time --------------------------------------------------------------------------------------------------


def test_what_is_covered_is_never_read_again() -> None:
    """Overlapping windows, of time and of offsets: each offset is read once."""
    pipeline = Pipeline()
    pipeline.kafka = kafka = ReadOnce()
    kafka.create_topic(TOPIC)
    pipeline.records(*range(30))
    for number, window in enumerate([(10, 20), (5, 15), (18, 25), {0: (0, 30)}, (0, 99)]):
        pipeline.lands(f"run-{number}", window)
    assert sorted(kafka.read_offsets) == [(0, offset) for offset in range(30)]
    pipeline.check(complete=True, recovered=True)


def test_a_gap_below_a_window_is_landed_and_its_size_is_logged_before_planning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Per partition; a process that ends right after the log line and has planned nothing."""
    pipeline = Pipeline(2)
    pipeline.records(*range(0, 5000, 2))
    pipeline.records(*range(0, 20, 2), partition=1)
    pipeline.lands("first", (0, 10))
    store = FaultyStore(pipeline.bucket)
    store.inject(Fault.CRASH_BEFORE, operation="put_new")
    caplog.clear()
    with caplog.at_level(logging.INFO), pytest.raises(SimulatedCrash):
        Engine(store, pipeline.kafka).run(
            "above", "data_interval", window=(4000, 4100), limits={"records_per_slice": 10_000}
        )
    assert "2000 of these offsets are below the window and were never landed" in caplog.text
    assert "1,995 of partition 0, 5 of partition 1" in caplog.text
    assert len(list(pipeline.bucket.list(f"{CONTROL}batches/"))) == 2
    assert pipeline.lands("above", (4000, 4100)).target == Offsets({0: [(5, 2050)], 1: [(5, 10)]})


def test_a_window_without_a_gap_below_it_logs_none(caplog: pytest.LogCaptureFixture) -> None:
    """Neither the first window nor the one that follows it has one."""
    pipeline = Pipeline()
    pipeline.records(*range(30))
    with caplog.at_level(logging.INFO):
        pipeline.lands("first", (10, 20))
        pipeline.lands("second", (20, 30))
        pipeline.lands("before", (0, 10))
    assert "below the window and were never" not in caplog.text
    assert "10 offsets to land" in caplog.text


def test_late_records_belong_to_the_next_run() -> None:
    """Their time is in a window that was landed before they arrived: no other run would land them."""
    pipeline = Pipeline()
    pipeline.records(1, 2, 12)
    assert pipeline.lands("first", (0, 10)).target == offsets((0, 2))
    pipeline.records(3, 13, 4, 22)
    assert pipeline.lands("second", (10, 20)).target == offsets((2, 6))
    pipeline.records(5)
    assert pipeline.lands("third", (20, 30)).target == offsets((6, 8))
    pipeline.records(6)
    assert pipeline.lands("fourth", (30, 40)).target == offsets((8, 9))
    pipeline.check(complete=True, recovered=True)


@pytest.mark.parametrize("wait", [30.0, 3.0])
def test_a_first_run_leaves_the_window_below_its_own_to_the_run_that_began_just_before(wait: float) -> None:
    """That run has created the marker and no plan yet: it has ten seconds, or `adopt_wait` if that is less."""
    pipeline = Pipeline()
    pipeline.records(*range(20))
    crash_after("*/marker.json", pipeline.bucket, pipeline.kafka, "first", "data_interval", window=(0, 10))
    clock, alone = Clock(), pipeline.bucket.copy()

    def sleep(seconds: float) -> None:
        clock.sleep(seconds)
        if 2 <= clock.now < 2 + seconds:
            pipeline.lands("first", (0, 10))

    second = Engine(pipeline.bucket, pipeline.kafka, sleep=sleep, monotonic=clock.monotonic)
    assert second.run("second", "data_interval", window=(10, 20), adopt_wait=wait).target == offsets((10, 20))
    assert 2 <= clock.now < 3
    # The other one never comes back: what lies below the window is landed with it.
    later = Clock()
    second = Engine(alone, pipeline.kafka, sleep=later.sleep, monotonic=later.monotonic)
    assert second.run("second", "data_interval", window=(10, 20), adopt_wait=wait).target == offsets((0, 20))
    assert min(wait, 10) <= later.now < min(wait, 10) + 1


def test_history_older_than_the_coverage_is_landed_in_any_order() -> None:
    """Newest first, then the others: each lands its own window and no more."""
    pipeline = Pipeline()
    pipeline.records(*range(50))
    for day in (4, 1, 3, 0, 2):
        assert pipeline.lands(f"day-{day}", (day * 10, day * 10 + 10)).target == offsets((day * 10, day * 10 + 10))
    pipeline.check(complete=True, recovered=True)


class Lane:
    """A run in a separate process that runs step by step, ends, and is tried again."""

    def __init__(self, pipeline: Pipeline, run: str, window: tuple[int, int]) -> None:
        self.pipeline, self.run, self.window = pipeline, run, window
        self.result: TopicResult | None = None
        self.begin()

    def begin(self) -> None:
        self.engine = Engine(self.pipeline.bucket, self.pipeline.kafka)
        self.request = self.engine.request(
            self.run,
            "data_interval",
            window=self.window,
            limits={"records_per_batch": 7, "records_per_slice": 3},
        )
        self.attempt = self.engine.topic_run(self.request)
        self.plan: Plan | None = None

    def step(self) -> None:
        if self.plan is not None:
            self.engine.execute(self.plan, self.request)
            self.plan = None
            return
        step = self.attempt.advance()
        if isinstance(step, Plan):
            self.plan = step
        else:
            self.result = step


@settings(deadline=None, max_examples=25)
@given(st.data())
def test_a_backfill_in_any_order_and_in_parallel_lands_every_record_once(data: st.DataObject) -> None:
    """Days in random order, several at a time, with crashes, retries and late records.

    Each run succeeds, no gap is left below what is covered, and a repeat of all of them writes nothing.
    """
    pipeline = Pipeline(partitions := data.draw(st.integers(1, 2)))
    days = data.draw(st.integers(2, 5))
    for _ in range(data.draw(st.integers(3, 25))):
        day = data.draw(st.integers(0, days - 1))
        pipeline.records(day * 10 + data.draw(st.integers(0, 9)), partition=data.draw(st.integers(0, partitions - 1)))
    order = data.draw(st.permutations(range(days)))
    waiting = [(f"day-{day}", (day * 10, day * 10 + 10)) for day in order]
    lanes: list[Lane] = []
    while waiting or lanes:
        if waiting and len(lanes) < 3:
            lanes.append(Lane(pipeline, *waiting.pop()))
        lane = data.draw(st.sampled_from(lanes))
        match data.draw(st.sampled_from(["step", "step", "step", "die", "late"])):
            case "die":
                lane.begin()
            case "late":
                late = data.draw(st.integers(0, days * 10 - 1))
                pipeline.records(late, partition=data.draw(st.integers(0, partitions - 1)))
            case _:
                lane.step()
        if lane.result is not None:
            assert lane.result.status in ("ok", "empty")
            assert lane.result.target <= pipeline.covered()
            lanes.remove(lane)
    pipeline.check(recovered=True, times=pipeline.kafka.all_times())
    for ranges in dict(pipeline.covered().items()).values():
        assert len(ranges) == 1
    # Runs that found nothing left no record: a repeat may find what came late. The repeat after that finds nothing.
    for repeat in range(2):
        before = snapshot(pipeline.bucket)
        for day in order:
            pipeline.lands(f"day-{day}", (day * 10, day * 10 + 10))
        assert repeat == 0 or snapshot(pipeline.bucket) == before
    Engine(pipeline.bucket, pipeline.kafka).run("the rest", "incremental")
    pipeline.check(complete=True, recovered=True)


# -- explicit offsets -------------------------------------------------------------------------------------------------


def test_a_window_of_offsets_lands_exactly_these_and_no_other_partition() -> None:
    """A partition that is not named is not in the window."""
    pipeline = Pipeline(3)
    for partition in range(3):
        pipeline.records(*range(9), partition=partition)
    assert pipeline.lands("first", {0: (2, 5), 2: (0, 9)}).target == Offsets({0: [(2, 5)], 2: [(0, 9)]})
    assert pipeline.covered() == Offsets({0: [(2, 5)], 2: [(0, 9)]})
    pipeline.check()


def test_a_window_of_offsets_above_the_coverage_includes_the_gap_as_one_of_time_does() -> None:
    """One below it lands only the missing offsets."""
    pipeline = Pipeline()
    pipeline.records(*range(20))
    pipeline.lands("first", {0: (5, 8)})
    assert pipeline.lands("above", {0: (12, 15)}).target == offsets((8, 15))
    assert pipeline.lands("below", {0: (3, 10)}).target == offsets((3, 5))
    pipeline.check()


@pytest.mark.parametrize(
    ("window", "requested"),
    [({0: (0, 7)}, r"0: \[0, 7\)"), ({0: (0, 2), 4: (0, 1)}, r"4: \[0, 1\)"), ({1: (9, 12)}, r"1: \[9, 12\)")],
    ids=["end", "partition", "start"],
)
def test_offsets_that_the_log_does_not_have_are_refused_and_those_of_the_log_are_named(
    window: Any, requested: str
) -> None:
    """Nothing is bound to them: the corrected offsets work with the same run."""
    pipeline = Pipeline(2)
    pipeline.records(*range(6))
    pipeline.records(*range(4), partition=1)
    pipeline.kafka.delete_records(TOPIC, 0, 2)
    with pytest.raises(ConfigurationError, match=rf"has offsets {requested}.*holds 0: \[2, 6\), 1: \[0, 4\)"):
        pipeline.lands("run", window)
    assert not list(pipeline.bucket.list(f"{CONTROL}runs/"))
    assert pipeline.lands("run", {0: (2, 6)}).status == "ok"


def test_offsets_within_an_open_transaction_are_past_the_end_of_the_log() -> None:
    """Records that may still be aborted cannot be landed."""
    pipeline = Pipeline()
    pipeline.records(1, 2, 3)
    pipeline.kafka.open_transaction(TOPIC, 0)
    pipeline.records(4, 5)
    with pytest.raises(ConfigurationError, match=r"holds 0: \[0, 3\)"):
        pipeline.lands("run", {0: (0, 5)})
    assert pipeline.lands("run", {0: (0, 5)}, isolation="read_uncommitted").status == "ok"


def test_deleted_offsets_fail_before_the_run_is_bound_to_them_or_are_skipped() -> None:
    """By policy; records that were landed before are no loss."""
    pipeline = Pipeline()
    pipeline.records(*range(10))
    pipeline.lands("early", {0: (0, 2)})
    pipeline.kafka.delete_records(TOPIC, 0, 5)
    with pytest.raises(DataLossError, match=r"0: \[2, 5\).*on_data_loss='skip'"):
        pipeline.lands("run", {0: (0, 8)})
    assert pipeline.lands("other", {0: (0, 2)}).status == "ok"
    result = pipeline.lands("run", {0: (0, 8)}, on_data_loss="skip")
    assert (result.target, result.skipped) == (offsets((2, 8)), offsets((2, 5)))
    pipeline.check()


# -- the planner of an existing batch ---------------------------------------------------------------------------------


@pytest.mark.parametrize("document", ["plan", "manifest"])
def test_a_try_logs_the_planner_of_an_earlier_try_s_plan(caplog: pytest.LogCaptureFixture, document: str) -> None:
    """Try, host and time, whether it was decided or not; and that both may work at the same time."""
    pipeline = Pipeline()
    pipeline.records(1, 2, 3)
    pipeline.dies_after(document, "run", (0, 9), attempt="try 1 on worker-7")
    with caplog.at_level(logging.INFO):
        pipeline.lands("run", (0, 9), attempt="try 2 on worker-8")
    lines = [r.getMessage() for r in caplog.records if "earlier try" in r.getMessage()]
    assert len(lines) == 1
    assert "batch 1 was planned by an earlier try of this run (try 1 on worker-7 (" in lines[0]
    assert ") at 20" in lines[0]
    assert "this is harmless" in lines[0]


def test_a_try_does_not_log_its_own_plan(caplog: pytest.LogCaptureFixture) -> None:
    """There was no earlier one."""
    pipeline = Pipeline()
    pipeline.records(1, 2, 3)
    with caplog.at_level(logging.INFO):
        pipeline.lands("run", (0, 9), attempt="try 1 on worker-7")
    assert "earlier try" not in caplog.text


def test_the_log_names_the_try_that_made_another_run_s_plan(caplog: pytest.LogCaptureFixture) -> None:
    """It is waited for."""
    pipeline = Pipeline()
    pipeline.records(1, 2, 3)
    pipeline.dies_after("plan", "theirs", (0, 9), attempt="try 3 on worker-7")
    with caplog.at_level(logging.INFO):
        pipeline.lands("mine", (0, 9))
    assert "planned by another run, theirs (try 3 on worker-7 (" in caplog.text


def test_the_try_in_a_plan_is_informative_only() -> None:
    """A plan of another try is the same plan: its body under the same number is not taken for another one."""
    pipelines = [Pipeline(), Pipeline()]
    for pipeline, attempt in zip(pipelines, ("try 1 on a", "try 2 on b"), strict=True):
        pipeline.records(1, 2, 3)
        pipeline.lands("run", (0, 9), attempt=attempt)
    plans = [Engine(pipeline.bucket, pipeline.kafka).log.read_plan(1) for pipeline in pipelines]
    assert plans[0] == plans[1]
    before = snapshot(pipelines[0].bucket)
    assert not pipelines[0].lands("run", (0, 9), attempt="try 9 on c").wrote
    check_unchanged(before, snapshot(pipelines[0].bucket))
