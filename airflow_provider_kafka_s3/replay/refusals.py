"""The errors with which brokers and the client refuse records, a transactional id or a group of a replay."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from airflow_provider_kafka_s3.exceptions import AccessDeniedError, ConfigurationError, TerminalError
from airflow_provider_kafka_s3.messages import count
from airflow_provider_kafka_s3.reading.record import Record

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

__all__ = ["PREFIX", "refusal"]

PREFIX: Final = "kafka-s3-replay-"
"""Of the consumer group and the transactional id of a source partition of a replay."""

_NEEDED: Final[Mapping[str, str]] = {
    "TOPIC_AUTHORIZATION_FAILED": "WRITE, READ and DESCRIBE on the topic",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": f"WRITE and DESCRIBE on transactional ids that begin with {PREFIX!r}",
    "GROUP_AUTHORIZATION_FAILED": f"READ on consumer groups that begin with {PREFIX!r}",
    "CLUSTER_AUTHORIZATION_FAILED": "IDEMPOTENT_WRITE on the cluster",
}


def refusal(error: KafkaError, what: str, records: Sequence[Record]) -> TerminalError | None:
    """The error of a refusal that another try would not change; None: it is no refusal.

    Args:
        error: of librdkafka.
        what: the replay, its partition, and the topic, for the message.
        records: of the open transaction.
    """
    name = error.name()
    if name in _NEEDED:
        return AccessDeniedError(
            f"{error.str()} (cannot {what}). Nothing more was sent. Allow the credentials of the Kafka connection "
            f"{_NEEDED[name]}, and repeat the replay with the same id"
        )
    if name not in _ADVICE:
        return None
    return ConfigurationError(
        f"{error.str()} (cannot {what}){_among(records)}. The transaction was aborted, nothing more was sent. "
        f"{_ADVICE[name](records)}, and repeat the replay with the same id"
    )


def _among(records: Sequence[Record]) -> str:
    offsets = [record.offset for record in records if record.offset is not None]
    if not records:
        return ""
    if not offsets:
        return f", in a transaction of {count(len(records), 'record')} of partition {records[0].partition}"
    return f", in a transaction of the offsets {min(offsets)} to {max(offsets)} of partition {records[0].partition}"


def _place(record: Record) -> str:
    return "offset not known" if record.offset is None else f"offset {record.offset}"


def _size(record: Record) -> int:
    return sum(len(part or b"") for part in (record.key, record.value, *(value for _, value in record.headers)))


def _too_large(records: Sequence[Record]) -> str:
    largest = max(records, key=_size, default=None)
    of = f": the largest record has {count(_size(largest), 'byte')} ({_place(largest)})" if largest is not None else ""
    return (
        f"Raise max.message.bytes of the topic, and message.max.bytes in the extra of the Kafka connection if it is "
        f"set{of}"
    )


def _timestamp(records: Sequence[Record]) -> str:
    timed = [(record.timestamp, _place(record)) for record in records if record.timestamp is not None]
    of = ""
    if timed:
        (low, first), (high, last) = min(timed), max(timed)
        of = f": the records have timestamps from {low} ({first}) to {high} ({last})"
    return (
        f"Raise message.timestamp.before.max.ms or message.timestamp.after.max.ms of the topic for the time of the "
        f"replay{of}"
    )


def _record(records: Sequence[Record]) -> str:
    without = next((record for record in records if record.key is None), None)
    if without is None:
        return "Look at the log of the broker, which has the reason, and change the settings of the topic"
    return (
        f"A topic with cleanup.policy=compact takes no record without a key, such as that at {_place(without)}: set "
        f"cleanup.policy=delete"
    )


def _settings(_: Sequence[Record]) -> str:
    return "Change the setting of the topic or the policy of the brokers that does not allow it"


def _transaction_timeout(_: Sequence[Record]) -> str:
    return (
        "Lower transaction.timeout.ms in the extra of the Kafka connection, or raise transaction.max.timeout.ms of the "
        "brokers"
    )


_ADVICE: Final[Mapping[str, Callable[[Sequence[Record]], str]]] = {
    "MSG_SIZE_TOO_LARGE": _too_large,
    "RECORD_LIST_TOO_LARGE": _too_large,
    "INVALID_TIMESTAMP": _timestamp,
    "INVALID_RECORD": _record,
    "INVALID_TRANSACTION_TIMEOUT": _transaction_timeout,
    "POLICY_VIOLATION": _settings,
    "UNSUPPORTED_COMPRESSION_TYPE": _settings,
    "UNSUPPORTED_FOR_MESSAGE_FORMAT": _settings,
}
