"""Objects of the bytes of records, with a separator behind each."""

from __future__ import annotations

from typing import Literal, NoReturn

import pyarrow as pa

from airflow_provider_kafka_s3.config import CompressionName, Converter, RawBytes
from airflow_provider_kafka_s3.exceptions import ConfigurationError, ForeignObjectError
from airflow_provider_kafka_s3.messages import count
from airflow_provider_kafka_s3.overriding import override
from airflow_provider_kafka_s3.reading.formats.lines import LineReader
from airflow_provider_kafka_s3.reading.formats.port import SparkSource
from airflow_provider_kafka_s3.reading.rows import Row, as_text
from airflow_provider_kafka_s3.reading.snapshot_objects import SnapshotObject

__all__ = ["RawBytesReader"]


class RawBytesReader(LineReader):
    """Rows are the values themselves."""

    may_hold_separator = True

    def __init__(self, settings: RawBytes, compression: CompressionName) -> None:
        super().__init__(settings, compression)
        self.separator = settings.separator.encode()
        if settings.separator == "\n":
            # By default a carriage return ends a line, too.
            self.spark_source = SparkSource("text", {"lineSep": "\n"})

    @override
    def row(self, line: bytes) -> Row:
        return Row(line, as_text(line))

    def table_of_fields(self, snapshot_object: SnapshotObject, text: bytes, schema: pa.Schema) -> NoReturn:
        """See :class:`LineReader`; there are none."""
        del text, schema
        raise ConfigurationError(
            f"the records of {snapshot_object.url} are bytes: read them as the column 'value', of binary type"
        )

    @override
    def why_changed(self, converter: Converter, part: Literal["key", "value"]) -> str | None:
        del converter, part
        separator = self.separator.decode()
        if not separator:
            return "format='bytes' with separator='' keeps no borders between records"
        if any(separator.startswith(separator[i:]) for i in range(1, len(separator))):
            return f"the separator {separator!r} ends as it begins, so the borders between records are ambiguous"
        return None

    @override
    def part_bytes(self, converter: Converter) -> None:
        del converter

    @override
    def refuse_more_lines(self, snapshot_object: SnapshotObject, lines: int) -> NoReturn:
        raise ForeignObjectError(
            f"object {snapshot_object.url} of topic {snapshot_object.topic!r}, batch {snapshot_object.batch}, has "
            f"{lines:,} parts for {count(snapshot_object.records, 'record')}: values hold the separator "
            f"{self.separator.decode()!r}, so its records cannot be told apart. The object is as it was written, and "
            f"action='verify' accepts it. Land the topic with a separator of RawBytes that no value has, or as Parquet "
            f"or Avro with value_converter='bytes'. To read the others, select batches without it, by batches="
        )
