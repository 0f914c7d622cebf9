"""Address and login of a schema registry, and the TLS context made of them."""

from __future__ import annotations

import base64
import contextlib
import re
import ssl
import tempfile
from collections.abc import Iterator
from typing import Final
from urllib.parse import SplitResult, urlsplit

import msgspec

from airflow_provider_kafka_s3.exceptions import ConfigurationError

__all__ = ["RegistrySettings"]

_ADDRESS: Final = re.compile(r"[!-~]+")
"""Printable ASCII without spaces."""


class RegistrySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to reach a schema registry; the repr shows the addresses only.

    Attributes:
        urls: addresses of one registry, such as ``https://registry:8081`` or ``http://apicurio:8080/apis/ccompat/v7``;
            the next one is used when one does not answer.
        user: for HTTP's basic authentication.
        password: of the user.
        bearer_token: sent in place of user and password.
        ca: certificates of the trusted authorities, in PEM form; None: those of the machine.
        certificate: of the client, in PEM form.
        key: of the certificate, in PEM form; None: it is in ``certificate``.
        key_password: of an encrypted key.
        timeout: seconds to wait for a connection, and for the next bytes of a response.
        name: of the Airflow connection, for messages.
    """

    urls: tuple[str, ...]
    user: str | None = None
    password: str | None = None
    bearer_token: str | None = None
    ca: str | None = None
    certificate: str | None = None
    key: str | None = None
    key_password: str | None = None
    timeout: float = 10.0
    name: str = ""

    def __post_init__(self) -> None:
        if not self.urls:
            raise ConfigurationError("a schema registry needs an address, such as https://registry:8081")
        for url in self.urls:
            _check_url(url)
        if self.user is not None and self.bearer_token is not None:
            raise ConfigurationError("a schema registry takes a user with a password or a bearer token; give one")
        if (self.user is None) != (self.password is None):
            raise ConfigurationError("the login of a schema registry is a user and a password; give both or neither")
        if self.bearer_token is not None and not _ADDRESS.fullmatch(self.bearer_token):
            # The token itself is not quoted.
            raise ConfigurationError(
                "the bearer token of a schema registry contains spaces or characters that no HTTP header may contain; "
                "give the token alone"
            )
        if self.certificate is None and (self.key is not None or self.key_password is not None):
            raise ConfigurationError("a key for a schema registry needs its certificate; give both or neither")
        if not self.timeout > 0:
            raise ConfigurationError(f"timeout={self.timeout} of a schema registry must be positive")

    def authorization(self) -> str | None:
        """The header that logs in; None without a login."""
        if self.bearer_token is not None:
            return f"Bearer {self.bearer_token}"
        if self.user is not None:
            return f"Basic {base64.b64encode(f'{self.user}:{self.password}'.encode()).decode()}"
        return None

    def tls_context(self) -> ssl.SSLContext:
        """The client's side of TLS.

        Raises:
            ConfigurationError: certificates or key cannot be used.
        """
        try:
            # An empty text would mean the authorities of the machine.
            if self.ca is not None and not self.ca.strip():
                raise ValueError("it is empty")
            context = ssl.create_default_context(cadata=self.ca)
        except (ssl.SSLError, ValueError) as e:
            raise ConfigurationError(
                f"the authority's certificate (ca) for the schema registry cannot be used: {e}; give certificates in "
                f"PEM form"
            ) from None
        if self.certificate is not None:
            both = f"{self.certificate}\n{self.key or ''}"
            with _file_of(both) as certificate, _file_of(both) as key:
                try:
                    # Without a password OpenSSL would ask for one at the terminal.
                    context.load_cert_chain(certificate, key, self.key_password or "")
                except (ssl.SSLError, ValueError) as e:
                    raise ConfigurationError(
                        f"the client's certificate or key for the schema registry cannot be used: {e}; give both in "
                        f"PEM form, and key_password if the key is encrypted"
                    ) from None
        return context

    def __repr__(self) -> str:
        return f"RegistrySettings(urls={self.urls!r}, login=REDACTED)"

    __str__ = __repr__


def _check_url(url: str) -> None:
    try:
        address = urlsplit(url)
        has_login = address.username is not None or address.password is not None
        valid = address.scheme in ("http", "https") and address.hostname and _port_is_valid(address)
    except ValueError:
        has_login, valid = False, False
    if has_login:
        raise ConfigurationError(
            "the URL of a schema registry contains credentials; set login and password of the connection"
        )
    if not valid or not _ADDRESS.fullmatch(url) or address.query or address.fragment:
        raise ConfigurationError(
            f"the URL {url!r} of a schema registry must begin with http:// or https://, name a host, and have neither "
            f"a query nor spaces, such as https://registry:8081"
        )


def _port_is_valid(address: SplitResult) -> bool:
    return address.port is None or address.port > 0


@contextlib.contextmanager
def _file_of(text: str) -> Iterator[str]:
    """A path by which only this process can read a text, once: ``ssl`` loads certificates of clients from files only.

    The file has no name, so nothing is left of it however the process ends.
    """
    with tempfile.TemporaryFile("w+", encoding="utf-8") as file:
        file.write(text)
        file.seek(0)
        yield f"/dev/fd/{file.fileno()}"
