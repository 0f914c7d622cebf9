"""Results of operations on single objects are certain, whatever the network does: all outcomes of the protocol."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from airflow_provider_kafka_s3.exceptions import (
    AccessDeniedError,
    ConditionalConflict,
    PreconditionFailed,
    ThrottledError,
    TransientError,
    UnknownOutcomeError,
    UploadGone,
)
from airflow_provider_kafka_s3.retry import Retrier
from airflow_provider_kafka_s3.storage.durable import CompleteResult, DurableStore
from airflow_provider_kafka_s3.storage.memory import MemoryStore
from airflow_provider_kafka_s3.storage.port import ObjectInfo

Fault = Callable[[Callable[[], Any]], Any]


def ok(request: Callable[[], Any]) -> Any:
    """Respond normally."""
    return request()


def lost_request(request: Callable[[], Any]) -> Any:
    """Fail before the store applies anything."""
    raise UnknownOutcomeError("connection reset")


def lost_response(request: Callable[[], Any]) -> Any:
    """Apply the request, then lose the response."""
    request()
    raise UnknownOutcomeError("read timeout")


def repeated_by_network(request: Callable[[], Any]) -> Any:
    """Apply the request, lose the response, send the request again: the second response is about the first write."""
    request()
    return request()


def throttled(request: Callable[[], Any]) -> Any:
    """Refuse by 503."""
    raise ThrottledError("503 SlowDown")


def throttled_after_apply(request: Callable[[], Any]) -> Any:
    """Apply the request, and respond 503."""
    request()
    raise ThrottledError("503 SlowDown")


def conflict(request: Callable[[], Any]) -> Any:
    """Respond 409."""
    raise ConditionalConflict("409 ConditionalRequestConflict")


def denied(request: Callable[[], Any]) -> Any:
    """Respond 403."""
    raise AccessDeniedError("403")


def expired_token(request: Callable[[], Any]) -> Any:
    """Refuse because the credentials have expired."""
    raise TransientError("ExpiredToken")


class ScriptedStore:
    """A memory store whose n-th call of an operation has the n-th fault of its script."""

    def __init__(self, **scripts: list[Fault]) -> None:
        self.inner = MemoryStore()
        self._scripts: dict[str, Iterator[Fault]] = {name: iter(faults) for name, faults in scripts.items()}
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.inner, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            if name == "url":
                return method(*args, **kwargs)
            self.calls.append(name)
            fault = next(self._scripts.get(name, iter(())), ok)
            return fault(lambda: method(*args, **kwargs))

        return call


def durable(store: Any) -> DurableStore:
    """The store behind the default policy, without waiting."""
    return DurableStore(store, Retrier(sleep=lambda _: None, monotonic=lambda: 0.0))


FAULTS = [ok, lost_request, lost_response, repeated_by_network, throttled, throttled_after_apply, conflict]
FAULTS += [expired_token]


@pytest.mark.parametrize("second", FAULTS)
@pytest.mark.parametrize("first", FAULTS)
def test_create_returns_what_is_stored_after_any_two_faults(first: Fault, second: Fault) -> None:
    """The bytes are stored once and returned, whatever the faults of two requests in a row."""
    store = ScriptedStore(put_new=[first, second])
    assert durable(store).create("k", b"ours", {"m": "1"}) == b"ours"
    stored = store.inner.get("k")
    assert stored is not None
    assert (stored.body, stored.metadata) == (b"ours", {"m": "1"})


@pytest.mark.parametrize("fault", FAULTS)
def test_create_returns_the_bytes_of_the_first_writer(fault: Fault) -> None:
    """An existing object is not changed, and its bytes are returned."""
    store = ScriptedStore(put_new=[fault])
    store.inner.put_new("k", b"theirs")
    assert durable(store).create("k", b"ours") == b"theirs"
    assert durable(store).get("k").body == b"theirs"  # type: ignore[union-attr]


def test_create_sends_one_request_when_nothing_fails() -> None:
    """Without a fault nothing is read."""
    store = ScriptedStore()
    durable(store).create("k", b"ours")
    assert store.calls == ["put_new"]


def test_create_survives_a_failing_read_back() -> None:
    """If the read after a lost response fails as well, the PUT is sent again, within one budget of retries."""
    store = ScriptedStore(put_new=[lost_response], get=[lost_request])
    assert durable(store).create("k", b"ours") == b"ours"
    assert store.calls == ["put_new", "get", "put_new", "get"]


def test_create_undoes_nothing_after_the_last_try() -> None:
    """After the last try the error is raised; the only requests are PUT and GET, four times each."""
    store = ScriptedStore(put_new=[lost_request] * 9)
    with pytest.raises(UnknownOutcomeError) as caught:
        durable(store).create("k", b"ours")
    assert store.calls == ["put_new", "get"] * 4
    assert "s3://memory/k (create only), 4 tries" in caught.value.__notes__[0]


def test_create_with_a_conflict_that_never_ends_is_an_unknown_outcome() -> None:
    """409 for ever is transient, and never taken for a lost race."""
    store = ScriptedStore(put_new=[conflict] * 9)
    with pytest.raises(UnknownOutcomeError, match="yet it is absent"):
        durable(store).create("k", b"ours")


def test_create_raises_terminal_errors_at_once() -> None:
    """A missing permission is not retried."""
    store = ScriptedStore(put_new=[denied] * 9)
    with pytest.raises(AccessDeniedError):
        durable(store).create("k", b"ours")
    assert store.calls == ["put_new"]


@pytest.mark.parametrize(
    ("faults", "result", "body"),
    [
        ([ok], True, b"new"),
        ([lost_request], False, b"old"),
        ([lost_response], False, b"new"),
        ([repeated_by_network], False, b"new"),
        ([conflict], False, b"old"),
        ([throttled, throttled, ok], True, b"new"),
        ([throttled_after_apply], False, b"new"),
        ([throttled, lost_response], False, b"new"),
        ([expired_token, ok], True, b"new"),
    ],
)
def test_replace_returns_true_only_if_the_store_confirmed_the_write(
    faults: list[Fault], result: bool, body: bytes
) -> None:
    """Every uncertain result is False: the caller has to read the object, which may be its own."""
    store = ScriptedStore(put_if_match=faults)
    etag = store.inner.put_new("k", b"old")
    assert durable(store).replace("k", b"new", etag) is result
    assert durable(store).get("k").body == body  # type: ignore[union-attr]


def test_replace_of_another_version_or_a_missing_key_changes_nothing() -> None:
    """Another ETag than the object's, or a missing key, is False."""
    store = ScriptedStore()
    store.inner.put_new("k", b"old")
    assert durable(store).replace("k", b"new", '"other"') is False
    assert durable(store).replace("absent", b"new", '"other"') is False
    assert durable(store).get("absent") is None


