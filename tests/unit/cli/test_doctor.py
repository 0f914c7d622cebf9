"""``kafka-s3 doctor``: each finding has a message and a fix."""

from __future__ import annotations

import importlib.metadata
import json
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from airflow_provider_kafka_s3.cli import main
from airflow_provider_kafka_s3.cli.doctor import COMMANDS
from airflow_provider_kafka_s3.cli.findings import Finding, guarded
from airflow_provider_kafka_s3.cli.machine_checks import check_jars, pyspark_findings
from airflow_provider_kafka_s3.cli.store_checks import clock_finding, lifecycle_findings
from airflow_provider_kafka_s3.config import ByField, JsonConverter, Layout, Naming, Parquet
from airflow_provider_kafka_s3.exceptions import AccessDeniedError
from airflow_provider_kafka_s3.kafka import source as kafka_source
from airflow_provider_kafka_s3.retry import Retrier
from airflow_provider_kafka_s3.spark.connector import connector_package
from airflow_provider_kafka_s3.storage.durable import DurableStore
from airflow_provider_kafka_s3.storage.s3 import S3Settings, S3Store, make_client
from airflow_provider_kafka_s3.testing.kafka import SimulatedKafka
from dev.s3_server import S3Server
from tests.protocol.engine import LAYOUT, PIPELINE, TOPICS_DIR, Engine
from tests.unit.batch.simulated_topic import Topic

BUCKET = "doctor"
ABORT = {"ID": "abort", "Status": "Enabled", "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 7}}


# -- lifecycle rules --------------------------------------------------------------------------------------------------


def levels(*rules: dict[str, Any]) -> list[str]:
    """Levels of the findings about a pipeline in ``topics``."""
    return [finding.level for finding in lifecycle_findings(rules, "topics", "`kafka-s3 gc`")]


def test_an_error_of_a_check_is_a_finding_with_its_kind() -> None:
    """Programs compare the kind, people read class and message."""

    def fail() -> list[Finding]:
        raise AccessDeniedError("403 of s3://lake")

    (found,) = guarded("uploads", fail)
    assert (found.level, found.kind, found.message) == ("error", "access_denied", "AccessDeniedError: 403 of s3://lake")


def test_a_bucket_whose_only_rule_aborts_uploads_after_a_week_is_fine() -> None:
    """Whether it is for the whole bucket, or for the data prefix."""
    assert levels({**ABORT, "Filter": {"Prefix": ""}}) == ["ok"]
    assert levels({**ABORT, "Filter": {"Prefix": "topics/"}}) == ["ok"]
    assert levels({**ABORT, "Prefix": "topics/"}) == ["ok"]


def test_a_bucket_without_such_a_rule_is_warned_about() -> None:
    """Also if the rule is off, for another prefix, or for objects of a tag."""
    assert levels() == ["warning"]
    assert levels({**ABORT, "Status": "Disabled"}) == ["warning"]
    assert levels({**ABORT, "Filter": {"Prefix": "other/"}}) == ["warning"]
    assert levels({**ABORT, "Filter": {"Tag": {"Key": "a", "Value": "b"}}}) == ["warning"]
    assert levels({**ABORT, "Filter": {"And": {"Prefix": "topics/", "Tags": []}}}) == ["warning"]


def test_a_rule_that_aborts_too_early_is_an_error() -> None:
    """A decided batch may need its uploads."""
    early = {
        **ABORT,
        "Filter": {"Prefix": "topics/orders/"},
        "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 1},
    }
    assert levels({**ABORT, "Filter": {}}, early) == ["error"]


@pytest.mark.parametrize(
    "what", [{"Expiration": {"Days": 30}}, {"Transitions": [{"Days": 1, "StorageClass": "GLACIER"}]}]
)
def test_a_rule_that_removes_control_documents_is_an_error(what: dict[str, Any]) -> None:
    """One for a topic's data alone is allowed."""
    for prefix in ("", "topics/", "topics/_kafka_s3/orders/"):
        rule = {"ID": "tidy", "Status": "Enabled", "Filter": {"Prefix": prefix}, **what}
        assert levels({**ABORT, "Filter": {}}, rule) == ["error"], prefix
    data = {"ID": "tidy", "Status": "Enabled", "Filter": {"Prefix": "topics/orders/"}, **what}
    assert levels({**ABORT, "Filter": {}}, data) == ["ok"]


# -- clock, pyspark, jars ---------------------------------------------------------------------------------------------


def test_the_clock_is_compared_in_both_directions() -> None:
    """S3 refuses requests of a clock that is wrong by a quarter of an hour."""
    assert [clock_finding(s).level for s in (0, 59, -59, 120, -120, 901, -901)] == [
        *["ok"] * 3,
        *["warning"] * 2,
        *["error"] * 2,
    ]


def installed(folder: Path, name: str, version: str, body: str) -> importlib.metadata.Distribution:
    """A distribution whose record has ``pyspark/sql.py`` with this body."""
    import base64
    import hashlib

    digest = base64.urlsafe_b64encode(hashlib.sha256(body.encode()).digest()).decode().rstrip("=")
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "RECORD").write_text(f"pyspark/sql.py,sha256={digest},{len(body)}\n")
    (folder / "pyspark").mkdir(exist_ok=True)
    (folder / "pyspark" / "sql.py").write_text(body)
    return importlib.metadata.Distribution.at(info)


