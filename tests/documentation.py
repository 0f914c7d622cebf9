"""The code in the pages of the documentation."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["README", "ROOT", "Block", "blocks", "commands", "snippets"]

ROOT: Final = Path(__file__).resolve().parents[1]
README: Final = ROOT / "README.md"

_BLOCK: Final = re.compile(r"^(#+ [^\n]*)$|^( *)```(\w*)\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
_BETWEEN: Final = ";&|\n"
"""What separates commands."""


@dataclass(frozen=True)
class Block:
    """A code block.

    Attributes:
        page: its path in the repository.
        language: of the code; empty if none is named.
        heading: of the section that it is in.
        code: its text; in a list without its indent.
        number: in the page, from 1.
    """

    page: str
    language: str
    heading: str
    code: str
    number: int

    def __str__(self) -> str:
        return f"{self.page}-{self.number}"


def blocks(page: Path) -> Iterator[Block]:
    """All code blocks of a page."""
    heading, numbers = "", itertools.count(1)
    for match in _BLOCK.finditer(page.read_text()):
        title, indent, language, code = match.groups()
        if title is not None:
            heading = title
            continue
        code = re.sub(rf"^{indent}", "", code, flags=re.MULTILINE)
        name = str(page.relative_to(ROOT)) if page.is_relative_to(ROOT) else page.name
        yield Block(name, language, heading, code, next(numbers))


def snippets(page: Path, language: str) -> list[str]:
    """The code of a page in one language; code in a list loses its indent."""
    return [block.code for block in blocks(page) if block.language == language]


def commands(code: str) -> Iterator[list[str]]:
    """The words of each command of a shell, without comments and files that output goes to."""
    code = re.sub(r"(^|\s)#.*$", "", code.replace("\\\n", " "), flags=re.MULTILINE)
    lexer = shlex.shlex(code, posix=True, punctuation_chars=f"{_BETWEEN}>")
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t", True, ""
    words: list[str] = []
    for token in itertools.chain(lexer, ["\n"]):
        if set(token) <= set(_BETWEEN):
            command, words = words, []
            if ">" in command:
                command = command[: command.index(">")]
            if command:
                yield command
        else:
            words.append(token)
