"""Reads schemas by Confluent's API, which other registries have as well.

What is not exactly an answer of a registry is no answer: a page of a proxy, a redirect, a 404 without the registry's
own code. So a registry that is down or cannot be reached never decides how a record is decoded.
"""

from __future__ import annotations

import contextlib
import http.client
import ssl
import urllib.parse
from dataclasses import dataclass
from typing import Final, TypeVar

import msgspec

from airflow_provider_kafka_s3.exceptions import (
    AccessDeniedError,
    ConfigurationError,
    KafkaS3Error,
    RecordError,
    RegistryUnavailableError,
    SchemaNotFoundError,
    ThrottledError,
    TransientError,
)
from airflow_provider_kafka_s3.messages import either
from airflow_provider_kafka_s3.registry.schemas import RegisteredSchema, SchemaReference, SchemaType
from airflow_provider_kafka_s3.registry.settings import RegistrySettings
from airflow_provider_kafka_s3.retry import Retrier
from airflow_provider_kafka_s3.structs import decode_struct
from airflow_provider_kafka_s3.version import __version__

__all__ = ["RegistryClient"]

_MAX_BYTES: Final = 16 * 1024 * 1024
"""Bytes of a response at most, and of a schema with all that it refers to."""

_MAX_REFERENCES: Final = 1_000
"""Schemas that one schema refers to, directly or by way of others, at most."""

_MAX_ID: Final = 2**31 - 1

_ABSENT: Final = frozenset({40401, 40402, 40403})
"""Codes of a registry that has no such subject, version or schema."""

_TYPES: Final[tuple[SchemaType, ...]] = ("AVRO", "JSON", "PROTOBUF")
_SHOWN: Final = 200

T = TypeVar("T")


class _Reference(msgspec.Struct, frozen=True):
    name: str
    subject: str
    version: int


class _Schema(msgspec.Struct, frozen=True):
    """A schema, as ``/schemas/ids/…`` and ``/subjects/…/versions/…`` return it."""

    text: str = msgspec.field(name="schema")
    type: str | None = msgspec.field(name="schemaType", default=None)
    references: list[_Reference] | None = None
    id: int | None = None


class _Version(msgspec.Struct, frozen=True):
    subject: str
    version: int


class _Problem(msgspec.Struct, frozen=True):
    error_code: int = 0
    message: str | None = None


@dataclass(eq=False)
class _NoAnswer(Exception):
    """One address gave no usable answer to a request.

    Attributes:
        reason: address, status and text; no secrets.
        error: class of the error that cannot be cured by another try.
        throttled: whether the registry limits the rate of requests.
        retry_after: seconds to wait before the next request.
    """

    reason: str
    error: type[KafkaS3Error] | None = None
    throttled: bool = False
    retry_after: float | None = None


