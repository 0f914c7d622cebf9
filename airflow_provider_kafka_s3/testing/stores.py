"""An object store with scripted faults: the failures of a network, a proxy or a process that ends.

::

    store = FaultyStore(MemoryStore())
    store.inject(Fault.LOST_RESPONSE, operation="put_new", key="*.manifest.json")
    store.inject(Fault.THROTTLED, operation="complete_upload", nth=2, times=3)
"""

from __future__ import annotations

import enum
import fnmatch
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from airflow_provider_kafka_s3.exceptions import (
    ConditionalConflict,
    KafkaS3Error,
    ThrottledError,
    UnknownOutcomeError,
)
from airflow_provider_kafka_s3.storage.port import ObjectInfo, ObjectStore, Part, PendingUpload, StoredObject

__all__ = ["CONDITIONAL", "WRITES", "Fault", "FaultyStore", "Request", "SimulatedCrash"]

T = TypeVar("T")

WRITES: Final = frozenset(
    {
        *("put_new", "put_if_match", "put_tags", "delete_objects"),
        *("create_upload", "upload_part", "complete_upload", "abort_upload"),
    }
)
"""Operations that change the bucket or its uploads."""
CONDITIONAL: Final = frozenset({"put_new", "put_if_match", "complete_upload"})
"""Operations that a store may answer with 409."""


class SimulatedCrash(BaseException):
    """The process ends here. Not an ``Exception``: no code may continue after it."""


class Fault(enum.Enum):
    """The outcome of one request."""

    THROTTLED = "503, nothing applied"
    TOO_MANY_REQUESTS = "429, nothing applied"
    THROTTLED_AFTER_APPLY = "503, although it was applied"
    SERVER_ERROR = "500, nothing applied"
    TIMEOUT = "no answer, nothing applied"
    LOST_RESPONSE = "applied, no answer"
    SENT_TWICE = "applied, answer lost, sent again by the network: the second answer arrives"
    LATE = "no answer; applied when apply_late() is called, if still possible"
    CONFLICT = "409 to a conditional request, nothing applied"
    HOLD = "waits until release() is called, then normal"
    CRASH_BEFORE = "the process ends before it is sent"
    CRASH_AFTER = "applied, the process ends before the answer arrives"


@dataclass(frozen=True)
class Request:
    """One request to the store.

    Attributes:
        number: 1 for the first request of the store.
        operation: name of the port's method.
        key: the key, or the prefix of a listing.
    """

    number: int
    operation: str
    key: str

    @property
    def writes(self) -> bool:
        """Whether it may change the bucket or its uploads."""
        return self.operation in WRITES


@dataclass
class _Script:
    fault: Fault
    operation: str | None
    key: str
    skip: int
    left: int

    def matches(self, request: Request) -> bool:
        if self.left == 0 or (self.operation or request.operation) != request.operation:
            return False
        if not fnmatch.fnmatchcase(request.key, self.key):
            return False
        if self.skip:
            self.skip -= 1
            return False
        self.left -= 1
        return True


