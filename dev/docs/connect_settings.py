"""Writes the tables of ``docs/from-kafka-connect.md`` from the code: ``python -m dev.docs.connect_settings``."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from airflow_provider_kafka_s3.kafka_connect.settings import (
    CONSUMER,
    CONVERTER,
    DEVIANTART_SINK,
    FRAMEWORK,
    SINK,
    TRANSFORMS,
    Setting,
    Use,
    is_secret,
)

__all__ = ["PAGE", "with_tables"]

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "from-kafka-connect.md"

_TABLES: Final[Mapping[str, Sequence[Setting]]] = {
    "sink": SINK,
    "deviantart": DEVIANTART_SINK,
    "framework": FRAMEWORK,
    "converters": CONVERTER,
    "consumer": CONSUMER,
}
_USES: Final[Mapping[Use, str]] = {
    "parameter": "parameter",
    "connection": "connection",
    "none": "no meaning",
    "warning": "warning",
    "refused": "refused",
}


def with_tables(page: str) -> str:
    """The page with the tables of the code between its markers ``<!-- table NAME -->`` and ``<!-- end -->``."""
    return re.sub(
        r"(<!-- table (\w+) -->\n).*?(<!-- end -->)",
        lambda found: f"{found[1]}{_transforms() if found[2] == 'transforms' else _table(_TABLES[found[2]])}{found[3]}",
        page,
        flags=re.DOTALL,
    )


def _transforms() -> str:
    return "| class | here |\n|---|---|\n" + "".join(f"| `{name}` | {here} |\n" for name, here in TRANSFORMS.items())


def _table(settings: Iterable[Setting]) -> str:
    lines = ["| Kafka Connect | becomes | here |", "|---|---|---|"]
    for (use, here), group in itertools.groupby(settings, key=lambda setting: (setting.use, setting.here)):
        same = list(group)
        names = ", ".join(f"`{setting.name}`" for setting in same)
        what = f"{_USES[use]}, secret" if is_secret(same[0]) else _USES[use]
        lines.append(f"| {names} | {what} | {here.removeprefix('secret: ')} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text()))
