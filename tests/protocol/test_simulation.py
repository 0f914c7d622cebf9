"""The simulation with some 100 fixed seeds; `make simulate` has 12,000."""

from __future__ import annotations

import logging
from collections import Counter

import pytest

from tests.protocol.above import EXPIRING, LANDED
from tests.protocol.simulate import Failure, replay_command, run_seed

STEPS = 700
SEEDS_PER_TEST = 5
TESTS = 6


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """The product logs a warning for every retry; a simulation has thousands."""
    caplog.set_level(logging.CRITICAL + 1, logger="airflow_provider_kafka_s3")


def seen_in(seeds: range, *, steps: int = STEPS, trim: bool = False) -> Counter[str]:
    """The events of some seeds, none of which breaks an invariant."""
    seen: Counter[str] = Counter()
    for seed in seeds:
        outcome = run_seed(seed, steps=steps, trim=trim)
        if isinstance(outcome, Failure):
            pytest.fail(f"{outcome.details}\nseed {seed}; replay: {replay_command(seed, steps)}")
        seen += outcome
    return seen


@pytest.mark.parametrize("first", range(0, SEEDS_PER_TEST * TESTS, SEEDS_PER_TEST))
def test_no_seed_breaks_an_invariant(first: int) -> None:
    """Crashes, zombies, lost and late answers, expired uploads: every invariant holds at every write."""
    seen_in(range(first, first + SEEDS_PER_TEST))


def test_the_log_may_be_trimmed_without_harm_to_records() -> None:
    """Deleted control documents, which are forbidden, end runs with errors; no record is lost or twice."""
    seen_in(range(1_000, 1_012), trim=True)


def test_marker_files_name_the_newest_objects() -> None:
    """With DeviantArt's names: at every write they name a resolved object and do not go back; at the end the newest."""
    seen = seen_in(range(20_000, 20_012))
    assert seen["marker files"] > 12


def test_a_log_without_landed_records_is_refused_and_no_other_is() -> None:
    """Leaders lose records and get others: no run succeeds while some of these never will be landed."""
    seen = seen_in(range(30_000, 30_012))
    assert seen["records lost by leaders"] > 50
    assert seen["pipelines that ended at a log without landed records"] > 1


def test_a_pipeline_over_another_one_lands_what_that_one_has_landed() -> None:
    """Both run and fail at the same time, and the one below loses objects and is reset: no record is lost or twice."""
    seen = seen_in(LANDED[:4], steps=250)
    assert seen["batches of a pipeline over another one"] > 12


def test_what_is_deleted_on_purpose_is_in_another_pipeline_or_old_and_is_recorded() -> None:
    """People expire objects while both pipelines land, and withdraw that: no last copy is deleted, none comes back."""
    seen = seen_in(EXPIRING[:5], steps=250)
    assert seen["objects expired"] > seen["objects expired that another pipeline has"] > 40
    assert seen["batches kept from expiry"] > 2


def test_a_seed_replays_to_the_same_end() -> None:
    """Two runs of one seed see the same events, so a failure can be reproduced."""
    assert run_seed(7, steps=STEPS) == run_seed(7, steps=STEPS)


def test_every_simulated_event_occurs() -> None:
    """A simulation without faults would prove nothing: each kind of event happens in a few dozen seeds."""
    seen = seen_in(range(3_000, 3_040))
    rare = {
        "indexes deleted",
        "indexes forged",
        "objects accepted as lost",
        "topic recreated",
        "runs that ended RunSupersededError",
        "worlds with objects of keys",
        "worlds with objects of several partitions",
    }
    often = {
        "abandoned",
        "batches adopted",
        "conflict",
        "indexes",
        "indexes damaged",
        "indexes repaired",
        "killed",
        "late",
        "lost_response",
        "objects built again",
        "objects deleted by users",
        "repairs",
        "runs that ended BatchLossError",
        "runs that ended DataLossError",
        "runs that ended TopicRecreatedError",
        "runs with action restore",
        "runs with action verify",
        "sent_twice",
        "summaries read",
        "throttled",
        "throttled_after_apply",
        "too late",
        "uploads collected",
        "zombies",
    }
    assert {what for what in often if seen[what] < 10} == set()
    assert {what for what in rare if not seen[what]} == set()
