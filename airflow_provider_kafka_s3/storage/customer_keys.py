"""Keys of objects that the store encrypts and decrypts with a key of their owner (SSE-C)."""

from __future__ import annotations

import base64
import binascii
import hashlib
from typing import Final

from airflow_provider_kafka_s3.exceptions import ConfigurationError

__all__ = ["customer_key_arguments", "customer_key_digest", "require_customer_key"]

_BYTES: Final = 32


def require_customer_key(name: str, key: str) -> str:
    """A key, if it is the base64 of 32 bytes; errors do not quote it."""
    try:
        size = len(base64.b64decode(key, validate=True))
    except (binascii.Error, ValueError):
        size = -1
    if size != _BYTES:
        problem = "is not base64" if size < 0 else f"has {size} bytes"
        raise ConfigurationError(
            f"{name} {problem}; it must be the base64 of {_BYTES} bytes, such as `openssl rand -base64 {_BYTES}` gives"
        )
    return key


def customer_key_arguments(key: str) -> dict[str, str]:
    """The arguments of a request with a key.

    With a digest of its own, botocore sends the text as it is: its debug log has the form that Airflow masks.
    """
    digest = hashlib.md5(base64.b64decode(key), usedforsecurity=False).digest()
    return {
        "SSECustomerAlgorithm": "AES256",
        "SSECustomerKey": key,
        "SSECustomerKeyMD5": base64.b64encode(digest).decode(),
    }


def customer_key_digest(key: str) -> str:
    """Sixteen hex digits that identify a key in plans and errors."""
    return hashlib.sha256(base64.b64decode(key)).hexdigest()[:16]
