"""Verify and restore over HTTP: the product's own client, threads, formats and uploads."""

from __future__ import annotations

import random
from typing import Any

import pytest

from airflow_provider_kafka_s3.batch.rebuilt_objects import object_builder
from airflow_provider_kafka_s3.batch.request import RunRequest, TopicResult
from airflow_provider_kafka_s3.config import MIB, Hourly, Layout, RawBytes, Upload
from airflow_provider_kafka_s3.exceptions import ForeignObjectError, MissingObjectError
from airflow_provider_kafka_s3.inspect import verify as inspection
from airflow_provider_kafka_s3.pipeline import TopicPipeline
from airflow_provider_kafka_s3.retry import Retrier
from airflow_provider_kafka_s3.storage.durable import DurableStore
from airflow_provider_kafka_s3.storage.s3 import S3Credentials, S3Settings, S3Store, make_client
from airflow_provider_kafka_s3.testing.invariants import check_bucket
from airflow_provider_kafka_s3.testing.kafka import SimulatedKafka
from dev.s3_server import S3Server

HOUR = 3_600_000
LAYOUT = Layout(format=RawBytes(separator=""), partitioner=Hourly(), part_size=5 * MIB, topics_dir="t")


def run(store: DurableStore, kafka: SimulatedKafka, key: str, **settings: Any) -> TopicResult:
    """A run with the product's tasks, in this process."""
    pipeline = TopicPipeline(
        store, kafka, topics_dir="t", pipeline="p", topic="films", build=object_builder(store, Upload(memory=12 * MIB))
    )
    return pipeline.land(RunRequest(run=key, offsets="incremental", layout=LAYOUT, starting="earliest", **settings))


def test_objects_of_many_parts_and_of_one_are_read_back_and_restored_over_http(monkeypatch: pytest.MonkeyPatch) -> None:
    """In ranges, by several threads; what was deleted comes back byte for byte, what was replaced stays."""
    monkeypatch.setattr(inspection, "_PIECE", MIB)
    kafka = SimulatedKafka()
    kafka.create_topic("films", 2)
    noise = random.Random(7)
    for hour in range(4):
        for partition in (0, 1):
            for _ in range(6 if hour == 0 else 1):
                kafka.append("films", partition, noise.randbytes(MIB if hour == 0 else 100), hour * HOUR)
    with S3Server(buckets=["films"]) as server:
        client = make_client(
            S3Settings(endpoint_url=server.endpoint, region="us-east-1"),
            S3Credentials(access_key_id="any", secret_access_key="any-secret"),
        )
        store = DurableStore(S3Store(client, "films"), Retrier())
        landed = run(store, kafka, "first")
        objects = {info.key: info for info in store.list("t/films/")}
        assert len(objects) == 8

        found = run(store, kafka, "other", action="verify").verification
        assert found is not None
        assert (found.objects, found.size) == (8, sum(info.size for info in objects.values()))
        assert found.size == landed.batches[0].size > 12 * MIB

        large, small, foreign = [key for key in sorted(objects) if "+0+" in key][:3]
        before = {key: client.get_object(Bucket="films", Key=key)["Body"].read() for key in (large, small)}
        for key in before:
            client.delete_object(Bucket="films", Key=key)
        with pytest.raises(MissingObjectError, match="2 objects"):
            run(store, kafka, "other", action="verify")
        metadata = client.head_object(Bucket="films", Key=foreign)["Metadata"]
        original = client.get_object(Bucket="films", Key=foreign)["Body"].read()
        client.put_object(Bucket="films", Key=foreign, Body=b"x" * len(original), Metadata=metadata)
        with pytest.raises(ForeignObjectError, match=r"CRC32 .* 2 other objects were written again"):
            run(store, kafka, "other", action="restore")
        assert {key: client.get_object(Bucket="films", Key=key)["Body"].read() for key in before} == before
        assert client.get_object(Bucket="films", Key=foreign)["Body"].read() == b"x" * len(original)

        client.delete_object(Bucket="films", Key=foreign)
        found = run(store, kafka, "other", action="restore").verification
        assert found is not None
        assert (found.restored, found.objects) == ((foreign,), 8)
        assert client.get_object(Bucket="films", Key=foreign)["Body"].read() == original
        check_bucket(store.store, topics_dir="t", pipeline="p", topic="films", recovered=True, decoder=values_of(kafka))


def values_of(kafka: SimulatedKafka) -> Any:
    """Splits an object without separators into the records that Kafka has."""
    known = {
        value for partition in kafka.all_records()[kafka.topic_id("films")].values() for value in partition.values()
    }

    def decode(key: str, body: bytes) -> list[bytes]:
        step = 100 if len(body) < MIB else MIB
        pieces = [body[at : at + step] for at in range(0, len(body), step)]
        assert set(pieces) <= known
        return pieces

    return decode
