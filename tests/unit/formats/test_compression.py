"""Compression: one gzip member whose bytes depend on nothing but the data and the level."""

from __future__ import annotations

import gzip
import itertools
import random
import shutil
import subprocess
import zlib
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_kafka_s3.config import Hourly, Layout, Rotation, parse_format
from airflow_provider_kafka_s3.formats.compression import BLOCK_SIZE, make_compression

HEADER = bytes.fromhex("1f8b08000000000000ff")
DATA = bytes(random.Random(8).choices(b"abcdefgh\n", k=3 * BLOCK_SIZE + 1000))


def compress(pieces: Sequence[bytes], level: int = 1) -> bytes:
    """An object that is written in these pieces."""
    compressor = make_compression("gzip", level)()
    out = b"".join(bytes(data) for piece in pieces for data in compressor.write(memoryview(piece)))
    return out + b"".join(bytes(data) for data in compressor.close())


@pytest.mark.parametrize("level", range(4))
@pytest.mark.parametrize("size", [0, 1, BLOCK_SIZE - 1, BLOCK_SIZE, BLOCK_SIZE + 1, 3 * BLOCK_SIZE])
def test_python_s_gzip_reads_it(level: int, size: int) -> None:
    """It returns what was written, at sizes around the block size."""
    assert gzip.decompress(compress([DATA[:size]], level)) == DATA[:size]


def test_zcat_reads_it(tmp_path: Any) -> None:
    """For the common tool, the file is valid."""
    zcat = shutil.which("zcat")
    assert zcat is not None
    path = tmp_path / "x.json.gz"
    path.write_bytes(compress([DATA]))
    assert subprocess.run([zcat, str(path)], check=True, capture_output=True).stdout == DATA


def test_it_is_one_member_with_a_fixed_header() -> None:
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


def test_levels_are_used() -> None:
    """The fastest, the default and the smallest make different files."""
    data = b"".join(b'{"n":%d,"text":"the same again"}\n' % i for i in range(20_000))
    assert len({compress([data], level) for level in (0, 1, 3)}) == 3


def test_plain_data_is_not_copied() -> None:
    """The output is the input, without a buffer."""
    compressor = make_compression("none", 1)()
    data = memoryview(b"abc")
    assert [d is data for d in compressor.write(data)] == [True]
    assert list(compressor.write(memoryview(b""))) == []
    assert list(compressor.close()) == []


@pytest.mark.parametrize("kind", ["json", "bytes"])
@given(cuts=st.lists(st.integers(0, 400), max_size=8), shuffled=st.booleans())
def test_objects_are_the_same_whatever_the_batches(
    kind: Any, make_batch: Any, write_objects: Any, recut: Any, cuts: list[int], shuffled: bool
) -> None:
    """Names and bytes of compressed objects, hourly and rotated both ways, do not depend on the batches."""
    times = [i * 60_000 for i in range(400)]
    if shuffled:
        random.Random(1).shuffle(times)
    batch = make_batch([b'{"i":%d}' % i for i in range(400)], first=1000, timestamps=times)
    layout = Layout(
        format=parse_format({"kind": kind, "compression": "gzip"}),
        partitioner=Hourly(),
        rotation=Rotation(flush_size=150, max_bytes=300),
    )
    once, again = write_objects(layout, [batch]), write_objects(layout, recut(batch, cuts))
    assert {k: (bytes(o.body), o.offsets) for k, o in again.items()} == {
        k: (bytes(o.body), o.offsets) for k, o in once.items()
    }
    assert sorted(o for written in once.values() for o in written.offsets) == list(range(1000, 1400))
