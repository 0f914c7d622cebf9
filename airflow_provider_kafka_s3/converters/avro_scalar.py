"""Checks of one Avro datum after the other, for what has too few rows, or a type too deep, for arrays."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Context
from decimal import Decimal as Number
from typing import Final, TypeAlias

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
    is_recursive,
)

__all__ = [
    "INT_BYTES",
    "LONG_BYTES",
    "MOST_EMPTY_ITEMS",
    "TIMES_OF_DAY",
    "Check",
    "Datum",
    "InvalidDatumError",
    "block_start",
    "check_block_end",
    "ends_of",
    "fault_of",
    "least_bytes",
    "scalar_check",
]

INT_BYTES: Final = 5
"""The longest int. With zeros behind it more bytes could be the same number, but Avro for Java refuses them, and a file
that has them ends there for its readers."""

LONG_BYTES: Final = 10
"""The longest long."""

MOST_EMPTY_ITEMS: Final = 1000
"""Items without bytes (nulls, records without fields) that the arrays of one datum may have together: a count of them
is not bounded by the length of the datum."""

TIMES_OF_DAY: Final = {"time-millis": 86_400_000, "time-micros": 86_400_000_000}
"""Logical types of times of day, and the first value beyond the day."""

_DEEPEST: Final = 200
"""Records, unions and arrays inside each other, of a recursive schema: Python's stack is bounded."""

_LONG: Final = 2**40
"""Longer than any datum."""

_MOST_BITS: Final = 512
_DIGITS: Final = Context(prec=200)
"""Of decimals in reasons, at most."""

_CUT_OFF: Final = "goes on beyond the end of the value"


