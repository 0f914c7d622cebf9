"""What it costs to make large objects of small ones: beside landing the same records from Kafka, and beside Spark.

Hours of a topic are landed in many batches. Then a second pipeline makes days of them; another one lands the days from
Kafka; and Spark reads a local copy of the hours, coalesces it to as many files, and writes these to a local folder,
without uploads and without any order. All run in one warm session, in turn. CPU is that of driver, JVM and workers.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from airflow_provider_kafka_s3.config import (
    Converter,
    Daily,
    Format,
    Hourly,
    JsonConverter,
    JsonLines,
    Landed,
    LandedConverter,
    Layout,
    Limits,
    Parquet,
    Rotation,
)
from tests.benchmark.data import SCHEMA
from tests.benchmark.measure import cpu_of_job, measured
from tests.spark.pipeline import ROOT, Pipeline, spark_conf

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GOALS: Final = {
    "JSON lines, gzip: landing from Kafka": 1.0,
    "JSON lines, gzip: Spark": 2.0,
}
"""How many times the CPU of a compaction another way takes at least."""
_BATCHES: Final = 40
_FORMATS: Final[dict[str, tuple[Format, Converter, Converter]]] = {
    "JSON lines, gzip": (JsonLines(compression="gzip"), JsonConverter(), JsonConverter()),
    "Parquet, zstd": (Parquet(), JsonConverter(schema=json.dumps(SCHEMA)), LandedConverter()),
}
"""By its name a format, the converter of the values in Kafka, and that of the values in objects."""
OURS, FROM_KAFKA, BY_SPARK = "compaction", "landing from Kafka", "Spark"


def compactions(config: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Measure in a process of its own: by format and way, the medians of CPU and wall seconds, and objects.

    Args:
        config: as of :mod:`tests.benchmark.driver`.
    """
    done = subprocess.run(
        [sys.executable, "-m", "tests.benchmark.landed"],
        input=json.dumps(config),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found: dict[str, dict[str, float]] = json.loads(done.stdout.splitlines()[-1])
    return found


def ratios(found: dict[str, dict[str, float]]) -> dict[str, float]:
    """CPU of other ways, beside that of a compaction."""
    return {
        f"{kind}: {way}": found[f"{kind}: {way}"]["cpu_s"] / found[f"{kind}: {OURS}"]["cpu_s"]
        for kind in _FORMATS
        for way in (FROM_KAFKA, BY_SPARK)
    }


def table(found: dict[str, dict[str, float]]) -> list[str]:
    """The figures as lines of text."""
    return [
        f"  {name:40}" + ", ".join(f"{what} {value:.2f}" for what, value in figures.items())
        for name, figures in found.items()
    ]


class _Bench:
    """All ways over one topic."""

    def __init__(self, spark: SparkSession, config: dict[str, Any], folder: Path) -> None:
        self.spark = spark
        self.config = config
        self.topic: str = config["topic"]
        self.records: int = config["records"]
        self.folder = folder
        self.seconds: dict[str, list[tuple[float, float, int]]] = {}

    def pipeline(self, layout: Layout, records: int, bucket: str | None = None, **more: Any) -> Pipeline:
        """A pipeline that lands so many records in a run."""
        limits = Limits(records_per_run=records, records_per_slice=self.config["slice_records"])
        where = {} if bucket is None else {"bucket": bucket}
        return Pipeline(
            kafka={"bootstrap.servers": self.config["bootstrap_servers"]},
            endpoint=self.config["endpoint"],
            layout=layout,
            settings={"limits": limits},
            **where,
            **more,
        )

    def hours(self, kind: str) -> Pipeline:
        """Land the topic by hours, in many batches; returns the pipeline."""
        settings, converter, _ = _FORMATS[kind]
        layout = Layout(topics_dir="raw", format=settings, value_converter=converter, partitioner=Hourly())
        raw = self.pipeline(layout, -(-self.records // _BATCHES), name="raw")
        for batch in range(_BATCHES):
            raw.land(self.spark, self.topic, run=f"batch {batch}")
        return raw

    def days(self, kind: str, name: str, raw: Pipeline | None, number: int) -> Callable[[], int]:
        """Land days, of hours or from Kafka; gives the number of objects."""
        settings, in_kafka, in_objects = _FORMATS[kind]
        layout = Layout(
            topics_dir=name,
            format=settings,
            value_converter=in_kafka if raw is None else in_objects,
            partitioner=Daily(),
            rotation=Rotation(merge_partitions=True),
        )
        reads = None if raw is None else Landed(pipeline="raw", topics_dir="raw")
        pipeline = self.pipeline(layout, self.records, raw.bucket if raw else None, name=name, reads=reads)

        def land() -> int:
            run = f"run {number}"
            pipeline.land(self.spark, self.topic, run=run)
            objects = [entry for n in (1,) for entry in pipeline.objects(self.topic, n)]
            assert sum(entry.records for entry in objects) == self.records, objects
            return len(objects)

        return land

    def by_spark(self, kind: str, copied: Path, files: int) -> Callable[[], int]:
        """Spark's own readers and writers."""
        target = self.folder / "by-spark"

        def rewrite() -> int:
            source = str(copied)
            reader = self.spark.read.option("recursiveFileLookup", "true")
            if kind.startswith("JSON"):
                frame = reader.option("pathGlobFilter", "*.json.gz").text(source).coalesce(files)
                frame.write.mode("overwrite").option("compression", "gzip").text(str(target))
            else:
                frame = reader.option("pathGlobFilter", "*.parquet").parquet(source).coalesce(files)
                frame.write.mode("overwrite").option("compression", "zstd").parquet(str(target))
            return len([*target.rglob("part-*")])

        return rewrite

    def measure(self, name: str, action: Callable[[], int]) -> None:
        """One turn of a way."""
        before = cpu_of_job(os.getpid())
        with measured({"job": os.getpid()}) as cost:
            objects = action()
        cpu = sum(cpu_of_job(os.getpid()).values()) - sum(before.values())
        self.seconds.setdefault(name, []).append((cpu, cost.wall, objects))

    def run(self) -> dict[str, dict[str, float]]:
        """All ways in turn, a few rounds; the first one is not counted."""
        for kind in _FORMATS:
            raw = self.hours(kind)
            raw.save(copied := self.folder / kind.split(",", maxsplit=1)[0])
            small = len([path for path in copied.rglob("*") if path.is_file()])
            for number in range(self.config["rounds"] + 1):
                if number == 1:
                    self.seconds = {name: turns for name, turns in self.seconds.items() if not name.startswith(kind)}
                self.measure(f"{kind}: {OURS}", self.days(kind, f"days-{number}", raw, number))
                self.measure(f"{kind}: {FROM_KAFKA}", self.days(kind, f"direct-{number}", None, number))
                self.measure(f"{kind}: {BY_SPARK}", self.by_spark(kind, copied, 4))
            print(f"  {kind}: {small:,} objects", file=sys.stderr, flush=True)
        return {
            name: {
                "cpu_s": round(statistics.median(cpu for cpu, _, _ in turns), 2),
                "wall_s": round(statistics.median(wall for _, wall, _ in turns), 2),
                "objects": turns[-1][2],
            }
            for name, turns in self.seconds.items()
        }


def main() -> None:
    """Measure; print the figures as a line of JSON."""
    from pyspark.sql import SparkSession

    logging.basicConfig(level=logging.WARNING)
    config = json.load(sys.stdin)
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder
    for name, value in spark_conf(spark_driver_memory="2g", spark_log_level="ERROR").items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    folder = Path(tempfile.mkdtemp(prefix="landed-", dir=config["folder"]))
    try:
        print(json.dumps(_Bench(spark, config, folder).run()), flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        spark.stop()


if __name__ == "__main__":
    main()
