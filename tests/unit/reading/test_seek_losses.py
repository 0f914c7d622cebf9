"""Landed records whose objects, or those beside them, are gone, were accepted as lost, or are damaged."""

from __future__ import annotations

import pytest

from airflow_provider_kafka_s3.config import (
    AvroContainer,
    BlockGzip,
    JsonLines,
    SiblingObjects,
    StringConverter,
)
from airflow_provider_kafka_s3.exceptions import (
    DataLossError,
    ForeignObjectError,
    MissingObjectError,
)
from airflow_provider_kafka_s3.reading.seek import seek
from tests.unit.batch.simulated_topic import Topic
from tests.unit.reading.sought_records import layout_of, plain, topic_of

BESIDE = layout_of(
    JsonLines(on_null="write"),
    content=SiblingObjects(keys=JsonLines(), headers=AvroContainer()),
    key_converter=StringConverter(),
)


def without(topic: Topic, *endings: str) -> None:
    """Delete objects of the first batch by what their keys end in, and accept that they are gone."""
    for key in topic.objects():
        if key.endswith(endings):
            topic.bucket.delete(key)
    topic.pipeline.accept_deleted(1, reason="test", operator="me")


def test_a_missing_object_is_named_with_the_command_that_writes_it_again() -> None:
    """The object of a committed batch, or its index."""
    topic = topic_of(layout_of(BlockGzip()))
    topic.append(b"0")
    topic.land()
    for key in topic.objects():
        kept = topic.objects()[key]
        topic.bucket.delete(key)
        with pytest.raises(MissingObjectError, match=r"is gone\. Write it again.*verify.*--restore.*s3://memory/lake"):
            seek(topic.pipeline.log, 0, 0)
        topic.bucket.put_new(key, kept)


def test_a_loss_that_was_accepted_is_named() -> None:
    """Of a deleted object."""
    topic = topic_of(layout_of(JsonLines()))
    topic.append(b"0")
    topic.land()
    (key,) = topic.objects()
    topic.bucket.delete(key)
    topic.pipeline.accept_deleted(1, reason="test", operator="me")
    with pytest.raises(DataLossError, match="an object of topic 'orders', batch 1 was accepted as lost"):
        seek(topic.pipeline.log, 0, 0)


@pytest.mark.parametrize(
    ("ending", "lost", "kept"), [(".keys.json", "key", {"headers"}), (".headers.avro", "headers", {"key"})]
)
def test_a_value_whose_key_or_headers_were_accepted_as_lost_is_found_without_them(
    ending: str, lost: str, kept: set[str]
) -> None:
    """As in a replay: what the other object has is there, and the record names what is lost."""
    topic = topic_of(BESIDE)
    topic.append(b"0", b"1", key=b"k", headers=[("h", b"x")])
    topic.land()
    without(topic, ending)
    found = seek(topic.pipeline.log, 0, 0, records=2)
    assert [(r.offset, plain(r)["value"], r.kept, r.lost) for r in found] == [
        (n, n, frozenset(kept), frozenset({lost})) for n in range(2)
    ]
    assert lost not in plain(found[0])


def test_a_value_without_any_object_beside_it_is_found() -> None:
    """Both were accepted as lost."""
    topic = topic_of(BESIDE)
    topic.append(b"0", key=b"k")
    topic.land()
    without(topic, ".keys.json", ".headers.avro")
    (found,) = seek(topic.pipeline.log, 0, 0)
    assert (found.raw, found.key, found.kept, found.lost) == (b"0", None, frozenset(), frozenset({"key", "headers"}))


def test_of_a_null_value_the_object_of_keys_is_the_record() -> None:
    """So nothing of it is left if that was accepted as lost; without headers the key is there."""
    topics = [topic_of(BESIDE), topic_of(BESIDE)]
    for topic, ending in zip(topics, (".keys.json", ".headers.avro"), strict=True):
        topic.append(None, key=b"k", headers=[("h", b"x")])
        topic.land()
        without(topic, ending)
    with pytest.raises(DataLossError, match="an object of topic 'orders', batch 1 was accepted as lost"):
        seek(topics[0].pipeline.log, 0, 0)
    (found,) = seek(topics[1].pipeline.log, 0, 0)
    assert (plain(found)["key"], found.value, found.lost) == ("k", None, frozenset({"headers"}))


def test_a_key_whose_object_is_gone_and_not_accepted_as_lost_is_an_error() -> None:
    """It can be written again."""
    topic = topic_of(BESIDE)
    topic.append(b"0", key=b"k")
    topic.land()
    topic.bucket.delete(next(key for key in topic.objects() if key.endswith(".keys.json")))
    with pytest.raises(MissingObjectError, match=r"is gone\. Write it again"):
        seek(topic.pipeline.log, 0, 0)


def test_blocks_whose_index_was_accepted_as_lost_are_read_as_a_whole() -> None:
    """Nothing of the records is lost with it."""
    topic = topic_of(layout_of(BlockGzip(block_size=10)))
    topic.append(*(b"%d" % n for n in range(30)))
    topic.land()
    topic.bucket.delete(next(key for key in topic.objects() if key.endswith(".index.json")))
    topic.pipeline.accept_deleted(1, reason="test", operator="me")
    assert [plain(r)["value"] for r in seek(topic.pipeline.log, 0, 11, records=3)] == [11, 12, 13]


@pytest.mark.parametrize("change", ["index", "object", "size"])
def test_damaged_objects_are_errors(change: str) -> None:
    """Nothing is guessed from them."""
    topic = topic_of(layout_of(BlockGzip(block_size=10)))
    topic.append(*(b"%d" % n for n in range(30)))
    topic.land()
    key = next(k for k in topic.objects() if k.endswith(".index.json") == (change == "index"))
    body = topic.objects()[key]
    damaged = body[:20] + bytes([body[20] ^ 1]) + body[21:] if change != "size" else body[:25]
    topic.bucket.delete(key)
    topic.bucket.put_new(key, damaged)
    with pytest.raises(ForeignObjectError, match="cannot be read: "):
        seek(topic.pipeline.log, 0, 0)
