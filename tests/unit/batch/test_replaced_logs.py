"""Logs that were truncated, and have grown past the landed offsets again before the next run."""

from __future__ import annotations

import re
from typing import Any

import pytest

from airflow_provider_kafka_s3.batch.roll_forward import roll_forward
from airflow_provider_kafka_s3.documents.offsets import Offsets
from airflow_provider_kafka_s3.exceptions import DataLossError, TransientError
from airflow_provider_kafka_s3.kafka.divergence import LogPosition
from airflow_provider_kafka_s3.storage.memory import MemoryStore
from airflow_provider_kafka_s3.testing.invariants import check_unchanged, snapshot
from airflow_provider_kafka_s3.testing.kafka import SimulatedKafka
from tests.protocol.engine import TOPIC, Engine, check_landed, crash_after


class Pipeline:
    """A bucket, and a cluster of which a leader loses records."""

    def __init__(self, **kafka: Any) -> None:
        self.kafka = SimulatedKafka(**kafka)
        self.kafka.create_topic(TOPIC, 2)
        self.bucket = MemoryStore()

    def records(self, word: str, count: int, partition: int = 0) -> None:
        """Append records."""
        for n in range(count):
            self.kafka.append(TOPIC, partition, f"{word}{n}".encode(), n)

    def replace(self, end: int, count: int, partition: int = 0) -> None:
        """An unclean election: what lies at ``end`` and above is lost, and ``count`` others are appended."""
        self.kafka.elect(TOPIC, partition, end=end)
        self.records("other", count, partition)

    @property
    def engine(self) -> Engine:
        """A new process."""
        return Engine(self.bucket, self.kafka)


@pytest.fixture
def pipeline() -> Pipeline:
    """Four records of each of two partitions are landed."""
    pipeline = Pipeline()
    pipeline.records("first", 4)
    pipeline.records("first", 4, partition=1)
    assert pipeline.engine.run("first").status == "ok"
    return pipeline


@pytest.mark.parametrize("count", [2, 5])
@pytest.mark.parametrize(
    ("offsets", "settings"), [("incremental", {}), ("data_interval", {"window": (0, 100)}), ("recover", {})]
)
def test_a_log_that_lost_landed_records_is_refused_however_long_it_is(
    pipeline: Pipeline, count: int, offsets: Any, settings: dict[str, Any]
) -> None:
    """Records at offsets that count as landed would never be; the error says from where on, and nothing is written."""
    pipeline.replace(2, count)
    before = snapshot(pipeline.bucket)
    with pytest.raises(DataLossError, match=r"partition 0 from offset 2 on.* up to 4\).*starting_offsets: \{0: 2\}$"):
        pipeline.engine.run("second", offsets, **settings)
    check_unchanged(before, snapshot(pipeline.bucket))


def test_elections_and_losses_above_the_landed_offsets_are_no_error(pipeline: Pipeline) -> None:
    """After restarts, clean elections, and losses of what no batch has claimed, all that is there is landed."""
    pipeline.kafka.elect(TOPIC, 0)
    assert pipeline.engine.run("nothing new").status == "empty"
    pipeline.records("second", 3)
    pipeline.replace(5, 4)
    pipeline.kafka.elect(TOPIC, 0)
    pipeline.kafka.elect(TOPIC, 1)
    pipeline.kafka.delete_records(TOPIC, 0, 3)
    assert pipeline.engine.run("second").status == "ok"
    check_landed(pipeline.bucket, pipeline.kafka, recovered=True, complete=True)
    marker, _ = pipeline.engine.log.require_marker()
    assert marker.reached == {0: LogPosition(9, 3), 1: LogPosition(4, 0)}


def test_a_loss_between_target_and_plan_is_seen(pipeline: Pipeline) -> None:
    """The epochs of a plan never hide what was lost since the run began: the repeated run plans nothing."""
    pipeline.records("second", 2)
    crash_after("*/runs/*.json", pipeline.bucket, pipeline.kafka, "second")
    pipeline.replace(3, 9)
    with pytest.raises(DataLossError, match="partition 0 from offset 3 on"):
        pipeline.engine.run("second")
    assert pipeline.engine.log.read_plan(2) is None


def test_an_open_batch_whose_offsets_were_replaced_is_planned_again(pipeline: Pipeline) -> None:
    """It is not executed, as a part of it may have been read; once it is abandoned, all that is there is landed."""
    pipeline.records("second", 4)
    crash_after("*.plan.json", pipeline.bucket, pipeline.kafka, "second")
    pipeline.replace(5, 6)
    for run in ("second", "third"):
        with pytest.raises(DataLossError, match=r"partition 0 from offset 5 on.*abandon .*--batch 2 ") as refused:
            pipeline.engine.run(run)
        assert "starting_offsets" not in str(refused.value)
    pipeline.engine.pipeline.abandon(2, release="debt", reason="replaced", operator="me")
    assert pipeline.engine.run("third").status == "ok"
    check_landed(pipeline.bucket, pipeline.kafka, recovered=True, complete=True)


