"""A pipeline for tests and the benchmark: plans by ``TopicRun``, executes by a ``JobSpec``, reads the bucket back.

This is what the operator does, without Airflow.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from airflow_provider_kafka_s3.batch.commit import Committer
from airflow_provider_kafka_s3.batch.execute import execute_plan
from airflow_provider_kafka_s3.batch.location import TopicLocation
from airflow_provider_kafka_s3.batch.log import TopicLog
from airflow_provider_kafka_s3.batch.request import RunRequest, TopicResult
from airflow_provider_kafka_s3.batch.source import Source
from airflow_provider_kafka_s3.config import Landed, Layout
from airflow_provider_kafka_s3.documents.manifest import Manifest, ObjectEntry
from airflow_provider_kafka_s3.documents.plan import Plan
from airflow_provider_kafka_s3.kafka.source import KafkaSource
from airflow_provider_kafka_s3.pipeline import Run, TopicPipeline
from airflow_provider_kafka_s3.reading.landed_source import LandedSource
from airflow_provider_kafka_s3.registry.client import RegistryClient
from airflow_provider_kafka_s3.registry.settings import RegistrySettings
from airflow_provider_kafka_s3.retry import Retrier, RetryPolicy
from airflow_provider_kafka_s3.spark.conf import with_job_conf
from airflow_provider_kafka_s3.spark.job import Job
from airflow_provider_kafka_s3.spark.spec import JobResult, JobSpec, PlanRef, TopicOutcome
from airflow_provider_kafka_s3.storage.durable import DurableStore
from airflow_provider_kafka_s3.storage.s3 import S3Credentials, S3Settings, S3Store, make_client
from airflow_provider_kafka_s3.submit.driver_jvm import jvm_variables
from airflow_provider_kafka_s3.submit.job_script import job_script
from airflow_provider_kafka_s3.testing.invariants import BucketSummary, check_bucket, read_source
from dev.airflow_home import SPARK_JARS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT: Final = Path(__file__).resolve().parents[2]
CREDENTIALS: Final = S3Credentials(access_key_id="test", secret_access_key="canary-of-the-secret-key")


MASTER: Final = "local[2,4]"


def spark_conf(**more: str) -> dict[str, str]:
    """Settings of a local session as the operator makes them; keywords have ``_`` for ``.``."""
    user = {
        "spark.master": MASTER,
        "spark.jars": ",".join(str(jar) for jar in sorted(SPARK_JARS.glob("*.jar"))),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        **{name.replace("_", "."): value for name, value in more.items()},
    }
    return with_job_conf(user)


def s3_settings(endpoint: str, **more: Any) -> S3Settings:
    """Settings of a server of the tests."""
    return S3Settings(**{"endpoint_url": endpoint, "region": "us-east-1", "addressing_style": "path", **more})


@dataclass(eq=False)
class Pipeline:
    """One pipeline, in one bucket.

    Attributes:
        kafka: librdkafka settings.
        endpoint: of the S3 server.
        bucket: made if it does not exist.
        layout: of what it plans.
        settings: more of ``RunRequest``.
        credentials: of the S3 server.
        registry: of the schemas of values; None: there is none.
        stored: more of ``S3Settings``.
        reads: the pipeline whose objects it reads; None: it reads Kafka.
    """

    kafka: Mapping[str, object]
    endpoint: str
    layout: Layout
    bucket: str = field(default_factory=lambda: f"lake-{uuid.uuid4().hex}")
    name: str = "lake"
    settings: dict[str, Any] = field(default_factory=dict)
    credentials: S3Credentials = CREDENTIALS
    registry: RegistrySettings | None = None
    stored: dict[str, Any] = field(default_factory=dict)
    reads: Landed | None = None

    def __post_init__(self) -> None:
        settings = s3_settings(self.endpoint, **self.stored)
        self.client = make_client(settings, self.credentials)
        with contextlib.suppress(self.client.exceptions.BucketAlreadyOwnedByYou):
            self.client.create_bucket(Bucket=self.bucket)
        self.store = DurableStore(S3Store(self.client, self.bucket, settings), Retrier())
        self.source: Source = KafkaSource(self.kafka)
        if self.reads is not None:
            self.source = LandedSource(self.store, self.reads)

    def close(self) -> None:
        """Close the client's connections."""
        self.client.close()

    # -- what the operator does ---------------------------------------------------------------------------------------

    def topic_pipeline(self, topic: str) -> TopicPipeline:
        """One topic, without anything cached."""
        return TopicPipeline(
            self.store,
            self.source,
            topics_dir=self.layout.topics_dir,
            pipeline=self.name,
            topic=topic,
            registry=None if self.registry is None else RegistryClient(self.registry),
        )

    def location(self, topic: str) -> TopicLocation:
        """Where the topic is, for a replay."""
        address = self.log(topic).address
        return TopicLocation(self.bucket, address, s3_settings(self.endpoint, **self.stored), self.credentials)

    def topic_run(self, topic: str, run: str) -> Run:
        """One attempt of a run over a topic."""
        starting = None if "window" in self.settings else "earliest"
        request = RunRequest(
            **{"run": run, "offsets": "incremental", "layout": self.layout, "starting": starting, **self.settings}
        )
        return self.topic_pipeline(topic).run(request)

    def plan(self, topic: str, run: str) -> Plan:
        """Plan the next batch of a topic; there has to be something new."""
        plan = self.topic_run(topic, run).advance()
        assert isinstance(plan, Plan)
        return plan

    def spec(self, plans: Mapping[str, Plan], run: str, result_path: Path | str, **more: Any) -> JobSpec:
        """The job of these plans."""
        refs = tuple(
            PlanRef(
                topics_dir=self.layout.topics_dir,
                pipeline=self.name,
                topic=topic,
                batch=plan.batch,
                offsets=plan.read.count,
            )
            for topic, plan in plans.items()
        )
        return JobSpec(
            **{
                "run": run,
                "plans": refs,
                "kafka": dict(self.kafka),
                "bucket": self.bucket,
                "result_path": str(result_path),
                "s3": s3_settings(self.endpoint, **self.stored),
                "credentials": self.credentials,
                "retry": RetryPolicy(base=0.05),
                "registry": self.registry,
                **more,
            }
        )

    def job(self, spec: JobSpec, spark: SparkSession) -> JobResult:
        """Execute a job in this process."""
        return Job(spec, lambda: spark, source=KafkaSource(self.kafka), store=self.store).run()

    def execute(self, spark: SparkSession, *topics: str, run: str, **more: Any) -> dict[str, TopicOutcome]:
        """Plan a batch of each topic and execute it in this process."""
        plans = {topic: self.plan(topic, run) for topic in topics}
        result = self.job(self.spec(plans, run, "unused", **more), spark)
        return {outcome.topic: outcome for outcome in result.topics}

    def land(self, spark: SparkSession, *topics: str, run: str = "run") -> list[TopicResult]:
        """Run until the targets of all topics are covered."""
        results = []
        for topic in topics:
            attempt = self.topic_run(topic, run)
            while isinstance(step := attempt.advance(), Plan):
                result = self.job(self.spec({topic: step}, run, "unused"), spark)
                assert result.succeeded, result
            results.append(step)
        return results

    def land_here(self, topic: str, run: str = "run") -> TopicResult:
        """Run until the target is covered, without Spark: this process reads the records."""
        attempt = self.topic_run(topic, run)
        while isinstance(step := attempt.advance(), Plan):
            execute_plan(attempt.committer, step, run=run, on_data_loss=attempt.request.on_data_loss)
        return step

    def committer(self, topic: str) -> Committer:
        """The committer of a topic, outside of a run."""
        return self.topic_pipeline(topic).committer

    # -- what is in the bucket ----------------------------------------------------------------------------------------

    def log(self, topic: str) -> TopicLog:
        """The control documents of a topic, without anything cached."""
        return self.topic_pipeline(topic).log

    def decision(self, topic: str, batch: int = 1) -> Manifest | None:
        """The manifest of a batch, or None."""
        return self.log(topic).read_manifest(batch)

    def objects(self, topic: str, batch: int = 1) -> tuple[ObjectEntry, ...]:
        """The objects of a committed batch."""
        manifest = self.decision(topic, batch)
        assert manifest is not None
        assert manifest.status == "commit"
        return manifest.objects

    def data_keys(self, prefix: str = "") -> list[str]:
        """Keys of all data objects that are visible."""
        return [info.key for info in self.store.list(prefix) if "/_kafka_s3/" not in f"/{info.key}"]

    def body(self, key: str) -> bytes:
        """Bytes of an object, unpacked."""
        found = self.store.get(key)
        assert found is not None
        return gzip.decompress(found.body) if key.endswith(".gz") else found.body

    def bodies(self, prefix: str = "") -> dict[str, bytes]:
        """All data objects, as stored."""
        found = {key: self.store.get(key) for key in self.data_keys(prefix)}
        return {key: stored.body for key, stored in found.items() if stored is not None}

    def save(self, folder: Path, *, in_flight: bool = False) -> None:
        """Write all data objects to a local folder, below their keys.

        Args:
            folder: where to.
            in_flight: whether there is a second file beside each of them, which no manifest has.
        """
        for key, body in self.bodies().items():
            file = folder / key
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(body)
            if in_flight:
                (file.parent / f"in-flight-{file.name}").write_bytes(body)

    def lines(self, topic: str = "") -> Counter[bytes]:
        """Lines of all visible data objects of a topic (of all topics), and how often each is there."""
        keys = [key for key in self.data_keys() if f"/{topic}" in f"/{key}"]
        return Counter(line for key in keys for line in self.body(key).splitlines())

    def check(self, topic: str, **how: Any) -> BucketSummary:
        """Every record of a topic is in exactly one object; ``how`` has arguments of ``check_bucket``."""
        if "source" not in how:
            how["source"] = read_source(self.source, topic)
        return check_bucket(
            self.store.store,
            **{"topics_dir": self.layout.topics_dir, "pipeline": self.name, "topic": topic, "complete": True, **how},
        )


