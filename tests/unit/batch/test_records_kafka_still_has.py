"""What Kafka still has is written again; only objects of which it has lost a record are lost."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_kafka_s3.config import (
    AvroContainer,
    AvroConverter,
    BlockGzip,
    ByField,
    Chain,
    Envelope,
    Hourly,
    JsonLines,
    Layout,
    Limits,
    Parquet,
    Rotation,
    SiblingObjects,
)
from airflow_provider_kafka_s3.documents.manifest import ObjectEntry
from airflow_provider_kafka_s3.exceptions import BatchLossError
from airflow_provider_kafka_s3.messages import count
from airflow_provider_kafka_s3.retry import Retrier
from airflow_provider_kafka_s3.storage.durable import DurableStore
from airflow_provider_kafka_s3.testing.stores import Fault, FaultyStore, SimulatedCrash
from tests.unit.batch.simulated_topic import Topic
from tests.unit.batch.test_typed_values import datum

HOUR = 3_600_000
SCHEMAS = [
    {"type": "record", "name": "R", "fields": [{"name": "n", "type": "long"}]},
    {
        "type": "record",
        "name": "R",
        "fields": [{"name": "n", "type": "long"}, {"name": "x", "type": "long", "default": 7}],
    },
]
OF_FIELDS = Chain(partitioners=(Hourly(), ByField(names=("of",))))
AVRO = {"value_converter": AvroConverter(), "partitioner": Hourly()}

LAYOUTS: Mapping[str, Mapping[str, Any]] = {
    "by time": {"format": JsonLines(), "partitioner": Hourly()},
    "by field": {"format": JsonLines(compression="gzip"), "partitioner": OF_FIELDS},
    "flush size": {"format": JsonLines(), "partitioner": Hourly(), "rotation": Rotation(flush_size=4)},
    "bytes": {"format": JsonLines(), "partitioner": OF_FIELDS, "rotation": Rotation(max_bytes=60)},
    "interval": {
        "format": JsonLines(),
        "partitioner": Hourly(),
        "rotation": Rotation(rotate_interval_ms=HOUR, rotate_on_partition_change=True),
    },
    "open objects": {"format": JsonLines(), "partitioner": OF_FIELDS, "rotation": Rotation(max_open_objects=2)},
    "merged": {"format": JsonLines(), "partitioner": Hourly(), "rotation": Rotation(merge_partitions=True)},
    "merged bytes": {
        "format": JsonLines(),
        "partitioner": OF_FIELDS,
        "rotation": Rotation(merge_partitions=True, max_bytes=90),
    },
    "siblings": {
        "format": JsonLines(on_null="write"),
        "partitioner": Hourly(),
        "content": SiblingObjects(keys=JsonLines(), headers=JsonLines()),
        "rotation": Rotation(flush_size=5),
    },
    "envelope": {
        "format": JsonLines(),
        "content": Envelope(),
        "partitioner": Hourly(),
        "rotation": Rotation(flush_size=3),
    },
    "blocks": {"format": BlockGzip(block_size=64), "partitioner": Hourly(), "rotation": Rotation(flush_size=9)},
    "dead letters": {"format": JsonLines(), "partitioner": Hourly(), "errors": "dead_letter"},
    "schemas": {"format": AvroContainer(), **AVRO},
    "no compatibility": {"format": AvroContainer(), "schema_compatibility": "NONE", **AVRO},
    "backward": {
        "format": AvroContainer(),
        "schema_compatibility": "BACKWARD",
        "rotation": Rotation(flush_size=7),
        **AVRO,
    },
    "forward": {"format": Parquet(), "schema_compatibility": "FORWARD", **AVRO},
}


def value(topic: Topic, name: str, kind: int, n: int) -> bytes | None:
    """A value that the layout takes, null or a dead letter where it has such."""
    if "value_converter" in LAYOUTS[name]:
        fields = {"n": n, "x": n} if kind % 2 else {"n": n}
        return topic.registry.frame(kind % 2 + 1, datum(SCHEMAS[kind % 2], fields))
    if name == "siblings" and kind == 4:
        return None
    if name == "dead letters" and kind > 2:
        return b"{"
    return b'{"of":"%d","n":%d}' % (kind % 3, n)


def filled(name: str, partitions: int, records: list[tuple[int, int, int]]) -> Topic:
    """A topic with records of a Kafka partition, an hour and a kind each."""
    topic = Topic(Layout(topics_dir="lake", **LAYOUTS[name]), partitions)
    for schema in SCHEMAS:
        topic.registry.register(json.dumps(schema))
    for n, (partition, hour, kind) in enumerate(records):
        topic.append(
            value(topic, name, kind, n), partition=partition % partitions, timestamp=hour * HOUR, key=b'"%d"' % n
        )
    return topic


def entries_of(topic: Topic) -> list[tuple[ObjectEntry, dict[int, int]]]:
    """The objects of all batches, each with the first offset of its records per Kafka partition."""
    found = []
    for batch in range(1, topic.pipeline.log.view().next):
        plan, manifest = topic.pipeline.log.require_plan(batch)[0], topic.pipeline.log.read_manifest(batch)
        assert manifest is not None
        for entry in manifest.objects:
            first: dict[int, int] = {}
            for part in entry.by_slice:
                partition = plan.slices[part.id].partition
                first[partition] = min(part.min_offset, first.get(partition, part.min_offset))
            found.append((entry, first))
    return found


@pytest.mark.parametrize("name", LAYOUTS)
@settings(max_examples=8, deadline=None)
@given(
    partitions=st.integers(1, 2),
    records=st.lists(st.tuples(st.integers(0, 1), st.integers(0, 3), st.integers(0, 4)), min_size=1, max_size=40),
    per_slice=st.sampled_from([7, 1_000]),
    cut=st.tuples(st.integers(0, 25), st.integers(0, 25)),
)
def test_an_object_depends_on_no_record_before_its_first_one(
    name: str, partitions: int, records: list[tuple[int, int, int]], per_slice: int, cut: tuple[int, int]
) -> None:
    """Whatever ended the objects before it: all whose records Kafka has come back with the same bytes."""
    topic = filled(name, partitions, records)
    topic.land(limits=Limits(records_per_slice=per_slice))
    before, entries = topic.objects(), entries_of(topic)
    for partition in range(partitions):
        topic.kafka.delete_records("orders", partition, cut[partition])
    there = {entry.key for entry, first in entries if all(o >= cut[p] for p, o in first.items())}
    for key in before:
        topic.bucket.delete(key)

    if there == before.keys():
        topic.restore()
    else:
        with pytest.raises(BatchLossError, match=f"{count(len(before) - len(there), 'object')} of topic"):
            topic.restore()

    assert topic.objects() == {key: before[key] for key in there}


def test_only_the_object_of_a_compacted_record_is_lost() -> None:
    """The rules would count one record less, and cut every later object elsewhere."""
    topic = filled("flush size", 1, [(0, 0, n) for n in range(12)])
    topic.land()
    before = topic.objects()
    topic.kafka.compact("orders", 0, 1)
    (first,) = (key for key in before if key.endswith("+0000000000.json"))

    with pytest.raises(BatchLossError, match=re.escape(first)) as caught:
        topic.restore(*before)

    assert "1 object of topic" in str(caught.value)
    assert topic.objects() == {key: body for key, body in before.items() if key != first}


def test_a_decided_batch_loses_only_the_object_whose_record_is_gone() -> None:
    """Its uploads have expired, and retention has deleted one record: the loss of one object is accepted."""
    topic = filled("by time", 1, [(0, n // 3, n) for n in range(12)])
    store = FaultyStore(topic.bucket)
    store.inject(Fault.CRASH_AFTER, operation="put_new", key="*.manifest.json")
    dying = topic.pipeline_with(DurableStore(store, Retrier(sleep=lambda _: None)))
    with pytest.raises(SimulatedCrash):
        dying.land(topic.request("died"))
    topic.bucket.expire_uploads()
    topic.kafka.delete_records("orders", 0, 1)

    with pytest.raises(BatchLossError, match=r"1 object of batch 1 .*Kafka has only offsets \[1, 12\).*0 to 2, 3 rec"):
        topic.land("next")
    lost = topic.pipeline.accept_loss(1, reason="as the error says", operator="me")

    assert len(lost) == 1
    assert topic.check() == 9


def test_dead_letters_that_follow_from_open_objects_come_back_from_their_whole_slice() -> None:
    """A schema without a version fits no open object, and any object if none is open."""
    layout = Layout(
        topics_dir="lake", format=AvroContainer(), schema_compatibility="FULL", errors="dead_letter", **AVRO
    )
    topic = Topic(layout)
    topic.registry.register(json.dumps(SCHEMAS[0]))
    topic.registry.register(json.dumps(SCHEMAS[1]), versions={})
    for n, schema in enumerate((0, 1, 0, 1, 1, 0)):
        topic.append(topic.registry.frame(schema + 1, datum(SCHEMAS[schema], {"n": n, "x": n})), timestamp=n % 2 * HOUR)
    topic.land()
    before = topic.objects()
    assert len(topic.dead_letters()) == 2

    topic.restore(*before)

    assert topic.objects() == before
