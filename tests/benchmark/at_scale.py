"""A gigabyte a second on paper: what many executors and a driver send to S3 at its limits, as a simulation of requests.

``python -m tests.benchmark.at_scale`` prints the tables of docs/cost.md, which has the sources of its parts. Its
requests are those of a real batch (tests/unit/batch/test_at_scale.py). It is deterministic: waits have no jitter.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections import Counter, deque
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from airflow_provider_kafka_s3.config import Limits
from airflow_provider_kafka_s3.retry import RetryPolicy
from airflow_provider_kafka_s3.testing.stores import WRITES

LIMITS: Final[Mapping[bool, int]] = {True: 3_500, False: 5_500}
"""Requests per second that S3 takes below a prefix: writes (PUT, POST, DELETE), and reads (GET, HEAD)."""
RATE: Final = 1_000_000_000
CORES: Final = 200
"""100 executors of two cores."""
PARTITIONS: Final = 200
CORE_BYTES: Final = 67_000_000
"""Bytes of values that a core lands in a second, as gzip."""
COMPRESSED: Final = 182 / 714
RECORD: Final = 357
PART: Final = 8 * 1024 * 1024
LATENCY: Final = 0.02
START: Final = 5.0
"""Seconds in which a Spark job starts."""
DRIVER_THREADS: Final = 64
DRIVER_SECONDS: Final = 1 / 480
"""Of the driver's processor for a request: it completes and checks 240 objects a second."""
CORE_HOUR: Final = 0.04
PRICES: Final[Mapping[bool, float]] = {True: 0.005 / 1_000, False: 0.0004 / 1_000}
WAYS: Final = {
    "this package, cores at $0.04": (17.4 - 6.2, CORE_HOUR),
    "this package, cores at $0.11": (17.4 - 6.2, 0.11),
    "Confluent's sink on MSK Connect, $0.11": (45.0 - 3.1, 0.11),
    "Spark streaming on Glue, $0.44 for four": (47.1 - 16.8, 0.44 / 4),
}
"""CPU seconds of 2,000,000 records (714 MB) beyond those of a small run, and dollars for the hour of a core."""

Process: TypeAlias = Generator["float | str", None, None]
"""Yields seconds of work, and operations of requests."""


@dataclass
class Prefix:
    """A prefix of a bucket: it refuses a request with 503 if it has taken as many as its limit within a second."""

    taken: Counter[str] = field(default_factory=Counter)
    refused: int = 0
    _last: dict[bool, deque[float]] = field(default_factory=lambda: {True: deque(), False: deque()})

    def takes(self, operation: str, now: float) -> bool:
        """Whether it takes a request."""
        writes = operation in WRITES
        last = self._last[writes]
        while last and last[0] <= now - 1:
            last.popleft()
        if len(last) >= LIMITS[writes]:
            self.refused += 1
            return False
        last.append(now)
        self.taken[operation] += 1
        return True


def simulate(processes: Iterable[Process], prefix: Prefix, *, cpu: float = 0.0, start: float = 0.0) -> float:
    """Run processes, which wait for each of their requests and repeat it if it is refused, until all have ended.

    Args:
        processes: all begin at ``start``.
        prefix: of their requests.
        cpu: seconds for a request of a processor that all of them share; 0: each has its own.
        start: in seconds.

    Returns:
        When the last one has ended.
    """
    policy, numbers = RetryPolicy(), itertools.count()
    queue: list[tuple[float, int, Process, str, int]] = [(start, next(numbers), p, "", 0) for p in processes]
    heapq.heapify(queue)
    cpu_free = ended = start
    while queue:
        now, _, process, operation, tries = heapq.heappop(queue)
        if operation and not prefix.takes(operation, now):
            # The mean of a wait with full jitter.
            wait = LATENCY + policy.longest_wait(tries + 1, throttled=True) / 2
            heapq.heappush(queue, (now + wait, next(numbers), process, operation, tries + 1))
            continue
        now += LATENCY if operation else 0
        ended = max(ended, now)
        step = next(process, None)
        if isinstance(step, str):
            cpu_free = max(cpu_free, now) + cpu
            heapq.heappush(queue, (cpu_free if cpu else now, next(numbers), process, step, 0))
        elif step is not None:
            heapq.heappush(queue, (now + step, next(numbers), process, "", 0))
    return ended


def in_turn(*operations: str) -> Process:
    """Requests one after the other."""
    yield from operations


