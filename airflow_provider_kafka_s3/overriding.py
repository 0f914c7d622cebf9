"""``override`` of Python 3.12: the base class says what a method means, and mypy checks that it has it."""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["override"]

if TYPE_CHECKING:
    from typing_extensions import override
else:

    def override(method):
        """The method as it is."""
        return method
