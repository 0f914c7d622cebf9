"""Operations of tests, benchmarks and the demo on a Kafka cluster: topics, records, transactions."""

from __future__ import annotations

import contextlib
import functools
import logging
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from dev.waiting import wait_until

if TYPE_CHECKING:
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient

__all__ = ["BrokerError", "KafkaTools", "Message"]

log = logging.getLogger(__name__)


class BrokerError(RuntimeError):
    """The broker cannot be started, or did not accept records; the message has the reason."""


@dataclass(frozen=True)
class Message:
    """One record to produce. The producer chooses a partition or timestamp that is None.

    Attributes:
        value: the record's value, None for a tombstone.
        key: the record's key.
        partition: Kafka partition.
        timestamp: milliseconds since the epoch.
        headers: in their order; None and an empty tuple are the same to Kafka.
    """

    value: bytes | None
    key: bytes | None = None
    partition: int | None = None
    timestamp: int | None = None
    headers: tuple[tuple[str, bytes | None], ...] | None = None


class KafkaTools:
    """Creates and fills topics; every method returns when the cluster has applied the change.

    Clients need ``bootstrap_servers`` only, so it also works on a cluster that this process did not start.
    """

    replication_factor: ClassVar[int] = 1
    """Of topics that are created without a choice of brokers."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers = bootstrap_servers

    @functools.cached_property
    def admin(self) -> AdminClient:
        """A client of the plain listener; it is used as long as the broker runs."""
        from confluent_kafka.admin import AdminClient

        return AdminClient({"bootstrap.servers": self.bootstrap_servers}, logger=log)

    def allow(self, topic: str, user: str, operation: str, kind: str = "TOPIC") -> None:
        """Allow a user an operation on a topic. From now on every operation on the topic requires a rule.

        Args:
            topic: name of the topic.
            user: name of the user.
            operation: as in ``confluent_kafka.admin.AclOperation``: ``READ``, ``DESCRIBE``, ``ALL``.
            kind: as in ``confluent_kafka.admin.ResourceType``: ``GROUP`` if it is the name of a consumer group.
        """
        from confluent_kafka.admin import (
            AclBinding,
            AclBindingFilter,
            AclOperation,
            AclPermissionType,
            ResourcePatternType,
            ResourceType,
        )

        rule = AclBinding(
            ResourceType[kind],
            topic,
            ResourcePatternType.LITERAL,
            f"User:{user}",
            "*",
            AclOperation[operation],
            AclPermissionType.ALLOW,
        )
        for future in self.admin.create_acls([rule]).values():
            future.result()
        exact = AclBindingFilter(
            rule.restype,
            rule.name,
            rule.resource_pattern_type,
            rule.principal,
            rule.host,
            rule.operation,
            rule.permission_type,
        )
        # The controller has the rule before the broker does.
        wait_until(lambda: self.admin.describe_acls(exact).result(), f"the rule of {user} for {topic}")

    def producer(self, **config: object) -> Producer:
        """A producer of the plain listener; keywords are librdkafka settings with ``_`` for ``.``."""
        from confluent_kafka import Producer

        settings = {name.replace("_", "."): value for name, value in config.items()}
        return Producer({"bootstrap.servers": self.bootstrap_servers, **settings}, logger=log)

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
        """Create a topic and wait until every partition has a leader. Returns the name."""
        from confluent_kafka.admin import NewTopic

        topic = NewTopic(name, partitions, self.replication_factor, config=dict(config or {}))
        self.admin.create_topics([topic])[name].result()
        wait_until(lambda: self._leaders(name) == partitions, f"a leader for all partitions of {name}")
        return name

    def add_partitions(self, topic: str, total: int) -> None:
        """Grow a topic to ``total`` partitions and wait for their leaders."""
        from confluent_kafka.admin import NewPartitions

        self.admin.create_partitions([NewPartitions(topic, total)])[topic].result()
        wait_until(lambda: self._leaders(topic) == total, f"{total} partitions of {topic}")

    def delete_topic(self, name: str) -> None:
        """Delete a topic and wait until the broker no longer lists it."""
        self.admin.delete_topics([name])[name].result()
        wait_until(lambda: self._leaders(name) == 0, f"the deletion of {name}")

    def delete_records(self, topic: str, before: Mapping[int, int]) -> None:
        """Delete the records below an offset, per partition: what retention does, at once."""
        from confluent_kafka import TopicPartition

        partitions = [TopicPartition(topic, partition, offset) for partition, offset in before.items()]
        for future in self.admin.delete_records(partitions).values():
            future.result()

    def produce(self, topic: str, messages: Iterable[Message], **config: object) -> int:
        """Produce messages and wait until the broker has them all, in their order. Returns their number."""
        # One request at a time: with more, one that is repeated, as to a topic that is new to its leader, may arrive
        # after its successor. An idempotent producer also keeps the order, and needs half a second to start.
        producer = self.producer(**{"linger_ms": 5, "max_in_flight": 1, **config})
        failures: list[object] = []
        count = self._send(producer, topic, messages, failures)
        producer.flush()
        if failures:
            raise BrokerError(f"{len(failures)} of {count} records for {topic} were not produced: {failures[0]}")
        return count

    def produce_transaction(self, topic: str, messages: Iterable[Message], *, commit: bool = True) -> None:
        """Produce messages in one transaction, then commit or abort it; its marker takes one offset per partition."""
        with self.open_transaction(topic, messages) as producer:
            if commit:
                producer.commit_transaction()

    @contextlib.contextmanager
    def open_transaction(self, topic: str, messages: Iterable[Message]) -> Iterator[Producer]:
        """Produce messages in a transaction that stays open inside the block, then is aborted if it still is.

        Only one transaction may be open on a partition: the end of the block waits until nothing of it is undecided.
        """
        from confluent_kafka import KafkaException

        messages = list(messages)
        # Kafka aborts a transaction that is open for longer; this is the longest that a broker allows.
        producer = self.producer(transactional_id=f"open-{uuid.uuid4()}", transaction_timeout_ms=900_000)
        failures: list[object] = []
        producer.init_transactions(30)
        producer.begin_transaction()
        self._send(producer, topic, messages, failures)
        producer.flush()
        if failures:
            raise BrokerError(f"records for {topic} were not produced: {failures[0]}")
        written = self._ends(topic, committed=False)
        try:
            yield producer
        finally:
            with contextlib.suppress(KafkaException):
                producer.abort_transaction(30)
        # A transaction is over for its producer before its markers are in the partitions.
        touched = {m.partition for m in messages} if all(m.partition is not None for m in messages) else set(written)

        def marked() -> bool:
            stable = self._ends(topic, committed=True)
            return all(stable[p] > written[p] for p in written if p in touched)

        wait_until(marked, f"the markers of a transaction on {topic}")

    def _ends(self, topic: str, *, committed: bool) -> dict[int, int]:
        from confluent_kafka import IsolationLevel, TopicPartition
        from confluent_kafka.admin import OffsetSpec

        level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        partitions = self.admin.list_topics(topic, timeout=10).topics[topic].partitions
        specs = {TopicPartition(topic, p): OffsetSpec.latest() for p in partitions}
        futures = self.admin.list_offsets(specs, isolation_level=level)
        return {tp.partition: future.result().offset for tp, future in futures.items()}

    @staticmethod
    def _send(producer: Producer, topic: str, messages: Iterable[Message], failures: list[object]) -> int:
        def delivered(error: object, _: object) -> None:
            if error is not None:
                failures.append(error)

        count = 0
        for count, m in enumerate(messages, 1):
            arguments: dict[str, Any] = {"key": m.key, "on_delivery": delivered}
            if m.partition is not None:
                arguments["partition"] = m.partition
            if m.timestamp is not None:
                arguments["timestamp"] = m.timestamp
            if m.headers is not None:
                arguments["headers"] = list(m.headers)
            while True:
                try:
                    producer.produce(topic, m.value, **arguments)
                    break
                except BufferError:  # the queue is full: let deliveries make room
                    producer.poll(0.1)
            if count % 1000 == 0:
                producer.poll(0)
        return count

    def _leaders(self, topic: str) -> int:
        found = self.admin.list_topics(timeout=10).topics.get(topic)
        if found is None or found.error is not None:
            return 0
        return sum(1 for p in found.partitions.values() if p.leader >= 0 and p.error is None)
