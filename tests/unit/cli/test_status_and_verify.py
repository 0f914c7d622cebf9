"""``kafka-s3 status`` and ``verify``: their output, as text and as JSON, and that they write nothing."""

from __future__ import annotations

import logging

import pytest

from airflow_provider_kafka_s3.batch.given_away import give_to_table
from airflow_provider_kafka_s3.batch.records_digest import RecordsDigest
from airflow_provider_kafka_s3.config import JsonConverter, JsonLines, Layout, SiblingObjects
from airflow_provider_kafka_s3.testing.invariants import check_unchanged, snapshot
from tests.unit.cli.conftest import JSON, PIPELINE, TOPIC, TOPICS_DIR, World

ALL = ("--bucket", "lake", "--topics-dir", TOPICS_DIR)


def test_status_has_landed_offsets_and_lag(world: World) -> None:
    """And for each batch its state, records and bytes."""
    world.run("first")
    world.fill(3)
    output = world.on_topic("status", "--json")
    (topic,) = output.data["topics"]
    (partition,) = topic["partitions"]
    assert output.code == 0
    assert (partition["stored"], partition["log_end"], partition["lag"], topic["lag"]) == (6, 9, 3, 3)
    assert [(b["batch"], b["state"], b["records"], b["size"]) for b in topic["last"]] == [(1, "committed", 6, 12)]


def test_status_counts_tombstones_ignored_values_and_dead_letters(world: World) -> None:
    """As columns only where there are any, and always in JSON."""

    def counts() -> list[tuple[int, ...]]:
        (topic,) = world.on_topic("status", "--json").data["topics"]
        return [(b["records"], b["tombstones"], b["ignored"], b["dead_letters"]) for b in topic["last"]]

    world.run("first", layout=JSON)
    text = world.on_topic("status").out
    assert ("records" in text, "tombstones" in text, "dead letters" in text) == (True, False, False)
    layout = Layout(
        topics_dir=TOPICS_DIR, format=JsonLines(on_null="write"), content=SiblingObjects(), errors="dead_letter"
    )
    for value in (b"{", None, None, b"1"):
        world.kafka.append(TOPIC, 0, value, key=b"k")
    world.run("second", layout=layout)
    text = world.on_topic("status").out
    assert ("tombstones" in text, "ignored" in text, "dead letters" in text) == (True, False, True)
    world.kafka.append(TOPIC, 0, None)
    world.run("third", layout=Layout(topics_dir=TOPICS_DIR, format=JsonLines(on_null="ignore")))
    assert "ignored" in world.on_topic("status").out
    assert sorted(counts()) == [(0, 0, 1, 0), (3, 2, 0, 1), (6, 0, 0, 0)]


def test_status_counts_records_with_unknown_fields_and_names_the_newest(world: World) -> None:
    """In a column only where there are any; a name from a record cannot forge a line."""
    schema = '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}'
    world.kafka.delete_topic(TOPIC)
    world.kafka.create_topic(TOPIC)
    layout = Layout(topics_dir=TOPICS_DIR, format=JsonLines(), value_converter=JsonConverter(schema=schema))
    world.kafka.append(TOPIC, 0, b'{"id": 1}')
    world.run("first", layout=layout)
    assert "unknown fields" not in world.on_topic("status").out
    for value in (b'{"id": 1, "vat": 2}', b'{"id": 1, "a\\n\\u001b[31mroot": 2}', b'{"id": 3}'):
        world.kafka.append(TOPIC, 0, value)
    world.run("second", layout=layout)
    text = world.on_topic("status").out
    assert "unknown fields" in text
    assert text.splitlines()[-1] == ("  fields that the schema does not have, the newest first: a\\n\\x1b[31mroot, vat")
    (topic,) = world.on_topic("status", "--json").data["topics"]
    assert [b["unknown_fields"]["records"] for b in topic["last"]] == [0, 2]
    assert topic["last"][1]["unknown_fields"]["names"] == ["vat", "a\n\x1b[31mroot"]


def test_status_has_open_batches_and_their_planners(world: World) -> None:
    """Try, host and time, beside the run."""
    world.die("*.plan.json", attempt="try 2 on worker-7")
    (topic,) = world.on_topic("status", "--json").data["topics"]
    (batch,) = topic["open"]
    assert (batch["batch"], batch["state"], batch["run"], batch["offsets"]) == (1, "planned", "died", {"0": [[0, 6]]})
    assert batch["planned_by"].startswith("try 2 on worker-7 (")
    assert "try 2 on worker-7 (" in world.on_topic("status").out


