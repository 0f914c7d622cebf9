"""Objects of lines are read to their end: nothing behind the last line, or the last compressed byte, is dropped."""

from __future__ import annotations

import bz2
import gzip
from collections import deque
from collections.abc import Callable, Iterator
from random import Random
from typing import Any, Final

import pyarrow as pa
import pytest

from airflow_provider_kafka_s3.config import CompressionName
from airflow_provider_kafka_s3.reading.lines import expanded, line_blocks, lines_of
from airflow_provider_kafka_s3.reading.remote_file import RemoteFile

REQUEST: Final = 4096
BODY: Final = Random(1).randbytes(20_000)


def zstd(body: bytes) -> bytes:
    """Compressed by Arrow."""
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(body)
    return sink.getvalue().to_pybytes()


COMPRESS: Final[dict[CompressionName, Callable[[bytes], bytes]]] = {
    "gzip": gzip.compress,
    "bzip2": bz2.compress,
    "zstd": zstd,
}


def read(data: bytes, compression: CompressionName) -> bytes:
    """What is in an object."""
    return b"".join(expanded(RemoteFile(lambda start, end: data[start:end], len(data), REQUEST), compression))


@pytest.mark.parametrize("compression", COMPRESS)
def test_compressed_members_are_read_to_the_last_one(compression: CompressionName) -> None:
    """One behind the other, as some writers have them."""
    compress = COMPRESS[compression]
    assert read(compress(BODY) + compress(b"more"), compression) == BODY + b"more"


@pytest.mark.parametrize("compression", COMPRESS)
def test_bytes_behind_compressed_ones_are_an_error(compression: CompressionName) -> None:
    """Some decompressors stop before them without a word."""
    with pytest.raises((ValueError, OSError, EOFError)):
        read(COMPRESS[compression](BODY) + b"x" * 20 * REQUEST, compression)


READERS: Final[dict[str, Callable[[Iterator[bytes]], Iterator[Any]]]] = {
    "lines": lambda pieces: lines_of(pieces, b"\n"),
    "separated": lambda pieces: lines_of(pieces, b"\r\n"),
    "blocks": line_blocks,
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("pieces", [[b"a"], [b"a\r\n", b"b"], [b"a\r\nb"], [b"a\r\n", b"b", b"c"]], ids=repr)
def test_bytes_behind_the_last_line_are_an_error(reader: str, pieces: list[bytes]) -> None:
    """They are a line whose end is gone; with its separator it is one more."""
    with pytest.raises(ValueError, match="it does not end with its separator"):
        deque(READERS[reader](iter(pieces)), maxlen=0)
    found = [*READERS[reader](iter([*pieces, b"\r\n"]))]
    assert sum(map(len, found)) == b"".join(pieces).count(b"\n") + 1
