"""A replay that is continued, or planned twice, sends what is in its stored plan, behind what was sent."""

from __future__ import annotations

import dataclasses
import datetime as dt
from typing import Any

import msgspec
import pytest

from airflow_provider_kafka_s3.config import Envelope, JsonLines, Rotation
from airflow_provider_kafka_s3.documents.codec import encode
from airflow_provider_kafka_s3.documents.replay import ReplayPlan
from airflow_provider_kafka_s3.exceptions import ConfigurationError, TopicRecreatedError
from airflow_provider_kafka_s3.replay import run
from airflow_provider_kafka_s3.replay.plan import plan_replay
from tests.unit.batch.simulated_topic import Topic
from tests.unit.replay.cluster import PARTITIONS, RECORDS, Replay, Target
from tests.unit.replay.landed import TARGET, layout_of, planned, read

ALL = dict.fromkeys(range(PARTITIONS), RECORDS)
START = 1_700_000_000_000


def at(number: int) -> dt.datetime:
    """The time of a record."""
    return dt.datetime.fromtimestamp((START + 1000 * number) / 1000, dt.UTC)


@pytest.mark.parametrize(
    "selection", [{"key": b"k1"}, {"since": at(1), "until": at(10)}, {"offsets": {0: (1, 11)}}], ids=repr
)
def test_a_selection_is_continued_behind_each_of_its_records(selection: dict[str, Any]) -> None:
    """What was sent are selected records, so it is not counted by the records of objects."""
    topic = Topic(layout_of(JsonLines(), content=Envelope(), rotation=Rotation(flush_size=4)))
    for number in range(12):
        topic.append(b"%d" % number, key=b"k%d" % (number % 2), timestamp=START + 1000 * number)
    topic.land()
    plan = planned(topic, **selection)
    whole = [record.offset for record in read(topic, plan, **selection)]
    assert whole
    for sent in range(len(whole) + 1):
        assert [record.offset for record in read(topic, plan, skip=sent, **selection)] == whole[sent:], sent


@pytest.fixture
def replay(monkeypatch: pytest.MonkeyPatch) -> Replay:
    """A landed topic, and a cluster."""
    return Replay(monkeypatch)


@pytest.mark.parametrize(
    "other",
    [
        {"key": b"k"},
        {"until": at(0)},
        {"offsets": {0: (0, 1)}},
        {"partitions": (0,)},
        {"without": ("lost",)},
        {"at": 7},
    ],
    ids=lambda other: next(iter(other)),
)
def test_an_id_with_other_settings_is_refused(replay: Replay, other: dict[str, Any]) -> None:
    """Also once it has ended: else it would seem that these records were sent."""
    assert replay.replay().sent == ALL
    with pytest.raises(ConfigurationError, match=rf"'r' was planned before with other settings: {next(iter(other))}\."):
        replay.replay(**other)
    replay.require_all_sent_once()


def test_of_two_that_plan_the_same_replay_both_send_what_is_stored(
    replay: Replay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one was faster: its plan has another name in Kafka, and less in it."""
    others: list[ReplayPlan] = []

    def plan_late(*args: Any) -> ReplayPlan:
        plan = plan_replay(*args)
        others.append(msgspec.structs.replace(plan, nonce="0" * 8, partitions={1: plan.partitions[1]}))
        replay.topic.bucket.put_new(replay.key("plan"), encode(others[0], {}))
        return plan

    monkeypatch.setattr(run, "plan_replay", plan_late)
    assert replay.replay().sent == {1: RECORDS}
    assert list(replay.cluster.sent) == [1]
    assert replay.topic.bucket.get(replay.key(f"end-{'0' * 8}-1")) is not None


@pytest.mark.parametrize(("other", "error"), [("topic_id", TopicRecreatedError), ("cluster_id", ConfigurationError)])
def test_a_replay_is_not_continued_to_another_topic_of_the_name(
    replay: Replay, monkeypatch: pytest.MonkeyPatch, other: str, error: type[Exception]
) -> None:
    """What was sent is in the one that was there before, or in another cluster."""
    assert replay.replay().sent == ALL
    another = dataclasses.replace(TARGET, **{other: "another"})
    monkeypatch.setattr(Target, "describe", lambda *_: another)
    with pytest.raises(error):
        replay.replay()
