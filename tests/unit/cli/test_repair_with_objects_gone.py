"""``repair`` where objects and uploads are gone: nobody guesses whether somebody deleted them, a person says it."""

from __future__ import annotations

import pytest

from airflow_provider_kafka_s3.layout import keys
from airflow_provider_kafka_s3.maintenance.repair import GoneRule, repair
from airflow_provider_kafka_s3.testing.invariants import check_unchanged, snapshot
from airflow_provider_kafka_s3.testing.stores import Fault, FaultyStore, SimulatedCrash
from tests.unit.cli.conftest import PIPELINE, TOPIC, TOPICS_DIR, World, commands_in

PREFIX = keys.control_prefix(TOPICS_DIR, PIPELINE, TOPIC)
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
    world.bucket.delete(keys.marker_key(PREFIX))
    return world


def amends(world: World) -> list[str]:
    """Names of the documents that record what stays gone."""
    return [info.key.removeprefix(PREFIX) for info in world.bucket.list(PREFIX) if ".amend." in info.key]


def test_repair_writes_nothing_while_nobody_said_what_gone_objects_are(expired: World) -> None:
    """Exit code 3, how much it is, from when, and both commands; not a byte is written."""
    before = snapshot(expired.bucket)
    said = expired.about("repair")
    check_unchanged(before, snapshot(expired.bucket))
    assert said.code == 3
    assert "2 objects (5 records, 10 B) of 2 batches are gone" in said.out
    assert "from 2001-09-09T01:46:40Z to 2001-09-09T02:46:40Z" in said.out
    stay, restore = commands_in(said.out)
    assert stay[-4:] == ["--gone-before", "2001-09-09T02:46:41Z", "--batches", "1-2"]
    assert restore[-1] == "--restore-gone"


def test_a_dry_run_of_repair_counts_what_is_gone(expired: World) -> None:
    """Exit code 1, per batch the keys; with a time, what would be recorded."""
    before = snapshot(expired.bucket)
    said = expired.about("repair", "--dry-run", "--json")
    assert (said.code, said.data["unsure"], said.data["recorded"]) == (1, {"1": [FIRST], "2": [SECOND]}, {})
    said = expired.about("repair", "--dry-run", "--json", "--gone-before", "2020-01-01T00:00:00Z")
    assert (said.code, said.data["unsure"], said.data["recorded"]) == (0, {}, {"1": [FIRST], "2": [SECOND]})
    check_unchanged(before, snapshot(expired.bucket))


def test_what_was_deleted_stays_gone_by_the_first_printed_command(expired: World) -> None:
    """All batches are complete, no run misses or brings back what is recorded as gone, with reason and operator."""
    stay, _ = commands_in(expired.about("repair").out)
    said = expired.cli(*stay, "--reason", "we keep a day", "--operator", "me")
    assert said.code == 0
    assert "2 objects (5 records, 10 B) of 2 batches are recorded as gone for good" in said.out
    assert amends(expired) == ["batches/0000000001.amend.1.json", "batches/0000000002.amend.1.json"]
    recorded = expired.bucket.get(f"{PREFIX}batches/0000000001.amend.1.json")
    assert recorded is not None
    assert b'"operator":"me","reason":"we keep a day"' in recorded.body
    assert expired.run("first").status == "ok"
    assert expired.run("new").status == "empty"
    assert len(expired.data_keys()) == 1
    assert expired.about("repair", "--json").data["was"] == "right"
    expired.check()


def test_what_was_never_completed_is_written_again_by_the_second_printed_command(expired: World) -> None:
    """Both batches stay open, and the next run has them complete."""
    _, restore = commands_in(expired.about("repair").out)
    assert expired.cli(*restore).code == 0
    assert expired.about("recover").code == 0
    assert len(expired.data_keys()) == 3
    assert amends(expired) == []
    expired.check()


def test_a_time_decides_only_about_batches_before_it(expired: World) -> None:
    """By the store's clock; of the later ones it has still to be said, and what was said is in the next command."""
    before = snapshot(expired.bucket)
    said = expired.about("repair", "--gone-before", "2001-09-09T02:00:00Z")
    assert (said.code, "1 object (2 records, 4 B) of 1 batch are gone" in said.out) == (3, True)
    check_unchanged(before, snapshot(expired.bucket))
    _, restore = commands_in(said.out)
    assert expired.cli(*restore).code == 0
    assert expired.about("recover").code == 0
    assert (FIRST in expired.data_keys(), SECOND in expired.data_keys()) == (False, True)
    assert amends(expired) == ["batches/0000000001.amend.1.json"]
    expired.check()


