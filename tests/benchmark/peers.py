"""``python -m tests.benchmark.peers``: what a whole run costs, beside other ways from the same topic to the same store.

Every run is a command that starts cold and is measured to its end, with all its processes. The broker and the S3 server
use the same cores and are not counted.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from airflow_provider_kafka_s3.config import Daily, JsonLines, Layout, Limits
from airflow_provider_kafka_s3.spark.spec import JobResult
from airflow_provider_kafka_s3.storage.s3 import make_client
from airflow_provider_kafka_s3.submit.driver_jvm import class_archive, jvm_variables
from dev.airflow_home import SPARK_JARS, AirflowHome
from dev.java import find_java
from dev.kafka_broker import KafkaBroker, Message
from dev.ports import HOST, free_ports
from tests.benchmark.bento_config import BY_OFFSET, bento_config
from tests.benchmark.data import load, messages
from tests.benchmark.stages import CLASS_ARCHIVES, DAG, airflow_home, write_dag
from tests.benchmark.stores import store
from tests.benchmark.whole import CommandFailed, Whole, whole
from tests.spark.pipeline import CREDENTIALS, ROOT, Pipeline, s3_settings, submit_command

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client

JARS: Final = ROOT / ".build" / "peers"
BENTO: Final = ROOT / ".build" / "bin" / "bento"
CONFLUENT: Final = "CONFLUENT_S3_SINK"
"""Variable with the unpacked archive of Confluent's S3 sink, which no registry of this build has."""
PARTITIONS: Final = 4
RECORDS_PER_OBJECT: Final = 100_000
"""At most: of the cases whose objects end by a number of records."""
MEGABYTE: Final = 1_000_000
OURS: Final = "ours"
LAYOUT: Final = Layout(format=JsonLines(compression="gzip"), partitioner=Daily())

_LOG4J2: Final = """<?xml version="1.0" encoding="UTF-8"?>
<Configuration status="WARN">
  <Appenders><Console name="out"><PatternLayout pattern="%d{HH:mm:ss.SSS} %p %c{1}: %m%n"/></Console></Appenders>
  <Loggers><Root level="WARN"><AppenderRef ref="out"/></Root></Loggers>
</Configuration>
"""


