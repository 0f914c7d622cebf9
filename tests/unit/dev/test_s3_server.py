"""The S3 server for development refuses what S3 refuses, starts and stops as a process, and leaves nothing running."""

from __future__ import annotations

import http.client
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from urllib.parse import urlsplit

import psutil
import pytest

from dev.s3_server import ROOT, S3Server, ThreadedS3Server

SIGNED = {"Authorization": "AWS4-HMAC-SHA256 Credential=any/20260301/us-east-1/s3/aws4_request, Signature=x"}
BUCKET = "raw-http"


@pytest.fixture(scope="module")
def server() -> Iterator[ThreadedS3Server]:
    """A server in this process."""
    with ThreadedS3Server(buckets=[BUCKET]) as server:
        yield server


@pytest.fixture
def connection(server: ThreadedS3Server) -> Iterator[http.client.HTTPConnection]:
    """One connection to it."""
    address = urlsplit(server.endpoint)
    assert address.port is not None
    connection = http.client.HTTPConnection("127.0.0.1", address.port, timeout=30)
    yield connection
    connection.close()


def send(
    connection: http.client.HTTPConnection, method: str, path: str, body: bytes = b"", **headers: str
) -> tuple[int, bytes]:
    """One request; header names with underscores."""
    fields = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, f"/{BUCKET}/{path}", body, {**SIGNED, **fields})
    answer = connection.getresponse()
    return answer.status, answer.read()


def begin(connection: http.client.HTTPConnection, key: str) -> str:
    """Create an upload; returns its id."""
    status, body = send(connection, "POST", f"{key}?uploads")
    assert status == 200
    found = re.search(rb"<UploadId>(.*?)</UploadId>", body)
    assert found is not None
    return found[1].decode()


def complete(connection: http.client.HTTPConnection, key: str, upload_id: str, etag: str, **headers: str) -> int:
    """Complete an upload of one part; returns the status."""
    part = f"<Part><PartNumber>1</PartNumber><ETag>{etag}</ETag></Part>"
    body = f"<CompleteMultipartUpload>{part}</CompleteMultipartUpload>".encode()
    return send(connection, "POST", f"{key}?uploadId={upload_id}", body, **headers)[0]


def test_connection_serves_many_requests(connection: http.client.HTTPConnection) -> None:
    """HTTP/1.1 keep-alive: one socket for all requests of a connection, HEAD and errors included."""
    assert send(connection, "PUT", "keep", b"alive")[0] == 200
    used = connection.sock
    for _ in range(3):
        assert send(connection, "GET", "keep") == (200, b"alive")
        assert send(connection, "HEAD", "keep") == (200, b"")
        assert send(connection, "GET", "absent")[0] == 404
    assert connection.sock is used


@pytest.mark.parametrize("header", [{"x_amz_checksum_crc32": "AAAAAA=="}, {"Content_MD5": "AAAAAAAAAAAAAAAAAAAAAA=="}])
def test_damaged_bodies_are_not_stored(connection: http.client.HTTPConnection, header: dict[str, str]) -> None:
    """A checksum that does not fit the body is refused as AWS does."""
    status, body = send(connection, "PUT", "damaged", b"body", **header)
    assert (status, b"<Code>BadDigest</Code>" in body) == (400, True)
    assert send(connection, "GET", "damaged")[0] == 404


def test_right_checksums_are_accepted(connection: http.client.HTTPConnection) -> None:
    """CRC32 and MD5 that fit go through."""
    digests = {"Content_MD5": "kAFQmDzST7DWlj99KOF/cg==", "x_amz_checksum_crc32": "NSRBwg=="}
    assert send(connection, "PUT", "sound", b"abc", **digests)[0] == 200
    assert send(connection, "GET", "sound") == (200, b"abc")


def test_half_a_body_is_not_stored(server: ThreadedS3Server, connection: http.client.HTTPConnection) -> None:
    """When the client dies while it sends, nothing is applied."""
    with socket.create_connection(("127.0.0.1", urlsplit(server.endpoint).port)) as half:
        half.sendall(f"PUT /{BUCKET}/half HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nonly this".encode())
        half.shutdown(socket.SHUT_WR)
        assert half.recv(1) == b""
    assert send(connection, "GET", "half")[0] == 404