@pytest.mark.parametrize(
    ("faults", "result", "visible"),
    [
        ([ok], CompleteResult.DONE, True),
        ([lost_request], CompleteResult.UNKNOWN, False),
        ([lost_response], CompleteResult.UNKNOWN, True),
        ([repeated_by_network], CompleteResult.GONE, True),
        ([conflict], CompleteResult.UNKNOWN, False),
        ([throttled, ok], CompleteResult.DONE, True),
        ([throttled_after_apply], CompleteResult.GONE, True),
    ],
)
def test_complete_returns_the_result_of_one_request(faults: list[Fault], result: CompleteResult, visible: bool) -> None:
    """Only throttled requests are repeated: between other tries the caller has to send a HEAD request."""
    store = ScriptedStore(complete_upload=faults)
    upload_id = store.inner.create_upload("k")
    part = store.inner.upload_part("k", upload_id, 1, b"x")
    assert durable(store).complete("k", upload_id, [part]) is result
    assert (durable(store).head("k") is not None) is visible


def test_complete_distinguishes_an_existing_key_from_refused_parts() -> None:
    """A key that exists is EXISTS, parts that were never uploaded are REFUSED; both uploads stay pending."""
    store = ScriptedStore()
    safe = durable(store)
    upload_id = safe.create_upload("k")
    part = safe.upload_part("k", upload_id, 1, b"x")
    assert safe.complete("k", upload_id, []) is CompleteResult.REFUSED
    safe.create("k", b"theirs")
    assert safe.complete("k", upload_id, [part]) is CompleteResult.EXISTS
    assert safe.upload_exists("k", upload_id)
    safe.abort_upload("k", upload_id)
    assert safe.complete("k", upload_id, [part]) is CompleteResult.GONE


def test_everything_that_is_safe_to_repeat_is_repeated() -> None:
    """Reads, parts and aborts succeed after three faults each."""
    faults = [lost_response, throttled, lost_request, expired_token]
    names = ["get", "head", "list", "create_upload", "upload_part", "abort_upload", "upload_exists", "pending_uploads"]
    store = ScriptedStore(**{name: list(faults) for name in names})
    safe = durable(store)
    store.inner.put_new("d/a", b"abc")
    assert safe.url("d/a") == "s3://memory/d/a"
    assert safe.get("d/a", start=1, end=2).body == b"b"  # type: ignore[union-attr]
    assert safe.head("d/a").size == 3  # type: ignore[union-attr]
    assert [info.key for info in safe.list("d/")] == ["d/a"]
    upload_id = safe.create_upload("d/b", {"n": "1"})
    assert upload_id in [pending.upload_id for pending in safe.pending_uploads("d/")]
    assert safe.upload_part("d/b", upload_id, 1, b"x").number == 1
    assert safe.upload_exists("d/b", upload_id)
    safe.abort_upload("d/b", upload_id)
    assert not safe.upload_exists("d/b", upload_id)


