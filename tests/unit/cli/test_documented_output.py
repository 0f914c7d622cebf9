"""What README and tutorial show is what is printed."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest

from airflow_provider_kafka_s3.config import Hourly, JsonLines, Layout
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
    """Of its 10,000 orders in two hours, as its producer has distributed them."""
    expected = shown(TUTORIAL, "batch resolved")
    ends = [int(line.split()[1].replace(",", "")) for line in expected if re.match(r" +\d +[\d,]+ +0 ", line)]
    assert sum(ends) == 10_000
    world.kafka.create_topic(TOPIC, 4)
    (prepare,) = [code for code in snippets(TUTORIAL, "python") if "producer.produce" in code]
    assert '{"order_id": n, "amount": n % 500 / 10}' in prepare
    partitions = [partition for partition, end in enumerate(ends) for _ in range(end)]
    for n in range(10_000):
        # Every partition has records of both hours.
        partition = partitions[n * 7919 % 10_000]
        value = json.dumps({"order_id": n, "amount": n % 500 / 10}).encode()
        world.kafka.append(TOPIC, partition, value, timestamp=1_767_312_000_000 + n * 7_200_000 // 10_000)
    layout = Layout(topics_dir=TOPICS_DIR, format=JsonLines(), partitioner=Hourly())
    world.run("first", layout=layout, limits={"records_per_slice": 1_000_000})
    printed = [line for line in world.on_topic("status").out.replace(PIPELINE, "orders").splitlines() if line.strip()]
    assert [line.partition("…")[0] for line in printed[: len(expected) - 1]] == expected[:-1]
    assert printed[-1].startswith(expected[-1].partition("…")[0])
