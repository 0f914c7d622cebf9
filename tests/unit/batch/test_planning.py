"""The target of a run, and the claim of its next batch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_kafka_s3.batch.planning import (
    OffsetWindow,
    claimable,
    incremental_target,
    interval_target,
    next_claim,
    recovery_target,
)
from airflow_provider_kafka_s3.batch.view import View
from airflow_provider_kafka_s3.config import JsonLines, Layout
from airflow_provider_kafka_s3.documents.marker import Marker, PartitionState
from airflow_provider_kafka_s3.documents.offsets import NO_OFFSETS, Offsets
from airflow_provider_kafka_s3.documents.plan import Plan, cut_slices, fair_share
from airflow_provider_kafka_s3.exceptions import DataLossError
from tests.plans import data_plan

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "planning.json").read_text())["cases"]
LAYOUT = Layout(format=JsonLines())


def offsets(*ranges: tuple[int, int], partition: int = 0) -> Offsets:
    """Ranges of one partition."""
    return Offsets({partition: ranges})


def plan(batch: int, read: Offsets, *, tail: bool = True) -> Plan:
    """An open plan."""
    return data_plan(LAYOUT, cut_slices(read, max_records=100), batch=batch, tail=tail, run="r")


def view(
    *open_plans: Plan, covered: Offsets = NO_OFFSETS, debt: Offsets = NO_OFFSETS, start: Mapping[int, int] | None = None
) -> View:
    """A view of the log."""
    partitions = {p: PartitionState(covered=covered[p], debt=debt[p]) for p in {*covered, *debt}}
    marker = Marker(topic="t", cluster_id="c", topic_id="id", start=dict(start or {}), partitions=partitions)
    return View(marker=marker, etag="e", open_plans={p.batch: p for p in open_plans}, next=len(open_plans) + 1)


# -- incremental ------------------------------------------------------------------------------------------------------


def test_incremental_begins_at_the_configured_start_of_each_partition() -> None:
    """A partition without a start was added later: it starts at 0."""
    assert incremental_target(view(start={0: 7}), {0: 10, 1: 3}) == Offsets({0: [(7, 10)], 1: [(0, 3)]})


def test_incremental_goes_on_after_what_is_covered_owed_or_claimed() -> None:
    """Only open backfills are left to their runs."""
    after_coverage = incremental_target(view(covered=offsets((0, 5))), {0: 9})
    assert after_coverage == offsets((5, 9))
    after_backfill = incremental_target(view(plan(1, offsets((5, 7)), tail=False), covered=offsets((0, 5))), {0: 9})
    assert after_backfill == offsets((7, 9))


def test_incremental_picks_up_debt_and_open_tails_below_the_end_of_the_coverage() -> None:
    """A failed or abandoned batch is landed even if a later one was faster."""
    target = incremental_target(
        view(plan(3, offsets((5, 8))), covered=offsets((0, 2), (10, 20)), debt=offsets((2, 4))), {0: 25}
    )
    assert target == offsets((2, 4), (5, 8), (20, 25))


def test_incremental_leaves_gaps_that_are_not_debt() -> None:
    """History below the coverage is landed by backfills only."""
    assert incremental_target(view(covered=offsets((10, 20))), {0: 20}) == NO_OFFSETS


def test_a_log_that_is_shorter_than_the_coverage_gives_no_target() -> None:
    """The target is empty; the topic id shows whether the topic was created again."""
    assert incremental_target(view(covered=offsets((0, 20))), {0: 10}) == NO_OFFSETS


# -- data interval ----------------------------------------------------------------------------------------------------


def test_an_interval_above_the_coverage_closes_the_gap_below_it() -> None:
    """Offsets in between are landed with the window: no later run would land them."""
    window = OffsetWindow(starts={0: 15}, ends={0: 20})
    assert interval_target(view(covered=offsets((0, 10))), window) == offsets((10, 20))


def test_an_interval_below_the_coverage_is_cut_to_its_gaps() -> None:
    """A backfill lands only the missing offsets of its window."""
    window = OffsetWindow(starts={0: 2}, ends={0: 12})
    assert interval_target(view(covered=offsets((0, 4), (6, 30))), window) == offsets((4, 6))


def test_the_first_interval_begins_where_the_marker_does() -> None:
    """Or at its window, if that is older: nothing is left out between the two."""
    window = OffsetWindow(starts={0: 15, 1: 15}, ends={0: 20, 1: 20})
    assert interval_target(view(start={0: 7, 1: 18}), window) == Offsets({0: [(7, 20)], 1: [(15, 20)]})


def test_an_interval_above_debt_leaves_the_debt_to_incremental_runs() -> None:
    """What an abandoned batch owes has a run that lands it: the gap of an interval begins behind it."""
    window = OffsetWindow(starts={0: 15}, ends={0: 20})
    assert interval_target(view(covered=offsets((0, 5)), debt=offsets((5, 9))), window) == offsets((9, 20))


def test_an_interval_takes_all_of_a_partition_that_was_added() -> None:
    """The start does not name it, so it begins at 0."""
    assert interval_target(view(start={1: 5}), OffsetWindow(starts={0: 15}, ends={0: 20})) == offsets((0, 20))


def test_an_interval_without_records_lands_only_what_lies_below_it() -> None:
    """All records are older: nothing, or the offsets between the coverage and the end of the log."""
    window = OffsetWindow(starts={0: 20}, ends={0: 20})
    assert interval_target(view(start={0: 20}), window) == NO_OFFSETS
    assert interval_target(view(covered=offsets((0, 15))), window) == offsets((15, 20))


# -- recovery ---------------------------------------------------------------------------------------------------------


def test_recovery_aims_at_all_debt_and_all_open_claims() -> None:
    """Backfills too, and nothing new."""
    target = recovery_target(
        view(plan(1, offsets((5, 8)), tail=False), plan(2, offsets((30, 40))), debt=offsets((1, 2)))
    )
    assert target == offsets((1, 2), (5, 8), (30, 40))


# -- the next claim ---------------------------------------------------------------------------------------------------


def test_a_plan_holds_either_the_tail_or_history() -> None:
    """First offsets above the coverage and debt, then the rest."""
    seen = view(covered=offsets((10, 20)), debt=offsets((3, 4)))
    first, tail = next_claim(seen, offsets((0, 10), (20, 25)), max_records=None)
    assert (first, tail) == (offsets((3, 4), (20, 25)), True)
    rest, tail = next_claim(seen, offsets((0, 3)), max_records=None)
    assert (rest, tail) == (offsets((0, 3)), False)


def test_a_claim_is_capped_fairly() -> None:
    """Each partition gets its share of one batch."""
    claim, _ = next_claim(view(), Offsets({0: [(0, 100)], 1: [(0, 100)]}), max_records=10)
    assert claim == Offsets({0: [(0, 5)], 1: [(0, 5)]})


def test_lost_offsets_fail_or_are_skipped_by_policy() -> None:
    """Never silently: an error with the remedy, or a recorded gap."""
    claim, earliest, ends = offsets((0, 10)), {0: 4}, {0: 10}
    with pytest.raises(DataLossError, match=r"0: \[0, 4\).*on_data_loss='skip'"):
        claimable("t", claim, earliest=earliest, ends=ends, on_data_loss="fail")
    split = claimable("t", claim, earliest=earliest, ends=ends, on_data_loss="skip")
    assert (split.read, split.skipped) == (offsets((4, 10)), offsets((0, 4)))


@pytest.mark.parametrize("policy", ["fail", "skip"])
def test_offsets_past_the_end_of_the_log_are_never_skipped(policy: Any) -> None:
    """The log was truncated or the topic created again: a person has to act."""
    with pytest.raises(DataLossError, match=r"0: \[10, 12\).*past the end"):
        claimable("t", offsets((5, 12)), earliest={0: 0}, ends={0: 10}, on_data_loss=policy)


# -- shares and slices ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", [c for c in VECTORS if "limit" in c], ids=lambda c: c["id"])
def test_limits_are_shared_as_in_the_vectors(case: dict[str, Any]) -> None:
    """A limit per run is shared by the partitions; the unused part of a small one goes to the others."""
    requested = Offsets({p: [(a, b)] for p, (a, b) in enumerate(zip(case["start"], case["end"], strict=True))})
    share = fair_share(requested, case["limit"])
    if "expect" in case:
        assert share == Offsets({p: [tuple(r)] for p, r in enumerate(case["expect"])})
    else:
        assert [share.end(p) for p in range(len(case["start"]))] == case["expect_counts"]


many = st.dictionaries(
    st.integers(0, 5), st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=4), max_size=6
).map(Offsets)


@settings(deadline=None)
@given(many, st.integers(1, 200))
def test_a_share_is_the_lowest_offsets_and_as_many_as_allowed(requested: Offsets, limit: int) -> None:
    """No partition starves, none gets more than another that could use more, and the limit is used up."""
    share = fair_share(requested, limit)
    assert share <= requested
    assert share.count == min(limit, requested.count)
    sizes = {p: sum(b - a for a, b in share[p]) for p in requested}
    unsatisfied = [sizes[p] for p in requested if share[p] != requested[p]]
    if unsatisfied:
        assert max(sizes.values()) <= min(unsatisfied) + 1
    for p in share:
        end = share.end(p)
        assert end is not None
        assert share[p] == (requested & Offsets({p: [(0, end)]}))[p]


@settings(deadline=None)
@given(many, st.integers(1, 20))
def test_slices_cut_offsets_without_loss_into_nearly_equal_pieces(requested: Offsets, most: int) -> None:
    """Each slice is contiguous, none is too long, together they are the given offsets."""
    slices = cut_slices(requested, max_records=most)
    assert [s.id for s in slices] == list(range(len(slices)))
    assert all(0 < s.end - s.start <= most for s in slices)
    assert sum(s.end - s.start for s in slices) == requested.count
    pieces: dict[int, list[tuple[int, int]]] = {}
    for s in slices:
        pieces.setdefault(s.partition, []).append((s.start, s.end))
    assert Offsets(pieces) == requested


def test_a_view_has_its_first_open_reset() -> None:
    """It is a barrier: nothing is planned past it."""
    reset = msgspec.structs.replace(
        plan(2, offsets((0, 1))), type="reset", slices=(), layout=None, layout_sha256="", new_topic_id="new"
    )
    assert view(plan(1, offsets((0, 1))), reset).open_reset is reset
    assert view(plan(1, offsets((0, 1)))).open_reset is None
