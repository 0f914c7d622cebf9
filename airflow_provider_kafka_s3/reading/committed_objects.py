"""The objects of a committed batch: which lie beside which, and their bytes."""

from __future__ import annotations

import zlib
from functools import cached_property

from airflow_provider_kafka_s3.batch.expiry import expired_objects
from airflow_provider_kafka_s3.batch.given_away import GivenAway, rows_in_table
from airflow_provider_kafka_s3.batch.log import TopicLog
from airflow_provider_kafka_s3.batch.object_metadata import has_crc32
from airflow_provider_kafka_s3.config import Layout
from airflow_provider_kafka_s3.documents.manifest import Manifest, ObjectEntry
from airflow_provider_kafka_s3.documents.plan import Plan
from airflow_provider_kafka_s3.exceptions import DataLossError, ForeignObjectError, MissingObjectError
from airflow_provider_kafka_s3.formats.block_index import Chunk, chunks_of
from airflow_provider_kafka_s3.layout import keys

__all__ = ["CommittedObjects"]


class CommittedObjects:
    """The objects of a committed batch.

    Args:
        log: the control documents of the topic.
        plan: of the batch.
        decision: its manifest.
    """

    def __init__(self, log: TopicLog, plan: Plan, decision: Manifest) -> None:
        assert plan.layout is not None, "it is committed"
        self.log = log
        self.plan = plan
        self.layout: Layout = plan.layout
        self._entries = {entry.key: entry for entry in decision.objects}

    @cached_property
    def _dead_letters(self) -> str:
        return keys.dead_letters_prefix(self.layout, self.plan.topic)

    def is_dead_letters(self, entry: ObjectEntry) -> bool:
        """Whether an object has dead letters."""
        return entry.key.startswith(self._dead_letters)

    def sibling(self, entry: ObjectEntry) -> str | None:
        """What an object has beside the object of values, such as ``.keys``; None: values or dead letters."""
        return None if self.is_dead_letters(entry) else keys.sibling_of_key(self.layout, entry.key)

    def entry(self, key: str) -> ObjectEntry:
        """An object by its key, which is in the manifest."""
        return self._entries[key]

    def find(self, key: str) -> ObjectEntry | None:
        """An object that records are read from by its key; None: it is not in the manifest."""
        entry = self._entries.get(key)
        return entry if entry is not None and self.is_of_records(entry) else None

    def of_records(self) -> list[ObjectEntry]:
        """The objects that records are read from: of values, of dead letters, and the first of null values."""
        return [entry for entry in self._entries.values() if self.is_of_records(entry)]

    def is_of_records(self, entry: ObjectEntry) -> bool:
        """Whether an object is one of :meth:`of_records`."""
        sibling = self.sibling(entry)
        if sibling is None:
            return True
        if sibling == keys.INDEX or self._values_key(entry) in self._entries:
            return False
        # Those of null values are found by their keys.
        return not (sibling == ".headers" and ".keys" in keys.siblings(self.layout))

    def _values_key(self, entry: ObjectEntry) -> str:
        sibling = self.sibling(entry)
        if sibling is None:
            return entry.key
        return entry.key.removesuffix(keys.siblings(self.layout)[sibling]) + self.layout.format.object_extension

    def beside(self, entry: ObjectEntry, name: str) -> ObjectEntry:
        """The object of keys, headers or the index of the same records."""
        return self._entries[keys.sibling_key(self.layout, self._values_key(entry), name)]

    def url(self, entry: ObjectEntry) -> str:
        """``s3://bucket/key``."""
        return self.log.store.url(entry.key)

    def get(self, entry: ObjectEntry, start: int | None = None, end: int | None = None) -> bytes:
        """Bytes of an object, all of them by default.

        All of them are compared with the CRC-32 of the manifest. Whoever reads a part checks it: by the CRC-32 of a
        gzip member, or by :meth:`require_crc32` at the end of the object.

        Raises:
            DataLossError: it was accepted as lost, or has expired.
            MissingObjectError: it is gone.
            ForeignObjectError: it has fewer bytes, or others.
        """
        stored = self.log.store.get(entry.key, start=start, end=end)
        if stored is None:
            url, where = self.url(entry), f"topic {self.plan.topic!r}, batch {self.plan.batch}"
            if entry.key in self.log.amended_keys(self.plan.batch)[0]:
                raise DataLossError(f"an object of {where} was accepted as lost: {url}")
            if expired_objects(self.log).has(self.plan.batch, entry):
                raise DataLossError(
                    f"an object of {where} was deleted on purpose (docs/expiry.md). Open another snapshot, or "
                    f"read the pipeline that has its records: {url}"
                )
            if (table := GivenAway(self.log).table(self.plan, entry.key)) is not None:
                raise MissingObjectError(f"an object of {where} is gone. {rows_in_table(table)}: {url}")
            again = self.log.remedies.restore([self.plan.batch])
            raise MissingObjectError(
                f"an object of {where} is gone. Write it again from {self.plan.origin}: {again}: {url}"
            )
        wanted = entry.size if start is None or end is None else end - start
        if len(stored.body) != wanted:
            raise self.unreadable(entry, f"a read has {len(stored.body):,} bytes instead of {wanted:,}")
        if start is None and end is None:
            self.require_crc32(entry, zlib.crc32(stored.body))
        return stored.body

    def chunks(self, entry: ObjectEntry) -> tuple[Chunk, ...]:
        """The chunks of an object of blocks, by its index.

        Raises:
            DataLossError: the index was accepted as lost.
            MissingObjectError: it is gone.
            ForeignObjectError: it is not the one that its manifest lists.
        """
        index = self.beside(entry, keys.INDEX)
        return chunks_of(self.get(index))

    def require_crc32(self, entry: ObjectEntry, crc32: int) -> None:
        """Raise ForeignObjectError unless the bytes of an object are those in its manifest, or were written again."""
        if not has_crc32(crc32, entry, lambda: self.log.store.head(entry.key)):
            raise self.unreadable(entry, "its bytes are not those in the manifest")

    def unreadable(self, entry: ObjectEntry, why: str) -> ForeignObjectError:
        """The error for an object that is not what its manifest and its plan describe."""
        return ForeignObjectError(
            f"an object of topic {self.plan.topic!r}, batch {self.plan.batch}, cannot be read: {why}. Nothing was "
            f"changed. Compare it with its manifest: {self.log.remedies.verify(self.plan.batch)}: {self.url(entry)}"
        )
