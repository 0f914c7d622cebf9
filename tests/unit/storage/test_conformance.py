"""Requirements of the commit protocol for a store, the same tests for every store."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from airflow_provider_kafka_s3.exceptions import ConfigurationError, PreconditionFailed, UploadGone, UploadRefused
from airflow_provider_kafka_s3.storage.port import ObjectStore, Part

PART = 5 * 1024 * 1024
"""The smallest part that is not the last."""


def upload(store: ObjectStore, key: str, *bodies: bytes, metadata: dict[str, str] | None = None) -> str:
    """Create, upload and complete; returns the upload ID."""
    upload_id = store.create_upload(key, metadata=metadata)
    store.complete_upload(
        key, upload_id, [store.upload_part(key, upload_id, n, body) for n, body in enumerate(bodies, 1)]
    )
    return upload_id


def body_of(store: ObjectStore, key: str) -> bytes:
    """The bytes at a key that must exist."""
    stored = store.get(key)
    assert stored is not None
    return stored.body


def together(count: int, action: Callable[[int], bool]) -> list[bool]:
    """Run an action in threads that begin at the same time."""
    barrier = threading.Barrier(count)

    def begin(n: int) -> bool:
        barrier.wait()
        return action(n)

    with ThreadPoolExecutor(count) as threads:
        return list(threads.map(begin, range(count)))


def test_missing_key_is_none(store: ObjectStore, prefix: str) -> None:
    """A key that does not exist is a result, not an error."""
    assert store.get(prefix + "absent") is None
    assert store.head(prefix + "absent") is None
    assert store.get(prefix + "absent", start=1, end=2) is None
    assert store.get(prefix + "absent", start=2, end=2) is None


def test_put_is_read_back(store: ObjectStore, prefix: str) -> None:
    """Body, size, ETag and metadata are the same in PUT, GET and HEAD; the ETag has quotes, names are lower-case.

    HEAD also returns the time of the write, in whole seconds or better.
    """
    key, before = prefix + "k", time.time()
    etag = store.put_new(key, b"body", metadata={"Kafka-S3-Batch": "7", "x": "a b"})
    got, seen = store.get(key), store.head(key)
    assert got is not None
    assert seen is not None
    assert (got.key, got.body, got.etag) == (key, b"body", etag)
    assert (seen.key, seen.size, seen.etag) == (key, 4, etag)
    assert dict(got.metadata) == dict(seen.metadata) == {"kafka-s3-batch": "7", "x": "a b"}
    assert seen.modified is not None
    assert before - 2 < seen.modified < time.time() + 2
    assert etag[0] == etag[-1] == '"'


def test_create_only_put_refuses_an_existing_key(store: ObjectStore, prefix: str) -> None:
    """The second create-only PUT fails, even with equal bytes, and changes nothing."""
    store.put_new(prefix + "k", b"first")
    for body in (b"second", b"first"):
        with pytest.raises(PreconditionFailed):
            store.put_new(prefix + "k", body)
    assert body_of(store, prefix + "k") == b"first"


def test_create_only_put_has_one_winner_among_threads(store: ObjectStore, prefix: str) -> None:
    """Of eight threads exactly one creates the key, and its bytes are there; twenty rounds."""
    for n in range(20):
        key = f"{prefix}{n}"

        def create(thread: int, key: str = key) -> bool:
            try:
                store.put_new(key, str(thread).encode())
            except PreconditionFailed:
                return False
            return True

        won = together(8, create)
        assert won.count(True) == 1
        assert body_of(store, key) == str(won.index(True)).encode()


def test_put_if_match_replaces_only_the_version_that_was_read(store: ObjectStore, prefix: str) -> None:
    """Another ETag than the object's, or a missing key, fails and changes nothing."""
    key = prefix + "k"
    first = store.put_new(key, b"1")
    second = store.put_if_match(key, b"2", etag=first)
    assert second != first
    with pytest.raises(PreconditionFailed):
        store.put_if_match(key, b"3", etag=first)
    with pytest.raises(PreconditionFailed):
        store.put_if_match(prefix + "absent", b"3", etag=first)
    assert body_of(store, key) == b"2"
    assert store.head(prefix + "absent") is None


