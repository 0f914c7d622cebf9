"""The incarnation of a batch, if brokers had no topic ids when it was planned, and on another cluster."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_kafka_s3.documents.offsets import Offsets
from airflow_provider_kafka_s3.exceptions import (
    BatchLossError,
    ConfigurationError,
    KafkaUnavailableError,
    TopicRecreatedError,
    TransientError,
)
from airflow_provider_kafka_s3.maintenance.accept_loss import accept_gone
from airflow_provider_kafka_s3.maintenance.reset import reset
from airflow_provider_kafka_s3.storage.memory import MemoryStore
from airflow_provider_kafka_s3.testing.kafka import SimulatedKafka
from airflow_provider_kafka_s3.testing.stores import Fault, FaultyStore, SimulatedCrash
from tests.protocol.engine import TOPIC, Engine, check_landed


class Pipeline:
    """A bucket, and a cluster whose brokers have no topic ids until they are upgraded."""

    def __init__(self, **kafka: Any) -> None:
        self.kafka = SimulatedKafka(**{"topic_ids": False, **kafka})
        self.kafka.create_topic(TOPIC, 2)
        self.bucket = MemoryStore()

    def records(self, word: str, count: int, partition: int = 0) -> None:
        for n in range(count):
            self.kafka.append(TOPIC, partition, f"{word}{n}".encode(), 0)

    def engine(self, store: Any = None) -> Engine:
        return Engine(store or self.bucket, self.kafka)

    def decides_and_dies(self, run: str) -> None:
        store = FaultyStore(self.bucket)
        store.inject(Fault.CRASH_AFTER, operation="put_new", key="*.manifest.json")
        with pytest.raises(SimulatedCrash):
            self.engine(store).run(run)

    def objects(self) -> list[bytes]:
        found = (self.bucket.get(info.key) for info in self.bucket.list("") if "_kafka_s3" not in info.key)
        return [stored.body for stored in found if stored is not None]


@pytest.fixture
def adopted() -> Pipeline:
    """Batch 1 is decided without a topic id; after an upgrade of the brokers batch 2 brought the id into the log."""
    pipeline = Pipeline()
    pipeline.records("old", 4)
    pipeline.decides_and_dies("first")
    pipeline.kafka.upgrade()
    pipeline.records("new", 4, partition=1)
    assert pipeline.engine().run("second", "data_interval", window={1: (0, 4)}).status == "ok"
    return pipeline


def test_a_batch_from_before_the_upgrade_is_never_rebuilt_from_a_topic_that_was_created_again(
    adopted: Pipeline,
) -> None:
    """The log has the id by now, so equal offsets of another topic are not taken for its records."""
    adopted.bucket.expire_uploads()
    adopted.kafka.create_topic(TOPIC, 2)
    adopted.records("bad", 4)
    with pytest.raises(TopicRecreatedError):
        adopted.engine().run("third")
    assert not any(b"bad" in body for body in adopted.objects())
    assert not adopted.engine().log.require_marker()[0].is_resolved(1)


def test_a_deleted_object_from_before_the_upgrade_is_never_restored_from_a_topic_that_was_created_again() -> None:
    """Neither by ``restore``, whose run has a record."""
    pipeline = Pipeline()
    pipeline.records("old", 2)
    assert pipeline.engine().run("first").status == "ok"
    pipeline.kafka.upgrade()
    pipeline.records("new", 2, partition=1)
    pipeline.engine().run("second")
    (gone,) = (info.key for info in pipeline.bucket.list("topics/events/") if "+0+" in info.key)
    pipeline.bucket.delete(gone)
    pipeline.kafka.create_topic(TOPIC, 2)
    pipeline.records("bad", 2)
    with pytest.raises(BatchLossError):
        pipeline.engine().run("first", action="restore")
    assert pipeline.bucket.head(gone) is None


def test_a_gap_is_accepted_only_after_an_open_reset_is_complete() -> None:
    """Nothing is planned past the barrier: the offsets are those of the new topic, or refused."""
    pipeline = Pipeline(topic_ids=True)
    pipeline.records("old", 4)
    pipeline.engine().run("first")
    pipeline.kafka.create_topic(TOPIC, 2)
    pipeline.records("new", 6)
    store = FaultyStore(pipeline.bucket)
    store.inject(Fault.CRASH_AFTER, operation="put_new", key="*02.plan.json")
    with pytest.raises(SimulatedCrash):
        reset(pipeline.engine(store).committer, operator="me")
    pipeline.kafka.delete_records(TOPIC, 0, 3)
    committer = pipeline.engine().committer
    assert accept_gone(committer, Offsets({0: [(0, 3)]}), reason="", operator="") == Offsets({0: [(0, 3)]})
    pipeline.engine().run("second")
    check_landed(pipeline.bucket, pipeline.kafka, recovered=True)
    assert pipeline.engine().log.require_marker()[0].generation == 1


def test_another_cluster_is_named_and_its_topic_is_not_taken_for_a_recreated_one() -> None:
    """A reset would land the whole topic again; the connection is wrong."""
    pipeline = Pipeline(topic_ids=True)
    pipeline.records("old", 2)
    pipeline.engine().run("first")
    pipeline.kafka = SimulatedKafka(cluster_id="another")
    pipeline.kafka.create_topic(TOPIC, 2)
    with pytest.raises(
        ConfigurationError,
        match=r"landed from another Kafka cluster, 'simulated': the Kafka connection leads to 'another",
    ):
        pipeline.engine().run("second")


def test_a_topic_id_of_another_cluster_is_not_recorded() -> None:
    """The right one would count as created again from then on."""
    pipeline = Pipeline()
    pipeline.records("old", 2)
    pipeline.engine().run("first")
    right, pipeline.kafka = pipeline.kafka, SimulatedKafka(cluster_id="another")
    pipeline.kafka.create_topic(TOPIC, 2)
    pipeline.records("bad", 4)
    with pytest.raises(ConfigurationError, match="another Kafka cluster"):
        pipeline.engine().run("second")
    pipeline.kafka = right
    right.upgrade()
    pipeline.records("new", 2)
    assert pipeline.engine().run("third").status == "ok"


def test_brokers_that_report_no_ids_any_more_are_a_transient_error() -> None:
    """For example during an upgrade: nothing shows that the topic was created again."""
    pipeline = Pipeline(topic_ids=True)
    pipeline.records("old", 2)
    pipeline.engine().run("first")
    pipeline.kafka._topic_ids = False
    with pytest.raises(TransientError, match="the brokers report no id of topic"):
        pipeline.engine().run("second")


def test_decided_batches_are_completed_while_kafka_does_not_answer() -> None:
    """They need no Kafka, and their uploads expire."""
    pipeline = Pipeline(topic_ids=True)
    pipeline.records("old", 2)
    pipeline.decides_and_dies("first")

    def silent(operation: str) -> None:
        raise KafkaUnavailableError("the brokers do not answer")

    pipeline.kafka._before_request = silent
    with pytest.raises(KafkaUnavailableError) as failed:
        pipeline.engine().run("second")
    assert "batches [1] were decided before and are completed now" in failed.value.__notes__[0]
    assert pipeline.engine().log.require_marker()[0].is_resolved(1)
