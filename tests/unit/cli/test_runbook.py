"""The entries of docs/monitoring.md for alerts: each command, run as it is written, helps where its alert fires."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable

import pytest

from airflow_provider_kafka_s3.config import JsonLines, Layout
from tests.documentation import ROOT
from tests.unit.cli.conftest import TOPIC, TOPICS_DIR, Output, World
from tests.unit.cli.test_metrics_command import samples
from tests.unit.cli.test_ways_out import overwrite

PAGE = (ROOT / "docs" / "monitoring.md").read_text()
ENTRIES = dict(re.findall(r"^### (KafkaS3\w+)\n(.*?)(?=^##)", PAGE, re.MULTILINE | re.DOTALL))
PIPELINE = "orders"


def gone(world: World) -> None:
    """Retention deletes offsets 6 and 7 before a run comes."""
    world.run("first", pipeline=PIPELINE)
    world.fill(4)
    world.kafka.delete_records(TOPIC, 0, 8)


def lost(world: World) -> None:
    """They are recorded as lost."""
    gone(world)
    world.run("second", pipeline=PIPELINE, on_data_loss="skip")


def unreadable(world: World) -> None:
    """Somebody has overwritten the marker."""
    world.run("first", pipeline=PIPELINE)
    overwrite(world.bucket, f"{TOPICS_DIR}/_kafka_s3/{PIPELINE}/{TOPIC}/marker.json", b"{")


def waiting(world: World) -> None:
    """Records that no run lands."""
    world.run("first", pipeline=PIPELINE)
    world.fill(4)


def opened(world: World) -> None:
    """A run dies behind its plan."""
    world.die("*.plan.json", pipeline=PIPELINE)


def debt(world: World) -> None:
    """Its batch is abandoned."""
    opened(world)
    assert world.cli("abandon", "--pipeline", PIPELINE, "--topic", TOPIC, "--batch", "1", "--release", "debt").code == 0


def held_back(world: World) -> None:
    """A transaction stays open."""
    world.run("first", pipeline=PIPELINE)
    world.kafka.open_transaction(TOPIC, 0)
    world.fill(3)


def dead_letters(world: World) -> None:
    """One of the records is no JSON."""
    world.kafka.append(TOPIC, 0, b"{no json", timestamp=6)
    layout = Layout(topics_dir=TOPICS_DIR, format=JsonLines(), errors="dead_letter")
    world.run("first", pipeline=PIPELINE, layout=layout)


ALERTS: dict[str, tuple[Callable[[World], None], str, float]] = {
    "KafkaS3RecordsGone": (gone, "gone_offsets", 0),
    "KafkaS3TopicUnreadable": (unreadable, "up", 0),
    "KafkaS3NotLanding": (waiting, "lag_offsets", 4),
    "KafkaS3BatchOpen": (opened, "open_batches", 0),
    "KafkaS3Debt": (debt, "debt_offsets", 0),
    "KafkaS3TransactionHangs": (held_back, "held_back_offsets", 3),
    "KafkaS3DeadLetters": (dead_letters, "dead_letters_total", 1),
    "KafkaS3RecordsLost": (lost, "lost_offsets", 2),
}
"""What makes each alert fire; its metric, and the value of it behind the commands: 0 where they settle the matter."""


@pytest.mark.parametrize("alert", ENTRIES)
def test_the_commands_of_an_entry_do_what_it_says(
    world: World, alert: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """They settle what a command can settle, and show what a person has to know of the rest."""
    monkeypatch.delenv("KAFKA_S3_BOOTSTRAP_SERVER")
    for name, value in re.findall(r"(KAFKA_S3_\w+)=(\S+)", PAGE):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("KAFKA_S3_TOPICS_DIR", TOPICS_DIR)
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_DEFAULT", '{"conn_type": "kafka", "extra": {"bootstrap.servers": "b:9092"}}')
    monkeypatch.setenv("AIRFLOW_CONN_AWS_DEFAULT", '{"conn_type": "aws"}')
    fire, metric, afterwards = ALERTS[alert]
    fire(world)

    def now() -> float:
        metrics = samples(world.cli("metrics").out.replace(f'pipeline="{PIPELINE}"', 'pipeline="orders-to-lake"'))
        return metrics[metric]

    assert now() > 0 or metric == "up"
    outputs: list[Output] = []
    for command in re.findall(r"^kafka-s3 (.+)$", ENTRIES[alert], re.MULTILINE):
        outputs.append(world.cli(*shlex.split(command)))
        # 1: what the alert says, 2: an error.
        assert outputs[-1].code in (0, 1), outputs[-1].err
    assert outputs
    assert now() == afterwards
    shown = {
        "KafkaS3TopicUnreadable": "marker.json",
        "KafkaS3TransactionHangs": "holds back 3 offsets",
        "KafkaS3DeadLetters": "dead letters",
        "KafkaS3RecordsLost": "[6, 8)",
    }
    assert shown.get(alert, "") in outputs[0].out + caplog.text
