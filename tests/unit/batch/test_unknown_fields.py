"""Fields that the declared schema does not have are left out, rescued or an error, and are counted in the manifest."""

from __future__ import annotations

import json
import logging
from typing import Any, Final

import pyarrow as pa
import pytest

from airflow_provider_kafka_s3.airflow.run_window import RunWindow
from airflow_provider_kafka_s3.airflow.xcom import summary, to_xcom
from airflow_provider_kafka_s3.config import (
    AvroContainer,
    BlockGzip,
    Csv,
    Daily,
    Envelope,
    Format,
    JsonConverter,
    JsonLines,
    Layout,
    OnUnknownFields,
    Parquet,
    Rotation,
    SiblingObjects,
)
from airflow_provider_kafka_s3.documents import codec
from airflow_provider_kafka_s3.documents.manifest import Manifest, SliceResult, UnknownFields
from airflow_provider_kafka_s3.documents.plan import Plan
from airflow_provider_kafka_s3.exceptions import CorruptControlError, RecordError
from airflow_provider_kafka_s3.reading.arrow import arrow_batches
from airflow_provider_kafka_s3.reading.snapshot import Snapshot
from tests.unit.batch.simulated_topic import Topic

ORDER: Final = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [{"name": "id", "type": "long"}, {"name": "n", "type": ["null", "long"], "default": None}],
    }
)
VALUES: Final = (b'{"id": 0}', b'{"id": 1, "x": 1.10}', b'{"id": 2, "n": "two"}', b'{"id": 3, "n": 3, "y": {"z": []}}')
RESCUED: Final = [None, '{"x":1.10}', '{"n":"two"}', '{"y":{"z": []}}']
FORMATS: Final = [Parquet(), AvroContainer(), JsonLines(), Csv(), BlockGzip(lines=JsonLines())]


def layout(unknown_fields: OnUnknownFields, format_: Format, **settings: Any) -> Layout:
    """A layout of declared JSON."""
    converter = JsonConverter(schema=ORDER, unknown_fields=unknown_fields)
    return Layout(topics_dir="lake", format=format_, value_converter=converter, **settings)


def topic_of(layout_: Layout, *values: bytes, partitions: int = 1) -> Topic:
    """A topic with these values, in turn in its partitions; Spark's batches have three records."""
    topic = Topic(layout_, partitions)
    for n, value in enumerate(values):
        topic.append(value, partition=n % partitions, timestamp=n)
    return topic


COLUMNS: Final = pa.schema([("id", pa.int64()), ("n", pa.int64()), ("_rescued", pa.string())])


def rows_of(topic: Topic, schema: pa.Schema = COLUMNS) -> list[dict[str, Any]]:
    """The landed rows, by this package's reader."""
    snapshot = Snapshot(topic.pipeline.log)
    batches = arrow_batches(snapshot.log.store, snapshot.objects(), schema)
    return [{n: row[n] for n in schema.names} for batch in batches for row in batch.to_pylist()]


def unknown_of(topic: Topic, batch: int = 1) -> UnknownFields:
    """What the manifest of a batch counts."""
    decision = topic.pipeline.log.read_manifest(batch)
    assert decision is not None
    return decision.unknown_fields


@pytest.mark.parametrize("format_", FORMATS, ids=lambda made: type(made).__name__)
def test_rescued_parts_are_a_column_of_every_format(format_: Format) -> None:
    """The last one, as readers return it; restored objects have the same bytes."""
    topic = topic_of(layout("rescue", format_), *VALUES)
    topic.land()
    rows = rows_of(topic)
    assert [row["_rescued"] or None for row in rows] == RESCUED
    assert [row["n"] for row in rows] == [None, None, None, 3]
    assert unknown_of(topic) == UnknownFields(records=3, names=("x", "n", "y"))
    before = topic.objects()
    topic.restore(*(key for key in before if not key.endswith(".index.json")))
    assert topic.objects() == before


