"""A replay: the records of landed objects are sent to a topic, each once.

What is sent, and in which order, is a document that is created once. A partition is sent by a transactional producer,
which fences the one before it, and has its progress in the transactions. So a replay that was killed is repeated with
the same id, as often as need be.

Producers are in a child process: an error in their C library ends that process only.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any, Final

from airflow_provider_kafka_s3.batch.log import TopicLog
from airflow_provider_kafka_s3.documents.codec import decode, encode, write_stamp
from airflow_provider_kafka_s3.documents.replay import ReplayBegin, ReplayEnd, ReplayPlan
from airflow_provider_kafka_s3.exceptions import (
    ConfigurationError,
    KafkaS3Error,
    KafkaUnavailableError,
    TerminalError,
    error_of_kind,
    message_of,
)
from airflow_provider_kafka_s3.kafka.offsets import TopicInfo
from airflow_provider_kafka_s3.kafka.source import KafkaSource
from airflow_provider_kafka_s3.layout import keys
from airflow_provider_kafka_s3.reading.records import Record
from airflow_provider_kafka_s3.replay.foreign import ForeignReplaySource, plan_foreign_replay
from airflow_provider_kafka_s3.replay.plan import plan_replay
from airflow_provider_kafka_s3.replay.request import ReplayRequest, require_target
from airflow_provider_kafka_s3.replay.sender import send_partition
from airflow_provider_kafka_s3.replay.source import ReplaySource
from airflow_provider_kafka_s3.replay.target import check_target, require_same_target
from airflow_provider_kafka_s3.retry import Retrier
from airflow_provider_kafka_s3.storage.bucket import open_bucket
from airflow_provider_kafka_s3.storage.credentials import S3Credentials
from airflow_provider_kafka_s3.storage.durable import DurableStore
from airflow_provider_kafka_s3.storage.s3 import S3Settings

__all__ = ["Place", "Rate", "Replayed", "replay", "send"]

log = logging.getLogger(__name__)

_THREADS: Final = 8
"""Partitions that are sent at the same time."""
_PIECE_SECONDS: Final = 0.05
"""A sleep for each record would be too coarse, and one for all of a second would send them at once."""
_REPORTED: Final = 100_000
"""Records between two lines of progress."""


@dataclass(frozen=True)
class Place:
    """Where the landed records are; the repr shows no secrets.

    Attributes:
        bucket: name of the bucket.
        topics_dir: prefix of all keys.
        pipeline: name of the pipeline.
        topic: the landed topic.
        s3: settings of the S3 server.
        credentials: for it; None: boto3's own chain.
    """

    bucket: str
    topics_dir: str
    pipeline: str
    topic: str
    s3: S3Settings = field(default_factory=S3Settings, repr=False)
    credentials: S3Credentials | None = field(default=None, repr=False)

    def store(self) -> DurableStore:
        """The bucket, for any number of threads."""
        return open_bucket(self.bucket, self.s3, self.credentials)

    def log(self, store: DurableStore | None = None) -> TopicLog:
        """The log of the topic, for one thread.

        Args:
            store: of :meth:`store`; None: a new one, whose client takes a tenth of a second to make.
        """
        return TopicLog(store or self.store(), topics_dir=self.topics_dir, pipeline=self.pipeline, topic=self.topic)


@dataclass(frozen=True)
class Replayed:
    """The result of a replay.

    Attributes:
        replay: its id.
        target: the topic that records were sent to.
        batch: number of the last batch that it has records of.
        planned: number of records in its objects, per Kafka partition; a selection sends fewer. None: objects of
            another sink have no number.
        sent: number of records that were sent, by all runs together; empty for a dry run.
    """

    replay: str
    target: str
    batch: int
    planned: Mapping[int, int | None]
    sent: Mapping[int, int]


def replay(
    place: Place,
    config: Mapping[str, Any],
    request: ReplayRequest,
    *,
    dry_run: bool = False,
    stalled_after: float = 180.0,
) -> Replayed:
    """Send the records of landed objects to a topic; repeated with the same id, it continues, or does nothing.

    Args:
        place: where the records are.
        config: of the clients of the target's cluster, as librdkafka has it.
        request: what to send.
        dry_run: plan it and check the target; nothing is written or sent.
        stalled_after: seconds without a record after which the process that sends is ended and another one continues:
            librdkafka may wait for ever for the offsets of a transaction if a broker was restarted.

    Raises:
        ConfigurationError: see :func:`~airflow_provider_kafka_s3.replay.plan.plan_replay` and
            :func:`~airflow_provider_kafka_s3.replay.target.check_target`; or the id has other settings, or is that of
            a replay to another cluster.
        TopicRecreatedError: the target was deleted and created again since the replay was planned.
        ReplayOvertakenError: another process sends the same replay.
        ControlError: Kafka has forgotten how far the replay came.
        KafkaS3Error: a request failed, also after retries.
    """
    topic_log = place.log()
    require_target(topic_log, request)
    target = KafkaSource(config).describe(request.target)
    plan = _planned(topic_log, request, target, dry_run=dry_run)
    require_same_target(config, plan, target)
    ended = _ended(topic_log, plan)
    planned = plan.records
    if len(ended) == len(plan.numbers):
        log.info("replay %s to topic %s has ended before; nothing is sent", plan.replay, plan.target)
        return Replayed(plan.replay, plan.target, plan.batch, planned, ended)
    largest = check_target(config, request, plan, target)
    log.info(
        "replay %s: %s of %d partitions of topic %s to topic %s",
        plan.replay,
        f"records up to batch {plan.batch}"
        if request.written_by is None
        else f"objects of {request.written_by}'s sink",
        len(planned),
        plan.topic,
        plan.target,
    )
    if dry_run:
        return Replayed(plan.replay, plan.target, plan.batch, planned, {})
    # Records that were landed fit into the batches of their topic; librdkafka's own limit may be lower.
    settings = {"message.max.bytes": max(largest, 1_000_000), **config}
    if request.records_per_second is not None:
        stalled_after = max(stalled_after, 10 / request.records_per_second)
    job = _Job(place, settings, request, plan, stalled_after)
    sent = Retrier().call(lambda: _in_child(job), what=f"send replay {plan.replay} to topic {plan.target}")
    return Replayed(plan.replay, plan.target, plan.batch, planned, sent)


def _planned(topic_log: TopicLog, request: ReplayRequest, target: TopicInfo, *, dry_run: bool) -> ReplayPlan:
    key = keys.replay_key(topic_log.prefix, request.replay, "plan")
    stored = topic_log.store.get(key)
    if stored is None:
        choose = plan_replay if request.written_by is None else plan_foreign_replay
        plan = choose(topic_log, request, target)
        if dry_run:
            return plan
        body = topic_log.store.create(key, encode(plan, write_stamp()))
    else:
        body = stored.body
    plan, _ = decode(ReplayPlan, body, topic_log.store.url(key))
    wanted = {**request.settings, "target": request.target, "topic": topic_log.topic}
    found = {**plan.settings, "target": plan.target, "topic": plan.topic}
    differing = [name for name in wanted if wanted[name] != found.get(name)]
    if request.at is not None and request.at != plan.batch:
        differing.append("at")
    if differing:
        raise ConfigurationError(
            f"replay {request.replay!r} was planned before with other settings: {', '.join(differing)}. Nothing was "
            f"sent. Use the same ones to continue it, or another id: {topic_log.store.url(key)}"
        )
    return plan


def _ended(topic_log: TopicLog, plan: ReplayPlan) -> dict[int, int]:
    """Records sent per partition, of those that are complete."""
    found = {}
    for partition in plan.numbers:
        key = keys.replay_key(topic_log.prefix, plan.replay, plan.document("end", partition))
        if (stored := topic_log.store.get(key)) is not None:
            end, _ = decode(ReplayEnd, stored.body, topic_log.store.url(key))
            found[partition] = end.records
    return found


# -- the child process ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Job:
    """What the child process gets, by a pipe: no secret is on a command line."""

    place: Place
    config: dict[str, Any] = field(repr=False)
    request: ReplayRequest
    plan: ReplayPlan
    stalled_after: float


def _in_child(job: _Job) -> dict[int, int]:
    """Send by a child process."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    child = context.Process(target=_child, args=(theirs, job), name="kafka-s3-replay")
    child.start()
    theirs.close()
    try:
        while True:
            try:
                kind, content = ours.recv()
            except EOFError:
                child.join()
                raise KafkaUnavailableError(
                    f"the process that sent replay {job.plan.replay!r} ended with exit code {child.exitcode}, without "
                    f"a result. What it has sent is known: repeat the replay, and it continues"
                ) from None
            if kind == "progress":
                log.info(content)
            elif kind == "sent":
                return dict(content)
            else:
                raise error_of_kind(*content)
    finally:
        # It also ends by itself when this process does: then the pipe has an end.
        ours.close()
        child.join(10)
        if child.is_alive():
            child.kill()
            child.join()


