"""Protobuf schemas and values for tests, and what becomes of them: by Google's own library."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any, Final, Literal

from google.protobuf import (
    any_pb2,
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    message_factory,
    timestamp_pb2,
    unknown_fields,
    wrappers_pb2,
)
from google.protobuf.message import DecodeError

from airflow_provider_kafka_s3.schemas.proto_file import ProtoMessage
from airflow_provider_kafka_s3.schemas.protobuf import WRAPPERS
from tests.avro_values import column_values

__all__ = [
    "Bad",
    "Undecided",
    "classes",
    "expected",
    "mutated",
    "random_file",
    "random_message",
    "row_values",
    "split",
    "text_of",
]

Syntax = Literal["proto2", "proto3", "editions"]

_F: Any = descriptor_pb2.FieldDescriptorProto
_TYPES: Final = {
    _F.Type.Name(number).removeprefix("TYPE_").lower(): number
    for number in _F.Type.values()
    if number not in (_F.TYPE_ENUM, _F.TYPE_GROUP, _F.TYPE_MESSAGE)
}
_MAP_KEYS: Final = [name for name in _TYPES if name not in ("float", "double", "bytes")]
_WELL_KNOWN: Final = {
    f".google.protobuf.{name}": file
    for file, names in (
        ("timestamp", ["Timestamp"]),
        ("duration", ["Duration"]),
        ("wrappers", [name.removeprefix("google.protobuf.") for name in sorted(WRAPPERS)]),
    )
    for name in names
}
_NUMBERS: Final = {
    "int32": [0, 1, -1, 2**31 - 1, -(2**31), 300],
    "uint32": [0, 1, 2**32 - 1, 2**31],
    "int64": [0, 1, -1, 2**63 - 1, -(2**63), 2**35],
    "uint64": [0, 1, 2**63 - 1, 2**63, 2**64 - 1],
}
_TEXTS: Final = ["", "a", "ä€😀", "x" * 200, "\0", "plain"]
_HOSTILE: Final = [
    *(b"\xff" * 9 + b"\x01", b"\xff" * 10, b"\x80\x00", b"\x80" * 9 + b"\x00", b"\x80\x80\x80\x80\x10"),
    *(
        b"\xf8\xff\xff\xff\x0f",
        b"\x0a\xff\xff\xff\xff\x07",
        b"\x0a\xff\xff\xff\xff\x0f",
        b"\x0a" + b"\xff" * 9 + b"\x01",
    ),
    *(b"\x00", b"\x08", b"\x09", b"\x0a", b"\x0a\x00", b"\x0b", b"\x0c", b"\x0d", b"\x0f", b"\x12", b"\x13\x14"),
    *(b"\xc3\x28", b"\xed\xa0\x80", b"\x0a\x02\xc3", b"\x0b" * 120, b"\x0b" * 5 + b"\x0c" * 5),
]


class Bad(Exception):
    """The value is invalid."""


class Undecided(Exception):
    """Google's library keeps the value as an unknown field, and so does not show it."""


def random_file(rng: random.Random, syntax: Syntax) -> Any:
    """A file whose first message refers to some of the others; no message contains itself."""
    file = descriptor_pb2.FileDescriptorProto(name="t.proto", package=rng.choice(["", "p", "p.q"]), syntax=syntax)
    scope = f".{file.package}" if file.package else ""
    enums = [f"{scope}.E"]
    _fill_enum(rng, file.enum_type.add(name="E"), "E", syntax)
    messages: list[str] = []
    for number in reversed(range(rng.randint(1, 3))):
        _fill_type(rng, file.message_type.add(), f"M{number}", scope, messages, enums, syntax, 0)
    if syntax == "editions":
        _add_features(rng, file)
    used = {_WELL_KNOWN[part.type_name] for part in _parts(file) if part.type_name in _WELL_KNOWN}
    file.dependency.extend(f"google/protobuf/{name}.proto" for name in sorted(used))
    return file


