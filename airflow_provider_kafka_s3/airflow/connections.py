"""Airflow connections, converted to the engine's settings.

Hooks of Airflow replace a missing connection by a default: Spark's by YARN, Amazon's by the credentials of the machine.
Records in the wrong place are worse than a failed task, so here a missing connection is an error.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import re
import shlex
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from airflow.providers.common.compat.sdk import AirflowNotFoundException, BaseHook  # noqa: TID253 - light, and loaded

from airflow_provider_kafka_s3.exceptions import AccessDeniedError, ConfigurationError, TransientError
from airflow_provider_kafka_s3.messages import either, few, or_nearest
from airflow_provider_kafka_s3.registry.settings import RegistrySettings
from airflow_provider_kafka_s3.storage.credentials import AssumedRole, S3Credentials, S3Secrets
from airflow_provider_kafka_s3.storage.s3 import S3Settings
from airflow_provider_kafka_s3.submit.target import SparkTarget

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Connection

__all__ = [
    "S3Access",
    "command_to_add",
    "connection_options",
    "kafka_config",
    "kafka_name",
    "mask_options",
    "registry_access",
    "s3_access",
    "spark_target",
]

log = logging.getLogger(__name__)

_SECRET_WORDS: Final = ("key", "pass", "pem", "secret", "token", "jaas")
"""Parts of the names of librdkafka settings whose values are masked in logs."""

_SHORTEST_LINE: Final = 8
"""Minimum number of characters of a masked line of a certificate. Shorter ones occur in many log lines."""

_SHORTEST_SECRET: Final = 5
"""Minimum number of characters of a masked secret of one line. Airflow masks no shorter one, and logs a warning."""

_ARGUMENTS_TO_ADD: Final = {
    "kafka_conn_id": """--conn-type kafka --conn-extra '{"bootstrap.servers": "broker:9092"}'""",
    "aws_conn_id": "--conn-type aws --conn-login ACCESS_KEY_ID --conn-password SECRET_ACCESS_KEY",
    "registry_conn_id": "--conn-type http --conn-host https://registry:8081 --conn-login USER --conn-password PASSWORD",
    "spark_conn_id": "--conn-type spark --conn-host 'local[2]'",
}
"""Arguments of ``airflow connections add`` for an example connection, by the parameter that names the connection."""

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

_REGISTRY_EXTRA: Final = ("urls", "bearer_token", "ca", "certificate", "key", "key_password", "timeout")
"""Names in the extra of a connection to a schema registry."""


@dataclass(frozen=True)
class S3Access:
    """Access to an S3 store.

    Attributes:
        settings: of the client; nothing secret.
        credentials: keys or a role; None: boto3's own chain.
    """

    settings: S3Settings
    credentials: S3Credentials | None = field(repr=False)


def kafka_config(conn_id: str) -> dict[str, Any]:
    """Settings of librdkafka: the extra of a connection of type ``kafka``. Its secrets are masked in later logs.

    Raises:
        ConfigurationError: there is no such connection, or its extra is not a JSON object.
    """
    connection = _require(conn_id, "kafka_conn_id")
    config = _extra(connection, "kafka_conn_id")
    if not config:
        raise ConfigurationError(
            f"kafka_conn_id={conn_id!r}: the connection's extra is empty; put librdkafka's settings there, such as "
            f'{{"bootstrap.servers": "broker:9092"}}'
        )
    for name, value in config.items():
        harmless = name.endswith((".location", ".url"))
        # A password may be a number in JSON.
        is_text = isinstance(value, str | int | float) and not isinstance(value, bool)
        if is_text and not harmless and any(word in name for word in _SECRET_WORDS):
            _mask(str(value))
    return config


def mask_options(options: Mapping[str, str]) -> None:
    """Mask the secrets in settings of Spark's Kafka source in later logs."""
    from airflow_provider_kafka_s3.kafka.options import SECRET_OPTIONS

    for name in SECRET_OPTIONS & options.keys():
        _mask(options[name])


