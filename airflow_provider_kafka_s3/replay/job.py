"""What a process does that sends the records of a replay: all partitions, some at the same time."""

from __future__ import annotations

import gc
import itertools
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final

from airflow_provider_kafka_s3.batch.location import TopicLocation
from airflow_provider_kafka_s3.batch.log import TopicLog
from airflow_provider_kafka_s3.documents import addresses
from airflow_provider_kafka_s3.documents.codec import corrupt, encode, write_stamp
from airflow_provider_kafka_s3.documents.replay import ReplayBegin, ReplayEnd, ReplayEpoch, ReplayPlan
from airflow_provider_kafka_s3.exceptions import CorruptControlError, KafkaUnavailableError, ReplayOvertakenError
from airflow_provider_kafka_s3.messages import count
from airflow_provider_kafka_s3.overriding import override
from airflow_provider_kafka_s3.reading.record import Records
from airflow_provider_kafka_s3.replay.foreign import ForeignReplaySource
from airflow_provider_kafka_s3.replay.request import ReplayRequest
from airflow_provider_kafka_s3.replay.sender import RECORDS_PER_TRANSACTION, send_partition
from airflow_provider_kafka_s3.replay.source import ReplaySource
from airflow_provider_kafka_s3.retry import Retrier
from airflow_provider_kafka_s3.storage.durable import DurableStore
from airflow_provider_kafka_s3.storage.port import StoredObject

__all__ = ["Rate", "ReplayJob", "Watch", "WatchedStore", "collect_seldom", "ended", "send"]

log = logging.getLogger(__name__)

_THREADS: Final = 8
"""Partitions that are sent at the same time."""
_PIECE_SECONDS: Final = 0.05
"""A sleep for each record would be too coarse, and one for all of a second would send them at once."""
_OBJECTS: Final = 500_000
"""Objects that are kept, such as the headers of records, before Python looks for cycles."""
_REPORTED: Final = 100_000
"""Records between two lines of progress."""
_FENCED_TRIES: Final = 10
"""Times that a process begins a partition while processes of earlier epochs fence it: each does so once."""


@dataclass(frozen=True)
class ReplayJob:
    """What a process that sends gets.

    Attributes:
        place: where the records are.
        config: of the clients of the target's cluster, as librdkafka has it.
        request: what to send.
        plan: as it is stored.
        stalled_after: seconds without a sign of progress after which the process ends itself.
    """

    place: TopicLocation
    config: dict[str, Any] = field(repr=False)
    request: ReplayRequest
    plan: ReplayPlan
    stalled_after: float


def collect_seldom() -> None:
    """Let Python look for cycles of objects seldom: records have none, and are looked at again and again."""
    gc.freeze()
    gc.set_threshold(_OBJECTS)


def ended(topic_log: TopicLog, plan: ReplayPlan) -> dict[int, int]:
    """Records sent per partition, of those that are complete."""
    sent, planned = {}, plan.records
    for partition in plan.numbers:
        name = plan.document("end", partition)
        try:
            end = topic_log.read_replay(ReplayEnd, plan.replay, name)
            if end is None:
                continue
            if (end.replay, end.partition) != (plan.replay, partition):
                raise corrupt(
                    topic_log.replay_url(plan.replay, name), f"it is of partition {end.partition} of {end.replay!r}"
                )
            most = planned[partition]
            if end.records < 0 or (most is not None and end.records > most):
                raise corrupt(
                    topic_log.replay_url(plan.replay, name),
                    f"it has {count(end.records, 'record')}, and the plan {most}",
                )
        except CorruptControlError as e:
            e.add_note("or delete this document and repeat the replay: Kafka has how far it came, too")
            raise
        sent[partition] = end.records
    return sent


def send(
    place: TopicLocation,
    config: Mapping[str, Any],
    request: ReplayRequest,
    plan: ReplayPlan,
    *,
    on_progress: Callable[[str], None] = log.info,
    watch: Watch | None = None,
) -> dict[int, int]:
    """Send all partitions of a planned replay by this process.

    Args:
        place: where the records are.
        config: of the clients of the target's cluster.
        request: the replay.
        plan: as it is stored.
        on_progress: called with lines of text.
        watch: gets a sign of progress.

    Returns:
        Number of records that were sent, by this call and earlier ones, per Kafka partition.

    Raises:
        ReplayOvertakenError: another process sends the same replay, and has begun after this one.
        KafkaS3Error: the first other error, after all other partitions have ended.
    """
    watch = watch or Watch()
    bucket = WatchedStore(place.open_bucket(), watch)
    done = ended(place.open_log(bucket), plan)
    rate = Rate(request.records_per_second)
    todo = [partition for partition in plan.numbers if partition not in done]
    if not todo:
        return done
    epoch = _Epoch(place.open_log(bucket), plan)
    together = rate.most_together(min(len(todo), _THREADS))

    def one(partition: int) -> tuple[int, int]:
        topic_log = place.open_log(bucket)
        store, prefix = topic_log.store, topic_log.prefix
        begin_key, end_key = (
            addresses.replay_key(prefix, plan.replay, plan.document(name, partition)) for name in ("begin", "end")
        )
        source = (ForeignReplaySource if plan.foreign else ReplaySource)(topic_log, request, plan, on_read=watch.see)

        def records(skip: int) -> Iterator[Records]:
            number = skip
            for piece in itertools.chain.from_iterable(map(rate.pieces, source.records(partition, skip))):
                watch.see()
                if number // _REPORTED < (number := number + len(piece)) // _REPORTED:
                    on_progress(f"replay {plan.replay}: partition {partition}: {count(number, 'record')} read")
                yield piece

        sent = epoch.call(
            lambda: send_partition(
                config,
                replay=plan.replay,
                name=plan.name(partition),
                partition=partition,
                topic=plan.target,
                records=records,
                has_begun=lambda: store.get(begin_key) is not None,
                on_begin=lambda: _create(topic_log, begin_key, ReplayBegin(replay=plan.replay, partition=partition)),
                keeps_partition=request.keeps_partitions,
                keeps_timestamp="timestamp" not in request.without,
                records_per_transaction=together,
            ),
            partition,
        )
        _create(topic_log, end_key, ReplayEnd(replay=plan.replay, partition=partition, records=sent))
        on_progress(f"replay {plan.replay}: partition {partition} is complete: {count(sent, 'record')}")
        return partition, sent

    with ThreadPoolExecutor(_THREADS, thread_name_prefix="replay") as pool:
        futures = [pool.submit(one, partition) for partition in todo]
    # One that is overtaken is not repeated, whatever else has failed: it would overtake the other one.
    if overtaken := [e for future in futures if isinstance(e := future.exception(), ReplayOvertakenError)]:
        raise overtaken[0]
    return done | dict(future.result() for future in futures)


