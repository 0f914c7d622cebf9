"""``recover``, ``repair`` and ``gc`` finish, rebuild and clean up, and keep everything that a batch may still need."""

from __future__ import annotations

import json

import pytest

from airflow_provider_kafka_s3.batch.execute import execute_plan
from airflow_provider_kafka_s3.documents import addresses
from airflow_provider_kafka_s3.documents.codec import canonical, digest
from airflow_provider_kafka_s3.exceptions import LogTamperedError, SparkJobError
from airflow_provider_kafka_s3.maintenance import gc
from airflow_provider_kafka_s3.testing.invariants import check_unchanged, snapshot
from airflow_provider_kafka_s3.testing.stores import Fault, FaultyStore, SimulatedCrash
from tests.unit.cli.conftest import PIPELINE, TOPIC, TOPICS_DIR, World

PREFIX = addresses.control_prefix(TOPICS_DIR, PIPELINE, TOPIC)
DAY = 86_400.0

# -- recover ----------------------------------------------------------------------------------------------------------


def test_recover_lands_an_undecided_batch_without_spark(world: World) -> None:
    """By the plan as it is; the objects are those that the run would have made."""
    world.die("*.plan.json")
    output = world.on_topic("recover", "--json")
    assert (output.code, output.data["finished"], output.data["undecided"]) == (0, [1], [])
    made = {info.key: info.etag for info in world.bucket.list(f"{TOPICS_DIR}/{TOPIC}/")}
    other = World(world._capsys)
    other.run("died")
    assert made == {info.key: info.etag for info in other.bucket.list(f"{TOPICS_DIR}/{TOPIC}/")}
    world.check()


def test_recover_decided_only_completes_and_reads_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """No Kafka cluster is named; an undecided batch stays, and is listed."""
    world.die("*.manifest.json")
    world.fill(2)
    world.die("*02.plan.json", "second")
    monkeypatch.delenv("KAFKA_S3_BOOTSTRAP_SERVER")
    output = world.on_topic("recover", "--decided-only", "--json")
    assert (output.code, output.data["finished"], output.data["undecided"]) == (1, [1], [2])
    assert len(world.data_keys()) == 2
    world.check(recovered=False)


def test_recover_of_a_topic_that_was_never_landed_creates_nothing(world: World) -> None:
    """A wrong name must not create a log."""
    output = world.on_topic("recover")
    assert (output.code, "check bucket and topics_dir" in output.error) == (2, True)
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
    assert world.on_topic("recover").code == 0
    world.check()


