"""Encryption with customer keys (SSE-C) for moto, which ignores them: who reads an object needs the key of its writer.

Nothing is encrypted. Requests are refused as AWS refuses them.
"""

from __future__ import annotations

import base64
import hashlib
import re
import urllib.parse
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment

__all__ = ["CustomerKeys"]

_HEADER: Final = "HTTP_X_AMZ_SERVER_SIDE_ENCRYPTION_CUSTOMER_"
_UPLOAD_ID: Final = re.compile(rb"<UploadId>(.*?)</UploadId>")

Refusal = tuple[int, str, str]


class CustomerKeys:
    """The digests of the keys of objects and uploads."""

    def __init__(self) -> None:
        """No object has a key yet."""
        self._objects: dict[str, str] = {}
        self._uploads: dict[str, str] = {}

    def refusal(self, environ: WSGIEnvironment) -> Refusal | None:
        """The response to a request without the right key; None: it may be applied."""
        given = environ.get(f"{_HEADER}KEY_MD5", "")
        if wrong := _wrong(environ, given):
            return 400, "InvalidArgument", wrong
        query = _query(environ)
        method, upload_id = environ["REQUEST_METHOD"], query.get("uploadId")
        if upload_id is not None and method in ("GET", "POST", "PUT"):
            if given == self._uploads.get(upload_id, ""):
                return None
            return 400, "InvalidRequest", "The multipart upload initiate requested encryption with other parameters."
        if method not in ("GET", "HEAD") or query.keys() - {"partNumber", "versionId"}:
            return None
        stored = self._objects.get(environ["PATH_INFO"])
        if given and not stored:
            return 400, "InvalidRequest", "The encryption parameters are not applicable to this object."
        if stored and not given:
            return 400, "InvalidRequest", "The object was stored using a form of Server Side Encryption."
        return (403, "AccessDenied", "Access Denied") if given != (stored or "") else None

    def applied(self, environ: WSGIEnvironment, body: bytes) -> None:
        """Remember the key of a write that was applied, whose response has this body."""
        given = environ.get(f"{_HEADER}KEY_MD5", "")
        query = _query(environ)
        match environ["REQUEST_METHOD"]:
            case "POST" if "uploads" in query:
                self._uploads[_UPLOAD_ID.findall(body)[0].decode()] = given
            case "POST" if "uploadId" in query:
                self._objects[environ["PATH_INFO"]] = given
            case "PUT" if not query:
                self._objects[environ["PATH_INFO"]] = given


def _query(environ: WSGIEnvironment) -> dict[str, str]:
    return dict(urllib.parse.parse_qsl(environ["QUERY_STRING"], keep_blank_values=True))


def _wrong(environ: WSGIEnvironment, digest: str) -> str:
    names = [name for name in environ if name.startswith(_HEADER)]
    if not names:
        return ""
    if len(names) != 3 or environ[f"{_HEADER}ALGORITHM"] != "AES256":
        return "Requests specifying Server Side Encryption with Customer provided keys must provide all three headers."
    key = base64.b64decode(environ[f"{_HEADER}KEY"])
    if len(key) != 32:
        return "The secret key was invalid for the specified algorithm."
    if hashlib.md5(key, usedforsecurity=False).digest() != base64.b64decode(digest):
        return "The calculated MD5 hash of the key did not match the hash that was provided."
    return ""
