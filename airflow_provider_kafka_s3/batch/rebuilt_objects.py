"""Lost objects, encoded again from their records."""

from __future__ import annotations

import tempfile
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO, Final, cast

from isal import isal_zlib
from msgspec import UNSET

from airflow_provider_kafka_s3.batch.encode import encode_slices, layout_of
from airflow_provider_kafka_s3.batch.object_stats import ObjectStats
from airflow_provider_kafka_s3.batch.rebuild import BuildObjects, ReadSlice, is_dead_letters, spans
from airflow_provider_kafka_s3.config import MIB, Layout, Upload
from airflow_provider_kafka_s3.documents.manifest import ObjectEntry
from airflow_provider_kafka_s3.documents.plan import Plan
from airflow_provider_kafka_s3.registry.schemas import SchemaSource
from airflow_provider_kafka_s3.storage.durable import CompleteResult, DurableStore
from airflow_provider_kafka_s3.storage.uploads import UploadPool

__all__ = ["object_builder"]

_COPY_BYTES: Final = MIB


def object_builder(
    store: DurableStore, upload: Upload | None = None, schemas: SchemaSource | None = None
) -> BuildObjects:
    """Make a function that builds objects again from their records.

    The bytes of each are kept in memory up to the layout's part size, then in an unlinked temporary file. They are
    released with the built object.

    Args:
        store: the bucket.
        upload: settings for objects of several parts, and the folder of temporary files; None: the defaults. Parts have
            the size in the plan.
        schemas: of the registry, by id; None: the layouts need none.
    """
    how = upload or Upload()

    def uploads(layout: Layout) -> UploadPool:
        return UploadPool(
            store,
            part_size=layout.part_size,
            threads=how.threads,
            memory=how.memory,
            spill_dir=how.spill_dir,
            tags=layout.tags.own_tags,
        )

    def build(plan: Plan, entries: Sequence[ObjectEntry], read: ReadSlice) -> dict[str, _Rebuilt]:
        layout = layout_of(plan)
        built: dict[str, _Rebuilt] = {}
        keys = {entry.key for entry in entries}
        # What ended an object may depend on records before it, which Kafka may no longer have. Objects have them all.
        by_rules = plan.source is not UNSET or is_dead_letters(plan, entries[0])
        listed = None if by_rules else [_ranges(plan, entry) for entry in entries]

        def begin(key: str) -> ObjectStats | None:
            if key not in keys:
                return None
            # The file has no name, so it cannot outlive the process.
            file = cast("BinaryIO", tempfile.SpooledTemporaryFile(max_size=layout.part_size, dir=how.spill_dir))  # noqa: SIM115
            rebuilt = built[key] = _Rebuilt(store, key, file, layout, lambda: uploads(layout))
            weakref.finalize(rebuilt, file.close)
            rebuilt.stats = ObjectStats(plan.topic_id, rebuilt.write, file.flush)
            return rebuilt.stats

        try:
            encode_slices(plan, tuple(spans(plan, entries)), read, begin, schemas=schemas, listed=listed, upload=how)
        except BaseException:
            for rebuilt in built.values():
                rebuilt.file.close()
            raise
        return built

    return build


def _ranges(plan: Plan, entry: ObjectEntry) -> tuple[tuple[int, int, int], ...]:
    """Kafka partition, first and last offset of an object's records of each slice."""
    return tuple((plan.slices[part.id].partition, part.min_offset, part.max_offset) for part in entry.by_slice)


@dataclass(eq=False)
class _Rebuilt:
    """See :class:`~airflow_provider_kafka_s3.batch.rebuild.BuiltObject`."""

    store: DurableStore
    key: str
    file: BinaryIO
    layout: Layout
    uploads: Callable[[], UploadPool]
    checksum: int = 0
    stats: ObjectStats = field(init=False)

    def write(self, data: bytes | memoryview) -> None:
        """Append bytes."""
        self.checksum = isal_zlib.crc32(data, self.checksum)
        self.file.write(data)

    @property
    def content(self) -> str:
        """Digest of its offsets."""
        return self.stats.content

    @property
    def digest(self) -> str:
        """Digest of its records."""
        return self.stats.digest.hexdigest()

    @property
    def crc32(self) -> str:
        """Of its bytes."""
        return f"{self.checksum:08x}"

    @property
    def size(self) -> int:
        """Bytes of the object."""
        return self.file.seek(0, 2)

    def put(self, metadata: dict[str, str]) -> None:
        """Store the object unless its key exists."""
        small = self.size <= self.layout.part_size
        self.file.seek(0)
        if small:
            self.store.create_object(self.key, self.file.read(), metadata, self.layout.tags.own_tags)
            return
        with self.uploads() as pool:
            try:
                upload = pool.open(self.key, metadata)
                while piece := self.file.read(_COPY_BYTES):
                    upload.write(piece)
                finished = upload.finish()
                answer = self.store.complete(finished.key, finished.upload_id, finished.parts)
            except BaseException:
                pool.abort_all()
                raise
            if answer is not CompleteResult.DONE:
                # Once aborted, the upload cannot make the object visible again after a user deleted it.
                self.store.abort_uploads([(finished.key, finished.upload_id)])
