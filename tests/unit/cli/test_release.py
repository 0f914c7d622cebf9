"""``kafka-s3 release``: a topic of which nothing is landed is given free, and is then landed once, by one pipeline."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable

import pytest

from airflow_provider_kafka_s3.documents import addresses
from airflow_provider_kafka_s3.exceptions import ConfigurationError, PipelineConflictError, message_of
from airflow_provider_kafka_s3.storage.port import ObjectStore
from airflow_provider_kafka_s3.testing.invariants import check_unchanged, snapshot
from airflow_provider_kafka_s3.testing.stores import FaultyStore, Request, SimulatedCrash
from tests.unit.cli.conftest import PIPELINE, TOPIC, TOPICS_DIR, World, commands_in

TYPO = "ordres-to-lake"
ALL = ("--bucket", "lake", "--topics-dir", TOPICS_DIR)


def release(world: World, store: ObjectStore | None = None, pipeline: str = TYPO) -> None:
    """As the command does it, in a process of its own."""
    world.pipeline(store, pipeline=pipeline).release(reason="typo", operator="me")


def check_landed_once(world: World, by: str = PIPELINE) -> None:
    """Every record is landed once, and only by one pipeline."""
    world.check(pipeline=by)
    logs = [addresses.control_prefix(TOPICS_DIR, name, TOPIC) for name in (TYPO, PIPELINE)]
    landed = {log for log in logs for info in world.bucket.list(log) if b'"commit"' in body_of(world, info.key)}
    assert landed == {addresses.control_prefix(TOPICS_DIR, by, TOPIC)}


def body_of(world: World, key: str) -> bytes:
    """The bytes of an object."""
    stored = world.bucket.get(key)
    assert stored is not None
    return stored.body


@pytest.mark.parametrize("died_at", ["*/_owners/*", "*/marker.json", "*/runs/*", "*.plan.json"])
def test_a_topic_whose_first_run_has_failed_is_landed_by_another_pipeline(world: World, died_at: str) -> None:
    """By the command that the error of the other pipeline prints, wherever the first run has ended."""
    world.die(died_at, pipeline=TYPO)
    with pytest.raises(PipelineConflictError, match="belongs to pipeline 'ordres-to-lake'") as refused:
        world.run("right")
    (command,) = commands_in(message_of(refused.value))
    assert command[0] == "release"
    before = snapshot(world.bucket)
    assert world.cli(*command, "--dry-run").code == 0
    check_unchanged(before, snapshot(world.bucket))
    output = world.cli(*command)
    assert (output.code, f"topic {TOPIC} is released" in output.out) == (0, True), output.err
    assert world.cli(*command).code == 0
    world.run("right")
    assert world.cli(*command).code == 0
    check_landed_once(world)
    assert [line.split()[0] for line in world.cli("list", *ALL).out.splitlines()[1:]] == [PIPELINE]


def test_a_topic_of_which_something_is_landed_is_not_released(world: World) -> None:
    """The command changes nothing, and runs continue; exit code 2."""
    world.run("first")
    before = snapshot(world.bucket)
    output = world.on_topic("release")
    assert (output.code, "has landed records of it in batch 1" in output.error) == (2, True)
    check_unchanged(before, snapshot(world.bucket))
    world.fill(2)
    world.run("second")
    world.check()
    # Neither by its decision alone: its objects may become visible at any time.
    world.kafka.create_topic("clicks")
    world.kafka.append("clicks", 0, b"1")
    world.die("*.manifest.json", topic="clicks")
    output = world.cli("release", *ALL, "--pipeline", PIPELINE, "--topic", "clicks")
    assert (output.code, "in batch 1" in output.error) == (2, True)


def test_another_pipelines_topic_is_not_released(world: World) -> None:
    """Nor one that is not there."""
    world.die("*.plan.json", pipeline=TYPO)
    output = world.on_topic("release")
    assert (output.code, f"did you mean {TYPO!r}?" in output.error) == (2, True)
    with pytest.raises(PipelineConflictError, match=f"belongs to pipeline {TYPO!r}"):
        release(world, pipeline=PIPELINE)


def test_the_pipeline_that_has_released_a_topic_says_so(world: World) -> None:
    """To its runs and to every command, which change nothing."""
    for died_at in ("*/_owners/*", "*.plan.json"):
        world.empty_bucket()
        world.die(died_at, pipeline=TYPO)
        release(world)
        before = snapshot(world.bucket)
        with pytest.raises(PipelineConflictError, match="has released topic 'orders' by operator:me"):
            world.run("again", pipeline=TYPO)
        abandon = ("abandon", "--batch", "2", "--release", "debt")
        for name, *more in (("status",), ("recover",), ("repair",), ("gc",), ("reset",), abandon):
            assert world.cli(name, *ALL, "--pipeline", TYPO, "--topic", TOPIC, *more).code == 2, name
        check_unchanged(before, snapshot(world.bucket))


def test_a_released_name_can_be_used_again_without_its_documents(world: World) -> None:
    """As its error says."""
    world.die("*.plan.json", pipeline=TYPO)
    release(world)
    for info in list(world.bucket.list(addresses.control_prefix(TOPICS_DIR, TYPO, TOPIC))):
        world.bucket.delete(info.key)
    world.run("again", pipeline=TYPO)
    check_landed_once(world, TYPO)


class Between:
    """Does something before one request to a store: what others do while a process is stopped there."""

    def __init__(self, request: int, others: Callable[[], None]) -> None:
        self.request, self.others, self.happened = request, others, False

    def __call__(self, request: Request) -> None:
        if request.number == self.request:
            self.happened = True
            self.others()


def lands(world: World, pipeline: str, run: str, store: ObjectStore | None = None) -> bool:
    """Whether a run of the pipeline lands the topic; False if it is another pipeline's by then."""
    try:
        world.run(run, pipeline=pipeline, store=store)
    except PipelineConflictError:
        return False
    return True


