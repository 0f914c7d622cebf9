"""``kafka-s3 init`` writes a DAG that Airflow parses, and says what is still missing."""

from __future__ import annotations

import io
import json
import os
import runpy
import shlex
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_kafka_s3.cli import connection_choice, doctor, init, main
from airflow_provider_kafka_s3.cli.dag_check import require_parsed
from airflow_provider_kafka_s3.cli.findings import Finding
from airflow_provider_kafka_s3.cli.new_dag import registry_converter
from airflow_provider_kafka_s3.config import (
    AvroConverter,
    BytesConverter,
    JsonConverter,
    JsonLines,
    JsonSchemaConverter,
    Layout,
    Naming,
    Parquet,
    ProtobufConverter,
    RawBytes,
)
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.inspect.topic_sample import TopicSample
from airflow_provider_kafka_s3.kafka import source as kafka_source
from airflow_provider_kafka_s3.kafka_connect.call import dag_file
from airflow_provider_kafka_s3.registry.client import RegistryClient
from airflow_provider_kafka_s3.registry.schemas import RegisteredSchema
from airflow_provider_kafka_s3.storage import bucket as s3_bucket
from airflow_provider_kafka_s3.storage.durable import DurableStore
from airflow_provider_kafka_s3.storage.memory import MemoryStore
from airflow_provider_kafka_s3.testing.invariants import snapshot
from airflow_provider_kafka_s3.testing.kafka import SimulatedKafka
from tests.unit.batch.simulated_topic import Topic
from tests.unit.cli.conftest import Output, no_wait

CANARY = "canary-4e1b-secret"
START = 1_767_312_000_000
PROTO = 'syntax = "proto3"; message Order { int64 id = 1; }'
AVRO = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]})


class Newcomer:
    """A topic, an empty folder, and the command line of somebody without any connection in Airflow."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.kafka = SimulatedKafka()
        self.kafka.create_topic("orders", 2)
        self.store = MemoryStore("lake")
        self.broker = ("--bootstrap-server", "broker:9092")
        self.s3 = ("--endpoint-url", "http://s3:9000", "--region", "us-east-1")
        self._capsys = capsys

    def fill(self, *values: bytes | None, topic: str = "orders", step: int = 1_000) -> None:
        """Append records."""
        for n, value in enumerate(values):
            self.kafka.append(topic, 0, value, timestamp=START + n * step)

    def init(self, *more: str, topic: str = "orders", start: str = "earliest", where: bool = True) -> Output:
        """Run the command."""
        self._capsys.readouterr()
        options = (*self.broker, *self.s3, "--topic", topic, "--bucket", "lake", "--starting-offsets", start)
        code = main.main(["init", *(options if where else ()), *more])
        captured = self._capsys.readouterr()
        return Output(code, captured.out, captured.err)


@pytest.fixture
def newcomer(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Newcomer:
    """See the class. Airflow parses in this process, and has the connections of the environment.

    The checks of store and machine are those of ``test_doctor``.
    """
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "any")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", CANARY)
    monkeypatch.delenv("AWS_SESSION_TOKEN", raising=False)
    made = Newcomer(capsys)
    monkeypatch.setattr(s3_bucket, "open_bucket", lambda *_, retrier: DurableStore(made.store, retrier))
    for module in (init, connection_choice):
        monkeypatch.setattr(module, "has_connection", lambda conn_id: f"AIRFLOW_CONN_{conn_id.upper()}" in os.environ)
    monkeypatch.setattr(doctor, "check_store", lambda _: [])
    monkeypatch.setattr(kafka_source, "KafkaSource", lambda *_, **__: made.kafka)
    monkeypatch.setattr(doctor, "check_machine", lambda _: [])
    monkeypatch.setattr(init, "require_parsed", parsed_here)
    monkeypatch.setattr(init, "can_ask", lambda: False)
    monkeypatch.chdir(tmp_path)
    return made


def parsed_here(text: str, name: str, dag_id: str) -> None:
    """Run the file, as Airflow does."""
    del name
    variables: dict[str, Any] = {}
    exec(compile(text, "dag.py", "exec"), variables)
    assert variables["dag"].dag_id == dag_id


def task_of(path: str = "orders.py") -> Any:
    """The operator of the file."""
    (task,) = runpy.run_path(path)["dag"].tasks
    return task


def add_connection(monkeypatch: pytest.MonkeyPatch, conn_id: str, **fields: Any) -> None:
    """Add a connection to Airflow's environment."""
    monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", json.dumps(fields))


