"""Connections to a store with the API of S3: its address, and credentials."""

from __future__ import annotations

import json
import logging
import os
import re
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import msgspec

from airflow_provider_kafka_s3.airflow.connections.stored import extra_of, mask, require
from airflow_provider_kafka_s3.exceptions import AccessDeniedError, ConfigurationError, TransientError
from airflow_provider_kafka_s3.messages import either, few, or_nearest
from airflow_provider_kafka_s3.storage.credentials import AssumedRole, S3Credentials, S3Secrets
from airflow_provider_kafka_s3.storage.s3 import S3Settings

__all__ = ["S3Access", "glue_access", "s3_access"]

log = logging.getLogger(__name__)

_CUSTOMER_KEYS: Final = ("sse_customer_key", "sse_customer_earlier_keys")
"""Names in the extra of a connection to S3 that hold keys of SSE-C."""

_USED_CONFIG: Final = {
    "connect_timeout",
    "max_pool_connections",
    "proxies",
    "read_timeout",
    "retries",
    "s3",
    "s3.addressing_style",
    "s3.use_accelerate_endpoint",
    "s3.use_dualstack_endpoint",
    "use_dualstack_endpoint",
}
"""Names in ``config_kwargs`` of a connection to S3 that are used, or whose purpose this package has settings for."""


@dataclass(frozen=True)
class S3Access:
    """Access to an S3 store.

    Attributes:
        settings: of the client; nothing secret.
        credentials: keys or a role; None: boto3's own chain.
    """

    settings: S3Settings
    credentials: S3Credentials | None = field(repr=False)


def s3_access(conn_id: str | None) -> S3Access:
    """Address of the store and credentials for it: from a connection of type ``aws``, or boto3's own chain for None.

    Explicit credentials of the connection (keys, a role, a profile) are passed to Spark, those of a role together with
    the arguments with which it is assumed again. Without explicit credentials, this process and every executor use
    boto3's own chain.

    Raises:
        ConfigurationError: there is no such connection, or it gives no credentials.
        TransientError: STS did not answer.
    """
    return _access(conn_id, "s3")


def glue_access(conn_id: str | None, region: str | None = None) -> S3Access:
    """Address of Glue and credentials for it, as :func:`s3_access` has them of a store.

    The endpoint is that of the service ``glue`` in the connection's ``service_config``, or the one of all services.

    Args:
        conn_id: connection of type ``aws``; None: boto3's own chain.
        region: of the catalog; None: that of the connection.

    Raises:
        ConfigurationError: there is no such connection, or it gives no credentials.
        TransientError: STS did not answer.
    """
    access = _access(conn_id, "glue")
    return S3Access(
        msgspec.structs.replace(access.settings, region=region or access.settings.region), access.credentials
    )


def _access(conn_id: str | None, service: Literal["s3", "glue"]) -> S3Access:
    if conn_id is None:
        return S3Access(S3Settings(), None)
    connection = require(conn_id, "aws_conn_id")
    extra = extra_of(connection, "aws_conn_id")
    where = f"aws_conn_id={conn_id!r}"
    config = extra.get("config_kwargs") or {}
    of_s3 = (config.get("s3") or {}) if service == "s3" else {}
    # Secrets are masked before the hook logs what it reads.
    keys = _customer_keys(where, extra)
    secrets = keys if service == "s3" else {}
    proxies = _proxies(where, config)
    from airflow.providers.amazon.aws.hooks.base_aws import AwsBaseHook

    hook = AwsBaseHook(aws_conn_id=conn_id, client_type=service)
    aws = hook.conn_config
    verify = aws.verify if aws.verify is not None else True
    settings: dict[str, Any] = {
        "endpoint_url": aws.get_service_endpoint_url(service),
        "region": aws.region_name,
        "addressing_style": of_s3.get("addressing_style") or "auto",
        "verify": bool(verify),
        "ca_bundle": verify if isinstance(verify, str) else None,
    }
    settings.update({name: float(config[name]) for name in ("connect_timeout", "read_timeout") if config.get(name)})
    scheme = "http" if (settings["endpoint_url"] or "").startswith("http://") else "https"
    settings["proxy"], login = proxies.get(scheme, (None, {}))
    if service == "s3":
        dualstack = of_s3.get("use_dualstack_endpoint", config.get("use_dualstack_endpoint", False))
        settings["accelerate"] = _flag(where, "use_accelerate_endpoint", of_s3.get("use_accelerate_endpoint", False))
        settings["dualstack"] = _flag(where, "use_dualstack_endpoint", dualstack)
    ignored = sorted({*config, *(f"s3.{name}" for name in of_s3)} - _USED_CONFIG)
    if ignored and service == "s3":
        log.warning("connection %s: these config_kwargs are not used for S3: %s", conn_id, ", ".join(ignored))
    explicit = aws.aws_access_key_id or aws.role_arn or aws.profile_name or aws.assume_role_method
    try:
        s3_settings = S3Settings(**settings, secrets=S3Secrets(**secrets, **login))
    except ConfigurationError as e:
        raise ConfigurationError(f"{where}: {e}") from None
    return S3Access(s3_settings, _credentials(conn_id, hook) if explicit else None)


def _flag(where: str, name: str, given: object) -> bool:
    if not isinstance(given, bool):
        raise ConfigurationError(f"{where}: {name}={given!r} of config_kwargs must be true or false")
    return given


