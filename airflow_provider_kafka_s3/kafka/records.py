"""Records of one partition between two offsets, as Arrow batches, read without Spark.

Used to write single objects again, to land slices with timestamps that Spark cannot represent, and to check objects.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from airflow_provider_kafka_s3.arrays import NO_TIMESTAMP, RECORD_SCHEMA, WHOLE_RECORD_SCHEMA
from airflow_provider_kafka_s3.exceptions import DataLossError, KafkaS3Error, KafkaUnavailableError
from airflow_provider_kafka_s3.kafka.client import ClientEvents, consumer, to_error
from airflow_provider_kafka_s3.kafka.offsets import KafkaCluster
from airflow_provider_kafka_s3.kafka.options import Isolation, client_config
from airflow_provider_kafka_s3.retry import Retrier, RetryPolicy

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError

__all__ = ["read_records"]

_BATCH_RECORDS: Final = 10_000
_BATCH_BYTES: Final = 8 * 1024 * 1024
_FETCH_RECORDS: Final = 1_000
"""Messages taken from the client at once; fewer when they are large."""
_GUESSED_BYTES: Final = 64 * 1024
"""Assumed size of the first record: a large value keeps the first fetch small."""
_LOOK: Final = 10.0
"""Seconds to look up the first offset and the end of the partition after a failed read."""
_IS_THERE: Final = 15.0
"""Seconds without progress after which a look shows whether the partition has a leader: longer than most elections."""
_WAIT: Final = 0.1
"""Seconds that the client may wait to fill a fetch: the largest delay at the end of a partition."""

# The offset is outside the broker's log: deleted by retention, or truncated by an unclean leader election.
_OUT_OF_RANGE: Final = frozenset({"_AUTO_OFFSET_RESET", "_LOG_TRUNCATION", "OFFSET_OUT_OF_RANGE"})


def read_records(
    config: Mapping[str, object],
    topic: str,
    partition: int,
    start: int,
    end: int,
    *,
    isolation: Isolation,
    timeout: float = 60.0,
    whole: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Read all records in ``[start, end)`` that are visible at an isolation level.

    The read is complete when the position reaches ``end``. The number of records proves nothing, since compaction,
    aborted transactions and transaction markers leave gaps.

    Args:
        config: librdkafka settings: the extra of an Airflow connection of type ``kafka``.
        topic: name of the topic.
        partition: Kafka partition.
        start: first offset.
        end: offset after the last one.
        isolation: level of the reader.
        timeout: seconds without any progress until the read fails.
        whole: whether to return keys and headers as well.

    Yields:
        Batches of :data:`~airflow_provider_kafka_s3.arrays.RECORD_SCHEMA`, or of
        :data:`~airflow_provider_kafka_s3.arrays.WHOLE_RECORD_SCHEMA`, each of some 10,000 records or 8 MiB, none of
        them empty.

    Raises:
        DataLossError: offsets of the range are gone from Kafka. Batches yielded before are correct, but incomplete.
        KafkaUnavailableError: no progress in time.
        AccessDeniedError: the brokers refuse the credentials, or these lack the permission to read the topic.
        TopicNotFoundError: no such topic or partition.
        ConfigurationError: a setting is missing, protected, unknown or malformed.
        ValueError: ``start`` or ``end`` cannot be a range.
    """
    if not 0 <= start <= end:
        raise ValueError(f"[{start}, {end}) is no range of offsets")
    if start < end:
        reader = _Reader(
            config,
            topic=topic,
            partition=partition,
            start=start,
            end=end,
            isolation=isolation,
            timeout=timeout,
            whole=whole,
        )
        yield from reader.batches()


