"""Stores for the same tests: in memory, moto and versitygw over HTTP, and one that the environment names."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from airflow_provider_kafka_s3.exceptions import BucketNotFoundError
from airflow_provider_kafka_s3.storage.memory import MemoryStore
from airflow_provider_kafka_s3.storage.s3 import S3Credentials, S3Settings, S3Store, make_client
from dev.s3_server import S3Server
from dev.versitygw import VersityGateway

if TYPE_CHECKING:
    from airflow_provider_kafka_s3.storage.port import ObjectStore

ENDPOINT = "KAFKA_S3_TEST_ENDPOINT"
"""Address of a real store to test on; credentials and region by boto3's usual variables."""
BUCKET = os.environ.get("KAFKA_S3_TEST_BUCKET", "kafka-s3-conformance")

ANY = S3Credentials(access_key_id="any", secret_access_key="any-secret")


@pytest.fixture(scope="session")
def moto_endpoint() -> Iterator[str]:
    """The address of one moto server per test session, with the bucket."""
    with S3Server(buckets=[BUCKET]) as server:
        yield server.endpoint


@pytest.fixture(scope="session")
def moto_store(moto_endpoint: str) -> S3Store:
    """The bucket of the moto server, through one client."""
    return S3Store(make_client(S3Settings(endpoint_url=moto_endpoint, region="us-east-1"), ANY), BUCKET)


@pytest.fixture(scope="session")
def versitygw_store() -> Iterator[S3Store]:
    """The bucket of one versitygw per test session, through one client."""
    login = {"access_key_id": ANY.access_key_id, "secret_access_key": ANY.secret_access_key}
    with VersityGateway(**login) as server:
        client = make_client(S3Settings(endpoint_url=server.endpoint, region="us-east-1", addressing_style="path"), ANY)
        client.create_bucket(Bucket=BUCKET)
        yield S3Store(client, BUCKET)


@pytest.fixture(scope="session")
def endpoint_store() -> S3Store:
    """The bucket at the endpoint in the environment; created if it does not exist."""
    client = make_client(
        S3Settings(
            endpoint_url=os.environ[ENDPOINT],
            region=os.environ.get("AWS_REGION", "us-east-1"),
            addressing_style="path",
        )
    )
    store = S3Store(client, BUCKET)
    try:
        store.get("absent")
    except BucketNotFoundError:
        client.create_bucket(Bucket=BUCKET)
    return store


@pytest.fixture(params=["memory", "moto", "versitygw", *(["endpoint"] if os.environ.get(ENDPOINT) else [])])
def store(request: pytest.FixtureRequest) -> ObjectStore:
    """Every store in turn."""
    if request.param == "memory":
        return MemoryStore()
    found: ObjectStore = request.getfixturevalue(f"{request.param}_store")
    return found


@pytest.fixture
def prefix() -> str:
    """A prefix that no other test uses."""
    return f"t-{uuid.uuid4().hex}/"
