"""``python -m tests.soak``: see :mod:`tests.soak.soak`."""

from __future__ import annotations

import argparse
import logging
import random
import sys

from dev.kafka_broker import KafkaBroker
from dev.kafka_cluster import ThreeBrokers
from tests.kinds import KINDS
from tests.soak.soak import soak


def main() -> int:
    """Run it and print the figures; an error is raised as it is."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="how long faults happen (default: %(default)s)")
    parser.add_argument("--seconds", type=float, help="the same in seconds")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32), help="default: a new one")
    parser.add_argument("--format", choices=KINDS, help="what the topic is landed as; default: the seed chooses one")
    parser.add_argument("--workers", type=int, default=3, help="processes at the same time (default: %(default)s)")
    parser.add_argument("--brokers", type=int, choices=(1, 3), default=1, help="three are killed in turn")
    options = parser.parse_args()
    seconds = options.minutes * 60 if options.seconds is None else options.seconds
    kind = options.format or sorted(KINDS)[options.seed % len(KINDS)]
    print(f"Soak of {seconds:.0f} s, seed {options.seed}, {kind}, {options.workers} processes …", flush=True)

    def report(line: str) -> None:
        print(line, flush=True)

    logging.disable(logging.WARNING)
    with KafkaBroker() if options.brokers == 1 else ThreeBrokers() as kafka:
        figures = soak(kafka, seconds=seconds, seed=options.seed, kind=kind, workers=options.workers, report=report)
    bucket = figures.bucket
    assert bucket is not None
    kinds = ", ".join(f"{name} {count}" for name, count in sorted(figures.faults.items()))
    print(f"Faults: {kinds}")
    print(
        f"Every offset is landed once: {bucket.records:,} records in {bucket.objects:,} objects of {bucket.batches:,} "
        f"batches, {bucket.size:,} bytes, and {figures.without_values:,} null values that have no object of values; "
        f"{figures.left:,} uploads of dead processes were left to be collected"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