def _add_features(rng: random.Random, file: Any) -> None:
    """An edition with features in all places where ``protoc`` takes those that change bytes or values."""
    features = descriptor_pb2.FeatureSet
    file.edition = rng.choice([descriptor_pb2.EDITION_2023, descriptor_pb2.EDITION_2024])
    of_file = file.options.features
    if file.edition == descriptor_pb2.EDITION_2024:
        of_file.enforce_naming_style = features.STYLE_LEGACY
    if rng.random() < 0.6:
        of_file.field_presence = rng.choice([features.EXPLICIT, features.IMPLICIT])
    if rng.random() < 0.5:
        of_file.message_encoding = rng.choice([features.DELIMITED, features.LENGTH_PREFIXED])
    for message in _messages(file):
        if rng.random() < 0.3:
            message.options.features.json_format = features.ALLOW
        for part in () if message.options.map_entry else message.field:
            of_field = part.options.features
            is_message = part.type == _F.TYPE_MESSAGE
            is_map = is_message and f".{part.type_name}".endswith("Entry")
            if is_message and not is_map and rng.random() < 0.4:
                of_field.message_encoding = rng.choice([features.DELIMITED, features.LENGTH_PREFIXED])
            if part.label != _F.LABEL_OPTIONAL or part.HasField("oneof_index"):
                continue
            if rng.random() < 0.4:
                choices = [features.EXPLICIT, features.LEGACY_REQUIRED, *[features.IMPLICIT] * (not is_message)]
                of_field.field_presence = rng.choice(choices)
            presence = of_field.field_presence or of_file.field_presence
            if not is_message and presence != features.IMPLICIT and rng.random() < 0.3:
                _fill_default(rng, part)


def _messages(parent: Any) -> Iterator[Any]:
    for message in parent.message_type if hasattr(parent, "message_type") else parent.nested_type:
        yield message
        yield from _messages(message)


def split(file: Any) -> tuple[Any, Any]:
    """A file as two: its last message, and what that refers to, in a file that the first one imports."""
    main, other = descriptor_pb2.FileDescriptorProto(), descriptor_pb2.FileDescriptorProto()
    main.CopyFrom(file)
    other.CopyFrom(file)
    other.name = "other.proto"
    del main.message_type[:-1], main.enum_type[:], other.message_type[-1:]
    main.dependency.append(other.name)
    return main, other


def _parts(parent: Any) -> Iterator[Any]:
    for message in parent.message_type if hasattr(parent, "message_type") else parent.nested_type:
        yield from message.field
        yield from _parts(message)


def _fill_enum(rng: random.Random, enum: Any, prefix: str, syntax: Syntax) -> None:
    first = 0 if syntax != "proto2" else rng.choice([0, 1, -5])
    numbers = [first, *rng.sample([2, 3, 70_000, -1, 2**31 - 1, -(2**31)], rng.randint(0, 3))]
    for index, number in enumerate(numbers):
        enum.value.add(name=f"{prefix}_{index}", number=number)
    if rng.random() < 0.3:
        enum.options.allow_alias = True
        enum.value.add(name=f"{prefix}_ALIAS", number=numbers[-1])


def _fill_type(
    rng: random.Random,
    message: Any,
    name: str,
    scope: str,
    known: list[str],
    enums: list[str],
    syntax: Syntax,
    depth: int,
) -> None:
    message.name = name
    full = f"{scope}.{name}"
    usable, some_enums = list(known), list(enums)
    if rng.random() < 0.4:
        _fill_enum(rng, message.enum_type.add(name="Inner"), f"{name}_I".upper(), syntax)
        some_enums.append(f"{full}.Inner")
    for index in range(rng.randint(0, 2 if depth < 2 else 0)):
        inner: list[str] = []
        _fill_type(rng, message.nested_type.add(), f"N{index}", full, usable, some_enums, syntax, depth + 1)
        inner.append(f"{full}.N{index}")
        usable += inner
    oneofs = rng.randint(0, 2)
    for index in range(oneofs):
        message.oneof_decl.add(name=f"one{index}")
    numbers = rng.sample([*range(1, 20), 300, 5000, 2**29 - 1], rng.randint(0, 9))
    filled: set[int] = set()
    for index, number in enumerate(numbers):
        part = message.field.add(name=f"f_{index}", number=number)
        _fill_field(rng, message, part, full, usable, some_enums, syntax, depth)
        if oneofs and part.label == _F.LABEL_OPTIONAL and part.type != _F.TYPE_GROUP and rng.random() < 0.5:
            part.oneof_index = rng.randrange(oneofs)
            part.ClearField("default_value")
            filled.add(part.oneof_index)
        elif syntax == "proto3" and part.label == _F.LABEL_OPTIONAL and rng.random() < 0.3:
            part.proto3_optional = True
    for index in range(oneofs):  # one without members is not allowed
        if index not in filled:
            message.field.add(
                name=f"o_{index}", number=100 + index, type=_F.TYPE_INT32, label=_F.LABEL_OPTIONAL, oneof_index=index
            )
    for part in message.field:
        if part.proto3_optional:  # in a oneof of its own, behind all others
            part.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{part.name}")
    if depth == 0:
        known.append(full)