@pytest.mark.parametrize("format_", FORMATS, ids=lambda made: type(made).__name__)
def test_left_out_fields_are_counted_and_change_no_object(format_: Format) -> None:
    """An object of values without unknown fields has the same bytes."""
    topic, plain = (
        topic_of(layout("leave_out", format_), *(json.dumps({"id": 1, "n": 2} | more).encode() for more in extra))
        for extra in ([{}, {"x": 1}, {"y": 2}, {"x": 3}], [{}] * 4)
    )
    topic.land()
    plain.land()
    objects = {key: body for key, body in topic.objects().items() if not key.endswith(".index.json")}
    assert objects == {key: body for key, body in plain.objects().items() if key in objects}
    assert unknown_of(topic) == UnknownFields(records=3, names=("x", "y"))
    assert unknown_of(plain) == UnknownFields()


def test_an_unknown_field_fails_the_run_with_its_place() -> None:
    """Topic, partition, offset and field, and what to do; nothing is landed."""
    topic = topic_of(layout("fail", Parquet()), *VALUES[:2])
    with pytest.raises(RecordError, match=r"topic 'orders', partition 0, offset 1: .*field x is not in the schema"):
        topic.land()
    assert topic.objects() == {}


def test_a_record_with_an_unknown_field_becomes_a_dead_letter() -> None:
    """With the whole value; it is counted as both."""
    topic = topic_of(layout("fail", Parquet(), errors="dead_letter"), *VALUES)
    topic.land()
    assert [(letter["offset"], letter["stage"]) for letter in topic.dead_letters()] == [
        (1, "value"),
        (2, "value"),
        (3, "value"),
    ]
    assert "field y is not in the schema" in topic.dead_letters()[2]["reason"]
    assert unknown_of(topic) == UnknownFields(records=2, names=("x", "y"))


@pytest.mark.parametrize("format_", [Parquet(), JsonLines()])
def test_an_envelope_has_the_column_in_its_value(format_: Format) -> None:
    """And so has an object of keys with a schema of their own, if their converter rescues."""
    topic = topic_of(layout("rescue", format_, content=Envelope()), *VALUES)
    topic.land()
    value = pa.struct([*COLUMNS])
    assert [row["value"]["_rescued"] for row in rows_of(topic, pa.schema([("value", value)]))] == RESCUED
    assert unknown_of(topic).records == 3


def test_keys_are_rescued_by_their_own_converter() -> None:
    """They are not counted: the counts are those of values."""
    keys = JsonConverter(schema=ORDER, unknown_fields="rescue")
    topic = Topic(
        Layout(
            topics_dir="lake",
            format=JsonLines(),
            key_converter=keys,
            content=SiblingObjects(keys=JsonLines()),
        )
    )
    topic.append(b"{}", key=b'{"id": 1, "x": 2}')
    topic.land()
    (body,) = [body for key, body in topic.objects().items() if ".keys." in key]
    assert json.loads(body) == {"id": 1, "n": None, "_rescued": '{"x":2}'}
    assert unknown_of(topic) == UnknownFields()


def test_slices_that_share_objects_are_counted_once_each() -> None:
    """Names that an earlier slice has shown are those of the batch."""
    merged = layout("leave_out", Parquet(), partitioner=Daily(), rotation=Rotation(merge_partitions=True))
    topic = topic_of(merged, VALUES[1], VALUES[3], VALUES[1], partitions=2)
    topic.land()
    assert unknown_of(topic) == UnknownFields(records=3, names=("x", "y"))


def test_the_names_of_a_batch_are_bounded() -> None:
    """The last twenty, cut; the number of records is exact."""
    values = [json.dumps({"id": n, f"f{n}-{'x' * 300}": 1}).encode() for n in range(50)]
    topic = topic_of(layout("rescue", Parquet()), *values)
    topic.land()
    unknown = unknown_of(topic)
    assert unknown.records == 50
    assert [name.partition("-")[0] for name in unknown.names] == [f"f{n}" for n in range(30, 50)]
    assert {len(name) for name in unknown.names} == {100}


