"""Every error that needs a person prints a command, and that command, run as it is printed, lets runs continue."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from airflow_provider_kafka_s3.documents import addresses
from airflow_provider_kafka_s3.documents.addresses import TopicAddress
from airflow_provider_kafka_s3.exceptions import (
    BatchLossError,
    CorruptControlError,
    DataLossError,
    KafkaS3Error,
    MarkerMissingError,
    MissingObjectError,
    RecordError,
    RunSupersededError,
    TopicRecreatedError,
    message_of,
)
from airflow_provider_kafka_s3.storage.memory import MemoryStore
from airflow_provider_kafka_s3.testing.invariants import check_unchanged, snapshot
from tests.unit.cli.conftest import BYTES, JSON, PIPELINE, TOPIC, TOPICS_DIR, World, commands_in

MARKER = addresses.marker_key(addresses.control_prefix(TOPICS_DIR, PIPELINE, TOPIC))


def text_of(error: BaseException) -> str:
    """The message of an error as the operator shows it."""
    return message_of(error)


def fails(world: World, kind: type[KafkaS3Error], run: str = "next", **settings: object) -> list[list[str]]:
    """A run that fails; returns the commands that its error prints."""
    with pytest.raises(kind) as raised:
        world.run(run, **settings)
    return commands_in(text_of(raised.value))


def overwrite(bucket: MemoryStore, key: str, body: bytes) -> None:
    """Damage an object."""
    found = bucket.head(key)
    assert found is not None
    bucket.put_if_match(key, body, etag=found.etag)


def poisoned(world: World) -> list[list[str]]:
    """A record that cannot be written as planned."""
    world.kafka.append(TOPIC, 0, b"{no json", timestamp=6)
    return fails(world, RecordError, layout=JSON)


def retention_overtook_the_start(world: World) -> list[list[str]]:
    """Offsets are gone before a run planned them."""
    world.run("first")
    world.fill(4)
    world.kafka.delete_records(TOPIC, 0, 8)
    return fails(world, DataLossError)


def retention_overtook_a_plan(world: World) -> list[list[str]]:
    """Offsets are gone before a run read them."""
    world.die("*.plan.json")
    world.kafka.delete_records(TOPIC, 0, 2)
    return fails(world, DataLossError)


def batch_lost(world: World) -> list[list[str]]:
    """A decided batch, whose uploads expired, and Kafka's records with them."""
    world.die("*.manifest.json")
    world.bucket.expire_uploads()
    world.kafka.delete_records(TOPIC, 0, 3)
    return fails(world, BatchLossError)


def recreated(world: World) -> list[list[str]]:
    """The topic was created again."""
    world.run("first")
    world.kafka.create_topic(TOPIC)
    world.fill(2)
    return fails(world, TopicRecreatedError)


def recreated_with_an_open_batch(world: World) -> list[list[str]]:
    """The same, in the middle of a run."""
    world.die("*.plan.json")
    world.kafka.create_topic(TOPIC)
    world.fill(2)
    return fails(world, TopicRecreatedError)


def marker_deleted(world: World) -> list[list[str]]:
    """The marker is gone."""
    world.run("first")
    world.bucket.delete(MARKER)
    world.fill(2)
    return fails(world, MarkerMissingError)


def marker_damaged(world: World) -> list[list[str]]:
    """The marker is not a valid document."""
    world.run("first")
    overwrite(world.bucket, MARKER, b'{"kind": "marker"}')
    world.fill(2)
    return fails(world, CorruptControlError)


@pytest.mark.parametrize(
    ("trouble", "settings"),
    [
        (poisoned, {"layout": BYTES}),
        (retention_overtook_the_start, {}),
        (retention_overtook_a_plan, {}),
        (batch_lost, {}),
        (recreated, {}),
        (recreated_with_an_open_batch, {}),
        (marker_deleted, {}),
        (marker_damaged, {}),
    ],
)
def test_the_first_printed_command_gets_the_pipeline_going(
    world: World, trouble: Callable[[World], list[list[str]]], settings: dict[str, object]
) -> None:
    """It succeeds as printed; then a run lands all records, and no batch or debt stays open."""
    commands = trouble(world)
    assert commands, "no command was printed"
    output = world.cli(*commands[0])
    assert output.code == 0, output.err
    assert world.run("after", **settings).status in ("ok", "empty")
    world.fill(1)
    assert world.run("later", **settings).status == "ok"
    world.check()


