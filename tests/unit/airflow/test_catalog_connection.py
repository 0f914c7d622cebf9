"""A connection of type iceberg is read as Airflow's own hook reads it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_provider_kafka_s3.airflow import connections
from airflow_provider_kafka_s3.exceptions import ConfigurationError


@pytest.mark.parametrize(
    ("connection", "expected"),
    [
        ({"host": "https://catalog:8181/"}, {"uri": "https://catalog:8181", "type": "rest"}),
        (
            {"host": "http://c", "login": "id", "password": "key-of-the-catalog", "extra": {"warehouse": "w"}},
            {"uri": "http://c", "type": "rest", "credential": "id:key-of-the-catalog", "warehouse": "w"},
        ),
        ({"extra": {"type": "glue", "glue.region": "eu-north-1"}}, {"type": "glue", "glue.region": "eu-north-1"}),
        ({"extra": {"type": "sql", "uri": "sqlite:///c.db"}}, {"type": "sql", "uri": "sqlite:///c.db"}),
    ],
)
def test_the_extra_has_the_properties_and_the_host_is_the_address(
    monkeypatch: pytest.MonkeyPatch, connection: dict[str, Any], expected: dict[str, str]
) -> None:
    """Of REST, which is the default, Glue and SQL."""
    monkeypatch.setenv("AIRFLOW_CONN_ICEBERG", json.dumps({"conn_type": "iceberg", **connection}))
    assert connections.catalog_properties("iceberg") == expected


@pytest.mark.parametrize(
    ("connection", "message"),
    [
        ({"host": "catalog:8181"}, "the host 'catalog:8181' has no scheme"),
        ({}, "the connection names no catalog; set its host"),
    ],
)
def test_a_connection_without_an_address_is_refused(
    monkeypatch: pytest.MonkeyPatch, connection: dict[str, Any], message: str
) -> None:
    """With what to set."""
    monkeypatch.setenv("AIRFLOW_CONN_ICEBERG", json.dumps({"conn_type": "iceberg", **connection}))
    with pytest.raises(ConfigurationError, match=message):
        connections.catalog_properties("iceberg")


def test_a_missing_connection_is_named_with_the_command_that_adds_it() -> None:
    """As every other connection."""
    with pytest.raises(ConfigurationError, match="airflow connections add nowhere --conn-type iceberg"):
        connections.catalog_properties("nowhere")
