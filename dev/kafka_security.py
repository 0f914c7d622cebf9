"""The listeners of a Kafka broker that authenticate clients, as settings of ``server.properties``.

There are up to three, depending on the given settings: ``SASL`` (passwords over plain TCP), ``TLS`` (passwords or
tokens over TLS) and ``MUTUAL`` (client certificates over TLS). A topic with access rules admits only the users in the
rules; a topic without rules admits all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from dev.certificates import Authority

__all__ = ["AUDIENCE", "KafkaSecurity"]

AUDIENCE: Final = "kafka"
"""Required audience of tokens."""

_LOGIN: Final = "org.apache.kafka.common.security"


@dataclass(frozen=True)
class KafkaSecurity:
    """The accepted logins.

    Attributes:
        users: names and passwords, for PLAIN and SCRAM-SHA-512.
        authority: issues the broker's certificate, and is trusted for those of clients; None: no TLS.
        token_keys: JWKS file with the public keys of tokens; None: no tokens are accepted.
    """

    users: Mapping[str, str] = field(default_factory=dict, repr=False)
    authority: Authority | None = None
    token_keys: Path | None = None

    @property
    def listeners(self) -> dict[str, str]:
        """Names of the listeners, and their protocols."""
        found = {"SASL": "SASL_PLAINTEXT"} if self.users else {}
        if self.authority is not None:
            found["MUTUAL"] = "SSL"
            if self.users or self.token_keys is not None:
                found["TLS"] = "SASL_SSL"
        return found

    @property
    def java_options(self) -> list[str]:
        """Options of the broker's JVM."""
        if self.token_keys is None:
            return []
        return [f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={self.token_keys.as_uri()}"]

    def settings(self, folder: Path) -> dict[str, str]:
        """Settings of the listeners.

        Args:
            folder: of the broker, for its key.
        """
        if not self.listeners:
            return {}
        found = {
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "allow.everyone.if.no.acl.found": "true",
            # Clients of the plain listener have all rights.
            "super.users": "User:ANONYMOUS",
        }
        mechanisms = {
            **(self._passwords() if self.users else {}),
            **(self._tokens(self.token_keys) if self.token_keys is not None else {}),
        }
        if mechanisms:
            found["sasl.enabled.mechanisms"] = ",".join(mechanisms)
        for listener, protocol in self.listeners.items():
            prefix = f"listener.name.{listener.lower()}"
            if protocol.startswith("SASL"):
                for mechanism, settings in mechanisms.items():
                    found |= {f"{prefix}.{mechanism.lower()}.{name}": value for name, value in settings.items()}
            if protocol.endswith("SSL"):
                found |= {f"{prefix}.{name}": value for name, value in self._tls(folder).items()}
        if "MUTUAL" in self.listeners:
            found["listener.name.mutual.ssl.client.auth"] = "required"
        return found

    def _passwords(self) -> dict[str, dict[str, str]]:
        users = " ".join(f"user_{name}={_quoted(password)}" for name, password in self.users.items())
        return {
            "PLAIN": {"sasl.jaas.config": f"{_LOGIN}.plain.PlainLoginModule required {users};"},
            "SCRAM-SHA-512": {"sasl.jaas.config": f"{_LOGIN}.scram.ScramLoginModule required;"},
        }

    def _tokens(self, keys: Path) -> dict[str, dict[str, str]]:
        return {
            "OAUTHBEARER": {
                "sasl.jaas.config": f"{_LOGIN}.oauthbearer.OAuthBearerLoginModule required;",
                "sasl.server.callback.handler.class": f"{_LOGIN}.oauthbearer.OAuthBearerValidatorCallbackHandler",
                "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
                "sasl.oauthbearer.expected.audience": AUDIENCE,
            }
        }

    def _tls(self, folder: Path) -> dict[str, str]:
        assert self.authority is not None
        store = folder / "broker.pem"
        if not store.exists():
            issued = self.authority.server("broker")
            store.touch(mode=0o600)
            store.write_text(issued.key_pem + issued.certificate_pem, encoding="ascii")
        return {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(store),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority.certificate),
        }


def _quoted(text: str) -> str:
    """A JAAS string for a Java properties file: the file's reader takes off one layer of backslashes itself."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\\", "\\\\") + '"'
