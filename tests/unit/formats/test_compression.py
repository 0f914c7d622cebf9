"""Compression: the bytes depend on nothing but the data and the level, and common tools read them."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import itertools
import random
import shutil
import subprocess
import zlib
from collections.abc import Sequence
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_kafka_s3.config import CompressionName, Hourly, Layout, Rotation, parse_format
from airflow_provider_kafka_s3.formats.compression import (
    BLOCK_SIZE,
    BZIP2_BLOCK_SIZE,
    LIBDEFLATE_BLOCK_SIZE,
    ZSTD_BLOCK_SIZE,
    Compressor,
    make_compression,
)

BLOCK_SIZES = {"gzip": LIBDEFLATE_BLOCK_SIZE, "zstd": ZSTD_BLOCK_SIZE, "bzip2": BZIP2_BLOCK_SIZE}
"""Of each compression that concatenates; of bzip2 for each level, of gzip at levels above 3."""
HEADER = bytes.fromhex("1f8b08000000000000ff")
DATA = bytes(random.Random(8).choices(b"abcdefgh\n", k=3 * BLOCK_SIZE + 1000))


def compress(pieces: Sequence[bytes], level: int | None = None, name: CompressionName = "gzip") -> bytes:
    """An object that is written in these pieces."""
    compressor = make_compression(name, level)()
    out = b"".join(bytes(data) for piece in pieces for data in compressor.write(memoryview(piece)))
    return out + b"".join(bytes(data) for data in compressor.close())


@pytest.mark.parametrize("level", range(10))
@pytest.mark.parametrize("size", [0, 1, BLOCK_SIZE - 1, BLOCK_SIZE, BLOCK_SIZE + 1, 3 * BLOCK_SIZE])
def test_python_s_gzip_reads_it(level: int, size: int) -> None:
    """It returns what was written, at sizes around the block size."""
    assert gzip.decompress(compress([DATA[:size]], level)) == DATA[:size]


@pytest.mark.parametrize("level", [2, 6])
def test_zcat_reads_it(level: int, tmp_path: Any) -> None:
    """For the common tool, the file is valid; its members are one file."""
    zcat = shutil.which("zcat")
    assert zcat is not None
    path = tmp_path / "x.json.gz"
    data = DATA * 2
    path.write_bytes(compress([data], level))
    assert subprocess.run([zcat, str(path)], check=True, capture_output=True).stdout == data


def test_by_default_it_is_one_member_with_a_fixed_header() -> None:
    """No time, no name, no operating system; nothing follows the member."""
    made = compress([DATA])
    assert made.startswith(HEADER)
    inflate = zlib.decompressobj(31)
    assert inflate.decompress(made) == DATA
    assert inflate.eof
    assert inflate.unused_data == b""


@given(st.lists(st.integers(0, len(DATA)), max_size=6), st.integers(0, 3))
def test_bytes_do_not_depend_on_the_sizes_of_the_writes(cuts: list[int], level: int) -> None:
    """The same data in other pieces is the same file."""
    edges = [0, *sorted(cuts), len(DATA)]
    assert compress([DATA[a:b] for a, b in itertools.pairwise(edges)], level) == compress([DATA], level)


def test_data_that_is_written_byte_by_byte_makes_the_same_file() -> None:
    """The smallest pieces."""
    data = DATA[: BLOCK_SIZE + 100]
    assert compress([data[i : i + 1] for i in range(len(data))]) == compress([data])


def _reports() -> bytes:
    """JSON lines of a position report each, some of whose fields are random."""
    rng = random.Random(9)
    return b"".join(
        b'{"id":"%08x","latitude":%.4f,"longitude":%.4f,"carrier":"%s","origin":"EWR","distance":%d}\n'
        % (rng.getrandbits(32), rng.uniform(-90, 90), rng.uniform(-180, 180), rng.choice((b"UA", b"DL")), n % 977)
        for n in range(10_000)
    )


def test_levels_are_used() -> None:
    """Each makes a file of its own, the higher ones are smaller, and the default is the documented one."""
    files = {level: compress([_reports()], level) for level in range(10)}
    assert len(set(files.values())) == 10
    assert compress([_reports()]) == files[2]
    assert len(files[2]) > len(files[4]) > len(files[9])


def test_level_6_is_smaller_than_zlib_s() -> None:
    """So a user of zlib's levels gets at least what these gave."""
    assert len(compress([_reports()], 6)) < len(gzip.compress(_reports(), 6))


def test_plain_data_is_not_copied() -> None:
    """The output is the input, without a buffer."""
    compressor = make_compression("none", 1)()
    data = memoryview(b"abc")
    assert [d is data for d in compressor.write(data)] == [True]
    assert list(compressor.write(memoryview(b""))) == []
    assert list(compressor.close()) == []


def zstd_frames(body: bytes) -> bytes:
    """What a Zstandard decoder reads, by pyarrow."""
    with pa.CompressedInputStream(pa.BufferReader(body), "zstd") as stream:
        return stream.read()


