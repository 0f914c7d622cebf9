"""Mappings that a DAG author writes, turned into settings; an error lists what there is, and the nearest name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec
from msgspec import inspect

from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.messages import either, or_nearest

__all__ = ["parse_settings", "require_type", "unknown_value"]

T = TypeVar("T")

_WORDS: Final[Mapping[type, str]] = {
    int: "a whole number",
    float: "a number",
    str: "text",
    bool: "True or False",
    dict: "a mapping",
    type(None): "None",
}


def parse_settings(name: str, kind: type[T], value: T | Mapping[str, Any] | str) -> T:
    """Settings of a parameter.

    Args:
        name: of the parameter.
        kind: of the settings: a ``Struct`` or a dataclass.
        value: settings, which are checked, a mapping of their fields, or text, which is their ``kind``.

    Raises:
        ConfigurationError: a field is not known, missing, or has another type or value than it may have.
    """
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType | inspect.DataclassType)
    fields = {field.name: field for field in info.fields}
    types = get_type_hints(kind)

    if isinstance(value, str) and "kind" in fields:
        require_type(name, value, types["kind"])
        value = {"kind": value}
    elif isinstance(value, kind):
        # Neither a Struct nor a dataclass checks types when it is made.
        for field in fields:
            require_type(f"{name}: {field}", getattr(value, field), types[field])
        return value
    if not isinstance(value, Mapping):
        short = "a name, " if "kind" in fields else ""
        raise ConfigurationError(f"{name}={value!r} must be {short}a mapping of settings or {_article(kind.__name__)}")
    for field, said in value.items():
        if field not in fields:
            raise ConfigurationError(
                f"{name} has no {field!r}{or_nearest(field, fields, 'it has ' + ', '.join(fields))}"
            )
        require_type(f"{name}: {field}", said, types[field])
    for field, described in fields.items():
        if described.required and field not in value:
            raise ConfigurationError(f"{name} has no {field!r}, which must be {_wanted(types[field])}")
    return kind(**value)


def require_type(what: str, value: object, wanted: Any, unit: str = "") -> None:
    """Refuse a value of another type.

    Args:
        what: names it.
        value: it.
        wanted: a type, a union or a ``Literal``.
        unit: of a number.
    """
    try:
        msgspec.convert(value, wanted)
    except msgspec.ValidationError:
        raise ConfigurationError(_wrong(f"{what}={value!r}", value, wanted, unit)) from None


def _wrong(what: str, value: object, wanted: Any, unit: str) -> str:
    if get_origin(wanted) is Literal and isinstance(value, str):
        return unknown_value(what, value, get_args(wanted))
    return f"{what} must be {_wanted(wanted, unit)}"


def unknown_value(what: str, value: object, choices: Sequence[str]) -> str:
    """What to say about a value that is none of the choices.

    Args:
        what: names it, and shows it.
        value: it.
        choices: all there are.
    """
    return f"{what} is not known{or_nearest(value, choices, f'use {either(choices)}')}"


def _wanted(wanted: Any, unit: str = "") -> str:
    if get_origin(wanted) is Literal:
        return either(get_args(wanted))
    words = [
        f"{_WORDS[possible]} {unit}".rstrip() if possible in (int, float) else _WORDS[possible]
        for possible in get_args(wanted) or (wanted,)
    ]
    return " or ".join(words)


def _article(noun: str) -> str:
    return f"{'an' if noun[:1].lower() in 'aeiou' else 'a'} {noun}"
