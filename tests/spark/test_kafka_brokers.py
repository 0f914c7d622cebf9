"""Brokers that stop, hang and restart while a topic is planned and read, with real brokers and real Spark."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from airflow_provider_kafka_s3.exceptions import KafkaUnavailableError
from airflow_provider_kafka_s3.kafka.source import KafkaSource
from airflow_provider_kafka_s3.retry import Retrier, RetryPolicy
from airflow_provider_kafka_s3.testing.invariants import read_source, snapshot
from dev.kafka_cluster import KafkaCluster
from dev.s3_server import ThreadedS3Server
from dev.waiting import wait_until
from tests.spark.paused_read import JSON, check, more_than_held, outcome_of, paused_read, values
from tests.spark.pipeline import MakePipeline, Pipeline
from tests.spark.probes import Gate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# pyspark leaves the socket for the rows of collect() open until it is garbage-collected.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

SOON = {
    "kafkaConsumer.pollTimeoutMs": "2000",
    "kafka.default.api.timeout.ms": "2000",
    "kafka.request.timeout.ms": "2000",
}


@pytest.fixture(scope="module")
def brokers() -> Iterator[KafkaCluster]:
    """Two brokers."""
    with KafkaCluster() as cluster:
        yield cluster


@pytest.fixture
def cluster(brokers: KafkaCluster) -> Iterator[KafkaCluster]:
    """Both of them running; restarted afterwards."""
    yield brokers
    brokers.revive()


def impatient(cluster: KafkaCluster) -> tuple[KafkaSource, list[str]]:
    """A source with a short time limit, and the list of its retries."""
    tried: list[str] = []
    retrier = Retrier(RetryPolicy(max_retries=2, base=0.01), on_retry=lambda details: tried.append(details.reason))
    return KafkaSource({"bootstrap.servers": cluster.bootstrap_servers}, timeout=1.0, retrier=retrier), tried


def refuses_to_plan(pipeline: Pipeline, cluster: KafkaCluster, topic: str) -> None:
    """A run is a transient error after a bounded number of tries, and writes nothing."""
    pipeline.source, tried = impatient(cluster)
    before = snapshot(pipeline.store.store)
    with pytest.raises(KafkaUnavailableError, match=f"(?=.*topic '{topic}').*(are down|are reachable|no response)"):
        pipeline.topic_run(topic, "later").advance()
    # At most two retries for each of the few requests of a plan, and for the one that fails.
    assert 2 <= len(tried) <= 8
    assert snapshot(pipeline.store.store) == before


def test_a_leader_that_stops_during_a_read_only_delays_it(
    spark: SparkSession, cluster: KafkaCluster, make_pipeline: MakePipeline
) -> None:
    """The other replica becomes the leader, and the same tasks continue with it: every record is landed once."""
    topic = cluster.create_replicated(f"led-{uuid.uuid4()}", [2, 1])
    cluster.produce(topic, sent := more_than_held(), enable_idempotence=True)
    gate = Gate(parts=0)
    with ThreadedS3Server(middleware=gate) as server:
        config = {"bootstrap.servers": cluster.bootstrap_servers}
        pipeline = make_pipeline(endpoint=server.endpoint, layout=JSON, kafka=config)
        pipeline.source = KafkaSource(config, timeout=4.0)
        with paused_read(pipeline, gate, spark, topic) as done:
            cluster.other.kill()
            wait_until(lambda: cluster.leader(topic) == 1, "another leader")
        assert outcome_of(done).status == "decided", done
        assert pipeline.lines() == values(sent)
        check(pipeline, topic, read_source(pipeline.source, topic))


@pytest.mark.newest_spark
def test_a_broker_that_stops_during_a_read_fails_it_soon_and_a_retry_lands_all(
    spark: SparkSession, cluster: KafkaCluster, make_pipeline: MakePipeline
) -> None:
    """The only replica is gone: transient, nothing is decided, and nothing can be planned until it answers again."""
    topic = cluster.create_replicated(f"alone-{uuid.uuid4()}", [2])
    cluster.produce(topic, sent := more_than_held(), enable_idempotence=True)
    gate = Gate(parts=0)
    with ThreadedS3Server(middleware=gate) as server:
        config = {"bootstrap.servers": cluster.bootstrap_servers}
        pipeline = make_pipeline(endpoint=server.endpoint, layout=JSON, kafka=config)
        pipeline.source = KafkaSource(config, timeout=4.0)
        with paused_read(pipeline, gate, spark, topic, **SOON) as done:
            cluster.other.kill()
            died = time.monotonic()
        outcome = outcome_of(done)
        assert outcome.kind == "spark_job", outcome
        # Four attempts at two seconds each; by default at a minute each.
        assert time.monotonic() - died < 200
        assert pipeline.decision(topic) is None
        assert pipeline.data_keys() == []

        refuses_to_plan(pipeline, cluster, topic)
        cluster.revive()
        wait_until(lambda: cluster.leader(topic) == 2, "the leader")
        with cluster.other.paused():
            refuses_to_plan(pipeline, cluster, topic)
        wait_until(lambda: cluster.leader(topic) == 2, "the leader")
        # A broker that wakes up may report itself as the leader before it is one again.
        pipeline.source = KafkaSource(config, timeout=4.0, retrier=Retrier(RetryPolicy(max_retries=20)))
        pipeline.land(spark, topic)
        assert pipeline.lines() == values(sent)
        check(pipeline, topic, read_source(pipeline.source, topic))
