"""Fields of Arrow's types, and those inside them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

__all__ = ["names_alike", "parts_of"]


def parts_of(kind: pa.DataType) -> list[pa.Field[Any]]:
    """The fields of a type that has others in it."""
    return [kind.field(n) for n in range(kind.num_fields)]


def names_alike(fields: Iterable[pa.Field[Any]], path: str = "") -> Iterator[str]:
    """The names of columns, and of parts of them, that differ in case only.

    Args:
        fields: beside each other.
        path: of the column around them, with a dot at its end.
    """
    by_name: dict[str, list[pa.Field[Any]]] = {}
    for field in fields:
        by_name.setdefault(field.name.lower(), []).append(field)
    for namesakes in by_name.values():
        if len(namesakes) > 1:
            yield " and ".join(repr(f"{path}{field.name}") for field in namesakes)
        for field in namesakes:
            yield from names_alike(parts_of(field.type), f"{path}{field.name}.")
