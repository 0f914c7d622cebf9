"""Permissions that a replay lacks are named, with what they are needed for."""

from __future__ import annotations

import pytest

from airflow_provider_kafka_s3.exceptions import AccessDeniedError
from airflow_provider_kafka_s3.replay.refusals import refusal


@pytest.mark.parametrize(
    ("name", "needed"),
    [
        ("TOPIC_AUTHORIZATION_FAILED", "WRITE, READ and DESCRIBE on the topic"),
        ("TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "on transactional ids that begin with 'kafka-s3-replay-'"),
        ("GROUP_AUTHORIZATION_FAILED", "READ on consumer groups that begin with 'kafka-s3-replay-'"),
        ("CLUSTER_AUTHORIZATION_FAILED", "IDEMPOTENT_WRITE on the cluster"),
    ],
)
def test_a_missing_permission_is_named(name: str, needed: str) -> None:
    """Another try would not help."""
    from confluent_kafka import KafkaError

    error = refusal(KafkaError(getattr(KafkaError, name)), "replay partition 0 to topic 'again'", [])
    assert isinstance(error, AccessDeniedError)
    assert needed in str(error)
    assert "replay partition 0 to topic 'again'" in str(error)


def test_other_errors_are_no_refusals() -> None:
    """Brokers that do not respond may do so later."""
    from confluent_kafka import KafkaError

    assert refusal(KafkaError(KafkaError._TIMED_OUT), "replay", []) is None