def test_keys_over_1024_bytes_are_refused(connection: http.client.HTTPConnection) -> None:
    """1,024 bytes are a key, 1,025 are not; counted in bytes after unescaping."""
    assert send(connection, "PUT", "%C3%BC" * 512, b"x")[0] == 200
    status, body = send(connection, "PUT", "%C3%BC" * 512 + "y", b"x")
    assert (status, b"<Code>KeyTooLongError</Code>" in body) == (400, True)


def test_aborted_uploads_are_gone(connection: http.client.HTTPConnection) -> None:
    """Parts and Complete of an aborted upload get 404 NoSuchUpload."""
    upload_id = begin(connection, "aborted")
    assert send(connection, "DELETE", f"aborted?uploadId={upload_id}")[0] == 204
    status, body = send(connection, "PUT", f"aborted?partNumber=1&uploadId={upload_id}", b"x")
    assert (status, b"<Code>NoSuchUpload</Code>" in body) == (404, True)
    assert complete(connection, "aborted", upload_id, "any") == 404


def test_complete_honours_if_match(connection: http.client.HTTPConnection) -> None:
    """Complete onto a key replaces it only if the ETag is the one named."""
    send(connection, "PUT", "replaced", b"old")
    statuses = []
    for if_match in ('"0123"', '"149603e6c03516362a8da23f624db945"'):
        upload_id = begin(connection, "replaced")
        send(connection, "PUT", f"replaced?partNumber=1&uploadId={upload_id}", b"new")
        etag = '"22af645d1859cb5ca6da0c484f1f37ea"'
        statuses.append(complete(connection, "replaced", upload_id, etag, If_Match=if_match))
    assert statuses == [412, 200]
    assert send(connection, "GET", "replaced") == (200, b"new")


def test_stopped_server_closes_its_connections() -> None:
    """After stop() neither a new nor a kept connection gets an answer."""
    server = ThreadedS3Server(buckets=["stopped-bucket"]).start()
    port = urlsplit(server.endpoint).port
    kept = http.client.HTTPConnection("127.0.0.1", port or 0, timeout=30)
    kept.request("GET", "/stopped-bucket/k", headers=SIGNED)
    kept.getresponse().read()
    server.stop()
    kept.auto_open = 0
    with pytest.raises((http.client.HTTPException, OSError)):
        send(kept, "GET", "k")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port or 0)).close()
    kept.close()


def test_a_later_server_of_the_process_begins_with_an_empty_bucket_of_the_same_name() -> None:
    """Two tests in one process may use one name for their buckets; the second finds nothing of the first."""
    statuses = []
    for _ in range(2):
        with ThreadedS3Server(buckets=["of-both"]) as server:
            connection = http.client.HTTPConnection("127.0.0.1", urlsplit(server.endpoint).port or 0, timeout=30)
            for method in ("GET", "PUT"):
                connection.request(method, "/of-both/k", headers=SIGNED)
                response = connection.getresponse()
                response.read()
                statuses.append(response.status)
            connection.close()
    assert statuses == [404, 200] * 2


def test_process_serves_and_ends_on_terminate() -> None:
    """The endpoint of S3Server responds, and its process is gone after stop()."""
    with S3Server(buckets=["of-a-process"]) as server:
        process = psutil.Process(server.pid)
        connection = http.client.HTTPConnection("127.0.0.1", urlsplit(server.endpoint).port or 0, timeout=30)
        connection.request("HEAD", "/of-a-process", headers=SIGNED)
        assert connection.getresponse().status == 200
        connection.close()
    assert not process.is_running()


def test_process_ends_with_its_parent() -> None:
    """A killed test run leaves no server behind."""
    code = "from dev.s3_server import S3Server; print(S3Server().start().pid, flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as parent:
        assert parent.stdout is not None
        server = psutil.Process(int(parent.stdout.readline()))
        os.kill(parent.pid, signal.SIGKILL)
        server.wait(30)
    assert not server.is_running()


def test_taken_port_is_named() -> None:
    """A port in use is reported in one line with the remedy."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = subprocess.run(
            [sys.executable, "-m", "dev.s3_server", "--port", str(port)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
    assert (ended.returncode, ended.stdout.count("\n")) == (2, 1)
    assert f"port {port}" in ended.stdout


def test_server_that_does_not_start_reports_the_cause() -> None:
    """The output of the process is part of the error."""
    with pytest.raises(RuntimeError, match="InvalidBucketName"):
        S3Server(buckets=["B"]).start()