def _proxies(where: str, config: Mapping[str, Any]) -> dict[str, tuple[str, dict[str, Any]]]:
    """By scheme, the address of a proxy without its login, and its login, which is masked from here on."""
    proxies = config.get("proxies") or {}
    if not isinstance(proxies, dict) or not all(isinstance(url, str) for url in proxies.values()):
        # The value is not quoted: it may contain a password.
        raise ConfigurationError(
            f'{where}: proxies of config_kwargs must be an object such as {{"https": "http://user:password@proxy:3128"}}'
        )
    if unknown := sorted(proxies.keys() - {"http", "https"}):
        raise ConfigurationError(
            f"{where}: proxies of config_kwargs has {few(unknown)}; it may have 'http' and 'https'"
        )
    return {scheme: _address_and_login(url) for scheme, url in proxies.items()}


def _address_and_login(proxy: str) -> tuple[str, dict[str, Any]]:
    scheme, _, authority = (proxy if "://" in proxy else f"http://{proxy}").partition("://")
    login, separator, address = authority.rpartition("@")
    if not separator:
        return f"{scheme}://{address}", {}
    user, _, password = login.partition(":")
    secrets = {"proxy_user": urllib.parse.unquote(user), "proxy_password": urllib.parse.unquote(password)}
    for secret in {password, secrets["proxy_password"]}:
        if secret:
            mask(secret)
    return f"{scheme}://{address}", secrets


def _customer_keys(where: str, extra: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of SSE-C in the extra, which are masked from here on."""
    for name in extra:
        if name not in _CUSTOMER_KEYS and name.startswith("sse_"):
            known = or_nearest(name, _CUSTOMER_KEYS, f"it may have {either(_CUSTOMER_KEYS)}")
            raise ConfigurationError(f"{where}: the extra has no {name!r}{known}")
    key, earlier = (extra.get(name) for name in _CUSTOMER_KEYS)
    earlier = [] if earlier is None else [earlier] if isinstance(earlier, str) else earlier
    # Neither is quoted: they are secrets.
    if not isinstance(key, str | None):
        raise ConfigurationError(f"{where}: sse_customer_key of the extra must be text, the base64 of 32 bytes")
    if not isinstance(earlier, list) or not all(isinstance(earlier_key, str) for earlier_key in earlier):
        raise ConfigurationError(f"{where}: sse_customer_earlier_keys of the extra must be a list of texts")
    for secret in (key, *earlier):
        if secret:
            mask(secret)
    return {"customer_key": key or None, "earlier_customer_keys": tuple(earlier)}


def _credentials(conn_id: str, hook: Any) -> S3Credentials:
    from botocore.exceptions import BotoCoreError, ClientError, ConnectionError, HTTPClientError  # noqa: A004

    try:
        credentials = hook.get_session().get_credentials()
        frozen = credentials.get_frozen_credentials()
        role = _role(hook.conn_config)
    except (ConnectionError, HTTPClientError) as e:
        raise TransientError(f"aws_conn_id={conn_id!r}: no credentials at the moment: {e}") from e
    except ClientError as e:
        raise AccessDeniedError(f"aws_conn_id={conn_id!r}: the role of the connection is refused: {e}") from e
    except (BotoCoreError, AttributeError) as e:
        raise ConfigurationError(
            f"aws_conn_id={conn_id!r}: the connection gives no credentials ({e}); set its login and password, a role "
            f"or a profile, or leave all of them out for boto3's own chain"
        ) from e
    base = None if role is None else role.base
    for secret in (frozen.secret_key, frozen.token, base and base.secret_access_key, base and base.session_token):
        if secret:
            mask(str(secret))
    # botocore has no public attribute for it. Without it, the end of the session shows as an error of the store.
    end = getattr(credentials, "_expiry_time", None)
    return S3Credentials(
        access_key_id=frozen.access_key,
        secret_access_key=frozen.secret_key,
        session_token=frozen.token,
        expires_at=None if end is None else end.timestamp(),
        role=role,
    )


def _role(aws: Any) -> AssumedRole | None:
    """The role that Airflow's hook has assumed, if executors can assume it again; else None."""
    extra = aws.extra_config
    by_token = aws.assume_role_method == "assume_role_with_web_identity"
    if by_token and extra.get("assume_role_with_web_identity_federation") != "file":
        return None
    if not aws.role_arn or aws.assume_role_method not in ("assume_role", "assume_role_with_web_identity"):
        return None
    base = None
    if aws.aws_access_key_id:
        base = S3Credentials(
            access_key_id=aws.aws_access_key_id,
            secret_access_key=aws.aws_secret_access_key,
            session_token=aws.aws_session_token,
        )
    elif aws.profile_name:
        # The executors need not have the profile.
        import boto3

        session: Any = boto3.session.Session(profile_name=aws.profile_name)
        frozen = session.get_credentials().get_frozen_credentials()
        base = S3Credentials(
            access_key_id=frozen.access_key, secret_access_key=frozen.secret_key, session_token=frozen.token
        )
    file = extra.get("assume_role_with_web_identity_token_file") or os.environ.get("AWS_WEB_IDENTITY_TOKEN_FILE")
    return AssumedRole(
        arn=aws.role_arn,
        session_name=re.sub(r"[^\w+=,.@-]+", "", f"Airflow_{aws.conn_id}"),
        arguments=json.dumps(aws.assume_role_kwargs, sort_keys=True),
        token_file=file if by_token else None,
        base=base,
        sts_endpoint=aws.get_service_endpoint_url("sts", sts_connection_assume=True),
    )
