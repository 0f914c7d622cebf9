"""``recover``, ``repair`` and ``gc``: they finish, rebuild and tidy, and touch nothing that a batch may still need."""

from __future__ import annotations

import pytest

from airflow_provider_kafka_s3.batch.execute import execute_plan
from airflow_provider_kafka_s3.exceptions import LogTamperedError, SparkJobError
from airflow_provider_kafka_s3.layout import keys
from airflow_provider_kafka_s3.maintenance import gc
from airflow_provider_kafka_s3.testing.invariants import check_unchanged, snapshot
from airflow_provider_kafka_s3.testing.stores import Fault, FaultyStore, SimulatedCrash
from tests.unit.cli.conftest import PIPELINE, TOPIC, TOPICS_DIR, World

PREFIX = keys.control_prefix(TOPICS_DIR, PIPELINE, TOPIC)
DAY = 86_400.0

# -- recover ----------------------------------------------------------------------------------------------------------


def test_recover_lands_an_undecided_batch_without_spark(world: World) -> None:
    """By the plan as it is; the objects are those that the run would have made."""
    world.die("*.plan.json")
    said = world.about("recover", "--json")
    assert (said.code, said.data["finished"], said.data["undecided"]) == (0, [1], [])
    made = {info.key: info.etag for info in world.bucket.list(f"{TOPICS_DIR}/{TOPIC}/")}
    other = World(world._capsys)
    other.run("died")
    assert made == {info.key: info.etag for info in other.bucket.list(f"{TOPICS_DIR}/{TOPIC}/")}
    world.check()


