"""Values: groups of settings that are checked when they are made.

Types and bounds are those of the annotations (``msgspec.Meta``), whether a value is made by its constructor, from a
mapping of a DAG or from a stored document. In a ``Meta``, ``description`` is the unit of a number, ``examples`` are for
text, and ``extra={"why": …}`` is the reason for a bound.
"""

from __future__ import annotations

import functools
import unicodedata
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec
from msgspec import inspect

from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.messages import either, or_nearest
from airflow_provider_kafka_s3.structs import describing_types

__all__ = [
    "TAG",
    "Value",
    "make_value",
    "reject_control_characters",
    "require",
    "require_fields",
    "require_type",
    "unknown_value",
]

TAG: Final = "kind"
"""Name of the field that distinguishes the classes of a union, in mappings and documents."""

V = TypeVar("V", bound="Value")

_NATIVE: Final = (timedelta,)
"""Types whose text form is for mappings and documents only."""


class Value(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A frozen group of settings.

    Raises:
        ConfigurationError: a field has another type than its annotation, or is out of its bounds.
    """

    def __post_init__(self) -> None:
        for name, wanted in _fields(type(self)).items():
            require_type(name, getattr(self, name), wanted)


def make_value(name: str, kinds: Sequence[type[V]], given: object) -> V:
    """The value of a parameter.

    Args:
        name: of the parameter.
        kinds: the classes it may be of; several have tags.
        given: a value, which is returned as it is; a mapping of its fields; the tag of a class with tags; None for a
            class without tags: its defaults.

    Raises:
        ConfigurationError: a field is not known, missing, or has another type or value than it may have.
    """
    for kind in kinds:
        if isinstance(given, kind):
            return given
    tags = {str(kind.__struct_config__.tag): kind for kind in kinds if kind.__struct_config__.tag is not None}
    settings: object = {} if given is None and not tags else given
    if isinstance(given, str) and tags:
        if given not in tags:
            raise ConfigurationError(unknown_value(f"{name}={given!r}", given, list(tags)))
        settings = {TAG: given}
    if not isinstance(settings, Mapping):
        short = f"{either(tags)}, " if tags else ""
        classes = " or ".join(kind.__name__ for kind in kinds)
        raise ConfigurationError(f"{name}={given!r} must be {short}a mapping of settings or {_article(classes)}")
    if not tags:
        return _from_mapping(name, name, kinds[0], settings, {})
    if TAG not in settings:
        raise ConfigurationError(f"{name} has no {TAG!r}, which must be {either(tags)}")
    tag = settings[TAG]
    if not isinstance(tag, str) or tag not in tags:
        raise ConfigurationError(f"{name}: {unknown_value(f'{TAG}={tag!r}', tag, list(tags))}")
    fields = {field: value for field, value in settings.items() if field != TAG}
    return _from_mapping(name, f"{name}: {TAG} {tag!r}", tags[tag], fields, tags)


def _from_mapping(name: str, what: str, kind: type[V], given: Mapping[Any, Any], tags: Mapping[str, type[Value]]) -> V:
    """A value of one class; ``what`` names it in errors, ``tags`` are all classes that it could have been of."""
    known = _fields(kind)
    for field in given:
        if field not in known:
            others = [tag for tag, other in tags.items() if field in _fields(other)]
            what_is = f"it has {', '.join([TAG, *known] if tags else known)}"
            belongs = f", which belongs to {either(others)}" if others else ""
            hint = f"; {what_is}" if others else or_nearest(field, known, what_is)
            raise ConfigurationError(f"{what} has no {field!r}{belongs}{hint}")
    required = {field.name for field in msgspec.structs.fields(kind) if field.required}
    for field, wanted in known.items():
        if field in required and field not in given:
            raise ConfigurationError(f"{what} needs {field!r}, which must be {_words_of(wanted)}")
    converted = {field: _converted(f"{name}: {field}", value, known[field]) for field, value in given.items()}
    try:
        return kind(**converted)
    except ConfigurationError as e:
        raise ConfigurationError(f"{name}: {e}") from None


def require(condition: bool, message: str) -> None:
    """Raise ConfigurationError with this message unless the condition holds."""
    if not condition:
        raise ConfigurationError(message)


def reject_control_characters(name: str, value: str, where: str = "object key") -> None:
    """Refuse text with characters that keys, or what else it is for, should not have."""
    bad = [c for c in value if unicodedata.category(c) in ("Cc", "Cs", "Co", "Cn")]
    require(not bad, f"{name}={value!r} has characters that no {where} should have: {bad!r}; remove them")


def require_type(what: str, value: object, wanted: Any) -> None:
    """Refuse a value of another type, or out of bounds.

    Args:
        what: names it.
        value: it.
        wanted: a type, a union or a ``Literal``; bounds and units are those of its ``msgspec.Meta``.

    Raises:
        ConfigurationError: the message describes the type.
    """
    try:
        with describing_types:
            msgspec.convert(value, wanted, builtin_types=_NATIVE)
    except msgspec.ValidationError:
        raise ConfigurationError(_wrong(what, value, wanted)) from None


def require_fields(kind: type[Value], given: Mapping[str, object]) -> None:
    """Check some fields of a value before all of them are known; see :func:`require_type`."""
    for name, value in given.items():
        require_type(name, value, _fields(kind)[name])


def unknown_value(what: str, value: object, choices: Sequence[str]) -> str:
    """What to say about a value that is none of the choices.

    Args:
        what: names it, and shows it.
        value: it.
        choices: all there are.
    """
    return f"{what} is not known{or_nearest(value, choices, f'use {either(choices)}')}"


@functools.cache
def _fields(kind: type[Value]) -> Mapping[str, Any]:
    """The types of the fields by name."""
    hints = get_type_hints(kind, include_extras=True)
    return {name: hints[name] for name in kind.__struct_fields__}


def _converted(what: str, value: object, wanted: Any) -> Any:
    try:
        with describing_types:
            return msgspec.convert(value, wanted)
    except msgspec.ValidationError:
        raise ConfigurationError(_wrong(what, value, wanted)) from None


def _wrong(what: str, value: object, wanted: Any) -> str:
    choices = [
        choice for kind in (wanted, *get_args(wanted)) if get_origin(kind) is Literal for choice in get_args(kind)
    ]
    if choices and isinstance(value, str):
        return unknown_value(f"{what}={value!r}", value, choices)
    if get_origin(wanted) is Literal:
        return f"{what}={value!r} must be {either(choices)}"  # in the order of the declaration
    described = inspect.type_info(wanted)
    return f"{what}={value!r} must be {_words(described)}{_reason(described)}"


def _words_of(wanted: Any) -> str:
    return _words(inspect.type_info(wanted))


def _words(described: inspect.Type, about: Mapping[str, Any] | None = None) -> str:
    """A type in words, with the bounds and the unit of its ``Meta``."""
    about = about or {}
    match described:
        case inspect.Metadata(type=inner):
            return _words(inner, described.extra_json_schema)
        case inspect.UnionType(types=types):
            return " or ".join(map(_words, types))
        case inspect.LiteralType(values=values):
            return either(values)
        case inspect.IntType():
            return _number("whole number", described, about.get("description"))
        case inspect.FloatType():
            return _number("number", described, about.get("description"))
        case inspect.StrType():
            text = "text" if described.min_length is None else "text that is not empty"
            examples = about.get("examples", ())
            return f"{text}, such as {either(map(_Quoted, examples))}" if examples else text
        case inspect.StructType() | inspect.DataclassType() | inspect.CustomType():
            return _article(described.cls.__name__)
    return _OTHERS[type(described)]


_OTHERS: Final[Mapping[type[inspect.Type], str]] = {
    inspect.BoolType: "True or False",
    inspect.DictType: "a mapping",
    inspect.NoneType: "None",
    inspect.VarTupleType: "a list",
    inspect.TimeDeltaType: "a timedelta (as text, a duration of ISO 8601 such as 'PT1H')",
}


class _Quoted(str):
    """Text between double quotes: the examples hold single ones."""

    def __repr__(self) -> str:
        return f'"{self}"'


def _number(noun: str, described: inspect.IntType | inspect.FloatType, unit: str | None) -> str:
    noun = f"{noun} of {unit}" if unit else noun
    least, most = described.ge, described.le
    if most is not None:
        return f"a {noun} from {least or 0:,} to {most:,}"
    if described.gt == 0 or least == 1:
        return f"a positive {noun}"
    return f"a {noun}" if least is None else f"a {noun}, {least:,} or more"


def _reason(described: inspect.Type) -> str:
    """The reason for a bound, if its ``Meta`` has one."""
    extra = described.extra if isinstance(described, inspect.Metadata) else None
    return f": {extra['why']}" if extra else ""


def _article(noun: str) -> str:
    return f"{'an' if noun[:1].lower() in 'aeiou' else 'a'} {noun}"
