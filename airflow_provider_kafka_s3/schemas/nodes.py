"""The types of which a schema is made: those of Avro, by which every schema is described.

The specification is that of Avro 1.12.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from airflow_provider_kafka_s3.exceptions import ConfigurationError

__all__ = [
    "ALLOWED_NAME",
    "NULL",
    "PRIMITIVES",
    "ArrayOf",
    "Decimal",
    "Enum",
    "Field",
    "Fixed",
    "Logical",
    "MapOf",
    "Node",
    "Primitive",
    "Record",
    "Union",
    "branch_names",
    "branches_without_null",
    "field_paths",
    "is_recursive",
    "nodes_in",
    "only_branch",
    "record_of",
    "time_name_of",
    "union_name",
]

PRIMITIVES: Final = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
ALLOWED_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
"""The names of types, fields and symbols, without a namespace."""


@dataclass(frozen=True)
class Decimal:
    """The logical type ``decimal`` of bytes or a fixed."""

    precision: int
    scale: int


Logical: TypeAlias = "Decimal | str | None"


@dataclass(frozen=True)
class Primitive:
    """A primitive type.

    Attributes:
        name: of the type.
        logical: the name of its logical type, a decimal, or None.
        time_name: the name that Debezium gives to a type of times; types that differ in it only are equal.
    """

    name: str
    logical: Logical = None
    time_name: str | None = field(default=None, compare=False)


NULL: Final = Primitive("null")


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


def only_branch(node: Union) -> Node | None:
    """X of a union of X, or of null and X; None for any other union."""
    others = branches_without_null(node)
    return others[0] if len(others) == 1 else None


def record_of(node: Node) -> Record | None:
    """The record that all values of a schema are; None if there is none."""
    if isinstance(node, Union) and len(node.branches) == 1:
        node = node.branches[0]
    return node if isinstance(node, Record) else None


def branch_names(node: Union) -> list[str]:
    """Names of the branches that are not null, in their order, as they name the fields of a struct.

    A named type has its name without the namespace, unless another branch has the same one.
    """
    names: list[str] = []
    for branch in branches_without_null(node):
        choices = [_branch_name(branch), union_name(branch).replace(".", "_")]
        choices += [f"{choices[1]}_{number}" for number in range(2, len(node.branches) + 2)]
        names.append(next(name for name in choices if name not in names))
    return names


def time_name_of(name: object) -> str | None:
    """The name of a type in Kafka Connect, if it is one of Debezium's types of times."""
    return name if isinstance(name, str) and name.startswith("io.debezium.time.") else None


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


def nodes_in(node: Node) -> Iterator[Node]:
    """A schema that is not recursive, and all that is in it."""
    yield node
    match node:
        case ArrayOf(items=part) | MapOf(values=part):
            yield from nodes_in(part)
        case Union(branches=branches):
            for branch in branches:
                yield from nodes_in(branch)
        case Record(fields=fields):
            for field in fields:
                yield from nodes_in(field.type)


def field_paths(node: Node) -> Iterator[str]:
    """The fields of a record and of the records in it, with dots between the names; those of a recursive one once."""

    def inside(current: Node, path: str, above: tuple[Node, ...]) -> Iterator[str]:
        match current:
            case ArrayOf(items=part) | MapOf(values=part):
                yield from inside(part, path, above)
            case Union(branches=branches):
                for branch in branches:
                    yield from inside(branch, path, above)
            case Record() if current not in above:
                for field in current.fields:
                    yield path + field.name
                    yield from inside(field.type, f"{path}{field.name}.", (*above, current))

    return inside(node, "", ())


def branches_without_null(node: Union) -> list[Node]:
    """The branches that are not null, in their order."""
    return [branch for branch in node.branches if branch != NULL]


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


def union_name(node: Node) -> str:
    """The name that a union may have once."""
    return node.name if isinstance(node, Fixed | Enum | Record) else _branch_name(node)
