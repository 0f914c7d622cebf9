"""Spark with secured services: Kafka over TLS with every kind of login, missing rights, and sessions that end."""

from __future__ import annotations

import base64
import json
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_kafka_s3.config import MIB, JsonLines, Layout, RawBytes, Upload
from airflow_provider_kafka_s3.storage.credentials import AssumedRole, S3Credentials, S3Secrets
from airflow_provider_kafka_s3.storage.s3 import make_client
from dev.forward_proxy import ForwardProxy
from dev.kafka_broker import KafkaBroker, Message
from dev.role_sessions import RoleSessions
from dev.s3_server import ThreadedS3Server
from tests.conftest import CLIENT_SECRET, KEY_PASSWORD, PASSWORD, USER
from tests.spark.pipeline import MakePipeline, s3_settings

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


def test_a_job_stores_what_it_writes_with_a_customer_key_through_a_proxy(
    spark: SparkSession,
    kafka_broker: KafkaBroker,
    make_topic: Callable[..., str],
    make_pipeline: MakePipeline,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Driver and workers have the key and the login; the server refuses every read without the key."""
    from botocore.exceptions import ClientError

    topic = make_topic(2)
    sent = [Message(b'{"n": %d}' % n, partition=n % 2, timestamp=n) for n in range(100)]
    kafka_broker.produce(topic, sent)
    key, password = base64.b64encode(b"canary".ljust(32, b"x")).decode(), "canary-of-the-proxy"
    server = ThreadedS3Server(buckets=["lake-of-keys"])
    with server, ForwardProxy(user="me", password=password) as proxy:
        tags = Upload(tags={"team": "lake"}, offset_tags=True).object_tags
        pipeline = make_pipeline(
            endpoint=server.endpoint,
            bucket="lake-of-keys",
            layout=Layout(format=JsonLines(), tags=tags),
            stored={
                "proxy": proxy.address,
                "storage_class": "STANDARD_IA",
                "secrets": S3Secrets(customer_key=key, proxy_user="me", proxy_password=password),
            },
        )
        with caplog.at_level(logging.INFO):
            pipeline.land(spark, topic)
        assert pipeline.lines(topic) == Counter(m.value for m in sent)
        assert {method for method, url in proxy.seen if f"/{topic}/" in url} >= {"POST", "PUT"}
        plain = make_client(s3_settings(server.endpoint), pipeline.credentials)
        keys = [info.key for info in pipeline.store.list("")]
        for name in keys:
            with pytest.raises(ClientError, match="InvalidRequest"):
                plain.get_object(Bucket="lake-of-keys", Key=name)
        found = [plain.get_object_tagging(Bucket="lake-of-keys", Key=name)["TagSet"] for name in pipeline.data_keys()]
        assert [{tag["Key"]: tag["Value"] for tag in of_object} for of_object in found] == [
            {"team": "lake", "startOffset": "0", "endOffset": "49", "recordCount": "50"}
        ] * 2
        control = [pipeline.store.get(name) for name in keys if "_kafka_s3" in name]
        shown = caplog.text + "".join(str(document and document.body) for document in control)
        assert key not in shown
        assert "canary" not in shown
