"""Options, connections and environment variables of commands, their exit codes, and that no secret is shown."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_kafka_s3.cli import main
from airflow_provider_kafka_s3.documents.notation import format_offsets, parse_offsets
from airflow_provider_kafka_s3.documents.offsets import Offsets
from airflow_provider_kafka_s3.exceptions import ConfigurationError, KafkaUnavailableError
from tests.unit.cli.conftest import PIPELINE, TOPIC, TOPICS_DIR, World, commands_in

CANARY = "canary-5b2e-secret"


def test_connections_of_airflow_are_used(world: World, opened: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Their secrets reach the clients and nothing else."""
    kafka = {"bootstrap.servers": "b:9092", "security.protocol": "SASL_SSL", "sasl.password": CANARY}
    aws = {"conn_type": "aws", "login": "AKIA", "password": CANARY, "extra": {"region_name": "eu-central-1"}}
    monkeypatch.setenv("AIRFLOW_CONN_K", json.dumps({"conn_type": "kafka", "extra": kafka}))
    monkeypatch.setenv("AIRFLOW_CONN_A", json.dumps(aws))
    output = world.on_topic("status", "--kafka-conn-id", "k", "--aws-conn-id", "a", "--json", "--verbose")
    assert (output.code, opened["config"]["sasl.password"], opened["settings"].region) == (0, CANARY, "eu-central-1")
    assert opened["credentials"].secret_access_key == CANARY
    assert CANARY not in output.out + output.err


def test_a_missing_connection_is_an_error(world: World, opened: dict[str, Any]) -> None:
    """Exit code 2, and its name; no default is used instead."""
    output = world.on_topic("status", "--kafka-conn-id", "nobody")
    assert (output.code, "'nobody'" in output.err) == (2, True)


def test_a_file_of_settings_is_used_and_never_quoted(world: World, opened: dict[str, Any], tmp_path: Path) -> None:
    """Not even when it is broken."""
    path = tmp_path / "kafka.json"
    path.write_text(json.dumps({"bootstrap.servers": "b:1", "sasl.password": CANARY}))
    assert world.on_topic("status", "--kafka-config", str(path)).code == 0
    assert opened["config"] == {"bootstrap.servers": "b:1", "sasl.password": CANARY}
    for broken in (f'{{"sasl.password": "{CANARY}"', f'["{CANARY}"]'):
        path.write_text(broken)
        output = world.on_topic("status", "--kafka-config", str(path))
        assert (output.code, CANARY in output.out + output.err) == (2, False)
    assert world.on_topic("status", "--kafka-config", str(tmp_path / "absent")).code == 2


def test_the_environment_is_used_for_options_that_are_not_given(
    world: World, opened: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Options win."""
    monkeypatch.setenv("KAFKA_S3_BUCKET", "other")
    monkeypatch.setenv("KAFKA_S3_ENDPOINT_URL", "http://store:9000")
    assert world.cli("status", "--topics-dir", TOPICS_DIR, "--pipeline", PIPELINE).code == 0
    assert (opened["bucket"], opened["settings"].endpoint_url) == ("other", "http://store:9000")
    assert opened["config"] == {"bootstrap.servers": "broker:9092"}
    world.on_topic("status", "--bootstrap-server", "mine:1", "--endpoint-url", "http://mine:2")
    assert (opened["bucket"], opened["settings"].endpoint_url) == ("lake", "http://mine:2")
    assert opened["config"] == {"bootstrap.servers": "mine:1"}


def test_what_commands_write_is_stored_like_the_objects_of_the_operator(
    world: World, opened: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the option, its variable, and a connection that has the customer key; commands in errors repeat it."""
    kms = '{"encryption": {"kind": "kms", "key_id": "alias/lake"}, "acl": "private"}'
    assert world.on_topic("status", "--upload", kms).code == 0
    assert (opened["settings"].encryption_name, opened["settings"].acl) == ("kms alias/lake", "private")
    monkeypatch.setenv("KAFKA_S3_UPLOAD", '{"storage_class": "STANDARD_IA"}')
    assert world.on_topic("status").code == 0
    assert (opened["settings"].encryption, opened["settings"].storage_class) == (None, "STANDARD_IA")
    extra = {"sse_customer_key": base64.b64encode(bytes(32)).decode()}
    monkeypatch.setenv("AIRFLOW_CONN_A", json.dumps({"conn_type": "aws", "extra": extra}))
    output = world.on_topic("status", "--aws-conn-id", "a")
    assert (output.code, opened["settings"].encryption_name[:9]) == (0, "customer ")
    assert extra["sse_customer_key"] not in output.out + output.err
    world.bucket.delete(next(info.key for info in world.bucket.list(f"{TOPICS_DIR}/{TOPIC}/")))
    lost = world.on_topic("verify", "--upload", kms)
    commands = commands_in(lost.out + lost.err)
    assert commands
    assert [command for command in commands if kms not in command] == []


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("kms", "--upload kms: it is not a JSON object of settings"),
        ("[]", "it is not a JSON object"),
        ('{"sse": "kms"}', "upload has no 'sse'"),
        ('{"encryption": "customer"}', "upload: encryption='customer' needs a key"),
    ],
)
def test_an_upload_that_is_not_possible_is_an_error_of_usage(
    world: World, opened: dict[str, Any], given: str, message: str
) -> None:
    """Exit code 2, before any request is sent."""
    output = world.on_topic("status", "--upload", given)
    assert (output.code, message in " ".join(output.err.split())) == (2, True), output.err


