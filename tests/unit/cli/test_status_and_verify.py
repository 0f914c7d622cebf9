"""``kafka-s3 status`` and ``verify``: what they tell, in words and in JSON, and that they write nothing."""

from __future__ import annotations

import logging

import pytest

from airflow_provider_kafka_s3.testing.invariants import check_unchanged, snapshot
from tests.unit.cli.conftest import PIPELINE, TOPIC, TOPICS_DIR, World

ALL = ("--bucket", "lake", "--topics-dir", TOPICS_DIR)


def test_status_tells_how_far_a_topic_is_landed_and_how_far_behind(world: World) -> None:
    """Numbers of offsets, of the batches and of their bytes."""
    world.run("first")
    world.fill(3)
    said = world.about("status", "--json")
    (topic,) = said.data["topics"]
    (partition,) = topic["partitions"]
    assert said.code == 0
    assert (partition["stored"], partition["log_end"], partition["lag"], topic["lag"]) == (6, 9, 3, 3)
    assert [(b["batch"], b["state"], b["records"], b["size"]) for b in topic["last"]] == [(1, "committed", 6, 12)]


def test_status_tells_what_is_open_and_who_planned_it(world: World) -> None:
    """Try, host and time stand beside the run."""
    world.die("*.plan.json", attempt="try 2 on worker-7")
    (topic,) = world.about("status", "--json").data["topics"]
    (batch,) = topic["open"]
    assert (batch["batch"], batch["state"], batch["run"], batch["offsets"]) == (1, "planned", "died", {"0": [[0, 6]]})
    assert batch["planned_by"].startswith("try 2 on worker-7 (")
    assert "try 2 on worker-7 (" in world.about("status").out


def test_status_tells_gaps_debt_and_losses(world: World) -> None:
    """A window far above the start leaves a gap below it only in history; what is given up is owed or lost."""
    world.run("window", "data_interval", window={0: (0, 2)})
    world.die("*02.plan.json")
    assert world.about("abandon", "--batch", "2", "--release", "debt").code == 0
    (topic,) = world.about("status", "--json").data["topics"]
    assert (topic["partitions"][0]["debt"], topic["partitions"][0]["lost"]) == ([[2, 6]], [])
    world.about("recover")
    (topic,) = world.about("status", "--json").data["topics"]
    assert (topic["partitions"][0]["debt"], topic["partitions"][0]["stored"], topic["open"]) == ([], 6, [])
    world.check()


def test_status_finds_a_recreated_topic_and_records_that_are_gone(world: World) -> None:
    """Both are findings: exit code 1."""
    world.run("first")
    world.fill(4)
    world.kafka.delete_records(TOPIC, 0, 8)
    gone = world.about("status", "--json")
    assert (gone.code, gone.data["topics"][0]["partitions"][0]["gone"]) == (1, 2)
    world.kafka.create_topic(TOPIC)
    again = world.about("status", "--json")
    assert (again.code, again.data["topics"][0]["recreated"]) == (1, True)


def test_status_without_names_finds_every_topic(world: World) -> None:
    """By the documents that tell who owns which topic."""
    world.run("first")
    said = world.cli("status", *ALL, "--json")
    assert [(t["pipeline"], t["topic"]) for t in said.data["topics"]] == [(PIPELINE, TOPIC)]
    assert f"{PIPELINE} / {TOPIC}: 1 batches resolved, lag 0 offsets" in world.cli("status", *ALL).out


def test_status_needs_no_kafka(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then it tells no lag."""
    monkeypatch.delenv("KAFKA_S3_BOOTSTRAP_SERVER")
    world.run("first")
    (topic,) = world.about("status", "--json").data["topics"]
    assert (topic["lag"], topic["partitions"][0]["stored"]) == (None, 6)


def test_looking_writes_nothing(world: World) -> None:
    """Neither status nor verify."""
    world.run("first")
    world.fill(2)
    world.die("*02.manifest.json", "second")
    before = snapshot(world.bucket)
    assert world.about("status").code == 0
    assert world.about("verify").code == 0
    check_unchanged(before, snapshot(world.bucket))


def test_verify_reads_all_that_is_landed(world: World) -> None:
    """Objects, bytes."""
    world.run("first")
    said = world.about("verify", "--json")
    assert (said.code, said.data["topics"][TOPIC]["objects"], said.data["topics"][TOPIC]["size"]) == (0, 2, 12)


def test_nothing_but_the_answer_is_on_standard_output(world: World) -> None:
    """Not even what a log writes there, as Airflow 2 sets it up."""

    class Printing(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            print(record.getMessage())

    world.run("first")
    package = logging.getLogger("airflow_provider_kafka_s3")
    handler, level = Printing(), package.level
    package.addHandler(handler)
    package.setLevel(logging.INFO)
    try:
        said = world.about("verify", "--json")
    finally:
        package.removeHandler(handler)
        package.setLevel(level)
    assert said.data["topics"][TOPIC]["objects"] == 2
    assert "verify of the landed part" in said.err


def test_verify_finds_what_is_gone_and_names_it(world: World) -> None:
    """Exit code 1; with --dry-run, --restore does not write."""
    world.run("first")
    world.bucket.delete(key := world.data_keys()[0])
    for more in ((), ("--restore", "--dry-run"), ("--batch", "1"), ("--offsets", "0:0-6")):
        said = world.about("verify", *more)
        assert (said.code, key in said.out) == (1, True), more
    assert key not in world.data_keys()
    error = world.about("verify", "--json").data["topics"][TOPIC]["error"]
    assert (error["kind"], error["type"], error["terminal"]) == ("missing_object", "MissingObjectError", True)
    assert key in error["message"]


def test_verify_of_one_batch_leaves_the_others_out(world: World) -> None:
    """By its offsets."""
    world.run("first")
    world.fill(2)
    world.run("second")
    said = world.about("verify", "--batch", "2", "--json")
    assert (said.data["topics"][TOPIC]["batches"], said.data["topics"][TOPIC]["objects"]) == ([2], 1)
