"""Forms of parameters, and errors of invalid ones."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from airflow_provider_kafka_s3.airflow import parameters
from airflow_provider_kafka_s3.config import (
    ByPartition,
    Daily,
    Hourly,
    JsonLines,
    Layout,
    RawBytes,
    TimePattern,
    Upload,
    Window,
    parse_format,
    parse_partitioner,
)
from airflow_provider_kafka_s3.config.values import make_value
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.retry import RetryPolicy
from tests.unit.operators.conftest import make_operator

upload = partial(make_value, "upload", (Upload,))
retry = partial(make_value, "request_retry", (RetryPolicy,))


@pytest.mark.parametrize(
    ("given", "topics"),
    [
        ("orders", ("orders",)),
        (" orders , clicks ", ("orders", "clicks")),
        (["orders", "clicks"], ("orders", "clicks")),
        (("orders",), ("orders",)),
    ],
)
def test_topics_may_be_text_or_a_list(given: object, topics: tuple[str, ...]) -> None:
    """Rendered templates are text, so text may have several topics."""
    assert parameters.parse_topics(given) == topics


@pytest.mark.parametrize(
    "converter", ["avro", "protobuf", "json_schema", {"kind": "json_schema", "decimal_format": "NUMERIC"}]
)
@pytest.mark.parametrize("record_format", ["json", "avro", "parquet", "csv"])
def test_values_of_a_registry_need_its_connection(converter: object, record_format: str) -> None:
    """And no other values have one."""
    given = {"value_converter": converter, "format": record_format}
    made = make_operator(**given, registry_conn_id="registry_default")
    assert made.registry_conn_id == "registry_default"
    with pytest.raises(ConfigurationError, match="registry_conn_id go together"):
        make_operator(**given)
    with pytest.raises(ConfigurationError, match="registry_conn_id go together"):
        make_operator(registry_conn_id="registry_default")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([], "name at least one topic"),
        ("", "must be text that is not empty"),
        ("orders,,clicks", "must be text that is not empty"),
        (["orders", 7], "must be text"),
        (7, "must be text"),
        (["orders", "clicks", "orders"], "names 'orders' more than once"),
        ("or/ders", "not a legal Kafka topic name"),
    ],
)
def test_invalid_topics_are_refused(given: object, message: str) -> None:
    """Each error has the right form."""
    with pytest.raises(ConfigurationError, match=message):
        parameters.parse_topics(given)


def test_the_default_partitioner_is_that_of_the_naming() -> None:
    """By Kafka partition, or the day of the record; one of other folders is refused with DeviantArt's names."""
    assert make_operator().partitioner == ByPartition()
    assert make_operator(naming={"file_delim": "-"}).partitioner == ByPartition()
    by_day = make_operator(naming="deviantart", format={"kind": "block_gzip"})
    assert by_day.partitioner == TimePattern(path_format="yyyy-MM-dd", duration_ms=86_400_000)
    with pytest.raises(ConfigurationError, match="naming='deviantart' has one folder for each day"):
        make_operator(naming="deviantart", partitioner="partition")


def test_formats_and_partitioners_may_be_names_mappings_or_settings() -> None:
    """All three forms give the same settings."""
    assert parse_format("json") == JsonLines()
    gzip = RawBytes(compression="gzip")
    assert parse_format({"kind": "bytes", "compression": "gzip"}) == gzip
    assert parse_format(gzip) is gzip
    assert parse_partitioner("hourly") == Hourly()
    berlin = Daily(timezone="Europe/Berlin")
    assert parse_partitioner({"kind": "daily", "timezone": "Europe/Berlin"}) == berlin


@pytest.mark.parametrize(("compression", "level"), [("none", 1), ("gzip", 2), ("zstd", 3), ("bzip2", 9)])
def test_a_level_that_is_not_given_is_the_default_of_the_compression(compression: Any, level: int) -> None:
    """The settings hold the level itself, as plans of earlier versions do."""
    assert JsonLines(compression=compression).compression_level == level
    given = parse_format({"kind": "json", "compression": compression, "compression_level": None})
    assert given == JsonLines(compression=compression, compression_level=level)