def test_a_run_and_its_xcom_count_the_records(caplog: pytest.LogCaptureFixture) -> None:
    """A batch of another run is in the records, not in those landed; a warning names the fields."""
    topic = topic_of(layout("leave_out", Parquet()), *VALUES[:2])
    with caplog.at_level(logging.WARNING):
        first = topic.land("a")
    (warning,) = [message for message in caplog.messages if "declared schema" in message]
    assert warning == (
        "topic orders: batch 1 has 1 record with fields that the declared schema does not have; these fields are left "
        "out (the newest: x)"
    )
    topic.append(b'{"id": 9, "z\\n": 1}', b'{"id": 9, "x": 1}')
    second = topic.land("b")
    resolved = RunWindow(action="land", source="stored offsets")
    assert to_xcom({"orders": first}, resolved)["unknown_fields"] == {"records": 1, "landed": 1, "names": ["x"]}
    (of_topic,) = to_xcom({"orders": second}, resolved)["topics"].values()
    assert of_topic["unknown_fields"] == {"records": 2, "landed": 2, "names": ["z\n", "x"]}
    assert "2 records with unknown fields (the newest: x, z\\n)" in summary([second])


def test_the_same_fields_are_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    """By a process that lands several batches with them; another field is worth another warning."""
    topic = topic_of(layout("leave_out", Parquet()))
    pipeline = topic.pipeline
    with caplog.at_level(logging.INFO):
        for run, value in enumerate((b'{"id": 1, "x": 1}', b'{"id": 1, "x": 1}', b'{"id": 1, "y": 1}')):
            topic.append(value)
            pipeline.land(topic.request(f"run-{run}"))
    levels = [record.levelname for record in caplog.records if "declared schema" in record.getMessage()]
    assert levels == ["WARNING", "INFO", "WARNING"]


def test_a_plan_of_an_earlier_version_leaves_out() -> None:
    """It has no such setting; its objects are those of leave_out."""
    topic = topic_of(layout("leave_out", Parquet()), *VALUES[:2])
    topic.land()
    stored = topic.bucket.get("lake/_kafka_s3/orders-to-lake/orders/batches/0000000001.plan.json")
    assert stored is not None
    body = json.loads(stored.body)
    assert body["layout"]["value_converter"].pop("unknown_fields") == "leave_out"
    del body["sha256"]
    body["sha256"] = codec.digest(body)
    plan, _ = codec.decode(Plan, codec.canonical(body), "plan")
    assert plan.layout == topic.layout


def test_a_manifest_without_unknown_fields_is_that_of_earlier_versions() -> None:
    """So they can read it."""
    topic = topic_of(layout("leave_out", Parquet()), VALUES[0])
    topic.land()
    stored = topic.bucket.get("lake/_kafka_s3/orders-to-lake/orders/batches/0000000001.manifest.json")
    assert stored is not None
    assert "unknown" not in json.loads(stored.body)["slices"][0]


@pytest.mark.parametrize(
    "unknown", [{"records": -1}, {"names": ["x"] * 21}, {"names": ["x" * 101]}, {"names": [1]}, {"more": 1}]
)
def test_counts_that_no_version_writes_are_refused(unknown: Any) -> None:
    """A document from the bucket is not trusted."""
    decision = Manifest(
        batch=1,
        plan_sha256="0" * 64,
        status="commit",
        run="a",
        slices=(SliceResult(id=0, records=1, ignored=0, next_offset=1, unknown=UnknownFields(records=1)),),
    )
    body = json.loads(codec.encode(decision, codec.write_stamp()))
    body["slices"][0]["unknown"] = unknown
    del body["sha256"]
    body["sha256"] = codec.digest(body)
    with pytest.raises(CorruptControlError):
        codec.decode(Manifest, codec.canonical(body), "manifest")
