"""Spark with secured services: Kafka over TLS with every kind of login, missing rights, and sessions that end."""

from __future__ import annotations

import json
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_kafka_s3.config import MIB, JsonLines, Layout, RawBytes
from airflow_provider_kafka_s3.storage.credentials import AssumedRole, S3Credentials
from dev.kafka_broker import KafkaBroker, Message
from dev.role_sessions import RoleSessions
from dev.s3_server import ThreadedS3Server
from tests.conftest import CLIENT_SECRET, KEY_PASSWORD, PASSWORD, USER
from tests.spark.pipeline import MakePipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# pyspark leaves the socket for the rows of collect() open until it is garbage-collected.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

BASE = S3Credentials(access_key_id="AKIABASE", secret_access_key="canary-of-the-base-key")


@pytest.mark.parametrize("way", ["scram", "plain", "certificate", "token"])
def test_every_kind_of_login_lands_every_byte(
    spark: SparkSession,
    secured: Mapping[str, Mapping[str, object]],
    kafka_broker: KafkaBroker,
    make_topic: Callable[..., str],
    make_pipeline: MakePipeline,
    caplog: pytest.LogCaptureFixture,
    way: str,
) -> None:
    """Planner and Spark log in with one set of settings, and nothing of it is in the bucket."""
    topic = make_topic(2)
    sent = [Message(b"%d \x00\xff" % n, partition=n % 2, timestamp=n) for n in range(500)]
    kafka_broker.produce(topic, sent)
    pipeline = make_pipeline(kafka=secured[way], layout=Layout(format=RawBytes()))
    with caplog.at_level(logging.INFO):
        pipeline.land(spark, topic)

    assert pipeline.lines(topic) == Counter(m.value for m in sent)
    stored = [pipeline.store.get(info.key) for info in pipeline.store.list("topics/_kafka_s3/")]
    shown = caplog.text + "".join(str(found and found.body) for found in stored)
    key = str(secured["certificate"]["ssl.key.pem"]).splitlines()[1]
    assert not any(secret in shown for secret in (PASSWORD, CLIENT_SECRET, KEY_PASSWORD, key))


def test_a_missing_right_to_read_is_terminal_and_reported_soon(
    spark: SparkSession,
    secured: Mapping[str, Mapping[str, object]],
    kafka_broker: KafkaBroker,
    make_topic: Callable[..., str],
    make_pipeline: MakePipeline,
) -> None:
    """With the right to DESCRIBE the plan succeeds; Spark is refused, nothing is decided, the error has the remedy."""
    topic = make_topic(1)
    kafka_broker.produce(topic, [Message(b"{}", partition=0)])
    kafka_broker.allow(topic, USER, "DESCRIBE")
    pipeline = make_pipeline(kafka=secured["scram"], layout=Layout(format=JsonLines()))
    began = time.monotonic()

    outcome = pipeline.execute(spark, topic, run="run")[topic]

    assert (outcome.status, outcome.kind) == ("error", "access_denied")
    assert "may READ the topic" in str(outcome.message)
    assert pipeline.decision(topic) is None
    assert time.monotonic() - began < 90


def test_a_task_outlives_the_session_it_began_with(
    spark: SparkSession,
    kafka_broker: KafkaBroker,
    make_topic: Callable[..., str],
    make_pipeline: MakePipeline,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """After a part S3 responds ExpiredToken; no upload is repeated, and driver and worker each begin a session."""
    topic = make_topic(1)
    sent = [Message(json.dumps({"n": n, "x": "x" * 1_000}).encode(), partition=0, timestamp=n) for n in range(14_000)]
    kafka_broker.produce(topic, sent)
    gates: list[RoleSessions] = []

    def middleware(application: Any) -> RoleSessions:
        gates.append(RoleSessions(application, trusted=[BASE.access_key_id]))
        return gates[0]

    with ThreadedS3Server(buckets=["lake-of-roles"], middleware=middleware) as server:
        role = AssumedRole(
            arn="arn:aws:iam::1:role/lake", session_name="tests", base=BASE, sts_endpoint=server.endpoint
        )
        stale = S3Credentials(access_key_id="ASIASTALE", secret_access_key="x", expires_at=1.0, role=role)
        pipeline = make_pipeline(
            endpoint=server.endpoint,
            bucket="lake-of-roles",
            layout=Layout(format=JsonLines(), part_size=5 * MIB),
            credentials=stale,
        )
        (sessions,) = gates
        plan = pipeline.plan(topic, "run")
        sessions.end_all_after("PUT", f"/{topic}/")
        with caplog.at_level(logging.WARNING):
            result = pipeline.job(pipeline.spec({topic: plan}, "run", "unused"), spark)

        assert result.succeeded, result
        assert sessions.turned_away >= 1
        assert len(sessions.given) >= 3
        assert pipeline.lines(topic) == Counter(m.value for m in sent)
        assert list(pipeline.store.pending_uploads("")) == []
        (entry,) = pipeline.objects(topic)
        assert len(entry.parts) == 3
        control = [pipeline.store.get(info.key) for info in pipeline.store.list("topics/_kafka_s3/")]
        shown = caplog.text + "".join(str(found and found.body) for found in control)
        assert not any(secret in shown for secret in (BASE.secret_access_key, "secret-of-ASIA", "token-of-ASIA"))
