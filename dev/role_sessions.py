"""Sessions of a role for an S3 server: an STS that issues them, and a check that refuses all other credentials.

moto accepts any credentials and never ends a session. So tests of expired sessions use this middleware for
:class:`dev.s3_server.ThreadedS3Server`. It also answers ``AssumeRole`` and ``AssumeRoleWithWebIdentity`` at its root.
"""

from __future__ import annotations

import datetime as dt
import re
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from werkzeug import Request, Response

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

__all__ = ["RoleSessions"]

_ANSWER: Final = """<{action}Response xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><{action}Result>
<Credentials><AccessKeyId>{key}</AccessKeyId><SecretAccessKey>secret-of-{key}</SecretAccessKey>
<SessionToken>{token}</SessionToken><Expiration>{end}</Expiration></Credentials>
<AssumedRoleUser><AssumedRoleId>A:s</AssumedRoleId><Arn>{arn}</Arn></AssumedRoleUser>
</{action}Result><ResponseMetadata><RequestId>1</RequestId></ResponseMetadata></{action}Response>"""
_ERROR: Final = "<Error><Code>{code}</Code><Message>{message}</Message></Error>"
_STS_ERROR: Final = (
    "<ErrorResponse><Error><Type>Sender</Type><Code>{code}</Code><Message>{message}</Message></Error></ErrorResponse>"
)
_ACCESS_KEY: Final = re.compile(r"Credential=([^/,]+)/")


class RoleSessions:
    """Admits requests with a valid session to an S3 server.

    Args:
        application: the server.
        life: duration of a session in seconds.
        trusted: access keys that may assume a role; None: all.

    Attributes:
        given: granted requests for sessions, as forms.
        used: access keys of admitted requests, and the number of their requests.
        turned_away: number of requests with an expired session.
    """

    def __init__(
        self, application: WSGIApplication, *, life: float = 3_600, trusted: Iterable[str] | None = None
    ) -> None:
        self.given: list[dict[str, str]] = []
        self.used: dict[str, int] = {}
        self.turned_away = 0
        self.life = life
        self.trusted = None if trusted is None else set(trusted)
        self._application = application
        self._lock = threading.Lock()
        self._alive: dict[str, str] = {}
        self._ended: set[str] = set()
        self._end_after: tuple[str, str] | None = None

    def end_all(self) -> None:
        """End all sessions now, before their time."""
        with self._lock:
            self._ended |= self._alive.keys()
            self._alive.clear()

    def end_all_after(self, method: str, part: str) -> None:
        """End all sessions after the response to the next request with this method and this text in its path."""
        self._end_after = (method, part)

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Serve a request."""
        request = Request(environ)
        found = _ACCESS_KEY.search(request.headers.get("Authorization", ""))
        access_key = found[1] if found else ""
        if request.method == "POST" and request.path == "/":
            return self._assume(request, access_key)(environ, start_response)
        with self._lock:
            let_in = self._alive.get(access_key) == request.headers.get("X-Amz-Security-Token", "")
            if let_in:
                self.used[access_key] = self.used.get(access_key, 0) + 1
            self.turned_away += not let_in and access_key in self._ended
        if let_in:
            try:
                return self._application(environ, start_response)
            finally:
                if self._end_after and self._end_after[0] == request.method and self._end_after[1] in request.path:
                    self._end_after = None
                    self.end_all()
        if access_key in self._ended:
            return _xml(400, _ERROR, code="ExpiredToken", message="It has expired.")(environ, start_response)
        return _xml(403, _ERROR, code="InvalidAccessKeyId", message="Not known.")(environ, start_response)

    def _assume(self, request: Request, access_key: str) -> Response:
        form = request.form.to_dict()
        if "WebIdentityToken" not in form and self.trusted is not None and access_key not in self.trusted:
            return _xml(403, _STS_ERROR, code="AccessDenied", message="Not trusted.")
        with self._lock:
            self.given.append(form)
            key = f"ASIASESSION{len(self.given):05d}"
            self._alive[key] = f"token-of-{key}"
        end = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=self.life)
        return _xml(
            200,
            _ANSWER,
            action=form["Action"],
            key=key,
            token=f"token-of-{key}",
            end=end.isoformat().replace("+00:00", "Z"),
            arn=form["RoleArn"],
        )


def _xml(status: int, template: str, **values: str) -> Response:
    return Response(template.format(**values), status, mimetype="application/xml")
