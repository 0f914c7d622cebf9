"""The operator with the executors of a real cluster, whose Python has neither Airflow nor this package."""

from __future__ import annotations

import io
import json
import re
import subprocess
import tarfile
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import pytest

from dev.airflow_connections import connection_variables, s3_connection
from dev.fault_proxy import FaultProxy
from dev.faults import Answer
from dev.kafka_broker import Message
from dev.schema_registry import SchemaRegistry
from dev.spark_cluster import WORKER_PYTHON, SparkCluster
from dev.waiting import wait_for_end
from tests.airflow.conftest import SECRET_KEY
from tests.conftest import PASSWORD
from tests.landed_rows import normal
from tests.spark.avro_orders import COUNT, rows, send_orders
from tests.spark.probes import command_lines
from tests.spark.registry_values import key_of, send_messages

if TYPE_CHECKING:
    from airflow_provider_kafka_s3.storage.s3 import S3Store
    from airflow_provider_kafka_s3.testing.invariants import BucketSummary
    from dev.kafka_broker import KafkaBroker
    from tests.airflow.conftest import Gate, TaskRun, Worker

CLUSTER_SECRET = "canary-4b7e-cluster-secret"
REGISTRY_USER, REGISTRY_PASSWORD = "reader", "canary-2d60 p$s"
PRIVATE = {
    "spark.authenticate": "true",
    "spark.authenticate.secret": CLUSTER_SECRET,
    "spark.network.crypto.enabled": "true",
}
"""Connections inside the cluster need the secret, and are encrypted."""

