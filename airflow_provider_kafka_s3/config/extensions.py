"""Classes of other packages: how a DAG names them, and what a plan has of them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal

from msgspec import Meta, structs

from airflow_provider_kafka_s3.config.values import Value, require

__all__ = ["ImportPath", "Options", "Pinned", "RecordPart", "check_import_path", "checked_options", "hash_of_class"]

ImportPath = Annotated[str, Meta(min_length=1, examples=["mycompany_layouts.tenant:TenantPartitioner"])]
"""Module and class, with a colon between them."""

Options = dict[str, Any]
"""Keyword arguments of a class, as JSON has them."""

RecordPart = Literal["key", "headers", "timestamp"]
"""What a class may look at beside offset and value."""

_IMPORT_PATH: Final = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


class Pinned(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a class declared when the plan was made.

    Attributes:
        version: of the class.
        reads: parts of records that it looks at.
        fields: of values, that it looks at.
    """

    version: Annotated[str, Meta(min_length=1)]
    reads: tuple[RecordPart, ...] = ()
    fields: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        structs.force_setattr(self, "reads", tuple(self.reads))
        structs.force_setattr(self, "fields", tuple(self.fields))
        for name in self.fields:
            require(all(name.split(".")), f"fields: {name!r} is no name of a field, such as 'user.address.city'")


def check_import_path(import_path: str) -> None:
    """Refuse a text that names no class of a module.

    Raises:
        ConfigurationError: it has no colon, or other parts than names of Python.
    """
    require(
        _IMPORT_PATH.fullmatch(import_path) is not None,
        f"import_path={import_path!r} is no module and class with a colon between them, such as "
        f"'mycompany_layouts.tenant:TenantPartitioner'",
    )


def hash_of_class(import_path: str, options: Options) -> int:
    """The hash of a class of another package with its options, which are a dict and have none."""
    return hash((import_path, json.dumps(options, sort_keys=True)))


def checked_options(options: Mapping[str, Any]) -> Options:
    """A copy of options that a plan can hold.

    Raises:
        ConfigurationError: they hold other values than texts, whole numbers of 64 bits, booleans, None, lists and
            mappings, or a name is no name of an argument.
    """
    for name in options:
        require(name.isidentifier(), f"options: {name!r} is no name of a keyword argument")
    copied: Options = _copied("options", options)
    return copied


def _copied(where: str, value: object) -> Any:
    match value:
        case None | bool() | str():
            return value
        case int() if -(2**63) <= value < 2**63:
            return value
        case Mapping() if all(isinstance(name, str) for name in value):
            return {name: _copied(f"{where}[{name!r}]", item) for name, item in value.items()}
        case Sequence() if not isinstance(value, bytes | bytearray):
            return [_copied(f"{where}[{i}]", item) for i, item in enumerate(value)]
    require(
        False,
        f"{where}={value!r} cannot be in a plan: use texts, whole numbers of 64 bits, True, False, None, lists and "
        f"mappings by text; a number with a fraction is a text such as '0.5'",
    )
    return None
