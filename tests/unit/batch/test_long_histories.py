"""Looking back over ten thousand batches takes tens of requests."""

from __future__ import annotations

import json
import logging
import time
from collections import Counter
from typing import Any

import msgspec
import pytest

from airflow_provider_kafka_s3.batch.coverage import _Span
from airflow_provider_kafka_s3.batch.log_index import summaries
from airflow_provider_kafka_s3.documents import addresses
from airflow_provider_kafka_s3.documents.codec import canonical, digest
from airflow_provider_kafka_s3.documents.log_index import LogIndex, indexed_batch
from airflow_provider_kafka_s3.documents.marker import PartitionState
from airflow_provider_kafka_s3.documents.offsets import Offsets
from airflow_provider_kafka_s3.exceptions import LogTamperedError
from airflow_provider_kafka_s3.inspect.status import topic_status
from airflow_provider_kafka_s3.maintenance.gc import find_garbage
from airflow_provider_kafka_s3.maintenance.repair import repair
from airflow_provider_kafka_s3.storage.memory import MemoryStore
from airflow_provider_kafka_s3.testing.invariants import read_state
from airflow_provider_kafka_s3.testing.kafka import SimulatedKafka
from airflow_provider_kafka_s3.testing.stores import WRITES, FaultyStore
from airflow_provider_kafka_s3.testing.topic_state import check_documents
from tests.protocol.engine import CONTROL, PIPELINE, TOPIC, TOPICS_DIR, Engine
from tests.protocol.history import batch_of, checksum_of, documents_of

BATCHES = 10_000
"""Of two records each."""

FEW = 50
"""Requests at most."""


class Past:
    """A bucket with all documents, objects and indexes."""

    def __init__(self) -> None:
        self.kafka = SimulatedKafka()
        self.topic_id = self.kafka.create_topic(TOPIC)
        for _ in range(2 * BATCHES):
            self.kafka.append(TOPIC, 0, b"x")
        self.bucket = MemoryStore()
        where = {"prefix": CONTROL, "topics_dir": TOPICS_DIR, "pipeline": PIPELINE}
        for key, body, metadata in documents_of(BATCHES, topic=TOPIC, topic_id=self.topic_id, indexed=True, **where):
            self.bucket.put_new(key, body, metadata=metadata)


@pytest.fixture(scope="module")
def original() -> Past:
    """Made once."""
    return Past()


class Process:
    """A new process on a copy of the bucket."""

    def __init__(self, past: Past) -> None:
        self.past = past
        self.bucket = past.bucket.copy()
        self.restart()

    def restart(self) -> None:
        """Start again, with nothing cached."""
        self.store = FaultyStore(self.bucket)
        self.engine = Engine(self.store, self.past.kafka)

    def counts(self) -> Counter[str]:
        """Requests by operation."""
        return Counter(request.operation for request in self.store.requests)

    def indexes(self) -> list[str]:
        """Keys of the indexes."""
        return [info.key for info in self.bucket.list(addresses.indexes_prefix(CONTROL))]


@pytest.fixture
def process(original: Past) -> Process:
    """A process."""
    return Process(original)


def change(bucket: MemoryStore, key: str, **fields: Any) -> None:
    """Change fields of a document whose checksum stays valid."""
    stored = bucket.get(key)
    assert stored is not None
    body = {**json.loads(stored.body), **fields}
    del body["sha256"]
    bucket.delete(key)
    bucket.put_new(key, canonical({**body, "sha256": digest(body)}))


