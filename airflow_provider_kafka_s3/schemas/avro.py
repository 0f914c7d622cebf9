"""Texts of Avro schemas, parsed into nodes.

The specification is that of Avro 1.12. A schema that it does not allow is refused; what it says to ignore (an unknown
logical type, attributes without a meaning) is ignored.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeGuard

from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.schemas.arrow_types import ARROW_LOGICAL
from airflow_provider_kafka_s3.schemas.nodes import (
    ALLOWED_NAME,
    PRIMITIVES,
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
    time_name_of,
    union_name,
)

__all__ = ["logical_type", "parse_schema", "schema_text"]

_NO_DEFAULT: Final = object()
_DEEPEST: Final = 100
_MOST_DIGITS: Final = 76


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
            return Primitive(str(kind), logical_type(schema), time_name_of(schema.get("connect.name")))
        return self._by_name(kind, namespace)

    def _by_name(self, name: object, namespace: str) -> Node:
        if isinstance(name, str):
            if name in PRIMITIVES:
                return Primitive(name)
            node = self._named.get(f"{namespace}.{name}") if namespace and "." not in name else None
            node = node or self._named.get(name)
            if node is not None:
                return node
        raise ConfigurationError(f"the Avro schema uses the type {_short(name)}, which nothing defines")

    def _union(self, schema: list[Any], namespace: str) -> Union:
        branches = tuple(self._parse(branch, namespace) for branch in schema)
        names = [union_name(branch) for branch in branches]
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
        for field_schema in _part(schema, "fields", list):
            if not isinstance(field_schema, dict):
                raise ConfigurationError(f"record {name!r} of the Avro schema has a field that is no mapping")
            default = field_schema.get("default", _NO_DEFAULT)
            number = field_schema.get("field-id")
            fields.append(
                Field(
                    _simple_name(field_schema.get("name"), f"a field of {name!r}"),
                    self._parse(_part(field_schema, "type", object), inner),
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
        node = Fixed(name, size, logical_type(schema))
        self._named[name] = node
        return node

    def _name(self, schema: Mapping[str, Any], namespace: str) -> tuple[str, str]:
        """Full name and namespace of a named type."""
        name, own = schema.get("name"), schema.get("namespace")
        if isinstance(name, str) and "." in name:
            own, _, name = name.rpartition(".")
        simple = _simple_name(name, "a named type")
        inner = namespace if own is None else own
        if not isinstance(inner, str) or (inner and not all(map(ALLOWED_NAME.fullmatch, inner.split(".")))):
            raise ConfigurationError(f"{simple!r} of the Avro schema has the namespace {_short(inner)}")
        if simple in PRIMITIVES:
            raise ConfigurationError(f"the Avro schema defines a type with the name of a primitive one: {simple!r}")
        full = f"{inner}.{simple}" if inner else simple
        if full in self._named:
            raise ConfigurationError(f"the Avro schema defines the type {full!r} twice")
        return full, inner


def _simple_name(name: object, what: str) -> str:
    if not isinstance(name, str) or ALLOWED_NAME.fullmatch(name) is None:
        raise ConfigurationError(f"{what} of the Avro schema has the name {_short(name)}, which Avro does not allow")
    return name


def _part(schema: Mapping[str, Any], name: str, kind: type = object) -> Any:
    if name not in schema or not isinstance(schema[name], kind):
        raise ConfigurationError(f"the Avro schema of type {_short(schema.get('type'))} has no {name!r}")
    return schema[name]


_LOGICAL: Final = frozenset(
    [*ARROW_LOGICAL, ("string", "uuid"), ("fixed", "duration")]  # decimals have parameters
)


def logical_type(schema: Mapping[str, Any]) -> Logical:
    """The logical type of a primitive type or a fixed; None if it is not known or not valid, as the specification says.

    A decimal that is not valid, such as one whose precision is a text, is its bytes.
    """
    logical, kind, size = schema.get("logicalType"), schema.get("type"), schema.get("size", 0)
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
    return logical if (str(kind), logical) in _LOGICAL else None


def _is_int(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)