class FaultyStore:
    """Any :class:`~airflow_provider_kafka_s3.storage.port.ObjectStore`, with faults between it and its caller.

    Attributes:
        requests: every request so far, in order, including those with a fault.
    """

    def __init__(
        self,
        store: ObjectStore,
        *,
        choose: Callable[[Request], Fault | None] = lambda request: None,
        late: list[Callable[[], object]] | None = None,
    ) -> None:
        """Wrap a store. Without a script it behaves as the store does.

        Args:
            store: the wrapped store.
            choose: returns the fault of each request that matches no script of :meth:`inject`. May also switch to
                another actor, or raise.
            late: list for the requests to be applied late; stores with the same list share them.
        """
        self.store = store
        self.requests: list[Request] = []
        self._choose = choose
        self._late = [] if late is None else late
        self._scripts: list[_Script] = []
        self._released = threading.Event()
        self._held = threading.Semaphore(0)

    # -- the script ---------------------------------------------------------------------------------------------------

    def inject(
        self, fault: Fault, *, operation: str | None = None, key: str = "*", nth: int = 1, times: int = 1
    ) -> None:
        """Add a fault to matching requests.

        Args:
            fault: the fault.
            operation: name of a port method, such as ``put_new``; None: any.
            key: shell pattern of the keys; ``*`` also matches ``/``.
            nth: first request with the fault, counted from 1 among those that match from now on.
            times: number of consecutive requests with the fault.
        """
        self._scripts.append(_Script(fault, operation, key, nth - 1, times))

    def apply_late(self) -> int:
        """Apply all late requests now, in the order they were sent; returns the number that the store accepted."""
        accepted = 0
        while self._late:
            try:
                self._late.pop(0)()
            except KafkaS3Error:
                continue
            accepted += 1
        return accepted

    def wait_until_held(self, requests: int = 1, *, timeout: float = 30.0) -> None:
        """Wait until this number of requests is held.

        Raises:
            TimeoutError: after ``timeout`` seconds.
        """
        for _ in range(requests):
            if not self._held.acquire(timeout=timeout):
                raise TimeoutError(f"no request was held within {timeout} s")

    def release(self) -> None:
        """Continue held requests; later ones are not held."""
        self._released.set()

    def writes(self) -> list[Request]:
        """The requests that may have changed the bucket or its uploads."""
        return [r for r in self.requests if r.writes]

    # -- the port -----------------------------------------------------------------------------------------------------

    def url(self, key: str) -> str:
        """See the port."""
        return self.store.url(key)

    def get(self, key: str, *, start: int | None = None, end: int | None = None) -> StoredObject | None:
        """See the port."""
        return self._send("get", key, lambda: self.store.get(key, start=start, end=end))

    def head(self, key: str) -> ObjectInfo | None:
        """See the port."""
        return self._send("head", key, lambda: self.store.head(key))

    def list(self, prefix: str, *, after: str = "") -> Iterator[ObjectInfo]:
        """See the port."""
        return self._send("list", prefix, lambda: self.store.list(prefix, after=after))

    def put_new(
        self,
        key: str,
        body: bytes,
        *,
        metadata: Mapping[str, str] | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> str:
        """See the port."""
        return self._send("put_new", key, lambda: self.store.put_new(key, body, metadata=metadata, tags=tags))

    def put_if_match(self, key: str, body: bytes, *, etag: str) -> str:
        """See the port."""
        return self._send("put_if_match", key, lambda: self.store.put_if_match(key, body, etag=etag))

    def put_tags(self, key: str, tags: Mapping[str, str]) -> bool:
        """See the port."""
        return self._send("put_tags", key, lambda: self.store.put_tags(key, tags))

    def create_upload(
        self, key: str, *, metadata: Mapping[str, str] | None = None, tags: Mapping[str, str] | None = None
    ) -> str:
        """See the port."""
        return self._send("create_upload", key, lambda: self.store.create_upload(key, metadata=metadata, tags=tags))

    def upload_part(self, key: str, upload_id: str, number: int, body: bytes | bytearray | memoryview) -> Part:
        """See the port."""
        # A late request is applied when the caller may have reused its buffer.
        data = bytes(body)
        return self._send("upload_part", key, lambda: self.store.upload_part(key, upload_id, number, data))

    def complete_upload(self, key: str, upload_id: str, parts: Sequence[Part]) -> None:
        """See the port."""
        self._send("complete_upload", key, lambda: self.store.complete_upload(key, upload_id, parts))

    def abort_upload(self, key: str, upload_id: str) -> None:
        """See the port."""
        self._send("abort_upload", key, lambda: self.store.abort_upload(key, upload_id))

    def upload_exists(self, key: str, upload_id: str) -> bool:
        """See the port."""
        return self._send("upload_exists", key, lambda: self.store.upload_exists(key, upload_id))

    def delete_objects(self, keys: Sequence[str]) -> Mapping[str, str]:
        """See the port."""
        return self._send("delete_objects", keys[0], lambda: self.store.delete_objects(keys))

    def pending_uploads(self, prefix: str) -> Iterator[PendingUpload]:
        """See the port."""
        return self._send("pending_uploads", prefix, lambda: self.store.pending_uploads(prefix))

    def _send(self, operation: str, key: str, apply: Callable[[], T]) -> T:
        request = Request(len(self.requests) + 1, operation, key)
        self.requests.append(request)
        matching = [s for s in self._scripts if s.matches(request)]
        fault = matching[0].fault if matching else self._choose(request)
        if fault is None:
            return apply()
        return self._apply_fault(fault, request, apply)

    def _apply_fault(self, fault: Fault, request: Request, apply: Callable[[], T]) -> T:
        message = f"{request.operation} {request.key} (request {request.number}): {fault.value}"
        match fault:
            case Fault.THROTTLED | Fault.TOO_MANY_REQUESTS:
                raise ThrottledError(message)
            case Fault.THROTTLED_AFTER_APPLY:
                apply()
                raise ThrottledError(message)
            case Fault.SERVER_ERROR | Fault.TIMEOUT:
                raise UnknownOutcomeError(message)
            case Fault.LOST_RESPONSE:
                # The caller sees no difference between a refusal and a success.
                try:
                    apply()
                except KafkaS3Error as answer:
                    raise UnknownOutcomeError(message) from answer
                raise UnknownOutcomeError(message)
            case Fault.SENT_TWICE:
                try:
                    apply()
                except KafkaS3Error:
                    return apply()
                return apply()
            case Fault.LATE:
                if request.writes:
                    self._late.append(apply)
                raise UnknownOutcomeError(message)
            case Fault.CONFLICT:
                if request.operation in CONDITIONAL:
                    raise ConditionalConflict(message)
                return apply()
            case Fault.HOLD:
                self._held.release()
                self._released.wait()
                return apply()
            case Fault.CRASH_BEFORE:
                raise SimulatedCrash(message)
            case Fault.CRASH_AFTER:
                apply()
                raise SimulatedCrash(message)