def test_a_read_that_fails_leaves_no_uploads(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was decided, so no document lists them."""
    world.die("*.plan.json")
    committer = world.committer()
    plan, _ = committer.log.require_plan(1)
    read = world.kafka.read

    def broken(topic: str, partition: int, start: int, *more: object, **settings: object) -> object:
        if start:
            raise SparkJobError("the broker went away")
        return read(topic, partition, start, *more, **settings)  # type: ignore[arg-type]

    monkeypatch.setattr(world.kafka, "read", broken)
    with pytest.raises(SparkJobError):
        execute_plan(committer, plan, run="operator")
    assert list(world.bucket.pending_uploads("")) == []


# -- repair -----------------------------------------------------------------------------------------------------------


def marker_of(world: World) -> object:
    """The fields of the marker that the log determines."""
    marker = world.committer().log.require_marker()[0]
    return (marker.topic_id, marker.generation, marker.resolved, marker.partitions, marker.history, marker.revision)


def test_repair_builds_exactly_the_marker_that_was_lost(world: World) -> None:
    """After commits, a batch given up for debt, one as lost, and a reset."""
    world.run("first")
    world.fill(2)
    world.die("*02.plan.json", "second")
    world.on_topic("abandon", "--batch", "2", "--release", "debt")
    world.run("third")
    world.fill(2)
    world.die("*04.plan.json", "fourth")
    world.on_topic("abandon", "--batch", "4", "--release", "lost")
    world.kafka.create_topic(TOPIC)
    world.fill(3)
    world.on_topic("reset")
    world.run("fifth")
    before = marker_of(world)
    world.bucket.delete(addresses.marker_key(PREFIX))
    output = world.on_topic("repair", "--json")
    assert (output.code, output.data["was"], output.data["open"]) == (0, "missing", {})
    assert marker_of(world) == before
    world.check()


def test_repair_leaves_a_right_marker_alone(world: World) -> None:
    """Also if a user deleted objects of a batch that was complete."""
    world.run("first")
    world.bucket.delete(world.data_keys()[0])
    before = snapshot(world.bucket)
    assert world.on_topic("repair", "--json").data["was"] == "right"
    check_unchanged(before, snapshot(world.bucket))


def test_repair_writes_a_damaged_index_of_the_log_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was; one that is valid and wrong only with --every-document, which a run's warning names."""
    monkeypatch.setattr("airflow_provider_kafka_s3.batch.log.INDEX_SIZES", (2,))
    world.run("first")
    world.fill(2)
    world.run("second")
    key = addresses.index_key(PREFIX, 1, 2)
    right = world.bucket.get(key)
    assert right is not None
    body = json.loads(right.body)
    body["batches"][0]["records"] += 1
    del body["sha256"]
    wrong = canonical({**body, "sha256": digest(body)})
    for content, options in ((b"damaged", ()), (wrong, ("--every-document",))):
        world.bucket.delete(key)
        world.bucket.put_new(key, content)
        if options:
            assert world.on_topic("repair", "--json").data["indexes"] == 0
        assert world.on_topic("repair", "--dry-run", *options, "--json").data["indexes"] == 1
        output = world.on_topic("repair", *options)
        assert "indexes of the log: 1 document written again" in output.out
        assert world.on_topic("repair", *options, "--json").data["indexes"] == 0
        again = world.bucket.get(key)
        assert again is not None
        assert json.loads(again.body)["batches"] == json.loads(right.body)["batches"]


def test_repair_names_an_index_of_a_newer_version_that_it_skips(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 1 and the version to install; the marker is written again, and the index stays as it is."""
    monkeypatch.setattr("airflow_provider_kafka_s3.batch.log.INDEX_SIZES", (1,))
    world.run("first")
    key = addresses.index_key(PREFIX, 1, 1)
    stored = world.bucket.get(key)
    assert stored is not None
    body = {**json.loads(stored.body), "format": 2, "version": "9.9.9"}
    del body["sha256"]
    world.bucket.delete(key)
    world.bucket.put_new(key, newer := canonical({**body, "sha256": digest(body)}))
    world.bucket.delete(addresses.marker_key(PREFIX))
    output = world.on_topic("repair")
    assert output.code == 1
    assert "the marker was missing; it is written again" in output.out
    assert "indexes of the log: 1-1 skipped: upgrade airflow-provider-kafka-s3" in output.out
    output = world.on_topic("repair", "--every-document", "--json")
    assert (output.code, output.data["was"], [*output.data["skipped_indexes"]]) == (1, "right", ["1-1"])
    assert "version 9.9.9" in output.data["skipped_indexes"]["1-1"]
    after = world.bucket.get(key)
    assert after is not None
    assert after.body == newer


def test_repair_leaves_a_batch_open_whose_objects_are_not_there(world: World) -> None:
    """The next run completes it."""
    world.die("*.manifest.json")
    world.bucket.delete(addresses.marker_key(PREFIX))
    output = world.on_topic("repair", "--json")
    assert "absent: 2 of its 2 objects" in output.data["open"]["1"]
    assert world.data_keys() == []
    assert world.run("died").status == "ok"
    world.check()


def test_repair_does_not_guess_what_a_lost_plan_claimed(world: World) -> None:
    """Exit code 3; nothing is written."""
    world.run("first")
    world.fill(2)
    world.run("second")
    world.bucket.delete(addresses.plan_key(PREFIX, 1))
    world.bucket.delete(addresses.marker_key(PREFIX))
    before = snapshot(world.bucket)
    output = world.on_topic("repair")
    assert (output.code, LogTamperedError.__name__ in output.err, "0000000001.plan.json" in output.err) == (
        3,
        True,
        True,
    )
    check_unchanged(before, snapshot(world.bucket))


def test_repair_of_a_marker_without_batches_requests_the_topic_id_from_kafka(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it, a topic that was created again would be landed as if it were the same."""
    assert world.run("first", starting="latest").status == "empty"
    before = marker_of(world)
    corrupt = world.bucket.get(addresses.marker_key(PREFIX))
    assert corrupt is not None
    world.bucket.put_if_match(corrupt.key, b"{}", etag=corrupt.etag)
    damaged = snapshot(world.bucket)
    with monkeypatch.context() as without_kafka:
        without_kafka.delenv("KAFKA_S3_BOOTSTRAP_SERVER")
        output = world.on_topic("repair", "--starting-offsets", "0:6")
    assert (output.code, "no Kafka cluster is named; use one of --kafka-conn-id" in output.error) == (2, True)
    check_unchanged(damaged, snapshot(world.bucket))
    assert world.on_topic("repair", "--starting-offsets", "0:6", "--json").data["was"] == "corrupt"
    assert marker_of(world) == before


def test_repair_beside_a_run_loses_nothing(world: World) -> None:
    """The marker is swapped only if it is still the one that was read."""
    world.run("first")
    world.bucket.delete(addresses.marker_key(PREFIX))
    world.on_topic("repair")
    world.fill(2)
    world.run("second")
    assert world.on_topic("repair", "--json").data["was"] == "right"
    world.check()


# -- gc ---------------------------------------------------------------------------------------------------------------


def collect(world: World, *, days: float) -> gc.Garbage:
    """Collect garbage some days after the uploads of the test were begun."""
    found = gc.find_garbage(world.committer().log, now=world.now + days * DAY)
    gc.collect(world.committer().log, found)
    return found


def orphan(world: World, key: str) -> str:
    """An upload that no document lists."""
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
    """However old they are: the batch is completed with them, without reading Kafka again."""
    world.die("*.manifest.json")
    found = collect(world, days=100)
    assert (len(found.needed), found.garbage) == (2, ())
    world.kafka.delete_records(TOPIC, 0, 6)
    assert world.on_topic("recover", "--decided-only").code == 0
    assert len(world.data_keys()) == 2


def test_gc_keeps_uploads_that_may_belong_to_the_driver_of_an_undecided_batch(world: World) -> None:
    """Those at keys that the batch would have; one at a key of an earlier batch is garbage."""
    world.run("first")
    world.fill(2)
    world.die("*02.plan.json", "second")
    mine = orphan(world, f"{TOPICS_DIR}/{TOPIC}/partition=0/{TOPIC}+0+0000000006.bin")
    orphan(world, f"{TOPICS_DIR}/{TOPIC}/partition=0/{TOPIC}+0+0000000003.bin")
    found = collect(world, days=8)
    assert ([u.upload_id for u in found.needed], len(found.garbage)) == ([mine], 1)
    assert [u.upload_id for u in world.bucket.pending_uploads("")] == [mine]


def test_gc_keeps_uploads_at_keys_of_another_form(world: World) -> None:
    """Other software may upload there, and names of other topics may begin with the same letters."""
    world.run("first")
    for key in (f"{TOPICS_DIR}/{TOPIC}/backup.tar", f"{TOPICS_DIR}/{TOPIC}-eu/partition=0/x+0+0000000000.bin"):
        orphan(world, key)
    found = collect(world, days=8)
    assert (len(found.foreign), found.garbage) == (1, ())
    assert len(list(world.bucket.pending_uploads(""))) == 2


def test_the_gc_command_counts_and_a_dry_run_aborts_nothing(world: World) -> None:
    """The age of uploads is the machine's time minus the time of the store."""
    world.run("first")
    orphan(world, f"{TOPICS_DIR}/{TOPIC}/partition=0/{TOPIC}+0+0000000000.bin")
    tried = world.on_topic("gc", "--dry-run", "--json").data["topics"][f"{PIPELINE}/{TOPIC}"]
    assert (tried["garbage"], len(list(world.bucket.pending_uploads("")))) == (1, 1)
    assert world.on_topic("gc", "--json").data["topics"][f"{PIPELINE}/{TOPIC}"]["garbage"] == 1
    assert list(world.bucket.pending_uploads("")) == []
    refused = world.on_topic("gc", "--older-than", "0.5")
    assert (refused.code, "too short" in refused.error) == (2, True)
