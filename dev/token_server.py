"""A small OpenID provider: a client with its secret gets a token, which a Kafka broker verifies by the keys of a file.

It has the one grant for machines, ``client_credentials``.
"""

from __future__ import annotations

import hmac
import json
import ssl
import time
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm
from werkzeug import Request, Response

from dev.kafka_security import AUDIENCE
from dev.wsgi_server import WsgiServer

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

__all__ = ["TokenServer"]

_PATH: Final = "/token"
_LIFE: Final = 3_600
"""Seconds that a token is valid."""


class TokenServer(WsgiServer):
    """Issues tokens over HTTP.

    Args:
        keys: path of the JWKS file to write.
        clients: ids and secrets.
        tls: makes it HTTPS.

    Attributes:
        keys: the JWKS file, with the public half of the signing key.
        url: the token endpoint.
    """

    def __init__(self, keys: Path, clients: Mapping[str, str], *, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(self._serve, tls=tls)
        self.keys = keys
        self.url = f"{self.endpoint}{_PATH}"
        self._clients = dict(clients)
        self._key = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)
        self._key_id = uuid.uuid4().hex
        public = RSAAlgorithm.to_jwk(self._key.public_key(), as_dict=True)
        described = {**public, "use": "sig", "alg": "RS256", "kid": self._key_id}
        keys.write_text(json.dumps({"keys": [described]}), encoding="utf-8")

    def token(self, client: str) -> str:
        """A token for a client."""
        now = int(time.time())
        claims = {"sub": client, "aud": AUDIENCE, "iat": now, "exp": now + _LIFE, "jti": uuid.uuid4().hex}
        return jwt.encode(claims, self._key, "RS256", headers={"kid": self._key_id})

    def _serve(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        status, document = self._answer(Request(environ))
        return Response(json.dumps(document), status, mimetype="application/json")(environ, start_response)

    def _answer(self, request: Request) -> tuple[int, dict[str, Any]]:
        if (request.method, request.path) != ("POST", _PATH):
            return 404, {"error": "not_found"}
        # Some clients send id and secret in the header, others in the form.
        if (login := request.authorization) is not None:
            client, secret = login.get("username") or "", login.get("password") or ""
        else:
            client, secret = request.form.get("client_id", ""), request.form.get("client_secret", "")
        expected = self._clients.get(client)
        if expected is None or not hmac.compare_digest(expected.encode(), secret.encode()):
            return 401, {"error": "invalid_client", "error_description": "not the secret of this client"}
        if request.form.get("grant_type") != "client_credentials":
            return 400, {"error": "unsupported_grant_type"}
        return 200, {"access_token": self.token(client), "token_type": "Bearer", "expires_in": _LIFE}
