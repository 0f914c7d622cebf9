"""An index that is wrong, of another log, of a newer version, or cannot be made hides no batch and no other index."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

import pytest

from airflow_provider_kafka_s3.batch.derived.log_indexes import build_index, write_missing
from airflow_provider_kafka_s3.batch.log_index import summaries
from airflow_provider_kafka_s3.documents import addresses
from airflow_provider_kafka_s3.exceptions import KafkaS3Error, LogTamperedError, TransientError, message_of
from airflow_provider_kafka_s3.maintenance.repair import repair
from airflow_provider_kafka_s3.reading.seek import seek
from airflow_provider_kafka_s3.reading.snapshot import Snapshot
from airflow_provider_kafka_s3.storage.memory import MemoryStore
from airflow_provider_kafka_s3.testing.invariants import read_state
from airflow_provider_kafka_s3.testing.kafka import SimulatedKafka
from airflow_provider_kafka_s3.testing.stores import Fault, FaultyStore
from airflow_provider_kafka_s3.testing.topic_state import check_indexes
from tests.protocol.engine import CONTROL, PIPELINE, TOPIC, TOPICS_DIR, Engine, in_turn
from tests.unit.batch.test_log_index import SIZES, History, indexes_of
from tests.unit.batch.test_long_histories import change

BATCHES = 123

Batch = dict[str, Any]


@pytest.fixture
def history(caplog: pytest.LogCaptureFixture) -> History:
    """123 batches of two records each, with twelve indexes of tens and two of fifties."""
    caplog.set_level(logging.WARNING)
    history = History(BATCHES)
    history.index()
    return history


def engine_of(history: History, store: FaultyStore | None = None) -> Engine:
    """A new process."""
    engine = Engine(store or FaultyStore(history.bucket), history.kafka)
    engine.log.index_sizes = SIZES
    return engine


def key_of(first: int, last: int) -> str:
    """Key of an index."""
    return addresses.index_key(CONTROL, first, last - first + 1)


def body_of(bucket: MemoryStore, key: str) -> bytes:
    """The bytes of an object."""
    stored = bucket.get(key)
    assert stored is not None
    return stored.body


def forge(bucket: MemoryStore, key: str, edit: Callable[[list[Batch]], list[Batch]]) -> None:
    """Change the batches of an index, whose checksum stays valid."""
    change(bucket, key, batches=edit(json.loads(body_of(bucket, key))["batches"]))


def abandoned(batch: Batch, release: str) -> Batch:
    """The batch without objects."""
    left = {name: value for name, value in batch.items() if name not in ("objects", "records", "size")}
    return {n: v for n, v in left.items() if not n.endswith("timestamp")} | {"status": "abandoned", "release": release}


def one_as_debt(batches: list[Batch]) -> list[Batch]:
    """The fourth batch was abandoned."""
    return [*batches[:3], abandoned(batches[3], "debt"), *batches[4:]]


def one_as_lost(batches: list[Batch]) -> list[Batch]:
    """The fourth batch was accepted as lost."""
    return [*batches[:3], abandoned(batches[3], "lost"), *batches[4:]]


def one_elsewhere(batches: list[Batch]) -> list[Batch]:
    """The sixth batch has other offsets."""
    return [*batches[:5], batches[5] | {"claim": {"0": [[10**9, 10**9 + 1]]}}, *batches[6:]]


def of_another_log(batches: list[Batch]) -> list[Batch]:
    """All batches have other plans and were abandoned, as in a copy of another prefix."""
    return [abandoned(batch, "debt") | {"plan_sha256": f"{batch['batch']:064}"} for batch in batches]


def is_right(bucket: MemoryStore) -> bool:
    """Whether all indexes are what the documents say."""
    return not [*check_indexes(read_state(bucket, topics_dir=TOPICS_DIR, pipeline=PIPELINE, topic=TOPIC))]


# -- readers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("edit", [one_as_debt, one_as_lost, one_elsewhere, of_another_log])
def test_a_snapshot_has_every_committed_batch_whatever_a_valid_index_has(
    history: History, caplog: pytest.LogCaptureFixture, edit: Callable[[list[Batch]], list[Batch]]
) -> None:
    """The batches are compared with the marker; a warning has the command, which makes the index right."""
    forge(history.bucket, key_of(1, 50), edit)
    snapshot = Snapshot(engine_of(history).log)
    assert [one.batch for one in snapshot.objects()] == list(range(1, BATCHES + 1))
    assert [one.batch for one in snapshot.objects(offsets={0: (10, 12)})] == [6]
    assert snapshot.records == 2 * BATCHES
    assert "--every-document" in caplog.text
    assert not is_right(history.bucket)
    done = repair(engine_of(history).committer, start={0: 0}, every_document=True)
    assert (done.was, done.indexes) == ("right", 1)
    assert is_right(history.bucket)


def test_an_index_of_another_log_hides_nothing_from_changes_and_older_states(
    history: History, caplog: pytest.LogCaptureFixture
) -> None:
    """Where batches cannot be compared with the marker, an index is of this log if it has its last plan."""
    forge(history.bucket, key_of(51, 100), of_another_log)
    log = engine_of(history).log
    assert [one.batch for one in Snapshot(log).changes(60).objects()] == list(range(61, BATCHES + 1))
    assert [one.batch for one in Snapshot(log, at=99).objects()] == list(range(1, 100))
    assert "the index of batches 51 to 100 is not used" in caplog.text
    assert "it is of another log" in caplog.text


def test_offsets_that_the_marker_does_not_have_are_in_no_older_state(
    history: History, caplog: pytest.LogCaptureFixture
) -> None:
    """Part of the log is compared with the marker as far as possible."""
    forge(history.bucket, key_of(51, 100), one_elsewhere)
    snapshot = Snapshot(engine_of(history).log, at=99)
    assert [one.batch for one in snapshot.objects(offsets={0: (110, 112)})] == [56]
    assert "do not agree about offsets 0: [1000000000, 1000000001)" in caplog.text


def test_a_large_index_is_not_made_from_one_of_another_log(history: History) -> None:
    """The batches of that one are read from their documents."""
    history.bucket.delete(key_of(51, 100))
    forge(history.bucket, key_of(61, 70), of_another_log)
    log, marker, _ = history.log()
    made = build_index(log, marker, range(51, 101), parallel=in_turn)
    assert made == build_index(log, marker, range(51, 101), parallel=in_turn, from_documents=True)


def test_a_record_is_found_whatever_the_indexes_have(caplog: pytest.LogCaptureFixture) -> None:
    """After a backfill, whose batches are not in the order of offsets, and with indexes that are wrong."""
    caplog.set_level(logging.WARNING)
    kafka, bucket = SimulatedKafka(), MemoryStore()
    kafka.create_topic(TOPIC)
    for n in range(24):
        kafka.append(TOPIC, 0, f"record {n}".encode())
    for at in (12, 0, 20, 4, 16, 8, 22, 2, 18, 6, 14, 10):
        engine = Engine(bucket, kafka)
        engine.log.index_sizes = (2, 6)
        engine.run(f"from {at}", "data_interval", window={0: (at, at + 2)}, starting={0: at})
    for name in indexes_of(bucket):
        forge(bucket, addresses.indexes_prefix(CONTROL) + name, lambda batches: [*map(moved, batches)])
    engine = Engine(bucket, kafka)
    engine.log.index_sizes = (2, 6)
    assert [seek(engine.log, 0, n)[0].raw for n in range(24)] == [f"record {n}".encode() for n in range(24)]


def moved(batch: Batch) -> Batch:
    """The batch with other offsets."""
    return batch | {"claim": {"0": [[10**9 + batch["batch"], 10**9 + batch["batch"] + 1]]}}


# -- searches ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("indexed", [True, False])
def test_a_search_that_needs_a_plan_that_is_gone_names_it(history: History, indexed: bool) -> None:
    """With and without an index: the error has the plan's URL, and not those of other batches."""
    if not indexed:
        for name in indexes_of(history.bucket):
            history.bucket.delete(addresses.indexes_prefix(CONTROL) + name)
    history.bucket.delete(addresses.plan_key(CONTROL, 23))
    for window in ((44, 46), (40, 52)):
        engine = engine_of(history)
        with pytest.raises(LogTamperedError, match="the plan of batch 23 is gone") as raised:
            engine.run("again", "data_interval", window={0: window})
        assert engine.log.plan_url(23) in str(raised.value)


