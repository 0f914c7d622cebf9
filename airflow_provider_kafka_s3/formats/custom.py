"""Formats of other packages, whose results are checked before they are written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Literal, NoReturn, cast

import numpy as np
import pyarrow as pa

from airflow_provider_kafka_s3 import config
from airflow_provider_kafka_s3.arrays import Array, binary_array, bounds, int64_array, valid_rows
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.extensions.formats import Frames, ObjectEncoder
from airflow_provider_kafka_s3.extensions.loading import calling, load_format, place_of, shown
from airflow_provider_kafka_s3.extensions.records import Batch
from airflow_provider_kafka_s3.formats.compression import Compressor, make_compression
from airflow_provider_kafka_s3.formats.frames import without_nulls
from airflow_provider_kafka_s3.formats.jsonlines import JsonLinesFormat
from airflow_provider_kafka_s3.formats.port import Buffer, ObjectWriter, Payload, Prepared, Rejected

__all__ = ["CheckedFormat"]

_CORRECT: str = "correct the producer or your format, or use errors='dead_letter' to set such records aside"


class CheckedFormat:
    """A format of another package.

    Args:
        settings: import path and options of its class.
        topic: the Kafka topic.
        partition: gives the Kafka partition of the records that are prepared.
        are_documents: whether values have to be JSON documents.
        writes_nulls: whether the class gets null values.

    Raises:
        ConfigurationError: see :func:`~airflow_provider_kafka_s3.extensions.loading.load_format`.
    """

    def __init__(
        self,
        settings: config.CustomFormat,
        *,
        topic: str,
        partition: Callable[[], int],
        are_documents: bool,
        writes_nulls: bool,
    ) -> None:
        self._class = settings.import_path
        self._format = load_format(settings)
        self._on_null = settings.on_null
        self._compression = make_compression(settings.compression, settings.compression_level)
        self._topic = topic
        self._partition = partition
        self._documents = JsonLinesFormat(config.JsonLines(on_null="ignore")) if are_documents else None
        self._writes_nulls = writes_nulls

    def prepare(self, batch: pa.RecordBatch) -> Prepared:
        """Make the frame of every record that is not refused.

        Raises:
            RecordError: the class raised an exception.
            ConfigurationError: its result is none.
        """
        records, ignored, rejected = batch, 0, list[Rejected]()
        good = np.ones(batch.num_rows, np.bool_)
        if not self._writes_nulls:
            kept = without_nulls(batch, self._on_null)
            ignored, rejected = kept.ignored, [*kept.rejected]
            good = valid_rows(batch.column("value"))
        if self._documents is not None:
            invalid = self._documents.prepare(batch).rejected
            rejected += [replace(r, remedy=_CORRECT) for r in invalid]
            good[[r.row for r in invalid]] = False
        rows = np.flatnonzero(good)
        if len(rows) < batch.num_rows:
            records = batch.take(int64_array(rows))
        if not len(rows):
            return Prepared(records, np.zeros(0, np.int64), binary_array([], large=False), ignored, rejected)
        frames, refused = self._frames(Batch(records, self._topic, self._partition()))
        if refused:
            rejected += [Rejected(int(rows[row]), "format", reason, _CORRECT) for row, reason in refused.items()]
            left = int64_array(np.delete(np.arange(len(rows)), list(refused)))
            records, frames = records.take(left), frames.take(left)
        return Prepared(
            records=records,
            sizes=np.diff(bounds(frames)),
            payload=frames,
            ignored=ignored,
            rejected=sorted(rejected, key=lambda r: r.row),
        )

    def _frames(self, batch: Batch) -> tuple[Array, dict[int, str]]:
        with calling(self._class, batch):
            encoded: object = self._format.encode(shown(batch, self._format))
        if not isinstance(encoded, Frames):
            self._refuse(batch, f"returned {type(encoded).__name__}; return Frames")
        unchecked: object = encoded.frames
        count = batch.records.num_rows
        frames = self._array(batch, unchecked) if not isinstance(unchecked, pa.Array) else unchecked
        if not (pa.types.is_binary(frames.type) or pa.types.is_large_binary(frames.type)) or frames.null_count:
            self._refuse(batch, f"returned frames of {frames.type}; return binary or large_binary without nulls")
        if len(frames) != count:
            self._refuse(batch, f"returned {len(frames)} frames for {count} records; return one each")
        with calling(self._class, batch):
            refused = {int(row): reason for row, reason in encoded.refused.items()}
        if not all(0 <= row < count for row in refused) or not all(
            isinstance(reason, str) for reason in refused.values()
        ):
            self._refuse(batch, "refused what is no row of the batch, or for a reason that is no text; return both")
        return frames, refused

    def _array(self, batch: Batch, frames: object) -> Array:
        if not isinstance(frames, Sequence) or not all(isinstance(frame, bytes) for frame in frames):
            self._refuse(batch, "returned frames that are no bytes; return bytes for each record")
        return binary_array(frames, large=sum(map(len, frames)) >= 2**31)

    def open(self, key: str, schema: int | None) -> ObjectWriter:  # noqa: ARG002 - the interface has them
        """Begin an object."""
        with calling(self._class, key=key):
            encoder: object = self._format.open()
        if not isinstance(encoder, ObjectEncoder):
            raise ConfigurationError(
                f"object {key!r}: {self._class} opened {type(encoder).__name__}; return an ObjectEncoder"
            )
        return _Writer(self._class, encoder, self._compression(), key)

    def _refuse(self, batch: Batch, what: str) -> NoReturn:
        raise ConfigurationError(f"{place_of(batch)}: {self._class} {what}")


class _Writer:
    """Writes what an encoder makes, with compression."""

    def __init__(self, import_path: str, encoder: ObjectEncoder, compressor: Compressor, key: str) -> None:
        self._class = import_path
        self._encoder = encoder
        self._compressor = compressor
        self._key = key
        self._begun = False

    def write(self, payload: Payload) -> Iterable[Buffer]:
        """Encode frames; see :class:`~airflow_provider_kafka_s3.formats.port.ObjectWriter`."""
        if not self._begun:
            yield from self._compressed("begin")
            self._begun = True
        with calling(self._class, key=self._key):
            made = self._encoder.write(cast("Array", payload))
        yield from self._compressor.write(self._checked("write", made))

    def close(self) -> Iterable[Buffer]:
        """End the object."""
        yield from self._compressed("end")
        yield from self._compressor.close()

    def _compressed(self, method: Literal["begin", "end"]) -> Iterable[Buffer]:
        with calling(self._class, key=self._key):
            made = getattr(self._encoder, method)()
        yield from self._compressor.write(self._checked(method, made))

    def _checked(self, method: str, made: object) -> memoryview:
        if not isinstance(made, bytes | memoryview):
            raise ConfigurationError(
                f"object {self._key!r}: {method} of {self._class} returned {type(made).__name__}; return bytes"
            )
        return memoryview(made).cast("B")
