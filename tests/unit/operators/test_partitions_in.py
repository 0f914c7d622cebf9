"""Tables of Glue and Hive follow a landing run, and no error of theirs fails it."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_kafka_s3 import GlueTable, HiveTable
from airflow_provider_kafka_s3.cli import main
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from dev.ports import free_ports
from dev.s3_server import ThreadedS3Server
from tests.tables.catalogs import Glue, GlueFaults
from tests.unit.cli.conftest import commands_in

if TYPE_CHECKING:
    from tests.unit.operators.conftest import Bench

BY_N: dict[str, Any] = {"partitioner": {"kind": "field", "names": ["n"]}}
LOCATION = "s3://lake/topics/orders/"


def listen(port: int = 0) -> ThreadedS3Server:
    """A Glue at a port, with its faults."""
    faults: list[GlueFaults] = []

    def middleware(application: Any) -> GlueFaults:
        faults.append(GlueFaults(application))
        return faults[0]

    server = ThreadedS3Server(port=port, middleware=middleware)
    server.faults = faults[0]  # type: ignore[attr-defined]
    return server


def point_at(monkeypatch: pytest.MonkeyPatch, endpoint: str) -> None:
    """Let the AWS connection have an endpoint for Glue."""
    connection = json.loads(os.environ["AIRFLOW_CONN_AWS_DEFAULT"])
    connection["extra"].pop("verify", None)
    connection["extra"]["service_config"]["glue"] = {"endpoint_url": endpoint}
    monkeypatch.setenv("AIRFLOW_CONN_AWS_DEFAULT", json.dumps(connection))


@pytest.fixture
def glue(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Iterator[Glue]:
    """A Glue, which the AWS connection has; its table is by ``n``."""
    with listen() as server:
        point_at(monkeypatch, server.endpoint)
        made = Glue(server, server.faults, "eu-central-1")  # type: ignore[attr-defined]
        made.make(["n"], LOCATION)
        yield made


def land(bench: Bench, glue: Glue, run_id: str = "manual__1", **parameters: Any) -> dict[str, Any]:
    """A run with partitions in Glue."""
    table = f"{glue.database}.{{topic}}"
    return bench.run(
        bench.task(**{**BY_N, "partitions_in": {"kind": "glue", "table": table}, **parameters}), run_id=run_id
    )


def warnings(caplog: pytest.LogCaptureFixture) -> str:
    """The warnings about partitions."""
    return "\n".join(
        r.getMessage() for r in caplog.records if r.name.endswith("airflow.partitions") and r.levelno > logging.INFO
    )


def said(caplog: pytest.LogCaptureFixture) -> str:
    """The warnings in one line."""
    return " ".join(warnings(caplog).split())


def test_a_run_adds_the_partitions_of_its_folders(topics: Bench, glue: Glue, caplog: pytest.LogCaptureFixture) -> None:
    """And says so in a line; the next run, which finds nothing new, adds nothing."""
    caplog.set_level(logging.INFO)
    land(topics, glue)
    expected = {("1",): f"{LOCATION}n=1/", ("2",): f"{LOCATION}n=2/"}
    assert glue.partitions() == expected
    assert f"topic orders: 2 partitions added to {glue.table} in Glue" in caplog.messages
    land(topics, glue, "manual__2")
    assert glue.faults.calls["BatchCreatePartition"] == 1
    assert glue.partitions() == expected
    assert warnings(caplog) == ""


def test_what_a_run_did_not_add_is_added_by_the_next_one_without_new_records(
    topics: Bench, glue: Glue, caplog: pytest.LogCaptureFixture
) -> None:
    """Glue refuses the first run, which succeeds all the same."""
    glue.faults.refusals = {"BatchCreatePartition": ["AccessDeniedException"]}
    assert land(topics, glue)["landed"]["records"] == 2
    assert glue.partitions() == {}
    assert "Allow glue:BatchCreatePartition" in said(caplog)
    assert land(topics, glue, "manual__2")["status"] == "empty"
    assert set(glue.partitions()) == {("1",), ("2",)}


def test_the_warning_of_a_glue_that_is_down_has_the_command_that_makes_it_good(
    topics: Bench,
    glue: Glue,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Run as it is printed, when Glue is up again; the second time it changes nothing."""
    (port,) = free_ports(1)
    point_at(monkeypatch, f"http://127.0.0.1:{port}")
    returned = land(topics, glue)
    assert (returned["status"], returned["landed"]["records"]) == ("ok", 2)
    assert "topic orders: the records are landed, but partitions of" in said(caplog)
    (command,) = commands_in(warnings(caplog))
    capsys.readouterr()
    with listen(port):
        assert main.main([*command, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["added"] == ["n=1", "n=2"]
        assert set(glue.partitions()) == {("1",), ("2",)}
        assert main.main(command) == 0
    assert f"table {glue.table} in Glue: 0 partitions added, 2 equal, 0 at another place" in capsys.readouterr().out


def test_a_command_that_finds_partitions_at_another_place_ends_with_findings(
    topics: Bench, glue: Glue, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    """It names them, as the warning of the run does."""
    table = glue.opened()
    table.describe()
    table.add({("1",): "s3://lake/old/n=1/"})
    land(topics, glue)
    assert f"{glue.table} in Glue has 1 partition at other places" in said(caplog)
    assert f"n=1 is at s3://lake/old/n=1/, not {LOCATION}n=1/" in said(caplog)
    where = ["--bucket", "lake", "--pipeline", "orders-to-lake", "--topic", "orders", "--aws-conn-id", "aws_default"]
    assert main.main(["table", "sync", *where, "--table", glue.table, "--glue", "--last", "1"]) == 1
    assert f"at another place: n=1: s3://lake/old/n=1/, its objects are in {LOCATION}n=1/" in capsys.readouterr().out


def test_topics_that_are_landed_get_partitions_while_another_one_fails(topics: Bench, glue: Glue) -> None:
    """The task fails for the other topic."""
    from airflow.providers.common.compat.sdk import AirflowException

    topics.spark.failing = {"clicks": ("spark_job", "lost")}
    with pytest.raises(AirflowException, match="lost"):
        land(topics, glue, topics=["orders", "clicks"])
    assert set(glue.partitions()) == {("1",), ("2",)}


def test_other_actions_leave_tables_alone(topics: Bench, glue: Glue) -> None:
    """They land nothing."""
    land(topics, glue)
    glue.faults.clear()
    land(topics, glue, action="verify")
    assert not glue.faults.calls


@pytest.mark.parametrize(
    ("setting", "message", "options"),
    [
        (
            GlueTable(table="db.{topic}", aws_conn_id="none", region="eu-north-1", catalog_id="7"),
            "there is no connection 'none'",
            ["--glue", "--glue-conn-id", "none", "--glue-region", "eu-north-1", "--glue-catalog-id", "7"],
        ),
        (
            HiveTable(table="db.{topic}"),
            "there is no connection 'metastore_default'",
            ["--hive-conn-id", "metastore_default"],
        ),
    ],
)
def test_a_missing_connection_is_a_warning(
    topics: Bench, setting: GlueTable | HiveTable, message: str, options: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """For each topic; its command has all that leads to the table."""
    returned = topics.run(topics.task(**BY_N, topics=["orders", "clicks"], partitions_in=setting))
    assert returned["landed"]["records"] == 3
    assert message in said(caplog)
    commands = [command for command in commands_in(warnings(caplog)) if command[0] == "table"]
    for topic, command in zip(("orders", "clicks"), commands, strict=True):
        assert command[-len(options) :] == options
        assert command[command.index("--topic") :][1:5] == [topic, "sync", "--table", f"db.{topic}"]


def test_a_metastore_that_is_down_is_a_warning_with_a_command_by_its_connection(
    topics: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command reads the same connection: it cannot reach the metastore either, and may be tried again."""
    (port,) = free_ports(1)
    connection = {"conn_type": "hive_metastore", "host": "127.0.0.1", "port": port}
    monkeypatch.setenv("AIRFLOW_CONN_METASTORE_DEFAULT", json.dumps(connection))
    topics.run(topics.task(**BY_N, partitions_in=HiveTable(table="db.{topic}")))
    assert "db.orders in the Hive metastore: get_table_req has no usable answer" in said(caplog)
    (command,) = commands_in(warnings(caplog))
    assert main.main([*command, "--last", "1"]) == 4
    assert "no usable answer" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"partitions_in": "glue"}, "partitions_in: kind 'glue' needs 'table'"),
        ({"partitions_in": {"kind": "iceberg", "table": "a.b"}}, "kind='iceberg' is not known; use 'glue' or 'hive'"),
        ({"partitions_in": {"kind": "glue", "table": "orders"}}, "table='orders' must be text, such as"),
        (
            {"partitions_in": {"kind": "hive", "table": "a.b", "region": "x"}},
            "has no 'region', which belongs to 'glue'",
        ),
        (
            {"partitions_in": 7},
            "partitions_in=7 must be 'glue' or 'hive', a mapping of settings or a GlueTable or HiveTable",
        ),
        (
            {"partitions_in": GlueTable(table="db.orders"), "topics": ["a", "b"]},
            "table='db.orders' is one table of 2 topics, .* Write {topic} into the name",
        ),
        (
            {"partitions_in": GlueTable(table="db.{topic}"), "topics": ["a.b", "a_b"]},
            "topics 'a.b' and 'a_b' have one table",
        ),
        (
            {"partitions_in": GlueTable(table="db.{topic}"), "naming": "deviantart"},
            "partitions_in needs folders name=value of the topic alone",
        ),
    ],
)
def test_what_cannot_work_is_refused_when_the_dag_is_parsed(
    bench: Bench, parameters: dict[str, Any], message: str
) -> None:
    """With the parameter."""
    with pytest.raises(ConfigurationError, match=message):
        bench.task(**parameters)
