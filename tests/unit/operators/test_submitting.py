"""Submission of a Spark job, and secrets that never leave the worker."""

from __future__ import annotations

import base64
import importlib.metadata
import json
import logging
import os
import signal
import subprocess
import sys
import sysconfig
from datetime import timedelta
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from airflow_provider_kafka_s3.airflow.spark_submit_job import SparkSubmitJob, spark_settings
from airflow_provider_kafka_s3.config import Limits, SseKms, Upload, parse_upload
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.retry import Retrier
from airflow_provider_kafka_s3.spark.spec import JobSpec, PlanRef
from airflow_provider_kafka_s3.storage import bucket
from airflow_provider_kafka_s3.storage.credentials import S3Secrets
from airflow_provider_kafka_s3.storage.customer_keys import customer_key_digest
from airflow_provider_kafka_s3.storage.durable import DurableStore
from airflow_provider_kafka_s3.storage.s3 import S3Credentials, S3Settings
from airflow_provider_kafka_s3.submit.settings import SparkSettings
from airflow_provider_kafka_s3.submit.target import SparkTarget
from tests.unit.operators.conftest import CANARY, SECRETS, SMALL_JOB_JVM

if TYPE_CHECKING:
    from tests.unit.operators.conftest import Bench


@pytest.fixture
def orders(bench: Bench) -> Bench:
    """A topic with one record that is not landed yet."""
    bench.kafka.create_topic("orders")
    bench.fill("orders", [{"n": 1}])
    return bench


def settings_of(command: list[str]) -> dict[str, str]:
    """The --conf settings of a command line."""
    settings = [command[i + 1] for i, word in enumerate(command) if word == "--conf"]
    return dict(setting.split("=", 1) for setting in settings)


def test_a_local_master_runs_in_this_environment_and_retries_tasks(orders: Bench) -> None:
    """Our spark-submit, our Python, local[2,4], our script, and nothing but the job file's path as argument."""
    orders.run(orders.task())
    (command,) = orders.spark.commands
    assert command[0] == str(Path(sysconfig.get_path("purelib"), "pyspark", "bin", "spark-submit"))
    assert command[command.index("--master") + 1] == "local[2,4]"
    assert Path(command[-3]).name == "kafka_to_s3.py"
    assert Path(command[-3]).is_file()
    assert command[-2] == "--job-file"
    assert "--py-files" not in command
    assert orders.spark.environments == [
        {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable, **SMALL_JOB_JVM}
    ]


def test_the_job_file_is_private_and_gone_afterwards(orders: Bench) -> None:
    """It is 0600 in a folder that is 0700; the fixture checks that the folder is removed, also after a failure."""
    orders.run(orders.task())
    assert orders.spark.modes == [(0o600, 0o700)]


