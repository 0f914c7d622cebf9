"""The Spark side of the benchmark, in a process of its own, whose process tree is measured.

It runs one case, since a job has a JVM of its own and other cases would influence its compiler. The case is run once on
little data to warm it up, then for a number of rounds.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from airflow_provider_kafka_s3.batch.pinned_schemas import PinnedSchemas
from airflow_provider_kafka_s3.batch.source import Isolation
from airflow_provider_kafka_s3.config import (
    AvroConverter,
    Daily,
    JsonConverter,
    JsonLines,
    Layout,
    Limits,
    Parquet,
    RawBytes,
)
from airflow_provider_kafka_s3.converters.registry_header import HEADER_SIZE
from airflow_provider_kafka_s3.documents.plan import Plan
from airflow_provider_kafka_s3.kafka.options import spark_options
from airflow_provider_kafka_s3.spark.frames import read_directly, slice_frame
from airflow_provider_kafka_s3.spark.read_tasks import ReadTasks
from airflow_provider_kafka_s3.testing.registry import SimulatedRegistry
from dev.airflow_home import AVRO_JARS
from tests.benchmark.data import SCHEMA, SCHEMA_ID, SPARK_SCHEMA
from tests.benchmark.measure import cpu_of_job, measured
from tests.spark.pipeline import Pipeline, spark_conf
from tests.spark.probes import WorkerMemory

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ISOLATION: Isolation = "read_committed"
_DAILY: dict[str, Any] = {"partitioner": Daily()}
OURS: dict[str, Layout] = {
    "ours: bytes": Layout(format=RawBytes(), **_DAILY),
    "ours: JSON": Layout(format=JsonLines(), **_DAILY),
    "ours: JSON gzip": Layout(format=JsonLines(compression="gzip"), **_DAILY),
    "ours: JSON to Parquet": Layout(
        format=Parquet(compression="zstd"), value_converter=JsonConverter(schema=json.dumps(SCHEMA)), **_DAILY
    ),
    "ours: Avro to Parquet": Layout(format=Parquet(compression="zstd"), value_converter=AvroConverter(), **_DAILY),
}


class Bench:
    """All cases over one topic."""

    def __init__(self, spark: SparkSession, config: dict[str, Any]) -> None:
        self.spark = spark
        self.config = config
        self.kafka = {"bootstrap.servers": config["bootstrap_servers"]}
        self.trees = {"job": os.getpid(), "s3": config["s3_pid"], "broker": config["broker_pid"]}
        self.folder = Path(tempfile.mkdtemp(prefix="benchmark-", dir=config["folder"]))

    def pipeline(self, layout: Layout, records: int) -> Pipeline:
        """A pipeline in an empty bucket that lands that many records."""
        limits = {"limits": Limits(records_per_run=records, records_per_slice=self.config["slice_records"])}
        return Pipeline(kafka=self.kafka, endpoint=self.config["endpoint"], layout=layout, settings=limits)

    def frame(self, records: int, options: dict[str, str], *columns: str) -> DataFrame:
        """A frame of the topic, in the same slices."""
        pipeline = self.pipeline(OURS["ours: JSON"], records)
        plan = pipeline.plan(self.config["topic"], "run")
        pipeline.close()
        return slice_frame(self.spark, ReadTasks([plan]), {ISOLATION: options}, columns)

    def floor(self, records: int) -> dict[str, Any]:
        """Read three columns and discard them."""
        options = spark_options(self.kafka, isolation=ISOLATION)
        read_directly(self.spark)
        frame = self.frame(records, options, "offset", "timestamp", "value")
        return self._measure(lambda: frame.write.format("noop").mode("overwrite").save())

    def text_gzip(self, records: int) -> dict[str, Any]:
        """Spark's own reader and writer with their defaults, to a local folder, without uploads."""
        target = self.folder / "text"
        options = {"kafka.bootstrap.servers": self.config["bootstrap_servers"], "kafka.isolation.level": ISOLATION}
        frame = self.frame(records, options, "CAST(value AS STRING) AS value")
        figures = self._measure(lambda: frame.write.mode("overwrite").option("compression", "gzip").text(str(target)))
        figures["bytes"] = sum(f.stat().st_size for f in target.rglob("part-*"))
        shutil.rmtree(target)
        return figures

    def parquet(self, records: int, *, avro: bool) -> dict[str, Any]:
        """Spark's own reader, functions for JSON or Avro, and writer at our level, by day to a local folder."""
        from pyspark.sql.avro.functions import from_avro
        from pyspark.sql.functions import expr, from_json

        target = self.folder / "parquet"
        options = {"kafka.bootstrap.servers": self.config["bootstrap_servers"], "kafka.isolation.level": ISOLATION}
        frame = self.frame(records, options, "value", "CAST(timestamp AS DATE) AS day")
        if avro:
            report = from_avro(expr(f"substring(value, {HEADER_SIZE + 1})"), json.dumps(SCHEMA))
        else:
            report = from_json(expr("CAST(value AS STRING)"), SPARK_SCHEMA)
        frame = frame.select(report.alias("report"), "day").select("report.*", "day")
        level = Parquet().compression_level
        writer = frame.write.mode("overwrite").option("compression", "zstd").partitionBy("day")
        writer = writer.option("parquet.compression.codec.zstd.level", level)
        figures = self._measure(lambda: writer.parquet(str(target)))
        files = [*target.rglob("part-*")]
        figures["bytes"] = sum(f.stat().st_size for f in files)
        assert sum(pq.read_metadata(f).num_rows for f in files) == records
        shutil.rmtree(target)
        return figures

    def measure_landing(self, name: str, records: int) -> dict[str, Any]:
        """Land a batch, from its plan to the marker; also measure the memory of the workers."""
        pipeline = self.pipeline(OURS[name], records)
        topic = self.config["topic"]
        if pipeline.layout.needs_registry:
            # As if a run before had met the schema, so that no registry has to run.
            registry = SimulatedRegistry()
            registry.register(json.dumps(SCHEMA))
            PinnedSchemas(pipeline.store, pipeline.log(topic).prefix, registry).schema(SCHEMA_ID)
        plan = pipeline.plan(topic, "run")
        results: list[Any] = []
        with WorkerMemory(every=3600) as memory:  # reads the memory once, at the end, since reading costs CPU
            figures = self._measure(
                lambda: results.append(pipeline.job(pipeline.spec({topic: plan}, "run", "unused"), self.spark))
            )
        assert results[0].succeeded, results
        manifest = pipeline.decision(topic)
        assert manifest is not None
        assert manifest.records == records
        pipeline.close()
        return {**figures, "rss": memory.peak, "bytes": manifest.size, "objects": len(manifest.objects)}

    def nothing_new(self) -> dict[str, Any]:
        """A run without new records, including the creation of its clients."""
        topic = self.config["topic"]
        settled = self.pipeline(OURS["ours: JSON gzip"], 1)
        settled.settings = {"starting": "latest"}
        assert not isinstance(settled.topic_run(topic, "first").advance(), Plan)
        started = time.perf_counter()
        later = Pipeline(**{**settings_of(settled), "bucket": settled.bucket})
        assert not isinstance(later.topic_run(topic, "second").advance(), Plan)
        wall = time.perf_counter() - started
        settled.close()
        later.close()
        return {"wall": wall}

    def _measure(self, action: Callable[[], object]) -> dict[str, Any]:
        before = cpu_of_job(os.getpid())
        with measured(self.trees) as cost:
            action()
        after = cpu_of_job(os.getpid())
        return {"wall": cost.wall, "cpu": cost.cpu, "cpu_of_job": {part: after[part] - before[part] for part in after}}