class InvalidDatumError(Exception):
    """The bytes are not a datum of the schema, or one that no column and no file can have.

    Attributes:
        reason: what is wrong.
        is_avro: whether Avro allows the datum, which is out of a range of ours.
        path: the fields around it, from the inside to the outside.
    """

    def __init__(self, reason: str, *, is_avro: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.is_avro = is_avro
        self.path: list[str] = []

    def __str__(self) -> str:
        path = "".join(reversed(self.path)).removeprefix(".")
        return f"field {path} {self.reason}" if path else f"it {self.reason}"


class Datum:
    """Bytes that are read.

    Attributes:
        data: the bytes of one datum, to their end.
        position: of the next byte.
        empty_items: items without bytes that may still follow.
        depth: records, unions and arrays around the current position.
    """

    __slots__ = ("data", "depth", "empty_items", "position")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0
        self.empty_items = MOST_EMPTY_ITEMS
        self.depth = 0


Check: TypeAlias = Callable[[Datum], None]
"""Moves behind a value. Raises InvalidDatumError or IndexError if the bytes are not such a value."""


def scalar_check(node: Node) -> Check:
    """The check of a type; also of a recursive one."""
    return _Compiler(limited=is_recursive(node)).compile(node)


def fault_of(check: Check, data: bytes) -> InvalidDatumError | None:
    """Why bytes are not one datum of a type; None if they are.

    Args:
        check: of the type.
        data: all bytes of the datum.
    """
    try:
        ends_of(check, data, 1)
    except InvalidDatumError as e:
        return e
    return None


def ends_of(check: Check, data: bytes, count: int) -> list[int]:
    """The ends of datums that follow one another.

    Args:
        check: of their type.
        data: their bytes.
        count: how many there are.

    Raises:
        InvalidDatumError: the bytes are not so many datums.
    """
    datum, ends = Datum(data), []
    try:
        for _ in range(count):
            datum.empty_items = MOST_EMPTY_ITEMS
            check(datum)
            ends.append(datum.position)
    except IndexError:
        raise InvalidDatumError(_CUT_OFF) from None
    if (left := len(data) - datum.position) != 0:
        raise InvalidDatumError(f"goes on for {left:,} bytes behind its end")
    return ends


def integer(datum: Datum, most_bytes: int = LONG_BYTES) -> int:
    """The next long of not more than ``most_bytes``."""
    data = datum.data
    start = position = datum.position
    byte = data[position]
    value = byte & 0x7F
    while byte & 0x80:
        position += 1
        if position - start == most_bytes:
            raise InvalidDatumError(f"has a number of more than {most_bytes} bytes")
        byte = data[position]
        value |= (byte & 0x7F) << 7 * (position - start)
    if value >= 1 << 64:
        raise InvalidDatumError("has a number of more than 64 bits")
    datum.position = position + 1
    return (value >> 1) ^ -(value & 1)


def block_start(datum: Datum, least: int) -> tuple[int, int | None]:
    """Number of items of the next block of an array or map, and the position of its end, None if it does not give it.

    Readers that skip a field go to that end, whatever the items are.

    Args:
        datum: where the block begins.
        least: bytes of the shortest item.
    """
    count, end = integer(datum), None
    if count < 0:
        count = -count
        size = integer(datum)
        if size < 0:
            raise InvalidDatumError("has a block of a negative size")
        end = datum.position + size
    if least:
        if count * least > len(datum.data) - datum.position:
            raise InvalidDatumError(f"has a block of {count} items, {_CUT_OFF}")
    else:
        datum.empty_items -= count
        if datum.empty_items < 0:
            total = MOST_EMPTY_ITEMS - datum.empty_items
            raise InvalidDatumError(
                f"has {total} items without bytes, such as nulls, with those before it; {MOST_EMPTY_ITEMS} are read at "
                f"most",
                is_avro=True,
            )
    return count, end


def check_block_end(datum: Datum, end: int | None) -> None:
    """Raise InvalidDatumError if a block gave another end, see :func:`block_start`."""
    if end not in (None, datum.position):
        raise InvalidDatumError("has a block of another size than it says")


def _length(datum: Datum) -> int:
    length = integer(datum)
    if not 0 <= length <= len(datum.data) - datum.position:
        raise InvalidDatumError(f"has a length of {length}, and {len(datum.data) - datum.position} bytes follow")
    return length


def _take(datum: Datum, length: int) -> bytes:
    taken = datum.data[datum.position : datum.position + length]
    if len(taken) != length:
        raise InvalidDatumError(_CUT_OFF)
    datum.position += length
    return taken


def _null(datum: Datum) -> None:
    del datum


def _boolean(datum: Datum) -> None:
    if _take(datum, 1) not in (b"\0", b"\1"):
        raise InvalidDatumError("has a boolean that is neither 0 nor 1")


def _between(low: int, high: int, what: str, most_bytes: int = INT_BYTES, *, is_avro: bool = False) -> Check:
    def check(datum: Datum) -> None:
        if not low <= (number := integer(datum, most_bytes)) < high:
            raise InvalidDatumError(f"has {what} {number}, outside {low} to {high - 1}", is_avro=is_avro)

    return check


def _bytes(datum: Datum) -> None:
    length = _length(datum)
    datum.position += length


def _string(datum: Datum) -> None:
    try:
        _take(datum, _length(datum)).decode()
    except UnicodeDecodeError:
        raise InvalidDatumError("has a text that is not UTF-8") from None


def _fixed(size: int) -> Check:
    def check(datum: Datum) -> None:
        if size > len(datum.data) - datum.position:
            raise InvalidDatumError(_CUT_OFF)
        datum.position += size

    return check


def _decimal_text(unscaled: int, decimal: Decimal) -> str:
    # Python refuses to print integers of thousands of digits.
    if unscaled.bit_length() > _MOST_BITS:
        return f"of {unscaled.bit_length()} bits"
    return f"{Number(unscaled).scaleb(-decimal.scale, _DIGITS):f}"


def _decimal(decimal: Decimal, size: int | None) -> Check:
    bound = 10**decimal.precision

    def check(datum: Datum) -> None:
        digits = _take(datum, _length(datum) if size is None else size)
        if not -bound < (unscaled := int.from_bytes(digits, signed=True)) < bound:
            raise InvalidDatumError(
                f"has the decimal {_decimal_text(unscaled, decimal)}, which has more digits than its precision of "
                f"{decimal.precision}",
                is_avro=True,
            )

    return check


def _items(parts: list[Check], least: int) -> Check:
    def check(datum: Datum) -> None:
        count, end = block_start(datum, least)
        while count:
            if least:
                try:
                    for _ in range(count):
                        for part in parts:
                            part(datum)
                except InvalidDatumError as e:
                    e.path.append("[*]")
                    raise
            check_block_end(datum, end)
            count, end = block_start(datum, least)

    return check


def _record(fields: list[tuple[str, Check]]) -> Check:
    def check(datum: Datum) -> None:
        name = ""
        try:
            for name, part in fields:  # noqa: B007 - of the field that is not valid
                part(datum)
        except InvalidDatumError as e:
            e.path.append(f".{name}")
            raise
        except IndexError:
            cut_off = InvalidDatumError(_CUT_OFF)
            cut_off.path.append(f".{name}")
            raise cut_off from None

    return check


def _union(branches: list[Check]) -> Check:
    def check(datum: Datum) -> None:
        index = integer(datum, INT_BYTES)
        if not 0 <= index < len(branches):
            raise InvalidDatumError(f"has the type {index} of a union of {len(branches)}")
        branches[index](datum)

    return check


def _limited(part: Check) -> Check:
    def check(datum: Datum) -> None:
        if datum.depth == _DEEPEST:
            raise InvalidDatumError(f"nests records, unions and arrays deeper than {_DEEPEST}", is_avro=True)
        datum.depth += 1
        part(datum)
        datum.depth -= 1

    return check


_PRIMITIVES: Final[dict[str, Check]] = {
    "null": _null,
    "boolean": _boolean,
    "int": _between(-(2**31), 2**31, "the int"),
    "long": _between(-(2**63), 2**63, "the long", LONG_BYTES),
    "float": _fixed(4),
    "double": _fixed(8),
    "bytes": _bytes,
    "string": _string,
}


def least_bytes(node: Node, known: dict[int, int] | None = None) -> int:
    """Bytes of the shortest value, or a lower bound of them."""
    known = {} if known is None else known
    match node:
        case Primitive(name=name):
            return {"null": 0, "float": 4, "double": 8}.get(name, 1)
        case Fixed(size=size):
            return size
        case Record(fields=fields):
            if id(node) not in known:
                known[id(node)] = 1  # A record directly inside itself has no values.
                known[id(node)] = min(sum(least_bytes(f.type, known) for f in fields), _LONG)
            return known[id(node)]
    return 1


class _Compiler:
    def __init__(self, *, limited: bool) -> None:
        self._limit = limited  # the depth of data
        self._records: dict[int, Check] = {}

    def compile(self, node: Node) -> Check:
        if self._limit and isinstance(node, ArrayOf | MapOf | Union | Record):
            return _limited(self._compile(node))
        return self._compile(node)

    def _compile(self, node: Node) -> Check:
        match node:
            case Primitive(logical=Decimal() as decimal):
                return _decimal(decimal, None)
            case Fixed(size=size, logical=Decimal() as decimal):
                return _decimal(decimal, size)
            case Primitive(name=name, logical=("time-millis" | "time-micros") as logical):
                most_bytes = INT_BYTES if name == "int" else LONG_BYTES
                return _between(0, TIMES_OF_DAY[logical], f"the {logical}", most_bytes, is_avro=True)
            case Primitive(name=name):
                return _PRIMITIVES[name]
            case Fixed(size=size):
                return _fixed(size)
            case Enum(symbols=symbols):
                return _between(0, len(symbols), "the symbol")
            case ArrayOf(items=items):
                return _items([self.compile(items)], least_bytes(items))
            case MapOf(values=values):
                return _items([_string, self.compile(values)], 1 + least_bytes(values))
            case Union(branches=branches):
                return _union([self.compile(b) for b in branches])
            case Record():
                return self._record(node)

    def _record(self, node: Record) -> Check:
        if id(node) not in self._records:
            fields: list[tuple[str, Check]] = []
            # Known before its fields are, which may contain it.
            self._records[id(node)] = _record(fields)
            fields += [(f.name, self.compile(f.type)) for f in node.fields]
        return self._records[id(node)]
