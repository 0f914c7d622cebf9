"""A real broker that lost a disk, was restarted, and deleted records: which logs still are those of before."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from airflow_provider_kafka_s3.batch.request import RunRequest
from airflow_provider_kafka_s3.config import JsonLines, Layout
from airflow_provider_kafka_s3.exceptions import DataLossError, KafkaUnavailableError
from airflow_provider_kafka_s3.kafka.offsets import KafkaCluster, LogEnd, LogPosition
from airflow_provider_kafka_s3.kafka.source import KafkaSource
from airflow_provider_kafka_s3.parallel import in_threads
from airflow_provider_kafka_s3.pipeline import TopicPipeline
from airflow_provider_kafka_s3.retry import Retrier, RetryPolicy
from airflow_provider_kafka_s3.storage.durable import DurableStore
from airflow_provider_kafka_s3.storage.memory import MemoryStore
from dev.kafka_broker import KafkaBroker, Message

KEPT, LOST, TRIMMED, IN_TRANSACTION = range(4)
"""Partitions: only restarted; without its first log; without old records; in front of an open transaction."""


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    """A broker for these tests alone."""
    with KafkaBroker(heap="256m") as broker:
        yield broker


class Landed:
    """A topic of four partitions, of which ten records each are landed."""

    def __init__(self, broker: KafkaBroker) -> None:
        self.broker = broker
        self.bucket = MemoryStore()
        self.cluster = KafkaCluster({"bootstrap.servers": broker.bootstrap_servers})
        broker.create_topic("orders", 4)
        self.produce(10, *range(4))
        self.run("first")
        self.ends = self.cluster.log_ends("orders", range(4), "read_committed")

    def produce(self, count: int, *partitions: int) -> None:
        """Append records to partitions."""
        self.broker.produce("orders", [Message(b"%d" % n, partition=p) for p in partitions for n in range(count)])

    def run(self, run: str) -> str:
        """The status of an incremental run."""
        source = KafkaSource({"bootstrap.servers": self.broker.bootstrap_servers})
        store = DurableStore(self.bucket, Retrier())
        pipeline = TopicPipeline(store, source, topics_dir="lake", pipeline="p", topic="orders")
        layout = Layout(topics_dir="lake", format=JsonLines())
        request = RunRequest(run=run, offsets="incremental", layout=layout, starting="earliest")
        return pipeline.land(request).status

    @property
    def reached(self) -> dict[int, LogPosition]:
        """What the logs had reached."""
        return {p: LogPosition(end.offset, end.epoch or 0) for p, end in self.ends.items()}


@pytest.fixture(scope="module")
def landed(broker: KafkaBroker) -> Iterator[Landed]:
    """The topic after the broker was restarted and has lost a disk, with more records than before."""
    landed = Landed(broker)
    broker.kill()
    broker.lose_log("orders", LOST)
    broker.restart()
    landed.produce(5, KEPT, TRIMMED)
    landed.produce(25, LOST)
    broker.delete_records("orders", {TRIMMED: 12})
    with broker.open_transaction("orders", [Message(b"open", partition=IN_TRANSACTION)]):
        yield landed


def test_ends_have_the_epochs_of_their_leaders(landed: Landed) -> None:
    """A restart is an election; the epoch is that of the leader now, not of the last record."""
    before, now = landed.ends, landed.cluster.log_ends("orders", range(4), "read_committed")
    assert {p: end.offset for p, end in before.items()} == dict.fromkeys(range(4), 10)
    assert [now[p].offset for p in (KEPT, LOST, TRIMMED)] == [15, 25, 15]
    assert now[IN_TRANSACTION] == LogEnd(10, now[KEPT].epoch)
    assert all((before[p].epoch or 0) < (now[p].epoch or 0) for p in range(4))


def test_only_the_log_that_lost_records_diverges(landed: Landed) -> None:
    """Neither a restart, nor deleted records, nor an open transaction; several topics and threads share a request."""
    assert landed.cluster.divergences("orders", landed.reached) == {LOST: 0}
    some = [{p: landed.reached[p]} for p in (KEPT, LOST, TRIMMED, IN_TRANSACTION)]
    found = in_threads(lambda one: landed.cluster.divergences("orders", one), some * 3, threads=12)
    assert found == [{}, {LOST: 0}, {}, {}] * 3


def test_what_the_brokers_do_not_know_is_no_divergence(landed: Landed) -> None:
    """An epoch that no record has: brokers that keep none answer the same."""
    assert landed.cluster.divergences("orders", {KEPT: LogPosition(10, 1_000)}) == {}
    assert landed.cluster.divergences("orders", {}) == {}


def test_a_run_after_the_loss_is_refused(landed: Landed) -> None:
    """The log of the partition is longer than what is landed of it."""
    with pytest.raises(DataLossError, match=rf"partition {LOST} from offset 0 on.*starting_offsets: {{{LOST}: 0}}"):
        landed.run("second")


def test_a_leader_that_does_not_answer_is_a_transient_error(landed: Landed) -> None:
    """The run is tried again; nothing is taken for right meanwhile."""
    once = Retrier(RetryPolicy(max_retries=0))
    with landed.broker.paused():
        cluster = KafkaCluster({"bootstrap.servers": landed.broker.bootstrap_servers}, timeout=1.0, retrier=once)
        with pytest.raises(KafkaUnavailableError, match="compare the log of topic 'orders' \\(partitions 0, 1"):
            cluster.divergences("orders", landed.reached)
