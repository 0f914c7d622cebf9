"""The objects of DeviantArt's sink, written and read from the description of their form alone: no code of the package.

The sink compresses lines of text in blocks, each a whole gzip member, and writes a data object, then its index, then
the marker file of the Kafka partition, which names the index.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["Block", "blocks_of", "next_offset_of_their_recovery", "sink_objects"]

_HEADER: Final = bytes.fromhex("1f8b08000000000000ff")
_NAME: Final = re.compile(r"(\d{4}-\d\d-\d\d)/(.+)-(\d{5})-(\d{12})\.index\.json")


@dataclass(frozen=True)
class Block:
    """A block of an object.

    Attributes:
        topic: by the name of its object.
        partition: likewise.
        first: offset of its first record.
        count: number of its records.
        end: one past the offset of its last record, if the index has it.
        lines: its text.
    """

    topic: str
    partition: int
    first: int
    count: int
    end: int | None
    lines: tuple[bytes, ...]


def sink_objects(
    prefix: str, day: str, topic: str, partition: int, records: Sequence[tuple[int, str]], *, block_size: int
) -> dict[str, bytes]:
    """What one flush of the sink leaves, by keys in the order it writes them.

    Args:
        prefix: of all keys; ends with a slash, or is empty.
        day: of the upload.
        topic: name of the topic.
        partition: Kafka partition.
        records: offsets and texts.
        block_size: characters of a block before compression, at most.
    """
    blocks: list[list[tuple[int, str]]] = [[]]
    for offset, text in records:
        line = text if text.endswith("\n") else f"{text}\n"
        if sum(len(each) for _, each in blocks[-1]) + len(line) > block_size:
            blocks.append([])
        blocks[-1].append((offset, line))
    data, chunks = b"", []
    for block in blocks:
        raw = "".join(line for _, line in block).encode()
        deflate = zlib.compressobj(6, zlib.DEFLATED, -15)
        member = _HEADER + deflate.compress(raw) + deflate.flush()
        member += zlib.crc32(raw).to_bytes(4, "little") + len(raw).to_bytes(4, "little")
        chunks.append(
            {
                "byte_length_uncompressed": len(raw),
                "num_records": len(block),
                "byte_length": len(member),
                "byte_offset": len(data),
                "first_record_offset": block[0][0] if block else records[0][0],
            }
        )
        data += member
    name = f"{prefix}{day}/{topic}-{partition:05d}-{records[0][0]:012d}"
    return {
        f"{name}.gz": data,
        f"{name}.index.json": json.dumps({"chunks": chunks}, separators=(",", ":")).encode(),
        f"{prefix}last_chunk_index.{topic}-{partition:05d}.txt": f"{name}.index.json".encode(),
    }


def blocks_of(objects: Mapping[str, bytes], prefix: str) -> Iterator[Block]:
    """The blocks of all objects below a prefix, by the indices: per topic and partition in the order of their names."""
    named = [(found, key) for key in objects if (found := _NAME.fullmatch(key.removeprefix(prefix))) is not None]
    for found, key in sorted(named, key=lambda pair: pair[0].groups()[1:]):
        data = objects[key.replace(".index.json", ".gz")]
        read = 0
        for chunk in json.loads(objects[key])["chunks"]:
            assert chunk["byte_offset"] == read
            read += chunk["byte_length"]
            inflate = zlib.decompressobj(31)
            text = inflate.decompress(data[chunk["byte_offset"] : read])
            assert inflate.eof
            assert inflate.unused_data == b""
            assert len(text) == chunk["byte_length_uncompressed"]
            lines = tuple(text.split(b"\n")[:-1])
            assert len(lines) == chunk["num_records"]
            first: int = chunk["first_record_offset"]
            yield Block(found[2], int(found[3]), first, len(lines), chunk.get("next_record_offset"), lines)
        assert read == len(data)


def next_offset_of_their_recovery(objects: Mapping[str, bytes], prefix: str, topic: str, partition: int) -> int:
    """Where the sink would go on: 0 without a marker file, else behind the last chunk if offsets had no gaps."""
    marker = objects.get(f"{prefix}last_chunk_index.{topic}-{partition:05d}.txt")
    if marker is None:
        return 0
    last: dict[str, Any] = json.loads(objects[marker.decode()])["chunks"][-1]
    return int(last["first_record_offset"] + last["num_records"])
