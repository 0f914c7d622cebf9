"""Projects Arrow values of one schema to another one, by the rules of Kafka Connect.

Schemas are compared as Kafka Connect sees them: by type, name and parameters. Documentation and aliases are no part of
the comparison.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from airflow_provider_kafka_s3.arrays import Array, binary_array, int64_array, valid_rows, validity_buffer
from airflow_provider_kafka_s3.schemas.arrow_types import arrow_type
from airflow_provider_kafka_s3.schemas.nodes import (
    NULL,
    ArrayOf,
    Decimal,
    Enum,
    Field,
    Fixed,
    MapOf,
    Node,
    Primitive,
    Record,
    Union,
    branch_names,
    only_branch,
)

__all__ = ["Projection", "SchemaChangeError", "connect_name", "mismatch", "projection", "same_schema"]

_NUMBERS: Final = ("int32", "int64", "float32", "float64")


class SchemaChangeError(Exception):
    """A record's schema cannot be compared with that of the open object, or the record not be projected to it.

    The caller makes it the error of one record, and adds topic, partition and offset.

    Attributes:
        row: of the record, where it is known.
    """

    row: int | None = None


def same_schema(one: Node, other: Node) -> bool:
    """Whether two schemas are equal in all that nodes contain, also when they are recursive."""
    return _same(one, other, set())


def _same(one: Node, other: Node, seen: set[tuple[Record, Record]]) -> bool:
    if one is other:
        return True
    match one, other:
        case Record(), Record():
            if (one, other) in seen:
                return True
            seen.add((one, other))
            return (
                one.name == other.name
                and len(one.fields) == len(other.fields)
                and all(
                    (a.name, a.number, a.default) == (b.name, b.number, b.default) and _same(a.type, b.type, seen)
                    for a, b in zip(one.fields, other.fields, strict=True)
                )
            )
        case ArrayOf(items=a), ArrayOf(items=b):
            return _same(a, b, seen)
        case MapOf(values=a, keys=own_keys), MapOf(values=b, keys=other_keys):
            return own_keys == other_keys and _same(a, b, seen)
        case Union(branches=a), Union(branches=b):
            return len(a) == len(b) and all(_same(x, y, seen) for x, y in zip(a, b, strict=True))
    return type(one) is type(other) and one == other


class _ConnectType(NamedTuple):
    """A schema as Kafka Connect sees it, without what is nested in it."""

    kind: str
    name: str | None = None
    parameters: tuple[object, ...] = ()


def connect_name(node: Node) -> str | None:
    """The name that Kafka Connect gives to a schema; None if it has none."""
    _, required = _required(node)
    return "io.confluent.connect.avro.Union" if isinstance(required, Union) else _connect_type(required).name


def mismatch(source: Node, target: Node) -> str | None:
    """Why values of one schema cannot be projected to another one; None if they can.

    Args:
        source: schema of the values.
        target: schema that they are projected to.
    """
    return _mismatch(source, target, "the value", default=None, seen=set())


def _mismatch(source: Node, target: Node, at: str, *, default: Any, seen: set[tuple[Record, Record]]) -> str | None:
    may_be_null, source = _required(source)
    null_allowed, target = _required(target)
    if may_be_null and not null_allowed and default is None:
        return f"{at} is optional in the source schema, but required and without a default in the target schema"
    own, wanted = _connect_type(source), _connect_type(target)
    if own.kind != wanted.kind and not _promotable(own.kind, wanted.kind):
        return f"{at} has the type {own.kind} in the source schema, {wanted.kind} in the target schema"
    if own.name != wanted.name:
        return f"{at} has the schema name {own.name!r} in the source schema, {wanted.name!r} in the target schema"
    if own.parameters != wanted.parameters:
        return (
            f"{at} has the parameters {own.parameters} in the source schema, {wanted.parameters} in the target schema"
        )
    return _nested_mismatch(source, target, at, seen)


def _nested_mismatch(source: Node, target: Node, at: str, seen: set[tuple[Record, Record]]) -> str | None:
    match source, target:
        case Enum(symbols=symbols), Enum(symbols=known):
            unknown = [symbol for symbol in symbols if symbol not in known]
            return f"{at} has the symbols {unknown[:10]}, which the target schema does not have" if unknown else None
        case ArrayOf(items=a), ArrayOf(items=b):
            return _mismatch(a, b, f"an item of {at}", default=None, seen=seen)
        case MapOf(values=a), MapOf(values=b):
            return _mismatch(a, b, f"a value of {at}", default=None, seen=seen)
        case Union(), Union():
            targets = _branches(target)
            for name, branch in _branches(source).items():
                # Kafka Connect would drop the value: a union is a struct there, and this a field that is too many.
                if name not in targets:
                    return f"{at} may be {name!r} in the source schema, but not in the target schema"
                why = _mismatch(branch, targets[name], f"{name!r} of {at}", default=None, seen=seen)
                if why is not None:
                    return why
        case Record(), Record():
            return _record_mismatch(source, target, seen)
    return None


def _record_mismatch(source: Record, target: Record, seen: set[tuple[Record, Record]]) -> str | None:
    if (source, target) in seen:
        return None
    seen.add((source, target))
    source_fields = {f.name: f for f in source.fields}
    for wanted in target.fields:
        label = f"field {wanted.name!r} of {target.name!r}"
        why = None
        if wanted.name in source_fields:
            why = _mismatch(source_fields[wanted.name].type, wanted.type, label, default=wanted.default, seen=seen)
        elif wanted.default is None and not _required(wanted.type)[0]:
            why = f"{label} is missing in the source schema, and required and without a default in the target schema"
        if why is not None:
            return why
    return None


def _required(node: Node) -> tuple[bool, Node]:
    """Whether a value may be null, and the schema of one that is not."""
    if isinstance(node, Union):
        return NULL in node.branches, only_branch(node) or Union(tuple(b for b in node.branches if b != NULL))
    return node == NULL, node


def _branches(node: Union) -> dict[str, Node]:
    return dict(zip(branch_names(node), [b for b in node.branches if b != NULL], strict=True))


_LOGICAL: Final[Mapping[tuple[str, object], _ConnectType]] = {
    # Of the logical types of Avro, these and decimal are those that Kafka Connect has.
    ("int", "date"): _ConnectType("int32", "org.apache.kafka.connect.data.Date"),
    ("int", "time-millis"): _ConnectType("int32", "org.apache.kafka.connect.data.Time"),
    ("long", "timestamp-millis"): _ConnectType("int64", "org.apache.kafka.connect.data.Timestamp"),
}
_PRIMITIVE: Final[Mapping[str, str]] = {"int": "int32", "long": "int64", "float": "float32", "double": "float64"}


def _connect_type(node: Node) -> _ConnectType:
    match node:
        case Primitive(logical=Decimal() as decimal):
            return _decimal(decimal)
        case Fixed(size=size, logical=Decimal() as decimal):
            return _decimal(decimal, ("size", size))
        case Primitive(name=name, logical=logical):
            return _LOGICAL.get((name, logical), _ConnectType(_PRIMITIVE.get(name, name)))
        case Fixed(name=name, size=size):
            return _ConnectType("bytes", name, (("size", size),))
        case Enum(name=name):
            return _ConnectType("string", name)
        case ArrayOf():
            return _ConnectType("array")
        case MapOf(keys=keys):
            return _ConnectType("map", parameters=() if keys == Primitive("string") else (("keys", keys),))
        case Record(name=name):
            return _ConnectType("struct", name)
        case Union():
            return _ConnectType("union")


def _decimal(decimal: Decimal, *parameters: object) -> _ConnectType:
    of = (("scale", decimal.scale), ("precision", decimal.precision), *parameters)
    return _ConnectType("bytes", "org.apache.kafka.connect.data.Decimal", of)


def _promotable(kind: str, wanted: str) -> bool:
    return kind in _NUMBERS and wanted in _NUMBERS[_NUMBERS.index(kind) :]


Step: TypeAlias = Callable[[Array], Array]


class Projection:
    """Turns values of one schema into values of another one; see :func:`projection`."""

    def __init__(self, step: Step | None) -> None:
        self._step = step

    def apply(self, values: Array) -> Array:
        """Project values.

        Args:
            values: array of ``arrow_type(source)``.

        Returns:
            Array of ``arrow_type(target)`` and of the same length. It shares buffers with ``values`` where it can.
        """
        return values if self._step is None else self._step(values)


def projection(source: Node, target: Node) -> Projection:
    """The projection of values to another schema.

    Fields are matched by name. Those that the target does not have are dropped; missing ones have their default, or are
    null. Numbers are promoted as Java does: a long that a float cannot represent is rounded. A null becomes the default
    where the target requires a value, and stays null where the target allows it.

    Args:
        source: schema of the values.
        target: schema that they are projected to.

    Raises:
        SchemaChangeError: values cannot be projected, or a default of the target does not fit its type.
        ConfigurationError: a schema is recursive.
    """
    why = mismatch(source, target)
    if why is not None:
        raise SchemaChangeError(f"records cannot be projected to the schema of the open object: {why}")
    arrow_type(source)
    return Projection(_step(source, target, None))


def _step(source: Node, target: Node, default: Array | None) -> Step | None:
    """Projects values; None: they stay as they are. The default is for nulls, where the target requires a value."""
    if same_schema(source, target):
        return None
    may_be_null, source = _required(source)
    null_allowed, target = _required(target)
    step = _required_step(source, target)
    if not may_be_null or null_allowed or default is None:
        return step
    replacement = default
    return lambda values: _fill(values if step is None else step(values), replacement)


def _required_step(source: Node, target: Node) -> Step | None:
    match source, target:
        case Record(), Record():
            return _struct_step(target, [_field_step(source, field) for field in target.fields])
        case Union(), Union():
            names, targets = branch_names(source), _branches(target)
            own = _branches(source)
            return _struct_step(
                target,
                [
                    _child(names.index(name), _step(own[name], branch, None))
                    if name in own
                    else _all_null(arrow_type(branch))
                    for name, branch in targets.items()
                ],
            )
        case ArrayOf(items=a), ArrayOf(items=b):
            return _list_step(arrow_type(target), _step(a, b, None))
        case MapOf(values=a), MapOf(values=b):
            return _map_step(arrow_type(target), _step(a, b, None))
    return _number_step(arrow_type(source), arrow_type(target))


def _field_step(source: Record, field: Field) -> Step:
    """From values of the record to those of a field of the target."""
    for index, source_field in enumerate(source.fields):
        if source_field.name == field.name:
            nulls_to_fill = _required(source_field.type)[0] and not _required(field.type)[0]
            return _child(index, _step(source_field.type, field.type, _default(field) if nulls_to_fill else None))
    default = _default(field)
    return _all_null(arrow_type(field.type)) if default is None else lambda values: _repeat(default, len(values))


def _number_step(source: pa.DataType, target: pa.DataType) -> Step | None:
    """Promotes numbers; logical types that Kafka Connect does not have are the numbers that they are stored as."""
    if source == target:
        return None
    stored, wanted = _stored(source), _stored(target)

    def promote(values: Array) -> Array:
        numbers = values.view(stored)
        if stored != wanted:
            numbers = numbers.cast(wanted, safe=False)
        return cast("Array", numbers.view(target))

    return promote


def _stored(given: pa.DataType) -> pa.DataType:
    if pa.types.is_temporal(given):
        return pa.int32() if given.bit_width == 32 else pa.int64()
    return given


def _child(index: int, step: Step | None) -> Step:
    def child(values: Array) -> Array:
        own = cast("pa.StructArray", values).field(index)
        return own if step is None else step(own)

    return child


def _all_null(of: pa.DataType) -> Step:
    return lambda values: _nulls(len(values), of)


def _nulls(length: int, of: Any) -> Array:
    return cast("Array", pa.nulls(length, of))


def _struct_step(target: Record | Union, children: Sequence[Step]) -> Step:
    of = arrow_type(target)

    def project(values: Array) -> Array:
        projected = [child(values) for child in children]
        return cast("Array", pa.Array.from_buffers(of, len(values), [_validity(values)], children=projected))

    return project


def _list_step(of: pa.DataType, step: Step | None) -> Step:
    def project(values: Array) -> Array:
        if len(values) == 0:
            return _nulls(0, of)
        ends, items = _items(values, cast("pa.ListArray[Any]", values).values)
        buffers = [_validity(values), pa.py_buffer(ends.data)]
        projected = items if step is None else step(items)
        return cast("Array", pa.Array.from_buffers(of, len(values), buffers, children=[projected]))

    return project


def _map_step(of: pa.DataType, step: Step | None) -> Step:
    fields = cast("pa.MapType[Any, Any, Any]", of)
    entry = pa.struct([fields.key_field, fields.item_field])

    def project(values: Array) -> Array:
        if len(values) == 0:
            return _nulls(0, of)
        of_maps = cast("pa.MapArray[Any, Any]", values)
        ends, keys = _items(values, of_maps.keys)
        _, items = _items(values, of_maps.items)
        both = [keys, items if step is None else step(items)]
        entries = pa.Array.from_buffers(entry, len(keys), [None], children=both)
        buffers = [_validity(values), pa.py_buffer(ends.data)]
        return cast("Array", pa.Array.from_buffers(of, len(values), buffers, children=[entries]))

    return project


def _items(values: Array, of_all: Array) -> tuple[npt.NDArray[np.int32], Array]:
    """Offsets and items of a list or a map; ``of_all`` has the items also of what lies beside a slice."""
    buffer = values.buffers()[1]
    ends = np.frombuffer(cast("Any", buffer), np.int32)[values.offset : values.offset + len(values) + 1]
    return ends - ends[0], of_all.slice(int(ends[0]), int(ends[-1] - ends[0]))


def _valid(values: Array) -> npt.NDArray[np.bool_] | None:
    """Which values are not null; None: all."""
    return valid_rows(values) if values.null_count and values.buffers()[0] is not None else None


def _validity(values: Array) -> pa.Buffer | None:
    valid = _valid(values)
    return None if valid is None else validity_buffer(valid)


def _fill(values: Array, replacement: Array) -> Array:
    """Values with the replacement, an array of one, in place of nulls."""
    valid = _valid(values)
    if valid is None:
        return values
    rows = np.arange(len(values))
    rows[~valid] = len(values)
    return pa.concat_arrays([values, replacement]).take(int64_array(rows))


def _repeat(one: Array, times: int) -> Array:
    return one.take(int64_array(np.zeros(times, np.int64)))


def _default(field: Field) -> Array | None:
    """The default of a field as an array of one value; None: there is none, or it is null."""
    if field.default is None:
        return None
    try:
        return _constant(_required(field.type)[1], field.default)
    except (_NoValueError, OverflowError, UnicodeEncodeError):
        raise SchemaChangeError(
            f"the default {str(field.default)[:100]!r} of field {field.name!r} is no value of its type"
        ) from None


class _NoValueError(Exception):
    """A JSON value is no value of a type."""


def _constant(node: Node, value: Any) -> Array:
    """A default as an array of one value, or an array without nulls of as many values as a list has."""
    of = arrow_type(node)
    match node:
        case Primitive(logical=Decimal()) | Fixed(logical=Decimal()):
            return _buffered(of, _decimal_bytes(node, value, of))
        case Primitive(name="boolean"):
            return _buffered(of, bytes([_checked(value, bool)]))
        case Primitive(name="int" | "long"):
            return _buffered(of, _checked(value, int).to_bytes(of.bit_width // 8, "little", signed=True))
        case Primitive(name="float" | "double"):
            number = float(_checked(value, int, float))
            return _buffered(of, np.array([number], np.dtype("<f4" if of == pa.float32() else "<f8")).tobytes())
        case Primitive(name="bytes"):
            return binary_array([_checked(value, str).encode("latin-1")], large=False)
        case Primitive(name="string"):
            return _string(_checked(value, str))
        case Enum(symbols=symbols):
            if value not in symbols:
                raise _NoValueError
            return _string(value)
        case Fixed():
            return _buffered(of, _fixed_bytes(node, value))
        case _:
            return _nested_constant(node, value, of)


def _nested_constant(node: Node, value: Any, of: pa.DataType) -> Array:
    match node:
        case ArrayOf(items=item):
            items = _concatenated(arrow_type(item), [_nullable_constant(item, v) for v in _checked(value, list)])
            return _one_list(of, items)
        case MapOf(values=item):
            pairs = _checked(value, dict)
            keys = _concatenated(pa.string(), [_string(key) for key in pairs])
            items = _concatenated(arrow_type(item), [_nullable_constant(item, v) for v in pairs.values()])
            fields = cast("pa.MapType[Any, Any, Any]", of)
            entry = pa.struct([fields.key_field, fields.item_field])
            entries = pa.Array.from_buffers(entry, len(keys), [None], children=[keys, items])
            return _one_list(of, cast("Array", entries))
        case Record(fields=fields_):
            members = _checked(value, dict)
            children = [_nullable_constant(f.type, members.get(f.name, f.default)) for f in fields_]
            return cast("Array", pa.Array.from_buffers(of, 1, [None], children=children))
        case Union():
            return _union_constant(node, value, of)
    raise _NoValueError


def _union_constant(node: Union, value: Any, of: pa.DataType) -> Array:
    """The first branch that the value fits."""
    branches = _branches(node)
    for chosen, branch in branches.items():
        try:
            constant = _constant(branch, value)
        except (_NoValueError, OverflowError, UnicodeEncodeError):
            continue
        children = [constant if name == chosen else _nulls(1, arrow_type(b)) for name, b in branches.items()]
        return cast("Array", pa.Array.from_buffers(of, 1, [None], children=children))
    raise _NoValueError


def _nullable_constant(node: Node, value: Any) -> Array:
    may_be_null, required = _required(node)
    if value is None and may_be_null:
        return _nulls(1, arrow_type(node))
    return _constant(required, value)


def _checked(value: Any, *kinds: type) -> Any:
    if type(value) not in kinds:
        raise _NoValueError
    return value


def _fixed_bytes(node: Fixed, value: Any) -> bytes:
    data = bytes(_checked(value, str).encode("latin-1"))
    if len(data) != node.size:
        raise _NoValueError
    return data


def _decimal_bytes(node: Primitive | Fixed, value: Any, of: pa.DataType) -> bytes:
    data = _fixed_bytes(node, value) if isinstance(node, Fixed) else _checked(value, str).encode("latin-1")
    unscaled = int.from_bytes(data, "big", signed=True)
    if abs(unscaled) >= 10 ** cast("Decimal", node.logical).precision:
        raise _NoValueError
    return unscaled.to_bytes(of.bit_width // 8, "little", signed=True)


def _buffered(of: pa.DataType, data: bytes) -> Array:
    return cast("Array", pa.Array.from_buffers(of, 1, [None, pa.py_buffer(data)]))


def _string(value: str) -> Array:
    of_bytes = binary_array([value.encode()], large=False)
    return cast("Array", of_bytes.view(pa.string()))


def _concatenated(of: pa.DataType, parts: Sequence[Array]) -> Array:
    return pa.concat_arrays(list(parts)) if parts else _nulls(0, of)


def _one_list(of: pa.DataType, items: Array) -> Array:
    ends = pa.py_buffer(np.array([0, len(items)], np.int32).data)
    return cast("Array", pa.Array.from_buffers(of, 1, [None, ends], children=[items]))