def s3_access(conn_id: str | None) -> S3Access:
    """Address of the store and credentials for it: from a connection of type ``aws``, or boto3's own chain for None.

    Explicit credentials of the connection (keys, a role, a profile) are passed to Spark, those of a role together with
    the arguments with which it is assumed again. Without explicit credentials, this process and every executor use
    boto3's own chain.

    Raises:
        ConfigurationError: there is no such connection, or it gives no credentials.
        TransientError: STS did not answer.
    """
    if conn_id is None:
        return S3Access(S3Settings(), None)
    connection = _require(conn_id, "aws_conn_id")
    extra = _extra(connection, "aws_conn_id")
    where = f"aws_conn_id={conn_id!r}"
    config = extra.get("config_kwargs") or {}
    of_s3 = config.get("s3") or {}
    # Secrets are masked before the hook logs what it reads.
    secrets = _customer_keys(where, extra)
    proxies = _proxies(where, config)
    from airflow.providers.amazon.aws.hooks.base_aws import AwsBaseHook

    hook = AwsBaseHook(aws_conn_id=conn_id, client_type="s3")
    aws = hook.conn_config
    verify = aws.verify if aws.verify is not None else True
    settings: dict[str, Any] = {
        "endpoint_url": aws.get_service_endpoint_url("s3"),
        "region": aws.region_name,
        "addressing_style": of_s3.get("addressing_style") or "auto",
        "verify": bool(verify),
        "ca_bundle": verify if isinstance(verify, str) else None,
    }
    settings.update({name: float(config[name]) for name in ("connect_timeout", "read_timeout") if config.get(name)})
    scheme = "http" if (settings["endpoint_url"] or "").startswith("http://") else "https"
    settings["proxy"], login = proxies.get(scheme, (None, {}))
    dualstack = of_s3.get("use_dualstack_endpoint", config.get("use_dualstack_endpoint", False))
    settings["accelerate"] = _flag(where, "use_accelerate_endpoint", of_s3.get("use_accelerate_endpoint", False))
    settings["dualstack"] = _flag(where, "use_dualstack_endpoint", dualstack)
    ignored = sorted({*config, *(f"s3.{name}" for name in of_s3)} - _USED_CONFIG)
    if ignored:
        log.warning("connection %s: these config_kwargs are not used for S3: %s", conn_id, ", ".join(ignored))
    explicit = aws.aws_access_key_id or aws.role_arn or aws.profile_name or aws.assume_role_method
    try:
        found = S3Settings(**settings, secrets=S3Secrets(**secrets, **login))
    except ConfigurationError as e:
        raise ConfigurationError(f"{where}: {e}") from None
    return S3Access(found, _credentials(conn_id, hook) if explicit else None)


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
    scheme, _, rest = (proxy if "://" in proxy else f"http://{proxy}").partition("://")
    login, at, address = rest.rpartition("@")
    if not at:
        return f"{scheme}://{address}", {}
    user, _, password = login.partition(":")
    secrets = {"proxy_user": urllib.parse.unquote(user), "proxy_password": urllib.parse.unquote(password)}
    for secret in {password, secrets["proxy_password"]}:
        if secret:
            _mask(secret)
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
    if not isinstance(earlier, list) or not all(isinstance(one, str) for one in earlier):
        raise ConfigurationError(f"{where}: sse_customer_earlier_keys of the extra must be a list of texts")
    for secret in (key, *earlier):
        if secret:
            _mask(secret)
    return {"customer_key": key or None, "earlier_customer_keys": tuple(earlier)}


