"""Documents that are read again only where they have changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from airflow_provider_kafka_s3.storage.port import ObjectInfo

__all__ = ["ByEtag"]

T = TypeVar("T")


class ByEtag(Generic[T]):
    """Documents of one kind, as they were when they were read. Any number of threads may use it."""

    def __init__(self) -> None:
        """Nothing is read yet."""
        self._documents: dict[str, tuple[str, T]] = {}

    def get(self, info: ObjectInfo, read: Callable[[str], T]) -> T:
        """A document.

        Args:
            info: its entry of a listing, with the ETag that it has now.
            read: reads what is at a key.
        """
        known = self._documents.get(info.key)
        if known is None or known[0] != info.etag:
            known = self._documents[info.key] = (info.etag, read(info.key))
        return known[1]
