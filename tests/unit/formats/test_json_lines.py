"""JSON lines: valid JSON is written unchanged, in one line; for anything else the error names the record."""

from __future__ import annotations

import json
import pickle
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from airflow_provider_kafka_s3.arrays import contents
from airflow_provider_kafka_s3.config import JsonLines
from airflow_provider_kafka_s3.exceptions import RecordError
from airflow_provider_kafka_s3.formats.jsonlines import _TOKENS, JsonLinesFormat
from tests.unit.formats.preparing import prepare

FORMAT = JsonLinesFormat(JsonLines())
GOOD = b'{"good":1}'

VALID = [
    b'{"a":1}',
    b"[]",
    b"null",
    b"true",
    b"-0",
    b"1e400",
    b"-1.50E+7",
    b"9" * 5000,
    b'"text"',
    b' { "a" : [ 1 , 2 ] }\t',
    '{"é":"日本 😀"}'.encode(),
    b'"\\ud83d\\ude00"',
    b'"half an emoji \\ud83d"',
    b'"\\ud800\\u0041"',
    b'"\x7f"',
    '"\u2028"'.encode(),
    b'{"a":1,"a":2}',
    b'"\\/\\"\\\\"',
    b"[" * 500 + b"]" * 500,
]
INVALID = [
    (b"", "empty"),
    (b" ", "truncated"),
    (b"\xef\xbb\xbf{}", "byte 0"),
    (b"NaN", "byte 0"),
    (b"Infinity", "byte 0"),
    (b"-Infinity", "byte 1"),
    (b'["\\ud800",NaN]', "NaN is not JSON"),
    (b'["\\ud800",-Infinity]', "-Infinity is not JSON"),
    (b'["\\ud800"', "character"),
    (b'"\\u12"', "character"),
    (b'"\\uD83"', "character"),
    (b"01", "number"),
    (b"1.", "number"),
    (b"+1", "byte 0"),
    (b"{}x", "trailing"),
    (b"1 2", "trailing"),
    (b"1\n2", "trailing"),
    (b"truefalse", "trailing"),
    (b'{"a":1', "truncated"),
    (b"1}", "trailing"),
    (b'"\xff"', "UTF-8 at byte 1"),
    (b'"\xed\xa0\x80"', "UTF-8 at byte 1"),
    (b'"a\nb"', "byte 2"),
    (b'"a\tb"', "byte 2"),
    (b'{"a":1,}', "comma"),
    (b"[1,]", "comma"),
    (b"{a:1}", "byte 1"),
    (b"'a'", "byte 0"),
    (b"//c\n1", "byte 0"),
    (b"1\x00", "trailing"),
    (b"\xc2\xa01", "byte 0"),
    ("{}".encode("utf-16"), "UTF-8 at byte 0"),
    (b"[" * 100_000 + b"]" * 100_000, "deep"),
    (b'["\\ud800",' + b"[" * 100_000 + b"]" * 100_001, "deep"),
]


def frames(batch: Any, fmt: JsonLinesFormat = FORMAT) -> bytes:
    """The encoded records of a batch."""
    return bytes(contents(prepare(fmt, batch).payload))  # type: ignore[arg-type]


@pytest.mark.parametrize("value", VALID, ids=lambda v: v[:20].decode())
def test_valid_json_is_written_byte_for_byte(value: bytes, make_batch: Any) -> None:
    """Spaces, digits, escapes and order stay, whether the batch is checked at once or one by one."""
    assert frames(make_batch([GOOD, value, GOOD])) == GOOD + b"\n" + value + b"\n" + GOOD + b"\n"
    assert frames(make_batch([b"1\n", value])) == b"1\n" + value + b"\n"