def registry_access(conn_id: str) -> RegistrySettings:
    """How to reach a schema registry: a connection of type ``http``. Its secrets are masked in logs from here on.

    Host, port and schema are an address, or the host is one as a whole; login and password log in. The extra may have:

    * ``urls``: further addresses of the same registry, as a list;
    * ``bearer_token``: in place of login and password;
    * ``ca``, ``certificate``, ``key``: PEM texts, or paths of PEM files on this machine, which travel with the job;
    * ``key_password``: of an encrypted key;
    * ``timeout``: seconds.

    Raises:
        ConfigurationError: there is no such connection, or it is not one of a schema registry.
    """
    parameter = "registry_conn_id"
    connection = _require(conn_id, parameter)
    where = f"{parameter}={conn_id!r}"
    if connection.conn_type not in ("http", "https"):
        raise ConfigurationError(
            f"{where}: the connection has the type {connection.conn_type!r}; a schema registry needs the type 'http'"
        )
    extra = {name: value for name, value in _extra(connection, parameter).items() if value not in (None, "")}
    for name in ("bearer_token", "key", "key_password"):
        if isinstance(extra.get(name), str):
            _mask(extra[name])
    if connection.password:
        _mask(connection.password)
    for name in extra:
        if name not in _REGISTRY_EXTRA:
            known = or_nearest(name, _REGISTRY_EXTRA, f"it may have {', '.join(_REGISTRY_EXTRA)}")
            raise ConfigurationError(f"{where}: the extra of a schema registry has no {name!r}{known}")
    more, timeout = extra.pop("urls", []), extra.pop("timeout", 10.0)
    if not isinstance(more, list) or not all(isinstance(url, str) for url in more):
        raise ConfigurationError(f"{where}: urls of the extra must be a list of URLs")
    if isinstance(timeout, bool) or not isinstance(timeout, int | float):
        raise ConfigurationError(f"{where}: timeout of the extra must be a number of seconds")
    for name, value in extra.items():
        # The value is not quoted: it may be a secret.
        if not isinstance(value, str):
            raise ConfigurationError(f"{where}: {name} of the extra must be text")
    urls = [*([_registry_url(connection)] if connection.host else []), *more]
    if not urls:
        raise ConfigurationError(
            f"{where}: the connection names no schema registry; set its host, such as https://registry:8081"
        )
    try:
        return RegistrySettings(
            urls=tuple(dict.fromkeys(url.rstrip("/") for url in urls)),
            user=connection.login or None,
            password=connection.password or None,
            bearer_token=extra.get("bearer_token"),
            ca=_pem(where, extra, "ca"),
            certificate=_pem(where, extra, "certificate"),
            key=_pem(where, extra, "key"),
            key_password=extra.get("key_password"),
            timeout=float(timeout),
            name=conn_id,
        )
    except ConfigurationError as e:
        raise ConfigurationError(f"{where}: {e}") from None


def _registry_url(connection: Connection) -> str:
    """The address that host, port and schema are; the port goes behind the name of the host."""
    host = connection.host or ""
    if "://" not in host:
        scheme = connection.schema or ("https" if connection.conn_type == "https" else "http")
        host = f"{scheme}://{host}"
    address = urllib.parse.urlsplit(host)
    if connection.port and not re.search(r":[0-9]+\Z", address.netloc):
        address = address._replace(netloc=f"{address.netloc}:{connection.port}")
    return address.geturl()


def _pem(where: str, extra: Mapping[str, str], name: str) -> str | None:
    """A PEM text of the extra, or that of the file that it names."""
    given = extra.get(name)
    if given is None or "-----BEGIN" in given:
        return given
    try:
        text = Path(given).read_text(encoding="utf-8")
    except (OSError, ValueError) as e:
        # The value is not quoted: a key without its first line would be a secret.
        reason = e.strerror if isinstance(e, OSError) else "it is not text"
        raise ConfigurationError(
            f"{where}: {name} of the extra is neither a PEM text nor a file that can be read here ({reason})"
        ) from None
    if name == "key":
        _mask(text)
    return text


def kafka_name(conn_id: str) -> str:
    """Names a Kafka connection, for messages."""
    return f"the Kafka connection {conn_id!r} (kafka_conn_id)"


def connection_options(
    kafka_conn_id: str, aws_conn_id: str | None, registry_conn_id: str | None = None
) -> tuple[str, ...]:
    """Options with which ``kafka-s3`` uses the same connections, for the commands in error messages."""
    aws = () if aws_conn_id is None else ("--aws-conn-id", aws_conn_id)
    registry = () if registry_conn_id is None else ("--registry-conn-id", registry_conn_id)
    return ("--kafka-conn-id", kafka_conn_id, *aws, *registry)


