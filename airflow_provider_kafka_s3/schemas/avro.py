"""Avro schemas: parsed into nodes, and as types of Arrow.

The specification is that of Avro 1.12. A schema that it does not allow is refused; what it says to ignore (an unknown
logical type, attributes without a meaning) is ignored.
"""

from __future__ import annotations

import json
import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final, TypeAlias, TypeGuard, cast
from urllib.parse import quote_plus

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
    "arrow_schema",
    "arrow_type",
    "branch_names",
    "is_recursive",
    "node_text",
    "nullable_branch",
    "parse_schema",
    "schema_text",
]

PRIMITIVES: Final = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NO_DEFAULT: Final = object()
_LARGEST_128: Final = 38
_MOST_COLUMNS: Final = 10_000
_DEEPEST: Final = 100
_MOST_DIGITS: Final = 76
_LONGEST_FIXED: Final = 65_536


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
    """A map.

    Attributes:
        values: type of the values.
        keys: type of the keys. Avro has maps with strings only: the text of a schema with other keys has an array of
            records with the fields ``key`` and ``value`` instead, whose datums are the same.
    """

    values: Node
    keys: Primitive = Primitive("string")


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


def schema_text(text: str, references: Sequence[str] = ()) -> str:
    """A schema as one JSON text, with the definitions of the types that it refers to.

    Args:
        text: see :func:`parse_schema`.
        references: see :func:`parse_schema`.

    Raises:
        ConfigurationError: a text is no Avro schema.
    """
    schema = _loaded(text)
    if references:
        inliner = _Inliner()
        for reference in references:
            inliner.define(_loaded(reference))
        schema = inliner.inlined(schema, "")
    return json.dumps(schema, separators=(",", ":"), ensure_ascii=False)


def node_text(node: Node) -> str:
    """The text of a schema that is not recursive.

    A name of a field that Avro does not allow is written as Kafka Connect does with ``scrub.invalid.names``: encoded as
    in a URL, with ``_`` for each character that is not allowed and ``x`` before a wrong first one. A name that the
    record has already gets a number.
    """
    return json.dumps(_SchemaJson(node).of(node), separators=(",", ":"), ensure_ascii=False)


class _SchemaJson:
    """Schemas as JSON; a named type is defined where it is used first."""

    def __init__(self, node: Node) -> None:
        self._names = _type_names(node, {})
        self._defined: dict[tuple[str, str], str] = {}

    def of(self, node: Node, namespace: str = "") -> Any:
        match node:
            case Primitive(name=name, logical=None):
                return name
            case Primitive(name=name, logical=logical):
                return {"type": name, **_logical_json(logical)}
            case ArrayOf(items=items):
                return {"type": "array", "items": self.of(items, namespace)}
            case MapOf(values=values, keys=Primitive("string")):
                return {"type": "map", "values": self.of(values, namespace)}
            case MapOf(values=values, keys=keys):
                name = _unused("MapEntry", self._names)
                self._names.add(name)
                entry = Record(name, (Field("key", keys), Field("value", values)))
                return {"type": "array", "items": self.of(entry, namespace)}
            case Union(branches=branches):
                return [self.of(branch, namespace) for branch in branches]
        place = (node.name, "" if "." in node.name else namespace)
        if place in self._defined:
            return self._defined[place]
        name = self._defined[place] = self._name(node.name, namespace)
        match node:
            case Fixed(size=size, logical=logical):
                return {"type": "fixed", "name": name, "size": size, **_logical_json(logical)}
            case Enum(symbols=symbols, default=default):
                return {"type": "enum", "name": name, "symbols": symbols, **({"default": default} if default else {})}
            case Record(fields=fields):
                inner = name.rpartition(".")[0] or namespace
                names = _allowed_names([f.name for f in fields])
                parts = [self._field(f, allowed, inner) for f, allowed in zip(fields, names, strict=True)]
                return {"type": "record", "name": name, "fields": parts}

    def _name(self, name: str, namespace: str) -> str:
        """The name of a definition.

        In Avro, a name without a namespace has the one around it. So a type without a namespace is defined in each one
        that uses it: by its name alone it could not be found in another one.
        """
        if "." in name or not namespace:
            return name
        # One without the namespace of its type may be that of another type.
        full = _unused(f"{namespace}.{name}", self._names)
        self._names.add(full)
        return full.rpartition(".")[2]

    def _field(self, field: Field, name: str, namespace: str) -> dict[str, Any]:
        default = {"default": field.default} if field.has_default else {}
        return {"name": name, "type": self.of(field.type, namespace), **default}


