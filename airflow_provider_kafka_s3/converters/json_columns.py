"""Columns of the objects that msgspec decodes from JSON documents."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from array import array
from collections.abc import Mapping, Sequence
from itertools import chain
from operator import attrgetter
from typing import Annotated, Any, Final, Literal, cast

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_kafka_s3.arrays import Array, Bools, Int64Array, int64_values, validity_buffer
from airflow_provider_kafka_s3.config import DecimalFormat
from airflow_provider_kafka_s3.converters.json_scalar import (
    INTEGER_LOGICAL,
    LARGEST_FLOAT,
    Branch,
    Convert,
    InvalidJsonError,
    ScalarConverters,
    document,
    integer_bounds,
    is_nullable,
)
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
    only_branch,
)
from airflow_provider_kafka_s3.structs import is_plain_name

__all__ = ["Column", "Structs", "is_plain"]

_DIGITS: Final = re.compile(rb"(-?)([0-9]{1,60})(?:\.([0-9]{1,60}))?")
_DATE_FORM: Final = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
_CLOCK_FORM: Final = r"[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{3}|\.[0-9]{6})?"
_DAY_US: Final = 86_400_000_000
_YEAR_ONE_US: Final = -62_135_596_800_000_000
"""The first microsecond that is a time here, since the epoch."""


class Structs:
    """Types of msgspec, and columns, of the types of a schema.

    A decimal, a union of several types, a map with keys that are no strings, and a record with names
    that msgspec does not accept, is ``msgspec.Raw``: it is converted when its column is built. So is the string of a
    date, a time or a timestamp.
    """

    def __init__(
        self,
        decimal_format: DecimalFormat,
        *,
        null_is_default: bool,
        refuses_unknown: bool = False,
        extras: Mapping[int, Sequence[str]] | None = None,
    ) -> None:
        """Prepare.

        Args:
            decimal_format: what strings are where the schema has a decimal.
            null_is_default: whether null in a field that has a default is the default.
            refuses_unknown: whether msgspec refuses fields of records that are neither of the schema nor extras.
            extras: names of fields that records have beside those of the schema, by the identity of the record. They
                are the attributes ``x0``, ``x1``, … of the objects, of ``msgspec.Raw``; None where they are absent.
        """
        self.converters = ScalarConverters(decimal_format, self.make_record, null_is_default=null_is_default)
        self._format = decimal_format
        self._null_is_default = null_is_default
        self._refuses_unknown = refuses_unknown
        self._extras = extras or {}
        self._structs: dict[int, type[msgspec.Struct]] = {}

    def make_record(self, node: Record, values: Sequence[Any], /) -> Any:
        """A record as msgspec decodes it; see :class:`~airflow_provider_kafka_s3.converters.json_scalar.MakeRecord`."""
        return self._struct(node)(**{f"f{number}": value for number, value in enumerate(values)})

    def _struct(self, node: Record) -> type[msgspec.Struct]:
        if id(node) not in self._structs:
            fields: list[Any] = []
            for number, part in enumerate(node.fields):
                name_and_type = (f"f{number}", self.type_of_field(part))
                if part.has_default:
                    fields.append((*name_and_type, _default(self.converters.default(part))))
                elif is_nullable(part.type):
                    fields.append((*name_and_type, None))
                else:
                    fields.append(name_and_type)
            names = {f"f{number}": part.name for number, part in enumerate(node.fields)} if is_plain(node) else None
            if names is not None:
                extras = {f"x{number}": name for number, name in enumerate(self._extras.get(id(node), ()))}
                fields += [(attribute, msgspec.Raw, None) for attribute in extras]
                names |= extras
            self._structs[id(node)] = msgspec.defstruct(
                "Struct", fields, rename=names, gc=False, kw_only=True, forbid_unknown_fields=self._refuses_unknown
            )
        return self._structs[id(node)]

    def type_of_field(self, part: Field) -> Any:
        """The type that msgspec decodes for a field that is there."""
        kind = self.type_of(part.type)
        return kind | None if self.fills_nulls(part) and kind not in (msgspec.Raw, None) else kind

    def fills_nulls(self, part: Field) -> bool:
        """Whether null in a field is a default that is not null."""
        return self._null_is_default and part.has_default and self.converters.default(part) is not None

    def type_of(self, node: Node) -> Any:
        """The type that msgspec decodes."""
        match node:
            case Primitive(logical=Decimal()) | Fixed(logical=Decimal()):
                return msgspec.Raw
            case Primitive(name="int" | "long", logical=logical):
                least, most = integer_bounds(node)
                plain = Annotated[int, msgspec.Meta(ge=least, le=most)]
                return plain | str if logical in INTEGER_LOGICAL else plain
            case Primitive(name="float"):
                return Annotated[float, msgspec.Meta(ge=-LARGEST_FLOAT, le=LARGEST_FLOAT)]
            case Primitive(name=name):
                return _TYPES[name]
            case Fixed(size=size):
                return Annotated[bytes, msgspec.Meta(min_length=size, max_length=size)]
            case Enum(symbols=symbols):
                return cast("Any", Literal)[symbols]
            case ArrayOf(items=items):
                return list[self.type_of(items)]  # type: ignore[misc]
            case MapOf(values=values, keys=Primitive("string")):
                return dict[str, self.type_of(values)]  # type: ignore[misc]
            case MapOf():
                return msgspec.Raw
            case Record():
                return self._struct(node) if is_plain(node) else msgspec.Raw
            case Union():
                single = only_branch(node)
                if single is None:
                    return None if node.branches == (NULL,) else msgspec.Raw
                inner = self.type_of(single)
                return inner | None if NULL in node.branches and inner is not msgspec.Raw else inner

    def column(self, node: Node, kind: pa.DataType, *, nullable: bool) -> Column:
        """The column of a type.

        Args:
            node: the type.
            kind: its Arrow type.
            nullable: whether the column may have nulls. One that may not has values without a meaning where the
                record around them is null.
        """
        plain = self._plain_column(node, kind, nullable=nullable)
        single = only_branch(node) if isinstance(node, Union) else node
        match single:
            case Primitive(logical=Decimal(scale=scale)) | Fixed(logical=Decimal(scale=scale)):
                quoted = self._format == "NUMERIC"
                precision = cast("Any", kind).precision
                convert = _decimals(self.converters.make(node), scale, precision, quoted)
                return _DecimalTexts(plain, convert, nullable=nullable, quoted=quoted, allows_null=is_nullable(node))
            case Primitive(name="int" | "long", logical=logical) if logical in INTEGER_LOGICAL:
                convert = self.converters.make(single)
                if logical.startswith("time-"):
                    return _Deferred(plain, str, convert)
                return _TimeTexts(plain, logical, convert, nullable=nullable)
            case None if node != Union((NULL,)):
                return _Deferred(plain, msgspec.Raw, _raws(self.converters.make(node)))
            case MapOf() | Record() if self.type_of(single) is msgspec.Raw:
                return _Deferred(plain, msgspec.Raw, _raws(self.converters.make(node)))
        return plain

    def column_of_field(self, part: Field, kind: pa.DataType, *, nullable: bool) -> Column:
        """The column of a field, of an Arrow type."""
        column = self.column(part.type, kind, nullable=nullable)
        return _Filled(column, self.converters.default(part)) if self.fills_nulls(part) else column

    def _plain_column(self, node: Node, kind: pa.DataType, *, nullable: bool) -> Column:
        match node:
            case Primitive(logical=Decimal()) | Fixed(logical=Decimal()):
                return _Decimals(kind, nullable)
            case Primitive(name=name):
                return _primitive(name, kind, nullable=nullable)
            case Fixed(size=size):
                return _Fixed(kind, nullable, size)
            case Enum():
                return _Varying(kind, nullable)
            case ArrayOf(items=items):
                value = cast("pa.ListType[Any]", kind).value_field
                return _Lists(kind, nullable, self.column(items, value.type, nullable=value.nullable))
            case MapOf(values=values, keys=keys):
                value = cast("Any", kind).item_field
                names = self.column(keys, cast("Any", kind).key_type, nullable=False)
                return _Maps(kind, nullable, names, self.column(values, value.type, nullable=value.nullable))
            case Record(fields=fields):
                columns = [
                    self.column_of_field(f, kind.field(i).type, nullable=kind.field(i).nullable)
                    for i, f in enumerate(fields)
                ]
                return _Records(kind, nullable, columns, self._struct(node))
            case Union(branches=branches):
                others = [b for b in branches if b != NULL]
                if not others:
                    return _Nulls(kind, nullable)
                if only_branch(node) is not None:
                    return self._plain_column(others[0], kind, nullable=nullable)
                columns = [self._plain_column(b, kind.field(i).type, nullable=True) for i, b in enumerate(others)]
                return _Unions(kind, nullable, columns)


def is_plain(node: Record) -> bool:
    """Whether msgspec accepts the names of the fields."""
    return all(is_plain_name(part.name) for part in node.fields)


def _default(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str | bytes):
        return value
    return msgspec.field(default_factory=lambda: value)


_TYPES: Final[dict[str, Any]] = {
    "null": None,
    "boolean": bool,
    "double": float,
    "bytes": bytes,
    "string": str,
}


def _raws(convert: Convert) -> Convert:
    return lambda raw: convert(document(bytes(raw)))


def _decimals(convert: Convert, scale: int, precision: int, quoted: bool) -> Convert:
    """Unscaled values of raw decimals; with ``quoted``, a string has the digits."""
    bound = 10**precision

    def unscaled(raw: msgspec.Raw) -> Any:
        text = bytes(raw)
        digits = text[1:-1] if quoted and text.startswith(b'"') else text
        parsed = _DIGITS.fullmatch(digits)
        if parsed is not None:
            sign, whole, fraction = parsed.groups(b"")
            if len(fraction) <= scale:
                number = int(sign + whole + fraction.ljust(scale, b"0"))
                if -bound < number < bound:
                    return number
        return convert(document(text))

    return unscaled


class Column(ABC):
    """Builds an array of values.

    The values are those of :class:`ScalarConverters`, except that what is deferred may still be what msgspec decoded.
    """

    def __init__(self, kind: pa.DataType, nullable: bool) -> None:
        self.type = kind
        self._nullable = nullable

    @abstractmethod
    def array(self, values: list[Any], rows: Int64Array, wrong: set[int]) -> Array:
        """Build it.

        Args:
            values: None for null.
            rows: of the batch, of each value.
            wrong: gets the rows with a value that cannot be converted.
        """

    def _made(
        self, count: int, buffers: Sequence[pa.Buffer], valid: Bools | None, children: list[Array] | None = None
    ) -> Array:
        bits = None
        if valid is not None and self._nullable:
            bits = validity_buffer(valid)
        return cast("Array", pa.Array.from_buffers(self.type, count, cast("Any", [bits, *buffers]), children=children))


def _valid(values: list[Any]) -> Bools | None:
    """Which values are not None; None: all."""
    present = bytes([value is not None for value in values])
    return None if all(present) else np.frombuffer(present, np.bool_)


def _filled(values: list[Any], filling: Any) -> tuple[list[Any], Bools | None]:
    """Values with ``filling`` for None, and which were not None."""
    valid = _valid(values)
    if valid is None:
        return values, None
    return [filling if value is None else value for value in values], valid


class _Deferred(Column):
    """Converts what msgspec did not."""

    def __init__(self, plain: Column, raw: type, convert: Convert) -> None:
        super().__init__(plain.type, nullable=True)
        self._plain = plain
        self._raw = raw
        self._convert = convert

    def array(self, values: list[Any], rows: Int64Array, wrong: set[int]) -> Array:
        raw = self._raw
        if raw in (types := set(map(type, values))):
            if types <= {raw, type(None)} and (column := self._together(values)) is not None:
                return column
            convert = self._convert
            converted: list[Any] = []
            for value in values:
                try:
                    converted.append(convert(value) if type(value) is raw else value)
                except InvalidJsonError:
                    wrong.add(int(rows[len(converted)]))
                    converted.append(None)
            values = converted
        return self._plain.array(values, rows, wrong)

    def _together(self, values: list[Any]) -> Array | None:  # noqa: ARG002 - of most types they are not
        """The array of values that Arrow converts by one call; None: one of them is left to its converter."""
        return None


class _Texts(_Deferred):
    """Values that Arrow converts together, if all have a usual form."""

    def __init__(self, plain: Column, raw: type, convert: Convert, *, nullable: bool) -> None:
        super().__init__(plain, raw, convert)
        self._nullable = nullable

    def _together(self, values: list[Any]) -> Array | None:
        try:
            converted = self._converted(values)
        except (pa.ArrowException, UnicodeError):  # a number of too many digits, a time that is none
            return None
        if converted is None:
            return None
        bits, data = converted
        return cast("Array", pa.Array.from_buffers(self.type, len(values), [bits if self._nullable else None, data]))

    @abstractmethod
    def _converted(self, values: list[Any]) -> tuple[Any, Any] | None:
        """The buffers of the array, or None."""


class _DecimalTexts(_Texts):
    """Decimals that are numbers, or texts of digits."""

    def __init__(self, plain: Column, convert: Convert, *, nullable: bool, quoted: bool, allows_null: bool) -> None:
        super().__init__(plain, msgspec.Raw, convert, nullable=nullable)
        self._quoted = quoted
        self._allows_null = allows_null
        precision, scale = cast("Any", self.type).precision, cast("Any", self.type).scale
        whole = f"[0-9]{{1,{precision - scale}}}" if precision > scale else "0"
        # Arrow takes some numbers of more digits than its integers have for others.
        self._fits = f"^-?{whole}" + (rf"(\.[0-9]{{1,{scale}}})?$" if scale else "$")

    def _converted(self, values: list[Any]) -> tuple[Any, Any] | None:
        texts = [None if value is None else bytes(value) for value in values]
        if self._allows_null:
            texts = [None if text == b"null" else text for text in texts]
        digits: Any = pa.array(texts, pa.string())
        if self._quoted and pc.all(pc.starts_with(digits, '"')).as_py():
            digits = pc.utf8_slice_codeunits(digits, 1, -1)
        if not pc.all(pc.match_substring_regex(digits, self._fits)).as_py():
            return None
        bits, data = digits.cast(self.type).buffers()
        return bits, data


class _TimeTexts(_Texts):
    """Dates and timestamps of the most usual forms: without, or with three or six, digits of the fraction."""

    def __init__(self, plain: Column, logical: str, convert: Convert, *, nullable: bool) -> None:
        super().__init__(plain, str, convert, nullable=nullable)
        self._is_date, has_zone = logical == "date", logical.startswith("timestamp")
        self._form = _DATE_FORM if self._is_date else f"{_DATE_FORM}{_CLOCK_FORM}{'Z' if has_zone else ''}"
        self._read = pa.timestamp("us", "UTC") if has_zone else pa.timestamp("us")
        self._micros = _DAY_US if self._is_date else {"ms": 1000, "us": 1}[cast("Any", self.type).unit]

    def _converted(self, values: list[Any]) -> tuple[Any, Any] | None:
        texts: Any = pa.array(values, pa.string())
        if not pc.all(pc.match_substring_regex(texts, f"^{self._form}$")).as_py():
            return None
        read = texts.cast(self._read)
        micros = int64_values(read.view(pa.int64()).fill_null(0))
        times = micros // self._micros
        if (micros < _YEAR_ONE_US).any() or (times * self._micros != micros).any():
            return None
        return read.buffers()[0], pa.py_buffer(cast("Any", times.astype(np.int32) if self._is_date else times))


class _Filled(Column):
    """Has a default in the place of each null."""

    def __init__(self, column: Column, default: Any) -> None:
        super().__init__(column.type, nullable=True)
        self._column = column
        self._default = default

    def array(self, values: list[Any], rows: Int64Array, wrong: set[int]) -> Array:
        default = self._default
        return self._column.array([default if _is_null(value) else value for value in values], rows, wrong)


def _is_null(value: Any) -> bool:
    return value is None or (type(value) is msgspec.Raw and bytes(value) == b"null")


class _Leaf(Column):
    """Has values without others inside."""

    def array(self, values: list[Any], rows: Int64Array, wrong: set[int]) -> Array:
        del rows, wrong
        return self.leaf(values)

    @abstractmethod
    def leaf(self, values: list[Any]) -> Array:
        """Build the array; None is null."""


class _Nulls(_Leaf):
    def leaf(self, values: list[Any]) -> Array:
        return cast("Array", pa.nulls(len(values)))


class _Booleans(_Leaf):
    def leaf(self, values: list[Any]) -> Array:
        valid = None
        try:
            bytes_ = bytes(values)
        except TypeError:
            values, valid = _filled(values, False)
            bytes_ = bytes(values)
        bits = np.packbits(np.frombuffer(bytes_, np.uint8), bitorder="little")
        return self._made(len(values), [pa.py_buffer(bits.data)], valid)


class _Numbers(_Leaf):
    def __init__(self, kind: pa.DataType, nullable: bool, code: str) -> None:
        super().__init__(kind, nullable)
        self._code = code

    def leaf(self, values: list[Any]) -> Array:
        valid = None
        try:
            data = array(self._code, values)
        except TypeError:
            values, valid = _filled(values, 0)
            data = array(self._code, values)
        return self._made(len(values), [pa.py_buffer(data)], valid)


class _Decimals(_Leaf):
    def leaf(self, values: list[Any]) -> Array:
        values, valid = _filled(values, 0)
        width = cast("Any", self.type).byte_width
        data = b"".join([value.to_bytes(width, "little", signed=True) for value in values])
        return self._made(len(values), [pa.py_buffer(data)], valid)


class _Fixed(_Leaf):
    def __init__(self, kind: pa.DataType, nullable: bool, size: int) -> None:
        super().__init__(kind, nullable)
        self._filling = bytes(size)

    def leaf(self, values: list[Any]) -> Array:
        values, valid = _filled(values, self._filling)
        return self._made(len(values), [pa.py_buffer(b"".join(values))], valid)


class _Varying(_Leaf):
    """Strings and bytes."""

    def __init__(self, kind: pa.DataType, nullable: bool) -> None:
        super().__init__(kind, nullable)
        self._empty: str | bytes = "" if pa.types.is_string(kind) else b""

    def leaf(self, values: list[Any]) -> Array:
        valid = None
        try:
            data = self._empty.join(values)
        except TypeError:
            values, valid = _filled(values, self._empty)
            data = self._empty.join(values)
        if isinstance(data, str):
            encoded = data.encode()
            if len(encoded) != len(data):
                values = [value.encode() for value in values]
            data = encoded
        return self._made(len(values), [_offsets(values), pa.py_buffer(data)], valid)


def _offsets(values: Sequence[Any]) -> pa.Buffer:
    """Offsets of values behind each other."""
    ends = np.zeros(len(values) + 1, np.int32)
    np.cumsum(np.fromiter(map(len, values), np.int32, len(values)), out=ends[1:])
    return pa.py_buffer(ends.data)


class _Lists(Column):
    def __init__(self, kind: pa.DataType, nullable: bool, items: Column) -> None:
        super().__init__(kind, nullable)
        self._items = items

    def array(self, values: list[Any], rows: Int64Array, wrong: set[int]) -> Array:
        values, valid = _filled(values, ())
        inner = np.repeat(rows, np.fromiter(map(len, values), np.int64, len(values)))
        items = self._items.array(list(chain.from_iterable(values)), inner, wrong)
        return self._made(len(values), [_offsets(values)], valid, [items])


class _Maps(Column):
    def __init__(self, kind: pa.DataType, nullable: bool, keys: Column, values: Column) -> None:
        super().__init__(kind, nullable)
        fields = cast("Any", kind)
        self._entry = pa.struct([fields.key_field, fields.item_field])
        self._keys = keys
        self._values = values

    def array(self, values: list[Any], rows: Int64Array, wrong: set[int]) -> Array:
        values, valid = _filled(values, {})
        inner = np.repeat(rows, np.fromiter(map(len, values), np.int64, len(values)))
        keys = self._keys.array(list(chain.from_iterable(values)), inner, wrong)
        items = self._values.array([item for entries in values for item in entries.values()], inner, wrong)
        entries = pa.Array.from_buffers(self._entry, len(keys), [None], children=[keys, items])
        return self._made(len(values), [_offsets(values)], valid, [cast("Array", entries)])


class _Records(Column):
    def __init__(self, kind: pa.DataType, nullable: bool, fields: list[Column], struct: type[msgspec.Struct]) -> None:
        super().__init__(kind, nullable)
        self._fields = [(attrgetter(f"f{number}"), column) for number, column in enumerate(fields)]
        self._blank = struct(**{f"f{number}": None for number in range(len(fields))})

    def array(self, values: list[Any], rows: Int64Array, wrong: set[int]) -> Array:
        values, valid = _filled(values, self._blank)
        children = [column.array(list(map(get, values)), rows, wrong) for get, column in self._fields]
        return self._made(len(values), [], valid, children)


class _Unions(Column):
    """Structs with one field per branch."""

    def __init__(self, kind: pa.DataType, nullable: bool, branches: list[Column]) -> None:
        super().__init__(kind, nullable)
        self._branches = branches

    def array(self, values: list[Any], rows: Int64Array, wrong: set[int]) -> Array:
        values, valid = _filled(values, Branch(-1, None))
        children = [
            branch.array([v.value if v.number == number else None for v in values], rows, wrong)
            for number, branch in enumerate(self._branches)
        ]
        return self._made(len(values), [], valid, children)


def _primitive(name: str, kind: pa.DataType, *, nullable: bool) -> Column:
    match name:
        case "null":
            return _Nulls(kind, nullable)
        case "boolean":
            return _Booleans(kind, nullable)
        case "bytes" | "string":
            return _Varying(kind, nullable)
    return _Numbers(kind, nullable, {"int": "i", "long": "q", "float": "f", "double": "d"}[name])
