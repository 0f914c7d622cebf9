"""Schemas that change inside objects, from the records of a slice to the bytes of its objects."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, get_args

import fastavro
import msgspec
import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_kafka_s3.config import (
    AvroContainer,
    AvroConverter,
    BytesConverter,
    Compatibility,
    Envelope,
    JsonConverter,
    JsonLines,
    Layout,
    Naming,
    Parquet,
    RawBytes,
    Rotation,
    SiblingObjects,
    StringConverter,
)
from airflow_provider_kafka_s3.exceptions import RecordError
from airflow_provider_kafka_s3.schemas.avro import parse_schema
from airflow_provider_kafka_s3.schemas.evolution import SchemaVersion, object_counts
from airflow_provider_kafka_s3.testing.registry import SimulatedRegistry
from tests.unit.batch.simulated_topic import Topic
from tests.unit.batch.test_typed_values import append, datum, rows
from tests.unit.batch.written_slice import WrittenSlice, written_slice

VECTORS = Path(__file__).parents[2] / "vectors"
ROTATION = {c["id"]: c for c in json.loads((VECTORS / "rotation.json").read_text())["cases"]}
MODES: tuple[Compatibility, ...] = get_args(Compatibility)
FORMATS: list[Any] = [AvroContainer(), Parquet(), JsonLines()]


def record(*fields: Any, name: str = "R") -> dict[str, Any]:
    """A record schema; fields are pairs of name and type, with a default as third."""
    of = [{"name": f[0], "type": f[1], **({"default": f[2]} if len(f) == 3 else {})} for f in fields]
    return {"type": "record", "name": name, "namespace": "acme", "fields": of}


OLD = record(("seq", "long"))
NEW = record(("seq", "long"), ("x", ["null", "string"], None))
WIDE = record(("seq", "double"), ("x", ["null", "string"], None), ("y", "string", "why"))
OTHER = record(("seq", "string"))


def registry_of(*schemas: Any) -> SimulatedRegistry:
    """A registry with these schemas, of the versions 1, 2 and so on."""
    registry = SimulatedRegistry()
    for schema in schemas:
        registry.register(json.dumps(schema))
    return registry


def value(schema: Any, number: int) -> dict[str, Any]:
    """A value of a record schema."""
    kinds = {"long": number, "double": float(number), "string": f"s{number}"}
    return {
        f["name"]: (None if number % 3 == 0 else f"x{number}") if isinstance(f["type"], list) else kinds[f["type"]]
        for f in schema["fields"]
    }


def framed(schemas: Sequence[Any], of: Sequence[int], first: int = 0) -> list[bytes]:
    """Values as a serializer writes them: that of each record has the schema of this index."""
    frame = SimulatedRegistry().frame
    return [frame(i + 1, datum(schemas[i], value(schemas[i], first + n))) for n, i in enumerate(of)]


def layout(record_format: Any, mode: Compatibility | None, **more: Any) -> Layout:
    """Of Avro values."""
    return Layout(format=record_format, value_converter=AvroConverter(), schema_compatibility=mode, **more)


def write(
    record_format: Any, mode: Compatibility | None, schemas: Sequence[Any], of: Sequence[int], **more: Any
) -> Any:
    """Write values of these schemas; ``rotation``, ``errors`` and ``naming`` are of the layout."""
    settings = {name: more.pop(name) for name in ("rotation", "errors", "naming", "partitioner") if name in more}
    values = framed(schemas, of, more.get("first", 0))
    return written_slice(
        layout(record_format, mode, **settings),
        values,
        schemas=more.pop("registry", None) or registry_of(*schemas),
        **more,
    )


def read(written: WrittenSlice) -> list[list[Any]]:
    """The records of each object."""
    return [rows(*item) for item in written.objects.items()]


def schema_of(key: str, body: bytes) -> list[str]:
    """The names of the fields of an Avro or Parquet file."""
    if key.endswith(".avro"):
        reader = fastavro.reader(io.BytesIO(body))
        written: Any = reader.writer_schema
        return [f["name"] for f in written["fields"]]
    return pq.read_schema(io.BytesIO(body)).names


@pytest.mark.parametrize("record_format", FORMATS)
def test_alternating_schemas_make_an_object_for_each_record_without_compatibility(record_format: Any) -> None:
    """W5."""
    case = ROTATION["W5"]
    of = [n % len(case["schemas_alternate"]) for n in range(case["records"])]
    written = write(
        record_format, case["compatibility"], [OLD, NEW], of, rotation=Rotation(flush_size=case["flush_size"])
    )
    assert written.offsets == [(1, n, n) for n in range(case["records"])]
    assert read(written) == [[value([OLD, NEW][i], n)] for n, i in enumerate(of)]


@pytest.mark.parametrize("record_format", FORMATS)
def test_forward_compatibility_projects_newer_records(record_format: Any) -> None:
    """W7: the first record, a newer one, stays alone; then two fill each object, with the older schema."""
    case = ROTATION["W7"]
    first = case["first_offset"]
    of = [1, 0, 1, 0, 1, 0, 1]
    written = write(record_format, case["compatibility"], [OLD, NEW], of, first=first, rotation=Rotation(flush_size=2))
    assert [*(o for _, o, _ in written.offsets), first + len(of)] == case["expect_bounds"]
    expected = [[value(NEW, 1)], [value(OLD, 2), value(OLD, 3)], [value(OLD, 4), value(OLD, 5)]]
    assert read(written) == [*expected, [value(OLD, 6), value(OLD, 7)]]


@pytest.mark.parametrize("record_format", FORMATS)
def test_one_schema_without_a_version_is_landed(record_format: Any) -> None:
    """W8: versions are compared only when the schema changes."""
    case = ROTATION["W8"]
    registry = SimulatedRegistry()
    registry.register(json.dumps(NEW), versions={})
    written = write(record_format, case["compatibility"], [NEW], [0, 0, 0], registry=registry)
    assert read(written) == [[value(NEW, n) for n in range(3)]]


# --- The schema of an object, and its records ---


@pytest.mark.parametrize("record_format", FORMATS)
@pytest.mark.parametrize("mode", ["BACKWARD", "FULL"])
def test_older_records_get_the_schema_of_the_object(record_format: Any, mode: Compatibility) -> None:
    """The newest schema stays: missing fields have their default, numbers are promoted, in the order of offsets."""
    written = write(record_format, mode, [OLD, NEW, WIDE], [0, 2, 1, 0, 2])
    assert read(written) == [
        [{"seq": 0}],
        [
            {"seq": 1.0, "x": "x1", "y": "s1"},
            {"seq": 2.0, "x": "x2", "y": "why"},
            {"seq": 3.0, "x": None, "y": "why"},
            {"seq": 4.0, "x": "x4", "y": "s4"},
        ],
    ]
    if not isinstance(record_format, JsonLines):
        assert [schema_of(*item) for item in written.objects.items()] == [["seq"], ["seq", "x", "y"]]


@pytest.mark.parametrize("record_format", FORMATS)
@pytest.mark.parametrize("mode", MODES)
def test_schemas_that_cannot_be_projected_have_objects_of_their_own(record_format: Any, mode: Compatibility) -> None:
    """In every mode; nothing is lost."""
    written = write(record_format, mode, [OLD, OTHER], [0, 0, 1, 1, 0])
    assert [(count, first) for count, first, _ in written.offsets] == [(2, 0), (2, 2), (1, 4)]
    assert read(written) == [
        [value(OLD, 0), value(OLD, 1)],
        [value(OTHER, 2), value(OTHER, 3)],
        [value(OLD, 4)],
    ]


def test_datums_of_the_schema_of_the_object_are_copied() -> None:
    """Avro's encoding is not unique: an array in two blocks stays one, though others of its file are projected."""
    wide = record(("items", {"type": "array", "items": "long"}), ("x", "long", 7))
    slim = record(("items", {"type": "array", "items": "long"}))
    registry = registry_of(slim, wide)
    two_blocks = b"\x02\x04\x02\x06\x00" + b"\x0e"  # [2], [3], then x
    projected = b"\x04\x04\x06\x00" + b"\x0e"
    values = [registry.frame(2, two_blocks), registry.frame(1, b"\x02\x04\x02\x06\x00")]
    (body,) = written_slice(layout(AvroContainer(), "BACKWARD"), values, schemas=registry).objects.values()
    assert two_blocks + projected in body
    assert [r["items"] for r in fastavro.reader(io.BytesIO(body))] == [[2, 3], [2, 3]]  # type: ignore[index,call-overload]