def _type_names(node: Node, seen: dict[int, Node]) -> set[str]:
    """The names that a schema defines."""
    match node:
        case ArrayOf(items=part) | MapOf(values=part):
            return _type_names(part, seen)
        case Union(branches=branches):
            return set().union(*(_type_names(branch, seen) for branch in branches))
        case Fixed(name=name) | Enum(name=name):
            return {name}
        case Record(name=name, fields=fields) if id(node) not in seen:
            seen[id(node)] = node
            return {name}.union(*(_type_names(f.type, seen) for f in fields))
    return set()


def _unused(name: str, names: Container[str]) -> str:
    """The name, with a number if it is among the names."""
    return next(choice for n in count(1) if (choice := name if n == 1 else f"{name}{n}") not in names)


def _allowed_names(names: Sequence[str]) -> list[str]:
    """The names of a record's fields as Avro allows them."""
    used = {name for name in names if _NAME.fullmatch(name)}
    return [name if name in used else _allowed_name(name, used) for name in names]


def _allowed_name(name: str, used: set[str]) -> str:
    """A name that Avro allows, added to those that are used."""
    encoded = quote_plus(name, safe="*").replace("~", "%7E")
    prefixed = encoded if re.match(r"[A-Za-z_]", encoded) else f"x{encoded}"
    allowed = _unused(re.sub(r"[^A-Za-z0-9_]", "_", prefixed), used)
    used.add(allowed)
    return allowed


def _logical_json(logical: Logical) -> dict[str, Any]:
    if isinstance(logical, Decimal):
        return {"logicalType": "decimal", "precision": logical.precision, "scale": logical.scale}
    return {} if logical is None else {"logicalType": logical}


def nullable_branch(node: Union) -> Node | None:
    """X of a union of null and X; None for any other union."""
    others = [branch for branch in node.branches if branch != Primitive("null")]
    return others[0] if len(others) == 1 and len(node.branches) == 2 else None


def branch_names(node: Union) -> list[str]:
    """Names of the branches that are not null, in their order, as they name the fields of a struct.

    A named type has its name without the namespace, unless another branch has the same one.
    """
    names: list[str] = []
    for branch in _without_null(node):
        choices = [_branch_name(branch), _union_name(branch).replace(".", "_")]
        choices += [f"{choices[1]}_{number}" for number in range(2, len(node.branches) + 2)]
        names.append(next(name for name in choices if name not in names))
    return names


def is_recursive(node: Node) -> bool:
    """Whether a record contains itself."""
    finished: dict[int, bool] = {}

    def inside(current: Node) -> bool:
        match current:
            case ArrayOf(items=item):
                return inside(item)
            case MapOf(values=value):
                return inside(value)
            case Union(branches=branches):
                return any(inside(branch) for branch in branches)
            case Record():
                if id(current) not in finished:
                    finished[id(current)] = True  # while it is looked into
                    finished[id(current)] = any(inside(f.type) for f in current.fields)
                return finished[id(current)]
        return False

    return inside(node)


