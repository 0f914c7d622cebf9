"""Every command that is printed is complete, made by one function, and can be run as it is printed."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

import airflow_provider_kafka_s3
from airflow_provider_kafka_s3.batch import location
from airflow_provider_kafka_s3.batch.location import TopicLocation
from airflow_provider_kafka_s3.batch.remedies import Remedies
from airflow_provider_kafka_s3.cli import access, main, store_checks
from airflow_provider_kafka_s3.config import JsonLines, Layout
from airflow_provider_kafka_s3.documents.addresses import TopicAddress
from airflow_provider_kafka_s3.documents.offsets import Offsets
from airflow_provider_kafka_s3.exceptions import KafkaS3Error
from airflow_provider_kafka_s3.reading import Snapshot
from airflow_provider_kafka_s3.replay import run as replays
from airflow_provider_kafka_s3.storage.s3 import S3Settings
from tests.unit.cli.conftest import PIPELINE, TOPIC, TOPICS_DIR, Output, World, commands_in

PACKAGE = Path(airflow_provider_kafka_s3.__file__).parent
STORE = ("--endpoint-url", "http://store:9000", "--region", "eu-central-1")


def printed(world: World, command: str, *arguments: str) -> list[list[str]]:
    """The commands that a command prints, with the options of the store."""
    output = world.on_topic(command, *STORE, *arguments)
    return commands_in(output.out + output.err)


def run_as_printed(world: World, commands: list[list[str]]) -> list[Output]:
    """Run the commands of a message, each of which has all options of the store."""
    assert commands
    for command in commands:
        assert [*STORE] == [word for name in STORE[::2] for word in (name, command[command.index(name) + 1])]
        assert command[command.index("--bucket") + 1] == "lake"
        assert command[command.index("--topics-dir") + 1] == TOPICS_DIR
    return [world.cli(*command) for command in commands]


def test_every_remedy_is_a_command_that_the_command_line_takes() -> None:
    """With each of its arguments."""
    remedies = Remedies("lake", TopicAddress(topics_dir="raw topics", pipeline="p", topic="t"), STORE)
    arguments: dict[str, tuple[Any, ...]] = {
        "abandon": (3,),
        "abandon_or_leave_out": (3,),
        "accept_loss": (3,),
        "accept_deleted": ([3, 4],),
        "accept_gone": (Offsets({0: [(1, 2)]}),),
        "ddl": ("athena", "lake", "orders"),
        "restore": ([3],),
        "skip_gap": (3,),
        "sync_partitions": ("lake.orders", "--glue"),
        "verify": (3,),
    }
    names = [name for name, _ in inspect.getmembers(Remedies, inspect.isfunction) if not name.startswith("_")]
    assert arguments.keys() <= {*names}
    for name in names:
        found = commands_in(getattr(remedies, name)(*arguments.get(name, ())))
        assert found, name
        for command in found:
            main.parser().parse_args(command)


def test_no_other_place_has_the_text_of_a_command() -> None:
    """A command that is not made by the function lacks the options of the store, or the topic."""
    found = []
    for file in PACKAGE.rglob("*.py"):
        tree = ast.parse(file.read_text())
        statements = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        found += [
            f"{file.relative_to(PACKAGE)}:{node.lineno}: {node.value}"
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in statements
            # A prefix of the name of the distribution, and the author of documents, are no commands.
            and re.search(r"(?<!provider-)kafka-s3 (?!doctor tries|recover by)[a-z]", node.value)
        ]
    assert found == []


def test_the_hints_of_commands_are_run_as_they_are_printed(world: World) -> None:
    """Each has the bucket and the endpoint, and leads on."""
    world.run("first")
    behind = printed(world, "cat", "--partition", "0", "--offset", "9")
    assert [one.code for one in run_as_printed(world, behind)] == [0]
    world.fill(2)
    world.die("*02.plan.json")
    left = printed(world, "recover", "--decided-only")
    assert left[0][0] == "recover"
    abandoned = printed(world, "abandon", "--batch", "2", "--release", "debt")
    assert [one.code for one in run_as_printed(world, abandoned)] == [0]
    assert [one.code for one in run_as_printed(world, left)] == [0]
    world.check()
    world.kafka.create_topic(TOPIC)
    assert [one.code for one in run_as_printed(world, printed(world, "status"))] == [0]
    assert printed(world, "status") == []


def test_the_hint_about_a_failed_first_run_releases_the_topic(world: World) -> None:
    """If it was not meant."""
    world.die("*/_owners/*")
    assert [one.code for one in run_as_printed(world, printed(world, "recover"))] == [0]


def test_the_hint_about_a_damaged_object_verifies_its_batch(world: World) -> None:
    """And finds it: exit code 1."""
    world.run("first")
    key = world.data_keys()[0]
    world.bucket.delete(key)
    world.bucket.put_new(key, b"other")
    (found,) = run_as_printed(world, printed(world, "cat", "--partition", "0", "--offset", "0"))
    assert (found.code, key in found.out) == (1, True)


def test_the_hint_about_pending_uploads_collects_them(world: World) -> None:
    """Of the same topics."""
    world.run("first")
    where = ["--bucket", "lake", "--topics-dir", TOPICS_DIR, "--pipeline", PIPELINE, "--topic", TOPIC]
    reached = access.Access(main.parser().parse_args(["doctor", *STORE, *where]))
    (finding,) = store_checks.lifecycle_findings([], TOPICS_DIR, reached.command("gc"))
    assert [one.code for one in run_as_printed(world, commands_in(finding.fix))] == [0]


def test_commands_of_readers_have_the_store_of_the_reader(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot, and a replay, by settings of their own."""
    world.run("first", layout=Layout(topics_dir=TOPICS_DIR, format=JsonLines()))
    settings = S3Settings(endpoint_url=STORE[1], region=STORE[3])
    monkeypatch.setattr(location, "open_bucket", lambda *_: world.pipeline().log.store)
    found = Snapshot.open("lake", TOPIC, pipeline=PIPELINE, topics_dir=TOPICS_DIR, s3=settings)
    assert [one.code for one in run_as_printed(world, commands_in(found.log.remedies.status()))] == [0]
    world.bucket.delete(world.data_keys()[0])
    places: list[TopicLocation] = []

    def replay(place: TopicLocation, *_: object, **__: object) -> object:
        places.append(place)
        raise KafkaS3Error("sent nothing")

    monkeypatch.setattr(replays, "replay", replay)
    world.on_topic("replay", *STORE, "--id", "r", "--to", "copy")
    hint = places[0].open_log(world.pipeline().log.store).remedies.restore([1])
    assert [one.code for one in run_as_printed(world, commands_in(hint))] == [0]
