"""A stopped sink of Kafka Connect, taken over: real offsets of a consumer group, real objects, an S3 server over HTTP.

The objects are those that the real sink wrote. A sink that stopped between an upload and the commit of its offsets is
one whose group has the offsets of an earlier commit.
"""

from __future__ import annotations

import gzip
import json
import shlex
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_kafka_s3.batch.request import RunRequest, TopicResult
from airflow_provider_kafka_s3.cli import main
from airflow_provider_kafka_s3.kafka.source import KafkaSource
from airflow_provider_kafka_s3.kafka_connect.convert import convert, layout_of
from airflow_provider_kafka_s3.pipeline import TopicPipeline
from airflow_provider_kafka_s3.retry import Retrier
from airflow_provider_kafka_s3.storage.durable import DurableStore
from airflow_provider_kafka_s3.storage.s3 import S3Credentials, S3Settings, S3Store, make_client
from dev.kafka_broker import KafkaBroker, Message
from dev.s3_server import S3Server
from tests.connect_corpus import SCENARIOS, Scenario
from tests.unit.kafka_connect.connectors import DEVIANTART

if TYPE_CHECKING:
    from confluent_kafka import Consumer

PASSWORD = "canary-of-the-secret-key"


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    """An S3 server with a bucket."""
    with S3Server(buckets=["lake"]) as server:
        yield server