def test_recover_decided_only_completes_and_reads_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka is not even named; what is not decided stays, and is told."""
    world.die("*.manifest.json")
    world.fill(2)
    world.die("*02.plan.json", "second")
    monkeypatch.delenv("KAFKA_S3_BOOTSTRAP_SERVER")
    said = world.about("recover", "--decided-only", "--json")
    assert (said.code, said.data["finished"], said.data["undecided"]) == (1, [1], [2])
    assert len(world.data_keys()) == 2
    world.check(recovered=False)


def test_recover_of_a_topic_that_was_never_landed_creates_nothing(world: World) -> None:
    """A wrong name must not begin a log."""
    said = world.about("recover")
    assert (said.code, "check --topics-dir, --pipeline" in said.err) == (2, True)
    assert list(world.bucket.list("")) == []


def test_a_recovery_that_dies_leaves_what_the_next_one_finishes(world: World) -> None:
    """At any document it creates."""
    world.die("*.plan.json")
    store = FaultyStore(world.bucket)
    store.inject(Fault.CRASH_AFTER, operation="put_new", key="*.manifest.json")
    committer = world.committer(store)
    plan, _ = committer.log.require_plan(1)
    with pytest.raises(SimulatedCrash):
        execute_plan(committer, plan, run="operator")
    assert world.data_keys() == []
    assert world.about("recover").code == 0
    world.check()


def test_a_read_that_fails_leaves_no_uploads(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was decided, so nobody else knows of them."""
    world.die("*.plan.json")
    committer = world.committer()
    plan, _ = committer.log.require_plan(1)
    read = world.kafka.read

    def broken(topic: str, partition: int, start: int, *more: object) -> object:
        if start:
            raise SparkJobError("the broker went away")
        return read(topic, partition, start, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(world.kafka, "read", broken)
    with pytest.raises(SparkJobError):
        execute_plan(committer, plan, run="operator")
    assert list(world.bucket.pending_uploads("")) == []


# -- repair -----------------------------------------------------------------------------------------------------------


def marker_of(world: World) -> object:
    """What counts of a marker."""
    marker = world.committer().log.require_marker()[0]
    return (marker.topic_id, marker.generation, marker.resolved, marker.partitions, marker.history, marker.revision)


def test_repair_builds_exactly_the_marker_that_was_lost(world: World) -> None:
    """After commits, a batch given up for debt, one as lost, and a reset."""
    world.run("first")
    world.fill(2)
    world.die("*02.plan.json", "second")
    world.about("abandon", "--batch", "2", "--release", "debt")
    world.run("third")
    world.fill(2)
    world.die("*04.plan.json", "fourth")
    world.about("abandon", "--batch", "4", "--release", "lost")
    world.kafka.create_topic(TOPIC)
    world.fill(3)
    world.about("reset")
    world.run("fifth")
    before = marker_of(world)
    world.bucket.delete(keys.marker_key(PREFIX))
    said = world.about("repair", "--json")
    assert (said.code, said.data["was"], said.data["open"]) == (0, "missing", {})
    assert marker_of(world) == before
    world.check()


def test_repair_leaves_a_right_marker_alone(world: World) -> None:
    """Also if a user deleted objects of a batch that was complete."""
    world.run("first")
    world.bucket.delete(world.data_keys()[0])
    before = snapshot(world.bucket)
    assert world.about("repair", "--json").data["was"] == "right"
    check_unchanged(before, snapshot(world.bucket))


def test_repair_leaves_a_batch_open_whose_objects_are_not_there(world: World) -> None:
    """The next run completes it."""
    world.die("*.manifest.json")
    world.bucket.delete(keys.marker_key(PREFIX))
    said = world.about("repair", "--json")
    assert "2 of its 2 objects are absent" in said.data["open"]["1"]
    assert world.data_keys() == []
    assert world.run("died").status == "ok"
    world.check()


def test_repair_does_not_guess_what_a_lost_plan_claimed(world: World) -> None:
    """Exit code 3; nothing is written."""
    world.run("first")
    world.fill(2)
    world.run("second")
    world.bucket.delete(keys.plan_key(PREFIX, 1))
    world.bucket.delete(keys.marker_key(PREFIX))
    before = snapshot(world.bucket)
    said = world.about("repair")
    assert (said.code, LogTamperedError.__name__ in said.err, "0000000001.plan.json" in said.err) == (3, True, True)
    check_unchanged(before, snapshot(world.bucket))


def test_repair_of_a_marker_without_batches_asks_kafka_for_the_topic_s_id(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it a topic that is created again would be landed as if it were the same."""
    assert world.run("first", starting="latest").status == "empty"
    before = marker_of(world)
    corrupt = world.bucket.get(keys.marker_key(PREFIX))
    assert corrupt is not None
    world.bucket.put_if_match(corrupt.key, b"{}", etag=corrupt.etag)
    damaged = snapshot(world.bucket)
    with monkeypatch.context() as without_kafka:
        without_kafka.delenv("KAFKA_S3_BOOTSTRAP_SERVER")
        said = world.about("repair", "--starting-offsets", "0:6")
    assert (said.code, "nothing says where that is; give one of --kafka-conn-id" in said.error) == (2, True)
    check_unchanged(damaged, snapshot(world.bucket))
    assert world.about("repair", "--starting-offsets", "0:6", "--json").data["was"] == "corrupt"
    assert marker_of(world) == before


def test_repair_beside_a_run_loses_nothing(world: World) -> None:
    """The marker is swapped only if it is still the one that was read."""
    world.run("first")
    world.bucket.delete(keys.marker_key(PREFIX))
    world.about("repair")
    world.fill(2)
    world.run("second")
    assert world.about("repair", "--json").data["was"] == "right"
    world.check()


# -- gc ---------------------------------------------------------------------------------------------------------------


def collect(world: World, *, days: float) -> gc.Garbage:
    """Some days after the uploads of the test were begun."""
    found = gc.find_garbage(world.committer().log, now=world.now + days * DAY)
    gc.collect(world.committer().log, found)
    return found


def orphan(world: World, key: str) -> str:
    """An upload that nobody knows of."""
    return world.bucket.create_upload(key)


def test_gc_aborts_what_killed_jobs_left_and_only_after_a_week(world: World) -> None:
    """By the store's own time."""
    world.run("first")
    orphan(world, f"{TOPICS_DIR}/{TOPIC}/partition=0/{TOPIC}+0+0000000000.bin")
    assert len(collect(world, days=6.9).young) == 1
    assert len(list(world.bucket.pending_uploads(""))) == 1
    assert len(collect(world, days=7.1).garbage) == 1
    assert list(world.bucket.pending_uploads("")) == []
    world.check()


def test_gc_keeps_the_uploads_of_a_decided_batch(world: World) -> None:
    """However old: the batch is completed with them, Kafka is not read again."""
    world.die("*.manifest.json")
    found = collect(world, days=100)
    assert (len(found.needed), found.garbage) == (2, ())
    world.kafka.delete_records(TOPIC, 0, 6)
    assert world.about("recover", "--decided-only").code == 0
    assert len(world.data_keys()) == 2


def test_gc_keeps_what_the_driver_of_an_undecided_batch_may_hold(world: World) -> None:
    """At keys that the batch would make; a key of an earlier batch is garbage."""
    world.run("first")
    world.fill(2)
    world.die("*02.plan.json", "second")
    mine = orphan(world, f"{TOPICS_DIR}/{TOPIC}/partition=0/{TOPIC}+0+0000000006.bin")
    orphan(world, f"{TOPICS_DIR}/{TOPIC}/partition=0/{TOPIC}+0+0000000003.bin")
    found = collect(world, days=8)
    assert ([u.upload_id for u in found.needed], len(found.garbage)) == ([mine], 1)
    assert [u.upload_id for u in world.bucket.pending_uploads("")] == [mine]


def test_gc_leaves_alone_what_is_not_named_as_our_objects_are(world: World) -> None:
    """Other software may upload there, and other topics begin with the same letters."""
    world.run("first")
    for key in (f"{TOPICS_DIR}/{TOPIC}/backup.tar", f"{TOPICS_DIR}/{TOPIC}-eu/partition=0/x+0+0000000000.bin"):
        orphan(world, key)
    found = collect(world, days=8)
    assert (len(found.foreign), found.garbage) == (1, ())
    assert len(list(world.bucket.pending_uploads(""))) == 2


def test_the_gc_command_counts_and_a_dry_run_aborts_nothing(world: World) -> None:
    """Uploads of long ago, by the store's clock, as the machine's clock sees it."""
    world.run("first")
    orphan(world, f"{TOPICS_DIR}/{TOPIC}/partition=0/{TOPIC}+0+0000000000.bin")
    tried = world.about("gc", "--dry-run", "--json").data["topics"][f"{PIPELINE}/{TOPIC}"]
    assert (tried["garbage"], len(list(world.bucket.pending_uploads("")))) == (1, 1)
    assert world.about("gc", "--json").data["topics"][f"{PIPELINE}/{TOPIC}"]["garbage"] == 1
    assert list(world.bucket.pending_uploads("")) == []
    refused = world.about("gc", "--older-than", "0.5")
    assert (refused.code, "too short" in refused.error) == (2, True)