def spark_target(conn_id: str) -> SparkTarget:
    """The master for ``spark-submit``, or the Spark Connect server, by the rules of Airflow's Spark hooks.

    Raises:
        ConfigurationError: there is no such connection, or it names neither a master nor a server.
    """
    connection = _require(conn_id, "spark_conn_id")
    extra = _extra(connection, "spark_conn_id")
    host = connection.host or ""
    if connection.conn_type == "spark_connect" or host.startswith("sc://"):
        return _connect_target(connection)
    if connection.conn_type == "spark" and host and ("://" in host or not connection.port):
        master = host
    else:
        master = f"{connection.conn_type}://{host}"
    if connection.port:
        master += f":{connection.port}"
    if master.endswith("://"):
        raise ConfigurationError(
            f"spark_conn_id={conn_id!r}: the connection names no master; set its host, such as 'local[2]', 'yarn' or "
            f"'spark://host:7077'"
        )
    if master.startswith("k8s://") and not _has_kubernetes():
        raise ConfigurationError(
            f"apache-airflow-providers-cncf-kubernetes is not installed: Airflow needs it to submit to the Kubernetes "
            f"master {master!r} of spark_conn_id={conn_id!r}. Install it"
        )
    return SparkTarget(master, extra.get("deploy-mode"), extra.get("spark-binary"), extra.get("history-url"))


def _connect_target(connection: Connection) -> SparkTarget:
    from airflow.providers.apache.spark.hooks.spark_connect import SparkConnectHook

    if not (connection.host or "").removeprefix("sc://"):
        raise ConfigurationError(
            f"spark_conn_id={connection.conn_id!r}: the connection names no Spark Connect server; set its host and port"
        )
    try:
        url = SparkConnectHook(connection.conn_id).get_connection_url()
    except ValueError as e:
        raise ConfigurationError(
            f"spark_conn_id={connection.conn_id!r}: the host of a Spark Connect server must not have a path: put user "
            f"and token into login and password, and use_ssl into the extra"
        ) from e
    if connection.password:
        _mask(connection.password)
    return SparkTarget(url.partition("/;")[0].rstrip("/"), None, None, connect_url=url)


def _has_kubernetes() -> bool:
    try:
        return importlib.util.find_spec("airflow.providers.cncf.kubernetes") is not None
    except ModuleNotFoundError:
        return False


def command_to_add(conn_id: str, parameter: str) -> str:
    """The complete command that adds a connection, in backticks.

    Args:
        conn_id: id of the connection.
        parameter: parameter of the operator that names it, such as ``kafka_conn_id``.
    """
    return f"`airflow connections add {shlex.quote(conn_id)} {_ARGUMENTS_TO_ADD[parameter]}`"


def _require(conn_id: str, parameter: str) -> Connection:
    try:
        return BaseHook.get_connection(conn_id)
    except AirflowNotFoundException as e:
        raise ConfigurationError(
            f"there is no connection {conn_id!r}. Name another one by {parameter}, set the environment variable "
            f"AIRFLOW_CONN_{conn_id.upper()}, or create it with its own values: {command_to_add(conn_id, parameter)}"
        ) from e


def _extra(connection: Connection, parameter: str) -> dict[str, Any]:
    if not connection.extra:
        return {}
    try:
        extra = json.loads(connection.extra)
    except ValueError:
        extra = None
    if not isinstance(extra, dict):
        # Neither the text nor the parser's error is quoted: they may contain secrets.
        raise ConfigurationError(f"{parameter}={connection.conn_id!r}: the connection's extra is not a JSON object")
    return extra


def _credentials(conn_id: str, hook: Any) -> S3Credentials:
    from botocore.exceptions import BotoCoreError, ClientError, ConnectionError, HTTPClientError  # noqa: A004

    try:
        found = hook.get_session().get_credentials()
        frozen = found.get_frozen_credentials()
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
            _mask(str(secret))
    # botocore has no public attribute for it. Without it, the end of the session shows as an error of the store.
    end = getattr(found, "_expiry_time", None)
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


def _mask(secret: str) -> None:
    from airflow.providers.common.compat.sdk import mask_secret

    # Logs are masked line by line, and a certificate has many lines.
    lines = secret.splitlines()
    shortest = _SHORTEST_SECRET if len(lines) == 1 else _SHORTEST_LINE
    for line in {secret, *lines}:
        if len(line) >= shortest and not line.startswith("-----"):
            mask_secret(line)
