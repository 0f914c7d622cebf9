"""The offsets of rows that do not keep them, by the manifest and the index of their object."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from airflow_provider_kafka_s3.documents.manifest import SlicePart
from airflow_provider_kafka_s3.documents.offsets import certain_ranges
from airflow_provider_kafka_s3.formats.block_index import Chunk

__all__ = ["RowOffsets"]


@dataclass(frozen=True, kw_only=True)
class RowOffsets:
    """The offsets of rows that follow one another, as far as they are known.

    Attributes:
        first: offset of the first one.
        end: one past the offset of the last one.
        records: number of rows.
        chunk: of the index, which may have the ranges of their offsets; None: they are not those of a block.
    """

    first: int
    end: int
    records: int
    chunk: Chunk | None = None

    @classmethod
    def of_part(cls, part: SlicePart) -> RowOffsets:
        """Those of a slice in an object."""
        return cls(first=part.min_offset, end=part.max_offset + 1, records=part.records)

    @classmethod
    def of_chunk(cls, chunk: Chunk) -> RowOffsets:
        """Those of a block of the pipeline's own index."""
        assert chunk.next_record_offset is not None, "its bytes are those that were written"
        return cls(
            first=chunk.first_record_offset, end=chunk.next_record_offset, records=chunk.num_records, chunk=chunk
        )

    @property
    def is_known(self) -> bool:
        """Whether the offset of each row is known."""
        has_ranges = self.chunk is not None and self.chunk.has_ranges
        return has_ranges or certain_ranges(self.first, self.end, self.records) is not None

    def ranges(self) -> Iterable[tuple[int, int]] | None:
        """``(start, stop)`` of the offsets, one after another; None: not all are known."""
        ranges = None if self.chunk is None else self.chunk.ranges()
        return certain_ranges(self.first, self.end, self.records) if ranges is None else ranges
