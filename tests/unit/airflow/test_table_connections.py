"""Connections to Glue and to a Hive metastore are read as Airflow's own hooks read them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_provider_kafka_s3.airflow import connections
from airflow_provider_kafka_s3.config.tables import MetastoreSettings
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.storage.clients import make_glue_client
from airflow_provider_kafka_s3.storage.s3 import S3Settings

AWS: dict[str, Any] = {
    "conn_type": "aws",
    "login": "AKIA",
    "password": "secret-of-glue",
    "extra": {
        "region_name": "eu-north-1",
        "verify": "/etc/ca.pem",
        "config_kwargs": {"s3": {"use_accelerate_endpoint": True}, "connect_timeout": 3, "read_timeout": 90},
        "service_config": {"glue": {"endpoint_url": "http://glue:4566"}},
        "sse_customer_key": "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=",
    },
}


def test_glue_has_its_own_endpoint_and_the_rest_of_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Region, certificates, time-outs and credentials; nothing that only S3 has."""
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps(AWS))
    access = connections.glue_access("lake")
    assert access.settings == S3Settings(
        endpoint_url="http://glue:4566",
        region="eu-north-1",
        ca_bundle="/etc/ca.pem",
        connect_timeout=3.0,
        read_timeout=90.0,
    )
    assert access.credentials is not None
    assert access.credentials.access_key_id == "AKIA"
    assert connections.glue_access("lake", "eu-west-1").settings.region == "eu-west-1"
    assert connections.glue_access(None, "eu-west-1").credentials is None


def test_a_client_of_glue_does_not_wait_for_long() -> None:
    """Half a minute at most, as a landing run waits for it; each request is sent once, and repeated by this package."""
    config = make_glue_client(S3Settings(region="eu-north-1", read_timeout=90.0)).meta.config
    assert (config.connect_timeout, config.read_timeout) == (10.0, 30.0)
    assert config.retries["total_max_attempts"] == 1


@pytest.mark.parametrize(
    ("connection", "expected"),
    [
        ({"host": "metastore"}, {"hosts": ("metastore",)}),
        (
            {"host": "one, two", "port": 9084, "login": "etl", "extra": {"timeout": 5}},
            {"hosts": ("one", "two"), "port": 9084, "user": "etl", "timeout": 5},
        ),
        ({"host": "metastore", "extra": {"auth_mechanism": "NOSASL"}}, {"hosts": ("metastore",)}),
    ],
)
def test_a_metastore_has_hosts_a_port_and_a_user(
    monkeypatch: pytest.MonkeyPatch, connection: dict[str, Any], expected: dict[str, Any]
) -> None:
    """The port is 9083 by default."""
    monkeypatch.setenv("AIRFLOW_CONN_HIVE", json.dumps({"conn_type": "hive_metastore", **connection}))
    assert connections.metastore_access("hive") == MetastoreSettings(**expected)


@pytest.mark.parametrize(
    ("connection", "message"),
    [
        ({}, "the connection names no metastore; set its host"),
        (
            {"host": "m", "extra": {"authMechanism": "KERBEROS"}},
            "the extra has the auth_mechanism 'KERBEROS'; only 'NOSASL'",
        ),
        ({"host": "m", "extra": {"timeout": "long"}}, "timeout='long' must be a positive number of seconds"),
    ],
)
def test_a_wrong_connection_to_a_metastore_is_an_error(
    monkeypatch: pytest.MonkeyPatch, connection: dict[str, Any], message: str
) -> None:
    """With the parameter that names it."""
    monkeypatch.setenv("AIRFLOW_CONN_HIVE", json.dumps({"conn_type": "hive_metastore", **connection}))
    with pytest.raises(ConfigurationError, match=rf"hive_conn_id='hive': {message}"):
        connections.metastore_access("hive")


def test_a_missing_connection_to_a_metastore_has_the_command_that_adds_it() -> None:
    """With an example of its values."""
    with pytest.raises(ConfigurationError, match="airflow connections add none --conn-type hive_metastore"):
        connections.metastore_access("none")
