"""Objects are built again from the incarnation of the topic that was planned, never from another one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from airflow_provider_kafka_s3.exceptions import BatchLossError
from airflow_provider_kafka_s3.storage.memory import MemoryStore
from airflow_provider_kafka_s3.testing.kafka import SimulatedKafka
from tests.protocol.engine import TOPIC, TOPICS_DIR, Engine, crash_after


class Pipeline:
    """A decided batch of three records whose upload expired; ``before`` is called before every request to Kafka."""

    def __init__(self, before: Callable[[Pipeline, str], None]) -> None:
        self.operations: list[str] = []
        self.kafka = SimulatedKafka(before_request=self._before_request)
        self._before: Callable[[Pipeline, str], None] = lambda pipeline, operation: None
        self.create(b"old", 3)
        self.bucket = MemoryStore()
        crash_after("*.manifest.json", self.bucket, self.kafka, "died")
        self.bucket.expire_uploads()
        self.operations.clear()
        self._before = before

    def _before_request(self, operation: str) -> None:
        self.operations.append(operation)
        self._before(self, operation)

    def create(self, value: bytes, count: int) -> None:
        """Create the topic, or delete it and create it again."""
        self.kafka.create_topic(TOPIC)
        for i in range(count):
            self.kafka.append(TOPIC, 0, b"%s %d" % (value, i), timestamp=0)

    def complete(self) -> None:
        """Apply the decision."""
        engine = Engine(self.bucket, self.kafka)
        decision = engine.log.read_manifest(1)
        assert decision is not None
        engine.committer.carry_out(engine.log.require_plan(1)[0], decision)

    def visible(self) -> list[str]:
        return [info.key for info in self.bucket.list(f"{TOPICS_DIR}/{TOPIC}/")]

    def is_resolved(self) -> bool:
        return Engine(self.bucket, self.kafka).log.require_marker()[0].is_resolved(1)


def recreated_during_the_read(pipeline: Pipeline, operation: str) -> None:
    """Between the check of the topic id and the read: the same offsets, the same sizes, other records."""
    if operation == "poll" and pipeline.operations.count("poll") == 1:
        pipeline.create(b"new", 3)


def test_records_of_a_topic_that_was_created_again_during_the_read_never_become_visible() -> None:
    """Offsets and sizes are those of the lost object, so neither digest nor length shows it."""
    pipeline = Pipeline(recreated_during_the_read)
    with pytest.raises(BatchLossError, match="was deleted and created again"):
        pipeline.complete()
    assert "poll" in pipeline.operations
    assert pipeline.visible() == []
    assert not pipeline.is_resolved()


@pytest.mark.parametrize("count", [3, 1], ids=["as-long", "shorter"])
def test_a_topic_that_was_created_again_is_not_read_but_named_as_the_cause(count: int) -> None:
    """Not as a log that retention or an election has cut: only a reset helps here."""
    pipeline = Pipeline(lambda pipeline, operation: None)
    pipeline.create(b"new", count)
    with pytest.raises(BatchLossError, match="was deleted and created again"):
        pipeline.complete()
    assert "poll" not in pipeline.operations
    assert pipeline.visible() == []
    assert not pipeline.is_resolved()
