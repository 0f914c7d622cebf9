"""Role sessions that end while a job runs are renewed before, or when the store reports that they have expired."""

from __future__ import annotations

import logging
import pickle
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_kafka_s3.exceptions import AccessDeniedError, KafkaS3Error, TransientError
from airflow_provider_kafka_s3.retry import Retrier, RetryPolicy
from airflow_provider_kafka_s3.storage.credentials import AssumedRole, RoleSession, S3Credentials
from airflow_provider_kafka_s3.storage.durable import DurableStore
from airflow_provider_kafka_s3.storage.s3 import S3Settings, S3Store, make_client
from dev.role_sessions import RoleSessions
from dev.s3_server import ThreadedS3Server

ARN = "arn:aws:iam::123456789012:role/lake"
BASE = S3Credentials(access_key_id="AKIABASE", secret_access_key="canary-of-the-base-key")
NOW = 1_700_000_000.0


class Sts:
    """Returns a session of one hour per request, or fails."""

    def __init__(self) -> None:
        self.now = NOW
        self.requests: list[dict[str, Any]] = []
        self.error: Exception | None = None

    def client(self, base: S3Credentials | None, endpoint: str | None) -> Sts:
        """A client of it."""
        assert (base, endpoint) == (BASE, None)
        return self

    def close(self) -> None:
        """There is nothing to close."""

    def assume_role(self, **arguments: Any) -> dict[str, Any]:
        """Respond like STS."""
        self.requests.append(arguments)
        if self.error is not None:
            raise self.error
        given = {"AccessKeyId": f"ASIA{len(self.requests)}", "SecretAccessKey": "s", "SessionToken": "t"}
        return {"Credentials": {**given, "Expiration": datetime.fromtimestamp(self.now + 3_600, UTC)}}


def role(**more: Any) -> AssumedRole:
    """The role of the tests."""
    return AssumedRole(**{"arn": ARN, "session_name": "tests", "base": BASE, **more})


def session(sts: Sts, *, remaining: float | None = 3_600) -> RoleSession:
    """A session that ends in so many seconds."""
    first = S3Credentials(
        access_key_id="ASIA0",
        secret_access_key="s",
        session_token="t",
        expires_at=None if remaining is None else NOW + remaining,
        role=role(arguments='{"ExternalId": "x", "DurationSeconds": 3600}'),
    )
    return RoleSession(first, sts.client, clock=lambda: sts.now)


def test_no_request_is_sent_before_a_session_ends() -> None:
    """A thousand new executors do not send a thousand requests to STS."""
    sts = Sts()
    going_on = session(sts)

    for sts.now in (NOW, NOW + 3_200):
        assert going_on.current().access_key_id == "ASIA0"
    assert sts.requests == []


