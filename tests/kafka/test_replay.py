"""Landed records are replayed into a real broker: equal to what was landed, each once, whatever is killed."""

from __future__ import annotations

import contextlib
import datetime as dt
import functools
import itertools
import json
import os
import random
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from airflow_provider_kafka_s3.batch.location import TopicLocation
from airflow_provider_kafka_s3.cli.main import main
from airflow_provider_kafka_s3.config import (
    AvroContainer,
    BlockGzip,
    ByField,
    BytesConverter,
    Daily,
    Envelope,
    JsonConverter,
    JsonLines,
    Layout,
    Parquet,
    RawBytes,
    SiblingObjects,
)
from airflow_provider_kafka_s3.documents.addresses import TopicAddress
from airflow_provider_kafka_s3.exceptions import ConfigurationError, KafkaS3Error, TopicRecreatedError
from airflow_provider_kafka_s3.kafka.source import KafkaSource
from airflow_provider_kafka_s3.reading.record import Record
from airflow_provider_kafka_s3.replay.request import ReplayRequest
from airflow_provider_kafka_s3.replay.run import replay
from dev.kafka_broker import KafkaBroker, Message
from dev.s3_server import S3Server
from dev.supervisor import wait_until_stopped
from dev.waiting import wait_for_end
from tests.deviantart_sink import sink_objects
from tests.kafka.test_replay_sender import committed
from tests.spark.pipeline import CREDENTIALS, Pipeline, s3_settings

NOW = int(dt.datetime.now(dt.UTC).timestamp() * 1000) - 3_600_000
HEADERS: list[tuple[str, str | bytes | None]] = [("h", b"1"), ("h", b"\xff"), ("null", None)]


@pytest.fixture(scope="module")
def s3_server() -> Iterator[S3Server]:
    """A store that child processes reach."""
    with S3Server() as server:
        yield server


@pytest.fixture
def names(kafka_broker: KafkaBroker) -> tuple[str, str]:
    """A topic to land, and one to replay into."""
    source, target = (f"{name}-{uuid.uuid4().hex[:8]}" for name in ("landed", "replayed"))
    for name in (source, target):
        kafka_broker.create_topic(name, 2, {"max.message.bytes": "3000000"})
    return source, target


def land(broker: KafkaBroker, server: S3Server, topic: str, layout: Layout) -> tuple[Pipeline, TopicLocation]:
    """Land all records of a topic, without Spark."""
    pipeline = Pipeline(kafka={"bootstrap.servers": broker.bootstrap_servers}, endpoint=server.endpoint, layout=layout)
    pipeline.land_here(topic)
    return pipeline, pipeline.location(topic)


def send(broker: KafkaBroker, place: TopicLocation, target: str, **more: Any) -> Any:
    """Replay once."""
    how = {name: more.pop(name) for name in ("dry_run", "visible_within") if name in more}
    request = ReplayRequest(**{"replay": "again", "target": target, **more})
    return replay(place, {"bootstrap.servers": broker.bootstrap_servers}, request, **how)


def produce(broker: KafkaBroker, topic: str, count: int, partitions: int = 2, **more: Any) -> None:
    """Documents with a number, keys and headers."""
    broker.produce(
        topic,
        [
            Message(
                json.dumps({"n": n, "folder": n % 3}).encode(),
                key=b"k%d" % (n % 5),
                partition=n % partitions,
                timestamp=NOW + n,
            )
            for n in range(count)
        ],
        **more,
    )


def land_envelopes(broker: KafkaBroker, server: S3Server, topic: str, count: int) -> TopicLocation:
    """Produce documents and land them with all that a record has."""
    produce(broker, topic, count)
    return land(broker, server, topic, Layout(format=JsonLines(), content=Envelope()))[1]


ENVELOPES = [
    JsonLines(compression="gzip", on_null="write"),
    BlockGzip(lines=JsonLines(on_null="write"), block_size=1000),
    AvroContainer(codec="deflate", on_null="write"),
    Parquet(on_null="write"),
]


