"""Multipart uploads: boundaries, order, memory, failures, and pending uploads."""

from __future__ import annotations

import itertools
import os
import threading
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from isal import isal_zlib

from airflow_provider_kafka_s3.config import MIB
from airflow_provider_kafka_s3.exceptions import (
    AccessDeniedError,
    ConfigurationError,
    TransientError,
    UnknownOutcomeError,
)
from airflow_provider_kafka_s3.retry import Retrier, RetryPolicy
from airflow_provider_kafka_s3.storage import uploads
from airflow_provider_kafka_s3.storage.durable import CompleteResult, DurableStore
from airflow_provider_kafka_s3.storage.memory import MemoryStore
from airflow_provider_kafka_s3.storage.port import Part
from airflow_provider_kafka_s3.storage.uploads import FinishedUpload, UploadPool
from dev.waiting import wait_until

PART = 5 * MIB


def durable(store: Any) -> DurableStore:
    """The store with one try for every request."""
    return DurableStore(store, Retrier(RetryPolicy(max_retries=0), sleep=lambda _: None))


def noise(size: int, seed: int) -> bytes:
    """Bytes that look random and are the same on every run."""
    return np.random.default_rng(seed).bytes(size)


def completed(store: MemoryStore, finished: FinishedUpload) -> bytes:
    """Complete like the driver, and read the object."""
    result = durable(store).complete(finished.key, finished.upload_id, finished.parts)
    assert result is CompleteResult.DONE
    stored = store.get(finished.key)
    assert stored is not None
    return stored.body


class Observed(MemoryStore):
    """A memory store that records uploaded parts, and may delay or fail them."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: dict[tuple[str, int], int] = {}
        self.failures: dict[int, Exception] = {}
        self.gate = threading.Event()
        self.gate.set()
        self.waiting = threading.Semaphore(0)

    def upload_part(self, key: str, upload_id: str, number: int, body: bytes | bytearray | memoryview) -> Part:
        """Report the part, wait for the gate, then fail or record it."""
        self.waiting.release()
        self.gate.wait()
        if number in self.failures:
            raise self.failures[number]
        self.sizes[key, number] = len(body)
        return super().upload_part(key, upload_id, number, body)


@pytest.fixture
def store() -> Observed:
    """An empty bucket."""
    return Observed()


@pytest.fixture
def pool(store: Observed) -> Iterator[UploadPool]:
    """A pool with the smallest parts."""
    with UploadPool(durable(store), part_size=PART) as pool:
        yield pool


@pytest.mark.parametrize(
    ("size", "parts"),
    [
        (0, [0]),
        (1, [1]),
        (PART - 1, [PART - 1]),
        (PART, [PART]),
        (PART + 1, [PART, 1]),
        (3 * PART, [PART] * 3),
        (2 * PART + 7, [PART, PART, 7]),
    ],
)
def test_parts_have_exactly_the_part_size(store: Observed, pool: UploadPool, size: int, parts: list[int]) -> None:
    """All parts but the last have the part size; an empty object is one empty part."""
    body = noise(size, 1)
    upload = pool.open("k", {"kafka-s3-nonce": "n"})
    upload.write(body)
    finished = upload.finish()
    assert [store.sizes["k", part.number] for part in finished.parts] == parts
    assert [part.number for part in finished.parts] == list(range(1, len(parts) + 1))
    assert (finished.size, finished.crc32) == (size, isal_zlib.crc32(body))
    assert store.head("k") is None
    assert completed(store, finished) == body
    assert store.head("k").metadata == {"kafka-s3-nonce": "n"}  # type: ignore[union-attr]


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 2 * PART), max_size=8), st.sampled_from([1, PART // 2, 64 * MIB]))
def test_writes_and_memory_do_not_change_part_boundaries(writes: list[int], memory: int) -> None:
    """Whatever the sizes of the writes and the memory, the parts are the same."""
    store = Observed()
    body = noise(sum(writes), len(writes))
    with UploadPool(durable(store), part_size=PART, memory=memory) as pool:
        upload = pool.open("k")
        start = 0
        for size in writes:
            upload.write(memoryview(body)[start : start + size])
            start += size
        finished = upload.finish()
    sizes = [store.sizes["k", part.number] for part in finished.parts]
    assert sizes == [PART] * (len(body) // PART) + ([len(body) % PART] if len(body) % PART or not body else [])
    assert finished.crc32 == isal_zlib.crc32(body)
    assert completed(store, finished) == body


def test_many_open_objects_stay_within_the_budget(store: Observed, tmp_path: Path) -> None:
    """400 objects of 1 MiB that grow at the same time need 16 MiB of memory, and are stored byte for byte."""
    budget, piece, count = 16 * MIB, 64 * 1024, 400
    bodies = [noise(MIB, n) for n in range(count)]
    with UploadPool(durable(store), part_size=PART, memory=budget, spill_dir=str(tmp_path)) as pool:
        opened = [pool.open(f"k/{n}") for n in range(count)]
        peak = 0
        for start in range(0, MIB, piece):
            for upload, body in zip(opened, bodies, strict=True):
                upload.write(body[start : start + piece])
                peak = max(peak, pool.buffered)
        assert peak <= budget
        assert pool.buffered == sum(upload.buffered for upload in opened)
        assert list(tmp_path.iterdir()) == []
        for upload in opened:
            upload.seal()
        finished = [upload.finish() for upload in opened]
        assert pool.buffered == 0
    for entry, body in zip(finished, bodies, strict=True):
        assert completed(store, entry) == body


def test_largest_buffers_are_spilled_first(pool: UploadPool, store: Observed) -> None:
    """A small object stays in memory while a large one is spilled."""
    with UploadPool(durable(store), part_size=PART, memory=2 * MIB) as small:
        little, large = small.open("little"), small.open("large")
        little.write(b"x" * 1_000)
        large.write(bytes(2 * MIB))
        assert (little.buffered, large.buffered) == (1_000, 0)
        assert [len(completed(store, upload.finish())) for upload in (little, large)] == [1_000, 2 * MIB]


def test_spilled_space_is_used_again(store: Observed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each object uses the slot of the one before."""
    furthest = 0
    pwrite = os.pwrite

    def observed(fd: int, data: Any, offset: int) -> int:
        nonlocal furthest
        furthest = max(furthest, offset + len(data))
        return pwrite(fd, data, offset)

    monkeypatch.setattr(os, "pwrite", observed)
    with UploadPool(durable(store), part_size=PART, memory=MIB, spill_dir=str(tmp_path)) as pool:
        for n in range(5):
            upload = pool.open(str(n))
            for _ in range(24):
                upload.write(bytes(MIB))
            upload.finish()
    assert 0 < furthest <= PART


