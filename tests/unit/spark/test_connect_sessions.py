"""The id, the settings and the errors of a session on a Spark Connect server."""

from __future__ import annotations

import logging
import re
import socket
import uuid
from pathlib import Path

import pytest

from airflow_provider_kafka_s3.exceptions import AccessDeniedError, ConfigurationError, SparkJobError
from airflow_provider_kafka_s3.spark import connect_session
from airflow_provider_kafka_s3.spark.conf import JOB_CONF, SERVER_CONF, of_server, session_conf
from airflow_provider_kafka_s3.spark.connect_driver import KILLED
from airflow_provider_kafka_s3.spark.connect_session import code_of, open_session, session_id
from airflow_provider_kafka_s3.spark.spec import ConnectServer, JobSpec, PlanRef
from airflow_provider_kafka_s3.storage.s3 import S3Credentials, S3Settings
from airflow_provider_kafka_s3.submit.connect_job import ConnectJob

WEEK = (2026, 47)
TOKEN = "canary-of-the-token"


def test_a_session_is_shared_by_runs_of_the_same_code_and_settings_only() -> None:
    """Same id for the same; another one for other code, settings, a later week, or after the server ended it."""
    first = session_id("a.zip", {"x": "1", "y": "2"}, WEEK, 0)
    assert uuid.UUID(first).version == 4
    assert first == session_id("a.zip", {"y": "2", "x": "1"}, WEEK, 0)
    others = [
        session_id("b.zip", {"x": "1", "y": "2"}, WEEK, 0),
        session_id("a.zip", {"x": "1"}, WEEK, 0),
        session_id("a.zip", {"x": "1", "y": "2"}, (2026, 48), 0),
        session_id("a.zip", {"x": "1", "y": "2"}, WEEK, 1),
    ]
    assert len({first, *others}) == 5


def test_every_setting_of_the_job_is_the_sessions_or_the_servers() -> None:
    """All are set, and the user's settings have precedence where a session can have them."""
    assert JOB_CONF.keys() <= SERVER_CONF.keys() | session_conf({}).keys()
    conf = session_conf({"spark.sql.session.timeZone": "Europe/Berlin", "spark.executor.memory": "9g"})
    assert conf["spark.sql.session.timeZone"] == "Europe/Berlin"
    assert "spark.executor.memory" not in conf
    assert of_server({"spark.sql.x": "1", "spark.executor.memory": "9g"}) == ["spark.executor.memory"]


def test_redaction_of_a_session_is_only_extended() -> None:
    """The user's pattern is added."""
    conf = session_conf({"spark.sql.redaction.options.regex": "mine"})
    assert conf["spark.sql.redaction.options.regex"] == f"{JOB_CONF['spark.sql.redaction.options.regex']}|mine"


def test_messages_of_a_server_hide_secret_options() -> None:
    """The value of a secret option is hidden up to its end, quotes and line ends in it included; others stay."""
    shown = (
        'options {\n  key: "kafka.sasl.jaas.config"\n  value: "Login required password=\\"canary-1\\" x;"\n}\n'
        'options {\n  key: "kafka.ssl.keystore.key"\n  value: "-----BEGIN\\ncanary-2\\n"\n}\n'
        'options {\n  key: "kafka.bootstrap.servers"\n  value: "broker:9092"\n}\n'
    )
    redacted = re.sub(session_conf({})["spark.sql.redaction.string.regex"], "***", shown)
    assert "canary" not in redacted
    assert 'value: "broker:9092"' in redacted
    assert redacted.count("***") == 2


