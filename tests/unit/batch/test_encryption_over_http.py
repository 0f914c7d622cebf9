"""Batches in a bucket whose objects are encrypted with customer keys: the server refuses requests without the key."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import pytest

from airflow_provider_kafka_s3.batch.request import RunRequest, TopicResult
from airflow_provider_kafka_s3.config import JsonLines, Layout, SseKms, Upload
from airflow_provider_kafka_s3.exceptions import AccessDeniedError, ConfigurationError, message_of
from airflow_provider_kafka_s3.pipeline import TopicPipeline
from airflow_provider_kafka_s3.storage.bucket import open_bucket
from airflow_provider_kafka_s3.storage.credentials import S3Credentials, S3Secrets
from airflow_provider_kafka_s3.storage.s3 import S3Settings, make_client
from airflow_provider_kafka_s3.testing.kafka import SimulatedKafka
from airflow_provider_kafka_s3.testing.stores import Fault, FaultyStore, SimulatedCrash
from dev.s3_server import S3Server

ANY = S3Credentials(access_key_id="any", secret_access_key="any-secret")
ONE, TWO = (base64.b64encode(bytes([n]) * 32).decode() for n in (1, 2))
UPLOAD = Upload(tags={"team": "lake"}, offset_tags=True, storage_class="STANDARD_IA")


class Bucket:
    """One bucket of a server, and a topic that is landed there."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.kafka = SimulatedKafka()
        self.kafka.create_topic("orders", 2)
        self.client: Any = make_client(self.settings(), ANY)

    def settings(self, *keys: str, upload: Upload = UPLOAD) -> S3Settings:
        """With customer keys, the current one first."""
        secrets = S3Secrets(customer_key=next(iter(keys), None), earlier_customer_keys=keys[1:])
        return S3Settings(endpoint_url=self.endpoint, region="us-east-1", secrets=secrets).for_upload(upload)

    def run(
        self, settings: S3Settings, run: str, upload: Upload = UPLOAD, *, crash: bool = False, **more: Any
    ) -> TopicResult:
        """One run of a new process, which may crash after its decision."""
        layout = Layout(
            topics_dir="lake", format=JsonLines(), tags=upload.object_tags, encryption=settings.encryption_name
        )
        pipeline = self.pipeline(settings, upload)
        if crash:
            pipeline.log.store.store = store = FaultyStore(pipeline.log.store.store)
            store.inject(Fault.CRASH_AFTER, operation="put_new", key="*.manifest.json")
        return pipeline.land(RunRequest(run=run, offsets="incremental", layout=layout, starting="earliest", **more))

    def pipeline(self, settings: S3Settings, upload: Upload = UPLOAD) -> TopicPipeline:
        """A new process."""
        store = open_bucket("orders", settings, ANY)
        return TopicPipeline(store, self.kafka, topics_dir="lake", pipeline="p", topic="orders", upload=upload)

    def append(self, count: int = 3) -> None:
        """Append records to both partitions."""
        for n in range(count):
            for partition in (0, 1):
                self.kafka.append("orders", partition, b'{"n": %d}' % n)

    def names(self) -> list[str]:
        """All keys."""
        return [entry["Key"] for entry in self.client.list_objects_v2(Bucket="orders")["Contents"]]


@pytest.fixture
def bucket() -> Iterator[Bucket]:
    """An empty one."""
    with S3Server(buckets=["orders"]) as server:
        yield Bucket(server.endpoint)


def test_every_document_and_object_is_encrypted_with_the_customer_key_and_read_back(bucket: Bucket) -> None:
    """Nothing in the bucket can be read without the key; runs, checks and the status work with it."""
    from botocore.exceptions import ClientError

    bucket.append()
    settings = bucket.settings(ONE)
    assert bucket.run(settings, "a").wrote
    assert bucket.run(settings, "a").wrote is False
    assert bucket.run(settings, "b", action="verify").verified == 2
    status = bucket.pipeline(settings).status(last=1)
    assert status is not None
    assert status.lag == 0
    keys = bucket.names()
    assert sum("/_kafka_s3/" in key for key in keys) > 3
    for key in keys:
        with pytest.raises(ClientError, match="InvalidRequest"):
            bucket.client.get_object(Bucket="orders", Key=key)
    with pytest.raises(ConfigurationError, match="sse_customer_key"):
        bucket.run(bucket.settings(), "c")
    with pytest.raises(AccessDeniedError) as caught:
        bucket.run(bucket.settings(TWO), "c")
    assert "add that to sse_customer_earlier_keys" in message_of(caught.value)
    assert bucket.names() == keys


def test_a_rotated_key_encrypts_what_is_written_from_then_on(bucket: Bucket) -> None:
    """Earlier documents and objects are read with the earlier key. The plan has the digest of the key of its batch."""
    bucket.append()
    before, after = bucket.settings(ONE), bucket.settings(TWO, ONE)
    bucket.run(before, "a")
    old = set(bucket.names())
    bucket.append()
    assert bucket.run(after, "b").wrote
    assert bucket.run(after, "a").wrote is False
    assert bucket.run(after, "c", action="verify").verified == 4
    layouts = [bucket.pipeline(after).log.require_plan(batch)[0].layout for batch in (1, 2)]
    assert [layout and layout.encryption for layout in layouts] == [before.encryption_name, after.encryption_name]
    assert before.encryption_name != after.encryption_name
    now = open_bucket("orders", bucket.settings(TWO), ANY)
    for key in set(bucket.names()) - old:
        assert now.get(key) is not None
    marker = "lake/_kafka_s3/p/orders/marker.json"
    assert now.get(marker) is not None


def test_an_open_batch_is_finished_after_a_rotation(bucket: Bucket) -> None:
    """Its uploads have the earlier key, and are completed with it."""
    bucket.append()
    before, after = bucket.settings(ONE), bucket.settings(TWO, ONE)
    with pytest.raises(SimulatedCrash):
        bucket.run(before, "a", crash=True)
    assert not [key for key in bucket.names() if key.startswith("lake/orders/")]
    bucket.pipeline(after).roll_forward()
    assert bucket.run(after, "b", action="verify").verified == 2
    objects = [key for key in bucket.names() if key.startswith("lake/orders/")]
    tags = [bucket.client.get_object_tagging(Bucket="orders", Key=key)["TagSet"] for key in objects]
    assert [{tag["Key"]: tag["Value"] for tag in found} for found in tags] == [
        {"team": "lake", "startOffset": "0", "endOffset": "2", "recordCount": "3"}
    ] * 2


def test_encryption_with_kms_covers_documents_and_objects_and_can_begin_later(bucket: Bucket) -> None:
    """Batches of before stay as they are; storage class and tags are those of objects alone."""
    bucket.append()
    bucket.run(bucket.settings(), "a")
    old = set(bucket.names())
    bucket.append()
    upload = Upload(encryption=SseKms(key_id="alias/lake"), storage_class="STANDARD_IA")
    bucket.run(bucket.settings(upload=upload), "b", upload)
    for key in bucket.names():
        head = bucket.client.head_object(Bucket="orders", Key=key)
        replaced = key.endswith("/marker.json") or "/_summaries/" in key
        encrypted = "alias/lake" if key not in old or replaced else None
        assert head.get("SSEKMSKeyId") == encrypted, key
        assert ("StorageClass" in head) == ("/_kafka_s3/" not in key), key
    assert bucket.run(bucket.settings(upload=upload), "c", upload, action="verify").verified == 4
