"""Text of documents in the bucket is printed without control characters."""

from __future__ import annotations

import json

from airflow_provider_kafka_s3.documents import addresses
from airflow_provider_kafka_s3.documents.codec import canonical, digest
from tests.unit.cli.conftest import PIPELINE, TOPIC, TOPICS_DIR, World

EVIL = "\x1b]0;owned\x07\x1b[2J\nforged line\u202e"


def test_documents_cannot_move_the_cursor_or_forge_lines(world: World) -> None:
    """Runs, reasons and operators are text of whoever may write documents."""
    world.die("*.plan.json")
    key = addresses.plan_key(addresses.control_prefix(TOPICS_DIR, PIPELINE, TOPIC), 1)
    stored = world.bucket.get(key)
    assert stored is not None
    body = json.loads(stored.body) | {"run": EVIL, "written_by": EVIL}
    world.bucket.delete(key)
    world.bucket.put_new(key, canonical({**body, "sha256": digest({k: body[k] for k in body if k != "sha256"})}))
    for command in ("status", "recover"):
        output = world.on_topic(command, *(["--dry-run"] if command == "recover" else []))
        assert output.code == 0
        assert all(line.isprintable() for line in output.out.splitlines())
        assert not any(line.startswith("forged") for line in output.out.splitlines())
    assert world.on_topic("status", "--json").data["topics"][0]["open"][0]["run"] == EVIL


def test_starting_offsets_that_are_no_numbers_are_a_wrong_option(world: World) -> None:
    """Digits that are not ASCII, and more digits than an offset can have."""
    world.run("first")
    for offsets in ("²:0", "0:" + "9" * 5_000, "0"):
        assert world.on_topic("repair", "--starting-offsets", offsets).code == 2
