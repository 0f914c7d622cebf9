"""What one large record takes of the JVM's heap, in every shape of plan: it has to grow as the record does.

``python -m tests.benchmark.large_records BROKER STORE`` lands the records in one session and prints the figures.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from airflow_provider_kafka_s3.config import Daily, JsonLines, Layout, Limits, Rotation
from airflow_provider_kafka_s3.spark.frames import read_directly
from dev.kafka_broker import KafkaBroker, Message
from dev.kafka_tools import KafkaTools
from tests.spark.pipeline import ROOT, Pipeline, land_together, spark_conf

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SIZES: Final = (1, 10, 50)
"""Megabytes of the large record, behind which each shape has some of a few bytes."""
GOAL: Final = 1.5
"""Heap for each byte of a record of 50 MB, divided by that for each byte of one of 10 MB, at most; a square is 5."""
LONGEST: Final = 64 * 1024 * 1024
"""Bytes of a message that the broker takes."""
_MEGABYTE: Final = 1_000_000
_TIME: Final = 1_700_000_000_000
_HEAP: Final = "3g"
_OPTIONS: Final = "-XX:+UseSerialGC -Xmn64m"
"""Young objects have a space of fixed size, so that garbage counts the same for all records."""
_SMALLEST: Final = 1_000
_LINES: Final = Layout(format=JsonLines())


@dataclass(frozen=True)
class _Shape:
    """A plan.

    Attributes:
        partitions: of the topic; the large record is in the first one.
        layout: of the objects.
        settings: of the run.
        topics: landed by one job, of which one has the large record.
    """

    partitions: int = 1
    layout: Layout = _LINES
    settings: dict[str, Any] = field(default_factory=dict)
    topics: int = 1


SHAPES: Final = {
    "one partition": _Shape(),
    "two partitions": _Shape(partitions=2),
    "whole records": _Shape(partitions=2, layout=Layout(format=JsonLines(), errors="dead_letter")),
    "several slices": _Shape(settings={"limits": Limits(records_per_slice=1)}),
    "merged partitions": _Shape(
        partitions=2,
        layout=Layout(format=JsonLines(), partitioner=Daily(), rotation=Rotation(merge_partitions=True)),
    ),
    "two topics": _Shape(topics=2),
}


def large_records(endpoint: str) -> dict[str, dict[str, float]]:
    """Heap in megabytes that landing takes beyond what the JVM has before, by the shape and the size of the record.

    Args:
        endpoint: of the S3 server.
    """
    with KafkaBroker(heap="1g", optimised=True, config={"message.max.bytes": str(LONGEST)}) as broker:
        command = [sys.executable, "-m", "tests.benchmark.large_records", broker.bootstrap_servers, endpoint]
        found: dict[str, dict[str, float]] = {}
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for line in process.stdout:
                shape, size, peak = json.loads(line)
                found.setdefault(shape, {})[str(size)] = peak
                print(f"  {shape}, {size} MB: {peak:.0f} MB of heap", flush=True)
        if process.returncode:
            raise RuntimeError(f"the benchmark of large records ended with exit code {process.returncode}")
    return found


def growth(peaks: dict[str, float]) -> float:
    """See :data:`GOAL`; one that is linear in the record is 1, or less by what does not depend on it."""
    _, medium, large = (peaks[str(size)] / size for size in SIZES)
    return large / medium


def table(found: dict[str, dict[str, float]]) -> list[str]:
    """The figures as text."""
    head = f"  {'heap of the JVM, MB':22}" + "".join(f"{f'{size} MB':>9}" for size in SIZES) + f"{'growth':>9}"
    return [
        head,
        *(
            f"  {shape:22}" + "".join(f"{peaks[str(size)]:9.0f}" for size in SIZES) + f"{growth(peaks):9.2f}"
            for shape, peaks in found.items()
        ),
    ]


def _main() -> None:
    from pyspark.sql import SparkSession

    bootstrap_servers, endpoint = sys.argv[1:]
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder
    for name, value in spark_conf(
        spark_master="local[1]",
        spark_driver_memory=_HEAP,
        spark_log_level="ERROR",
        spark_driver_extraJavaOptions=_OPTIONS,
    ).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    read_directly(spark)
    try:
        _land(spark, bootstrap_servers, endpoint, _SMALLEST, SHAPES["one partition"])  # warms up
        for name, shape in SHAPES.items():
            for size in SIZES:
                peak = _land(spark, bootstrap_servers, endpoint, size * _MEGABYTE, shape)
                print(json.dumps([name, size, peak / _MEGABYTE]), flush=True)
    finally:
        spark.stop()


def _land(spark: SparkSession, bootstrap_servers: str, endpoint: str, size: int, shape: _Shape) -> int:
    """Land the record with its companions; the bytes of heap that it takes."""
    large = b'"' + b"x" * (size - 2) + b'"'
    kafka = {"bootstrap.servers": bootstrap_servers}
    topics: dict[Pipeline, str] = {}
    for number in range(shape.topics):
        name = f"large-{time.monotonic_ns()}"
        values = [large if number == 0 else b"1", b"2"]
        messages = [Message(v, partition=n % shape.partitions, timestamp=_TIME) for n, v in enumerate(values)]
        broker = KafkaTools(bootstrap_servers)
        broker.create_topic(name, shape.partitions, {"max.message.bytes": str(LONGEST)})
        broker.produce(name, messages, **{"message.max.bytes": LONGEST})
        pipeline = Pipeline(
            kafka=kafka, endpoint=endpoint, bucket="large-records", layout=shape.layout, settings=dict(shape.settings)
        )
        topics[pipeline] = name
    peak = _peak_heap(spark)
    if len(topics) > 1:
        land_together(spark, topics)
    else:
        for pipeline, topic in topics.items():
            assert pipeline.land(spark, topic)[0].status == "ok"
    used = peak()
    for pipeline in topics:
        pipeline.close()
    return used


def _peak_heap(spark: SparkSession) -> Callable[[], int]:
    """A function that gives how much larger the heap of the JVM was from now on than it is, garbage included."""
    jvm: Any = spark._jvm
    jvm.java.lang.System.gc()
    pools = [
        pool
        for pool in jvm.java.lang.management.ManagementFactory.getMemoryPoolMXBeans()
        if pool.getType().name() == "HEAP"
    ]
    for pool in pools:
        pool.resetPeakUsage()
    before = sum(pool.getUsage().getUsed() for pool in pools)
    return lambda: sum(pool.getPeakUsage().getUsed() for pool in pools) - before


if __name__ == "__main__":
    _main()
