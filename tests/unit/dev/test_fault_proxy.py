"""The fault proxy: the result of each fault at the client and at the server."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlsplit

import httpx
import pytest
from werkzeug import Request, Response

from dev import fault_connection
from dev.certificates import Authority
from dev.fault_proxy import FaultProxy
from dev.faults import Answer, Delay, Fault, Flip, Hang, Lose, Reset, ResetInBody, Truncate, Twice, operation_of
from dev.waiting import wait_until
from dev.wsgi_server import WsgiServer

IMPATIENT = httpx.Timeout(10, read=0.1)
ANSWER = b"<UploadId>u-1</UploadId>"


Received = list[tuple[str, str, str, bytes]]


@pytest.fixture
def received() -> Received:
    """The requests that the server received completely: method, path, Host and body."""
    return []


@pytest.fixture
def upstream(received: Received) -> Iterator[str]:
    """The server's address."""

    @Request.application
    def record(request: Request) -> Response:
        received.append((request.method, request.environ["RAW_URI"], request.host, request.get_data()))
        return Response(ANSWER)

    with WsgiServer(record) as server:
        yield server.endpoint


@pytest.fixture(params=["http", "https"])
def proxy(request: pytest.FixtureRequest, upstream: str, tmp_path: Path) -> Iterator[FaultProxy]:
    """The proxy in front of the server."""
    tls = Authority(tmp_path).server() if request.param == "https" else None
    with FaultProxy(upstream, tls=tls) as started:
        yield started


@pytest.fixture
def client(proxy: FaultProxy, tmp_path: Path) -> Iterator[httpx.Client]:
    """A client of the proxy, which keeps its connection."""
    authority = tmp_path / "ca.pem"
    verify = ssl.create_default_context(cafile=str(authority)) if authority.exists() else False
    with httpx.Client(base_url=proxy.endpoint, verify=verify, trust_env=False, timeout=10) as started:
        yield started


def put(client: httpx.Client, body: bytes = b"0123456789") -> tuple[int, bytes]:
    """Status and body of the answer to a PUT."""
    response = client.put("/bucket/folder/key?partNumber=1&uploadId=u-1", content=body)
    return response.status_code, response.content


def test_requests_pass_unchanged_over_one_connection(
    proxy: FaultProxy, client: httpx.Client, received: Received
) -> None:
    """With the client's own Host, which is signed."""
    assert [put(client), put(client, b"")] == [(200, ANSWER)] * 2
    host = urlsplit(proxy.endpoint).netloc
    path = "/bucket/folder/key?partNumber=1&uploadId=u-1"
    assert received == [("PUT", path, host, b"0123456789"), ("PUT", path, host, b"")]
    assert [(c.operation, c.key, c.upload_id, c.status, c.answered) for c in proxy.calls] == [
        ("UploadPart", "folder/key", "u-1", 200, True)
    ] * 2


@pytest.mark.parametrize(
    ("fault", "seen", "applied"),
    [
        (Answer(503, "SlowDown"), (503, b"SlowDown"), 0),
        (Answer(200, "InternalError", applied=True), (200, b"InternalError"), 1),
        (Reset(), None, 0),
        (ResetInBody(), None, 0),
        (Lose(), None, 1),
        (Lose("FIN"), None, 1),
        (Truncate(), None, 1),
        (Twice(), (200, b"u-1"), 2),
        (Delay(0.01), (200, b"u-1"), 1),
        (Flip(), (200, b"Id>"), 1),
    ],
    ids=lambda value: type(value).__name__ + getattr(value, "by", "") if not isinstance(value, tuple | int) else "",
)
def test_a_fault_hits_one_request_and_the_next_one_passes(
    proxy: FaultProxy,
    client: httpx.Client,
    received: Received,
    fault: Fault,
    seen: tuple[int, bytes] | None,
    applied: int,
) -> None:
    """The client gets the expected response, and the server the expected request."""
    rule = proxy.add(fault, operation="UploadPart", key="*/key", nth=2)

    put(client)
    if seen is None:
        with pytest.raises(httpx.TransportError):
            put(client)
    else:
        status, body = put(client)
        assert status == seen[0]
        assert seen[1] in body
        assert (body == ANSWER) == (type(fault) in (Twice, Delay))
    assert put(client) == (200, ANSWER)

    assert len(received) == 2 + applied
    assert {body for *_, body in received} == {b"0123456789"}
    assert (rule.seen, rule.struck) == (3, 1)
    assert [c.fault for c in proxy.calls] == ["", type(fault).__name__, ""]


