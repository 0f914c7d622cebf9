"""Texts for people: counts, sizes, and errors as a log shows them. Standard library only."""

from __future__ import annotations

import difflib
import re
import textwrap
from collections.abc import Iterable, Sequence
from typing import Final

__all__ = ["count", "either", "few", "nearest", "or_nearest", "readable", "size"]

_WIDTH: Final = 110
"""Characters of a line of prose at most; a word that is longer, such as a URL, stays whole."""

_INDENT: Final = "    "
"""Before a command, so that it stands out."""

_COMMAND: Final = re.compile(
    r"""(\()?`( (?:kafka-s3|pip[ ](?:un)?install|airflow)[ ]  # what a person can run as it stands
               (?: '[^']*' | "[^"]*" | [^`'"] )* )`   # a backtick between quotes belongs to the command
        (?(1)\)?)                                     # brackets around it go along""",
    re.VERBOSE,
)
_CODE: Final = re.compile(r"`[^`\n]*`")


def readable(message: str) -> str:
    """The message of an error, for a log: prose in lines of 110 characters, each command on a line of its own.

    Commands are what stands in backticks and begins with ``kafka-s3``, ``pip install``, ``pip uninstall`` or
    ``airflow``. They are not wrapped and have no backticks, so they can be copied. Other code in backticks is not
    broken either. Lines that are indented already, such as those of a traceback, stay as they are.

    Args:
        message: with or without line breaks.
    """
    lines: list[str] = []
    end = 0
    for command in _COMMAND.finditer(message):
        lines += [*_wrapped(_after(message[end : command.start()], end)), _INDENT + command[2]]
        end = command.end()
    return "\n".join([*lines, *_wrapped(_after(message[end:], end))])


def _after(prose: str, command: int) -> str:
    """Without what ended or joined a sentence whose end is a command now."""
    return prose.lstrip(" .,;:") if command else prose


def _wrapped(prose: str) -> list[str]:
    wrapped: list[str] = []
    for line in prose.splitlines():
        if line.startswith((" ", "\t")) and line.strip():
            wrapped.append(line.rstrip())
            continue
        whole = _CODE.sub(lambda code: code[0].replace(" ", "\0"), line)
        told = textwrap.wrap(whole, _WIDTH, break_long_words=False, break_on_hyphens=False)
        wrapped += [part.replace("\0", " ") for part in told]
    return wrapped


def count(number: int, noun: str) -> str:
    """``1 object``, ``2 objects``, ``1 batch``, ``2 batches``."""
    plural = "es" if noun.endswith(("s", "x", "ch", "sh")) else "s"
    return f"{number:,} {noun}{'' if number == 1 else plural}"


def size(octets: int) -> str:
    """Bytes as people read them."""
    number, unit = float(octets), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if number < 1024:
            break
        number, unit = number / 1024, larger
    return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"


def few(names: Sequence[object], *, most: int = 10, by: str = ", ") -> str:
    """The first names, and how many there are beside them.

    Args:
        names: all of them.
        most: how many are named.
        by: what stands between two.
    """
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return by.join(map(str, names[:most])) + more


def either(choices: Iterable[object]) -> str:
    """``'a', 'b' or 'c'``: what may be written instead."""
    *others, last = map(repr, choices)
    return f"{', '.join(others)} or {last}" if others else last


def nearest(name: object, known: Iterable[str]) -> str | None:
    """The known name that looks most like this one; None: none does."""
    by_name = {k.lower(): k for k in known}
    near = difflib.get_close_matches(str(name)[:100].lower(), by_name, n=1)
    return by_name[near[0]] if near else None


def or_nearest(name: object, known: Iterable[str], what_is: str) -> str:
    """``; did you mean 'path_format'? It has …``; if no known name looks like this one, ``; it has …``.

    Args:
        name: that is not known.
        known: names.
        what_is: what there is, or may be written.
    """
    near = nearest(name, known)
    return f"; {what_is}" if near is None else f"; did you mean {near!r}? {what_is[:1].upper()}{what_is[1:]}"
