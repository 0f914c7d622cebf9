"""JSON Schemas as Avro schemas, by the rules of Kafka Connect's JsonSchemaConverter."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

from airflow_provider_kafka_s3.config import DecimalFormat
from airflow_provider_kafka_s3.converters.connect_json import avro_default, decimal_of, record_name
from airflow_provider_kafka_s3.converters.json_scalar import InvalidJsonError
from airflow_provider_kafka_s3.converters.json_schema_documents import SchemaDocuments
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.registry.schemas import SchemaReference
from airflow_provider_kafka_s3.schemas.nodes import (
    NULL,
    ArrayOf,
    Field,
    MapOf,
    Node,
    Primitive,
    Record,
    Union,
    time_name_of,
)

__all__ = ["json_schema_node"]

_TYPES: Final = ("null", "boolean", "integer", "number", "string", "array", "object")
_NUMBERS: Final = {
    "int8": "int",
    "int16": "int",
    "int32": "int",
    "int64": "long",
    "float32": "float",
    "float64": "double",
}
_CONNECT: Final = "org.apache.kafka.connect.data."
_LOGICAL: Final = {
    f"{_CONNECT}Date": Primitive("int", "date"),
    f"{_CONNECT}Time": Primitive("int", "time-millis"),
    f"{_CONNECT}Timestamp": Primitive("long", "timestamp-millis"),
}
_DECIMAL: Final = f"{_CONNECT}Decimal"
_ANNOTATIONS: Final = frozenset(
    ["title", "description", "default", "examples", "$comment", "deprecated", "readOnly", "writeOnly", "connect.index"]
)
_DYNAMIC: Final = ("$dynamicRef", "$recursiveRef")
_DEEPEST: Final = 50
_MOST_PARTS: Final = 50_000
_UNTYPED: Final = "has no type that says what its values are"


def json_schema_node(
    text: str, references: Sequence[SchemaReference] = (), *, decimal_format: DecimalFormat = "BASE64"
) -> Node:
    """The Avro schema of the values of a JSON Schema.

    An object with properties is a record: in the order of ``connect.index``, or else of the properties. A property that
    is not required may be null, and has the default null if it has no other. An object without properties is a map.
    ``integer`` is long and ``number`` double, unless ``connect.type`` says otherwise. ``oneOf``, ``anyOf`` and several
    types are a union; ``allOf`` and ``$ref`` are put together. Titles name records and the logical types of Connect. A
    record without a title has the name of its definition, or else ``ConnectDefault``; a name that is used for different
    records gets a number. Keywords that only restrict values are ignored.

    Args:
        text: the schema, of draft 4 or later.
        references: of the registry.
        decimal_format: what strings are in the defaults of decimals.

    Raises:
        ConfigurationError: the schema is not JSON, has a part that no type of Avro represents, is recursive, or refers
            to a schema that is not there.
    """
    documents = SchemaDocuments(text, references)
    mapper = _Mapper(documents, decimal_format)
    try:
        return mapper.node((documents.main,)).node()
    except RecursionError:
        raise ConfigurationError("it is nested too deeply") from None


@dataclass(frozen=True)
class _Type:
    """The type of a schema's values.

    Attributes:
        required: type of the values that are not null; None: all of them are null.
        nullable: whether null is a value.
    """

    required: Node | None
    nullable: bool

    def node(self, *, null_first: bool = True) -> Node:
        """The type with null."""
        if self.required is None:
            return NULL
        if not self.nullable:
            return self.required
        others = self.required.branches if isinstance(self.required, Union) else (self.required,)
        return Union((NULL, *others) if null_first else (*others, NULL))


class _Mapper:
    def __init__(self, documents: SchemaDocuments, decimal_format: DecimalFormat) -> None:
        self._documents = documents
        self._format = decimal_format
        self._types: dict[tuple[int, ...], _Type | None] = {}  # None: it is being made
        self._made: list[Any] = []  # schemas that no document has; kept, since schemas are known by their identity
        self._records: list[tuple[str, Record]] = []
        self._names: set[str] = set()
        self._definitions: dict[int, str] = {}
        self._path: list[str] = []
        self._work = 0

    def node(self, schemas: Iterable[Any]) -> _Type:
        """The type of values that all these schemas apply to."""
        parts = self._parts(schemas)
        key = tuple(map(id, parts))
        if key in self._types:
            known_type = self._types[key]
            if known_type is None:
                raise self._error("contains itself, which no column can express")
            return known_type
        self._types[key] = None
        if len(self._path) > _DEEPEST:
            raise self._error(f"has more than {_DEEPEST} types inside each other")
        self._types[key] = made = self._type(parts)
        return made

    def _error(self, reason: str) -> ConfigurationError:
        path = "".join(self._path).removeprefix(".")
        return ConfigurationError(f"{f'its part {path[:200]!r}' if path else 'it'} {reason}")

    def _inside(self, step: str, schemas: Iterable[Any]) -> _Type:
        self._path.append(step)
        made = self.node(schemas)
        self._path.pop()
        return made

    # -- schemas that apply together -------------------------------------------------------------------------------

    def _parts(self, schemas: Iterable[Any]) -> list[Mapping[str, Any]]:
        """Schemas with those of their ``$ref`` and ``allOf``, each once, an outer one before those inside it."""
        parts: dict[int, Mapping[str, Any]] = {}
        stack = [*schemas][::-1]
        while stack:
            schema = stack.pop()
            self._work += 1
            if self._work > _MOST_PARTS:
                raise self._error(f"has more than {_MOST_PARTS:,} parts with those that it refers to")
            if schema is True or id(schema) in parts:
                continue
            if not isinstance(schema, Mapping):
                raise self._error("allows no value" if schema is False else "is no JSON Schema")
            parts[id(schema)] = schema
            if any(keyword in schema for keyword in _DYNAMIC):
                raise self._error("has a dynamic reference")
            inner = schema.get("allOf", [])
            if not isinstance(inner, list):
                raise self._error("has allOf without a list")
            if isinstance(reference := schema.get("$ref"), str):
                inner = [self._resolved(reference, schema), *inner]
            stack += inner[::-1]
        return list(parts.values())

    def _resolved(self, reference: str, schema: Mapping[str, Any]) -> Any:
        try:
            target = self._documents.resolve(reference, schema)
        except ConfigurationError as e:
            raise self._error(f"cannot be resolved: {e}") from None
        address, _, fragment = reference.partition("#")
        name = (fragment or address.rpartition("/")[2].partition(".")[0]).rpartition("/")[2]
        if name:
            self._definitions.setdefault(id(target), name)
        return target

    def _type(self, parts: list[Mapping[str, Any]]) -> _Type:
        types = self._type_names(parts)
        unions = [branches for part in parts for branches in self._unions(part)]
        if unions and (types is None or (set(types) - {"null"} == {"object"} and not _has_properties(parts))):
            return self._union_of_branches(parts, types, unions)
        if types is None:
            raise self._error(_UNTYPED)
        nullable = "null" in types
        made = [self._single(kind, parts) for kind in types if kind != "null"]
        return self._united([_Type(node, nullable=False) for node in made], nullable=nullable)

    def _unions(self, part: Mapping[str, Any]) -> Iterator[list[Any]]:
        for keyword in ("oneOf", "anyOf"):
            if keyword in part:
                if not isinstance(part[keyword], list) or not part[keyword]:
                    raise self._error(f"has {keyword} without a list of schemas")
                yield part[keyword]

    def _type_names(self, parts: list[Mapping[str, Any]]) -> list[str] | None:
        """The types that all parts allow; None if none of them names or implies one."""
        allowed: list[str] | None = None
        for part in parts:
            if "type" in part:
                names = self._named_types(part["type"])
                allowed = names if allowed is None else _common(allowed, names)
        if allowed is None:
            allowed = _implied_types(parts)
        if allowed is not None and not allowed:
            raise self._error("allows no value: its parts have different types")
        return allowed

    def _named_types(self, given: Any) -> list[str]:
        names = given if isinstance(given, list) else [given]
        if not names or not all(isinstance(name, str) and name in _TYPES for name in names):
            raise self._error("has a type that JSON Schema does not have")
        return _without_integer(list(dict.fromkeys(names)))

    # -- unions ----------------------------------------------------------------------------------------------------

    def _union_of_branches(
        self, parts: list[Mapping[str, Any]], types: list[str] | None, unions: list[list[Any]]
    ) -> _Type:
        """The union of the schemas in ``oneOf`` or ``anyOf``, each together with what is beside it."""
        # Parts are in order of reference already, and are looked at without their references.
        beside = [self._without(part, ("$ref", "allOf", "oneOf", "anyOf")) for part in parts]
        beside = [part for part in beside if part.keys() - (_ANNOTATIONS - {"title"}) - {"type"}]
        inherited = self._made_schema({"type": types}) if types is not None else None
        nullable = types is not None and "null" in types
        for branches in unions:
            typed = [branch for branch in branches if self._has_type(branch)]
            if not typed and len(unions) > 1:
                continue
            made = []
            for branch in branches:
                own = [] if inherited is None or self._has_type_name(branch) else [inherited]
                made.append(self.node([branch, *beside, *own]))
            return self._united(made, nullable=nullable)
        raise self._error(_UNTYPED)

    def _has_type(self, schema: Any) -> bool:
        parts = self._parts([schema])
        return self._type_names(parts) is not None or any(True for part in parts for _ in self._unions(part))

    def _has_type_name(self, schema: Any) -> bool:
        return any("type" in part for part in self._parts([schema]))

    def _without(self, part: Mapping[str, Any], keywords: tuple[str, ...]) -> Mapping[str, Any]:
        if not any(keyword in part for keyword in keywords):
            return part
        return self._made_schema({name: value for name, value in part.items() if name not in keywords})

    def _made_schema(self, schema: dict[str, Any]) -> dict[str, Any]:
        self._made.append(schema)
        return schema

    def _united(self, types: Iterable[_Type], *, nullable: bool) -> _Type:
        """A union of types, without null and with each type once."""
        nodes: list[Node] = []
        for made in types:
            nullable |= made.nullable or made.required is None
            required = made.required
            for node in required.branches if isinstance(required, Union) else (required,):
                if node is not None and node not in nodes:
                    nodes.append(node)
        kinds = [_kind(node) for node in nodes]
        twice = next((kind for kind in kinds if kind is not None and kinds.count(kind) > 1), None)
        if twice is not None:
            raise self._error(f"has several types that are {twice}s, which a union does not distinguish")
        if not nodes:
            return _Type(None, nullable=True)
        return _Type(nodes[0] if len(nodes) == 1 else Union(tuple(nodes)), nullable)

    # -- types -----------------------------------------------------------------------------------------------------

    def _single(self, kind: str, parts: list[Mapping[str, Any]]) -> Node:
        match kind:
            case "boolean":
                return Primitive("boolean")
            case "string":
                return self._bytes(parts) if _first(parts, "connect.type") == "bytes" else Primitive("string")
            case "integer" | "number":
                return self._number(kind, parts)
            case "array":
                return self._array(parts)
        return self._object(parts)

    def _number(self, kind: str, parts: list[Mapping[str, Any]]) -> Node:
        connect, title = _first(parts, "connect.type"), _first(parts, "title")
        if connect == "bytes":
            if title != _DECIMAL:
                raise self._error("is a number of the connect.type bytes without the title of a decimal")
            return self._bytes(parts)
        if connect is not None and connect not in _NUMBERS:
            raise self._error(f"is a number of the connect.type {str(connect)[:100]!r}")
        name = _NUMBERS[connect] if connect is not None else "long" if kind == "integer" else "double"
        logical = _LOGICAL.get(str(title))
        if logical is not None and (name == logical.name or (connect is None and kind == "integer")):
            return logical
        return Primitive(name, time_name=time_name_of(title))

    def _bytes(self, parts: list[Mapping[str, Any]]) -> Node:
        if _first(parts, "title") != _DECIMAL:
            return Primitive("bytes")
        try:
            return Primitive("bytes", decimal_of(_first(parts, "connect.parameters")))
        except ConfigurationError as e:
            raise self._error(f"is no decimal: {e}") from None

    def _array(self, parts: list[Mapping[str, Any]]) -> Node:
        items = [part["items"] for part in parts if "items" in part]
        if any("prefixItems" in part for part in parts) or any(isinstance(given, list) for given in items):
            raise self._error("is a tuple: an array with a schema for each position")
        if not items:
            raise self._error("is an array without items, which say what is in it")
        if _first(parts, "connect.type") == "map":
            return self._map_of_entries(items)
        return ArrayOf(self._inside("[]", items).node())

    def _map_of_entries(self, items: list[Any]) -> Node:
        """The map of an array of objects with a key and a value."""
        properties = self._properties(self._parts(items))
        if properties.keys() != {"key", "value"}:
            raise self._error("is a map whose items do not have the properties key and value")
        keys = self._inside("[].key", properties["key"]).required
        values = self._inside("[].value", properties["value"]).node()
        if not isinstance(keys, Primitive):
            raise self._error("is a map whose keys have no primitive type")
        return MapOf(values, keys)

    # -- objects ---------------------------------------------------------------------------------------------------

    def _object(self, parts: list[Mapping[str, Any]]) -> Node:
        properties = self._properties(parts)
        if properties and _first(parts, "connect.type") != "map":
            return self._record(parts, properties)
        values = [value for part in parts for value in self._additional(part)]
        if not values and any(part.get("additionalProperties") is False for part in parts):
            return self._named_record(parts, ())
        if not values:
            raise self._error("is an object whose values have no type: it has neither properties nor a schema for them")
        return MapOf(self._united([self._inside("{}", [value]) for value in values], nullable=False).node())

    def _properties(self, parts: list[Mapping[str, Any]]) -> dict[str, list[Any]]:
        """The schemas of each property."""
        schemas_by_name: dict[str, list[Any]] = {}
        for part in parts:
            properties = part.get("properties", {})
            if not isinstance(properties, Mapping):
                raise self._error("has properties that are no object")
            for name, schema in properties.items():
                schemas_by_name.setdefault(name, []).append(schema)
        return {name: schemas for name, schemas in schemas_by_name.items() if False not in schemas}

    def _additional(self, part: Mapping[str, Any]) -> list[Any]:
        """The schemas of properties without a name."""
        patterns = part.get("patternProperties", {})
        if not isinstance(patterns, Mapping):
            raise self._error("has patternProperties that are no object")
        return [s for s in (*patterns.values(), part.get("additionalProperties")) if isinstance(s, Mapping)]

    def _record(self, parts: list[Mapping[str, Any]], properties: dict[str, list[Any]]) -> Record:
        required = {name for part in parts for name in _texts(part.get("required"))}
        types = {name: self._property(name, [schemas]) for name, schemas in properties.items()}
        # Properties of the branches of oneOf and anyOf: a value has those of one branch.
        optional: dict[str, list[list[Any]]] = {}
        for branch in (branch for part in parts for branches in self._unions(part) for branch in branches):
            if branch is not False:
                for name, schemas in self._properties(self._parts([branch])).items():
                    optional.setdefault(name, []).append(schemas)
        for name in optional.keys() - properties.keys():
            required.discard(name)
        for name, choices in optional.items():
            if name not in properties:
                types[name] = self._property(name, choices)
        every = {**{name: list(chain(*choices)) for name, choices in optional.items()}, **properties}
        positions = {name: position for position, name in enumerate(types)}
        order = sorted(types, key=lambda name: _index(self._parts(every[name]), positions[name]))
        return self._named_record(
            parts, tuple(self._field(name, types[name], every[name], required=name in required) for name in order)
        )

    def _property(self, name: str, choices: list[list[Any]]) -> _Type:
        try:
            name.encode()
        except UnicodeEncodeError:
            raise self._error("has a property whose name is no text: half of a surrogate pair") from None
        if len(choices) == 1:
            return self._inside(f".{name}", choices[0])
        return self._united([self._inside(f".{name}", schemas) for schemas in choices], nullable=False)

    def _field(self, name: str, made: _Type, schemas: list[Any], *, required: bool) -> Field:
        default = _first(self._parts(schemas), "default")
        if default is not None and made.required is not None and not isinstance(made.required, Union):
            try:
                value = avro_default(made.required, default, self._format)
            except InvalidJsonError as e:
                raise self._error(
                    f"has a default of the property {name[:100]!r} that does not fit its type: {e}"
                ) from None
            return Field(name, made.node(null_first=False), value, has_default=True)
        nullable = made.nullable or not required
        return Field(name, _Type(made.required, nullable).node(), None, has_default=nullable)

    def _named_record(self, parts: list[Mapping[str, Any]], fields: tuple[Field, ...]) -> Record:
        name = record_name(self._title(parts))
        for known_name, record in self._records:
            if known_name == name and record.fields == fields:
                return record
        unique, number = name, 2
        while unique in self._names:
            unique, number = f"{name}{number}", number + 1
        self._names.add(unique)
        made = Record(unique, fields)
        self._records.append((name, made))
        return made

    def _title(self, parts: list[Mapping[str, Any]]) -> str | None:
        """The title of an object, or the name of its definition."""
        # What only refers to a schema, with another title for this use of it, comes last.
        for part in sorted(parts, key=lambda part: not part.keys() - _ANNOTATIONS - {"$ref"}):
            title = part.get("title", self._definitions.get(id(part)))
            if isinstance(title, str) and title:
                return title
        return None


def _first(parts: Sequence[Mapping[str, Any]], keyword: str) -> Any:
    """The value of a keyword that is not null; None if there is none."""
    return next((part[keyword] for part in parts if part.get(keyword) is not None), None)


def _has_properties(parts: Sequence[Mapping[str, Any]]) -> bool:
    return any(part.get("properties") for part in parts)


def _texts(value: Any) -> list[str]:
    return [text for text in value if isinstance(text, str)] if isinstance(value, list) else []


def _index(parts: Sequence[Mapping[str, Any]], position: int) -> int:
    index = _first(parts, "connect.index")
    return index if isinstance(index, int) else position


def _without_integer(names: list[str]) -> list[str]:
    return [name for name in names if name != "integer"] if "number" in names else names


def _common(one: list[str], other: list[str]) -> list[str]:
    """The types in both lists; an integer is a number."""
    common = [name for name in one if name in other]
    if "integer" in {*one, *other} and "number" in {*one, *other}:
        common.append("integer")
    return common


def _implied_types(parts: Sequence[Mapping[str, Any]]) -> list[str] | None:
    """The types that keywords imply."""
    for part in parts:
        if any(isinstance(part.get(k), Mapping) for k in ("properties", "additionalProperties", "patternProperties")):
            return ["object"]
        if "items" in part or "prefixItems" in part:
            return ["array"]
    for part in parts:
        values = part["enum"] if isinstance(part.get("enum"), list) else [part["const"]] if "const" in part else []
        if values:
            return _without_integer(list(dict.fromkeys(map(_type_of, values))))
    return None


def _type_of(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "integer" if value.is_integer() else "number"
        case str():
            return "string"
        case list():
            return "array"
    return "object"


def _kind(node: Node) -> str | None:
    """What a union may have once; None: any number of them."""
    match node:
        case Primitive(name=name):
            return name
        case MapOf(keys=Primitive("string")):
            return "map"
        case ArrayOf() | MapOf():
            return "array"
    return None
