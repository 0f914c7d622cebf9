"""A document of a replay that cannot be trusted ends it for good, with what to do; nothing is sent by it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from airflow_provider_kafka_s3.documents.codec import canonical, digest
from airflow_provider_kafka_s3.exceptions import CorruptControlError, KafkaS3Error, TerminalError, message_of
from airflow_provider_kafka_s3.reading.record import Record
from airflow_provider_kafka_s3.storage.port import StoredObject
from tests.unit.replay.cluster import PARTITIONS, RECORDS, Replay

VALUES = [b"%d" % n for n in range(RECORDS)]
ALL = dict.fromkeys(range(PARTITIONS), RECORDS)
WAYS_OUT = {"plan": "send what is missing with another id", "end": "delete this document and repeat the replay"}


@pytest.fixture
def replay(monkeypatch: pytest.MonkeyPatch) -> Replay:
    """Partition 0 is complete, of partition 1 some records are sent, and of partition 2 none."""
    found = Replay(monkeypatch)
    assert found.replay().sent == ALL
    for name in ("end-{}-1", "end-{}-2", "begin-{}-2"):
        found.topic.bucket.delete(found.key(name.format(found.nonce)))
    del found.cluster.sent[1][2:], found.cluster.sent[2]
    return found


def signed(body: dict[str, Any]) -> bytes:
    """A document with a valid checksum."""
    return canonical({**body, "sha256": digest({name: v for name, v in body.items() if name != "sha256"})})


def leaves(body: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths of values inside a document."""
    children = body.items() if isinstance(body, dict) else enumerate(body) if isinstance(body, list) else ()
    for name, child in children:
        yield (*path, name)
        yield from leaves(child, (*path, name))


def replaced(body: Any, path: tuple[Any, ...], value: Any) -> Any:
    """A copy with another value at a path."""
    copy: Any = json.loads(json.dumps(body))
    place = copy
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    return copy


@pytest.mark.parametrize("name", WAYS_OUT)
@pytest.mark.parametrize(
    "damage",
    [
        lambda body: b"",
        lambda body: body[: len(body) // 2],
        lambda body: body.replace(b"kind", b"kinD"),
        lambda body: signed({**json.loads(body), "replay": "another"}),
        lambda body: signed({**json.loads(body), "records": -1, "partitions": {}}),
    ],
    ids=["empty", "cut", "changed", "of another replay", "impossible"],
)
def test_a_damaged_document_ends_the_replay_with_the_way_out(
    replay: Replay, name: str, damage: Callable[[bytes], bytes]
) -> None:
    """It is not repeated; the error has the document, and what to do without an earlier version of it."""
    replay.put(name, damage(replay.body(name)))
    with pytest.raises(CorruptControlError) as refused:
        replay.replay()
    assert replay.topic.bucket.url(replay.document(name)) in str(refused.value)
    assert WAYS_OUT[name] in message_of(refused.value)
    assert {partition: len(records) for partition, records in replay.cluster.sent.items()} == {0: RECORDS, 1: 2}


def test_a_replay_goes_on_after_a_damaged_end_is_deleted(replay: Replay) -> None:
    """Kafka has how far it came: nothing is sent twice, and the end is written again."""
    replay.topic.bucket.delete(replay.document("end"))
    assert replay.replay().sent == ALL
    replay.require_all_sent_once()
    assert [json.loads(replay.body(f"end-{replay.nonce}-{p}"))["records"] for p in range(PARTITIONS)] == [RECORDS] * 3


def test_an_end_with_more_records_than_the_plan_is_not_believed(replay: Replay) -> None:
    """What the replay returns would be wrong."""
    replay.put("end", signed({**json.loads(replay.body("end")), "records": RECORDS + 1}))
    with pytest.raises(CorruptControlError, match=f"it has {RECORDS + 1} records, and the plan {RECORDS}"):
        replay.replay()


def test_objects_of_another_partition_are_not_sent(replay: Replay) -> None:
    """A plan may have them with the same offsets and numbers of records as those of the right one."""
    body = json.loads(replay.body("plan"))
    partitions = body["partitions"]
    replay.put("plan", signed({**body, "partitions": {**partitions, "1": partitions["2"], "2": partitions["1"]}}))
    with pytest.raises(
        CorruptControlError, match=r"it has 4 records of partition \d with offsets from 0 to 3 in 'lake/"
    ):
        replay.replay()
    assert {partition: len(records) for partition, records in replay.cluster.sent.items() if records} == {
        0: RECORDS,
        1: 2,
    }


@pytest.mark.parametrize("name", WAYS_OUT)
def test_bytes_that_are_damaged_on_their_way_are_read_again(
    replay: Replay, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without TLS they may be; the document is whole."""
    key, reads = replay.document(name), list[str]()
    store = replay.place.open_bucket()
    get = store.get

    def damaged_once(wanted: str, **more: Any) -> StoredObject | None:
        found = get(wanted, **more)
        if wanted == key and found is not None:
            reads.append(key)
            if len(reads) == 1:
                return StoredObject(found.body[:-9], found.etag, found.metadata)
        return found

    monkeypatch.setattr(store, "get", damaged_once)
    assert replay.replay().sent == ALL
    assert len(reads) > 1


HOSTILE: list[Any] = [
    *("", "r", "0" * 8, "../../other/key", "lake/orders", "\x1b[31mred\nforged", "x" * 5_000, "'", "%s{0.__class__}"),
    *(-1, 0, 1, 2, RECORDS, 7, 2**31, 10**10, 2**63 - 1, True, None),
    *([], {}, [[]], [[[]]], {"0": []}, {"0": [[]]}, {"9" * 30: []}, {"0": 1}, ["x"], {"x": "y"}),
]


@pytest.mark.parametrize("name", ["plan", "end", "begin", "epoch"])
def test_any_content_of_a_document_sends_each_record_once_or_is_a_terminal_error_of_ours(
    replay: Replay, name: str
) -> None:
    """Any field replaced by any value, with a valid checksum: no other records are sent, and none twice."""
    nonce, bucket = replay.nonce, replay.topic.bucket
    # Objects of which all is sent are not read again.
    sent = {**replay.cluster.sent, 1: list[Record]()}
    document = f"begin-{nonce}-1" if name == "begin" else name
    body = json.loads(replay.body(document))
    # With another nonce it is another replay.
    names = body.keys() - {"sha256", "kind", "format", "created_at", "write_id", "written_by", "version", "nonce"}
    paths = [path for path in leaves(body) if path[0] in names]
    refused = 0
    for path, value in itertools.product(paths, HOSTILE):
        replay.use(bucket.copy())
        replay.cluster.sent = {partition: [*records] for partition, records in sent.items()}
        replay.put(document, signed(replaced(body, path, value)))
        error = error_of(replay)
        if error is None:
            replay.require_all_sent_once()
            continue
        refused += 1
        assert isinstance(error, TerminalError), error
        assert len(message_of(error)) < 8_000
        assert message_of(error).isprintable(), message_of(error)
        assert all([one.value for one in some] == VALUES[: len(some)] for some in replay.cluster.sent.values())
    assert refused > len(paths) or name in ("begin", "epoch")


def error_of(replay: Replay) -> KafkaS3Error | None:
    """How a replay ends."""
    try:
        replay.replay()
    except KafkaS3Error as e:
        return e
    return None