@pytest.mark.parametrize("first", [0, 1, 2 * 4_321, 2 * 9_990 - 1])
def test_a_run_over_any_old_window_takes_few_requests(process: Process, first: int) -> None:
    """The oldest one, one in the middle, one near the end, over batches that others have landed."""
    result = process.engine.run("again", "data_interval", window={0: (first, first + 2)})
    assert [b.batch for b in result.batches] == sorted({first // 2 + 1, (first + 1) // 2 + 1})
    assert process.counts().total() <= FEW
    assert not process.counts().keys() & WRITES


def test_a_verification_of_a_window_of_many_batches_reads_them_and_few_indexes(process: Process) -> None:
    """Plan, manifest and object of each batch of the window, and a bounded number of requests besides."""
    result = process.engine.run("check", "data_interval", window={0: (1_000, 3_000)}, action="verify")
    assert (result.verified, len(result.batches)) == (1_000, 1_000)
    assert process.counts().total() <= 4 * 1_000 + FEW


def test_status_takes_few_requests(process: Process) -> None:
    """It reads the batches that it shows."""
    status = topic_status(process.engine.log, process.past.kafka)
    assert status is not None
    assert status.batches == BATCHES
    assert process.counts().total() <= FEW


def test_summaries_of_all_batches_take_few_requests(process: Process) -> None:
    """Two for each thousand, and a LIST."""
    marker, _ = process.engine.log.require_marker()
    found = list(summaries(process.engine.log, marker))
    assert [one.batch for one in found] == list(range(1, BATCHES + 1))
    assert sum(one.records for one in found) == 2 * BATCHES
    assert process.counts() == {"get": 1 + 2 * BATCHES // 1_000, "list": 1}


def test_gc_takes_few_requests(process: Process) -> None:
    """It reads one plan for each layout of a thousand batches."""
    upload = process.engine.store.create_upload(f"{TOPICS_DIR}/{TOPIC}/partition=0/{TOPIC}+0+0000000007.bin")
    process.restart()
    found = find_garbage(process.engine.log, now=time.time() + 10 * 86_400)
    assert [one.upload_id for one in found.garbage] == [upload]
    assert process.counts().total() <= FEW


def test_a_repair_of_a_right_marker_takes_few_requests_and_writes_nothing(process: Process) -> None:
    """The marker is the fold of the index, and a listing has every document."""
    done = repair(process.engine.committer, start={0: 0})
    assert (done.was, done.written, done.indexes) == ("right", False, 0)
    assert process.counts().total() <= FEW
    assert not process.counts().keys() & WRITES


def test_a_repair_reads_plans_and_manifests_before_it_writes_a_marker(process: Process) -> None:
    """An index that agrees with nothing is no reason to write: the marker is the fold of the documents."""
    marker, etag = process.engine.log.require_marker()
    wrong = PartitionState(covered=((0, 2 * BATCHES - 2),))
    assert process.engine.log.replace_marker(
        type(marker)(**{n: getattr(marker, n) for n in marker.__struct_fields__} | {"partitions": {0: wrong}}), etag
    )
    process.restart()
    done = repair(process.engine.committer, start={0: 0})
    assert (done.was, done.written) == ("wrong", True)
    assert done.marker.covered == Offsets({0: [(0, 2 * BATCHES)]})
    assert process.counts()["get"] > 2 * BATCHES


def test_a_repair_with_a_document_gone_names_it(process: Process) -> None:
    """The index does not hide that the log has a hole."""
    process.bucket.delete(addresses.manifest_key(CONTROL, 77))
    with pytest.raises(LogTamperedError, match="a document of batch 77, which the marker has as complete, is gone"):
        repair(process.engine.committer, start={0: 0})


def test_a_repair_writes_missing_and_damaged_indexes_again(process: Process) -> None:
    """As they were; a dry run counts them. An index that is wrong needs --every-document."""
    before = {key: process.bucket.get(key).body for key in process.indexes()}  # type: ignore[union-attr]
    gone = addresses.index_key(CONTROL, 1_201, 100)
    damaged = addresses.index_key(CONTROL, 3_001, 1_000)
    process.bucket.delete(gone)
    process.bucket.delete(damaged)
    process.bucket.put_new(damaged, b"damaged")
    for dry_run in (True, False):
        done = repair(process.engine.committer, start={0: 0}, dry_run=dry_run)
        assert (done.was, done.indexes) == ("right", 2)
        assert (process.bucket.head(gone) is None) is dry_run
    assert process.indexes() == list(before)
    state = read_state(process.bucket, topics_dir=TOPICS_DIR, pipeline=PIPELINE, topic=TOPIC)
    assert [finding for finding in check_documents(state) if finding.startswith("I9")] == []


def test_a_search_does_not_believe_an_index(process: Process, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever it has: the batches are found by their own documents, and a warning has the command."""
    caplog.set_level(logging.WARNING)
    for key in process.indexes():
        if key in (addresses.index_key(CONTROL, 1, 100), addresses.index_key(CONTROL, 1, 1_000)):
            stored = process.bucket.get(key)
            assert stored is not None
            batches = json.loads(stored.body)["batches"]
            for batch in batches:
                if batch["batch"] <= 100:
                    batch["claim"] = {"0": [[10**9 + batch["batch"], 10**9 + batch["batch"] + 1]]}
            change(process.bucket, key, batches=batches)
    result = process.engine.run("again", "data_interval", window={0: (20, 22)})
    assert [b.batch for b in result.batches] == [11]
    assert "the index is wrong" in caplog.text
    assert "--every-document" in caplog.text


def test_a_search_with_some_indexes_gone_reads_only_their_plans(process: Process) -> None:
    """Those of a hundred, beside the few requests."""
    process.bucket.delete(addresses.index_key(CONTROL, 101, 100))
    process.bucket.delete(addresses.index_key(CONTROL, 1, 1_000))
    result = process.engine.run("again", "data_interval", window={0: (300, 302)})
    assert [b.batch for b in result.batches] == [151]
    assert process.counts()["get"] <= 100 + 100 + FEW


def test_the_next_run_plans_with_few_requests(process: Process, original: Past) -> None:
    """Planning depends on the marker alone, whatever the length of the log."""
    original.kafka.append(TOPIC, 0, b"x")
    run = process.engine.topic_run(process.engine.request("next"))
    plan = run.advance()
    assert plan.batch == BATCHES + 1  # type: ignore[union-attr]
    assert process.counts().total() <= 10


@pytest.mark.parametrize("backward", [False, True])
def test_a_search_goes_to_the_generation_first(backward: bool) -> None:
    """Generations ascend with the batches, in whichever order the offsets of each were landed."""
    indexed = [
        indexed_batch(plan, checksum_of(plan), manifest, checksum_of(manifest), same_layout_as=1)
        for plan, manifest, _ in (
            batch_of(n, Offsets({0: [(2 * n, 2 * n + 2)]}), topic="events", topic_id="id") for n in range(1, 101)
        )
    ]
    index = LogIndex(
        topic="events", first=1, batches=tuple(msgspec.structs.replace(one, generation=3) for one in indexed)
    )
    span = _Span(index, 3)
    assert [span.side(generation, 0, 50, backward=backward) for generation in (2, 3, 4)] == [-1, 0, 1]
    assert [span.side(3, 0, offset, backward=backward) for offset in (0, 1_000)] == ([1, -1] if backward else [-1, 1])
