"""The warning about fields that engines do not show, in the log of the run that lands them."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from airflow_provider_kafka_s3.config import (
    AvroContainer,
    AvroConverter,
    ByField,
    ByPartition,
    Chain,
    Daily,
    Envelope,
    JsonConverter,
    JsonLines,
    Layout,
    Parquet,
    RawBytes,
    StringConverter,
)
from airflow_provider_kafka_s3.schemas.nodes import Field, Primitive, Record, field_paths
from tests.unit.batch.simulated_topic import Topic

ORDER: Final = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "Year", "type": "int"},
        {"name": "place", "type": {"type": "record", "name": "Place", "fields": [
            {"name": "id", "type": "int"}, {"name": "ID", "type": "int"}, {"name": "day", "type": "int"}]}},
    ],
}  # fmt: skip
DATUM: Final = b"\x02\x04\x06\x08"


def warned(caplog: pytest.LogCaptureFixture, *values: bytes, runs: int = 1, **settings: Any) -> list[str]:
    """The warnings of runs that land these values; without any, a value of the schema."""
    caplog.clear()
    topic = Topic(Layout(topics_dir="lake", **settings))
    schema_id = topic.registry.register(json.dumps(ORDER))
    pipeline = topic.pipeline
    for run in range(runs):
        topic.append(*(values or [topic.registry.frame(schema_id, DATUM)]), timestamp=0)
        pipeline.land(topic.request(f"run-{run}"))
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


@pytest.mark.parametrize("format_", [Parquet(), AvroContainer(), JsonLines()])
def test_fields_that_engines_do_not_show_are_named_with_what_avoids_it(
    caplog: pytest.LogCaptureFixture, format_: Any
) -> None:
    """A field called like a folder in any case, though not within another field; and names that differ in case only."""
    folder, case = warned(caplog, format=format_, value_converter=AvroConverter(), partitioner=Daily())
    assert folder.startswith("topic orders: folders have the names of the fields Year: DuckDB, Spark, Hive, Athena")
    assert "To avoid this, use a partitioner" in folder
    assert "the names of the fields place.ID, place.id differ in case only" in case
    assert "spark.sql.caseSensitive" in case


def test_fields_of_json_documents_are_those_of_the_first_one(caplog: pytest.LogCaptureFixture) -> None:
    """Documents have no schema; those that are no object, that are large, or that msgspec does not take, name none."""
    settings: dict[str, Any] = {"format": JsonLines(), "value_converter": JsonConverter(), "partitioner": Daily()}
    (warning,) = warned(caplog, b'{"day": "Monday", "month": 1}', **settings)
    assert "the fields day, month:" in warning
    large = b'{"day": "%s"}' % (b"-" * 2**17)
    for document in (b'["day"]', b"7", b'{"other": {"day": 1}}', large, b'{"day": "\\ud83d"}'):
        assert not warned(caplog, document, **settings), document[:20]


def test_fields_whose_folders_have_their_values_are_not_named(caplog: pytest.LogCaptureFixture) -> None:
    """That of ByField, and the partition and the topic of an envelope; another field of that name is."""
    by_year = Chain(partitioners=(ByField(names=["year"]), ByPartition()))
    document = b'{"year": 1999, "partition": "north"}'
    (warning,) = warned(caplog, document, format=JsonLines(), value_converter=JsonConverter(), partitioner=by_year)
    assert "the fields partition:" in warning
    envelope: dict[str, Any] = {"content": Envelope(), "value_converter": StringConverter()}
    assert not warned(caplog, b"1", format=JsonLines(), partitioner=ByPartition(), **envelope)
    assert not warned(caplog, b"1", format=RawBytes(), partitioner=Daily())


def test_the_same_fields_are_named_once_by_a_process(caplog: pytest.LogCaptureFixture) -> None:
    """Most batches have those of the one before."""
    document = b'{"day": 1}'
    settings: dict[str, Any] = {"format": JsonLines(), "value_converter": JsonConverter(), "partitioner": Daily()}
    assert len(warned(caplog, document, runs=2, **settings)) == 1


def test_paths_of_a_record_that_contains_itself_end() -> None:
    """Each field is named once."""
    node = Record("Tree", ())
    object.__setattr__(node, "fields", (Field("left", node), Field("id", Primitive("int"))))
    assert [*field_paths(node)] == ["left", "id"]
