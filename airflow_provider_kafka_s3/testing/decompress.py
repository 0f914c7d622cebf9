"""The bytes of an object before its compression."""

from __future__ import annotations

import bz2
import gzip

import pyarrow as pa

__all__ = ["decompress"]


def decompress(key: str, body: bytes) -> bytes:
    """The bytes that were compressed, by the extension of the key; other objects are returned as they are."""
    if key.endswith(".gz"):
        return gzip.decompress(body)
    if key.endswith(".bz2"):
        return bz2.decompress(body)
    if key.endswith(".zst"):
        with pa.CompressedInputStream(pa.BufferReader(body), "zstd") as stream:
            return stream.read()
    return body
