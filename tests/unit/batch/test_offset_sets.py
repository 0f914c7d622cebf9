"""Sets of offsets behave like Python's sets, and malformed ones are refused."""

from __future__ import annotations

import itertools
import pickle
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_kafka_s3.documents.offsets import NO_OFFSETS, Offsets, coalesce, intersect, subtract

pairs = st.tuples(st.integers(0, 30), st.integers(0, 30))
ranges = st.lists(pairs, max_size=8)
sets = st.dictionaries(st.integers(0, 3), ranges, max_size=4).map(Offsets)


def plain(offsets: Offsets) -> set[tuple[int, int]]:
    """Offsets as a set of pairs."""
    return {(p, o) for p, some in offsets.items() for start, end in some for o in range(start, end)}


def numbers(some: Any) -> set[int]:
    """Ranges as a set of numbers."""
    return {o for start, end in some for o in range(start, end)}


@settings(deadline=None)
@given(ranges)
def test_coalesced_ranges_hold_the_same_numbers_sorted_disjoint_and_apart(some: list[tuple[int, int]]) -> None:
    """Nothing is lost or gained, and no two ranges touch."""
    joined = coalesce(some)
    assert numbers(joined) == numbers(r for r in some if r[0] < r[1])
    assert all(a[1] < b[0] for a, b in itertools.pairwise(joined))
    assert all(start < end for start, end in joined)


@settings(deadline=None)
@given(ranges, ranges)
def test_ranges_subtract_and_intersect_like_sets(one: list[tuple[int, int]], other: list[tuple[int, int]]) -> None:
    """The two merges agree with set arithmetic, and their results are coalesced."""
    a, b = coalesce(one), coalesce(other)
    assert numbers(subtract(a, b)) == numbers(a) - numbers(b)
    assert numbers(intersect(a, b)) == numbers(a) & numbers(b)
    assert coalesce(subtract(a, b)) == subtract(a, b)


@settings(deadline=None)
@given(sets, sets)
def test_offsets_behave_like_sets_of_partition_and_offset(a: Offsets, b: Offsets) -> None:
    """Union, difference, intersection, inclusion, size, truth and equality."""
    assert plain(a | b) == plain(a) | plain(b)
    assert plain(a - b) == plain(a) - plain(b)
    assert plain(a & b) == plain(a) & plain(b)
    assert (a <= b) == (plain(a) <= plain(b))
    assert (a == b) == (plain(a) == plain(b))
    assert a.count == len(plain(a))
    assert bool(a) == bool(plain(a))
    assert hash(a | b) == hash(b | a)


@settings(deadline=None)
@given(sets)
def test_the_json_form_and_the_pickle_bring_the_same_offsets_back(offsets: Offsets) -> None:
    """Documents and Spark's closures carry them unchanged."""
    assert Offsets.from_json(offsets.to_json()) == offsets
    assert pickle.loads(pickle.dumps(offsets)) == offsets


@settings(deadline=None)
@given(sets)
def test_the_end_is_one_past_the_highest_offset(offsets: Offsets) -> None:
    """Per partition; a partition without offsets has none."""
    for p in range(4):
        assert offsets.end(p) == max((o + 1 for q, o in plain(offsets) if q == p), default=None)


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        "0",
        {"0": []},
        {"00": [[0, 1]]},
        {"-1": [[0, 1]]},
        {"x": [[0, 1]]},
        {"\u0660": [[0, 1]]},
        {0: [[0, 1]]},
        {"0": [[1, 1]]},
        {"0": [[2, 1]]},
        {"0": [[-1, 1]]},
        {"0": [[0, 2**63]]},
        {"0": [[0, 2], [2, 3]]},
        {"0": [[0, 2], [1, 3]]},
        {"0": [[4, 5], [1, 3]]},
        {"0": [[0]]},
        {"0": [[0, 1, 2]]},
        {"0": [[False, True]]},
        {"0": [["0", "1"]]},
        {"0": {"0": 1}},
        {"0": 1},
    ],
)
def test_a_malformed_json_form_is_refused(value: object) -> None:
    """Unsorted, overlapping, touching, empty, negative or mistyped ranges are refused."""
    with pytest.raises(ValueError, match=r"range|pair|partition|come after"):
        Offsets.from_json(value)


def test_offsets_have_a_readable_form() -> None:
    """Errors name partitions and ranges."""
    assert str(Offsets({1: [(7, 9)], 0: [(0, 5), (8, 9)]})) == "0: [0, 5) [8, 9), 1: [7, 9)"
    assert str(NO_OFFSETS) == "none"