@pytest.mark.parametrize(("value", "why"), INVALID, ids=lambda v: repr(v[:20]))
def test_invalid_json_is_refused_with_topic_partition_and_offset(value: bytes, why: str, make_batch: Any) -> None:
    """The message names the record, the cause and what to do; it never quotes the record."""
    with pytest.raises(RecordError, match=rf"topic 'flights', partition 3, offset 43: .*JSON.*\(.*{why}") as e:
        prepare(FORMAT, make_batch([GOOD, value, GOOD], first=42))
    assert "land the topic with format='bytes'" in str(e.value)
    assert "errors='dead_letter'" in str(e.value)
    assert "good" not in str(e.value)
    assert str(pickle.loads(pickle.dumps(e.value))) == str(e.value)


def test_the_first_bad_record_is_the_one_that_is_named(make_batch: Any) -> None:
    """Of two invalid records, the first is named, whatever their errors."""
    with pytest.raises(RecordError, match="offset 1:"):
        frames(make_batch([GOOD, b"{", b""]))


@pytest.mark.parametrize(
    ("value", "line"),
    [
        (b'{\n  "a": 1,\r\n  "b": [ 1.50, 1E5, -0 ]\n}\n', b'{"a":1,"b":[1.50,1E5,-0]}'),
        (b"1\n", b"1"),
        (b"\r1", b"1"),
        (b'["a b\\n",\n"\\/"]', b'["a b\\n","\\/"]'),
        ('{"é" :\n"日"}'.encode(), '{"é":"日"}'.encode()),
        (b'[ "\\ud83d",\n "x y\\" z" , 1 ]', b'["\\ud83d","x y\\" z",1]'),
    ],
    ids=["pretty", "trailing", "leading", "escapes", "unicode", "lone surrogate"],
)
def test_values_with_raw_newlines_become_one_line_and_keep_their_tokens(
    value: bytes, line: bytes, make_batch: Any
) -> None:
    """Only the space between tokens is left out; numbers and escapes are not changed."""
    assert frames(make_batch([GOOD, value])) == GOOD + b"\n" + line + b"\n"


@pytest.mark.parametrize(
    "values",
    [
        [b"1 2", b'{"a":', b"1}"],
        [b"null1", b"[1,", b"2]"],
        [b"{}{}", b'{"a":{"b":1}', b"}"],
        [b"1 2", b""],
        [b"[1", b",2] 3"],
        [b'"a', b'b"'],
    ],
    ids=repr,
)
def test_a_batch_that_is_valid_only_as_a_whole_is_refused(values: list[bytes], make_batch: Any) -> None:
    """As many documents as lines are not enough: no document may continue in the next record."""
    with pytest.raises(RecordError):
        frames(make_batch(values))


def strict(value: bytes) -> bool:
    """Whether the value is JSON for the standard library in strict mode."""

    def refuse(constant: str) -> None:
        raise ValueError(constant)

    try:
        json.loads(value.decode(), parse_constant=refuse)
    except ValueError:
        return False
    return True


documents = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=()), max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
written = st.builds(
    lambda value, indent, ascii_only: json.dumps(value, indent=indent, ensure_ascii=ascii_only).encode(
        errors="surrogatepass"
    ),
    documents,
    st.sampled_from([None, 0, 2, "\t"]),
    st.booleans(),
)
PIECES = rb"""{ } [ ] : , " \ \u d83d 1 - . e 0 true null NaN a "a" {"a":1}""".split(b" ")
pieces = st.lists(
    st.sampled_from([*PIECES, b" ", b"\n", b"\r", b"\t", b"\xc3\xa9", b"\xff", b"\xef\xbb\xbf", b"\x00"]), max_size=6
).map(b"".join)
mutated = st.builds(
    lambda value, at, piece: value[: at % (len(value) + 1)] + piece + value[at % (len(value) + 1) :],
    written,
    st.integers(0, 100),
    pieces,
)
values_of_all_kinds = st.one_of(written, pieces, mutated, st.binary(max_size=4))