def test_nothing_is_sent_for_an_object_that_has_no_full_part(store: Observed, pool: UploadPool) -> None:
    """An upload is created with its first part, so an early failure leaves no pending upload."""
    upload = pool.open("k")
    upload.write(bytes(PART - 1))
    assert upload.upload_id is None
    assert list(store.pending_uploads("")) == []


def test_sealed_uploads_overlap(store: Observed, pool: UploadPool) -> None:
    """Sealing does not wait: parts of two objects are sent at the same time."""
    store.gate.clear()
    opened = [pool.open(str(n)) for n in range(2)]
    for upload in opened:
        upload.write(b"x")
        upload.seal()
        upload.seal()
    assert all(store.waiting.acquire(timeout=30) for _ in range(2))
    store.gate.set()
    assert [upload.finish().size for upload in opened] == [1, 1]


def test_writer_blocks_while_too_many_parts_are_queued(store: Observed) -> None:
    """A store that does not respond blocks the writer instead of filling memory: at most 2 parts per thread."""
    store.gate.clear()
    with UploadPool(durable(store), part_size=PART, threads=1) as pool:
        upload = pool.open("k")
        upload.write(bytes(2 * PART))
        assert store.waiting.acquire(timeout=30)
        writer = threading.Thread(target=upload.write, args=(bytes(PART),))
        writer.start()
        try:
            wait_until(lambda: pool.buffered == PART, "the writer's part")
            writer.join(0.05)
            assert writer.is_alive()
        finally:
            store.gate.set()
        writer.join(30)
        assert completed(store, upload.finish()) == bytes(3 * PART)


