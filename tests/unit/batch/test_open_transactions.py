"""An open transaction: only readable offsets are in the target, a later run lands the rest, and what waits is named."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from airflow_provider_kafka_s3.airflow.xcom import summary
from airflow_provider_kafka_s3.batch.request import TopicResult
from airflow_provider_kafka_s3.documents.offsets import Offsets
from airflow_provider_kafka_s3.inspect.lag import lag
from airflow_provider_kafka_s3.inspect.status import topic_status
from airflow_provider_kafka_s3.storage.memory import MemoryStore
from airflow_provider_kafka_s3.testing.kafka import SimulatedKafka
from tests.protocol.engine import TOPIC, TOPICS_DIR, Engine, check_landed

READABLE, WRITTEN = 4, 10
"""Offsets below the open transaction, and all there are; a record's timestamp is its offset."""


class Pipeline:
    """A topic whose records from offset 4 to 9 belong to a transaction that is open."""

    def __init__(self) -> None:
        self.kafka, self.bucket = SimulatedKafka(), MemoryStore()
        self.kafka.create_topic(TOPIC)
        for i in range(WRITTEN):
            if i == READABLE:
                self.kafka.open_transaction(TOPIC, 0)
            self.kafka.append(TOPIC, 0, b"%d" % i, timestamp=i)

    def land(self, run: str, start: int, end: int) -> TopicResult:
        return Engine(self.bucket, self.kafka).run(run, "data_interval", window=(start, end))

    def incremental(self, run: str, **settings: Any) -> TopicResult:
        return Engine(self.bucket, self.kafka).run(run, starting="earliest", **settings)

    def visible(self) -> set[bytes]:
        """The records that a reader of the bucket sees."""
        found = [self.bucket.get(info.key) for info in self.bucket.list(f"{TOPICS_DIR}/{TOPIC}/")]
        return {line for stored in found if stored is not None for line in stored.body.splitlines()}


def records(start: int, end: int) -> set[bytes]:
    """Values of the records at some offsets."""
    return {b"%d" % i for i in range(start, end)}


@pytest.mark.parametrize("end", [7, 99], ids=["inside", "after"])
def test_a_window_that_ends_in_an_open_transaction_lands_what_lies_before_it(end: int) -> None:
    """The run succeeds with the readable offsets; when the transaction has ended, the next window includes the rest."""
    pipeline = Pipeline()
    first = pipeline.land("first", 0, end)
    assert (first.status, first.target) == ("ok", Offsets({0: [(0, READABLE)]}))
    assert pipeline.visible() == records(0, READABLE)
    pipeline.kafka.commit_transaction(TOPIC, 0)
    pipeline.kafka.append(TOPIC, 0, b"later", timestamp=100)
    assert pipeline.land("next", 100, 200).status == "ok"
    assert pipeline.visible() == records(0, WRITTEN) | {b"later"}
    check_landed(pipeline.bucket, pipeline.kafka, recovered=True, complete=True, is_optional=pipeline.kafka.is_optional)


@pytest.mark.parametrize(("start", "end"), [(6, 8), (6, 99), (4, 5)])
def test_a_window_that_begins_in_an_open_transaction_is_landed_after_it_has_ended(start: int, end: int) -> None:
    """Until then the window's records cannot be read, and none of them counts as landed or owed."""
    pipeline = Pipeline()
    pipeline.land("first", start, end)
    assert pipeline.visible() <= records(0, READABLE)
    pipeline.kafka.commit_transaction(TOPIC, 0)
    last = min(end, WRITTEN)
    assert pipeline.land("again", start, end).status == "ok"
    assert records(start, last) <= pipeline.visible()
    check_landed(pipeline.bucket, pipeline.kafka, recovered=True, is_optional=pipeline.kafka.is_optional)


def test_a_window_that_begins_in_an_open_transaction_promises_nothing_past_its_beginning() -> None:
    """A run that lands above the transaction's beginning later finds no gap: all of it is landed."""
    pipeline = Pipeline()
    pipeline.land("below", 0, 3)
    assert pipeline.land("inside", 6, 8).target == Offsets({0: [(3, READABLE)]})
    pipeline.kafka.commit_transaction(TOPIC, 0)
    pipeline.kafka.append(TOPIC, 0, b"later", timestamp=100)
    pipeline.land("above", 100, 200)
    assert pipeline.visible() == records(0, WRITTEN) | {b"later"}
    check_landed(pipeline.bucket, pipeline.kafka, recovered=True, complete=True, is_optional=pipeline.kafka.is_optional)


def test_a_first_window_that_begins_in_an_open_transaction_begins_the_pipeline_before_it() -> None:
    """What cannot be read yet has an unknown end, so no later run leaves out any of it."""
    pipeline = Pipeline()
    assert pipeline.land("first", 6, 8).target == Offsets()
    pipeline.kafka.commit_transaction(TOPIC, 0)
    pipeline.kafka.append(TOPIC, 0, b"later", timestamp=100)
    pipeline.land("above", 100, 200)
    assert pipeline.visible() == records(READABLE, WRITTEN) | {b"later"}


def test_a_transaction_that_stays_open_is_a_warning_of_each_run_that_finds_nothing_new(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Every light is green otherwise: the runs end well, and there is no lag."""
    caplog.set_level(logging.INFO)
    pipeline = Pipeline()
    held = Offsets({0: [(READABLE, WRITTEN)]})
    first = pipeline.incremental("first")
    assert (first.status, first.held_back) == ("ok", held)
    assert [r.levelname for r in caplog.records if "open transaction" in r.getMessage()] == ["INFO"]
    caplog.clear()
    second = pipeline.incremental("second")
    assert (second.status, second.held_back) == ("empty", held)
    (warning,) = (r.getMessage() for r in caplog.records if r.levelname == "WARNING")
    assert "holds back 6 offsets of partition 0, from offset 4 on" in warning
    assert f"abort --topic {TOPIC} --partition 0 --start-offset 4" in warning
    assert "6 offsets behind open transactions" in summary([second])


def test_offsets_behind_an_open_transaction_are_in_the_status_and_in_the_log_of_the_lag(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Without a run."""
    pipeline = Pipeline()
    pipeline.incremental("first")
    log = Engine(pipeline.bucket, pipeline.kafka).log
    status = topic_status(log, pipeline.kafka)
    assert status is not None
    (partition,) = status.partitions
    assert (partition.log_end, partition.held_back, partition.lag) == (READABLE, WRITTEN - READABLE, 0)
    assert json.loads(json.dumps(status.to_json()))["partitions"][0]["held_back"] == 6
    assert lag(log, pipeline.kafka, "read_committed") == 0
    assert "holds back 6 offsets of partition 0" in caplog.text


@pytest.mark.parametrize("ended", [True, False])
def test_nothing_is_held_back_when_the_transaction_has_ended_or_is_ignored(
    ended: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """No line, and no offsets in the result."""
    caplog.set_level(logging.INFO)
    pipeline = Pipeline()
    if ended:
        pipeline.kafka.commit_transaction(TOPIC, 0)
    for run in ("first", "second"):
        result = pipeline.incremental(run, isolation="read_committed" if ended else "read_uncommitted")
        assert result.held_back == Offsets()
    assert "open transaction" not in caplog.text
