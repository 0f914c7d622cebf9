"""Reads the configuration of a connector: JSON, with or without its name, or a Java properties file."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

from airflow_provider_kafka_s3.exceptions import ConfigurationError

__all__ = ["ConnectConfig", "read_config"]

ConnectConfig: TypeAlias = Mapping[str, Any] | str | Path
"""A configuration: a mapping, the text of a file, or its path."""

_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_PROPERTY: Final = re.compile(r"((?:\\.|[^\\=:\s])*)[ \t\f]*(?:[=:][ \t\f]*)?(.*)", re.DOTALL)


def read_config(given: ConnectConfig, what: str = "the configuration") -> dict[str, str]:
    """The settings of a connector as texts, by their names.

    Args:
        given: the settings; or ``{"name": …, "config": {…}}``, as Connect's REST interface has them; or JSON of either,
            or a Java properties file, as text; or the path of such a file.
        what: names it in errors.

    Raises:
        ConfigurationError: it is none of these.
    """
    if isinstance(given, Path):
        try:
            return read_config(given.read_text(encoding="utf-8"), what=f"{what} {str(given)!r}")
        except (OSError, UnicodeDecodeError) as e:
            reason = e.strerror if isinstance(e, OSError) else "it is not UTF-8"
            raise ConfigurationError(f"{what} {str(given)!r} cannot be read: {reason}") from None
    settings = _parsed(given, what) if isinstance(given, str) else given
    if not isinstance(settings, Mapping):
        raise ConfigurationError(f"{what} must be a mapping of settings, the text of a file or a pathlib.Path")
    if isinstance(inner := settings.get("config"), Mapping):
        named = settings.get("name")
        settings = inner if named is None else {"name": named, **inner}
    return {name: _text(what, name, value) for name, value in settings.items() if value is not None}


def _parsed(text: str, what: str) -> Mapping[str, Any]:
    text = text.removeprefix("\ufeff")
    if not text.lstrip().startswith("{"):
        if not text.strip():
            raise ConfigurationError(f"{what} is empty")
        return _properties(text, what)
    try:
        parsed: Mapping[str, Any] = json.loads(text, object_pairs_hook=lambda pairs: _once(pairs, what))
    except json.JSONDecodeError as e:
        # The error itself would quote the text, which may hold secrets.
        raise ConfigurationError(f"{what} is not valid JSON: {e.msg}, line {e.lineno}, column {e.colno}") from None
    return parsed


def _once(pairs: list[tuple[str, Any]], what: str) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    for name in names:
        if names.count(name) > 1:
            raise ConfigurationError(f"{what} has {name!r} twice; remove one of them")
    return dict(pairs)


def _text(what: str, name: object, value: object) -> str:
    if not isinstance(name, str):
        raise ConfigurationError(f"{what}: {name!r} must be the name of a setting")
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int):
        return str(value)
    raise ConfigurationError(f"{what}: the value of {name!r} must be text, a whole number, true or false")


def _properties(text: str, what: str) -> dict[str, str]:
    """The entries of a Java properties file."""
    pairs: list[tuple[str, Any]] = []
    lines = iter(re.split("\r\n|\r|\n", text))
    for raw in lines:
        line = raw.lstrip(" \t\f")
        if not line or line[0] in "#!":
            continue
        while (len(line) - len(line.rstrip("\\"))) % 2:
            line = line[:-1] + next(lines, "").lstrip(" \t\f")
        match = _PROPERTY.fullmatch(line)
        if match is None or not match[1]:
            raise ConfigurationError(f"{what} is neither JSON nor a Java properties file: a line has no name")
        pairs.append((_unescaped(match[1]), _unescaped(match[2])))
    return _once(pairs, what)


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda e: chr(int(e[1], 16)) if e[1] else _ESCAPES.get(e[2], e[2]), text)