WAIT = 240.0
"""Seconds to wait, much longer than necessary on an idle machine."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[SparkCluster]:
    """One master and two workers of one core each, which encrypt their connections."""
    with SparkCluster(PRIVATE) as started:
        yield started


@pytest.fixture(scope="module")
def proxy(s3_gate: tuple[str, Gate]) -> Iterator[FaultProxy]:
    """A proxy in front of the S3 server, for the driver and the executors."""
    with FaultProxy(s3_gate[0]) as started:
        yield started


@pytest.fixture(scope="module")
def land(
    worker: Worker, cluster: SparkCluster, proxy: FaultProxy, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., TaskRun]:
    """Run the operator on the cluster: ``land(topic, conf)``, with more settings of Spark and more connections."""
    private = tmp_path_factory.mktemp("spark") / "private.conf"
    private.touch(mode=0o600)
    private.write_text("".join(f"{name} {value}\n" for name, value in PRIVATE.items()))
    connections = connection_variables(
        {
            "spark_cluster": {"conn_type": "spark", "host": cluster.url},
            # A long timeout, so that the client does not repeat a held request on a slow machine.
            "aws_cluster": s3_connection(proxy.endpoint, "AKIATESTS", SECRET_KEY, config={"read_timeout": WAIT}),
        }
    )

    def run(topic: str, conf: dict[str, str], environment: dict[str, str] | None = None, **parameters: Any) -> TaskRun:
        return worker.run(
            topics=topic,
            spark_conn_id="spark_cluster",
            aws_conn_id="aws_cluster",
            environment={**connections, **(environment or {})},
            spark_conf={"spark.pyspark.python": str(WORKER_PYTHON), "spark.ui.enabled": "false", **conf},
            properties_file=str(private),
            executor_memory="512m",
            **parameters,
        )

    return run


def topic_of_two(broker: KafkaBroker) -> str:
    """A topic with 100 records in each of two partitions: two slices, one for each worker of the cluster."""
    topic = broker.create_topic(f"test-{uuid.uuid4()}", 2)
    broker.produce(topic, [Message(json.dumps({"n": n}).encode(), partition=n % 2) for n in range(200)])
    return topic


def uploads(proxy: FaultProxy, topic: str, partition: int) -> list[str]:
    """The uploads of the attempts at a slice, in the order in which they began to send."""
    found = [c.upload_id for c in proxy.calls if c.operation == "UploadPart" and f"/{topic}+{partition}+" in c.key]
    return list(dict.fromkeys(found))


def pending(store: S3Store, topic: str) -> list[str]:
    """The uploads of a topic that are open."""
    return [upload.upload_id for upload in store.pending_uploads(f"topics/{topic}/")]


def packed(folder: Path) -> Path:
    """An environment as executors unpack it; its Python calls the installed one, which saves packing 300 MB."""
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nexec {WORKER_PYTHON} "$@"\n')
    python.chmod(0o755)
    with tarfile.open(folder / "environment.tar.gz", "w:gz") as archive:
        archive.add(python, "bin/python")
    return folder / "environment.tar.gz"


@dataclass(frozen=True)
class Attacked:
    """A run whose first attempt at each slice failed, and what was observed meanwhile.

    Attributes:
        run: its result.
        topic: of two slices.
        attempts: uploads of each slice, in the order of the attempts.
        interpreter: of the held Python process.
        environment: of that process.
        commands: the arguments of all processes of Spark.
        events: Spark's event log.
        logs: of the cluster.
    """

    run: TaskRun
    topic: str
    attempts: tuple[list[str], list[str]]
    interpreter: str
    environment: dict[str, str]
    commands: list[list[str]]
    events: str
    logs: dict[str, str]


@pytest.fixture(scope="module")
def attacked(
    cluster: SparkCluster,
    proxy: FaultProxy,
    land: Callable[..., TaskRun],
    worker: Worker,
    kafka_broker: KafkaBroker,
    tmp_path_factory: pytest.TempPathFactory,
) -> Attacked:
    """Slice 0 is held in its upload and its executor killed; slice 1's upload is refused, and tried by Spark alone."""
    topic = topic_of_two(kafka_broker)
    events = tmp_path_factory.mktemp("events")
    conf = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": events.as_uri(),
        "spark.eventLog.compress": "false",
    }
    held = proxy.hold("UploadPart", key=f"*/{topic}+0+*")
    refused = proxy.add(Answer(500, "InternalError"), operation="UploadPart", key=f"*/{topic}+1+*")
    runs: list[TaskRun] = []
    task = threading.Thread(target=lambda: runs.append(land(topic, conf, request_retry={"max_retries": 0})))
    task.start()
    try:
        held.wait_until_held(WAIT)
        (port,) = (c.port for c in proxy.calls if c.fault == "Hold" and topic in c.key)
        executor = cluster.executor_of(port)
        (process,) = (
            p for p in cluster.python_workers(executor) if port in {c.laddr.port for c in p.net_connections()}
        )
        interpreter, environment = process.cmdline()[0], process.environ()
        commands = command_lines([*worker.descendants(), *cluster.executors()])
        cluster.kill_executor(executor)
        # A worker that still lives when its request fails would abort its upload.
        wait_for_end([process], "the worker")
    finally:
        held.drop()
        task.join()
    assert refused.struck == 1
    text = "".join(file.read_text(errors="replace") for file in events.rglob("*") if file.is_file())
    attempts = uploads(proxy, topic, 0), uploads(proxy, topic, 1)
    return Attacked(runs[0], topic, attempts, interpreter, environment, commands, text, cluster.logs())


@pytest.mark.newest_spark
def test_an_executor_killed_in_mid_slice_and_a_failed_attempt_leave_every_record_once(
    attacked: Attacked, store: S3Store, check: Callable[..., BucketSummary]
) -> None:
    """Both slices are tried again; open is only the upload of the attempt that could not clean up after itself."""
    assert attacked.run.succeeded, attacked.run.log
    summary = check(attacked.topic)
    assert (summary.records, summary.objects, summary.batches) == (200, 2, 1)
    assert [len(uploads) for uploads in attacked.attempts] == [2, 2]
    assert pending(store, attacked.topic) == [attacked.attempts[0][0]]


