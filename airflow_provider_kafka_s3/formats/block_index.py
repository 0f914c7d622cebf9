"""The index of an object of blocks, in the form of DeviantArt's connector, with fields of ours behind theirs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from airflow_provider_kafka_s3.formats.block_offsets import ranges_of_runs
from airflow_provider_kafka_s3.structs import decode_struct

__all__ = ["Chunk", "chunks_of", "index_of"]


class Chunk(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A block: a gzip member with records.

    Attributes:
        byte_length_uncompressed: bytes of its text; None: not given, which no reader needs.
        num_records: number of its records.
        byte_length: its bytes in the object.
        byte_offset: where it begins there.
        first_record_offset: offset of its first record.
        next_record_offset: one past the offset of its last record; None: the index of another sink, which does not
            have it. The sum of first offset and number of records is too low if offsets have gaps.
        offset_ranges: ``(start, stop)`` of its offsets if they have gaps; None: they have none, or there are too many.
        offset_runs: its offsets in another form, see :mod:`~airflow_provider_kafka_s3.formats.block_offsets`, if there
            are too many ranges; None: there are not, or another sink or an earlier version wrote the index.
    """

    byte_length_uncompressed: int | None = None
    num_records: int
    byte_length: int
    byte_offset: int
    first_record_offset: int
    next_record_offset: int | None = None
    offset_ranges: tuple[tuple[int, int], ...] | None = None
    offset_runs: str | None = None

    @property
    def has_ranges(self) -> bool:
        """Whether it has the ranges of its offsets, in either form."""
        return self.offset_ranges is not None or self.offset_runs is not None

    def ranges(self) -> Iterable[tuple[int, int]] | None:
        """``(start, stop)`` of its offsets, one after another; None: it does not have them, see :attr:`has_ranges`."""
        if self.offset_runs is not None:
            return ranges_of_runs(self.offset_runs, self.first_record_offset)
        return self.offset_ranges


class _Index(msgspec.Struct, frozen=True):
    chunks: tuple[Chunk, ...]


def index_of(chunks: Sequence[Chunk]) -> bytes:
    """The bytes of an index.

    Args:
        chunks: of one object, in their order.
    """
    return msgspec.json.encode(_Index(tuple(chunks)))


def chunks_of(index: bytes) -> tuple[Chunk, ...]:
    """The chunks of an index, in their order.

    Args:
        index: its bytes.

    Raises:
        ValueError: it is no index.
    """
    try:
        return decode_struct(index, _Index).chunks
    except (msgspec.DecodeError, RecursionError) as e:
        raise ValueError(f"it is no index of chunks: {e}") from e
