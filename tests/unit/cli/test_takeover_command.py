"""``kafka-s3 takeover`` prints where a pipeline goes on, and records it only with ``--apply``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from airflow_provider_kafka_s3.batch.request import RunRequest
from airflow_provider_kafka_s3.cli import takeover
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.kafka.offsets import ConsumerGroup
from airflow_provider_kafka_s3.kafka_connect.convert import convert, layout_of
from airflow_provider_kafka_s3.pipeline import TopicPipeline
from airflow_provider_kafka_s3.retry import Retrier
from airflow_provider_kafka_s3.storage.durable import DurableStore
from tests.deviantart_sink import sink_objects
from tests.unit.cli.conftest import World
from tests.unit.kafka_connect.connectors import DEVIANTART, MINIMAL, SECRET

MARKER = "topics/_kafka_s3/orders-to-s3/{}/marker.json"


class Groups:
    """The consumer groups of the cluster."""

    def __init__(self) -> None:
        self.offsets: Mapping[str, Mapping[int, int]] = {}
        self.asked: list[str] = []

    def consumer_group(self, name: str) -> ConsumerGroup:
        self.asked.append(name)
        return ConsumerGroup(name, "", self.offsets)


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> Groups:
    """The groups that the command reads."""
    made = Groups()
    monkeypatch.setattr(takeover, "KafkaCluster", lambda *_, **__: made)
    return made


@pytest.fixture
def connector(tmp_path: Path) -> Path:
    """A sink of two topics, with a secret."""
    path = tmp_path / "connector.json"
    path.write_text(json.dumps({**MINIMAL, "topics": "orders, refunds", "aws.secret.access.key": SECRET}))
    return path


@pytest.fixture
def two_topics(world: World) -> World:
    """Six records in each topic."""
    world.kafka.create_topic("refunds")
    for n in range(6):
        world.kafka.append("refunds", 0, b"%d" % n, n)
    return world


def markers(world: World) -> list[str]:
    """Of the topics."""
    return [topic for topic in ("orders", "refunds") if world.bucket.head(MARKER.format(topic)) is not None]


def test_the_output_has_each_partition_and_the_reason(two_topics: World, groups: Groups, connector: Path) -> None:
    """A dry run writes nothing; what is recorded is said the same way."""
    groups.offsets = {"orders": {0: 4}, "refunds": {0: 2}}
    two_topics.bucket.put_new("topics/refunds/partition=0/refunds+0+0000000002.json", b"2\n3\n4\n")
    dry = two_topics.cli("takeover", str(connector))
    assert (dry.code, dry.err) == (0, "")
    assert dry.out.splitlines() == [
        "pipeline orders-to-s3, consumer group connect-orders-to-s3",
        "topic orders: would begin here",
        "  partition  committed  objects past it  in the way  begins at  why",
        "          0          4                0           0          4  the committed offset",
        "  the first batch would land 2 offsets: 0: [4, 6)",
        "topic refunds: would begin here",
        "  partition  committed  objects past it  in the way  begins at  why",
        "          0          2                1           0          5  objects have all records up to here",
        "  the first batch would land 1 offset: 0: [5, 6)",
    ]
    assert markers(two_topics) == []
    applied = two_topics.cli("takeover", str(connector), "--apply")
    assert applied.out == dry.out.replace("would begin here", "begins here now")
    assert markers(two_topics) == ["orders", "refunds"]
    again = two_topics.cli("takeover", str(connector), "--apply")
    assert again.out == dry.out.replace("would begin here", "begins here already")
    assert SECRET not in dry.out + applied.out


def test_nothing_is_recorded_while_one_of_several_topics_cannot_be_taken_over(
    two_topics: World, groups: Groups, connector: Path
) -> None:
    """Whether it is refused, or objects are in the way."""
    groups.offsets = {"orders": {0: 4}}
    refused = two_topics.cli("takeover", str(connector), "--apply")
    assert (refused.code, "no committed offset for partitions 0 of topic 'refunds'" in refused.error) == (2, True)
    groups.offsets = {"orders": {0: 4}, "refunds": {0: 2}}
    two_topics.bucket.put_new("topics/refunds/partition=0/refunds+0+0000000003.json", b"3\n")
    blocked = two_topics.cli("takeover", str(connector), "--apply")
    assert (blocked.code, "topic 'refunds' has 1 object in the way" in blocked.error) == (3, True)
    assert markers(two_topics) == []
    dry = two_topics.cli("takeover", str(connector))
    key, aside = (
        "topics/refunds/partition=0/refunds+0+0000000003.json",
        "topics/_kafka_s3/orders-to-s3/refunds/set_aside",
    )
    command = f"aws s3 mv s3://lake/{key} s3://lake/{aside}/{key}"
    assert (dry.code, dry.out.splitlines()[-1]) == (1, command)


def test_options_replace_what_the_connector_has(world: World, groups: Groups, connector: Path) -> None:
    """Its pipeline, its topics and its group."""
    groups.offsets = {"orders": {0: 4}}
    where = ("--pipeline", "lake", "--topic", "orders", "--group", "other", "--bucket", "lake")
    data = world.cli("takeover", str(connector), *where, "--json").data
    assert (data["pipeline"], data["group"], [one["topic"] for one in data["topics"]]) == ("lake", "other", ["orders"])
    assert groups.asked == ["other"]


def test_a_connector_that_cannot_be_converted_is_not_taken_over(world: World, groups: Groups, tmp_path: Path) -> None:
    """All settings are named, and no group is read."""
    path = tmp_path / "connector.json"
    path.write_text(json.dumps({**MINIMAL, "transforms": "a"}))
    output = world.cli("takeover", str(path))
    assert (output.code, "transforms: records are landed as they are" in output.error) == (2, True)
    assert groups.asked == []


def test_the_first_batch_is_what_the_first_run_lands(world: World, groups: Groups, connector: Path) -> None:
    """By a run at once; it may be nothing, and behind it there is none to show."""
    groups.offsets = {"orders": {0: 6}}
    where = ("--topic", "orders", "--apply")
    assert "the first batch would land nothing" in world.cli("takeover", str(connector), *where).out
    world.fill(3)
    (planned,) = world.cli("takeover", str(connector), *where, "--json").data["topics"]
    layout = layout_of(convert({**MINIMAL}).parameters)
    pipeline = TopicPipeline(
        DurableStore(world.bucket, Retrier()), world.kafka, topics_dir="topics", pipeline="orders-to-s3", topic="orders"
    )
    landed = pipeline.land(RunRequest(run="first", offsets="incremental", layout=layout, starting="earliest"))
    assert planned["first_batch"] == landed.target.to_json() == {"0": [[6, 9]]}
    (afterwards,) = world.cli("takeover", str(connector), *where, "--json").data["topics"]
    assert (afterwards["done"], afterwards["first_batch"]) == (True, None)


def test_a_connector_with_transforms_is_taken_over_if_that_is_accepted(
    world: World, groups: Groups, tmp_path: Path
) -> None:
    """Its objects past the committed offset are in the way, unless the transform changed nothing in them."""
    path = tmp_path / "connector.json"
    insert = {"transforms": "a", "transforms.a.type": "org.apache.kafka.connect.transforms.InsertField$Value"}
    path.write_text(json.dumps({**MINIMAL, **insert}))
    groups.offsets = {"orders": {0: 2}}
    world.bucket.put_new("topics/orders/partition=0/orders+0+0000000002.json", b"2\n3\n")
    world.bucket.put_new("topics/orders/partition=0/orders+0+0000000004.json", b'{"value":4,"a":1}\n')
    assert "--without-transforms" in world.cli("takeover", str(path)).error
    output = world.cli("takeover", str(path), "--without-transforms", "--json")
    (partition,) = output.data["topics"][0]["partitions"]
    assert (output.code, partition["start"]) == (1, 4)
    assert partition["in_the_way"] == ["topics/orders/partition=0/orders+0+0000000004.json"]


@pytest.mark.parametrize(
    "router",
    [
        "org.apache.kafka.connect.transforms.RegexRouter",
        "io.confluent.connect.transforms.ExtractTopic$Value",
        "com.example.TenantRouter",
    ],
)
def test_a_connector_that_renames_topics_is_not_taken_over(
    world: World, groups: Groups, tmp_path: Path, router: str
) -> None:
    """Its objects are in folders of other topics, where nobody looks for them."""
    path = tmp_path / "connector.json"
    path.write_text(json.dumps({**MINIMAL, "transforms": "a", "transforms.a.type": router}))
    output = world.cli("takeover", str(path), "--without-transforms", "--apply")
    assert (output.code, f"{router}: objects of the sink are in folders of other topics" in output.error) == (2, True)
    assert groups.asked == []


def test_a_group_that_cannot_be_read_is_an_error(
    world: World, connector: Path, groups: Groups, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is recorded."""

    def refuse(name: str) -> ConsumerGroup:
        raise ConfigurationError(f"no {name}")

    monkeypatch.setattr(groups, "consumer_group", refuse)
    output = world.cli("takeover", str(connector), "--apply")
    assert (output.code, "no connect-orders-to-s3" in output.error) == (2, True)
    assert markers(world) == []


