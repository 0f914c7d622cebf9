"""Decoding of Protobuf messages to columns, beside Google's own library."""

from __future__ import annotations

import base64
import random
import subprocess
import sys
import tracemalloc
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pytest
from google.protobuf import timestamp_pb2
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_kafka_s3.converters.avro_decode import AvroDecoder
from airflow_provider_kafka_s3.converters.avro_encode import encode_datums
from airflow_provider_kafka_s3.converters.protobuf_decode import Decoded, ProtobufDecoder
from airflow_provider_kafka_s3.schemas.arrow_types import arrow_type
from airflow_provider_kafka_s3.schemas.avro import parse_schema
from airflow_provider_kafka_s3.schemas.avro_text import node_text
from airflow_provider_kafka_s3.schemas.proto_file import ProtoMessage
from airflow_provider_kafka_s3.schemas.protobuf import Mapping, parse_protobuf
from tests.avro_values import column_values
from tests.protobuf_values import (
    Bad,
    Undecided,
    classes,
    expected,
    mutated,
    random_file,
    random_message,
    row_values,
    split,
    text_of,
)

SEEDS: Final = st.integers(0, 2**32)
LONGS: Final = Mapping("long", "micros")


def decode(
    message: ProtoMessage, rows: list[bytes], mapping: Mapping = LONGS, header: bytes = b""
) -> tuple[Decoded, list[Any]]:
    """Decode rows. The column is valid, and the same as datums."""
    node = mapping.node(message)
    given = pa.array([header + row for row in rows], pa.binary())
    decoded = ProtobufDecoder(message, mapping, node).decode(given, np.full(len(rows), len(header)))
    decoded.values.validate(full=True)
    assert decoded.values.type == arrow_type(node)
    assert len(decoded.values) == len(decoded.bad) == len(rows)
    assert set(decoded.reasons) <= set(np.flatnonzero(decoded.bad).tolist())
    good = decoded.values.filter(pa.array(~decoded.bad))
    again = AvroDecoder(parse_schema(node_text(node))).decode(encode_datums(good, node))
    assert not again.bad.any()
    assert repr(column_values(again.values)) == repr(column_values(good))
    return decoded, row_values(decoded.values, message)


@dataclass
class Generated:
    """A message of a generated file, for Google's library and for this one."""

    rng: random.Random
    kind: Any
    message: ProtoMessage
    mapping: Mapping
    is_proto2: bool


def generated(seed: int) -> Generated:
    """A message that refers to others, as text or as descriptor; some of the others are in an imported file."""
    rng = random.Random(seed)
    files = (random_file(rng, rng.choice(["proto2", "proto3", "editions"])),)
    if rng.random() < 0.3:
        files = split(files[0])
    written = [base64.b64encode(f.SerializeToString()).decode() if rng.random() < 0.5 else text_of(f) for f in files]
    message = parse_protobuf(written[0], written[1:]).messages[-1]
    mapping = Mapping(rng.choice(["long", "decimal"]), rng.choice(["micros", "record"]))
    return Generated(rng, classes(*files)[message.full_name], message, mapping, files[0].syntax == "proto2")


