"""Accepting losses records only lost objects, not those that another installation or cluster can provide."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from airflow_provider_kafka_s3.batch.rebuild import BuildObjects, BuiltObject, ReadSlice
from airflow_provider_kafka_s3.documents.manifest import ObjectEntry
from airflow_provider_kafka_s3.documents.plan import Plan
from airflow_provider_kafka_s3.exceptions import BatchLossError, ConfigurationError
from airflow_provider_kafka_s3.maintenance.accept_loss import accept_loss
from airflow_provider_kafka_s3.storage.durable import DurableStore
from airflow_provider_kafka_s3.storage.memory import MemoryStore
from airflow_provider_kafka_s3.testing.kafka import SimulatedKafka
from tests.protocol.engine import TOPIC, Engine, builder, check_landed, crash_after


class Pipeline:
    """A decided batch of six records in two slices, whose uploads have expired."""

    def __init__(self) -> None:
        self.kafka = SimulatedKafka(cluster_id="production")
        self.kafka.create_topic(TOPIC)
        for i in range(6):
            self.kafka.append(TOPIC, 0, b"%d" % i, timestamp=0)
        self.bucket = MemoryStore()
        crash_after("*.manifest.json", self.bucket, self.kafka, "died")
        self.bucket.expire_uploads()

    def accept(self, engine: Engine, *, other_cluster: bool = False) -> tuple[str, ...]:
        return accept_loss(engine.committer, 1, reason="", operator="me", other_cluster=other_cluster)

    def amends(self) -> list[str]:
        return [info.key for info in self.bucket.list("") if ".amend." in info.key]

    def is_resolved(self) -> bool:
        return Engine(self.bucket, self.kafka).log.require_marker()[0].is_resolved(1)


@pytest.fixture
def pipeline() -> Pipeline:
    """A decided batch whose uploads have expired."""
    return Pipeline()


def other_compressor(store: DurableStore) -> BuildObjects:
    """The same records, other bytes."""
    build = builder(store)

    def longer(plan: Plan, entries: Sequence[ObjectEntry], read: ReadSlice) -> dict[str, BuiltObject]:
        built = dict(build(plan, entries, read))
        for one in built.values():
            one.lines.body += b"x"  # type: ignore[attr-defined]
        return built

    return longer


@pytest.mark.parametrize("before", [0, 3], ids=["all", "with-a-loss"])
def test_what_another_installation_can_write_is_not_accepted_as_lost(pipeline: Pipeline, before: int) -> None:
    """Kafka has the records. Nothing is recorded, not even lost ones; the right installation writes all of them."""
    pipeline.kafka.delete_records(TOPIC, 0, before)
    with pytest.raises(
        BatchLossError, match=r"Nothing was recorded.*install the versions that planned the batch \(.*isal"
    ):
        pipeline.accept(Engine(pipeline.bucket, pipeline.kafka, build=other_compressor))
    assert (pipeline.amends(), pipeline.is_resolved()) == ([], False)
    lost = pipeline.accept(Engine(pipeline.bucket, pipeline.kafka))
    assert (len(lost), len(pipeline.amends()), pipeline.is_resolved()) == ((1, 1, True) if before else (0, 0, True))
    check_landed(pipeline.bucket, pipeline.kafka, recovered=True)


def test_a_run_does_not_suggest_to_accept_what_another_installation_can_write(pipeline: Pipeline) -> None:
    """The error names what to install, and no command that would be refused."""
    with pytest.raises(BatchLossError, match="install the versions that planned the batch") as caught:
        Engine(pipeline.bucket, pipeline.kafka, build=other_compressor).run("next")
    assert "accept-loss" not in str(caught.value)


def empty(kafka: SimulatedKafka) -> None:
    """A cluster without the topic."""


def recreated(kafka: SimulatedKafka) -> None:
    """A cluster with a topic of this name."""
    kafka.create_topic(TOPIC)
    for _ in range(6):
        kafka.append(TOPIC, 0, b"other", timestamp=0)


OTHER = pytest.mark.parametrize("has", [empty, recreated])


@OTHER
def test_what_another_cluster_does_not_have_is_not_accepted_as_lost(
    pipeline: Pipeline, has: Callable[[SimulatedKafka], None]
) -> None:
    """The connection is wrong: the error names both clusters, nothing is recorded, and nothing was lost."""
    other = SimulatedKafka(cluster_id="staging")
    has(other)
    with pytest.raises(
        ConfigurationError, match=r"from another Kafka cluster, 'production'.*leads to 'staging'.*Nothing was recorded"
    ):
        pipeline.accept(Engine(pipeline.bucket, other))
    assert (pipeline.amends(), pipeline.is_resolved()) == ([], False)
    assert pipeline.accept(Engine(pipeline.bucket, pipeline.kafka)) == ()
    check_landed(pipeline.bucket, pipeline.kafka, recovered=True, complete=True)


@OTHER
def test_losses_can_be_accepted_for_a_cluster_that_no_longer_exists(
    pipeline: Pipeline, has: Callable[[SimulatedKafka], None]
) -> None:
    """Otherwise a batch of a cluster that was shut down could never be ended."""
    other = SimulatedKafka(cluster_id="staging")
    has(other)
    assert len(pipeline.accept(Engine(pipeline.bucket, other), other_cluster=True)) == 2
    assert (len(pipeline.amends()), pipeline.is_resolved()) == (1, True)


def test_a_topic_that_is_gone_from_its_own_cluster_is_lost(pipeline: Pipeline) -> None:
    """Nothing but the cluster's name has to be compared."""
    pipeline.kafka.delete_topic(TOPIC)
    assert len(pipeline.accept(Engine(pipeline.bucket, pipeline.kafka))) == 2
    assert pipeline.is_resolved()