@pytest.mark.parametrize(
    ("parse", "given", "message"),
    [
        (
            parse_format,
            "orc",
            "^format='orc' is not known; use 'json', 'bytes', 'avro', 'parquet', 'csv', 'block_gzip' or 'custom'$",
        ),
        (
            parse_format,
            {"kind": "json", "compresion": "gzip"},
            "format: kind 'json' has no 'compresion'; did you mean 'compression'. It has kind, compression, compr",
        ),
        (
            parse_format,
            {"kind": "json", "compression_level": 10},
            "^format: compression_level=10 must be a whole number from 0 to 9: 0 to 3 are levels of ISA-L, 4 to 9 of l",
        ),
        (
            parse_format,
            7,
            r"^format=7 must be 'json', .* or 'custom', a mapping of settings or a JsonLines .* CustomFormat$",
        ),
        (
            parse_partitioner,
            {"kind": "time"},
            "kind 'time' needs 'path_format', which must be text that is not empty, such as",
        ),
        (
            parse_partitioner,
            {"timezone": "UTC"},
            "^partitioner has no 'kind', which must be 'partition', 'field', 'key', 'daily'",
        ),
        (
            parse_partitioner,
            {"kind": "daily", "path_format": "YYYY"},
            "^partitioner: kind 'daily' has no 'path_format', which belongs to 'time'; it has kind, timezone, ",
        ),
        (parse_partitioner, {"kind": "daily", "timezone": "Mars/Base"}, "use an IANA name"),
        (upload, {"threads": 0}, "^upload: threads=0 must be a positive whole number$"),
        (
            upload,
            {"memory": 1},
            "^upload: memory=1 must be a whole number of bytes, 1,048,576 or more$",
        ),
        (
            upload,
            {"spil_dir": "/x"},
            "upload has no 'spil_dir'; did you mean 'spill_dir'. It has part_size, threads, memory, spill_dir, ",
        ),
        (upload, 4, "upload=4 must be a mapping of settings"),
        (
            retry,
            {"retries": 3},
            "has no 'retries'; did you mean 'max_retries'. It has max_retries, base",
        ),
        (
            retry,
            {"max_retries": -1},
            "^request_retry: max_retries=-1 must be a whole number, 0 or more: 0 is one try only",
        ),
        (
            parse_format,
            {"kind": "orc"},
            "^format: kind='orc' is not known; use 'json', 'bytes', 'avro', .* 'block_gzip' or 'custom'$",
        ),
        (parse_format, {"kind": ["json"]}, "^format: kind=.*json.* is not known; did you mean 'json'"),
        (
            parse_format,
            {"compression": "gzip"},
            "^format has no 'kind', which must be 'json', 'bytes', 'avro', 'parquet', 'csv', 'block_gzip' or 'custom'",
        ),
        (
            parse_format,
            {"kind": "json", "on_null": True},
            "on_null=True must be 'fail', 'ignore' or 'write'$",
        ),
        (parse_format, {"kind": "json", "compression_level": 1.5}, "must be a whole number or None"),
        (
            parse_format,
            {"kind": "json", "compression": "zstd", "compression_level": 20},
            "^format: compression_level=20 must be a whole number from 1 to 19: a level of Zstandard",
        ),
        (
            parse_format,
            {"kind": "bytes", "compression": "bzip2", "compression_level": 0},
            "^format: compression_level=0 must be a whole number from 1 to 9: a block of bzip2",
        ),
        (
            parse_partitioner,
            "dayly",
            "^partitioner='dayly' is not known; did you mean 'daily'. Use 'partition', 'field', 'key', 'd",
        ),
        (
            parse_partitioner,
            {"kind": "daily", 7: 1},
            "partitioner: kind 'daily' has no 7; it has kind, timezone, timestamp_from$",
        ),
        (parse_partitioner, {"kind": "daily", "timezone": 1}, "partitioner: timezone=1 must be text$"),
        (
            parse_partitioner,
            {"kind": "time", "path_format": "YYYY", "duration_ms": "1h"},
            "partitioner: duration_ms='1h' must be a whole number of milliseconds from 1 to .*: a duration; a day has",
        ),
        (upload, {"threads": True}, "upload: threads=True must be a positive whole number$"),
        (
            retry,
            "often",
            "request_retry='often' must be a mapping of settings or a RetryPolicy",
        ),
        (
            retry,
            {"max_retries": "3"},
            "request_retry: max_retries='3' must be a whole number, 0 or more",
        ),
    ],
)
def test_the_error_of_an_invalid_setting_names_its_parameter(parse: Any, given: object, message: str) -> None:
    """Unknown names, unknown fields and invalid values are a ConfigurationError."""
    with pytest.raises(ConfigurationError, match=message):
        parse(given)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: JsonLines(compression="zip"),
            "^compression='zip' is not known; did you mean 'gzip'. Use 'none', ",
        ),  # type: ignore[arg-type]
        (lambda: RawBytes(compression_level=-1), "^compression_level=-1 must be a whole number from 0 to 9"),
        (lambda: Daily(timezone="Mars/Base"), "^timezone='Mars/Base' is not in the zone database"),
        (lambda: Upload(threads=1.5), "^threads=1.5 must be a positive whole number$"),  # type: ignore[arg-type]
        (lambda: RetryPolicy(base=float("nan")), "^base=nan must be a number of seconds from 0 to 86,400$"),
        (
            lambda: Layout(format="json"),
            "^format='json' must be a JsonLines or a RawBytes or an AvroContainer or .* or a CustomFormat$",
        ),  # type: ignore[arg-type]
    ],
)
def test_no_invalid_value_can_be_created(make: Callable[[], object], message: str) -> None:
    """Neither by its constructor nor from a mapping."""
    with pytest.raises(ConfigurationError, match=message):
        make()