def arrow_type(node: Node) -> pa.DataType:
    """The Arrow type of a schema.

    A union of null and one type is that type, one of null alone is null. Any other union is a struct with one field per
    branch that is not null; one of them is set.

    Raises:
        ConfigurationError: the schema is recursive, which no column type can express, has more than 10,000 columns, or
            a fixed of more than 65,536 bytes.
    """
    if is_recursive(node):
        raise ConfigurationError("the schema is recursive: a record contains itself, which no column type can express")
    columns = _columns(node, {})
    if columns > _MOST_COLUMNS:
        raise ConfigurationError(f"the schema has {columns:,} columns with those of its nested types, more than 10,000")
    return _arrow(node)


def arrow_schema(node: Node, without: Container[str] = ()) -> pa.Schema:
    """The columns of values: the fields of a record, or the column ``value`` of any other type.

    Args:
        node: the schema of values.
        without: names of fields that have no column.

    Raises:
        ConfigurationError: see :func:`arrow_type`.
    """
    arrow_type(node)
    if not isinstance(node, Record):
        return pa.schema([arrow_field("value", node)])
    return pa.schema([arrow_field(f.name, f.type, f.number) for f in node.fields if f.name not in without])


def _columns(node: Node, known: dict[int, int]) -> int:
    """Columns of a type that is not recursive, with those that contain others."""
    match node:
        case ArrayOf(items=part) | MapOf(values=part):
            return 1 + _columns(part, known)
        case Union(branches=branches):
            return 1 + sum(_columns(branch, known) for branch in branches)
        case Record():
            if id(node) not in known:
                known[id(node)] = 1 + sum(_columns(f.type, known) for f in node.fields)
            return known[id(node)]
    return 1


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
        case Fixed(name=name, size=size):
            if size > _LONGEST_FIXED:
                raise ConfigurationError(
                    f"fixed {name!r} of the Avro schema has {size:,} bytes. A column has them for nulls too, and has "
                    f"at most {_LONGEST_FIXED:,} of them: use bytes"
                )
            return pa.binary(size)
        case Enum():
            return pa.string()
        case ArrayOf(items=items):
            return pa.list_(arrow_field("element", items))
        case MapOf(values=values, keys=keys):
            return pa.map_(_arrow(keys), cast("Any", arrow_field("value", values)))
        case Record(fields=fields):
            return pa.struct([arrow_field(f.name, f.type, f.number) for f in fields])
        case Union():
            branch = nullable_branch(node)
            if branch is not None:
                return _arrow(branch)
            if node.branches == (Primitive("null"),):
                return pa.null()
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


def _union_name(node: Node) -> str:
    """The name that a union may have once."""
    return node.name if isinstance(node, Fixed | Enum | Record) else _branch_name(node)


def _loaded(text: str) -> Any:
    if text.strip() in PRIMITIVES:
        return text.strip()
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as e:
        raise ConfigurationError(f"the Avro schema is not JSON: {e}") from None


_TOO_DEEP: Final = f"the Avro schema is nested too deeply: it has more than {_DEEPEST} types inside each other"


def _short(value: object) -> str:
    """A value for a message."""
    return repr(value if isinstance(value, str | int | float | None) else type(value).__name__)[:100]


