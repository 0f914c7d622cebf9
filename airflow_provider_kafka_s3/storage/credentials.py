"""Credentials of the store that travel with a job, and how the session of a role goes on when it ends.

A job may take longer than the session that it began with. So with a session travels how the role is assumed: whoever
holds it (driver, executors) assumes the role again by itself, a few minutes before the end, and asks nobody until then.
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

__all__ = ["AssumedRole", "RoleSession", "S3Credentials"]

log = logging.getLogger(__name__)

_EARLY: Final = 300.0
"""Seconds before the end of a session when the next one is begun. The shortest sessions of AWS last 15 minutes."""
_PAUSE: Final = 30.0
"""Seconds until the role is asked for again after it could not be assumed."""


class AssumedRole(msgspec.Struct, frozen=True, kw_only=True):
    """How a role is assumed; its repr shows the role only.

    Attributes:
        arn: of the role.
        session_name: that the logs of AWS show.
        arguments: more arguments of the request (``ExternalId``, ``DurationSeconds``, …), a JSON object.
        token_file: with the web identity that assumes it, on every machine that does; None: ``base`` assumes it.
        base: credentials that assume it; None: boto3's own chain, wherever that happens.
        sts_endpoint: address of the service; None: AWS.
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
    """Explicit credentials, for those who cannot use the environment or a role; its repr does not show them.

    Attributes:
        access_key_id: the public half.
        secret_access_key: the secret half.
        session_token: of temporary credentials.
        expires_at: when temporary credentials end, in seconds since the epoch; None: unknown, or never.
        role: whose session they are, if it can be assumed again when they end.
    """

    access_key_id: str
    secret_access_key: str
    session_token: str | None = None
    expires_at: float | None = None
    role: AssumedRole | None = None

    def __repr__(self) -> str:
        return "S3Credentials(REDACTED)"

    __str__ = __repr__


class RoleSession:
    """The session of a role that does not end. Any number of threads may share it.

    Args:
        credentials: of a session that may still be good; their role is there.
        client: makes the client of STS: of given credentials, or of boto3's chain, at an address.
        clock: tells the time in seconds since the epoch.
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
        """Credentials that are good for a while; the role may be assumed for them.

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
        """The store says that what this thread was given last has ended: the next session begins when it asks again.

        Another thread may have begun it already, whose session is not meant.
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
                log.info("the session of %s goes on", self._role)
        if self._failure is not None and self._is_over():
            raise self._failure

    def _assume(self) -> S3Credentials:
        from botocore.exceptions import BotoCoreError, ClientError

        role = self._role
        arguments = {"RoleSessionName": role.session_name, **json.loads(role.arguments), "RoleArn": role.arn}
        said = f"the session of the role {role.arn} has ended or ends soon, and it cannot be assumed again"
        try:
            with contextlib.closing(self._client(role.base, role.sts_endpoint)) as client:
                if role.token_file is not None:
                    token = Path(role.token_file).read_text(encoding="utf-8")
                    answer = client.assume_role_with_web_identity(**arguments, WebIdentityToken=token)
                else:
                    answer = client.assume_role(**arguments)
        except ClientError as e:
            code = str(e.response.get("Error", {}).get("Code", ""))
            # Whoever assumed it first was another identity, if this is one of this machine: a retry begins there.
            if role.base is not None and code.startswith("AccessDenied"):
                raise AccessDeniedError(f"{said}: {code}; let the connection's credentials assume the role") from None
            raise TransientError(f"{said}: {code}") from None
        except (BotoCoreError, OSError) as e:
            raise TransientError(f"{said}: {type(e).__name__}: {e}") from None
        given = answer["Credentials"]
        return S3Credentials(
            access_key_id=given["AccessKeyId"],
            secret_access_key=given["SecretAccessKey"],
            session_token=given["SessionToken"],
            expires_at=given["Expiration"].timestamp(),
            role=role,
        )