@pytest.mark.parametrize(
    ("listens", "reason"), [(False, "Connection refused"), (True, "it accepts connections, but not")]
)
def test_a_server_that_does_not_answer_is_named_and_its_token_is_not(
    monkeypatch: pytest.MonkeyPatch, listens: bool, reason: str
) -> None:
    """Within half a minute; a retry may help, and the message has the reason and what to check."""
    assert connect_session._CONNECT_TIMEOUT <= 25
    monkeypatch.setattr(connect_session, "_CONNECT_TIMEOUT", 0.3)
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        if listens:
            bound.listen()
        port = bound.getsockname()[1]
        with pytest.raises(SparkJobError) as raised:
            open_session(ConnectServer(url=f"sc://127.0.0.1:{port}/;token={TOKEN}"))
    assert str(raised.value).startswith(f"Spark Connect does not answer: {reason}")
    assert f"127.0.0.1:{port} of spark_conn_id" in str(raised.value)
    assert "Check that it runs" in str(raised.value)
    assert TOKEN not in str(raised.value)


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ("<_InactiveRpcError of RPC: status = StatusCode.UNAUTHENTICATED", AccessDeniedError),
        ('[CANNOT_MODIFY_CONFIG] Cannot modify "spark.sql.warehouse.dir".', ConfigurationError),
        ("something else", SparkJobError),
    ],
)
def test_refusals_of_a_server_have_distinct_errors(
    answer: str, kind: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A token and a setting are for a person to correct."""

    def refuse(*_: object) -> None:
        raise RuntimeError(answer)

    monkeypatch.setattr(connect_session, "_open", refuse)
    with pytest.raises(kind) as raised:
        open_session(ConnectServer(url="sc://h:1"))
    assert type(raised.value) is kind


def test_a_session_that_the_server_has_ended_is_followed_by_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """The id of an ended session is never used again."""
    requested: list[str] = []

    def third(_server: object, session: str, *_: object) -> str:
        requested.append(session)
        if len(requested) < 3:
            raise RuntimeError("[INVALID_HANDLE.SESSION_CLOSED] The handle is invalid. Session was closed.")
        return session

    monkeypatch.setattr(connect_session, "_open", third)
    assert open_session(ConnectServer(url="sc://h:1")) == requested[2]
    assert len(set(requested)) == 3


def test_changed_files_of_a_job_have_a_session_of_their_own(tmp_path: Path) -> None:
    """A session never replaces a file; equal files share one, wherever they are."""
    package, mine = Path("package-1.zip"), tmp_path / "mine.zip"
    mine.write_bytes(b"1")
    before = code_of([package, mine])
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "mine.zip").write_bytes(b"1")
    assert code_of([package, tmp_path / "elsewhere" / "mine.zip"]) == before
    mine.write_bytes(b"2")
    assert len({before, code_of([package, mine]), code_of([package])}) == 3
    assert code_of([package]) == "package-1.zip"


@pytest.mark.parametrize("collisions", [0, 1, 2])
def test_code_that_another_run_adds_at_the_same_moment_is_added_again(collisions: int) -> None:
    """The second attempt decides."""
    requested: list[str] = []

    def add(path: str, *, pyfile: bool) -> None:
        requested.append(path)
        assert pyfile
        if len(requested) <= collisions:
            raise RuntimeError("[ARTIFACT_ALREADY_EXISTS]")

    if collisions < 2:
        connect_session._add(add, Path("package.zip"))
    else:
        with pytest.raises(RuntimeError, match="EXISTS"):
            connect_session._add(add, Path("package.zip"))
    assert len(requested) == min(collisions, 1) + 1


def test_no_repr_shows_the_url_with_its_token() -> None:
    """Neither that of the server nor that of the job."""
    server = ConnectServer(url=f"sc://h:1/;token={TOKEN}")
    ref = PlanRef(topics_dir="topics", pipeline="lake", topic="orders", batch=1)
    spec = JobSpec(run="run", plans=(ref,), kafka={}, bucket="lake", result_path="unused", connect=server)
    assert TOKEN not in repr(server) + str(server) + repr(spec) + str(spec)


def test_a_driver_that_cannot_start_prints_the_reason(tmp_path: Path) -> None:
    """A job without a server is answered, and its file, which holds secrets, is gone."""
    ref = PlanRef(topics_dir="topics", pipeline="lake", topic="orders", batch=1)
    result_path = str(tmp_path / "result.json")
    spec = JobSpec(run="run", plans=(ref,), kafka={}, bucket="lake", result_path=result_path)
    outcome = ConnectJob({}, logging.getLogger()).run(spec)
    assert outcome.result is None
    assert "exit code is 1" in outcome.output
    assert "names no Spark Connect server" in outcome.output
    assert list(tmp_path.iterdir()) == []


def test_a_job_that_is_killed_before_it_begins_ends_at_once(tmp_path: Path) -> None:
    """A signal may come at any moment."""
    ref = PlanRef(topics_dir="topics", pipeline="lake", topic="orders", batch=1)
    spec = JobSpec(
        run="run",
        plans=(ref,),
        kafka={"bootstrap.servers": "127.0.0.1:1"},
        bucket="lake",
        s3=S3Settings(endpoint_url="http://127.0.0.1:1", region="us-east-1"),
        credentials=S3Credentials(access_key_id="test", secret_access_key="test"),
        result_path=str(tmp_path / "result.json"),
        connect=ConnectServer(url="sc://127.0.0.1:1"),
    )
    job = ConnectJob({}, logging.getLogger())
    job.kill()
    outcome = job.run(spec)
    assert outcome.result is None
    assert f"exit code is {KILLED}" in outcome.output
