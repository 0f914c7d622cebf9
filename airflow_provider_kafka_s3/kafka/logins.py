"""Logins of both clients: passwords, tokens of an OpenID provider, and IAM on Amazon MSK.

librdkafka has a setting for every part of a login, the Java client has options of a JAAS module. For IAM, librdkafka
gets tokens that a Python package signs, and the Java client uses a jar that signs them.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import re
from collections.abc import Mapping
from typing import Any, Final

from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.kafka.settings import pem, text
from airflow_provider_kafka_s3.kafka.translations import LOGIN, LOGIN_OVERRIDES

__all__ = ["java_login", "python_login", "uses_msk_iam", "uses_oidc"]

_MODULES: Final = "org.apache.kafka.common.security"
_MSK: Final = "AWS_MSK_IAM"
_MSK_SERVER: Final = re.compile(
    r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?(?::\d+)?$", re.IGNORECASE
)
_SIGNER: Final = "aws_msk_iam_sasl_signer"


def uses_oidc(config: Mapping[str, object]) -> bool:
    """Whether the connection logs in by tokens of an OpenID provider."""
    method = str(config.get("sasl.oauthbearer.method", "")).lower()
    return _mechanism(config) == "OAUTHBEARER" and method == "oidc"


def uses_msk_iam(config: Mapping[str, object]) -> bool:
    """Whether the connection logs in by IAM.

    Either by the mechanism ``AWS_MSK_IAM`` or, as with Airflow's Kafka provider, by the names of the servers.
    """
    if _mechanism(config) == _MSK:
        return True
    others = ("oauth_cb", "sasl.oauthbearer.config", "enable.sasl.oauthbearer.unsecure.jwt")
    return (
        _mechanism(config) == "OAUTHBEARER"
        and not uses_oidc(config)
        and not any(name in config for name in others)
        and _region_of_servers(config) is not None
    )


def python_login(config: Mapping[str, object]) -> dict[str, Any]:
    """Additional settings of librdkafka: for IAM, the function that signs tokens; else none.

    The tokens are signed with the credentials of boto3's own chain on this machine.

    Raises:
        ConfigurationError: the package that signs is not installed, or the region is unknown.
    """
    if not uses_msk_iam(config):
        return {}
    if importlib.util.find_spec(_SIGNER) is None:
        raise ConfigurationError(
            f"the Kafka connection logs in by IAM (Amazon MSK), and the package that signs its tokens is not "
            f"installed; install {_SIGNER.replace('_', '-')}-python"
        )
    region = _region_of_servers(config) or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if not region:
        raise ConfigurationError(
            "sasl.mechanism=AWS_MSK_IAM of the Kafka connection: the names of the bootstrap.servers contain no region; "
            "set the environment variable AWS_REGION"
        )
    mechanism = {name: "OAUTHBEARER" for name in ("sasl.mechanism", "sasl.mechanisms") if name in config}
    return {**mechanism, "oauth_cb": functools.partial(_sign, region)}


def _sign(region: str, _: str) -> tuple[str, float]:
    """A token, and the epoch second at which it expires; librdkafka calls this when it needs a token."""
    provider = importlib.import_module(_SIGNER).MSKAuthTokenProvider
    token, end = provider.generate_auth_token(region)
    return token, end / 1_000


def java_login(config: Mapping[str, object], translated: Mapping[str, str]) -> dict[str, str]:
    """The login as settings of the Java client; empty if the connection has none.

    Args:
        config: the connection's extra.
        translated: the settings that are translated already, by their Java names.

    Raises:
        ConfigurationError: a part of the login is missing, or it cannot be translated.
    """
    if not translated.get("security.protocol", "").startswith("SASL_"):
        return {}
    mechanism = translated.get("sasl.mechanism", "GSSAPI")
    if uses_msk_iam(config):
        return {
            "sasl.mechanism": _MSK,
            "sasl.jaas.config": "software.amazon.msk.auth.iam.IAMLoginModule required;",
            "sasl.client.callback.handler.class": "software.amazon.msk.auth.iam.IAMClientCallbackHandler",
        }
    if uses_oidc(config):
        return _oidc(config)
    if mechanism == "PLAIN":
        module = f"{_MODULES}.plain.PlainLoginModule"
    elif mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        module = f"{_MODULES}.scram.ScramLoginModule"
    else:
        raise ConfigurationError(
            f"sasl.mechanism={mechanism} of the Kafka connection cannot be translated for Spark; use PLAIN, "
            f"SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER with sasl.oauthbearer.method=oidc, or AWS_MSK_IAM, or set "
            f"{LOGIN_OVERRIDES[0]} in the Spark overrides"
        )
    for name in sorted(LOGIN):
        if name not in config:
            raise ConfigurationError(f"sasl.mechanism={mechanism} needs {name} in the extra of the Kafka connection")
    login = {"username": text("sasl.username", config["sasl.username"])}
    return {"sasl.jaas.config": _jaas(module, {**login, "password": text("sasl.password", config["sasl.password"])})}


def _oidc(config: Mapping[str, object]) -> dict[str, str]:
    prefix = "sasl.oauthbearer."
    settings = {n.removeprefix(prefix): text(n, value) for n, value in config.items() if n.startswith(prefix)}
    if settings.get("grant.type", "client_credentials") != "client_credentials":
        raise ConfigurationError(
            f"sasl.oauthbearer.grant.type={settings['grant.type']} of the Kafka connection cannot be translated for "
            f"Spark; use client_credentials, or set {' and '.join(LOGIN_OVERRIDES)} in the Spark overrides"
        )
    # librdkafka has two names for each.
    login = {
        "clientId": settings.get("client.id") or settings.get("client.credentials.client.id"),
        "clientSecret": settings.get("client.secret") or settings.get("client.credentials.client.secret"),
        "scope": settings.get("scope"),
    }
    for name, value in (
        ("client.id", login["clientId"]),
        ("client.secret", login["clientSecret"]),
        ("token.endpoint.url", settings.get("token.endpoint.url")),
    ):
        if not value:
            raise ConfigurationError(
                f"sasl.oauthbearer.method=oidc needs sasl.oauthbearer.{name} in the extra of the Kafka connection"
            )
    for extension in filter(None, (part.strip() for part in settings.get("extensions", "").split(","))):
        name, _, value = extension.partition("=")
        login[f"extension_{name}"] = value
    authority = pem(config, "https.ca")
    if authority is not None:
        login |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": authority}
    return {
        "sasl.jaas.config": _jaas(
            f"{_MODULES}.oauthbearer.OAuthBearerLoginModule",
            {name: value for name, value in login.items() if value is not None},
        ),
        "sasl.login.callback.handler.class": f"{_MODULES}.oauthbearer.OAuthBearerLoginCallbackHandler",
        "sasl.oauthbearer.token.endpoint.url": settings["token.endpoint.url"],
    }


def _jaas(module: str, options: Mapping[str, str]) -> str:
    login = "".join(f" {_jaas_name(name)}={_jaas_string(value)}" for name, value in options.items())
    return f"{module} required{login};"


def _jaas_name(name: str) -> str:
    """The name of an option, quoted if Java's tokenizer would split it."""
    return name if re.fullmatch(r"[A-Za-z_][\w.]*", name) else _jaas_string(name)


def _jaas_string(value: str) -> str:
    """A quoted string of a JAAS configuration, with the escapes of Java's tokenizer, for which a line break ends it."""
    escapes = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r"}
    return '"' + "".join(escapes.get(character, character) for character in value) + '"'


def _mechanism(config: Mapping[str, object]) -> str:
    return str(config.get("sasl.mechanism", config.get("sasl.mechanisms", ""))).upper()


def _region_of_servers(config: Mapping[str, object]) -> str | None:
    """The region in the names of the bootstrap servers, if all are of Amazon MSK and in one region; else None."""
    servers = str(config.get("bootstrap.servers", config.get("metadata.broker.list")) or "").split(",")
    matches = [_MSK_SERVER.search(server.strip()) for server in servers]
    regions = {match[1].lower() if match else None for match in matches}
    return regions.pop() if len(regions) == 1 else None
