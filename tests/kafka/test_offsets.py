"""Topics and offsets of a real broker."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from airflow_provider_kafka_s3.exceptions import AccessDeniedError, ConfigurationError, TopicNotFoundError
from airflow_provider_kafka_s3.kafka.offsets import ConsumerGroup, KafkaCluster, TopicInfo
from airflow_provider_kafka_s3.parallel import in_threads
from dev.kafka_broker import KafkaBroker, Message

VECTORS = Path(__file__).parent.parent / "vectors" / "planning.json"

MakeTopic = Callable[..., str]


@pytest.fixture
def cluster(kafka_config: dict[str, object]) -> KafkaCluster:
    """The cluster under test."""
    return KafkaCluster(kafka_config)


def messages(*values: str, timestamp: int | None = None) -> list[Message]:
    """Records of partition 0."""
    return [Message(v.encode(), partition=0, timestamp=timestamp) for v in values]


def test_a_topic_is_described_by_its_partitions_and_its_id(cluster: KafkaCluster, make_topic: MakeTopic) -> None:
    """Name, partitions in order, an id that fits into a key, and the cluster's id."""
    topic = make_topic(3)

    info = cluster.describe(topic)

    assert isinstance(info, TopicInfo)
    assert (info.name, info.partitions) == (topic, (0, 1, 2))
    assert info.topic_id is not None
    assert len(info.topic_id) == 22
    assert not set(info.topic_id) & set("/+=")
    assert info.cluster_id


def test_a_missing_topic_is_named_with_its_broker(cluster: KafkaCluster, make_topic: MakeTopic) -> None:
    """The message has the topic and the brokers, and the error has the cluster's id."""
    with pytest.raises(TopicNotFoundError, match=rf"'no-such-topic'.*{cluster.bootstrap_servers}") as caught:
        cluster.describe("no-such-topic")
    assert caught.value.cluster_id == cluster.describe(make_topic()).cluster_id


def test_a_name_that_no_topic_can_have_is_a_configuration_error(cluster: KafkaCluster) -> None:
    """It will not appear later either."""
    with pytest.raises(ConfigurationError, match="no/topic"):
        cluster.describe("no/topic")


def test_a_group_that_does_not_exist_has_neither_members_nor_offsets(cluster: KafkaCluster) -> None:
    """As one whose offsets the brokers have deleted."""
    assert cluster.consumer_group("no-such-group") == ConsumerGroup("no-such-group", "", {})


def test_a_group_is_read_from_a_cluster_that_had_none() -> None:
    """Its coordinator is found first: until then the client's request for offsets may end the process."""
    with KafkaBroker() as fresh:
        cluster = KafkaCluster({"bootstrap.servers": fresh.bootstrap_servers})
        assert cluster.consumer_group("first") == ConsumerGroup("first", "", {})


def test_a_group_that_may_not_be_described_is_named_with_the_right(
    kafka_broker: KafkaBroker, sasl_config: dict[str, object]
) -> None:
    """Its offsets are neither read nor taken for absent."""
    kafka_broker.allow("of-a-stranger", "stranger", "ALL", "GROUP")
    with pytest.raises(AccessDeniedError, match=r"group 'of-a-stranger'.*permissions to DESCRIBE the group"):
        KafkaCluster(sasl_config).consumer_group("of-a-stranger")


def test_offsets_of_a_missing_topic_or_partition_are_an_error(cluster: KafkaCluster, make_topic: MakeTopic) -> None:
    """An empty result would mean "nothing new"."""
    with pytest.raises(TopicNotFoundError, match="no-such-topic"):
        cluster.ends("no-such-topic", [0], "read_committed")
    with pytest.raises(TopicNotFoundError, match="7"):
        cluster.earliest(make_topic(), [0, 7])


