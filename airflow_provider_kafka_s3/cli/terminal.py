"""Output on a terminal: tables, colours that repeat what the words say, and the progress of what takes long.

In a pipe or a file the output is plain text, and nothing of this module is used. ``NO_COLOR`` and ``FORCE_COLOR`` are
respected, see :class:`rich.console.Console`.
"""

from __future__ import annotations

import functools
import logging
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TextIO

from airflow_provider_kafka_s3.cli.output import Answer, Line, Style, Table
from airflow_provider_kafka_s3.documents.codec import printable
from airflow_provider_kafka_s3.progress import Advance, shown_by

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, Task
    from rich.table import Table as RichTable
    from rich.text import Text

__all__ = ["ask", "can_ask", "log_handler", "print_answer", "print_error", "progress_on_terminal"]

_QUIET_SECONDS: Final = 2.0
"""What takes less shows no progress."""
_SHOWN: Final = 100
"""Characters of a description."""
_STYLES: Final[dict[Style, str]] = {"plain": "", "good": "green", "warning": "yellow", "bad": "bold red"}


def _is_terminal(stream: TextIO) -> bool:
    """Whether people read the stream."""
    return stream.isatty() or bool(os.environ.get("FORCE_COLOR"))


@functools.cache
def _console(stream: TextIO) -> Console:
    """A console that prints texts as they are."""
    from rich.console import Console

    return Console(file=stream, highlight=False, markup=False, emoji=False)


def print_answer(answer: Answer) -> None:
    """Print the lines and tables of an answer to standard output."""
    if not _is_terminal(sys.stdout):
        # Text of documents in the bucket may contain control sequences of a terminal.
        print("\n".join(printable(line, shown=len(line)) for line in answer.plain_lines()))
        return
    console = _console(sys.stdout)
    for line in answer.lines:
        if isinstance(line, Table):
            console.print(_rich_table(line))
        else:
            # Without breaks, so that a printed command can be copied.
            console.print(_text(line if isinstance(line, Line) else Line(line)), soft_wrap=True)


def print_error(text: str) -> None:
    """Print an error to standard error."""
    if _is_terminal(sys.stderr):
        _console(sys.stderr).print(text, style=_STYLES["bad"], soft_wrap=True)
    else:
        print(text, file=sys.stderr)


def can_ask() -> bool:
    """Whether a person can be asked: standard input and standard error are a terminal."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def ask(question: str, *, choices: Sequence[str] = (), default: str | None = None) -> str:
    """Ask a person on the terminal until there is an answer. The question is on standard error.

    Args:
        question: without its mark.
        choices: what the answer may be; empty: any text.
        default: answer of an empty line; None: there has to be one.

    Raises:
        KeyboardInterrupt: the person ends the input.
    """
    from rich.prompt import Prompt
    from rich.text import Text

    # A default of rich is also what it shows behind the question.
    more: dict[str, Any] = {} if default is None else {"default": default, "show_default": bool(default)}
    answer = ""
    try:
        while not answer:
            answer = Prompt.ask(
                Text(question), console=_console(sys.stderr), choices=[*choices] or None, **more
            ).strip()
            if default is not None:
                break
    except EOFError:
        raise KeyboardInterrupt from None
    return answer


def log_handler() -> logging.Handler:
    """Writes messages of the log to standard error; above the progress, if that is a terminal."""
    if _is_terminal(sys.stderr):
        from rich.logging import RichHandler

        return RichHandler(
            console=_console(sys.stderr), show_time=False, show_path=False, highlighter=None, markup=False
        )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    return handler


def _text(line: Line) -> Text:
    from rich.text import Text

    return Text(printable(line.text, shown=len(line.text)), style=_STYLES[line.style])


def _rich_table(table: Table) -> RichTable:
    from rich import box
    from rich.padding import Padding
    from rich.table import Table as RichTable

    made = RichTable(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False, show_edge=False)
    for name, is_right in zip(table.head, table.right_aligned, strict=True):
        made.add_column(name, justify="right" if is_right else "left", overflow="fold")
    for cells in table.texts:
        made.add_row(*(_text(Line(cell, table.style_of(n, cell))) for n, cell in zip(table.head, cells, strict=True)))
    return Padding(made, (0, 0, 0, table.indent))  # type: ignore[return-value]


@contextmanager
def progress_on_terminal(command: str) -> Iterator[None]:
    """Show on standard error, once a command takes longer than two seconds, what it does and how far it is."""
    if not _is_terminal(sys.stderr):
        yield
        return
    display = _Bars(command)
    handler = _Latest(display)
    package = logging.getLogger("airflow_provider_kafka_s3")
    package.addHandler(handler)
    try:
        with shown_by(display):
            yield
    finally:
        package.removeHandler(handler)
        display.stop()


class _Bars:
    """A line for the command, and a bar for each operation: a ``ProgressDisplay``."""

    def __init__(self, command: str) -> None:
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        self._bars: Progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=20),
            TextColumn("{task.fields[rate]}", markup=False),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}", markup=False),
            console=_console(sys.stderr),
            transient=True,
        )
        self._command = self._bars.add_task(command, total=None, rate="", left="")
        self._begin = threading.Timer(_QUIET_SECONDS, self._bars.start)
        self._begin.daemon = True
        self._begin.start()

    def describe(self, text: str) -> None:
        """Show what the command does now."""
        self._bars.update(self._command, description=printable(text, shown=_SHOWN))

    def stop(self) -> None:
        """Remove everything from the terminal."""
        self._begin.cancel()
        self._begin.join()
        self._bars.stop()

    @contextmanager
    def operation(self, what: str, total: int, unit: str) -> Iterator[Advance]:
        """See :meth:`~airflow_provider_kafka_s3.progress.ProgressDisplay.operation`."""
        number = self._bars.add_task(printable(what, shown=_SHOWN), total=total, rate="", left="")

        def advance(by: float) -> None:
            self._bars.update(number, advance=by)
            task = next(task for task in self._bars.tasks if task.id == number)
            self._bars.update(number, rate=_rate(task, unit), left=_left(task))

        try:
            yield advance
        finally:
            self._bars.refresh()
            self._bars.remove_task(number)


def _rate(task: Task, unit: str) -> str:
    percent = f"{task.percentage:3.0f} %"
    return percent if task.speed is None else f"{percent}  {task.speed:,.0f} {unit}s/s"


def _left(task: Task) -> str:
    seconds = task.time_remaining
    return "" if seconds is None else f"{int(seconds) // 60}:{int(seconds) % 60:02} left"


class _Latest(logging.Handler):
    """Shows the latest message of the log beside the spinner."""

    def __init__(self, display: _Bars) -> None:
        super().__init__(logging.INFO)
        self._display = display

    def emit(self, record: logging.LogRecord) -> None:
        """Show a message."""
        self._display.describe(record.getMessage())