def test_status_has_gaps_debt_and_losses(world: World) -> None:
    """Offsets that an abandoned batch released as debt are debt until they are landed."""
    world.run("window", "data_interval", window={0: (0, 2)})
    world.die("*02.plan.json")
    assert world.on_topic("abandon", "--batch", "2", "--release", "debt").code == 0
    (topic,) = world.on_topic("status", "--json").data["topics"]
    assert (topic["partitions"][0]["debt"], topic["partitions"][0]["lost"]) == ([[2, 6]], [])
    world.on_topic("recover")
    (topic,) = world.on_topic("status", "--json").data["topics"]
    assert (topic["partitions"][0]["debt"], topic["partitions"][0]["stored"], topic["open"]) == ([], 6, [])
    world.check()


def test_status_finds_a_recreated_topic_and_records_that_are_gone(world: World) -> None:
    """Both are findings: exit code 1."""
    world.run("first")
    world.fill(4)
    world.kafka.delete_records(TOPIC, 0, 8)
    gone = world.on_topic("status", "--json")
    assert (gone.code, gone.data["topics"][0]["partitions"][0]["gone"]) == (1, 2)
    world.kafka.create_topic(TOPIC)
    again = world.on_topic("status", "--json")
    assert (again.code, again.data["topics"][0]["recreated"]) == (1, True)


def test_status_without_names_finds_every_topic(world: World) -> None:
    """By the owner documents."""
    world.run("first")
    output = world.cli("status", *ALL, "--json")
    assert [(t["pipeline"], t["topic"]) for t in output.data["topics"]] == [(PIPELINE, TOPIC)]
    assert f"{PIPELINE} / {TOPIC}: 1 batch resolved, lag 0 offsets" in world.cli("status", *ALL).out


@pytest.mark.parametrize("command", ["status", "verify", "gc"])
def test_unknown_names_are_errors_with_the_nearest_ones(world: World, command: str) -> None:
    """Of a pipeline, a topic or a folder: exit code 2, so that no monitor takes a misspelt name for a healthy one."""
    world.run("first")
    for names, expected in (
        (("--pipeline", PIPELINE[:-1]), f"there is no pipeline {PIPELINE[:-1]!r} below s3://lake/{TOPICS_DIR}"),
        (("--pipeline", PIPELINE[:-1]), f"did you mean {PIPELINE!r}?"),
        (("--pipeline", "other"), f"the pipelines there are {PIPELINE}"),
        (("--pipeline", PIPELINE[:-1], "--topic", TOPIC), f"did you mean {PIPELINE!r}?"),
        (("--pipeline", PIPELINE, "--topic", TOPIC, "--topic", "order"), f"did you mean {TOPIC!r}?"),
        (("--pipeline", PIPELINE, "--topic", "clicks"), f"it lands {TOPIC}"),
        (("--topics-dir", "topic"), "there is no pipeline below s3://lake/topic."),
    ):
        output = world.cli(command, *ALL, *names, "--json")
        assert (output.code, expected in output.error, "error" in output.data) == (2, True, True), output.err


def test_commands_of_one_topic_name_the_nearest_one(world: World) -> None:
    """Whatever they would do."""
    world.run("first")
    for command in (
        ("recover",),
        ("reset",),
        ("abandon", "--batch", "1", "--release", "debt"),
        ("cat", "--partition", "0", "--offset", "1"),
        ("replay", "--id", "r", "--to", "copy"),
    ):
        name, *more = command
        output = world.cli(name, *ALL, "--pipeline", PIPELINE, "--topic", "order", *more)
        assert (output.code, f"did you mean {TOPIC!r}?" in output.error) == (2, True), output.err


def test_a_topic_whose_first_run_has_failed_is_shown(world: World) -> None:
    """It is not unknown: there is the document of its owner, and no batch."""
    world.die("*/_owners/*")
    output = world.on_topic("status", "--json")
    assert (output.code, output.data) == (
        0,
        {"topics": [], "nothing_landed": [{"pipeline": PIPELINE, "topic": TOPIC}]},
    )
    assert f"{PIPELINE} / {TOPIC}: nothing is landed" in world.on_topic("status").out
    assert "ended before its first batch" in world.on_topic("recover").error
    for command in ("verify", "gc"):
        assert world.cli(command, *ALL).code == 0
        assert world.on_topic(command).code == 2


def test_list_has_every_pipeline_and_topic(world: World) -> None:
    """With the number of complete batches, without Kafka; an empty place is no error."""
    assert "there is no pipeline below s3://lake/" in world.cli("list", *ALL).out
    world.run("first")
    world.kafka.create_topic("clicks")
    world.die("*/_owners/*", topic="clicks", pipeline="ckicks")
    output = world.cli("list", *ALL, "--json")
    assert output.data["topics"] == [
        {"pipeline": "ckicks", "topic": "clicks", "batches": 0},
        {"pipeline": PIPELINE, "topic": TOPIC, "batches": 1},
    ]
    lines = world.cli("list", *ALL, "--pipeline", PIPELINE).out.splitlines()
    assert [line.split() for line in lines] == [["pipeline", "topic", "batches"], [PIPELINE, TOPIC, "1"]]


