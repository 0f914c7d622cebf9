"""No offset is left out: those below the highest landed one are landed, lost or owed, in any order of runs.

Each case lost records for ever while every run reported success, since a run over a window began where its window does
in a partition that nobody had touched.
"""

from __future__ import annotations

import logging
from typing import Any

import pytest

from airflow_provider_kafka_s3.documents import addresses
from airflow_provider_kafka_s3.documents.offsets import Offsets
from airflow_provider_kafka_s3.documents.plan import Plan, cut_slices, layout_digest
from airflow_provider_kafka_s3.documents.run import RunRecord
from airflow_provider_kafka_s3.exceptions import ConfigurationError, RecordError
from airflow_provider_kafka_s3.maintenance.abandon import abandon
from airflow_provider_kafka_s3.maintenance.accept_loss import accept_gone
from airflow_provider_kafka_s3.maintenance.repair import repair
from airflow_provider_kafka_s3.testing.invariants import InvariantViolation
from tests.protocol.engine import CONTROL, LAYOUT, TOPIC, Engine
from tests.unit.batch.test_windows import Pipeline, offsets

HOUR = 3_600_000
YEAR_2500 = 16_725_225_600_000


class Incremental(Pipeline):
    """A pipeline that continues from its stored offsets, and may have runs over a window."""

    def lands_the_rest(self, run: str = "the rest", **settings: Any) -> Any:
        return Engine(self.bucket, self.kafka).run(run, "incremental", **settings)


def test_a_late_record_of_a_partition_that_was_idle_in_the_first_window_belongs_to_the_next_run() -> None:
    """It is after the end that the partition had when the pipeline began."""
    pipeline = Pipeline(2)
    pipeline.records(1, 2)
    pipeline.records(-50, -40, partition=1)
    assert pipeline.lands("first", (0, 10)).target == offsets((0, 2))
    pipeline.records(5, 12, partition=1)
    assert pipeline.lands("second", (10, 20)).target == Offsets({1: [(2, 4)]})
    pipeline.check(times=pipeline.kafka.all_times(), recovered=True)


def test_a_late_record_of_a_partition_that_was_empty_in_the_first_window_belongs_to_the_next_run() -> None:
    """Its first record ever comes after its window."""
    pipeline = Pipeline(2)
    pipeline.records(1, 2)
    pipeline.lands("first", (0, 10))
    pipeline.records(5, 12, partition=1)
    pipeline.records(11)
    assert pipeline.lands("second", (10, 20)).target == Offsets({0: [(2, 3)], 1: [(0, 2)]})
    pipeline.check(complete=True, times=pipeline.kafka.all_times(), recovered=True)


def test_the_late_first_record_of_a_partition_that_was_added_belongs_to_the_next_run() -> None:
    """An added partition begins at its first offset, whatever the window."""
    pipeline = Pipeline(1)
    pipeline.records(1, 2)
    pipeline.lands("first", (0, 10))
    pipeline.kafka.add_partitions(TOPIC, 1)
    pipeline.records(3, 14, partition=1)
    pipeline.records(15)
    assert pipeline.lands("second", (10, 20)).target == Offsets({0: [(2, 3)], 1: [(0, 2)]})
    pipeline.check(complete=True, times=pipeline.kafka.all_times(), recovered=True)


def test_an_incremental_pipeline_whose_first_run_has_a_window_lands_all_from_its_start_on() -> None:
    """``earliest`` includes all history; the window only limits the end of the first run."""
    pipeline = Incremental()
    pipeline.records(*range(30))
    assert pipeline.lands("first", (10, 20), starting="earliest").target == offsets((0, 20))
    assert pipeline.lands_the_rest().target == offsets((20, 30))
    pipeline.check(complete=True, recovered=True)


def test_an_incremental_pipeline_from_latest_lands_only_the_window_of_its_first_run_below_its_start() -> None:
    """History was not requested, except for the window."""
    pipeline = Incremental()
    pipeline.records(*range(30))
    assert pipeline.lands("first", (10, 20), starting="latest").target == offsets((10, 20))
    pipeline.records(30, 31)
    assert pipeline.lands_the_rest(starting="latest").target == offsets((30, 32))
    pipeline.check(times=pipeline.kafka.all_times(), recovered=True)


def test_a_backfill_of_a_partition_that_was_idle_lets_no_later_run_land_the_history_above_it() -> None:
    """History below the start is landed window by window: records of it that retention deletes block no run."""
    pipeline = Pipeline(2)
    pipeline.records(100, 101)
    pipeline.records(*range(0, 100, 10), partition=1)
    pipeline.lands("day 10", (100, 110))
    assert pipeline.lands("day 3", (30, 40)).target == Offsets({1: [(3, 4)]})
    pipeline.kafka.delete_records(TOPIC, 1, 6)
    pipeline.records(112)
    pipeline.records(113, partition=1)
    assert pipeline.lands("day 11", (110, 120)).target == Offsets({0: [(2, 3)], 1: [(10, 11)]})
    pipeline.check(recovered=True, times=pipeline.kafka.all_times())


