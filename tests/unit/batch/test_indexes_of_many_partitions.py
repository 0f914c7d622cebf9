"""Indexes of topics with many Kafka partitions: their size, memory and requests are bounded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import msgspec
import pytest

from airflow_provider_kafka_s3.batch.coverage import covering_downward
from airflow_provider_kafka_s3.batch.derived.log_indexes import write_missing
from airflow_provider_kafka_s3.batch.log_index import checked_summaries, summaries, together
from airflow_provider_kafka_s3.documents import addresses
from airflow_provider_kafka_s3.documents.codec import encode
from airflow_provider_kafka_s3.documents.log_index import MAX_HULL, MAX_RANGES, Box, IndexedBatch, LogIndex
from airflow_provider_kafka_s3.documents.offsets import NO_OFFSETS, Offsets
from airflow_provider_kafka_s3.maintenance.repair import repair
from airflow_provider_kafka_s3.testing.invariants import read_state
from tests.protocol.engine import CONTROL, PIPELINE, TOPIC, TOPICS_DIR, in_turn
from tests.unit.batch.test_log_index import History, counts, entry, indexes_of, of_all
from tests.unit.batch.test_wrong_indexes import engine_of

T = TypeVar("T")
R = TypeVar("R")

MODULE = "airflow_provider_kafka_s3.batch.log_index"
BUILDING = "airflow_provider_kafka_s3.batch.derived.log_indexes"


class Rounds:
    """``in_turn``, with the number of items of each call."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def __call__(self, function: Callable[[T], R], items: Sequence[T], *, threads: int = 1) -> list[R]:
        self.sizes += [len(items)] if items else []
        return in_turn(function, items)


@pytest.fixture
def history() -> History:
    """123 batches without indexes."""
    return History(123)


@pytest.fixture
def without_claims(history: History) -> Iterator[History]:
    """123 batches whose indexes have hulls in place of claims."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(f"{BUILDING}.MAX_RANGES", 0)
        history.index()
        yield history


def test_no_large_index_is_made_from_small_ones_of_many_bytes(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run and a repair write the small ones only, and a repair finds nothing more; all batches are read by them."""
    monkeypatch.setattr(f"{BUILDING}._MADE_FROM", 5_000)
    expected = of_all(*history.log()[:2])
    history.index()
    small = [f"{n:010}-{n + 9:010}.json" for n in range(1, 120, 10)]
    assert indexes_of(history.bucket) == small
    for every_document in (False, True):
        assert repair(engine_of(history).committer, start={0: 0}, every_document=every_document).indexes == 0
    history.bucket.delete(addresses.indexes_prefix(CONTROL) + small[0])
    for dry_run in (True, False):
        assert repair(engine_of(history).committer, start={0: 0}, dry_run=dry_run).indexes == 1
    assert indexes_of(history.bucket) == small
    assert of_all(*history.log()[:2]) == expected


