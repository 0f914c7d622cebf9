"""Parameters: what is understood, and what the errors say."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_kafka_s3.airflow import parameters
from airflow_provider_kafka_s3.config import Format, Layout, Partitioner
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.retry import RetryPolicy
from airflow_provider_kafka_s3.spark.spec import UploadSettings


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
    """Rendered templates are text, so text may hold several topics."""
    assert parameters.parse_topics(given) == topics


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([], "name at least one topic"),
        ("", "must be text that is not empty"),
        ("orders,,clicks", "must be text that is not empty"),
        (["orders", 7], "must be text that is not empty"),
        (7, "must be the name of a topic or a list of names"),
        (["orders", "clicks", "orders"], "names 'orders' more than once"),
        ("or/ders", "not a legal Kafka topic name"),
    ],
)
def test_topics_that_cannot_be_are_refused(given: object, message: str) -> None:
    """Each error says what to write."""
    with pytest.raises(ConfigurationError, match=message):
        parameters.parse_topics(given)


def test_formats_and_partitioners_may_be_names_mappings_or_settings() -> None:
    """All three forms make the same settings."""
    assert parameters.parse_format("json") == Format(kind="json")
    gzip = Format(kind="bytes", compression="gzip")
    assert parameters.parse_format({"kind": "bytes", "compression": "gzip"}) == gzip
    assert parameters.parse_format(gzip) is gzip
    assert parameters.parse_partitioner("hourly") == Partitioner(kind="hourly")
    berlin = Partitioner(kind="daily", timezone="Europe/Berlin")
    assert parameters.parse_partitioner({"kind": "daily", "timezone": "Europe/Berlin"}) == berlin


@pytest.mark.parametrize(
    ("parse", "given", "message"),
    [
        (parameters.parse_format, "avro", "^format='avro' is not known; use 'json' or 'bytes'$"),
        (
            parameters.parse_format,
            {"kind": "json", "compresion": "gzip"},
            "format has no 'compresion'; did you mean 'compression'",
        ),
        (
            parameters.parse_format,
            {"kind": "json", "compression_level": 9},
            "compression_level=9 is not an ISA-L level",
        ),
        (parameters.parse_format, 7, "must be a name, a mapping of settings or a Format"),
        (parameters.parse_partitioner, {"kind": "time"}, "give a pattern such as"),
        (parameters.parse_partitioner, {"kind": "daily", "timezone": "Mars/Base"}, "use an IANA name"),
        (parameters.parse_upload, {"threads": 0}, "upload threads=0 must be 1 or more"),
        (parameters.parse_upload, {"memory": 1}, "upload memory=1 bytes must be 1 MiB or more"),
        (
            parameters.parse_upload,
            {"spil_dir": "/x"},
            "upload has no 'spil_dir'; did you mean 'spill_dir'. It has threads, memory, spill_dir$",
        ),
        (parameters.parse_upload, 4, "upload=4 must be a mapping of settings"),
        (
            parameters.parse_retry_policy,
            {"retries": 3},
            "has no 'retries'; did you mean 'max_retries'. It has max_retries, base",
        ),
        (parameters.parse_retry_policy, {"max_retries": -1}, "max_retries=-1 is negative"),
        (parameters.parse_format, {"kind": "parquet"}, "^format: kind='parquet' is not known; use 'json' or 'bytes'$"),
        (parameters.parse_format, Format(kind="parquet"), "^format: kind='parquet' is not known; use"),  # type: ignore[arg-type]
        (parameters.parse_format, {"compression": "gzip"}, "^format has no 'kind', which must be 'json' or 'bytes'"),
        (
            parameters.parse_format,
            {"kind": "json", "on_null": True},
            "on_null=True must be 'fail' or 'ignore'$",
        ),
        (parameters.parse_format, {"kind": "json", "compression_level": 1.5}, "must be a whole number$"),
        (
            parameters.parse_partitioner,
            "dayly",
            "^partitioner='dayly' is not known; did you mean 'daily'. Use 'default', 'd",
        ),
        (
            parameters.parse_partitioner,
            {"kind": "daily", 7: 1},
            "partitioner has no 7; it has kind, timezone, path_format",
        ),
        (parameters.parse_partitioner, {"timezone": 1}, "partitioner: timezone=1 must be text$"),
        (
            parameters.parse_partitioner,
            {"kind": "time", "path_format": "YYYY", "duration_ms": "1h"},
            "partitioner: duration_ms='1h' must be a whole number or None$",
        ),
        (parameters.parse_upload, {"threads": True}, "upload: threads=True must be a whole number$"),
        (
            parameters.parse_retry_policy,
            "often",
            "request_retry='often' must be a mapping of settings or a RetryPolicy",
        ),
        (parameters.parse_upload, UploadSettings(threads=1.5), "upload: threads=1.5 must be a whole number"),  # type: ignore[arg-type]
        (
            parameters.parse_retry_policy,
            {"max_retries": "3"},
            "request_retry: max_retries='3' must be a whole number$",
        ),
    ],
)
def test_wrong_settings_are_told_with_their_parameter(parse: Any, given: object, message: str) -> None:
    """Unknown names, unknown fields and impossible values all come as ConfigurationError."""
    with pytest.raises(ConfigurationError, match=message):
        parse(given)


def test_how_to_upload_may_be_a_mapping() -> None:
    """What is not said keeps its default."""
    said = UploadSettings(threads=8, spill_dir="/mnt/fast")
    assert parameters.parse_upload({"threads": 8, "spill_dir": "/mnt/fast"}) == said
    assert parameters.parse_upload(said) is said
    assert parameters.parse_upload(None) == UploadSettings()


def test_a_retry_policy_may_be_a_mapping() -> None:
    """What is not said keeps its default."""
    assert parameters.parse_retry_policy({"max_retries": 9}) == RetryPolicy(max_retries=9)
    assert parameters.parse_retry_policy(None) == RetryPolicy()


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


def test_without_starting_offsets_the_window_of_the_first_run_says_where_a_topic_begins() -> None:
    """As with ``offsets="data_interval"``."""
    assert parameters.starting_of(parameters.parse_starting_offsets(None), "orders", ["orders"]) is None


@pytest.mark.parametrize(
    "given", ["newest", {}, 5, {"orders": {}}, {"orders": {0: 1}, 1: 2}, {0: -1}, {0: True}, {"x": 1}, {0: "5"}]
)
def test_starting_offsets_that_cannot_be_are_refused(given: object) -> None:
    """Anything else is an error that names the parameter."""
    with pytest.raises(ConfigurationError, match="starting_offsets"):
        parameters.parse_starting_offsets(given)


def test_offsets_of_one_topic_do_not_do_for_two() -> None:
    """It has to be said which topic they belong to, and every topic has to be there."""
    with pytest.raises(ConfigurationError, match="do not tell which of the topics orders, clicks"):
        parameters.starting_of({0: 1}, "orders", ["orders", "clicks"])
    with pytest.raises(ConfigurationError, match="name no offsets of topic 'clicks'"):
        parameters.starting_of({"orders": {0: 1}}, "clicks", ["orders", "clicks"])


def test_a_key_that_may_become_too_long_is_found_before_anything_is_planned() -> None:
    """The longest key that layout and topic can make is checked, not the first one that is made."""
    layout = Layout(topics_dir="d" * 800, format=Format(kind="json"))
    parameters.usable_layout(layout, ["orders"])
    with pytest.raises(ConfigurationError, match="1024"):
        parameters.usable_layout(layout, ["orders", "t" * 249])
