"""Credentials of the store that are sent with a job, and the renewal of role sessions.

A job may take longer than the session that it began with. So the credentials contain how the role is assumed: driver
and executors assume the role again themselves, a few minutes before the session ends and not earlier.
"""

from __future__ import annotations

import contextlib
import json
import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from airflow_provider_kafka_s3.exceptions import AccessDeniedError, KafkaS3Error, TransientError

__all__ = ["AssumedRole", "RoleSession", "S3Credentials", "S3Secrets"]

log = logging.getLogger(__name__)

_EARLY: Final = 300.0
"""Seconds before the end of a session when it is renewed. The shortest sessions of AWS last 15 minutes."""
_PAUSE: Final = 30.0
"""Seconds between a failure to assume the role and the next try."""


class AssumedRole(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters to assume a role; the repr shows the ARN only.

    Attributes:
        arn: of the role.
        session_name: shown in the logs of AWS.
        arguments: further arguments of the request (``ExternalId``, ``DurationSeconds``, …), as a JSON object.
        token_file: path of the web identity token, on every machine that assumes the role; None: ``base`` assumes it.
        base: credentials that assume it; None: boto3's own chain on the machine that assumes it.
        sts_endpoint: address of STS; None: that of AWS.
    """

    arn: str
    session_name: str
    arguments: str = "{}"
    token_file: str | None = None
    base: S3Credentials | None = None
    sts_endpoint: str | None = None

    def __repr__(self) -> str:
        return f"AssumedRole({self.arn})"

    __str__ = __repr__


class S3Credentials(msgspec.Struct, frozen=True, kw_only=True):
    """Explicit credentials, where neither the environment nor an instance role has them; the repr shows none.

    Attributes:
        access_key_id: the public half.
        secret_access_key: the secret half.
        session_token: of temporary credentials.
        expires_at: when temporary credentials end, in seconds since the epoch; None: unknown, or never.
        role: to assume again when they expire; None if they are not those of a role session.
    """

    access_key_id: str
    secret_access_key: str
    session_token: str | None = None
    expires_at: float | None = None
    role: AssumedRole | None = None

    def __repr__(self) -> str:
        return "S3Credentials(REDACTED)"

    __str__ = __repr__


class S3Secrets(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Secrets of a store beside the credentials; the repr shows none.

    Attributes:
        customer_key: key of objects that are encrypted with one of their owner (SSE-C): 32 bytes, as base64.
        earlier_customer_keys: to read objects that were encrypted with them.
        proxy_user: login at the proxy.
        proxy_password: of this user.
    """

    customer_key: str | None = None
    earlier_customer_keys: tuple[str, ...] = ()
    proxy_user: str | None = None
    proxy_password: str | None = None

    def __repr__(self) -> str:
        return "S3Secrets(REDACTED)"

    __str__ = __repr__


class RoleSession:
    """A role session that is renewed automatically. Any number of threads may share it.

    Args:
        credentials: of a session that may be valid or expired; they have a role.
        client: (base credentials, endpoint) -> client of STS; None: boto3's own chain, and the endpoint of AWS.
        clock: the current time in seconds since the epoch.
    """

    def __init__(
        self,
        credentials: S3Credentials,
        client: Callable[[S3Credentials | None, str | None], Any],
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        assert credentials.role is not None
        self._role = credentials.role
        self._current = credentials
        self._client = client
        self._clock = clock
        self._lock = threading.Lock()
        self._given = threading.local()
        self._ended = False
        self._not_before = 0.0
        self._failure: KafkaS3Error | None = None

    def current(self) -> S3Credentials:
        """Valid credentials; the role is assumed again if they expire soon.

        Raises:
            AccessDeniedError: the session has ended, and the role is refused to the credentials that assumed it.
            TransientError: the session has ended, and the role could not be assumed again.
        """
        current = self._current
        if self._is_due():
            with self._lock:
                if self._is_due():
                    self._renew()
                current = self._current
        self._given.last = current
        return current

    def end(self) -> None:
        """Mark the credentials that this thread got last as expired, so that :meth:`current` renews the session.

        If another thread has renewed the session since, nothing happens.
        """
        with self._lock:
            if getattr(self._given, "last", None) is self._current:
                self._ended = True

    def _is_due(self) -> bool:
        expires_at = self._current.expires_at
        return self._ended or (expires_at is not None and self._clock() > expires_at - _EARLY)

    def _is_over(self) -> bool:
        expires_at = self._current.expires_at
        return self._ended or (expires_at is not None and self._clock() >= expires_at)

    def _renew(self) -> None:
        if self._clock() >= self._not_before:
            try:
                self._current = self._assume()
            except KafkaS3Error as e:
                self._failure = e
                self._not_before = self._clock() + _PAUSE
                log.warning("%s", e)
            else:
                self._ended, self._failure = False, None
                log.info("the session of %s was renewed", self._role)
        if self._failure is not None and self._is_over():
            raise self._failure

    def _assume(self) -> S3Credentials:
        from botocore.exceptions import BotoCoreError, ClientError

        role = self._role
        arguments = {"RoleSessionName": role.session_name, **json.loads(role.arguments), "RoleArn": role.arn}
        message = f"the session of the role {role.arn} has ended or ends soon, and the role cannot be assumed again"
        try:
            with contextlib.closing(self._client(role.base, role.sts_endpoint)) as client:
                if role.token_file is not None:
                    token = Path(role.token_file).read_text(encoding="utf-8")
                    response = client.assume_role_with_web_identity(**arguments, WebIdentityToken=token)
                else:
                    response = client.assume_role(**arguments)
        except ClientError as e:
            code = str(e.response.get("Error", {}).get("Code", ""))
            # Without base credentials this machine's identity may differ from the one that assumed the role first: a
            # retry of the task begins with that one.
            if role.base is not None and code.startswith("AccessDenied"):
                raise AccessDeniedError(
                    f"{message}: {code}; allow the connection's credentials to assume the role"
                ) from None
            raise TransientError(f"{message}: {code}") from None
        except (BotoCoreError, OSError) as e:
            raise TransientError(f"{message}: {type(e).__name__}: {e}") from None
        issued = response["Credentials"]
        return S3Credentials(
            access_key_id=issued["AccessKeyId"],
            secret_access_key=issued["SecretAccessKey"],
            session_token=issued["SessionToken"],
            expires_at=issued["Expiration"].timestamp(),
            role=role,
        )