def test_compare_and_swap_loses_no_increment(store: ObjectStore, prefix: str) -> None:
    """Five threads that each add 1 ten times make 50."""
    key = prefix + "counter"
    store.put_new(key, b"0")

    def add_ten(_: int) -> bool:
        done = 0
        while done < 10:
            stored = store.get(key)
            assert stored is not None
            try:
                store.put_if_match(key, str(int(stored.body) + 1).encode(), etag=stored.etag)
                done += 1
            except PreconditionFailed:
                continue
        return True

    assert all(together(5, add_ten))
    assert body_of(store, key) == b"50"


def test_upload_is_invisible_until_it_is_completed(store: ObjectStore, prefix: str) -> None:
    """Parts uploaded in any order become one object, with its metadata, only by Complete."""
    key = prefix + "k"
    upload_id = store.create_upload(key, metadata={"kafka-s3-nonce": "n"})
    last = store.upload_part(key, upload_id, 2, b"end")
    first = store.upload_part(key, upload_id, 1, bytes(PART))
    assert (first.number, last.number) == (1, 2)
    assert store.head(key) is None
    assert list(store.list(prefix)) == []
    assert store.upload_exists(key, upload_id)
    store.complete_upload(key, upload_id, [first, last])
    seen = store.head(key)
    assert seen is not None
    assert (seen.size, dict(seen.metadata)) == (PART + 3, {"kafka-s3-nonce": "n"})
    assert body_of(store, key) == bytes(PART) + b"end"
    assert not store.upload_exists(key, upload_id)


def test_part_bodies_may_be_any_bytes(store: ObjectStore, prefix: str) -> None:
    """bytes, bytearray and memoryview have the same result, checksum included."""
    key = prefix + "k"
    upload_id = store.create_upload(key)
    bodies: list[bytes | bytearray | memoryview] = [b"abc", bytearray(b"abc"), memoryview(b"xabcx")[1:4]]
    parts = [store.upload_part(key, upload_id, 1, body) for body in bodies]
    assert parts[0] == parts[1] == parts[2]
    assert parts[0].checksum == "NSRBwg=="
    store.complete_upload(key, upload_id, parts[:1])
    assert body_of(store, key) == b"abc"


def test_part_sent_again_replaces_the_first(store: ObjectStore, prefix: str) -> None:
    """A part number uploaded twice has the second body."""
    key = prefix + "k"
    upload_id = store.create_upload(key)
    store.upload_part(key, upload_id, 1, b"old")
    store.complete_upload(key, upload_id, [store.upload_part(key, upload_id, 1, b"new")])
    assert body_of(store, key) == b"new"


def test_empty_objects_exist(store: ObjectStore, prefix: str) -> None:
    """An object may be empty, by PUT and as one empty part."""
    store.put_new(prefix + "put", b"")
    upload(store, prefix + "upload", b"")
    assert body_of(store, prefix + "put") == body_of(store, prefix + "upload") == b""


def test_complete_refuses_an_existing_key(store: ObjectStore, prefix: str) -> None:
    """Complete onto an existing key fails, the object stays, and so does the upload until it is aborted."""
    key = prefix + "k"
    upload_id = store.create_upload(key)
    part = store.upload_part(key, upload_id, 1, b"mine")
    store.put_new(key, b"theirs")
    with pytest.raises(PreconditionFailed):
        store.complete_upload(key, upload_id, [part])
    assert body_of(store, key) == b"theirs"
    assert store.upload_exists(key, upload_id)
    store.abort_upload(key, upload_id)
    assert not store.upload_exists(key, upload_id)


def test_complete_onto_an_uploaded_key_is_refused(store: ObjectStore, prefix: str) -> None:
    """Two uploads of one key: the first to be completed stays."""
    key = prefix + "k"
    uploads = [store.create_upload(key) for _ in range(2)]
    parts = [[store.upload_part(key, u, 1, body)] for u, body in zip(uploads, (b"a", b"b"), strict=True)]
    store.complete_upload(key, uploads[0], parts[0])
    with pytest.raises(PreconditionFailed):
        store.complete_upload(key, uploads[1], parts[1])
    assert body_of(store, key) == b"a"