def test_a_decided_batch_counts_before_the_marker_has_it(pipeline: Pipeline) -> None:
    """A log that lost records of a decided batch is refused, and the batch is completed by itself."""
    pipeline.records("second", 4)
    crash_after("*.manifest.json", pipeline.bucket, pipeline.kafka, "second")
    pipeline.replace(5, 6)
    with pytest.raises(DataLossError, match=r"partition 0 from offset 5 on.*recover .*--decided-only"):
        pipeline.engine.run("third")
    roll_forward(pipeline.engine.committer)
    with pytest.raises(DataLossError, match=r"partition 0 from offset 5 on.* up to 8\).*starting_offsets: \{0: 5\}$"):
        pipeline.engine.run("third")


def test_a_leader_of_an_older_epoch_is_not_trusted() -> None:
    """It may be one that is not the leader any more: transient, with what to do if the whole cluster is older."""
    pipeline = Pipeline(topic_ids=False)
    for _ in range(3):
        pipeline.kafka.elect(TOPIC, 0)
    pipeline.records("first", 4)
    pipeline.engine.run("first")
    pipeline.kafka.create_topic(TOPIC, 2)
    pipeline.records("other", 6)
    with pytest.raises(TransientError, match=re.escape("partition 0: the leader has epoch 0, and offsets below 4")):
        pipeline.engine.run("second")


def test_brokers_without_epochs_are_served_as_before() -> None:
    """Plans have none then; a log is refused if it is shorter, and only then."""
    pipeline = Pipeline(leader_epochs=False)
    pipeline.records("first", 4)
    pipeline.engine.run("first")
    pipeline.replace(2, 1)
    with pytest.raises(DataLossError, match="ends before its landed offsets"):
        pipeline.engine.run("second")
    pipeline.records("other", 2)
    assert pipeline.engine.run("second").status == "ok"
    assert pipeline.engine.log.require_plan(2)[0].epochs == {}
    assert pipeline.engine.log.require_marker()[0].reached == {}


def test_a_pipeline_goes_on_with_plans_and_markers_without_epochs(pipeline: Pipeline) -> None:
    """Those of earlier versions: the next batch records the epochs."""
    other = Pipeline(leader_epochs=False)
    other.records("first", 4)
    other.engine.run("first")
    other.kafka._leader_epochs = True
    other.kafka.elect(TOPIC, 0)
    other.records("second", 2)
    assert other.engine.run("second").status == "ok"
    other.replace(5, 7)
    with pytest.raises(DataLossError, match="partition 0 from offset 5 on"):
        other.engine.run("third")


def test_a_marker_that_is_built_again_has_the_epochs(pipeline: Pipeline) -> None:
    """They come from the plans; a marker without them is not the fold of the log."""
    pipeline.kafka.elect(TOPIC, 0)
    pipeline.records("second", 2)
    pipeline.engine.run("second")
    engine = pipeline.engine
    marker, _ = engine.log.require_marker()
    assert marker.reached == {0: LogPosition(6, 1), 1: LogPosition(4, 0)}
    pipeline.bucket.delete(f"{engine.log.prefix}marker.json")
    assert engine.pipeline.repair(start={}).written
    assert engine.log.require_marker()[0].reached == marker.reached


def test_a_reset_forgets_the_epochs_of_the_topic_before_it(pipeline: Pipeline) -> None:
    """The epochs of another topic begin at 0 again."""
    for _ in range(3):
        pipeline.kafka.elect(TOPIC, 0)
    pipeline.records("second", 2)
    pipeline.engine.run("second")
    pipeline.kafka.create_topic(TOPIC, 2)
    pipeline.records("new", 3)
    assert pipeline.engine.pipeline.reset(operator="me")
    assert pipeline.engine.run("third").status == "ok"
    assert pipeline.engine.log.require_marker()[0].reached == {0: LogPosition(3, 0)}


def test_a_batch_that_only_skips_has_the_epoch_of_its_end() -> None:
    """Offsets that retention deleted are claimed, too."""
    pipeline = Pipeline()
    pipeline.records("first", 4)
    pipeline.kafka.delete_records(TOPIC, 0, 4)
    result = pipeline.engine.run("first", "data_interval", window={0: (0, 4)}, on_data_loss="skip")
    assert result.skipped == Offsets({0: [(0, 4)]})
    assert pipeline.engine.log.require_plan(1)[0].epochs == {0: 0}