def test_a_pyspark_that_another_version_was_written_over_is_found(tmp_path: Path) -> None:
    """By the versions, or else by the files themselves."""
    spark = installed(tmp_path, "pyspark", "4.0.0", "old")
    assert [f.level for f in pyspark_findings([spark])] == ["ok"]
    client = installed(tmp_path, "pyspark-client", "4.0.1", "new")
    (found,) = pyspark_findings([spark, client])
    assert (found.level, "pyspark==4.0.0" in found.fix) == ("error", True)
    (found,) = pyspark_findings([spark])
    assert (found.level, "pyspark/sql.py" in found.message) == ("error", True)
    assert [f.level for f in pyspark_findings([])] == ["error"]


def test_a_pyspark_that_is_not_tested_is_warned_about_and_one_that_is_not_supported_is_an_error(tmp_path: Path) -> None:
    """The fix is the command that installs a tested one."""
    for version, level in {"4.0.0": "ok", "4.1.2": "warning", "4.2.0": "ok", "4.3.0": "error"}.items():
        folder = tmp_path / version
        both = [installed(folder, name, version, "same") for name in ("pyspark", "pyspark-client")]
        (found,) = pyspark_findings(both)
        assert found.level == level, version
        assert ("pip install 'pyspark==4.2.0' 'pyspark-client==4.2.0'" in found.fix) == (level != "ok")


def test_jars_of_another_spark_are_found(tmp_path: Path) -> None:
    """And those that are missing, or cannot be read."""
    version = connector_package().rpartition(":")[2]

    def jars(sql: str, *others: str) -> list[str]:
        paths = [tmp_path / name for name in (sql, *others)]
        for path in paths:
            path.touch()
        return [f.level for f in check_jars(",".join(map(str, paths)))]

    rest = (
        f"spark-token-provider-kafka-0-10_2.13-{version}.jar",
        "kafka-clients-3.9.0.jar",
        "commons-pool2-2.12.0.jar",
    )
    assert jars(f"spark-sql-kafka-0-10_2.13-{version}.jar", *rest) == ["ok"]
    assert jars("spark-sql-kafka-0-10_2.12-3.5.1.jar", *rest) == ["error"]
    assert jars(f"spark-sql-kafka-0-10_2.13-{version}.jar", *rest[:2]) == ["error"]
    assert [f.level for f in check_jars(str(tmp_path / "absent.jar"))] == ["error"]


