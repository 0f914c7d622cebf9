"""Batches of several streams of records in the order of their offsets."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from airflow_provider_kafka_s3.arrays import int64_array, int64_values, one_batch

__all__ = ["in_order"]


def in_order(streams: Iterable[tuple[int, Iterator[pa.RecordBatch]]]) -> Iterator[pa.RecordBatch]:
    """The records of several streams, each in the order of offsets, in this order.

    A stream is begun when its lowest offset is reached.

    Args:
        streams: each with an offset that none of its records is below; no two records have the same offset.
    """
    waiting = sorted(streams, key=lambda stream: stream[0], reverse=True)
    heads: list[tuple[pa.RecordBatch, Iterator[pa.RecordBatch]]] = []
    while heads or waiting:
        # Up to this offset, which one of the batches ends with, the records of all of them are known.
        bound = min((_last(batch) for batch, _ in heads), default=-1)
        while waiting and (not heads or waiting[-1][0] <= bound):
            stream = waiting.pop()[1]
            if (batch := next(stream, None)) is not None:
                heads.append((batch, stream))
                bound = _last(batch) if len(heads) == 1 else min(bound, _last(batch))
        pieces, open_heads = [], []
        for batch, stream in heads:
            stop = int(np.searchsorted(int64_values(batch.column("offset")), bound, side="right"))
            if stop:
                pieces.append(batch.slice(0, stop))
            behind = batch.slice(stop) if stop < batch.num_rows else next(stream, None)
            if behind is not None:
                open_heads.append((behind, stream))
        heads = open_heads
        yield from _sorted(pieces)


def _first(batch: pa.RecordBatch) -> int:
    return int(int64_values(batch.column("offset"))[0])


def _last(batch: pa.RecordBatch) -> int:
    return int(int64_values(batch.column("offset"))[-1])


def _sorted(pieces: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The records of several batches; those together whose offsets interleave."""
    chain: list[pa.RecordBatch] = []
    for piece in sorted(pieces, key=_first):
        if chain and max(map(_last, chain)) < _first(piece):
            yield from _interleaved(chain)
            chain = []
        chain.append(piece)
    if chain:
        yield from _interleaved(chain)


def _interleaved(pieces: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    if len(pieces) == 1:
        yield pieces[0]
        return
    numbers = np.repeat(np.arange(len(pieces)), [piece.num_rows for piece in pieces])
    order = np.argsort(np.concatenate([int64_values(piece.column("offset")) for piece in pieces]), kind="stable")
    if all(piece.schema.equals(pieces[0].schema, check_metadata=True) for piece in pieces):
        yield one_batch(pieces).take(int64_array(order))
        return
    # Values of another schema are in a batch of their own.
    sources = numbers[order]
    edges = [0, *(np.flatnonzero(sources[1:] != sources[:-1]) + 1).tolist(), len(sources)]
    done = [0] * len(pieces)
    for low, high in itertools.pairwise(edges):
        number = int(sources[low])
        yield pieces[number].slice(done[number], high - low)
        done[number] += high - low