@pytest.mark.parametrize("record_format", ENVELOPES, ids=lambda f: type(f).__name__)
def test_whole_records_come_back_as_they_were(
    kafka_broker: KafkaBroker, s3_server: S3Server, names: tuple[str, str], record_format: Any
) -> None:
    """Null and empty values, equal keys, headers, timestamps, and a value of 1 MB; a second run sends nothing."""
    source, target = names
    values: list[bytes | None] = [b"one", None, b"", b"\x00\xff", os.urandom(1_000_000), b"x\n y"]
    kafka_broker.produce(
        source,
        [
            Message(value, key=key, partition=n % 2, timestamp=NOW + n, headers=HEADERS if n % 3 else None)
            for n, (value, key) in enumerate(itertools.product(values, [None, b"", b"key"]))
        ],
        message_max_bytes=3_000_000,
    )
    layout = Layout(format=record_format, content=Envelope(), value_converter=BytesConverter(), partitioner=Daily())
    pipeline, place = land(kafka_broker, s3_server, source, layout)
    done = send(kafka_broker, place, target)
    assert done.sent == {0: 9, 1: 9}
    for partition in (0, 1):
        assert committed(kafka_broker, target, partition) == committed(kafka_broker, source, partition)
    assert send(kafka_broker, place, target).sent == {0: 9, 1: 9}
    assert len(committed(kafka_broker, target, 0)) == 9
    pipeline.close()


def test_what_is_not_kept_is_named_before_anything_is_sent(
    kafka_broker: KafkaBroker, s3_server: S3Server, names: tuple[str, str]
) -> None:
    """And sent without it if that is acknowledged: values alone, then with their keys."""
    source, target = names
    produce(kafka_broker, source, 10)
    _, place = land(kafka_broker, s3_server, source, Layout(format=RawBytes()))
    with pytest.raises(ConfigurationError, match=r"sent without 'key', 'headers', 'timestamp'|without key, headers"):
        send(kafka_broker, place, target)
    with pytest.raises(ConfigurationError, match=r"needs what the objects of topic .* do not keep: key"):
        send(kafka_broker, place, target, key=b"k1", without=("key", "headers", "timestamp"))
    assert committed(kafka_broker, target, 0) == []
    send(kafka_broker, place, target, without=("key", "headers", "timestamp"))
    expected = [(r.value, None) for r in committed(kafka_broker, source, 1)]
    assert [(r.value, r.key) for r in committed(kafka_broker, target, 1)] == expected

    typed = Layout(
        format=JsonLines(),
        topics_dir="typed",
        value_converter=JsonConverter(schema=json.dumps({"type": "record", "name": "N", "fields": []})),
    )
    _, place = land(kafka_broker, s3_server, source, typed)
    with pytest.raises(ConfigurationError, match="do not keep the values as Kafka had them"):
        send(kafka_broker, place, target, replay="typed")


def test_order_is_kept_over_folders_where_offsets_are(
    kafka_broker: KafkaBroker, s3_server: S3Server, names: tuple[str, str]
) -> None:
    """Objects of three folders have the records of a partition in turn; keys beside values keep no offsets."""
    source, target = names
    produce(kafka_broker, source, 30)
    folders: dict[str, Any] = {"partitioner": ByField(names=("folder",)), "value_converter": JsonConverter()}
    _, place = land(kafka_broker, s3_server, source, Layout(format=JsonLines(), content=Envelope(), **folders))
    send(kafka_broker, place, target)
    assert committed(kafka_broker, target, 0) == committed(kafka_broker, source, 0)

    beside = SiblingObjects(keys=RawBytes())
    layout = Layout(format=JsonLines(), topics_dir="siblings", content=beside, **folders)
    _, place = land(kafka_broker, s3_server, source, layout)
    accepted = ("headers", "timestamp")
    with pytest.raises(ConfigurationError, match="order: objects of several folders have offsets in turn"):
        send(kafka_broker, place, target, replay="siblings", without=accepted)
    send(kafka_broker, place, target, replay="siblings", without=(*accepted, "order"))
    sent = committed(kafka_broker, target, 0)[15:]
    landed = committed(kafka_broker, source, 0)
    assert sorted((r.key, r.value) for r in sent) == sorted((r.key, r.value) for r in landed)