def test_datums_of_an_equal_schema_are_copied() -> None:
    """Documentation makes no difference: nothing is projected, and the file has the text of the first schema."""
    array = {"type": "array", "items": "long"}
    registry = registry_of(array, {**array, "doc": "the second"})
    two_blocks = b"\x02\x04\x02\x06\x00"
    values = [registry.frame(schema_id, two_blocks) for schema_id in (1, 2, 1)]
    (body,) = written_slice(layout(AvroContainer(), "FORWARD"), values, schemas=registry).objects.values()
    assert 3 * two_blocks in body
    assert b"the second" not in body


@pytest.mark.parametrize("record_format", FORMATS)
def test_values_with_wide_offsets_are_projected(record_format: Any) -> None:
    """Arrow batches of Spark may have large_binary values."""
    of = [1, 0, 1, 0, 0]
    assert write(record_format, "BACKWARD", [OLD, NEW], of, large=True) == write(
        record_format, "BACKWARD", [OLD, NEW], of
    )


@pytest.mark.parametrize("mode", [*MODES, None])
def test_recursive_schemas_are_landed(mode: Compatibility | None) -> None:
    """They have no columns to project, so another schema begins a new object, or has one of its own."""
    node = [record(("seq", "long"), ("next", ["null", "acme.R"]), *more) for more in ((), [("y", "long", 5)])]
    registry = registry_of(*node)
    of = [0, 1, 1, 0]
    values = [registry.frame(i + 1, b"\x02\x00" + b"\x08" * i) for i in of]
    written = written_slice(layout(AvroContainer(), mode), values, schemas=registry)
    assert [count for count, _, _ in written.offsets] == ([2, 2] if mode is None else [1, 2, 1])


