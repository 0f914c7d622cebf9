"""Addresses of keys for a browser: in the console of AWS, or at the endpoint of another store."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote, urlencode, urlsplit, urlunsplit

from airflow_provider_kafka_s3.storage.clients import S3Settings

__all__ = ["browser_url"]

_CONSOLES: Final = {"cn-": "console.amazonaws.cn", "us-gov-": "console.amazonaws-us-gov.com"}
"""Prefix of the names of regions -> host of their console, for regions outside of the standard partition."""


def browser_url(settings: S3Settings, bucket: str, key: str) -> str:
    """URL of a key for a browser, without credentials.

    The response of an endpoint to a browser depends on the store: MinIO redirects to its console, others return the
    object, if it can be read without credentials.

    Args:
        settings: how the store is reached.
        bucket: name of the bucket.
        key: of an object; with a slash at its end: a folder.
    """
    endpoint = urlsplit(settings.endpoint_url or "")
    if settings.endpoint_url and not (endpoint.hostname or "").endswith((".amazonaws.com", ".amazonaws.com.cn")):
        base = urlunsplit(endpoint._replace(query="", fragment=""))
        if key.endswith("/"):  # no object has this key: a listing
            query = urlencode({"list-type": 2, "prefix": key})
            return f"{base.rstrip('/')}/{quote(bucket)}?{query}"
        path = quote(f"{bucket}/{key}")
        return f"{base.rstrip('/')}/{path}"
    region = settings.region or ""
    console = next((c for start, c in _CONSOLES.items() if region.startswith(start)), "console.aws.amazon.com")
    kind = "buckets" if key.endswith("/") else "object"
    query = urlencode({**({"region": region} if region else {}), "prefix": key})
    return f"https://{console}/s3/{kind}/{quote(bucket)}?{query}"
