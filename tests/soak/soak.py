"""Many processes land one topic under random faults; afterwards every offset is in the bucket once.

Records are produced continuously, some in transactions that are aborted. Processes run the real engine on one topic at
the same time, through a proxy that injects faults, and are killed with SIGKILL; batches are abandoned. When the time is
over, the faults end, one more process recovers the rest, and the shipped checkers compare the bucket with Kafka.
"""

from __future__ import annotations

import collections
import contextlib
import multiprocessing
import random
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any, Final

from airflow_provider_kafka_s3.batch.source import Source
from airflow_provider_kafka_s3.exceptions import ConfigurationError, KafkaS3Error, TransientError
from airflow_provider_kafka_s3.maintenance import gc
from airflow_provider_kafka_s3.testing.invariants import BucketSummary, check_bucket, read_source
from dev.fault_proxy import FaultProxy
from dev.kafka_cluster import ThreeBrokers
from dev.kafka_tools import KafkaTools, Message
from dev.versitygw import VersityGateway
from dev.waiting import wait_until
from tests.kinds import KINDS, SCHEMAS, Kind, KindName, Landed
from tests.soak.chaos import Chaos
from tests.soak.worker import PIPELINE, TOPICS_DIR, client_of, land, layout_of, make_pipeline, work

__all__ = ["Figures", "soak"]

PARTITIONS: Final = 3
_LEAST_KILLS, _LEAST_FAULTS, _LEAST_RUNS = 3, 5, 3
_GRACE: Final = 120.0
"""Seconds beyond the end for a busy machine that has not reached the minimum yet."""
_DAYS: Final = 86_400.0

# A new process would be killed before its imports are done. These are forked from one that has imported everything.
_FORKS: Final = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["tests.soak.worker"])


@dataclass
class Figures:
    """Counts of the events of a soak.

    Attributes:
        seconds: duration.
        produced: records that can be read.
        without_values: of these, in objects of keys and headers alone.
        runs: how runs ended, and how often: ``started``, ``landed``, ``failed``, ``terminal``.
        kills: processes that were killed.
        brokers_killed: brokers that were killed, and started again.
        abandoned: batches that were abandoned.
        requests: that processes sent.
        faults: by kind.
        left: uploads that nobody completed or aborted, all of them free to be collected.
        bucket: its content at the end.
        terminal: errors that would have called for a person.
    """

    seconds: float = 0.0
    produced: int = 0
    without_values: int = 0
    runs: collections.Counter[str] = field(default_factory=collections.Counter)
    kills: int = 0
    brokers_killed: int = 0
    abandoned: int = 0
    requests: int = 0
    faults: collections.Counter[str] = field(default_factory=collections.Counter)
    left: int = 0
    bucket: BucketSummary | None = None
    terminal: list[str] = field(default_factory=list)

    def line(self) -> str:
        """The counts as a line of text."""
        return (
            f"{self.seconds:6.0f} s  {self.produced:,} records produced, {self.runs['landed']:,} runs landed, "
            f"{self.runs['failed']:,} failed for a while, {self.kills:,} processes and {self.brokers_killed:,} "
            f"brokers killed, {self.abandoned:,} batches abandoned, {self.faults.total():,} faults in "
            f"{self.requests:,} requests"
        )


class _Worker:
    """A process that lands one run after another; when it is killed, the next one repeats its run."""

    def __init__(self, config: dict[str, Any], figures: Figures, lock: threading.Lock) -> None:
        self._config, self._figures, self._lock = config, figures, lock
        self._number = 1
        self._start()

    def _start(self) -> None:
        receiver, sender = _FORKS.Pipe(duplex=False)
        config = {**self._config, "first_run": self._number}
        self._process = _FORKS.Process(target=work, args=(config, sender), daemon=True)
        self._process.start()
        sender.close()
        self._reader = threading.Thread(target=self._listen, args=(receiver,), daemon=True)
        self._reader.start()

    def _listen(self, receiver: Connection) -> None:
        with receiver, contextlib.suppress(EOFError, OSError):
            while True:
                event, what = receiver.recv()
                with self._lock:
                    self._figures.runs[event] += 1
                    if event == "started":
                        self._number = what
                    elif event == "terminal":
                        self._figures.terminal.append(what)

    def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()
        self._process.join()
        self._reader.join()
        self._process.close()

    def restart(self) -> None:
        """Kill it and start another process, which repeats its run."""
        self.kill()
        self._start()