def land_together(spark: SparkSession, topics: Mapping[Pipeline, str], run: str = "run") -> None:
    """Land another topic of each pipeline by one job; the pipelines have one bucket, and names of their own."""
    specs = [each.spec({topic: each.plan(topic, run)}, run, "unused") for each, topic in topics.items()]
    first = next(iter(topics))
    result = first.job(msgspec.structs.replace(specs[0], plans=tuple(s.plans[0] for s in specs)), spark)
    assert result.succeeded, result
    assert [topic for each, topic in topics.items() if not each.objects(topic)] == []


def submit_command(job_file: Path, **conf: str) -> tuple[list[str], dict[str, str]]:
    """The command line of a job with a job file as the operator has it, and its environment variables."""
    binary = Path(sys.executable).parent / "spark-submit"
    options = [part for name, value in spark_conf(**conf).items() for part in ("--conf", f"{name}={value}")]
    command = [str(binary), *options, str(job_script()), "--job-file", str(job_file)]
    return command, {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}


@contextlib.contextmanager
def submit(spec: JobSpec, folder: Path, **conf: str) -> Iterator[subprocess.Popen[str]]:
    """Run a job as the operator does: spark-submit in a process of its own, with a job file."""
    job_file = folder / f"{uuid.uuid4().hex}.json"
    command, env = submit_command(job_file, **conf)
    env |= jvm_variables(env, offsets=sum(ref.offsets for ref in spec.plans), archive=None, serial=True)
    with (
        spec.offered(job_file),
        subprocess.Popen(
            command,
            env={**os.environ, **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        ) as process,
    ):
        yield process


def submitted(spec: JobSpec, folder: Path, **conf: str) -> tuple[JobResult | None, str, int]:
    """Run a job by spark-submit to its end; returns its result, its output and the exit code."""
    with submit(spec, folder, **conf) as process:
        output, _ = process.communicate()
    return JobResult.read(spec.result_path), output, process.returncode


MakePipeline = Callable[..., Pipeline]
