"""Avro schemas: parsed into nodes, and as types of Arrow.

The specification is that of Avro 1.12. A schema that it does not allow is refused; what it says to ignore (an unknown
logical type, attributes without a meaning) is ignored.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias, cast

import pyarrow as pa

from airflow_provider_kafka_s3.exceptions import ConfigurationError

__all__ = [
    "ArrayOf",
    "Decimal",
    "Enum",
    "Field",
    "Fixed",
    "MapOf",
    "Node",
    "Primitive",
    "Record",
    "Union",
    "arrow_type",
    "branch_names",
    "is_recursive",
    "nullable_branch",
    "parse_schema",
]

PRIMITIVES: Final = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NO_DEFAULT: Final = object()
_LARGEST_128: Final = 38


@dataclass(frozen=True)
class Decimal:
    """The logical type ``decimal`` of bytes or a fixed."""

    precision: int
    scale: int


Logical: TypeAlias = "Decimal | str | None"


@dataclass(frozen=True)
class Primitive:
    """A primitive type; ``logical`` is the name of its logical type, a decimal, or None."""

    name: str
    logical: Logical = None


@dataclass(frozen=True)
class Fixed:
    """A fixed number of bytes."""

    name: str
    size: int
    logical: Logical = None


@dataclass(frozen=True)
class Enum:
    """One of several symbols."""

    name: str
    symbols: tuple[str, ...]
    default: str | None = None


@dataclass(frozen=True)
class ArrayOf:
    """A list of items."""

    items: Node


@dataclass(frozen=True)
class MapOf:
    """A map from strings to values."""

    values: Node


@dataclass(frozen=True)
class Union:
    """One of several types."""

    branches: tuple[Node, ...]


@dataclass(frozen=True)
class Field:
    """A field of a record.

    Attributes:
        name: of the field.
        type: of its values.
        default: the default as JSON; see ``has_default``.
        has_default: whether there is one; None may be a default.
        number: id of the column in Parquet, from the attribute ``field-id``; None: not given.
    """

    name: str
    type: Node
    default: Any = None
    has_default: bool = False
    number: int | None = None


@dataclass(frozen=True, eq=False)
class Record:
    """A record. Records are compared by identity, since a recursive one contains itself.

    Attributes:
        name: full name, with its namespace.
        fields: in their order.
    """

    name: str
    fields: tuple[Field, ...] = field(default=(), repr=False)


Node: TypeAlias = "Primitive | Fixed | Enum | ArrayOf | MapOf | Union | Record"


def parse_schema(text: str, references: Sequence[str] = ()) -> Node:
    """Parse a schema.

    Args:
        text: the schema as JSON. The name of a primitive may stand without quotes, as registries return it.
        references: schemas whose named types the schema uses, in an order in which each follows those that it uses.

    Raises:
        ConfigurationError: a text is no Avro schema.
    """
    parser = _Parser()
    for reference in references:
        parser.parse(_loaded(reference), "")
    return parser.parse(_loaded(text), "")


def nullable_branch(node: Union) -> Node | None:
    """X of a union of null and X; None for any other union."""
    others = [branch for branch in node.branches if branch != Primitive("null")]
    return others[0] if len(others) == 1 and len(node.branches) == 2 else None


def branch_names(node: Union) -> list[str]:
    """Names of the branches that are not null, in their order, as they name the fields of a struct."""
    return [_branch_name(branch) for branch in node.branches if branch != Primitive("null")]


def is_recursive(node: Node) -> bool:
    """Whether a record contains itself."""

    def inside(current: Node, above: tuple[Record, ...]) -> bool:
        match current:
            case ArrayOf(items=item):
                return inside(item, above)
            case MapOf(values=value):
                return inside(value, above)
            case Union(branches=branches):
                return any(inside(branch, above) for branch in branches)
            case Record():
                return current in above or any(inside(f.type, (*above, current)) for f in current.fields)
        return False

    return inside(node, ())


def arrow_type(node: Node) -> pa.DataType:
    """The Arrow type of a schema.

    A union of null and one type is that type. Any other union is a struct with one field per branch that is not null;
    one of them is set.

    Raises:
        ConfigurationError: the schema is recursive: columns have no such type.
    """
    if is_recursive(node):
        raise ConfigurationError("the schema is recursive: a record contains itself, which no column type can express")
    return _arrow(node)


def arrow_field(name: str, node: Node, number: int | None = None) -> pa.Field[Any]:
    """The Arrow field of a value that has a schema; ``number`` is its id in Parquet."""
    nullable = node == Primitive("null") or (isinstance(node, Union) and Primitive("null") in node.branches)
    metadata = None if number is None else {"PARQUET:field_id": str(number)}
    return pa.field(name, _arrow(node), nullable=nullable, metadata=metadata)


_ARROW: Final[Mapping[str, pa.DataType]] = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_ARROW_LOGICAL: Final[Mapping[tuple[str, str], pa.DataType]] = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time32("ms"),
    ("long", "time-micros"): pa.time64("us"),
    ("long", "timestamp-millis"): pa.timestamp("ms", "UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", "UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
}


def _arrow(node: Node) -> pa.DataType:
    match node:
        case Primitive(logical=Decimal() as decimal) | Fixed(logical=Decimal() as decimal):
            make = pa.decimal128 if decimal.precision <= _LARGEST_128 else pa.decimal256
            return make(decimal.precision, decimal.scale)
        case Primitive(name=name, logical=logical):
            return _ARROW_LOGICAL.get((name, str(logical)), _ARROW[name])
        case Fixed(size=size):
            return pa.binary(size)
        case Enum():
            return pa.string()
        case ArrayOf(items=items):
            return pa.list_(arrow_field("element", items))
        case MapOf(values=values):
            return pa.map_(pa.string(), cast("Any", arrow_field("value", values)))
        case Record(fields=fields):
            return pa.struct([arrow_field(f.name, f.type, f.number) for f in fields])
        case Union():
            branch = nullable_branch(node)
            if branch is not None:
                return _arrow(branch)
            return pa.struct(
                [pa.field(name, _arrow(b)) for name, b in zip(branch_names(node), _without_null(node), strict=True)]
            )


def _without_null(node: Union) -> list[Node]:
    return [branch for branch in node.branches if branch != Primitive("null")]


def _branch_name(node: Node) -> str:
    match node:
        case Primitive(name=name):
            return name
        case ArrayOf():
            return "array"
        case MapOf():
            return "map"
        case Fixed(name=name) | Enum(name=name) | Record(name=name):
            return name.rpartition(".")[2]
        case Union():
            raise ConfigurationError("a union directly inside a union is no Avro schema")


def _loaded(text: str) -> Any:
    if text.strip() in PRIMITIVES:
        return text.strip()
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as e:
        raise ConfigurationError(f"the Avro schema is not JSON: {e}") from None


class _Parser:
    """Parses schemas that share their named types."""

    def __init__(self) -> None:
        self._named: dict[str, Node] = {}

    def parse(self, schema: Any, namespace: str) -> Node:
        try:
            return self._parse(schema, namespace)
        except RecursionError:
            raise ConfigurationError("the Avro schema is nested too deeply") from None

    def _parse(self, schema: Any, namespace: str) -> Node:
        if isinstance(schema, str):
            return self._by_name(schema, namespace)
        if isinstance(schema, list):
            return self._union(schema, namespace)
        if not isinstance(schema, dict) or "type" not in schema:
            raise ConfigurationError(f"{str(schema)[:100]!r} is no Avro schema: it has no type")
        kind = schema["type"]
        if isinstance(kind, dict | list):
            return self._parse(kind, namespace)
        match kind:
            case "record" | "error":
                return self._record(schema, namespace)
            case "enum":
                return self._enum(schema, namespace)
            case "fixed":
                return self._fixed(schema, namespace)
            case "array":
                return ArrayOf(self._parse(_part(schema, "items"), namespace))
            case "map":
                return MapOf(self._parse(_part(schema, "values"), namespace))
        if kind in PRIMITIVES:
            return Primitive(str(kind), _logical(schema, str(kind)))
        return self._by_name(kind, namespace)

    def _by_name(self, name: Any, namespace: str) -> Node:
        if name in PRIMITIVES:
            return Primitive(name)
        full = name if "." in str(name) or not namespace else f"{namespace}.{name}"
        found = self._named.get(full, self._named.get(name))
        if found is None:
            raise ConfigurationError(f"the Avro schema uses the type {str(name)[:100]!r}, which nothing defines")
        return found

    def _union(self, schema: list[Any], namespace: str) -> Union:
        branches = tuple(self._parse(branch, namespace) for branch in schema)
        names = [_branch_name(b) if not isinstance(b, Fixed | Enum | Record) else b.name for b in branches]
        if not branches or len(set(names)) != len(names):
            raise ConfigurationError(f"a union of the Avro schema has no branch, or one of them twice: {names[:10]}")
        return Union(branches)

    def _record(self, schema: Mapping[str, Any], namespace: str) -> Record:
        name, inner = self._name(schema, namespace)
        record = Record(name)
        self._named[name] = record
        fields: list[Field] = []
        for given in _part(schema, "fields", list):
            if not isinstance(given, dict):
                raise ConfigurationError(f"record {name!r} of the Avro schema has a field that is no mapping")
            default = given.get("default", _NO_DEFAULT)
            number = given.get("field-id")
            fields.append(
                Field(
                    _simple_name(given.get("name"), f"a field of {name!r}"),
                    self._parse(_part(given, "type", object), inner),
                    default=None if default is _NO_DEFAULT else default,
                    has_default=default is not _NO_DEFAULT,
                    number=number if isinstance(number, int) else None,
                )
            )
        if len({f.name for f in fields}) != len(fields):
            raise ConfigurationError(f"record {name!r} of the Avro schema has a field twice")
        object.__setattr__(record, "fields", tuple(fields))
        return record

    def _enum(self, schema: Mapping[str, Any], namespace: str) -> Enum:
        name, _ = self._name(schema, namespace)
        symbols = _part(schema, "symbols", list)
        if not symbols or not all(isinstance(s, str) for s in symbols) or len(set(symbols)) != len(symbols):
            raise ConfigurationError(f"enum {name!r} of the Avro schema has no symbols, or one of them twice")
        node = Enum(name, tuple(symbols), schema.get("default"))
        self._named[name] = node
        return node

    def _fixed(self, schema: Mapping[str, Any], namespace: str) -> Fixed:
        name, _ = self._name(schema, namespace)
        size = schema.get("size")
        if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size < 2**31:
            raise ConfigurationError(f"fixed {name!r} of the Avro schema has the size {size!r}")
        node = Fixed(name, size, _logical(schema, "fixed", size))
        self._named[name] = node
        return node

    def _name(self, schema: Mapping[str, Any], namespace: str) -> tuple[str, str]:
        """Full name and namespace of a named type."""
        name, own = schema.get("name"), schema.get("namespace")
        if isinstance(name, str) and "." in name:
            own, _, name = name.rpartition(".")
        simple = _simple_name(name, "a named type")
        inner = namespace if own is None else str(own)
        full = f"{inner}.{simple}" if inner else simple
        if full in self._named or full in PRIMITIVES:
            raise ConfigurationError(f"the Avro schema defines the type {full!r} twice")
        return full, inner


def _simple_name(name: object, what: str) -> str:
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise ConfigurationError(
            f"{what} of the Avro schema has the name {str(name)[:100]!r}, which Avro does not allow"
        )
    return name


def _part(schema: Mapping[str, Any], name: str, kind: type = object) -> Any:
    if name not in schema or not isinstance(schema[name], kind):
        raise ConfigurationError(f"the Avro schema of type {schema.get('type')!r} has no {name!r}")
    return schema[name]


_LOGICAL: Final = frozenset(
    [*_ARROW_LOGICAL, ("string", "uuid"), ("fixed", "duration")]  # decimals have parameters
)


def _logical(schema: Mapping[str, Any], kind: str, size: int = 0) -> Logical:
    """The logical type; None if it is not known or does not fit its type, as the specification says."""
    logical = schema.get("logicalType")
    if logical == "decimal" and kind in ("bytes", "fixed"):
        precision, scale = schema.get("precision"), schema.get("scale", 0)
        numbers = isinstance(precision, int) and isinstance(scale, int)
        most = 76 if kind == "bytes" else len(str(2 ** max(8 * size - 1, 0) - 1)) - 1
        if numbers and 0 < cast("int", precision) <= min(most, 76) and 0 <= scale <= cast("int", precision):
            return Decimal(cast("int", precision), scale)
        return None
    if logical == "duration" and size != 12:
        return None
    return str(logical) if (kind, logical) in _LOGICAL else None
