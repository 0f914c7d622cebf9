"""What README and tutorial show is what is printed."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest

from airflow_provider_kafka_s3.config import Hourly, JsonConverter, JsonLines, Layout
from airflow_provider_kafka_s3.spark.progress import counts_line
from tests.documentation import README, ROOT, snippets
from tests.unit.cli.conftest import PIPELINE, TOPIC, TOPICS_DIR, World

TUTORIAL: Final = ROOT / "docs" / "tutorial.md"


def shown(page: Path, what: str) -> list[str]:
    """The lines of an output in a page that has some text."""
    (found,) = [text for text in snippets(page, "text") if what in text]
    return [line for line in found.splitlines() if line.strip()]


def test_the_readme_shows_what_a_run_logs(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """Its first day has 709 flights in four partitions."""
    lines = [line.strip() for line in shown(README, "flights_daily") if "topic flights" in line]
    (to_land,) = [line for line in lines if "to land" in line]
    world.kafka.create_topic("flights", 4)
    for partition, end in re.findall(r"(\d): \[0, (\d+)\)", to_land):
        for _ in range(int(end)):
            world.kafka.append("flights", int(partition), b"{}", timestamp=0)
    with caplog.at_level(logging.INFO):
        world.run("first", topic="flights", limits={"records_per_slice": 1_000})
    assert to_land in caplog.messages
    committed = [line for line in lines if "is committed" in line]
    assert len(committed) >= 2
    for line in committed:
        objects, records, octets = (int(n.replace(",", "")) for n in re.findall(r"([\d,]+) (?:obj|rec|byt)", line))
        decision: Any = SimpleNamespace(
            objects=range(objects), records=records, size=octets, tombstones=0, ignored=0, dead_letters=0
        )
        assert line.endswith(f" is committed: {counts_line(decision)}")


def test_the_tutorial_shows_what_status_prints(world: World) -> None:
    """Of its 10,000 orders in two hours, and the names of their objects."""
    (produce,) = [code for code in snippets(TUTORIAL, "python") if "producer.produce" in code]
    assert '{"order_id": n, "amount": n % 500 / 10}' in produce
    assert "partition=n % 4, timestamp=timestamp" in produce
    world.kafka.create_topic(TOPIC, 4)
    for n in range(10_000):
        value = json.dumps({"order_id": n, "amount": n % 500 / 10}).encode()
        world.kafka.append(TOPIC, n % 4, value, timestamp=1_767_312_000_000 + n * 7_200_000 // 10_000)
    layout = Layout(topics_dir=TOPICS_DIR, format=JsonLines(), partitioner=Hourly())
    world.run("first", layout=layout, limits={"records_per_slice": 1_000_000})
    printed = [line for line in world.on_topic("status").out.replace(PIPELINE, "orders").splitlines() if line.strip()]
    printed[-1] = printed[-1].replace(printed[-1].partition("KiB  ")[2], "…")
    assert printed == shown(TUTORIAL, "batch resolved")
    keys = [info.key.replace(TOPICS_DIR, "topics", 1) for info in world.bucket.list(f"{TOPICS_DIR}/{TOPIC}/")]
    assert keys == shown(TUTORIAL, "+0000001250.json")


def test_the_page_of_monitoring_shows_the_columns_of_status(world: World) -> None:
    """Of a batch with fields that the schema does not have."""
    title, head, _, names = shown(ROOT / "docs" / "monitoring.md", "unknown fields")
    schema = '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}'
    layout = Layout(topics_dir=TOPICS_DIR, format=JsonLines(), value_converter=JsonConverter(schema=schema))
    world.kafka.delete_topic(TOPIC)
    world.kafka.create_topic(TOPIC)
    world.kafka.append(TOPIC, 0, b'{"id": 1, "home": {"zip": 2}}')
    world.run("first", layout=layout)
    printed = world.on_topic("status").out.splitlines()
    at = printed.index(title)
    assert printed[at + 1].split() == head.split()
    assert printed[-1].partition(":")[0] == names.partition(":")[0]