@dataclass(frozen=True)
class Topic:
    """A topic of the benchmark.

    Attributes:
        name: of the topic.
        records: in it.
        size: of its values as lines, in bytes.
    """

    name: str
    records: int
    size: int

    @property
    def offsets(self) -> dict[str, int]:
        """The end of each Kafka partition."""
        return {str(p): len(range(p, self.records, PARTITIONS)) for p in range(PARTITIONS)}

    @cached_property
    def spelled_size(self) -> int:
        """The size of its values in one spelling, in bytes."""
        return sum(len(_spelled(message.value or b"")) for message in messages(self.records, PARTITIONS))

    @property
    def records_per_object(self) -> int:
        """Of the cases whose objects end by a number of records; no object stays open at the end."""
        return min(RECORDS_PER_OBJECT, self.records // PARTITIONS)

    @property
    def objects(self) -> int:
        """The number of objects of such a case."""
        return self.records // self.records_per_object


class Incomplete(RuntimeError):
    """Other records arrived than those of the topic."""


class Peers:
    """All cases; each method runs one of them, from the start of its command to its end."""

    def __init__(self, broker: KafkaBroker, endpoint: str, folder: Path) -> None:
        self.kafka = broker.bootstrap_servers
        self.endpoint = endpoint
        self.folder = folder
        self.client: S3Client = make_client(s3_settings(endpoint), CREDENTIALS)
        self.cases: dict[str, Callable[[Topic], dict[str, float]]] = {
            OURS: self.ours,
            "ours, class archive": lambda topic: self.ours(topic, archived=True),
            "ours, whole task": self.task,
            "ours, whole task, class archive": lambda topic: self.task(topic, archived=True),
            "Spark write.text": lambda topic: self.spark(topic, stream=False),
            "Spark availableNow": lambda topic: self.spark(topic, stream=True),
            "consumer by hand": self.by_hand,
            "Bento": self.bento,
            "Connect, file sink": self.file_sink,
        }
        if plugin := os.environ.get(CONFLUENT):
            self.cases |= {
                "Confluent, ByteArray": lambda topic: self.confluent(topic, Path(plugin), as_json=False),
                "Confluent, JSON": lambda topic: self.confluent(topic, Path(plugin), as_json=True),
            }

    def ours(self, topic: Topic, *, archived: bool = False) -> dict[str, float]:
        """One run by ``spark-submit`` as the operator starts it, and its planning, without Airflow."""
        pipeline = Pipeline(
            kafka={"bootstrap.servers": self.kafka},
            endpoint=self.endpoint,
            layout=LAYOUT,
            settings={"limits": Limits(records_per_run=topic.records)},
        )
        folder = self._folder()
        began, used = time.perf_counter(), time.process_time()
        plan = pipeline.plan(topic.name, "run")
        spec = pipeline.spec({topic.name: plan}, "run", folder / "result.json")
        job_file = folder / "job.json"
        command, env = submit_command(job_file, spark_log_level="ERROR")
        archive = class_archive(self.folder / "classes", command[0], env, {}) if archived else None
        env |= jvm_variables(env, offsets=topic.records, archive=archive, serial=True)
        planning = time.perf_counter() - began, time.process_time() - used
        with spec.offered(job_file):
            cost = whole(command, env, folder / "output")
        if archive is not None:
            archive.keep()
            archive.discard()
        pipeline.close()
        result = JobResult.read(spec.result_path)
        if result is None or not result.succeeded:
            raise CommandFailed(f"the job failed: {result}")
        cost = replace(cost, wall=cost.wall + planning[0], cpu=cost.cpu + planning[1])
        return self._landed(topic, cost, pipeline.bucket)

    def task(self, topic: Topic, *, archived: bool = False) -> dict[str, float]:
        """The same run as a task of Airflow: ``airflow dags test``, from its start to its end."""
        bucket = self._bucket()
        write_dag(self.home, topic.name, bucket, topic.records)
        archives = {CLASS_ARCHIVES: str(self.folder / "task-classes")} if archived else {}
        env = {**self.home.environment, **archives}
        return self._landed(topic, whole(self.home.command(DAG), env, self._folder() / "output"), bucket)

    @cached_property
    def home(self) -> AirflowHome:
        """The Airflow of all tasks."""
        config = {"bootstrap_servers": self.kafka, "endpoint": self.endpoint}
        return airflow_home(self._folder(), config, archives=None)

    def spark(self, topic: Topic, *, stream: bool) -> dict[str, float]:
        """Spark's own reader and writer, over Hadoop's S3A."""
        bucket = self._bucket()
        command, env = self._spark_command(topic, bucket, stream=stream)
        return self._landed(topic, whole(command, env, self._folder() / "output"), bucket)

    def _spark_command(self, topic: Topic, bucket: str, *, stream: bool) -> tuple[list[str], dict[str, str]]:
        conf = {
            "spark.master": "local[2]",
            "spark.jars": ",".join(map(str, sorted(SPARK_JARS.glob("*.jar")))),
            # As in an image of Spark with S3A: the executor of a local master would copy 560 MB of spark.jars first.
            "spark.driver.extraClassPath": f"{JARS / 's3a'}/*",
            "spark.ui.enabled": "false",
            "spark.driver.host": HOST,
            "spark.driver.bindAddress": HOST,
            "spark.hadoop.fs.s3a.endpoint": self.endpoint,
            "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
            "spark.hadoop.fs.s3a.path.style.access": "true",
            "spark.hadoop.fs.s3a.access.key": CREDENTIALS.access_key_id,
            "spark.hadoop.fs.s3a.secret.key": CREDENTIALS.secret_access_key,
        }
        options = [part for name, value in conf.items() for part in ("--conf", f"{name}={value}")]
        config = {
            "bootstrap_servers": self.kafka,
            "topic": topic.name,
            "first": dict.fromkeys(topic.offsets, 0),
            "last": topic.offsets,
            "stream": stream,
            "target": f"s3a://{bucket}/{topic.name}",
            "checkpoint": f"s3a://{bucket}/checkpoint",
        }
        program = ROOT / "tests" / "benchmark" / "spark_peer.py"
        command = [str(Path(sys.executable).parent / "spark-submit"), *options, str(program), json.dumps(config)]
        env = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
        return command, env

    def by_hand(self, topic: Topic) -> dict[str, float]:
        """A consumer of librdkafka in Python."""
        bucket, folder = self._bucket(), self._folder()
        config = {
            "bootstrap_servers": self.kafka,
            "topic": topic.name,
            "bucket": bucket,
            "s3": {
                "endpoint_url": self.endpoint,
                "region_name": "us-east-1",
                "aws_access_key_id": CREDENTIALS.access_key_id,
                "aws_secret_access_key": CREDENTIALS.secret_access_key,
            },
        }
        program = ROOT / "tests" / "benchmark" / "consumer_peer.py"
        cost = whole([sys.executable, str(program), json.dumps(config)], {}, folder / "output")
        return self._landed(topic, cost, bucket)

    def bento(self, topic: Topic) -> dict[str, float]:
        """Bento, until the last object is there; partitions are compressed in parallel."""
        bucket = self._bucket()
        command = self._bento_command(topic, bucket, BY_OFFSET)
        cost = whole(command, {}, self._folder() / "output", done=lambda: len(self._data(bucket)) >= topic.objects)
        return self._landed(topic, cost, bucket)

    def _bento_command(self, topic: Topic, bucket: str, path: str, period: str = "") -> list[str]:
        config = bento_config(
            self.kafka,
            topic.name,
            self.endpoint,
            bucket,
            records=topic.records_per_object,
            path=path,
            period=period,
        )
        file = self._folder() / "bento.json"
        file.write_text(json.dumps(config))
        return [str(BENTO), "-c", str(file)]

    def file_sink(self, topic: Topic) -> dict[str, float]:
        """Kafka Connect's standalone worker with its bundled sink, until the file has all records."""
        folder = self._folder()
        target = folder / "records"
        sink = {
            "connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            "file": str(target),
        }

        def complete() -> bool:
            return target.exists() and target.stat().st_size >= topic.size

        cost = self._connect(topic, folder, sink, complete)
        with target.open("rb") as file:
            _check(topic, file, topic.size)
        size = target.stat().st_size
        target.unlink()
        return {**asdict(cost), "size": size}

    def confluent(self, topic: Topic, plugin: Path, *, as_json: bool) -> dict[str, float]:
        """Kafka Connect's standalone worker with Confluent's S3 sink, until the last object is there."""
        bucket, folder = self._bucket(), self._folder()
        kind = "json.Json" if as_json else "bytearray.ByteArray"
        converter = "json.JsonConverter" if as_json else "converters.ByteArrayConverter"
        sink = {
            "connector.class": "io.confluent.connect.s3.S3SinkConnector",
            "storage.class": "io.confluent.connect.s3.storage.S3Storage",
            "format.class": f"io.confluent.connect.s3.format.{kind}Format",
            "value.converter": f"org.apache.kafka.connect.{converter}",
            **({"value.converter.schemas.enable": "false"} if as_json else {"format.bytearray.extension": ".json"}),
            "flush.size": str(topic.records_per_object),
            "s3.compression.type": "gzip",
            "s3.bucket.name": bucket,
            "s3.region": "us-east-1",
            "store.url": self.endpoint,
            "aws.access.key.id": CREDENTIALS.access_key_id,
            "aws.secret.access.key": CREDENTIALS.secret_access_key,
        }
        cost = self._connect(topic, folder, sink, lambda: len(self._data(bucket)) >= topic.objects, plugin)
        return self._landed(topic, cost, bucket, written_anew=as_json)

    def _connect(
        self, topic: Topic, folder: Path, sink: dict[str, str], done: Callable[[], bool], plugin: Path | None = None
    ) -> Whole:
        worker = {
            "bootstrap.servers": self.kafka,
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": sink["value.converter"],
            "consumer.isolation.level": "read_committed",
            "offset.storage.file.filename": str(folder / "offsets"),
            "listeners": f"http://{HOST}:{free_ports(1)[0]}",
            # The class path has the only connector, or its archive is named.
            **({"plugin.path": str(plugin)} if plugin else {"plugin.discovery": "service_load"}),
        }
        sink = {"name": f"peer-{uuid.uuid4().hex}", "tasks.max": "1", "topics": topic.name, **sink}
        for name, settings in (("worker", worker), ("sink", sink)):
            text = "".join(f"{key}={value}\n" for key, value in settings.items())
            (folder / f"{name}.properties").write_text(text)
        (folder / "log4j2.xml").write_text(_LOG4J2)
        command = [
            find_java(),
            # As in the script connect-standalone.
            *("-Xms256M", "-Xmx2G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"),
            f"-Dlog4j2.configurationFile={folder}/log4j2.xml",
            *("-cp", f"{JARS / 'connect'}/*", "org.apache.kafka.connect.cli.ConnectStandalone"),
            *(str(folder / "worker.properties"), str(folder / "sink.properties")),
        ]
        return whole(command, {}, folder / "output", done=done)

    def _landed(self, topic: Topic, cost: Whole, bucket: str, *, written_anew: bool = False) -> dict[str, float]:
        """The figures of a run if all records are in a bucket, which is removed.

        Args:
            topic: what was landed.
            cost: of the run.
            bucket: with the objects.
            written_anew: the values were read as JSON and written again, so their spelling may differ.
        """
        data = self._data(bucket)
        lines = self._lines(bucket, data)
        if written_anew:
            _check(topic, map(_spelled, lines), topic.spelled_size)
        else:
            _check(topic, lines, topic.size)
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=bucket)
        # Folders come last: the server keeps objects as files.
        for key in sorted((item["Key"] for page in pages for item in page.get("Contents", [])), reverse=True):
            self.client.delete_object(Bucket=bucket, Key=key)
        return {**asdict(cost), "size": sum(data.values())}

    def _data(self, bucket: str) -> dict[str, int]:
        """The size of each object with records."""
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=bucket)
        found = {item["Key"]: item["Size"] for page in pages for item in page.get("Contents", [])}
        return {key: size for key, size in found.items() if key.endswith(".gz") and "/_kafka_s3/" not in f"/{key}"}

    def _lines(self, bucket: str, keys: Iterable[str]) -> Iterator[bytes]:
        for key in keys:
            yield from gzip.decompress(self.client.get_object(Bucket=bucket, Key=key)["Body"].read()).splitlines(True)

    def _bucket(self) -> str:
        bucket = f"peer-{uuid.uuid4().hex}"
        self.client.create_bucket(Bucket=bucket)
        return bucket

    def _folder(self) -> Path:
        return Path(tempfile.mkdtemp(dir=self.folder))


