"""Decided batches with lost objects: completed without Kafka where possible, accepted with few reads of Kafka."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from airflow_provider_kafka_s3.config import Layout, RawBytes, Rotation
from airflow_provider_kafka_s3.kafka import source as kafka_source
from airflow_provider_kafka_s3.testing.invariants import check_unchanged, snapshot
from airflow_provider_kafka_s3.testing.kafka import SimulatedKafka
from tests.unit.cli.conftest import TOPIC, TOPICS_DIR, World, commands_in

ONE_EACH = Layout(topics_dir=TOPICS_DIR, format=RawBytes(), rotation=Rotation(flush_size=1))


@pytest.fixture
def reads(world: World, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The ranges of offsets that were read from Kafka."""
    found: list[tuple[int, int]] = []
    read = world.kafka.read

    def counted(
        topic: str, partition: int, start: int, end: int, isolation: str, **settings: object
    ) -> Iterator[object]:
        found.append((start, end))
        return read(topic, partition, start, end, isolation, **settings)  # type: ignore[arg-type]

    monkeypatch.setattr(world.kafka, "read", counted)
    return found


@pytest.mark.parametrize(
    ("gone", "expected"), [(1, [(0, 8), (1, 4), (4, 8), (8, 16), (16, 24), (24, 32)]), (32, [(0, 8)])]
)
def test_losses_are_accepted_with_few_reads_and_only_of_objects_whose_records_are_gone(
    world: World, reads: list[tuple[int, int]], gone: int, expected: list[tuple[int, int]]
) -> None:
    """One read for eight objects, and none once Kafka's log is known to begin behind them; one amend names the lost."""
    for i in range(6, 64):  # no value twice, so that the check of the bucket knows each record
        world.kafka.append(TOPIC, 0, b"%d" % i, timestamp=i)
    world.die("*.manifest.json", layout=ONE_EACH, limits={"records_per_slice": 32})
    world.bucket.expire_uploads()
    world.kafka.delete_records(TOPIC, 0, gone)
    reads.clear()
    output = world.on_topic("accept-loss", "--batch", "1", "--reason", "gone", "--json")
    assert (output.code, len(output.data["lost"]["1"])) == (0, gone)
    assert reads == expected + [(start, start + 8) for start in range(32, 64, 8)]
    assert len(world.data_keys()) == 64 - gone
    amends = [info.key for info in world.bucket.list("") if ".amend." in info.key]
    assert len(amends) == 1
    assert world.run("died", layout=ONE_EACH).verified == 64 - gone
    world.check()


def test_a_dry_run_lists_lost_objects_apart_from_pending_ones(world: World, reads: list[tuple[int, int]]) -> None:
    """A pending upload may be refused, and Kafka may have lost its records: then it would be accepted as lost, too."""
    world.die("*.manifest.json")
    gone, waits = world.bucket.pending_uploads("")
    world.bucket.abort_upload(gone.key, gone.upload_id)
    before = snapshot(world.bucket)
    reads.clear()
    output = world.on_topic("accept-loss", "--batch", "1", "--dry-run", "--json")
    assert (output.data["lost"], output.data["waiting"], reads) == ({"1": [gone.key]}, {"1": [waits.key]}, [])
    text = world.on_topic("accept-loss", "--batch", "1", "--dry-run").out
    assert text.index("an upload that is gone") < text.index(gone.key) < text.index("with a pending upload")
    assert text.index("or accepted as lost") < text.index(waits.key)
    check_unchanged(before, snapshot(world.bucket))


def test_a_dry_run_about_a_complete_batch_lists_all_that_would_be_recorded(world: World) -> None:
    """No run completes an upload of it any more, not even a pending one."""
    world.run("first")
    key = world.data_keys()[0]
    world.bucket.delete(key)
    decision = world.committer().log.read_manifest(1)
    assert decision is not None
    upload_id = next(entry.upload_id for entry in decision.objects if entry.key == key)
    world.bucket._uploads[upload_id] = world.bucket._uploads.pop(world.bucket.create_upload(key))
    output = world.on_topic("accept-loss", "--batch", "1", "--deleted", "--dry-run", "--json").data
    assert (output["lost"], output["waiting"]) == ({"1": [key]}, {"1": []})
    assert world.on_topic("accept-loss", "--batch", "1", "--deleted", "--json").data["lost"] == output["lost"]


def test_a_wrong_cluster_is_refused_with_the_command_for_one_that_is_gone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 2, both clusters; the printed command records the loss."""
    world.die("*.manifest.json")
    world.bucket.expire_uploads()
    monkeypatch.setattr(kafka_source, "KafkaSource", lambda *_, **__: SimulatedKafka(cluster_id="staging"))
    output = world.on_topic("accept-loss", "--batch", "1")
    assert (output.code, "'staging'" in output.err, "'simulated'" in output.err) == (2, True, True)
    (command,) = commands_in(output.err)
    assert command[-1] == "--other-cluster"
    assert len(world.data_keys()) == 0
    accepted = world.cli(*command)
    assert (accepted.code, "2 objects accepted as lost" in accepted.out) == (0, True)


@pytest.mark.parametrize("options", [("--offsets", "0:1-2"), ("--batch", "1", "--deleted")])
def test_other_cluster_is_only_for_batches_that_are_not_complete(world: World, options: tuple[str, ...]) -> None:
    """An option without effect is refused."""
    output = world.on_topic("accept-loss", *options, "--other-cluster")
    assert (output.code, "--batch without --deleted" in output.error) == (2, True)


def test_a_batch_whose_uploads_are_alive_is_completed_without_kafka(
    world: World, reads: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The topic is gone for good; the command of the error needs no Kafka cluster."""
    world.die("*.manifest.json")
    world.kafka.delete_topic(TOPIC)
    reads.clear()
    monkeypatch.delenv("KAFKA_S3_BOOTSTRAP_SERVER")
    output = world.on_topic("recover", "--decided-only", "--json")
    assert (output.code, output.data["finished"], len(world.data_keys()), reads) == (0, [1], 2, [])
    world.check()


def test_without_kafka_a_lost_upload_is_an_error_and_other_batches_are_completed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 2, the number of missing objects, their batch, and the options that are needed."""
    world.die("*.manifest.json")
    world.bucket.expire_uploads()
    world.fill(2)
    world.die("*02.manifest.json", "second", offsets="data_interval", window={0: (6, 8)})
    monkeypatch.delenv("KAFKA_S3_BOOTSTRAP_SERVER")
    output = world.on_topic("recover", "--decided-only")
    assert (output.code, len(world.data_keys())) == (2, 1)
    assert "--kafka-conn-id" in output.err
    assert "batch 1 of topic 'orders' is decided, and 2 of its objects have no upload any more" in output.error
    assert world.on_topic("status", "--json").data["topics"]


def test_the_printed_command_completes_what_was_decided_of_a_deleted_topic(world: World) -> None:
    """Run as it is printed."""
    world.die("*.manifest.json")
    world.kafka.delete_topic(TOPIC)
    refused = world.on_topic("recover")
    assert refused.code == 2
    (command,) = commands_in(refused.err)
    assert command[0:1] + command[-1:] == ["recover", "--decided-only"]
    assert world.cli(*command).code == 0
    assert len(world.data_keys()) == 2
    world.check()