def test_jars_that_spark_brings_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in the operator."""
    home = tmp_path / "spark"
    (home / "jars").mkdir(parents=True)
    version = connector_package().rpartition(":")[2]
    mine = tmp_path / f"spark-sql-kafka-0-10_2.13-{version}.jar"
    mine.touch()
    brought = [f"spark-token-provider-kafka-0-10_2.13-{version}.jar", "kafka-clients-3.9.1.jar"]
    for name in brought:
        (home / "jars" / name).touch()
    monkeypatch.setenv("SPARK_HOME", str(home))
    monkeypatch.delenv("SPARK_CONF_DIR", raising=False)
    monkeypatch.delenv("SPARK_DIST_CLASSPATH", raising=False)
    assert [f.message for f in check_jars(str(mine))] == ["commons-pool2 is not among the jars"]
    (home / "jars" / "commons-pool2-2.12.1.jar").touch()
    assert [f.level for f in check_jars(str(mine))] == ["ok"]


# -- a store over HTTP ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """A store that is as strict as S3."""
    with S3Server(buckets=[BUCKET, "lake"]) as server:
        yield server.endpoint


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> SimulatedKafka:
    """A topic with a record, and credentials for the store."""
    made = SimulatedKafka()
    made.create_topic("orders")
    made.append("orders", 0, b"1")
    monkeypatch.setattr(kafka_source, "KafkaSource", lambda *_, **__: made)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "any")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "any-secret")
    return made


def doctor(endpoint: str, capsys: pytest.CaptureFixture[str], *more: str) -> dict[str, tuple[str, str]]:
    """Check -> level and message."""
    where = ("--bucket", BUCKET, "--endpoint-url", endpoint, "--region", "us-east-1", "--bootstrap-server", "b:9092")
    # Airflow 2 logs to standard output, also what a test did before.
    capsys.readouterr()
    main.main(["doctor", *where, "--pipeline", "p", "--topic", "orders", "--json", *more])
    return {f["check"]: (f["level"], f["message"]) for f in json.loads(capsys.readouterr().out)["findings"]}


def test_a_fit_store_has_no_errors_and_nothing_stays_pending(
    endpoint: str, kafka: SimulatedKafka, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twice, since the probe stays; the first dry run writes nothing."""
    client = make_client(S3Settings(endpoint_url=endpoint, region="us-east-1"))
    probe = "topics/_kafka_s3/_doctor/probe.json"
    client.delete_object(Bucket=BUCKET, Key=probe)  # that of another test
    dry = doctor(endpoint, capsys, "--dry-run")
    assert (dry["conditional writes"][0], client.list_objects_v2(Bucket=BUCKET)["KeyCount"]) == ("unknown", 0)
    for _ in range(2):
        found = doctor(endpoint, capsys)
        assert [found[c][0] for c in ("read and list", "conditional writes", "uploads", "clock")] == ["ok"] * 4, found
        assert [found[c][0] for c in ("lifecycle", "versions")] == ["warning"] * 2
        assert (found["topic orders"][0], found["kafka options"][0]) == ("ok", "ok")
    keys = [entry["Key"] for entry in client.list_objects_v2(Bucket=BUCKET)["Contents"]]
    assert keys == [probe]
    assert "Uploads" not in client.list_multipart_uploads(Bucket=BUCKET)


@pytest.mark.parametrize("example", COMMANDS[0].examples)
def test_the_examples_in_the_help_run(
    endpoint: str,
    kafka: SimulatedKafka,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    example: str,
) -> None:
    """The store is that of the variables."""
    monkeypatch.setenv("KAFKA_S3_ENDPOINT_URL", endpoint)
    monkeypatch.setenv("KAFKA_S3_REGION", "us-east-1")
    monkeypatch.setenv("KAFKA_S3_BOOTSTRAP_SERVER", "broker:9092")
    code = main.main(["doctor", *shlex.split(example)])
    assert (code, "conditional writes" in capsys.readouterr().out) == (0, True)


