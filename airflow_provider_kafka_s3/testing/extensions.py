"""Checks of partitioners and formats of your own, for the tests of their package.

They use the classes as a Spark task does: by their import path, with options as a plan has them, and every result is
checked. A task gets the records of a slice in Arrow batches whose ends depend on Spark, so each check cuts the same
records in many ways::

    records = [SimulatedRecord(offset=i, timestamp=0, value=b'{"tenant": "a"}') for i in range(10)]
    paths = check_partitioner(CustomPartitioner(import_path="mycompany_layouts.tenant:TenantPartitioner"), records)
    assert set(paths) == {"tenant=a"}
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa

from airflow_provider_kafka_s3 import config
from airflow_provider_kafka_s3.arrays import WHOLE_RECORD_SCHEMA, int64_values
from airflow_provider_kafka_s3.exceptions import RecordError
from airflow_provider_kafka_s3.extensions.loading import pinned
from airflow_provider_kafka_s3.formats.parts import MAIN, PartFormats
from airflow_provider_kafka_s3.formats.registry import make_formats
from airflow_provider_kafka_s3.layout.keys import data_key
from airflow_provider_kafka_s3.layout.split import Append, Splitter
from airflow_provider_kafka_s3.structs import decode_struct
from airflow_provider_kafka_s3.testing.kafka import SimulatedRecord

__all__ = ["ExtensionViolation", "check_format", "check_partitioner"]

_TOPIC: Final = "topic"
_PARTITION: Final = 0
_CUTS: Final = 20
"""Ways to cut the records at random places; always the same ones."""


class ExtensionViolation(AssertionError):
    """A class breaks a rule of :mod:`airflow_provider_kafka_s3.extensions`."""


def check_partitioner(
    partitioner: config.CustomPartitioner,
    records: Sequence[SimulatedRecord],
    *,
    value_converter: config.Converter | None = None,
    naming: config.Naming | None = None,
) -> list[str | None]:
    """Check that the path of a record depends on the record alone, and is safe.

    Args:
        partitioner: with the import path of the class, and its options.
        records: of one Kafka partition, in the order of their offsets; also some that are unusual.
        value_converter: what the bytes of values are: JSON (the default) or bytes.
        naming: of the layout.

    Returns:
        The path of each record; None if it is refused.

    Raises:
        ExtensionViolation: a path depends on other records, or on how the records are cut into batches.
        ConfigurationError: the class cannot be made, its result is none, or a path is not safe.
        RecordError: the class raised an exception, which is the cause.
    """
    layout = config.Layout(
        format=config.RawBytes() if isinstance(value_converter, config.BytesConverter) else config.JsonLines(),
        value_converter=value_converter,
        partitioner=_as_in_a_plan(partitioner),
        naming=naming or config.Naming(),
    )
    return _checked(layout, records, _paths, "the paths")


def check_format(
    record_format: config.CustomFormat,
    records: Sequence[SimulatedRecord],
    *,
    value_converter: config.Converter | None = None,
) -> bytes:
    """Check that the bytes of an object depend on its records alone.

    Args:
        record_format: with the import path of the class, and its options.
        records: of one Kafka partition, in the order of their offsets; also some that are unusual.
        value_converter: what the bytes of values are: bytes (the default) or JSON.

    Returns:
        The bytes of an object of all records that are not refused, compressed as the settings have it.

    Raises:
        ExtensionViolation: the bytes of a record depend on other records, or those of the object on how the records are
            cut into batches.
        ConfigurationError: the class cannot be made, or its result is none.
        RecordError: the class raised an exception, which is the cause.
    """
    layout = config.Layout(format=_as_in_a_plan(record_format), value_converter=value_converter)
    _checked(layout, records, _frames, "the bytes of the records")
    body = b""
    for i, cut in enumerate(_cuts(len(records))):
        made = _called(lambda cut=cut: _object(pinned(layout), _batches(records, cut)))
        if i and made != body:
            raise ExtensionViolation(
                f"{_class(layout)}: the bytes of the object differ if its records come in batches that end at {cut}, "
                f"and not in one batch: an ObjectEncoder must not depend on the calls of write"
            )
        body = made
    return body


def _as_in_a_plan(settings: Any) -> Any:
    """The settings after they were written to a plan and read again."""
    return decode_struct(msgspec.json.encode(settings), type(settings))


def _checked(layout: config.Layout, records: Sequence[SimulatedRecord], of_batches: Any, what: str) -> list[Any]:
    if not records:
        raise ValueError("records is empty; give some that are typical, and some that are not")
    expected: list[Any] = _called(lambda: of_batches(pinned(layout), _batches(records, ())))
    for cut in _cuts(len(records)):
        actual = _called(lambda cut=cut: of_batches(pinned(layout), _batches(records, cut)))
        _compare(layout, records, expected, actual, how=f"in batches that end at {cut}", what=what)
    # A slice may begin at any record, and another instance of the class gets it.
    for row, record in enumerate(records):
        alone = _called(lambda record=record: of_batches(pinned(layout), _batches([record], ())))
        _compare(layout, [record], expected[row : row + 1], alone, how="alone, for a new instance", what=what)
    return expected


def _compare(
    layout: config.Layout,
    records: Sequence[SimulatedRecord],
    expected: Sequence[Any],
    found: Sequence[Any],
    *,
    how: str,
    what: str,
) -> None:
    for record, wanted, other in zip(records, expected, found, strict=True):
        if wanted != other:
            raise ExtensionViolation(
                f"{_class(layout)}: {what} depend on other records, or on something else than records: offset "
                f"{record.offset} has {wanted!r} in one batch, and {other!r} {how}"
            )


def _class(layout: config.Layout) -> str:
    return layout.extensions[0].import_path


def _called(function: Any) -> Any:
    """The result of a function; a RecordError has the exception of the class as its cause."""
    try:
        return function()
    except RecordError as e:
        raise e from e.__context__


def _cuts(count: int) -> Iterator[tuple[int, ...]]:
    """Ways to cut so many records; the first is not to cut them, the second is one by one."""
    yield ()
    yield tuple(range(1, count))
    chosen = random.Random(0)
    for _ in range(_CUTS if count > 2 else 0):
        yield tuple(sorted(chosen.sample(range(1, count), chosen.randint(1, min(count - 1, 8)))))


def _batches(records: Sequence[SimulatedRecord], cut: Sequence[int]) -> list[pa.RecordBatch]:
    """The records in batches that end at these rows: parts of one batch, as of Spark."""
    headers = [[{"key": name, "value": value} for name, value in r.headers] for r in records]
    columns: Mapping[str, Iterable[Any]] = {
        "offset": [r.offset for r in records],
        "timestamp": [r.timestamp for r in records],
        "value": [r.value for r in records],
        "key": [r.key for r in records],
        "headers": headers,
    }
    whole = pa.RecordBatch.from_pydict(columns, WHOLE_RECORD_SCHEMA)  # type: ignore[arg-type]
    ends = [0, *cut, len(records)]
    return [whole.slice(start, end - start) for start, end in itertools.pairwise(ends)]


def _formats(layout: config.Layout) -> PartFormats:
    return make_formats(layout, topic=_TOPIC, partition=lambda: _PARTITION)


def _paths(layout: config.Layout, batches: Sequence[pa.RecordBatch]) -> list[str | None]:
    """The path of each record; None if it is refused."""
    formats = _formats(layout)
    splitter = Splitter(layout, topic=_TOPIC, partition=_PARTITION, generation=0)
    paths: dict[int, str] = {}
    for batch in batches:
        prepared = formats.prepare(batch)
        for event in splitter.feed(prepared.records, prepared.sizes, fields=prepared.fields):
            if isinstance(event, Append):
                paths |= dict.fromkeys(event.offsets.tolist(), event.object.encoded_partition)
    return [paths.get(offset) for offset in _offsets(batches)]


def _frames(layout: config.Layout, batches: Sequence[pa.RecordBatch]) -> list[bytes | None]:
    """The bytes of each record; None if it is refused."""
    formats = _formats(layout)
    frames: dict[int, bytes] = {}
    for batch in batches:
        prepared = formats.prepare(batch)
        made = prepared.take(MAIN, slice(0, prepared.records.num_rows), None)
        frames |= dict(zip(_offsets([prepared.records]), made.to_pylist(), strict=True))  # type: ignore[arg-type]
    return [frames.get(offset) for offset in _offsets(batches)]


def _object(layout: config.Layout, batches: Sequence[pa.RecordBatch]) -> bytes:
    """An object of all records that are not refused."""
    formats = _formats(layout)
    first = _offsets(batches)[0]
    key = data_key(
        layout, topic=_TOPIC, encoded_partition="folder", partition=_PARTITION, first_offset=first, generation=0
    )
    writer, body = formats.open(MAIN, key, None), bytearray()
    for batch in batches:
        prepared = formats.prepare(batch)
        if prepared.records.num_rows:
            rows = slice(0, prepared.records.num_rows)
            for piece in writer.write(prepared.take(MAIN, rows, None)):
                body += piece
    for piece in writer.close():
        body += piece
    return bytes(body)


def _offsets(batches: Iterable[pa.RecordBatch]) -> list[int]:
    return [offset for batch in batches for offset in int64_values(batch.column("offset")).tolist()]