# -- what is written --------------------------------------------------------------------------------------------------


def test_a_topic_of_json_becomes_a_dag_with_reasons(newcomer: Newcomer) -> None:
    """Every choice has a comment with what was seen, and neither Kafka nor the bucket has anything new."""
    newcomer.fill(*[b'{"id": %d}' % n for n in range(20)])
    before = snapshot(newcomer.store)
    output = newcomer.init()
    assert (output.code, output.err) == (1, "")  # connections are missing
    task, text = task_of(), Path("orders.py").read_text()
    assert (task.topics, task.bucket, task.pipeline, task.offsets) == ("orders", "lake", "orders", "incremental")
    assert (task.starting_offsets, task.format) == ("earliest", JsonLines(compression="gzip"))
    assert (task.kafka_conn_id, task.aws_conn_id, task.spark_conn_id) == (
        *("kafka_default", "aws_default", "spark_default"),
    )
    assert "# Sampled values are JSON objects (20): each is a line of JSON.\n        format=" in text
    assert "# Where the first run begins; Kafka has 20 offsets of it, the oldest of 2026-01-02 00:00 UTC." in text
    assert "About 20 records an hour on the last day with records; hourly from 100,000 on" in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= 120
    assert snapshot(newcomer.store) == before


def test_the_missing_connections_are_lines_to_paste_without_secrets(newcomer: Newcomer) -> None:
    """With the given values; keys come from the variables of the shell."""
    newcomer.fill(b"{}")
    output = newcomer.init("--json")
    commands = [shlex.split(command) for command in output.data["commands"]]
    assert [command[:6] for command in commands] == [
        ["airflow", "connections", "add", "kafka_default", "--conn-type", "kafka"],
        ["airflow", "connections", "add", "aws_default", "--conn-type", "aws"],
        ["airflow", "connections", "add", "spark_default", "--conn-type", "spark"],
    ]
    assert json.loads(commands[0][-1]) == {"bootstrap.servers": "broker:9092"}
    assert commands[1][6:10] == ["--conn-login", "$AWS_ACCESS_KEY_ID", "--conn-password", "$AWS_SECRET_ACCESS_KEY"]
    assert json.loads(commands[1][-1]) == {"endpoint_url": newcomer.s3[1], "region_name": "us-east-1"}
    assert CANARY not in output.out + output.err + Path("orders.py").read_text()


def test_a_file_with_a_login_is_read_by_the_line_to_paste(newcomer: Newcomer) -> None:
    """Its password is nowhere else."""
    newcomer.fill(b"{}")
    settings = {"bootstrap.servers": "broker:9092", "security.protocol": "SASL_SSL", "sasl.password": CANARY}
    Path("my kafka.json").write_text(json.dumps(settings))
    newcomer.broker = ("--kafka-config", "my kafka.json")
    output = newcomer.init()
    assert """--conn-type kafka --conn-extra "$(cat 'my kafka.json')\"""" in output.out
    assert CANARY not in output.out + output.err + Path("orders.py").read_text()


