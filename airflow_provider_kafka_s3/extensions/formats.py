"""Formats: the bytes of objects."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from airflow_provider_kafka_s3.arrays import Array, contents
from airflow_provider_kafka_s3.extensions.records import Batch, Extension, Record, Refused, for_each_record

__all__ = ["Format", "Frames", "ObjectEncoder", "PerRecordFormat"]


@dataclass(frozen=True)
class Frames:
    """The bytes of each record of a batch.

    Attributes:
        frames: parallel to the records: a list of bytes, or an Arrow array of binary or large_binary without nulls.
            That of a refused record is not used.
        refused: the rows that cannot be written, and why; the reason does not hold any content of the record.
    """

    frames: Sequence[bytes] | Array
    refused: Mapping[int, str] = field(default_factory=dict)


class ObjectEncoder:
    """Makes one object of its frames: one after another.

    A format with a header, an index or blocks of records overrides these methods. The bytes of all calls together have
    to follow from the frames, in their order: not from how they are split into calls of :meth:`write`.
    """

    def begin(self) -> bytes:
        """The bytes before the first frame."""
        return b""

    def write(self, frames: Array) -> bytes | memoryview:
        """The next bytes of the object.

        Args:
            frames: binary or large_binary, of one or more records.
        """
        return contents(frames)

    def end(self) -> bytes:
        """The bytes behind the last frame."""
        return b""


class Format(Extension):
    """A format of another package, over Arrow batches.

    The bytes of a record have to follow from the record, its topic, its partition and the options alone: not from the
    other records of the batch, the order of calls, the clock or the machine. Their number counts for ``max_bytes`` of
    ``rotation``. Objects are compressed by the ``compression`` of
    :class:`~airflow_provider_kafka_s3.config.CustomFormat`.
    """

    @abstractmethod
    def encode(self, batch: Batch) -> Frames:
        """The bytes of each record of a batch."""

    def open(self) -> ObjectEncoder:
        """Begin an object."""
        return ObjectEncoder()


class PerRecordFormat(Format):
    """A format of another package that gets one record at a time.

    It costs an object and a call of Python for each record.

    Attributes:
        separator: what follows every record, the last included.
    """

    separator: bytes = b"\n"

    @abstractmethod
    def record(self, record: Record) -> bytes | Refused:
        """The bytes of a record without the separator, or why it has none."""

    def encode(self, batch: Batch) -> Frames:
        """The bytes of each record."""
        frames, refused = [], {}
        for row, frame in enumerate(for_each_record(batch, self.record)):
            if isinstance(frame, Refused):
                refused[row] = frame.reason
            frames.append(b"" if isinstance(frame, Refused) else frame + self.separator)
        return Frames(frames, refused)
