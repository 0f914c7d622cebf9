"""Addresses of objects for a browser."""

from __future__ import annotations

import pytest

from airflow_provider_kafka_s3.storage.browser import browser_url
from airflow_provider_kafka_s3.storage.clients import S3Settings


@pytest.mark.parametrize(
    ("endpoint", "region", "expected"),
    [
        ("http://minio:9000", "us-east-1", "http://minio:9000/lake/a%20b/c"),
        ("https://store/s3/", None, "https://store/s3/lake/a%20b/c"),
        (None, None, "https://console.aws.amazon.com/s3/object/lake?prefix=a+b%2Fc"),
        (
            "https://s3.eu-central-1.amazonaws.com",
            "eu-central-1",
            "https://console.aws.amazon.com/s3/object/lake?region=eu-central-1&prefix=a+b%2Fc",
        ),
        (None, "cn-north-1", "https://console.amazonaws.cn/s3/object/lake?region=cn-north-1&prefix=a+b%2Fc"),
    ],
)
def test_a_bucket_at_aws_is_shown_by_its_console(endpoint: str | None, region: str | None, expected: str) -> None:
    """The links of another store are URLs of the object at its endpoint."""
    settings = S3Settings(endpoint_url=endpoint, region=region)
    assert browser_url(settings, "lake", "a b/c") == expected


def test_a_folder_is_shown_by_the_listing_of_its_objects() -> None:
    """No object has its key."""
    assert browser_url(S3Settings(endpoint_url="http://minio:9000"), "lake", "a/") == (
        "http://minio:9000/lake?list-type=2&prefix=a%2F"
    )
    assert browser_url(S3Settings(), "lake", "a/") == "https://console.aws.amazon.com/s3/buckets/lake?prefix=a%2F"
