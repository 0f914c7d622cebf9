"""The schema of JSON values without one is inferred from a sample."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_kafka_s3.arrays import binary_array
from airflow_provider_kafka_s3.batch.source import Isolation
from airflow_provider_kafka_s3.converters.json_decode import JsonDecoder
from airflow_provider_kafka_s3.documents.offsets import Offsets
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.inspect.infer_schema import InferredSchema, infer_schema, sampled_offsets
from airflow_provider_kafka_s3.overriding import override
from airflow_provider_kafka_s3.schemas.avro import parse_schema
from airflow_provider_kafka_s3.testing.kafka import SimulatedKafka

NAMES = st.sampled_from(["a", "b", "id", "at", "_x", "user-id", "1st", "A"])
NUMBERS = st.integers(-(2**70), 2**70) | st.integers(-9, 9) | st.floats(allow_nan=False, allow_infinity=False)
TEXTS = st.sampled_from(["", "NaN", "12", "-1.50", "007", "2026-01-31", "2026-01-31T23:59:01.25Z", "23:59:01", "é"])
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=8,
)
DOCUMENTS = st.lists(st.dictionaries(NAMES, VALUES, max_size=5), min_size=1, max_size=8)


def topic_of(*values: bytes | None, partitions: int = 1) -> SimulatedKafka:
    """The topic ``orders`` with these values, in turn in its partitions."""
    kafka = SimulatedKafka()
    kafka.create_topic("orders", partitions)
    for n, value in enumerate(values):
        kafka.append("orders", n % partitions, value, timestamp=n)
    return kafka


def inferred(*documents: Any, **options: Any) -> InferredSchema:
    """The schema of a topic with these documents."""
    return infer_schema(topic_of(*(json.dumps(d).encode() for d in documents)), "orders", **options)


def types(schema: InferredSchema) -> dict[str, Any]:
    """The type of each field but null."""
    fields = {field["name"]: field["type"] for field in schema.schema["fields"]}
    assert all(kind[0] == "null" for kind in fields.values())
    return {name: kind[1] if len(kind) == 2 else kind[1:] for name, kind in fields.items()}


def has_names(document: Any) -> bool:
    """Whether a document has a field that a schema allows."""
    return bool(document.keys() & {"a", "b", "id", "at", "_x", "A"})


@given(documents=DOCUMENTS.filter(lambda documents: any(map(has_names, documents))), logical=st.booleans())
def test_the_schema_takes_every_document_of_the_sample(documents: list[Any], logical: bool) -> None:
    """As the converter reads them."""
    schema = inferred(*documents, logical_types=logical).schema
    decoder = JsonDecoder(parse_schema(json.dumps(schema)), decimal_format="NUMERIC")
    texts = [json.dumps(document).encode() for document in documents]
    assert decoder.decode(binary_array(texts, large=False)).reasons == {}


@given(documents=DOCUMENTS.filter(lambda documents: any(map(has_names, documents))))
def test_the_same_records_give_the_same_answer(documents: list[Any]) -> None:
    """The schema, and what was seen."""
    first, second = (json.dumps(inferred(*documents).to_json()) for _ in range(2))
    assert first == second


@given(
    ends=st.lists(st.tuples(st.integers(0, 50), st.integers(0, 60)), min_size=1, max_size=5),
    records=st.integers(1, 80),
)
def test_half_of_the_sample_is_the_oldest_and_half_the_newest(ends: list[tuple[int, int]], records: int) -> None:
    """Of each partition, and all of a topic that has no more."""
    whole = Offsets({p: [(low, low + size)] for p, (low, size) in enumerate(ends) if size})
    sample = sampled_offsets(whole, records)
    assert sample.count == min(records, whole.count)
    assert sample <= whole
    for partition, ranges in sample.items():
        ((low, high),) = whole[partition]
        assert all(start == low or end == high for start, end in ranges)
    if records > 1 and whole.count > records:
        oldest = sum(end - start for p, ranges in sample.items() for start, end in ranges if start == whole[p][0][0])
        newest = sum(end - start for p, ranges in sample.items() for start, end in ranges if end == whole[p][0][1])
        assert oldest >= records // 2
        assert newest >= records // 2


@pytest.mark.parametrize(
    ("values", "kind", "note"),
    [
        ([1, -(2**63), 2**63 - 1], "long", None),
        ([1, 2.5], "double", "1 integer among numbers with a fraction: all are double"),
        ([2**53 + 1, 0.5], "double", "1 integer with more digits than a double has, which are rounded"),
        (
            [1, 2**63],
            {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 0},
            "1 integer beyond long (up to 19 digits)",
        ),
        (
            [10**40],
            {"type": "bytes", "logicalType": "decimal", "precision": 76, "scale": 0},
            "1 integer beyond long (up to 41 digits)",
        ),
        (["2026-01-31", "2026-02-01"], "string", "all texts have the form of date"),
        (["2026-01-31T01:02:03Z", "2026-01-31T01:02:03.000001Z"], "string", "all texts have the form of timestamp-mi"),
        (["1.50", "-12"], "string", "all texts are decimal numbers (up to 2 digits before and 2 behind the point)"),
        (["1.50", "007"], "string", None),
        (["2026-01-31", "soon"], "string", None),
        ([True, None], "boolean", None),
        ([None], "string", "no value but null was seen, so the type is a guess"),
        ([1, "one"], ["string", "long"], "several types (1 long, 1 string)"),
        ([[1, None], []], {"type": "array", "items": ["null", "long"]}, None),
        ([{"en-US": 1, "de": 2}, {"fr-FR": 3}], {"type": "map", "values": ["null", "long"]}, None),
        ([{f"k{n}": n} for n in range(30)], {"type": "map", "values": ["null", "long"]}, None),
        ([{}], {"type": "map", "values": ["null", "string"]}, "values: no value but null was seen"),
    ],
)
def test_the_type_of_a_field_holds_all_its_values(values: list[Any], kind: Any, note: str | None) -> None:
    """With a note where a person should look."""
    schema = inferred(*({"f": value} for value in values))
    assert types(schema) == {"f": kind}
    notes = schema.fields[0].notes
    assert (notes == ()) if note is None else any(text.startswith(note) for text in notes)


def test_objects_with_few_stable_names_are_records() -> None:
    """Named by their path; a type is defined once."""
    schema = inferred({"a": {"b": 1}, "a_b": {"c": {"d": True}}}, {"a": {"b": {"x": 1}}})
    names = [field.field for field in schema.fields]
    assert names == ["a", "a.b", "a.b.x", "a_b", "a_b.c", "a_b.c.d"]
    parse_schema(json.dumps(schema.schema))


def test_texts_have_their_logical_type_on_demand() -> None:
    """A schema with them reads times and decimals, and refuses other texts later."""
    schema = inferred({"at": "2026-01-31T01:02:03.1Z", "day": "2026-01-31", "price": "1.5"}, logical_types=True)
    assert [kind["logicalType"] for kind in types(schema).values()] == ["timestamp-millis", "date", "decimal"]
    offers = inferred({"at": "2026-01-31T01:02:03.1Z", "day": "2026-01-31", "price": "1.5"}).fields
    assert [field.offer for field in offers] == [*types(schema).values()]


def test_a_name_that_no_schema_allows_is_named() -> None:
    """It is not in the schema, and the evidence says so."""
    schema = inferred({"id": 1, "user-id": 2})
    assert [*types(schema)] == ["id"]
    assert schema.fields[1].field == "user-id"
    assert schema.fields[1].type is None
    assert schema.fields[1].notes[0].startswith("not in the schema: ")


def test_the_share_of_objects_that_have_a_field_is_counted() -> None:
    """Of a nested field among the objects around it; null counts as a value."""
    schema = inferred({"a": {"b": 1}}, {"a": {}}, {"a": None}, {})
    assert [(f.field, f.present, f.objects, f.nulls) for f in schema.fields] == [("a", 3, 4, 1), ("a.b", 1, 2, 0)]


def test_values_of_thousands_of_names_are_a_map() -> None:
    """Also where one object has all of them."""
    schema = inferred({"counts": {f"k{n}": n for n in range(5_000)}})
    assert types(schema) == {"counts": {"type": "map", "values": ["null", "long"]}}


def test_a_column_that_is_nested_too_deeply_is_left_out() -> None:
    """And everything else is in the schema."""
    deep: Any = 1
    for _ in range(60):
        deep = {"x": deep}
    schema = inferred({"id": 1, "deep": deep})
    assert types(schema).keys() == {"id"} or schema.fields
    parse_schema(json.dumps(schema.schema))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([], "topic 'orders' has no records that show a schema"),
        ([None, b""], "2 records with a null value, and no other"),
        (
            [b"\0\0\0\0\7\2", b"\0\0\0\0\7\4", b"{}"],
            "bytes with the header of a schema registry: 2, JSON objects: 1. The first that is no object is part",
        ),
        ([b"a,b", b"c,d"], "bytes that are not JSON: 2"),
        ([b"[1]", b"[2]", b"3"], "JSON arrays: 2, JSON single values"),
        ([b'{"schema": {"type": "int32"}, "payload": 1}'], r"use JsonConverter\(schemas_enable=True\)"),
        ([b'{"user-id": 1}'], "have no field for a schema"),
    ],
)
def test_a_topic_whose_values_are_no_json_objects_is_refused(values: list[bytes | None], message: str) -> None:
    """With what was seen, and where."""
    with pytest.raises(ConfigurationError, match=message):
        infer_schema(topic_of(*values), "orders")


def test_records_that_retention_deletes_meanwhile_are_no_error() -> None:
    """The sample has the others."""

    class Deleting(SimulatedKafka):
        @override
        def ends(self, topic: str, partitions: Sequence[int], isolation: Isolation) -> dict[int, int]:
            ends = super().ends(topic, partitions, isolation)
            self.delete_records(topic, 0, before=3)
            return ends

    kafka = Deleting()
    kafka.create_topic("orders", 2)
    for n in range(8):
        kafka.append("orders", n % 2, b'{"a": %d}' % n, timestamp=n)
    assert infer_schema(kafka, "orders").documents == 4


def test_few_other_values_are_counted() -> None:
    """Beside null values; the schema is that of the objects."""
    schema = infer_schema(topic_of(b'{"a": 1}', b"{", None, b'{"a": 2}', partitions=2), "orders")
    assert (schema.records, schema.documents, schema.null_values) == (4, 2, 1)
    assert schema.others == {"bytes that are not JSON": 1}
    assert types(schema) == {"a": "long"}
