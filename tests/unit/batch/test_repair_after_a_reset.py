"""A marker that is built again continues with the new topic only after all batches of the old one."""

from __future__ import annotations

from airflow_provider_kafka_s3.documents import addresses
from airflow_provider_kafka_s3.documents.offsets import Offsets
from airflow_provider_kafka_s3.maintenance.repair import repair
from airflow_provider_kafka_s3.maintenance.reset import reset
from airflow_provider_kafka_s3.storage.memory import MemoryStore
from airflow_provider_kafka_s3.testing.kafka import SimulatedKafka
from tests.protocol.engine import CONTROL, TOPIC, TOPICS_DIR, Engine, check_landed, crash_after

ALL = Offsets({0: [(0, 6)]})


class Pipeline:
    """A topic that was landed, created again with as many records, and turned to; then the marker was lost.

    Attributes:
        bucket: as it is.
        decided: as it was when the batch of the old topic was decided, with what was written to the log since.
    """

    def __init__(self) -> None:
        self.kafka, self.bucket = SimulatedKafka(), MemoryStore()
        self.fill(b"old")
        crash_after("*.manifest.json", self.bucket, self.kafka, "first")
        self.decided = self.bucket.copy()
        Engine(self.bucket, self.kafka).run("first")
        self.fill(b"new")
        assert reset(Engine(self.bucket, self.kafka).committer, operator="me")
        for key in (addresses.plan_key(CONTROL, 2), addresses.manifest_key(CONTROL, 2)):
            stored = self.bucket.get(key)
            assert stored is not None
            self.decided.put_new(key, stored.body)
        for bucket in (self.bucket, self.decided):
            bucket.delete(addresses.marker_key(CONTROL))

    def fill(self, value: bytes) -> None:
        self.kafka.create_topic(TOPIC)
        for i in range(6):
            self.kafka.append(TOPIC, 0, b"%s %d" % (value, i), timestamp=0)


def landed(bucket: MemoryStore) -> set[bytes]:
    """The records that a reader of the bucket sees."""
    found = [bucket.get(info.key) for info in bucket.list(f"{TOPICS_DIR}/{TOPIC}/")]
    return {line for stored in found if stored is not None for line in stored.body.splitlines()}


def records(value: bytes) -> set[bytes]:
    """The records of a topic."""
    return {b"%s %d" % (value, i) for i in range(6)}


def test_a_batch_of_the_old_topic_that_is_open_again_never_counts_as_coverage_of_the_new_one() -> None:
    """Its objects went back to uploads with a restored bucket: they are completed, and the new topic is landed too."""
    pipeline = Pipeline()
    repaired = repair(Engine(pipeline.decided, pipeline.kafka).committer, start={})
    assert (repaired.marker.generation, sorted(repaired.open)) == (0, [1, 2])
    Engine(pipeline.decided, pipeline.kafka).run("next")
    assert landed(pipeline.decided) == records(b"old") | records(b"new")
    marker, _ = Engine(pipeline.decided, pipeline.kafka).log.require_marker()
    assert (marker.generation, marker.covered_in(0), marker.covered) == (1, ALL, ALL)
    check_landed(pipeline.decided, pipeline.kafka, recovered=True, complete=True)


def test_a_batch_of_the_old_topic_that_lost_its_decision_does_not_stop_the_new_one() -> None:
    """Its decision was deleted with the marker: the reset waits until it is decided, then runs land the new topic."""
    pipeline = Pipeline()
    pipeline.bucket.delete(addresses.manifest_key(CONTROL, 1))
    repaired = repair(Engine(pipeline.bucket, pipeline.kafka).committer, start={})
    assert (repaired.marker.generation, sorted(repaired.open)) == (0, [1, 2])
    assert Engine(pipeline.bucket, pipeline.kafka).run("next").status == "ok"
    assert records(b"new") <= landed(pipeline.bucket)
    marker, _ = Engine(pipeline.bucket, pipeline.kafka).log.require_marker()
    assert (marker.generation, marker.lost_in(0), marker.lost, marker.covered) == (1, ALL, Offsets(), ALL)