@pytest.mark.parametrize("gone", [123, 120, 21, 24, 1])
def test_a_plan_that_is_gone_hides_no_other_batch_from_a_search(history: History, gone: int) -> None:
    """Near the end, beside the window, or at the beginning: batches of the window are found, without any index, too."""
    history.bucket.delete(addresses.plan_key(CONTROL, gone))
    for _ in range(2):
        result = engine_of(history).run("again", "data_interval", window={0: (43, 46)})
        assert [batch.batch for batch in result.batches] == [22, 23]
        for name in indexes_of(history.bucket):
            history.bucket.delete(addresses.indexes_prefix(CONTROL) + name)


def test_a_search_ends_where_the_log_has_none_of_the_numbers_of_a_marker(history: History) -> None:
    """A changed marker with ten billion batches costs some hundred requests, and the error names a plan."""
    for name in indexes_of(history.bucket):
        history.bucket.delete(addresses.indexes_prefix(CONTROL) + name)
    change(history.bucket, addresses.marker_key(CONTROL), resolved=[[1, 10**10]])
    store = FaultyStore(history.bucket)
    with pytest.raises(LogTamperedError, match=r"the plan of batch 9999999999 is gone"):
        engine_of(history, store).run("verify", "data_interval", window={0: (43, 46)}, action="verify")
    assert len(store.requests) < 300


