"""A certificate authority of our own, for the real parts that talk TLS in tests, benchmarks and the demo.

An :class:`Authority` lives in a folder, and so does what it issues: PEM files, the form that librdkafka, Java, boto3
and Python's ``ssl`` all read. Everything is good for one day and for the loopback interface only.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

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
    """A private certificate authority.

    Args:
        folder: where the files go; it is made if it is not there. Two authorities need two folders.
        name: common name of the authority.
    """

    def __init__(self, folder: Path, name: str = "CA of the tests") -> None:
        from cryptography.hazmat.primitives.asymmetric import ec

        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _common_name(name)
        self._certificate = self._sign(self._name, self._key, authority=True)
        self.certificate = folder / "ca.pem"
        self.certificate.write_bytes(_pem(self._certificate))

    @property
    def certificate_pem(self) -> str:
        """The authority's certificate as text: what whoever trusts it needs."""
        return self.certificate.read_text(encoding="ascii")

    def server(self, name: str = "server", *, password: str | None = None) -> Certificate:
        """Issue a certificate for ``127.0.0.1`` and ``localhost``, in ``<name>.pem`` and ``<name>.key``."""
        return self._issue(name, password, server=True)

    def client(self, name: str = "client", *, password: str | None = None) -> Certificate:
        """Issue a certificate for a client, whose common name is ``name``."""
        return self._issue(name, password, server=False)

    def _issue(self, name: str, password: str | None, *, server: bool) -> Certificate:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ec

        key = ec.generate_private_key(ec.SECP256R1())
        issued = Certificate(self.folder / f"{name}.pem", self.folder / f"{name}.key", password)
        issued.certificate.write_bytes(_pem(self._sign(_common_name(name), key, server=server)))
        encryption: serialization.KeySerializationEncryption = (
            serialization.NoEncryption()
            if password is None
            else serialization.BestAvailableEncryption(password.encode())
        )
        issued.key.touch(mode=0o600)
        issued.key.write_bytes(
            key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
        )
        return issued

    def _sign(
        self, subject: x509.Name, key: EllipticCurvePrivateKey, *, authority: bool = False, server: bool = False
    ) -> x509.Certificate:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes
        from cryptography.x509.oid import ExtendedKeyUsageOID

        now = dt.datetime.now(dt.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            # Clocks may differ.
            .not_valid_before(now - _LIFE)
            .not_valid_after(now + _LIFE)
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
            # Python's strict verification wants both identifiers.
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
        if authority:
            usage = x509.KeyUsage(**{name: name in ("key_cert_sign", "crl_sign") for name in _KEY_USAGES})
            builder = builder.add_extension(usage, critical=True)
        else:
            purpose = ExtendedKeyUsageOID.SERVER_AUTH if server else ExtendedKeyUsageOID.CLIENT_AUTH
            builder = builder.add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        if server:
            here = [x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName("localhost")]
            builder = builder.add_extension(x509.SubjectAlternativeName(here), critical=False)
        return builder.sign(self._key, hashes.SHA256())


_KEY_USAGES: Final = (
    "digital_signature",
    "content_commitment",
    "key_encipherment",
    "data_encipherment",
    "key_agreement",
    "key_cert_sign",
    "crl_sign",
    "encipher_only",
    "decipher_only",
)


def server_context(certificate: Certificate, *, clients: Authority | None = None) -> ssl.SSLContext:
    """The server's side of TLS, for Python's own servers.

    Args:
        certificate: of the server.
        clients: whose certificates clients have to show; None: none.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.certificate, certificate.key, certificate.password)
    if clients is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(clients.certificate)
    return context


def _common_name(name: str) -> x509.Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _pem(certificate: x509.Certificate) -> bytes:
    from cryptography.hazmat.primitives import serialization

    return certificate.public_bytes(serialization.Encoding.PEM)