class _Inliner:
    """Puts the definition of a named type in the place of the first use of its name."""

    def __init__(self) -> None:
        self._defined: dict[str, tuple[Any, str]] = {}
        self._used: set[str] = set()

    def define(self, schema: Any, namespace: str = "") -> None:
        """Register a definition, and those inside it."""
        if isinstance(schema, list):
            for branch in schema:
                self.define(branch, namespace)
        elif isinstance(schema, dict):
            if schema.get("type") in ("record", "error", "enum", "fixed"):
                full, namespace = _full_name(schema, namespace)
                self._defined[full] = ({**schema, "name": full, "namespace": ""}, namespace)
            for part in ("type", "items", "values"):
                self.define(schema.get(part), namespace)
            for inner in schema.get("fields", ()):
                self.define(inner, namespace)

    def inlined(self, schema: Any, namespace: str) -> Any:
        """A schema without references."""
        if isinstance(schema, list):
            return [self.inlined(branch, namespace) for branch in schema]
        if isinstance(schema, str):
            return self._definition(schema, namespace)
        if not isinstance(schema, dict):
            return schema
        if schema.get("type") in ("record", "error", "enum", "fixed"):
            full, namespace = _full_name(schema, namespace)
            self._used.add(full)
        changed = {part: self.inlined(schema[part], namespace) for part in ("items", "values") if part in schema}
        if "fields" in schema:
            changed["fields"] = [
                {**inner, "type": self.inlined(inner["type"], namespace)} for inner in schema["fields"]
            ]
        elif schema.get("type") not in (*PRIMITIVES, "array", "map", "enum", "fixed"):
            changed["type"] = self.inlined(schema["type"], namespace)
        return {**schema, **changed}

    def _definition(self, name: str, namespace: str) -> Any:
        if name in PRIMITIVES:
            return name
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        full = full if full in self._defined or full in self._used else name
        if full in self._used or full not in self._defined:
            return full
        definition, inner = self._defined[full]
        self._used.add(full)
        # Its name is a full one, and names inside it belong to the namespace that it was defined in.
        return self.inlined({**definition, "namespace": inner}, inner)


def _full_name(schema: Mapping[str, Any], namespace: str) -> tuple[str, str]:
    """Full name and namespace of a definition."""
    name, own = str(schema.get("name")), schema.get("namespace")
    if "." in name:
        return name, name.rpartition(".")[0]
    inner = namespace if own is None else str(own)
    return (f"{inner}.{name}" if inner else name), inner


