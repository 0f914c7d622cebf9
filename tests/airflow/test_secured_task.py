"""Tasks with secured services: Kafka by token over TLS, S3 by the session of a role over TLS.

Each kind of login is tested without Airflow (``tests/kafka``, ``tests/spark``); these tests are about the connections
of Airflow, and about secrets, which must not be shown.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from airflow_provider_kafka_s3.kafka.options import spark_options
from airflow_provider_kafka_s3.kafka.source import KafkaSource
from airflow_provider_kafka_s3.storage.credentials import AssumedRole, S3Credentials
from airflow_provider_kafka_s3.storage.s3 import S3Settings, S3Store, make_client
from airflow_provider_kafka_s3.testing.invariants import check_bucket, read_source
from dev.airflow_connections import connection_variables, kafka_connection, s3_connection
from dev.certificates import Authority, server_context
from dev.kafka_broker import KafkaBroker
from dev.role_sessions import RoleSessions
from dev.s3_server import ThreadedS3Server
from tests.airflow.conftest import Worker
from tests.conftest import CLIENT_SECRET, KEY_PASSWORD

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

BUCKET: Final = "secured-lake"
PIPELINE: Final = "secured"
BASE_KEY: Final = "canary/3f6b+key-that-assumes"
DAG: Final = """
from datetime import datetime
from airflow.providers.common.compat.sdk import DAG
from airflow_provider_kafka_s3.operators.kafka_to_s3 import KafkaToS3Operator
from airflow_provider_kafka_s3.sensors.kafka_lag import KafkaLagSensor

common = {common!r}
with DAG("secured", schedule=None, start_date=datetime(2013, 1, 1), catchup=False):
    wait = KafkaLagSensor(task_id="wait", min_records=2, timeout=60, poke_interval=1, **common)
    wait >> KafkaToS3Operator(task_id="land", format="json", offsets="incremental", starting_offsets="earliest",
                              spark_conn_id="spark_default", jars={jars!r}, conf={conf!r}, **common)
"""


@dataclass
class Site:
    """An S3 server over TLS that accepts sessions of a role, and calls functions before a manifest is written.

    Attributes:
        endpoint: of S3.
        sts: address of the STS that returns sessions.
        sessions: the sessions that the server accepts.
        when_deciding: called when a manifest is about to be written.
    """

    endpoint: str
    sts: str
    sessions: RoleSessions
    when_deciding: list[Callable[[], None]] = field(default_factory=list)

    def aws(self, authority: Authority) -> dict[str, Any]:
        """The connection."""
        return s3_connection(
            self.endpoint,
            "AKIABASE",
            BASE_KEY,
            verify=str(authority.certificate),
            role_arn="arn:aws:iam::123456789012:role/lake",
            service_config={"sts": {"endpoint_url": self.sts}},
        )


@pytest.fixture(scope="module")
def site(authority: Authority) -> Iterator[Site]:
    """The server, and beside it its STS without TLS: Airflow trusts that one by the machine's authorities only."""
    sites: list[Site] = []

    def middleware(application: WSGIApplication) -> WSGIApplication:
        sessions = RoleSessions(application, trusted=["AKIABASE"])
        sites.append(Site("", "", sessions))

        def look(environ: WSGIEnvironment, start_response: StartResponse) -> Any:
            if environ["REQUEST_METHOD"] == "PUT" and environ["PATH_INFO"].endswith(".manifest.json"):
                for call in sites[0].when_deciding:
                    call()
            return sessions(environ, start_response)

        return look

    tls = server_context(authority.server("s3"))
    with (
        ThreadedS3Server(buckets=[BUCKET], middleware=middleware, tls=tls) as server,
        ThreadedS3Server(middleware=lambda _: sites[0].sessions) as sts,
    ):
        sites[0].endpoint, sites[0].sts = server.endpoint, sts.endpoint
        yield sites[0]


@pytest.fixture(scope="module")
def kafka(secured: Mapping[str, Mapping[str, object]]) -> dict[str, object]:
    """A connection with a client secret, and an encrypted client key, which this login does not use."""
    return {**secured["certificate"], **secured["token"]}


def store_of(site: Site, authority: Authority) -> S3Store:
    """The bucket."""
    role = AssumedRole(
        arn="arn:aws:iam::123456789012:role/lake",
        session_name="tests",
        base=S3Credentials(access_key_id="AKIABASE", secret_access_key=BASE_KEY),
        sts_endpoint=site.sts,
    )
    settings = S3Settings(
        endpoint_url=site.endpoint,
        region="us-east-1",
        addressing_style="path",
        ca_bundle=str(authority.certificate),
    )
    stale = S3Credentials(access_key_id="ASIASTALE", secret_access_key="x", expires_at=1.0, role=role)
    return S3Store(make_client(settings, stale), BUCKET)