def test_abandoned_history_leaves_no_debt_in_an_unclaimed_partition_either() -> None:
    """A run over its window plans it again."""
    pipeline = Pipeline()
    pipeline.records(*range(20))
    pipeline.lands("typed", {0: (18, 20)})
    pipeline.kafka.add_partitions(TOPIC, 1)
    engine = Engine(pipeline.bucket, pipeline.kafka)
    plan = engine.topic_run(engine.request("history", "data_interval", window=(0, 5))).advance()
    abandon(engine.committer, plan.batch, release="debt", reason="", operator="")
    assert not engine.log.require_marker()[0].debt


def test_a_run_with_a_window_lands_all_of_a_partition_that_was_added_to_an_incremental_pipeline() -> None:
    """No other run lands the offsets below the window in the new partition."""
    pipeline = Incremental()
    pipeline.records(*range(10))
    pipeline.lands_the_rest("first")
    pipeline.kafka.add_partitions(TOPIC, 1)
    pipeline.records(*range(10, 20), partition=1)
    assert pipeline.lands("window", (15, 18)).target == Offsets({0: [], 1: [(0, 8)]})
    assert pipeline.lands_the_rest().target == Offsets({1: [(8, 10)]})
    pipeline.check(complete=True, recovered=True)


def test_what_an_open_transaction_hid_from_the_first_window_belongs_to_the_next_run() -> None:
    """The pipeline begins where the first window could be read to, not where its records would have been."""
    pipeline = Pipeline()
    pipeline.records(-5)
    pipeline.kafka.open_transaction(TOPIC, 0)
    pipeline.records(3, 4)
    assert pipeline.lands("first", (0, 10)).status == "empty"
    pipeline.kafka.commit_transaction(TOPIC, 0)
    pipeline.records(12)
    assert pipeline.lands("second", (10, 20)).target == offsets((1, 5))
    pipeline.check(times=pipeline.kafka.all_times(), recovered=True)


def test_a_window_that_reaches_into_an_open_transaction_is_continued_by_the_next_run() -> None:
    """Its end is cut at the last stable offset, and that is where the next window begins."""
    pipeline = Pipeline()
    pipeline.records(1, 2)
    pipeline.kafka.open_transaction(TOPIC, 0)
    pipeline.records(3, 12)
    assert pipeline.lands("first", (0, 10)).target == offsets((0, 2))
    pipeline.kafka.commit_transaction(TOPIC, 0)
    pipeline.records(22)
    assert pipeline.lands("third", (20, 30)).target == offsets((2, 6))
    pipeline.check(complete=True, recovered=True)


def test_two_first_runs_leave_nothing_between_them_whichever_makes_the_marker() -> None:
    """Late records between the reads of the two runs are in one of the two targets."""
    for first, second in [("day-1", "day-2"), ("day-2", "day-1")]:
        pipeline = Pipeline()
        windows = {"day-1": (0, 10), "day-2": (10, 20)}
        pipeline.records(1, 2)
        engine = Engine(pipeline.bucket, pipeline.kafka)
        pending = engine.topic_run(engine.request(first, "data_interval", window=windows[first]))
        pending._record = pending._pin()  # type: ignore[assignment]
        pipeline.records(3, 4, 13)
        pipeline.lands(second, windows[second])
        pipeline.records(5, 23)
        pipeline.lands(first, windows[first])
        pipeline.lands("day-3", (20, 30))
        pipeline.check(times=pipeline.kafka.all_times(), recovered=True)


def test_first_runs_over_several_windows_leave_each_its_own() -> None:
    """A run that did not make the marker lets the one that did plan first: it does not claim that run's window."""
    pipeline = Pipeline()
    pipeline.records(1, 11, 21)
    first = Engine(pipeline.bucket, pipeline.kafka)
    day_1 = first.topic_run(first.request("day-1", "data_interval", window=(0, 10)))
    day_1._view_or_create()
    # While the run of day 3 waits, the one of day 1 plans.
    later = Engine(pipeline.bucket, pipeline.kafka, sleep=lambda seconds: day_1.advance() and None)
    assert later.run("day-3", "data_interval", window=(20, 30), adopt_wait=5.0).target == offsets((1, 3))
    pipeline.lands("day-1", (0, 10))
    pipeline.check(complete=True, recovered=True)