def soak(
    kafka: KafkaTools,
    *,
    seconds: float,
    seed: int,
    kind: KindName = "json",
    workers: int = 3,
    report: Callable[[str], None] = print,
    every: float = 10.0,
) -> Figures:
    """Run a soak.

    Args:
        kafka: the cluster; of several brokers one after the other is killed and started again.
        seconds: how long faults happen; longer on a busy machine, until the minimum of events is reached.
        seed: of all random choices.
        kind: what the topic is landed as.
        workers: processes at the same time.
        report: called with the figures as a line of text.
        every: seconds between two calls of ``report``.

    Raises:
        InvariantViolation: a record was lost or landed twice, or another invariant is violated.
        AssertionError: a run ended with an error that would have called for a person.
    """
    rng, figures, lock, over = random.Random(seed), Figures(), threading.Lock(), threading.Event()
    topic = kafka.create_topic(f"soak-{uuid.uuid4()}", PARTITIONS)
    chaos = Chaos(rng.getrandbits(32))
    login = {"access_key_id": "soak", "secret_access_key": "canary-of-the-secret-key"}
    with VersityGateway(**login) as server, FaultProxy(server.endpoint, choose=chaos.choose) as proxy:
        config = {
            "endpoint": proxy.endpoint,
            "login": login["access_key_id"],
            "secret": login["secret_access_key"],
            "bucket": "lake",
            "topic": topic,
            "kind": kind,
            "bootstrap_servers": kafka.bootstrap_servers,
            "read_timeout": 2.0,
        }
        direct = {**config, "endpoint": server.endpoint, "read_timeout": 60.0}
        client_of(direct).create_bucket(Bucket="lake")
        producer = threading.Thread(
            target=_produce, args=(kafka, topic, KINDS[kind], random.Random(rng.random()), figures, over)
        )
        producer.start()
        killer = threading.Thread(target=_kill_brokers, args=(kafka, topic, random.Random(rng.random()), figures, over))
        if isinstance(kafka, ThreeBrokers):
            killer.start()
        processes = [
            _Worker({**config, "name": f"worker-{i}", "seed": rng.getrandbits(32)}, figures, lock)
            for i in range(workers)
        ]
        began = reported_at = time.monotonic()
        try:
            while True:
                over.wait(rng.uniform(0.3, 3.0))
                if rng.random() < 0.5:
                    # Half of the kills wait for a landed run, so that runs succeed on a busy machine too.
                    _await(lambda landed=figures.runs["landed"]: figures.runs["landed"] > landed, over, timeout=15.0)
                rng.choice(processes).restart()
                figures.kills += 1
                if rng.random() < 0.15:
                    figures.abandoned += _abandon(config, rng)
                now = time.monotonic()
                figures.seconds = now - began
                figures.requests += len(proxy.calls)
                figures.faults = collections.Counter(chaos.counts)
                proxy.clear()
                if now - reported_at >= every:
                    report(figures.line())
                    reported_at = now
                enough = (
                    figures.kills >= _LEAST_KILLS
                    and figures.faults.total() >= _LEAST_FAULTS
                    and figures.runs["landed"] >= _LEAST_RUNS
                )
                if figures.terminal or (figures.seconds >= seconds and enough) or figures.seconds > seconds + _GRACE:
                    break
        finally:
            over.set()
            chaos.end()
            for worker in processes:
                worker.kill()
            producer.join()
            if killer.ident is not None:
                killer.join()
        assert not figures.terminal, figures.terminal
        # Requests in flight arrive after their sender was killed.
        proxy.wait_until_idle()
        report(f"{figures.line()}; faults end, recovering …")
        _finish(direct, figures)
    return figures


def _await(condition: Callable[[], bool], over: threading.Event, *, timeout: float) -> None:
    deadline = time.monotonic() + timeout
    while not condition() and time.monotonic() < deadline:
        over.wait(0.05)