def _check(topic: Topic, lines: Iterable[bytes], expected: int) -> None:
    records = size = 0
    for line in lines:
        records += 1
        size += len(line)
    if (records, size) != (topic.records, expected):
        raise Incomplete(f"{records:,} of {topic.records:,} records arrived, {size:,} of {expected:,} bytes")


def _spelled(line: bytes) -> bytes:
    """A line of JSON in one spelling of its numbers and texts."""
    return msgspec.json.encode(msgspec.json.decode(line))


def make_topic(broker: KafkaBroker, records: int) -> Topic:
    """Fill a topic."""
    size = 0

    def counted() -> Iterator[Message]:
        nonlocal size
        for message in messages(records, PARTITIONS):
            size += len(message.value or b"") + 1
            yield message

    load(broker, f"peers-{records}", counted(), PARTITIONS)
    return Topic(f"peers-{records}", records, size)


def main() -> int:
    """Measure, print the tables, write the JSON; 1 if a case failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmark.peers", description=__doc__)
    parser.add_argument("--records", type=int, action="append", help="may be repeated (default: 1000 and 2000000)")
    parser.add_argument("--case", action="append", help="only cases with this text in their name; may be repeated")
    parser.add_argument("--rounds", type=int, default=3, help="of each case; medians count (default: %(default)s)")
    parser.add_argument("--json", type=Path, default=ROOT / ".build" / "peers.json", help="where the figures go")
    options = parser.parse_args()
    full = RECORDS_PER_OBJECT
    sizes: list[int] = sorted(set(options.records or [1_000, 2_000_000]))
    for records in sizes:
        if records < PARTITIONS or records % PARTITIONS or records // PARTITIONS % min(full, records // PARTITIONS):
            parser.error(
                f"--records {records}: has to be a multiple of {PARTITIONS} up to {full * PARTITIONS:,}, or a multiple "
                f"of that, so that no object of {full:,} records stays open"
            )
    summary: dict[str, Any] = {"cores": os.cpu_count(), "rounds": options.rounds, "records": {}}
    failed = False
    with (
        store("versitygw") as server,
        KafkaBroker(heap="1g", optimised=True) as broker,
        tempfile.TemporaryDirectory(prefix="peers-") as folder,
    ):
        peers = Peers(broker, server.endpoint, Path(folder))
        if CONFLUENT not in os.environ:
            print(f"Without Confluent's S3 sink: {CONFLUENT} is not set (docs/benchmarks.md)", flush=True)
        if options.case:
            peers.cases = {name: run for name, run in peers.cases.items() if any(part in name for part in options.case)}
        print("Every case once, which is not measured …", flush=True)
        warm = make_topic(broker, 100)
        for run in peers.cases.values():
            run(warm)
        for records in sizes:
            topic = make_topic(broker, records)
            print(f"{records:,} records …", flush=True)
            found: dict[str, list[dict[str, float]]] = {name: [] for name in peers.cases}
            # In turn, so that a busy minute of the machine is not that of one case.
            for _ in range(options.rounds):
                for name, run in peers.cases.items():
                    try:
                        figures = run(topic)
                    except (CommandFailed, Incomplete) as e:
                        failed = True
                        print(f"  {name} failed: {e}", file=sys.stderr, flush=True)
                        continue
                    found[name].append(figures)
                    print(f"  {name}: {figures['wall']:.2f} s, {figures['cpu']:.2f} CPU s", flush=True)
            summary["records"][records] = {name: medians(rounds) for name, rounds in found.items() if rounds}
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(summary, indent=1) + "\n")
    print(*(line for records, cases in summary["records"].items() for line in table(records, cases)), sep="\n")
    print(f"Figures: {options.json}")
    return 1 if failed else 0


def medians(rounds: list[dict[str, float]]) -> dict[str, float]:
    """The median of each figure."""
    return {name: statistics.median(figures[name] for figures in rounds) for name in rounds[0]}


def table(records: int, cases: dict[str, dict[str, float]]) -> list[str]:
    """The figures of one size as text."""
    head = f"{'wall s':>8}{'/ours':>7}{'CPU s':>8}{'/ours':>7}{'memory MB':>11}{'/ours':>7}{'out MB':>8}"
    lines = ["", f"{records:,} records, {PARTITIONS} partitions, {os.cpu_count()} cores", f"{'':33}{head}"]
    for name, case in cases.items():
        text = f"{name:33}"
        for figure, width, places, unit in (("wall", 8, 2, 1), ("cpu", 8, 2, 1), ("memory", 11, 0, MEGABYTE)):
            ratio = f"{case[figure] / cases[OURS][figure]:.2f}" if OURS in cases else ""
            text += f"{case[figure] / unit:{width}.{places}f}{ratio:>7}"
        lines.append(f"{text}{case['size'] / MEGABYTE:8.1f}")
    return [*lines, ""]


if __name__ == "__main__":
    sys.exit(main())