@pytest.mark.parametrize("record_format", FORMATS)
@pytest.mark.parametrize("mode", MODES)
@settings(max_examples=20, deadline=None)
@given(
    of=st.lists(st.integers(0, 3), min_size=1, max_size=30),
    cuts=st.sets(st.integers(1, 29), max_size=6),
    flush=st.one_of(st.none(), st.integers(1, 8)),
    most=st.one_of(st.none(), st.integers(1, 80)),
)
def test_bytes_depend_on_the_records_alone(
    record_format: Any, mode: Compatibility, of: list[int], cuts: set[int], flush: int | None, most: int | None
) -> None:
    """Any cut into batches gives the same objects with the same bytes, and every record is in one of them."""
    rotation = Rotation(flush_size=flush, **({} if most is None else {"max_bytes": most}))
    schemas = [OLD, NEW, WIDE, OTHER]
    whole = write(record_format, mode, schemas, of, rotation=rotation)
    assert write(record_format, mode, schemas, of, rotation=rotation, cuts=cuts) == whole
    landed = [str(r["seq"]).removeprefix("s").removesuffix(".0") for of_object in read(whole) for r in of_object]
    assert landed == [str(n) for n in range(len(of))]


@pytest.mark.parametrize("record_format", FORMATS)
def test_a_lost_object_is_written_again_with_the_same_bytes(record_format: Any) -> None:
    """The pinned schemas have their versions, so a registry that has changed since makes no difference."""
    topic = Topic(layout(record_format, "BACKWARD", topics_dir="lake", rotation=Rotation(flush_size=4)))
    first, second = (topic.registry.register(json.dumps(schema)) for schema in (OLD, NEW))
    for n in range(12):
        schema_id, schema = (first, OLD) if n % 3 else (second, NEW)
        append(topic, schema_id, schema, value(schema, n))
    topic.land()
    before = topic.objects()
    assert len(before) == 4
    topic.registry._schemas.clear()
    topic.restore([*before][1])
    assert topic.objects() == before


