"""Changes in Kafka between the plan of a run and its end, with a real broker, Spark, and S3 over HTTP."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from airflow_provider_kafka_s3.batch.execute import execute_plan
from airflow_provider_kafka_s3.batch.request import TopicResult
from airflow_provider_kafka_s3.batch.roll_forward import roll_forward
from airflow_provider_kafka_s3.documents.plan import Plan
from airflow_provider_kafka_s3.exceptions import BatchLossError, DataLossError, TopicRecreatedError
from airflow_provider_kafka_s3.maintenance.accept_loss import accept_loss
from airflow_provider_kafka_s3.maintenance.recover import recover
from airflow_provider_kafka_s3.maintenance.reset import reset
from airflow_provider_kafka_s3.retry import Retrier, RetryPolicy
from airflow_provider_kafka_s3.storage.durable import DurableStore
from airflow_provider_kafka_s3.testing.invariants import read_source, snapshot
from dev.kafka_broker import KafkaBroker
from dev.s3_server import ThreadedS3Server
from tests.spark.paused_read import JSON, check, messages, more_than_held, outcome_of, paused_read, values
from tests.spark.pipeline import MakePipeline, Pipeline
from tests.spark.probes import Gate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# pyspark leaves the socket for the rows of collect() open until it is garbage-collected.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

MakeTopic = Callable[..., str]


def marker_lost(pipeline: Pipeline, topic: str) -> str:
    """The offsets that are recorded as lost."""
    marker = pipeline.log(topic).require_marker()[0]
    return str(marker.lost_in(marker.generation))


def test_retention_before_planning_is_an_error_that_writes_nothing_or_a_recorded_gap(
    kafka_broker: KafkaBroker, make_topic: MakeTopic, make_pipeline: MakePipeline
) -> None:
    """The error names the range and the command; with the policy skip, plan and marker record the gap."""
    topic = make_topic()
    pipeline = make_pipeline(layout=JSON)
    kafka_broker.produce(topic, sent := messages(60))
    held = read_source(pipeline.source, topic)
    kafka_broker.delete_records(topic, {0: 10})
    pipeline.land_here(topic, "first")
    kafka_broker.produce(topic, more := messages(40, label="more"))
    kafka_broker.delete_records(topic, {0: 75})

    with pytest.raises(DataLossError, match=rf"'{topic}': offsets 0: \[60, 75\).*accept-loss .*--offsets 0:60-75"):
        pipeline.land_here(topic, "second")
    assert pipeline.log(topic).read_plan(2) is None

    pipeline.settings["on_data_loss"] = "skip"
    result = pipeline.land_here(topic, "second")
    assert str(result.skipped) == "0: [60, 75)"
    assert str(pipeline.log(topic).require_plan(2)[0].skipped) == "0: [60, 75)"
    assert marker_lost(pipeline, topic) == "0: [60, 75)"
    assert pipeline.lines() == values(sent[10:]) + values(more[15:])
    (topic_id,) = held
    still = read_source(pipeline.source, topic)[topic_id][0]
    check(pipeline, topic, {topic_id: {0: {o: v for o, v in {**held[topic_id][0], **still}.items() if o >= 10}}})


@pytest.mark.newest_spark
def test_retention_during_a_read_is_an_error_whose_remedy_lands_the_rest(
    spark: SparkSession, kafka_broker: KafkaBroker, make_topic: MakeTopic, make_pipeline: MakePipeline
) -> None:
    """Records after the gap are not landed: nothing is decided, and the error has range, batch and commands."""
    topic = make_topic()
    kafka_broker.produce(topic, sent := more_than_held())
    gate = Gate(parts=0)
    with ThreadedS3Server(middleware=gate) as server:
        pipeline = make_pipeline(endpoint=server.endpoint, layout=JSON)
        with paused_read(pipeline, gate, spark, topic) as done:
            kafka_broker.delete_records(topic, {0: (kept := len(sent) - 100)})
        outcome = outcome_of(done)
        assert outcome.kind == "data_loss", outcome
        assert f"offsets are gone from Kafka: topic '{topic}', 0: [0, {kept}) of batch 1" in str(outcome.message)
        assert "--on-data-loss skip" in str(outcome.message)
        assert pipeline.decision(topic) is None
        assert pipeline.data_keys() == []

        recovered = recover(pipeline.committer(topic), operator="test", on_data_loss="skip")
        assert recovered.batches == (1, 2)
        assert marker_lost(pipeline, topic) == f"0: [0, {kept})"
        assert pipeline.lines() == values(sent[-100:])
        assert isinstance(again := pipeline.topic_run(topic, "run").advance(), TopicResult)
        assert str(again.skipped) == f"0: [0, {kept})"
        check(pipeline, topic, read_source(pipeline.source, topic))


@pytest.mark.newest_spark
def test_a_topic_recreated_during_a_read_is_never_mixed_with_the_old_one(
    spark: SparkSession, kafka_broker: KafkaBroker, make_topic: MakeTopic, make_pipeline: MakePipeline
) -> None:
    """Same name, same offsets, other records: nothing is decided; after a reset the new topic is landed."""
    topic = make_topic()
    kafka_broker.produce(topic, more_than_held())
    gate = Gate(parts=0)
    with ThreadedS3Server(middleware=gate) as server:
        pipeline = make_pipeline(endpoint=server.endpoint, layout=JSON)
        with paused_read(pipeline, gate, spark, topic) as done:
            kafka_broker.delete_topic(topic)
            kafka_broker.create_topic(topic)
            kafka_broker.produce(topic, fresh := more_than_held("new"))
        outcome = outcome_of(done)
        assert outcome.kind == "topic_recreated", outcome
        assert "kafka-s3 reset" in str(outcome.message)
        assert pipeline.decision(topic) is None
        assert pipeline.data_keys() == []

        assert reset(pipeline.committer(topic), operator="test")
        pipeline.land(spark, topic, run="next")
        assert pipeline.lines() == values(fresh)
        assert all("+g1" in key for key in pipeline.data_keys())
        check(pipeline, topic, read_source(pipeline.source, topic))


def test_a_topic_recreated_before_planning_stops_every_run_until_a_reset(
    kafka_broker: KafkaBroker, make_topic: MakeTopic, make_pipeline: MakePipeline
) -> None:
    """Also when the new topic has more records than were landed of the old one; nothing is written until then."""
    topic = make_topic()
    pipeline = make_pipeline(layout=JSON)
    kafka_broker.produce(topic, old := messages(20))
    source = read_source(pipeline.source, topic)
    pipeline.land_here(topic, "first")
    kafka_broker.delete_topic(topic)
    kafka_broker.create_topic(topic)
    kafka_broker.produce(topic, new := messages(50, label="new"))
    before = snapshot(pipeline.store.store)

    with pytest.raises(TopicRecreatedError, match=rf"topic '{topic}' was deleted and created again.*kafka-s3 reset"):
        pipeline.land_here(topic, "second")
    assert snapshot(pipeline.store.store) == before

    assert reset(pipeline.committer(topic), operator="test")
    assert not reset(pipeline.committer(topic), operator="test")
    pipeline.land_here(topic, "third")
    assert pipeline.lines() == values(old) + values(new)
    check(pipeline, topic, {**source, **read_source(pipeline.source, topic)})


@pytest.mark.parametrize("expired", [False, True])
def test_a_decided_batch_of_a_recreated_topic_is_completed_from_the_store_or_named_as_lost(
    kafka_broker: KafkaBroker, make_topic: MakeTopic, make_pipeline: MakePipeline, expired: bool
) -> None:
    """Its uploads are sufficient; an expired one cannot be replaced by records of another topic."""
    topic = make_topic(2)
    pipeline = make_pipeline(layout=JSON)
    # Short pauses of the wait for another process that may complete the missing object.
    pipeline.store = DurableStore(pipeline.store.store, Retrier(RetryPolicy(base=0.01)))
    kafka_broker.produce(topic, old := [dataclasses.replace(m, partition=n % 2) for n, m in enumerate(messages(40))])
    source = read_source(pipeline.source, topic)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("airflow_provider_kafka_s3.batch.commit.Committer.carry_out", lambda *_: None)
        attempt = pipeline.topic_run(topic, "run")
        plan = attempt.advance()
        assert isinstance(plan, Plan)
        execute_plan(attempt.committer, plan, run="run")
    kafka_broker.delete_topic(topic)
    kafka_broker.create_topic(topic, 2)
    kafka_broker.produce(
        topic, new := [dataclasses.replace(m, partition=n % 2) for n, m in enumerate(messages(60, label="new"))]
    )
    decided = pipeline.objects(topic)
    if expired:
        pipeline.store.abort_uploads([(decided[0].key, decided[0].upload_id)])

    with pytest.raises(TopicRecreatedError, match="kafka-s3 reset"):
        pipeline.land_here(topic, "next")
    committer = pipeline.committer(topic)
    landed = values(old)
    if expired:
        with pytest.raises(BatchLossError, match=rf"kafka-s3 accept-loss .*--batch 1.*{re.escape(decided[0].key)}"):
            roll_forward(committer)
        assert accept_loss(committer, 1, reason="topic made again", operator="test") == (decided[0].key,)
        landed = values(m for m in old if m.partition == 1)
    # The run that reported the new topic has completed everything it could.
    assert pipeline.lines() == landed
    assert reset(committer, operator="test")
    pipeline.land_here(topic, "after")
    assert pipeline.lines() == landed + values(new)
    check(pipeline, topic, {**source, **read_source(pipeline.source, topic)})