def test_complete_has_one_winner_among_threads(store: ObjectStore, prefix: str) -> None:
    """Of eight uploads of one key, completed at once, exactly one becomes the object."""
    key = prefix + "k"
    uploads = [store.create_upload(key) for _ in range(8)]
    parts = [[store.upload_part(key, u, 1, str(n).encode())] for n, u in enumerate(uploads)]

    def complete(n: int) -> bool:
        try:
            store.complete_upload(key, uploads[n], parts[n])
        except PreconditionFailed:
            return False
        return True

    won = together(8, complete)
    assert won.count(True) == 1
    assert body_of(store, key) == str(won.index(True)).encode()


def test_complete_repeated_leaves_the_object_as_it_is(store: ObjectStore, prefix: str) -> None:
    """Whatever the response to the second Complete of one upload, the object does not change."""
    key = prefix + "k"
    upload_id = store.create_upload(key)
    parts = [store.upload_part(key, upload_id, 1, b"body")]
    store.complete_upload(key, upload_id, parts)
    before = store.head(key)
    with contextlib.suppress(UploadGone, PreconditionFailed):
        store.complete_upload(key, upload_id, parts)
    assert store.head(key) == before


def test_aborted_upload_stays_gone(store: ObjectStore, prefix: str) -> None:
    """After Abort no part is accepted, nothing can be completed, and a second Abort is no error."""
    key = prefix + "k"
    upload_id = store.create_upload(key)
    part = store.upload_part(key, upload_id, 1, b"x")
    store.abort_upload(key, upload_id)
    assert not store.upload_exists(key, upload_id)
    with pytest.raises(UploadGone):
        store.upload_part(key, upload_id, 2, b"y")
    with pytest.raises(UploadGone):
        store.complete_upload(key, upload_id, [part])
    store.abort_upload(key, upload_id)
    assert store.head(key) is None


def test_parts_that_cannot_be_an_object_are_refused(store: ObjectStore, prefix: str) -> None:
    """A short part in the middle, an unknown ETag and a wrong order are refused; nothing becomes visible."""
    key = prefix + "k"
    upload_id = store.create_upload(key)
    whole, short = store.upload_part(key, upload_id, 1, bytes(PART)), store.upload_part(key, upload_id, 2, b"short")
    tail = store.upload_part(key, upload_id, 3, b"tail")
    unknown = Part(2, '"00000000000000000000000000000000"', short.checksum)
    for wrong in ([whole, short, tail], [whole, unknown], [short, whole]):
        with pytest.raises(UploadRefused):
            store.complete_upload(key, upload_id, wrong)
    assert store.head(key) is None
    store.complete_upload(key, upload_id, [whole, tail])
    assert body_of(store, key) == bytes(PART) + b"tail"


def test_ranges_are_slices(store: ObjectStore, prefix: str) -> None:
    """[start, end) as Python slices, past the end included; the ETag is the object's."""
    key, body = prefix + "k", bytes(range(256))
    etag = store.put_new(key, body)
    ranges: list[tuple[int | None, int | None]] = [
        (0, 1),
        (10, 20),
        (None, 7),
        (250, None),
        (250, 9_999),
        (255, 256),
        (256, 300),
        (300, None),
        (5, 5),
        (None, 0),
    ]
    for start, end in ranges:
        got = store.get(key, start=start, end=end)
        assert got is not None
        assert (got.body, got.etag) == (body[start:end], etag), (start, end)


