"""``kafka-s3 cat``: landed records as lines of JSON, as bytes, and as JSON; it writes nothing and needs no Kafka."""

from __future__ import annotations

import io
import json
import sys

import pytest

from airflow_provider_kafka_s3.config import BlockGzip, JsonLines, Layout, RawBytes, SiblingObjects
from airflow_provider_kafka_s3.testing.invariants import check_unchanged, snapshot
from tests.unit.cli.conftest import JSON, TOPIC, TOPICS_DIR, World

BLOCKS = Layout(topics_dir=TOPICS_DIR, format=BlockGzip(lines=RawBytes(), block_size=4))
WITH_KEYS = Layout(topics_dir=TOPICS_DIR, format=JsonLines(), content=SiblingObjects())
IGNORING = Layout(topics_dir=TOPICS_DIR, format=JsonLines(on_null="ignore"))


@pytest.mark.parametrize("layout", [JSON, BLOCKS])
def test_records_are_lines_of_json(world: World, layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the offset on, with the object of each; without any Kafka cluster, and without any change."""
    world.run("first", layout=layout)
    before = snapshot(world.bucket)
    monkeypatch.delenv("KAFKA_S3_BOOTSTRAP_SERVER")
    output = world.on_topic("cat", "--partition", "0", "--offset", "2", "--records", "3")
    found = [json.loads(line) for line in output.out.splitlines()]
    assert output.code == 0
    assert [(r["partition"], r["offset"], str(r["value"])) for r in found] == [(0, n, str(n)) for n in (2, 3, 4)]
    assert {r["object"] for r in found} <= {*world.data_keys()}
    assert world.on_topic("cat", "--partition", "0", "--offset", "2", "--json").data == {"records": found[:1]}
    check_unchanged(before, snapshot(world.bucket))


def test_raw_records_are_the_bytes_of_their_rows(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is escaped, as a file needs them."""
    world.kafka.append(TOPIC, 0, b"\xff\x00\x1b")
    world.run("first", layout=BLOCKS)
    printed = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(printed))
    output = world.on_topic("cat", "--partition", "0", "--offset", "5", "--records", "2", "--raw")
    assert output.code == 0
    assert printed.getvalue() == b"5\n\xff\x00\x1b\n"


def test_an_offset_without_a_record_is_told(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """The next record is printed, or nothing at the end of what is landed."""
    world.kafka.append(TOPIC, 0, None)
    world.run("first", layout=IGNORING, limits={"records_per_slice": 100})
    output = world.on_topic("cat", "--partition", "0", "--offset", "6")
    assert (output.code, output.out.strip()) == (0, "")
    assert "no record is landed from offset 6 on" in caplog.text
    world.fill(1)
    world.run("second", layout=IGNORING)
    output = world.on_topic("cat", "--partition", "0", "--offset", "6")
    assert json.loads(output.out)["offset"] == 7
    assert "there is no record at offset 6; the next one is below" in caplog.text


def test_a_key_that_was_accepted_as_lost_is_named(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """The values are printed, without their keys."""
    world.kafka.delete_records(TOPIC, 0, 6)
    for n in range(6):
        world.kafka.append(TOPIC, 0, b"%d" % n, key=b'"k"')
    world.run("first", layout=WITH_KEYS)
    world.bucket.delete(next(key for key in world.data_keys() if key.endswith(".keys.json")))
    assert world.on_topic("accept-loss", "--deleted", "--batch", "1", "--reason", "test").code == 0
    output = world.on_topic("cat", "--partition", "0", "--offset", "8", "--records", "2")
    found = [json.loads(line) for line in output.out.splitlines()]
    assert (output.code, [r["value"] for r in found], ["key" in r for r in found]) == (0, [2, 3], [False, True])
    assert "partition 0: the object with the key of 1 record below was accepted as lost" in caplog.text


def test_what_is_not_known_names_the_option(world: World) -> None:
    """And with it all candidates are printed."""
    for value in (None, b"7", b"8"):
        world.kafka.append(TOPIC, 0, value)
    world.run("first", layout=IGNORING, limits={"records_per_slice": 100})
    refused = world.on_topic("cat", "--partition", "0", "--offset", "7")
    assert refused.code == 2
    assert "which record has offset 7 is not known" in refused.error
    assert "--whole-block" in refused.error
    output = world.on_topic("cat", "--partition", "0", "--offset", "7", "--whole-block")
    assert [json.loads(line)["value"] for line in output.out.splitlines()] == [0, 1, 2, 3, 4, 5, 7, 8]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--offset", "6"), "offset 6 is not landed: landed are [0, 6)"),
        (("--offset", "0", "--records", "0"), "--records 0 must be a positive number"),
        (("--offset", "0", "--raw", "--json"), "--raw and --json are given; use one of them"),
    ],
)
def test_options_that_cannot_work_are_refused(world: World, options: tuple[str, ...], message: str) -> None:
    """With the code of a wrong option."""
    world.run("first", layout=JSON)
    output = world.on_topic("cat", "--partition", "0", *options)
    assert output.code == 2
    assert message in output.error