def test_a_first_run_waits_for_no_plan_that_does_not_come() -> None:
    """Ten seconds; then it lands the offsets below its window itself."""
    pipeline = Pipeline()
    pipeline.records(1, 11, 21)
    gone = Engine(pipeline.bucket, pipeline.kafka)
    gone.topic_run(gone.request("day-1", "data_interval", window=(0, 10)))._view_or_create()
    later = Engine(pipeline.bucket, pipeline.kafka)
    assert later.run("day-3", "data_interval", window=(20, 30), adopt_wait=120.0).target == offsets((0, 3))
    assert 10 <= later.monotonic() < 11
    pipeline.check(complete=True, recovered=True)


def test_offsets_typed_for_a_first_run_leave_other_partitions_at_their_ends() -> None:
    """None of them was requested; later records are landed by the next run."""
    pipeline = Pipeline(2)
    pipeline.records(*range(5))
    pipeline.records(*range(5), partition=1)
    pipeline.lands("typed", {0: (2, 4)})
    pipeline.records(7, partition=1)
    assert pipeline.lands("window", (6, 9)).target == Offsets({0: [(4, 5)], 1: [(5, 6)]})
    pipeline.check(recovered=True)


# -- records of the future --------------------------------------------------------------------------------------------


def test_a_record_of_the_future_makes_the_windows_that_it_hides_an_error_that_names_it() -> None:
    """Never an empty success: to Kafka each later window ends at that record."""
    pipeline = Pipeline()
    pipeline.records(1, 2, YEAR_2500, 12, 13)
    with pytest.raises(RecordError, match=r"partition 0, offset 2, timestamp 2500-01-01T00:00:00\+00:00.*read_to_end"):
        pipeline.lands("second", (10, 20))
    assert not list(pipeline.bucket.list(f"{CONTROL}runs/"))


def test_windows_that_end_before_a_record_of_the_future_are_landed_as_usual() -> None:
    """It hides only later offsets."""
    pipeline = Pipeline()
    pipeline.records(1, 2, 11, YEAR_2500)
    assert pipeline.lands("first", (0, 10)).target == offsets((0, 2))
    pipeline.check(times=pipeline.kafka.all_times(), recovered=True)


def test_windows_after_a_record_from_the_future_are_read_to_the_current_end_on_request() -> None:
    """Later windows continue there, so every record is landed once."""
    pipeline = Pipeline(2)
    pipeline.records(1, 2, YEAR_2500, 3)
    pipeline.records(4, 14, partition=1)
    read_to_end = {"on_future_timestamp": "read_to_end"}
    assert pipeline.lands("first", (0, 10), **read_to_end).target == Offsets({0: [(0, 4)], 1: [(0, 1)]})
    pipeline.records(12, 13)
    assert pipeline.lands("second", (10, 20), **read_to_end).target == Offsets({0: [(4, 6)], 1: [(1, 2)]})
    pipeline.check(complete=True, recovered=True)


def test_a_record_beyond_the_year_9999_is_named_with_its_number() -> None:
    """Most likely nanoseconds: no calendar can represent it."""
    pipeline = Pipeline()
    pipeline.records(1, 1_700_000_000_000_000_000, 12)
    with pytest.raises(RecordError, match="offset 1, timestamp 1700000000000000000 ms since 1970, after the year"):
        pipeline.lands("second", (10, 20))


def test_every_partition_with_a_record_of_the_future_is_named() -> None:
    """One run, one error."""
    pipeline = Pipeline(2)
    pipeline.records(YEAR_2500)
    pipeline.records(1, YEAR_2500, partition=1)
    with pytest.raises(RecordError, match=r"partition 0, offset 0, .*; partition 1, offset 1, 2500"):
        pipeline.lands("first", (0, 10))


def test_a_timestamp_within_an_hour_of_the_clock_bounds_a_window() -> None:
    """Clocks differ; brokers accept as much."""
    pipeline = Pipeline()
    pipeline.records(1, 2, HOUR)
    engine = Engine(pipeline.bucket, pipeline.kafka, now=lambda: 20.0)
    assert engine.run("first", "data_interval", window=(0, 10)).target == offsets((0, 2))


def test_an_open_window_reaches_to_the_current_end_whatever_the_timestamps_say() -> None:
    """Its end is in the future, so no timestamp can decide it."""
    pipeline = Pipeline()
    pipeline.records(1, 2, YEAR_2500, 3)
    engine = Engine(pipeline.bucket, pipeline.kafka, now=lambda: 20.0)
    assert engine.run("open", "data_interval", window=(0, 2 * HOUR)).target == offsets((0, 4))


# -- gaps that a person accepts ---------------------------------------------------------------------------------------


