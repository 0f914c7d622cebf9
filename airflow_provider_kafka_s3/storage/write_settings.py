"""The arguments of requests that follow from what objects are stored with: encryption, access, class and tags."""

from __future__ import annotations

import urllib.parse
from collections.abc import Mapping
from typing import Any, Final

from airflow_provider_kafka_s3.config import SseCustomer, SseKms, SseS3
from airflow_provider_kafka_s3.storage.clients import S3Settings
from airflow_provider_kafka_s3.storage.customer_keys import customer_key_arguments, customer_key_digest

__all__ = ["WriteSettings"]

_OWNERS_ACLS: Final = ("private", "bucket-owner-read", "bucket-owner-full-control")
"""Canned access control lists that grant rights to nobody but the owners of object and bucket."""


class WriteSettings:
    """The arguments of the requests to one store.

    Attributes:
        part: of a part of an upload that this process began.
        any_key: of a request for an object or an upload that any process may have written: to be tried in this order.
        keys: description of these, for errors; empty: there is only one.
    """

    def __init__(self, settings: S3Settings) -> None:
        """Derive the arguments from settings."""
        self._settings = settings
        key, earlier = settings.secrets.customer_key, settings.secrets.earlier_customer_keys
        encryption = settings.effective_encryption
        current = customer_key_arguments(key) if key is not None and isinstance(encryption, SseCustomer) else {}
        self.part: Mapping[str, Any] = current
        others = [other for other in (key, *earlier) if other is not None]
        candidates = [current, *map(customer_key_arguments, others), {}]
        self.any_key: tuple[Mapping[str, Any], ...] = tuple(
            arguments for at, arguments in enumerate(candidates) if arguments not in candidates[:at]
        )
        self.keys = ", ".join(map(customer_key_digest, others))
        self._encryption = current or _encryption(encryption)

    def document(self) -> dict[str, Any]:
        """Of a write of a control document."""
        acl = self._settings.acl
        return {**self._encryption, **({"ACL": acl} if acl in _OWNERS_ACLS else {})}

    def data(self, tags: Mapping[str, str] | None) -> dict[str, Any]:
        """Of a write of an object, or of the beginning of its upload."""
        arguments = {
            "ACL": self._settings.acl,
            "StorageClass": self._settings.storage_class,
            "Tagging": urllib.parse.urlencode(tags or {}, quote_via=urllib.parse.quote) or None,
        }
        return {**self._encryption, **{name: value for name, value in arguments.items() if value is not None}}


def _encryption(encryption: object) -> Mapping[str, Any]:
    match encryption:
        case SseS3():
            return {"ServerSideEncryption": "AES256"}
        case SseKms(key_id=key_id, bucket_key=bucket_key):
            arguments = {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": key_id, "BucketKeyEnabled": bucket_key}
            return {name: value for name, value in arguments.items() if value is not None}
        case _:
            return {}
