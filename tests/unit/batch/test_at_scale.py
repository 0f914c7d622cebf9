"""The simulation of requests at S3's limits, by which docs/cost.md describes a gigabyte a second."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.benchmark.at_scale import LATENCY, LIMITS, Prefix, in_turn, land, simulate, tables
from tests.unit.batch import test_request_counts as counted


@pytest.mark.parametrize(("operation", "limit"), [("upload_part", 3_500), ("head", 5_500)])
def test_a_prefix_takes_no_more_requests_in_any_second_than_the_documented_limit(operation: str, limit: int) -> None:
    """Three times as many at once: the limit is taken at once, the rest is refused and taken later, none is lost."""
    prefix, times = Prefix(), list[float]()
    takes = prefix.takes

    def noting(sent: str, now: float) -> bool:
        if taken := takes(sent, now):
            times.append(now)
        return taken

    prefix.takes = noting  # type: ignore[method-assign]
    simulate([in_turn(operation) for _ in range(3 * limit)], prefix)
    assert prefix.taken == {operation: 3 * limit}
    assert times.count(0.0) == limit
    assert all(later - earlier >= 1 for earlier, later in zip(times, times[limit:], strict=False))
    assert prefix.refused >= 2 * limit


def test_reads_writes_and_other_prefixes_do_not_take_from_each_others_limits() -> None:
    """As many as both limits allow are answered after one round trip."""
    prefix, other = Prefix(), Prefix()
    sent = [in_turn("put_new") for _ in range(LIMITS[True])] + [in_turn("get") for _ in range(LIMITS[False])]
    assert simulate(sent, prefix) == LATENCY
    assert not prefix.takes("put_new", 0.5)
    assert other.takes("put_new", 0.5)
    assert prefix.takes("put_new", 1.0)


@pytest.mark.parametrize(("objects", "parts"), [(1, 1), (7, 1), (3, 2)])
def test_a_simulated_batch_sends_the_requests_of_a_real_one(objects: int, parts: int) -> None:
    """Those that operator and driver send to a store, by operation."""
    pipeline = counted.Pipeline(objects)
    pipeline.past(0)
    _, operator, driver = counted.land(pipeline, "first", objects=objects, parts=parts)
    simulated = land(objects, parts, cores=2, part_seconds=0.1)[2]
    assert simulated.taken == Counter(counted.count(operator)) + Counter(counted.count(driver))
    assert simulated.refused == 0


def test_the_tables_of_the_documentation_are_those_of_the_simulation() -> None:
    """Line by line."""
    text = (Path(__file__).parents[3] / "docs" / "cost.md").read_text()
    assert [line for line in tables() if line not in text] == []