@pytest.mark.newest_spark
def test_executors_run_the_shipped_zip_in_a_python_of_their_own(attacked: Attacked) -> None:
    """It has neither Airflow nor this package nor the driver's libraries, and the task's log has its versions."""
    assert attacked.interpreter == str(WORKER_PYTHON)
    package = r"airflow_provider_kafka_s3-[0-9a-f]{16}\.zip"
    installed = "import importlib.metadata as m, re; print(*(re.escape(m.version(n)) for n in ('boto3', 'pyarrow')))"
    versions = subprocess.run([WORKER_PYTHON, "-c", installed], capture_output=True, text=True, check=True).stdout
    boto3, pyarrow = versions.split()
    assert re.search(
        rf"2 tasks ran in Python 3\.\d+\.\d+ of {WORKER_PYTHON} with {package}, boto3 {boto3}, .*, pyarrow {pyarrow} ",
        attacked.run.log,
    )
    code = """
import importlib.util
names = ("airflow", "airflow_provider_kafka_s3", "pyspark", "msgspec")
print([name for name in names if importlib.util.find_spec(name)])
"""
    done = subprocess.run(
        [attacked.interpreter, "-c", code],
        env=attacked.environment,
        cwd="/",
        capture_output=True,
        text=True,
        check=True,
    )
    # pyspark is there because Spark itself adds it to the path.
    assert done.stdout == "['pyspark', 'msgspec']\n"


def test_no_secret_is_in_the_arguments_the_events_or_the_logs_of_a_cluster(attacked: Attacked) -> None:
    """Executors get credentials by Spark's own messages alone, which are encrypted here."""
    assert any("--job-file" in command for command in attacked.commands)
    assert any("org.apache.spark.executor.CoarseGrainedExecutorBackend" in command for command in attacked.commands)
    assert "SparkListenerSQLExecutionStart" in attacked.events
    assert any("CoarseGrainedExecutorBackend" in text for text in attacked.logs.values())
    written = {
        "arguments": json.dumps(attacked.commands),
        "events": attacked.events,
        "logs": "\n".join(attacked.logs.values()),
        "log of the task": attacked.run.log,
    }
    # The secret of the cluster is a variable of its executors: Spark passes it so.
    assert all(secret not in attacked.environment.values() for secret in (PASSWORD, SECRET_KEY))
    assert '"spark.network.crypto.enabled":"true"' in attacked.events
    for secret in (PASSWORD, SECRET_KEY, CLUSTER_SECRET):
        forms = {secret, json.dumps(secret)[1:-1], repr(secret)[1:-1]}
        assert [place for place, text in written.items() if any(form in text for form in forms)] == []


def test_two_attempts_of_a_slice_at_once_leave_every_record_once(
    cluster: SparkCluster,
    proxy: FaultProxy,
    land: Callable[..., TaskRun],
    kafka_broker: KafkaBroker,
    store: S3Store,
    check: Callable[..., BucketSummary],
    tmp_path: Path,
) -> None:
    """Speculation: one attempt hangs, the other lands; what the first still sends afterwards changes nothing.

    Here the executors' environment travels with the job.
    """
    topic = topic_of_two(kafka_broker)
    conf = {
        "spark.speculation": "true",
        "spark.speculation.interval": "50ms",
        "spark.speculation.quantile": "0.5",
        "spark.speculation.multiplier": "1.1",
        "spark.pyspark.python": "./environment/bin/python",
    }
    held = proxy.hold("UploadPart", key=f"*/{topic}+0+*")
    run = land(topic, conf, archives=f"{packed(tmp_path)}#environment")
    assert run.succeeded, run.log
    slow, fast = uploads(proxy, topic, 0)
    before = check(topic)
    assert pending(store, topic) == [slow]
    held.release()
    assert check(topic) == before
    assert (before.records, before.objects) == (200, 2)
    assert pending(store, topic) == [slow]
    assert fast in {c.upload_id for c in proxy.calls if c.operation == "CompleteMultipartUpload"}
    assert slow not in {c.upload_id for c in proxy.calls if c.operation == "CompleteMultipartUpload"}


