"""Settings of other packages are refused when a DAG is parsed: their classes are named by those of kind ``custom``."""

from __future__ import annotations

import pytest

from airflow_provider_kafka_s3.config import Daily, JsonLines, Layout, parse_format, parse_partitioner
from airflow_provider_kafka_s3.config.values import Value
from airflow_provider_kafka_s3.exceptions import ConfigurationError


class Orc(Value, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="orc"):
    """A format outside of the package, declared like those inside."""


class Weekly(Value, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="weekly"):
    """A partitioner declared in the same way."""


def test_an_unknown_format_is_refused_with_the_known_ones() -> None:
    """As an object, a mapping and a name; also inside a layout, which plans are made of."""
    for given in (Orc(), {"kind": "orc"}, "orc"):
        with pytest.raises(
            ConfigurationError, match=r"^format.*'json', 'bytes', 'avro', 'parquet', 'csv', 'block_gzip' or 'custom'"
        ):
            parse_format(given)
    with pytest.raises(ConfigurationError, match=r"^format="):
        Layout(format=Orc())  # type: ignore[arg-type]


def test_an_unknown_partitioner_is_refused_with_the_known_ones() -> None:
    """As an object, a mapping and a name; also inside a layout, which plans are made of."""
    for given in (Weekly(), {"kind": "weekly"}, "weekly"):
        with pytest.raises(
            ConfigurationError, match=r"^partitioner.*'key', 'daily', 'hourly', 'time', 'chain' or 'custom'"
        ):
            parse_partitioner(given)
    with pytest.raises(ConfigurationError, match=r"^partitioner="):
        Layout(format=JsonLines(), partitioner=Weekly())  # type: ignore[arg-type]
    assert Layout(format=JsonLines(), partitioner=Daily()).partitioner == Daily()
