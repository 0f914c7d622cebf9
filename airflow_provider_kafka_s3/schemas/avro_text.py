"""Schemas as texts of Avro."""

from __future__ import annotations

import json
import re
from collections.abc import Container, Sequence
from itertools import count
from typing import Any
from urllib.parse import quote_plus

from airflow_provider_kafka_s3.schemas.nodes import (
    ALLOWED_NAME,
    ArrayOf,
    Decimal,
    Enum,
    Field,
    Fixed,
    Logical,
    MapOf,
    Node,
    Primitive,
    Record,
    Union,
)

__all__ = ["node_text"]


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
    used = {name for name in names if ALLOWED_NAME.fullmatch(name)}
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