def test_another_master_gets_the_package_as_a_zip(orders: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside the user's own files; neither master nor Python is touched."""
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", "spark://sparkmaster:7077")
    orders.run(orders.task(py_files="mine.py", spark_binary="spark3-submit"))
    (command,) = orders.spark.commands
    assert command[:3] == ["spark3-submit", "--master", "spark://sparkmaster:7077"]
    mine, ours = command[command.index("--py-files") + 1].split(",")
    assert mine == "mine.py"
    assert Path(ours).name.startswith("airflow_provider_kafka_s3-")
    assert orders.spark.environments == [SMALL_JOB_JVM]


def test_settings_of_the_user_win_over_those_of_the_job(orders: Bench) -> None:
    """Except that what is redacted only grows."""
    conf = {"spark.sql.session.timeZone": "Europe/Berlin", "spark.ui.enabled": False, "spark.redaction.regex": "mine"}
    conf["spark.log.level"] = None
    task = orders.task(conf=conf, packages="g:a:1", executor_memory="2g", limits=Limits(records_per_batch=1))
    orders.fill("orders", [{"n": 2}])
    orders.run(task)
    assert len(orders.spark.commands) == 2
    for command in orders.spark.commands:
        settings = settings_of(command)
        assert settings["spark.sql.session.timeZone"] == "Europe/Berlin"
        assert settings["spark.ui.enabled"] == "False"
        assert settings["spark.log.level"] == "WARN"
        assert settings["spark.sql.execution.arrow.maxRecordsPerBatch"] == "10000"
        assert settings["spark.redaction.regex"].endswith("|mine")
        assert settings["spark.redaction.regex"].count("mine") == 1
        assert command[command.index("--packages") + 1] == "g:a:1"
        assert command[command.index("--executor-memory") + 1] == "2g"
    assert task.conf == conf


def test_a_job_that_names_no_connector_gets_that_of_its_spark(
    orders: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Of pyspark, or of the Spark that the job chooses; what names one, or may, is left as it is."""
    for name in ("SPARK_HOME", "SPARK_CONF_DIR", "SPARK_DIST_CLASSPATH"):
        monkeypatch.delenv(name, raising=False)

    def packages(run: str, **parameters: Any) -> str | None:
        orders.fill("orders", [{"n": run}])
        task = orders.task(**parameters)
        orders.run(task, run_id=run)
        assert task.packages == parameters.get("packages")
        command = orders.spark.commands[-1]
        return command[command.index("--packages") + 1] if "--packages" in command else None

    connector = "org.apache.spark:spark-sql-kafka-0-10_2.13"
    assert packages("r1") == f"{connector}:{importlib.metadata.version('pyspark')}"
    own = tmp_path / "spark"
    (own / "jars").mkdir(parents=True)
    (own / "jars" / "spark-core_2.13-4.1.7.jar").touch()
    assert packages("r2", env_vars={"SPARK_HOME": str(own)}) == f"{connector}:4.1.7"
    assert packages("r3", packages="g:a:1") == "g:a:1"
    assert packages("r4", jars="s3a://lake/everything.jar") is None
    assert packages("r5", driver_class_path="/opt/jars/*") is None
    assert packages("r6", conf={"spark.jars.packages": "g:a:1"}) is None


def test_lineage_settings_of_the_base_class_reach_every_job(orders: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """What SparkSubmitOperator adds to the configuration for OpenLineage is not lost on the way."""
    from airflow_provider_kafka_s3.operators import kafka_to_s3

    monkeypatch.setattr(
        kafka_to_s3,
        "inject_parent_job_information_into_spark_properties",
        lambda conf, _: conf | {"spark.openlineage.parentJobName": "dag.land"},
    )
    orders.fill("orders", [{"n": 2}])
    orders.run(orders.task(openlineage_inject_parent_job_info=True, limits=Limits(records_per_batch=1)))
    named = [settings_of(command)["spark.openlineage.parentJobName"] for command in orders.spark.commands]
    assert named == ["dag.land", "dag.land"]


def test_the_job_file_has_connections_options_and_policies(orders: Bench) -> None:
    """The layout is in the plan."""
    orders.run(
        orders.task(
            kafka_options={"kafka.fetch.max.bytes": "1"},
            request_retry={"max_retries": 9},
            upload={"threads": 3, "memory": 2**21, "spill_dir": "/mnt/fast"},
            rotation={"max_open_objects": 7},
            partitioner="daily",
            on_bad_timestamp="undated",
            on_data_loss="skip",
            value_converter={"kind": "json", "schemas_enable": True},
            schema_compatibility="FULL",
            errors="dead_letter",
            naming={"schema_affix": "SUFFIX"},
        )
    )
    (spec,) = orders.spark.specs
    assert spec.kafka["bootstrap.servers"] == "broker:9092"
    assert spec.kafka_overrides == {"kafka.fetch.max.bytes": "1"}
    assert (spec.bucket, spec.s3.endpoint_url) == ("lake", "http://lake:9000")
    assert (spec.retry.max_retries, spec.on_data_loss) == (9, "skip")
    assert spec.upload == Upload(threads=3, memory=2**21, spill_dir="/mnt/fast")
    plan = orders.store.get("topics/_kafka_s3/orders-to-lake/orders/batches/0000000001.plan.json")
    assert plan is not None
    layout = json.loads(plan.body)["layout"]
    assert (layout["rotation"]["max_open_objects"], layout["on_bad_timestamp"]) == (7, "undated")
    assert (layout["schema_compatibility"], layout["naming"]["schema_affix"]) == ("FULL", "SUFFIX")
    assert spec.credentials is not None
    assert spec.credentials.secret_access_key == SECRETS["aws"]


def test_credentials_are_read_again_after_a_job(orders: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a role may have expired meanwhile; without new ones, the old ones are used."""
    from airflow_provider_kafka_s3.airflow import connections
    from airflow_provider_kafka_s3.exceptions import TransientError

    opened: list[str] = []
    answers: list[object] = []
    real = connections.s3_access

    def s3_access(conn_id: str | None) -> connections.S3Access:
        access = real(conn_id)
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        assert access.credentials is not None
        return connections.S3Access(access.settings, S3Credentials(access_key_id=str(answer), secret_access_key="s"))

    def open_bucket(
        _bucket: str, _settings: S3Settings, credentials: S3Credentials | None, *, retrier: Retrier | None = None
    ) -> DurableStore:
        assert credentials is not None
        opened.append(credentials.access_key_id)
        return DurableStore(orders.store, retrier or Retrier())

    monkeypatch.setattr(connections, "s3_access", s3_access)
    monkeypatch.setattr(bucket, "open_bucket", open_bucket)
    orders.fill("orders", [{"n": n} for n in range(3)])
    answers += ["first", "second", "second", TransientError("no answer from STS"), "third"]
    assert orders.run(orders.task(limits=Limits(records_per_batch=1)))["records"] == 4
    assert opened == ["first", "second", "third"]
    assert [s.credentials and s.credentials.access_key_id for s in orders.spark.specs] == [
        "first",
        "second",
        "second",
        "second",
    ]


def test_no_secret_is_in_the_command_the_environment_a_template_a_log_or_the_result(
    orders: Bench, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """Whether the job succeeds or fails."""
    from airflow.providers.common.compat.sdk import AirflowException

    task = orders.task(kafka_options={"kafka.sasl.jaas.config": SECRETS["options"]})
    with caplog.at_level(logging.DEBUG):
        orders.spark.crash = "exit status 1"
        with pytest.raises(AirflowException) as failed:
            orders.run(task)
        orders.spark.crash = None
        conf = {"kafka_s3": {"action": "land", "window": ["1970-01-01T00:00:00Z", "1970-01-02T00:00:00Z"]}}
        returned = [
            orders.run(task),
            orders.run(task, run_id="r2", conf=conf),
            orders.run(task, run_id="r3", conf={"kafka_s3": {"action": "verify"}}),
        ]
    seen = {
        "commands": repr(orders.spark.commands),
        "environments": repr(orders.spark.environments),
        "templates": repr([getattr(task, name) for name in task.template_fields]),
        "log": caplog.text + "".join(capfd.readouterr()),
        "error": repr(failed.value) + repr(failed.value.__cause__),
        "result": json.dumps(returned),
        "bucket": repr([orders.store.get(info.key) for info in orders.store.list("")]),
    }
    assert [place for place, text in seen.items() if CANARY in text] == []


def test_what_objects_are_stored_with_reaches_executors_and_its_secrets_are_nowhere_else(
    orders: Bench,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Customer keys and the login of a proxy travel in the job file, like credentials; the plan has a digest."""
    keys = [base64.b64encode(bytes([n]) * 32).decode() for n in (1, 2)]
    extra = {
        "endpoint_url": "https://lake:9000",
        "config_kwargs": {"proxies": {"https": f"http://me:{CANARY}@proxy:3128"}},
        "sse_customer_key": keys[0],
        "sse_customer_earlier_keys": keys[1:],
    }
    aws = {"conn_type": "aws", "login": "AKIACANARY", "password": SECRETS["aws"], "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_AWS_DEFAULT", json.dumps(aws))
    upload = {
        "encryption": "customer",
        "acl": "bucket-owner-full-control",
        "storage_class": "STANDARD_IA",
        "tags": {"team": "lake"},
        "offset_tags": True,
    }
    task = orders.task(upload=upload)
    # Other loggers at DEBUG show what they read before a handler of Airflow masks it.
    with caplog.at_level(logging.DEBUG, logger="airflow_provider_kafka_s3"):
        returned = orders.run(task)
    (spec,) = orders.spark.specs
    assert spec.s3.secrets == S3Secrets(
        customer_key=keys[0], earlier_customer_keys=(keys[1],), proxy_user="me", proxy_password=CANARY
    )
    assert (spec.s3.proxy, spec.s3.acl, spec.s3.storage_class) == (
        "http://proxy:3128",
        "bucket-owner-full-control",
        "STANDARD_IA",
    )
    plan = orders.store.get("topics/_kafka_s3/orders-to-lake/orders/batches/0000000001.plan.json")
    assert plan is not None
    layout = json.loads(plan.body)["layout"]
    assert layout["encryption"] == spec.s3.encryption_name == f"customer {customer_key_digest(keys[0])}"
    assert layout["tags"] == {"own": [["team", "lake"]], "offsets": True}
    assert not {"acl", "storage_class"} & layout.keys()
    seen = {
        "commands": repr(orders.spark.commands),
        "environments": repr(orders.spark.environments),
        "templates": repr([getattr(task, name) for name in task.template_fields]),
        "log": caplog.text + "".join(capfd.readouterr()),
        "result": json.dumps(returned),
        "spec": repr(spec),
        "bucket": repr([orders.store.get(info.key) for info in orders.store.list("")]),
    }
    assert [place for place, text in seen.items() if any(secret in text for secret in (CANARY, *keys))] == []


def test_commands_in_errors_store_what_they_write_like_the_operator(orders: Bench) -> None:
    """An encryption, an access list and a storage class of the upload are an option of kafka-s3."""
    orders.run(orders.task(upload={"encryption": {"kind": "kms", "key_id": "alias/lake"}, "acl": "private"}))
    (spec,) = orders.spark.specs
    at = spec.connection_options.index("--upload")
    given = json.loads(spec.connection_options[at + 1])
    assert given == {"encryption": {"kind": "kms", "key_id": "alias/lake", "bucket_key": None}, "acl": "private"}
    assert parse_upload(given) == Upload(encryption=SseKms(key_id="alias/lake"), acl="private")
    orders.fill("orders", [{"n": 9}])
    orders.run(orders.task(upload={"threads": 3, "tags": {"a": "b"}}), run_id="r2")
    assert "--upload" not in orders.spark.specs[-1].connection_options


def test_an_upload_that_needs_a_key_is_refused_before_anything_is_written(orders: Bench) -> None:
    """The error names the parameter and the connection."""
    from airflow.providers.common.compat.sdk import AirflowFailException

    with pytest.raises(AirflowFailException, match=r"upload: encryption='customer' needs a key: .*AWS connection"):
        orders.run(orders.task(upload={"encryption": "customer"}))
    assert list(orders.store.list("")) == []


def test_a_setting_without_a_translation_for_spark_is_refused_before_anything_is_planned(
    orders: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names it; nothing is written."""
    from airflow.providers.common.compat.sdk import AirflowFailException

    extra = {"bootstrap.servers": "broker:9092", "sasl.mechanism": "OAUTHBEARER", "oauth_cb": "m.f"}
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_DEFAULT", json.dumps({"conn_type": "kafka", "extra": extra}))
    with pytest.raises(AirflowFailException, match=r"oauth_cb|OAUTHBEARER"):
        orders.run(orders.task())
    assert list(orders.store.list("")) == []


@pytest.mark.parametrize("connection", ["kafka_conn_id", "aws_conn_id", "spark_conn_id"])
def test_a_missing_connection_is_terminal_before_anything_is_read(orders: Bench, connection: str) -> None:
    """The error names the connection, and the bucket stays as it was."""
    from airflow.providers.common.compat.sdk import AirflowFailException

    with pytest.raises(AirflowFailException, match=f"no connection 'nowhere'.*{connection}"):
        orders.run(orders.task(**{connection: "nowhere"}))
    assert list(orders.store.list("")) == []


def test_without_java_nothing_is_submitted_and_nothing_new_needs_none(
    orders: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Java is required only when there are records to read."""
    from airflow.providers.common.compat.sdk import AirflowFailException

    java_home = os.environ["JAVA_HOME"]
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    with pytest.raises(AirflowFailException, match="Spark needs Java"):
        orders.run(orders.task())
    assert orders.spark.commands == []
    orders.run(orders.task(env_vars={"JAVA_HOME": java_home}), try_number=2)
    assert orders.run(orders.task(), run_id="r2")["status"] == "empty"


def test_a_killed_task_kills_the_driver_and_submits_nothing_more(
    orders: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches that were decided meanwhile stay; the next try continues from there."""
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
    from airflow.providers.common.compat.sdk import AirflowException

    orders.fill("orders", [{"n": 2}])
    task = orders.task(limits=Limits(records_per_batch=1))
    killed: list[object] = []
    monkeypatch.setattr(SparkSubmitHook, "on_kill", lambda hook: killed.append(hook))  # noqa: PLW0108 - binds the hook
    execute = orders.spark.submit

    def killed_while_it_runs(hook: SparkSubmitHook, application: str = "") -> None:
        execute(hook, application)
        task.on_kill()

    monkeypatch.setattr(orders.spark, "submit", killed_while_it_runs)
    with pytest.raises(AirflowException, match="the task was killed; no Spark job was submitted"):
        orders.run(task)
    assert (len(killed), len(orders.spark.commands)) == (1, 1)
    monkeypatch.setattr(orders.spark, "submit", execute)
    assert orders.run(orders.task(limits=Limits(records_per_batch=1)), try_number=2)["records"] == 2


def test_a_job_that_is_killed_before_it_begins_submits_nothing(bench: Bench, tmp_path: Path) -> None:
    """A signal may arrive before there is a process."""
    ref = PlanRef(topics_dir="topics", pipeline="orders-to-lake", topic="orders", batch=1)
    spec = JobSpec(run="r", plans=(ref,), kafka={}, bucket="lake", result_path=str(tmp_path / "result.json"))
    job = SparkSubmitJob(
        SparkSettings(conn_id="spark_default"), SparkTarget("local[2]", None, None), logging.getLogger()
    )
    job.kill()
    outcome = job.run(spec)
    assert (outcome.result, outcome.output) == (None, "the job was killed before it was submitted")
    assert bench.spark.commands == []


@pytest.mark.parametrize("on_kill_first", [True, False])
def test_what_unwinds_a_task_takes_its_driver_along(
    orders: Bench, monkeypatch: pytest.MonkeyPatch, on_kill_first: bool
) -> None:
    """Airflow 2.11 calls on_kill and then raises; a timeout raises, and calls on_kill when the task has unwound."""
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
    from airflow.providers.common.compat.sdk import AirflowTaskTimeout

    task = orders.task()
    started: list[subprocess.Popen[bytes]] = []

    def unwound_while_it_runs(hook: SparkSubmitHook, application: str = "") -> None:
        job_file = hook._build_spark_submit_command(application)[-1]
        code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'input()', *sys.argv[1:]])"
        started.append(subprocess.Popen([sys.executable, "-c", code, job_file], stdin=subprocess.PIPE))
        child = psutil.Process(started[0].pid)
        while not child.children():
            assert child.is_running()
        if on_kill_first:
            task.on_kill()
        raise AirflowTaskTimeout("Timeout")

    monkeypatch.setattr(orders.spark, "submit", unwound_while_it_runs)
    with pytest.raises(AirflowTaskTimeout):
        orders.run(task)
    task.on_kill()
    (driver,) = started
    driver.communicate(timeout=60)
    assert driver.returncode == -signal.SIGKILL
    assert orders.objects() == {}


def test_killing_a_task_that_never_submitted_needs_no_connection(orders: Bench) -> None:
    """There is no driver to end."""
    orders.task(spark_conn_id="nowhere").on_kill()


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"application": "x.py"}, "application is set by KafkaToS3Operator itself; remove it"),
        ({"application_args": ["x"]}, "application_args is set by"),
        ({"conn_id": "x"}, "conn_id is set by KafkaToS3Operator itself; use spark_conn_id"),
        (
            {"offsets": "incrmental"},
            "offsets='incrmental' is not known; did you mean 'incremental'. Use 'incremental' or",
        ),
        ({"offsets": "hourly"}, "use 'incremental' or 'data_interval'"),
        ({"starting_offsets": None}, "starting_offsets is required with offsets='incremental'"),
        ({"offsets": "data_interval", "starting_offsets": "latest"}, "no effect with offsets='data_interval'.*Remove"),
        ({"isolation": "serializable"}, "isolation='serializable' is not known"),
        ({"on_data_loss": "ignore"}, "use 'fail' or 'skip'"),
        ({"on_missing": "restore"}, "use 'fail' or 'ignore'"),
        (
            {"limits": {"records_per_run": 0}},
            "^limits: records_per_run=0 must be a positive whole number of records or None",
        ),
        ({"limits": {"records_per_slice": None}}, "records_per_slice=None must be a positive whole number of records$"),
        (
            {"limits": {"records_per_batch": "7"}},
            "records_per_batch='7' must be a positive whole number of records or None$",
        ),
        ({"offsets": "data_interval", "limits": {"records_per_run": 1}}, "use records_per_batch"),
        ({"env_vars": {"A": "{{ ds }}"}}, r"env_vars: A contains a template.*spark\.executorEnv\.A"),
        ({"env_vars": {"A": "x", "B": "{% if x %}"}}, "env_vars: B contains a template"),
        ({"adopt_wait": -1.0}, "^adopt_wait=-1.0 must be a number of seconds, 0 or more$"),
        ({"pipeline": "a/b"}, "pipeline='a/b' is not a legal name"),
        ({"bucket": "s3://lake"}, "bucket='s3://lake' is not the name of a bucket; write bucket='lake'$"),
        ({"bucket": "s3a://lake/raw/x/"}, "write bucket='lake' and topics_dir='raw/x'"),
        ({"partitoner": "daily"}, "^KafkaToS3Operator has no parameter 'partitoner'; did you mean 'partitioner'.$"),
        ({"topic": "orders"}, "^KafkaToS3Operator has no parameter 'topic'; did you mean 'topics'.$"),
        ({"retires": 3}, "^KafkaToS3Operator has no parameter 'retires'; did you mean 'retries'.$"),
        ({"executor_memroy": "1g"}, "did you mean 'executor_memory'.$"),
        ({"bucket": "arn:aws:s3:::lake"}, "nor the ARN of an access point of S3, .*; write bucket='lake'$"),
        ({"bucket": "arn:aws:s3:eu-central-1:1:accesspoint/x"}, "ARN of an access point.*; write the name of the buck"),
        ({"bucket": "lake--euc1-az1--x-s3"}, "is a directory bucket .*; use a general purpose bucket$"),
        ({"bucket": "my lake"}, "bucket='my lake' is not the name of a bucket: use letters, digits"),
        (
            {"rotation": {"flush_size": "1000"}},
            "^rotation: flush_size='1000' must be a positive whole number of records or",
        ),
        ({"rotation": {"max_bytes": "1GB"}}, "^rotation: max_bytes='1GB' must be a positive whole number of bytes$"),
        ({"rotation": {"max_open_objects": 1.5}}, "must be a positive whole number of objects"),
        ({"upload": {"part_size": "8MB"}}, "^upload: part_size='8MB' must be a whole number of bytes from 5,242,880"),
        (
            {"naming": {"offset_pad_width": "10"}},
            "must be a whole number of digits from 0 to 20: Kafka's offsets have 19",
        ),
        ({"topics_dir": None}, "^topics_dir=None must be text$"),
        ({"naming": {"directory_delim": None}}, "^naming: directory_delim=None must be text$"),
        (
            {"adopt_wait": timedelta(minutes=2)},
            r"^adopt_wait=datetime.timedelta\(.*\) must be a number of seconds, 0 or more$",
        ),
        ({"unsafe_single_writer": "no"}, "^unsafe_single_writer='no' must be True or False$"),
        ({"window": {"allow_open": 1}}, "must be True or False"),
        ({"kafka_options": ["a"]}, r"^kafka_options=\['a'\] must be a mapping or None$"),
        ({"kafka_conn_id": None}, "^kafka_conn_id=None must be text$"),
        ({"spark_conn_id": 7}, "^spark_conn_id=7 must be text$"),
        ({"conf": "spark.a=b"}, "^conf='spark.a=b' must be a mapping$"),
        ({"conf": ["spark.a=b"]}, r"^conf=\['spark.a=b'\] must be a mapping$"),
        ({"env_vars": "x"}, "^env_vars='x' must be a mapping or None$"),
        ({"env_vars": ["x"]}, r"^env_vars=\['x'\] must be a mapping or None$"),
        ({"topics": ["a", 1]}, r"^topics=1 must be text\. A DAG with"),
        (
            {"topics": 5},
            "_native_obj .* quotes into the template, such as topics=\"'{{ params.topics",
        ),
        ({"topics": None}, "^topics=None must be text that is not empty$"),
        ({"bucket": {"lake"}}, r"^bucket=\{'lake'\} must be text"),
        ({"bucket": "https://lake.s3.example.com/raw"}, "write the name, without its URL$"),
        ({"bucket": "s3a://lake/raw"}, "write bucket='lake' and topics_dir='raw'$"),
        ({"bucket": "lake/raw"}, "write bucket='lake' and topics_dir='raw'"),
        ({"deploy_mode": "cluster"}, "deploy mode 'cluster'"),
        ({"conf": {"spark.submit.deployMode": "cluster"}}, "deploy mode 'cluster'"),
        (
            {"format": "orc"},
            "^format='orc' is not known; use 'json', 'bytes', 'avro', 'parquet', 'csv', 'block_gzip' or 'custom'$",
        ),
        (
            {"partitioner": {"kind": "time", "path_fromat": "YYYY"}},
            "^partitioner: kind 'time' has no 'path_fromat'; did you mean 'path",
        ),
        ({"partitioner": {"kind": "time", "path_format": "%Y-%m-%d", "duration_ms": 1}}, "write 'YYYY-MM-dd'"),
        ({"bucket": " "}, "bucket=' ' must be text that is not empty"),
        ({"topics_dir": "/topics"}, "topics_dir='/topics' must not begin or end with '/'"),
        ({"flush_size": 7}, "^flush_size is a field of rotation; write rotation=.'flush_size': "),
        (
            {"rotation": {"flush_siz": 7}},
            "^rotation has no 'flush_siz'; did you mean 'flush_size'. It has flush_size, rotate_interval_ms, ",
        ),
        ({"rotation": 7}, "^rotation=7 must be a mapping of settings or a Rotation$"),
        ({"rotation": {"flush_size": 0}}, "flush_size=0 must be a positive whole number of records or None"),
        ({"rotation": {"max_open_objects": 0}}, "max_open_objects=0 must be a positive whole number"),
        ({"on_bad_timestamp": ""}, "on_bad_timestamp='' must be text that is not empty"),
        ({"on_bad_timestamp": "a/b", "partitioner": "daily"}, "on_bad_timestamp='a/b' has to be 'fail' or the name"),
        ({"on_bad_timestamp": "unknown"}, "on_bad_timestamp='unknown' has no effect"),
        (
            {"schema_compatibility": "BACKWARDS"},
            "schema_compatibility='BACKWARDS' is not known; did you mean 'BACKWARD'",
        ),
        ({"schema_compatibility": "NONE"}, "schema_compatibility='NONE' needs values with a schema"),
        ({"naming": {"schema_affix": "prefix"}}, "schema_affix='prefix' is not known; did you mean 'PREFIX'"),
        ({"upload": {"threads": 0}}, "^upload: threads=0 must be a positive whole number"),
        ({"upload": {"part_size": 1}}, "part_size=1 must be .* S3 takes no parts below 5 MiB"),
        ({"naming": {"file_delim": "0"}}, "file_delim='0' contains a digit"),
        ({"topics": ["a", "b"], "starting_offsets": {0: 1}}, "do not name which of the topics"),
        ({"partitioner": {"kind": "time", "path_format": "QQ", "duration_ms": 1}}, "path_format|pattern"),
        (
            {
                "partitioner": {
                    "kind": "chain",
                    "partitioners": ["partition", {"kind": "time", "path_format": "QQ", "duration_ms": 1}],
                }
            },
            "path_format|pattern",
        ),
    ],
)
def test_a_wrong_parameter_fails_when_the_dag_is_parsed(bench: Bench, parameters: dict[str, Any], message: str) -> None:
    """All that needs no connection is checked in the constructor, and the error has the right form."""
    with pytest.raises(ConfigurationError, match=message):
        bench.task(**parameters)