def test_objects_of_the_sink_that_readers_read_twice_are_listed(world: World, groups: Groups, tmp_path: Path) -> None:
    """With commands that move them; the takeover goes on, and repeats them."""
    path = tmp_path / "connector.json"
    path.write_text(json.dumps({**DEVIANTART, "topics": "orders"}))
    records = [(offset, str(offset)) for offset in range(4)]
    for day in ("2026-01-02", "2026-01-03"):
        # The marker file of the second day replaces that of the first one.
        for key, body in sink_objects("raw/backup/", day, "orders", 0, records, block_size=100).items():
            world.bucket.delete(key)
            world.bucket.put_new(key, body)
    dry = world.cli("takeover", str(path), "--endpoint-url", "http://s3:9000")
    key = "raw/backup/2026-01-02/orders-00000-000000000000"
    aside = "raw/backup/_kafka_s3/orders-backup/orders/set_aside"
    why = f"# begins at the same offset as s3://lake/{key.replace('-02/', '-03/')}.gz, to which the marker leads"
    move = "aws --endpoint-url http://s3:9000 s3 mv s3://lake"
    assert (dry.code, dry.out.splitlines()[6:]) == (
        0,
        [
            why,
            f"{move}/{key}.gz s3://lake/{aside}/{key}.gz",
            why,
            f"{move}/{key}.index.json s3://lake/{aside}/{key}.index.json",
        ],
    )
    assert dry.out.splitlines()[5].startswith("twice: 2 objects of the sink")
    applied = world.cli("takeover", str(path), "--apply", "--json")
    assert applied.code == 0
    assert [one["from"] for one in applied.data["duplicates"]] == [f"s3://lake/{key}.gz", f"s3://lake/{key}.index.json"]
    assert applied.data["move"] == []
    assert applied.data["topics"][0]["partitions"][0]["start"] == 4
    assert world.bucket.head(f"{key}.gz") is not None
