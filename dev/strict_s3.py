"""moto's S3 with the checks of a real store: atomic requests, verified bodies and keys, correct responses.

moto checks a condition and writes afterwards, without a lock, so two writers can win one create-only PUT. It stores
corrupt bytes, accepts keys that S3 refuses, fails on an upload that was aborted, returns 2010 as the start of every
upload, and ignores customer keys. :class:`StrictS3` wraps moto's own application and corrects this.
"""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import re
import threading
import urllib.parse
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from isal import isal_zlib
from werkzeug import Response

from dev.customer_keys import CustomerKeys

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment
    from moto.s3.models import S3Backend

__all__ = ["StrictS3"]

MAX_KEY_BYTES: Final = 1_024

_LISTED = re.compile(rb"<Upload>.*?</Upload>", re.DOTALL)
_UPLOAD_ID = re.compile(rb"<UploadId>(.*?)</UploadId>")
_INITIATED = re.compile(rb"<Initiated>.*?</Initiated>")


class StrictS3:
    """moto's S3 as a WSGI application with the checks of S3, one request at a time."""

    def __init__(self) -> None:
        """Load moto; its state is one per process."""
        from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app

        self._moto: WSGIApplication = DomainDispatcherApplication(create_backend_app)
        self._lock = threading.Lock()
        self._initiated: dict[bytes, bytes] = {}
        self._keys = CustomerKeys()

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Answer one request; ``wsgi.input`` must hold the whole body."""
        with self._lock:
            refusal = self._refusal(environ)
            if refusal is None:
                answer = self._applied(environ, start_response)
                return self._with_times(answer) if environ["QUERY_STRING"].startswith("uploads") else answer
        status, code, message = refusal
        body = f'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{code}</Code><Message>{message}</Message></Error>'
        return Response(body, status, mimetype="application/xml")(environ, start_response)

    def _applied(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Let moto apply a request, and remember the customer key of a write."""
        response = Response.from_app(self._moto, environ, buffered=True)
        if response.status_code == 200:
            self._keys.applied(environ, response.get_data())
        return response(environ, start_response)

    def create_bucket(self, name: str) -> None:
        """Make a bucket without a request."""
        with self._lock:
            _backend().create_bucket(name, "us-east-1")

    def remove_bucket(self, name: str) -> None:
        """Remove a bucket and all it holds, without a request; without effect if it is gone."""
        with self._lock:
            backend = _backend()
            if name in backend.buckets:
                # moto deletes only an empty bucket, like S3.
                backend.buckets[name].keys.clear()
                backend.delete_bucket(name)

    def _with_times(self, answer: Iterable[bytes]) -> Iterable[bytes]:
        """Correct the start times of uploads: moto returns 2010 for all, so a clean-up would abort all of them."""
        now = dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z").encode()

        def correct(entry: re.Match[bytes]) -> bytes:
            began = self._initiated.setdefault(_UPLOAD_ID.findall(entry[0])[0], now)
            # The text has the same length as the replaced one, so Content-Length stays correct.
            return _INITIATED.sub(rb"<Initiated>" + began + rb"</Initiated>", entry[0])

        body = b"".join(answer)
        for upload_id in _UPLOAD_ID.findall(body):
            self._initiated.setdefault(upload_id, now)
        return [_LISTED.sub(correct, body)]

    def _refusal(self, environ: WSGIEnvironment) -> tuple[int, str, str] | None:
        path = environ["PATH_INFO"].encode("latin-1")
        bucket_name, _, key = path.lstrip(b"/").partition(b"/")
        if len(key) > MAX_KEY_BYTES:
            return 400, "KeyTooLongError", "Your key is too long"
        if refusal := self._keys.refusal(environ):
            return refusal
        if environ["REQUEST_METHOD"] not in ("PUT", "POST"):
            return None
        if not _digests_match(environ):
            return 400, "BadDigest", "The checksum you specified did not match what we received."
        query = urllib.parse.parse_qs(environ["QUERY_STRING"])
        if not key or "uploadId" not in query:
            return None
        return self._upload_refusal(environ, bucket_name.decode(), key.decode(), query["uploadId"][0])

    @staticmethod
    def _upload_refusal(
        environ: WSGIEnvironment, bucket_name: str, key: str, upload_id: str
    ) -> tuple[int, str, str] | None:
        from moto.s3.models import s3_backends

        if bucket_name not in s3_backends.bucket_accounts:
            return None
        partition, account = s3_backends.bucket_accounts[bucket_name]
        bucket = s3_backends[account][partition].buckets[bucket_name]
        existing = bucket.keys.get(key)
        completes = environ["REQUEST_METHOD"] == "POST"
        repeats = completes and existing is not None and existing.multipart and existing.multipart.id == upload_id
        if upload_id not in bucket.multiparts and not repeats:
            return 404, "NoSuchUpload", "The specified multipart upload does not exist."
        expected = environ.get("HTTP_IF_MATCH", "").strip('"')
        if completes and expected:
            if existing is None:
                return 404, "NoSuchKey", "The specified key does not exist."
            if existing.etag.strip('"') != expected:
                return 412, "PreconditionFailed", "The If-Match condition did not hold."
        return None


def _backend() -> S3Backend:
    """The S3 of moto that all servers of this process share."""
    from moto.core.models import DEFAULT_ACCOUNT_ID
    from moto.s3.models import s3_backends

    return s3_backends[DEFAULT_ACCOUNT_ID]["aws"]


def _digests_match(environ: WSGIEnvironment) -> bool:
    crc32, md5 = environ.get("HTTP_X_AMZ_CHECKSUM_CRC32"), environ.get("HTTP_CONTENT_MD5")
    if environ.get("HTTP_X_AMZ_CONTENT_SHA256", "").startswith("STREAMING-"):
        return True  # The body is framed in chunks; moto unpacks it.
    if environ["REQUEST_METHOD"] == "POST":
        crc32 = None  # On Complete the header is about the whole object.
    body: bytes = environ["wsgi.input"].getbuffer()
    if crc32 is not None and base64.b64decode(crc32) != isal_zlib.crc32(body).to_bytes(4, "big"):
        return False
    return md5 is None or base64.b64decode(md5) == hashlib.md5(body, usedforsecurity=False).digest()