def _fill_field(
    rng: random.Random,
    message: Any,
    part: Any,
    full: str,
    known: list[str],
    enums: list[str],
    syntax: Syntax,
    depth: int,
) -> None:
    labels = [_F.LABEL_OPTIONAL] * 3 + [_F.LABEL_REPEATED] * 2 + [_F.LABEL_REQUIRED] * (syntax == "proto2")
    part.label = rng.choice(labels)
    choice = rng.random()
    if choice < 0.15:
        entry = message.nested_type.add(name=f"{part.name.title().replace('_', '')}Entry")
        entry.options.map_entry = True
        part.label, part.type, part.type_name = _F.LABEL_REPEATED, _F.TYPE_MESSAGE, f"{full}.{entry.name}"
        entry.field.add(name="key", number=1, label=_F.LABEL_OPTIONAL, type=_TYPES[rng.choice(["string", *_MAP_KEYS])])
        value = entry.field.add(name="value", number=2, label=_F.LABEL_OPTIONAL)
        _fill_kind(rng, value, known, [] if syntax == "proto2" else enums)
    elif choice < 0.22 and syntax == "proto2" and depth < 2:
        group = message.nested_type.add()
        name = f"G{part.number}"
        _fill_type(rng, group, name, full, [], enums, syntax, 2)
        part.name, part.type, part.type_name = name.lower(), _F.TYPE_GROUP, f"{full}.{name}"
    else:
        _fill_kind(rng, part, known, enums)
        if part.label == _F.LABEL_REPEATED and part.type not in (_F.TYPE_STRING, _F.TYPE_BYTES, _F.TYPE_MESSAGE):
            if syntax == "editions":
                features = part.options.features
                features.repeated_field_encoding = rng.choice([features.PACKED, features.EXPANDED])
            else:
                part.options.packed = rng.random() < 0.5
        elif syntax == "proto2" and part.label == _F.LABEL_OPTIONAL and rng.random() < 0.4:
            _fill_default(rng, part)


def _fill_kind(rng: random.Random, part: Any, known: list[str], enums: list[str]) -> None:
    choice = rng.random()
    if choice < 0.15 and enums:
        part.type, part.type_name = _F.TYPE_ENUM, rng.choice(enums)
    elif choice < 0.35:
        part.type, part.type_name = _F.TYPE_MESSAGE, rng.choice([*known, *known, *_WELL_KNOWN])
    else:
        part.type = _TYPES[rng.choice(list(_TYPES))]


def _fill_default(rng: random.Random, part: Any) -> None:
    name = _F.Type.Name(part.type).removeprefix("TYPE_").lower()
    if name == "string":
        part.default_value = rng.choice(['a"b\\', "ä", ""])
    elif name == "bytes":
        part.default_value = r"\000\377a\\\""
    elif name == "bool":
        part.default_value = rng.choice(["true", "false"])
    elif name in ("float", "double"):
        part.default_value = rng.choice(["1.5", "-2", "inf", "-inf", "nan", "1e10"])
    elif name in _TYPES:
        part.default_value = rng.choice(["7", "0"] if "u" in name or name.startswith("fixed") else ["-7", "7"])


# -- values -----------------------------------------------------------------------------------------------------------