@pytest.fixture(scope="module")
def registry() -> Iterator[SchemaRegistry]:
    """One that demands a password."""
    with SchemaRegistry(users={REGISTRY_USER: REGISTRY_PASSWORD}) as started:
        yield started


@pytest.fixture(scope="module")
def land_decoded(land: Callable[..., TaskRun], registry: SchemaRegistry) -> Callable[..., None]:
    """Run the operator with a connection of the registry, whose password the executors need."""
    connection = {"conn_type": "http", "host": registry.url, "login": REGISTRY_USER, "password": REGISTRY_PASSWORD}
    environment = connection_variables({"tests_registry": connection})

    def run(topic: str, **parameters: Any) -> None:
        done = land(topic, {}, environment, registry_conn_id="tests_registry", errors="dead_letter", **parameters)
        assert done.succeeded, done.log
        assert re.search(r"2 tasks ran in Python .*, pyarrow 18\.0\.0 ", done.log)
        assert REGISTRY_PASSWORD not in done.log

    return run


def test_executors_decode_avro_and_write_parquet_with_the_oldest_libraries(
    land_decoded: Callable[..., None],
    registry: SchemaRegistry,
    kafka_broker: KafkaBroker,
    check: Callable[..., BucketSummary],
) -> None:
    """Every value is landed once or set aside, and the executors themselves read the registry with its password."""
    orders = send_orders(kafka_broker, registry)
    land_decoded(orders.topic, format="parquet", value_converter="avro")
    assert check(orders.topic, decoder=rows, as_written=orders.decode).records == COUNT


def test_executors_decode_protobuf_and_json_schema_and_write_envelopes_with_the_oldest_libraries(
    land_decoded: Callable[..., None],
    registry: SchemaRegistry,
    kafka_broker: KafkaBroker,
    check: Callable[..., BucketSummary],
) -> None:
    """Keys, values, headers and a null value of each record, as Avro, which the executors encode."""
    sent = send_messages(kafka_broker, registry, whole=True)
    land_decoded(
        sent.topic,
        format={"kind": "avro", "codec": "deflate", "on_null": "write"},
        content="envelope",
        key_converter="json_schema",
        value_converter="protobuf",
    )
    envelopes: list[Any] = []

    def values(_: str, body: bytes) -> list[bytes | None]:
        found: list[Any] = list(fastavro.reader(io.BytesIO(body)))
        envelopes.extend(found)
        return [None if row["value"] is None else normal(row["value"]) for row in found]

    checked = check(sent.topic, decoder=values, as_written=sent.decode)
    assert (checked.records, len(envelopes)) == (sent.count, sent.count - len(sent.bad))
    for row in envelopes:
        number = 2 * row["offset"] + row["partition"]
        headers = [{"key": "n", "value": value} for value in (b"%d" % number, None)]
        assert (row["key"], row["headers"]) == (key_of(number), headers)


def test_executors_without_the_requirements_are_a_terminal_error_with_what_to_install(
    land: Callable[..., TaskRun], kafka_broker: KafkaBroker, store: S3Store, tmp_path: Path
) -> None:
    """Spark's own traceback names a module; the task's error names the executors' Python and the setting."""
    import venv

    venv.create(tmp_path / "bare", symlinks=True)
    topic = topic_of_two(kafka_broker)
    bare = {"spark.pyspark.python": str(tmp_path / "bare" / "bin" / "python"), "spark.task.maxFailures": "1"}
    run = land(topic, bare)
    assert not run.succeeded
    assert "AirflowFailException" in run.log
    assert re.search(
        r"ConfigurationError: the executors' Python has no module 'msgspec'.*spark\.pyspark\.python", run.log
    )
    assert list(store.list(f"topics/{topic}/")) == []
