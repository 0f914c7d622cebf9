"""A replay goes on with the topic that it was planned for, and no other."""

from __future__ import annotations

import dataclasses

import pytest

from airflow_provider_kafka_s3.config import Envelope, JsonLines
from airflow_provider_kafka_s3.exceptions import ConfigurationError, TopicRecreatedError
from airflow_provider_kafka_s3.replay.target import require_same_target
from tests.unit.batch.simulated_topic import Topic
from tests.unit.replay.landed import TARGET, layout_of, planned

CONFIG = {"bootstrap.servers": "prod:9092"}


@pytest.fixture
def topic() -> Topic:
    """A topic with a record."""
    topic = Topic(layout_of(JsonLines(), content=Envelope()))
    topic.append(b"{}", timestamp=1)
    topic.land()
    return topic


def test_another_cluster_is_refused_under_the_same_id(topic: Topic) -> None:
    """With both clusters, and what to do."""
    plan = planned(topic)
    require_same_target(CONFIG, plan, TARGET)
    elsewhere = dataclasses.replace(TARGET, cluster_id="another-cluster", topic_id="another-topic")
    with pytest.raises(ConfigurationError) as refused:
        require_same_target(CONFIG, plan, elsewhere)
    for part in ("id-of-cluster", "another-cluster", "prod:9092", "Nothing was sent", "use another id"):
        assert part in str(refused.value)


def test_a_target_that_was_created_again_is_refused_under_the_same_id(topic: Topic) -> None:
    """The progress is that of the deleted topic."""
    plan = planned(topic)
    with pytest.raises(TopicRecreatedError, match=r"'again' was deleted and created again since replay 'r' .* another"):
        require_same_target(CONFIG, plan, dataclasses.replace(TARGET, topic_id="another-topic"))


def test_brokers_without_ids_are_no_other_cluster(topic: Topic) -> None:
    """Nothing is compared that is not known."""
    require_same_target(CONFIG, planned(topic), dataclasses.replace(TARGET, topic_id=None, cluster_id=None))


def test_two_plans_with_one_id_have_no_name_in_common(topic: Topic) -> None:
    """Neither a consumer group nor a document: replays of other pipelines and buckets may have the same id."""
    first, second = planned(topic), planned(topic)
    assert first.name(0) != second.name(0)
    assert first.name(0).startswith("r-")
    assert first.document("end", 0) != second.document("end", 0)