# --- Versions ---


@pytest.mark.parametrize(
    ("versions", "found"),
    [
        ([{"orders-value": 1}, {"orders-value": 2, "a": 1}], True),
        ([{"orders-value": 1, "b": 9}, {"orders-value": 2, "b": 1}], True),
        ([{"acme.R": 1}, {"acme.R": 2}], True),
        ([{"a": 1, "b": 1}, {"orders-value": 2}], False),
        ([{}, {"orders-value": 2}], False),
    ],
)
def test_the_version_is_that_of_the_subject_of_the_topic(versions: list[dict[str, int]], found: bool) -> None:
    """``<topic>-value``, or the only subject; otherwise a schema that changes is an error that names the record."""
    registry = SimulatedRegistry()
    for schema, of in zip([OLD, NEW], versions, strict=True):
        registry.register(json.dumps(schema), versions=of)
    if found:
        assert read(write(Parquet(), "FORWARD", [OLD, NEW], [0, 1], registry=registry)) == [[{"seq": 0}, {"seq": 1}]]
        return
    with pytest.raises(
        RecordError,
        match=r"topic 'orders', partition 0, offset 1: .* open object's schema has no version, .*FORWARD .*register it",
    ):
        write(Parquet(), "FORWARD", [OLD, NEW], [0, 1], registry=registry)


@pytest.mark.parametrize("cuts", [(), range(20)])
@pytest.mark.parametrize("record_format", FORMATS)
def test_a_record_whose_schema_cannot_be_compared_becomes_a_dead_letter(record_format: Any, cuts: Any) -> None:
    """It changes nothing for the others, neither their objects nor the count of flush_size; the reason is stored."""
    registry = SimulatedRegistry()
    for schema, of in zip([OLD, NEW, WIDE], [{"v": 1}, {}, {"v": 2}], strict=True):
        registry.register(json.dumps(schema), versions=of)
    of = [0, 1, 2, 1, 2, 1, 2, 0, 1]
    written = write(
        record_format,
        "BACKWARD",
        [OLD, NEW, WIDE],
        of,
        registry=registry,
        errors="dead_letter",
        rotation=Rotation(flush_size=3),
        cuts=cuts,
    )
    assert [(r["offset"], r["stage"]) for r in written.dead_letters] == [(n, "format") for n in (1, 3, 5, 8)]
    assert all("record's schema has no version" in str(r["reason"]) for r in written.dead_letters)
    assert (written.result.records, written.result.dead_letters) == (5, 4)
    assert written.offsets == [(1, 0, 0), (3, 2, 6), (1, 7, 7)]


@pytest.mark.parametrize("cuts", [(), range(20)])
def test_a_default_that_does_not_fit_its_type_is_named(cuts: Any) -> None:
    """The record that would get it is an error, not the whole slice a crash."""
    registry = registry_of(OLD, record(("seq", "long"), ("y", "long", "why")))
    values = [registry.frame(2, b"\x02\x04"), registry.frame(1, b"\x06")]
    with pytest.raises(RecordError, match=r"offset 1: the default 'why' of field 'y' is no value of its type; correct"):
        written_slice(layout(Parquet(), "BACKWARD"), values, schemas=registry, cuts=cuts)


def test_envelopes_have_the_version_of_their_schema() -> None:
    """As in Kafka Connect; schemas that differ in it alone still share objects where versions do not matter."""

    def envelope(version: Any, number: int) -> bytes:
        fields = [{"field": "seq", "type": "int64"}]
        schema = {"type": "struct", "name": "acme.R", "fields": fields, "version": version}
        return json.dumps({"schema": schema, "payload": {"seq": number}}).encode()

    values = [envelope(version, n) for n, version in enumerate([1, 1, 2, 1])]
    converter = JsonConverter(schemas_enable=True)
    counts = [
        [
            count
            for count, _, _ in written_slice(
                Layout(format=AvroContainer(), value_converter=converter, schema_compatibility=mode), values
            ).offsets
        ]
        for mode in (None, "NONE", "BACKWARD", "FORWARD")
    ]
    assert counts == [[4], [2, 1, 1], [2, 2], [4]]