def test_a_batch_with_a_pending_upload_was_never_complete_and_stays_open(world: World) -> None:
    """No question is asked, also if its other upload expired: the next run completes the batch."""
    world.die("*.manifest.json")
    first = next(iter(world.bucket.pending_uploads("")))
    world.bucket.abort_upload(first.key, first.upload_id)
    world.bucket.delete(keys.marker_key(PREFIX))
    said = world.about("repair", "--gone-before", "2020-01-01T00:00:00Z", "--json")
    assert (said.code, [*said.data["open"]], said.data["unsure"], amends(world)) == (0, ["1"], {}, [])
    assert world.run("died").status == "ok"
    assert len(world.data_keys()) == 2
    world.check()


def test_a_marker_that_can_be_read_says_what_was_complete(world: World) -> None:
    """Nothing is asked or recorded, whatever is gone."""
    world.run("first")
    world.bucket.delete(FIRST)
    before = snapshot(world.bucket)
    assert world.about("repair", "--gone-before", "2020-01-01T00:00:00Z", "--json").data["was"] == "right"
    check_unchanged(before, snapshot(world.bucket))


def test_a_repair_that_died_before_the_marker_is_ended_by_the_next_one(expired: World) -> None:
    """What it has recorded counts; what it has not, is asked again."""
    store = FaultyStore(expired.bucket)
    store.inject(Fault.CRASH_AFTER, operation="put_new", key="*.amend.*")
    rule = GoneRule(before=1_000_000_001.0, restore=True, reason="", operator="me")
    with pytest.raises(SimulatedCrash):
        repair(expired.committer(store), start={}, rule=rule)
    said = expired.about("repair", "--json")
    assert (said.code, said.data["unsure"]) == (3, {"2": [SECOND]})
    assert expired.about("repair", "--gone-before", "2020-01-01T00:00:00Z").code == 0
    assert expired.about("repair", "--json").data["was"] == "right"
    expired.check()


def test_the_printed_command_is_about_the_batches_that_were_shown(world: World) -> None:
    """Another one had its upload yet when it was printed, and lost it since: it was never complete, so it is asked."""
    world.run("first")
    world.fill(2)
    world.die("*02.manifest.json")
    world.bucket.delete(FIRST)
    world.bucket.delete(keys.marker_key(PREFIX))
    stay, _ = commands_in(world.about("repair").out)
    world.bucket.expire_uploads()
    before = snapshot(world.bucket)
    said = world.cli(*stay)
    assert (said.code, "1 object (2 records, 4 B) of 1 batch are gone" in said.out) == (3, True)
    check_unchanged(before, snapshot(world.bucket))
    _, restore = commands_in(said.out)
    assert restore[-3:] == ["--batches", "1", "--restore-gone"]
    assert world.cli(*restore).code == 0
    assert world.about("recover").code == 0
    assert (FIRST in world.data_keys(), SECOND in world.data_keys()) == (False, True)
    assert amends(world) == ["batches/0000000001.amend.1.json"]
    world.check()


def test_batches_without_a_time_are_refused(expired: World) -> None:
    """They say nothing by themselves."""
    said = expired.about("repair", "--batches", "1")
    assert (said.code, "give both" in said.err) == (2, True)


@pytest.mark.parametrize("batches", ["", "x", "0", "7-5", "1,", "1-2-3", "1" * 30])
def test_batches_of_another_form_are_refused(expired: World, batches: str) -> None:
    """By the part that is wrong, with the form that is right."""
    said = expired.about("repair", "--gone-before", "2026-01-01T00:00:00Z", f"--batches={batches},")
    assert (said.code, "2,5-7" in said.err) == (2, True)


@pytest.mark.parametrize("time", ["yesterday", "2026-01-01", "2026-01-01T00:00:00"])
def test_a_time_without_a_zone_is_refused(expired: World, time: str) -> None:
    """Hours decide about what stays gone."""
    said = expired.about("repair", "--gone-before", time)
    assert (said.code, "2026-01-01T00:00:00Z" in said.err) == (2, True)