# -- writing ----------------------------------------------------------------------------------------------------------


def test_a_document_that_is_gone_prevents_the_indexes_of_its_batches_and_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Those of other tens and of other fifties are written, and the warning names the ten."""
    caplog.set_level(logging.WARNING)
    history = History(203)
    history.bucket.delete(addresses.plan_key(CONTROL, 103))
    for _ in range(12):
        log, marker, _ = history.log()
        write_missing(log, marker, most=4, parallel=in_turn)
    tens = {(n, n + 9) for n in range(1, 200, 10)} - {(101, 110)}
    fifties = {(1, 50), (51, 100), (151, 200)}
    assert {(int(name[:10]), int(name[11:21])) for name in indexes_of(history.bucket)} == tens | fifties
    assert (
        "the index of batches 101 to 110 was not written: topic 'events': the plan of batch 103 is gone" in caplog.text
    )
    assert caplog.text.count("was not written") == caplog.text.count("the index of batches 101 to 110")


def test_many_documents_that_are_gone_do_not_prevent_large_indexes(history: History) -> None:
    """As many tens as may be written at once cannot be; the fifty of others is."""
    for n in range(51, 92, 10):
        history.bucket.delete(key_of(n, n + 9))
        history.bucket.delete(addresses.manifest_key(CONTROL, n))
    for first in (1, 51):
        history.bucket.delete(key_of(first, first + 49))
    log, marker, _ = history.log()
    assert write_missing(log, marker, most=4, parallel=in_turn) == 1
    assert history.bucket.head(key_of(1, 50)) is not None


def test_another_index_that_was_written_meanwhile_is_not_taken_for_the_own_one(
    history: History, caplog: pytest.LogCaptureFixture
) -> None:
    """A warning names it and the command; it stays as it is."""
    stored = body_of(history.bucket, key_of(111, 120)).replace(b'"run":"run 113"', b'"run":"other"')
    history.bucket.delete(key_of(111, 120))

    def choose(request: Any) -> None:
        if request.operation == "put_new" and request.key == key_of(111, 120):
            history.bucket.put_new(request.key, stored)

    log = engine_of(history, FaultyStore(history.bucket, choose=choose)).log
    assert write_missing(log, log.require_marker()[0], most=None, parallel=in_turn) == 0
    assert "the index of batches 111 to 120 was not written: another one is at" in caplog.text
    assert "--every-document" in caplog.text
    assert body_of(history.bucket, key_of(111, 120)) == stored


# -- repair -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("every_document", [False, True])
@pytest.mark.parametrize("marker_gone", [False, True])
def test_a_repair_skips_the_indexes_of_newer_versions_and_names_them(
    history: History, caplog: pytest.LogCaptureFixture, every_document: bool, marker_gone: bool
) -> None:
    """The marker is repaired, all other indexes are written, and these stay as they are."""
    change(history.bucket, key_of(51, 100), format=2, version="9.9.9")
    newer = body_of(history.bucket, key_of(51, 100))
    history.bucket.delete(key_of(11, 20))
    if marker_gone:
        history.bucket.delete(addresses.marker_key(CONTROL))
    done = repair(engine_of(history).committer, start={0: 0}, every_document=every_document, dry_run=True)
    assert (done.was, done.indexes, [*done.skipped_indexes]) == (
        "missing" if marker_gone else "right",
        0 if marker_gone else 1,
        [] if marker_gone else ["51-100"],
    )
    done = repair(engine_of(history).committer, start={0: 0}, every_document=every_document)
    assert (done.written, done.indexes, [*done.skipped_indexes]) == (marker_gone, 1, ["51-100"])
    assert "version 9.9.9 wrote the logindex" in done.skipped_indexes["51-100"]
    assert (
        "the index of batches 51 to 100 is skipped, and no run depends on it: upgrade airflow-provider-kafka-s3 here"
        in caplog.text
    )
    assert history.bucket.head(addresses.marker_key(CONTROL)) is not None
    assert body_of(history.bucket, key_of(51, 100)) == newer
    log, marker, _ = history.log()
    assert len([*summaries(log, marker, parallel=in_turn)]) == BATCHES
    assert len(indexes_of(history.bucket)) == 14


def test_a_repair_writes_an_index_from_documents_whatever_the_smaller_ones_have(history: History) -> None:
    """Without --every-document, too: a wrong index of ten batches does not spread."""
    forge(history.bucket, key_of(61, 70), one_elsewhere)
    history.bucket.delete(key_of(51, 100))
    assert repair(engine_of(history).committer, start={0: 0}).indexes == 1
    log, marker, _ = history.log()
    numbers = range(51, 101)
    assert log.read_index(numbers) == build_index(log, marker, numbers, parallel=in_turn, from_documents=True)


def test_an_error_behind_the_marker_does_not_hide_that_a_repair_has_written_it(history: History) -> None:
    """The store refuses to list the indexes: the note says that the marker was written, and the next repair goes on."""
    history.bucket.delete(addresses.marker_key(CONTROL))
    history.bucket.delete(key_of(11, 20))
    store = FaultyStore(history.bucket)
    store.inject(Fault.SERVER_ERROR, operation="list", key="*/index/", times=1_000)
    with pytest.raises(TransientError) as raised:
        repair(engine_of(history, store).committer, start={0: 0})
    assert "the marker of topic 'events' was missing, and was written again" in message_of(raised.value)
    assert "kafka-s3 repair" in message_of(raised.value)
    done = repair(engine_of(history).committer, start={0: 0})
    assert (done.was, done.written, done.indexes) == ("right", False, 1)
    assert len(indexes_of(history.bucket)) == 14


def test_a_repair_of_a_right_marker_has_no_note_with_an_error(history: History) -> None:
    """Nothing was written before it."""
    store = FaultyStore(history.bucket)
    store.inject(Fault.SERVER_ERROR, operation="list", key="*/index/", times=1_000)
    with pytest.raises(KafkaS3Error) as raised:
        repair(engine_of(history, store).committer, start={0: 0}, every_document=True)
    assert "was written again" not in message_of(raised.value)
