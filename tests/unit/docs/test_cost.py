"""The tables of docs/cost.md follow from the requests of a batch, which test_request_counts.py counts."""

from __future__ import annotations

import math
import re
from typing import Final

from tests.documentation import ROOT

PAGE: Final = (ROOT / "docs" / "cost.md").read_text()
WRITE: Final = 0.005 / 1_000
READ: Final = 0.0004 / 1_000
TERABYTE: Final = 10**12
MEGABYTE: Final = 10**6
MIB: Final = 1024 * 1024


def test_the_requests_of_a_terabyte_are_computed_from_those_of_an_object() -> None:
    """Each object takes a Create, its parts, a Complete and a HEAD."""
    rows = re.findall(
        r"^\| ([\d,]+) MB \| (\d+) MiB \| ([\d,]+) \| (\d+) \| ([\d,]+) \| \$([\d.]+) \| \$([\d.]+) \|$",
        PAGE,
        re.MULTILINE,
    )
    assert len(rows) == 5
    for size, part, objects, parts, writes, write_cost, read_cost in rows:
        megabytes = int(size.replace(",", ""))
        n = math.ceil(TERABYTE / (megabytes * MEGABYTE))
        p = math.ceil(megabytes * MEGABYTE / (int(part) * MIB))
        sent = n * (2 + p)
        shown = (objects, parts, writes, write_cost, read_cost)
        assert shown == (f"{n:,}", str(p), f"{sent:,}", f"{sent * WRITE:.2f}", f"{n * READ:.2f}")


def test_the_speed_of_a_core_is_that_of_the_measured_figures() -> None:
    """Wall and CPU are those of the table in docs/design/data-path.md; values by the wall time of both cores."""
    figures = (ROOT / "docs" / "design" / "data-path.md").read_text()
    rows = re.findall(r"^\| ([\w ,]+) \| ([\d.]+) s \| ([\d.]+) s \| (\d+) GB \|$", PAGE, re.MULTILINE)
    names = {"JSON lines, gzip": "JSON gzip", "JSON lines": "JSON", "bytes": "bytes"}
    assert {name for name, *_ in rows} == set(names)
    for name, wall, cpu, speed in rows:
        assert re.search(rf"^\| ours: {names[name]} \| {wall} \| [\d.]+ \| {cpu} \|", figures, re.MULTILINE), name
        assert speed == f"{2_000_000 * 357 / float(wall) / 2 * 3_600 / 10**9:.0f}"
