"""Partitioners: the encoded partition of each record."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from airflow_provider_kafka_s3.extensions.records import Batch, Extension, Record, Refused, for_each_record

__all__ = ["NO_TIME", "REFUSED", "Codes", "Encoded", "Partitioner", "PerRecordPartitioner"]

Codes: TypeAlias = npt.NDArray[np.intp]
"""Per record the index of its path."""

REFUSED: Final = -1
"""Code of a record without an encoded partition."""

NO_TIME: Final = -(2**63)
"""Stands for a time that a record does not have, or that is outside the calendar; it is before all others."""


@dataclass(frozen=True)
class Encoded:
    """The encoded partitions of the records of a batch.

    Attributes:
        codes: of each record the index of its path, or :data:`REFUSED`.
        paths: the distinct paths.
        refused: the rows without a path, and why; the reason does not hold any content of the record.
        times: of partitioners by time, of each record in milliseconds since 1970, or :data:`NO_TIME`; None for others.
    """

    codes: Codes
    paths: list[str]
    refused: Mapping[int, str] = field(default_factory=dict)
    times: npt.NDArray[np.int64] | None = None


class Partitioner(Extension):
    """A partitioner of another package, over Arrow batches.

    The path of a record has to follow from the record, its topic, its partition and the options alone: not from the
    other records of the batch, the order of calls, the clock or the machine. Folders of a path have ``/`` between them,
    and are written with the ``directory_delim`` of the layout.

    Attributes:
        fields: of values, that it looks at: they are in :attr:`Batch.fields`. Names of nested ones have dots between
            them. Values need a converter with fields, such as ``json`` or ``avro``.
        max_path_bytes: bytes of its longest path in UTF-8. Keys that would be too long are refused before anything is
            planned, and so is a longer path.
    """

    fields: Sequence[str] = ()
    max_path_bytes: int = 200

    @abstractmethod
    def encode(self, batch: Batch) -> Encoded:
        """The encoded partitions of a batch."""


class PerRecordPartitioner(Partitioner):
    """A partitioner of another package that gets one record at a time.

    It costs an object and a call of Python for each record; a :class:`Partitioner` may look at each distinct value
    once.
    """

    @abstractmethod
    def path(self, record: Record) -> str | Refused:
        """The path of a record, or why it has none."""

    def encode(self, batch: Batch) -> Encoded:
        """The path of each record."""
        indices: dict[str, int] = {}
        codes, refused = np.full(batch.records.num_rows, REFUSED, np.intp), {}
        for row, path in enumerate(for_each_record(batch, self.path)):
            if isinstance(path, Refused):
                refused[row] = path.reason
            else:
                codes[row] = indices.setdefault(path, len(indices))
        return Encoded(codes, list(indices), refused)
