"""Offsets of blocks: few ranges as such, many as runs, whatever pieces they come in; the reader here is another one."""

from __future__ import annotations

import base64
import gzip
import itertools
import random
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_kafka_s3.config import GzipEncoder
from airflow_provider_kafka_s3.formats import block_offsets
from airflow_provider_kafka_s3.formats.block_offsets import MAX_RANGES, BlockOffsets, ranges_of_runs
from airflow_provider_kafka_s3.formats.compression import Gzip

Ranges = list[tuple[int, int]]


def made(ranges: Ranges, cuts: Sequence[int], encoder: GzipEncoder = "isal") -> tuple[Ranges | None, str | None]:
    """What is written for the offsets of ranges that come in pieces."""

    def compressed(data: memoryview) -> bytes:
        member = Gzip(1, encoder)
        return b"".join([*member.write(data), *member.close()])

    offsets = np.concatenate([np.arange(start, stop) for start, stop in ranges])
    written = BlockOffsets(compressed)
    edges = [0, *sorted({cut % len(offsets) for cut in cuts} - {0}), len(offsets)]
    for start, stop in itertools.pairwise(edges):
        written.add(offsets[start:stop])
    found, runs = written.found()
    return None if found is None else [*found], runs


def numbers_of(runs: str) -> list[int]:
    """The numbers, by the description of the format."""
    numbers, number, shift = [], 0, 0
    for byte in gzip.decompress(base64.b64decode(runs)):
        number, shift = number + byte % 128 * 2**shift, shift + 7
        if byte < 128:
            numbers.append(number)
            number = shift = 0
    return numbers


def ranges_of(sizes: Sequence[tuple[int, int]], first: int) -> Ranges:
    """Ranges of some lengths, each behind a gap."""
    found, at = [], first
    for size, gap in sizes:
        found.append((at, at + size))
        at += size + gap
    return found


def numbers_in(ranges: Ranges) -> list[int]:
    """How many offsets follow one another and how many are left out, in turn."""
    gaps = [b[0] - a[1] for a, b in itertools.pairwise(ranges)]
    sizes = [stop - start for start, stop in ranges]
    return [number for pair in zip(sizes, [*gaps, 0], strict=True) for number in pair][:-1]


SIZES = st.tuples(st.integers(1, 9), st.one_of(st.integers(1, 130), st.integers(1, 2**40)))


@given(
    sizes=st.lists(SIZES, min_size=2, max_size=40),
    first=st.one_of(st.integers(0, 9), st.integers(0, 2**40)),
    cuts=st.lists(st.integers(0, 400), max_size=40),
    joined_at=st.integers(3, 30),
    member=st.integers(1, 20),
    encoder=st.sampled_from(["isal", "zlib"]),
)
def test_runs_have_exactly_the_offsets_whatever_pieces_they_came_in(
    sizes: list[tuple[int, int]], first: int, cuts: list[int], joined_at: int, member: int, encoder: GzipEncoder
) -> None:
    """Small limits, so that they are reached everywhere: ranges are joined, and members end, at any place."""
    ranges = ranges_of(sizes, first)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(block_offsets, "MAX_RANGES", 3)
        patch.setattr(block_offsets, "_JOINED_AT", joined_at)
        patch.setattr(block_offsets, "_MEMBER", member)
        found, runs = made(ranges, cuts, encoder)
        assert (found, runs) == made(ranges, [], encoder)
    if len(ranges) <= 3:
        assert (found, runs) == (ranges, None)
        return
    assert found is None
    assert runs is not None
    assert numbers_of(runs) == numbers_in(ranges)
    assert [*ranges_of_runs(runs, first)] == ranges


@pytest.mark.parametrize("count", [1, 2, MAX_RANGES, MAX_RANGES + 1, 5 * MAX_RANGES, 50 * MAX_RANGES])
def test_only_more_than_a_thousand_ranges_are_runs(count: int) -> None:
    """Indices of fewer are those of earlier versions to the byte."""
    chance = random.Random(count)
    ranges = ranges_of([(chance.randint(1, 300), chance.randint(1, 300)) for _ in range(count)], 7)
    found, runs = made(ranges, [chance.randrange(count * 300) for _ in range(40)])
    assert found == (ranges if 1 < count <= MAX_RANGES else None)
    assert (None if runs is None else [*ranges_of_runs(runs, 7)]) == (ranges if count > MAX_RANGES else None)


def test_runs_of_transactions_are_few_bytes() -> None:
    """A hundred records and a marker each, for a million records: a pattern; of other sizes, two bytes each."""
    _, runs = made(ranges_of([(100, 1)] * 10_000, 0), [])
    assert runs is not None
    assert len(runs) < 500
    chance = random.Random(1)
    _, runs = made(ranges_of([(chance.randint(50, 150), 1) for _ in range(10_000)], 0), [])
    assert runs is not None
    assert len(runs) < 20_000


@pytest.mark.parametrize("body", [b"no gzip", gzip.compress(b"\x01\x02\x01")[:-9]], ids=["no gzip", "cut"])
def test_damaged_runs_are_errors(body: bytes) -> None:
    """No offset is guessed from them."""
    with pytest.raises((OSError, EOFError)):
        [*ranges_of_runs(base64.b64encode(body).decode(), 0)]
    with pytest.raises(ValueError, match="base64"):
        [*ranges_of_runs("?", 0)]
