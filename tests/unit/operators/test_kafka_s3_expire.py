"""The operator that deletes what is no longer needed; what it deletes is tested with the engine."""

from __future__ import annotations

import datetime as dt
import time
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import DAG, AirflowFailException  # noqa: TID253 - the task raises it

from airflow_provider_kafka_s3 import KafkaS3ExpireOperator, Landed
from airflow_provider_kafka_s3.airflow import connections
from airflow_provider_kafka_s3.batch.expiry import read_expiry
from airflow_provider_kafka_s3.config import Hourly, JsonLines, Layout
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.pipeline import TopicPipeline
from airflow_provider_kafka_s3.retry import Retrier
from airflow_provider_kafka_s3.storage.durable import DurableStore
from airflow_provider_kafka_s3.storage.s3 import S3Settings
from tests.unit.batch.simulated_topic import Topic

try:
    from airflow.serialization.serialized_objects import DagSerialization
except ImportError:  # Airflow 2
    from airflow.serialization.serialized_objects import SerializedDAG as DagSerialization

REQUIRED: dict[str, Any] = {
    "task_id": "expire",
    "bucket": "lake",
    "pipeline": "orders-to-lake",
    "topics": "orders",
    "topics_dir": "lake",
    "older_than": dt.timedelta(days=7),
}
CONTEXT: Any = {"ti": SimpleNamespace(dag_id="nightly", task_id="expire", run_id="scheduled", map_index=-1)}


@pytest.fixture
def topic(monkeypatch: pytest.MonkeyPatch) -> Topic:
    """A topic with two batches, which the connections lead to, ten days later."""
    made = Topic(Layout(topics_dir="lake", format=JsonLines(), partitioner=Hourly()))
    for n in range(2):
        made.append(b'{"n": %d}' % n, timestamp=n)
        made.land(str(n))
    monkeypatch.setattr(connections, "s3_access", lambda _: SimpleNamespace(settings=S3Settings(), credentials=None))
    store = DurableStore(made.bucket, Retrier())
    monkeypatch.setattr("airflow_provider_kafka_s3.batch.location.open_bucket", lambda *_: store)
    clock = TopicPipeline.__init__.__kwdefaults__
    assert clock is not None
    monkeypatch.setitem(clock, "now", lambda: time.time() + 10 * 86_400)
    return made


def test_a_run_records_and_a_later_one_deletes(bench: object, topic: Topic) -> None:
    """What was done is returned by topic; the record has the task as the one who decided."""
    first = KafkaS3ExpireOperator(**REQUIRED, reason="a week").execute(CONTEXT)
    size = sum(map(len, topic.objects().values()))
    assert first == {
        "orders": {
            "recorded": 2,
            "recorded_size": size,
            "deleted": 0,
            "deleted_size": 0,
            "waiting": 2,
            "refused": 0,
            "kept": {},
        }
    }
    stored = read_expiry(topic.pipeline.log)
    assert stored is not None
    (waiting,) = stored[0].waiting
    assert (waiting.operator, waiting.reason) == ("nightly.expire scheduled", "a week")
    again = KafkaS3ExpireOperator(**REQUIRED, grace=dt.timedelta()).execute(CONTEXT)
    assert (again["orders"]["recorded"], len(topic.objects())) == (0, 2)
    clock = TopicPipeline.__init__.__kwdefaults__
    assert clock is not None
    clock["now"] = lambda: time.time() + 12 * 86_400
    last = KafkaS3ExpireOperator(**REQUIRED).execute(CONTEXT)
    assert (last["orders"]["deleted"], topic.objects()) == (2, {})


def test_what_another_pipeline_lacks_is_kept_and_named(bench: object, topic: Topic) -> None:
    """The task succeeds."""
    landed = Landed(pipeline="daily", topics_dir="compacted")
    returned = KafkaS3ExpireOperator(**{**REQUIRED, "older_than": None}, landed_in=landed).execute(CONTEXT)
    why = "pipeline 'daily' below 'compacted' has not begun to land the topic"
    assert returned["orders"]["kept"] == {why: [1, 2]}


def test_a_topic_that_fails_does_not_stop_the_others(bench: object, topic: Topic) -> None:
    """The error names it."""
    topics = ["unknown", "orders"]
    with pytest.raises(AirflowFailException, match="unknown"):
        KafkaS3ExpireOperator(**{**REQUIRED, "topics": topics}, grace=dt.timedelta()).execute(CONTEXT)
    assert topic.objects() == {}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"older_than": None}, "it is not said which objects are no longer needed"),
        ({"older_than": dt.timedelta(days=-1)}, "cannot be negative"),
        ({"grace": dt.timedelta(days=-1)}, "cannot be negative"),
        ({"landed_in": {"pipline": "x"}}, "pipline"),
        ({"topics": ["a.b", "a_b"], "tables": ["db.{topic}"]}, "topics 'a.b' and 'a_b' have one table"),
        ({"tables": "db.orders"}, r"tables='db.orders' must be a list"),
        ({"older_then": 3}, "has no parameter 'older_then'; did you mean 'older_than'"),
    ],
)
def test_a_wrong_parameter_fails_when_the_dag_is_parsed(bench: object, given: dict[str, Any], message: str) -> None:
    """With the parameter."""
    with pytest.raises(ConfigurationError, match=message):
        KafkaS3ExpireOperator(**{**REQUIRED, **given})


def test_a_dag_with_it_can_be_stored(bench: object) -> None:
    """As Airflow stores DAGs."""
    with DAG("dag", schedule=None, start_date=dt.datetime(2026, 1, 1, tzinfo=dt.UTC)) as dag:
        KafkaS3ExpireOperator(**REQUIRED, landed_in=Landed(pipeline="daily", topics_dir="compacted"))
    assert DagSerialization.to_dict(dag)
