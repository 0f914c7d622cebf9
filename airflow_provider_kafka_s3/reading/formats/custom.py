"""Objects of formats of other packages, which only write."""

from __future__ import annotations

from typing import Literal, NoReturn

import pyarrow as pa

from airflow_provider_kafka_s3.config import Converter, CustomFormat
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.overriding import override
from airflow_provider_kafka_s3.reading.formats.port import FormatReader
from airflow_provider_kafka_s3.reading.rows import Row, Unreadable
from airflow_provider_kafka_s3.reading.snapshot_objects import SnapshotObject

__all__ = ["CustomReader"]


class CustomReader(FormatReader):
    """Refuses to read, with the class that writes."""

    def __init__(self, settings: CustomFormat) -> None:
        super().__init__(settings, settings.compression)
        self._why = f"a class of another package, {settings.import_path!r}, which only writes"

    @override
    def rows(self, text: bytes, count: int, wanted: slice) -> list[Row]:
        del text, count, wanted
        raise Unreadable(f"the format is {self._why}")

    @override
    def table(self, snapshot_object: SnapshotObject, body: bytes, schema: pa.Schema) -> NoReturn:
        del body, schema
        raise ConfigurationError(f"the format of {snapshot_object.url} is {self._why}")

    @override
    def why_changed(self, converter: Converter, part: Literal["key", "value"]) -> str | None:
        del converter, part
        return f"the format is {self._why}"
