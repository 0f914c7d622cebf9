"""Reads objects of lines."""

from __future__ import annotations

import bz2
import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from isal import igzip

from airflow_provider_kafka_s3.arrays import Int64Array
from airflow_provider_kafka_s3.config import CompressionName
from airflow_provider_kafka_s3.reading.remote_file import RemoteFile

__all__ = ["LineBlock", "expanded", "line_blocks", "lines_of"]

_PIECE: Final = 1024 * 1024
"""Bytes that are decompressed at once."""
_NEWLINE: Final = b"\n"
_UNFINISHED: Final = "it does not end with its separator"


def expanded(file: RemoteFile, compression: CompressionName) -> Iterator[bytes]:
    """The bytes before compression, a megabyte or a request at a time; gzip and bzip2 may have several members.

    Raises:
        ValueError: the object has more than these bytes.
        OSError: it is not what a compressor wrote; as EOFError, isal_zlib.error and pyarrow.ArrowException.
    """
    source: Any = io.BufferedReader(file, file.request)
    match compression:
        case "gzip":
            source = igzip.IGzipFile(fileobj=source)
        case "bzip2":
            source = bz2.BZ2File(source)
        case "zstd":
            source = pa.CompressedInputStream(pa.PythonFile(source, mode="r"), "zstd")
    while piece := source.read(min(_PIECE, file.request)):
        yield piece
    while file.read(_PIECE):  # what a decompressor leaves
        raise ValueError("there are bytes behind its compressed rows")


def lines_of(pieces: Iterator[bytes], separator: bytes) -> Iterator[list[bytes]]:
    """What is before each separator, of one piece at a time.

    Raises:
        ValueError: the last piece does not end with the separator.
    """
    pending: list[bytes] = []
    overlap = len(separator) - 1
    for piece in pieces:
        # A separator may begin in one piece, and end in the next one.
        edge = b"".join(pending[-1:])[-overlap:] if overlap else b""
        pending.append(piece)
        if len(piece) < overlap or separator in edge + piece:
            *lines, last = b"".join(pending).split(separator)
            yield lines
            pending = [last]
    if any(pending):
        raise ValueError(_UNFINISHED)


@dataclass(frozen=True)
class LineBlock:
    """Lines that follow one another.

    Attributes:
        data: their bytes; a newline is behind each of them.
        ends: where these newlines are.
    """

    data: bytes
    ends: Int64Array

    def __len__(self) -> int:
        return len(self.ends)


def line_blocks(pieces: Iterator[bytes]) -> Iterator[LineBlock]:
    """The lines of one piece at a time, not cut apart.

    Raises:
        ValueError: the last piece does not end with a newline.
    """
    pending: list[bytes | memoryview] = []
    for piece in pieces:
        end = piece.rfind(_NEWLINE) + 1
        if end:
            data = b"".join([*pending, memoryview(piece)[:end]])
            yield LineBlock(data, np.flatnonzero(np.frombuffer(data, np.uint8) == ord(_NEWLINE)))
            pending = []
        pending.append(piece[end:])
    if any(pending):
        raise ValueError(_UNFINISHED)