class RegistryClient:
    """A client of one registry. Any number of threads may share it; it keeps no connection open.

    Every method raises a ``RegistryUnavailableError`` if no address gave a usable answer to any of the tries, and an
    ``AccessDeniedError`` if the login was refused until the last try.
    """

    def __init__(self, settings: RegistrySettings, retrier: Retrier | None = None) -> None:
        """Prepare a client; nothing is sent yet.

        Args:
            settings: of the connection.
            retrier: repeats requests; None: one with the default policy.

        Raises:
            ConfigurationError: certificates or key cannot be used.
        """
        self._settings = settings
        self._retrier = retrier or Retrier()
        https = any(url.startswith("https:") for url in settings.urls)
        self._context = settings.tls_context() if https else None
        self._headers = {
            "Accept": "application/vnd.schemaregistry.v1+json, application/json",
            "User-Agent": f"airflow-provider-kafka-s3/{__version__}",
        }
        if (authorization := settings.authorization()) is not None:
            self._headers["Authorization"] = authorization
        # Index of the address that answered last: one that is down costs its timeout only once.
        self._preferred = 0

    def schema(self, schema_id: int) -> RegisteredSchema:
        """A schema by its id, with all that it refers to and its versions.

        Raises:
            SchemaNotFoundError: the registry has no schema of this id, or one that it refers to is gone.
            RecordError: the schema has a type that is not supported.
        """
        label = f"schema {schema_id}"
        path = f"/schemas/ids/{schema_id}"
        # Any bytes may be behind the first byte of a record that no serializer wrote.
        response = self._get(path, _Schema) if 0 <= schema_id <= _MAX_ID else None
        if response is None:
            raise SchemaNotFoundError(f"{label} is not in the schema registry at {self.addresses}")
        kind = next((known for known in _TYPES if known == (response.type or "AVRO")), None)
        if kind is None:
            raise RecordError(
                f"{label} of the schema registry at {self.addresses} has the type {_shown(response.type)}: records "
                f"with it cannot be decoded; {either(_TYPES)} are supported"
            )
        versions: dict[str, int] = {}
        for entry in self._get(f"{path}/versions", list[_Version]) or ():
            versions[entry.subject] = max(entry.version, versions.get(entry.subject, 0))
        return RegisteredSchema(
            id=schema_id,
            type=kind,
            text=response.text,
            references=self._resolve(response, label),
            versions=dict(sorted(versions.items())),
        )

    def address(self, schema_id: int) -> str:  # noqa: ARG002 - every address has all of them
        """Addresses of the registry."""
        return self.addresses

    @property
    def addresses(self) -> str:
        """Addresses of the registry, for messages."""
        return ", ".join(self._settings.urls)

    def require_answer(self) -> None:
        """Send a request as for a record, with an id that no record has; the registry may have it or not."""
        self._get(f"/schemas/ids/{_MAX_ID}", _Schema)

    def latest(self, subject: str) -> RegisteredSchema | None:
        """The schema of the highest version of a subject; None if the registry has no such subject."""
        response = self._get(f"/subjects/{_quoted(subject)}/versions/latest", _Schema)
        return None if response is None or response.id is None else self.schema(response.id)

    def _resolve(self, schema: _Schema, what: str) -> tuple[SchemaReference, ...]:
        """All that a schema refers to, by the rules of Confluent's client.

        A name is resolved once, by the first reference that has it. Versions that were deleted softly count: schemas
        that refer to them are still in use.
        """
        resolved: list[SchemaReference] = []
        seen: set[str] = set()
        size = len(schema.text)
        # What is resolved already follows everything that it refers to.
        pending: list[_Reference | SchemaReference] = list(reversed(schema.references or ()))
        while pending:
            reference = pending.pop()
            if isinstance(reference, SchemaReference):
                resolved.append(reference)
                continue
            if reference.name in seen:
                continue
            seen.add(reference.name)
            path = f"/subjects/{_quoted(reference.subject)}/versions/{reference.version}?deleted=true"
            response = self._get(path, _Schema)
            if response is None:
                raise SchemaNotFoundError(
                    f"{what} cannot be used: it refers to version {reference.version} of the subject "
                    f"{_shown(reference.subject)}, which is not in the schema registry at {self.addresses}; "
                    f"register it again"
                )
            size += len(response.text)
            if len(seen) > _MAX_REFERENCES or size > _MAX_BYTES:
                raise RecordError(
                    f"{what} of the schema registry at {self.addresses} refers to more than "
                    f"{_MAX_REFERENCES:,} others, or has more than {_MAX_BYTES:,} characters with them: records with "
                    f"it cannot be decoded"
                )
            pending.append(
                SchemaReference(
                    name=reference.name, subject=reference.subject, version=reference.version, text=response.text
                )
            )
            pending.extend(reversed(response.references or ()))
        return tuple(resolved)

    def _get(self, path: str, kind: type[T]) -> T | None:
        """The answer to a request, of any of the addresses; None if the registry does not have what is requested."""
        failures: list[_NoAnswer] = []

        def attempt() -> T | None:
            failures.clear()
            count = len(self._settings.urls)
            first = self._preferred
            for index in ((first + step) % count for step in range(count)):
                try:
                    answer = self._ask(self._settings.urls[index], path, kind)
                except _NoAnswer as e:
                    failures.append(e)
                else:
                    self._preferred = index
                    return answer
            reasons = "; ".join(failure.reason for failure in failures)
            if all(failure.throttled for failure in failures):
                waits = [failure.retry_after for failure in failures if failure.retry_after is not None]
                raise ThrottledError(reasons, min(waits, default=None))
            raise RegistryUnavailableError(reasons)

        try:
            return self._retrier.call(attempt, what=f"GET {path} of the schema registry")
        except TransientError as e:
            raise _final(failures, e, self._settings.name) from None

    def _ask(self, url: str, path: str, kind: type[T]) -> T | None:
        """The answer of one address to one request.

        Raises:
            _NoAnswer: it gave none that can be used.
        """
        address = urllib.parse.urlsplit(url)
        host, timeout = address.hostname or "", self._settings.timeout
        connection: http.client.HTTPConnection
        if address.scheme == "https":
            connection = http.client.HTTPSConnection(host, address.port, timeout=timeout, context=self._context)
        else:
            connection = http.client.HTTPConnection(host, address.port, timeout=timeout)
        try:
            with contextlib.closing(connection):
                connection.request("GET", address.path.rstrip("/") + path, headers=self._headers)
                response = connection.getresponse()
                body = response.read(_MAX_BYTES + 1)
        except ssl.SSLCertVerificationError as e:
            raise _NoAnswer(
                f"the certificate of {url} is not trusted ({e.verify_message}); give the certificates of its "
                f"authority as ca",
                ConfigurationError,
            ) from None
        except (OSError, http.client.HTTPException, UnicodeError) as e:
            raise _NoAnswer(f"{url} does not answer ({type(e).__name__}: {e})") from None
        status = response.status
        if status == http.client.OK:
            answer = _decoded(body, kind)
            if answer is None:
                raise _NoAnswer(f"{url}{path} answers with something that no schema registry returns")
            return answer
        problem = _decoded(body, _Problem) or _Problem()
        if status == http.client.NOT_FOUND and problem.error_code in _ABSENT:
            return None
        raise _refusal(url, path, status, problem, response.headers.get("Retry-After"))