def _child(parent: Connection, job: _Job) -> None:
    lock = threading.Lock()

    def report(kind: str, content: object) -> None:
        with lock, contextlib.suppress(OSError):
            parent.send((kind, content))

    watch = _Watch()
    threading.Thread(target=_end_with_parent, args=(parent,), daemon=True).start()
    threading.Thread(target=watch.end_stalled, args=(job.stalled_after,), daemon=True).start()
    try:
        sent = send(
            job.place,
            job.config,
            job.request,
            job.plan,
            on_progress=lambda line: report("progress", line),
            watch=watch,
        )
        report("sent", sent)
    except KafkaS3Error as e:
        report("error", (e.kind, message_of(e)))
    except Exception as e:  # noqa: BLE001 - the parent raises it
        report(
            "error",
            (TerminalError.kind, f"an unexpected {type(e).__name__} in replay {job.plan.replay!r}: {message_of(e)}"),
        )


def _end_with_parent(parent: Connection) -> None:
    with contextlib.suppress(EOFError, OSError):
        parent.recv()
    os._exit(1)


def send(
    place: Place,
    config: Mapping[str, Any],
    request: ReplayRequest,
    plan: ReplayPlan,
    *,
    on_progress: Callable[[str], None] = log.info,
    watch: _Watch | None = None,
) -> dict[int, int]:
    """Send all partitions of a planned replay by this process.

    Args:
        place: where the records are.
        config: of the clients of the target's cluster.
        request: the replay.
        plan: as it is stored.
        on_progress: called with lines of text.
        watch: gets a sign of each record.

    Returns:
        Number of records that were sent, by this call and earlier ones, per Kafka partition.

    Raises:
        KafkaS3Error: the first error, after all other partitions have ended.
    """
    bucket = place.store()
    done = _ended(place.log(bucket), plan)
    rate = Rate(request.records_per_second)

    def one(partition: int) -> tuple[int, int]:
        topic_log = place.log(bucket)
        store, prefix = topic_log.store, topic_log.prefix
        begin_key, end_key = (
            keys.replay_key(prefix, plan.replay, plan.document(name, partition)) for name in ("begin", "end")
        )
        source = (ForeignReplaySource if plan.foreign else ReplaySource)(topic_log, request, plan)

        def records(skip: int) -> Iterator[list[Record]]:
            number = skip
            for some in itertools.chain.from_iterable(map(rate.pieces, source.records(partition, skip))):
                if watch is not None:
                    watch.seen = time.monotonic()
                if number // _REPORTED < (number := number + len(some)) // _REPORTED:
                    on_progress(f"replay {plan.replay}: partition {partition}: {number:,} records read")
                yield [*map(_without_timestamp, some)] if "timestamp" in request.without else some

        sent = send_partition(
            config,
            replay=plan.replay,
            name=plan.name(partition),
            partition=partition,
            topic=plan.target,
            records=records,
            has_begun=lambda: store.get(begin_key) is not None,
            on_begin=lambda: _create(topic_log, begin_key, ReplayBegin(replay=plan.replay, partition=partition)),
            keeps_partition=request.keeps_partitions,
        )
        _create(topic_log, end_key, ReplayEnd(replay=plan.replay, partition=partition, records=sent))
        on_progress(f"replay {plan.replay}: partition {partition} is complete: {sent:,} records")
        return partition, sent

    todo = [partition for partition in plan.numbers if partition not in done]
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="replay") as pool:
        futures = [pool.submit(one, partition) for partition in todo]
    return done | dict(future.result() for future in futures)


