"""Constants to read varints: numbers of seven bits in each byte, taken from the eight bytes at their beginning."""

from __future__ import annotations

from typing import Final

import numpy as np

__all__ = ["CONTINUES", "LENGTHS", "MERGES", "ONE"]

ONE: Final = np.uint64(1)
CONTINUES: Final = np.uint64(0x8080808080808080)
"""The bits of bytes that others follow."""

LENGTHS: Final = np.uint64(0x0102030405060708)
"""Times 256**k, its highest byte is k + 1: the length of a number whose last byte is k."""

MERGES: Final = (
    (np.uint64(0x007F007F007F007F), np.uint64(1)),
    (np.uint64(0x00003FFF00003FFF), np.uint64(2)),
    (np.uint64(0x000000000FFFFFFF), np.uint64(4)),
)
"""Masks of the lower halves, and shifts of the upper ones, that put the bits of 2, 4 and 8 bytes together."""
