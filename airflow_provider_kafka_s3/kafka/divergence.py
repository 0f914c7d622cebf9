"""Whether the log of a partition still is the one that an earlier leader had (KIP-320).

A leader that was elected uncleanly, or lost its disk, has fewer records than the one before it, and appends others at
the same offsets. The log may then be as long as before. Leader epochs show it: a broker answers where the log of an
epoch ends, and this must not be below what was read at that epoch.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from airflow_provider_kafka_s3.kafka.client import ClientEvents, consumer, to_error

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

__all__ = ["LogPosition", "find_divergences"]

_WAIT: Final = 0.1
"""Seconds of one poll."""

_END_OF_EPOCH: Final = re.compile(r"broker end offset is (-?\d+)")
"""Of librdkafka's error about a log that does not reach an offset at its epoch; negative: the broker does not know."""


class LogPosition(NamedTuple):
    """An offset that the log of a partition had reached while its leader had an epoch."""

    offset: int
    epoch: int


def find_divergences(
    config: Mapping[str, object], reached: Mapping[tuple[str, int], LogPosition], *, timeout: float, what: str
) -> dict[tuple[str, int], int]:
    """Find the partitions whose log no longer has the records that it had below an offset.

    Only a consumer can ask for the end of an epoch: librdkafka does it before the first fetch at an offset with an
    epoch. So the first event of a partition is the answer. Records that retention has deleted since do not matter.

    Args:
        config: librdkafka settings, checked.
        reached: by topic and partition.
        timeout: seconds to wait for all answers.
        what: the request and the brokers, for errors.

    Returns:
        By topic and partition the first offset that was replaced or is gone. Partitions whose log is the same are left
        out, and those of which the brokers do not know the epochs.

    Raises:
        KafkaException: a broker returned another error.
        KafkaS3Error: the brokers refuse the client, or there is no answer in time.
    """
    from confluent_kafka import TopicPartition

    events = ClientEvents()
    settings: dict[str, Any] = {
        **config,
        # A consumer needs a group ID, but with assigned partitions it never joins the group.
        "group.id": config.get("group.id", "kafka-s3"),
        "enable.auto.commit": False,
        "auto.offset.reset": "error",
        "enable.partition.eof": True,
        # An open transaction would hide the records, and so the answer.
        "isolation.level": "read_uncommitted",
        # One batch of records of each partition is enough.
        "fetch.wait.max.ms": 10,
        "fetch.message.max.bytes": 1,
    }
    reader = consumer(settings, events)
    divergences: dict[tuple[str, int], int] = {}
    left = dict(reached)
    deadline = time.monotonic() + timeout
    try:
        reader.assign([TopicPartition(t, p, at.offset, leader_epoch=at.epoch) for (t, p), at in reached.items()])
        while left:
            for message in reader.consume(len(left), timeout=_WAIT):
                position = left.pop((message.topic() or "", message.partition() or 0), None)
                if position is not None and (end := _end_of_epoch(message, position)) is not None:
                    divergences[message.topic() or "", message.partition() or 0] = end
            if left and (events.denied is not None or time.monotonic() > deadline):
                raise to_error(events.denied, events, what=what)
    finally:
        reader.close()
    return divergences


def _end_of_epoch(message: Message, reached: LogPosition) -> int | None:
    """Where the log of the epoch ends, if that is below the offset; None: it is not, or the broker does not know."""
    from confluent_kafka import KafkaException

    error: KafkaError | None = message.error()
    offset = message.offset()
    if error is None or error.name() == "_PARTITION_EOF":
        # Older versions of librdkafka go on at the end of the epoch, without an error.
        return offset if offset is not None and offset < reached.offset else None
    if (end := _END_OF_EPOCH.search(error.str())) is not None:
        return int(end[1]) if int(end[1]) >= 0 else None
    if error.name() in ("_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE"):
        # The epoch is right, and retention has deleted the records; or the log is shorter, which its end shows.
        return None
    raise KafkaException(error)
