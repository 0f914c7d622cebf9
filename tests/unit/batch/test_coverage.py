"""The search for the batches of a target: it accounts for all of the target, by batches of its generation, or fails."""

from __future__ import annotations

import pytest

from airflow_provider_kafka_s3.batch.coverage import covering_downward, covering_upward
from airflow_provider_kafka_s3.batch.log_index import disjoint
from airflow_provider_kafka_s3.documents.marker import Marker
from airflow_provider_kafka_s3.documents.offsets import Offsets
from airflow_provider_kafka_s3.exceptions import LogTamperedError
from airflow_provider_kafka_s3.maintenance.abandon import abandon
from airflow_provider_kafka_s3.maintenance.reset import reset
from airflow_provider_kafka_s3.storage.memory import MemoryStore
from airflow_provider_kafka_s3.testing.kafka import SimulatedKafka
from tests.protocol.engine import TOPIC, Engine, crash_after

TARGET = Offsets({0: [(0, 3)]})


class Topic:
    """A topic of one partition, of which each run lands three records more."""

    def __init__(self) -> None:
        self.kafka = SimulatedKafka()
        self.kafka.create_topic(TOPIC, 1)
        self.bucket = MemoryStore()
        self.runs = 0

    @property
    def engine(self) -> Engine:
        """A new process."""
        return Engine(self.bucket, self.kafka)

    def lands_three(self) -> None:
        """A batch of three records."""
        for _ in range(3):
            self.kafka.append(TOPIC, 0, b"x")
        self.runs += 1
        assert self.engine.run(f"run {self.runs}").status == "ok"


@pytest.fixture
def topic() -> Topic:
    """Batch 1 has offsets 0 to 2."""
    topic = Topic()
    topic.lands_three()
    return topic


@pytest.mark.parametrize("generation", [0, 1])
def test_offsets_are_found_in_the_batches_of_their_generation_alone(topic: Topic, generation: int) -> None:
    """A topic that was created again has the same offsets once more."""
    topic.kafka.create_topic(TOPIC, 1)
    reset(topic.engine.committer, operator="me")
    topic.lands_three()
    log = topic.engine.log
    marker, _ = log.require_marker()

    upward = covering_upward(log, TARGET, generation=generation, low=1, marker=marker)
    downward = covering_downward(log, TARGET, generation=generation, marker=marker)

    expected = {0: 1, 1: 3}[generation]
    assert [[one.plan.batch for one in found] for found in (upward, downward)] == [[expected], [expected]]


@pytest.mark.parametrize("upward", [True, False])
def test_offsets_of_an_abandoned_batch_are_found_in_the_one_that_landed_them(topic: Topic, upward: bool) -> None:
    """Both claim them; the first has released them."""
    for _ in range(3):
        topic.kafka.append(TOPIC, 0, b"x")
    crash_after("*.plan.json", topic.bucket, topic.kafka, "died")
    abandon(topic.engine.committer, 2, release="debt", reason="", operator="me")
    assert topic.engine.run("next").status == "ok"
    log = topic.engine.log
    marker, _ = log.require_marker()
    target = Offsets({0: [(3, 6)]})
    found = (
        covering_upward(log, target, generation=0, low=1, marker=marker)
        if upward
        else covering_downward(log, target, generation=0, marker=marker)
    )
    assert [one.plan.batch for one in found] == [3]


@pytest.mark.parametrize("upward", [True, False])
def test_a_target_that_no_batch_accounts_for_is_an_error_which_names_the_rest(topic: Topic, upward: bool) -> None:
    """The marker has it as landed, so documents are gone: a run that says ok would hide it."""
    log = topic.engine.log
    marker, _ = log.require_marker()
    target = Offsets({0: [(0, 5)]})
    search = (
        covering_upward(log, target, generation=0, low=1, marker=marker)
        if upward
        else covering_downward(log, target, generation=0, marker=marker)
    )

    with pytest.raises(LogTamperedError, match=r"has offsets 0: \[3, 5\) as landed, and no batch of the log covers"):
        list(search)


@pytest.mark.parametrize("largest_first", [True, False])
def test_an_index_of_batches_that_the_marker_has_not_resolved_is_not_used(topic: Topic, largest_first: bool) -> None:
    """A marker that was restored to an older version is behind the indexes that were written since."""
    log = topic.engine.log
    log.index_sizes = (10, 50)
    found = {range(1, 11): 5, range(11, 21): 7, range(1, 51): 9}

    def used(resolved: tuple[tuple[int, int], ...]) -> list[range]:
        marker = Marker(topic=TOPIC, cluster_id="c", topic_id="t", start={}, resolved=resolved)
        return list(disjoint(log, marker, found, largest_first=largest_first))

    assert used(((1, 15),)) == [range(1, 11)]
    assert used(((1, 5), (6, 25))) == [range(11, 21)]
