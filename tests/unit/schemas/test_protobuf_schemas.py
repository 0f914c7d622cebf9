"""Protobuf schemas: texts and descriptors."""

from __future__ import annotations

import base64
import contextlib
import random
import time
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.schemas.avro_text import node_text
from airflow_provider_kafka_s3.schemas.proto_file import ProtoEnum, ProtoField, ProtoFile, ProtoMessage
from airflow_provider_kafka_s3.schemas.protobuf import Mapping, message_at, parse_protobuf
from tests.protobuf_values import random_file, split, text_of

SEEDS: Final = st.integers(0, 2**32)


def outline(file: ProtoFile) -> Any:
    """What decoding needs of a file; fields and messages in one order."""

    def beside(message: ProtoMessage, part: ProtoField) -> list[str]:
        # In a descriptor, an optional field of proto3 is in a oneof of its own.
        return sorted(f.name for f in message.fields if f is not part and f.oneof == part.oneof is not None)

    def of_enum(enum: ProtoEnum) -> Any:
        return enum.full_name, enum.values

    def of_message(message: ProtoMessage) -> Any:
        fields = []
        for f in message.fields:
            types = f.message and f.message.full_name, f.enum and f.enum.full_name
            presence = f.repeated or f.presence
            fields.append((f.number, f.name, f.kind, f.repeated, presence, f.default, beside(message, f), *types))
        inner = sorted(map(of_message, message.messages), key=repr)
        return message.full_name, message.is_map_entry, sorted(fields), inner, [of_enum(e) for e in message.enums]

    return file.package, [of_message(m) for m in file.messages], [of_enum(e) for e in file.enums]


def encoded(file: Any) -> str:
    """A descriptor as a registry returns it."""
    return base64.b64encode(file.SerializeToString()).decode()


@settings(max_examples=40)
@given(SEEDS)
def test_a_text_and_a_descriptor_have_the_same_messages(seed: int) -> None:
    """The descriptor is one of Google's library; a file that is imported may be in either form."""
    rng = random.Random(seed)
    main, other = split(random_file(rng, rng.choice(["proto2", "proto3"])))
    wanted = repr(outline(parse_protobuf(text_of(main), [text_of(other)])))
    for first in (text_of(main), encoded(main)):
        for second in (text_of(other), encoded(other)):
            assert repr(outline(parse_protobuf(first, [second]))) == wanted


HOSTILE: Final = st.sampled_from(
    ["{", "}", "[", "]", "<", ">", "(", ")", ";", "=", ",", ".", "-", '"', "'", "/*", "*/", "//", "\\", "\0", "\ufeff",
     "message", "enum", "oneof", "map", "group", "optional", "repeated", "required", "option", "extend", "import",
     "reserved", "service", "syntax", "package", "string", "int32", "M0", "0", "1", "-1", "99999999999", "0x", "1e9",
     "inf", "nan", "default", "packed", '"proto3"', "features.field_presence", "é", "\ud800", "\n"]
)  # fmt: skip


@settings(max_examples=150)
@given(SEEDS, st.lists(st.tuples(st.floats(0, 1), st.floats(0, 0.05), HOSTILE), max_size=4))
def test_a_changed_text_is_a_schema_or_a_configuration_error(
    seed: int, changes: list[tuple[float, float, str]]
) -> None:
    """Words and signs in any place, and texts that are cut: never another error."""
    rng = random.Random(seed)
    text = text_of(random_file(rng, "proto2"))
    for place, size, new in changes:
        begin = int(place * len(text))
        text = text[:begin] + new + text[begin + int(size * len(text)) :]
    if rng.random() < 0.2:
        text = text[: rng.randint(0, len(text))]
    assert_schema_or_error(text)


@settings(max_examples=120)
@given(SEEDS, st.lists(st.tuples(st.floats(0, 1), st.integers(0, 3), st.binary(max_size=3)), min_size=1, max_size=4))
def test_a_changed_descriptor_is_a_schema_or_a_configuration_error(
    seed: int, changes: list[tuple[float, int, bytes]]
) -> None:
    """Bytes in any place: never another error."""
    data = random_file(random.Random(seed), "proto3").SerializeToString()
    for place, size, new in changes:
        begin = int(place * len(data))
        data = data[:begin] + new + data[begin + size :]
    assert_schema_or_error(base64.b64encode(data).decode())


