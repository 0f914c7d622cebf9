"""``repair`` where objects and uploads are gone: a person decides whether they were deleted or never completed."""

from __future__ import annotations

import pytest

from airflow_provider_kafka_s3.documents import addresses
from airflow_provider_kafka_s3.maintenance.repair import GoneRule, repair
from airflow_provider_kafka_s3.testing.invariants import check_unchanged, snapshot
from airflow_provider_kafka_s3.testing.stores import Fault, FaultyStore, SimulatedCrash
from tests.unit.cli.conftest import PIPELINE, TOPIC, TOPICS_DIR, World, commands_in

PREFIX = addresses.control_prefix(TOPICS_DIR, PIPELINE, TOPIC)
FIRST = f"{TOPICS_DIR}/{TOPIC}/partition=0/{TOPIC}+0+0000000000.bin"
SECOND = f"{TOPICS_DIR}/{TOPIC}/partition=0/{TOPIC}+0+0000000006.bin"


@pytest.fixture
def expired(world: World) -> World:
    """Two batches of two and one objects, an hour apart; a lifecycle rule deletes one of each; the marker is lost."""
    world.now = 1_000_000_000.0  # 2001-09-09T01:46:40Z
    world.run("first")
    world.now += 3_600
    world.fill(2)
    world.run("second")
    for key in (FIRST, SECOND):
        world.bucket.delete(key)
    world.bucket.delete(addresses.marker_key(PREFIX))
    return world


def amends(world: World) -> list[str]:
    """Names of the documents that record objects as gone for good."""
    return [info.key.removeprefix(PREFIX) for info in world.bucket.list(PREFIX) if ".amend." in info.key]


def test_repair_writes_nothing_until_a_person_decides_about_missing_objects(expired: World) -> None:
    """Exit code 3, their number, size and times, and both commands; nothing is written."""
    before = snapshot(expired.bucket)
    output = expired.on_topic("repair")
    check_unchanged(before, snapshot(expired.bucket))
    assert output.code == 3
    assert "2 objects (5 records, 10 B) of 2 batches are gone" in output.out
    assert "from 2001-09-09T01:46:40Z to 2001-09-09T02:46:40Z" in output.out
    stay, restore = commands_in(output.out)
    assert stay[-4:] == ["--gone-before", "2001-09-09T02:46:41Z", "--batches", "1-2"]
    assert restore[-1] == "--restore-gone"


def test_a_dry_run_of_repair_lists_missing_objects(expired: World) -> None:
    """Exit code 1, and the keys per batch; with a time, the keys that would be recorded."""
    before = snapshot(expired.bucket)
    output = expired.on_topic("repair", "--dry-run", "--json")
    assert (output.code, output.data["unsure"], output.data["recorded"]) == (1, {"1": [FIRST], "2": [SECOND]}, {})
    output = expired.on_topic("repair", "--dry-run", "--json", "--gone-before", "2020-01-01T00:00:00Z")
    assert (output.code, output.data["unsure"], output.data["recorded"]) == (0, {}, {"1": [FIRST], "2": [SECOND]})
    check_unchanged(before, snapshot(expired.bucket))


def test_the_first_printed_command_records_missing_objects_as_gone_for_good(expired: World) -> None:
    """With reason and operator; the batches are complete, and no run reports or restores these objects."""
    stay, _ = commands_in(expired.on_topic("repair").out)
    output = expired.cli(*stay, "--reason", "we keep a day", "--operator", "me")
    assert output.code == 0
    assert "2 objects (5 records, 10 B) of 2 batches are recorded as gone for good" in output.out
    assert amends(expired) == ["batches/0000000001.amend.1.json", "batches/0000000002.amend.1.json"]
    recorded = expired.bucket.get(f"{PREFIX}batches/0000000001.amend.1.json")
    assert recorded is not None
    assert b'"operator":"me","reason":"we keep a day"' in recorded.body
    assert expired.run("first").status == "ok"
    assert expired.run("new").status == "empty"
    assert len(expired.data_keys()) == 1
    assert expired.on_topic("repair", "--json").data["was"] == "right"
    expired.check()


def test_the_second_printed_command_lets_missing_objects_be_written_again(expired: World) -> None:
    """Both batches stay open, and the next run completes them."""
    _, restore = commands_in(expired.on_topic("repair").out)
    assert expired.cli(*restore).code == 0
    assert expired.on_topic("recover").code == 0
    assert len(expired.data_keys()) == 3
    assert amends(expired) == []
    expired.check()


