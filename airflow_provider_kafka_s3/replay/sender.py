"""Sends the records of a source partition to a topic, exactly once for consumers that read committed records.

The number of sent records is committed in the transaction that sends them, as the offset of a consumer group. A process
that begins fences the one before it, and reads this number only then, so that nothing can be added to it any more.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from airflow_provider_kafka_s3.exceptions import (
    AccessDeniedError,
    ControlError,
    KafkaS3Error,
    ReplayOvertakenError,
    TransientError,
)
from airflow_provider_kafka_s3.kafka import client
from airflow_provider_kafka_s3.kafka.client import ClientEvents, to_error
from airflow_provider_kafka_s3.kafka.offsets import REACH, KafkaCluster
from airflow_provider_kafka_s3.reading.record import Headers, Records
from airflow_provider_kafka_s3.replay.refusals import PREFIX, refusal

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

__all__ = ["RECORDS_PER_TRANSACTION", "RequestLimits", "produce_records", "send_partition", "transactions"]

RECORDS_PER_TRANSACTION: Final = 10_000
"""At most: they become visible together."""
_NO_PROGRESS: Final = -1001
_ANY_PARTITION: Final = -1
_NOW: Final = 0
"""What the client replaces by the present time; so a timestamp of 0 cannot be sent."""
_NO_TIMESTAMP: Final = -1
_ABORT: Final = 10.0
"""Seconds for the request that aborts a transaction."""
_OF_ANOTHER: Final = ("_FATAL", "_STATE")
"""What the client answers to every call after an error that it has had in the background."""
_FENCED: Final = ("_FENCED", "INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED")
_BYTES_PER_TRANSACTION: Final = 16 * 1024 * 1024
_PARTS_PER_REQUEST: Final = 5
_OVERHEAD: Final = 20
"""Bytes of a record in a request beside key, value and headers, about."""
_OF_REQUEST: Final = 1_000
"""Bytes of a request beside its records, about."""
_PROGRESS_PARTITION: Final = 0
"""Every topic has it: there is a group for each source partition."""


@dataclass(frozen=True)
class RequestLimits:
    """What surely fits into one request of a producer.

    Attributes:
        size: bytes of the records, as they are counted here.
        count: number of the records.
    """

    size: int
    count: int

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> RequestLimits:
        """Somewhat less than what a client with these settings sends in one request."""
        size, largest = (int(config.get(name, 1_000_000)) for name in ("batch.size", "message.max.bytes"))
        count = int(config.get("batch.num.messages", 10_000))
        return cls(max(min(size, largest) * 9 // 10 - _OF_REQUEST, 1), max(count * 9 // 10, 1))


def send_partition(
    config: Mapping[str, Any],
    *,
    replay: str,
    name: str,
    partition: int,
    topic: str,
    records: Callable[[int], Iterator[Records]],
    has_begun: Callable[[], bool],
    on_begin: Callable[[], object] = lambda: None,
    keeps_partition: bool = True,
    keeps_timestamp: bool = True,
    records_per_transaction: int = RECORDS_PER_TRANSACTION,
    timeout: float = 60.0,
) -> int:
    """Send the records of a source partition that this replay has not sent yet.

    After any error, and after the end of the process at any time, it can be called again: it continues where the last
    committed transaction ended.

    Args:
        config: of the clients of the target's cluster, as librdkafka has it.
        replay: id of the replay, for messages.
        name: of this partition of this replay, which no other one has: the end of its group and transactional id.
        partition: the source partition.
        topic: the target.
        records: gives all records but the first ones, whose number is its argument, some at a time; always the same
            ones in one order.
        has_begun: whether ``on_begin`` was called for this replay and partition at any time. It is called when no
            earlier process can add to the progress any more.
        on_begin: called when the progress is in Kafka for the first time; records durably that this has begun.
        keeps_partition: whether records go to the partition that they come from; False: that of their key's hash.
        keeps_timestamp: whether records have their timestamps, or none if they have none; False: the present time.
        records_per_transaction: number of records that become visible together, or fewer if they are large.
        timeout: of one request, in seconds; of the first ones, to the coordinators, :data:`REACH` at most.

    Returns:
        The number of records that are sent, by this call and earlier ones.

    Raises:
        ControlError: the replay has begun, and Kafka has forgotten how far it came.
        ReplayOvertakenError: another process with the same replay has begun after this one.
        AccessDeniedError: the brokers do not allow these credentials to send, or to keep the progress.
        ConfigurationError: they do not take these records.
        KafkaS3Error: a request failed.
    """
    group, events = f"{PREFIX}{name}", ClientEvents()
    # Kafka refuses to read an offset whose transaction is open, but only to readers of committed records.
    reading = {"group.id": group, "enable.auto.commit": False, "isolation.level": "read_committed"}
    # The hash of the Java client, as other producers of the topic have it.
    sending = {"partitioner": "murmur2_random", "linger.ms": 200, **config, "transactional.id": group}
    with contextlib.closing(client.consumer({**config, **reading}, events)) as reader:
        sender = _PartitionSender(
            client.producer(sending, events),
            reader,
            events,
            config,
            group=group,
            topic=topic,
            what=f"replay {replay!r} of partition {partition} to topic {topic!r}",
            timeout=timeout,
        )
        with sender.explained_errors(
            f"replay partition {partition} to topic {topic!r} at {config['bootstrap.servers']}"
        ):
            sent = sender.begin(has_begun, on_begin)
            for batch in transactions(records(sent), records_per_transaction):
                sent = sender.send(batch, sent, keeps_partition=keeps_partition, keeps_timestamp=keeps_timestamp)
            return sent


class _PartitionSender:
    """The clients that send a source partition: first the progress is known, then one transaction follows another."""

    def __init__(
        self,
        producer: Producer,
        reader: Consumer,
        events: ClientEvents,
        config: Mapping[str, Any],
        *,
        group: str,
        topic: str,
        what: str,
        timeout: float,
    ) -> None:
        self._producer, self._reader, self._events = producer, reader, events
        self._config, self._limits = config, RequestLimits.of(config)
        self._group, self._topic, self._what, self._timeout = group, topic, what, timeout
        self._has_progress = False
        self._batch: list[Records] = []

    def begin(self, has_begun: Callable[[], bool], on_begin: Callable[[], object]) -> int:
        """Fence earlier processes; returns the number of records that are sent. See :func:`send_partition`."""
        soon = min(self._timeout, REACH)
        self._producer.init_transactions(soon)
        begun = has_begun()
        sent = self._progress(soon)
        self._has_progress = True
        if sent == _NO_PROGRESS:
            if begun:
                raise ControlError(
                    f"{self._what} has begun, and consumer group {self._group!r} has no committed offset any more: "
                    f"Kafka deletes those older than offsets.retention.minutes. Nothing was sent, since records could "
                    f"be there twice. Compare the target with the source, and replay what is missing with another id"
                )
            sent = 0
            self._producer.begin_transaction()
            self._commit(sent)
        if not begun:
            on_begin()
        return sent

    def send(self, batch: list[Records], sent: int, *, keeps_partition: bool, keeps_timestamp: bool) -> int:
        """Send the records of one transaction behind ``sent`` earlier ones; returns the number of all."""
        self._batch = batch
        self._producer.begin_transaction()
        produce_records(
            self._producer,
            self._topic,
            batch,
            self._limits,
            keeps_partition=keeps_partition,
            keeps_timestamp=keeps_timestamp,
            timeout=self._timeout,
        )
        sent += sum(map(len, batch))
        self._commit(sent)
        return sent

    @contextlib.contextmanager
    def explained_errors(self, request: str) -> Iterator[None]:
        """Abort the open transaction if anything goes wrong, and raise why.

        What is not aborted here is aborted by the next producer with this transactional id, or by Kafka in time.

        Args:
            request: what is sent, for messages.
        """
        from confluent_kafka import KafkaException

        try:
            yield
        except KafkaException as e:
            error = self._cause(e)
            self._abort()
            raise self._explained(error, request) from e
        except BaseException:
            self._abort()
            raise
        finally:
            self._producer.purge()

    def _explained(self, error: KafkaError, request: str) -> KafkaS3Error:
        if error.name() in _FENCED:
            return ReplayOvertakenError(
                f"another process sends {self._what} and has taken over. This one has sent nothing more, and the other "
                f"one continues where it was"
            )
        records = [*itertools.chain.from_iterable(self._batch)]
        explained = refusal(self._events.denied or error, request, records) or to_error(
            error, self._events, what=request
        )
        if isinstance(explained, TransientError):
            # The client has repeated requests to the coordinators for as long as a restart takes.
            explained.repeatable = self._has_progress
        return explained

    def _progress(self, timeout: float) -> int:
        """The number of records that are sent, or :data:`_NO_PROGRESS`."""
        from confluent_kafka import KafkaException, TopicPartition

        try:
            (committed,) = self._reader.committed([TopicPartition(self._topic, _PROGRESS_PARTITION)], timeout)
        except KafkaException:
            # The client waits for a group that the brokers refuse to it. The answer to this request is why.
            try:
                KafkaCluster(self._config).consumer_group(self._group)
            except AccessDeniedError as e:
                e.add_note(f"a replay needs READ on consumer groups that begin with {PREFIX!r}")
                raise
            raise
        if committed.error is not None:
            raise KafkaException(committed.error)
        return int(committed.offset)

    def _commit(self, sent: int) -> None:
        from confluent_kafka import TopicPartition

        progress = TopicPartition(self._topic, _PROGRESS_PARTITION, sent)
        self._producer.send_offsets_to_transaction([progress], self._reader.consumer_group_metadata(), self._timeout)
        self._producer.commit_transaction(self._timeout)

    def _abort(self) -> None:
        from confluent_kafka import KafkaException

        with contextlib.suppress(KafkaException):
            self._producer.abort_transaction(_ABORT)

    def _cause(self, failure: KafkaException) -> KafkaError:
        """The error behind a failure."""
        from confluent_kafka import KafkaException

        cause: KafkaError = failure.args[0]
        if cause.name() in _OF_ANOTHER:
            try:
                # A transaction that has failed is not committed; the answer is why.
                self._producer.commit_transaction(_ABORT)
            except KafkaException as e:
                cause = e.args[0]
        return cause


def transactions(found: Iterable[Records], limit: int) -> Iterator[list[Records]]:
    """The records of each transaction, so few that they fit into memory.

    Args:
        found: the records, some at a time.
        limit: number of records of one transaction at most; large ones are fewer.
    """
    batch: list[Records] = []
    count = size = 0
    try:
        for records in found:
            for start in range(0, len(records), limit):
                piece = records[start : start + limit]
                if batch and count + len(piece) > limit:
                    yield batch
                    batch, count, size = [], 0, 0
                batch.append(piece)
                count += len(piece)
                size += sum(piece.sizes)
                if size >= _BYTES_PER_TRANSACTION:
                    yield batch
                    batch, count, size = [], 0, 0
    except KafkaS3Error:
        # What was read before an object that cannot be read is sent: then it is clear what was sent.
        if batch:
            yield batch
        raise
    if batch:
        yield batch


def produce_records(
    producer: Producer,
    topic: str,
    batch: Iterable[Records],
    limits: RequestLimits,
    *,
    keeps_partition: bool,
    keeps_timestamp: bool,
    timeout: float,
) -> None:
    """Send the records of a transaction, one request after the other; the last one is sent by the commit.

    librdkafka has one request of a partition in flight. If it has records for another one meanwhile, it polls without a
    pause until the broker has answered, which takes as much CPU time as all else in a producer.

    Args:
        producer: that has begun a transaction.
        topic: the target.
        batch: the records.
        limits: of a request.
        keeps_partition: see :func:`send_partition`.
        keeps_timestamp: see there.
        timeout: of one request, in seconds.

    Raises:
        KafkaException: the transaction has failed, or a request has no response in time.
    """
    from confluent_kafka import KafkaError, KafkaException

    size = count = 0
    for records in itertools.chain.from_iterable(_parts(records, limits) for records in batch):
        more = sum(records.sizes) + _OVERHEAD * len(records)
        if count and (size + more > limits.size or count + len(records) > limits.count):
            if producer.flush(timeout):
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "no response to a request in time"))
            size = count = 0
        _enqueue(producer, topic, records, keeps_partition=keeps_partition, keeps_timestamp=keeps_timestamp)
        size, count = size + more, count + len(records)


def _parts(records: Records, limits: RequestLimits) -> Iterator[Records]:
    """Parts of which several fit into one request, unless a record is large."""
    size = sum(records.sizes) + _OVERHEAD * len(records)
    number = min(limits.size * len(records) // max(size, 1), limits.count) // _PARTS_PER_REQUEST
    return (records[at : at + max(number, 1)] for at in range(0, len(records), max(number, 1)))


def _enqueue(producer: Producer, topic: str, records: Records, *, keeps_partition: bool, keeps_timestamp: bool) -> None:
    produce = producer.produce
    partitions = records.partitions if keeps_partition else itertools.repeat(_ANY_PARTITION)
    timestamps = records.timestamps if keeps_timestamp else itertools.repeat(_NOW)
    headers = itertools.repeat(None) if records.headers is None else map(_headers, records.headers)
    rows = zip(records.values, records.keys, partitions, timestamps, headers)  # noqa: B905 - some repeat for ever
    for value, key, partition, timestamp, record_headers in rows:
        time = _NO_TIMESTAMP if timestamp is None else timestamp
        while True:
            try:
                # By position, which takes a tenth less: … partition, callback, on_delivery, timestamp, headers.
                produce(topic, value, key, partition, None, None, time, record_headers)
            except BufferError:
                producer.poll(0.1)
            else:
                break
    producer.poll(0)


def _headers(headers: Headers) -> list[tuple[str, str | bytes | None]] | None:
    return [*headers] if headers else None
