"""Topics with more objects than a client has connections, over HTTP."""

from __future__ import annotations

import logging

import pytest

from airflow_provider_kafka_s3.batch.encode import write_slice
from airflow_provider_kafka_s3.batch.rebuilt_objects import object_builder
from airflow_provider_kafka_s3.batch.request import RunRequest, TopicResult
from airflow_provider_kafka_s3.config import MIB, Layout, RawBytes, Rotation, Upload
from airflow_provider_kafka_s3.documents.plan import Plan
from airflow_provider_kafka_s3.pipeline import TopicPipeline
from airflow_provider_kafka_s3.retry import Retrier
from airflow_provider_kafka_s3.storage.durable import DurableStore
from airflow_provider_kafka_s3.storage.s3 import S3Credentials, S3Settings, S3Store, make_client
from airflow_provider_kafka_s3.storage.uploads import UploadPool
from airflow_provider_kafka_s3.submit.topic_runs import land_topics
from airflow_provider_kafka_s3.testing.kafka import SimulatedKafka
from dev.s3_server import S3Server

LAYOUT = Layout(format=RawBytes(), rotation=Rotation(flush_size=1), part_size=5 * MIB, topics_dir="t")
OBJECTS = 66


def test_two_topics_of_many_objects_land_without_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """The threads of both topics share the client's 64 connections: none is opened in vain, no warning is logged."""
    kafka = SimulatedKafka()
    for topic in ("films", "books"):
        kafka.create_topic(topic)
        for n in range(OBJECTS):
            kafka.append(topic, 0, b"%d" % n, n)
    with S3Server(buckets=["lake"]) as server:
        settings = S3Settings(endpoint_url=server.endpoint, region="us-east-1")
        client = make_client(settings, S3Credentials(access_key_id="any", secret_access_key="any"))
        store = DurableStore(S3Store(client, "lake"), Retrier())
        build = object_builder(store, Upload(memory=12 * MIB))
        pipelines = {
            topic: TopicPipeline(store, kafka, topics_dir="t", pipeline="p", topic=topic, build=build)
            for topic in ("films", "books")
        }
        request = RunRequest(run="r", offsets="incremental", layout=LAYOUT, starting="earliest")

        def submit(plans: object) -> dict[str, Exception]:
            assert isinstance(plans, dict)
            for topic, plan in plans.items():
                assert isinstance(plan, Plan)
                with UploadPool(store, part_size=5 * MIB, threads=2) as pool:
                    rows = [
                        write_slice(plan, s, kafka.read(topic, s.partition, s.start, s.end, plan.isolation), pool.open)
                        for s in plan.slices
                    ]
                # The decision alone: what follows is done for both topics at once.
                pipelines[topic].committer.decide(plan, rows, run="r")
            return {}

        with caplog.at_level(logging.WARNING):
            landed = land_topics({topic: pipeline.run(request) for topic, pipeline in pipelines.items()}, submit)
        assert landed.errors == {}
        assert all(isinstance(r, TopicResult) and r.status == "ok" for r in landed.results.values())
        assert sum("/_kafka_s3/" not in info.key for info in store.list("t/")) == 2 * OBJECTS
    assert [record.getMessage() for record in caplog.records] == []