def assert_schema_or_error(text: str) -> None:
    """A schema whose messages have a type, or the library's own error."""
    with contextlib.suppress(ConfigurationError):
        for message in parse_protobuf(text).messages:
            for mapping in (Mapping(), Mapping("decimal", "record")):
                node_text(mapping.node(message))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("message M { message ", "line 1 cannot be read"),
        ("syntax = 'proto3';\nmessage M { string a = 0; }", "line 2 cannot be read"),
        ("message M { Other a = 1; }", "has the type 'Other', which neither .* name it as reference"),
        ("message M { optional int32 a = 1 [default = x]; }", "the default of field 'a' is no int32"),
        ("message M { optional E a = 1 [default = Z]; enum E { A = 0; } }", "has no value 'Z'"),
        ("message M { optional M a = 1; }", "contains itself"),
        ("message M { optional N a = 1; } message N { repeated M a = 1; }", "contains itself"),
        ("message M {" * 200 + "}" * 200, "more than 100 messages inside each other"),
        ("message M { optional bytes a = 1 [default = '\\UFFFFFFFF']; }", "an escape of no character"),
        ("AAAA", "base64, but no FileDescriptorProto"),
        ("message M { int32 a = 1 /* without an end", "line 1 cannot be read"),
    ],
)
def test_what_is_no_schema_is_refused(text: str, message: str) -> None:
    """With the place or the name of the part."""
    with pytest.raises(ConfigurationError, match=message):
        Mapping().node(parse_protobuf(text).messages[0])


@pytest.mark.parametrize(
    "text",
    [
        "message M {" * 30_000,
        "message M { optional group A = 1 {" * 20_000,
        "option a = " + "{" * 30_000,
        "/*" * 30_000,
        "// " * 30_000,
        "message M { reserved " + "1, " * 20_000,
        "message M { optional " + ".a" * 20_000 + " b = 1; }",
        "'" + "\\" * 30_000,
        "message M { optional int32 a = " + "9" * 30_000 + "; }",
        "A" * 400_000,
    ],
    ids=["messages", "groups", "options", "comments", "lines", "reserved", "dots", "quotes", "digits", "base64"],
)
def test_a_hostile_text_is_refused_in_time(text: str) -> None:
    """Long texts without an end neither exhaust the stack nor take long."""
    began = time.monotonic()
    assert_schema_or_error(text)
    assert time.monotonic() - began < 20


def test_types_are_found_in_the_innermost_scope() -> None:
    """Before those of the same name further outside; a dot in front means the whole name."""
    text = """
        package p;
        message M {
          optional A inner = 1; optional .p.A outer = 2; optional p.A same = 3; repeated N.A deep = 4;
          message A { optional int32 x = 1; }
          message N { message A {} optional A a = 1; }
        }
        message A { optional string y = 1; }
    """
    fields = parse_protobuf(text).messages[0].fields
    assert [f.message and f.message.full_name for f in fields] == ["p.M.A", "p.A", "p.A", "p.M.N.A"]


def test_options_and_definitions_that_decoding_does_not_need_are_left_out() -> None:
    """Services, extensions, options with braces, reserved numbers, comments and names that are words elsewhere."""
    text = """
        edition = "2023"; // features are of editions
        import public "a.proto"; import weak 'b.proto';
        option java_package = "x"; option (my.option).part = { a: [1, 2] b { c: "}" } };
        option features.field_presence = IMPLICIT;
        service S { rpc Get(M) returns (stream M) { option (google.api.http) = { get: "/v1/{name}" }; } }
        extend M { int32 more = 100; }
        message M {
          option deprecated = true; reserved 2, 9 to 11, 1000 to max; reserved "old", "older"; extensions 100 to 199;
          extend M { string nested = 101; }
          string message = 1; int32 enum = 3 [features.field_presence = EXPLICIT, (x) = "]", json_name = 'a' "b"];
          oneof oneof { option (y) = 1; string map = 4; bytes group = 5 [deprecated = true]; }
          M.reserved2 optional = 6 [features.message_encoding = DELIMITED];
          message reserved2 { bool required = 1 [features.field_presence = LEGACY_REQUIRED]; };
        }
    """
    (message,) = parse_protobuf(text).messages
    assert [(f.name, f.number, f.kind, f.presence, f.oneof) for f in message.fields] == [
        ("message", 1, "string", "implicit", None),
        ("enum", 3, "int32", "explicit", None),
        ("map", 4, "string", "explicit", 0),
        ("group", 5, "bytes", "explicit", 0),
        ("optional", 6, "group", "explicit", None),
    ]
    (inner,) = message.messages
    assert [f.presence for f in inner.fields] == ["required"]


def test_messages_are_counted_without_entries_of_maps() -> None:
    """As serializers count them."""
    text = "message A {} message B { map<string, int32> m = 1; message C {} message D { message E {} } }"
    file = parse_protobuf(text)
    found = [message_at(file, indexes) for indexes in ([0], [1], [1, 0], [1, 1, 0], [2], [1, 2], [0, 0], [-1], [])]
    assert [m and m.full_name for m in found] == ["A", "B", "B.C", "B.D.E", None, None, None, None, None]
