"""The histories that tests and benchmarks make are those of the package."""

from __future__ import annotations

import pytest

from airflow_provider_kafka_s3.documents import addresses
from airflow_provider_kafka_s3.documents.codec import encode
from airflow_provider_kafka_s3.documents.log_index import IndexedBatch, LogIndex, indexed_batch
from airflow_provider_kafka_s3.storage.memory import MemoryStore
from tests.protocol.engine import CONTROL, PIPELINE, TOPIC, TOPICS_DIR
from tests.protocol.history import checksum_of, documents_of
from tests.protocol.made_history import MadeHistory

MILLION = 1_000_000


def made(batches: int) -> MadeHistory:
    """A bucket."""
    return MadeHistory(batches, topics_dir=TOPICS_DIR, pipeline=PIPELINE, topic=TOPIC)


def body(bucket: MemoryStore, key: str) -> bytes | None:
    """What is at a key."""
    stored = bucket.get(key)
    return None if stored is None else stored.body


def test_made_documents_are_those_of_the_package() -> None:
    """Plans, manifests and objects of batches with few and with many digits; there is none behind the last one."""
    bucket = made(MILLION)
    for n in (1, 2, 5, 6, 77, 500, 12_345, 499_999, MILLION):
        plan, decision, objects = bucket.batch(n)
        assert body(bucket, addresses.plan_key(CONTROL, n)) == encode(plan, {})
        assert body(bucket, addresses.manifest_key(CONTROL, n)) == encode(decision, {})
        for key, stored, metadata in objects:
            assert body(bucket, key) == stored
            info = bucket.head(key)
            assert info is not None
            assert (info.size, info.metadata) == (len(stored), metadata)
    for n in (0, MILLION + 1):
        assert body(bucket, addresses.plan_key(CONTROL, n)) is None


@pytest.mark.parametrize(("step", "firsts"), [(-1, [0, 1_998, 2]), (7, [0, 14, 1_986])])
def test_a_made_history_may_have_been_landed_in_another_order(step: int, firsts: list[int]) -> None:
    """Each batch has its own offsets, and each object is found."""
    bucket = MadeHistory(1_000, topics_dir=TOPICS_DIR, pipeline=PIPELINE, topic=TOPIC, step=step)
    assert [bucket.first_offset(n) for n in (1, 2, 1_000)] == firsts
    assert {bucket.first_offset(n) for n in range(1, 1_001)} == {*range(0, 2_000, 2)}
    for n in (1, 77, 1_000):
        plan, _, ((key, stored, _),) = bucket.batch(n)
        assert body(bucket, addresses.plan_key(CONTROL, n)) == encode(plan, {})
        assert body(bucket, key) == stored


def test_made_indexes_are_those_of_the_package() -> None:
    """The first one, one in the middle and the last one, of both sizes."""
    bucket = made(MILLION)
    for first, size in ((1, 100), (5_001, 1_000), (MILLION - 99, 100)):
        batches: list[IndexedBatch] = []
        for n in range(first, first + size):
            plan, decision, _ = bucket.batch(n)
            sha256 = checksum_of(decision)
            batches.append(indexed_batch(plan, decision.plan_sha256, decision, sha256, same_layout_as=first))
        index = LogIndex(topic=TOPIC, first=first, batches=tuple(batches))
        assert body(bucket, addresses.index_key(CONTROL, first, size)) == encode(index, {})
    assert body(bucket, addresses.index_key(CONTROL, 51, 100)) is None


def test_made_listings_have_the_keys_of_a_stored_history() -> None:
    """Of documents and indexes, from any key on; and the marker is that of the stored one."""
    bucket, stored = made(1_234), MemoryStore()
    where = {"prefix": CONTROL, "topics_dir": TOPICS_DIR, "pipeline": PIPELINE}
    for key, document, _ in documents_of(1_234, topic=TOPIC, topic_id=bucket.topic_id, indexed=True, **where):
        stored.put_new(key, document)
    for prefix in (addresses.batches_prefix(CONTROL), addresses.indexes_prefix(CONTROL)):
        all_keys = [info.key for info in stored.list(prefix)]
        for after in ("", all_keys[0], all_keys[-2], f"{prefix}0000000401", f"{prefix}0000000500/", f"{prefix}1"):
            assert [info.key for info in bucket.list(prefix, after=after)] == [key for key in all_keys if key > after]
    assert body(bucket, addresses.marker_key(CONTROL)) == body(stored, addresses.marker_key(CONTROL))