def test_threads_find_each_their_topic_with_few_requests(
    cluster: KafkaCluster, kafka_broker: KafkaBroker, make_topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one thread does; a topic that does not exist is an error only to the thread that looks for it."""
    topics = [make_topic(2) for _ in range(24)]
    for number, topic in enumerate(topics):
        kafka_broker.produce(topic, messages(*["x"] * number, timestamp=1_000))

    def look(topic: str) -> object:
        try:
            return (
                cluster.describe(topic),
                cluster.earliest(topic, [0, 1]),
                cluster.ends(topic, [0, 1], "read_committed"),
                cluster.ends(topic, [0, 1], "read_uncommitted"),
                cluster.at_timestamp(topic, [0], 1_000),
            )
        except TopicNotFoundError as e:
            return str(e)

    expected = [*map(look, topics)]
    assert len({str(found) for found in expected}) == 24
    missing = look("no-such-topic")
    assert in_threads(look, ["no-such-topic", *topics, *topics], threads=16) == [missing, *expected, *expected]
    requests: list[str] = []
    admin = cluster._client.admin
    for name in ("describe_topics", "list_offsets"):
        send = getattr(admin, name)
        counted = functools.partial(lambda send, *of, **more: requests.append("") or send(*of, **more), send)
        monkeypatch.setattr(admin, name, counted)
    assert in_threads(look, topics, threads=16) == expected
    assert len(requests) < 24 * 5 / 2


def test_no_partitions_have_no_offsets(cluster: KafkaCluster) -> None:
    """No request is sent."""
    assert cluster.ends("whatever", [], "read_committed") == {}


def test_an_empty_topic_begins_and_ends_at_zero(cluster: KafkaCluster, make_topic: MakeTopic) -> None:
    """For every partition, at both isolation levels."""
    topic = make_topic(2)

    assert cluster.earliest(topic, [0, 1]) == {0: 0, 1: 0}
    assert cluster.ends(topic, [0, 1], "read_committed") == {0: 0, 1: 0}
    assert cluster.ends(topic, [0, 1], "read_uncommitted") == {0: 0, 1: 0}


def test_transactions_take_an_offset_more_than_their_records(
    kafka_broker: KafkaBroker, cluster: KafkaCluster, make_topic: MakeTopic
) -> None:
    """Vector V-T1: committed and aborted transactions each end in a marker."""
    (vector,) = [c for c in json.loads(VECTORS.read_text())["cases"] if c["id"] == "V-T1"]
    topic = make_topic()

    ends = []
    for commit in (True, False, True):
        kafka_broker.produce_transaction(topic, messages(*"abcde"), commit=commit)
        ends.append(cluster.ends(topic, [0], "read_committed")[0])

    assert ends == vector["end_offsets"]


def test_an_open_transaction_is_the_end_for_committed_readers(
    kafka_broker: KafkaBroker, cluster: KafkaCluster, make_topic: MakeTopic
) -> None:
    """The end at read_committed is the last stable offset, not the high watermark."""
    topic = make_topic()
    kafka_broker.produce(topic, messages("a", "b"))

    with kafka_broker.open_transaction(topic, messages("c", "d", "e")):
        kafka_broker.produce(topic, messages("f"))

        assert cluster.ends(topic, [0], "read_committed") == {0: 2}
        assert cluster.ends(topic, [0], "read_uncommitted") == {0: 6}

    assert cluster.ends(topic, [0], "read_committed") == {0: 7}


def test_deleted_records_move_the_start(
    kafka_broker: KafkaBroker, cluster: KafkaCluster, make_topic: MakeTopic
) -> None:
    """The earliest offset is the first that is still there."""
    topic = make_topic()
    kafka_broker.produce(topic, messages("a", "b", "c"))

    kafka_broker.delete_records(topic, {0: 2})

    assert cluster.earliest(topic, [0]) == {0: 2}
    assert cluster.ends(topic, [0], "read_committed") == {0: 3}


def test_a_point_in_time_is_the_first_offset_at_or_after_it(
    kafka_broker: KafkaBroker, cluster: KafkaCluster, make_topic: MakeTopic
) -> None:
    """None where nothing is as late, also in an empty partition; an exact hit counts."""
    topic = make_topic(2)
    for timestamp in (1000, 2000, 3000):
        kafka_broker.produce(topic, messages("x", timestamp=timestamp))

    assert cluster.at_timestamp(topic, [0, 1], 0) == {0: (0, 1000), 1: None}
    assert cluster.at_timestamp(topic, [0], 2000) == {0: (1, 2000)}
    assert cluster.at_timestamp(topic, [0], 2001) == {0: (2, 3000)}
    assert cluster.at_timestamp(topic, [0], 3001) == {0: None}


def test_a_record_of_the_future_is_the_result_for_every_later_time(
    kafka_broker: KafkaBroker, cluster: KafkaCluster, make_topic: MakeTopic
) -> None:
    """The result has its timestamp, so it is not taken for the end of a window. Records without a time hide nothing."""
    topic = make_topic(1, {"message.timestamp.after.max.ms": str(2**63 - 1)})
    for timestamp in (1000, -1, -5, 2000, 1_700_000_000_000_000_000, 3000):
        kafka_broker.produce(topic, messages("x", timestamp=timestamp))

    assert cluster.at_timestamp(topic, [0], 1001) == {0: (3, 2000)}
    assert cluster.at_timestamp(topic, [0], 2001) == {0: (4, 1_700_000_000_000_000_000)}


def test_added_partitions_are_seen_at_once(
    kafka_broker: KafkaBroker, cluster: KafkaCluster, make_topic: MakeTopic
) -> None:
    """A client that has described the topic before finds the new partitions, and the same topic id."""
    topic = make_topic(1)
    before = cluster.describe(topic)

    kafka_broker.add_partitions(topic, 3)
    after = cluster.describe(topic)

    assert after.partitions == (0, 1, 2)
    assert after.topic_id == before.topic_id
    assert cluster.ends(topic, [2], "read_committed") == {2: 0}


def test_a_recreated_topic_has_another_id(
    kafka_broker: KafkaBroker, cluster: KafkaCluster, make_topic: MakeTopic
) -> None:
    """Only the id distinguishes the two."""
    topic = make_topic()
    before = cluster.describe(topic)

    kafka_broker.delete_topic(topic)
    kafka_broker.create_topic(topic)

    assert cluster.describe(topic).topic_id != before.topic_id


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_a_login_with_a_difficult_password_works(
    sasl_config: dict[str, object], make_topic: MakeTopic, mechanism: str
) -> None:
    """The settings of the connection reach librdkafka unharmed."""
    topic = make_topic()

    cluster = KafkaCluster({**sasl_config, "sasl.mechanism": mechanism})

    assert cluster.describe(topic).partitions == (0,)


def test_a_wrong_password_is_terminal_and_reported_at_once(sasl_config: dict[str, object]) -> None:
    """No waiting for the timeout, no retries, and the password is not in the message."""
    cluster = KafkaCluster({**sasl_config, "sasl.password": "not-the-password"}, timeout=300)

    with pytest.raises(AccessDeniedError, match=r"(?s)Authentication failed.*'t' at ") as caught:
        cluster.describe("t")
    assert "not-the-password" not in str(caught.value)


def test_a_connection_without_login_is_refused(sasl_config: dict[str, object], kafka_broker: KafkaBroker) -> None:
    """A plain client at the listener with passwords finds no broker that answers; it never hangs."""
    from airflow_provider_kafka_s3.exceptions import KafkaUnavailableError
    from airflow_provider_kafka_s3.retry import Retrier, RetryPolicy

    retrier = Retrier(RetryPolicy(max_retries=0))
    cluster = KafkaCluster({"bootstrap.servers": kafka_broker.sasl_bootstrap_servers}, timeout=1, retrier=retrier)

    with pytest.raises(KafkaUnavailableError, match=kafka_broker.sasl_bootstrap_servers):
        cluster.describe("t")