def test_templates_are_checked_when_they_are_rendered(bench: Bench) -> None:
    """A parameter with a template is not checked before."""
    from airflow.providers.common.compat.sdk import AirflowFailException

    task = bench.task(topics="{{ params.t }}", bucket="{{ params.b }}", pipeline="{{ params.p }}", topics_dir="{{ x }}")
    task.topics, task.bucket, task.pipeline, task.topics_dir = "orders", "lake", "a/b", "topics"
    with pytest.raises(AirflowFailException, match="pipeline='a/b' is not a legal name"):
        bench.run(task)


def test_settings_of_spark_that_render_to_text_are_refused(bench: Bench) -> None:
    """Jinja makes text of a whole mapping, unless the DAG renders native objects."""
    from airflow.providers.common.compat.sdk import AirflowFailException

    task = bench.task(conf="{{ params.conf }}")
    task.conf = "{'spark.a': 'b'}"  # type: ignore[assignment]
    with pytest.raises(AirflowFailException, match=r"^conf=.* must be a mapping$"):
        bench.run(task)


def test_what_is_known_only_to_the_run_is_not_judged_by_the_dag(bench: Bench) -> None:
    """The output of another task, and a parameter of the function that makes a DAG."""
    from airflow.providers.common.compat.sdk import DAG

    with DAG("d", schedule=None) as dag:
        before = bench.task(task_id="before")
        bench.task(topics=[before.output["topic"]], bucket=dag.param("bucket", "x/y"))