def test_a_selection_sends_only_its_records_and_a_dry_run_none(
    kafka_broker: KafkaBroker, s3_server: S3Server, names: tuple[str, str]
) -> None:
    """By key, time, offsets and partition."""
    source, target = names
    place = land_envelopes(kafka_broker, s3_server, source, 40)
    assert send(kafka_broker, place, target, dry_run=True).planned == {0: 20, 1: 20}
    assert committed(kafka_broker, target, 0) == []

    def found(**selection: Any) -> list[int]:
        before = [len(committed(kafka_broker, target, p)) for p in (0, 1)]
        send(kafka_broker, place, target, replay=uuid.uuid4().hex, **selection)
        rows = [r for p in (0, 1) for r in committed(kafka_broker, target, p)[before[p] :]]
        return sorted(json.loads(r.value or b"")["n"] for r in rows)

    assert found(key=b"k2") == [*range(2, 40, 5)]
    time = dt.datetime.fromtimestamp(NOW / 1000, dt.UTC)
    millisecond = dt.timedelta(milliseconds=1)
    assert found(since=time + 10 * millisecond, until=time + 15 * millisecond) == [*range(10, 15)]
    assert found(offsets={1: (5, 8)}) == [11, 13, 15]
    assert found(partitions=(0,)) == [*range(0, 40, 2)]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"retention.ms": "60000"}, r"has retention\.ms=60000, and records are up to \d+ ms old"),
        ({"message.timestamp.type": "LogAppendTime"}, "message.timestamp.type=LogAppendTime"),
        ({"message.timestamp.before.max.ms": "60000"}, r"message\.timestamp\.before\.max\.ms=60000"),
    ],
)
def test_a_target_that_would_not_keep_the_records_is_refused(
    kafka_broker: KafkaBroker, s3_server: S3Server, names: tuple[str, str], settings: dict[str, str], message: str
) -> None:
    """With the setting to change; nothing is sent. The same for the topic itself, and one with fewer partitions."""
    source, _ = names
    place = land_envelopes(kafka_broker, s3_server, source, 4)
    target = f"bad-{uuid.uuid4().hex[:8]}"
    kafka_broker.create_topic(target, 2, settings)
    with pytest.raises(ConfigurationError, match=message):
        send(kafka_broker, place, target)
    small = f"small-{uuid.uuid4().hex[:8]}"
    kafka_broker.create_topic(small, 1)
    with pytest.raises(ConfigurationError, match="has 1 partition, and records of partition 1 are to be sent"):
        send(kafka_broker, place, small, replay="small")
    with pytest.raises(ConfigurationError, match="is the one that was landed"):
        send(kafka_broker, place, source, replay="same")
    assert [len(committed(kafka_broker, name, 0)) for name in (target, small, source)] == [0, 0, 2]


def test_records_that_are_too_far_in_the_future_for_the_target_are_refused(
    kafka_broker: KafkaBroker, s3_server: S3Server, names: tuple[str, str]
) -> None:
    """With the setting to change, before any record is sent."""
    _, target = names
    source = f"future-{uuid.uuid4().hex[:8]}"
    kafka_broker.create_topic(source, 1, {"message.timestamp.after.max.ms": str(2**62)})
    later = int(time.time() * 1000) + 86_400_000
    kafka_broker.produce(source, [Message(b"now", partition=0), Message(b"later", partition=0, timestamp=later)])
    layout = Layout(format=JsonLines(), content=Envelope(), value_converter=BytesConverter())
    _, place = land(kafka_broker, s3_server, source, layout)
    with pytest.raises(ConfigurationError, match=r"message\.timestamp\.after\.max\.ms=3600000, and records are up to"):
        send(kafka_broker, place, target)
    assert committed(kafka_broker, target, 0) == []


def test_a_replay_is_what_it_was_when_it_was_planned(
    kafka_broker: KafkaBroker, s3_server: S3Server, names: tuple[str, str]
) -> None:
    """Later batches are not part of it, and other settings under the same id are refused."""
    source, target = names
    accepted = ("key", "headers", "timestamp")
    produce(kafka_broker, source, 10)
    pipeline, place = land(kafka_broker, s3_server, source, Layout(format=JsonLines()))
    send(kafka_broker, place, target, partitions=(0,), without=accepted)
    produce(kafka_broker, source, 10)
    pipeline.land_here(source, "later")
    assert send(kafka_broker, place, target, partitions=(0,), without=accepted).sent == {0: 5}
    assert pipeline.check(source).records == 20
    with pytest.raises(ConfigurationError, match="planned before with other settings: partitions"):
        send(kafka_broker, place, target, without=accepted)
    assert len(committed(kafka_broker, target, 0)) == 5


def test_a_rate_is_that_of_what_is_sent(kafka_broker: KafkaBroker, s3_server: S3Server, names: tuple[str, str]) -> None:
    """A transaction has the records of a second at most: its end has an offset, too."""
    source, target = names
    place = land_envelopes(kafka_broker, s3_server, source, 300)
    assert send(kafka_broker, place, target, records_per_second=200.0).sent == {0: 150, 1: 150}
    ends = KafkaSource({"bootstrap.servers": kafka_broker.bootstrap_servers}).ends(target, (0, 1), "read_uncommitted")
    assert all(end >= 150 + 2 for end in ends.values()), ends
    assert len(committed(kafka_broker, target, 0)) == 150


