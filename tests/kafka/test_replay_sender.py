"""Records are sent to a real broker exactly once, whatever ends the sending process."""

from __future__ import annotations

import functools
import itertools
import multiprocessing
import os
import signal
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from airflow_provider_kafka_s3.exceptions import (
    AccessDeniedError,
    ConfigurationError,
    ControlError,
    ReplayOvertakenError,
    message_of,
)
from airflow_provider_kafka_s3.kafka.source import KafkaSource
from airflow_provider_kafka_s3.reading.record import Record, Records
from airflow_provider_kafka_s3.replay import sender
from airflow_provider_kafka_s3.replay.sender import send_partition
from dev.kafka_broker import KafkaBroker
from dev.waiting import wait_until

COUNT = 2000
NAMES: dict[str, Any] = {"replay": "r", "partition": 1}


def source(skip: int, partition: int = 1, count: int = COUNT) -> Iterator[Record]:
    """The records of a source partition but the first ones; nulls, empty values, equal keys, headers."""
    for n in range(skip, count):
        key, value = (None, b"k", b"")[n % 3], None if n % 7 == 0 else b"%d" % n if n % 11 else b""
        yield Record(partition, n, 1_700_000_000_000 + n, key, value, (("h", None), ("h", b"%d" % n)) if n % 2 else ())


def committed(broker: KafkaBroker, topic: str, partition: int) -> list[Record]:
    """What a consumer of committed records reads, when no transaction of the partition is open any more.

    Kafka writes the end of a transaction to its partitions after it has confirmed it.
    """
    from confluent_kafka import Consumer, TopicPartition

    ends = functools.partial(KafkaSource({"bootstrap.servers": broker.bootstrap_servers}).ends, topic, (partition,))
    wait_until(lambda: ends("read_committed") == ends("read_uncommitted"), f"the last transaction of {topic}")
    reader = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": uuid.uuid4().hex,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    reader.assign([TopicPartition(topic, partition, 0)])
    found = []
    while (message := reader.poll(30)) is not None:
        if (error := message.error()) is not None:
            assert error.name() == "_PARTITION_EOF", error
            reader.close()
            return found
        headers: Any = message.headers() or ()
        found.append(
            Record(partition, len(found), message.timestamp()[1], message.key(), message.value(), tuple(headers))
        )
    raise AssertionError("the end of the partition was not read within 30 s")


def send(broker: KafkaBroker, topic: str, records: Any = source, **more: Any) -> int:
    """Send them, 100 per transaction."""
    begun = more.pop("has_begun", False)
    settings: dict[str, Any] = {"records_per_transaction": 100, **NAMES, "name": f"r-{topic}-1", **more}
    config = {"bootstrap.servers": broker.bootstrap_servers, **settings.pop("config", {})}
    return send_partition(config, topic=topic, records=some_of(records), has_begun=lambda: begun, **settings)


def some_of(records: Callable[[int], Iterator[Record]]) -> Callable[[int], Iterator[Records]]:
    """The records, some at a time."""

    def some(skip: int) -> Iterator[Records]:
        remaining = records(skip)
        while found := Records.of(itertools.islice(remaining, 30)):
            yield found

    return some


def killed_at(servers: str, topic: str, count: int) -> None:
    """The process kills itself before a transaction is full."""

    def until(skip: int) -> Iterator[Record]:
        yield from itertools.islice(source(skip), count)
        os.kill(os.getpid(), signal.SIGKILL)

    config = {"bootstrap.servers": servers}
    send_partition(
        config,
        name=f"r-{topic}-1",
        topic=topic,
        records=some_of(until),
        has_begun=lambda: False,
        records_per_transaction=100,
        **NAMES,
    )


@pytest.fixture
def target(kafka_broker: KafkaBroker) -> str:
    """A topic of two partitions."""
    name = f"replayed-{uuid.uuid4().hex[:8]}"
    kafka_broker.create_topic(name, 2, {"retention.ms": "-1"})
    return name


def test_a_killed_replay_continues_and_a_finished_one_sends_nothing(kafka_broker: KafkaBroker, target: str) -> None:
    """Every record is there once, in order, with key, value, headers, timestamp and partition."""
    for count in (0, 150, 730):
        process = multiprocessing.get_context("spawn").Process(
            target=killed_at, args=(kafka_broker.bootstrap_servers, target, count)
        )
        process.start()
        process.join(60)
        assert process.exitcode == -signal.SIGKILL
    assert send(kafka_broker, target) == COUNT
    assert send(kafka_broker, target, has_begun=True) == COUNT
    assert committed(kafka_broker, target, 1) == [*source(0)]
    assert committed(kafka_broker, target, 0) == []