def _core(objects: deque[int], seconds: float) -> Process:
    """A core of an executor: one object after the other, of whose numbers of parts the cores share the list."""
    while objects:
        parts = objects.popleft()
        yield "create_upload"
        for _ in range(parts):
            yield seconds
            yield "upload_part"


def _driver_thread(objects: deque[int]) -> Process:
    while objects:
        objects.popleft()
        yield "complete_upload"
        yield "head"


def land(objects: int, parts: int, *, cores: int, part_seconds: float) -> tuple[float, float, Prefix]:
    """A batch of a topic: seconds until the last part is uploaded, seconds of all other steps, and the requests."""
    prefix = Prefix()
    planned = simulate([in_turn(*["get"] * 5, "put_new", "put_new")], prefix, cpu=DRIVER_SECONDS)
    left = deque([parts] * objects)
    read = simulate([_core(left, part_seconds) for _ in range(cores)], prefix, start=planned)
    decided = simulate([in_turn("get", "get", "put_new", "get")], prefix, cpu=DRIVER_SECONDS, start=read)
    left = deque([parts] * objects)
    threads = [_driver_thread(left) for _ in range(DRIVER_THREADS)]
    completed = simulate(threads, prefix, cpu=DRIVER_SECONDS, start=decided)
    end = in_turn("get", "put_if_match", *["get"] * 5, "put_if_match")
    ended = simulate([end], prefix, cpu=DRIVER_SECONDS, start=completed)
    return read - planned, planned + ended - read, prefix


class Case(NamedTuple):
    """How often a topic is landed (seconds), and how; each slice has records of all folders of the partitioner."""

    name: str
    interval: int
    folders: int = 1
    records_per_batch: int | None = Limits().records_per_batch

    def row(self) -> tuple[str, ...]:
        """Its figures."""
        records, terabytes = RATE * self.interval // RECORD, RATE * self.interval / 1e12
        batches = -(-records // (self.records_per_batch or records))
        slices = PARTITIONS * -(-records // batches // PARTITIONS // Limits().records_per_slice)
        size = RATE * self.interval * COMPRESSED / batches / (slices * self.folders)
        parts = math.ceil(size / PART)
        seconds = size / parts / COMPRESSED / CORE_BYTES
        reading, commit, prefix = land(slices * self.folders, parts, cores=CORES, part_seconds=seconds)
        run = batches * (START + reading + commit)
        sent = {w: batches * sum(n for o, n in prefix.taken.items() if (o in WRITES) == w) for w in LIMITS}
        requests = sum(sent[writes] * price for writes, price in PRICES.items()) / terabytes
        return (
            *(self.name, f"{batches}", f"{batches * slices:,}"),
            f"{batches * slices * self.folders:,} of {size / 1e6:.1f} MB",
            *(f"{sent[True]:,}", f"{sent[False]:,}", f"{batches * prefix.refused:,}"),
            *(f"{batches * reading:.0f} s", f"{batches * commit:.0f} s", f"{run:.0f} of {self.interval:,} s"),
            f"${CORES * run / 3_600 * CORE_HOUR / terabytes:.2f} + ${requests:.2f}",
        )


CASES: Final = (
    Case("5 minutes, one batch", 300, records_per_batch=None),
    Case("5 minutes, defaults", 300),
    Case("an hour, one batch", 3_600, records_per_batch=None),
    Case("5 minutes, 100 folders, one batch", 300, 100, None),
    Case("5 minutes, 100 folders, defaults", 300, 100),
    Case("5 minutes, 400 folders, one batch", 300, 400, None),
)
_RUNS: Final = "run|batches|slices|objects|writes|reads|refused|reading|commits|run takes|cores + requests for a TB"
_WAYS: Final = "way|cores for a GB a second|core-hours for a TB|dollars for a TB"


def tables() -> list[str]:
    """The tables of docs/cost.md."""
    ways = [(name, s / 0.714, s / 0.714 / 3.6, s / 0.714 / 3.6 * dollars) for name, (s, dollars) in WAYS.items()]
    rows = [(name, f"{cores:.0f}", f"{hours:.1f}", f"${dollars:.2f}") for name, cores, hours, dollars in ways]
    both = (_RUNS, [case.row() for case in CASES]), (_WAYS, rows)
    return [
        "| " + " | ".join(row) + " |" if row[0] != "---" else "|" + "|".join(row) + "|"
        for head, body in both
        for row in (tuple(head.split("|")), ("---",) * (head.count("|") + 1), *body)
    ]


if __name__ == "__main__":
    print(*tables(), sep="\n")