def classes(file: Any, *imported: Any) -> Any:
    """The class of each message of a file, by its full name."""
    pool = descriptor_pool.DescriptorPool()
    for module in (timestamp_pb2, duration_pb2, wrappers_pb2, any_pb2):
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    for each in (*imported, file):
        pool.AddSerializedFile(each.SerializeToString())

    def add(parent: Any, found: dict[str, Any]) -> dict[str, Any]:
        for descriptor in parent:
            found[descriptor.full_name] = message_factory.GetMessageClass(descriptor)
            add(descriptor.nested_types, found)
        return found

    return add(pool.FindFileByName(file.name).message_types_by_name.values(), {})


def random_message(rng: random.Random, kind: Any) -> Any:
    """A message with all required fields."""
    message = kind()
    descriptor = kind.DESCRIPTOR
    if descriptor.full_name == "google.protobuf.Timestamp":
        message.seconds = rng.choice([0, -62_135_596_800, 253_402_300_799, 1_700_000_000, -1])
        message.nanos = rng.choice([0, 999_999_999, 123_456_789, 1_000])
        return message
    for part in descriptor.fields:
        if not part.is_required and rng.random() < 0.35:
            continue
        if part.is_repeated:
            for _ in range(rng.choice([0, 1, 2, 5])):
                _add(rng, message, part)
        elif part.message_type is not None:
            getattr(message, part.name).CopyFrom(_message_of(rng, part))
        else:
            setattr(message, part.name, _scalar(rng, part))
    return message


def _message_of(rng: random.Random, part: Any) -> Any:
    return random_message(rng, message_factory.GetMessageClass(part.message_type))


def _add(rng: random.Random, message: Any, part: Any) -> None:
    values = getattr(message, part.name)
    if part.message_type is None:
        values.append(_scalar(rng, part))
    elif not part.message_type.GetOptions().map_entry:
        values.append(_message_of(rng, part))
    else:
        key, value = part.message_type.fields
        if value.message_type is None:
            values[_scalar(rng, key)] = _scalar(rng, value)
        else:
            values[_scalar(rng, key)].CopyFrom(_message_of(rng, value))


def _scalar(rng: random.Random, part: Any) -> Any:
    if part.enum_type is not None:
        return rng.choice(part.enum_type.values).number
    name = _F.Type.Name(part.type).removeprefix("TYPE_").lower()
    match name:
        case "bool":
            return rng.random() < 0.5
        case "float":
            return rng.choice([0.0, -0.0, 1.5, float("inf"), float("nan")])
        case "double":
            return rng.choice([0.0, -0.0, 0.1, float("-inf"), float("nan")])
        case "string":
            return rng.choice(_TEXTS)
        case "bytes":
            return rng.choice([b"", b"\0\xff", b"abc" * 50])
    base = {"fixed": "uint", "sfixed": "int", "sint": "int", "int": "int", "uint": "uint"}[name.rstrip("0123456789")]
    return rng.choice(_NUMBERS[base + name[-2:]])


def mutated(rng: random.Random, row: bytes, others: Sequence[bytes]) -> bytes:
    """A row that was changed, cut, or joined with others, which merges their messages."""
    changed = bytearray(row)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        place, choice = rng.randint(0, len(changed)), rng.random()
        if choice < 0.4:
            some = rng.choice(_HOSTILE) if choice < 0.2 else rng.randbytes(rng.randint(0, 3))
            changed[place : place + rng.randint(0, 3)] = some
        elif choice < 0.5:
            del changed[place:]
        elif choice < 0.7:
            changed[place:place] = rng.choice(others)
        elif choice < 0.85:
            changed += rng.choice(others)
        elif place < len(changed):
            changed[place] ^= 1 << rng.randrange(8)
    return bytes(changed)


def row_values(column: Any, message: ProtoMessage) -> list[Any]:
    """The values of a decoded column, as :func:`expected` returns them."""
    return [_comparable(value, message) for value in column_values(column)]


def _comparable(value: Any, message: ProtoMessage | None) -> Any:
    if isinstance(value, Decimal):
        return int(value)
    if not isinstance(value, dict) or message is None:
        return value
    found = {}
    for part in sorted(message.fields, key=lambda part: part.name):
        inner = value[part.name]
        if part.is_map:
            assert part.message is not None
            key, item = part.message.fields
            pairs = [tuple(pair.values()) if isinstance(pair, dict) else pair for pair in inner]
            found[part.name] = _map([(_comparable(k, key.message), _comparable(v, item.message)) for k, v in pairs])
        elif part.repeated:
            found[part.name] = [_comparable(item, part.message) for item in inner]
        else:
            found[part.name] = _comparable(inner, part.message)
    return found