def test_an_accepted_gap_never_hides_offsets_below_it_that_were_never_landed() -> None:
    """Runs continue after it. The refusal names all offsets to accept, and accepting them works."""
    pipeline = Incremental()
    pipeline.records(*range(4))
    pipeline.lands_the_rest("first")
    pipeline.records(*range(4, 20))
    pipeline.kafka.delete_records(TOPIC, 0, 15)
    engine = Engine(pipeline.bucket, pipeline.kafka)
    who: dict[str, Any] = {"reason": "retention", "operator": "me"}
    for hasty in (offsets((10, 15)), offsets((4, 6), (8, 15))):
        with pytest.raises(ConfigurationError, match=r"were never landed.*accept-loss .*--offsets 0:4-15`"):
            accept_gone(engine.committer, hasty, **who)
    assert accept_gone(engine.committer, offsets((4, 15)), **who) == offsets((4, 15))
    pipeline.lands_the_rest("second")
    pipeline.check(recovered=True)


# -- a marker that is built again --------------------------------------------------------------------------------------


def test_a_marker_that_is_built_again_begins_where_the_lost_one_did() -> None:
    """Also in a partition that no batch ever touched: the plan of batch 1 has it, so Kafka is not needed."""
    pipeline = Pipeline(2)
    pipeline.records(1, 11)
    pipeline.records(-5, -4, partition=1)
    pipeline.lands("first", (10, 20))
    engine = Engine(pipeline.bucket, pipeline.kafka)
    lost, _ = engine.log.require_marker()
    pipeline.bucket.delete(addresses.marker_key(CONTROL))
    repaired = repair(engine.committer, start={0: 0, 1: 0})
    assert repaired.marker.start == lost.start == {0: 1, 1: 2}
    pipeline.records(15, partition=1)
    assert pipeline.lands("second", (20, 30)).target == Offsets({1: [(2, 3)]})
    pipeline.check(times=pipeline.kafka.all_times(), recovered=True)


# -- the checker itself -----------------------------------------------------------------------------------------------


def test_the_checker_finds_offsets_between_the_start_and_what_is_landed() -> None:
    """A bucket with consistent documents that leave out records is a violation."""
    pipeline = Pipeline()
    pipeline.records(*range(20))
    engine = Engine(pipeline.bucket, pipeline.kafka)
    pipeline.lands("first", (0, 5))
    pipeline.check()
    _land_without_the_offsets_below(engine)
    with pytest.raises(InvariantViolation, match=r"I8 offsets 0: \[5, 10\)"):
        pipeline.check()


def test_the_checker_finds_history_that_a_window_included(caplog: pytest.LogCaptureFixture) -> None:
    """Below the start only requested windows count."""
    pipeline = Pipeline()
    pipeline.records(*range(20))
    with caplog.at_level(logging.CRITICAL):
        pipeline.lands("late", (10, 15))
        pipeline.lands("early", (0, 5))
    pipeline.check(times=pipeline.kafka.all_times())
    moved = {t: {p: dict.fromkeys(held, 4) for p, held in ps.items()} for t, ps in pipeline.kafka.all_times().items()}
    with pytest.raises(InvariantViolation, match=r"I8 offsets 0: \[5, 10\) lie in the window \(0, 5\) of run early"):
        pipeline.check(times=moved)


def test_the_checker_ignores_windows_whose_last_record_retention_has_deleted() -> None:
    """The record that ended the window is gone; a later one now seems to be in the window."""
    pipeline = Pipeline()
    pipeline.records(1, 1, 1, 2, 0, 10, 11)
    pipeline.lands("late", (10, 15))
    assert pipeline.lands("early", (0, 2)).target == offsets((0, 3))
    pipeline.kafka.delete_records(TOPIC, 0, 4)
    pipeline.check(times=pipeline.kafka.all_times())


def _land_without_the_offsets_below(engine: Engine) -> None:
    """Land offsets 10 to 12 as a run that ignores the offsets below its window."""
    view = engine.log.view()
    shared: dict[str, Any] = {
        "run": "hasty",
        "topic_id": view.marker.topic_id,
        "generation": 0,
        "layout_sha256": layout_digest(LAYOUT),
    }
    engine.log.create_run(
        RunRecord(offsets="data_interval", params={}, target=offsets((10, 12)), low=view.next, **shared)
    )
    plan = Plan(
        batch=view.next,
        type="data",
        topic=TOPIC,
        tail=True,
        isolation="read_committed",
        slices=cut_slices(offsets((10, 12)), max_records=3),
        skipped=Offsets(),
        layout=LAYOUT,
        **shared,
    )
    assert engine.log.create_plan(plan)
    engine.execute(plan, engine.request("hasty"))
