"""How far a long operation is. As with logs, the code that works reports it, and the process decides where it is shown.

Standard library only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol, TypeAlias

__all__ = ["Advance", "ProgressDisplay", "progress", "shown_by"]

Advance: TypeAlias = Callable[[float], None]
"""Adds to what is done; safe to call in several threads."""


class ProgressDisplay(Protocol):
    """Shows operations, such as bars on a terminal."""

    def operation(self, what: str, total: int, unit: str) -> AbstractContextManager[Advance]:
        """Show an operation until the context ends.

        Args:
            what: is done, such as ``topic orders: verify``.
            total: of all that is to do, in units.
            unit: what is counted, in the singular.
        """
        ...


_displays: list[ProgressDisplay] = []


@contextmanager
def progress(what: str, *, total: int, unit: str) -> Iterator[Advance]:
    """Report an operation: see :meth:`ProgressDisplay.operation`. Without a display nothing happens."""
    if not _displays:
        yield lambda _: None
        return
    with _displays[-1].operation(what, total, unit) as advance:
        yield advance


@contextmanager
def shown_by(display: ProgressDisplay) -> Iterator[None]:
    """Show the operations of this process by a display until the context ends."""
    _displays.append(display)
    try:
        yield
    finally:
        _displays.remove(display)
