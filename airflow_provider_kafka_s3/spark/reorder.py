"""The batches of a task by slice, in the order of the plan, in whatever order Spark has the slices.

A task that reads several slices gets one after the other, each of them in order. Which comes first is undefined:
Spark's Kafka source keeps Kafka partitions in a set, and a coalesced partition may begin with those that have a
preferred host. The objects depend on the order of the plan. So what comes before its turn waits in a temporary file.
"""

from __future__ import annotations

import io
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from airflow_provider_kafka_s3.documents.plan import Slice
from airflow_provider_kafka_s3.exceptions import SparkJobError
from airflow_provider_kafka_s3.spark.packing import RecordPacking

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["OrderedSlices"]


class OrderedSlices:
    """The batches of a group of slices.

    Args:
        packing: of the job.
        slices: the group, by partition and offset.
        batches: all of the task, none of them empty; the rows of a slice are adjacent.
        spill_dir: folder of the temporary file; None: the default one.
    """

    def __init__(
        self,
        packing: RecordPacking,
        slices: Sequence[Slice],
        batches: Iterable[pa.RecordBatch],
        spill_dir: str | None = None,
    ) -> None:
        positions = packing.slice_positions(slices)
        self._runs = (run for batch in batches for run in packing.runs(batch, positions))
        self._next: tuple[Slice, pa.RecordBatch] | None = next(self._runs, None)
        self._spill_dir = spill_dir
        self._file: io.BufferedRandom | None = None
        self._spilled: dict[int, int] = {}
        self._over: set[int] = set()

    def __enter__(self) -> Self:
        """Nothing is opened before it is needed."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove the temporary file."""
        if self._file is not None:
            self._file.close()

    def of(self, slice_: Slice) -> Iterator[pa.RecordBatch]:
        """The batches of a slice; to be consumed before those of the next slice.

        Raises:
            SparkJobError: rows of a slice come after its end.
        """
        self._over.add(slice_.id)
        while slice_.id not in self._spilled and self._next is not None and self._next[0].id != slice_.id:
            self._spill(self._next[0])
        if slice_.id in self._spilled:
            yield from self._read_back(slice_)
        else:
            yield from self._take(slice_)

    def end(self) -> None:
        """Check that nothing is left after the last slice.

        Raises:
            SparkJobError: rows of a slice come after its end.
        """
        if self._next is not None:
            raise _second_time(self._next[0])

    def _take(self, slice_: Slice) -> Iterator[pa.RecordBatch]:
        """The next batches, as long as they are of this slice."""
        while self._next is not None and self._next[0].id == slice_.id:
            batch = self._next[1]
            self._next = next(self._runs, None)
            yield batch

    def _spill(self, slice_: Slice) -> None:
        """Store the next batches, up to the end of their slice."""
        import pyarrow as pa

        if slice_.id in self._over or slice_.id in self._spilled:
            raise _second_time(slice_)
        if self._file is None:
            # The file has no name, so it cannot outlive the process.
            self._file = tempfile.TemporaryFile(dir=self._spill_dir)  # noqa: SIM115 - closed by __exit__
        self._spilled[slice_.id] = self._file.seek(0, 2)
        assert self._next is not None, "it is a slice that comes next"
        with pa.ipc.new_stream(self._file, self._next[1].schema) as stream:
            for batch in self._take(slice_):
                stream.write_batch(batch)

    def _read_back(self, slice_: Slice) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        assert self._file is not None, "the slice is stored"
        self._file.seek(self._spilled[slice_.id])
        with pa.ipc.open_stream(self._file) as stream:
            yield from stream


def _second_time(slice_: Slice) -> SparkJobError:
    return SparkJobError(
        f"the records of partition {slice_.partition}, [{slice_.start}, {slice_.end}), came to a task in several "
        f"parts. Nothing was decided; try again"
    )
