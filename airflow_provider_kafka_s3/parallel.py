"""Map over items with several threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

__all__ = ["Parallel", "in_threads"]

T = TypeVar("T")
R = TypeVar("R")


def in_threads(function: Callable[[T], R], items: Sequence[T], *, threads: int = 64) -> list[R]:
    """Map over items with a pool of threads; the first error is raised after the running calls have ended."""
    if len(items) <= 1:
        return [function(item) for item in items]
    with ThreadPoolExecutor(max_workers=min(threads, len(items)), thread_name_prefix="kafka-s3") as pool:
        futures = [pool.submit(function, item) for item in items]
        try:
            return [f.result() for f in futures]
        finally:
            for f in futures:
                f.cancel()


class Parallel(Protocol):
    """Maps over items, several at a time: see :func:`in_threads`."""

    def __call__(self, function: Callable[[T], R], items: Sequence[T], *, threads: int = ...) -> list[R]:
        """Results in the order of the items; the first error is raised."""
        ...