@pytest.mark.parametrize(
    "trouble",
    [poisoned, retention_overtook_the_start, retention_overtook_a_plan, batch_lost, recreated, marker_deleted],
)
def test_a_dry_run_of_a_printed_command_writes_nothing(
    world: World, trouble: Callable[[World], list[list[str]]]
) -> None:
    """It prints what would be done."""
    commands = trouble(world)
    before = snapshot(world.bucket)
    output = world.cli(*commands[0], "--dry-run")
    assert (output.code, bool(output.out.strip())) == (0, True), output.err
    check_unchanged(before, snapshot(world.bucket))


def test_a_printed_command_can_be_repeated(world: World) -> None:
    """The second time changes nothing."""
    commands = batch_lost(world)
    assert world.cli(*commands[0]).code == 0
    before = snapshot(world.bucket)
    assert world.cli(*commands[0]).code == 0
    check_unchanged(before, snapshot(world.bucket))


def test_a_gap_in_the_offsets_of_a_batch_can_also_be_closed_by_abandoning_the_batch(world: World) -> None:
    """By the second printed command."""
    commands = retention_overtook_a_plan(world)
    assert commands[1][-2:] == ["--release", "lost"]
    assert world.cli(*commands[1]).code == 0
    world.fill(1)
    assert world.run("after").status == "ok"
    world.check()


def missing(world: World) -> list[list[str]]:
    """An object was deleted; a rerun finds it missing."""
    world.run("first")
    world.bucket.delete(world.data_keys()[0])
    return fails(world, MissingObjectError, "first")


def test_a_missing_object_is_written_again_by_the_printed_command(world: World) -> None:
    """It exists again, and the rerun succeeds."""
    restore, _ = missing(world)
    before = len(world.data_keys())
    output = world.cli(*restore)
    assert (output.code, len(world.data_keys())) == (0, before + 1), output.out
    assert world.run("first").verified == before + 1
    world.check()


def test_a_missing_object_stays_away_by_the_other_printed_command(world: World) -> None:
    """Its absence is recorded, reruns succeed, nothing is written again."""
    _, accept = missing(world)
    before = world.data_keys()
    assert world.cli(*accept).code == 0
    assert world.run("first").status == "ok"
    assert world.data_keys() == before


def test_an_object_that_kafka_lost_too_stays_away_by_the_printed_command(world: World) -> None:
    """The error of a restore prints the command that accepts the loss."""
    restore, _ = missing(world)
    world.kafka.delete_records(TOPIC, 0, 6)
    output = world.cli(*restore)
    assert output.code == 1
    (accept,) = commands_in(output.out)
    assert world.cli(*accept).code == 0
    assert world.run("first").status == "ok"
    assert world.cli(*restore).code == 0


def test_a_committed_batch_is_not_abandoned_but_recovered(world: World) -> None:
    """The printed command completes it."""
    world.die("*.manifest.json")
    refused = world.on_topic("abandon", "--batch", "1", "--release", "lost")
    assert refused.code == 2
    (command,) = commands_in(refused.err)
    assert world.cli(*command).code == 0
    world.check()


def test_losses_of_an_undecided_batch_are_not_accepted_but_the_batch_is_abandoned(world: World) -> None:
    """The printed command releases its offsets."""
    world.die("*.plan.json")
    refused = world.on_topic("accept-loss", "--batch", "1")
    assert refused.code == 2
    (command,) = commands_in(refused.err)
    assert world.cli(*command).code == 0
    assert world.run("after").status == "ok"
    world.check()


def test_a_run_of_a_closed_generation_ends_for_good_and_a_new_one_works(world: World) -> None:
    """Its offsets belong to a topic that is gone, and no batch had claimed them."""
    world.die("*/runs/*.json")
    world.kafka.create_topic(TOPIC)
    world.fill(2)
    (command,) = fails(world, TopicRecreatedError, "died")
    assert world.cli(*command).code == 0
    with pytest.raises(RunSupersededError, match="Start a new run"):
        world.run("died")
    assert world.run("new").status == "ok"
    world.check()


def test_errors_print_the_connections_of_the_operator() -> None:
    """The command reaches the same bucket and cluster."""
    from airflow_provider_kafka_s3.batch.log import TopicLog
    from airflow_provider_kafka_s3.retry import Retrier
    from airflow_provider_kafka_s3.storage.durable import DurableStore

    store = DurableStore(MemoryStore("lake"), Retrier())
    options = ("--kafka-conn-id", "k", "--aws-conn-id", "a")
    log = TopicLog(store, TopicAddress(topics_dir="", pipeline="p", topic="t"), options)
    assert log.remedies.reset() == (
        "`kafka-s3 reset --kafka-conn-id k --aws-conn-id a --bucket lake --topics-dir '' --pipeline p --topic t`"
    )
