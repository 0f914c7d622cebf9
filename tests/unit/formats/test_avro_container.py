"""Avro files: common readers read them, and their bytes depend on the datums alone."""

from __future__ import annotations

import hashlib
import io
import itertools
import json
import random
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_kafka_s3.formats.avro import BLOCK_DATUMS, BLOCK_SIZE, AvroCodec, AvroWriter

SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"]}],
}
SYNC = hashlib.sha256(b"topics/orders/orders+0+0000000000.avro").digest()[:16]
CODECS: list[Any] = ["null", "deflate", "snappy", "bzip2", "xz", "zstandard"]


def datums(records: Iterable[Any], schema: Any = SCHEMA) -> pa.Array:
    """Records in Avro's binary encoding."""
    parsed = fastavro.parse_schema(schema)
    out = []
    for record in records:
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, parsed, record)
        out.append(stream.getvalue())
    return pa.array(out, pa.binary())


def some(count: int) -> list[dict[str, Any]]:
    """Records of different lengths."""
    r = random.Random(5)
    return [{"id": i, "note": None if i % 5 == 0 else "note " * r.randrange(60)} for i in range(count)]


RECORDS = some(3000)
DATUMS = datums(RECORDS)


def write(pieces: Iterable[pa.Array], codec: AvroCodec = "null", schema: Any = SCHEMA) -> bytes:
    """A file that is written in these pieces."""
    writer = AvroWriter(json.dumps(schema).encode(), codec, sync=SYNC)
    out = b"".join(bytes(data) for piece in pieces for data in writer.write(piece))
    return out + b"".join(bytes(data) for data in writer.close())


def snappy(block: bytes) -> bytes:
    """The data of a Snappy block; the format puts its length first, and Avro a checksum last."""
    size = shift = 0
    for byte in block:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    data = pa.Codec("snappy").decompress(block[:-4], size, asbytes=True)
    assert zlib.crc32(data) == int.from_bytes(block[-4:], "big")
    return data


def zstandard(block: bytes) -> bytes:
    """The data of a Zstandard block."""
    return pa.CompressedInputStream(pa.BufferReader(block), "zstd").read()


UNPACK: dict[str, Callable[[bytes], bytes]] = {"snappy": snappy, "zstandard": zstandard}


def unpacked(body: bytes, codec: str) -> bytes:
    """The same file without compression, of codecs that fastavro reads with other packages only."""
    if codec not in UNPACK:
        return body
    end = body.index(body[-16:]) + 16
    stream = io.BytesIO(body[end:])
    out = io.BytesIO()
    out.write(body[:end].replace(bytes([2 * len(codec)]) + codec.encode(), b"\x08null"))
    while stream.tell() < len(body) - end:
        count, size = (fastavro.schemaless_reader(stream, "long", None) for _ in range(2))
        block = UNPACK[codec](stream.read(size))
        for number in (count, len(block)):
            fastavro.schemaless_writer(out, "long", number)
        out.write(block + stream.read(16))
    return out.getvalue()


def blocks(body: bytes) -> list[tuple[int, int]]:
    """Datums and bytes of each block of a file without compression."""
    stream = io.BytesIO(body)
    return [(block.num_records, len(block.bytes_.getvalue())) for block in fastavro.block_reader(stream)]


@pytest.mark.parametrize("codec", CODECS)
def test_fastavro_reads_what_was_written(codec: Any) -> None:
    """All records of several blocks, with the schema and the codec in the header."""
    body = write([DATUMS], codec)
    assert b"\x14avro.codec" + bytes([2 * len(codec)]) + codec.encode() in body
    reader = fastavro.reader(io.BytesIO(unpacked(body, codec)))
    assert list(reader) == RECORDS
    assert json.loads(reader.metadata["avro.schema"]) == SCHEMA


@pytest.mark.parametrize("kind", ["long", "string", "bytes", "null", {"type": "array", "items": "long"}])
def test_datums_need_not_be_records(kind: Any) -> None:
    """Any schema; datums of ``null`` are empty."""
    values: Any = {"long": [1, -1, 2**60], "string": ["", "é"], "bytes": [b"x"], "null": [None] * 20_000}
    given_ = values[kind] if isinstance(kind, str) else [[], [1, 2]]
    assert list(fastavro.reader(io.BytesIO(write([datums(given_, kind)], "deflate", kind)))) == given_


