"""``kafka-s3 expire`` says what it has recorded, deleted and kept."""

from __future__ import annotations

import time

import pytest

from airflow_provider_kafka_s3.batch.given_away import begin_table
from airflow_provider_kafka_s3.maintenance.expiry_rule import DEFAULT_GRACE, DEFAULT_LEAST_AGE
from airflow_provider_kafka_s3.pipeline import TopicPipeline
from tests.unit.cli.conftest import World

DAY = 86_400.0


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The days that have passed."""
    passed = [0.0]
    clock = TopicPipeline.__init__.__kwdefaults__
    assert clock is not None
    monkeypatch.setitem(clock, "now", lambda: time.time() + passed[0] * DAY)
    return passed


def landed(world: World) -> int:
    """Two batches; the number of their objects."""
    world.run("first")
    world.fill(2)
    world.run("second")
    return len(world.data_keys())


def test_nothing_is_named_by_default(world: World) -> None:
    """There is no age that is right for everybody."""
    objects = landed(world)
    output = world.on_topic("expire")
    assert (output.code, "it is not said which objects are no longer needed" in output.error) == (2, True)
    assert len(world.data_keys()) == objects


def test_a_night_records_and_the_next_one_deletes(world: World, later: list[float]) -> None:
    """Each line says how many; the waiting ones with the time from which they are deleted."""
    objects = landed(world)
    output = world.on_topic("expire", "--older-than", "1")
    assert output.out.splitlines()[0].startswith("0 objects of 0 batches")
    later[0] = 2.0
    output = world.on_topic("expire", "--older-than", "1", "--dry-run")
    assert output.out.splitlines()[:2] == [
        "3 objects of 2 batches, 16 B, would be recorded as no longer needed",
        "0 objects, 0 B, recorded earlier would be deleted",
    ], output.out
    output = world.on_topic("expire", "--older-than", "1", "--reason", "retention", "--operator", "ann@desk")
    assert (output.code, len(world.data_keys())) == (0, objects)
    lines = output.out.splitlines()
    assert lines[1] == "0 objects, 0 B, deleted"
    assert lines[2].startswith("3 objects recorded and not deleted yet, ")
    assert "run the command again after 20" in lines[2]
    later[0] = 3.1
    output = world.on_topic("expire", "--older-than", "1", "--json")
    assert output.data == {
        "batches": 0,
        "recorded": 0,
        "recorded_size": 0,
        "deleted": 3,
        "deleted_size": output.data["deleted_size"],
        "absent": 0,
        "kept": {},
        "refused": 0,
        "named": {},
        "waiting": 0,
        "waiting_size": 0,
        "delete_from": None,
        "dry_run": False,
    }
    assert world.data_keys() == []
    verified = world.on_topic("verify")
    assert (verified.code, "3 objects expired" in verified.out) == (0, True)
    status = world.on_topic("status")
    assert "  2 batches expired\n" in status.out


def test_what_is_kept_is_a_finding_with_its_reason(world: World, later: list[float]) -> None:
    """A pipeline that has not begun, and a table that is not named."""
    objects = landed(world)
    later[0] = 2.0
    output = world.on_topic("expire", "--landed-in", "daily", "--landed-in-topics-dir", "compacted")
    assert output.code == 1
    why = "pipeline 'daily' below 'compacted' has not begun to land the topic"
    assert f"objects of batches 1-2 are kept: {why}" in output.out
    begin_table(world.committer().log, "lake.orders")
    output = world.on_topic("expire", "--older-than", "1", "--grace", "0")
    assert output.code == 1
    assert "objects of batches 1-2 are kept: table lake.orders may have them: name it, with its catalog" in output.out
    assert len(world.data_keys()) == objects
    output = world.on_topic("expire", "--older-than", "1", "--grace", "0", "--unsafe-without-table", "lake.orders")
    assert (output.code, world.data_keys()) == (0, [])


def test_an_object_of_others_is_named(world: World, later: list[float]) -> None:
    """With what is wrong; the exit code shows it."""
    landed(world)
    later[0] = 2.0
    key = world.data_keys()[0]
    world.bucket.delete(key)
    world.bucket.put_new(key, b"other")
    output = world.on_topic("expire", "--older-than", "1", "--grace", "0")
    assert output.code == 1
    assert f"not deleted: {world.bucket.url(key)}: a key of topic 'orders', batch 1, holds an object that" in output.out
    assert world.data_keys() == [key]


def test_what_is_recorded_can_be_withdrawn(world: World, later: list[float]) -> None:
    """And status says what is not deleted yet."""
    objects = landed(world)
    later[0] = 2.0
    world.on_topic("expire", "--older-than", "1")
    assert "  2 batches expired; 3 objects not deleted yet\n" in world.on_topic("status").out
    output = world.on_topic("expire", "--withdraw")
    assert (output.code, output.out) == (0, "3 objects are needed again\n")
    assert "expired" not in world.on_topic("status").out
    later[0] = 9.0
    assert len(world.data_keys()) == objects
    assert world.on_topic("expire", "--landed-in", "daily").code == 2


def test_the_defaults_are_a_day(world: World) -> None:
    """Of the grace, and of the least age."""
    assert (DEFAULT_GRACE, DEFAULT_LEAST_AGE) == (DAY, DAY)
