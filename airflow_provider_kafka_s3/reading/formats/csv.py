"""Objects of CSV."""

from __future__ import annotations

import io
import re
from typing import Any, Final, Literal

import pyarrow as pa
import pyarrow.csv

from airflow_provider_kafka_s3.config import BytesConverter, Converter, Csv, JsonConverter, StringConverter
from airflow_provider_kafka_s3.converters.declared_json import declared_schema
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.overriding import override
from airflow_provider_kafka_s3.reading.formats.lines import BLOCK_BYTES
from airflow_provider_kafka_s3.reading.formats.port import FormatReader, SparkSource, require_rows
from airflow_provider_kafka_s3.reading.rows import Row, Unreadable
from airflow_provider_kafka_s3.reading.snapshot_objects import SnapshotObject
from airflow_provider_kafka_s3.reading.text_columns import (
    ReadText,
    decoded_table,
    number_of_text,
    text_readers,
    with_texts,
)
from airflow_provider_kafka_s3.schemas.arrow_types import arrow_schema

__all__ = ["CsvReader"]

_LINE: Final = re.compile(rb'(?:[^"\n]|"(?:[^"]|"")*")*\n')


class CsvReader(FormatReader):
    """Rows have fields by the names of a header, or by their position."""

    def __init__(self, settings: Csv) -> None:
        super().__init__(settings, settings.compression)
        self._csv = settings
        self.spark_source = SparkSource(
            "csv",
            {
                "header": str(settings.header).lower(),
                "sep": settings.separator,
                "nullValue": settings.null,
                "escape": '"',
                "multiLine": "true",
                "nanValue": "nan",
                "positiveInf": "inf",
                "negativeInf": "-inf",
                # Spark finds columns by their position: with a header it refuses other names then.
                "enforceSchema": "false",
            },
            has_base64=True,
        )

    @override
    def rows(self, text: bytes, count: int, wanted: slice) -> list[Row]:
        settings, lines = self._csv, _LINE.findall(text)
        if sum(map(len, lines)) != len(text):
            raise Unreadable("it is no CSV")
        separator = re.escape(settings.separator)
        fields = re.compile(rf'(?:^|{separator})(?:"(?P<quoted>(?:[^"]|"")*)"|(?P<plain>[^{separator}"]*))')

        def parsed(line: bytes) -> list[str | None]:
            matches = fields.finditer(line.decode().removesuffix("\n"))
            return [_field(m["quoted"], m["plain"], settings.null) for m in matches]

        names = parsed(lines.pop(0)) if settings.header and lines else None
        require_rows(len(lines), count)
        rows = []
        for line in lines[wanted]:
            values = parsed(line)
            row = values if names is None else dict(zip(map(str, names), values, strict=True))
            rows.append(Row(line.removesuffix(b"\n"), row))
        return rows

    @override
    def table(self, snapshot_object: SnapshotObject, body: bytes, schema: pa.Schema) -> pa.Table:
        settings, reader_of = self._csv, text_readers(snapshot_object.layout, _text_reader)
        names = None if settings.header else _names(snapshot_object)
        texts = pyarrow.csv.read_csv(
            io.BytesIO(self.uncompressed(body)),
            read_options=pyarrow.csv.ReadOptions(column_names=names, block_size=BLOCK_BYTES, use_threads=False),
            parse_options=pyarrow.csv.ParseOptions(delimiter=settings.separator, newlines_in_values=True),
            convert_options=pyarrow.csv.ConvertOptions(
                column_types=with_texts(schema, reader_of),
                include_columns=schema.names,
                include_missing_columns=True,
                null_values=[settings.null],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
        return decoded_table(texts, schema, reader_of)

    @override
    def why_changed(self, converter: Converter, part: Literal["key", "value"]) -> str | None:
        del converter, part
        return "format='csv' writes fields, not the bytes of records"


def _text_reader(kind: Any) -> ReadText | None:
    return number_of_text if pa.types.is_decimal256(kind) else None


def _field(quoted: str | None, plain: str | None, null: str) -> str | None:
    if quoted is not None:
        return quoted.replace('""', '"')
    return None if plain == null else plain


def _names(snapshot_object: SnapshotObject) -> list[str]:
    """The names of the columns of an object without a header."""
    match snapshot_object.layout.value_converter:
        case JsonConverter(schema=str() as text, unknown_fields=unknown_fields):
            return arrow_schema(declared_schema(text, unknown_fields)[0]).names
        case BytesConverter() | StringConverter() | None:
            return ["value"]
    raise ConfigurationError(
        f"the names of the columns of {snapshot_object.url} are not known: its format has header=False, and which "
        f"schema its values have is in no document. Land the topic with header=True; or read the object by a reader of "
        f"CSV that takes columns by their position, such as spark_frame with a schema"
    )
