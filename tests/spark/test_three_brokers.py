"""A cluster of three brokers, each a controller, too: leaders that die, move and lose records, with real Spark."""

from __future__ import annotations

import json
import re
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_kafka_s3.config import Envelope, JsonLines, Layout
from airflow_provider_kafka_s3.exceptions import BatchLossError, DataLossError, KafkaUnavailableError
from airflow_provider_kafka_s3.kafka.source import KafkaSource
from airflow_provider_kafka_s3.parallel import in_threads
from airflow_provider_kafka_s3.replay.request import ReplayRequest
from airflow_provider_kafka_s3.replay.run import replay
from airflow_provider_kafka_s3.testing.invariants import read_source
from dev.kafka_broker import KAFKA_JARS, Message
from dev.kafka_cluster import ThreeBrokers
from dev.s3_server import S3Server, ThreadedS3Server
from dev.waiting import wait_until
from tests.spark.paused_read import JSON, check, more_than_held, outcome_of, paused_read, values
from tests.spark.pipeline import Pipeline
from tests.spark.probes import Gate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# pyspark leaves the socket for the rows of collect() open until it is garbage-collected.
pytestmark = [pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")]

ENVELOPES = Layout(format=JsonLines(), content=Envelope())
SOON = 60
"""Seconds within which an error has to come that takes 20 to 30 on quiet processors."""


@pytest.fixture(scope="module")
def brokers() -> Iterator[ThreeBrokers]:
    """Three brokers."""
    with ThreeBrokers() as cluster:
        yield cluster


@pytest.fixture
def cluster(brokers: ThreeBrokers) -> Iterator[ThreeBrokers]:
    """All of them running; restarted afterwards."""
    yield brokers
    brokers.revive()


class Landed:
    """A topic of three partitions, each led by another broker, and its pipeline."""

    def __init__(self, cluster: ThreeBrokers, server: S3Server, spark: SparkSession | None = None) -> None:
        self.cluster = cluster
        self.spark = spark
        self.topic = cluster.create_rotated(f"orders-{uuid.uuid4()}")
        self.pipeline = Pipeline(
            kafka={"bootstrap.servers": cluster.bootstrap_servers}, endpoint=server.endpoint, layout=ENVELOPES
        )
        self.place = self.pipeline.location(self.topic)
        self.sent: Counter[bytes] = Counter()

    def produce(self, word: str) -> None:
        """A committed transaction, and an aborted one, of records of each partition."""
        for commit in (True, False):
            label = word if commit else f"not-{word}"
            some = [Message(b'{"%s": %d}' % (label.encode(), n), partition=n % 3) for n in range(30)]
            self.cluster.produce_transaction(self.topic, some, commit=commit)
            if commit:
                self.sent.update(m.value for m in some if m.value is not None)

    def land(self, run: str, **kafka: Any) -> None:
        """A run by Spark, or without it, to its end; as a new process."""
        self.pipeline.kafka = {"bootstrap.servers": self.cluster.bootstrap_servers, **kafka}
        self.pipeline.source = KafkaSource(self.pipeline.kafka)
        if self.spark is None:
            self.pipeline.land_here(self.topic, run)
        else:
            self.pipeline.land(self.spark, self.topic, run=run)

    def look_back(self, action: str, run: str) -> Any:
        """``verify`` or ``restore`` of all records, by a window of time."""
        self.pipeline.source = KafkaSource(self.pipeline.kafka)
        self.pipeline.settings = {"action": action, "offsets": "data_interval", "window": (0, 2**42)}
        try:
            return self.pipeline.topic_run(self.topic, run).advance()
        finally:
            self.pipeline.settings = {}

    def lose_an_object(self) -> str:
        """Delete an object, as a user may."""
        key = self.pipeline.data_keys()[0]
        self.pipeline.client.delete_object(Bucket=self.pipeline.bucket, Key=key)
        return key

    def replay(self, target: str) -> Any:
        """All landed records into a topic."""
        return replay(self.place, self.pipeline.kafka, ReplayRequest(replay=target, target=target))

    def check(self) -> None:
        """Each record of a committed transaction is landed once, and no other."""
        found = Counter(
            json.dumps(json.loads(line)["value"]).encode()
            for body in self.pipeline.bodies().values()
            for line in body.splitlines()
        )
        assert found == self.sent

    def close(self) -> None:
        """Close connections."""
        self.pipeline.close()


@pytest.fixture
def orders(spark: SparkSession, cluster: ThreeBrokers, s3_server: S3Server) -> Iterator[Landed]:
    """The topic, landed by Spark."""
    landed = Landed(cluster, s3_server, spark)
    yield landed
    landed.close()


def test_leaders_that_die_one_after_the_other_cost_no_record(orders: Landed, cluster: ThreeBrokers) -> None:
    """A rolling kill: while each broker is down, records are produced, landed, looked at, restored and replayed."""
    target = cluster.create_rotated(f"replayed-{uuid.uuid4()}")
    for down in (1, 2, 3):
        orders.produce(f"before-{down}")
        cluster.kill(down)
        orders.produce(f"without-{down}")
        orders.land(f"run-{down}")
        assert orders.look_back("verify", f"verify-{down}").status == "ok"
        gone = orders.lose_an_object()
        assert orders.look_back("restore", f"restore-{down}").verification.restored == (gone,)
        if down == 2:
            orders.replay(target)
        cluster.revive()
        wait_until(lambda: all(cluster.in_sync(orders.topic, p) == {1, 2, 3} for p in range(3)), "all replicas")
    orders.check()
    replayed = read_source(KafkaSource(orders.pipeline.kafka), target)
    first_two = Counter(v for p in next(iter(replayed.values())).values() for v in p.values() if v is not None)
    assert first_two == Counter({v: n for v, n in orders.sent.items() if b"-3" not in v})


def test_a_leader_that_dies_while_spark_reads_it_only_delays_the_read(
    spark: SparkSession, cluster: ThreeBrokers
) -> None:
    """One of the two others becomes the leader, and the same tasks continue with it: every record is landed once."""
    topic = cluster.create_replicated(f"led-{uuid.uuid4()}", [3, 1, 2])
    cluster.produce(topic, sent := more_than_held(), enable_idempotence=True)
    gate = Gate(parts=0)
    with ThreadedS3Server(middleware=gate) as server:
        config = {"bootstrap.servers": cluster.bootstrap_servers}
        pipeline = Pipeline(endpoint=server.endpoint, layout=JSON, kafka=config)
        with paused_read(pipeline, gate, spark, topic) as done:
            cluster.kill(3)
            wait_until(lambda: cluster.leader(topic) in (1, 2), "another leader")
        assert outcome_of(done).status == "decided", done
        assert pipeline.lines() == values(sent)
        check(pipeline, topic, read_source(pipeline.source, topic))
        pipeline.close()


def test_one_of_three_bootstrap_servers_is_enough(orders: Landed, cluster: ThreeBrokers) -> None:
    """Two of the addresses lead nowhere, and another broker is down."""
    orders.produce("first")
    cluster.kill(1)
    wait_until(lambda: all(cluster.leader(orders.topic, p) != 1 for p in range(3)), "other leaders")
    alive = cluster.nodes[2].bootstrap_servers
    orders.land("run", **{"bootstrap.servers": f"127.0.0.1:1,{alive},127.0.0.1:2"})
    orders.check()


def test_partitions_may_move_to_other_brokers_between_runs(orders: Landed, cluster: ThreeBrokers) -> None:
    """With other leaders and other replicas the log is the same: nothing is refused, and nothing landed twice."""
    orders.produce("first")
    orders.land("first")
    orders.produce("second")
    cluster.reassign(orders.topic, {p: [1 + (p + 1) % 3] for p in range(3)}, KAFKA_JARS)
    orders.land("second")
    gone = orders.lose_an_object()
    assert orders.look_back("restore", "restore").verification.restored == (gone,)
    orders.check()


def test_two_of_three_brokers_down_are_an_error_soon(orders: Landed, cluster: ThreeBrokers) -> None:
    """Planning, looking back by time, restoring, and a replay: transient, nothing is decided, and all go on later."""
    target = cluster.create_rotated(f"replayed-{uuid.uuid4()}")
    orders.produce("first")
    orders.land("first")
    orders.produce("second")
    gone = orders.lose_an_object()
    cluster.kill(1, 2)

    def restore(run: str) -> Any:
        return orders.pipeline.topic_pipeline(orders.topic).run(request).advance()

    orders.pipeline.settings = {"action": "restore"}
    request = orders.pipeline.topic_run(orders.topic, "restore").request
    orders.pipeline.settings = {}
    ways: list[Callable[[], Any]] = [
        lambda: orders.pipeline.topic_run(orders.topic, "second").advance(),
        lambda: restore("restore"),
        lambda: KafkaSource(orders.pipeline.kafka).at_timestamp(orders.topic, (0, 1, 2), 0),
        lambda: orders.replay(target),
    ]

    def fails(way: Callable[[], Any]) -> float:
        began = time.monotonic()
        with pytest.raises(KafkaUnavailableError):
            way()
        return time.monotonic() - began

    taken = in_threads(fails, ways, threads=4)
    assert max(taken) < SOON, taken
    assert orders.pipeline.log(orders.topic).read_plan(2) is None
    assert gone not in orders.pipeline.data_keys()

    cluster.revive()
    orders.land("second")
    assert restore("restore").verification.restored == (gone,)
    replayed = orders.replay(target)
    # Those of the second batch, too, if no broker that responds has described the target before.
    assert replayed.sent == replayed.planned
    assert set(replayed.sent.values()) in ({10}, {20})
    orders.check()


def test_an_unclean_election_that_loses_landed_records_is_refused(cluster: ThreeBrokers, s3_server: S3Server) -> None:
    """A follower that was down becomes the leader, and gets other records at the landed offsets."""
    landed = Landed(cluster, s3_server)
    landed.topic = cluster.create_replicated(
        f"unclean-{uuid.uuid4()}", [1, 2], config={"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
    )

    def produce(word: bytes, count: int, acks: str) -> None:
        some = [Message(b'{"%s": %d}' % (word, n), partition=0) for n in range(count)]
        cluster.produce(landed.topic, some, acks=acks)

    produce(b"first", 10, "all")
    cluster.kill(2)
    wait_until(lambda: cluster.in_sync(landed.topic) == {1}, "a leader alone")
    produce(b"later", 10, "1")
    landed.land("first")
    cluster.kill(1)
    cluster.restart(2)
    wait_until(lambda: cluster.leader(landed.topic) == 2, "an unclean election")
    produce(b"other", 25, "1")
    with pytest.raises(DataLossError, match=re.escape("partition 0 from offset 10 on")):
        landed.land("second")
    landed.lose_an_object()
    with pytest.raises(BatchLossError, match="Kafka has other records at these offsets now"):
        landed.look_back("restore", "restore")
    landed.close()
