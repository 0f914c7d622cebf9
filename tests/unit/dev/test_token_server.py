"""The OpenID provider of the tests: a client with its secret gets a token that the published keys verify."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import jwt
import pytest

from dev.token_server import TokenServer

ID, SECRET = "robot", "some/secret+text"
GRANT = {"grant_type": "client_credentials"}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[TokenServer]:
    """A provider with one client."""
    with TokenServer(tmp_path / "keys.json", {ID: SECRET}) as started:
        yield started


@pytest.mark.parametrize("in_header", [True, False])
def test_a_token_is_verified_by_the_keys_of_the_file(server: TokenServer, in_header: bool) -> None:
    """It is for Kafka and for this client, whether its secret was in the header or in the form."""
    login = (ID, SECRET) if in_header else None
    form = GRANT if in_header else {**GRANT, "client_id": ID, "client_secret": SECRET}
    answer = httpx.post(server.url, data=form, auth=login, trust_env=False)
    (key,) = jwt.PyJWKSet.from_json(server.keys.read_text()).keys

    claims = jwt.decode(answer.raise_for_status().json()["access_token"], key, ["RS256"], audience="kafka")

    assert claims["sub"] == ID
    assert claims["exp"] - claims["iat"] == answer.json()["expires_in"]


@pytest.mark.parametrize(("client", "secret"), [(ID, "another"), (ID, ""), ("nobody", SECRET), ("", "")])
def test_wrong_credentials_get_no_token(server: TokenServer, client: str, secret: str) -> None:
    """A wrong secret and an unknown client have errors of their own."""
    answer = httpx.post(server.url, data=GRANT, auth=(client, secret), trust_env=False)

    assert (answer.status_code, answer.json()["error"]) == (401, "invalid_client")


def test_other_grants_are_refused(server: TokenServer) -> None:
    """Only the grant of client credentials is supported."""
    form = {"grant_type": "password"}
    answer = httpx.post(server.url, data=form, auth=(ID, SECRET), trust_env=False)

    assert (answer.status_code, answer.json()) == (400, {"error": "unsupported_grant_type"})
