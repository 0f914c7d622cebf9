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
    return chunk.find(records, earliest, len(log))


def distinct(count: int, *, gaps: Sequence[int] = ()) -> list[bytes | None]:
    """Values that are not repeated."""
    return [None if offset in gaps else b"%d" % offset for offset in range(count)]


VALUES = st.sampled_from([b"a", b"b", b"a\n", b"", b"a\nb", b"\xff", "\ufffd".encode()])


@settings(max_examples=1_000, deadline=None)
@given(
    log=st.lists(st.one_of(st.none(), VALUES), min_size=1, max_size=14),
    data=st.data(),
)
def test_what_is_certain_is_right_and_the_right_end_is_among_the_possible_ones(log: Log, data: st.DataObject) -> None:
    """With repeated values, gaps, deletions, compaction, and a sink that counts: nothing is lost or landed twice.

    One case is not in it, since it cannot be seen: a record of the chunk was compacted, and its value is repeated.
    """
    began = data.draw(st.integers(0, len(log) - 1), "where the sink began to read")
    read = [offset for offset, value in enumerate(log) if value is not None and offset >= began]
    if not read:
        return
    at = data.draw(st.integers(0, len(read) - 1), "number of records before the chunk")
    records = data.draw(st.integers(1, len(read) - at), "records of the chunk")
    earliest = data.draw(st.integers(0, len(log)), "the first offset in Kafka")
    compacted = data.draw(st.sets(st.sampled_from(read)) | st.just(set()), "offsets that are compacted after the sink")
    offsets = read[at : at + records]
    written = {offset: b"%d" % offset if offset in compacted else log[offset] or b"" for offset in offsets}
    values = [written[offset] for offset in offsets]
    if data.draw(st.booleans(), "whether it makes texts of bytes"):
        values = [value.decode("utf-8", "replace").encode() for value in values]
    left = [None if offset in compacted else value for offset, value in enumerate(log)]
    first, end = began + at, offsets[-1] + 1
    ends = find(left, ChunkText(text_of(values), records, first), earliest)
    behind = [offset for offset in read if offset >= end and offset not in compacted]

    def lands(begin: int) -> list[int]:
        return [offset for offset, value in enumerate(left) if value is not None and offset >= max(begin, earliest)]

    if ends.is_certain:
        (found,) = ends.offsets
        assert lands(found) == behind
    elif len(ends.offsets) < 2 and compacted.isdisjoint(offsets):
        assert ends.offsets == (max(end, earliest),)
    if ends.is_in_place and earliest == 0 and None not in left[:first]:
        assert ends.offsets[0] == end


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
    monkeypatch.setattr(chunk_place, "_SEARCHED", 20)
    read: list[int] = []

    def values(log: Log, start: int) -> Iterator[tuple[int, bytes | None]]:
        read.clear()
        for offset in range(start, len(log)):
            if log[offset] is not None:
                read.append(offset)
                yield offset, log[offset]

    def search(log: Log, chunk: ChunkText, earliest: int = 0) -> Ends:
        return chunk.find(values(log, max(chunk.first, earliest)), earliest, len(log))

    chunk = ChunkText(text_of([b"4", b"5"]), 2, 4)
    assert search(distinct(26), chunk) == Ends((6,), False, is_in_place=True, is_complete=False)
    assert read == [*range(4, 26)]
    assert search(distinct(25), chunk) == Ends((6,), True)
    assert search(distinct(90), ChunkText(b"50\n", 1, 4)) == Ends((), False, is_complete=False)
    assert read == [*range(4, 25)]
    assert search(distinct(90), chunk, 6) == Ends((6,), False, is_complete=False)
    assert read == [*range(6, 28)]
    assert search([*distinct(10), b"4", b"5", *distinct(90)], chunk) == Ends((6, 12), False, is_in_place=True)
    assert read == [*range(4, 12)]


def test_comparisons_with_a_chunk_that_was_compacted_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """With many repeated values they take long; what then is not known is not certain."""
    log = [*distinct(4), *[b"a", None] * 40, b"4", b"x"]
    chunk = ChunkText(text_of([b"x", *[b"a"] * 30, b"4"]), 32, 0)
    assert find(log, chunk) == Ends((85,), False)
    monkeypatch.setattr(chunk_place, "_COMPARED", 20)
    assert find(log, chunk) == Ends((85,), False, is_complete=False)


def test_what_may_be_the_rest_of_a_chunk_is_no_record_behind_it() -> None:
    """Kafka has compacted records of the chunk, and deleted those before: what is left of it was landed."""
    chunk = ChunkText(text_of([b"0", b"1", b"2", b"3"]), 4, 0)
    # The last one was compacted.
    assert find([None, None, None, None, b"2", None, b"6"], chunk, 4) == Ends((4, 5), False)
    # One in the midst of it.
    assert find([None, None, None, None, b"1", None, b"3", b"7"], chunk, 4) == Ends((4, 5, 7), False)
    # All, at offsets behind those of the index.
    assert find([*[None] * 4, b"4", *[None] * 4, b"9"], chunk, 4) == Ends((4, 5), False)
    assert find([*[None] * 4, b"4", *[None] * 3, b"8"], chunk, 4) == Ends((4,), True)
    assert find([*[None] * 4, b"4", *[None] * 4], chunk, 4) == Ends((4, 5), False)
    # Nothing is left.
    assert find([None] * 9, chunk, 4) == Ends((4,), True)


def test_a_place_with_some_records_is_never_certain() -> None:
    """A second place may be the right one, if Kafka has compacted records there."""
    log = [b"0", b"a", b"b", b"c", b"4", b"a", None, b"c", b"8"]
    assert find(log, ChunkText(b"a\nb\nc\n", 3, 1)) == Ends((4, 8), False, is_in_place=True)
    assert find(log, ChunkText(b"a\nx\nc\n", 3, 1)) == Ends((8,), False)


def test_values_are_looked_up_as_whole_lines_in_their_order() -> None:
    """Others may be between them: those that Kafka has compacted."""
    chunk = ChunkText(b"ab\nb\nb\n\nc\n", 5, 0)
    assert chunk.has_in_order([])
    assert chunk.has_in_order([b"b", b"b", b"c"])
    assert chunk.has_in_order([b"ab", b"", b"c"])
    assert not chunk.has_in_order([b"b", b"b", b"b"])
    assert not chunk.has_in_order([b"c", b"ab"])
    assert not chunk.has_in_order([b"a"])
