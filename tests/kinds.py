"""Kinds of landed topics: layouts, records that fit them, and the records read back from their objects."""

from __future__ import annotations

import base64
import io
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

import fastavro
import pyarrow as pa
import pyarrow.csv

from airflow_provider_kafka_s3.config import (
    MIN_PART_SIZE,
    AvroContainer,
    AvroConverter,
    BlockGzip,
    Csv,
    Daily,
    Envelope,
    JsonConverter,
    JsonLines,
    Layout,
    Parquet,
    RawBytes,
    Rotation,
    SiblingObjects,
    StringConverter,
)
from airflow_provider_kafka_s3.layout import keys
from airflow_provider_kafka_s3.testing.invariants import InvariantViolation, decode_lines
from airflow_provider_kafka_s3.testing.registry import SimulatedRegistry
from tests import landed_rows

__all__ = ["KINDS", "SCHEMAS", "Kind", "KindName", "Landed", "registry_of"]

KindName = Literal[
    "bytes",
    "json",
    "avro",
    "parquet",
    "csv",
    "registry",
    "envelope",
    "siblings",
    "blocks",
    "dead letters",
    "merged",
    "together",
]

_FIELDS: Final[list[dict[str, Any]]] = [
    {"name": "at", "type": "long"},
    {"name": "of", "type": "string"},
    {"name": "padding", "type": "string"},
]
SCHEMAS: Final = tuple(
    json.dumps(
        {
            "type": "record",
            "name": "Event",
            "fields": [*_FIELDS, *({"name": f"added{i}", "type": "null", "default": None} for i in range(version))],
        }
    )
    for version in range(4)
)
"""Versions of the schema of values; the first one is the declared schema of JSON."""

_INVALID: Final = "no JSON: "
_PARSED: Final = tuple(fastavro.parse_schema(json.loads(text)) for text in SCHEMAS)
_DECLARED: Final = JsonConverter(schema=SCHEMAS[0])


class Landed(NamedTuple):
    """A record as far as a kind lands it.

    Attributes:
        key: of the record.
        value: as in objects; that of a dead letter as it is in Kafka.
        headers: of the record.
    """

    key: str | None
    value: bytes | None
    headers: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Kind:
    """What a topic is landed as.

    Attributes:
        settings: of the layout.
        whole: whether keys and headers are landed.
        nulls: whether some values are null.
        invalid: whether some values are invalid, and dead letters.
        registry: whether values have schemas of a registry.
    """

    settings: Mapping[str, Any]
    whole: bool = False
    nulls: bool = False
    invalid: bool = False
    registry: bool = False

    @property
    def has_objects_without_values(self) -> bool:
        """Whether null values have objects of keys and headers alone."""
        return self.nulls and isinstance(self.settings.get("content"), SiblingObjects)

    def layout(self, topics_dir: str) -> Layout:
        """Its layout; nothing is compressed, except blocks."""
        return Layout(topics_dir=topics_dir, part_size=MIN_PART_SIZE, **self.settings)

    def value(self, number: int, record: Mapping[str, Any], *, version: int = 0) -> bytes | None:
        """A value in Kafka.

        Args:
            number: of the record; every third one is null, or invalid, if the kind has such values.
            record: with the fields of :data:`SCHEMAS`.
            version: index of a schema in :data:`SCHEMAS`, for values of a registry.
        """
        if self.nulls and number % 3 == 1:
            return None
        if self.invalid and number % 3 == 2:
            return f"{_INVALID}{record['at']}".encode()
        if not self.registry:
            return _compact(record)
        buffer = io.BytesIO()
        fastavro.schemaless_writer(buffer, _PARSED[version], dict(record))
        return b"\0" + (version + 1).to_bytes(4, "big") + buffer.getvalue()

    def landed(self, key: str, value: bytes | None, headers: Sequence[tuple[str, str]]) -> Landed:
        """A record in Kafka, as far as the kind lands it."""
        if self.invalid and value is not None and value.startswith(_INVALID.encode()):
            return Landed(key, value, tuple(headers))
        written = None if value is None else self.as_written(value)
        return Landed(key, written, tuple(headers)) if "content" in self.settings else Landed(None, written, ())

    def as_written(self, value: bytes) -> bytes:
        """A value in Kafka as :meth:`values` reads it from an object."""
        if not self.registry:
            return value
        schema = _PARSED[int.from_bytes(value[1:5], "big") - 1]
        return _compact(fastavro.schemaless_reader(io.BytesIO(value[5:]), schema, None))  # type: ignore[arg-type]

    def values(self, key: str, body: bytes) -> Sequence[bytes | None]:
        """The values in an object of values, or one item per record of another object."""
        if isinstance(self.settings.get("content"), Envelope):
            return [None if row["value"] is None else _compact(row["value"]) for row in rows(key, body)]
        if key.endswith(".headers.avro"):
            return [b""] * len(rows(key, body))
        if key.endswith((".avro", ".parquet", ".csv")):
            return [_compact(row) for row in rows(key, body)]
        return decode_lines(key, body)

    def check_whole(
        self, layout: Layout, topic: str, objects: Mapping[str, bytes], records: Callable[[], Sequence[Landed]]
    ) -> None:
        """Compare keys, values and headers in objects, dead letters included, with the records in Kafka.

        Args:
            layout: of the objects.
            topic: name of the topic.
            objects: all objects of the topic, by their keys.
            records: returns all records in Kafka.

        Raises:
            InvariantViolation: they differ.
        """
        if not self.whole:
            return
        found, expected = Counter(self._landed(layout, topic, objects)), Counter(records())
        if found != expected:
            raise InvariantViolation(
                [
                    f"I1 landed are {found.total()} records, in Kafka are {expected.total()}",
                    f"I1 landed, and not in Kafka: {[*(found - expected)][:3]}",
                    f"I1 in Kafka, and not landed: {[*(expected - found)][:3]}",
                ]
            )

    def _landed(self, layout: Layout, topic: str, objects: Mapping[str, bytes]) -> Iterator[Landed]:
        dead = keys.dead_letters_prefix(layout, topic)
        for key, body in objects.items():
            if key.startswith(dead):
                yield from (_dead_letter(row) for row in rows(key, body))
            elif isinstance(layout.content, Envelope):
                yield from (
                    Landed(
                        row["key"],
                        None if row["value"] is None else _compact(row["value"]),
                        tuple((h["key"], base64.b64decode(h["value"]).decode()) for h in row["headers"]),
                    )
                    for row in rows(key, body)
                )
            elif isinstance(layout.content, SiblingObjects):
                if keys.sibling_of_key(layout, key) == ".keys":
                    yield from self._beside(layout, key, objects)
            elif keys.sibling_of_key(layout, key) is None:
                yield from (Landed(None, value, ()) for value in self.values(key, body))

    def _beside(self, layout: Layout, key: str, objects: Mapping[str, bytes]) -> Iterator[Landed]:
        beside = key.removesuffix(keys.siblings(layout)[".keys"]) + layout.format.object_extension
        headers = keys.sibling_key(layout, beside, ".headers")
        names = rows(key, objects[key])
        values = self.values(beside, objects[beside]) if beside in objects else [None] * len(names)
        for name, value, given in zip(names, values, rows(headers, objects[headers]), strict=True):
            yield Landed(name, value, tuple((h["key"], h["value"]) for h in given))