def test_the_doctor_stores_its_probe_as_the_operator_stores_objects(
    endpoint: str, kafka: SimulatedKafka, capsys: pytest.CaptureFixture[str]
) -> None:
    """So that a missing right on a key or on tags is found before the first run."""
    upload = {"encryption": {"kind": "kms", "key_id": "alias/lake"}, "tags": {"a": "b"}, "offset_tags": True}
    found = doctor(endpoint, capsys, "--upload", json.dumps(upload))
    assert [found[c][0] for c in ("conditional writes", "uploads", "tags")] == ["ok"] * 3, found
    client: Any = make_client(S3Settings(endpoint_url=endpoint, region="us-east-1"))
    tags = client.get_object_tagging(Bucket=BUCKET, Key="topics/_kafka_s3/_doctor/probe.json")["TagSet"]
    assert {tag["Key"] for tag in tags} == {"a", "startOffset", "endOffset", "recordCount"}


def test_a_topic_that_readers_skip_is_found_until_its_batches_have_a_prefix(
    kafka: SimulatedKafka, capsys: pytest.CaptureFixture[str]
) -> None:
    """Spark and Athena read nothing of it, without an error."""
    kafka.create_topic("_hidden")

    def names(**naming: str) -> tuple[str, str]:
        kafka.append("_hidden", 0, b"1")
        store = S3Store(make_client(S3Settings(endpoint_url=server.endpoint, region="us-east-1")), BUCKET)
        engine = Engine(store, kafka, topic="_hidden")
        engine.run(f"run{len(naming)}", layout=msgspec.structs.replace(LAYOUT, naming=Naming(**naming)))
        return doctor(
            server.endpoint, capsys, "--topics-dir", TOPICS_DIR, "--pipeline", PIPELINE, "--topic", "_hidden"
        )["names"]

    with S3Server(buckets=[BUCKET]) as server:
        level, message = names()
        assert (level, f"{TOPICS_DIR}/_hidden/…" in message) == ("warning", True)
        assert names(topic_prefix="topic=")[0] == "ok"


def test_a_bucket_that_is_not_there_and_a_topic_that_is_not_there_are_findings(
    endpoint: str, kafka: SimulatedKafka, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 1, and all other checks are made."""
    kafka.delete_topic("orders")
    where = ("--bucket", "absent", "--endpoint-url", endpoint, "--region", "us-east-1", "--bootstrap-server", "b:9092")
    code = main.main(["doctor", *where, "--pipeline", "p", "--topic", "orders"])
    output = capsys.readouterr().out
    assert (code, "BucketNotFoundError" in output, "TopicNotFoundError" in output) == (1, True, True)
    assert "pyspark" in output


def test_the_command_line_loads_neither_airflow_nor_spark_before_it_needs_them() -> None:
    """So that it starts fast."""
    import subprocess

    code = (
        "import sys; import airflow_provider_kafka_s3.cli.main as m; m.parser(); "
        "print([n for n in ('airflow', 'boto3', 'pyspark', 'confluent_kafka', 'pandas') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_columns_that_readers_do_not_show_are_found(kafka: SimulatedKafka, capsys: pytest.CaptureFixture[str]) -> None:
    """Of the newest batch: those that are called like a folder, and not those of a partitioner that shows them."""
    schema = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "partition", "type": "int"}]})
    kafka.delete_records("orders", 0, 1)
    columns = Layout(topics_dir="lake", format=Parquet(), value_converter=JsonConverter(schema=schema))

    def names(layout: Layout) -> tuple[str, str]:
        topic = Topic(layout)
        topic.kafka = kafka
        topic.append(b'{"partition": 7}')
        client = make_client(S3Settings(endpoint_url=server.endpoint, region="us-east-1"))
        topic.pipeline_with(DurableStore(S3Store(client, BUCKET), Retrier())).land(
            topic.request(str(type(layout.partitioner)))
        )
        return doctor(server.endpoint, capsys, "--topics-dir", "lake", "--pipeline", "orders-to-lake")["names"]

    with S3Server(buckets=[BUCKET]) as server:
        level, message = names(columns)
        assert level == "warning", message
        assert "topic 'orders': folders have the names of the fields partition:" in message
        assert names(msgspec.structs.replace(columns, partitioner=ByField(names=["partition"])))[0] == "ok"