def test_a_run_with_secured_services_shows_no_secret(
    worker: Worker,
    site: Site,
    kafka: dict[str, object],
    authority: Authority,
    kafka_broker: KafkaBroker,
    make_topic: Callable[..., str],
    produce: Callable[..., None],
    tmp_path: Path,
) -> None:
    """A sensor, the operator with Spark and the command line by the same connections, past the end of a session.

    The secrets are in no log, command line, event log of Spark, rendered template, XCom or object.
    """
    topic = make_topic(2)
    for partition in (0, 1):
        produce(topic, [{"p": partition, "n": n} for n in range(50)], partition=partition)
    events = tmp_path / "events"
    events.mkdir()
    connections = {"kafka_conn_id": "kafka_secured", "aws_conn_id": "aws_secured"}
    common = {"topics": topic, "bucket": BUCKET, "pipeline": PIPELINE, **connections}
    conf = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": events.as_uri(), "spark.eventLog.compress": "false"}
    jars = worker.home.environment["SPARK_KAFKA_JARS"]
    folder = tmp_path / "dags"
    folder.mkdir()
    (folder / "secured.py").write_text(DAG.format(common=common, jars=jars, conf=conf))
    environment = connection_variables({"kafka_secured": kafka_connection(kafka), "aws_secured": site.aws(authority)})
    commands: list[str] = []

    def look() -> None:
        commands.extend(" ".join(process.cmdline()) for process in worker.descendants())

    site.when_deciding.append(look)
    # After the first part, when operator and driver have begun their sessions.
    site.sessions.end_all_after("PUT", f"/{topic}/")
    run = worker.run_dag(folder, "secured", environment=environment)
    site.when_deciding.clear()

    assert run.succeeded, run.output
    store = store_of(site, authority)
    source = KafkaSource({"bootstrap.servers": kafka_broker.bootstrap_servers})
    summary = check_bucket(
        store,
        topics_dir="topics",
        pipeline=PIPELINE,
        topic=topic,
        source=read_source(source, topic),
        recovered=True,
        complete=True,
    )
    assert summary.records == 100
    assert site.sessions.turned_away >= 1
    assert any("--job-file" in command for command in commands)

    status = subprocess.run(
        [
            *(sys.executable, "-m", "airflow_provider_kafka_s3.cli", "status", "--json"),
            *("--kafka-conn-id", "kafka_secured", "--aws-conn-id", "aws_secured"),
            *("--bucket", BUCKET, "--pipeline", PIPELINE, "--topic", topic),
        ],
        env={**worker.home.environment, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert status.returncode == 0, status.stderr
    assert json.loads(status.stdout)["topics"][0]["lag"] == 0

    stored = [store.get(info.key) for info in store.list("")]
    event_log = "".join(p.read_text(errors="replace") for p in sorted(events.rglob("*")) if p.is_file())
    assert "SparkListenerTaskEnd" in event_log
    shown = {
        "log": worker.log_file.read_text(errors="replace"),
        "command lines": "\n".join([*commands, *worker.home.java_commands]),
        "event log": event_log,
        "database": worker.database(),
        "objects": "\n".join(f"{found.metadata} {found.body!r}" for found in stored if found is not None),
        "command line tool": status.stdout + status.stderr,
    }
    java_key = spark_options(kafka)["kafka.ssl.keystore.key"].splitlines()[1]
    given_key = str(kafka["ssl.key.pem"]).splitlines()[1]
    secrets = (CLIENT_SECRET, KEY_PASSWORD, java_key, given_key, BASE_KEY, "secret-of-ASIA", "token-of-ASIA")
    for secret in secrets:
        forms = {secret, json.dumps(secret)[1:-1], repr(secret)[1:-1]}
        assert [place for place, text in shown.items() if any(form in text for form in forms)] == []
    assert BUCKET in shown["database"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sasl.oauthbearer.client.secret": "not-this-one"}, r"invalid_client.*: AccessDeniedError\]"),
        ({"ssl.ca.location": "OTHER", "ssl.ca.pem": None}, r"ssl\.ca\.location.*: ConfigurationError\]"),
        ({"login": "AKIASTRANGER"}, r"aws_conn_id='aws_secured': the role of the connection is refused"),
        ({"verify": "OTHER"}, r"the endpoint's certificate and ca_bundle.*: ConfigurationError\]"),
    ],
)
def test_refused_credentials_fail_before_spark_is_started(
    worker: Worker,
    site: Site,
    kafka: dict[str, object],
    authority: Authority,
    make_topic: Callable[..., str],
    tmp_path: Path,
    change: dict[str, Any],
    message: str,
) -> None:
    """Kafka's and S3's: the error is terminal, since a person has to act, and names what to correct."""
    other = str(Authority(tmp_path).certificate)
    aws = site.aws(authority)
    config = dict(kafka)
    for name, value in change.items():
        if name == "verify":
            aws["extra"]["verify"] = other
        elif name == "login":
            aws["login"] = value
        else:
            config[name] = other if value == "OTHER" else value
    given = kafka_connection({n: v for n, v in config.items() if v is not None})
    environment = connection_variables({"kafka_secured": given, "aws_secured": aws})
    run = worker.run(
        topics=make_topic(1),
        bucket=BUCKET,
        pipeline=f"p-{uuid.uuid4().hex}",
        kafka_conn_id="kafka_secured",
        aws_conn_id="aws_secured",
        environment=environment,
    )

    assert (run.succeeded, run.java_starts) == (False, 0)
    assert re.search(message, run.log), run.log
    assert "AirflowFailException" in run.log
    assert not any(secret in run.log for secret in (CLIENT_SECRET, BASE_KEY, "not-this-one"))
