"""boto3 clients with one try per request, and with role sessions that are renewed automatically."""

from __future__ import annotations

import functools
import ipaddress
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import quote, urlsplit

import msgspec

from airflow_provider_kafka_s3.config import CannedAcl, Encryption, SseCustomer, SseKms, StorageClass, Upload
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.storage.credentials import RoleSession, S3Credentials, S3Secrets
from airflow_provider_kafka_s3.storage.customer_keys import customer_key_digest, require_customer_key
from airflow_provider_kafka_s3.version import __version__

if TYPE_CHECKING:
    from botocore.credentials import Credentials
    from mypy_boto3_s3 import S3Client

__all__ = ["S3Settings", "make_client", "make_glue_client"]

_STS_TRIES: Final = 3
_GLUE_TIMEOUT: Final = 30.0
_EXPIRED: Final = {"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired"}


class S3Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a store is reached, and what objects are stored with. The repr shows no secrets.

    Attributes:
        endpoint_url: address of an S3-compatible store; None: from the environment, or else AWS.
        region: None: from the environment.
        addressing_style: ``path`` (``endpoint/bucket``), ``virtual`` (``bucket.endpoint``) or ``auto``.
        verify: check the certificate of the endpoint.
        ca_bundle: path of a PEM file with the trusted authorities, on every machine that connects; None: the default.
        connect_timeout: seconds to wait for a connection.
        read_timeout: seconds to wait for the next bytes of a response.
        max_connections: of a client, and so the number of requests at the same time; more requests wait.
        proxy: address of an HTTP proxy for all requests, without a login; None: from the environment.
        accelerate: use the endpoints of S3 Transfer Acceleration.
        dualstack: use the endpoints of AWS with IPv6 addresses, too.
        encryption: by the store; None: with the customer key if there is one, else as the bucket is configured.
        acl: canned access control list of objects; None: none is sent.
        storage_class: of objects; None: that of the bucket.
        secrets: customer keys, and the login of the proxy.
    """

    endpoint_url: str | None = None
    region: str | None = None
    addressing_style: Literal["auto", "path", "virtual"] = "auto"
    verify: bool = True
    ca_bundle: str | None = None
    connect_timeout: float = 10.0
    read_timeout: float = 60.0
    max_connections: int = 64
    proxy: str | None = None
    accelerate: bool = False
    dualstack: bool = False
    encryption: Encryption | None = None
    acl: CannedAcl | None = None
    storage_class: StorageClass | None = None
    secrets: S3Secrets = S3Secrets()

    @property
    def command_options(self) -> tuple[str, ...]:
        """Options with which ``kafka-s3`` reaches the same store, with credentials of boto3's own chain."""
        options = {
            "--endpoint-url": self.endpoint_url,
            "--region": self.region,
            "--ca-bundle": self.ca_bundle,
            "--addressing-style": None if self.addressing_style == "auto" else self.addressing_style,
        }
        return tuple(word for name, value in options.items() if value for word in (name, value))

    def __post_init__(self) -> None:
        if self.endpoint_url is not None:
            address = urlsplit(self.endpoint_url)
            if address.username is not None or address.password is not None:
                raise ConfigurationError("endpoint_url contains credentials; set login and password of the connection")
            if address.scheme not in ("http", "https") or not address.hostname:
                raise ConfigurationError(
                    f"endpoint_url={self.endpoint_url!r} must begin with http:// or https:// and name a host"
                )
        for name in ("connect_timeout", "read_timeout", "max_connections"):
            if getattr(self, name) <= 0:
                raise ConfigurationError(f"{name}={getattr(self, name)} must be positive")
        self._check_proxy()
        self._check_endpoints()
        self._check_encryption()

    def _check_proxy(self) -> None:
        if self.proxy is not None:
            address = urlsplit(self.proxy)
            if address.username is not None or address.password is not None:
                raise ConfigurationError("the address of the proxy contains a login, which belongs into secrets")
            if address.scheme not in ("http", "https") or not address.hostname:
                raise ConfigurationError(f"proxy={self.proxy!r} must begin with http:// or https:// and name a host")

    def _check_endpoints(self) -> None:
        for name, used in (("use_accelerate_endpoint", self.accelerate), ("use_dualstack_endpoint", self.dualstack)):
            if used and self.endpoint_url is not None:
                raise ConfigurationError(
                    f"{name} is AWS's own, and endpoint_url={self.endpoint_url!r} is another address; remove one of "
                    f"them"
                )
        if self.accelerate and self.addressing_style == "path":
            raise ConfigurationError(
                "use_accelerate_endpoint needs the bucket in the name of the host; remove addressing_style='path'"
            )

    def _check_encryption(self) -> None:
        keys = self.secrets
        if keys.customer_key is not None:
            require_customer_key("sse_customer_key", keys.customer_key)
        for key in keys.earlier_customer_keys:
            require_customer_key("a key of sse_customer_earlier_keys", key)
        if isinstance(self.encryption, SseCustomer) and keys.customer_key is None:
            raise ConfigurationError(
                "encryption='customer' needs a key: put sse_customer_key, the base64 of 32 bytes, into the extra of "
                "the AWS connection"
            )
        has_keys = keys.customer_key is not None or keys.earlier_customer_keys
        if has_keys and self.endpoint_url is not None and not _is_private(self.endpoint_url):
            raise ConfigurationError(
                f"sse_customer_key would be sent unencrypted to endpoint_url={self.endpoint_url!r}; use https://"
            )

    @property
    def effective_encryption(self) -> Encryption | None:
        """The encryption, with its default."""
        return self.encryption or (None if self.secrets.customer_key is None else SseCustomer())

    @property
    def encryption_name(self) -> str:
        """The encryption in one line, with the id or the digest of the key; empty: as the bucket is configured."""
        match self.effective_encryption:
            case None:
                return ""
            case SseCustomer():
                assert self.secrets.customer_key is not None
                return f"customer {customer_key_digest(self.secrets.customer_key)}"
            case SseKms(key_id=None):
                return "kms"
            case SseKms(key_id=key_id):
                return f"kms {key_id}"
            case _:
                return "s3"

    def for_upload(self, upload: Upload) -> S3Settings:
        """The settings of a pipeline that stores objects like this.

        Raises:
            ConfigurationError: they do not go together.
        """
        try:
            return msgspec.structs.replace(
                self,
                encryption=upload.encryption or self.encryption,
                acl=upload.acl or self.acl,
                storage_class=upload.storage_class or self.storage_class,
            )
        except ConfigurationError as e:
            raise ConfigurationError(f"upload: {e}") from None