# --- Beside other parts of the records ---


@pytest.mark.parametrize("record_format", FORMATS)
@pytest.mark.parametrize("cuts", [(), range(9)])
def test_values_in_envelopes_get_the_schema_of_the_object(record_format: Any, cuts: Iterable[int]) -> None:
    """Projected like values alone; nulls stay null, and those before the first value have an object of their own."""
    whole = layout(msgspec.structs.replace(record_format, on_null="write"), "BACKWARD", content=Envelope())
    values = [None, None, *framed([OLD, NEW], [0, 1, 0]), None, *framed([OLD, NEW], [0], 6)]
    written = written_slice(whole, values, schemas=registry_of(OLD, NEW), cuts=cuts)
    # An object of Parquet with nulls alone has no column of values.
    assert [[(row["offset"], row.get("value")) for row in of] for of in read(written)] == [
        [(0, None), (1, None)],
        [(2, {"seq": 0})],
        [(3, {"seq": 1, "x": "x1"}), (4, {"seq": 2, "x": None}), (5, None), (6, {"seq": 6, "x": None})],
    ]


@pytest.mark.parametrize("affix", [None, "PREFIX"])
@pytest.mark.parametrize("record_format", FORMATS)
@pytest.mark.parametrize("keys", [RawBytes(extension=".txt"), JsonLines(), AvroContainer()])
def test_keys_stand_beside_values_with_the_schema_of_the_object(record_format: Any, keys: Any, affix: Any) -> None:
    """Line by line, whatever the values were projected to; tombstones change no object of values."""
    beside = layout(
        msgspec.structs.replace(record_format, on_null="write"),
        "BACKWARD",
        content=SiblingObjects(keys=keys),
        key_converter=BytesConverter() if isinstance(keys, RawBytes) else StringConverter(),
        naming=Naming(schema_affix=affix),
    )
    values = [*framed([OLD, NEW], [0, 1, 0]), None, *framed([OLD, NEW], [0], 4)]
    names = [f"k{n}" for n in range(5)]
    written = written_slice(beside, values, keys=[n.encode() for n in names], schemas=registry_of(OLD, NEW))
    folder = "schema_name=acme.R/" if affix else ""
    main = {k: v for k, v in written.objects.items() if ".keys." not in k}
    assert [rows(*item) for item in main.items()] == [
        [{"seq": 0}],
        [{"seq": 1, "x": "x1"}, {"seq": 2, "x": None}, {"seq": 4, "x": None}],
    ]
    assert [folder in key for key in main] == [True, True]
    text = {
        key.split("/orders/")[1]: body.decode().split() if isinstance(keys, RawBytes) else rows(key, body)
        for key, body in written.objects.items()
        if ".keys." in key
    }
    extension = ".keys" + keys.object_extension
    assert text == {
        f"{folder}partition=0/orders+0+0000000000{extension}": names[:1],
        f"{folder}partition=0/orders+0+0000000001{extension}": [names[1], names[2], names[4]],
        f"tombstone/orders+0+0000000003{extension}": names[3:4],
    }


# --- How many objects ---


PATTERNS = {
    "one schema": lambda n: n * 0,
    "in turn": lambda n: n % 2,
    "in turn, ten at a time": lambda n: n // 10 % 2,
    "every tenth is an older one": lambda n: (n % 10 != 9) * 1,
    "every tenth is a newer one": lambda n: (n % 10 == 9) * 1,
}


@pytest.mark.parametrize("pattern", PATTERNS)
def test_as_many_objects_are_written_as_the_rules_count(pattern: str) -> None:
    """Of each mode, and of an object for each schema: the numbers of the design page, at a smaller scale."""
    of = PATTERNS[pattern](np.arange(200))
    versions = [SchemaVersion(parse_schema(json.dumps(s)), n) for n, s in enumerate([OLD, NEW])]
    for mode in MODES:
        rolled, grouped = object_counts(mode, versions, of, of * 0, flush_size=50)
        for layout_mode, expected in ((mode, rolled), (None, grouped)):
            written = write(AvroContainer(), layout_mode, [OLD, NEW], of.tolist(), rotation=Rotation(flush_size=50))
            assert len(written.objects) == expected