def assert_decodes(given: Generated, rows: list[bytes], header: bytes = b"") -> None:
    """Values and bad rows are those of Google's library, together and one by one."""
    mapping = given.mapping
    decoded, found = decode(given.message, rows, mapping, header)
    for row, data in enumerate(rows):
        wanted, bad, why = None, False, decoded.reasons.get(row, "")
        try:
            wanted = expected(given.kind, data, unsigned=mapping.unsigned, timestamps=mapping.timestamps)
        except Undecided:
            continue
        except Bad:
            bad = True
        if given.is_proto2 and not bad and "UTF-8" in why:
            continue  # Google's library takes any bytes as a string of proto2 that a later one replaces
        assert bool(decoded.bad[row]) is bad, f"{data.hex()}: {why}"
        assert bad or repr(found[row]) == repr(wanted), data.hex()
    for row in {0, len(rows) // 2}:
        alone, value = decode(given.message, rows[row : row + 1], mapping)
        assert (alone.bad[0], alone.reasons.get(0)) == (decoded.bad[row], decoded.reasons.get(row))
        assert alone.bad[0] or repr(value[0]) == repr(found[row])


@pytest.mark.parametrize(
    ("seconds", "nanos", "is_bad"),
    [
        *((0, 10**9 - 1, False), (0, 10**9, True), (0, -1, True), (-1, 0, False)),
        *((-62_135_596_800, 0, False), (-62_135_596_801, 0, True)),
        *((253_402_300_799, 10**9 - 1, False), (253_402_300_800, 0, True)),
    ],
)
def test_a_timestamp_is_of_the_years_1_to_9999_and_less_than_a_second_more(
    seconds: int, nanos: int, is_bad: bool
) -> None:
    """Each bound and the first value behind it; the reason of a bad one says which it is."""
    message = parse_protobuf(
        "import 'google/protobuf/timestamp.proto'; message M { optional google.protobuf.Timestamp at = 1; }"
    ).messages[0]
    at = timestamp_pb2.Timestamp(seconds=seconds, nanos=nanos).SerializeToString()
    decoded, found = decode(message, [b"\x0a" + bytes([len(at)]) + at])
    assert bool(decoded.bad[0]) is is_bad
    if is_bad:
        assert ("nanos" if seconds == 0 else "years") in decoded.reasons[0]
    else:
        assert found == [{"at": seconds * 1_000_000 + nanos // 1_000}]


@settings(max_examples=30)
@given(SEEDS)
def test_messages_of_any_schema_have_the_values_that_google_reads(seed: int) -> None:
    """All scalar types, enums, maps, oneofs, groups, defaults, well-known types and imported files."""
    of = generated(seed)
    some = [random_message(of.rng, of.kind).SerializeToString() for _ in range(4)]
    rows = [of.rng.choice(some) for _ in range(of.rng.choice([1, 8, 40]))]
    assert_decodes(of, rows, of.rng.choice([b"", b"\0\0\0\0\1\0"]))


@settings(max_examples=70)
@given(SEEDS)
def test_changed_bytes_are_what_google_reads_or_bad(seed: int) -> None:
    """Cut, changed, merged and random bytes: fields again and again, unknown ones, packed and not, hostile sizes."""
    of = generated(seed)
    some = [random_message(of.rng, of.kind).SerializeToString() for _ in range(4)]
    rows = [mutated(of.rng, of.rng.choice(some), some) for _ in range(of.rng.choice([1, 10, 40]))]
    assert_decodes(of, [*rows, of.rng.randbytes(of.rng.randint(0, 30))])


ONE_OF_ALL: Final = """
    syntax = "proto3";
    message M {
      string text = 1;
      repeated int32 packed = 2;
      repeated fixed64 fixed = 3;
      map<string, uint64> counts = 4;
      Inner inner = 5;
      oneof choice { Inner first = 6; string second = 7; bytes third = 8; }
      repeated Inner many = 9;
      uint64 unsigned = 10;
    }
    message Inner { string text = 1; Deep deep = 2; repeated bool flags = 3; }
    message Deep { repeated string texts = 1; int32 number = 2; }
"""


def varint(number: int) -> bytes:
    """A number as it is encoded."""
    data = bytearray()
    while number > 0x7F:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*data, number])


def sized(number: int, body: bytes) -> bytes:
    """A field with a size."""
    return varint(number << 3 | 2) + varint(len(body)) + body


def decoded_alone(row: bytes, copies: int = 1) -> tuple[bool, str, Any]:
    """Whether a row is bad, why, and its value, beside rows that are good."""
    (message, *_) = parse_protobuf(ONE_OF_ALL).messages
    decoded, found = decode(message, [b"", *([row] * copies), b""])
    assert not decoded.bad[[0, -1]].any()
    assert decoded.bad[1:-1].all() or not decoded.bad.any()
    return bool(decoded.bad[1]), decoded.reasons.get(1, ""), found[1]


FAULTS: Final = {
    "a tag without a value": b"\x08",
    "a tag that is cut off": b"\x80",
    "the number 0": b"\x02\x00",
    "a kind that there is not": b"\x0e",
    "a tag of more than 32 bits": b"\x88\x80\x80\x80\x10\x01",
    "a tag of six bytes": b"\x88\x80\x80\x80\x80\x00\x01",
    "a varint of eleven bytes": b"\x50" + b"\x80" * 10 + b"\x00",
    "a size of six bytes": b"\x0a\x80\x80\x80\x80\x80\x00",
    "a size of 2^63": b"\x0a" + b"\x80" * 9 + b"\x01",
    "a size that ends behind the value": b"\x0a\x02a",
    "a size that ends behind the message around it": b"\x2a\x02\x0a\x01a",
    "an end without a group": b"\x0c",
    "a group without an end": b"\x7b\x08\x01",
    "a group with the end of another one": b"\x7b\x84\x01",
    "a packed number that is cut off": b"\x12\x02\x01\x80",
    "packed numbers of half a size": b"\x1a\x04abcd",
    "a text that is not UTF-8": b"\x0a\x01\xff",
    "a text that is a surrogate": b"\x0a\x03\xed\xa0\x80",
    "a text that is replaced and not UTF-8": b"\x0a\x01\xff\x0a\x01a",
    "a replaced member of a oneof": b"\x3a\x01\xff\x42\x01a",
    "a message that is merged and cut off": b"\x2a\x01\x0a\x2a\x02\x01a",
    "a replaced message with a fault": b"\x32\x04\x12\x02\x0a\x05\x3a\x00",
    "an entry of a map that is cut off": sized(4, b"\x0a\x05a") + sized(4, b"\x0a\x01a"),
    "an entry of a map that is replaced and cut off": sized(4, b"\x0a\x01a\x10") + sized(4, b"\x0a\x01a"),
}


@pytest.mark.parametrize("copies", [1, 50])
@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_of_the_bytes_makes_a_bad_row(name: str, copies: int) -> None:
    """In one row and in many, beside rows that are good; Google's library refuses the same bytes."""
    assert decoded_alone(FAULTS[name], copies)[0]


VALUES: Final = [
    (b"\x0a\x01a\x0a\x01b", {"text": "b"}),
    (b"\x12\x02\x01\x02\x10\x03\x12\x01\x04", {"packed": [1, 2, 3, 4]}),
    (b"\x12\x00", {"packed": []}),
    (b"\x12\x0a" + b"\xff" * 9 + b"\x01", {"packed": [-1]}),
    (b"\x10\xff\xff\xff\xff\x1f", {"packed": [-1]}),
    (b"\x52\x80\x01" + b"a" * 128, {}),  # another kind than that of the field: unknown
    (b"\xfa\xff\xff\xff\x0f\x01x", {}),
    (b"\x7b" * 50 + b"\x7c" * 50, {}),
    (b"\x2a\x03\x0a\x01a\x2a\x04\x12\x02\x10\x07\x2a\x00",
     {"inner": {"text": "a", "deep": {"texts": [], "number": 7}, "flags": []}}),
    (b"\x2a\x05\x12\x03\x0a\x01a\x2a\x05\x12\x03\x0a\x01b",
     {"inner": {"text": "", "deep": {"texts": ["a", "b"], "number": 0}, "flags": []}}),
    (b"\x32\x00\x3a\x01a", {"second": "a"}),
    (b"\x3a\x01a\x32\x00", {"first": {"text": "", "deep": None, "flags": []}}),
    (sized(4, b"\x10\x05"), {"counts": {"map": [("", 5)]}}),
    (sized(4, b"\x0a\x01k\x10\x05") + sized(4, b"\x0a\x01k"), {"counts": {"map": [("k", 0)]}}),
    (sized(4, b"\x0a\x01k\x10" + b"\xff" * 9 + b"\x01") + sized(4, b"\x0a\x01k"), {"counts": {"map": [("k", 0)]}}),
    (b"\x50" + b"\xff" * 9 + b"\x01\x50\x02", {"unsigned": 2}),
    (b"\x50\x80\x80\x00", {"unsigned": 0}),
    (b"\x0a\x80\x80\x80\x80\x00", {"text": ""}),
]  # fmt: skip


@pytest.mark.parametrize("copies", [1, 50])
@pytest.mark.parametrize(("row", "more"), VALUES)
def test_the_last_value_counts_and_messages_are_merged(row: bytes, more: dict[str, Any], copies: int) -> None:
    """Repeated, replaced, packed, unknown and overlong parts have the values that the encoding gives them."""
    empty = {
        "text": "", "packed": [], "fixed": [], "counts": {"map": []}, "inner": None, "first": None, "second": None,
        "third": None, "many": [], "unsigned": 0,
    }  # fmt: skip
    bad, why, value = decoded_alone(row, copies)
    assert not bad, why
    assert value == empty | more


@pytest.mark.parametrize(
    ("row", "why"),
    [
        (b"\x50" + b"\xff" * 9 + b"\x01", r"the field M.unsigned is above 2^63 - 1"),
        (sized(4, b"\x10" + b"\xff" * 9 + b"\x01"), "the field M.CountsEntry.value is above 2^63 - 1"),
        (b"\x0a\x01\xff", "the field M.text is not UTF-8"),
    ],
)
def test_what_a_column_cannot_hold_is_bad_with_its_field(row: bytes, why: str) -> None:
    """The reason names the field, without anything of the value."""
    bad, reason, _ = decoded_alone(row)
    assert bad
    assert reason.startswith(why)


@pytest.mark.parametrize("copies", [1, 50])
@pytest.mark.parametrize(
    "row",
    [
        b"\x7b" * 100_000,  # groups inside each other
        b"\x7b" * 101 + b"\x7c" * 101,
        b"\x0a\xff\xff\xff\xff\x07",  # 2 GiB of text
        b"\x12\xff\xff\xff\xff\x07\x01",
        b"\x2a\xff\xff\xff\xff\x07" * 20,
        sized(4, b"\x0a\xff\xff\xff\xff\x07"),
        sized(9, sized(2, b"\x0a\xff\xff\xff\xff\x07")),
    ],
    ids=["open groups", "closed groups", "text", "packed", "message", "entry", "inside"],
)
def test_hostile_depths_and_sizes_take_no_memory(row: bytes, copies: int) -> None:
    """They are bad before anything of their size is made."""
    tracemalloc.start()
    try:
        assert decoded_alone(row, copies)[0]
        assert tracemalloc.get_traced_memory()[1] < 3_000_000 + 12 * copies * len(row)
    finally:
        tracemalloc.stop()


def test_a_large_batch_is_decoded_in_parts_to_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of a few bytes give the column and the reasons of the whole, of a slice as well."""
    (message, *_) = parse_protobuf(ONE_OF_ALL).messages
    rows = [row for row, _ in VALUES] * 3 + list(FAULTS.values()) + [b"", b"\x0a\x01\xff"]
    decoder = ProtobufDecoder(message, LONGS, LONGS.node(message))
    given, starts = pa.array(rows, pa.large_binary()), np.zeros(len(rows), np.int64)
    whole = decoder.decode(given, starts)
    for size in (1, 20, 300):
        monkeypatch.setattr("airflow_provider_kafka_s3.converters.protobuf_decode._CHUNK", size)
        parts = decoder.decode(given, starts)
        good = pa.array(~whole.bad)
        assert parts.bad.tolist() == whole.bad.tolist()
        assert parts.reasons == whole.reasons
        assert parts.values.filter(good).equals(whole.values.filter(good))
        some = decoder.decode(given[5:40], starts[5:40])
        assert some.bad.tolist() == whole.bad[5:40].tolist()


def test_an_empty_batch_has_an_empty_column() -> None:
    """No rows."""
    (message, *_) = parse_protobuf(ONE_OF_ALL).messages
    decoded, values = decode(message, [])
    assert (len(decoded.values), values) == (0, [])


def test_nothing_imports_pandas() -> None:
    """Decoding does not load pandas into a worker, nor Google's library."""
    code = (
        "import sys\n"
        "import numpy as np\n"
        "from airflow_provider_kafka_s3.arrays import binary_array\n"
        "from airflow_provider_kafka_s3.converters.protobuf_decode import ProtobufDecoder\n"
        "from airflow_provider_kafka_s3.schemas.protobuf import Mapping, parse_protobuf\n"
        "(message,) = parse_protobuf('message M { optional string a = 1; map<string, M.E> b = 2; enum E { X = 1; } }')"
        ".messages\n"
        "mapping = Mapping()\n"
        "rows = binary_array([b'\\x0a\\x01a\\x12\\x00\\x12\\x00'] * 40, large=False)\n"
        "decoded = ProtobufDecoder(message, mapping, mapping.node(message)).decode(rows, np.zeros(40, np.int64))\n"
        "assert not decoded.bad.any() and len(decoded.values) == 40\n"
        "print('pandas' in sys.modules, 'google.protobuf' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.split() == ["False", "False"]