def test_a_release_at_any_moment_of_a_run_leaves_the_topic_to_one_pipeline(world: World) -> None:
    """The release, and a run of another pipeline behind it, at each request of the run of the first one."""

    def others() -> None:
        with contextlib.suppress(
            ConfigurationError
        ):  # before the first run owns the topic, or when something is landed
            release(world)
        lands(world, PIPELINE, "right")

    owners = []
    for request in itertools.count(1):
        world.empty_bucket()
        between = Between(request, others)
        by = TYPO if lands(world, TYPO, "wrong", FaultyStore(world.bucket, choose=between)) else PIPELINE
        if not between.happened:
            break
        check_landed_once(world, by)
        owners.append(by)
    assert (len(owners) > 20, set(owners)) == (True, {TYPO, PIPELINE})


@pytest.mark.parametrize("dies", [False, True])
def test_a_run_at_any_moment_of_a_release_leaves_the_topic_to_one_pipeline(world: World, dies: bool) -> None:
    """Runs of both pipelines at each request of a release, which then goes on, or has died and is repeated."""

    def others() -> None:
        lands(world, TYPO, "wrong")
        lands(world, PIPELINE, "right")
        if dies:
            raise SimulatedCrash

    owners = []
    for request in itertools.count(1):
        world.empty_bucket()
        world.die("*.plan.json", pipeline=TYPO)
        between = Between(request, others)
        with contextlib.suppress(ConfigurationError, SimulatedCrash):
            release(world, FaultyStore(world.bucket, choose=between))
        if not between.happened:
            break
        with contextlib.suppress(ConfigurationError):
            release(world)
        by = PIPELINE if lands(world, PIPELINE, "right") else TYPO
        check_landed_once(world, by)
        owners.append(by)
    assert (len(owners) > 5, set(owners)) == (True, {TYPO, PIPELINE})
