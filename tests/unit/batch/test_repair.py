"""An older version of the marker is restored: runs continue from it, and `repair` moves it forward."""

from __future__ import annotations

import msgspec
import pytest

from airflow_provider_kafka_s3.documents import addresses
from airflow_provider_kafka_s3.documents.codec import encode, write_stamp
from airflow_provider_kafka_s3.documents.marker import Marker
from airflow_provider_kafka_s3.documents.offsets import Offsets
from airflow_provider_kafka_s3.exceptions import LogTamperedError
from airflow_provider_kafka_s3.maintenance import recover as recovery
from airflow_provider_kafka_s3.maintenance.abandon import abandon
from airflow_provider_kafka_s3.maintenance.repair import repair
from airflow_provider_kafka_s3.maintenance.reset import reset
from airflow_provider_kafka_s3.storage.memory import MemoryStore
from airflow_provider_kafka_s3.testing.kafka import SimulatedKafka
from tests.protocol.engine import CONTROL, TOPIC, Engine, check_landed, crash_after

MARKER = addresses.marker_key(CONTROL)


class Pipeline:
    """A bucket with versions of the marker, and a cluster."""

    def __init__(self) -> None:
        self.kafka = SimulatedKafka()
        self.kafka.create_topic(TOPIC)
        self.bucket = MemoryStore()

    @property
    def engine(self) -> Engine:
        """A new process."""
        return Engine(self.bucket, self.kafka)

    @property
    def marker(self) -> Marker:
        """The stored marker."""
        return self.engine.log.require_marker()[0]

    def records(self, count: int) -> None:
        for _ in range(count):
            self.kafka.append(TOPIC, 0, b"%d" % self.kafka.bounds(TOPIC, 0)[1], 0)

    def lands(self, run: str) -> None:
        self.records(4)
        assert self.engine.run(run).status == "ok"

    def dies(self, run: str, document: str) -> None:
        self.records(4)
        crash_after(document, self.bucket, self.kafka, run)

    def puts_back(self, marker: Marker) -> None:
        self.bucket.delete(MARKER)
        self.bucket.put_new(MARKER, encode(marker, write_stamp()))

    def check(self) -> None:
        self.engine.run("afterwards")
        check_landed(self.bucket, self.kafka, recovered=True, complete=True)


def replanned() -> tuple[Pipeline, Marker]:
    """Batch 2 was abandoned, batch 3 landed its offsets; with the marker from before."""
    pipeline = Pipeline()
    pipeline.lands("first")
    older = pipeline.marker
    pipeline.dies("second", "*02.plan.json")
    abandon(pipeline.engine.committer, 2, release="debt", reason="", operator="")
    pipeline.lands("third")
    return pipeline, older


def test_a_marker_from_before_an_abandoned_batch_was_landed_again_is_valid() -> None:
    """The run of that batch is repeated, resolves its own batch first, and every later view has both."""
    pipeline, older = replanned()
    newest = pipeline.marker
    pipeline.puts_back(older)
    assert pipeline.engine.run("third").status == "ok"
    assert pipeline.marker.resolved == ((1, 2), (3, 4))
    assert list(pipeline.engine.log.view().open_plans) == [2]
    pipeline.lands("fourth")
    recovery.roll_forward(pipeline.engine.committer)
    assert pipeline.marker.covered == newest.covered | Offsets({0: [(12, 16)]})
    assert pipeline.marker.debt == newest.debt == Offsets()
    pipeline.check()


@pytest.mark.parametrize("tried_again", [False, True])
def test_repair_moves_an_older_marker_forward_to_the_fold_of_the_log(*, tried_again: bool) -> None:
    """Its complete batches stay complete; later decided ones are folded in, if all their objects exist."""
    pipeline, older = replanned()
    newest = pipeline.marker
    pipeline.puts_back(older)
    if tried_again:
        pipeline.engine.run("third")
    done = repair(pipeline.engine.committer, start={})
    assert (done.was, done.open, done.written) == ("wrong", {}, True)
    assert pipeline.marker == newest
    assert repair(pipeline.engine.committer, start={}).was == "right"
    pipeline.check()


def test_a_batch_that_claims_what_others_landed_is_still_refused() -> None:
    """Only one that was abandoned for debt may. Completing another would land records twice."""
    pipeline, older = replanned()
    pipeline.puts_back(older)
    pipeline.engine.run("third")
    pipeline.bucket.delete(addresses.manifest_key(CONTROL, 2))
    with pytest.raises(LogTamperedError, match="landed by other batches"):
        pipeline.engine.log.view()


def test_repair_folds_a_reset_that_is_complete() -> None:
    """With all offsets landed before and since."""
    pipeline = Pipeline()
    pipeline.lands("first")
    older = pipeline.marker
    pipeline.kafka.create_topic(TOPIC)
    pipeline.records(3)
    reset(pipeline.engine.committer, operator="")
    pipeline.engine.run("second")
    newest = pipeline.marker
    pipeline.puts_back(older)
    assert repair(pipeline.engine.committer, start={}).open == {}
    assert pipeline.marker == newest
    pipeline.check()


def test_repair_folds_no_reset_over_a_batch_that_is_open() -> None:
    """Its objects are absent: after the reset no run would complete them."""
    pipeline = Pipeline()
    pipeline.lands("first")
    older = pipeline.marker
    pipeline.dies("second", "*02.manifest.json")
    pipeline.kafka.create_topic(TOPIC)
    pipeline.records(3)
    reset(pipeline.engine.committer, operator="")
    pipeline.engine.run("third")
    newest = pipeline.marker
    for info in list(pipeline.bucket.list(f"topics/{TOPIC}/")):
        if info.key.endswith("+0000000004.bin"):
            pipeline.bucket.delete(info.key)
    pipeline.puts_back(older)
    done = repair(pipeline.engine.committer, start={})
    assert (done.was, done.written) == ("right", False)
    assert done.open[2].startswith("absent: ")
    assert {n: why for n, why in done.open.items() if n > 2} == {
        3: "not complete below the reset: 1 batch, 2",
        4: "it follows a reset that is not complete",
    }
    assert pipeline.marker == older
    # Markers that no run can have written are refused.
    pipeline.puts_back(msgspec.structs.replace(newest, resolved=((1, 2), (3, 5))))
    with pytest.raises(LogTamperedError, match=r"has the reset 3 .* as resolved, but not batches \[2\] before it"):
        repair(pipeline.engine.committer, start={})
    pipeline.puts_back(msgspec.structs.replace(older, resolved=((1, 2), (4, 5))))
    with pytest.raises(LogTamperedError, match=r"batch 4 .* is of generation 1, the marker of generation 0"):
        repair(pipeline.engine.committer, start={})
