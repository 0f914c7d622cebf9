"""The examples in the help of each command run as they are, and its exit codes are those it ends with."""

from __future__ import annotations

import importlib
import json
import pkgutil
import re
import shlex
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_kafka_s3 import cli
from airflow_provider_kafka_s3.cli import main, takeover
from airflow_provider_kafka_s3.cli.command import Command
from airflow_provider_kafka_s3.config import JsonLines, Layout
from airflow_provider_kafka_s3.kafka.offsets import ConsumerGroup
from airflow_provider_kafka_s3.replay import run
from airflow_provider_kafka_s3.replay.request import ReplayRequest
from tests.documentation import ROOT
from tests.unit.cli import conftest
from tests.unit.cli.conftest import TOPIC, World
from tests.unit.kafka_connect.connectors import MINIMAL

COMMANDS = [command for module in main._MODULES for command in module.COMMANDS]
# The checks of these are requests to a server: test_doctor.py and test_init_command.py run their examples.
EXAMPLES = [
    (command, example) for command in COMMANDS if command.name not in ("doctor", "init") for example in command.examples
]
LAYOUT = Layout(topics_dir="topics", format=JsonLines())


class NoCommits:
    """A cluster on which no group has committed."""

    def consumer_group(self, name: str) -> ConsumerGroup:
        return ConsumerGroup(name, "", {"orders": {0: 6}})


@pytest.fixture
def prepared(world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> World:
    """What the examples are about: a pipeline ``orders``, files of a connector, and variables for Kafka."""

    def replay(place: object, config: object, request: ReplayRequest, **_: object) -> run.Replayed:
        return run.Replayed(request.replay, request.target, 1, {}, {})

    monkeypatch.setattr(conftest, "TOPICS_DIR", "topics")
    monkeypatch.setattr(run, "replay", replay)
    monkeypatch.setattr(takeover, "KafkaCluster", lambda *_, **__: NoCommits())
    # Until it is interrupted.
    monkeypatch.setattr(ThreadingHTTPServer, "serve_forever", lambda *_: None)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "any")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "any-secret")
    monkeypatch.chdir(tmp_path)
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": tmp_path.as_uri()}
    Path("catalog.json").write_text(json.dumps(catalog))
    Path("connector.json").write_text(json.dumps(MINIMAL))
    Path("worker.properties").write_text("key.converter=org.apache.kafka.connect.storage.StringConverter\n")
    return world


def prepare(world: World, command: str) -> None:
    """Bring the topic into the state for which a command is made."""
    settings: dict[str, Any] = {"pipeline": "orders", "layout": LAYOUT}
    if command in ("takeover", "convert"):
        return
    if command == "infer-schema":
        world.kafka.delete_topic(TOPIC)
        world.kafka.create_topic(TOPIC)
        world.kafka.append(TOPIC, 0, b'{"id": 1}', timestamp=0)
        return
    if command == "release":
        world.die("*/_owners/*", pipeline="ordres", layout=LAYOUT)
        return
    world.run("first", **settings)
    if command in ("abandon", "recover"):
        world.fill(3)
        world.die("*.plan.json" if command == "abandon" else "*.manifest.json", **settings)
    if command == "accept-loss":
        for key in [info.key for info in world.bucket.list("topics/orders/")]:
            world.bucket.delete(key)
        for n in range(150):
            world.kafka.append(TOPIC, 0, b"%d" % n, timestamp=n)
        world.kafka.delete_records(TOPIC, 0, before=150)
    if command == "reset":
        world.kafka.delete_topic(TOPIC)
        world.kafka.create_topic(TOPIC)


@pytest.mark.parametrize(
    ("command", "example"), EXAMPLES, ids=[f"{command.name}-{n % 2}" for n, (command, _) in enumerate(EXAMPLES)]
)
def test_an_example_runs(prepared: World, command: Command, example: str) -> None:
    """It ends with 0, in the state that the command is made for."""
    prepare(prepared, command.name)
    output = prepared.cli(command.name, *shlex.split(example))
    assert (output.code, output.err) == (0, "")
    assert output.out


def test_every_module_with_commands_is_in_the_parser() -> None:
    """A command that nobody can type would not be missed."""
    names = [module.name for module in pkgutil.iter_modules(cli.__path__)]
    modules = [importlib.import_module(f"{cli.__name__}.{name}") for name in names if name != "__main__"]
    assert {m.__name__ for m in modules if hasattr(m, "COMMANDS")} == {m.__name__ for m in main._MODULES}


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_every_command_is_in_the_table_of_its_page(command: Command) -> None:
    """With what it writes; one that writes nothing has no dry run."""
    (row,) = re.findall(
        rf"^\| `{command.name}` \| .* \| (.*) \|$", (ROOT / "docs" / "cli.md").read_text(), re.MULTILINE
    )
    if command.topics is not None:
        assert (row == "nothing") == (not command.has_dry_run)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_the_help_has_a_sentence_two_examples_and_the_exit_codes(
    command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    """In this order around the options; 1 only where a command may end with findings."""
    with pytest.raises(SystemExit):
        main.main([command.name, "--help"])
    text = capsys.readouterr().out
    assert " ".join(command.summary.split()) in " ".join(text.split())
    assert command.summary.endswith(".")
    for example in command.examples:
        assert f"\n  kafka-s3 {command.name} {example}\n" in text
    codes = " ".join(text[text.index("exit codes:") :].split())
    assert ("; 1 " in codes) == bool(command.findings)
    assert command.findings in codes