class Sink:
    """A connector that has stopped, and the command line."""

    def __init__(
        self,
        scenario: Scenario,
        broker: KafkaBroker,
        s3: S3Server,
        topic: str,
        folder: Path,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        self.scenario = scenario
        self.topic = topic
        self.group = f"connect-{topic}"
        self._broker = broker
        self._endpoint = s3.endpoint
        self._capsys = capsys
        settings = S3Settings(endpoint_url=s3.endpoint, region="us-east-1")
        self.client = make_client(settings, S3Credentials(access_key_id="test", secret_access_key=PASSWORD))
        self.source = KafkaSource({"bootstrap.servers": broker.bootstrap_servers})
        self.store = DurableStore(S3Store(self.client, "lake"), Retrier())
        self.connector = scenario.connector(topic)
        self.file = folder / "connector.json"
        self.file.write_text(json.dumps(self.connector))
        broker.create_topic(topic, scenario.partitions)
        broker.produce(topic, self._messages())
        if deleted := scenario.case.get("prepare", {}).get("delete_before"):
            broker.delete_records(topic, {0: deleted})
        for key, body in scenario.objects(topic).items():
            self.client.put_object(Bucket="lake", Key=key, Body=body)

    def _messages(self) -> Iterator[Message]:
        """The records, and those that are deleted before the sink reads."""
        for partition, records in self.scenario.records.items():
            at = 0
            for record in records:
                yield from (Message(b"gone", partition=partition) for _ in range(record.offset - at))
                yield Message(record.value, record.key, partition, record.timestamp)
                at = record.offset + 1

    def commit(self, offsets: Mapping[int, int]) -> None:
        """Commit offsets of its consumer group, and leave the group."""
        from confluent_kafka import TopicPartition

        consumer = self.consumer()
        consumer.commit(offsets=[TopicPartition(self.topic, p, o) for p, o in offsets.items()], asynchronous=False)
        consumer.close()

    def consumer(self) -> Consumer:
        """A member of its consumer group."""
        from confluent_kafka import Consumer

        return Consumer(
            {
                "bootstrap.servers": self._broker.bootstrap_servers,
                "group.id": self.group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
            }
        )

    def delete(self, key: str) -> None:
        """Delete an object that the sink had not uploaded yet."""
        assert key in self.objects()
        self.client.delete_object(Bucket="lake", Key=key)

    def objects(self) -> dict[str, bytes]:
        """Objects that readers see, by their keys."""
        found = {}
        for info in self.store.list(self.data_prefix):
            stored = self.store.get(info.key)
            assert stored is not None
            found[info.key] = stored.body
        return found

    @property
    def data_prefix(self) -> str:
        """The folder of the topic."""
        return f"{self.connector.get('topics.dir', 'topics')}/{self.topic}/"

    def takeover(self, *more: str, code: int = 0) -> dict[str, Any]:
        """Run the command and return its JSON."""
        where = ("--bootstrap-server", self._broker.bootstrap_servers, "--endpoint-url", self._endpoint)
        self._capsys.readouterr()
        found = main.main(["takeover", str(self.file), *where, "--region", "us-east-1", "--json", *more])
        output = self._capsys.readouterr()
        assert found == code, output.out + output.err
        data: dict[str, Any] = json.loads(output.out)
        return data

    def begins(self, data: Mapping[str, Any]) -> dict[int, int]:
        """Per partition where the pipeline begins."""
        return {one["partition"]: one["start"] for one in data["topics"][0]["partitions"]}

    def move_as_told(self, data: Mapping[str, Any]) -> None:
        """Move objects like ``aws s3 mv``."""
        for move in data["move"]:
            source, target = (str(move[name]).removeprefix("s3://lake/") for name in ("from", "to"))
            self.client.copy_object(Bucket="lake", Key=target, CopySource={"Bucket": "lake", "Key": source})
            self.client.delete_object(Bucket="lake", Key=source)

    def land(self, run: str = "first") -> TopicResult:
        """Run the pipeline to which the connector is converted, without Spark."""
        parameters = convert(self.connector).parameters
        layout = layout_of(parameters)
        pipeline = TopicPipeline(
            self.store,
            self.source,
            topics_dir=layout.topics_dir,
            pipeline=parameters["pipeline"],
            topic=self.topic,
        )
        return pipeline.land(
            RunRequest(run=run, offsets="incremental", layout=layout, starting=parameters["starting_offsets"])
        )

    def require_each_record_once(self) -> None:
        """The visible objects have each record of Kafka once, and no other."""
        landed: Counter[str] = Counter()
        for key, body in self.objects().items():
            text = gzip.decompress(body) if key.endswith(".gz") else body
            landed.update(json.dumps(json.loads(line), sort_keys=True) for line in text.splitlines())
        produced = [
            json.loads(record.value)
            for records in self.scenario.records.values()
            for record in records
            if record.value is not None
        ]
        wanted = [one["payload"] if "envelope" in self.scenario.case else one for one in produced]
        assert landed == Counter(json.dumps(one, sort_keys=True) for one in wanted)


MakeSink = Callable[[str], Sink]


@pytest.fixture
def sink(
    kafka_broker: KafkaBroker,
    s3: S3Server,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> MakeSink:
    """Make a stopped sink of a recorded scenario."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", PASSWORD)

    def make(scenario_id: str) -> Sink:
        topic = f"t-{scenario_id.lower()}-{uuid.uuid4()}"
        return Sink(SCENARIOS[scenario_id], kafka_broker, s3, topic, tmp_path, capsys)

    return make


@pytest.mark.parametrize("scenario_id", ["D03", "D04", "D12", "T01", "R01", "F01"])
def test_a_sink_that_stopped_cleanly_goes_on_at_its_committed_offsets(sink: MakeSink, scenario_id: str) -> None:
    """Default, field and time partitioners: records that it had open are landed, and every record is there once."""
    stopped = sink(scenario_id)
    stopped.commit(stopped.scenario.committed)
    before, written = stopped.objects(), stopped.store.list("topics/_kafka_s3/")

    assert stopped.begins(stopped.takeover()) == stopped.scenario.committed
    assert stopped.store.list("topics/_kafka_s3/") == written
    assert stopped.begins(stopped.takeover("--apply")) == stopped.scenario.committed
    stopped.land()

    stopped.require_each_record_once()
    assert before.items() <= stopped.objects().items()
    again = stopped.takeover("--apply")
    assert again["topics"][0]["done"]


@pytest.mark.parametrize(
    ("scenario_id", "committed", "start"),
    [
        ("D03", {0: 3, 1: 0}, {0: 6, 1: 3}),
        ("D12", {0: 2}, {0: 4}),
        ("F01", {0: 3}, {0: 6}),
        ("R01", {0: 5}, {0: 10}),
        ("R01", {0: 0}, {0: 10}),
    ],
)
def test_whole_objects_past_the_committed_offset_are_kept(
    sink: MakeSink, scenario_id: str, committed: dict[int, int], start: dict[int, int]
) -> None:
    """The sink uploaded them and stopped before the commit: the pipeline goes on behind them."""
    stopped = sink(scenario_id)
    stopped.commit(committed)
    before = stopped.objects()

    data = stopped.takeover("--apply")
    assert (stopped.begins(data), data["move"]) == (start, [])
    stopped.land()

    stopped.require_each_record_once()
    assert before.items() <= stopped.objects().items()
    assert stopped.takeover("--apply")["topics"][0]["done"]


@pytest.mark.parametrize(
    ("scenario_id", "committed", "missing", "start", "moved"),
    [
        ("F01", {0: 3}, "f=b/{}+0+0000000005.json", {0: 5}, 0),
        ("F01", {0: 0}, "f=b/{}+0+0000000001.json", {0: 0}, 4),
        ("R01", {0: 5}, "year=2017/month=03/day=02/hour=19/{}+0+0000000008.json", {0: 5}, 2),
        ("T01", {0: 0}, "year=2017/month=03/day=02/hour=18/{}+0+0000000001.json", {0: 1}, 2),
        ("D03", {0: 0, 1: 0}, "partition=0/{}+0+0000000000.json", {0: 0, 1: 3}, 1),
    ],
)
def test_objects_of_an_unfinished_commit_are_moved_by_a_person_and_landed_again(
    sink: MakeSink, scenario_id: str, committed: dict[int, int], missing: str, start: dict[int, int], moved: int
) -> None:
    """The sink stopped between the uploads of several folders: nothing is recorded until the rest is out of the way."""
    stopped = sink(scenario_id)
    stopped.delete(stopped.data_prefix + missing.format(stopped.topic))
    stopped.commit(committed)
    before = stopped.objects()

    data = stopped.takeover(code=1 if moved else 0)
    assert (stopped.begins(data), len(data["move"])) == (start, moved)
    if moved:
        refused = stopped.takeover("--apply", code=3)
        assert refused["error"]["kind"] == "foreign_object"
        assert stopped.objects() == before
        stopped.move_as_told(data)
    assert stopped.begins(stopped.takeover("--apply")) == start
    stopped.land()

    stopped.require_each_record_once()
    for move in data["move"]:
        kept = stopped.store.get(str(move["to"]).removeprefix("s3://lake/"))
        assert kept is not None
        assert kept.body == before[str(move["from"]).removeprefix("s3://lake/")]


def test_the_commands_for_objects_in_the_way_are_printed(sink: MakeSink, capsys: pytest.CaptureFixture[str]) -> None:
    """A line for each, quoted for a shell, with the store's address."""
    stopped = sink("R01")
    stopped.delete(f"{stopped.data_prefix}year=2017/month=03/day=02/hour=19/{stopped.topic}+0+0000000008.json")
    stopped.commit({0: 5})
    moves = stopped.takeover(code=1)["move"]
    where = ("--bootstrap-server", stopped._broker.bootstrap_servers, "--endpoint-url", stopped._endpoint)
    assert main.main(["takeover", str(stopped.file), *where, "--region", "us-east-1"]) == 1
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("aws ")]
    expected = [["aws", "--endpoint-url", stopped._endpoint, "s3", "mv", m["from"], m["to"]] for m in moves]
    assert [shlex.split(line) for line in lines] == expected


def test_a_running_sink_is_not_taken_over(sink: MakeSink) -> None:
    """While its group has members, nothing is recorded."""
    stopped = sink("D03")
    stopped.commit(stopped.scenario.committed)
    member = stopped.consumer()
    member.subscribe([stopped.topic])
    while not member.assignment():
        member.poll(0.1)

    refused = stopped.takeover("--apply", code=2)
    assert "active members" in refused["error"]["message"]
    member.close()
    assert stopped.begins(stopped.takeover("--apply")) == stopped.scenario.committed


def test_records_that_kafka_has_deleted_are_counted(sink: MakeSink, kafka_broker: KafkaBroker) -> None:
    """Kafka begins behind the committed offset: the loss is an error, and nothing is recorded."""
    stopped = sink("D03")
    stopped.commit({0: 3, 1: 3})
    kafka_broker.delete_records(stopped.topic, {0: 5})
    refused = stopped.takeover("--apply", code=3)
    assert refused["error"]["kind"] == "data_loss"
    assert "2 offsets" in refused["error"]["message"]
    assert "partition 0: [3, 5)" in refused["error"]["message"]


def test_a_partition_without_a_committed_offset_needs_a_decision(sink: MakeSink) -> None:
    """It is an error, or begins at the first offset in Kafka and behind what the objects have."""
    stopped = sink("D03")
    stopped.commit({0: 6})
    refused = stopped.takeover("--apply", code=2)
    assert "partitions 1" in refused["error"]["message"]
    assert stopped.begins(stopped.takeover("--apply", "--without-offset", "earliest")) == {0: 6, 1: 3}
    stopped.land()
    stopped.require_each_record_once()


def test_a_pipeline_that_began_elsewhere_is_not_changed(sink: MakeSink) -> None:
    """Its stored offsets and its objects stay."""
    stopped = sink("D12")
    for key in stopped.objects():
        stopped.delete(key)
    stopped.land()
    stopped.commit({0: 2})
    before = stopped.objects()
    refused = stopped.takeover("--apply", code=2)
    assert "has begun topic" in refused["error"]["message"]
    assert "has landed batches" in refused["error"]["message"]
    assert stopped.objects() == before
    stopped.require_each_record_once()


def test_the_sink_of_deviantart_is_taken_over_by_its_markers(
    kafka_broker: KafkaBroker,
    s3: S3Server,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    make_topic: Callable[..., str],
) -> None:
    """Transactions leave gaps in the offsets: the records of the last chunk are counted in Kafka."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", PASSWORD)
    topic = make_topic()
    values = [b"record %d" % n for n in range(9)]
    for start in range(0, 9, 3):
        messages = [Message(value, partition=0) for value in values[start : start + 3]]
        kafka_broker.produce_transaction(topic, messages)
    connector = {**DEVIANTART, "name": topic, "topics": topic, "s3.prefix": topic}
    (tmp_path / "connector.json").write_text(json.dumps(connector))
    client = make_client(
        S3Settings(endpoint_url=s3.endpoint, region="us-east-1"),
        S3Credentials(access_key_id="test", secret_access_key=PASSWORD),
    )
    chunk = gzip.compress(b"".join(value + b"\n" for value in values[:5]), mtime=0)
    name = f"{topic}/2026-01-02/{topic}-00000-000000000000"
    place = {"byte_offset": 0, "byte_length": len(chunk), "first_record_offset": 0, "num_records": 5}
    for key, body in {
        f"{name}.gz": chunk,
        f"{name}.index.json": json.dumps({"chunks": [place]}).encode(),
        f"{topic}/last_chunk_index.{topic}-00000.txt": f"{name}.index.json".encode(),
    }.items():
        client.put_object(Bucket="lake", Key=key, Body=body)

    where = ("--bootstrap-server", kafka_broker.bootstrap_servers, "--endpoint-url", s3.endpoint)
    line = ["takeover", str(tmp_path / "connector.json"), *where, "--region", "us-east-1", "--json", "--apply"]
    assert main.main(line) == 0
    (found,) = json.loads(capsys.readouterr().out)["topics"]
    # Offsets 0, 1, 2, a mark of the transaction, 4, 5: the next record has offset 6.
    assert found["partitions"][0]["start"] == 6

    layout = layout_of(convert(connector).parameters)
    store = DurableStore(S3Store(client, "lake"), Retrier())
    source = KafkaSource({"bootstrap.servers": kafka_broker.bootstrap_servers})
    pipeline = TopicPipeline(store, source, topics_dir=topic, pipeline=topic, topic=topic)
    pipeline.land(RunRequest(run="first", offsets="incremental", layout=layout, starting="earliest"))
    objects = [store.get(info.key) for info in store.list(f"{topic}/") if info.key.endswith(".gz")]
    lines = [line for one in objects if one is not None for line in gzip.decompress(one.body).splitlines()]
    assert sorted(lines) == values
