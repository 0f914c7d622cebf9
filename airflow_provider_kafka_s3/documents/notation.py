"""Offsets and batch numbers as one line of text, as command line options take them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from airflow_provider_kafka_s3.documents.offsets import Offsets
from airflow_provider_kafka_s3.exceptions import ConfigurationError

__all__ = ["format_batches", "format_offsets", "parse_batches", "parse_offsets"]

_NUMBER: Final = re.compile("[0-9]{1,19}")


def format_offsets(offsets: Offsets) -> str:
    """Format offsets as an option value: ``0:100-150,1:7-9``, ends excluded."""
    return ",".join(f"{p}:{start}-{end}" for p, ranges in offsets.items() for start, end in ranges)


def parse_offsets(text: str) -> Offsets:
    """Parse the text of :func:`format_offsets`.

    Raises:
        ConfigurationError: the text has another form.
    """
    ranges: dict[int, list[tuple[int, int]]] = {}
    for part in text.split(","):
        partition, colon, bounds = part.strip().partition(":")
        start, dash, end = bounds.partition("-")
        numbers = (partition, start, end)
        if not (colon and dash and all(map(_NUMBER.fullmatch, numbers)) and int(start) < int(end) < 2**63):
            raise ConfigurationError(
                f"offsets {text!r}: {part!r} is not a range; write PARTITION:START-END, the end excluded, several of "
                f"them with commas between: 0:100-150,1:7-9"
            )
        ranges.setdefault(int(partition), []).append((int(start), int(end)))
    return Offsets(ranges)


def format_batches(batches: Iterable[int]) -> str:
    """Format batch numbers as an option value: ``2,5-7``, both ends included."""
    ranges: list[list[int]] = []
    for batch in sorted(set(batches)):
        if ranges and batch == ranges[-1][1] + 1:
            ranges[-1][1] = batch
        else:
            ranges.append([batch, batch])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


def parse_batches(text: str) -> list[tuple[int, int]]:
    """Parse the text of :func:`format_batches` into the first and the last number of each range.

    Raises:
        ConfigurationError: the text has another form.
    """
    ranges = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        last = last if dash else first
        if not (_NUMBER.fullmatch(first) and _NUMBER.fullmatch(last) and 0 < int(first) <= int(last)):
            raise ConfigurationError(
                f"batches {text!r}: {part!r} is neither a number nor a range; write 2 or 5-7, several of them with "
                f"commas between: 2,5-7"
            )
        ranges.append((int(first), int(last)))
    return ranges
