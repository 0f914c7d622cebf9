"""The operator with Kafka and the store in memory, and a Spark that executes jobs in this process.

All other code is real: Airflow's hook builds the command line, and the job file is written to the disk and read back.
"""

from __future__ import annotations

import atexit
import json
import os
import stat
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pendulum
import pytest

from airflow_provider_kafka_s3.batch.log import TopicLog
from airflow_provider_kafka_s3.exceptions import RecordError
from airflow_provider_kafka_s3.pipeline import open_topic
from airflow_provider_kafka_s3.reading.source_by_log import SourceByLog
from airflow_provider_kafka_s3.retry import Retrier
from airflow_provider_kafka_s3.spark.spec import JobResult, JobSpec, PlanRef, TopicOutcome
from airflow_provider_kafka_s3.storage.durable import DurableStore
from airflow_provider_kafka_s3.storage.memory import MemoryStore
from airflow_provider_kafka_s3.submit.driver_jvm import jvm_variables
from airflow_provider_kafka_s3.testing.kafka import SimulatedKafka

# Airflow reads these when it is imported, which the tests of this folder do first.
_HOME = tempfile.TemporaryDirectory(prefix="airflow-home-")
atexit.register(_HOME.cleanup)
os.environ["AIRFLOW_HOME"] = _HOME.name
os.environ["AIRFLOW__CORE__UNIT_TEST_MODE"] = "True"
# The default of Airflow 3. Without it Airflow 2.11 warns.
os.environ["AIRFLOW__METRICS__TIMER_UNIT_CONSISTENCY"] = "True"

# Only the environment of the newest Spark has the provider.
collect_ignore = [] if find_spec("openlineage") else ["test_lineage.py"]

if TYPE_CHECKING:
    from airflow_provider_kafka_s3.operators.kafka_to_s3 import KafkaToS3Operator

CANARY = "canary-7c1d"
SECRETS = {
    "kafka": f"{CANARY}-kafka-password",
    "aws": f"{CANARY}-aws-secret-key",
    "options": f"{CANARY}-jaas-config",
}


SMALL_JOB_JVM = jvm_variables({}, offsets=1, archive=None, serial=True)
"""Variables of a job with few offsets, whose worker has no archive of Spark's classes."""


class FakeSpark:
    """Replaces ``SparkSubmitHook.submit``: executes plans as the driver would, without a JVM.

    Attributes:
        commands: every command line that was submitted.
        environments: variables that were added to the worker's environment, per command.
        specs: contents of the job files.
        modes: permissions of each job file and of its folder.
        failing: topic -> (kind of the error, message): these are not executed.
        crash: error of ``spark-submit``, which then ends without a result; None: it succeeds.
    """

    def __init__(self, kafka: SimulatedKafka, store: MemoryStore) -> None:
        self.kafka = kafka
        self.store = store
        self.commands: list[list[str]] = []
        self.environments: list[dict[str, str]] = []
        self.specs: list[JobSpec] = []
        self.modes: list[tuple[int, int]] = []
        self.failing: dict[str, tuple[str, str]] = {}
        self.crash: str | None = None

    def submit(self, hook: Any, application: str = "") -> None:
        """Execute a job."""
        from airflow.providers.common.compat.sdk import AirflowException

        command = hook._build_spark_submit_command(application)
        self.commands.append(command)
        self.environments.append(dict(hook._env or {}))
        path = Path(command[command.index("--job-file") + 1])
        self.modes.append((stat.S_IMODE(path.stat().st_mode), stat.S_IMODE(path.parent.stat().st_mode)))
        spec = JobSpec.read(path)
        self.specs.append(spec)
        if self.crash is not None:
            raise AirflowException(self.crash)
        result = JobResult(topics=tuple(self._outcome(spec, ref) for ref in spec.plans))
        result.write(spec.result_path)
        if not result.succeeded:
            raise AirflowException("Cannot execute: spark-submit. Error code is: 1.")

    def _outcome(self, spec: JobSpec, ref: PlanRef) -> TopicOutcome:
        if ref.topic in self.failing:
            kind, message = self.failing[ref.topic]
            return TopicOutcome(topic=ref.topic, status="error", kind=kind, message=message)
        store = DurableStore(self.store, Retrier(spec.retry))
        pipeline = open_topic(store, ref.address, SourceByLog(self.kafka, TopicLog(store, ref.address)))
        try:
            pipeline.execute(
                pipeline.log.require_plan(ref.batch)[0], run=spec.run, max_dead_letters=spec.dead_letter_limit(ref)
            )
        except RecordError as e:
            return TopicOutcome.failed(ref.topic, e)
        return TopicOutcome(topic=ref.topic, status="decided")


def make_operator(**parameters: Any) -> KafkaToS3Operator:
    """An operator that lands the topic ``orders`` incrementally as JSON, without waiting for other runs."""
    from airflow_provider_kafka_s3.operators.kafka_to_s3 import KafkaToS3Operator

    defaults: dict[str, Any] = {
        "task_id": "land",
        "topics": "orders",
        "bucket": "lake",
        "pipeline": "orders-to-lake",
        "format": "json",
        "offsets": "incremental",
        "adopt_wait": 0.0,
    }
    if parameters.get("offsets") != "data_interval":
        defaults["starting_offsets"] = "earliest"
    return KafkaToS3Operator(**(defaults | parameters))