class _Parser:
    """Parses schemas that share their named types."""

    def __init__(self) -> None:
        self._named: dict[str, Node] = {}
        self._heights: dict[int, int] = {}

    def parse(self, schema: Any, namespace: str) -> Node:
        try:
            node = self._parse(schema, namespace)
            self._check_height(node)
        except RecursionError:
            raise ConfigurationError(_TOO_DEEP) from None
        return node

    def _parse(self, schema: Any, namespace: str) -> Node:
        if isinstance(schema, str):
            return self._by_name(schema, namespace)
        if isinstance(schema, list):
            return self._union(schema, namespace)
        if not isinstance(schema, dict) or "type" not in schema:
            raise ConfigurationError(f"{_short(schema)} is no Avro schema: it has no type")
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

    def _by_name(self, name: object, namespace: str) -> Node:
        if isinstance(name, str):
            if name in PRIMITIVES:
                return Primitive(name)
            found = self._named.get(f"{namespace}.{name}") if namespace and "." not in name else None
            found = found or self._named.get(name)
            if found is not None:
                return found
        raise ConfigurationError(f"the Avro schema uses the type {_short(name)}, which nothing defines")

    def _union(self, schema: list[Any], namespace: str) -> Union:
        branches = tuple(self._parse(branch, namespace) for branch in schema)
        names = [_union_name(branch) for branch in branches]
        named = [isinstance(branch, Fixed | Enum | Record) for branch in branches]  # may have the name "array"
        if not branches or len(set(zip(names, named, strict=True))) != len(names):
            raise ConfigurationError(f"a union of the Avro schema has no branch, or one of them twice: {names[:10]}")
        return Union(branches)

    def _check_height(self, node: Node) -> int:
        """Types inside each other. Those of a record that is being parsed are counted later."""
        match node:
            case ArrayOf(items=part) | MapOf(values=part):
                height = 1 + self._check_height(part)
            case Union(branches=branches):
                height = 1 + max(self._check_height(branch) for branch in branches)
            case Record():
                height = self._heights.get(id(node), 0)
            case _:
                height = 1
        if height > _DEEPEST:
            raise ConfigurationError(_TOO_DEEP)
        return height

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
                    number=number if _is_int(number) and 0 <= number < 2**31 else None,
                )
            )
        if len({f.name for f in fields}) != len(fields):
            raise ConfigurationError(f"record {name!r} of the Avro schema has a field twice")
        object.__setattr__(record, "fields", tuple(fields))
        self._heights[id(record)] = 1 + max((self._check_height(f.type) for f in fields), default=0)
        self._check_height(record)
        return record

    def _enum(self, schema: Mapping[str, Any], namespace: str) -> Enum:
        name, _ = self._name(schema, namespace)
        symbols = _part(schema, "symbols", list)
        for symbol in symbols:
            _simple_name(symbol, f"a symbol of {name!r}")
        if not symbols or len(set(symbols)) != len(symbols):
            raise ConfigurationError(f"enum {name!r} of the Avro schema has no symbols, or one of them twice")
        default = schema.get("default")
        if default is not None and default not in symbols:
            raise ConfigurationError(f"enum {name!r} of the Avro schema has a default that is none of its symbols")
        node = Enum(name, tuple(symbols), default)
        self._named[name] = node
        return node

    def _fixed(self, schema: Mapping[str, Any], namespace: str) -> Fixed:
        name, _ = self._name(schema, namespace)
        size = schema.get("size")
        if not _is_int(size) or not 0 <= size < 2**31:
            raise ConfigurationError(f"fixed {name!r} of the Avro schema has the size {_short(size)}")
        node = Fixed(name, size, _logical(schema, "fixed", size))
        self._named[name] = node
        return node

    def _name(self, schema: Mapping[str, Any], namespace: str) -> tuple[str, str]:
        """Full name and namespace of a named type."""
        name, own = schema.get("name"), schema.get("namespace")
        if isinstance(name, str) and "." in name:
            own, _, name = name.rpartition(".")
        simple = _simple_name(name, "a named type")
        inner = namespace if own is None else own
        if not isinstance(inner, str) or (inner and not all(map(_NAME.fullmatch, inner.split(".")))):
            raise ConfigurationError(f"{simple!r} of the Avro schema has the namespace {_short(inner)}")
        if simple in PRIMITIVES:
            raise ConfigurationError(f"the Avro schema defines a type with the name of a primitive one: {simple!r}")
        full = f"{inner}.{simple}" if inner else simple
        if full in self._named:
            raise ConfigurationError(f"the Avro schema defines the type {full!r} twice")
        return full, inner


def _simple_name(name: object, what: str) -> str:
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise ConfigurationError(f"{what} of the Avro schema has the name {_short(name)}, which Avro does not allow")
    return name


def _part(schema: Mapping[str, Any], name: str, kind: type = object) -> Any:
    if name not in schema or not isinstance(schema[name], kind):
        raise ConfigurationError(f"the Avro schema of type {_short(schema.get('type'))} has no {name!r}")
    return schema[name]


_LOGICAL: Final = frozenset(
    [*_ARROW_LOGICAL, ("string", "uuid"), ("fixed", "duration")]  # decimals have parameters
)


def _logical(schema: Mapping[str, Any], kind: str, size: int = 0) -> Logical:
    """The logical type; None if it is not known or does not fit its type, as the specification says."""
    logical = schema.get("logicalType")
    if not isinstance(logical, str):
        return None
    if logical == "decimal" and kind in ("bytes", "fixed"):
        precision, scale = schema.get("precision"), schema.get("scale", 0)
        # 2.4 digits a byte: sizes of more than 32 bytes hold every precision that Arrow has.
        most = _MOST_DIGITS if kind == "bytes" or size > 32 else len(str(2 ** max(8 * size - 1, 0) - 1)) - 1
        if _is_int(precision) and _is_int(scale) and 0 < precision <= min(most, _MOST_DIGITS):
            return Decimal(precision, scale) if 0 <= scale <= precision else None
        return None
    if logical == "duration" and size != 12:
        return None
    return logical if (kind, logical) in _LOGICAL else None


def _is_int(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)
