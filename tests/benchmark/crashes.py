"""``python -m tests.benchmark.crashes``: how many records a bucket has twice after a landing was killed and ran again.

Each way lands the same topic. It is killed by SIGKILL, with all its processes, when the next objects have appeared, and
started again by the same command until all records are there. Nothing is cleaned up in between. The bucket is read as
most readers do: each object in the folder of the topic. The records have ids, so that equal lines are the same record.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from dev.kafka_broker import KafkaBroker
from tests.benchmark.bento_config import BY_OFFSET, BY_TIME
from tests.benchmark.peers import Peers, Topic, make_topic
from tests.benchmark.stages import DAG, write_dag
from tests.benchmark.stores import store
from tests.benchmark.whole import CommandFailed, whole

KILLS: Final = 2
"""Of each way."""
OBJECTS: Final = 1
"""That appear before the next kill."""
PERIOD: Final = "2s"
"""After which Bento ends an object that is not full, so that records are seen in time."""


class Crashes(Peers):
    """The ways; each returns the lines in its bucket, and how many different ones."""

    def __init__(self, broker: KafkaBroker, endpoint: str, folder: Path) -> None:
        super().__init__(broker, endpoint, folder)
        self.ways: dict[str, Callable[[Topic], tuple[int, int]]] = {
            "this package, a task of Airflow": self.landed_by_tasks,
            "Spark availableNow": self.landed_by_spark,
            "Bento, objects named by time": lambda topic: self.landed_by_bento(topic, BY_TIME),
            "Bento, objects named by first offset": lambda topic: self.landed_by_bento(topic, BY_OFFSET),
        }

    def landed_by_tasks(self, topic: Topic) -> tuple[int, int]:
        """The task is cleared after each kill, as by a person, or by Airflow's retries."""
        bucket = self._bucket()
        write_dag(self.home, topic.name, bucket, topic.records)
        return self._crashed(topic, bucket, self.home.command(DAG), self.home.environment)

    def landed_by_spark(self, topic: Topic) -> tuple[int, int]:
        """A stream with a checkpoint."""
        bucket = self._bucket()
        command, env = self._spark_command(topic, bucket, stream=True)
        return self._crashed(topic, bucket, command, env)

    def landed_by_bento(self, topic: Topic, path: str) -> tuple[int, int]:
        """A consumer group; its next process waits until the broker gives the killed one up."""
        bucket = self._bucket()
        return self._crashed(topic, bucket, self._bento_command(topic, bucket, path, PERIOD), {}, server=True)

    def _crashed(
        self, topic: Topic, bucket: str, command: list[str], env: Mapping[str, str], *, server: bool = False
    ) -> tuple[int, int]:
        output = self._folder() / "output"
        seen: dict[str, list[int]] = {}

        def more() -> bool:
            return len(self._data(bucket)) >= enough

        def complete() -> bool:
            for key in self._data(bucket).keys() - seen.keys():
                seen[key] = [hash(line) for line in self._lines(bucket, [key])]
            return len({line for lines in seen.values() for line in lines}) == topic.records

        for _ in range(KILLS):
            enough = len(self._data(bucket)) + OBJECTS
            # One that ends before it is killed has done its work; the last one has to end well.
            with contextlib.suppress(CommandFailed):
                whole(command, env, output, done=more)
        whole(command, env, output, done=complete if server else None)
        # An object may have been replaced by one with other records.
        lines = [hash(line) for line in self._lines(bucket, self._data(bucket))]
        return len(lines), len(set(lines))


def main() -> int:
    """Kill, count, print; 1 if a way could not be measured."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmark.crashes", description=__doc__)
    parser.add_argument("--records", type=int, default=400_000, help="(default: %(default)s)")
    parser.add_argument("--way", help="only those with this text in their name")
    options = parser.parse_args()
    failed = False
    with (
        store("versitygw") as server,
        KafkaBroker(heap="1g", optimised=True) as broker,
        tempfile.TemporaryDirectory(prefix="crashes-") as folder,
    ):
        crashes = Crashes(broker, server.endpoint, Path(folder))
        topic = make_topic(broker, options.records)
        found = {}
        for name, way in crashes.ways.items():
            if options.way and options.way not in name:
                continue
            try:
                lines, records = way(topic)
            except CommandFailed as e:
                failed = True
                print(f"{name} failed: {e}", file=sys.stderr, flush=True)
                continue
            again, lost = lines - records, topic.records - records
            found[name] = {"lines": lines, "again": again, "lost": lost}
            share = f"{again / topic.records:.1%}"
            print(f"{name:40}{lines:>12,} lines, {again:>10,} again ({share}), {lost:,} lost", flush=True)
    print(json.dumps(found))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