def make_context(
    *,
    run_id: str = "manual__1",
    conf: Mapping[str, Any] | None = None,
    ti: Mapping[str, Any] | None = None,
    **more: Any,
) -> Any:
    """The context of a task.

    Args:
        run_id: of the DAG run.
        conf: of the DAG run.
        ti: more attributes of the task instance.
        more: more keys of the context.
    """
    instance: dict[str, Any] = {
        "dag_id": "dag",
        "task_id": "land",
        "run_id": run_id,
        "map_index": -1,
        "try_number": 1,
        "xcom_push": lambda **_: None,
    }
    return {
        "ti": SimpleNamespace(**(instance | dict(ti or {}))),
        "dag_run": SimpleNamespace(conf=conf),
        "params": {},
        "outlet_events": {},
        **more,
    }


class Bench:
    """Kafka, the store and Spark, and tasks that use them.

    Attributes:
        kafka: the cluster.
        store: the bucket.
        spark: executes jobs.
        pushed: XComs that tasks have pushed, beside the one they return.
        outlet_events: events of the tasks' outlets, by outlet.
    """

    def __init__(self) -> None:
        self.kafka = SimulatedKafka()
        self.store = MemoryStore("lake")
        self.spark = FakeSpark(self.kafka, self.store)
        self.pushed: dict[str, Any] = {}
        self.outlet_events: Any = {}

    def fill(self, topic: str, values: Sequence[Mapping[str, object]], *, partition: int = 0, at: int = 0) -> None:
        """Append JSON records with the timestamp ``at``."""
        for value in values:
            self.kafka.append(topic, partition, json.dumps(value).encode(), at)

    def task(self, **parameters: Any) -> KafkaToS3Operator:
        """See :func:`make_operator`."""
        return make_operator(**parameters)

    def run(
        self,
        task: KafkaToS3Operator,
        *,
        run_id: str = "manual__1",
        interval: tuple[datetime, datetime] | None = None,
        try_number: int = 1,
        conf: Mapping[str, Any] | None = None,
        ti: Mapping[str, Any] | None = None,
        context: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Execute a task as Airflow would; returns its XCom after serialization to JSON and back.

        ``ti`` has more attributes of its task instance, and ``context`` more keys of Airflow's context.
        """

        def push(key: str, value: object) -> None:
            self.pushed[key] = json.loads(json.dumps(value))

        more: dict[str, Any] = {"task": task, "outlet_events": self.outlet_events, **(context or {})}
        if interval is not None:
            more |= {"data_interval_start": interval[0], "data_interval_end": interval[1]}
        instance = {"try_number": try_number, "xcom_push": push, **(ti or {})}
        returned: dict[str, Any] = json.loads(
            json.dumps(task.execute(make_context(run_id=run_id, conf=conf, ti=instance, **more)))
        )
        return returned

    def objects(self, prefix: str = "topics/") -> dict[str, list[Any]]:
        """Data objects: key -> JSON documents."""
        found = {}
        for info in self.store.list(prefix):
            if "/_kafka_s3/" not in info.key:
                stored = self.store.get(info.key)
                assert stored is not None
                found[info.key] = [json.loads(line) for line in stored.body.splitlines()]
        return found


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow connections to the three systems, with secrets in them."""
    kafka = {
        "bootstrap.servers": "broker:9092",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "u",
        "sasl.password": SECRETS["kafka"],
    }
    aws = {
        "conn_type": "aws",
        "login": "AKIACANARY",
        "password": SECRETS["aws"],
        "extra": {
            "endpoint_url": "http://global:1",
            "region_name": "eu-central-1",
            "verify": "/etc/lake-ca.pem",
            "config_kwargs": {"s3": {"addressing_style": "path"}, "connect_timeout": 3},
            "service_config": {"s3": {"endpoint_url": "http://lake:9000"}},
        },
    }
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_DEFAULT", json.dumps({"conn_type": "kafka", "extra": kafka}))
    monkeypatch.setenv("AIRFLOW_CONN_AWS_DEFAULT", json.dumps(aws))
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", "host": "local[2]"}))


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, connections: None) -> Iterator[Bench]:
    """See the class."""
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

    import airflow_provider_kafka_s3.kafka.source
    import airflow_provider_kafka_s3.storage.bucket
    import airflow_provider_kafka_s3.submit.masters

    java = tmp_path / "jre" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.touch(mode=0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jre"))
    # A command of a Spark of the user's own.
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "spark3-submit").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)
    # All temporary files are created here, so that the fixture can check that none is left.
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        monkeypatch.delenv(name, raising=False)
    made = Bench()
    monkeypatch.setattr(
        airflow_provider_kafka_s3.storage.bucket,
        "open_bucket",
        lambda *_, retrier=None: DurableStore(made.store, retrier or Retrier()),
    )
    monkeypatch.setattr(airflow_provider_kafka_s3.kafka.source, "KafkaSource", lambda *_, **__: made.kafka)
    monkeypatch.setattr(airflow_provider_kafka_s3.submit.masters, "connection_error", lambda address: None)
    monkeypatch.setattr(SparkSubmitHook, "submit", lambda hook, application="": made.spark.submit(hook, application))
    yield made
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.fixture
def topics(bench: Bench) -> Bench:
    """Two topics with records, and an empty one."""
    for topic in ("orders", "clicks", "quiet"):
        bench.kafka.create_topic(topic)
    bench.fill("orders", [{"n": 1}, {"n": 2}], at=1_356_998_400_000)
    bench.fill("clicks", [{"n": 1}], at=1_356_998_400_000)
    bench.outlet_events = defaultdict(SimpleNamespace)
    return bench


@pytest.fixture
def day() -> tuple[datetime, datetime]:
    """A day long past."""
    # Airflow's context has pendulum's datetimes.
    return pendulum.datetime(2013, 1, 1), pendulum.datetime(2013, 1, 2)
