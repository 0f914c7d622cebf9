"""A read by Spark that is paused in the middle, and checks of its result."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from airflow_provider_kafka_s3.config import MIB, JsonLines, Layout, Upload
from airflow_provider_kafka_s3.spark.spec import JobResult, TopicOutcome
from airflow_provider_kafka_s3.testing.invariants import SourceRecords
from dev.kafka_broker import Message
from tests.spark.pipeline import Pipeline
from tests.spark.probes import Gate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JSON: Final = Layout(format=JsonLines(), part_size=5 * MIB)
BATCH_SIZE: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"
SMALL_FETCHES: Final = {
    # Small fetches, so that Spark reads little more than its worker has taken.
    "kafka.max.partition.fetch.bytes": "65536",
    "kafka.fetch.max.bytes": "65536",
    "kafka.receive.buffer.bytes": "65536",
    "kafka.max.poll.records": "100",
}


def _largest_socket_buffers() -> int:
    """Bytes that may wait between the JVM and its worker: Linux enlarges the buffers of a connection as it is used."""
    return sum(int(Path(f"/proc/sys/net/ipv4/{name}").read_text().split()[-1]) for name in ("tcp_rmem", "tcp_wmem"))


def messages(count: int, *, label: str = "n", size: int = 0) -> list[Message]:
    """Different JSON records of partition 0."""
    fill = b"x" * size
    return [Message(b'{"%s": %d, "fill": "%s"}' % (label.encode(), n, fill), partition=0) for n in range(count)]


def more_than_held(label: str = "n") -> list[Message]:
    """More records than a paused read can hold: some of them are always still to be read."""
    size = 10_000
    # Three parts and what waits before them; the rest is what Kafka's consumer and Spark hold of a batch.
    held = 3 * JSON.part_size + _largest_socket_buffers() + 8 * MIB
    return messages(held // size, label=label, size=size)


def values(sent: Iterable[Message]) -> Counter[bytes]:
    """The values that have to be landed."""
    return Counter(m.value for m in sent if m.value is not None)


def check(pipeline: Pipeline, topic: str, source: SourceRecords, *, complete: bool = True) -> None:
    """Every record of the source is in the bucket once, or recorded as lost, and nothing is open or owed."""
    pipeline.check(topic, source=source, recovered=True, complete=complete)


@contextlib.contextmanager
def paused_read(
    pipeline: Pipeline, gate: Gate, spark: SparkSession, topic: str, **more: str
) -> Iterator[list[JobResult]]:
    """Plan and read a topic by Spark; inside the block the read is paused in the middle.

    No part is stored, so the task waits as soon as it holds as many as it may: two, and one that it begins.

    Yields:
        A list that holds the job's result after the block.
    """
    plan = pipeline.plan(topic, "run")
    spec = pipeline.spec({topic: plan}, "run", "unused", upload=Upload(threads=1), kafka_overrides=SMALL_FETCHES | more)
    done: list[JobResult] = []
    usual = spark.conf.get(BATCH_SIZE)
    spark.conf.set(BATCH_SIZE, "20")
    job = threading.Thread(target=lambda: done.append(pipeline.job(spec, spark)))
    try:
        job.start()
        assert gate.held.wait(240)
        yield done
        gate.open()
        job.join()
    finally:
        gate.open()
        spark.conf.set(BATCH_SIZE, usual)


def outcome_of(done: list[JobResult]) -> TopicOutcome:
    """The outcome of the job for its one topic."""
    ((outcome,),) = [result.topics for result in done]
    return outcome
