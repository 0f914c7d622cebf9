"""Settings refuse values that could not work, and name valid ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airflow_provider_kafka_s3.config import (
    MIB,
    AvroContainer,
    AvroConverter,
    ByPartition,
    Chain,
    ClockTime,
    CustomFormat,
    CustomPartitioner,
    Daily,
    Hourly,
    JsonConverter,
    JsonLines,
    Layout,
    Naming,
    RawBytes,
    Rotation,
)
from airflow_provider_kafka_s3.exceptions import ConfigurationError

FIELDS = '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}%s]}'


@pytest.mark.parametrize("name", ["_rescued", "_RESCUED"])
def test_a_field_named_as_the_column_of_rescued_parts_is_refused(name: str) -> None:
    """In any case, since engines ignore it; inside another field, or without rescue, it is a name as any other."""
    schema = FIELDS % f', {{"name": "{name}", "type": "string"}}'
    with pytest.raises(ConfigurationError, match=f"has the field '{name}', and unknown_fields='rescue' adds"):
        JsonConverter(schema=schema, unknown_fields="rescue")
    JsonConverter(schema=schema, unknown_fields="fail")
    inner = '{"type": "record", "name": "R", "fields": [{"name": "_rescued", "type": "string"}]}'
    JsonConverter(schema=FIELDS % f', {{"name": "r", "type": {inner}}}', unknown_fields="rescue")


@pytest.mark.parametrize("schema", ['"string"', '["null", {"type": "map", "values": "long"}]'])
def test_only_records_have_room_for_rescued_parts(schema: str) -> None:
    """Other values have no column beside them."""
    with pytest.raises(ConfigurationError, match="has to be a record"):
        JsonConverter(schema=schema, unknown_fields="rescue")


@pytest.mark.parametrize("settings", [{}, {"schemas_enable": True}])
def test_unknown_fields_are_those_of_a_declared_schema(settings: Any) -> None:
    """Without one the setting would have no effect."""
    with pytest.raises(ConfigurationError, match="unknown_fields='fail' is about fields"):
        JsonConverter(unknown_fields="fail", **settings)


def test_unknown_fields_are_left_out_unless_it_is_said() -> None:
    """As before there was a choice; a wrong one is named."""
    assert JsonConverter(schema=FIELDS % "").unknown_fields == "leave_out"
    with pytest.raises(ConfigurationError, match="unknown_fields='rescued' is not known; did you mean 'rescue'"):
        JsonConverter(schema=FIELDS % "", unknown_fields="rescued")  # type: ignore[arg-type]


def test_a_schema_may_be_a_file_beside_the_dag(tmp_path: Path) -> None:
    """Its text is the setting, so plans hold it."""
    path = tmp_path / "orders.avsc"
    path.write_text(FIELDS % "", encoding="utf-8")
    assert JsonConverter.from_file(path, unknown_fields="rescue") == JsonConverter(
        schema=FIELDS % "", unknown_fields="rescue"
    )
    assert JsonConverter.from_file(str(path), decimal_format="BASE64").decimal_format == "BASE64"


def test_a_schema_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """With the reason; a relative path depends on the process that parses the DAG."""
    with pytest.raises(ConfigurationError, match=r"cannot be read .No such file"):
        JsonConverter.from_file(tmp_path / "absent.avsc")
    (tmp_path / "bytes").write_bytes(b"\xff")
    with pytest.raises(ConfigurationError, match="it is not UTF-8"):
        JsonConverter.from_file(tmp_path / "bytes")
    with pytest.raises(ConfigurationError, match=r"relative path.*with_name.'orders.avsc'"):
        JsonConverter.from_file("orders.avsc")


@pytest.mark.parametrize("most", [0, -1])
def test_at_least_one_object_may_be_open(most: int) -> None:
    """Nothing could be written otherwise."""
    with pytest.raises(ConfigurationError, match=f"max_open_objects={most} must be a positive whole number of objects"):
        Rotation(max_open_objects=most)


def test_the_number_of_open_objects_is_bounded_by_default() -> None:
    """A slice whose records are out of order must fit into a worker."""
    assert Layout(format=JsonLines()).rotation.max_open_objects == 400


@pytest.mark.parametrize("partitioner", [ByPartition(), Hourly(timestamp_from=ClockTime(at_ms=5))])
def test_an_interval_needs_the_times_of_records(partitioner: Any) -> None:
    """Records of one partition, or of one time, would never be apart."""
    with pytest.raises(ConfigurationError, match=r"rotate_interval_ms=5 needs the times of records.*timestamp_from"):
        Layout(format=JsonLines(), partitioner=partitioner, rotation=Rotation(rotate_interval_ms=5))


def test_a_change_of_the_partition_ends_objects_with_an_interval_only() -> None:
    """As in Kafka Connect, where it has no effect alone."""
    with pytest.raises(ConfigurationError, match="rotate_on_partition_change has no effect without rotate_interval_ms"):
        Layout(format=JsonLines(), partitioner=DAILY, rotation=Rotation(rotate_on_partition_change=True))


def test_intervals_are_positive() -> None:
    """Connect takes zero and less for none; here that is None."""
    with pytest.raises(
        ConfigurationError, match="rotate_interval_ms=0 must be a positive whole number of milliseconds"
    ):
        Rotation(rotate_interval_ms=0)


def test_parts_fit_into_memory() -> None:
    """A task holds several at once."""
    assert Layout(format=JsonLines(), part_size=512 * MIB).part_size == 512 * MIB
    with pytest.raises(
        ConfigurationError, match=r"from 5,242,880 to 536,870,912: .* a task holds several in memory; the default"
    ):
        Layout(format=JsonLines(), part_size=512 * MIB + 1)


@pytest.mark.parametrize("prefix", ["topic=", "=", "raw~", "a.b_c-1+", "é"])
def test_a_topic_prefix_ends_in_a_character_that_no_topic_may_contain(prefix: str) -> None:
    """So that the prefix and a topic are never another topic."""
    assert Naming(topic_prefix=prefix).topic_prefix == prefix


@pytest.mark.parametrize("prefix", ["topic", "t_", "t-", "t.", "x=y", "x=1"])
def test_a_topic_prefix_with_another_ending_is_refused(prefix: str) -> None:
    """The objects of topics ``x`` and ``tx`` would have the same names."""
    with pytest.raises(ConfigurationError, match=r"would be named as those of a topic.*'topic='"):
        Naming(topic_prefix=prefix)


@pytest.mark.parametrize("prefix", ["_", "_=", ".=", "a/=", "/", " =", "= ", "a\x00="])
def test_a_prefix_that_readers_skip_or_that_makes_a_folder_is_refused(prefix: str) -> None:
    """Readers would skip the objects, or their names would be hard to type."""
    with pytest.raises(ConfigurationError, match="topic_prefix="):
        Naming(topic_prefix=prefix)


DAILY = Daily()


@pytest.mark.parametrize("name", ["fail", "unknown", "__HIVE_DEFAULT_PARTITION__", "_bad", "no time", "0th", "n.a."])
def test_a_partition_for_records_without_a_time_has_a_name(name: str) -> None:
    """Any name that a folder may have."""
    assert Layout(format=JsonLines(), partitioner=DAILY, on_bad_timestamp=name).on_bad_timestamp == name


@pytest.mark.parametrize(
    "name", ["", " ", ".", "..", "a/b", "../x", "year=1", " a", "2026", "a\x00b", "a\nb", "_kafka_s3"]
)
def test_an_unsuitable_partition_name_is_refused(name: str) -> None:
    """Including names that look like a time or the folder of control documents."""
    with pytest.raises(ConfigurationError, match="on_bad_timestamp="):
        Layout(format=JsonLines(), partitioner=DAILY, on_bad_timestamp=name)


def test_a_partition_for_records_without_a_time_needs_a_partitioner_by_time() -> None:
    """A setting without effect is a mistake, as is a name that contains the delimiter of folders."""
    with pytest.raises(ConfigurationError, match="has no effect"):
        Layout(format=JsonLines(), on_bad_timestamp="unknown")
    with pytest.raises(ConfigurationError, match="directory_delim"):
        Layout(format=JsonLines(), partitioner=DAILY, naming=Naming(directory_delim="-"), on_bad_timestamp="no-time")


DECLARED = JsonConverter(schema='{"type": "record", "name": "R", "fields": []}')


@pytest.mark.parametrize("mode", ["NONE", "BACKWARD", "FORWARD", "FULL"])
@pytest.mark.parametrize("converter", [AvroConverter(), JsonConverter(schemas_enable=True)])
def test_values_with_versions_of_schemas_have_every_compatibility(mode: Any, converter: Any) -> None:
    """Also in formats without a schema."""
    for record_format in (AvroContainer(), JsonLines()):
        layout = Layout(format=record_format, value_converter=converter, schema_compatibility=mode)
        assert layout.schema_compatibility == mode


@pytest.mark.parametrize("settings", [{"format": JsonLines()}, {"format": RawBytes()}])
@pytest.mark.parametrize("mode", ["NONE", "FULL"])
def test_values_without_schemas_have_no_compatibility(settings: Any, mode: Any) -> None:
    """A setting without effect is a mistake; the message has the converters with schemas."""
    with pytest.raises(
        ConfigurationError, match=rf"schema_compatibility='{mode}' needs values with a schema, .*'avro'"
    ):
        Layout(**settings, schema_compatibility=mode)


def test_a_declared_schema_is_not_compared() -> None:
    """It is the only one of its layout."""
    with pytest.raises(ConfigurationError, match=r"schema_compatibility='FULL' compares .* has no version. Remove it"):
        Layout(format=AvroContainer(), value_converter=DECLARED, schema_compatibility="FULL")
    assert Layout(format=AvroContainer(), value_converter=DECLARED, schema_compatibility="NONE")


@pytest.mark.parametrize(("kind", "field"), [(Layout, "schema_compatibility"), (Naming, "schema_affix")])
def test_a_mode_that_does_not_exist_is_refused_with_those_that_do(kind: Any, field: str) -> None:
    """The nearest one is named."""
    more = {"format": AvroContainer(), "value_converter": AvroConverter()} if kind is Layout else {}
    with pytest.raises(ConfigurationError, match=rf"{field}='none'"):
        kind(**more, **{field: "none"})


def test_layouts_with_classes_of_other_packages_have_a_hash() -> None:
    """Equal ones the same, whatever their options hold: indexes of the log are made of layouts that are compared."""

    def layout(city: str) -> Layout:
        options = {"cities": [city, {"x": 1}]}
        return Layout(
            format=CustomFormat(import_path="a:B", extension=".txt", options=options),
            partitioner=Chain(partitioners=(CustomPartitioner(import_path="a:C", options=options), Daily())),
        )

    assert {layout("Oslo"), layout("Oslo"), layout("Bergen")} == {layout("Bergen"), layout("Oslo")}
    assert hash(layout("Oslo")) == hash(layout("Oslo"))
