"""Logins by token and by IAM: one connection configures two clients whose settings have different names."""

from __future__ import annotations

import importlib.util
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.kafka.options import client_config, spark_options
from dev.certificates import Authority

MODULES = "org.apache.kafka.common.security.oauthbearer"
OIDC: dict[str, object] = {
    "bootstrap.servers": "broker:9093",
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.method": "oidc",
    "sasl.oauthbearer.client.id": "robot",
    "sasl.oauthbearer.client.secret": 'sec"ret',
    "sasl.oauthbearer.token.endpoint.url": "https://id.example.com/token",
}
MSK: dict[str, object] = {
    "bootstrap.servers": "b-1.demo.ab12.c2.kafka.eu-north-1.amazonaws.com:9098,"
    "b-2.demo.ab12.c2.kafka.eu-north-1.amazonaws.com:9098",
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "OAUTHBEARER",
}


@pytest.fixture
def signer(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A package that signs tokens, and the regions that it was called with."""
    regions: list[str] = []

    class Provider:
        @staticmethod
        def generate_auth_token(region: str) -> tuple[str, int]:
            regions.append(region)
            return f"token-{region}", 1_700_000_000_500

    module: Any = types.ModuleType("aws_msk_iam_sasl_signer")
    module.MSKAuthTokenProvider = Provider
    module.__spec__ = importlib.util.spec_from_loader("aws_msk_iam_sasl_signer", None)
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", module)
    return regions


def test_a_token_login_becomes_a_jaas_configuration_and_a_handler() -> None:
    """Librdkafka gets the settings as they are, Java its own; the secret is in one option, marked as secret."""
    options = spark_options({**OIDC, "sasl.oauthbearer.scope": "kafka", "sasl.oauthbearer.extensions": "a=1,b-c=2"})

    assert {name: value for name, value in options.items() if name.startswith("kafka.sasl.")} == {
        "kafka.sasl.mechanism": "OAUTHBEARER",
        "kafka.sasl.jaas.config": f"{MODULES}.OAuthBearerLoginModule required "
        'clientId="robot" clientSecret="sec\\"ret" scope="kafka" extension_a="1" "extension_b-c"="2";',
        "kafka.sasl.login.callback.handler.class": f"{MODULES}.OAuthBearerLoginCallbackHandler",
        "kafka.sasl.oauthbearer.token.endpoint.url": "https://id.example.com/token",
    }
    assert client_config(OIDC) == OIDC


def test_the_second_names_of_librdkafka_are_accepted() -> None:
    """Those of its later versions."""
    prefix = "sasl.oauthbearer.client.credentials.client"
    renamed = {name: value for name, value in OIDC.items() if ".client." not in name}
    login = {
        f"{prefix}.id": "robot",
        f"{prefix}.secret": 'sec"ret',
        "sasl.oauthbearer.grant.type": "client_credentials",
    }

    assert spark_options({**renamed, **login, "sasl.oauthbearer.grant.type": "client_credentials"}) == spark_options(
        OIDC
    )


def test_the_authority_of_the_provider_is_sent_with_the_job(tmp_path: Path) -> None:
    """As a file or as text; its lines cannot break the configuration."""
    authority = Authority(tmp_path)
    by_file = spark_options({**OIDC, "https.ca.location": str(authority.certificate)})
    by_text = spark_options({**OIDC, "https.ca.pem": authority.certificate_pem})

    assert by_file == by_text
    assert 'ssl.truststore.type="PEM"' in by_file["kafka.sasl.jaas.config"]
    assert authority.certificate_pem.replace("\n", "\\n") in by_file["kafka.sasl.jaas.config"]
    assert spark_options({**OIDC, "https.ca.location": "probe"}) == spark_options(OIDC)


@pytest.mark.parametrize("missing", ["client.id", "client.secret", "token.endpoint.url"])
def test_half_a_token_login_is_refused(missing: str) -> None:
    """The message names what is missing, and nothing secret."""
    config = {name: value for name, value in OIDC.items() if name != f"sasl.oauthbearer.{missing}"}

    with pytest.raises(ConfigurationError, match=rf"needs sasl\.oauthbearer\.{missing}") as caught:
        spark_options(config)
    assert "ret" not in str(caught.value).replace("secret", "")


@pytest.mark.parametrize(
    "settings",
    [
        {"sasl.oauthbearer.grant.type": "urn:ietf:params:oauth:grant-type:jwt-bearer"},
        {"sasl.oauthbearer.assertion.private.key.file": "/key"},
    ],
)
def test_grants_that_only_one_client_supports_are_refused(settings: dict[str, object]) -> None:
    """With the override that replaces the login, which works."""
    with pytest.raises(ConfigurationError, match=r"kafka\.sasl\.login\.callback\.handler\.class"):
        spark_options({**OIDC, **settings})
    options = spark_options({**OIDC, **settings}, overrides={"kafka.sasl.jaas.config": "mine"})
    assert options["kafka.sasl.jaas.config"] == "mine"


@pytest.mark.parametrize("mechanism", ["OAUTHBEARER", "AWS_MSK_IAM"])
def test_iam_is_signed_in_python_and_by_a_jar_in_java(signer: list[str], mechanism: str) -> None:
    """By the mechanism's name or, as with Airflow's provider, the servers' names; with the region and the expiry."""
    config = {**MSK, "sasl.mechanism": mechanism}

    options, librdkafka = spark_options(config), client_config(config)

    assert options["kafka.sasl.mechanism"] == "AWS_MSK_IAM"
    assert options["kafka.sasl.jaas.config"] == "software.amazon.msk.auth.iam.IAMLoginModule required;"
    handler = "software.amazon.msk.auth.iam.IAMClientCallbackHandler"
    assert options["kafka.sasl.client.callback.handler.class"] == handler
    assert librdkafka["sasl.mechanism"] == "OAUTHBEARER"
    assert librdkafka["oauth_cb"]("") == ("token-eu-north-1", 1_700_000_000.5)
    assert signer == ["eu-north-1"]


def test_the_region_of_servers_with_other_names_is_that_of_the_environment(
    signer: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """For private names; without any region the error names the variable to set."""
    config = {**MSK, "bootstrap.servers": "kafka.internal:9098", "sasl.mechanism": "AWS_MSK_IAM"}
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)

    with pytest.raises(ConfigurationError, match="AWS_REGION"):
        client_config(config)
    monkeypatch.setenv("AWS_REGION", "us-west-2")
    assert client_config(config)["oauth_cb"]("")[0] == "token-us-west-2"


def test_iam_without_the_package_that_signs_names_the_package_to_install() -> None:
    """Before any request."""
    with pytest.raises(ConfigurationError, match="install aws-msk-iam-sasl-signer-python"):
        client_config(MSK)


@pytest.mark.parametrize(
    "settings",
    [
        {"bootstrap.servers": "broker:9093"},
        {"bootstrap.servers": f"{MSK['bootstrap.servers']},broker:9093"},
        {"oauth_cb": print},
        {"sasl.oauthbearer.config": "principal=me"},
    ],
)
def test_other_tokens_are_not_taken_for_iam(settings: dict[str, object]) -> None:
    """Librdkafka gets the settings as they are; for Spark they are refused."""
    config = {**MSK, **settings}

    assert client_config(config) == config
    with pytest.raises(ConfigurationError, match="Spark"):
        spark_options(config)
