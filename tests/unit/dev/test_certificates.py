"""The authority of the tests: strict clients and servers accept its certificates, and no others."""

from __future__ import annotations

import socket
import ssl
import threading
from pathlib import Path

import pytest

from dev.certificates import Authority, Certificate, server_context


def greet(server: ssl.SSLContext, client: ssl.SSLContext, name: str) -> bytes:
    """Connect the two over a pair of sockets; the client reads a message of the server through TLS."""
    here, there = socket.socketpair()

    def serve() -> None:
        try:
            with server.wrap_socket(there, server_side=True) as stream:
                stream.sendall(b"hello")
        except OSError:
            there.close()

    serving = threading.Thread(target=serve)
    serving.start()
    try:
        with client.wrap_socket(here, server_hostname=name) as stream:
            return stream.recv(5)
    finally:
        here.close()
        serving.join()


def trusting(authority: Authority, certificate: Certificate | None = None) -> ssl.SSLContext:
    """A client that trusts an authority, and shows a certificate if it has one."""
    context = ssl.create_default_context(cafile=str(authority.certificate))
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    if certificate is not None:
        context.load_cert_chain(certificate.certificate, certificate.key, certificate.password)
    return context


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost"])
def test_a_server_is_trusted_by_its_authority_only(tmp_path: Path, name: str) -> None:
    """By address and by name; a client that trusts another authority refuses it."""
    ours, other = Authority(tmp_path / "ours"), Authority(tmp_path / "other")
    server = server_context(ours.server())

    assert greet(server, trusting(ours), name) == b"hello"
    with pytest.raises(ssl.SSLCertVerificationError):
        greet(server, trusting(other), name)
    with pytest.raises(ssl.SSLCertVerificationError):
        greet(server, trusting(ours), "example.com")


def test_a_server_may_demand_certificates_of_its_clients(tmp_path: Path) -> None:
    """A client with a certificate of the authority is accepted, its key encrypted or not; no other client is."""
    ours, other = Authority(tmp_path / "ours"), Authority(tmp_path / "other")
    server = server_context(ours.server(password="of the server"), clients=ours)

    assert greet(server, trusting(ours, ours.client()), "localhost") == b"hello"
    assert greet(server, trusting(ours, ours.client("two", password="of 'two'")), "localhost") == b"hello"
    for certificate in (None, other.client()):
        with pytest.raises(OSError, match=r"(?i)alert|reset|eof"):
            greet(server, trusting(ours, certificate), "localhost")


def test_keys_are_files_that_only_their_owner_reads(tmp_path: Path) -> None:
    """The password of an encrypted key is not shown."""
    issued = Authority(tmp_path).client("me", password="secret-word")

    assert issued.key.stat().st_mode & 0o077 == 0
    assert issued.key_pem.startswith("-----BEGIN ENCRYPTED PRIVATE KEY-----")
    assert issued.certificate_pem.startswith("-----BEGIN CERTIFICATE-----")
    assert "secret-word" not in repr(issued)