def test_the_next_session_begins_minutes_before_the_end_and_by_one_thread() -> None:
    """With the same arguments; only one thread of an upload sends the request."""
    sts = Sts()
    going_on = session(sts)
    sts.now = NOW + 3_400
    threads = [threading.Thread(target=going_on.current) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert going_on.current().access_key_id == "ASIA1"
    assert sts.requests == [{"RoleArn": ARN, "RoleSessionName": "tests", "ExternalId": "x", "DurationSeconds": 3600}]


def test_an_expired_session_of_the_store_counts_whatever_the_clock() -> None:
    """Each running request gets that response: a session that another thread has renewed since is kept."""
    sts = Sts()
    going_on = session(sts, remaining=None)
    with ThreadPoolExecutor(1) as other:
        assert other.submit(going_on.current).result().access_key_id == "ASIA0"
        assert going_on.current().access_key_id == "ASIA0"
        going_on.end()
        assert going_on.current().access_key_id == "ASIA1"
        other.submit(going_on.end).result()
        assert other.submit(going_on.current).result().access_key_id == "ASIA1"
        other.submit(going_on.end).result()
        assert going_on.current().access_key_id == "ASIA2"


def test_a_failure_while_the_session_is_valid_is_a_warning_and_retried_later(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Not with every request; when the service is back, the session is renewed."""
    from botocore.exceptions import EndpointConnectionError

    sts = Sts()
    going_on = session(sts)
    sts.error = EndpointConnectionError(endpoint_url="https://sts")
    sts.now = NOW + 3_400
    with caplog.at_level(logging.WARNING):
        assert {going_on.current().access_key_id for _ in range(9)} == {"ASIA0"}
    assert (len(sts.requests), len(caplog.records)) == (1, 1)
    sts.error = None
    sts.now += 31
    assert going_on.current().access_key_id == "ASIA2"


@pytest.mark.parametrize(
    ("code", "base", "kind"),
    [
        ("AccessDenied", BASE, AccessDeniedError),
        ("ServiceUnavailable", BASE, TransientError),
        ("ExpiredTokenException", BASE, TransientError),
        ("AccessDenied", None, TransientError),
    ],
)
def test_a_role_that_cannot_be_assumed_any_more_is_an_error_that_names_it(
    code: str, base: S3Credentials | None, kind: type[KafkaS3Error]
) -> None:
    """Terminal only if the base credentials are refused; this machine's identity may be another one."""
    from botocore.exceptions import ClientError

    sts = Sts()
    sts.error = ClientError({"Error": {"Code": code, "Message": "no"}}, "AssumeRole")
    first = S3Credentials(
        access_key_id="A", secret_access_key="canary", expires_at=NOW, role=role(base=base, sts_endpoint=None)
    )
    going_on = RoleSession(first, lambda *_: sts, clock=lambda: sts.now)
    with pytest.raises(kind, match=rf"role {ARN} has ended.*{code}") as caught:
        going_on.current()
    assert "canary" not in str(caught.value)
    assert type(caught.value) is kind
    assert (caught.value.__cause__, caught.value.__suppress_context__) == (None, True)


def test_a_role_shows_no_secrets_and_can_be_sent() -> None:
    """Executors get it by pickle, the driver by a file."""
    credentials = S3Credentials(access_key_id="A", secret_access_key="canary", role=role())
    assert "canary" not in f"{credentials!r} {credentials} {role()!r} {role()}"
    assert pickle.loads(pickle.dumps(credentials)) == credentials
    assert hash(credentials) == hash(pickle.loads(pickle.dumps(credentials)))


# -- with a server -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[str, RoleSessions]]:
    """Address of a server that only sessions of a role may use, and the STS that returns them."""
    gates: list[RoleSessions] = []

    def middleware(application: Any) -> RoleSessions:
        gates.append(RoleSessions(application, trusted=["AKIABASE"]))
        return gates[0]

    with ThreadedS3Server(buckets=["of-roles"], middleware=middleware) as server:
        yield server.endpoint, gates[0]


def store_of(endpoint: str, **more: Any) -> DurableStore:
    """The bucket, with a session that STS did not return."""
    settings = S3Settings(endpoint_url=endpoint, region="us-east-1", addressing_style="path")
    assumed = role(sts_endpoint=endpoint, **more)
    stale = S3Credentials(access_key_id="ASIASTALE", secret_access_key="x", expires_at=1.0, role=assumed)
    return DurableStore(S3Store(make_client(settings, stale), "of-roles"), Retrier(RetryPolicy(base=0.01)))


def test_every_kind_of_request_survives_the_end_of_a_session(
    served: tuple[str, RoleSessions],
) -> None:
    """ExpiredToken, and the bare 400 of HEAD: one new session, the same request again, and no partial effect."""
    endpoint, sessions = served
    store = store_of(endpoint)
    store.create("marker", b"1")
    upload = store.create_upload("object")
    part = store.upload_part("object", upload, 1, b"x")
    found = store.head("marker")
    assert found is not None
    before = len(sessions.given)
    for number, request in enumerate(
        (
            lambda: store.head("marker"),
            lambda: store.get("marker"),
            lambda: store.list(""),
            lambda: store.create("plan", b"p"),
            lambda: store.replace("marker", b"2", found.etag),
            lambda: store.upload_part("object", upload, 1, b"x"),
            lambda: store.complete("object", upload, [part]),
        ),
        start=1,
    ):
        sessions.end_all()
        assert request()
        assert len(sessions.given) == before + number
    assert {info.key for info in store.list("")} == {"marker", "plan", "object"}
    # One for each, and one for the region that botocore requests after the response to HEAD.
    assert sessions.turned_away == 8


def test_a_web_identity_assumes_the_role_by_its_file(served: tuple[str, RoleSessions], tmp_path: Path) -> None:
    """Without any credentials; the file is read again every time, since another process renews it."""
    endpoint, sessions = served
    token = tmp_path / "token"
    token.write_text("identity-1")
    assert store_of(endpoint, base=None, token_file=str(token)).get("nothing") is None
    assert sessions.given[-1]["WebIdentityToken"] == "identity-1"
    token.unlink()
    with pytest.raises(TransientError, match="the role cannot be assumed again: FileNotFoundError"):
        store_of(endpoint, base=None, token_file=str(token)).get("nothing")


def test_credentials_that_may_not_assume_the_role_are_an_error(served: tuple[str, RoleSessions]) -> None:
    """The base credentials are refused: terminal, and they are not shown."""
    stranger = S3Credentials(access_key_id="AKIASTRANGER", secret_access_key="canary-stranger")
    with pytest.raises(
        AccessDeniedError, match=rf"{ARN}.*allow the connection's credentials to assume the role"
    ) as caught:
        store_of(served[0], base=stranger).get("nothing")
    assert "canary" not in str(caught.value)
