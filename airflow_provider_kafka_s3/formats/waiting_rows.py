"""The rows of open Parquet files that wait for their row groups, in bounded memory.

A task may have many files open whose row groups fill at the same time. When their rows together exceed the budget,
those of the largest are written to one temporary file, and read back when their row group is encoded. The bytes of a
file do not depend on it.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType
from typing import Final, Protocol, Self

import pyarrow as pa

from airflow_provider_kafka_s3.storage.spill_file import SpillFile

__all__ = ["SpilledRows", "WaitingRows"]

_SLOT: Final = 256 * 1024
"""Bytes: rows of a file that are written at once are 1 MiB, or fewer."""


class _Writer(Protocol):
    """Has rows that wait."""

    def spill(self) -> None:
        """Write all of them to the file."""


@dataclass(frozen=True)
class SpilledRows:
    """Rows in the file: the slots that have them, and their bytes."""

    slots: tuple[int, ...]
    size: int


class WaitingRows:
    """The rows of all open files of a task; only its thread uses them. A context manager removes the file.

    Args:
        memory: bytes of rows in memory, about.
        folder: of the temporary file; None: the system's.
    """

    def __init__(self, memory: int, folder: str | None = None) -> None:
        self._memory = memory
        self._held: dict[int, tuple[_Writer, int]] = {}
        self._sum = 0
        self._file = SpillFile(_SLOT, folder)

    def hold(self, writer: _Writer, size: int) -> None:
        """A writer has so many bytes of rows in memory now; rows are written to the file if all have too many."""
        self._sum += size - self._held.pop(id(writer), (writer, 0))[1]
        if size:
            self._held[id(writer)] = writer, size
        if self._sum <= self._memory:
            return
        # Down to half, and the largest first, so that this is rare and few writes are short.
        for largest, _ in sorted(self._held.values(), key=lambda held: held[1], reverse=True):
            largest.spill()
            self._sum -= self._held.pop(id(largest))[1]
            if self._sum <= self._memory // 2:
                return

    def put(self, rows: pa.RecordBatch) -> SpilledRows:
        """Write rows to the file."""
        body = memoryview(rows.serialize()).cast("B")
        slots = []
        for start in range(0, len(body), _SLOT):
            slots.append(self._file.take_slot())
            self._file.write(slots[-1], 0, body[start : start + _SLOT])
        return SpilledRows(tuple(slots), len(body))

    def take(self, spilled: SpilledRows, schema: pa.Schema) -> pa.RecordBatch:
        """Read rows back, once."""
        body = pa.allocate_buffer(spilled.size)
        with memoryview(body) as view, view.cast("B") as body_bytes:
            for n, slot in enumerate(spilled.slots):
                with body_bytes[n * _SLOT : (n + 1) * _SLOT] as part:
                    self._file.read_into(slot, part)
                self._file.give_back(slot)
        return pa.ipc.read_record_batch(body, schema)

    def __enter__(self) -> Self:
        """The rows themselves."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove the file."""
        self._file.close()
