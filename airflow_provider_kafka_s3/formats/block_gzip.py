"""The ``block_gzip`` format: lines in gzip members that can be read one by one, and the index of an object.

Members end at the ends of records, so a reader that knows where one begins gets whole records from it. Where they end
follows from the sizes of the records alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import cast

import numpy as np
import pyarrow as pa

from airflow_provider_kafka_s3 import config
from airflow_provider_kafka_s3.arrays import Array, Int64Array, bounds, contents
from airflow_provider_kafka_s3.formats.block_index import Chunk, index_of
from airflow_provider_kafka_s3.formats.block_offsets import BlockOffsets
from airflow_provider_kafka_s3.formats.compression import Gzip
from airflow_provider_kafka_s3.formats.port import Buffer, Payload, Prepared, RecordFormat

__all__ = ["BlockGzipFormat", "BlockGzipWriter"]


class BlockGzipFormat:
    """Lines in blocks.

    Args:
        settings: of the blocks.
        lines: makes the frames of records.
    """

    def __init__(self, settings: config.BlockGzip, lines: RecordFormat) -> None:
        self._settings = settings
        self._lines = lines

    def prepare(self, batch: pa.RecordBatch) -> Prepared:
        """Make the frames of a batch."""
        return self._lines.prepare(batch)

    def open(self, key: str, schema: int | None) -> BlockGzipWriter:  # noqa: ARG002 - the interface has them
        """Begin an object."""
        return BlockGzipWriter(self._settings)


@dataclass
class _Member:
    """One member.

    Attributes:
        encoder: of its bytes.
        begin: where it begins in the object.
        offsets: of its records.
        records: number of its records.
        raw: its bytes before compression.
        size: its bytes in the object, so far.
        first: the first of these offsets.
        end: one past the last of these offsets.
    """

    encoder: Gzip
    begin: int
    offsets: BlockOffsets
    records: int = 0
    raw: int = 0
    size: int = 0
    first: int = 0
    end: int = 0

    def add(self, offsets: Int64Array) -> None:
        """The offsets of its next records."""
        if self.end == 0:
            self.first = int(offsets[0])
        self.end = int(offsets[-1]) + 1
        self.offsets.add(offsets)

    def chunk(self) -> Chunk:
        """It in the index."""
        ranges, runs = self.offsets.found()
        return Chunk(
            byte_length_uncompressed=self.raw,
            num_records=self.records,
            byte_length=self.size,
            byte_offset=self.begin,
            first_record_offset=self.first,
            next_record_offset=self.end,
            offset_ranges=ranges,
            offset_runs=runs,
        )


class BlockGzipWriter:
    """Writes frames into gzip members, and makes the index of the object.

    A member ends before a record that would make it larger than the block size. So a larger record has a member of its
    own. No member is empty: a record without any bytes is in the member of the record before it.
    """

    def __init__(self, settings: config.BlockGzip) -> None:
        self._settings = settings
        self._member: _Member | None = None
        self._size = 0
        self._chunks: list[Chunk] = []

    def write(self, payload: Payload, offsets: Int64Array | None = None) -> Iterator[Buffer]:
        """Encode frames; see :class:`~airflow_provider_kafka_s3.formats.port.ObjectWriter`.

        Args:
            payload: the frames.
            offsets: of their records, for the index; None: it is not used.
        """
        frames = cast("Array", payload)
        data, ends = contents(frames), bounds(frames)
        ends = ends - ends[0]
        start = 0
        while start < len(frames):
            member = self._member
            if member is None:
                member = self._member = self._begin()
            room = max(self._settings.block_size - member.raw, 0)
            if member.records == 0:
                room = max(room, int(ends[start + 1] - ends[start]))
            stop = int(np.searchsorted(ends, ends[start] + room, side="right")) - 1
            if stop == start:
                yield from self._end(member)
                continue
            member.records += stop - start
            member.raw += int(ends[stop] - ends[start])
            if offsets is not None:
                member.add(offsets[start:stop])
            yield from self._counted(member, member.encoder.write(data[ends[start] : ends[stop]]))
            start = stop

    def close(self) -> Iterator[Buffer]:
        """End the last member."""
        if self._member is not None:
            yield from self._end(self._member)

    def index(self) -> bytes:
        """The index, once the object has ended."""
        return index_of(self._chunks)

    def _begin(self) -> _Member:
        return _Member(self._encoder(), begin=self._size, offsets=BlockOffsets(self._compressed))

    def _encoder(self) -> Gzip:
        level, encoder = self._settings.compression_level, self._settings.encoder
        assert level is not None, "the settings have the default"
        return Gzip(level, encoder)

    def _compressed(self, data: memoryview) -> bytes:
        """A gzip member by itself."""
        encoder = self._encoder()
        return b"".join([*encoder.write(data), *encoder.close()])

    def _end(self, member: _Member) -> Iterator[Buffer]:
        yield from self._counted(member, member.encoder.close())
        self._chunks.append(member.chunk())
        self._member = None

    def _counted(self, member: _Member, pieces: Iterable[Buffer]) -> Iterator[Buffer]:
        for piece in pieces:
            member.size += len(piece)
            self._size += len(piece)
            yield piece
