"""Calls of one function in several threads, and how many items at a time. Standard library only."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

__all__ = ["Parallel", "growing_blocks", "in_threads"]

T = TypeVar("T")
R = TypeVar("R")


class Parallel(Protocol):
    """Applies a function to items, several at a time; :func:`in_threads` is one."""

    def __call__(self, function: Callable[[T], R], items: Sequence[T], *, threads: int = ...) -> list[R]:
        """The results in the order of the items; the first error is raised."""
        ...


def in_threads(function: Callable[[T], R], items: Sequence[T], *, threads: int = 64) -> list[R]:
    """Apply a function to items in a pool of threads.

    Args:
        function: safe to call in several threads.
        items: its arguments.
        threads: calls at the same time at most.

    Returns:
        The results in the order of the items.

    Raises:
        Exception: the first error of ``function`` in the order of the items, after the running calls have ended. Calls
            that have not begun are cancelled.
    """
    if len(items) <= 1:
        return [function(item) for item in items]
    with ThreadPoolExecutor(max_workers=min(threads, len(items)), thread_name_prefix="kafka-s3") as pool:
        futures = [pool.submit(function, item) for item in items]
        try:
            return [f.result() for f in futures]
        finally:
            for f in futures:
                f.cancel()


def growing_blocks(items: Iterable[T], *, most: int) -> Iterator[list[T]]:
    """Blocks of 1, 1, 2, 4, … items: each as long as all before it together, so that few are read in vain.

    Args:
        items: in their order.
        most: items of a block at most.
    """
    left, count = iter(items), 0
    while block := list(itertools.islice(left, min(max(count, 1), most))):
        yield block
        count += len(block)