def test_a_time_applies_only_to_batches_before_it(expired: World) -> None:
    """By the store's clock; the later ones need another decision, and the printed commands repeat the first one."""
    before = snapshot(expired.bucket)
    output = expired.on_topic("repair", "--gone-before", "2001-09-09T02:00:00Z")
    assert (output.code, "1 object (2 records, 4 B) of 1 batch are gone" in output.out) == (3, True)
    check_unchanged(before, snapshot(expired.bucket))
    _, restore = commands_in(output.out)
    assert expired.cli(*restore).code == 0
    assert expired.on_topic("recover").code == 0
    assert (FIRST in expired.data_keys(), SECOND in expired.data_keys()) == (False, True)
    assert amends(expired) == ["batches/0000000001.amend.1.json"]
    expired.check()


def test_a_batch_with_a_pending_upload_was_never_complete_and_stays_open(world: World) -> None:
    """It needs no decision, not even if its other upload expired: the next run completes the batch."""
    world.die("*.manifest.json")
    first = next(iter(world.bucket.pending_uploads("")))
    world.bucket.abort_upload(first.key, first.upload_id)
    world.bucket.delete(addresses.marker_key(PREFIX))
    output = world.on_topic("repair", "--gone-before", "2020-01-01T00:00:00Z", "--json")
    assert (output.code, [*output.data["open"]], output.data["unsure"], amends(world)) == (0, ["1"], {}, [])
    assert world.run("died").status == "ok"
    assert len(world.data_keys()) == 2
    world.check()


def test_with_a_readable_marker_missing_objects_need_no_decision(world: World) -> None:
    """The marker has the complete batches; nothing is recorded."""
    world.run("first")
    world.bucket.delete(FIRST)
    before = snapshot(world.bucket)
    assert world.on_topic("repair", "--gone-before", "2020-01-01T00:00:00Z", "--json").data["was"] == "right"
    check_unchanged(before, snapshot(world.bucket))


def test_a_repair_that_died_before_the_marker_is_ended_by_the_next_one(expired: World) -> None:
    """Its records count; the other batches need a decision again."""
    store = FaultyStore(expired.bucket)
    store.inject(Fault.CRASH_AFTER, operation="put_new", key="*.amend.*")
    rule = GoneRule(before=1_000_000_001.0, restore=True, reason="", operator="me")
    with pytest.raises(SimulatedCrash):
        repair(expired.committer(store), start={}, rule=rule)
    output = expired.on_topic("repair", "--json")
    assert (output.code, output.data["unsure"]) == (3, {"2": [SECOND]})
    assert expired.on_topic("repair", "--gone-before", "2020-01-01T00:00:00Z").code == 0
    assert expired.on_topic("repair", "--json").data["was"] == "right"
    expired.check()


def test_the_printed_command_applies_only_to_the_listed_batches(world: World) -> None:
    """Another batch still had its upload when it was printed, and lost it since: it needs a decision of its own."""
    world.run("first")
    world.fill(2)
    world.die("*02.manifest.json")
    world.bucket.delete(FIRST)
    world.bucket.delete(addresses.marker_key(PREFIX))
    stay, _ = commands_in(world.on_topic("repair").out)
    world.bucket.expire_uploads()
    before = snapshot(world.bucket)
    output = world.cli(*stay)
    assert (output.code, "1 object (2 records, 4 B) of 1 batch are gone" in output.out) == (3, True)
    check_unchanged(before, snapshot(world.bucket))
    _, restore = commands_in(output.out)
    assert restore[-3:] == ["--batches", "1", "--restore-gone"]
    assert world.cli(*restore).code == 0
    assert world.on_topic("recover").code == 0
    assert (FIRST in world.data_keys(), SECOND in world.data_keys()) == (False, True)
    assert amends(world) == ["batches/0000000001.amend.1.json"]
    world.check()


def test_batches_without_a_time_are_refused(expired: World) -> None:
    """They have no effect by themselves."""
    output = expired.on_topic("repair", "--batches", "1")
    assert (output.code, "give both" in output.err) == (2, True)


@pytest.mark.parametrize("batches", ["", "x", "0", "7-5", "1,", "1-2-3", "1" * 30])
def test_batches_of_another_form_are_refused(expired: World, batches: str) -> None:
    """The error has the right form."""
    output = expired.on_topic("repair", "--gone-before", "2026-01-01T00:00:00Z", f"--batches={batches},")
    assert (output.code, "2,5-7" in output.err) == (2, True)


@pytest.mark.parametrize("time", ["yesterday", "2026-01-01", "2026-01-01T00:00:00"])
def test_a_time_without_a_zone_is_refused(expired: World, time: str) -> None:
    """A few hours may make a difference of batches."""
    output = expired.on_topic("repair", "--gone-before", time)
    assert (output.code, "2026-01-01T00:00:00Z" in output.err) == (2, True)