def settings_of(pipeline: Pipeline) -> dict[str, Any]:
    """The arguments that a pipeline was made with, but for its bucket."""
    return {"kafka": pipeline.kafka, "endpoint": pipeline.endpoint, "layout": pipeline.layout}


def main() -> None:
    """Run the case that standard input describes; print one JSON line per result."""
    from pyspark.sql import SparkSession

    logging.basicConfig(level=logging.WARNING)
    config = json.load(sys.stdin)
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder
    conf = spark_conf(spark_driver_memory="2g", spark_log_level="ERROR")
    conf["spark.jars"] += "".join(f",{jar}" for jar in AVRO_JARS.glob("spark-avro_*.jar"))
    for name, value in conf.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    bench = Bench(spark, config)
    records: int = config["records"]
    cases: dict[str, Callable[[int], dict[str, Any]]] = {
        "floor: three columns, noop": bench.floor,
        **{name: lambda count, name=name: bench.measure_landing(name, count) for name in OURS},  # type: ignore[misc]
        "Spark write.text gzip": bench.text_gzip,
        "Spark from_json, Parquet": partial(bench.parquet, avro=False),
        "Spark from_avro, Parquet": partial(bench.parquet, avro=True),
    }
    name = config["case"]
    try:
        cases[name](min(records, 100_000))
        for round_ in range(config["rounds"]):
            print_result({"case": name, "round": round_, "records": records, **cases[name](records)})
        if name == "ours: JSON gzip":
            print_result({"case": "quarter", **bench.measure_landing(name, records // 4)})
            print_result({"case": "nothing new", **bench.nothing_new()})
    finally:
        shutil.rmtree(bench.folder, ignore_errors=True)
        spark.stop()


def print_result(result: dict[str, Any]) -> None:
    """Print a result as a line of JSON for the parent process."""
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
