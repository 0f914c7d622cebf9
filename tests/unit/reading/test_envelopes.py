"""Envelopes that are read many at once are those that are read one by one."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_kafka_s3.config import (
    AvroContainer,
    BytesConverter,
    Converter,
    Envelope,
    JsonConverter,
    JsonLines,
    Layout,
    Limits,
    Parquet,
    StringConverter,
)
from airflow_provider_kafka_s3.exceptions import ForeignObjectError
from airflow_provider_kafka_s3.reading import envelope_datums, records
from airflow_provider_kafka_s3.reading.envelope_batches import envelope_rows
from airflow_provider_kafka_s3.reading.envelope_datums import envelopes_in_avro
from airflow_provider_kafka_s3.reading.envelope_lines import ReadLines, parse_lines, read_lines
from airflow_provider_kafka_s3.reading.envelopes import EnvelopeColumns
from airflow_provider_kafka_s3.reading.field_bytes import EnvelopedBytes
from airflow_provider_kafka_s3.reading.formats.registry import format_reader
from airflow_provider_kafka_s3.reading.lines import LineBlock, line_blocks
from airflow_provider_kafka_s3.reading.record import Record
from tests.unit.batch.simulated_topic import Topic
from tests.unit.reading import landed_records
from tests.unit.reading.test_records import Sent, land, layout_of, read

JSON, TEXT, BYTES = JsonConverter(), StringConverter(), BytesConverter()
TAIL = ',"headers":[],"topic":"orders","partition":0,"offset":7,"timestamp":9}'
TIMES = st.sampled_from([-1, 0, -5, 7, 1_700_000_000_000, 1_700_000_000_001, 2**53, -(2**50)])
TEXTS = st.sampled_from(
    [
        "",
        "k",
        'a"b',
        "\\",
        'a\\"',
        '","value":',
        TAIL,
        "{" + TAIL,
        "é",
        "\u2028",
        "k" * 70,
        "null",
        " ",
        "\x00\x0corders",
    ]
).map(str.encode)
BINARY = TEXTS | st.binary(max_size=5) | st.just(b"\x00\x0corders" * 3) | st.just(b"\xff")
DOCUMENTS = st.sampled_from(
    [
        *("1", "null", "true", '""', '"a"', '"\\u0041"', "{}", "[]", '{"a":{"b":[1,2]}}', '{"key":1,"value":{}}'),
        *(" 1", "1 ", "\t{} ", " null", '"\\"},{"', json.dumps(TAIL), f'{{"a":1{TAIL}'),
        *('{"key":null,"value":1' + TAIL, '{"headers":[{"key":"h","value":"aA=="}]}', "-0", "1e5", "{ }"),
    ]
).map(str.encode)
HEADERS = (
    st.just(())
    | st.just((("h", b"v"),))
    | st.lists(
        st.tuples(TEXTS.map(bytes.decode) | st.just(',"headers":['), st.none() | BINARY), min_size=1, max_size=5
    ).map(tuple)
)


def sent_of(keys: Any, values: Any, *, headers: Any = HEADERS) -> Any:
    """Records with these keys and values, of which most have the same form."""
    return st.lists(st.tuples(keys, values, headers, TIMES), min_size=1, max_size=30)


ENVELOPES: dict[str, tuple[Layout, Any]] = {
    **{
        f"{kind} {converter.__struct_config__.tag}": (
            layout_of(record_format, content=Envelope(), value_converter=converter, key_converter=converter),
            sent_of(st.none() | some, st.none() | some),
        )
        for kind, record_format in {
            "json": JsonLines(on_null="write"),
            "avro": AvroContainer(codec="null", on_null="write"),
            "parquet": Parquet(on_null="write"),
        }.items()
        for converter, some in ((BYTES, BINARY), (TEXT, TEXTS))
    },
    "json of documents": (
        layout_of(JsonLines(), content=Envelope(), value_converter=JSON, key_converter=JSON),
        sent_of(st.none() | DOCUMENTS.filter(lambda one: b"null" not in one[:5]), DOCUMENTS),
    ),
    "json of documents or nulls": (
        layout_of(JsonLines(on_null="write"), content=Envelope(), value_converter=JSON, key_converter=TEXT),
        sent_of(st.none() | TEXTS, st.none() | DOCUMENTS.filter(lambda one: one.strip() != b"null")),
    ),
}


def none_has_form(block: LineBlock) -> ReadLines:
    """As if no line had the form of most lines."""
    none = np.zeros(0, np.int64)
    return ReadLines(
        EnvelopeColumns([], [], none, none, []), np.zeros(len(block), np.bool_), block.data.split(b"\n")[:-1]
    )


@pytest.fixture
def one_by_one(monkeypatch: pytest.MonkeyPatch) -> Callable[[Topic], list[Record]]:
    """Reads records without looking at many of them at once."""

    def slowly(topic: Topic) -> list[Record]:
        with monkeypatch.context() as patched:
            patched.setattr(records, "read_lines", none_has_form)
            patched.setattr(envelope_datums._Form, "columns", lambda form, blocks: None)
            return read(topic)

    return slowly


@pytest.mark.parametrize("name", ENVELOPES)
def test_records_are_those_that_are_read_one_by_one(name: str, one_by_one: Callable[[Topic], list[Record]]) -> None:
    """And those of Kafka: nulls, empty values, escapes, any headers and timestamps, and values like other records."""
    layout, strategy = ENVELOPES[name]

    @settings(max_examples=40)
    @given(sent=strategy)
    def check(sent: list[Sent]) -> None:
        topic = land(layout, sent, 2)
        found = read(topic)
        assert found == one_by_one(topic)
        assert found == [
            Record(p, n, None if t == -1 else t, k, v, h) for p in (0, 1) for n, (k, v, h, t) in enumerate(sent)
        ]

    check()


@pytest.mark.parametrize(
    "name", ["json bytes", "json string", "json of documents or nulls", "avro bytes", "avro string"]
)
def test_values_of_a_megabyte_are_read_as_others(name: str, one_by_one: Callable[[Topic], list[Record]]) -> None:
    """And keys of a megabyte; small records are before and behind them."""
    large = b'"' + b"x" * 1_100_000 + b'"'
    sent: list[Sent] = [(b"k", b"1", (), n) for n in range(5)]
    sent[2] = (b"k", large, (), 2)
    sent[3] = (large, b"1", (), 3)
    topic = land(ENVELOPES[name][0], sent)
    assert [(r.key, r.value, r.headers, r.timestamp) for r in read(topic)] == sent
    assert one_by_one(topic) == read(topic)


# -- lines -------------------------------------------------------------------------------------------------------------


def block_of(*lines: bytes) -> LineBlock:
    """A block of lines."""
    (block,) = line_blocks(iter([b"".join(line + b"\n" for line in lines)]))
    return block


SOME_HEADERS = (
    '{"key":"h","value":"aA=="}',
    '{"key":"","value":null}',
    '{"key":",\\"headers\\":[]","value":""}',
    '{"key":",\\"headers\\":[","value":"aA=="}',
    '{"key":"a\\\\","value":"aA=="}',
    '{"key":"],[","value":null}',
)


def line(key: str = '"aw=="', value: str = '"YQ=="', headers: str = "[]", partition: Any = 0, **more: Any) -> bytes:
    """An envelope, as it is written."""
    offset, timestamp = more.get("offset", 7), more.get("timestamp", 1_700_000_000_000)
    return (
        f'{{"key":{key},"value":{value},"headers":{headers},"topic":"orders","partition":{partition},'
        f'"offset":{offset},"timestamp":{timestamp}}}'
    ).encode()


def fields_of(found: ReadLines) -> list[Any]:
    """All fields of the lines, in their order."""
    c = found.columns
    headers = c.headers or [()] * len(c)
    quick = zip(c.keys, c.values, headers, c.partitions.tolist(), c.offsets.tolist(), c.timestamps, strict=True)
    parsed = parse_lines(found.others)
    return [next(quick if has_form else parsed) for has_form in found.has_form.tolist()]


def test_lines_have_the_form_that_is_read_at_once() -> None:
    """Whatever their keys, headers and numbers are, as long as few numbers of digits are together."""
    lines = [line(offset=n, partition=n % 2 * 11) for n in range(990, 1010)]
    lines += [line("null", offset=n, timestamp="null") for n in range(20)]
    lines += [line(json.dumps("k" * n), json.dumps(TAIL), timestamp=-12) for n in range(80)]
    lines += [line(headers=f"[{','.join([header] * n)}]") for header in SOME_HEADERS for n in (1, 2, 40)]
    lines += [line(value=f'{{"a":1,"headers":[{header}]}}', headers=f"[{header}]") for header in SOME_HEADERS]
    found = read_lines(block_of(*lines))
    assert found.has_form.all()
    assert fields_of(found) == [*parse_lines(lines)]


@pytest.mark.parametrize(
    "other",
    [
        line('"a\\"b"'),
        line("1"),
        line(' "k"'),
        line('"k" '),
        line(value=" 1"),
        line(value="1\t"),
        line(offset=10**19),
        line().replace(b'"topic":"orders",', b""),
        line().replace(b'"headers":[]', b'"headers": []'),
        line() + b" ",
    ],
)
@pytest.mark.parametrize("at", [0, 1, -1])
def test_a_line_of_another_form_is_parsed_alone(other: bytes, at: int) -> None:
    """The lines around it are read at once."""
    lines = [line(offset=n) for n in range(10, 20)]
    lines[at] = other
    found = read_lines(block_of(*lines))
    assert found.others == [other]
    assert fields_of(found) == [*parse_lines(lines)]


@pytest.mark.parametrize(
    "wrong", ['"offset":07', '"offset":', '"offset":-7', '"offset":7a', '"offset": 7', '"offset":7.0']
)
def test_numbers_in_another_form_are_left_to_the_parser(wrong: str) -> None:
    """No digits are made of other characters."""
    assert not read_lines(block_of(line().replace(b'"offset":7', wrong.encode()))).has_form[0]
    lines = [line(offset=n) for n in range(10)] + [line().replace(b'"offset":7', wrong.encode())]
    assert read_lines(block_of(*lines)).has_form.tolist() == [True] * 10 + [False]


@pytest.mark.parametrize(
    "headers",
    [
        "1",
        '{"key":"h"}',
        '{"key":"h","value":"a"}',
        '{"key":1,"value":null}',
        '{"key":"h","value":null}],[',
        "],[",
        "]",
    ],
)
def test_headers_that_are_not_one_list_are_refused(headers: str) -> None:
    """Also if the lists of two lines together have the right number."""
    good = '{"key":"h","value":"aA=="}'
    opened, closed = '{"key":"h', '","value":null}'
    for wrong in ([headers], [good, headers], [headers, good], [headers, headers], [opened, closed], ["", headers]):
        block = block_of(*(line(headers=f"[{one}]") for one in wrong))
        with pytest.raises(ValueError):  # noqa: PT011 - any of them becomes a ForeignObjectError
            read_lines(block)


@pytest.mark.parametrize("value", ["1,2", '1,"x":2', "", "{", '"a', "1}", "nul", "[1", '"\\x"'])
@pytest.mark.parametrize("converter", [JSON, BYTES, TEXT])
def test_a_value_that_is_not_one_document_is_refused(value: str, converter: Converter) -> None:
    """Also if the values of two lines together have the right number of documents."""
    some = EnvelopedBytes(format_reader(JsonLines()), converter)
    for values in ([value], ['"YQ=="', value], [value, '"YQ=="'], [value, value], [value, '"c', 'd"']):
        block = block_of(*(line(value=one) for one in values))
        with pytest.raises(ValueError):  # noqa: PT011 - any of them becomes a ForeignObjectError
            records._of_lines(block, some, some)


@pytest.mark.parametrize("value", ["123456", '"Y Q=="', '"YQ="', '"YQ===="', '"YQ==', "null7"])
def test_bytes_are_taken_from_base64_in_quotes_alone(value: str) -> None:
    """A parser of Base64 may leave out what is none; and a number may look like it."""
    with pytest.raises(ValueError):  # noqa: PT011 - any of them becomes a ForeignObjectError
        EnvelopedBytes(format_reader(JsonLines()), BYTES).of_rows([value.encode()])


def test_a_text_of_several_values_is_not_taken_for_those_of_other_lines() -> None:
    """Their number is another one than that of the lines."""
    for texts in ([b'"YQ==","Yg=="'], [b'"YQ=="', b'"Yg==","Yw=="']):
        with pytest.raises(ValueError, match="more than one document"):
            EnvelopedBytes(format_reader(JsonLines()), BYTES).of_texts(texts)


def outcome(read_block: Callable[[LineBlock], Any], block: LineBlock) -> Any:
    """The records of a block, or that it is refused."""
    try:
        return [*read_block(block)]
    except (KeyError, TypeError, ValueError):
        return "refused"


@pytest.mark.parametrize("converter", [JSON, BYTES, TEXT])
def test_damaged_lines_are_refused_as_by_the_parser(converter: Converter) -> None:
    """A byte that is another one gives the same records, or the same refusal, in whatever line it is."""
    lines = [line('"YWJj"', '"YWJjZA=="', offset=n) for n in (8, 9, 10)] + [line("null", "null", timestamp="null")]
    lines += [line(headers='[{"key":"h","value":"aA=="},{"key":"i","value":null}]', offset=11)]
    body = b"".join(one + b"\n" for one in lines)
    some = EnvelopedBytes(format_reader(JsonLines()), converter)

    def at_once(block: LineBlock) -> Any:
        return records._of_lines(block, some, some)[0]

    def parsed(block: LineBlock) -> Any:
        return records._of_rows([*parse_lines(none_has_form(block).others)], some, some)

    @settings(max_examples=400)
    @given(at=st.integers(0, len(body) - 2), byte=st.sampled_from([*b'"\\,:{}[]0179-nA= \t\r\x00\x1f\x7f\x80\xc3\xff']))
    def check(at: int, byte: int) -> None:
        block = block_of(*(body[:at] + bytes([byte]) + body[at + 1 :]).split(b"\n")[:-1])
        assert outcome(at_once, block) == outcome(parsed, block)

    check()


# -- datums ------------------------------------------------------------------------------------------------------------


def only_object(topic: Topic) -> bytes:
    """The bytes of the one object of a topic."""
    (body,) = topic.objects().values()
    return body


@pytest.mark.parametrize("name", ["avro bytes", "avro string"])
def test_datums_are_read_at_once(name: str) -> None:
    """With nulls, empty values, any headers, and numbers of any length."""
    values = [None, b"", b"v" * 63, b"v" * 64, b"v" * 9_000]
    headers = [(), (("h", b"v"),), (("h", None), ("é", b"v" * 64), ("", b"")), (), (("h" * 70, b""),) * 64]
    sent = [(values[n % 5], values[n % 3], headers[n % 5], (-1, 5, 2**50, -3)[n % 4]) for n in range(300)]
    topic = Topic(ENVELOPES[name][0])
    for key, value, some, timestamp in sent:
        topic.kafka.append("orders", 0, value, timestamp, key=key, headers=some)
    topic.land()
    found = [*envelopes_in_avro(io.BufferedReader(io.BytesIO(only_object(topic))), "orders")]
    assert all(isinstance(some, EnvelopeColumns) for some in found)
    assert sum(map(len, found)) == 300


def test_rows_of_parquet_are_read_at_once() -> None:
    """With nulls and any headers; parts of a column, too."""
    headers: list[Any] = [(), (("h", b"v"),), (("h", None), ("é", b"v" * 64), ("", b""))]
    sent: list[Sent] = [(b"k", b"v", headers[n % 3], n) for n in range(100)]
    topic = landed_records.land(ENVELOPES["parquet bytes"][0], sent, records_per_slice=100)
    (batch,) = pq.read_table(io.BytesIO(only_object(topic))).to_batches()
    for start, length in ((0, 100), (0, 1), (1, 1), (31, 40), (50, 0)):
        found = envelope_rows(batch.slice(start, length))
        assert isinstance(found, EnvelopeColumns)
        assert [*(found.headers or [()] * len(found))] == [some for _, _, some, _ in sent[start : start + length]]


def test_datums_of_another_form_are_decoded() -> None:
    """Where the topic is not found, values or headers have its bytes, or there are very many headers."""
    headers: Any = (("h", b"v"),)
    for records_, topic_name in (
        ([(b"k", b"v", (), 5)] * 3, "others"),
        ([(b"k", b"v", headers * 65, 5)] + [(b"k", b"v", (), 5)] * 3, "orders"),
        ([(b"k", b"v", (("h", b"\0\x0corders"),), 5)] + [(b"k", b"v", (), 5)] * 3, "orders"),
        ([(b"k", b"\0\x0corders", (), 5)] * 3, "orders"),
    ):
        topic = land(ENVELOPES["avro bytes"][0], records_)
        found = [*envelopes_in_avro(io.BufferedReader(io.BytesIO(only_object(topic))), topic_name)]
        assert [type(some) for some in found] == [list]
        assert [(row[1], row[2]) for row in found[0]] == [(value, some) for _, value, some, _ in records_]


@pytest.mark.parametrize("length", [1, 63, 64, 249])
def test_a_topic_may_have_a_name_of_any_length(length: int) -> None:
    """Its length has one byte or two in Avro."""
    schema = {"type": "record", "fields": []}
    name = "t" * length
    form = envelope_datums._Form(schema, name)
    encoded = form._end_of_headers
    size = encoded[1] >> 1 if encoded[1] < 0x80 else (encoded[1] & 0x7F | encoded[2] << 7) >> 1
    assert size == length
    assert encoded.endswith(name.encode())


# -- whole objects -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in ENVELOPES if not name.startswith("parquet")])
def test_an_object_with_one_other_byte_is_refused(name: str) -> None:
    """At its end at the latest, where its CRC-32 is compared."""
    value, key = (b'{"a":1}', b'"k"') if "documents" in name else (b"value", b"key")
    topic = Topic(ENVELOPES[name][0])
    for n in range(20):
        headers = (("h", b"v"), ("i", None))[: n % 3]
        topic.kafka.append("orders", 0, value, 1_700_000_000_000 + n, key=key, headers=headers)
    topic.land(limits=Limits(records_per_slice=100))
    ((object_key, body),) = topic.objects().items()

    @settings(max_examples=150)
    @given(at=st.integers(0, len(body) - 1), change=st.integers(1, 255))
    def check(at: int, change: int) -> None:
        topic.bucket.delete(object_key)
        topic.bucket.put_new(object_key, body[:at] + bytes([body[at] ^ change]) + body[at + 1 :])
        with pytest.raises(ForeignObjectError):
            read(topic)

    check()
