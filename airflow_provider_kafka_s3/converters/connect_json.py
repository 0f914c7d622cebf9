"""Envelopes of Kafka Connect's JsonConverter with ``schemas.enable=true``: a schema and a payload in each value."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from airflow_provider_kafka_s3.arrays import Array, Int64Array, validity_buffer
from airflow_provider_kafka_s3.config import DecimalFormat
from airflow_provider_kafka_s3.converters.json_grammar import deep_rows
from airflow_provider_kafka_s3.converters.json_scalar import (
    Branch,
    InvalidJsonError,
    ScalarConverters,
    document,
)
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.schemas.nodes import (
    NULL,
    ArrayOf,
    Decimal,
    Field,
    MapOf,
    Node,
    Primitive,
    Record,
    Union,
    time_name_of,
)

__all__ = [
    "USUAL_PRECISION",
    "Envelopes",
    "avro_default",
    "connect_schema",
    "decimal_of",
    "record_name",
    "split_envelopes",
]

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TYPES: Final[dict[str, str]] = {
    "int8": "int",
    "int16": "int",
    "int32": "int",
    "int64": "long",
    "float": "float",
    "float32": "float",
    "double": "double",
    "float64": "double",
    "boolean": "boolean",
    "string": "string",
    "bytes": "bytes",
}
_DECIMAL: Final = "org.apache.kafka.connect.data.Decimal"
_LOGICAL: Final = {
    ("int32", "org.apache.kafka.connect.data.Date"): "date",
    ("int32", "org.apache.kafka.connect.data.Time"): "time-millis",
    ("int64", "org.apache.kafka.connect.data.Timestamp"): "timestamp-millis",
}
USUAL_PRECISION: Final = 38
"""Digits of a decimal whose schema has no ``connect.decimal.precision``."""
_MOST_PRECISION: Final = 76
_DEEPEST: Final = 100
_PARTS: Final = ("schema", "payload")


@dataclass(frozen=True)
class Envelopes:
    """Values taken apart.

    Attributes:
        rows: of each schema, by its text: the rows that have it, ascending. The same schema may have different texts;
            ``null`` is that of null values alone.
        payloads: of each row; null where the row is null or bad. The text ``null`` is a payload.
        bad: per row, whether it is not an object with a schema and a payload.
        reasons: of each bad row, why.
    """

    rows: Mapping[str, Int64Array]
    payloads: Array
    bad: npt.NDArray[np.bool_]
    reasons: Mapping[int, str]


class _Envelope(msgspec.Struct, gc=False):
    schema: msgspec.Raw
    payload: msgspec.Raw


_decode_envelope: Final = msgspec.json.Decoder(_Envelope).decode


def split_envelopes(values: Array) -> Envelopes:
    """Split values into their schemas and their payloads.

    A payload is not decoded here. Other fields than ``schema`` and ``payload`` are ignored.

    Args:
        values: binary or large_binary; null rows have no payload, and are not bad.
    """
    rows: dict[bytes, list[int]] = {}
    payloads: list[bytes | None] = []
    reasons: dict[int, str] = {}
    deep = deep_rows(values)
    texts: list[bytes | None] = values.to_pylist()
    for row, text in enumerate(texts):
        payloads.append(None)
        if text is None:
            continue
        try:
            if row in deep:
                document(text)  # raises if it is too deep
            envelope = _decode_envelope(text)
            schema, payload = bytes(envelope.schema), bytes(envelope.payload)
            if schema not in rows:
                schema.decode()
        except (msgspec.MsgspecError, ValueError, RecursionError, InvalidJsonError):
            reasons[row] = _reason(text)
            continue
        if schema == b"null" != payload:
            reasons[row] = "field schema is null"
            continue
        rows.setdefault(schema, []).append(row)
        payloads[row] = payload
    bad = np.zeros(len(texts), np.bool_)
    bad[list(reasons)] = True
    groups = {schema.decode(): np.array(numbers, np.int64) for schema, numbers in rows.items()}
    return Envelopes(groups, _nullable_binary(payloads, values.type), bad, reasons)


def _reason(text: bytes) -> str:
    """Why a text is no envelope."""
    try:
        value = document(text)
    except InvalidJsonError as e:
        return str(e)
    missing = [name for name in _PARTS if name not in value] if isinstance(value, dict) else None
    if missing is None:
        return "the value is no object with the fields schema and payload"
    return f"field {missing[0]} is missing" if missing else "the value has half of a surrogate pair"


def _nullable_binary(values: list[bytes | None], kind: pa.DataType) -> Array:
    valid = np.array([value is not None for value in values], np.bool_)
    texts = [value or b"" for value in values]
    wide = np.int64 if pa.types.is_large_binary(kind) else np.int32
    ends = np.cumsum([0, *map(len, texts)], dtype=wide)
    buffers: list[pa.Buffer | None] = [validity_buffer(valid), pa.py_buffer(ends.data), pa.py_buffer(b"".join(texts))]
    return cast("Array", pa.Array.from_buffers(kind, len(texts), buffers))


def connect_schema(schema: Mapping[str, Any], *, decimal_format: DecimalFormat = "BASE64") -> Node:
    """The Avro schema of a schema of an envelope.

    A struct without a name is named ``ConnectDefault``, and a name that is used for different structs gets a number. A
    decimal has the precision of its parameter ``connect.decimal.precision``, or else of 38 digits. int8 and int16 are
    int. A field that is optional has the default null if it has no other.

    Args:
        schema: the JSON object in the field ``schema``.
        decimal_format: what strings are in the defaults of decimals.

    Raises:
        ConfigurationError: the schema is none of Connect, is nested too deeply, or has a map whose keys are of a nested
            type, a field without a name, or a default that does not fit.
    """
    try:
        return _Builder(decimal_format).node(schema, 0)
    except RecursionError:
        raise ConfigurationError("a schema of Kafka Connect is nested too deeply") from None


class _Builder:
    def __init__(self, decimal_format: DecimalFormat) -> None:
        self._format = decimal_format
        self._records: dict[tuple[str, str], Record] = {}
        self._names: set[str] = set()

    def node(self, schema: Any, depth: int) -> Node:
        """A type; of an optional one, the union with null."""
        node = self._required(schema, depth)
        if _flag(schema, "optional"):
            return Union((NULL, node))
        return node

    def _required(self, schema: Any, depth: int) -> Node:
        if not isinstance(schema, Mapping):
            raise ConfigurationError("a schema of Kafka Connect is no JSON object")
        if depth >= _DEEPEST // 2:  # an optional type is two of Avro
            raise ConfigurationError(f"a schema of Kafka Connect has more than {_DEEPEST // 2} types inside each other")
        kind, name = schema.get("type"), schema.get("name")
        match kind:
            case "struct":
                return self._record(schema, depth)
            case "array":
                return ArrayOf(self.node(schema.get("items"), depth + 1))
            case "map":
                keys = self._required(schema.get("keys"), depth + 1)
                if not isinstance(keys, Primitive):
                    raise ConfigurationError("a schema of Kafka Connect has a map whose keys have no primitive type")
                return MapOf(self.node(schema.get("values"), depth + 1), keys)
            case "bytes" if name == _DECIMAL:
                return Primitive("bytes", decimal_of(schema.get("parameters")))
        if not isinstance(kind, str) or kind not in _TYPES:
            raise ConfigurationError(f"a schema of Kafka Connect has the type {str(kind)[:100]!r}, which is none of it")
        return Primitive(_TYPES[kind], _LOGICAL.get((kind, str(name))), time_name_of(name))

    def _record(self, schema: Mapping[str, Any], depth: int) -> Record:
        declared = schema.get("fields")
        if not isinstance(declared, list):
            raise ConfigurationError("a struct in a schema of Kafka Connect has no list of fields")
        name = record_name(schema.get("name"))
        # Equal structs are one record: a named type is defined once in a schema of Avro.
        key = (name, json.dumps(declared, sort_keys=True))
        if key not in self._records:
            unique, number = name, 2
            while unique in self._names:
                unique, number = f"{name}{number}", number + 1
            self._names.add(unique)
            fields = tuple(self._field(part, depth + 1) for part in declared)
            if len({field.name for field in fields}) != len(fields):
                raise ConfigurationError(f"struct {name!r} in a schema of Kafka Connect has a field twice")
            self._records[key] = Record(unique, fields)
        return self._records[key]

    def _field(self, schema: Any, depth: int) -> Field:
        name = schema.get("field") if isinstance(schema, Mapping) else None
        if not isinstance(name, str) or any("\ud800" <= character <= "\udfff" for character in name):
            raise ConfigurationError(
                f"a schema of Kafka Connect has a field with the name {str(name)[:100]!r}, which is no text"
            )
        node = self._required(schema, depth)
        optional = _flag(schema, "optional")
        default = schema.get("default")
        if default is None:
            return Field(name, Union((NULL, node)) if optional else node, None, has_default=optional)
        try:
            value = avro_default(node, default, self._format)
        except InvalidJsonError as e:
            raise ConfigurationError(
                f"the default of field {name!r} in a schema of Kafka Connect does not fit its type: {e}"
            ) from None
        # The default of a union is one of its first branch.
        return Field(name, Union((node, NULL)) if optional else node, value, has_default=True)


def avro_default(node: Node, default: Any, decimal_format: DecimalFormat) -> Any:
    """A default of Kafka Connect as Avro has it: bytes and decimals are text with one character per byte.

    Args:
        node: type of the field.
        default: as JSON of Kafka Connect. Null inside it, in a field that has a default itself, is that one.
        decimal_format: of strings.

    Raises:
        InvalidJsonError: it does not fit the type.
    """
    text = json.dumps(default).encode()
    converters = ScalarConverters(decimal_format, lambda _, values: list(values), null_is_default=True)
    value = converters.make(node)(document(text))
    return _avro_json(node, value)


def _avro_json(node: Node, value: Any) -> Any:
    """A converted value as Avro writes it in a default."""
    match node:
        case Primitive(logical=Decimal()):
            size = (8 + (value + (value < 0)).bit_length()) // 8
            return value.to_bytes(size, signed=True).decode("latin-1")
        case Primitive(name="bytes"):
            return value.decode("latin-1")
        case Primitive(name="float" | "double") if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case ArrayOf(items=items):
            return [_avro_json(items, item) for item in value]
        case MapOf(values=values, keys=Primitive("string")):
            return {key: _avro_json(values, item) for key, item in value.items()}
        case MapOf(values=values, keys=keys):
            return [{"key": _avro_json(keys, k), "value": _avro_json(values, item)} for k, item in value.items()]
        case Record(fields=fields):
            return {f.name: _avro_json(f.type, item) for f, item in zip(fields, value, strict=True)}
        case Union(branches=branches):
            others = [branch for branch in branches if branch != NULL]
            branch = value if isinstance(value, Branch) else Branch(0, value)
            return None if value is None else _avro_json(others[branch.number], branch.value)
    return value


def _flag(schema: Mapping[str, Any], name: str) -> bool:
    value = schema.get(name, False)
    if not isinstance(value, bool):
        raise ConfigurationError(f"a schema of Kafka Connect has the attribute {name!r}, which is no boolean")
    return value


def decimal_of(parameters: Any) -> Decimal:
    """The decimal with the parameters of Kafka Connect: ``scale``, and perhaps ``connect.decimal.precision``.

    More digits than an Arrow type has are allowed in a schema: each value has to do with those that the type has.

    Raises:
        ConfigurationError: there is no such decimal.
    """
    settings = parameters if isinstance(parameters, Mapping) else {}
    try:
        scale = int(str(settings.get("scale")))
        precision = int(str(settings.get("connect.decimal.precision", max(scale, USUAL_PRECISION))))
    except ValueError:
        raise ConfigurationError("a decimal in a schema of Kafka Connect has a scale that is no integer") from None
    if not 0 <= scale <= min(precision, _MOST_PRECISION) or precision <= 0:
        raise ConfigurationError(
            f"a decimal in a schema of Kafka Connect has {precision} digits, {scale} of them of its fraction: "
            f"up to {_MOST_PRECISION} can be represented, and no negative scale"
        )
    return Decimal(min(precision, _MOST_PRECISION), scale)


def record_name(name: object) -> str:
    """The name of a struct as Avro allows it; ``ConnectDefault`` if it has none."""
    if not isinstance(name, str) or not name:
        return "ConnectDefault"
    parts = [re.sub(r"[^A-Za-z0-9_]", "_", part) for part in name.split(".")]
    return ".".join(part if _NAME.fullmatch(part) else f"_{part}" for part in parts)