def _kill_brokers(kafka: ThreeBrokers, topic: str, rng: random.Random, figures: Figures, over: threading.Event) -> None:
    """Kill one broker at a time; the next one when all replicas are complete again."""
    while not over.wait(rng.uniform(1.0, 5.0)):
        kafka.kill(rng.choice((1, 2, 3)))
        figures.brokers_killed += 1
        over.wait(rng.uniform(0.0, 8.0))
        kafka.revive()
        wait_until(lambda: all(kafka.in_sync(topic, p) == {1, 2, 3} for p in range(PARTITIONS)), "all replicas")


def _produce(
    kafka: KafkaTools, topic: str, kind: Kind, rng: random.Random, figures: Figures, over: threading.Event
) -> None:
    number, version = 0, 0
    while not over.wait(rng.uniform(0.02, 0.2)):
        partition, burst = rng.randrange(PARTITIONS), []
        # Producers of the former schema go on for a while.
        version = min(version + (rng.random() < 0.02), len(SCHEMAS) - 1)
        for _ in range(rng.choice((1, 10, 60))):
            number += 1
            record = {"at": number, "of": topic, "padding": "x" * rng.randrange(300)}
            value = kind.value(number, record, version=rng.randint(max(0, version - 1), version))
            headers = [("number", str(number).encode())] * rng.randrange(3)
            burst.append(Message(value, partition=partition, key=str(number).encode(), headers=headers))
        outcome = rng.random()
        if outcome < 0.02:
            kafka.produce_transaction(topic, burst, commit=outcome < 0.01)
        else:
            # A leader that dies may have stored what it has not confirmed.
            kafka.produce(topic, burst, enable_idempotence=isinstance(kafka, ThreeBrokers))
        if not 0.01 <= outcome < 0.02:
            figures.produced += len(burst)
            if kind.has_objects_without_values:
                figures.without_values += sum(message.value is None for message in burst)


def _abandon(config: dict[str, Any], rng: random.Random) -> int:
    """Abandon an open batch, if there is one, so that its offsets are planned again; return the number abandoned."""
    try:
        pipeline = make_pipeline(config)
        if pipeline.log.read_marker() is None or not (plans := pipeline.log.view().open_plans):
            return 0
        pipeline.abandon(rng.choice(sorted(plans)), release="debt", reason="soak", operator="soak")
    except (TransientError, ConfigurationError):  # no answer; or it is decided, and can only be rolled forward
        return 0
    except KafkaS3Error as e:
        raise AssertionError(f"abandon: {type(e).__name__}: {e}") from e
    return 1


def _finish(config: dict[str, Any], figures: Figures) -> None:
    pipeline, kind, layout = make_pipeline(config), KINDS[config["kind"]], layout_of(config["kind"])
    pipeline.recover(operator="soak")
    land(pipeline, layout, "the last")
    log, store = pipeline.log, pipeline.log.store
    figures.bucket = check_bucket(
        store.store,
        topics_dir=TOPICS_DIR,
        pipeline=PIPELINE,
        topic=log.topic,
        source=read_source(pipeline.source, log.topic),
        decoder=kind.values,
        as_written=kind.as_written,
        recovered=True,
        complete=True,
    )
    assert figures.bucket.records == figures.produced - figures.without_values, figures
    folder = f"{TOPICS_DIR}/{log.topic}/"
    objects = {info.key: stored.body for info in store.list(folder) if (stored := store.get(info.key))}
    kind.check_whole(layout, log.topic, objects, lambda: _records(pipeline.source, log.topic, kind))
    # Uploads of killed processes, and uploads whose Create got no answer. None is needed any more.
    garbage = gc.find_garbage(log, now=time.time() + 8 * _DAYS)
    assert [*garbage.needed, *garbage.foreign, *garbage.young] == []
    figures.left = len(garbage.garbage)
    gc.collect(log, garbage)
    assert not store.pending_uploads(folder)


def _records(source: Source, topic: str, kind: Kind) -> list[Landed]:
    """All records of a topic, as far as the kind lands them."""
    partitions = source.describe(topic).partitions
    starts, ends = source.earliest(topic, partitions), source.ends(topic, partitions, "read_committed")
    return [
        kind.landed(row["key"].decode(), row["value"], [(h["key"], h["value"].decode()) for h in row["headers"] or ()])
        for p in partitions
        for batch in source.read(topic, p, starts[p], ends[p], "read_committed", whole=True)
        for row in batch.to_pylist()
    ]