def test_with_all_connections_nothing_is_left_to_do(newcomer: Newcomer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The defaults of the operator are used without an option, and the exit code is 0."""
    newcomer.fill(b"{}")
    add_connection(monkeypatch, "kafka_default", conn_type="kafka", extra={"bootstrap.servers": "broker:9092"})
    extra = {"endpoint_url": newcomer.s3[1], "region_name": "us-east-1"}
    add_connection(monkeypatch, "aws_default", conn_type="aws", login="any", password=CANARY, extra=extra)
    add_connection(monkeypatch, "spark_default", conn_type="spark", host="local[2]")
    for file in ("first.py", "second.py"):
        given = file == "first.py"
        options = ("--topic", "orders", "--bucket", "lake", "--starting-offsets", "latest", "--file", file)
        output = newcomer.init(*options, where=False) if given else newcomer.init("--file", file)
        assert (output.code, "is missing" in output.out, CANARY in output.out + output.err) == (0, False, False)
        assert (task_of(file).kafka_conn_id, task_of(file).aws_conn_id) == ("kafka_default", "aws_default")


def test_a_connection_of_other_servers_is_not_used(newcomer: Newcomer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow's examples name servers of nobody: the DAG has ids of its own."""
    newcomer.fill(b"{}")
    add_connection(monkeypatch, "kafka_default", conn_type="kafka", extra={"bootstrap.servers": "broker:29092"})
    add_connection(monkeypatch, "aws_default", conn_type="aws")
    add_connection(monkeypatch, "spark_default", conn_type="spark", host="yarn")
    for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
    output = newcomer.init("--json")
    task = task_of()
    assert [task.kafka_conn_id, task.aws_conn_id, task.spark_conn_id] == ["orders_kafka", "orders_aws", "orders_spark"]
    assert [shlex.split(command)[3] for command in output.data["commands"]] == [
        *("orders_kafka", "orders_aws", "orders_spark"),
    ]
    add_connection(monkeypatch, "orders_kafka", conn_type="kafka", extra={"bootstrap.servers": "third:9092"})
    refused = newcomer.init("--overwrite")
    assert (refused.code, "--kafka-conn-id" in refused.error) == (2, True)


def test_amazon_s3_needs_no_connection(newcomer: Newcomer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without options for the store boto3 finds address and credentials, here and on the workers."""
    newcomer.fill(b"{}")
    newcomer.s3 = ()
    output = newcomer.init("--json")
    assert (output.code, task_of().aws_conn_id) == (1, None)
    assert not [command for command in output.data["commands"] if "--conn-type aws" in command]


# -- what the values are ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "format_", "converter"),
    [
        ([b'{"a": 1}', b"[1]", b"7"], JsonLines(compression="gzip"), None),
        ([b"a,1", b"b,2"], RawBytes(compression="gzip"), None),
        ([b"\x08\x0a\x12", b"\x08\x07"], Parquet(compression="zstd"), BytesConverter()),
    ],
    ids=["json", "lines", "binary"],
)
def test_the_format_is_that_of_the_values(
    newcomer: Newcomer, values: list[bytes], format_: object, converter: object
) -> None:
    """JSON and other texts are lines; bytes with line breaks are rows."""
    newcomer.fill(*values)
    newcomer.init()
    assert (task_of().format, task_of().value_converter) == (format_, converter)


class OneSchema:
    """A registry with one schema."""

    def __init__(self, kind: Any, text: str) -> None:
        self._schema = RegisteredSchema(id=7, type=kind, text=text)

    def schema(self, schema_id: int) -> RegisteredSchema:
        """It."""
        assert schema_id == 7
        return self._schema


@pytest.mark.parametrize(
    ("kind", "text", "converter"),
    [
        ("AVRO", AVRO, AvroConverter()),
        ("PROTOBUF", PROTO, ProtobufConverter()),
        ("JSON", '{"type": "object", "properties": {"id": {"type": "integer"}}}', JsonSchemaConverter()),
    ],
)
def test_the_converter_is_that_of_the_registered_schema(kind: Any, text: str, converter: object) -> None:
    """By the ids in the headers of the values."""
    registry: Any = OneSchema(kind, text)
    assert registry_converter(TopicSample("orders", 1, 1, schema_ids={7: 3}), registry) == converter


def test_a_schema_that_cannot_be_columns_is_named() -> None:
    """With the reason, before a DAG is written."""
    fields = [{"name": "next", "type": ["null", "Node"]}]
    registry: Any = OneSchema("AVRO", json.dumps({"type": "record", "name": "Node", "fields": fields}))
    with pytest.raises(ConfigurationError, match="schema 7 of topic 'orders' cannot be landed as parquet"):
        registry_converter(TopicSample("orders", 1, 1, schema_ids={7: 3}), registry)
    assert registry_converter(TopicSample("orders", 1, 1, schema_ids={7: 3}), registry, "avro") == AvroConverter()


def test_values_of_a_registry_are_columns(newcomer: Newcomer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The registry without a login is a connection to add."""
    newcomer.fill(b"\0\0\0\0\7\2")
    monkeypatch.setattr(RegistryClient, "schema", OneSchema("AVRO", AVRO).schema)
    monkeypatch.setattr(doctor, "check_registry", lambda _: [])
    output = newcomer.init("--registry-url", "http://registry:8081", "--json")
    assert (task_of().format, task_of().value_converter) == (Parquet(compression="zstd"), AvroConverter())
    assert task_of().registry_conn_id == "registry_default"
    assert (
        "airflow connections add registry_default --conn-type http --conn-host http://registry:8081"
        in output.data["commands"]
    )


def test_values_of_a_registry_that_is_not_named_need_it(newcomer: Newcomer) -> None:
    """Nothing is guessed; the bytes are landed if somebody says so."""
    newcomer.fill(b"\0\0\0\0\7\2")
    output = newcomer.init()
    assert (output.code, output.out, Path("orders.py").exists()) == (2, "", False)
    assert "--format must be given" in output.error
    assert "--registry-url or --registry-conn-id" in output.error
    newcomer.init("--format", "parquet")
    assert task_of().value_converter == BytesConverter()


def test_values_of_several_kinds_need_a_decision(newcomer: Newcomer) -> None:
    """With the numbers of each, and what becomes of the others."""
    newcomer.fill(b"{}", b"{}", b"{")
    output = newcomer.init()
    assert (output.code, "JSON objects (2), bytes that are not JSON (1)" in output.error) == (2, True)
    assert "1 of 3 sampled values cannot be landed so" in newcomer.init("--format", "json").out
    assert newcomer.init("--format", "json", "--file", "b.py").code == 1


def test_null_values_need_a_decision(newcomer: Newcomer) -> None:
    """A run would end at the first one."""
    newcomer.fill(b"{}", None)
    output = newcomer.init()
    assert (output.code, "--on-null must be given" in output.error) == (2, True)
    newcomer.init("--on-null", "ignore")
    assert task_of().format == JsonLines(compression="gzip", on_null="ignore")


def test_json_with_its_schema_may_be_parquet(newcomer: Newcomer) -> None:
    """JSON without one may not, and the error has the command that makes one."""
    newcomer.fill(b'{"schema": {"type": "int64"}, "payload": 1}')
    newcomer.init("--format", "parquet")
    assert task_of().value_converter == JsonConverter(schemas_enable=True)
    newcomer.fill(b'{"a": 1}')
    output = newcomer.init("--format", "parquet", "--overwrite")
    assert (output.code, "make the schema by the command infer-schema" in output.error) == (2, True)


def test_an_empty_topic_needs_a_format(newcomer: Newcomer) -> None:
    """It shows none."""
    output = newcomer.init()
    assert (output.code, "the topic has no values that show a format" in output.error) == (2, True)
    assert newcomer.init("--format", "json").code == 1
    assert task_of().partitioner.__class__.__name__ == "Daily"


def test_a_fast_topic_has_folders_of_an_hour(newcomer: Newcomer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of a day would be too large; records without times have folders of their partition."""
    newcomer.fill(b"{}")
    for rate, untimed, name in ((200_000.0, 0, "Hourly"), (1.0, 0, "Daily"), (200_000.0, 1, "ByPartition")):
        seen = TopicSample(
            *("orders", 1, 1, 1, 0, {"JSON objects": 1}), per_hour=rate, without_time=untimed, oldest=START
        )
        monkeypatch.setattr(init, "sample_topic", lambda *_, seen=seen, **__: seen)
        newcomer.init("--overwrite")
        assert type(task_of().partitioner).__name__ == name


def test_a_topic_that_readers_skip_has_a_prefix(newcomer: Newcomer) -> None:
    """As ``doctor`` would ask for later."""
    newcomer.kafka.create_topic("_orders")
    newcomer.fill(b"{}", topic="_orders")
    newcomer.init("--pipeline", "orders", topic="_orders")
    assert task_of().naming == Naming(topic_prefix="topic=")


# -- what is refused --------------------------------------------------------------------------------------------------


def test_without_a_terminal_all_that_is_missing_is_named(newcomer: Newcomer) -> None:
    """In one error; nothing is written."""
    output = newcomer.init(where=False)
    assert (output.code, output.out) == (2, "")
    for option in ("--bootstrap-server", "--topic", "--bucket", "--starting-offsets"):
        assert option in output.error
    assert [*Path().iterdir()] == []


def test_a_file_is_replaced_only_on_request(newcomer: Newcomer) -> None:
    """The error names the option."""
    newcomer.fill(b"{}")
    Path("orders.py").write_text("mine")
    output = newcomer.init()
    assert (output.code, "--overwrite" in output.error, Path("orders.py").read_text()) == (2, True, "mine")
    newcomer.init("--overwrite")
    assert task_of().pipeline == "orders"


@pytest.mark.parametrize("file", ["orders.txt", "absent/orders.py"])
def test_a_wrong_place_is_refused_before_the_topic_is_read(newcomer: Newcomer, file: str) -> None:
    """The topic is empty, which would be the next error."""
    output = newcomer.init("--file", file)
    assert (output.code, f"--file {file}" in output.error) == (2, True)


def test_a_topic_of_another_pipeline_is_refused(newcomer: Newcomer) -> None:
    """Its name is the default, and a comment says that the stored offsets are used."""
    topic = Topic(Layout(topics_dir="lake", format=JsonLines()))
    topic.kafka = newcomer.kafka
    topic.append(b'{"a": 1}')
    topic.pipeline_with(DurableStore(newcomer.store, no_wait())).land(topic.request("first"))
    output = newcomer.init("--topics-dir", "lake", "--pipeline", "mine")
    assert (output.code, "belongs to pipeline 'orders-to-lake'" in output.error) == (2, True)
    newcomer.init("--topics-dir", "lake")
    assert task_of("orders-to-lake.py").topics_dir == "lake"
    assert "Not used: the pipeline has begun to land this topic" in Path("orders-to-lake.py").read_text()


def test_a_failed_check_is_shown_and_ends_with_1(newcomer: Newcomer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is there, and with all connections something is still to do."""
    newcomer.fill(b"{}")
    monkeypatch.setattr(init, "choose_connections", lambda *_, **__: [])
    assert newcomer.init().code == 0
    monkeypatch.setattr(doctor, "check_store", lambda _: [Finding("uploads", "error", "refused", "allow it")])
    output = newcomer.init("--overwrite")
    assert (output.code, task_of().pipeline) == (1, "orders")
    assert "ERROR    uploads: refused\n         fix: allow it" in output.out


# -- the dialogue -----------------------------------------------------------------------------------------------------


def test_a_dialogue_asks_for_what_is_not_given(newcomer: Newcomer, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty line is the default; a wrong choice is asked again."""
    newcomer.fill(b"{}")
    monkeypatch.setattr(init, "can_ask", lambda: True)
    answers = ["broker:9092", "", "orders", "lake", newcomer.s3[1], "shop", "newest", "latest", "", "hourly", ""]
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(answers) + "\n"))
    monkeypatch.setenv("KAFKA_S3_REGION", "us-east-1")
    output = newcomer.init(where=False)
    assert output.code == 1, output.err
    task = task_of("shop.py")
    assert (task.topics, task.pipeline, task.starting_offsets) == ("orders", "shop", "latest")
    assert type(task.partitioner).__name__ == "Hourly"
    assert "Kafka broker (HOST:PORT)" in output.err
    assert "Kafka broker" not in output.out


def test_the_end_of_the_input_ends_the_dialogue(newcomer: Newcomer, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Ctrl-C does; nothing is written."""
    monkeypatch.setattr(init, "can_ask", lambda: True)
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    output = newcomer.init(where=False)
    assert (output.code, [*Path().iterdir()]) == (130, [])


# -- Airflow's parser -------------------------------------------------------------------------------------------------


def test_airflow_parses_the_file_in_a_process_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that it refuses is an error, with the reason."""
    monkeypatch.chdir(tmp_path)
    parameters = {
        "task_id": "land",
        "topics": "orders",
        "bucket": "lake",
        "pipeline": "orders",
        "offsets": "incremental",
        "starting_offsets": "earliest",
        "format": JsonLines(),
    }
    require_parsed(dag_file(parameters, "a"), "orders.py", "orders")
    with pytest.raises(ConfigurationError, match=r"Airflow refuses the DAG; nothing was written: .*starting_offsets"):
        require_parsed(dag_file({**parameters, "starting_offsets": "first"}, "a"), "orders.py", "orders")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("example", init.COMMANDS[0].examples)
def test_the_examples_in_the_help_run(newcomer: Newcomer, monkeypatch: pytest.MonkeyPatch, example: str) -> None:
    """The store is that of the variables; connections are missing."""
    newcomer.fill(b"{}")
    monkeypatch.setenv("KAFKA_S3_ENDPOINT_URL", newcomer.s3[1])
    monkeypatch.setenv("KAFKA_S3_REGION", "us-east-1")
    monkeypatch.setenv("KAFKA_S3_BOOTSTRAP_SERVER", "broker:9092")
    output = newcomer.init(*shlex.split(example), where=False)
    assert (output.code, output.err) == (1, "")
