"""Output of commands: lines for people, JSON for programs, and the exit code."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

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
    "count",
    "error_json",
    "ranges",
    "size",
    "table",
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


@dataclass(frozen=True)
class Answer:
    """Result of a command.

    Attributes:
        data: output of ``--json``: plain JSON values, nothing secret.
        lines: output for people.
        code: exit code.
        raw: bytes that are printed in the place of the lines; None: the lines are.
    """

    data: dict[str, Any]
    lines: Sequence[str] = field(default_factory=tuple)
    code: int = OK
    raw: bytes | None = None


def error_json(error: KafkaS3Error) -> dict[str, Any]:
    """An error in the output of ``--json``."""
    return {
        "kind": error.kind,
        "type": type(error).__name__,
        "message": message_of(error),
        "terminal": isinstance(error, TerminalError),
    }


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """Format rows in columns of minimum width, numbers right-aligned."""
    body = [["-" if cell is None else f"{cell:,}" if type(cell) is int else str(cell) for cell in row] for row in rows]
    right = [all(_is_number(row[i]) for row in body) for i in range(len(head))]
    widths = [max(len(line[i]) for line in [list(head), *body]) for i in range(len(head))]
    return [
        "  ".join(c.rjust(w) if r else c.ljust(w) for c, w, r in zip(line, widths, right, strict=True)).rstrip()
        for line in [list(head), *body]
    ]


def _is_number(cell: str) -> bool:
    return cell == "-" or cell.replace(",", "").isdigit()


def ranges(found: Sequence[tuple[int, int]], *, shown: int = 3) -> str:
    """Format ranges as ``[0, 5) [7, 9)``; of many, the first ``shown`` and a count."""
    text = " ".join(f"[{start}, {end})" for start, end in found[:shown])
    return f"{text} and {len(found) - shown} more" if len(found) > shown else text or "-"
