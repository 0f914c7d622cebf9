"""What is counted while an object is written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from airflow_provider_kafka_s3.arrays import NO_TIMESTAMP, Int64Array, time_bounds
from airflow_provider_kafka_s3.batch.records_digest import RecordsDigest
from airflow_provider_kafka_s3.documents.manifest import ContentHash, SlicePart
from airflow_provider_kafka_s3.documents.plan import Slice

__all__ = ["ObjectStats"]

_LITTLE_ENDIAN: Final = np.dtype("<i8")


class ObjectStats:
    """Digests, count, offsets and times of the records written to an object so far, in their order.

    Attributes:
        digest: of the records; objects beside each other may share one.
    """

    def __init__(self, topic_id: str, write: Callable[[bytes | memoryview], object], seal: Callable[[], None]) -> None:
        """Count nothing yet.

        Args:
            topic_id: of the records.
            write: appends bytes to the object.
            seal: marks the end of its bytes.
        """
        self.write = write
        self.seal = seal
        self.digest = RecordsDigest()
        self.parts: list[SlicePart] = []
        self._topic_id = topic_id
        self._hash: ContentHash | None = None
        self._times: tuple[int, int] | None = None
        self._times_known = True

    def add(self, slice_: Slice, offsets: Int64Array, times: Int64Array, bounds: tuple[int, int] | None = None) -> None:
        """Count records of a slice, by their offsets and timestamps.

        Args:
            slice_: of the records.
            offsets: of each; the lowest one that it may have if they are unknown.
            times: of each; or the lowest and the highest one, if they are unknown.
            bounds: the lowest and the highest offset; None: those of the offsets.
        """
        first, last = bounds or (int(offsets[0]), int(offsets[-1]))
        records = len(offsets)
        if self._hash is None:
            self._hash = ContentHash(self._topic_id, slice_.partition)
        elif self.parts[-1].id != slice_.id:
            self._hash.next_slice(slice_.partition)
        else:
            before = self.parts.pop()
            first, last = min(before.min_offset, first), max(before.max_offset, last)
            records += before.records
        self._hash.update(offsets.astype(_LITTLE_ENDIAN, copy=False).tobytes())
        self.parts.append(SlicePart(id=slice_.id, records=records, min_offset=first, max_offset=last))
        self._add_times(times)

    def _add_times(self, times: Int64Array) -> None:
        low, high = time_bounds(times)
        if low == NO_TIMESTAMP:
            # Records without a timestamp belong to no window; a wrong timestamp might belong to any.
            self._times_known = self._times_known and bool((times == NO_TIMESTAMP).all())
        elif self._times is None:
            self._times = low, high
        else:
            self._times = min(self._times[0], low), max(self._times[1], high)

    @property
    def times(self) -> tuple[int, int]:
        """The lowest and the highest timestamp, as :func:`~airflow_provider_kafka_s3.arrays.time_bounds` has them."""
        return self._times if self._times is not None and self._times_known else (NO_TIMESTAMP, NO_TIMESTAMP)

    @property
    def content(self) -> str:
        """Digest of the records."""
        assert self._hash is not None, "an object is begun for a record"
        return self._hash.hexdigest()
