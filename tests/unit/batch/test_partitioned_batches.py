"""Batches whose folders are made of fields, keys and times of records: landed, verified, restored, set aside."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_kafka_s3 import config
from airflow_provider_kafka_s3.config import AvroContainer, AvroConverter, JsonLines, Layout, Naming, Parquet
from airflow_provider_kafka_s3.exceptions import RecordError
from tests.unit.batch.simulated_topic import Topic
from tests.unit.batch.written_slice import written_slice

AT = 1488477600000  # 2017-03-02T18:00:00Z
ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "country", "type": ["null", "string"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}
COUNTRY_AND_DAY = {
    "kind": "chain",
    "partitioners": [
        {"kind": "field", "names": ["country"]},
        {"kind": "daily", "timestamp_from": {"kind": "field", "name": "at"}},
    ],
}
DAY = "year=2017/month=03/day=02"
NO_TIME = "is no time of ISO 8601, such as 2026-01-02T03:04:05Z, nor a number"
NULL = "__HIVE_DEFAULT_PARTITION__"


def layout(partitioner: Any, record_format: Any = None, **more: Any) -> Layout:
    """A layout below lake; JSON documents unless there is another format."""
    return Layout(
        topics_dir="lake",
        format=record_format or JsonLines(),
        partitioner=config.parse_partitioner(partitioner),
        **more,
    )


def document(**members: Any) -> bytes:
    """A JSON document."""
    return json.dumps(members).encode()


def folders(objects: dict[str, bytes]) -> list[str]:
    """The encoded partitions, in order."""
    return sorted({key.removeprefix("lake/orders/").rpartition("/")[0] for key in objects})


DOCUMENTS = [
    document(id=1, country="NO", at=AT),
    document(id=2, country=None, at=AT),
    document(id=3, country="a/b", at=AT),
    document(id=4, country="NO", at=AT + 1),
]
FOLDERS = [f"country=NO/{DAY}", f"country={NULL}/{DAY}", f"country=a%2Fb/{DAY}"]


def test_a_topic_is_landed_verified_and_restored_by_field_and_time() -> None:
    """Lost objects are written again with the same names and bytes, from the plan and the records."""
    topic = Topic(layout(COUNTRY_AND_DAY), partitions=2)
    for partition in range(2):
        topic.append(*DOCUMENTS, partition=partition)
    topic.land()
    assert topic.check() == 2 * len(DOCUMENTS)
    landed = topic.objects()
    assert folders(landed) == FOLDERS
    for key in list(landed)[::2]:
        topic.bucket.delete(key)
    topic.pipeline.run(topic.request("b", action="restore")).advance()
    assert topic.objects() == landed


def test_a_batch_keeps_the_time_of_the_clock_it_was_planned_at() -> None:
    """Its lost objects have the same names at any later time."""
    topic = Topic(layout({"kind": "hourly", "timestamp_from": "wallclock"}))
    topic.append(*DOCUMENTS)
    topic.land()
    landed = topic.objects()
    (key,) = landed
    assert key.startswith("lake/orders/year=2")
    topic.bucket.delete(key)
    topic.pipeline.run(topic.request("b", action="restore")).advance()
    assert topic.objects() == landed


@pytest.mark.parametrize("record_format", [AvroContainer(), Parquet(), JsonLines()])
@pytest.mark.parametrize("content", ["values", "envelope"])
def test_values_of_a_registry_have_fields(record_format: Any, content: str) -> None:
    """Those of their schemas, whatever the format, and whether it holds values or whole records."""
    topic = Topic(
        layout(COUNTRY_AND_DAY, record_format, value_converter=AvroConverter(), content=config.parse_content(content))
    )
    schema_id = topic.registry.register(json.dumps(ORDER))
    for number, country in enumerate(["NO", None, "a/b", "NO"]):
        body = io.BytesIO()
        fastavro.schemaless_writer(body, ORDER, {"id": number, "country": country, "at": AT})
        topic.append(topic.registry.frame(schema_id, body.getvalue()))
    topic.land()
    landed = topic.objects()
    assert folders(landed) == FOLDERS
    topic.bucket.delete(next(iter(landed)))
    topic.pipeline.run(topic.request("b", action="restore")).advance()
    assert topic.objects() == landed


BAD = [
    document(id=1, country="NO", at=AT),
    document(id=2, at=AT),
    document(id=3, country=["NO"], at=AT),
    document(id=4, country="NO", at="soon"),
    document(id=5, country="NO", at=AT),
]


def test_a_record_without_a_usable_field_fails_the_batch() -> None:
    """The message has its place, the field, and what to do; nothing is landed."""
    with pytest.raises(
        RecordError,
        match=r"partition 0, offset 1: field 'country' is not there; .*missing='null'.*on_bad_timestamp",
    ):
        written_slice(layout(COUNTRY_AND_DAY), BAD)


@pytest.mark.parametrize("cuts", [(), (1,), (2, 3), (1, 2, 3, 4)])
def test_a_record_without_a_usable_field_may_be_a_dead_letter(cuts: tuple[int, ...]) -> None:
    """The others are landed as if it were not there, whatever the Arrow batches."""
    made = layout(COUNTRY_AND_DAY, errors="dead_letter", rotation=config.Rotation(flush_size=2))
    written = written_slice(made, BAD, cuts=cuts)
    assert written.offsets == [(2, 0, 4)]
    assert written.result.records == 2
    assert [(d["offset"], d["reason"]) for d in written.dead_letters] == [
        (1, "field 'country' is not there"),
        (2, "field 'country' is a record, a map or a list"),
        (
            3,
            f"field 'at' {NO_TIME}, so the record has no time partition",
        ),
    ]


COUNTRIES = st.sampled_from(["NO", "no", "", None, "a/b", "..", 7, True, [1], 1.5])
ANY_DOCUMENT = st.fixed_dictionaries(
    {}, optional={"country": COUNTRIES, "at": st.sampled_from([AT, -1, None, "2017-03-02"])}
)


@settings(max_examples=60, deadline=None)
@given(
    documents=st.lists(ANY_DOCUMENT, min_size=1, max_size=12),
    cuts=st.sets(st.integers(1, 11)),
    flush_size=st.none() | st.integers(1, 4),
    naming=st.sampled_from([Naming(), Naming(kafka_connect_names=True), Naming(lowercase_paths=True)]),
)
def test_every_record_is_in_one_object_or_a_dead_letter_whatever_the_batches(
    documents: list[dict[str, Any]], cuts: set[int], flush_size: int | None, naming: Naming
) -> None:
    """The same objects with the same bytes, however the records are split into Arrow batches."""
    rotation = config.Rotation(flush_size=flush_size)
    made = layout(COUNTRY_AND_DAY, errors="dead_letter", naming=naming, rotation=rotation)
    values = [document(seq=seq, **members) for seq, members in enumerate(documents)]
    whole, parts = written_slice(made, values), written_slice(made, values, cuts=cuts)
    assert parts.objects == whole.objects
    assert parts.dead_letters == whole.dead_letters
    landed = [json.loads(line)["seq"] for body in whole.objects.values() for line in body.splitlines()]
    set_aside = [letter["offset"] for letter in whole.dead_letters]
    assert sorted([*landed, *set_aside]) == list(range(len(documents)))


def test_batches_of_bad_records_alone_are_dead_letters() -> None:
    """There may be no folder at all."""
    made = layout(COUNTRY_AND_DAY, errors="dead_letter")
    written = written_slice(made, BAD[1:4])
    assert written.objects == {}
    assert [d["offset"] for d in written.dead_letters] == [0, 1, 2]


def test_tombstones_have_no_fields() -> None:
    """Their keys are in a folder of their own, beside those of fields."""
    made = layout(
        {"kind": "field", "names": ["country"]},
        JsonLines(on_null="write"),
        content=config.SiblingObjects(keys=JsonLines()),
        key_converter=config.StringConverter(),
    )
    written = written_slice(made, [DOCUMENTS[0], None, DOCUMENTS[2], None], keys=[b"a", b"b", b"c", b"d"])
    assert folders(written.objects) == ["country=NO", "country=a%2Fb", "tombstone"]
    assert written.result.tombstones == 2


def test_tombstones_among_values_with_a_schema_have_no_fields() -> None:
    """The fields of decoded values are those of their rows, before and behind a null value and an invalid one."""
    made = layout(
        {"kind": "field", "names": ["country"]},
        JsonLines(on_null="write"),
        value_converter=config.JsonConverter(schemas_enable=True),
        content=config.SiblingObjects(keys=JsonLines()),
        key_converter=config.StringConverter(),
        errors="dead_letter",
    )
    schema = {"type": "struct", "fields": [{"field": "country", "type": "string", "optional": True}]}
    values = [document(schema=schema, payload={"country": country}) for country in ("NO", "SE", None, "NO")]
    written = written_slice(made, [values[0], None, b"{", values[1], values[2], None, values[3]], keys=[b"k"] * 7)
    assert folders(written.objects) == ["country=NO", "country=SE", f"country={NULL}", "tombstone"]
    offsets = dict(zip(written.objects, written.offsets, strict=True))
    assert offsets["lake/orders/country=NO/orders+0+0000000000.json"] == (2, 0, 6)
    assert offsets["lake/orders/country=SE/orders+0+0000000003.json"] == (1, 3, 3)
    assert [letter["offset"] for letter in written.dead_letters] == [2]


def test_null_values_of_whole_records_are_in_the_folder_of_null() -> None:
    """A null value has no field that could be missing."""
    made = layout({"kind": "field", "names": ["country"]}, JsonLines(on_null="write"), content=config.Envelope())
    written = written_slice(made, [DOCUMENTS[0], None])
    assert folders(written.objects) == ["country=NO", f"country={NULL}"]


def test_keys_of_records_make_folders() -> None:
    """They are read for it, also where they are not written."""
    topic = Topic(layout("key"))
    for key in (b"x", b"y/z", None):
        topic.append(DOCUMENTS[0], key=key)
    topic.land()
    assert folders(topic.objects()) == ["key=" + NULL, "key=x", "key=y%2Fz"]


def test_lower_case_folders_group_values_that_differ_in_case() -> None:
    """One object holds both."""
    made = layout({"kind": "field", "names": ["country"]}, naming=Naming(lowercase_paths=True))
    written = written_slice(made, [document(country="NO"), document(country="no")])
    assert [key.split("/")[2] for key in written.objects] == ["country=no"]
    assert written.offsets == [(2, 0, 1)]
