"""The function of a Spark task stores objects as the settings of the job say, in a process of its own."""

from __future__ import annotations

import base64
import pickle
from typing import Any

import pytest

from airflow_provider_kafka_s3.config import SseKms, Upload
from airflow_provider_kafka_s3.documents.manifest import ObjectEntry
from airflow_provider_kafka_s3.retry import RetryPolicy
from airflow_provider_kafka_s3.spark.spec import JobSpec, PlanRef
from airflow_provider_kafka_s3.spark.task import SliceTask
from airflow_provider_kafka_s3.storage.credentials import S3Secrets
from airflow_provider_kafka_s3.storage.s3 import S3Credentials, S3Settings, S3Store, make_client
from airflow_provider_kafka_s3.structs import decode_struct
from dev.forward_proxy import ForwardProxy
from dev.s3_server import ThreadedS3Server
from tests.unit.spark.test_slice_ranks import plan_of
from tests.unit.spark.test_slice_task import records, run, spark_batch

ANY = S3Credentials(access_key_id="any", secret_access_key="any-secret")
KEY = base64.b64encode(bytes([7]) * 32).decode()
PLAN = plan_of("a", [(0, 0, 50)])


@pytest.mark.parametrize("encryption", ["kms", "customer"])
def test_executors_store_objects_like_the_driver(encryption: str, tmp_path: Any) -> None:
    """The settings travel in the job file, and pickled in the task: encryption, class, access list, proxy and login."""
    bucket = f"tasks-{encryption}"
    with ThreadedS3Server(buckets=[bucket]) as server, ForwardProxy(user="me", password="secret-of-proxy") as proxy:
        secrets = S3Secrets(
            customer_key=KEY if encryption == "customer" else None, proxy_user="me", proxy_password="secret-of-proxy"
        )
        upload = Upload(
            encryption=SseKms(key_id="alias/lake") if encryption == "kms" else None,
            storage_class="ONEZONE_IA",
            acl="bucket-owner-full-control",
        )
        settings = S3Settings(
            endpoint_url=server.endpoint, region="us-east-1", proxy=proxy.address, secrets=secrets
        ).for_upload(upload)
        job = tmp_path / "job.json"
        ref = PlanRef(topics_dir="topics", pipeline="p", topic="a", batch=1)
        given = JobSpec(run="r", plans=(ref,), kafka={}, bucket=bucket, result_path="x", s3=settings, upload=upload)
        with given.offered(job):
            spec = JobSpec.read(job)
        task = SliceTask(
            [PLAN],
            bucket=spec.bucket,
            s3=spec.s3,
            credentials=ANY,
            retry=RetryPolicy(max_retries=0),
            upload=spec.upload,
        )
        assert KEY not in repr(task)
        batch = spark_batch(records("a", 0, 0, 50)).drop_columns(["topic"])
        rows = run(pickle.loads(pickle.dumps(task)), batch)
        entry = decode_struct(rows[0].body, ObjectEntry)
        client: Any = make_client(settings, ANY)
        S3Store(client, bucket, settings).complete_upload(entry.key, entry.upload_id, entry.upload_parts())
        head = S3Store(client, bucket, settings).head(entry.key)
        assert head is not None
        assert head.size == entry.size
        how = {"SSECustomerAlgorithm": "AES256", "SSECustomerKey": bytes([7]) * 32} if encryption == "customer" else {}
        found = client.head_object(Bucket=bucket, Key=entry.key, **how)
        assert found["StorageClass"] == "ONEZONE_IA"
        assert found.get("SSEKMSKeyId") == (None if encryption == "customer" else "alias/lake")
        assert {method for method, _ in proxy.seen} == {"POST", "PUT", "HEAD"}
