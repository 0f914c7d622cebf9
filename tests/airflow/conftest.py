"""A real Airflow, a real broker with password logins, and an S3 server over HTTP whose requests can be held."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

import msgspec
import psutil
import pytest
from werkzeug import Response

from airflow_provider_kafka_s3.kafka.source import KafkaSource
from airflow_provider_kafka_s3.storage.s3 import S3Credentials, S3Settings, S3Store, make_client
from airflow_provider_kafka_s3.testing.invariants import BucketSummary, check_bucket, read_source
from dev.airflow_connections import connection_variables, kafka_connection, s3_connection
from dev.airflow_home import AirflowHome, DagRun
from dev.airflow_servers import AirflowServers
from dev.kafka_broker import KafkaBroker, Message
from dev.s3_server import ThreadedS3Server
from dev.supervisor import Startable, end_by_eof

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

BUCKET: Final = "airflow-lake"
PIPELINE: Final = "tests"
STORES: Final = json.dumps([{"bucket": BUCKET, "kafka_conn_id": "kafka_default"}])
"""What the page in Airflow shows."""
AIRFLOW_2: Final = version("apache-airflow").startswith("2.")

# A test file for one major version of Airflow has it at the end of its name: `test_…_2.py`, `test_…_3.py`.
collect_ignore_glob = ["test_*_3.py" if AIRFLOW_2 else "test_*_2.py"]
# Only the environment of the newest Spark has the provider.
collect_ignore = [] if find_spec("openlineage") else ["test_lineage.py"]
if AIRFLOW_2:
    # They test Spark's side of a task, which is the same with each Airflow, and take minutes.
    collect_ignore_glob += ["test_driver_errors.py", "test_spark_connect_server.py"]
SERVERS: Final = pytest.StashKey[AirflowServers]()
SECRET_KEY: Final = "canary/7c1d+aws-secret-key"
SPARK_SECRET: Final = "canary/1e9b+spark-password"


_DENIED: Final = b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"


class Gate:
    """Holds requests for a key until a number of them have arrived, then continues all of them."""

    def __init__(self, application: WSGIApplication) -> None:
        self._application = application
        self._lock = threading.Condition()
        self._expected: dict[tuple[str, str], int] = {}
        self._waiting: set[tuple[str, str]] = set()
        self._refused: tuple[str, ...] = ()
        self.met: list[str] = []

    def hold(self, method: str, ending: str, count: int = 2) -> None:
        """Hold the next ``count`` requests of a method for a key with this ending."""
        with self._lock:
            self._expected[method, ending] = count

    @contextlib.contextmanager
    def refuse(self, *parts: str) -> Iterator[None]:
        """Refuse access to keys that contain one of these texts, as a bucket policy does, inside the context."""
        self._refused = parts
        try:
            yield
        finally:
            self._refused = ()

    def wait_for(self, method: str, ending: str) -> None:
        """Return when a request is held because of :meth:`hold`."""
        with self._lock:
            assert self._lock.wait_for(lambda: (method, ending) in self._waiting, timeout=300), f"no {method} {ending}"

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Any:
        """Serve a request, later if it has to wait."""
        self._wait(environ["REQUEST_METHOD"], environ["PATH_INFO"])
        if any(part in environ["PATH_INFO"] for part in self._refused):
            return Response(_DENIED, 403, mimetype="application/xml")(environ, start_response)
        return self._application(environ, start_response)

    def _wait(self, method: str, path: str) -> None:
        with self._lock:
            held = next((h for h in self._expected if h[0] == method and path.endswith(h[1])), None)
            if held is None:
                return
            self._expected[held] -= 1
            self._waiting.add(held)
            if not self._expected[held]:
                del self._expected[held]
                self._waiting.discard(held)
                self.met.append(held[1])
            self._lock.notify_all()
            # A request that stays alone continues after the timeout; then `met` is empty.
            self._lock.wait_for(lambda: held not in self._expected, timeout=300)


@dataclass(frozen=True)
class TaskRun:
    """The result of a task.

    Attributes:
        succeeded: whether it succeeded.
        returned: its XCom.
        log: output of Airflow and Spark.
        java_starts: JVMs that were started.
    """

    succeeded: bool
    returned: dict[str, Any] | None
    log: str
    java_starts: int


class Worker(Startable):
    """An Airflow in a process of its own, see ``airflow_worker.py``."""

    def __init__(self, home: AirflowHome) -> None:
        self.home = home
        self.log_file = home.folder / "worker.log"
        self._process: subprocess.Popen[str] | None = None
        self._results: Any = None

    def _start(self) -> None:
        reading, writing = os.pipe()
        with self.log_file.open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-X", "faulthandler", str(Path(__file__).with_name("airflow_worker.py"))],
                cwd=self.home.folder,
                env={**self.home.environment, "RESULT_PIPE": str(writing)},
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                text=True,
                pass_fds=[writing],
                start_new_session=True,
            )
        os.close(writing)
        self._results = os.fdopen(reading)

    def stop(self) -> None:
        """Stop it, and Spark with it."""
        process, self._process = self._process, None
        if process is not None:
            end_by_eof(process)
            self._results.close()

    def run(
        self,
        *,
        dag_id: str | None = None,
        date: str | None = None,
        conf: dict[str, Any] | None = None,
        environment: dict[str, str] | None = None,
        spark_conf: dict[str, str] | None = None,
        **parameters: Any,
    ) -> TaskRun:
        """Run an operator once.

        Args:
            dag_id: None: a new DAG.
            date: its logical date, for data intervals; None: now, without an interval.
            conf: configuration of the run.
            environment: variables of this run.
            spark_conf: the operator's parameter ``conf``.
            parameters: parameters of the operator, in addition to those that most tests need.
        """
        arguments = {
            "bucket": BUCKET,
            "pipeline": PIPELINE,
            "format": "json",
            "offsets": "incremental",
            "jars": self.home.environment["SPARK_KAFKA_JARS"],
            **({} if spark_conf is None else {"conf": spark_conf}),
            **parameters,
        }
        if arguments["offsets"] == "incremental":
            arguments.setdefault("starting_offsets", "earliest")
        dag_id = dag_id or f"dag-{uuid.uuid4()}"
        result, log, starts = self._send(
            {
                "dag_id": dag_id,
                "parameters": arguments,
                "date": date,
                "conf": conf,
                "environment": environment or {},
            }
        )
        returned = self._xcoms(dag_id, result["run_id"]).get("land")
        return TaskRun(result["state"] == "success", returned, log, starts)

    def run_dag(
        self, folder: Path, dag_id: str, date: str | None = None, *, environment: dict[str, str] | None = None
    ) -> DagRun:
        """Run a DAG of a folder once, all its tasks.

        Args:
            folder: with DAG files.
            dag_id: which.
            date: its logical date; None: now.
            environment: variables of this run; those that the files read are read anew.
        """
        command = {"folder": str(folder), "dag_id": dag_id, "date": date, "conf": None}
        result, log, starts = self._send({**command, "environment": environment or {}})
        return DagRun(result["state"] == "success", log, self._xcoms(dag_id, result["run_id"]), starts)

    def _send(self, command: dict[str, Any]) -> tuple[dict[str, Any], str, int]:
        """Send a command; return its result, the output meanwhile, and the number of JVMs that were started."""
        assert self._process is not None
        assert self._process.stdin is not None
        began, starts = self.log_file.stat().st_size, len(self.home.java_commands)
        try:
            self._process.stdin.write(json.dumps(command) + "\n")
            self._process.stdin.flush()
            result_line = self._results.readline()
        except BaseException:
            # A test that timed out: the next one would get this result for its own.
            os.killpg(self._process.pid, signal.SIGKILL)
            self.stop()
            self._start()
            raise
        if not result_line:
            # The rest of its output is still to come.
            self._process.wait(20)
        log = self.log_file.read_bytes()[began:].decode(errors="replace")
        assert result_line, f"the Airflow process died:\n{log[-5000:]}"
        return json.loads(result_line), log, len(self.home.java_commands) - starts

    @property
    def pid(self) -> int:
        """Id of its process."""
        assert self._process is not None
        return self._process.pid

    def descendants(self) -> list[psutil.Process]:
        """All processes below it, such as Spark's while a job runs."""
        assert self._process is not None
        return psutil.Process(self._process.pid).children(recursive=True)

    def database(self) -> str:
        """The database of Airflow, as SQL."""
        with contextlib.closing(sqlite3.connect(self.home.folder / "airflow.db", timeout=30)) as connection:
            return "\n".join(connection.iterdump())

    def kill_task(self) -> None:
        """Stop the task as Airflow does; the handler of the signal calls the operator's ``on_kill``."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)

    def _xcoms(self, dag_id: str, run_id: str) -> dict[str, Any]:
        """The return value of each task of a run; of a mapped task, that of one instance."""
        sql = "SELECT task_id, value FROM xcom WHERE dag_id = ? AND run_id = ? AND key = 'return_value'"
        rows = self.home.query(sql, dag_id, run_id)
        return {task: json.loads(value) for task, value in rows}


@pytest.fixture(scope="package")
def s3_gate() -> Iterator[tuple[str, Gate]]:
    """Address of the S3 server, and the gate in front of it."""
    gates: list[Gate] = []

    def middleware(application: WSGIApplication) -> WSGIApplication:
        gates.append(Gate(application))
        return gates[0]

    with ThreadedS3Server(buckets=[BUCKET], middleware=middleware) as server:
        yield server.endpoint, gates[0]


@pytest.fixture
def gate(s3_gate: tuple[str, Gate]) -> Gate:
    """The gate in front of the S3 server."""
    return s3_gate[1]


def gated_s3(endpoint: str) -> dict[str, Any]:
    """The connection to the S3 server: a request that is held is not sent again meanwhile."""
    return s3_connection(endpoint, "AKIATESTS", SECRET_KEY, config={"read_timeout": 600})


@pytest.fixture(scope="package")
def airflow_home(
    tmp_path_factory: pytest.TempPathFactory, s3_gate: tuple[str, Gate], kafka_broker: KafkaBroker
) -> AirflowHome:
    """A migrated Airflow with connections to all parts."""
    from tests.conftest import PASSWORD, USER

    kafka = {
        "bootstrap.servers": kafka_broker.sasl_bootstrap_servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": USER,
        "sasl.password": PASSWORD,
    }
    home = AirflowHome(
        tmp_path_factory.mktemp("airflow"),
        tmp_path_factory.mktemp("dags"),
        environment=connection_variables(
            {
                "kafka_default": kafka_connection(kafka),
                "aws_default": gated_s3(s3_gate[0]),
                "spark_default": {"conn_type": "spark", "host": "local[2]"},
            }
        ),
    )
    home.migrate()
    return home


@pytest.fixture(scope="package")
def worker(airflow_home: AirflowHome) -> Iterator[Worker]:
    """The Airflow that most tests use."""
    with Worker(airflow_home) as started:
        yield started


@pytest.fixture(scope="package")
def second_worker(airflow_home: AirflowHome, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    """Another Airflow, which shares nothing with the first but the bucket and the broker."""
    folder = tmp_path_factory.mktemp("airflow-2")
    shutil.copy(airflow_home.folder / "airflow.db", folder)
    dags = Path(airflow_home.environment["AIRFLOW__CORE__DAGS_FOLDER"])
    home = AirflowHome(folder, dags, environment=airflow_home.connections)
    with Worker(home) as started:
        yield started


@pytest.fixture(scope="package")
def servers(
    airflow_home: AirflowHome,
    s3_gate: tuple[str, Gate],
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> Iterator[AirflowServers]:
    """Airflow's servers with the DAGs of ``server_dags.py``, and the same connections as the other Airflows."""
    dags = tmp_path_factory.mktemp("server-dags")
    shutil.copy(Path(__file__).with_name("server_dags.py"), dags)
    more = {
        # One core for each driver, since several of them share the machine.
        "spark_default": {"conn_type": "spark", "host": "local[1]", "login": "spark", "password": SPARK_SECRET},
    }
    home = AirflowHome(
        tmp_path_factory.mktemp("airflow-servers"),
        dags,
        environment={
            **airflow_home.connections,
            **connection_variables(more),
            "SERVER_TESTS_BUCKET": BUCKET,
            "SERVER_TESTS_PIPELINE": PIPELINE,
            "AIRFLOW__KAFKA_S3__STORES": STORES,
        },
    )
    home.migrate()
    with AirflowServers(home) as started:
        request.session.stash[SERVERS] = started
        yield started


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Start Airflow's servers again if earlier tests needed none of them."""
    started = item.session.stash.get(SERVERS, None)
    if started and not started.running and _use_servers(item):
        started.start()


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Stop Airflow's servers when the next test needs none of them: idle ones take a part of a core."""
    started = item.session.stash.get(SERVERS, None)
    if started and not _use_servers(nextitem):
        started.stop()