@settings(max_examples=50)
@given(
    codec=st.sampled_from(CODECS),
    edges=st.lists(st.integers(0, 3000), max_size=8),
    large=st.booleans(),
)
def test_bytes_do_not_depend_on_the_sizes_of_the_writes(codec: Any, edges: list[int], large: bool) -> None:
    """The same datums in other arrays, also with offsets of 64 bits, are the same file."""
    values = DATUMS.cast(pa.large_binary()) if large else DATUMS
    at = [0, *sorted(edges), len(values)]
    pieces = [values.slice(a, b - a) for a, b in itertools.pairwise(at)]
    assert write(pieces, codec) == write([DATUMS], codec)


def test_datums_that_are_written_one_by_one_make_the_same_file() -> None:
    """The smallest pieces."""
    assert write([DATUMS.slice(i, 1) for i in range(len(DATUMS))]) == write([DATUMS])


def test_blocks_end_with_the_datum_that_reaches_a_bound() -> None:
    """64 KiB of data, or 16,384 datums; a long datum ends its block."""

    def cut(sizes: Sequence[int]) -> list[tuple[int, int]]:
        return blocks(write([pa.array([b"x" * n for n in sizes], pa.binary())]))

    assert (BLOCK_SIZE, BLOCK_DATUMS) == (65_536, 16_384)
    assert cut([32_768] * 3) == [(2, 65_536), (1, 32_768)]
    assert cut([32_768, 32_767, 1, 5]) == [(3, 65_536), (1, 5)]
    assert cut([10, 1_000_000, 10]) == [(2, 1_000_010), (1, 10)]
    assert cut([0] * 16_385) == [(16_384, 0), (1, 0)]
    assert cut([65_536, 0]) == [(1, 65_536), (1, 0)]
    assert cut([1] * 16_384) == [(16_384, 16_384)]


def test_every_block_ends_with_the_given_marker() -> None:
    """The header and each block."""
    body = write([DATUMS])
    assert body.startswith(b"Obj\x01")
    assert body.endswith(SYNC)
    assert body.count(SYNC) == 1 + len(blocks(body))


def test_a_marker_of_another_length_is_refused() -> None:
    """It would make a file that nothing reads."""
    with pytest.raises(ValueError, match="has 16 bytes, not 4"):
        AvroWriter(b'"long"', "null", sync=b"1234")


@pytest.mark.parametrize("codec", CODECS)
def test_a_file_without_datums_is_valid(codec: Any) -> None:
    """It is the header."""
    for pieces in ([], [DATUMS.slice(0, 0)]):
        body = write(pieces, codec)
        assert body.endswith(SYNC)
        assert list(fastavro.reader(io.BytesIO(unpacked(body, codec)))) == []


@pytest.mark.parametrize("codec", CODECS)
def test_a_writer_holds_less_than_a_block(codec: Any) -> None:
    """However many datums of 1 MB and of few bytes."""
    writer = AvroWriter(b'"bytes"', codec, sync=SYNC)
    long_values = pa.array([bytes(1024 * 1024)] * 2, pa.binary())
    for _ in range(3):
        for piece in (DATUMS, long_values, DATUMS.slice(7, 50)):
            for _data in writer.write(piece):
                pass
            assert len(writer._pending) < BLOCK_SIZE


GOLDEN = {
    "null": "74dd0a7e49d17422508e5b4bfc444a12a5bc2fa48181583c982cdd51caa8f976",
    "bzip2": "91c5deda640fa7c665754dbd29f8222ca76e612717d375d377c76650334f733f",
    "xz": "f1a4cc684c910499b19e8041f76fdaf419036d84bc4967ee23ddfb1f33128c57",
}
if "zlib-ng" not in zlib.ZLIB_RUNTIME_VERSION:  # another encoder under the same name
    GOLDEN["deflate"] = "23ccaf1279aef746b72e6000fad9cffff0d8fab84b5a5e17b0b3c742aac00cd0"


@pytest.mark.parametrize(("codec", "digest"), GOLDEN.items())
def test_bytes_are_pinned(codec: Any, digest: str) -> None:
    """A change would be one of ours, or of the library: zlib 1, bzip2 1.0 and XZ Utils 5 make these bytes.

    Snappy and Zstandard change between versions of pyarrow, and are not pinned.
    """
    assert hashlib.sha256(write([DATUMS], codec)).hexdigest() == digest