@settings(max_examples=500)
@given(values_of_all_kinds)
def test_what_is_accepted_is_what_the_standard_library_accepts(make_batch: Any, value: bytes) -> None:
    """A single value: strict JSON in UTF-8, nothing more and nothing less."""
    try:
        made = frames(make_batch([value]))
    except RecordError:
        assert not strict(value)
        return
    assert strict(value)
    assert made.count(b"\n") == 1
    assert b"\r" not in made
    assert made == value + b"\n" or (b"\n" in value or b"\r" in value)
    assert json.dumps(json.loads(made.decode())) == json.dumps(json.loads(value.decode()))


@settings(max_examples=500)
@given(st.lists(values_of_all_kinds, min_size=1, max_size=6))
@example([b"1 2", b'{"a":', b"1}"])
def test_a_batch_is_accepted_exactly_if_each_record_is(make_batch: Any, values: list[bytes]) -> None:
    """The result of a record and its bytes never depend on other records."""
    alone = []
    for value in values:
        try:
            alone.append(frames(make_batch([value])))
        except RecordError:
            alone.append(None)
    if None in alone:
        with pytest.raises(RecordError, match=f"offset {alone.index(None)}:"):
            frames(make_batch(values))
    else:
        assert frames(make_batch(values)) == b"".join(a for a in alone if a is not None)


@given(written)
def test_both_ways_of_compacting_write_the_same(value: bytes) -> None:
    """The decoder's output and the joined tokens are the same bytes."""
    try:
        compact = msgspec.json.format(value, indent=-1)
    except msgspec.DecodeError:  # lone surrogates: only the tokens are left
        return
    assert b"".join(_TOKENS.findall(value)) == compact


def test_null_values_are_refused_by_name(make_batch: Any) -> None:
    """By default, a tombstone is not silently lost."""
    with pytest.raises(RecordError, match=r"partition 3, offset 7: the value is null.*on_null='ignore'"):
        frames(make_batch([GOOD, None, None], first=6))


def test_ignored_null_values_are_left_out_and_counted(make_batch: Any) -> None:
    """Records, sizes and payload stay parallel."""
    fmt = JsonLinesFormat(JsonLines(on_null="ignore"))
    prepared = prepare(fmt, make_batch([None, b"1", None, b"[2]", None]))
    assert prepared.records.column("offset").to_pylist() == [1, 3]
    assert prepared.sizes.tolist() == [2, 4]
    assert prepared.ignored == 3
    assert bytes(contents(prepared.take(slice(1, 2)))) == b"[2]\n"  # type: ignore[arg-type]


def test_a_batch_of_null_values_alone_has_no_frames(make_batch: Any) -> None:
    """It is no error."""
    fmt = JsonLinesFormat(JsonLines(on_null="ignore"))
    prepared = prepare(fmt, make_batch([None, None]))
    assert (prepared.records.num_rows, prepared.sizes.tolist(), prepared.ignored) == (0, [], 2)


def test_an_empty_batch_is_prepared(make_batch: Any) -> None:
    """A reader may return an empty batch."""
    assert frames(make_batch([])) == b""


@pytest.mark.parametrize("large", [False, True])
def test_slices_of_batches_are_read_at_their_offset(make_batch: Any, large: bool) -> None:
    """A slice shares the buffers of the whole batch; only its own records are checked."""
    batch = make_batch([b"{", b"1", b"[2]", '"é"'.encode(), b"}"], large=large)
    prepared = prepare(FORMAT, batch.slice(1, 3))
    assert bytes(contents(prepared.payload)) == '1\n[2]\n"é"\n'.encode()  # type: ignore[arg-type]
    assert prepared.sizes.tolist() == [2, 4, 5]
    assert bytes(contents(prepared.take(np.array([0, 2])))) == '1\n"é"\n'.encode()  # type: ignore[arg-type]


def test_large_values_are_written(make_batch: Any) -> None:
    """A value of a megabyte, in one line or several."""
    long = b'{"a":"' + b"x" * 2**20 + b'"}'
    broken = b'{"a":\n"' + b"x" * 2**20 + b'"}'
    assert frames(make_batch([long, GOOD])) == long + b"\n" + GOOD + b"\n"
    assert frames(make_batch([broken, GOOD])) == long + b"\n" + GOOD + b"\n"