@pytest.mark.parametrize(
    "options",
    [
        ("--kafka-conn-id", "k", "--bootstrap-server", "b:1"),
        ("--aws-conn-id", "a", "--endpoint-url", "http://store:9000"),
        ("--endpoint-url", "store:9000"),
    ],
)
def test_options_that_contradict_one_another_are_refused(
    world: World, opened: dict[str, Any], options: tuple[str, ...]
) -> None:
    """Exit code 2, before any request is sent."""
    assert world.on_topic("status", *options).code == 2


def test_no_bucket_and_unknown_options_are_errors_of_usage(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2."""
    assert world.cli("status").code == 2
    with pytest.raises(SystemExit) as ended:
        main.main(["abandon", "--no-such-option"])
    assert ended.value.code == 2
    capsys.readouterr()


def test_what_may_succeed_later_has_an_exit_code_of_its_own(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """And is printed as JSON with ``--json``."""
    world.run("first")

    def away(_: str) -> None:
        raise KafkaUnavailableError("no broker answers")

    monkeypatch.setattr(world.kafka, "describe", away)
    output = world.on_topic("status", "--json")
    kind, name = "kafka_unavailable", "KafkaUnavailableError"
    error = {"kind": kind, "type": name, "message": "no broker answers", "terminal": False}
    assert (output.code, output.data) == (4, {"error": error})


def test_a_command_that_needs_kafka_names_the_options(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 2."""
    world.die("*.plan.json")
    monkeypatch.delenv("KAFKA_S3_BOOTSTRAP_SERVER")
    output = world.on_topic("recover")
    assert (output.code, "--kafka-conn-id" in output.err) == (2, True)


def test_operator_and_reason_are_recorded(world: World) -> None:
    """In the decision."""
    world.die("*.plan.json")
    world.on_topic("abandon", "--batch", "1", "--release", "debt", "--reason", "poison", "--operator", "me")
    decision = world.committer().log.read_manifest(1)
    assert decision is not None
    assert (decision.reason, decision.operator) == ("poison", "me")


def test_offsets_are_parsed_as_they_are_printed() -> None:
    """And text of another form is refused."""
    offsets = Offsets({0: [(100, 150), (200, 201)], 7: [(0, 9)]})
    assert parse_offsets(format_offsets(offsets)) == offsets
    for wrong in ("", "0", "0:5", "0:5-5", "0:9-5", "a:0-5", "0:-1-5", "0:0-5;1:0-5"):
        with pytest.raises(ConfigurationError):
            parse_offsets(wrong)


def test_offsets_that_kafka_still_has_are_not_accepted_as_lost(world: World) -> None:
    """Nor those that an open batch claims."""
    world.run("first")
    world.fill(2)
    refused = world.on_topic("accept-loss", "--offsets", "0:6-8")
    assert (refused.code, "are not gone" in refused.err) == (2, True)
    world.die("*02.plan.json", "second")
    world.kafka.delete_records(TOPIC, 0, 8)
    refused = world.on_topic("accept-loss", "--offsets", "0:6-8")
    assert (refused.code, "kafka-s3 abandon" in refused.err) == (2, True)
