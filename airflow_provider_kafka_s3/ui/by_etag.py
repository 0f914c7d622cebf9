"""Documents that are read again only where they have changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from airflow_provider_kafka_s3.storage.port import ObjectInfo

__all__ = ["ByEtag"]

T = TypeVar("T")


class ByEtag(Generic[T]):
    """Documents of one kind, as they were when they were read. Any number of threads may use it."""

    def __init__(self) -> None:
        """Nothing is read yet."""
        self._documents: dict[str, tuple[str, T]] = {}

    def get(self, info: ObjectInfo, read: Callable[[str], T | None]) -> T | None:
        """A document.

        Args:
            info: its entry of a listing, with the ETag that it has now.
            read: reads what is at a key; None is not kept.
        """
        known = self._documents.get(info.key)
        if known is not None and known[0] == info.etag:
            return known[1]
        document = read(info.key)
        if document is not None:
            self._documents[info.key] = (info.etag, document)
        return document

    def keep(self, listed: Iterable[ObjectInfo]) -> None:
        """Drop the documents that a listing no longer has."""
        keys = {info.key for info in listed}
        for key in self._documents.keys() - keys:
            self._documents.pop(key, None)
