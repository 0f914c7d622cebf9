"""Run many seeds: ``python -m tests.protocol.simulate --seeds 10000 --jobs 2``. A failure shows its replay command."""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import multiprocessing
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Final
from unittest import mock

import airflow_provider_kafka_s3
from airflow_provider_kafka_s3 import parallel
from airflow_provider_kafka_s3.reading import read_ahead
from airflow_provider_kafka_s3.testing.invariants import InvariantViolation
from tests.protocol.above import EXPIRING, LANDED, Above
from tests.protocol.engine import OneThread
from tests.protocol.simulation import LOSSY, MARKER_FILES, World

__all__ = ["Failure", "main", "replay_command", "run_seed", "simulate"]

SPECIAL: Final = MARKER_FILES, LOSSY, LANDED, EXPIRING
"""Seeds of worlds of which there are none among the others."""


@dataclass(frozen=True)
class Failure:
    """A seed in which the product violated an invariant, or failed unexpectedly."""

    seed: int
    finding: str
    details: str


def simulate(seed: int, *, steps: int = 700, trim: bool = False) -> Counter[str]:
    """Run one seed; returns counts of its events.

    Raises:
        InvariantViolation: the product violated an invariant.
    """
    world = World(seed, trim=trim)
    if seed in LANDED:
        world.above.append(Above(world, seed - LANDED.start))
    # Another thread would run while the scheduler lets another process run.
    with contextlib.ExitStack() as stack:
        for module in (parallel, read_ahead):
            stack.enter_context(mock.patch.object(module, "ThreadPoolExecutor", OneThread))
        world.main(steps)
    return world.counts


def replay_command(seed: int, steps: int) -> str:
    """The command that runs a seed again."""
    return f"python -m tests.protocol.simulate --first {seed} --seeds 1 --steps {steps}"


def run_seed(seed: int, *, steps: int, trim: bool = False) -> Counter[str] | Failure:
    """Run one seed; a failure is returned, so that the other seeds still run."""
    try:
        return simulate(seed, steps=steps, trim=trim)
    except InvariantViolation as e:
        return Failure(seed, e.findings[0], "".join(traceback.format_exception(e)))
    except Exception as e:  # noqa: BLE001 - any exception of the product is a finding
        return Failure(seed, f"unexpected {type(e).__name__}: {e}", "".join(traceback.format_exception(e)))


def _outcomes(seeds: Sequence[int], jobs: int, steps: int, trim: bool) -> Iterator[Counter[str] | Failure]:
    work = partial(run_seed, steps=steps, trim=trim)
    if jobs == 1:
        yield from map(work, seeds)
        return
    with multiprocessing.get_context("spawn").Pool(jobs, initializer=_quiet) as pool:
        yield from pool.imap_unordered(work, seeds, chunksize=20)


def _quiet() -> None:
    # The product logs a warning for every retry; here there are thousands.
    logging.disable(logging.CRITICAL)


def main(argv: Sequence[str] | None = None) -> int:
    """Run seeds and print counts of their events; 1 if any failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10_000, help="number of seeds (default %(default)s)")
    parser.add_argument(
        "--first",
        type=int,
        help="first seed; by default seeds from 0 on, and a twentieth as many of each kind of special worlds",
    )
    parser.add_argument("--steps", type=int, default=700, help="steps with faults (default %(default)s)")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default %(default)s)")
    parser.add_argument("--stop-after", type=int, default=0, help="end after this many failures (default: never)")
    parser.add_argument(
        "--trim", action="store_true", help="somebody deletes old control documents, which is forbidden"
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON, for programs")
    options = parser.parse_args(argv)
    _quiet()
    first = options.first or 0
    seeds = [*range(first, first + options.seeds)]
    if options.first is None:
        seeds += [seed for kind in SPECIAL for seed in kind[: options.seeds // 20]]
    started = time.perf_counter()
    counts: Counter[str] = Counter()
    failures: list[Failure] = []
    done = 0
    for outcome in _outcomes(seeds, options.jobs, options.steps, options.trim):
        done += 1
        if isinstance(outcome, Failure):
            failures.append(outcome)
            if not options.json:
                print(f"seed {outcome.seed}: {outcome.finding}", flush=True)
            if options.stop_after and len(failures) >= options.stop_after:
                break
        else:
            counts += outcome
        if not options.json and done % 500 == 0:
            print(f"{done} of {len(seeds)} seeds, {len(failures)} failures", flush=True)
    if options.json:
        package = str(Path(airflow_provider_kafka_s3.__file__).parent)
        print(json.dumps({"package": package, "seeds": done, "failures": [asdict(f) for f in failures]}))
        return int(bool(failures))
    for event, count in sorted(counts.items()):
        print(f"{count:>10,}  {event}")
    print(f"{done:,} seeds of {options.steps} steps in {time.perf_counter() - started:.0f} s, {len(failures)} failures")
    if failures:
        print(f"\n{failures[0].details}\nreplay: {replay_command(failures[0].seed, options.steps)}")
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
