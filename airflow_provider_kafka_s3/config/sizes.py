"""Sizes in bytes, and the limits of a multipart upload."""

from __future__ import annotations

from typing import Final

__all__ = ["KIB", "MAX_PARTS", "MAX_PART_SIZE", "MIB", "MIN_PART_SIZE"]

KIB: Final = 1024
MIB: Final = 1024 * 1024
MAX_PARTS: Final = 10_000
"""Parts of one multipart upload at most (S3 user guide, multipart upload limits)."""
MIN_PART_SIZE: Final = 5 * MIB
"""Size of a part that is not the last, at least (same source)."""
MAX_PART_SIZE: Final = 512 * MIB
"""S3 takes larger ones, but a task holds several parts in memory, and no object of 4 TiB needs them."""