def _map(pairs: list[Any]) -> Any:
    """The entries of a map in one order, as Google's library keeps none."""
    return {"map": sorted(pairs, key=repr)}


def expected(kind: Any, data: bytes, *, unsigned: str = "long", timestamps: str = "micros") -> Any:
    """The value of a row, with the fields of messages in the order of their names.

    Raises:
        Bad: the row is invalid.
        Undecided: it may be invalid or not.
    """
    try:
        message = kind.FromString(data)
        if not message.IsInitialized():
            raise Bad
        return _value(message, unsigned, timestamps)
    except (DecodeError, UnicodeDecodeError):
        raise Bad from None


def _value(message: Any, unsigned: str, timestamps: str) -> Any:
    name = message.DESCRIPTOR.full_name
    unknown = unknown_fields.UnknownFieldSet(message)
    if _has_number_0(unknown):
        raise Bad
    if name in WRAPPERS:
        return _single(message.value, message.DESCRIPTOR.fields[0], unsigned, timestamps)
    if name == "google.protobuf.Timestamp" and timestamps == "micros":
        if not (-62_135_596_800 <= message.seconds <= 253_402_300_799 and 0 <= message.nanos < 10**9):
            raise Bad
        return message.seconds * 1_000_000 + message.nanos // 1_000
    hidden = {part.number for part in message.DESCRIPTOR.fields if _may_be_unknown(part)}
    if any(found.field_number in hidden for found in unknown):
        raise Undecided
    parts = sorted(message.DESCRIPTOR.fields, key=lambda part: part.name)
    return {part.name: _field(message, part, unsigned, timestamps) for part in parts}


def _has_number_0(unknown: Any) -> bool:
    """Whether there is a field of the number 0, which Google's library lets pass."""
    return any(
        found.field_number == 0
        or (isinstance(found.data, unknown_fields.UnknownFieldSet) and _has_number_0(found.data))
        for found in unknown
    )


def _may_be_unknown(part: Any) -> bool:
    """Whether Google's library keeps some values of a field as unknown: numbers of enums, and entries of maps."""
    return part.enum_type is not None or (part.message_type is not None and part.message_type.GetOptions().map_entry)


def _field(message: Any, part: Any, unsigned: str, timestamps: str) -> Any:
    value = getattr(message, part.name)
    if not part.is_repeated:
        has_default = part.has_default_value and part.containing_oneof is None
        if part.has_presence and not has_default and not message.HasField(part.name):
            return None
        return _single(value, part, unsigned, timestamps)
    if part.message_type is None or not part.message_type.GetOptions().map_entry:
        return [_single(item, part, unsigned, timestamps) for item in value]
    key, item = part.message_type.fields
    return _map(
        [(_single(k, key, unsigned, timestamps), _single(value[k], item, unsigned, timestamps)) for k in list(value)]
    )


def _single(value: Any, part: Any, unsigned: str, timestamps: str) -> Any:
    if part.message_type is not None:
        return _value(value, unsigned, timestamps)
    if part.enum_type is not None:
        found = [symbol.name for symbol in part.enum_type.values if symbol.number == value]
        if not found:
            raise Bad
        return found[0]
    if part.type in (_F.TYPE_UINT64, _F.TYPE_FIXED64) and unsigned == "long" and value >= 2**63:
        raise Bad
    if part.type == _F.TYPE_STRING and isinstance(value, bytes):  # a string of proto2 that is not UTF-8
        raise Bad
    return value


# -- texts ------------------------------------------------------------------------------------------------------------