def _use_servers(item: pytest.Item | None) -> bool:
    return "servers" in getattr(item, "fixturenames", ())


@pytest.fixture(scope="package")
def store(s3_gate: tuple[str, Gate]) -> S3Store:
    """The bucket."""
    settings = S3Settings(endpoint_url=s3_gate[0], region="us-east-1", addressing_style="path")
    return S3Store(make_client(settings, S3Credentials(access_key_id="a", secret_access_key="b")), BUCKET)


@pytest.fixture(scope="package")
def bucket_client(s3_gate: tuple[str, Gate]) -> S3Client:
    """A boto3 client of the bucket, for requests that the package never sends."""
    settings = S3Settings(endpoint_url=s3_gate[0], region="us-east-1", addressing_style="path")
    return make_client(settings, S3Credentials(access_key_id="a", secret_access_key="b"))


@pytest.fixture
def delete_by_hand(bucket_client: S3Client) -> Callable[[str], object]:
    """Delete an object outside of the package."""
    return lambda key: bucket_client.delete_object(Bucket=BUCKET, Key=key)


@pytest.fixture
def listing(bucket_client: S3Client) -> Callable[[], dict[str, Any]]:
    """ETag and time of every object, from the listing of the bucket."""

    def read() -> dict[str, Any]:
        pages = bucket_client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET)
        return {o["Key"]: (o["ETag"], o["LastModified"]) for page in pages for o in page.get("Contents", ())}

    return read


@pytest.fixture
def produce(kafka_broker: KafkaBroker) -> Callable[..., None]:
    """Append JSON records, one per value: ``produce(topic, [{...}], partition=0)``; a str is appended as it is."""

    def append(topic: str, values: Sequence[Any], *, partition: int = 0) -> None:
        kafka_broker.produce(
            topic,
            [
                Message(v.encode() if isinstance(v, str) else msgspec.json.encode(v), partition=partition)
                for v in values
            ],
        )

    return append


@pytest.fixture
def check(store: S3Store, kafka_broker: KafkaBroker) -> Callable[..., BucketSummary]:
    """Read the bucket and Kafka: every record of the topic is in exactly one object, and nothing else is there.

    ``complete=False``: not every record has to be landed; ``recovered=False``: a batch may be unfinished. More
    arguments are those of ``check_bucket``.
    """

    def compare(topic: str, **how: Any) -> BucketSummary:
        source = read_source(KafkaSource({"bootstrap.servers": kafka_broker.bootstrap_servers}), topic)
        given = {"topics_dir": "topics", "pipeline": PIPELINE, "recovered": True, "complete": True, **how}
        return check_bucket(store, topic=topic, source=source, **given)

    return compare
