"""Processes that compact, or delete what is compacted, are killed with SIGKILL at a request that a seed chooses.

The request may have been applied, or is lost, or arrives when another process has ended the work.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import time
from typing import Any, Final

import pytest

from airflow_provider_kafka_s3.batch.request import RunRequest
from airflow_provider_kafka_s3.config import Limits
from airflow_provider_kafka_s3.layout import keys
from airflow_provider_kafka_s3.pipeline import TopicPipeline
from airflow_provider_kafka_s3.storage.memory import MemoryStore
from airflow_provider_kafka_s3.storage.port import ObjectStore
from airflow_provider_kafka_s3.storage.s3 import S3Store
from airflow_provider_kafka_s3.testing.invariants import check_bucket
from airflow_provider_kafka_s3.testing.kafka import SimulatedKafka
from airflow_provider_kafka_s3.testing.stores import FaultyStore
from dev.faults import Hold
from tests.faults.conftest import BUCKET, LOGIN, Site
from tests.faults.night import TOPIC, Night, Work, compact, expire, work
from tests.kinds import KINDS

HALF_AN_HOUR: Final = 1_800_000
EIGHT_DAYS: Final = 8 * 86_400.0
PATIENCE: Final = 300.0
"""Seconds of a process on a busy machine."""
SEEDS: Final = range(20 if "EVERY_FAULT" in os.environ else 2)

# A new process would spend most of its time on imports: these are forked from one that has imported everything.
FORKS: Final = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["tests.faults.night"])

Rows = dict[tuple[int, int], dict[str, Any]]


class Lake:
    """A topic that is landed by hours, and compacted by days."""

    def __init__(self, store: ObjectStore, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.store = store
        self.night = Night(
            folder=f"lake-{seed}-{time.monotonic_ns()}",
            run="",
            is_merged=rng.random() < 0.5,
            per_slice=rng.choice([4, 100]),
            per_batch=rng.choice([10, 1000]),
            is_verified=rng.random() < 0.5,
        )
        self._kafka = SimulatedKafka()
        self._kafka.create_topic(TOPIC, rng.randint(1, 3))
        self.land("first")
        self.land("second")

    def land(self, run: str) -> Rows:
        """Records arrive, null and invalid values among them, and are landed; all that are landed by hours."""
        rng, kafka = self.rng, self._kafka
        self.night.run = f"after {run}"
        for _ in range(rng.randint(4, 10)):
            kind = rng.randrange(6)
            value = None if kind == 0 else b"no JSON" if kind == 1 else b'{"n":%d}' % rng.getrandbits(30)
            at = rng.randrange(60) * HALF_AN_HOUR
            kafka.append(TOPIC, rng.randrange(kafka.partition_count(TOPIC)), value, at, key=b"key %d" % kind)
        limits = Limits(records_per_slice=5)
        request = RunRequest(
            run=run, offsets="incremental", starting="earliest", layout=self.night.of_hours, limits=limits
        )
        assert self.hours.land(request).status == "ok"
        return self.rows(self.hours)

    @property
    def hours(self) -> TopicPipeline:
        """What lands from Kafka."""
        return self.night.hours(self.store, self._kafka)

    @property
    def days(self) -> TopicPipeline:
        """What compacts it."""
        return self.night.days(self.store)

    def rows(self, pipeline: TopicPipeline) -> Rows:
        """The records of all objects in the bucket, by Kafka partition and offset; each is in one object."""
        rows: Rows = {}
        for info in self.store.list(f"{pipeline.log.topics_dir}/{TOPIC}/"):
            stored = self.store.get(info.key)
            assert stored is not None
            for row in map(json.loads, stored.body.splitlines()):
                place = row["partition"], row["offset"]
                assert place not in rows, f"offset {place} is in {info.key}, and in another object"
                rows[place] = {**row, "is_dead": f"/{keys.DEAD_LETTERS_DIR}/" in info.key}
        return rows

    def check(self, pipeline: TopicPipeline, *, is_complete: bool = True) -> int:
        """All invariants of a pipeline; the number of its objects. Whatever uploads it has left are not needed."""
        summary = check_bucket(
            self.store,
            topics_dir=pipeline.log.topics_dir,
            pipeline=pipeline.log.pipeline,
            topic=TOPIC,
            source=self._kafka.all_records(),
            decoder=KINDS["envelope"].values,
            recovered=True,
            complete=is_complete,
        )
        pipeline._now = lambda: time.time() + EIGHT_DAYS
        garbage = pipeline.find_garbage(older_than=EIGHT_DAYS / 2)
        assert [*garbage.needed, *garbage.young, *garbage.foreign] == []
        pipeline.collect(garbage)
        assert not [*pipeline.log.store.pending_uploads(f"{self.night.folder}/")]
        return summary.objects


class Killed:
    """A process that is killed at one of its requests, which stays on its way.

    Args:
        site: the server.
        lake: what it works on.
        action: its work.
        requests: of this work if nothing disturbs it.
    """

    def __init__(self, site: Site, lake: Lake, action: Work, requests: int) -> None:
        self._site, self._lake, self._action = site, lake, action
        at, applied = lake.rng.randint(1, requests), lake.rng.random() < 0.5
        self._arrives = lake.rng.choice(["before others", "behind others", "never"])
        print(f"killed at request {at} of {requests}, applied: {applied}, else it arrives {self._arrives}")
        self._held: Hold = site.proxy.hold("*", nth=at, applied=applied)
        process = self._start()
        self._held.wait_until_held(PATIENCE)
        process.kill()
        process.join()

    def _start(self) -> multiprocessing.process.BaseProcess:
        given = self._action, self._lake.night, self._site.proxy.endpoint, BUCKET, LOGIN
        process = FORKS.Process(target=work, args=given, daemon=True)
        process.start()
        return process

    def others_end_its_work(self) -> None:
        """Another process does the same; the held request arrives before, behind it, or never."""
        if self._arrives == "before others":
            self._held.release()
        elif self._arrives == "never":
            self._held.drop()
        other = self._start()
        other.join(PATIENCE)
        assert other.exitcode == 0
        if self._arrives == "behind others":
            self._held.release()


def requests_of(seed: int, action: Work) -> int:
    """Requests of an action that nothing disturbs, in memory."""
    lake = Lake(MemoryStore(), seed)
    if action is expire:
        compact(lake.store, lake.night)
        lake.land("third")
    store = FaultyStore(lake.store)
    action(store, lake.night)
    return len(store.requests)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_compaction_that_is_killed_loses_and_doubles_nothing(site: Site, seed: int) -> None:
    """The next one ends it: source and target have equal records per offset, and nothing else is in the bucket."""
    lake = Lake(S3Store(site.direct, BUCKET), seed)
    landed = lake.rows(lake.hours)

    killed = Killed(site, lake, compact, requests_of(seed, compact))
    assert lake.rows(lake.days).items() <= landed.items()
    killed.others_end_its_work()

    assert lake.rows(lake.days) == lake.rows(lake.hours) == landed
    lake.check(lake.days)
    lake.check(lake.hours)


@pytest.mark.parametrize("seed", SEEDS)
def test_an_expiry_that_is_killed_deletes_nothing_that_nothing_else_has(site: Site, seed: int) -> None:
    """At the kill and behind it each record is in one of both pipelines; the next one deletes what is compacted."""
    lake = Lake(S3Store(site.direct, BUCKET), seed)
    compact(lake.store, lake.night)
    compacted = lake.rows(lake.days)
    landed = lake.land("third")

    killed = Killed(site, lake, expire, requests_of(seed, expire))
    assert lake.rows(lake.hours) | compacted == landed
    killed.others_end_its_work()

    assert lake.rows(lake.days) == compacted
    assert lake.rows(lake.hours) == {place: row for place, row in landed.items() if place not in compacted}
    lake.check(lake.hours)
    compact(lake.store, lake.night)
    expire(lake.store, lake.night)
    assert (lake.rows(lake.days), lake.rows(lake.hours)) == (landed, {})
    lake.check(lake.days)
    assert lake.check(lake.hours) == 0