def text_of(file: Any) -> str:
    """A file as text, as ``protoc`` reads it."""
    lines = [f'syntax = "{file.syntax}";']
    if file.syntax == "editions":
        lines = [f'edition = "{descriptor_pb2.Edition.Name(file.edition).removeprefix("EDITION_")}";']
    lines += [f"package {file.package};" if file.package else "// without a package"]
    lines += [f'import "{name}";' for name in file.dependency]
    definitions: list[str] = []
    for enum in file.enum_type:
        definitions += _enum_text(enum)
    for message in file.message_type:
        definitions += [f"message {message.name} {{", *_body_text(message, file.syntax), "}"]
    return "\n".join([*lines, *_with_options(definitions, file)])


def _with_options(definitions: list[str], parent: Any) -> list[str]:
    """Definitions of a file or message, with its features before or behind them."""
    options = [f"option {text};" for text in _features_texts(parent.options)]
    first, behind = options[: len(definitions) % 2], options[len(definitions) % 2 :]
    return [*first, *definitions, *behind]


def _features_texts(options: Any) -> list[str]:
    """The features of a definition, one by one or as an aggregate of one of the forms that there are."""
    found = [(part.name, part.enum_type.values_by_number[v].name) for part, v in options.features.ListFields()]
    form = random.Random(repr(found)).randrange(4)
    if not found or form == 0:
        return [f"features.{name} = {value}" for name, value in found]
    separator = ["", ", ", "; /* } */ ", "\n  "][form]
    return ["features = { " + separator.join(f"{name}: {value}" for name, value in found) + " }"]


def _enum_text(enum: Any) -> list[str]:
    alias = ["option allow_alias = true;"] if enum.options.allow_alias else []
    return [f"enum {enum.name} {{", *alias, *(f"  {v.name} = {v.number}; // {{" for v in enum.value), "}"]


def _body_text(message: Any, syntax: str) -> list[str]:
    entries = {inner.name: inner for inner in message.nested_type if inner.options.map_entry}
    groups = {part.type_name.rpartition(".")[2] for part in message.field if part.type == _F.TYPE_GROUP}
    lines = []
    for enum in message.enum_type:
        lines += _enum_text(enum)
    for inner in message.nested_type:
        if inner.name not in entries and inner.name not in groups:
            lines += [f"message {inner.name} {{", *_body_text(inner, syntax), "}"]
    oneofs: dict[int, list[str]] = {}
    for part in message.field:
        text = _field_text(message, part, entries, syntax)
        if part.HasField("oneof_index") and not part.proto3_optional:
            oneofs.setdefault(part.oneof_index, []).extend(text)
        else:
            lines += text
    for index, parts in oneofs.items():
        lines += [f"oneof {message.oneof_decl[index].name} {{", *parts, "}"]
    return _with_options(lines, message)


def _field_text(message: Any, part: Any, entries: Any, syntax: str) -> list[str]:
    name = part.type_name.rpartition(".")[2]
    if name in entries and part.type == _F.TYPE_MESSAGE:
        key, value = (_type_text(inner) for inner in entries[name].field)
        return [f"map<{key}, {value}> {part.name} = {part.number};"]
    label = {_F.LABEL_OPTIONAL: "optional ", _F.LABEL_REPEATED: "repeated ", _F.LABEL_REQUIRED: "required "}[part.label]
    if label == "optional " and (syntax != "proto2" or part.HasField("oneof_index")) and not part.proto3_optional:
        label = ""
    if part.type == _F.TYPE_GROUP:
        (group,) = (inner for inner in message.nested_type if inner.name == name)
        return [f"{label}group {name} = {part.number} {{", *_body_text(group, syntax), "}"]
    options = []
    if part.HasField("default_value"):
        quoted = part.default_value
        if part.type == _F.TYPE_STRING:
            quoted = '"' + quoted.replace("\\", "\\\\").replace('"', '\\"') + '"'
        elif part.type == _F.TYPE_BYTES:
            quoted = f'"{quoted}"'
        options.append(f"default = {quoted}")
    if part.options.HasField("packed"):
        options.append(f"packed = {str(part.options.packed).lower()}")
    options += _features_texts(part.options)
    end = f" [{', '.join(options)}];" if options else ";"
    return [f"{label}{_type_text(part)} {part.name} = /* { {part.number} } */ {part.number}{end}"]


def _type_text(part: Any) -> str:
    return str(part.type_name) or _F.Type.Name(part.type).removeprefix("TYPE_").lower()
