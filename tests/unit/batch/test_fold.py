"""The fold of decided batches into the marker, in any order."""

from __future__ import annotations

import itertools
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_kafka_s3.config import JsonLines, Layout
from airflow_provider_kafka_s3.documents.manifest import Manifest
from airflow_provider_kafka_s3.documents.marker import Marker, fold
from airflow_provider_kafka_s3.documents.offsets import NO_OFFSETS, Offsets
from airflow_provider_kafka_s3.documents.plan import Plan, cut_slices
from airflow_provider_kafka_s3.exceptions import LogTamperedError
from tests.plans import data_plan, reset_plan

LAYOUT = Layout(format=JsonLines())

Fate = Literal["commit", "debt", "lost"]


def plan(batch: int, read: Offsets, skipped: Offsets = NO_OFFSETS, *, tail: bool = True, **more: Any) -> Plan:
    """A plan for data of generation 0; ``more`` has other attributes."""
    slices = cut_slices(read, max_records=3)
    return data_plan(LAYOUT, slices, batch=batch, skipped=skipped, tail=tail, run="r", **more)


def decision(batch: int, fate: Fate) -> Manifest:
    """The decision about a batch."""
    changes: dict[str, Any] = {"status": "commit"} if fate == "commit" else {"status": "abandoned", "release": fate}
    return Manifest(batch=batch, plan_sha256="", run="r", **changes)


def empty_marker() -> Marker:
    """The marker of a pipeline that has not landed anything."""
    return Marker(topic="t", cluster_id="c", topic_id="id", start={0: 2})


READ = Offsets({0: [(0, 5)], 1: [(3, 4)]})
SKIPPED = Offsets({0: [(5, 8)]})


def test_a_commit_covers_its_claim_and_records_what_it_skipped() -> None:
    """Covered: slices and skipped; lost: skipped."""
    after = fold(empty_marker(), plan(1, READ, SKIPPED), decision(1, "commit"))
    assert (after.covered, after.lost, after.debt) == (READ | SKIPPED, SKIPPED, NO_OFFSETS)
    assert (after.resolved, after.revision, after.start) == (((1, 2),), 1, {0: 2})


def test_an_abandoned_tail_is_debt_until_it_is_covered() -> None:
    """Release as debt: not covered, but owed; a later commit covers it."""
    after = fold(empty_marker(), plan(1, READ), decision(1, "debt"))
    assert (after.covered, after.lost, after.debt) == (NO_OFFSETS, NO_OFFSETS, READ)
    paid = fold(after, plan(2, READ), decision(2, "commit"))
    assert (paid.covered, paid.debt, paid.resolved) == (READ, NO_OFFSETS, ((1, 3),))


def test_an_abandoned_backfill_is_not_owed() -> None:
    """Abandoned history is landed only by another run over its window."""
    after = fold(empty_marker(), plan(1, READ, tail=False), decision(1, "debt"))
    assert (after.covered, after.debt) == (NO_OFFSETS, NO_OFFSETS)


def test_a_batch_abandoned_as_lost_is_covered_and_lost() -> None:
    """The gap is accepted, and recorded."""
    after = fold(empty_marker(), plan(1, READ, SKIPPED), decision(1, "lost"))
    assert (after.covered, after.lost) == (READ | SKIPPED, READ | SKIPPED)


def test_a_commit_records_how_far_the_log_had_come_at_which_epoch() -> None:
    """Per partition the end of the highest claim; an abandoned batch, or one without epochs, changes nothing."""
    first = fold(empty_marker(), plan(1, READ, SKIPPED, epochs={0: 3}), decision(1, "commit"))
    assert first.reached == {0: (8, 3)}
    behind = fold(first, plan(2, Offsets({0: [(8, 9)], 1: [(4, 5)]}), epochs={0: 4, 1: 4}), decision(2, "commit"))
    assert behind.reached == {0: (9, 4), 1: (5, 4)}
    for fate in ("debt", "lost"):
        assert (
            fold(behind, plan(3, Offsets({0: [(9, 12)]}), epochs={0: 5}), decision(3, fate)).reached == behind.reached
        )
    assert fold(behind, plan(3, Offsets({0: [(9, 12)]})), decision(3, "commit")).reached == behind.reached


def test_a_reset_closes_the_generation() -> None:
    """Coverage moves to the history, the new incarnation starts at 0."""
    reset = reset_plan(batch=2, run="operator:me")
    before = fold(empty_marker(), plan(1, READ, SKIPPED), decision(1, "commit"))
    after = fold(before, reset, Manifest(batch=2, plan_sha256="", status="reset", run="operator:me"))
    assert (after.generation, after.topic_id, after.covered, after.start) == (1, "new", NO_OFFSETS, {})
    assert (after.covered_in(0), after.lost_in(0)) == (READ | SKIPPED, SKIPPED)
    assert [(c.generation, c.topic_id) for c in after.history] == [(0, "id")]
    assert after.is_resolved(1)
    assert after.is_resolved(2)
    assert not after.is_resolved(3)
    with pytest.raises(LogTamperedError, match=r"batch 3 of topic 't' is of generation 0, the marker of generation 1"):
        fold(after, plan(3, READ), decision(3, "commit"))


blocks = st.lists(st.sampled_from(["commit", "debt", "lost"]), min_size=1, max_size=4)


@settings(deadline=None)
@given(blocks, st.booleans(), st.randoms(use_true_random=False))
def test_batches_of_a_generation_may_be_folded_in_any_order(fates: list[Fate], tail: bool, random: Any) -> None:
    """The marker is the same in any order of resolution.

    The last plan claims again what an abandoned one released, as it may once that decision is final.
    """
    plans = [
        plan(n, Offsets({0: [(4 * n, 4 * n + 4)]}), tail=tail, epochs={0: n // 2}) for n in range(1, len(fates) + 1)
    ]
    decided = [(p, decision(p.batch, fate)) for p, fate in zip(plans, fates, strict=True)]
    released = [p for p, fate in zip(plans, fates, strict=True) if fate == "debt"]
    if released:
        again = plan(len(plans) + 1, released[0].claim, epochs={0: 9})
        decided.append((again, decision(again.batch, "commit")))
    results = set()
    for order in itertools.islice(itertools.permutations(decided), 24):
        marker = empty_marker()
        for p, d in order:
            marker = fold(marker, p, d)
        results.add(str(marker))
    assert len(results) == 1


@pytest.mark.parametrize("batch", [1, 2, 5, 6])
def test_resolved_numbers_are_stored_as_ranges(batch: int) -> None:
    """Out of order, with gaps, coalesced when the gaps close."""
    marker = empty_marker()
    for n in (1, 2, 6):
        marker = fold(marker, plan(n, Offsets({0: [(n, n + 1)]})), decision(n, "commit"))
    assert marker.resolved == ((1, 3), (6, 7))
    assert marker.is_resolved(batch) == (batch != 5)