def test_status_needs_no_kafka(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it there is no lag."""
    monkeypatch.delenv("KAFKA_S3_BOOTSTRAP_SERVER")
    world.run("first")
    (topic,) = world.on_topic("status", "--json").data["topics"]
    assert (topic["lag"], topic["partitions"][0]["stored"]) == (None, 6)


def test_status_and_verify_write_nothing(world: World) -> None:
    """Also while a batch is open."""
    world.run("first")
    world.fill(2)
    world.die("*02.manifest.json", "second")
    before = snapshot(world.bucket)
    assert world.on_topic("status").code == 0
    assert world.on_topic("verify").code == 0
    check_unchanged(before, snapshot(world.bucket))


def test_verify_reads_all_landed_objects(world: World) -> None:
    """It counts objects and bytes."""
    world.run("first")
    output = world.on_topic("verify", "--json")
    assert (output.code, output.data["topics"][TOPIC]["objects"], output.data["topics"][TOPIC]["size"]) == (0, 2, 12)


def test_nothing_but_the_output_of_the_command_is_on_standard_output(world: World) -> None:
    """Not even log lines that a handler prints there, as Airflow 2 configures it."""

    class Printing(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            print(record.getMessage())

    world.run("first")
    package = logging.getLogger("airflow_provider_kafka_s3")
    handler, level = Printing(), package.level
    package.addHandler(handler)
    package.setLevel(logging.INFO)
    try:
        output = world.on_topic("verify", "--json")
    finally:
        package.removeHandler(handler)
        package.setLevel(level)
    assert output.data["topics"][TOPIC]["objects"] == 2
    assert "verify of the landed part" in output.err


def test_verify_names_missing_objects(world: World) -> None:
    """Exit code 1; with --dry-run, --restore does not write."""
    world.run("first")
    world.bucket.delete(key := world.data_keys()[0])
    for more in ((), ("--restore", "--dry-run"), ("--batch", "1"), ("--offsets", "0:0-6")):
        output = world.on_topic("verify", *more)
        assert (output.code, key in output.out) == (1, True), more
    assert key not in world.data_keys()
    error = world.on_topic("verify", "--json").data["topics"][TOPIC]["error"]
    assert (error["kind"], error["type"], error["terminal"]) == ("missing_object", "MissingObjectError", True)
    assert key in error["message"]


def test_a_person_may_vouch_for_records_that_nothing_proves(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """An object of an earlier version, whose manifest has no digest, and a log that has other records there."""
    with monkeypatch.context() as then:
        then.setattr(RecordsDigest, "hexdigest", lambda _: "")
        world.run("first")
    world.kafka.elect(TOPIC, 0, end=0)
    for _ in range(6):
        world.kafka.append(TOPIC, 0, b"9")
    world.bucket.delete(key := world.data_keys()[0])
    refused = world.on_topic("verify", "--restore")
    assert (refused.code, "--batch 1 --unsafe-unproven-records`" in refused.out, key in world.data_keys()) == (
        1,
        True,
        False,
    )
    assert world.on_topic("verify", "--restore", "--batch", "1", "--unsafe-unproven-records").code == 0
    assert key in world.data_keys()


def test_verify_of_one_batch_leaves_the_others_out(world: World) -> None:
    """It reads the objects of that batch only."""
    world.run("first")
    world.fill(2)
    world.run("second")
    output = world.on_topic("verify", "--batch", "2", "--json")
    assert (output.data["topics"][TOPIC]["batches"], output.data["topics"][TOPIC]["objects"]) == ([2], 1)


def test_objects_that_a_table_owns_are_no_findings(world: World) -> None:
    """Status names the table, verify counts them, and only --unsafe-given-objects writes them again."""
    world.run("first")
    give_to_table(world.pipeline().log, "lake.orders", 1)
    world.bucket.delete(key := world.data_keys()[0])
    assert "objects of batches up to 1 are given to table lake.orders" in world.on_topic("status").out
    for more in ((), ("--restore",)):
        output = world.on_topic("verify", *more)
        assert (output.code, "1 object gone that a table owns" in output.out) == (0, True)
    assert world.on_topic("verify", "--json").data["topics"][TOPIC]["given"] == [key]
    assert key not in world.data_keys()
    assert world.on_topic("verify", "--restore", "--unsafe-given-objects").code == 0
    assert key in world.data_keys()