def test_a_hang_lasts_until_the_client_times_out(proxy: FaultProxy, client: httpx.Client, received: Received) -> None:
    """The server has applied the request."""
    proxy.add(Hang(), operation="UploadPart")
    client.timeout = IMPATIENT

    with pytest.raises(httpx.ReadTimeout):
        put(client)
    wait_until(lambda: received, "the request")
    proxy.wait_until_idle()

    assert len(received) == 1


@pytest.mark.parametrize("applied", [False, True])
def test_a_held_request_continues_when_it_is_released(
    proxy: FaultProxy, client: httpx.Client, received: Received, applied: bool
) -> None:
    """Whether the server has received it before then depends on the rule."""
    held = proxy.hold("UploadPart", applied=applied)
    answers: list[tuple[int, bytes]] = []
    thread = threading.Thread(target=lambda: answers.append(put(client)))
    thread.start()

    held.wait_until_held()
    assert (len(received), answers) == (int(applied), [])
    held.release()
    thread.join(60)

    assert (len(received), answers) == (1, [(200, ANSWER)])


def test_a_late_request_arrives_after_its_client_has_given_up(
    proxy: FaultProxy, client: httpx.Client, received: Received, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network may delay it for any time."""
    delays: list[float] = []
    over = threading.Event()

    def sleep(seconds: float) -> None:
        delays.append(seconds)
        assert over.wait(60)

    monkeypatch.setattr(fault_connection, "time", SimpleNamespace(sleep=sleep))
    proxy.add(Delay(7.0, applied=False), operation="UploadPart")
    client.timeout = IMPATIENT

    with pytest.raises(httpx.ReadTimeout):
        put(client)
    wait_until(lambda: delays == [7.0], "the delay")

    assert received == []
    client.timeout = 10
    client.get("/bucket/folder/other")
    over.set()
    proxy.wait_until_idle()
    assert [method for method, *_ in received] == ["GET", "PUT"]


def test_a_held_request_outlives_its_client(proxy: FaultProxy, client: httpx.Client, received: Received) -> None:
    """A request may still be applied after its process has ended."""
    held = proxy.hold("UploadPart")
    client.timeout = IMPATIENT
    with pytest.raises(httpx.ReadTimeout):
        put(client)

    held.release()

    assert len(received) == 1


def test_a_dropped_request_never_arrives(proxy: FaultProxy, client: httpx.Client, received: Received) -> None:
    """Its client gets no response."""
    held = proxy.hold("UploadPart")
    held.drop()

    with pytest.raises(httpx.TransportError):
        put(client)

    assert received == []


@pytest.mark.parametrize(
    ("method", "target", "operation", "key"),
    [
        ("GET", "/b/some%20key", "GetObject", "some key"),
        ("HEAD", "/b/k", "HeadObject", "k"),
        ("PUT", "/b/k", "PutObject", "k"),
        ("POST", "/b/k?uploads", "CreateMultipartUpload", "k"),
        ("PUT", "/b/k?partNumber=2&uploadId=u", "UploadPart", "k"),
        ("POST", "/b/k?uploadId=u", "CompleteMultipartUpload", "k"),
        ("DELETE", "/b/k?uploadId=u", "AbortMultipartUpload", "k"),
        ("GET", "/b/k?uploadId=u&max-parts=1", "ListParts", "k"),
        ("GET", "/b?list-type=2&prefix=p%2F", "ListObjectsV2", "p/"),
        ("GET", "/b?uploads&prefix=p%2F", "ListMultipartUploads", "p/"),
        ("GET", "/b?lifecycle", "GET ?lifecycle", ""),
        ("PUT", "/b", "CreateBucket", ""),
    ],
)
def test_requests_have_their_names_in_s3(method: str, target: str, operation: str, key: str) -> None:
    """Rules use the names of S3's operations."""
    assert operation_of(method, target)[:2] == (operation, key)