def _refusal(url: str, path: str, status: int, problem: _Problem, retry_after: str | None) -> _NoAnswer:
    text = f": {_shown(problem.message)}" if problem.message else ""
    reason = f"{url}{path} answers with status {status}{text}"
    if status in (http.client.UNAUTHORIZED, http.client.FORBIDDEN):
        return _NoAnswer(f"{reason}; check the credentials and the rights of the connection", AccessDeniedError)
    if status == http.client.TOO_MANY_REQUESTS:
        return _NoAnswer(reason, throttled=True, retry_after=_seconds(retry_after))
    if status == http.client.NOT_FOUND or http.client.MULTIPLE_CHOICES <= status < http.client.BAD_REQUEST:
        reason += "; check the address: some registries have the API below a path, such as /apis/ccompat/v7"
    return _NoAnswer(reason)


def _final(failures: list[_NoAnswer], last: TransientError, name: str) -> KafkaS3Error:
    """The error of a request whose tries are exhausted."""
    kind = next((failure.error for failure in failures if failure.error is not None), RegistryUnavailableError)
    of = f" of the connection {name!r} (registry_conn_id)" if name else ""
    error = kind(f"no usable answer of the schema registry{of}: {last}")
    for note in getattr(last, "__notes__", ()):
        error.add_note(note)
    if isinstance(error, TransientError):
        error.repeatable = False
    return error


def _decoded(body: bytes, kind: type[T]) -> T | None:
    """A value of JSON; None if it is none of this kind, or too long."""
    if len(body) > _MAX_BYTES:
        return None
    try:
        return decode_struct(body, kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _seconds(retry_after: str | None) -> float | None:
    """Seconds of a header; None if it is absent or a date."""
    return float(retry_after) if retry_after is not None and retry_after.strip().isdecimal() else None


def _quoted(part: str) -> str:
    return urllib.parse.quote(part, safe="")


def _shown(text: str | None) -> str:
    """Text of the registry or of a record in a message: one line of bounded length."""
    return repr((text or "")[:_SHOWN])
