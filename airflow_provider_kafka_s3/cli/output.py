"""What commands answer: lines for people, JSON for programs, and the exit code."""

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
"""Done, and nothing is wrong."""
FINDINGS: Final = 1
"""Done, and something was found that a person should look at."""
USAGE: Final = 2
"""An option, connection or setting is wrong; nothing was changed."""
FAILED: Final = 3
"""It cannot be done until a person acts; the error says how."""
RETRY: Final = 4
"""It could not be done now; the same command may succeed later."""
INTERRUPTED: Final = 130
"""By Ctrl-C; every command may be repeated."""


@dataclass(frozen=True)
class Answer:
    """Of a command.

    Attributes:
        data: for programs; plain JSON values, nothing secret.
        lines: for people.
        code: exit code.
    """

    data: dict[str, Any]
    lines: Sequence[str] = field(default_factory=tuple)
    code: int = OK


def error_json(error: KafkaS3Error) -> dict[str, Any]:
    """An error in the output of ``--json``."""
    return {
        "kind": error.kind,
        "type": type(error).__name__,
        "message": message_of(error),
        "terminal": isinstance(error, TerminalError),
    }


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """Rows in columns, as wide as they need to be; numbers to the right."""
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
    """``[0, 5) [7, 9)``; the first ones, if there are many."""
    text = " ".join(f"[{start}, {end})" for start, end in found[:shown])
    return f"{text} and {len(found) - shown} more" if len(found) > shown else text or "-"