READERS = {"gzip": gzip.decompress, "bzip2": bz2.decompress, "zstd": zstd_frames}
LEVELS = [("gzip", 4), ("gzip", 9), ("zstd", 1), ("zstd", 19), ("bzip2", 1), ("bzip2", 2)]


@pytest.mark.parametrize(("name", "level"), LEVELS)
def test_parts_are_read_at_sizes_around_their_blocks(name: Any, level: int) -> None:
    """Every size returns what was written; several blocks are one file."""
    block = BLOCK_SIZES[name] * (level if name == "bzip2" else 1)
    data = DATA * (2 * block // len(DATA) + 1)
    for size in (0, 1, block - 1, block, block + 1, 2 * block):
        assert READERS[name](compress([data[:size]], level, name)) == data[:size]


@pytest.mark.parametrize(("name", "level"), [("gzip", 6), ("zstd", 3), ("bzip2", 1)])
@settings(max_examples=25)
@given(cuts=st.lists(st.integers(0, 6 * BLOCK_SIZE), max_size=6))
def test_bytes_of_parts_do_not_depend_on_the_sizes_of_the_writes(name: Any, level: int, cuts: list[int]) -> None:
    """The same data in other pieces is the same file."""
    data = DATA * 2
    edges = [0, *sorted(cuts), len(data)]
    pieces = [data[a:b] for a, b in itertools.pairwise(edges)]
    assert compress(pieces, level, name) == compress([data], level, name)


@pytest.mark.parametrize(("name", "tool"), [("bzip2", "bzcat"), ("zstd", "zstdcat")])
def test_the_common_tools_read_several_blocks(name: Any, tool: str, tmp_path: Any) -> None:
    """For `bzcat` and `zstdcat`, where they are installed, the file is valid."""
    found = shutil.which(tool)
    path = tmp_path / "x"
    data = DATA * 6
    path.write_bytes(compress([data], None, name))
    read = READERS[name](path.read_bytes()) if found is None else subprocess.check_output([found, str(path)])
    assert read == data


def test_duckdb_reads_all_frames_of_zstd(tmp_path: Any) -> None:
    """Rows of every frame, not of the first one alone."""
    path = tmp_path / "x.json.zst"
    path.write_bytes(compress([b"".join(b'{"n":%d}\n' % n for n in range(100_000))], None, "zstd"))
    with duckdb.connect() as database:
        read = database.execute("SELECT count(*), sum(n) FROM read_json(?)", [str(path)]).fetchone()
    assert read == (100_000, 100_000 * 99_999 // 2)


def test_levels_of_zstd_and_bzip2_are_used() -> None:
    """Each makes a file of its own, and the default is the one that is documented."""
    data = b"".join(b'{"n":%d,"text":"the same again"}\n' % (i * 7919 % 10_007) for i in range(20_000))
    for name, default, others in (("zstd", 3, (1, 19)), ("bzip2", 9, (1, 5))):
        made: Any = name
        assert compress([data], None, made) == compress([data], default, made)
        assert len({compress([data], level, made) for level in (default, *others)}) == 3


@pytest.mark.parametrize(("name", "level"), [("gzip", 4), ("zstd", 1), ("bzip2", 1)])
def test_an_open_object_holds_one_block_at_most(name: Any, level: int) -> None:
    """Its buffer does not grow with the object."""
    compressor: Compressor = make_compression(name, level)()
    held = []
    for _ in range(20):
        for _data in compressor.write(memoryview(DATA)):
            pass
        held.append(len(compressor._pending))  # type: ignore[attr-defined]
    assert max(held) < BLOCK_SIZES[name]


def test_bytes_of_bzip2_are_pinned() -> None:
    """The library has made the same bytes for decades, so a change would be one of ours."""
    made = compress([DATA], None, "bzip2")
    assert hashlib.sha256(made).hexdigest() == "34a82acb75b461f265fce82e9932061d9e2e01580c6d8965154c87501d805434"


@pytest.mark.parametrize("compression", ["gzip", "zstd", "bzip2"])
@pytest.mark.parametrize("kind", ["json", "bytes"])
@given(cuts=st.lists(st.integers(0, 400), max_size=8), shuffled=st.booleans())
def test_objects_are_the_same_whatever_the_batches(
    kind: Any, compression: Any, make_batch: Any, write_objects: Any, recut: Any, cuts: list[int], shuffled: bool
) -> None:
    """Names and bytes of compressed objects, hourly and rotated both ways, do not depend on the batches."""
    times = [i * 60_000 for i in range(400)]
    if shuffled:
        random.Random(1).shuffle(times)
    batch = make_batch([b'{"i":%d}' % i for i in range(400)], first=1000, timestamps=times)
    layout = Layout(
        format=parse_format({"kind": kind, "compression": compression}),
        partitioner=Hourly(),
        rotation=Rotation(flush_size=150, max_bytes=300),
    )
    once, again = write_objects(layout, [batch]), write_objects(layout, recut(batch, cuts))
    assert {k: (bytes(o.body), o.offsets) for k, o in again.items()} == {
        k: (bytes(o.body), o.offsets) for k, o in once.items()
    }
    assert sorted(o for written in once.values() for o in written.offsets) == list(range(1000, 1400))
