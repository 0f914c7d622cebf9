"""A replay that is sent to a cluster in memory, with all of its documents."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from airflow_provider_kafka_s3.batch.location import TopicLocation
from airflow_provider_kafka_s3.config import Envelope, JsonLines
from airflow_provider_kafka_s3.documents import addresses
from airflow_provider_kafka_s3.documents.replay import ReplayPlan
from airflow_provider_kafka_s3.exceptions import ReplayOvertakenError
from airflow_provider_kafka_s3.kafka.offsets import TopicInfo
from airflow_provider_kafka_s3.reading.record import Record, Records
from airflow_provider_kafka_s3.replay import job, run
from airflow_provider_kafka_s3.replay.job import ReplayJob, send
from airflow_provider_kafka_s3.replay.run import Replayed, ReplayProcess
from airflow_provider_kafka_s3.storage.durable import DurableStore
from airflow_provider_kafka_s3.storage.memory import MemoryStore
from tests.unit.batch.simulated_topic import Topic
from tests.unit.replay.landed import TARGET, layout_of, planned, request

__all__ = ["PARTITIONS", "RECORDS", "Cluster", "Replay", "Target"]

PARTITIONS: Final = 3
RECORDS: Final = 4


class Here(TopicLocation):
    """A bucket in memory."""

    bucket_in_memory: DurableStore

    def open_bucket(self) -> DurableStore:
        return self.bucket_in_memory


class Cluster:
    """Partitions of a target: the process that has begun one last may add to it, record by record."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.owners: dict[int, object] = {}
        self.sent: dict[int, list[Record]] = {}
        self.on_call: Callable[[int, int, Callable[[], None]], None] = lambda process, partition, begin: begin()

    def send_partition(
        self,
        config: Any,
        *,
        partition: int,
        records: Callable[[int], Iterator[Records]],
        on_begin: Callable[[], None],
        **settings: Any,
    ) -> int:
        """As that of Kafka."""
        me = object()

        def begin() -> None:
            with self.lock:
                self.owners[partition] = me

        self.on_call(config["process"], partition, begin)
        sent = self.sent.setdefault(partition, [])
        on_begin()
        for record in (record for some in records(len(sent)) for record in some):
            with self.lock:
                if self.owners[partition] is not me:
                    raise ReplayOvertakenError("fenced")
                sent.append(record)
        return len(sent)


class InThisProcess(ReplayProcess):
    """Sends without another process."""

    def send(self, job: ReplayJob) -> dict[int, int]:
        return send(job.place, job.config, job.request, job.plan)


class Target:
    """The topic that records are sent to, as its brokers describe it."""

    def __init__(self, config: Any) -> None:
        pass

    def describe(self, topic: str) -> TopicInfo:
        return TARGET

    def topic_settings(self, topic: str) -> dict[str, str]:
        return {"retention.ms": "-1", "max.message.bytes": "1000000"}

    def ends(self, *args: Any, **more: Any) -> dict[int, int]:
        return dict.fromkeys(TARGET.partitions, 0)


class Replay:
    """A planned replay of a landed topic, and the cluster that it is sent to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.topic = Topic(layout_of(JsonLines(), content=Envelope()), PARTITIONS)
        for partition in range(PARTITIONS):
            self.topic.append(*(b"%d" % n for n in range(RECORDS)), partition=partition)
        self.topic.land()
        self.plan: ReplayPlan = planned(self.topic)
        self.cluster = Cluster()
        monkeypatch.setattr(job, "send_partition", self.cluster.send_partition)
        monkeypatch.setattr(run, "KafkaCluster", Target)
        self.place = Here("memory", self.topic.pipeline.log.address)
        self.use(self.topic.bucket)

    def use(self, bucket: MemoryStore) -> None:
        """Another bucket."""
        self.topic.bucket = bucket
        object.__setattr__(self.place, "bucket_in_memory", self.topic.pipeline.log.store)

    def send(self, process: int) -> dict[int, int]:
        """By a process with a number."""
        return job.send(self.place, {"process": process}, request(), self.plan)

    def replay(self, **more: Any) -> Replayed:
        """By a process that plans it, or continues it."""
        config = {"bootstrap.servers": "here", "process": 0}
        return run.replay(self.place, config, request(**more), process=InThisProcess(), visible_within=0)

    @property
    def nonce(self) -> str:
        """That of the stored plan."""
        return str(json.loads(self.body("plan"))["nonce"])

    def key(self, name: str) -> str:
        """The key of a document."""
        return addresses.replay_key(self.topic.pipeline.log.prefix, self.plan.replay, name)

    def document(self, name: str) -> str:
        """The key of the only document whose name begins so."""
        (key,) = (info.key for info in self.topic.bucket.list(self.key(name).removesuffix(".json")))
        return key

    def body(self, name: str) -> bytes:
        """The bytes of this document."""
        stored = self.topic.bucket.get(self.document(name))
        assert stored is not None
        return stored.body

    def put(self, name: str, body: bytes) -> None:
        """Put other bytes in its place."""
        key = self.document(name)
        self.topic.bucket.delete(key)
        self.topic.bucket.put_new(key, body)

    def require_all_sent_once(self) -> None:
        """In order."""
        for partition in range(PARTITIONS):
            assert [one.value for one in self.cluster.sent[partition]] == [b"%d" % n for n in range(RECORDS)]
