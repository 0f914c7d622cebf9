"""The connections in the documentation are valid, with the described result."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_kafka_s3.kafka.client import ClientEvents, admin_client
from airflow_provider_kafka_s3.kafka.logins import uses_msk_iam
from airflow_provider_kafka_s3.kafka.options import client_config, spark_options
from dev.certificates import Authority

PAGE = Path(__file__).resolve().parents[3] / "docs" / "connections.md"


def shown(kind: str) -> list[dict[str, Any]]:
    """The connections of a type in the page's own code blocks."""
    blocks = re.findall(r"^```json\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    return [found for found in map(json.loads, blocks) if found["conn_type"] == kind]


def test_both_kafka_clients_take_every_connection_that_is_shown(authority: Authority, tmp_path: Path) -> None:
    """With files at their paths, librdkafka accepts it, and it is translated to Spark's options."""
    client = authority.client("documented")
    files = {"certificate": client.certificate, "key": client.key, "ca": authority.certificate}
    connections = shown("kafka")
    mechanisms = set()
    for connection in connections:
        extra = connection["extra"]
        for name in [n for n in extra if n.endswith(".location")]:
            extra[name] = str(files[name.split(".")[1]])
        options = spark_options(extra)
        mechanisms.add(options.get("kafka.sasl.mechanism", options.get("kafka.security.protocol", "PLAINTEXT")))
        # librdkafka's own callback for tokens would already send a request to a host that does not exist.
        if not uses_msk_iam(extra) and "sasl.oauthbearer.method" not in extra:
            admin_client(client_config(extra), ClientEvents())
    assert mechanisms == {"PLAINTEXT", "SCRAM-SHA-512", "SSL", "OAUTHBEARER", "AWS_MSK_IAM"}
    assert len(connections) >= len(mechanisms)


def test_every_connection_to_a_catalog_that_is_shown_is_understood(monkeypatch: pytest.MonkeyPatch) -> None:
    """REST and Glue."""
    from airflow_provider_kafka_s3.airflow import connections

    kinds = []
    for connection in shown("iceberg"):
        monkeypatch.setenv("AIRFLOW_CONN_SHOWN", json.dumps(connection))
        kinds.append(connections.catalog_properties("shown")["type"])
    assert kinds == ["rest", "glue"]


def test_every_connection_to_a_metastore_that_is_shown_is_understood(monkeypatch: pytest.MonkeyPatch) -> None:
    """With several hosts."""
    from airflow_provider_kafka_s3.airflow import connections

    (connection,) = shown("hive_metastore")
    monkeypatch.setenv("AIRFLOW_CONN_SHOWN", json.dumps(connection))
    settings = connections.metastore_access("shown")
    assert (settings.hosts, settings.user, settings.timeout) == (("metastore-1", "metastore-2"), "etl", 30.0)


def test_every_aws_connection_that_is_shown_is_understood(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys, a role, another server with its certificates and path style, and one for S3 alone."""
    from airflow.providers.amazon.aws.hooks.base_aws import AwsBaseHook

    from airflow_provider_kafka_s3.airflow import connections

    roles = []
    for connection in shown("aws"):
        monkeypatch.setenv("AIRFLOW_CONN_AWS_SHOWN", json.dumps(connection))
        aws = AwsBaseHook(aws_conn_id="aws_shown", client_type="s3").conn_config
        assert aws.region_name
        role = connections.s3._role(aws)
        roles.append(role)
        if role is None:
            access = connections.s3_access("aws_shown")
            assert access.credentials is not None
            assert access.settings.ca_bundle == connection["extra"].get("verify")
    assert [role for role in roles if role] == [
        connections.s3.AssumedRole(
            arn="arn:aws:iam::123456789012:role/kafka-to-s3",
            session_name="Airflow_aws_shown",
            arguments='{"DurationSeconds": 14400}',
        )
    ]
    assert len(roles) == 4