class _Reader:
    """One read of one range."""

    def __init__(
        self,
        config: Mapping[str, object],
        *,
        topic: str,
        partition: int,
        start: int,
        end: int,
        isolation: Isolation,
        timeout: float,
        whole: bool,
    ) -> None:
        self._config = config
        self._topic = topic
        self._partition = partition
        self._end = end
        self._isolation = isolation
        self._timeout = timeout
        self._position = start
        """Lowest possible offset of the next record."""
        self._schema = WHOLE_RECORD_SCHEMA if whole else RECORD_SCHEMA
        self._rows: list[tuple[Any, ...]] = []
        """As in the schema."""
        self._bytes = 0
        self._largest = 1
        """Bytes of the largest of these records."""
        self._events = ClientEvents()
        settings: dict[str, Any] = {
            # Up to 16 MiB are queued in the client; a single larger message is still delivered.
            "queued.max.messages.kbytes": 16 * 1024,
            # How long a broker without records delays its response: part of the delay at the end of a partition.
            "fetch.wait.max.ms": 100,
            **client_config(config),
            # A consumer needs a group ID, but with assigned partitions it never joins the group.
            "group.id": config.get("group.id", "kafka-s3"),
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "isolation.level": isolation,
            "check.crcs": True,
        }
        self._what = (
            f"read topic {topic!r} partition {partition} offsets [{start}, {end}) at {settings['bootstrap.servers']}"
        )
        self._consumer: Consumer = consumer(settings, self._events)

    def batches(self) -> Iterator[pa.RecordBatch]:
        from confluent_kafka import TopicPartition

        largest = _GUESSED_BYTES
        try:
            self._consumer.assign([TopicPartition(self._topic, self._partition, self._position)])
            progress, looked = time.monotonic(), False
            while self._position < self._end:
                limit = min(_FETCH_RECORDS, max(1, _BATCH_BYTES // largest), self._end - self._position)
                before = self._position
                for message in self._consumer.consume(limit, timeout=_WAIT):
                    self._take(message)
                if self._rows:
                    largest = self._largest
                if len(self._rows) >= _BATCH_RECORDS or self._bytes >= _BATCH_BYTES:
                    yield self._batch()
                if self._position > before:
                    progress, looked = time.monotonic(), False
                elif not looked and time.monotonic() - progress > _IS_THERE:
                    # Raises if no leader responds. One that does may have reasons to wait: a quota, a transaction.
                    self._bounds()
                    looked = True
                elif self._events.denied is not None or time.monotonic() - progress > self._timeout:
                    raise self._standstill()
            if self._rows:
                yield self._batch()
        finally:
            self._consumer.close()

    def _take(self, message: Any) -> None:
        error: KafkaError | None = message.error()
        if error is None and message.offset() < self._end:
            kind, timestamp = message.timestamp()
            row: tuple[Any, ...] = (message.offset(), timestamp if kind else NO_TIMESTAMP, message.value())
            size = len(message)
            if self._schema is WHOLE_RECORD_SCHEMA:
                headers = [{"key": name, "value": value} for name, value in message.headers() or ()]
                row = (*row, message.key(), headers or None)
                size += len(message.key() or b"")
            self._rows.append(row)
            self._bytes += size
            self._largest = max(self._largest, size)
            self._position = message.offset() + 1
        elif error is None or error.name() == "_PARTITION_EOF":
            # There are no more records below this offset: the range may end with a gap or with transaction markers.
            self._position = max(self._position, min(message.offset(), self._end))
        elif error.name() in _OUT_OF_RANGE:
            raise self._loss() or to_error(error, self._events, what=self._what)
        else:
            # Also after a transient error: librdkafka skips what it cannot read, such as a corrupt batch.
            raise to_error(error, self._events, what=self._what)

    def _batch(self) -> pa.RecordBatch:
        columns = dict(zip(self._schema.names, map(list, zip(*self._rows, strict=True)), strict=True))
        self._rows, self._bytes, self._largest = [], 0, 1
        return pa.RecordBatch.from_pydict(columns, schema=self._schema)

    def _standstill(self) -> KafkaS3Error:
        """The error of a read without progress."""
        if self._events.denied is not None:
            return to_error(self._events.denied, self._events, what=self._what)
        if (loss := self._loss()) is not None:
            return loss
        message = f"no progress at offset {self._position} for {self._timeout:.0f} s (cannot {self._what})"
        if self._isolation == "read_committed":
            message += "; an open transaction may hide what follows: wait until it is committed, aborted or timed out"
        return KafkaUnavailableError(message)

    def _bounds(self) -> tuple[int, int]:
        """The first offset of the partition, and its end, from its leader."""
        # A consumer's own watermark is the last stable offset: with it, an open transaction would look like data loss.
        cluster = KafkaCluster(self._config, timeout=_LOOK, retrier=Retrier(RetryPolicy(max_retries=0)))
        low = cluster.earliest(self._topic, [self._partition])[self._partition]
        return low, cluster.ends(self._topic, [self._partition], "read_uncommitted")[self._partition]

    def _loss(self) -> DataLossError | None:
        """The error if offsets of the rest of the range are gone from Kafka."""
        low, high = self._bounds()
        if self._position < low:
            missing, cause = (self._position, min(low, self._end)), "retention or a deletion of records removed them"
        elif high < self._end:
            missing, cause = (max(high, self._position), self._end), "the log was truncated or the topic created again"
        else:
            return None
        return DataLossError(
            f"topic {self._topic!r} partition {self._partition}: offsets [{missing[0]}, {missing[1]}) of the requested "
            f"[{self._position}, {self._end}) are gone ({cause}; the partition has [{low}, {high}))"
        )