def test_an_overtaken_replay_adds_nothing_more(kafka_broker: KafkaBroker, target: str) -> None:
    """The one that began later fences it, and sends the rest."""

    def overtaken(skip: int) -> Iterator[Record]:
        yield from itertools.islice(source(skip), 250)
        assert send(kafka_broker, target) == COUNT
        yield from source(skip + 250)

    with pytest.raises(ReplayOvertakenError, match=r"another process sends replay .* and has taken over"):
        send(kafka_broker, target, overtaken)
    assert committed(kafka_broker, target, 1) == [*source(0)]


def test_progress_that_kafka_has_forgotten_is_refused(kafka_broker: KafkaBroker, target: str) -> None:
    """The replay does not start over."""
    with pytest.raises(ControlError, match=r"offsets\.retention\.minutes"):
        send(kafka_broker, target, has_begun=True)
    assert committed(kafka_broker, target, 1) == []


def test_the_beginning_is_recorded_after_the_progress_is_in_kafka(kafka_broker: KafkaBroker, target: str) -> None:
    """A process that ends in between leaves a replay that can go on."""

    def fail() -> None:
        raise RuntimeError("ended")

    with pytest.raises(RuntimeError, match="ended"):
        send(kafka_broker, target, on_begin=fail)
    assert send(kafka_broker, target, has_begun=True) == COUNT
    assert committed(kafka_broker, target, 1) == [*source(0)]


def test_whether_a_replay_has_begun_is_read_when_no_earlier_process_can_add_to_it(
    kafka_broker: KafkaBroker, target: str
) -> None:
    """Until then an earlier process may record its beginning, and send."""
    from confluent_kafka import KafkaException, Producer

    earlier = Producer({"bootstrap.servers": kafka_broker.bootstrap_servers, "transactional.id": "kafka-s3-replay-x"})
    earlier.init_transactions(60)

    def has_begun() -> bool:
        earlier.begin_transaction()
        earlier.produce(target, b"late", partition=0)
        with pytest.raises(KafkaException, match="fenced"):
            earlier.commit_transaction(60)
        return False

    config = {"bootstrap.servers": kafka_broker.bootstrap_servers}
    assert (
        send_partition(config, name="x", topic=target, records=some_of(source), has_begun=has_begun, **NAMES) == COUNT
    )
    assert committed(kafka_broker, target, 0) == []


def test_progress_is_read_as_committed_whatever_the_connection_sets(kafka_broker: KafkaBroker, target: str) -> None:
    """A connection for readers of uncommitted records does not change it."""
    uncommitted = {"isolation.level": "read_uncommitted"}
    assert send(kafka_broker, target, config=uncommitted) == COUNT
    assert send(kafka_broker, target, config=uncommitted, has_begun=True) == COUNT
    assert committed(kafka_broker, target, 1) == [*source(0)]


@pytest.mark.parametrize(
    ("settings", "values", "message"),
    [
        (
            {"max.message.bytes": "1000"},
            (b"small", os.urandom(5_000), b"small"),
            r"Message size too large .*offsets 7 to 9 of partition 1.* max\.message\.bytes .* 5,000 bytes \(offset 8\)",
        ),
        (
            {},
            (b"small", bytes(3_000_000)),
            r"Message size too large .*message\.max\.bytes in the extra .* 3,000,000 bytes \(offset 8\)",
        ),
        (
            {"message.timestamp.before.max.ms": "60000"},
            (b"old",),
            r"Invalid timestamp .*message\.timestamp\.before\.max\.ms .* 1700000000000 \(offset 7\)",
        ),
        (
            {"cleanup.policy": "compact"},
            (b"without key",),
            r"failed to validate record .*=compact takes no record without a key, such as that at offset 7",
        ),
    ],
)
def test_records_that_the_target_does_not_take_are_named_with_the_setting_to_change(
    kafka_broker: KafkaBroker, settings: dict[str, str], values: tuple[bytes, ...], message: str
) -> None:
    """Another try would not help; what was sent before stays, and the replay goes on when the setting is changed."""
    target = f"refusing-{uuid.uuid4().hex[:8]}"
    kafka_broker.create_topic(target, 2, settings)

    def refused(_: int) -> Iterator[Record]:
        for n, value in enumerate(values):
            yield Record(1, 7 + n, 1_700_000_000_000, None, value)

    with pytest.raises(ConfigurationError, match=message) as error:
        send(kafka_broker, target, refused)
    assert f"replay partition 1 to topic {target!r}" in str(error.value)
    assert committed(kafka_broker, target, 1) == []


