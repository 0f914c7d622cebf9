"""Formatting of messages: counts, sizes, lists, and the lines of an error in a log. Standard library only."""

from __future__ import annotations

import difflib
import re
import textwrap
from collections.abc import Iterable, Sequence
from typing import Final

__all__ = ["count", "either", "few", "nearest", "or_nearest", "printable", "readable", "size"]

_WIDTH: Final = 110
"""Characters of a line of prose at most; a longer word, such as a URL, is not broken."""

_INDENT: Final = "    "
"""Indent of a command."""

_SHOWN: Final = 300
"""Characters of a text from elsewhere."""

# Unicode categories Cc, Zl and Zp, and the characters that change the writing direction: they could forge lines.
_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")

_COMMAND: Final = re.compile(
    r"""(\()?`( (?:kafka-s3|pip[ ](?:un)?install|airflow)[ ]  # a command that can be run unchanged
               (?: '[^']*' | "[^"]*" | [^`'"] )* )`   # a backtick between quotes is part of the command
        (?(1)(\))?)                                   # parentheses around nothing else are removed""",
    re.VERBOSE,
)
_CODE: Final = re.compile(r"`[^`\n]*`")


def readable(message: str) -> str:
    """The message of an error, for a log: prose in lines of 110 characters, each command in a line of its own.

    Commands are in backticks and begin with ``kafka-s3``, ``pip install``, ``pip uninstall`` or ``airflow``. They are
    not wrapped, and printed without backticks, so that they can be copied. Other code in backticks is not broken
    either. Lines that are indented already, such as those of a traceback, are not changed.

    Args:
        message: with or without line breaks.
    """
    lines: list[str] = []
    end = 0
    for command in _COMMAND.finditer(message):
        before = message[end : command.start()] + ("(" if command[1] and not command[3] else "")
        lines += [*_wrapped(_after(before, end)), _INDENT + command[2]]
        end = command.end()
    return "\n".join([*lines, *_wrapped(_after(message[end:], end))])


def _after(prose: str, command: int) -> str:
    """Prose behind a command, without the punctuation that joined the two."""
    return prose.lstrip(" .,;:") if command else prose


def _wrapped(prose: str) -> list[str]:
    wrapped: list[str] = []
    for line in prose.splitlines():
        if line.startswith((" ", "\t")) and line.strip():
            wrapped.append(line.rstrip())
            continue
        whole = _CODE.sub(lambda code: code[0].replace(" ", "\0"), line)
        parts = textwrap.wrap(whole, _WIDTH, break_long_words=False, break_on_hyphens=False)
        wrapped += [part.replace("\0", " ") for part in parts]
    return wrapped


def count(number: int, noun: str) -> str:
    """``1 object``, ``2 objects``, ``1 batch``, ``2 batches``."""
    plural = "es" if noun.endswith(("s", "x", "ch", "sh")) else "s"
    return f"{number:,} {noun}{'' if number == 1 else plural}"


def size(octets: int) -> str:
    """A number of bytes with a unit: ``5.0 MiB``."""
    number, unit = float(octets), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if number < 1024:
            break
        number, unit = number / 1024, larger
    return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"


def few(names: Sequence[object], *, most: int = 10, by: str = ", ") -> str:
    """The first names, and the number of the others.

    Args:
        names: all names.
        most: number of names that are listed.
        by: separator.
    """
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return by.join(map(str, names[:most])) + more


def either(choices: Iterable[object]) -> str:
    """A list of choices: ``'a', 'b' or 'c'``."""
    *others, last = map(repr, choices)
    return f"{', '.join(others)} or {last}" if others else last


def nearest(name: object, known: Iterable[str]) -> str | None:
    """The known name that is most similar; None if none is similar."""
    by_name = {k.lower(): k for k in known}
    near = difflib.get_close_matches(str(name)[:100].lower(), by_name, n=1)
    return by_name[near[0]] if near else None


def or_nearest(name: object, known: Iterable[str], what_is: str) -> str:
    """``; did you mean 'path_format'? It has …``; without a similar known name, ``; it has …``.

    Args:
        name: the unknown name.
        known: the known names.
        what_is: the sentence behind the suggestion.
    """
    near = nearest(name, known)
    return f"; {what_is}" if near is None else f"; did you mean {near!r}? {what_is[:1].upper()}{what_is[1:]}"


def printable(text: str, *, shown: int = _SHOWN) -> str:
    """Text from elsewhere for a log, an error or a terminal: one line, of bounded length, without control characters.

    Args:
        text: of any kind.
        shown: characters at most; the number of omitted characters is appended.
    """
    more = f"… and {len(text) - shown:,} characters more" if len(text) > shown else ""
    return _CONTROL.sub(lambda c: c[0].encode("unicode_escape").decode(), text[:shown]) + more
