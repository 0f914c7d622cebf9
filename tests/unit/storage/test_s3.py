"""The S3 store over HTTP: faults on the way, settings, and what a client is made of."""

from __future__ import annotations

import pickle
import re
import socket
import threading
import urllib.parse
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_kafka_s3.exceptions import (
    AccessDeniedError,
    BucketNotFoundError,
    ConfigurationError,
    ThrottledError,
    TransientError,
    UnknownOutcomeError,
    UnsupportedStoreError,
)
from airflow_provider_kafka_s3.retry import Retrier, RetryDetails
from airflow_provider_kafka_s3.storage.durable import CompleteResult, DurableStore
from airflow_provider_kafka_s3.storage.s3 import S3Credentials, S3Settings, S3Store, make_client
from dev.certificates import Authority, server_context
from dev.s3_server import ThreadedS3Server

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

ANY = S3Credentials(access_key_id="any", secret_access_key="any-secret")
BUCKET = "faulty"

Fault = Callable[["WSGIApplication", "WSGIEnvironment", "StartResponse"], Iterable[bytes]]


class Switch:
    """A WSGI middleware in front of the store that applies a fault to requests."""

    def __init__(self, app: WSGIApplication) -> None:
        self.app = app
        self.fault: Fault | None = None
        self.seen: list[str] = []

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Forward the request to the store, or to the fault."""
        self.seen.append(environ["REQUEST_METHOD"])
        if self.fault is None:
            return self.app(environ, start_response)
        return self.fault(self.app, environ, start_response)


class FaultyStore:
    """A server with a switch, and its address."""

    def __init__(self) -> None:
        self._switches: list[Switch] = []
        self.server = ThreadedS3Server(buckets=[BUCKET], middleware=self._switch).start()
        self.switch = self._switches[0]

    def _switch(self, app: WSGIApplication) -> Switch:
        self._switches.append(Switch(app))
        return self._switches[-1]

    def store(self, bucket: str = BUCKET, **settings: Any) -> S3Store:
        """A new client of the server."""
        found = S3Settings(endpoint_url=self.server.endpoint, region="us-east-1", **settings)
        return S3Store(make_client(found, ANY), bucket)


@pytest.fixture(scope="module")
def shared_server() -> Iterator[FaultyStore]:
    """One server for the module."""
    faulty = FaultyStore()
    yield faulty
    faulty.server.stop()


@pytest.fixture
def faulty(shared_server: FaultyStore) -> Iterator[FaultyStore]:
    """The server, without a fault."""
    yield shared_server
    shared_server.switch.fault = None


@pytest.fixture
def key() -> str:
    """A key that no other test uses."""
    return uuid.uuid4().hex


def answering(status: str, body: bytes = b"", **headers: str) -> Fault:
    """A fault that sends this response instead of the store's."""

    def fault(app: WSGIApplication, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        start_response(status, [(name.replace("_", "-"), value) for name, value in headers.items()])
        return [body]

    return fault


def response_lost(app: WSGIApplication, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    """The store applies the request; the connection breaks before the response."""
    list(app(environ, start_response))
    raise ConnectionResetError


def durable(store: S3Store, **how: Any) -> DurableStore:
    """The store behind the default policy."""
    return DurableStore(store, Retrier(**how))


def test_five_seconds_of_503_pass_with_the_defaults(faulty: FaultyStore, key: str) -> None:
    """A store that throttles all requests for five seconds delays a write; nothing is lost."""
    now, seen = 0.0, list[RetryDetails]()

    def pass_time(seconds: float) -> None:
        nonlocal now
        now += seconds

    def fault(app: WSGIApplication, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if now < 5:
            return answering("503 Slow Down")(app, environ, start_response)
        return app(environ, start_response)

    faulty.switch.fault = fault
    safe = durable(faulty.store(), sleep=pass_time, monotonic=lambda: now, on_retry=seen.append)
    assert safe.create(key, b"body") == b"body"
    assert seen
    assert all(details.throttled for details in seen)
    assert safe.get(key).body == b"body"  # type: ignore[union-attr]


def test_each_request_is_sent_once(faulty: FaultyStore, key: str) -> None:
    """Only the package's retry loop repeats requests, not botocore."""
    faulty.switch.fault = answering("500 Internal Server Error")
    store = faulty.store()
    calls: list[Callable[[], object]] = [
        lambda: store.put_new(key, b"x"),
        lambda: store.put_if_match(key, b"x", etag='"e"'),
        lambda: store.get(key),
        lambda: store.head(key),
        lambda: list(store.list(key)),
        lambda: store.create_upload(key),
        lambda: store.upload_part(key, "u", 1, b"x"),
        lambda: store.complete_upload(key, "u", []),
        lambda: store.abort_upload(key, "u"),
        lambda: store.upload_exists(key, "u"),
        lambda: list(store.pending_uploads(key)),
    ]
    for call in calls:
        faulty.switch.seen.clear()
        with pytest.raises(UnknownOutcomeError):
            call()
        assert len(faulty.switch.seen) == 1


def test_retry_after_of_the_response_is_kept(faulty: FaultyStore, key: str) -> None:
    """The retry loop gets the store's value."""
    faulty.switch.fault = answering("503 Slow Down", Retry_After="17")
    with pytest.raises(ThrottledError) as caught:
        faulty.store().head(key)
    assert caught.value.retry_after == 17.0


def test_lost_response_is_unknown_and_the_write_stays(faulty: FaultyStore, key: str) -> None:
    """The write was applied although its response was lost; a read shows it."""
    store = faulty.store()
    faulty.switch.fault = response_lost
    with pytest.raises(UnknownOutcomeError):
        store.put_new(key, b"ours")
    faulty.switch.fault = None
    assert durable(store).create(key, b"ours") == b"ours"


def test_200_with_an_error_inside_is_unknown(faulty: FaultyStore, key: str) -> None:
    """Complete may begin with 200 and end with an error; then the outcome is unknown."""
    store = faulty.store()
    upload_id = store.create_upload(key)
    part = store.upload_part(key, upload_id, 1, b"x")
    body = b"<?xml version='1.0'?><Error><Code>InternalError</Code><Message>try again</Message></Error>"
    faulty.switch.fault = answering("200 OK", body, Content_Type="application/xml")
    assert durable(store).complete(key, upload_id, [part]) is CompleteResult.UNKNOWN


NOT_IMPLEMENTED = answering(
    "501 Not Implemented",
    b"<?xml version='1.0'?><Error><Code>NotImplemented</Code><Message>no such condition</Message></Error>",
    Content_Type="application/xml",
)


def without_conditions(
    app: WSGIApplication, environ: WSGIEnvironment, start_response: StartResponse
) -> Iterable[bytes]:
    """A store that does not implement If-None-Match."""
    handler = NOT_IMPLEMENTED if "HTTP_IF_NONE_MATCH" in environ else lambda app, *rest: app(*rest)
    return handler(app, environ, start_response)


def test_complete_is_sent_without_a_condition_if_the_store_has_none(
    faulty: FaultyStore, key: str, caplog: pytest.LogCaptureFixture
) -> None:
    """If the store does not implement the condition of Complete, it is left out of all requests, with one warning."""
    faulty.switch.fault = without_conditions
    store = faulty.store()
    for n in range(2):
        upload_id = store.create_upload(f"{key}/{n}")
        part = store.upload_part(f"{key}/{n}", upload_id, 1, b"body")
        faulty.switch.seen.clear()
        assert durable(store).complete(f"{key}/{n}", upload_id, [part]) is CompleteResult.DONE
        assert faulty.switch.seen == ["POST"] * (2 - n)
        assert store.get(f"{key}/{n}").body == b"body"  # type: ignore[union-attr]
    assert caplog.text.count("does not implement If-None-Match on Complete") == 1


def test_conditions_of_puts_are_never_left_out(faulty: FaultyStore, key: str) -> None:
    """Without create-only PUTs runs could lose records, so a store that has none is refused, whatever Complete does."""
    faulty.switch.fault = without_conditions
    store = faulty.store()
    upload_id = store.create_upload(key)
    store.complete_upload(key, upload_id, [store.upload_part(key, upload_id, 1, b"body")])
    with pytest.raises(UnsupportedStoreError):
        store.put_new(key, b"other")
    assert store.get(key).body == b"body"  # type: ignore[union-attr]


def test_store_without_complete_is_refused(faulty: FaultyStore, key: str) -> None:
    """If the store does not implement the request itself, it is sent once more, and not again."""
    store = faulty.store()
    faulty.switch.fault = NOT_IMPLEMENTED
    faulty.switch.seen.clear()
    with pytest.raises(UnsupportedStoreError):
        store.complete_upload(key, "u", [])
    assert faulty.switch.seen == ["POST"] * 2


def test_requests_wait_for_a_free_connection(faulty: FaultyStore, key: str, caplog: pytest.LogCaptureFixture) -> None:
    """The client opens no more than it keeps, so none is discarded with a warning; every request gets a response."""
    lock, under_way, most = threading.Lock(), 0, 0

    def counting(app: WSGIApplication, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        nonlocal under_way, most
        with lock:
            under_way += 1
            most = max(most, under_way)
        try:
            return app(environ, start_response)
        finally:
            with lock:
                under_way -= 1

    faulty.switch.fault = counting
    store = faulty.store(max_connections=2)
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(store.get, [key] * 40)) == [None] * 40
    assert most <= 2
    assert caplog.messages == []


def test_names_of_metadata_are_lower_case_whatever_the_response(faulty: FaultyStore, key: str) -> None:
    """A store or proxy that changes the case of header names does not make objects look foreign."""

    def canonicalising(
        app: WSGIApplication, environ: WSGIEnvironment, start_response: StartResponse
    ) -> Iterable[bytes]:
        def titled(status: str, headers: list[tuple[str, str]], *more: Any) -> Any:
            return start_response(status, [(name.title(), value) for name, value in headers], *more)

        return app(environ, titled)

    faulty.switch.fault = canonicalising
    store = faulty.store()
    store.put_new(key, b"body", metadata={"kafka-s3-batch": "Seven"})
    results = [store.head(key), store.get(key), store.get(key, start=1, end=2), store.get(key, start=9)]
    assert [result and result.metadata for result in results] == [{"kafka-s3-batch": "Seven"}] * 4


@pytest.mark.parametrize("ranged", [False, True])
def test_truncated_response_is_not_taken_for_the_object(faulty: FaultyStore, key: str, ranged: bool) -> None:
    """A GET that ends early is an error, never a shorter object."""
    store = faulty.store()
    store.put_new(key, b"0123456789")

    def fault(app: WSGIApplication, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        def closing(status: str, headers: list[tuple[str, str]], *more: Any) -> Any:
            return start_response(status, [*headers, ("Connection", "close")])

        return [b"".join(app(environ, closing))[:5]]  # type: ignore[arg-type]

    faulty.switch.fault = fault
    with pytest.raises(UnknownOutcomeError):
        store.get(key, start=0 if ranged else None, end=9 if ranged else None)


def test_corrupt_response_is_not_taken_for_the_object(faulty: FaultyStore, key: str) -> None:
    """If the store has a checksum, a flipped byte of a GET is detected."""
    store = faulty.store()
    store.put_new(key, b"0123456789")

    def fault(app: WSGIApplication, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        return [b"".join(app(environ, start_response)).replace(b"5", b"6")]

    faulty.switch.fault = fault
    with pytest.raises(TransientError, match="corrupted in transit"):
        store.get(key)


def test_corrupt_body_is_refused_by_the_store(faulty: FaultyStore, key: str) -> None:
    """The store verifies the checksum of a body; a repetition may succeed."""
    store = faulty.store()

    def fault(app: WSGIApplication, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        environ["wsgi.input"].getbuffer()[0] ^= 1
        return app(environ, start_response)

    upload_id = store.create_upload(key)
    faulty.switch.fault = fault
    for call in (lambda: store.put_new(key, b"body"), lambda: store.upload_part(key, upload_id, 1, b"body")):
        with pytest.raises(TransientError, match="BadDigest"):
            call()
    faulty.switch.fault = None
    assert store.head(key) is None


def test_request_that_hangs_is_unknown_and_may_be_applied_later(faulty: FaultyStore, key: str) -> None:
    """After a read timeout the write may still be applied: a delayed request, released later."""
    arrived, held, applied = threading.Event(), threading.Event(), threading.Event()

    def fault(app: WSGIApplication, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        arrived.set()
        held.wait(30)
        response = list(app(environ, start_response))
        applied.set()
        return response

    faulty.switch.fault = fault
    with pytest.raises(UnknownOutcomeError, match="ReadTimeoutError"):
        faulty.store(read_timeout=0.2).put_new(key, b"late")
    assert arrived.wait(30)
    faulty.switch.fault = None
    assert faulty.store().head(key) is None
    held.set()
    assert applied.wait(30)
    assert faulty.store().get(key).body == b"late"  # type: ignore[union-attr]


def test_bodies_are_sent_unsigned_with_their_crc32(faulty: FaultyStore, key: str) -> None:
    """Hashing bodies for the signature would need three times the CPU time; their CRC32 is sent instead."""
    seen: list[tuple[str, str]] = []

    def fault(app: WSGIApplication, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        seen.append((environ["HTTP_X_AMZ_CONTENT_SHA256"], environ.get("HTTP_X_AMZ_CHECKSUM_CRC32", "")))
        return app(environ, start_response)

    store = faulty.store()
    upload_id = store.create_upload(key)
    faulty.switch.fault = fault
    store.put_new(key, b"abc")
    store.upload_part(key, upload_id, 1, b"abc")
    assert seen == [("UNSIGNED-PAYLOAD", "NSRBwg==")] * 2


def test_refused_connection_is_transient() -> None:
    """The store may be running later, and nothing was sent."""
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{reserved.getsockname()[1]}"
        store = S3Store(make_client(S3Settings(endpoint_url=endpoint, region="us-east-1"), ANY), BUCKET)
        with pytest.raises(TransientError, match="check the endpoint") as caught:
            store.put_new("k", b"x")
    assert not isinstance(caught.value, UnknownOutcomeError)


def test_certificates_are_checked_against_the_bundle(tmp_path: Path, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """TLS works with the right bundle, by setting or by environment; the error of a wrong certificate has the cause."""
    monkeypatch.delenv("AWS_CA_BUNDLE", raising=False)
    authority = Authority(tmp_path)
    bundle = str(authority.certificate)
    with ThreadedS3Server(buckets=["over-tls"], tls=server_context(authority.server())) as server:

        def store(**settings: Any) -> S3Store:
            found = S3Settings(endpoint_url=server.endpoint, region="us-east-1", **settings)
            return S3Store(make_client(found, ANY), "over-tls")

        store(ca_bundle=bundle).put_new(key, b"secret")
        with pytest.raises(ConfigurationError, match="check the endpoint's certificate and ca_bundle"):
            store().get(key)
        monkeypatch.setenv("AWS_CA_BUNDLE", bundle)
        assert store().get(key).body == b"secret"  # type: ignore[union-attr]


def test_missing_bucket_is_named(faulty: FaultyStore, key: str) -> None:
    """Every request but HEAD, whose response has no body, distinguishes a missing bucket from a missing key."""
    store = faulty.store("no-such-bucket")
    calls: list[Callable[[], object]] = [
        lambda: store.get(key),
        lambda: store.get(key, start=1),
        lambda: store.put_new(key, b"x"),
        lambda: store.put_if_match(key, b"x", etag='"e"'),
        lambda: store.create_upload(key),
        lambda: store.upload_part(key, "u", 1, b"x"),
        lambda: store.complete_upload(key, "u", []),
        lambda: list(store.list("")),
        lambda: list(store.pending_uploads("")),
        lambda: store.upload_exists(key, "u"),
    ]
    for call in calls:
        with pytest.raises(BucketNotFoundError, match="s3://no-such-bucket/"):
            call()
    assert store.head(key) is None


def two_uploads_a_page(
    app: WSGIApplication, environ: WSGIEnvironment, start_response: StartResponse
) -> Iterable[bytes]:
    """ListMultipartUploads with S3's pages: by key, then by upload ID; a key marker alone skips the key's uploads."""
    query = dict(urllib.parse.parse_qsl(environ["QUERY_STRING"], keep_blank_values=True))
    if environ["REQUEST_METHOD"] != "GET" or "uploads" not in query:
        return app(environ, start_response)
    listed = b"".join(app(environ, lambda status, headers, *more: None)).decode()  # type: ignore[arg-type]
    uploads = [
        (re.findall("<Key>(.*?)</Key>", text)[0], re.findall("<UploadId>(.*?)</UploadId>", text)[0], text)
        for text in re.findall("<Upload>.*?</Upload>", listed, re.DOTALL)
    ]
    after = (query.get("key-marker", ""), query.get("upload-id-marker", "\U0010ffff"))
    left = sorted(upload for upload in uploads if upload[:2] > after)
    page, more = left[:2], len(left) > 2
    ends = f"<NextKeyMarker>{page[-1][0]}</NextKeyMarker><NextUploadIdMarker>{page[-1][1]}</NextUploadIdMarker>"
    body = (
        "<?xml version='1.0'?><ListMultipartUploadsResult xmlns='http://s3.amazonaws.com/doc/2006-03-01/'>"
        f"<IsTruncated>{str(more).lower()}</IsTruncated>{ends if more else ''}{''.join(text for *_, text in page)}"
        "</ListMultipartUploadsResult>"
    )
    return answering("200 OK", body.encode(), Content_Type="application/xml")(app, environ, start_response)


@pytest.mark.parametrize("names", ["abcde", "abbbbbc", "bbbb", "ab"])
def test_all_pages_of_pending_uploads_are_read(faulty: FaultyStore, key: str, names: str) -> None:
    """Also where a page ends between two uploads of one key."""
    store = faulty.store()
    begun = sorted((f"{key}/{name}", store.create_upload(f"{key}/{name}")) for name in names)
    faulty.switch.fault = two_uploads_a_page
    faulty.switch.seen.clear()
    assert [(entry.key, entry.upload_id) for entry in store.pending_uploads(f"{key}/")] == begun
    assert len(faulty.switch.seen) == -(-len(names) // 2)


def test_no_credentials_is_access_denied(monkeypatch: pytest.MonkeyPatch, faulty: FaultyStore, key: str) -> None:
    """Without any credentials the error contains how to configure them."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    settings = S3Settings(endpoint_url=faulty.server.endpoint, region="us-east-1")
    with pytest.raises(AccessDeniedError, match="credentials"):
        S3Store(make_client(settings), BUCKET).get(key)


def test_credentials_come_from_the_environment(monkeypatch: pytest.MonkeyPatch, faulty: FaultyStore, key: str) -> None:
    """Executors use boto3's own chain."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "any")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "any-secret")
    settings = S3Settings(endpoint_url=faulty.server.endpoint, region="us-east-1")
    assert S3Store(make_client(settings), BUCKET).get(key) is None


def test_credentials_are_not_shown() -> None:
    """Neither repr nor str of credentials contains them; settings have none."""
    secret = S3Credentials(access_key_id="AKIDX", secret_access_key="SECRETX", session_token="TOKENX")
    for text in (repr(secret), str(secret), f"{secret}", repr([secret])):
        assert text.strip("[]") == "S3Credentials(REDACTED)"


def test_settings_can_be_sent_between_processes() -> None:
    """Executors make their own client from the settings."""
    settings = S3Settings(endpoint_url="http://127.0.0.1:9000", region="eu-north-1", addressing_style="path")
    assert pickle.loads(pickle.dumps(settings)) == settings


@pytest.mark.parametrize(
    "wrong",
    [
        {"endpoint_url": "127.0.0.1:9000"},
        {"endpoint_url": "ftp://host"},
        {"endpoint_url": "http://"},
        {"endpoint_url": "http://user:secret-word@host"},
        {"connect_timeout": 0},
        {"read_timeout": -1},
        {"max_connections": 0},
    ],
)
def test_impossible_settings_are_refused(wrong: dict[str, Any]) -> None:
    """The error names the setting, and does not contain a password in it."""
    with pytest.raises(ConfigurationError, match=next(iter(wrong))) as caught:
        S3Settings(**wrong)
    assert "secret-word" not in str(caught.value)


def test_region_that_is_none_is_a_configuration_error() -> None:
    """A region that boto3 does not accept is an error about the setting."""
    with pytest.raises(ConfigurationError, match="cannot make an S3 client"):
        make_client(S3Settings(region="not a region"), ANY)