KINDS: Final[Mapping[KindName, Kind]] = {
    "bytes": Kind({"format": RawBytes()}),
    "json": Kind({"format": JsonLines()}),
    "avro": Kind({"format": AvroContainer(), "value_converter": _DECLARED}),
    "parquet": Kind({"format": Parquet(compression="none"), "value_converter": _DECLARED}),
    "csv": Kind({"format": Csv(), "value_converter": _DECLARED}),
    "registry": Kind({"format": Parquet(compression="none"), "value_converter": AvroConverter()}, registry=True),
    "envelope": Kind(
        {"format": JsonLines(on_null="write"), "key_converter": StringConverter(), "content": Envelope()},
        whole=True,
        nulls=True,
    ),
    "siblings": Kind(
        {
            "format": JsonLines(on_null="write"),
            "key_converter": StringConverter(),
            "content": SiblingObjects(keys=JsonLines(), headers=AvroContainer()),
        },
        whole=True,
        nulls=True,
    ),
    "blocks": Kind(
        {
            "format": BlockGzip(lines=JsonLines(on_null="write"), block_size=500),
            "key_converter": StringConverter(),
            "content": SiblingObjects(keys=JsonLines(), headers=AvroContainer()),
        },
        whole=True,
        nulls=True,
    ),
    "dead letters": Kind(
        {"format": JsonLines(), "value_converter": _DECLARED, "errors": "dead_letter"}, whole=True, invalid=True
    ),
    "merged": Kind(
        {"format": JsonLines(), "partitioner": Daily(), "rotation": Rotation(merge_partitions=True)},
    ),
    "together": Kind(
        {
            "format": Parquet(compression="none", on_null="write"),
            "value_converter": AvroConverter(),
            "key_converter": StringConverter(),
            "content": SiblingObjects(keys=JsonLines(), headers=AvroContainer()),
            "errors": "dead_letter",
        },
        whole=True,
        nulls=True,
        invalid=True,
        registry=True,
    ),
}


def registry_of(versions: int = len(SCHEMAS)) -> SimulatedRegistry:
    """A registry with the first versions of the schema, under the ids from 1."""
    registry = SimulatedRegistry()
    for text in SCHEMAS[:versions]:
        registry.register(text)
    return registry


def rows(key: str, body: bytes) -> list[Any]:
    """The rows of an object, by its extension."""
    if key.endswith(".csv"):
        types = pyarrow.csv.ConvertOptions(column_types={"of": pa.string(), "padding": pa.string()})
        block = pyarrow.csv.ReadOptions(block_size=len(body))
        return pyarrow.csv.read_csv(io.BytesIO(body), block, convert_options=types).to_pylist()
    return landed_rows.rows(key, body)


def _dead_letter(row: Mapping[str, Any]) -> Landed:
    def data(text: str | None) -> bytes | None:
        return None if text is None else base64.b64decode(text)

    key, headers = data(row["key"]), [(h["key"], data(h["value"])) for h in row["headers"]]
    return Landed(
        None if key is None else key.decode(), data(row["value"]), tuple((n, (v or b"").decode()) for n, v in headers)
    )


def _compact(row: Mapping[str, Any]) -> bytes:
    """JSON without the fields of later schemas, which are all null."""
    return json.dumps({k: v for k, v in row.items() if not k.startswith("added")}, separators=(",", ":")).encode()
