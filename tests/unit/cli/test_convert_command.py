"""``kafka-s3 convert`` prints the file of a DAG, and what became of each setting."""

from __future__ import annotations

import io
import json
import runpy
import sys
from pathlib import Path

import pytest

from airflow_provider_kafka_s3.kafka_connect.call import python_call
from airflow_provider_kafka_s3.kafka_connect.convert import convert
from airflow_provider_kafka_s3.operators.kafka_to_s3 import KafkaToS3Operator
from tests.unit.cli.conftest import World
from tests.unit.kafka_connect.connectors import CUSTOMER, DEVIANTART, MINIMAL, SECRET


@pytest.fixture
def connector(tmp_path: Path) -> Path:
    """The configuration of a sink with a secret."""
    path = tmp_path / "connector.json"
    path.write_text(json.dumps({**CUSTOMER, "aws.secret.access.key": SECRET}))
    return path


@pytest.mark.parametrize("settings", [CUSTOMER, MINIMAL, DEVIANTART], ids=lambda settings: settings["name"])
def test_the_output_is_a_dag_with_comments(world: World, tmp_path: Path, settings: dict[str, str]) -> None:
    """It runs as it is printed; each setting is in a comment, no secret anywhere."""
    given, made = tmp_path / "connector.json", tmp_path / "dag.py"
    given.write_text(
        json.dumps({**settings, "aws.secret.access.key": SECRET} if "s3.bucket.name" in settings else settings)
    )
    output = world.cli("convert", str(given))
    assert (output.code, output.err) == (0, "")
    made.write_text(output.out)
    dag = runpy.run_path(str(made))["dag"]
    (task,) = dag.tasks
    assert (dag.dag_id, type(task)) == (settings["name"], KafkaToS3Operator)
    expected = convert(settings).parameters
    assert {name: getattr(task, name) for name in expected} == {
        name: getattr(KafkaToS3Operator(**expected), name) for name in expected
    }
    assert [name for name in settings if f"#   {name}: " not in output.out] == []
    assert SECRET not in output.out
    assert max(map(len, output.out.splitlines())) <= 120


def test_json_has_code_connections_and_settings(world: World, connector: Path) -> None:
    """For programs."""
    data = world.cli("convert", str(connector), "--json").data
    assert data["call"] == python_call(convert(CUSTOMER).parameters)
    assert data["connections"]["aws_conn_id"] == {"conn_type": "aws", "extra": {"region_name": "us-east-1"}}
    assert {"name": "tasks.max", "use": "none"}.items() <= data["settings"][2].items()
    assert SECRET not in json.dumps(data)


def test_standard_input_and_the_file_of_a_worker_are_read(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker has the converter."""
    bare = {name: value for name, value in MINIMAL.items() if not name.startswith("value.converter")}
    (tmp_path / "worker.properties").write_text("value.converter=org.apache.kafka.connect.storage.StringConverter\n")
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(bare)))
    output = world.cli("convert", "-", "--worker-config", str(tmp_path / "worker.properties"))
    assert (output.code, "value_converter=StringConverter()" in output.out) == (0, True)


def test_errors_name_all_settings_and_no_secret(world: World, tmp_path: Path) -> None:
    """Exit code 2."""
    path = tmp_path / "connector.json"
    path.write_text(json.dumps({**MINIMAL, "rotate.scheduled.interval.ms": SECRET, "topics": "", "aws.secret": SECRET}))
    output = world.cli("convert", str(path))
    assert (output.code, output.out, SECRET in output.err) == (2, "", False)
    assert "rotate.schedule.interval.ms" in output.error
    assert "topics: is missing" in output.error
    assert world.cli("convert", str(tmp_path / "absent.json")).code == 2
