"""How the types of columns are called in a dialect."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

import pyarrow as pa

__all__ = ["NoTypeError", "TypeNames"]

_MOST_DIGITS: Final = 38


class NoTypeError(Exception):
    """A dialect has no type for some values; the text is the reason."""


class TypeNames(ABC):
    """The types of one engine.

    Attributes:
        engine: its name, for messages.
        decimal: the name of decimals.
        simple: names of types without others in them, by what :func:`_kind` calls them.
    """

    engine: ClassVar[str]
    decimal: ClassVar[str] = "decimal"
    simple: ClassVar[Mapping[str, str]]

    def of(self, kind: Any, path: str) -> str:
        """The name of a type.

        Args:
            kind: the type.
            path: of the column, or of the part of one, for errors.

        Raises:
            NoTypeError: there is none.
        """
        if isinstance(kind, pa.StructType):
            return self.struct([(self.checked(f.name, path), self.of(f.type, f"{path}.{f.name}")) for f in kind])
        if isinstance(kind, pa.ListType):
            return self.list(self.of(kind.value_type, f"{path}[]"))
        if isinstance(kind, pa.MapType):
            return self.map(self.of(kind.key_type, f"{path} (key)"), self.of(kind.item_type, f"{path}[]"))
        if pa.types.is_decimal(kind):
            if kind.precision > _MOST_DIGITS:
                raise NoTypeError(
                    f"{path} is a decimal of {kind.precision} digits, and those of {self.engine} have {_MOST_DIGITS}"
                )
            return f"{self.decimal}({kind.precision}, {kind.scale})"
        name = _kind(kind)
        if name not in self.simple:
            raise NoTypeError(f"{path} is {_CALLED.get(name, str(kind))}, for which {self.engine} has no type")
        return self.simple[name]

    def checked(self, name: str, path: str) -> str:  # noqa: ARG002 - those of some engines are restricted
        """The name of a field inside of a column, if the engine can have it.

        Raises:
            NoTypeError: it cannot.
        """
        return name

    @abstractmethod
    def struct(self, fields: Sequence[tuple[str, str]]) -> str:
        """The name of a type of fields, from their names and types."""

    @abstractmethod
    def list(self, item: str) -> str:
        """The name of a type of lists."""

    @abstractmethod
    def map(self, key: str, item: str) -> str:
        """The name of a type of maps."""


_CALLED: Final = {
    "null": "of the type null",
    "time": "a time of day",
    "document": "JSON of any shape",
}


def _kind(kind: Any) -> str:
    types = pa.types
    if types.is_large_string(kind):
        return "document"
    if types.is_timestamp(kind):
        return "local timestamp" if kind.tz is None else "timestamp"
    if types.is_time(kind):
        return "time"
    if types.is_date32(kind):
        return "date"
    return "binary" if types.is_fixed_size_binary(kind) else str(kind)
