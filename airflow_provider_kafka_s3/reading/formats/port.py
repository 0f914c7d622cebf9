"""What readers need of the objects of a format."""

from __future__ import annotations

import bz2
import gzip
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import pyarrow as pa

from airflow_provider_kafka_s3.config import (
    BytesConverter,
    CompressionName,
    Converter,
    Format,
    StringConverter,
)
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.reading.part_bytes import bytes_of_datum
from airflow_provider_kafka_s3.reading.remote_file import RemoteFile
from airflow_provider_kafka_s3.reading.rows import Row, Unreadable
from airflow_provider_kafka_s3.reading.snapshot_objects import SnapshotObject

__all__ = ["FormatReader", "SparkSource", "require_rows"]


@dataclass(frozen=True)
class SparkSource:
    """A source of Spark that reads the objects.

    Attributes:
        name: of the source.
        options: of the source.
        has_base64: whether bytes of values are texts in base64, for which Spark takes the letters.
    """

    name: str
    options: Mapping[str, str] = field(default_factory=dict)
    has_base64: bool = False


class FormatReader(ABC):
    """Reads objects of one format with one kind of settings."""

    has_own_columns: ClassVar[bool] = False
    """Whether each object has the names and the types of its columns."""

    may_hold_separator: ClassVar[bool] = False
    """Whether a value may hold what separates records: then an object has more rows than records."""

    reads_every_byte: ClassVar[bool] = True
    """Whether :meth:`record_rows` reads an object from its first byte to the last one, so that its CRC-32 is known."""

    has_json_fields: ClassVar[bool] = False
    """Whether the fields of envelopes are texts of JSON."""

    spark_source: SparkSource | None = None
    """None: Spark has none."""

    def __init__(self, settings: Format, compression: CompressionName = "none") -> None:
        """Make a reader.

        Args:
            settings: that the objects were written with.
            compression: of an object as a whole.
        """
        self._settings = settings
        self.compression = compression

    def uncompressed(self, body: bytes) -> bytes:
        """The bytes of an object before its compression, if it is compressed as a whole.

        Raises:
            Unreadable: they are damaged.
        """
        try:
            match self.compression:
                case "gzip":
                    return gzip.decompress(body)
                case "bzip2":
                    return bz2.decompress(body)
                case "zstd":
                    with pa.CompressedInputStream(pa.BufferReader(body), "zstd") as stream:
                        return stream.read()
                case _:
                    return body
        except (OSError, EOFError, ValueError, zlib.error) as e:
            raise Unreadable(f"its compression {self.compression!r} is damaged ({e})") from e

    @abstractmethod
    def rows(self, text: bytes, count: int, wanted: slice) -> list[Row]:
        """Some rows of an object, for people.

        Args:
            text: the bytes of the object, decompressed.
            count: number of its rows.
            wanted: which of them, with start and stop.

        Raises:
            Unreadable: it does not have so many rows.
        """

    @abstractmethod
    def table(self, snapshot_object: SnapshotObject, body: bytes, schema: pa.Schema) -> pa.Table:
        """The fields of all values of an object, in the types of a schema with one column at least.

        Args:
            snapshot_object: the object, for its layout and for messages.
            body: its bytes.
            schema: columns of values, by name.

        Raises:
            ConfigurationError: the format has no such columns.
            Unreadable: the bytes are not those of the format; or pyarrow.ArrowException, ValueError, LookupError.
        """

    def record_rows(self, file: RemoteFile, *, topic: str, piece: int, enveloped: bool) -> Iterator[Any]:
        """The rows of an object from its beginning, some at a time, for the records that Kafka had.

        They are bytes of lines, or Python values; envelopes may be blocks of lines, or columns.

        Args:
            file: the object.
            topic: of its records.
            piece: bytes to decode at once, about.
            enveloped: whether the records are envelopes.

        Raises:
            ValueError: it cannot be read; or LookupError, OSError, EOFError, an error of a decompressor or of Arrow.
        """
        del file, topic, piece, enveloped
        raise Unreadable(f"the format {self._settings!r} has no rows")

    def schema(self, file: Any, url: str) -> pa.Schema:
        """The columns of an object.

        Args:
            file: the object, seekable.
            url: its address, for messages.

        Raises:
            ConfigurationError: the format has no types of columns.
            ValueError: the object cannot be read; or LookupError, OSError, pyarrow.ArrowException.
        """
        del file
        raise ConfigurationError(
            f"{url} is {type(self._settings).__name__}, which has no types of columns: give a schema"
        )

    def why_changed(self, converter: Converter, part: Literal["key", "value"]) -> str | None:
        """Why objects have other bytes of a part of records than Kafka; None: they have the same."""
        if isinstance(converter, BytesConverter | StringConverter):
            return None
        kind = converter.__struct_config__.tag
        return f"the {part}s were decoded by {part}_converter={kind!r}, and written again: their bytes are not kept"

    def rewrites_documents(self, converter: Converter) -> bool:
        """Whether documents of JSON are kept as one line each, which may not be the bytes of Kafka."""
        del converter
        return False

    def part_bytes(self, converter: Converter) -> Callable[[Any], bytes] | None:
        """Gives the bytes that Kafka had of a key or a value, from its row; None: the row has them."""
        del converter
        return bytes_of_datum


def require_rows(found: int, count: int) -> None:
    """Refuse another number of rows than that of the manifest."""
    if found != count:
        raise Unreadable(f"it has {found:,} rows instead of {count:,}")
