"""A broker that authenticates clients: librdkafka settings log the package's own client in, or are refused."""

from __future__ import annotations

import importlib.util
import sys
import time
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_kafka_s3.exceptions import (
    AccessDeniedError,
    ConfigurationError,
    KafkaS3Error,
    KafkaUnavailableError,
    TopicNotFoundError,
)
from airflow_provider_kafka_s3.kafka.offsets import KafkaCluster
from airflow_provider_kafka_s3.kafka.records import read_records
from airflow_provider_kafka_s3.retry import Retrier, RetryPolicy
from dev.certificates import Authority
from dev.kafka_broker import KafkaBroker, Message
from dev.token_server import TokenServer
from tests.conftest import CLIENT, CLIENT_SECRET, KEY_PASSWORD, PASSWORD, USER

Configs = Mapping[str, Mapping[str, object]]
WAYS = ("scram", "plain", "certificate", "token")


@pytest.fixture
def forbidden(kafka_broker: KafkaBroker, make_topic: Callable[..., str]) -> str:
    """A topic that only another user may describe."""
    topic = make_topic(1)
    kafka_broker.allow(topic, "stranger", "ALL")
    return topic


@pytest.mark.parametrize("way", WAYS)
def test_offsets_and_records_are_read_with_every_kind_of_login(
    secured: Configs, way: str, kafka_broker: KafkaBroker, make_topic: Callable[..., str]
) -> None:
    """By password, by certificate and by token, over TLS with a private authority; all bytes arrive."""
    topic = make_topic(1)
    kafka_broker.produce(topic, [Message(b"\x00one", partition=0), Message(None, partition=0)])

    assert KafkaCluster(secured[way]).ends(topic, [0], "read_committed") == {0: 2}
    (batch,) = read_records(secured[way], topic, 0, 0, 2, isolation="read_committed")
    assert batch.column("value").to_pylist() == [b"\x00one", None]


@pytest.mark.parametrize(
    ("way", "changes", "kind", "message"),
    [
        ("scram", {"sasl.password": "not-this-one"}, AccessDeniedError, "check the credentials"),
        ("plain", {"sasl.password": "not-this-one"}, AccessDeniedError, "check the credentials"),
        ("token", {"sasl.oauthbearer.client.secret": "not-this-one"}, AccessDeniedError, "invalid_client"),
        ("scram", {"ssl.ca.location": "OTHER"}, ConfigurationError, "ssl.ca.location"),
        ("scram", {"ssl.ca.location": None}, ConfigurationError, "ssl.ca.location"),
        (
            "certificate",
            {"ssl.certificate.pem": None, "ssl.key.pem": None},
            AccessDeniedError,
            r"the client's certificate.*ssl\.certificate",
        ),
        (
            "certificate",
            {"ssl.certificate.pem": "OTHER", "ssl.key.pem": "OTHER"},
            AccessDeniedError,
            r"the client's certificate.*ssl\.certificate",
        ),
        ("certificate", {"ssl.key.password": "not-this-one"}, ConfigurationError, "refuses its configuration"),
    ],
)
def test_a_refusal_is_terminal_reported_at_once_and_shows_no_secret(
    secured: Configs, tmp_path: Path, way: str, changes: dict[str, Any], kind: type[KafkaS3Error], message: str
) -> None:
    """Where librdkafka would retry for ever, offsets and records fail within seconds, with what to correct."""
    other = Authority(tmp_path)
    stranger = other.client()
    others = {
        "ssl.ca.location": str(other.certificate),
        "ssl.certificate.pem": stranger.certificate_pem,
        "ssl.key.pem": stranger.key_pem,
    }
    changed = {name: others[name] if value == "OTHER" else value for name, value in changes.items()}
    config = {name: value for name, value in {**secured[way], **changed}.items() if value is not None}
    for request in (
        lambda: KafkaCluster(config, timeout=300).describe("t"),
        lambda: list(read_records(config, "t", 0, 0, 1, isolation="read_committed", timeout=300)),
    ):
        began = time.monotonic()
        with pytest.raises(kind, match=rf"(?s){message}") as caught:
            request()
        assert time.monotonic() - began < 60
        assert not any(s in str(caught.value) for s in (PASSWORD, CLIENT_SECRET, KEY_PASSWORD, "not-this-one"))


def test_a_topic_without_rights_is_named_with_the_missing_rights(
    secured: Configs, kafka_broker: KafkaBroker, forbidden: str
) -> None:
    """Terminal for the planner and for the reader, although the login is valid."""
    assert USER in secured["scram"].values()
    kafka_broker.produce(forbidden, [Message(b"{}", partition=0)])
    for request in (
        lambda: KafkaCluster(secured["scram"]).describe(forbidden),
        lambda: KafkaCluster(secured["scram"]).ends(forbidden, [0], "read_committed"),
        lambda: list(read_records(secured["scram"], forbidden, 0, 0, 1, isolation="read_committed", timeout=1)),
    ):
        with pytest.raises((AccessDeniedError, TopicNotFoundError), match=rf"{forbidden}.*DESCRIBE"):
            request()


def test_a_token_endpoint_that_does_not_answer_is_not_a_refusal(secured: Configs) -> None:
    """Transient: the provider may be restarting."""
    config = {**secured["token"], "sasl.oauthbearer.token.endpoint.url": "http://127.0.0.1:1/token"}
    retrier = Retrier(RetryPolicy(max_retries=0))

    with pytest.raises(KafkaUnavailableError, match=r"check sasl\.oauthbearer\.token\.endpoint\.url"):
        KafkaCluster(config, timeout=20, retrier=retrier).describe("t")


def test_tokens_that_python_signs_are_accepted(
    secured: Configs, token_server: TokenServer, make_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for IAM on Amazon MSK, with another signer: librdkafka calls back, and the broker accepts the token."""

    class Provider:
        @staticmethod
        def generate_auth_token(region: str) -> tuple[str, int]:
            assert region == "eu-north-1"
            return token_server.token(CLIENT), int(time.time() + 600) * 1_000

    signer: Any = types.ModuleType("aws_msk_iam_sasl_signer")
    signer.MSKAuthTokenProvider = Provider
    signer.__spec__ = importlib.util.spec_from_loader("aws_msk_iam_sasl_signer", None)
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", signer)
    monkeypatch.setenv("AWS_REGION", "eu-north-1")
    tls = {name: value for name, value in secured["token"].items() if not name.startswith(("sasl.", "https."))}

    cluster = KafkaCluster({**tls, "sasl.mechanism": "AWS_MSK_IAM"}, timeout=60)

    assert cluster.describe(make_topic(2)).partitions == (0, 1)