@pytest.mark.parametrize("error", [AccessDeniedError("403"), UnknownOutcomeError("reset"), RuntimeError("bug")])
def test_error_of_a_part_is_raised_by_the_next_call(store: Observed, pool: UploadPool, error: Exception) -> None:
    """By the next call on any upload; further parts are not sent."""
    store.failures[2] = error
    bad, other = pool.open("bad"), pool.open("other")
    with pytest.raises(type(error)):
        deque(map(bad.write, itertools.repeat(bytes(PART))), maxlen=0)
    for call in (lambda: other.write(b"x"), other.finish, bad.finish, lambda: pool.open("third")):
        with pytest.raises(type(error)):
            call()
    assert ("other", 1) not in store.sizes


def test_error_of_the_last_part_is_raised_by_finish(store: Observed, pool: UploadPool) -> None:
    """An object is not finished if its last part is not stored."""
    store.failures[1] = UnknownOutcomeError("reset")
    upload = pool.open("k")
    upload.write(b"x")
    with pytest.raises(UnknownOutcomeError):
        upload.finish()


def test_abort_all_leaves_nothing_pending(store: Observed, pool: UploadPool) -> None:
    """Finished, incomplete and failed uploads of the pool are aborted, and it is closed; others and objects stay."""
    foreign = store.create_upload("foreign")
    done = pool.open("done")
    done.finish()
    half = pool.open("half")
    half.write(bytes(PART + 1))
    pool.open("unsent").write(b"x")
    pool.abort_all()
    assert [entry.upload_id for entry in store.pending_uploads("")] == [foreign]
    with pytest.raises(ValueError, match="closed"):
        half.write(b"x")


def test_abort_all_continues_when_one_abort_fails(
    store: Observed, pool: UploadPool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An upload that cannot be aborted is logged, and the others are aborted."""
    for key in "abc":
        pool.open(key).finish()
    abort = store.abort_upload

    def stubborn(key: str, upload_id: str) -> None:
        if key == "b":
            raise UnknownOutcomeError("reset")
        abort(key, upload_id)

    monkeypatch.setattr(store, "abort_upload", stubborn)
    pool.abort_all()
    assert [entry.key for entry in store.pending_uploads("")] == ["b"]
    assert "of s3://memory/b stays pending: reset" in caplog.text


def test_closing_aborts_nothing(store: Observed) -> None:
    """Closing the pool, also after an error, keeps the uploads: a manifest may list them."""

    def task(pool: UploadPool) -> None:
        with pool:
            pool.open("k").finish()
            pool.open("open").write(b"x")
            raise RuntimeError

    pool = UploadPool(durable(store), part_size=PART, memory=1)
    with pytest.raises(RuntimeError):
        task(pool)
    assert [entry.key for entry in store.pending_uploads("")] == ["k"]
    pool.close()


def test_finished_object_cannot_be_appended_to(pool: UploadPool) -> None:
    """Writing after the end is a bug, and an error."""
    upload = pool.open("k")
    upload.finish()
    with pytest.raises(ValueError, match="the upload of k is sealed"):
        upload.write(b"x")


def test_too_many_parts_are_refused_with_what_to_change(pool: UploadPool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit of 10,000 parts is checked before the store refuses them."""
    monkeypatch.setattr(uploads, "MAX_PARTS", 2)
    with pytest.raises(ConfigurationError, match="larger part_size"):
        pool.open("k").write(bytes(2 * PART) + bytes(PART))


def test_folder_without_disk_space_is_named(store: Observed) -> None:
    """If the temporary file cannot be written, the error contains the folder and what to do."""
    with UploadPool(durable(store), part_size=PART, memory=1, spill_dir="/nonexistent") as pool:
        upload = pool.open("k")
        with pytest.raises(TransientError, match=r"/nonexistent.*upload={'spill_dir'.*upload={'memory'"):
            upload.write(b"xx")


@pytest.mark.parametrize("wrong", [{"part_size": PART - 1}, {"threads": 0}, {"memory": 0}])
def test_impossible_pools_are_refused(store: Observed, wrong: dict[str, int]) -> None:
    """The error names the setting."""
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        UploadPool(durable(store), **{"part_size": PART, **wrong})  # type: ignore[arg-type]
