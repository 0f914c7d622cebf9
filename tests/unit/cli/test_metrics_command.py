"""``kafka-s3 metrics``: the state of topics in Prometheus' text format."""

from __future__ import annotations

import re

import pytest

from airflow_provider_kafka_s3.inspect.metrics import METRICS, PREFIX
from airflow_provider_kafka_s3.testing.invariants import check_unchanged, snapshot
from tests.unit.cli.conftest import PIPELINE, TOPIC, TOPICS_DIR, World

LABELS = f'{{pipeline="{PIPELINE}",topic="{TOPIC}"}}'


def samples(text: str) -> dict[str, float]:
    """The samples of the topic, by their names without the prefix."""
    lines = [line.rsplit(" ", 1) for line in text.splitlines() if LABELS in line]
    return {name.removeprefix(f"{PREFIX}_").removesuffix(LABELS): float(number) for name, number in lines}


def test_metrics_are_what_the_log_and_kafka_have(world: World) -> None:
    """Totals of all batches, lag, and the age of the newest record."""
    world.run("first")
    world.run("window", "data_interval", window={0: (0, 2)})
    world.fill(3)
    output = world.on_topic("metrics")
    metrics = samples(output.out)
    assert output.code == 0
    assert {name: metrics[name] for name in ("up", "lag_offsets", "records_total", "batches_total", "bytes_total")} == {
        "up": 1,
        "lag_offsets": 3,
        "records_total": 6,
        "batches_total": 1,
        "bytes_total": 12,
    }
    assert metrics["newest_record_age_seconds"] > 1_000_000_000


def test_each_metric_has_its_meaning_and_its_type_once(world: World) -> None:
    """As the format demands it: before its samples, of all topics together."""
    world.run("first")
    lines = world.cli("metrics", "--bucket", "lake", "--topics-dir", TOPICS_DIR).out.splitlines()
    metric_of = {f"{PREFIX}_{metric.name}": metric for metric in METRICS}
    names = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert len(names) == len({*names})
    for name in names:
        metric = metric_of[name]
        here = lines.index(f"# HELP {name} {metric.text}")
        assert lines[here + 1] == f"# TYPE {name} {'counter' if metric.is_total else 'gauge'}"
        assert re.fullmatch(re.escape(name + LABELS) + r" [0-9.e+-]+", lines[here + 2])


def test_a_hundred_batches_take_few_requests(world: World) -> None:
    """By the index of the log: nothing is read for each batch."""
    for n in range(100):
        world.run(f"r{n}", limits={"records_per_batch": 1})
        world.fill(1)
    requests: list[str] = []

    class Counting:
        def __getattr__(self, name: str) -> object:
            if name != "url":
                requests.append(name)
            return getattr(bucket, name)

    bucket, world.bucket = world.bucket, Counting()  # type: ignore[assignment]
    assert samples(world.on_topic("metrics").out)["records_total"] == 105
    assert len(requests) < 50, requests


def test_a_topic_that_cannot_be_read_is_not_up_and_hides_no_other_one(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """Exit code 1, and the reason in the log."""
    world.run("first")
    world.kafka.create_topic("refunds")
    world.kafka.append("refunds", 0, b"1")
    world.run("first", topic="refunds")
    marker = f"{TOPICS_DIR}/_kafka_s3/{PIPELINE}/refunds/marker.json"
    world.bucket.delete(marker)
    world.bucket.put_new(marker, b"{")
    output = world.cli("metrics", "--bucket", "lake", "--topics-dir", TOPICS_DIR)
    assert output.code == 1
    assert samples(output.out)["records_total"] == 6
    assert f'{PREFIX}_up{{pipeline="{PIPELINE}",topic="refunds"}} 0' in output.out.splitlines()
    assert f"pipeline {PIPELINE}, topic refunds: " in caplog.text


def test_metrics_write_nothing(world: World) -> None:
    """Nor does a topic whose first run has failed."""
    world.die("*.plan.json")
    before = snapshot(world.bucket)
    assert world.on_topic("metrics").code == 0
    check_unchanged(before, snapshot(world.bucket))
