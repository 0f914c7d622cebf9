"""Output of commands: lines for people, JSON for programs, and the exit code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Literal, TypeAlias

from airflow_provider_kafka_s3.exceptions import KafkaS3Error, TerminalError, message_of
from airflow_provider_kafka_s3.messages import count, size

__all__ = [
    "FAILED",
    "FINDINGS",
    "INTERRUPTED",
    "OK",
    "RETRY",
    "USAGE",
    "Answer",
    "Line",
    "Style",
    "Table",
    "count",
    "error_json",
    "ranges",
    "size",
]

OK: Final = 0
"""Done, without findings."""
FINDINGS: Final = 1
"""Done, with findings that need attention."""
USAGE: Final = 2
"""An option, connection or setting is wrong; nothing was changed."""
FAILED: Final = 3
"""It cannot be done until a person acts; the error describes how."""
RETRY: Final = 4
"""It could not be done now; the same command may succeed later."""
INTERRUPTED: Final = 130
"""Interrupted by Ctrl-C; every command may be repeated."""


Style: TypeAlias = Literal["plain", "good", "warning", "bad"]
"""What a text means; a terminal has a colour for it, beside the words."""


@dataclass(frozen=True)
class Line:
    """A line with a meaning."""

    text: str
    style: Style = "plain"


@dataclass(frozen=True)
class Table:
    """Rows in columns; numbers are right-aligned.

    Attributes:
        head: names of the columns.
        rows: their cells; None is shown as ``-``.
        indent: columns of a terminal before the first one.
        styles: of the columns whose cells mean something if they are neither 0 nor ``-``.
    """

    head: Sequence[str]
    rows: Sequence[Sequence[object]]
    indent: int = 0
    styles: Mapping[str, Style] = field(default_factory=dict)

    @cached_property
    def texts(self) -> list[list[str]]:
        """The cells."""
        return [
            ["-" if cell is None else f"{cell:,}" if type(cell) is int else str(cell) for cell in row]
            for row in self.rows
        ]

    @property
    def right_aligned(self) -> list[bool]:
        """For each column, whether it has numbers only."""
        return [all(_is_number(row[i]) for row in self.texts) for i in range(len(self.head))]

    def style_of(self, name: str, cell: str) -> Style:
        """The meaning of a cell."""
        return "plain" if cell in ("-", "0") else self.styles.get(name, "plain")

    def lines(self) -> list[str]:
        """The table as text, in columns of minimum width."""
        lines = [list(self.head), *self.texts]
        widths = [max(len(line[i]) for line in lines) for i in range(len(self.head))]
        right = self.right_aligned
        return [
            " " * self.indent
            + "  ".join(c.rjust(w) if r else c.ljust(w) for c, w, r in zip(line, widths, right, strict=True)).rstrip()
            for line in lines
        ]


@dataclass(frozen=True)
class Answer:
    """Result of a command.

    Attributes:
        data: output of ``--json``: plain JSON values, nothing secret.
        lines: output for people: lines and tables.
        code: exit code.
        raw: bytes that are printed in the place of the lines; None: the lines are.
    """

    data: dict[str, Any]
    lines: Sequence[str | Line | Table] = ()
    code: int = OK
    raw: bytes | None = None

    def plain_lines(self) -> list[str]:
        """The lines as text."""
        return [
            text
            for line in self.lines
            for text in (line.lines() if isinstance(line, Table) else [line.text if isinstance(line, Line) else line])
        ]


def error_json(error: KafkaS3Error) -> dict[str, Any]:
    """An error in the output of ``--json``."""
    return {
        "kind": error.kind,
        "type": type(error).__name__,
        "message": message_of(error),
        "terminal": isinstance(error, TerminalError),
    }


def _is_number(cell: str) -> bool:
    return cell == "-" or cell.replace(",", "").isdigit()


def ranges(found: Sequence[tuple[int, int]], *, shown: int = 3) -> str:
    """Format ranges as ``[0, 5) [7, 9)``; of many, the first ``shown`` and a count."""
    text = " ".join(f"[{start}, {end})" for start, end in found[:shown])
    return f"{text} and {len(found) - shown} more" if len(found) > shown else text or "-"
