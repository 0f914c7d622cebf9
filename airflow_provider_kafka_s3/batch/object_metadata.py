"""The metadata that identifies an object as written by a batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from airflow_provider_kafka_s3.documents.manifest import ObjectEntry
from airflow_provider_kafka_s3.storage.port import ObjectInfo

__all__ = ["BATCH_METADATA", "CONTENT_METADATA", "CRC32_METADATA", "NONCE_METADATA", "has_crc32", "matches"]

BATCH_METADATA: Final = "kafka-s3-batch"
NONCE_METADATA: Final = "kafka-s3-nonce"
CONTENT_METADATA: Final = "kafka-s3-content"
CRC32_METADATA: Final = "kafka-s3-crc32"
"""Of an object that was written again: another version of a library may compress the same records to other bytes."""


def matches(info: ObjectInfo, batch: int, entry: ObjectEntry) -> bool:
    """Whether an object is the listed one, or holds the same records under that batch."""
    metadata = info.metadata
    return (
        info.size == entry.size
        and metadata.get(BATCH_METADATA) == str(batch)
        and (metadata.get(NONCE_METADATA) == entry.nonce or metadata.get(CONTENT_METADATA) == entry.content)
    )


def has_crc32(crc32: int, entry: ObjectEntry, head: Callable[[], ObjectInfo | None]) -> bool:
    """Whether bytes with this CRC-32 are those of the manifest, or those of the same records written again.

    Args:
        crc32: of the bytes.
        entry: of the manifest.
        head: gives the attributes of the object; called if they are not those of the manifest.
    """
    hex_crc32 = f"{crc32:08x}"
    if hex_crc32 == entry.crc32.lower():
        return True
    info = head()
    return (
        info is not None
        and info.metadata.get(CONTENT_METADATA) == entry.content
        and info.metadata.get(CRC32_METADATA) == hex_crc32
    )
