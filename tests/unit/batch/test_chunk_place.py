"""The end of a chunk of DeviantArt's sink is found by its text; what is not certain is never taken for certain."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_kafka_s3.maintenance import chunk_place
from airflow_provider_kafka_s3.maintenance.chunk_place import ChunkText, Ends

Log = Sequence[bytes | None]
"""A value for each offset; None: a gap."""


def text_of(values: Sequence[bytes]) -> bytes:
    """The lines that the sink writes: a line feed is added to a value without one."""
    return b"".join(value if value.endswith(b"\n") else value + b"\n" for value in values)


def find(log: Log, chunk: ChunkText, earliest: int = 0) -> Ends:
    """Find a chunk in what Kafka has."""
    start = max(chunk.first, earliest)
    records = ((offset, value) for offset, value in enumerate(log) if value is not None and offset >= start)
    return chunk.find(records, earliest)


def distinct(count: int, *, gaps: Sequence[int] = ()) -> list[bytes | None]:
    """Values that are not repeated."""
    return [None if offset in gaps else b"%d" % offset for offset in range(count)]


VALUES = st.sampled_from([b"a", b"b", b"a\n", b"", b"a\nb", b"\xff", "\ufffd".encode()])


@settings(max_examples=2_000, deadline=None)
@given(
    log=st.lists(st.one_of(st.none(), VALUES), min_size=1, max_size=14),
    data=st.data(),
)
def test_what_is_certain_is_right_and_the_right_end_is_among_the_possible_ones(log: Log, data: st.DataObject) -> None:
    """With repeated values, gaps, deletions, and a sink that counts: nothing is lost, and nothing is landed twice."""
    began = data.draw(st.integers(0, len(log) - 1), "where the sink began to read")
    read = [(offset, value) for offset, value in enumerate(log) if value is not None and offset >= began]
    if not read:
        return
    at = data.draw(st.integers(0, len(read) - 1), "number of records before the chunk")
    records = data.draw(st.integers(1, len(read) - at), "records of the chunk")
    earliest = data.draw(st.integers(0, len(log)), "the first offset in Kafka")
    values = [value for _, value in read[at : at + records]]
    if data.draw(st.booleans(), "whether it makes texts of bytes"):
        values = [value.decode("utf-8", "replace").encode() for value in values]
    ends = find(log, ChunkText(text_of(values), records, began + at), earliest)
    end = read[at + records - 1][0] + 1
    behind = [offset for offset, _ in read if offset >= end]
    right = max(end, earliest)
    if ends.is_certain:
        (found,) = ends.offsets
        assert [offset for offset in behind if offset >= found] == behind
        assert found == right
    elif len(ends.offsets) < 2:
        assert ends.offsets == (right,)


def test_a_record_that_is_in_kafka_more_than_once_is_no_place_if_offsets_have_gaps() -> None:
    """A gap before the chunk makes the offset of the index too low."""
    log = [b"a", None, b"a", b"a", b"a"]
    assert find(log, ChunkText(b"a\n", 1, 1)) == Ends((3, 4), False)
    assert find(log, ChunkText(b"a\n", 1, 2)) == Ends((3, 4), False, is_in_place=True)


def test_a_chunk_is_found_behind_the_offset_of_the_index() -> None:
    """The sink counts: three marks of transactions before it, and one in it."""
    log = distinct(30, gaps=(3, 7, 11, 15))
    assert find(log, ChunkText(text_of([b"13", b"14", b"16"]), 3, 10)) == Ends((17,), True)


def test_the_last_records_of_a_chunk_are_enough() -> None:
    """Kafka has at least one of them, as follows from the first offset and the number."""
    log = distinct(30, gaps=(7,))
    chunk = ChunkText(text_of([b"4", b"5", b"6", b"8", b"9"]), 5, 4)
    assert find(log, chunk, 6) == Ends((10,), True)
    assert find(log, chunk, 8) == Ends((10,), True)
    assert find(log, chunk, 9) == Ends((9, 10), False)
    assert find(log, chunk, 10) == Ends((10,), False)


def test_lines_of_a_value_are_no_records() -> None:
    """A record may have several lines, and end in one that is the value of another."""
    log = [b"x", b"a\nb", b"b", b"c\nb\n", b"b\nb", b"d"]
    assert find(log, ChunkText(text_of([b"a\nb", b"b", b"c\nb\n"]), 3, 1)) == Ends((4,), True)
    assert find(log, ChunkText(text_of([b"b", b"c\nb\n", b"b\nb"]), 3, 2), 3) == Ends((5,), True)
    # Kafka must have two of the three records, and only one of them is there.
    assert find([b"x", b"a", b"y", b"z"], ChunkText(b"m\nn\nx\na\n", 3, 0), 1) == Ends((), False)


@pytest.mark.parametrize("text", [b"", b"a", b"a\nb", b"a\n"])
def test_a_text_that_cannot_be_of_so_many_records_is_nowhere(text: bytes) -> None:
    """It has a line for each of them at least, and ends with a line feed."""
    assert find([b"a", b"b"], ChunkText(text, 2, 0)) == Ends((), False)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (b"\xff", "\ufffd"),
        (b"\xe2\x82", "\ufffd"),
        (b"\xc3(", "\ufffd("),
        (b"\xe0\x80\x80", "\ufffd\ufffd\ufffd"),
        (b"\xed\xa0\x80", "\ufffd"),
        (b"\xed\xa0A", "\ufffdA"),
        (b"\xf4\x90\x80\x80", "\ufffd\ufffd\ufffd\ufffd"),
        ("\u00e9\U0001f600".encode(), "\u00e9\U0001f600"),
    ],
)
def test_invalid_bytes_have_the_replacement_characters_of_java(value: bytes, text: str) -> None:
    """Recorded with Java 17; Python has others in place of surrogates."""
    log = [b"1", value, b"2"]
    assert find(log, ChunkText(text_of([b"1", text.encode(), b"2"]), 3, 0)) == Ends((3,), True)


def test_values_that_are_no_texts_are_compared_as_bytes() -> None:
    """If the chunk has them as they are."""
    log = [b"1", b"\xff", b"2", b"1", b"\xfe", b"2"]
    assert find(log, ChunkText(b"1\n\xff\n2\n", 3, 0)) == Ends((3,), True)
    assert find(log, ChunkText(b"1\n\xfe\n2\n", 3, 0)) == Ends((6,), True)


def test_a_long_log_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """As far as is needed; what then is not known is not certain."""
    monkeypatch.setattr(chunk_place, "_LOOKED_AT", 5)
    monkeypatch.setattr(chunk_place, "_SEARCHED", 20)
    read: list[int] = []

    def values(log: Log, start: int) -> Iterator[tuple[int, bytes | None]]:
        read.clear()
        for offset in range(start, len(log)):
            if log[offset] is not None:
                read.append(offset)
                yield offset, log[offset]

    chunk = ChunkText(text_of([b"4", b"5"]), 2, 4)
    assert chunk.find(values(distinct(90), 4), 0) == Ends((6,), True)
    assert read == [*range(4, 11)]
    assert ChunkText(b"50\n", 1, 4).find(values(distinct(90), 4), 0) == Ends((), False)
    assert read == [*range(4, 25)]
    assert chunk.find(values(distinct(90), 6), 6) == Ends((6,), True)
    assert chunk.find(values(distinct(90, gaps=(9,)), 6), 6) == Ends((6,), False)
    assert read == [offset for offset in range(6, 29) if offset != 9]


def test_values_are_looked_up_as_whole_lines_in_their_order() -> None:
    """Others may be between them: those that Kafka has compacted."""
    chunk = ChunkText(b"ab\nb\nb\n\nc\n", 5, 0)
    assert chunk.has_in_order([])
    assert chunk.has_in_order([b"b", b"b", b"c"])
    assert chunk.has_in_order([b"ab", b"", b"c"])
    assert not chunk.has_in_order([b"b", b"b", b"b"])
    assert not chunk.has_in_order([b"c", b"ab"])
    assert not chunk.has_in_order([b"a"])