# --- The name of the schema in the path ---


@pytest.mark.parametrize("mode", [None, "NONE", "BACKWARD"])
@pytest.mark.parametrize("record_format", FORMATS)
@pytest.mark.parametrize(("affix", "folders"), [("PREFIX", "{}/partition=0"), ("SUFFIX", "partition=0/{}")])
def test_the_name_of_the_schema_is_a_folder(affix: Any, folders: str, record_format: Any, mode: Any) -> None:
    """Before or behind those of the partitioner; schemas of one name share the folder, each name has objects."""
    schemas = [OLD, record(("id", "long"), name="S"), "string"]
    registry = registry_of(*schemas)
    payloads = [{"seq": 0}, {"id": 1}, "a", {"seq": 2}, {"id": 3}]
    values = [
        registry.frame(i + 1, datum(schemas[i], payload)) for i, payload in zip([0, 1, 2, 0, 1], payloads, strict=True)
    ]
    written = written_slice(layout(record_format, mode, naming=Naming(schema_affix=affix)), values, schemas=registry)
    found = {
        key.rpartition("/")[0].removeprefix("topics/orders/"): len(rows(key, body))
        for key, body in written.objects.items()
    }
    assert found == {folders.format(f"schema_name={n}"): c for n, c in (("acme.R", 2), ("acme.S", 2), ("null", 1))}


@pytest.mark.parametrize(
    ("schema", "name"),
    [
        ({"type": "struct", "name": "db-1.Outer$In", "fields": []}, "db-1.Outer$In"),
        ({"type": "struct", "fields": []}, "null"),
        ({"type": "struct", "name": "../_kafka_s3/x y", "fields": []}, "..__kafka_s3_x_y"),
        ({"type": "string", "name": "acme.Text"}, "acme.Text"),
        ({"type": "string"}, "null"),
        (
            {"type": "int64", "name": "org.apache.kafka.connect.data.Timestamp"},
            "org.apache.kafka.connect.data.Timestamp",
        ),
    ],
)
def test_the_folder_of_an_envelope_has_the_name_in_the_envelope(schema: dict[str, Any], name: str) -> None:
    """What a producer writes cannot lead into another folder."""
    payload = {"struct": {}, "string": "a", "int64": 1}[schema["type"]]
    converter, naming = JsonConverter(schemas_enable=True), Naming(schema_affix="SUFFIX")
    written = written_slice(
        Layout(format=JsonLines(), value_converter=converter, naming=naming),
        [json.dumps({"schema": schema, "payload": payload}).encode()],
    )
    assert [*written.objects] == [f"topics/orders/partition=0/schema_name={name}/orders+0+0000000000.json"]


@pytest.mark.parametrize("affix", ["PREFIX", "SUFFIX"])
def test_objects_with_the_name_of_a_schema_are_found_again(affix: Any) -> None:
    """A rerun writes nothing, a deleted one is restored, and every record is in exactly one."""
    topic = Topic(layout(JsonLines(), "NONE", topics_dir="lake", naming=Naming(schema_affix=affix)))
    schemas = [OLD, record(("id", "long"), name="S")]
    ids = [topic.registry.register(json.dumps(schema)) for schema in schemas]
    for n in range(6):
        append(topic, ids[n % 2], schemas[n % 2], {"seq" if n % 2 == 0 else "id": n})
    topic.append(topic.registry.frame(ids[0], b"")[:3])
    topic.layout = msgspec.structs.replace(topic.layout, errors="dead_letter")
    topic.land()
    before = topic.objects()
    assert len(before) == 3
    topic.land()
    assert topic.objects() == before
    topic.restore(next(key for key in before if "acme.S" in key))
    assert topic.objects() == before

    def values_in(key: str, body: bytes) -> list[bytes]:
        of = [("seq" not in row, row) for row in rows(key, body)]
        return [topic.registry.frame(ids[i], datum(schemas[i], row)) for i, row in of]

    assert topic.check(values_in) == 7
