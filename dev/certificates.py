"""A certificate authority for tests, benchmarks and the demo: trustme's, with its certificates in files.

librdkafka, Java, boto3 and Python's ``ssl`` all read PEM files. The authority's own key stays in memory.
"""

from __future__ import annotations

import datetime as dt
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import trustme
from cryptography.hazmat.primitives import serialization

__all__ = ["Authority", "Certificate", "server_context"]

_LIFE: Final = dt.timedelta(days=1)


@dataclass(frozen=True)
class Certificate:
    """A certificate and its key, each in a file.

    Attributes:
        certificate: PEM.
        key: PEM, PKCS#8; encrypted if there is a password.
        password: of the key, or None.
    """

    certificate: Path
    key: Path
    password: str | None = field(default=None, repr=False)

    @property
    def certificate_pem(self) -> str:
        """The certificate as text."""
        return self.certificate.read_text(encoding="ascii")

    @property
    def key_pem(self) -> str:
        """The key as text."""
        return self.key.read_text(encoding="ascii")


class Authority:
    """A private certificate authority. Its certificates are valid for one day.

    Args:
        folder: folder for the files, created if it does not exist. Two authorities need two folders.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._ca = trustme.CA()
        self.certificate = folder / "ca.pem"
        self._ca.cert_pem.write_to_path(self.certificate)

    @property
    def certificate_pem(self) -> str:
        """The authority's certificate as text."""
        return self.certificate.read_text(encoding="ascii")

    def server(self, name: str = "server", *, password: str | None = None) -> Certificate:
        """Issue a certificate for ``127.0.0.1`` and ``localhost``, in ``<name>.pem`` and ``<name>.key``."""
        return self._issue(name, password, "127.0.0.1", "localhost")

    def client(self, name: str = "client", *, password: str | None = None) -> Certificate:
        """Issue a certificate for a client, whose common name is ``name``."""
        return self._issue(name, password, f"{name}@localhost")

    def _issue(self, name: str, password: str | None, *identities: str) -> Certificate:
        leaf = self._ca.issue_cert(*identities, common_name=name, not_after=dt.datetime.now(dt.UTC) + _LIFE)
        issued = Certificate(self.folder / f"{name}.pem", self.folder / f"{name}.key", password)
        leaf.cert_chain_pems[0].write_to_path(issued.certificate)
        encryption: serialization.KeySerializationEncryption = (
            serialization.NoEncryption()
            if password is None
            else serialization.BestAvailableEncryption(password.encode())
        )
        # trustme writes the older form of a key, which Java does not read.
        key = serialization.load_pem_private_key(leaf.private_key_pem.bytes(), None)
        issued.key.touch(mode=0o600)
        issued.key.write_bytes(
            key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
        )
        return issued


def server_context(certificate: Certificate, *, clients: Authority | None = None) -> ssl.SSLContext:
    """The server's side of TLS, for Python's own servers.

    Args:
        certificate: of the server.
        clients: the authority of the certificates that clients have to show; None: they need none.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.certificate, certificate.key, certificate.password)
    if clients is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(clients.certificate)
    return context