def _create(topic_log: TopicLog, key: str, document: ReplayBegin | ReplayEnd) -> None:
    topic_log.store.create(key, encode(document, write_stamp()))


def _without_timestamp(record: Record) -> Record:
    return Record(record.partition, record.offset, None, record.key, record.value, record.headers)


class _Watch:
    """Ends the process if it has read no record for some time."""

    def __init__(self) -> None:
        self.seen = time.monotonic()

    def end_stalled(self, seconds: float) -> None:
        """Wait until there was no record for so long, then end the process."""
        while (left := self.seen + seconds - time.monotonic()) > 0:
            time.sleep(left)
        os._exit(1)


class Rate:
    """Limits records per second over all threads.

    Args:
        per_second: number of records; None: there is no limit.
    """

    def __init__(self, per_second: float | None) -> None:
        self._per_second = per_second
        self._next = time.monotonic()
        self._lock = threading.Lock()

    def pieces(self, records: list[Record]) -> Iterator[list[Record]]:
        """The records, each piece when it may be sent."""
        if self._per_second is None:
            yield records
            return
        size = max(int(self._per_second * _PIECE_SECONDS), 1)
        for at in range(0, len(records), size):
            piece = records[at : at + size]
            with self._lock:
                now = time.monotonic()
                delay = self._next - now
                self._next = max(self._next, now) + len(piece) / self._per_second
            if delay > 0:
                time.sleep(delay)
            yield piece