def _create(topic_log: TopicLog, key: str, document: ReplayBegin | ReplayEnd | ReplayEpoch) -> bool:
    """Whether this process has created a document."""
    body = encode(document, write_stamp())
    return topic_log.store.create(key, body) == body


class _Epoch:
    """The number of this process among those that have sent a replay. Any number of threads may share it.

    Kafka fences a process partition by partition: of two that begin at the same moment, each may fence the other one in
    some partitions. The one with the lower epoch ends then, and the other one takes the partition back.
    """

    def __init__(self, topic_log: TopicLog, plan: ReplayPlan) -> None:
        self._store, self._plan = topic_log.store, plan

        def key(number: int) -> str:
            return addresses.replay_key(topic_log.prefix, plan.replay, plan.document("epoch", number))

        number = 1
        while not _create(topic_log, key(number), ReplayEpoch(replay=plan.replay, epoch=number)):
            number += 1
        self._next_key = key(number + 1)

    def call(self, send: Callable[[], int], partition: int) -> int:
        """Send a Kafka partition, again if a process with a lower epoch has taken it.

        Raises:
            ReplayOvertakenError: another process has a higher epoch.
            KafkaUnavailableError: it was fenced too often.
        """
        about = f"replay {self._plan.replay!r} of partition {partition} to topic {self._plan.target!r}"
        for attempt in range(1, _FENCED_TRIES + 1):
            if self._store.get(self._next_key) is not None:
                raise ReplayOvertakenError(
                    f"another process sends {about}: it has begun after this one and has taken over. This one sends "
                    f"nothing more, and the other one continues where it was"
                )
            try:
                return send()
            except ReplayOvertakenError:
                Retrier().pause(attempt)
        raise KafkaUnavailableError(
            f"{about} was fenced {_FENCED_TRIES} times, and no other process has begun after this one: its "
            f"transactions take longer than transaction.timeout.ms, or an earlier version of this package sends the "
            f"same replay. What was sent is known: repeat the replay, and it continues"
        )


class Watch:
    """Ends the process if there is no sign of progress for some time. Any number of threads may share it."""

    def __init__(self) -> None:
        self._seen = time.monotonic()

    def see(self) -> None:
        """A sign of progress: bytes were read, or records found, whether they are sent or not."""
        self._seen = time.monotonic()

    def end_stalled(self, seconds: float) -> None:
        """Wait until there was no sign for so long, then end the process."""
        while (left := self._seen + seconds - time.monotonic()) > 0:
            time.sleep(left)
        os._exit(1)


class WatchedStore(DurableStore):
    """A bucket whose reads are signs of progress."""

    def __init__(self, store: DurableStore, watch: Watch) -> None:
        super().__init__(store.store, store.retrier)
        self._watch = watch

    @override
    def get(self, key: str, *, start: int | None = None, end: int | None = None) -> StoredObject | None:
        stored = super().get(key, start=start, end=end)
        self._watch.see()
        return stored


class Rate:
    """Limits records per second over all threads.

    Args:
        per_second: number of records; None: there is no limit.
    """

    def __init__(self, per_second: float | None) -> None:
        self._per_second = per_second
        self._next = time.monotonic()
        self._lock = threading.Lock()

    def most_together(self, threads: int) -> int:
        """Records of one transaction, which are sent at once: those of a second, if so many threads share the rate."""
        if self._per_second is None:
            return RECORDS_PER_TRANSACTION
        return max(min(int(self._per_second / max(threads, 1)), RECORDS_PER_TRANSACTION), 1)

    def pieces(self, records: Records) -> Iterator[Records]:
        """The records, each piece when it may be sent."""
        if self._per_second is None:
            yield records
            return
        size = max(int(self._per_second * _PIECE_SECONDS), 1)
        for start in range(0, len(records), size):
            piece = records[start : start + size]
            with self._lock:
                now = time.monotonic()
                delay = self._next - now
                self._next = max(self._next, now) + len(piece) / self._per_second
            if delay > 0:
                time.sleep(delay)
            yield piece
