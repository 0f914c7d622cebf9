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
    main, other = split(random_file(rng, rng.choice(["proto2", "proto3", "editions"])))
    wanted = repr(outline(parse_protobuf(text_of(main), [text_of(other)])))
    for first in (text_of(main), encoded(main)):
        for second in (text_of(other), encoded(other)):
            assert repr(outline(parse_protobuf(first, [second]))) == wanted


HOSTILE: Final = st.sampled_from(
    ["{", "}", "[", "]", "<", ">", "(", ")", ";", "=", ",", ".", "-", '"', "'", "/*", "*/", "//", "\\", "\0", "\ufeff",
     "message", "enum", "oneof", "map", "group", "optional", "repeated", "required", "option", "extend", "import",
     "reserved", "service", "syntax", "package", "string", "int32", "M0", "0", "1", "-1", "99999999999", "0x", "1e9",
     "inf", "nan", "default", "packed", '"proto3"', "features.field_presence", "features", "é", "\ud800", "\n"]
)  # fmt: skip


@settings(max_examples=150)
@given(SEEDS, st.lists(st.tuples(st.floats(0, 1), st.floats(0, 0.05), HOSTILE), max_size=4))
def test_a_changed_text_is_a_schema_or_a_configuration_error(
    seed: int, changes: list[tuple[float, float, str]]
) -> None:
    """Words and signs in any place, and texts that are cut: never another error."""
    rng = random.Random(seed)
    text = text_of(random_file(rng, rng.choice(["proto2", "editions"])))
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


@pytest.mark.parametrize(
    "option",
    [
        "option features.field_presence = IMPLICIT; option features.message_encoding = DELIMITED;",
        "option features = { field_presence: IMPLICIT message_encoding: DELIMITED };",
        "option features = { message_encoding /* : } */ : DELIMITED, [pb.go] { api_level: 1 }; field_presence: 2 };",
        "option features = { enum_type: CLOSED, field_presence: IMPLICIT; message_encoding: 2 };",
        "option features = { field_presence: IMPLICIT }; option features.message_encoding = DELIMITED;",
    ],
)
@pytest.mark.parametrize("place", ["{option} {messages}", "{messages} {option}"], ids=["before", "behind"])
def test_features_of_a_file_apply_to_all_of_it(option: str, place: str) -> None:
    """In each form, before and behind the messages; what is closer to a field has precedence."""
    messages = """
        message M {
          int32 a = 1; N n = 2; map<string, N> m = 3; repeated N r = 4; E e = 5;
          int32 b = 6 [features = { field_presence: EXPLICIT }];
          N length = 7 [deprecated = true, features = { message_encoding: LENGTH_PREFIXED }];
          oneof one { option features = { }; string s = 8; N o = 9; }
          int32 needed = 10 [features = { field_presence: LEGACY_REQUIRED }];
        }
        message N { int32 x = 1; }
        enum E { option features = { enum_type: CLOSED }; ZERO = 0 [features = { }]; }
    """
    file = parse_protobuf('edition = "2023"; ' + place.format(option=option, messages=messages))
    assert [(f.name, f.kind, f.presence) for f in file.messages[0].fields if not f.repeated] == [
        ("a", "int32", "implicit"),
        ("n", "group", "explicit"),
        ("e", "enum", "implicit"),
        ("b", "int32", "explicit"),
        ("length", "message", "explicit"),
        ("s", "string", "explicit"),
        ("o", "group", "explicit"),
        ("needed", "int32", "required"),
    ]
    assert [(f.name, f.kind, f.is_map) for f in file.messages[0].fields if f.repeated] == [
        ("m", "message", True),
        ("r", "group", False),
    ]
    assert [f.presence for f in file.messages[1].fields] == ["implicit"]


def test_features_of_a_message_apply_to_what_is_inside_it_wherever_they_stand() -> None:
    """Not to other messages; those of a oneof apply to its members."""
    text = """
        edition = "2023";
        message M {
          int32 a = 1; message Inner { int32 b = 1; }
          oneof one { N n = 2; option features.message_encoding = DELIMITED; }
          option features = { field_presence: IMPLICIT };
        }
        message N { int32 c = 1; }
    """
    found = parse_protobuf(text)
    assert [(f.kind, f.presence) for f in found.messages[0].fields] == [("int32", "implicit"), ("group", "explicit")]
    assert [m.fields[0].presence for m in (found.messages[0].messages[0], found.messages[1])] == [
        "implicit",
        "explicit",
    ]


@pytest.mark.parametrize(
    ("declared", "value"),
    [
        ("double a = 1 [default = 0x10]", 16.0),
        ("double a = 1 [default = -0X1f]", -31.0),
        ("double a = 1 [default = 010]", 8.0),
        ("float a = 1 [default = -017]", -15.0),
        ("float a = 1 [default = 00]", 0.0),
        ("float a = 1 [default = 0.5]", 0.5),
        ("double a = 1 [default = 0e1]", 0.0),
        ("double a = 1 [default = 1e400]", float("inf")),
        ("double a = 1 [default = 18446744073709551616]", 2.0**64),
        ("int32 a = 1 [default = -010]", -8),
        ("int64 a = 1 [default = - 0x7F]", -127),
        (r"string a = 1 [default = 'a' '\ud83d\ude00' '\u00e4']", "a😀ä"),
        (r"bytes a = 1 [default = '\uD83D\uDE00\ud83dx']", "😀".encode() + b"\xed\xa0\xbdx"),
    ],
)
def test_a_default_has_the_value_that_protoc_reads(declared: str, value: object) -> None:
    """Numbers of other bases for every type, and two escapes of one character; the values are those of protoc 35.1."""
    (part,) = parse_protobuf(f"message M {{ optional {declared}; }}").messages[0].fields
    assert (part.default, type(part.default)) == (value, type(value))


def test_a_group_among_extensions_counts_as_a_message() -> None:
    """As in the descriptor: records name their message by its place in the file. Other extensions are left out."""
    text = """
        syntax = "pro" "to2";
        extend B { optional group A = 100 { optional int32 x = 1; } optional string more = 101; }
        message B { extensions 100 to 199; optional A a = 1; extend B { repeated group C = 102 { } } optional C c = 2; }
    """
    file = parse_protobuf(text)
    assert [m.full_name for m in file.messages] == ["A", "B"]
    assert [(f.name, f.message and f.message.full_name) for f in file.messages[1].fields] == [("a", "A"), ("c", "B.C")]


def test_export_and_local_are_names_where_they_stand_for_no_visibility() -> None:
    """In front of message and enum they belong to edition 2024; elsewhere a type may be called so."""
    text = """
        edition = "2024";
        export message M { message export { message X { int32 x = 1; } } export a = 1; export.X b = 2;
          local enum E { A = 0; } }
        local message N { }
    """
    found = parse_protobuf(text).messages
    assert [m.full_name for m in found] == ["M", "N"]
    assert [f.message and f.message.full_name for f in found[0].fields] == ["M.export", "M.export.X"]


def test_messages_are_counted_without_entries_of_maps() -> None:
    """As serializers count them."""
    text = "message A {} message B { map<string, int32> m = 1; message C {} message D { message E {} } }"
    file = parse_protobuf(text)
    found = [message_at(file, indexes) for indexes in ([0], [1], [1, 0], [1, 1, 0], [2], [1, 2], [0, 0], [-1], [])]
    assert [m and m.full_name for m in found] == ["A", "B", "B.C", "B.D.E", None, None, None, None, None]
