"""A schema registry in a few lines, which can be told to fail."""

from __future__ import annotations

import json
import ssl
import threading
import urllib.parse
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from werkzeug import Request, Response

from dev.wsgi_server import WsgiServer

SUBJECT_GONE = (404, {"error_code": 40401, "message": "Subject not found"})
SCHEMA_GONE = (404, {"error_code": 40403, "message": "Schema not found"})


class Registry(WsgiServer):
    """Answers by path; what it does not have is a 404 with the registry's own code.

    Attributes:
        answers: path and query -> body of JSON, or bytes.
        failures: responses that come first, one per request: status and body, and headers if there are any.
        requests: of each the path with its query, and the header that logs in.
    """

    def __init__(self, *, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(self._serve, tls=tls)
        self.answers: dict[str, Any] = {}
        self.failures: list[tuple[Any, ...]] = []
        self.requests: list[tuple[str, str | None]] = []
        self._lock = threading.Lock()

    @property
    def paths(self) -> list[str]:
        """What was requested, in order."""
        return [path for path, _ in self.requests]

    def add(self, schema_id: int, text: str, subject: str = "t-value", version: int = 1, **more: Any) -> None:
        """Have a schema, under its id and as a version of a subject."""
        body = {"schema": text, **more}
        entry = {"subject": subject, "version": version}
        quoted = urllib.parse.quote(subject, safe="")
        self.answers[f"/schemas/ids/{schema_id}"] = body
        self.answers.setdefault(f"/schemas/ids/{schema_id}/versions", []).append(entry)
        self.answers[f"/subjects/{quoted}/versions/{version}?deleted=true"] = {**body, "id": schema_id, **entry}
        self.answers[f"/subjects/{quoted}/versions/latest"] = {**body, "id": schema_id, **entry}

    def _serve(self, environ: Any, start_response: Any) -> Iterable[bytes]:
        request = Request(environ)
        path = environ["RAW_URI"]
        with self._lock:
            self.requests.append((path, request.headers.get("Authorization")))
            if self.failures:
                status, body, *headers = self.failures.pop(0)
            elif path in self.answers:
                status, body, headers = 200, self.answers[path], []
            else:
                (status, body), headers = (SUBJECT_GONE if path.startswith("/subjects/") else SCHEMA_GONE), []
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return Response(content, status, *headers, mimetype="application/json")(environ, start_response)


@pytest.fixture
def make_registry() -> Iterator[Callable[[], Registry]]:
    """Starts registries, which end with the test."""
    started = []

    def make() -> Registry:
        started.append(Registry().start())
        return started[-1]

    yield make
    for registry in started:
        registry.stop()


@pytest.fixture
def registry(make_registry: Callable[[], Registry]) -> Registry:
    """A registry without schemas."""
    return make_registry()
