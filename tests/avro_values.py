"""Generated Avro schemas and values, and a plain encoder and decoder of them, one byte after the other.

A value of a test is raw: int for dates, times and decimals, a list of pairs for a map, and ``(index, value)`` for a
union. :func:`column_value` maps it to what :func:`column_values` returns for an Arrow array.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from decimal import Decimal as Number
from itertools import pairwise
from typing import Any, Final

import pyarrow as pa
from hypothesis import strategies as st

from airflow_provider_kafka_s3.schemas.nodes import (
    ArrayOf,
    Decimal,
    Enum,
    Fixed,
    MapOf,
    Node,
    Primitive,
    Record,
    Union,
    branch_names,
    only_branch,
)

LONG: Final = st.integers(-(2**63), 2**63 - 1) | st.integers(-300, 300)
INT: Final = st.integers(-(2**31), 2**31 - 1) | st.integers(-300, 300)
_DAY: Final = {"time-millis": 86_400_000, "time-micros": 86_400_000_000}
_LOGICAL: Final = [
    ("int", "date"),
    ("int", "time-millis"),
    ("long", "time-micros"),
    ("long", "timestamp-millis"),
    ("long", "timestamp-micros"),
    ("long", "local-timestamp-millis"),
    ("long", "local-timestamp-micros"),
    ("string", "uuid"),
]
_PRIMITIVES: Final = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")


@st.composite
def schemas(draw: st.DrawFn, depth: int = 3, *, records: bool = False) -> Any:
    """Schemas as JSON values; with ``records``, a record at the top."""
    names: list[str] = []

    def named(**more: Any) -> dict[str, Any]:
        name = f"N{len(names)}"
        names.append(name)
        return {"name": name, **more}

    def primitive() -> Any:
        return draw(st.sampled_from(_PRIMITIVES))

    def logical() -> Any:
        kind, name = draw(st.sampled_from(_LOGICAL))
        return {"type": kind, "logicalType": name}

    def decimal() -> Any:
        precision = draw(st.integers(1, 76))
        scale = draw(st.integers(0, precision))
        return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}

    def fixed() -> Any:
        return named(type="fixed", size=draw(st.integers(0, 20)))

    def fixed_decimal() -> Any:
        size = draw(st.integers(1, 32))
        precision = draw(st.integers(1, min(76, len(str(2 ** (8 * size - 1) - 1)) - 1)))
        return named(type="fixed", size=size, logicalType="decimal", precision=precision, scale=min(2, precision))

    def enum() -> Any:
        return named(type="enum", symbols=[f"S{n}" for n in range(draw(st.integers(1, 200)))])

    def record(left: int) -> Any:
        schema = named(type="record", fields=[])
        count = draw(st.integers(0, 4))
        schema["fields"] = [{"name": f"f{n}", "type": any_type(left - 1)} for n in range(count)]
        return schema

    def union(left: int) -> Any:
        if draw(st.booleans()):
            branch = any_type(left - 1, union=False)
            return ["null", branch] if branch != "null" else ["null"]
        kinds = draw(st.lists(st.sampled_from([*_PRIMITIVES, "array", "map", "fixed", "enum", "record"]), unique=True))
        made = {"array": array, "map": mapping, "record": record}
        plain = {"fixed": fixed, "enum": enum}
        branches = [made[k](left - 1) if k in made else plain[k]() if k in plain else k for k in kinds]
        return branches or ["null"]

    def array(left: int) -> Any:
        return {"type": "array", "items": any_type(left - 1)}

    def mapping(left: int) -> Any:
        return {"type": "map", "values": any_type(left - 1)}

    def any_type(left: int, *, union: bool = True) -> Any:
        simple = [primitive, primitive, logical, decimal, fixed, fixed_decimal, enum]
        if left <= 0:
            return draw(st.sampled_from(simple))()
        nested = [record, array, mapping, *([make_union] * 2 if union else [])]
        make = draw(st.sampled_from([*simple, *nested]))
        return make() if make in simple else make(left)

    make_union: Callable[[int], Any] = union
    return record(depth) if records else any_type(depth)


def in_unions_of_one(schema: Any, *, is_branch: bool = False) -> Any:
    """A schema with a union of one type in place of each type that is no branch of another union."""
    if isinstance(schema, list):
        return [in_unions_of_one(branch, is_branch=True) for branch in schema]
    if isinstance(schema, dict):
        schema = {k: in_unions_of_one(v) if k in {"items", "values"} else v for k, v in schema.items()}
        if "fields" in schema:
            schema["fields"] = [{**f, "type": in_unions_of_one(f["type"])} for f in schema["fields"]]
    return schema if is_branch else [schema]


def without_logical(schema: Any) -> Any:
    """A schema whose values are raw ones."""
    if isinstance(schema, list):
        return [without_logical(s) for s in schema]
    if not isinstance(schema, dict):
        return schema
    if set(schema) <= {"type", "logicalType", "precision", "scale"}:
        return schema["type"]
    kept = {k: v for k, v in schema.items() if k not in {"logicalType", "precision", "scale"}}
    if "fields" in kept:
        kept["fields"] = [{**f, "type": without_logical(f["type"])} for f in kept["fields"]]
    return {k: without_logical(v) if k in {"items", "values"} else v for k, v in kept.items()}


def values(node: Node) -> st.SearchStrategy[Any]:
    """Values of a schema, as this module has them."""
    match node:
        case Primitive(logical=Decimal(precision=p)) | Fixed(logical=Decimal(precision=p)):
            return st.integers(-(10**p) + 1, 10**p - 1)
        case Primitive(logical=("time-millis" | "time-micros") as logical):
            return st.integers(0, _DAY[logical] - 1)
        case Primitive(name=name):
            return {
                "null": st.none(),
                "boolean": st.booleans(),
                "int": INT,
                "long": LONG,
                "float": st.floats(width=32),
                "double": st.floats(),
                "bytes": st.binary(max_size=40),
                "string": st.text(max_size=20),
            }[name]
        case Fixed(size=size):
            return st.binary(min_size=size, max_size=size)
        case Enum(symbols=symbols):
            return st.sampled_from(symbols)
        case ArrayOf(items=items):
            return st.lists(values(items), max_size=5)
        case MapOf(values=inner):
            pairs = st.tuples(st.text(max_size=5), values(inner))
            return st.lists(pairs, max_size=4, unique_by=lambda pair: pair[0])
        case Union(branches=branches):
            return st.one_of([st.tuples(st.just(i), values(b)) for i, b in enumerate(branches)])
        case Record(fields=fields):
            return st.fixed_dictionaries({f.name: values(f.type) for f in fields})


def varint(value: int) -> bytes:
    """A long as Avro writes it."""
    left = (value << 1) ^ (value >> 63)
    out = bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*out, left])


def encode(node: Node, value: Any, *, blocks: int = 0) -> bytes:
    """The datum of a value.

    Args:
        node: its schema.
        value: as this module has them.
        blocks: items of the blocks of arrays, which begin with their size in bytes; 0: one block without a size.
    """
    match node:
        case Primitive(logical=Decimal()):
            size = (8 + (value + (value < 0)).bit_length()) // 8
            return varint(size) + value.to_bytes(size, signed=True)
        case Fixed(logical=Decimal()):
            return value.to_bytes(node.size, signed=True)
        case Primitive(name="null"):
            return b""
        case Primitive(name="boolean"):
            return bytes([value])
        case Primitive(name="int" | "long"):
            return varint(value)
        case Primitive(name=("float" | "double") as name):
            return struct.pack("<f" if name == "float" else "<d", value)
        case Primitive(name="bytes"):
            return varint(len(value)) + value
        case Primitive():
            return varint(len(value.encode())) + value.encode()
        case Fixed():
            return value
        case Enum(symbols=symbols):
            return varint(symbols.index(value))
        case Union(branches=branches):
            return varint(value[0]) + encode(branches[value[0]], value[1], blocks=blocks)
        case Record(fields=fields):
            return b"".join(encode(f.type, value[f.name], blocks=blocks) for f in fields)
        case ArrayOf(items=items):
            return _encode_items([encode(items, item, blocks=blocks) for item in value], blocks)
        case MapOf(values=inner):
            key = Primitive("string")
            return _encode_items([encode(key, k) + encode(inner, v, blocks=blocks) for k, v in value], blocks)


def _encode_items(items: list[bytes], blocks: int) -> bytes:
    if not blocks:
        return (varint(len(items)) if items else b"") + b"".join(items) + b"\0"
    parts = [items[i : i + blocks] for i in range(0, len(items), blocks)]
    return b"".join(varint(-len(p)) + varint(len(b"".join(p))) + b"".join(p) for p in parts) + b"\0"


class BadDatum(Exception):
    """The bytes are not a datum."""


def decode(node: Node, data: bytes) -> Any:
    """The value of a datum, strictly.

    Raises:
        BadDatum: the bytes are not exactly one datum.
    """
    reader = _Reader(data)
    value = reader.value(node)
    if reader.position != len(data) or reader.empty_items > 1000:
        raise BadDatum
    return value


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0
        self.empty_items = 0

    def take(self, size: int) -> bytes:
        if not 0 <= size <= len(self.data) - self.position:
            raise BadDatum
        self.position += size
        return self.data[self.position - size : self.position]

    def integer(self, low: int = -(2**31), high: int = 2**31) -> int:
        return self.long(low, high, most_bytes=5)

    def long(self, low: int = -(2**63), high: int = 2**63, *, most_bytes: int = 10) -> int:
        value = 0
        for place in range(most_bytes):
            (byte,) = self.take(1)
            value |= (byte & 0x7F) << 7 * place
            if byte < 0x80:
                break
        else:
            raise BadDatum
        if value >= 2**64:
            raise BadDatum
        value = (value >> 1) ^ -(value & 1)
        if not low <= value < high:
            raise BadDatum
        return value

    def decimal(self, data: bytes, precision: int) -> int:
        value = int.from_bytes(data, signed=True)
        if abs(value) >= 10**precision:
            raise BadDatum
        return value

    def text(self) -> str:
        try:
            return self.take(self.long()).decode()
        except UnicodeDecodeError:
            raise BadDatum from None

    def items(self, item: Callable[[], Any]) -> list[Any]:
        found: list[Any] = []
        while (count := self.long()) != 0:
            end = None
            if count < 0:
                count = -count
                end = self.long(0) + self.position
            for _ in range(count):
                before = self.position
                found.append(item())
                self.empty_items += before == self.position
                if self.empty_items > 1000:
                    raise BadDatum
            if end not in (None, self.position):
                raise BadDatum
        return found

    def value(self, node: Node) -> Any:  # noqa: PLR0912 - one case for each type
        match node:
            case Primitive(logical=Decimal(precision=p)):
                return self.decimal(self.take(self.long()), p)
            case Fixed(size=size, logical=Decimal(precision=p)):
                return self.decimal(self.take(size), p)
            case Primitive(logical=("time-millis" | "time-micros") as logical):
                return self.long(0, _DAY[logical], most_bytes=5 if logical == "time-millis" else 10)
            case Primitive(name="null"):
                return None
            case Primitive(name="boolean"):
                return bool(self.long_of_byte())
            case Primitive(name="int"):
                return self.integer()
            case Primitive(name="long"):
                return self.long()
            case Primitive(name="float"):
                return struct.unpack("<f", self.take(4))[0]
            case Primitive(name="double"):
                return struct.unpack("<d", self.take(8))[0]
            case Primitive(name="bytes"):
                return self.take(self.long())
            case Primitive():
                return self.text()
            case Fixed(size=size):
                return self.take(size)
            case Enum(symbols=symbols):
                return symbols[self.integer(0, len(symbols))]
            case ArrayOf(items=items):
                return self.items(lambda: self.value(items))
            case MapOf(values=inner):
                return self.items(lambda: (self.text(), self.value(inner)))
            case Union(branches=branches):
                index = self.integer(0, len(branches))
                return index, self.value(branches[index])
            case Record(fields=fields):
                return {f.name: self.value(f.type) for f in fields}

    def long_of_byte(self) -> int:
        (byte,) = self.take(1)
        if byte > 1:
            raise BadDatum
        return byte


def column_value(node: Node, value: Any) -> Any:
    """A value as :func:`column_values` returns it."""
    match node:
        case Primitive(logical=Decimal(scale=scale)) | Fixed(logical=Decimal(scale=scale)):
            return Number((value < 0, tuple(map(int, str(abs(value)))), -scale))
        case ArrayOf(items=items):
            return [column_value(items, item) for item in value]
        case MapOf(values=inner):
            last = {k: place for place, (k, _) in enumerate(value)}
            return [(k, column_value(inner, v)) for place, (k, v) in enumerate(value) if last[k] == place]
        case Record(fields=fields):
            return {f.name: column_value(f.type, value[f.name]) for f in fields}
        case Union(branches=branches):
            index, inner = value
            if branches[index] == Primitive("null"):
                return None
            if only_branch(node) is not None:
                return column_value(branches[index], inner)
            others = [i for i, b in enumerate(branches) if b != Primitive("null")]
            names = branch_names(node)
            return {
                n: column_value(branches[index], inner) if i == index else None
                for i, n in zip(others, names, strict=True)
            }
    return value


def column_values(array: Any) -> list[Any]:
    """Values of an Arrow array, with dates and times as int: also those that Python cannot represent."""
    kind = array.type
    valid = array.is_valid().to_pylist()
    if pa.types.is_struct(kind):
        children = [column_values(c) for c in array.flatten()]
        names = [kind.field(i).name for i in range(kind.num_fields)]
        found: list[Any] = [dict(zip(names, row, strict=True)) for row in zip(*children, strict=True)]
        found = found if children else [{} for _ in valid]
    elif pa.types.is_list(kind) or pa.types.is_map(kind):
        if pa.types.is_map(kind):
            # Arrow's cast of a map of nulls makes more of them than there are entries.
            items: list[Any] = list(zip(column_values(array.keys), column_values(array.items), strict=False))
        else:
            items = column_values(array.values)
        ends = array.offsets.to_pylist()
        found = [items[a:b] for a, b in pairwise(ends)]
    elif pa.types.is_temporal(kind):
        found = array.view(pa.int32() if kind.bit_width == 32 else pa.int64()).to_pylist()
    else:
        found = array.to_pylist()
    return [value if ok else None for value, ok in zip(found, valid, strict=True)]


def fastavro_value(node: Node, value: Any, *, write: bool) -> Any:
    """A value as fastavro reads it with the schema :func:`without_logical`, or takes it to write it."""
    match node:
        case Primitive(logical=Decimal()):
            return encode(node, value)[1:]
        case Fixed(logical=Decimal()):
            return encode(node, value)
        case ArrayOf(items=items):
            return [fastavro_value(items, item, write=write) for item in value]
        case MapOf(values=inner):
            return {k: fastavro_value(inner, v, write=write) for k, v in value}
        case Record(fields=fields):
            return {f.name: fastavro_value(f.type, value[f.name], write=write) for f in fields}
        case Union(branches=branches):
            branch = branches[value[0]]
            if isinstance(branch, ArrayOf | MapOf):  # They have no names: fastavro looks for a branch that fits.
                return fastavro_value(branch, value[1], write=False)
            inner = fastavro_value(branch, value[1], write=write)
            return (branch.name, inner) if write else inner
    return value


def text(schema: Any) -> str:
    """The schema as a registry returns it."""
    return json.dumps(schema)