def test_how_to_upload_may_be_a_mapping() -> None:
    """A field that is not given has its default."""
    settings = Upload(threads=8, spill_dir="/mnt/fast")
    assert upload({"threads": 8, "spill_dir": "/mnt/fast"}) == settings
    assert upload(settings) is settings
    assert upload(None) == Upload()


def test_a_retry_policy_may_be_a_mapping() -> None:
    """A field that is not given has its default."""
    assert retry({"max_retries": 9}) == RetryPolicy(max_retries=9)
    assert retry(None) == RetryPolicy()


def test_a_duration_may_be_text_in_a_mapping() -> None:
    """YAML has no timedelta. A constructor takes a timedelta only."""
    assert make_value("window", (Window,), {"partition_length": "PT6H"}) == Window(partition_length=timedelta(hours=6))
    with pytest.raises(ConfigurationError, match=r"^partition_length='PT6H' must be a timedelta"):
        Window(partition_length="PT6H")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=r"^window: partition_length=.* must be positive$"):
        make_value("window", (Window,), {"partition_length": timedelta(0)})


@pytest.mark.parametrize(
    ("given", "topic", "starting"),
    [
        ("earliest", "orders", "earliest"),
        ("latest", "orders", "latest"),
        ({0: 5, "1": 6}, "orders", {0: 5, 1: 6}),
        ({"orders": {"0": 5}, "clicks": {0: 7}}, "clicks", {0: 7}),
    ],
)
def test_starting_offsets_have_four_forms(given: Any, topic: str, starting: object) -> None:
    """Words, offsets of one topic, offsets of several; partitions may be text, as JSON has them."""
    parsed = parameters.parse_starting_offsets(given)
    topics = ["orders", "clicks"] if isinstance(given, dict) and "orders" in given else ["orders"]
    assert parameters.starting_of(parsed, topic, topics) == starting


def test_without_starting_offsets_a_topic_begins_with_the_window_of_the_first_run() -> None:
    """As with ``offsets="data_interval"``."""
    assert parameters.starting_of(parameters.parse_starting_offsets(None), "orders", ["orders"]) is None


@pytest.mark.parametrize(
    "given", ["newest", {}, 5, {"orders": {}}, {"orders": {0: 1}, 1: 2}, {0: -1}, {0: True}, {"x": 1}, {0: "5"}]
)
def test_invalid_starting_offsets_are_refused(given: object) -> None:
    """Anything else is an error that names the parameter."""
    with pytest.raises(ConfigurationError, match="starting_offsets"):
        parameters.parse_starting_offsets(given)


def test_offsets_without_a_topic_are_refused_for_two_topics() -> None:
    """They have to name every topic."""
    with pytest.raises(ConfigurationError, match="do not name which of the topics orders, clicks"):
        parameters.starting_of({0: 1}, "orders", ["orders", "clicks"])
    with pytest.raises(ConfigurationError, match="name no offsets of topic 'clicks'"):
        parameters.starting_of({"orders": {0: 1}}, "clicks", ["orders", "clicks"])


def test_a_key_that_may_become_too_long_is_found_before_anything_is_planned() -> None:
    """The longest key that layout and topic can have is checked."""
    layout = Layout(topics_dir="d" * 800, format=JsonLines())
    parameters.usable_layout(layout, ["orders"])
    with pytest.raises(ConfigurationError, match="1024"):
        parameters.usable_layout(layout, ["orders", "t" * 249])
