"""Checks of one Avro datum after the other, for what has too few rows, or a type too deep, for arrays."""

from __future__ import annotations

from collections.abc import Callable
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


class InvalidDatumError(Exception):
    """The bytes are not a datum of the schema."""


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


def integer(datum: Datum, most_bytes: int = LONG_BYTES) -> int:
    """The next long of not more than ``most_bytes``."""
    data = datum.data
    start = position = datum.position
    byte = data[position]
    value = byte & 0x7F
    while byte & 0x80:
        position += 1
        if position - start == most_bytes:
            raise InvalidDatumError
        byte = data[position]
        value |= (byte & 0x7F) << 7 * (position - start)
    if value >= 1 << 64:
        raise InvalidDatumError
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
            raise InvalidDatumError
        end = datum.position + size
    if least:
        if count * least > len(datum.data) - datum.position:
            raise InvalidDatumError
    else:
        datum.empty_items -= count
        if datum.empty_items < 0:
            raise InvalidDatumError
    return count, end


def check_block_end(datum: Datum, end: int | None) -> None:
    """Raise InvalidDatumError if a block gave another end, see :func:`block_start`."""
    if end not in (None, datum.position):
        raise InvalidDatumError


def _length(datum: Datum) -> int:
    length = integer(datum)
    if not 0 <= length <= len(datum.data) - datum.position:
        raise InvalidDatumError
    return length


def _take(datum: Datum, length: int) -> bytes:
    taken = datum.data[datum.position : datum.position + length]
    if len(taken) != length:
        raise InvalidDatumError
    datum.position += length
    return taken


def _null(datum: Datum) -> None:
    del datum


def _boolean(datum: Datum) -> None:
    if _take(datum, 1) not in (b"\0", b"\1"):
        raise InvalidDatumError


def _between(low: int, high: int, most_bytes: int = INT_BYTES) -> Check:
    def check(datum: Datum) -> None:
        if not low <= integer(datum, most_bytes) < high:
            raise InvalidDatumError

    return check


def _bytes(datum: Datum) -> None:
    length = _length(datum)
    datum.position += length


def _string(datum: Datum) -> None:
    try:
        _take(datum, _length(datum)).decode()
    except UnicodeDecodeError:
        raise InvalidDatumError from None


def _fixed(size: int) -> Check:
    def check(datum: Datum) -> None:
        if size > len(datum.data) - datum.position:
            raise InvalidDatumError
        datum.position += size

    return check


def _decimal(precision: int, size: int | None) -> Check:
    bound = 10**precision

    def check(datum: Datum) -> None:
        digits = _take(datum, _length(datum) if size is None else size)
        if not -bound < int.from_bytes(digits, signed=True) < bound:
            raise InvalidDatumError

    return check


def _items(parts: list[Check], least: int) -> Check:
    def check(datum: Datum) -> None:
        count, end = block_start(datum, least)
        while count:
            if least:
                for _ in range(count):
                    for part in parts:
                        part(datum)
            check_block_end(datum, end)
            count, end = block_start(datum, least)

    return check


def _record(fields: list[Check]) -> Check:
    def check(datum: Datum) -> None:
        for part in fields:
            part(datum)

    return check


def _union(branches: list[Check]) -> Check:
    def check(datum: Datum) -> None:
        index = integer(datum, INT_BYTES)
        if not 0 <= index < len(branches):
            raise InvalidDatumError
        branches[index](datum)

    return check


def _limited(part: Check) -> Check:
    def check(datum: Datum) -> None:
        if datum.depth == _DEEPEST:
            raise InvalidDatumError
        datum.depth += 1
        part(datum)
        datum.depth -= 1

    return check


_PRIMITIVES: Final[dict[str, Check]] = {
    "null": _null,
    "boolean": _boolean,
    "int": _between(-(2**31), 2**31),
    "long": _between(-(2**63), 2**63, LONG_BYTES),
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
            case Primitive(logical=Decimal(precision=precision)):
                return _decimal(precision, None)
            case Fixed(size=size, logical=Decimal(precision=precision)):
                return _decimal(precision, size)
            case Primitive(name=name, logical=("time-millis" | "time-micros") as logical):
                return _between(0, TIMES_OF_DAY[logical], INT_BYTES if name == "int" else LONG_BYTES)
            case Primitive(name=name):
                return _PRIMITIVES[name]
            case Fixed(size=size):
                return _fixed(size)
            case Enum(symbols=symbols):
                return _between(0, len(symbols))
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
            fields: list[Check] = []
            # Known before its fields are, which may contain it.
            self._records[id(node)] = _record(fields)
            fields += [self.compile(f.type) for f in node.fields]
        return self._records[id(node)]
