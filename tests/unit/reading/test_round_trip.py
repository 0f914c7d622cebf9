"""Generated records are landed, and read again as Kafka had them, by every format that keeps them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_kafka_s3.arrays import NO_TIMESTAMP
from airflow_provider_kafka_s3.config import (
    AvroContainer,
    BlockGzip,
    BytesConverter,
    Envelope,
    Format,
    JsonConverter,
    JsonLines,
    Layout,
    Parquet,
    RawBytes,
    SiblingObjects,
    StringConverter,
)
from airflow_provider_kafka_s3.reading.records import Record, kept_parts
from tests.unit.reading.landed_records import Sent, land, read

TEXT, BYTES = StringConverter(), BytesConverter()


def layout_of(record_format: Format, **more: Any) -> Layout:
    """A layout of the tests."""
    return Layout(topics_dir="lake", format=record_format, **more)


def whole(record_format: Format, **more: Any) -> Layout:
    """A layout of whole records."""
    return layout_of(record_format, content=Envelope(), **{"key_converter": BYTES, "value_converter": BYTES, **more})


Headers: TypeAlias = st.SearchStrategy[tuple[tuple[str, bytes | None], ...]]

ANY_BYTES: Final = st.binary(max_size=40)
LINES: Final = st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), max_size=9).map(str.encode)
DOCUMENTS: Final = st.sampled_from([b"{}", b' {"a" : 1.0e2}\t', b'"\\u0041"', b"[ 1 , 2 ]", b'{"key":1}', b"7"])
SAME: Final = st.sampled_from([b"", b"k"])
"""Keys that several records have."""


def headers_of(values: st.SearchStrategy[Any]) -> Headers:
    """Some names occur twice."""
    return st.lists(st.tuples(st.just("h") | st.text(max_size=3), values), max_size=3).map(tuple)


@dataclass(frozen=True)
class Case:
    """A layout, and the records that it keeps."""

    layout: Layout
    values: st.SearchStrategy[bytes | None] = st.none() | ANY_BYTES
    keys: st.SearchStrategy[bytes | None] = st.none() | SAME | ANY_BYTES
    headers: Headers = headers_of(st.none() | st.binary(max_size=4))  # noqa: RUF009
    megabyte: bytes = bytes(range(256)) * 4096

    def records(self) -> st.SearchStrategy[list[Sent]]:
        """Records, some of which have a time before the year 1970, or none."""
        times = st.sampled_from([NO_TIMESTAMP, 0, 1, -7, -(2**41)]) | st.integers(0, 2**41)
        return st.lists(st.tuples(self.keys, self.values, self.headers, times), min_size=1, max_size=25)


def beside(record_format: Format, **more: Any) -> Case:
    """Keys and headers in objects of their own, where no key is null, and values of headers are texts."""
    content = SiblingObjects(keys=AvroContainer(), headers=JsonLines())
    layout = layout_of(record_format, value_converter=BYTES, key_converter=BYTES, content=content, **more)
    return Case(layout, keys=SAME | ANY_BYTES, headers=headers_of(LINES))


def texts(layout: Layout) -> Case:
    """Texts without line breaks."""
    return Case(layout, st.none() | LINES, st.none() | SAME | LINES, megabyte="é".encode() * 500_000)


def documents(layout: Layout) -> Case:
    """JSON documents in one line."""
    return Case(layout, DOCUMENTS, st.none() | SAME | LINES, megabyte=b'"%b"' % (b"x" * 1_000_000))


CASES: Final[Mapping[str, Case]] = {
    "envelopes in JSON": Case(whole(JsonLines(compression="gzip", on_null="write"))),
    "envelopes in zstd": Case(whole(JsonLines(compression="zstd", on_null="write"))),
    "envelopes in blocks": Case(whole(BlockGzip(lines=JsonLines(on_null="write"), block_size=500))),
    "envelopes in Avro": Case(whole(AvroContainer(codec="deflate", on_null="write"))),
    "envelopes in Parquet": Case(whole(Parquet(on_null="write", row_group_records=5))),
    "envelopes of texts": texts(whole(JsonLines(on_null="write"), key_converter=TEXT, value_converter=TEXT)),
    "envelopes of texts in Parquet": texts(whole(Parquet(on_null="write"), key_converter=TEXT, value_converter=TEXT)),
    "envelopes of documents": documents(whole(JsonLines(), key_converter=TEXT, value_converter=JsonConverter())),
    "keys and headers beside JSON": beside(JsonLines(on_null="write")),
    "keys and headers beside Avro": beside(AvroContainer(on_null="write")),
    "keys and headers beside Parquet": beside(Parquet(on_null="write")),
    "values in JSON": Case(layout_of(JsonLines(compression="bzip2", on_null="ignore"), value_converter=BYTES)),
    "values in Avro": Case(layout_of(AvroContainer(codec="snappy", on_null="ignore"), value_converter=BYTES)),
    "values in Parquet": Case(layout_of(Parquet(on_null="ignore"), value_converter=BYTES)),
    "texts in blocks": texts(
        layout_of(BlockGzip(lines=JsonLines(on_null="ignore"), block_size=100), value_converter=TEXT)
    ),
    "lines": texts(layout_of(RawBytes(compression="gzip", on_null="ignore"))),
    "lines in blocks": texts(layout_of(BlockGzip(lines=RawBytes(on_null="ignore"), block_size=100))),
    "documents": documents(layout_of(JsonLines(), value_converter=JsonConverter())),
    "documents in blocks": documents(layout_of(BlockGzip(block_size=50), value_converter=JsonConverter())),
}


def as_kept(layout: Layout, sent: Sequence[Sent], partition: int) -> list[Record]:
    """The records of a partition as a layout keeps them: `kept_parts` names what is left out."""
    kept = kept_parts(layout).kept
    return [
        Record(
            partition,
            offset,
            timestamp if "timestamp" in kept and timestamp != NO_TIMESTAMP else None,
            key if "key" in kept else None,
            value,
            headers if "headers" in kept else (),
        )
        for offset, (key, value, headers, timestamp) in enumerate(sent)
        if value is not None or layout.format.on_null == "write"
    ]


def as_both(layout: Layout, sent: Sequence[Sent]) -> list[Record]:
    """The records of both partitions."""
    return [one for partition in (0, 1) for one in as_kept(layout, sent, partition)]


def without_offset(record: Record) -> Record:
    """The record as an object has it whose offsets have gaps."""
    return Record(record.partition, None, record.timestamp, record.key, record.value, record.headers)


def check(layout: Layout, sent: Sequence[Sent]) -> None:
    """Land the records and read them: each is there once, with all that is kept."""
    found = read(land(layout, sent, partitions=2, records_per_slice=9))
    expected = as_both(layout, sent)
    assert Counter(map(without_offset, found)) == Counter(map(without_offset, expected))
    assert {one for one in found if one.offset is not None} <= {*expected}
    if "offset" in kept_parts(layout).kept or (layout.has_index and layout.format.on_null == "ignore"):
        assert sorted(found, key=lambda one: (one.partition, one.offset)) == expected


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=5)
@given(data=st.data())
def test_generated_records_are_read_as_kafka_had_them(name: str, data: st.DataObject) -> None:
    """Nulls, empty values, equal keys, headers and any times, in several slices of two Kafka partitions."""
    check(CASES[name].layout, data.draw(CASES[name].records()))


@pytest.mark.parametrize("name", CASES)
def test_a_value_of_a_megabyte_is_read_as_kafka_had_it(name: str) -> None:
    """Between small ones."""
    case = CASES[name]
    sent = [(b"k", b"{}", (), 1), (b"k", case.megabyte, (("h", b"1"), ("h", b"")), 0), (b"", b"7", (), -7)]
    found = sorted(
        read(land(case.layout, sent, partitions=2, records_per_slice=9)), key=lambda one: (one.partition, one.offset)
    )
    assert [one == other for one, other in zip(found, as_both(case.layout, sent), strict=True)] == [True] * 6
