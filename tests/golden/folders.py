"""Fixed records with hostile fields and keys, and the objects that partitioners of values make of them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from airflow_provider_kafka_s3.config import (
    ByField,
    ByKey,
    Chain,
    FieldTime,
    Hourly,
    JsonLines,
    Layout,
    Naming,
    Partitioner,
)
from tests.unit.batch.simulated_topic import Topic

__all__ = ["FOLDERS", "NULL", "RECORDS", "Record", "landed", "path_of_folders", "write_folders"]

_FILES: Final = Path(__file__).parent / "folders"
NULL: Final = "__HIVE_DEFAULT_PARTITION__"
_VALUES: Final[list[Any]] = [
    *("plain", "", ".", "..", "a/b", "../../etc", "a%2Fb", "100%", "a=b", "a+b", " space ", "line\nfeed", "\x00\x7f"),
    *("é", "e\u0301", "É", "☃ 😀", "null", NULL, NULL.lower(), "__EMPTY__", "_kafka_s3", "x" * 10_000),
    *("x" * 9_999 + "y", "é" * 300, "PLAIN", "x~" + "0" * 64, "\"#%'*:?\\{}[]^~", None, 0, -7, 2**64, True, False),
]
_START: Final = 1_767_322_800_000


@dataclass(frozen=True)
class Record:
    """A record; ``at`` is milliseconds, or a text of ISO 8601, of the same time as ``time_ms``."""

    country: Any
    city: Any
    at: str | int
    time_ms: int
    key: bytes | None


def _record(n: int) -> Record:
    text = f"2026-01-02T{n % 24:02d}:30:00.123+01:00"
    time_ms = 1_767_310_200_123 + n % 24 * 3_600_000 if n % 3 else _START + n * 3_600_000
    key = (None, b"\xff\xfe", b"", b"a\x00b")[n] if n < 4 else f"{_VALUES[n]}~'\"".encode()
    return Record(_VALUES[n], _VALUES[7 * n % len(_VALUES)], text if n % 3 else time_ms, time_ms, key)


RECORDS: Final = [_record(n) for n in range(len(_VALUES))]

_FIELD: Final = ByField(names=("country",))
_CHAIN: Final = Chain(
    partitioners=(
        ByField(names=("country", "address.city"), missing="null"),
        Hourly(timezone="Europe/Oslo", timestamp_from=FieldTime(name="at")),
    )
)
FOLDERS: Final[dict[str, tuple[Partitioner, Naming]]] = {
    "field": (_FIELD, Naming()),
    "field-lower-case": (_FIELD, Naming(lowercase_paths=True)),
    "field-names-of-kafka-connect": (_FIELD, Naming(kafka_connect_names=True)),
    "field-short": (ByField(names=("country",), max_value_bytes=80), Naming()),
    "chain": (_CHAIN, Naming()),
    "chain-names-of-kafka-connect": (_CHAIN, Naming(kafka_connect_names=True, lowercase_paths=True)),
    "key": (ByKey(), Naming()),
    "key-with-a-template": (
        ByKey(),
        Naming(file_name_template="{{topic}}-{{partition}}-{{start_offset:padding=true}}"),
    ),
}
"""The partitioners and namings by the name of their file."""


def landed(name: str) -> dict[str, list[int]]:
    """The offsets in each object, by its key, as they are made now."""
    partitioner, naming = FOLDERS[name]
    topic = Topic(Layout(topics_dir="lake", format=JsonLines(), partitioner=partitioner, naming=naming))
    for n, record in enumerate(RECORDS):
        value: dict[str, Any] = {"n": n, "country": record.country, "at": record.at}
        if n % 5:
            value["address"] = {"city": record.city}
        topic.append(json.dumps(value).encode(), key=record.key)
    topic.land()
    assert topic.check() == len(RECORDS)
    objects = topic.objects()
    return {key: [json.loads(line)["n"] for line in objects[key].splitlines()] for key in sorted(objects)}


def path_of_folders(name: str) -> Path:
    """The committed file of a case."""
    return _FILES / f"{name}.json"


def write_folders() -> None:
    """Write all files again."""
    _FILES.mkdir(exist_ok=True)
    for old in _FILES.iterdir():
        old.unlink()
    for name in FOLDERS:
        path_of_folders(name).write_text(json.dumps(landed(name), indent=0) + "\n")