@pytest.mark.parametrize(
    ("parameters", "extra", "message"),
    [
        ({"spark_binary": "no-such-submit"}, {}, "^there is no command 'no-such-submit'"),
        ({"spark_binary": "/dev/null"}, {}, "^there is no command '/dev/null'"),
        ({}, {"spark-binary": "mine"}, "^there is no command 'mine'.*'spark_default'"),
        ({}, {"spark-home": "/opt/spark"}, "^Airflow's Spark hook refuses its settings: The `spark-home` .*'spark_def"),
    ],
)
def test_a_command_that_cannot_be_is_no_matter_of_trying_again(
    orders: Bench,
    monkeypatch: pytest.MonkeyPatch,
    parameters: dict[str, Any],
    extra: dict[str, str],
    message: str,
) -> None:
    """Named with where to correct it; a command is looked for before anything is planned."""
    from airflow.providers.common.compat.sdk import AirflowFailException

    connection = {"conn_type": "spark", "host": "local[2]", "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(connection))
    with pytest.raises(AirflowFailException, match=message):
        orders.run(orders.task(**parameters))
    assert orders.spark.commands == []
    assert (list(orders.store.list("")) == []) == ("spark-home" not in extra)


@pytest.mark.parametrize("kind", [FileNotFoundError, PermissionError])
def test_a_command_that_is_gone_when_it_is_called_is_terminal(
    orders: Bench, monkeypatch: pytest.MonkeyPatch, kind: type[OSError]
) -> None:
    """Python's error names it."""
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
    from airflow.providers.common.compat.sdk import AirflowFailException

    def submit(*_: object) -> None:
        raise kind(2, "cannot", "spark3-submit")

    monkeypatch.setattr(SparkSubmitHook, "submit", submit)
    with pytest.raises(AirflowFailException, match=r"spark-submit cannot be executed: .*spark3-submit.*spark_binary"):
        orders.run(orders.task(spark_binary="spark3-submit"))


def test_template_fields_are_ours_and_spark_s_without_those_that_carry_the_job(bench: Bench) -> None:
    """What is rendered is stored by Airflow for everybody to see: no command line, no environment."""
    fields = set(bench.task().template_fields)
    assert {"topics", "bucket", "pipeline", "topics_dir", "conf", "jars", "packages"} <= fields
    assert not fields & {"application", "application_args", "env_vars"}


def test_every_parameter_of_spark_submit_operator_reaches_the_hook(bench: Bench) -> None:
    """Each by its own value, as the provider itself hands it on; but for what is submitted, which is ours to say."""
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
    from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

    special = {"conf": {"spark.a": "b"}, "env_vars": {"A": "B"}, "deploy_mode": "client"}
    flags = {"verbose", "track_driver_via_k8s_api", "yarn_track_via_rm_api"}
    given: dict[str, Any] = {name: special.get(name, f"my {name}") for name in signature(SparkSubmitHook).parameters}
    given |= dict.fromkeys(flags, True) | {"use_krb5ccache": False, "post_submit_commands": ["true"]}
    for name in ("conn_id", "application_args", "java_class"):
        del given[name]
    task = bench.task(**given)
    settings = spark_settings(task)
    named = {name: getattr(settings, name) for name in ("conn_id", "spark_binary", "deploy_mode", "packages", "jars")}
    named |= {name: getattr(settings, name) for name in ("py_files", "driver_class_path", "properties_file")}
    made = SparkSubmitHook(conf=dict(settings.conf), env_vars=dict(settings.env), **named, **settings.more)
    assert attributes(made) == attributes(SparkSubmitOperator._get_hook(task))
    reached = set(map(str, vars(made).values()))
    assert [value for name, value in given.items() if value == f"my {name}" and value not in reached] == []


def attributes(hook: object) -> dict[str, object]:
    """What a hook was made with."""
    return {name: value for name, value in vars(hook).items() if not name.startswith(("_log", "_last", "log"))}


def test_a_job_changes_nothing_of_the_operator(orders: Bench) -> None:
    """Neither while it runs nor afterwards: the next job, and Airflow when it reads the task, find what the DAG has."""
    task = orders.task(conf={"spark.a": "b"}, env_vars={"A": "B"}, py_files="mine.zip")
    before = spark_settings(task)
    found: list[object] = []
    execute = orders.spark.submit

    def look(hook: Any, application: str = "") -> None:
        found.append(spark_settings(task))
        execute(hook, application)

    orders.spark.submit = look  # type: ignore[method-assign]
    orders.run(task)
    assert [*found, spark_settings(task)] == [before, before]
    assert (task.application, task.application_args, task._hook) == ("", None, None)


def test_every_job_has_a_hook_of_its_own(orders: Bench) -> None:
    """The output and the Spark application of one are not those of the next."""
    hooks: list[object] = []
    execute = orders.spark.submit

    def remember(hook: Any, application: str = "") -> None:
        hooks.append(hook)
        execute(hook, application)

    orders.spark.submit = remember  # type: ignore[method-assign]
    orders.fill("orders", [{"n": 2}])
    orders.run(orders.task(limits=Limits(records_per_batch=1)))
    first, second = hooks
    assert first is not second


@pytest.mark.parametrize("parameter", ["track_driver_via_k8s_api", "yarn_track_via_rm_api"])
def test_a_parameter_for_drivers_in_the_cluster_is_refused(orders: Bench, parameter: str) -> None:
    """Airflow's hook would refuse it when the job is submitted, try after try."""
    from airflow.providers.common.compat.sdk import AirflowFailException

    with pytest.raises(AirflowFailException, match=f"^{parameter}=True is for a Spark driver in the cluster"):
        orders.run(orders.task(**{parameter: True}))
    assert list(orders.store.list("")) == []


def test_defaults_of_the_dag_reach_ours_and_spark_s_parameters(bench: Bench) -> None:
    """default_args may have parameters of both, and cannot make the task resume another task's Spark job."""
    from airflow.providers.common.compat.version_compat import AIRFLOW_V_3_3_PLUS

    # Airflow before 3.3 does not have it, and warns about it.
    durable = {"durable": True} if AIRFLOW_V_3_3_PLUS else {}
    task = bench.task(default_args={"rotation": {"flush_size": 7}, "packages": "g:a:1", **durable})
    assert (task.rotation.flush_size, task.packages, task.durable) == (7, "g:a:1", False)


def test_importing_the_operator_is_light() -> None:
    """Airflow parses DAG files again and again, so neither a client library nor one for data is loaded."""
    heavy = ("boto3", "botocore", "confluent_kafka", "numpy", "pandas", "pyarrow", "pyspark")
    code = (
        "import sys; import airflow_provider_kafka_s3.operators.kafka_to_s3; "
        f"print([m for m in {heavy!r} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