def test_a_transaction_that_fails_while_records_are_added_is_named_by_its_cause(
    kafka_broker: KafkaBroker, target: str
) -> None:
    """The client refuses all later records, with errors that have no reason of their own."""
    small = f"small-{uuid.uuid4().hex[:8]}"
    kafka_broker.create_topic(small, 2, {"max.message.bytes": "1000"})

    def refused(_: int) -> Iterator[Record]:
        for n in range(60_000):
            yield Record(1, n, None, None, os.urandom(2_000))

    with pytest.raises(ConfigurationError, match=r"Message size too large"):
        send(kafka_broker, small, refused, records_per_transaction=60_000)


def test_a_replay_that_is_overtaken_while_it_adds_records_is_overtaken(kafka_broker: KafkaBroker, target: str) -> None:
    """It is no failure of the connection, after which another process would overtake its successor."""

    def overtaken(_: int) -> Iterator[Record]:
        yield from itertools.islice(source(0), 100)
        assert send(kafka_broker, target) == COUNT
        for n in range(400_000):
            yield Record(1, n, None, None, b"late" * 10)

    with pytest.raises(ReplayOvertakenError, match="has taken over"):
        send(kafka_broker, target, overtaken, records_per_transaction=400_000)
    assert committed(kafka_broker, target, 1) == [*source(0)]


def test_a_setting_of_producers_that_the_client_refuses_is_named(kafka_broker: KafkaBroker, target: str) -> None:
    """It is one of the connection; and so is a timeout that the brokers do not allow."""
    with pytest.raises(ConfigurationError, match=r"the Kafka client refuses its configuration: .*acks"):
        send(kafka_broker, target, config={"acks": "many"})
    with pytest.raises(
        ConfigurationError, match=r"Lower transaction\.timeout\.ms in the extra of the Kafka connection"
    ):
        send(kafka_broker, target, config={"transaction.timeout.ms": 2_000_000_000})


@pytest.mark.parametrize(
    ("kind", "right"),
    [
        ("TOPIC", "WRITE, READ and DESCRIBE on the topic"),
        ("GROUP", "READ on consumer groups that begin with 'kafka-s3-replay-'"),
        ("TRANSACTIONAL_ID", "WRITE and DESCRIBE on transactional ids that begin with 'kafka-s3-replay-'"),
    ],
)
def test_a_permission_that_the_credentials_lack_is_named(
    kafka_broker: KafkaBroker, target: str, sasl_config: dict[str, object], kind: str, right: str
) -> None:
    """Nothing is sent, and another try would not help."""
    name = target if kind == "TOPIC" else f"kafka-s3-replay-r-{target}-1"
    kafka_broker.allow(name, "stranger", "ALL", kind)
    with pytest.raises(AccessDeniedError) as refused:
        send(kafka_broker, target, config=sasl_config, timeout=10.0)
    assert right in message_of(refused.value)
    assert committed(kafka_broker, target, 1) == []


def large(skip: int) -> Iterator[Record]:
    """Records that fill several requests of one transaction."""
    for n in range(skip, 40):
        yield Record(1, n, 1_700_000_000_000 + n, b"k", b"%d" % n * 50_000)


def send_while(monkeypatch: pytest.MonkeyPatch, broker: KafkaBroker, topic: str, happens: Callable[[], object]) -> None:
    """Send large records in one transaction; something happens when two requests are sent."""
    enqueue, calls = sender._enqueue, itertools.count()

    def later(*arguments: Any, **more: Any) -> None:
        if next(calls) == 20:
            monkeypatch.setattr(sender, "_enqueue", enqueue)
            happens()
        enqueue(*arguments, **more)

    monkeypatch.setattr(sender, "_enqueue", later)
    send(broker, topic, large, records_per_transaction=1000)


def test_a_replay_that_is_overtaken_between_two_requests_adds_nothing_more(
    kafka_broker: KafkaBroker, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its error has the reason, though it is another request that the broker refused."""
    with pytest.raises(ReplayOvertakenError, match=r"another process sends replay .* and has taken over"):
        send_while(monkeypatch, kafka_broker, target, lambda: send(kafka_broker, target, large))
    assert committed(kafka_broker, target, 1) == [*large(0)]


def test_a_request_that_the_broker_refuses_ends_the_transaction_with_its_reason(kafka_broker: KafkaBroker) -> None:
    """Nothing of the transaction is visible, and the replay can go on."""
    topic = f"replayed-{uuid.uuid4().hex[:8]}"
    kafka_broker.create_topic(topic, 2, {"max.message.bytes": "10000"})
    with pytest.raises(ConfigurationError, match=r"(?i)message size too large"):
        send(kafka_broker, topic, large, records_per_transaction=1000)
    assert committed(kafka_broker, topic, 1) == []
    assert send(kafka_broker, topic, has_begun=True) == COUNT
