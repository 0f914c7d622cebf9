"""Credentials that an S3 server refuses: a terminal error with the action and the object, without the credentials."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from airflow_provider_kafka_s3.exceptions import AccessDeniedError
from airflow_provider_kafka_s3.retry import Retrier, RetryDetails
from airflow_provider_kafka_s3.storage.durable import DurableStore
from airflow_provider_kafka_s3.storage.s3 import S3Credentials, S3Settings, S3Store, make_client
from dev.certificates import Authority
from dev.versitygw import VersityGateway

KEY = "AKIAOFTHETESTS"
SECRET = "canary-of-the-secret-key"


@pytest.fixture(scope="module")
def server(authority: Authority) -> Iterator[VersityGateway]:
    """A server that checks every signature, behind TLS with a private authority."""
    tls = authority.server("gateway")
    with VersityGateway(access_key_id=KEY, secret_access_key=SECRET, tls=tls) as started:
        yield started


@pytest.mark.parametrize(
    ("credentials", "code"),
    [
        ({"access_key_id": KEY, "secret_access_key": "canary-not-this-one"}, "SignatureDoesNotMatch"),
        # Other servers respond InvalidAccessKeyId, with 403.
        ({"access_key_id": "AKIANOBODY", "secret_access_key": SECRET}, "XAdminUserNotFound"),
    ],
)
def test_a_refusal_names_the_action_and_the_object_and_is_not_repeated(
    server: VersityGateway, authority: Authority, credentials: dict[str, Any], code: str
) -> None:
    """Whatever the first request; a wrong secret and an unknown key."""
    retries: list[RetryDetails] = []
    settings = S3Settings(
        endpoint_url=server.endpoint,
        region="us-east-1",
        addressing_style="path",
        ca_bundle=str(authority.certificate),
    )
    bucket = S3Store(make_client(settings, S3Credentials(**credentials)), "lake")
    store = DurableStore(bucket, Retrier(on_retry=retries.append))
    for action, request in (
        ("GetObject", lambda: store.get("marker")),
        ("PutObject", lambda: store.create("marker", b"x")),
        ("CreateMultipartUpload", lambda: store.create_upload("marker")),
        ("UploadPart", lambda: store.upload_part("marker", "u", 1, b"x")),
        ("CompleteMultipartUpload", lambda: store.complete("marker", "u", [])),
    ):
        with pytest.raises(AccessDeniedError, match=rf"40[34] {code}: .*\({action} s3://lake/marker\)") as caught:
            request()
        assert "canary" not in str(caught.value)
        assert "allow the action" in str(caught.value)
    assert retries == []
