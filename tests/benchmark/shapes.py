"""Where the time of the data path goes, for other records, partitions and compressions of the topic.

Each shape differs in one thing from the first one. Reading alone and our gzip of JSON run in a warm session each,
and the CPU of a job is that of its JVM, of its Python workers, and of its driver.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from dev.kafka_broker import KafkaBroker, Message
from tests.benchmark.data import load, messages

FLOOR: Final = "floor: three columns, noop"
OURS: Final = "ours: JSON gzip"


@dataclass(frozen=True)
class Shape:
    """A topic.

    Attributes:
        records: how many it has.
        size: bytes of a record, about.
        partitions: Kafka partitions.
        compression: of its batches, as a producer has it.
    """

    records: int = 1_500_000
    size: int = 357
    partitions: int = 4
    compression: str = "lz4"

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.records:,} of {self.size:,} bytes, {self.partitions} partitions, {self.compression}"


BASE: Final = Shape()
SHAPES: Final = (
    BASE,
    Shape(records=3_000_000, size=100),
    Shape(records=50_000, size=10_000),
    replace(BASE, partitions=1),
    replace(BASE, partitions=64),
    replace(BASE, compression="none"),
    replace(BASE, compression="zstd"),
)


def shapes(config: dict[str, Any], drive: Callable[..., list[dict[str, Any]]], broker: KafkaBroker) -> dict[str, Any]:
    """Measure; figures by the name of a shape and of a case.

    Args:
        config: of the benchmark.
        drive: gives the results of a case.
        broker: for the topics.
    """
    found: dict[str, Any] = {}
    for number, shape in enumerate(SHAPES):
        topic = f"shape-{number}"
        print(f"{shape.name} …", flush=True)
        load(broker, topic, _messages(shape), shape.partitions, compression=shape.compression)
        landed = {**config, "topic": topic, "records": shape.records}
        found[shape.name] = {"records": shape.records} | {
            case: _medians([r for r in drive({**landed, "case": case}) if "round" in r and r["case"] == case])
            for case in (FLOOR, OURS)
        }
        broker.delete_topic(topic)
    return found


def _medians(rounds: list[dict[str, Any]]) -> dict[str, float]:
    return {
        "wall": round(statistics.median(r["wall"] for r in rounds), 2),
        **{
            part: round(statistics.median(r["cpu_of_job"].get(part, 0.0) for r in rounds), 2)
            for part in ("jvm", "workers", "driver")
        },
    }


def _messages(shape: Shape) -> Iterator[Message]:
    """Reports, their first three fields, or arrays of some."""
    whole = shape.size // BASE.size
    reports = messages(shape.records * max(whole, 1), 1)
    for n in range(shape.records):
        some = [*itertools.islice(reports, max(whole, 1))]
        values = [message.value or b"" for message in some]
        if shape.size < BASE.size:
            value = b",".join(values[0].split(b",", 4)[:4]) + b"}"
        else:
            value = values[0] if whole == 1 else b'{"reports":[%b]}' % b",".join(values)
        yield Message(value, partition=n % shape.partitions, timestamp=some[0].timestamp)


def table(found: dict[str, Any]) -> list[str]:
    """The figures as lines of text."""
    head = f"  {'':48}{'wall s':>8}{'/ floor':>8}{'CPU s':>8}{'us each':>9}{'JVM':>8}{'workers':>9}"
    lines = [f"{head}{'floor s':>9}{'CPU s':>8}"]
    for name, cases in found.items():
        floor, ours = cases[FLOOR], cases[OURS]
        cpu = sum(ours[part] for part in ("jvm", "workers", "driver"))
        lines.append(
            f"  {name:48}{ours['wall']:8.2f}{ours['wall'] / floor['wall']:8.2f}{cpu:8.2f}"
            f"{cpu / cases['records'] * 1e6:9.2f}{ours['jvm']:8.2f}{ours['workers']:9.2f}"
            f"{floor['wall']:9.2f}{floor['jvm'] + floor['driver']:8.2f}"
        )
    return lines