def test_indexes_read_at_the_same_time_have_few_bytes_together(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the sizes of the listing: two of ten batches at a time here, whoever reads them; one alone may have more."""
    log, marker, _ = history.log((10,))
    write_missing(log, marker, most=None, parallel=in_turn)
    largest = max(log.indexes().values())
    for bytes_together, at_once in ((2 * largest, 2), (1, 1)):
        monkeypatch.setattr(f"{MODULE}._TOGETHER", bytes_together)
        rounds = Rounds()
        assert len([*summaries(log, marker, 1, 120, parallel=rounds)]) == 120
        assert max(rounds.sizes) == at_once
        rounds = Rounds()
        target = Offsets({0: [(n, n + 1) for n in range(0, 240, 40)]})
        found = covering_downward(log, target, generation=0, marker=marker, parallel=rounds)
        assert {batch.plan.batch for batch in found} == set(range(1, 121, 20))
    assert [*together([3, 3, 3, 9, 1], lambda n: n, most=2)] == [[3], [3], [3], [9], [1]]


def test_claims_that_are_in_plans_only_are_read_several_at_a_time(without_claims: History) -> None:
    """The claim of each batch is that of its plan, in a few rounds of requests."""
    log, marker, _ = without_claims.log()
    expected = [batch.claimed for batch in summaries(log, marker, parallel=in_turn, by_index=False)]
    log, marker, store = without_claims.log()
    rounds = Rounds()
    assert [batch.claimed for batch in summaries(log, marker, parallel=rounds)] == expected
    assert counts(store) == {"list": 1, "get": 2 * (2 + 2) + 120 + 2 * 3}
    assert len(rounds.sizes) < 20


def test_indexes_with_hulls_are_what_the_documents_say(without_claims: History) -> None:
    """Whoever reads the bucket finds no deviation."""
    state = read_state(without_claims.bucket, topics_dir=TOPICS_DIR, pipeline=PIPELINE, topic=TOPIC)
    indexed = [batch for index in state.indexes.values() for batch in index.batches]
    assert {batch.claim for batch in indexed} == {None}
    assert {batch.hull for batch in indexed} == {((0, 0, 2 * n, 2 * n + 2),) for n in range(120)}


def test_a_search_reads_only_the_plans_whose_hull_has_the_window(without_claims: History) -> None:
    """Not those of all batches without a claim in the index."""
    log, marker, store = without_claims.log()
    target = Offsets({0: [(60, 62)]})
    (found,) = covering_downward(log, target, generation=0, marker=marker, parallel=in_turn)
    assert found.plan.batch == 31
    # Eight plans near the end, up to three indexes, plan and manifest.
    assert counts(store)["get"] <= 8 + 3 + 2


def test_summaries_that_are_kept_have_hulls_in_place_of_large_claims() -> None:
    """Up to a hundred ranges stay."""
    few = entry(claim=Offsets({p: [(0, 5)] for p in range(MAX_HULL)}))
    many = entry(claim=Offsets({p: [(p, p + 5)] for p in range(MAX_HULL + 1)}))
    assert few.within(MAX_HULL) is few
    assert (many.within(MAX_HULL).claim, len(many.within(MAX_HULL).hull)) == (None, 51)
    assert many.within(MAX_HULL).hull[0] == (0, 1, 0, 6)
    assert many.within(MAX_HULL).within(MAX_HULL) == many.within(MAX_HULL)


def hull_of(claim: Offsets) -> IndexedBatch:
    """A batch that has the hull of a claim."""
    return entry(claim=claim | Offsets({2**31 - 1: [(3 * n, 3 * n + 1) for n in range(MAX_HULL + 1)]})).within(MAX_HULL)


def test_a_hull_contains_the_claim_and_excludes_other_windows_and_partitions() -> None:
    """For each Kafka partition with up to a hundred of them, and for groups of more."""
    batch = hull_of(Offsets({p: [(10 * p, 10 * p + 2), (10 * p + 5, 10 * p + 6)] for p in range(0, 60, 2)}))
    assert batch.claim is None
    for p in range(0, 60, 2):
        assert batch.may_claim(Offsets({p: [(10 * p, 10 * p + 1)]}))
        assert batch.may_claim(Offsets({p: [(0, 10 * p), (10 * p + 5, 10 * p + 9)]}))
        assert not batch.may_claim(Offsets({p: [(10 * p + 6, 10 * p + 9)], p + 1: [(0, 2**40)]}))
        assert batch.may_claim_of([p + 1, p])
        assert not batch.may_claim_of([p + 1, 1_000])
    assert not batch.may_claim(NO_OFFSETS)
    wide = entry(claim=Offsets({p: [(p, p + 1)] for p in range(2_500)})).within(MAX_HULL)
    assert len(wide.hull) == 100
    assert all(wide.may_claim(Offsets({p: [(p, p + 1)]})) and wide.may_claim_of([p]) for p in range(2_500))
    assert not wide.may_claim(Offsets({0: [(25, 2_500)], 2_499: [(0, 2_475)], 2_500: [(0, 9_000)]}))


@pytest.mark.parametrize(
    "hull",
    [
        (),
        ((0, 0, 5, 5),),
        ((0, 0, -1, 5),),
        ((0, 0, 0, 2**63),),
        ((1, 0, 0, 5),),
        ((-1, 0, 0, 5),),
        ((0, 2**31, 0, 5),),
        ((0, 3, 0, 5), (3, 4, 0, 5)),
        ((4, 5, 0, 5), (0, 1, 0, 5)),
        tuple((p, p, 0, 5) for p in range(MAX_HULL + 1)),
    ],
)
def test_an_impossible_hull_is_refused(hull: tuple[Box, ...]) -> None:
    """Empty, not in order, or of too many boxes; and so is one beside a claim."""
    assert entry(claim=None, hull=((0, 3, 0, 5), (4, 4, 1, 2))).hull
    with pytest.raises(ValueError, match="batch 1"):
        entry(claim=None, hull=hull)
    with pytest.raises(ValueError, match="batch 1 cannot have this hull"):
        entry(hull=((0, 0, 0, 5),))


def test_the_largest_indexes_have_some_megabytes() -> None:
    """A hundred batches of a thousand ranges, and a thousand whose hundreds are few bytes."""
    widest = Offsets({2**31 - 1 - p: [(2**62 + 3 * p, 2**62 + 3 * p + 1)] for p in range(MAX_RANGES)})
    for claimed in ({"claim": widest}, {"claim": None, "hull": entry(claim=widest).within(MAX_HULL).hull}):
        batches = tuple(entry(batch=n, **claimed) for n in range(1, 101))
        assert len(encode(LogIndex(topic=TOPIC, first=1, batches=batches), {})) < 8_000_000


def test_a_long_log_is_kept_without_large_claims(without_claims: History) -> None:
    """A snapshot has all batches, with small claims as they are; the marker agrees."""
    log, marker, _ = without_claims.log()
    found = checked_summaries(tuple, log, marker, parallel=in_turn)
    by_documents = [*summaries(log, marker, parallel=in_turn, by_index=False)]
    assert [batch.batch for batch in found] == list(range(1, 124))
    assert {msgspec.structs.replace(batch, same_layout_as=1) for batch in found} == {
        msgspec.structs.replace(batch, same_layout_as=1) for batch in by_documents
    }