def test_list_is_in_order_and_complete(store: ObjectStore, prefix: str) -> None:
    """More keys than a page holds are listed in the order of their bytes, below their prefix only."""
    keys = [f"{prefix}d/{n:04d}" for n in range(1_003)]
    with ThreadPoolExecutor(16) as threads:
        list(threads.map(lambda key: store.put_new(key, b"x"), reversed(keys)))
    store.put_new(prefix + "e", b"")
    store.put_new(prefix + "c", b"")
    listed = list(store.list(prefix + "d/"))
    assert [info.key for info in listed] == keys
    first = store.head(keys[0])
    assert first is not None
    assert (listed[0].size, listed[0].etag) == (1, first.etag)
    assert [info.key for info in store.list(prefix + "d/", after=keys[500])] == keys[501:]
    assert [info.key for info in store.list(prefix + "d/", after=f"{prefix}d/0999/")] == keys[1_000:]
    assert [info.key for info in store.list(prefix + "nothing")] == []


@pytest.mark.parametrize(
    "name",
    ["a b", "year=2026/m=01", "t+0+0000000001.json.gz", "50%25", "ü/日本", "it's", 'q"q', "a&b;c", "~!*()", "a#b?c"],
)
def test_keys_keep_their_characters(store: ObjectStore, prefix: str, name: str) -> None:
    """Characters that need escaping in a URL or in XML are the same in PUT, upload, HEAD and LIST."""
    store.put_new(prefix + name, b"put")
    upload(store, prefix + "u/" + name, b"uploaded")
    assert body_of(store, prefix + name) == b"put"
    assert body_of(store, prefix + "u/" + name) == b"uploaded"
    assert sorted(info.key for info in store.list(prefix)) == sorted([prefix + name, prefix + "u/" + name])


def test_keys_have_1024_bytes_at_most(store: ObjectStore, prefix: str) -> None:
    """A key of 1,024 bytes works; one more is a configuration error, before anything is uploaded."""
    key = prefix + "ü" * 45
    key += "/" + "/".join(["f" * 99] * 8)
    key += "/" + "x" * (1_024 - len(key.encode()) - 1)
    assert len(key.encode()) == 1_024
    store.put_new(key, b"x")
    assert store.head(key) is not None
    for attempt in (lambda: store.put_new(key + "y", b"x"), lambda: store.create_upload(key + "y")):
        with pytest.raises(ConfigurationError):
            attempt()


def test_pending_uploads_are_listed_below_their_prefix(store: ObjectStore, prefix: str) -> None:
    """Uploads that are neither completed nor aborted are listed, with the store's time."""
    pending = store.create_upload(prefix + "d/pending")
    aborted = store.create_upload(prefix + "d/aborted")
    store.create_upload(prefix + "elsewhere")
    upload(store, prefix + "d/completed", b"x")
    store.abort_upload(prefix + "d/aborted", aborted)
    listed = list(store.pending_uploads(prefix + "d/"))
    assert [(entry.key, entry.upload_id) for entry in listed] == [(prefix + "d/pending", pending)]
    assert abs(listed[0].initiated - time.time()) < 3_600


def test_many_objects_are_deleted_by_one_request(store: ObjectStore, prefix: str) -> None:
    """A thousand, with any characters in their keys; one that is gone already is no error, and no other is deleted."""
    names = [f"{prefix}a/{n}" for n in range(20)] + [prefix + "a/with space+plus=é&<x>"]
    for name in names:
        store.put_new(name, b"x")
    store.put_new(prefix + "ab", b"x")
    assert store.delete_objects([*names, prefix + "a/absent", *(f"{prefix}a/none-{n}" for n in range(970))]) == {}
    assert [info.key for info in store.list(prefix)] == [prefix + "ab"]


def test_many_threads_may_share_a_store(store: ObjectStore, prefix: str) -> None:
    """64 threads upload, complete and send HEAD requests at the same time."""

    def one(n: int) -> bool:
        upload(store, f"{prefix}{n}", str(n).encode(), metadata={"kafka-s3-nonce": str(n)})
        seen = store.head(f"{prefix}{n}")
        return seen is not None and seen.metadata == {"kafka-s3-nonce": str(n)}

    assert all(together(64, one))


def test_url_names_bucket_and_key(store: ObjectStore, prefix: str) -> None:
    """Messages contain this URL."""
    assert store.url(prefix + "k").startswith("s3://")
    assert store.url(prefix + "k").endswith(f"/{prefix}k")