def _is_private(endpoint: str) -> bool:
    """Whether nobody on the way can read a request: TLS, or this machine."""
    address = urlsplit(endpoint)
    host = address.hostname or ""
    if address.scheme == "https" or host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def make_client(settings: S3Settings, credentials: S3Credentials | None = None) -> S3Client:
    """Make a client for :class:`~airflow_provider_kafka_s3.storage.s3.S3Store`.

    It takes 0.1 s: make one per process and share it. With credentials that have a role, the client renews the session
    itself, by requests to STS, shortly before the given session ends.

    Args:
        settings: of the connection.
        credentials: None: boto3's own chain (environment, profile, web identity, instance role, …).

    Raises:
        ConfigurationError: boto3 refuses the settings.
    """
    client: S3Client = _client_of_one_try(
        "s3",
        settings,
        credentials,
        s3={
            "addressing_style": settings.addressing_style,
            "payload_signing_enabled": False,
            **({"use_accelerate_endpoint": True} if settings.accelerate else {}),
            **({"use_dualstack_endpoint": True} if settings.dualstack else {}),
        },
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
    return client


def make_glue_client(settings: S3Settings, credentials: S3Credentials | None = None) -> Any:
    """Make a client of the Glue Data Catalog, as :func:`make_client` makes one of a store.

    It waits half a minute for a response at most, since landing runs wait for it.

    Args:
        settings: of the connection to Glue, with its own endpoint.
        credentials: None: boto3's own chain.

    Raises:
        ConfigurationError: boto3 refuses the settings.
    """
    patience = min(settings.read_timeout, _GLUE_TIMEOUT)
    return _client_of_one_try("glue", msgspec.structs.replace(settings, read_timeout=patience), credentials)


def _client_of_one_try(service: str, settings: S3Settings, credentials: S3Credentials | None, **configured: Any) -> Any:
    from botocore.exceptions import BotoCoreError

    session = None
    if credentials is not None and credentials.role is not None:
        session = RoleSession(credentials, functools.partial(_sts_client, settings))
    try:
        client = _client(
            service,
            settings,
            settings.endpoint_url,
            credentials if session is None else session,
            max_pool_connections=settings.max_connections,
            retries={"mode": "standard", "total_max_attempts": 1},
            **configured,
        )
    except (BotoCoreError, ValueError) as e:
        name = {"s3": "an S3", "glue": "a Glue"}[service]
        raise ConfigurationError(f"cannot make {name} client of {settings}: {e}") from e
    if session is not None:
        client.meta.events.register(f"after-call.{service}", functools.partial(_end_if_expired, session))
    return client


def _sts_client(settings: S3Settings, base: S3Credentials | None, endpoint: str | None) -> Any:
    # Only this client repeats the request: after a failure, RoleSession waits before it makes the next one.
    return _client("sts", settings, endpoint, base, retries={"mode": "standard", "total_max_attempts": _STS_TRIES})


def _client(
    service: str,
    settings: S3Settings,
    endpoint: str | None,
    credentials: S3Credentials | RoleSession | None,
    **configured: Any,
) -> Any:
    import boto3
    import botocore.session
    from botocore.config import Config

    config = Config(
        connect_timeout=settings.connect_timeout,
        read_timeout=settings.read_timeout,
        tcp_keepalive=True,
        user_agent_extra=f"airflow-provider-kafka-s3/{__version__}",
        proxies=_proxies(settings),
        **configured,
    )
    # Not boto3's default session, which is not safe for several threads.
    session = botocore.session.Session()
    login: dict[str, Any] = {}
    if isinstance(credentials, RoleSession):
        session.register_component("credential_provider", _RoleSessionProvider(credentials))
    elif credentials is not None:
        login = {
            "aws_access_key_id": credentials.access_key_id,
            "aws_secret_access_key": credentials.secret_access_key,
            "aws_session_token": credentials.session_token,
        }
    maker: Any = boto3.session.Session(botocore_session=session)
    return maker.client(
        service,
        region_name=settings.region,
        endpoint_url=endpoint,
        # None: AWS_CA_BUNDLE if it is set, else the default authorities; True would ignore AWS_CA_BUNDLE.
        verify=settings.ca_bundle if settings.verify else False,
        config=config,
        **login,
    )


def _proxies(settings: S3Settings) -> dict[str, str] | None:
    """The proxy with its login, for all addresses; None: botocore uses that of the environment."""
    if settings.proxy is None:
        return None
    user, password = settings.secrets.proxy_user, settings.secrets.proxy_password
    login = "" if user is None else f"{quote(user, safe='')}:{quote(password or '', safe='')}@"
    scheme, _, authority = settings.proxy.partition("://")
    address = f"{scheme}://{login}{authority}"
    return {"http": address, "https": address}


class _RoleSessionProvider:
    """Replaces botocore's credential chain: every request uses the current credentials of a role session."""

    def __init__(self, session: RoleSession) -> None:
        self._session = session

    def load_credentials(self) -> Credentials:
        from botocore.credentials import Credentials, ReadOnlyCredentials

        session = self._session

        class Renewing(Credentials):
            def get_frozen_credentials(self) -> ReadOnlyCredentials:
                now = session.current()
                return ReadOnlyCredentials(now.access_key_id, now.secret_access_key, now.session_token)

        return Renewing("of-the-session", "of-the-session", method="kafka-s3-role")


def _end_if_expired(session: RoleSession, *, parsed: Any, http_response: Any, model: Any, **_: object) -> None:
    """End the session if a response shows that it has expired, whatever the local clock is.

    The response to HEAD has no body that could contain the reason; with expired credentials it is a 400.
    """
    code = (parsed.get("Error") or {}).get("Code") if isinstance(parsed, dict) else None
    if code in _EXPIRED or (model.name == "HeadObject" and http_response.status_code == 400):
        session.end()
