"""A small OpenID provider: clients that know their secret get a token, which a Kafka broker then checks by its keys.

It knows the one grant that machines use, ``client_credentials``, and signs with a key of its own, whose public half is
in a JWKS file.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import ssl
import threading
import time
import urllib.parse
import uuid
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from dev.kafka_security import AUDIENCE

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["TokenServer"]

_PATH: Final = "/token"


class TokenServer:
    """Gives tokens over HTTP, in threads of this process.

    Args:
        keys: where the JWKS file goes.
        clients: ids and secrets.
        life: seconds that a token is good for.
        tls: makes it HTTPS.

    Attributes:
        keys: the JWKS file.
        url: the token endpoint.
        given: ids of the clients that got tokens, one per token.
        refused: ids of the clients that did not.
    """

    def __init__(
        self, keys: Path, clients: Mapping[str, str], *, life: int = 3_600, tls: ssl.SSLContext | None = None
    ) -> None:
        from cryptography.hazmat.primitives.asymmetric import rsa

        self.keys = keys
        self.given: list[str] = []
        self.refused: list[str] = []
        self._clients = dict(clients)
        self._life = life
        self._key = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)
        self._key_id = uuid.uuid4().hex
        numbers = self._key.public_key().public_numbers()
        public = {"n": _number(numbers.n), "e": _number(numbers.e)}
        described = {"kty": "RSA", "use": "sig", "alg": "RS256", "kid": self._key_id, **public}
        keys.write_text(json.dumps({"keys": [described]}), encoding="utf-8")
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        scheme = "http" if tls is None else "https"
        self.url = f"{scheme}://127.0.0.1:{self._server.server_port}{_PATH}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), name="token-server", daemon=True
        )

    def __enter__(self) -> Self:
        """Serve."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def token(self, client: str) -> str:
        """A token for a client, whoever asks."""
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import padding

        now = int(time.time())
        claims = {"sub": client, "aud": AUDIENCE, "iat": now, "exp": now + self._life, "jti": uuid.uuid4().hex}
        header = {"alg": "RS256", "typ": "JWT", "kid": self._key_id}
        signed = ".".join(_encoded(json.dumps(part).encode()) for part in (header, claims))
        signature = self._key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        return f"{signed}.{_encoded(signature)}"

    def answer(self, authorization: str, body: str) -> tuple[int, dict[str, Any]]:
        """What a request gets: a status and a JSON document.

        Args:
            authorization: the header.
            body: the form.
        """
        form = urllib.parse.parse_qs(body)
        client, secret = _login(authorization, form)
        known = self._clients.get(client)
        if known is None or not hmac.compare_digest(_digest(known), _digest(secret)):
            self.refused.append(client)
            return 401, {"error": "invalid_client", "error_description": "not the secret of this client"}
        if form.get("grant_type") != ["client_credentials"]:
            return 400, {"error": "unsupported_grant_type"}
        self.given.append(client)
        return 200, {"access_token": self.token(client), "token_type": "Bearer", "expires_in": self._life}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
                if self.path == _PATH:
                    status, document = provider.answer(self.headers.get("Authorization") or "", body)
                else:
                    status, document = 404, {"error": "not_found"}
                answer = json.dumps(document).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_request(self, code: object = "-", size: object = "-") -> None:
                """Say nothing."""

        return Handler


def _login(authorization: str, form: Mapping[str, list[str]]) -> tuple[str, str]:
    """Id and secret, from the header or, as some clients have it, from the form."""
    scheme, _, encoded = authorization.partition(" ")
    if scheme.lower() == "basic":
        client, _, secret = base64.b64decode(encoded).decode().partition(":")
        return client, secret
    return form.get("client_id", [""])[0], form.get("client_secret", [""])[0]


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _number(value: int) -> str:
    return _encoded(value.to_bytes((value.bit_length() + 7) // 8, "big"))