class LongListing(MemoryStore):
    """A store of 2,500 objects, one of whose pages fails now and then.

    Attributes:
        begun: keys that listings began behind.
    """

    def __init__(self, fails_at: list[int]) -> None:
        super().__init__()
        self.keys = [f"d/{n:04d}" for n in range(2_500)]
        self.begun: list[str] = []
        self._fails_at = fails_at

    def list(self, prefix: str, *, after: str = "") -> Iterator[ObjectInfo]:
        """Fail at an object, once for each time that it is named."""
        self.begun.append(after)
        for n, key in enumerate(self.keys):
            if n in self._fails_at and key > after:
                self._fails_at.remove(n)
                raise UnknownOutcomeError("connection reset")
            if key > after:
                yield ObjectInfo(key, 1, '"e"')


def test_a_long_listing_goes_on_behind_the_last_page_that_was_read() -> None:
    """It does not begin again, and no object is lost or listed twice."""
    store = LongListing(fails_at=[1_500, 1_500, 2_499])
    assert [info.key for info in durable(store).walk("d/")] == store.keys
    assert store.begun == ["", "d/0999", "d/0999", "d/1999"]
    assert [info.key for info in durable(store).walk("d/", after="d/2000")] == store.keys[2_001:]


def test_a_listing_that_is_not_read_to_its_end_takes_no_further_pages() -> None:
    """Pages are read as the iterator advances."""
    store = LongListing(fails_at=[1_000])
    assert next(iter(durable(store).walk("d/"))).key == "d/0000"
    assert store.begun == [""]


def test_a_gone_upload_is_not_retried() -> None:
    """UploadPart to a finished upload fails at once."""
    store = ScriptedStore()
    with pytest.raises(UploadGone):
        durable(store).upload_part("k", "upload-none", 1, b"x")
    assert store.calls == ["upload_part"]


def test_scripted_second_request_collides_with_the_first_write() -> None:
    """The test's own fault is right: the repeated request is refused because of the first one."""
    store = ScriptedStore(put_new=[repeated_by_network])
    with pytest.raises(PreconditionFailed):
        store.put_new("k", b"x")


def test_failing_aborts_are_no_error(caplog: pytest.LogCaptureFixture) -> None:
    """Uploads that cannot be aborted are logged and left to the lifecycle rule; the others are aborted."""
    store = ScriptedStore(abort_upload=[denied, *[lost_request] * 4])
    pairs = [(key, store.inner.create_upload(key)) for key in "abcd"]
    durable(store).abort_uploads(pairs, threads=1)
    assert [entry.key for entry in store.inner.pending_uploads("")] == ["a", "b"]
    for key, upload_id in pairs[:2]:
        assert f"upload {upload_id} of s3://memory/{key} stays pending" in caplog.text


def test_many_uploads_are_aborted_at_once() -> None:
    """Aborts overlap, up to the number of threads, and all are done when the call returns."""
    together = threading.Barrier(16, timeout=30)

    def meet(request: Callable[[], Any]) -> Any:
        together.wait()
        return request()

    store = ScriptedStore(abort_upload=[meet] * 32)
    durable(store).abort_uploads((str(n), store.inner.create_upload(str(n))) for n in range(32))
    assert list(store.inner.pending_uploads("")) == []


@pytest.mark.parametrize(("count", "threads"), [(0, 16), (1, 16), (4, 1)])
def test_one_upload_or_one_thread_is_aborted_in_the_caller_s_thread(count: int, threads: int) -> None:
    """No thread is started."""
    senders = set()

    def note(request: Callable[[], Any]) -> Any:
        senders.add(threading.current_thread())
        return request()

    store = ScriptedStore(abort_upload=[note] * count)
    pairs = [(str(n), store.inner.create_upload(str(n))) for n in range(count)]
    durable(store).abort_uploads(pairs, threads=threads)
    assert senders == ({threading.current_thread()} if count else set())
    assert list(store.inner.pending_uploads("")) == []


# -- create_object ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("second", FAULTS)
@pytest.mark.parametrize("first", FAULTS)
def test_an_object_is_created_once_after_any_two_faults(first: Fault, second: Fault) -> None:
    """It exists with its metadata when the call returns, and it is never read, however large it is."""
    store = ScriptedStore(put_new=[first, second])
    durable(store).create_object("k", b"ours", {"m": "1"})
    stored = store.inner.get("k")
    assert stored is not None
    assert (stored.body, stored.metadata) == (b"ours", {"m": "1"})
    assert "get" not in store.calls


@pytest.mark.parametrize("fault", FAULTS)
def test_an_object_that_exists_keeps_its_bytes(fault: Fault) -> None:
    """The caller has to send a HEAD request to find out whose object it is."""
    store = ScriptedStore(put_new=[fault])
    store.inner.put_new("k", b"theirs")
    durable(store).create_object("k", b"ours", {})
    assert durable(store).get("k").body == b"theirs"  # type: ignore[union-attr]
    assert "get" not in store.calls[:-1]


@pytest.mark.parametrize("fault", [lost_request, conflict, expired_token])
def test_an_object_that_stays_absent_is_an_error(fault: Fault) -> None:
    """The caller must not treat it as stored."""
    store = ScriptedStore(put_new=[fault] * 100)
    with pytest.raises(TransientError):
        durable(store).create_object("k", b"ours", {})
    assert store.inner.head("k") is None