SCRIPT = """
import json, sys
from airflow_provider_kafka_s3.batch.location import TopicLocation
from airflow_provider_kafka_s3.documents.addresses import TopicAddress
from airflow_provider_kafka_s3.kafka.source import KafkaSource
from airflow_provider_kafka_s3.replay.request import ReplayRequest
from airflow_provider_kafka_s3.replay.run import replay
from airflow_provider_kafka_s3.storage.credentials import S3Credentials
from airflow_provider_kafka_s3.storage.s3 import S3Settings

if __name__ == "__main__":
    given = json.load(sys.stdin)
    login, s3 = S3Credentials(**given.pop("login")), S3Settings(**given.pop("s3"))
    place = TopicLocation(given.pop("bucket"), TopicAddress(**given.pop("address")), s3, login)
    request = ReplayRequest(replay="killed", target=given["target"], records_per_second=6_000)
    replay(place, {"bootstrap.servers": given["servers"], **given["kafka"]}, request, stalled_after=15)
"""


def start_process(
    broker: KafkaBroker, server: S3Server, place: TopicLocation, target: str, folder: Path, **kafka: object
) -> subprocess.Popen[bytes]:
    """A replay by a process of its own, with some settings of the Kafka client."""
    script = folder / "script.py"
    script.write_text(SCRIPT)
    given = {
        "login": {"access_key_id": CREDENTIALS.access_key_id, "secret_access_key": CREDENTIALS.secret_access_key},
        "s3": {"endpoint_url": server.endpoint, "region": "us-east-1", "addressing_style": "path"},
        "bucket": place.bucket,
        "address": msgspec.structs.asdict(place.address),
        "target": target,
        "servers": broker.bootstrap_servers,
        "kafka": kafka,
    }
    process = subprocess.Popen([sys.executable, str(script)], stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(json.dumps(given).encode())
    process.stdin.close()
    process.stdin = None
    return process


def test_a_replay_that_is_killed_sends_each_record_once(
    kafka_broker: KafkaBroker, s3_server: S3Server, names: tuple[str, str], tmp_path: Path
) -> None:
    """Kill -9 of both processes, of the parent, and of the child, at random moments."""
    source, target = names
    count = 30_000
    place = land_envelopes(kafka_broker, s3_server, source, count)

    def start() -> subprocess.Popen[bytes]:
        return start_process(kafka_broker, s3_server, place, target, tmp_path)

    reader = KafkaSource({"bootstrap.servers": kafka_broker.bootstrap_servers})

    def sent() -> int:
        # Records of open and aborted transactions, too.
        return sum(reader.ends(target, (0, 1), "read_uncommitted").values())

    rng = random.Random(7)
    for which in ("all", "parent", "child"):
        process = start()
        more = sent() + rng.randrange(1, count // 4)
        while sent() < more:
            assert process.poll() is None, process.communicate()[1].decode()
        parent = psutil.Process(process.pid)
        children = parent.children(recursive=True)
        for one in {"all": [parent, *children], "parent": [parent], "child": children}[which]:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
        process.communicate(timeout=120)
        if which == "parent":
            # The child has an end of the pipe to its parent, and ends by itself.
            wait_for_end(children, "the senders")
    assert process.returncode == 0, "the parent has started another child"
    for partition in (0, 1):
        assert committed(kafka_broker, target, partition) == committed(kafka_broker, source, partition)


def test_two_replays_at_once_send_each_record_once(
    kafka_broker: KafkaBroker, s3_server: S3Server, names: tuple[str, str], tmp_path: Path
) -> None:
    """One goes on; the other one says that it was overtaken, and finds nothing left if it is repeated."""
    source, target = names
    place = land_envelopes(kafka_broker, s3_server, source, 12_000)
    processes = [start_process(kafka_broker, s3_server, place, target, tmp_path) for _ in range(2)]
    errors = [process.communicate(timeout=120)[1] for process in processes]
    failed = [text.decode() for process, text in zip(processes, errors, strict=True) if process.returncode]
    assert len(failed) < len(processes), failed
    assert all("ReplayOvertakenError" in text for text in failed), failed
    again = start_process(kafka_broker, s3_server, place, target, tmp_path)
    _, text = again.communicate(timeout=120)
    assert again.returncode == 0, text.decode()
    for partition in (0, 1):
        assert committed(kafka_broker, target, partition) == committed(kafka_broker, source, partition)


def test_records_of_a_topic_that_does_not_exist_are_not_sent(
    kafka_broker: KafkaBroker, s3_server: S3Server, names: tuple[str, str]
) -> None:
    """The error names the topic; the replay can be repeated when it exists."""
    source, _ = names
    place = land_envelopes(kafka_broker, s3_server, source, 4)
    absent = f"absent-{uuid.uuid4().hex[:8]}"
    with pytest.raises(KafkaS3Error, match=absent):
        send(kafka_broker, place, absent)
    kafka_broker.create_topic(absent, 2)
    assert send(kafka_broker, place, absent).sent == {0: 2, 1: 2}
    assert committed(kafka_broker, absent, 0) == committed(kafka_broker, source, 0)


def test_a_record_is_what_the_reader_gives() -> None:
    """The comparison above is of all parts."""
    assert Record(0, 1, 2, None, None) != Record(0, 1, 2, None, b"")


def test_a_target_that_takes_small_batches_gets_many_small_records(
    kafka_broker: KafkaBroker, s3_server: S3Server, names: tuple[str, str]
) -> None:
    """Each of them fits, and so does each request."""
    source, _ = names
    place = land_envelopes(kafka_broker, s3_server, source, 5_000)
    small = f"small-{uuid.uuid4().hex[:8]}"
    kafka_broker.create_topic(small, 2, {"max.message.bytes": "2000"})
    assert send(kafka_broker, place, small).sent == {0: 2_500, 1: 2_500}
    assert committed(kafka_broker, small, 1) == committed(kafka_broker, source, 1)


def test_a_dry_run_shows_what_some_records_have_otherwise(
    kafka_broker: KafkaBroker,
    s3_server: S3Server,
    names: tuple[str, str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By the command line, which sends nothing and creates no document."""
    source, target = names
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", CREDENTIALS.access_key_id)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", CREDENTIALS.secret_access_key)
    produce(kafka_broker, source, 4)
    layout = Layout(format=JsonLines(), content=Envelope(), value_converter=JsonConverter())
    pipeline, place = land(kafka_broker, s3_server, source, layout)
    options = [
        "--bucket",
        place.bucket,
        "--pipeline",
        place.address.pipeline,
        "--topic",
        source,
        "--to",
        target,
        "--id",
        "dry",
    ]
    servers = ["--bootstrap-server", kafka_broker.bootstrap_servers, "--endpoint-url", s3_server.endpoint]
    style = ["--region", "us-east-1", "--addressing-style", "path"]
    assert main(["replay", *options, *servers, *style, "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert "4 records in its objects would be read; nothing was sent" in shown
    assert "of some records, value: a document with newlines was rewritten in one line" in shown
    assert committed(kafka_broker, target, 0) == []
    assert not [info.key for info in pipeline.store.list("") if "/replays/" in info.key]


def test_replays_of_two_pipelines_with_one_id_send_all_records_of_both(
    kafka_broker: KafkaBroker, s3_server: S3Server, names: tuple[str, str]
) -> None:
    """To one target: neither takes the progress of the other for its own."""
    source, target = names
    produce(kafka_broker, source, 10)
    layout = Layout(format=JsonLines(), content=Envelope())
    for _ in range(2):
        _, place = land(kafka_broker, s3_server, source, layout)
        assert send(kafka_broker, place, target).sent == {0: 5, 1: 5}
    for partition in (0, 1):
        landed = [record.value for record in committed(kafka_broker, source, partition)]
        assert [record.value for record in committed(kafka_broker, target, partition)] == landed * 2


def test_a_target_that_was_created_again_gets_nothing_under_the_same_id(
    kafka_broker: KafkaBroker, s3_server: S3Server, names: tuple[str, str]
) -> None:
    """Another id sends all records to it."""
    source, target = names
    place = land_envelopes(kafka_broker, s3_server, source, 10)
    send(kafka_broker, place, target)
    kafka_broker.delete_topic(target)
    kafka_broker.create_topic(target, 2)
    with pytest.raises(TopicRecreatedError, match=f"{target}' was deleted and created again since replay 'again'"):
        send(kafka_broker, place, target)
    assert committed(kafka_broker, target, 0) == []
    assert send(kafka_broker, place, target, replay="another").sent == {0: 5, 1: 5}


@pytest.mark.parametrize("written_by", ["confluent", "deviantart"])
def test_objects_of_another_sink_are_sent_once(
    kafka_broker: KafkaBroker, s3_server: S3Server, names: tuple[str, str], written_by: str
) -> None:
    """In order, by two runs of the same id; the bucket has the replay's documents, and the sink's objects as before."""
    source, target = names
    config = {"bootstrap.servers": kafka_broker.bootstrap_servers}
    pipeline = Pipeline(kafka=config, endpoint=s3_server.endpoint, layout=Layout(format=JsonLines()))
    lines = [f'{{"n": {n}}}' for n in range(25_000)]
    if written_by == "deviantart":
        objects = {
            **sink_objects("topics/", "2026-01-02", source, 1, [*enumerate(lines)][:20_000], block_size=50_000),
            **sink_objects("topics/", "2026-01-03", source, 1, [*enumerate(lines)][20_000:], block_size=50_000),
        }
    else:
        folder = f"topics/{source}/partition=1/{source}+1+"
        objects = {
            f"{folder}{n:010}.json": "".join(f"{line}\n" for line in lines[n : n + 10_000]).encode()
            for n in range(0, 25_000, 10_000)
        }
    for key, body in objects.items():
        pipeline.client.put_object(Bucket=pipeline.bucket, Key=key, Body=body)
    address = TopicAddress(topics_dir="topics", pipeline="restore", topic=source)
    place = TopicLocation(pipeline.bucket, address, s3_settings(s3_server.endpoint), CREDENTIALS)
    accepted = ("key", "headers", "timestamp", *(["bytes"] if written_by == "confluent" else []))
    for _ in range(2):
        sent = send(kafka_broker, place, target, written_by=written_by, without=accepted)
        assert sent.sent == {1: 25_000}
    assert [record.value for record in committed(kafka_broker, target, 1)] == [line.encode() for line in lines]
    assert committed(kafka_broker, target, 0) == []
    stored = {info.key: pipeline.store.get(info.key) for info in pipeline.store.list("")}
    assert {key: found.body for key, found in stored.items() if found and "/replays/" not in key} == objects


def test_a_broker_that_dies_and_comes_back_gets_each_record_once(s3_server: S3Server, tmp_path: Path) -> None:
    """The transaction that was open is aborted, and the replay goes on by itself or is repeated.

    The broker does not die while it commits one: if it is the only broker, Kafka 4.3 then hides the records for ever.
    """
    with KafkaBroker() as broker:
        for name in ("landed", "target", "other"):
            broker.create_topic(name, 1)
        produce(broker, "landed", 30_000, 1)
        _, place = land(broker, s3_server, "landed", Layout(format=JsonLines(), content=Envelope()))
        ends = functools.partial(KafkaSource({"bootstrap.servers": broker.bootstrap_servers}).ends, "target", (0,))

        def is_open() -> bool:
            return ends("read_committed") != ends("read_uncommitted")

        # Many small requests keep a transaction open for long.
        process = start_process(broker, s3_server, place, "target", tmp_path, **{"batch.num.messages": 100})
        while True:
            assert process.poll() is None, process.communicate()[1].decode()
            if not is_open():
                continue
            senders = psutil.Process(process.pid).children(recursive=True)
            for one in senders:
                one.suspend()
            wait_until_stopped(senders)
            # What a sender has requested before is done when all of a later transaction is.
            broker.produce_transaction("other", [Message(b"later")])
            if is_open():
                break
            for one in senders:
                one.resume()
        broker.kill()
        for one in senders:
            one.resume()
        broker.restart()
        process.communicate(timeout=120)
        again = start_process(broker, s3_server, place, "target", tmp_path)
        _, errors = again.communicate(timeout=120)
        assert again.returncode == 0, errors.decode()
        assert committed(broker, "target", 0) == committed(broker, "landed", 0)


def test_records_that_consumers_of_committed_records_cannot_read_yet_are_named(
    kafka_broker: KafkaBroker, s3_server: S3Server, names: tuple[str, str]
) -> None:
    """A transaction of another producer is open in the target; the replay ends, and names the offset from which on."""
    source, target = names
    place = land_envelopes(kafka_broker, s3_server, source, 10)
    other = kafka_broker.producer(transactional_id=f"other-{target}")
    other.init_transactions(60)
    other.begin_transaction()
    other.produce(target, b"of another producer", partition=1)
    assert other.flush(60) == 0
    done = send(kafka_broker, place, target, visible_within=3)
    assert (done.sent, done.last_stable_offsets) == ({0: 5, 1: 5}, {1: 0})
    other.abort_transaction(60)
    assert committed(kafka_broker, target, 1) == committed(kafka_broker, source, 1)
