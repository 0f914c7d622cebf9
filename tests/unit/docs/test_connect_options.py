"""The page of Kafka Connect's options has every option, and the defaults of the code."""

from __future__ import annotations

from typing import Final

from airflow_provider_kafka_s3 import Rotation, Upload
from airflow_provider_kafka_s3.kafka_connect.settings import SINK
from dev.docs.connect_options import CONNECT_DEFAULTS, OPTIONS_PAGE, default_here, with_options

WITHOUT_DEFAULT: Final = {
    "append.late.data",
    "s3.sse.key",
    "schema.cache.size",
    "schema.generator.class",
    "confluent.license",
    "confluent.topic.*",
    *(name for name in (setting.name for setting in SINK) if name.startswith("s3.credentials.provider.")),
} - {"s3.credentials.provider.class"}
"""Options of no release of today, of the licence, and of classes of credentials."""


def test_the_table_of_options_is_that_of_the_code() -> None:
    """``python -m dev.docs.connect_options`` writes it."""
    page = OPTIONS_PAGE.read_text()
    assert page == with_options(page)


def test_every_option_of_the_sink_is_there() -> None:
    """None is missing, and none is invented."""
    assert {setting.name for setting in SINK} - WITHOUT_DEFAULT == set(CONNECT_DEFAULTS)


def test_defaults_here_are_those_of_the_types() -> None:
    """Of a parameter, of fields of groups and of formats, and of what has none."""
    found = {setting.name: default_here(setting) for setting in SINK}
    assert found["s3.part.size"] == f"`{Upload().part_size}`"
    assert found["partitioner.max.open.files"] == f"`{Rotation().max_open_objects}`"
    assert found["avro.codec"] == "`'null'`"
    assert found["topics.dir"] == "`'topics'`"
    assert found["timestamp.extractor"] == "`'record'`"
    assert (found["flush.size"], found["s3.bucket.name"], found["store.url"]) == ("`None`", "required", "—")
