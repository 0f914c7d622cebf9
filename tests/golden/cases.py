"""Fixed records in every format and compression, and how another reader gets them back from an object."""

from __future__ import annotations

import base64
import bz2
import csv
import gzip
import io
import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, get_args

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

from airflow_provider_kafka_s3.config import (
    AvroCodec,
    AvroContainer,
    AvroConverter,
    BlockGzip,
    CompressionName,
    Csv,
    Daily,
    Format,
    GzipEncoder,
    JsonConverter,
    JsonLines,
    Layout,
    Parquet,
    ParquetCompression,
    RawBytes,
    Rotation,
)
from tests.unit.batch.simulated_topic import Topic
from tests.unit.formats.test_avro_container import unpacked

__all__ = ["CASES", "FILES", "VERSIONS", "Case", "made", "path_of", "versions"]

FILES: Final = Path(__file__).parent / "files"
VERSIONS: Final = FILES / "versions.json"

_ROWS: Final = 60
_PAD: Final = 16 * 1024
"""Bytes of a text in compressed objects: all of them are more than a block of any compression."""
_START: Final = datetime(2026, 1, 2, 3, 4, 5, 6000, UTC)
_TEXTS: Final = ("plain", "", "a,b;c", 'say "no"', "1\n2", "é\t☃")
_STATES: Final = ["NEW", "PAID"]

_FLAT_FIELDS: Final[list[dict[str, Any]]] = [
    {"name": "id", "type": "long"},
    {"name": "customer", "type": ["null", "string"]},
    {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "day", "type": {"type": "int", "logicalType": "date"}},
    {"name": "opens", "type": {"type": "long", "logicalType": "time-micros"}},
    {"name": "score", "type": "double"},
    {"name": "ratio", "type": ["float", "null"]},
    {"name": "done", "type": "boolean"},
    {"name": "state", "type": {"type": "enum", "name": "State", "symbols": _STATES}},
    {"name": "token", "type": {"type": "fixed", "name": "Token", "size": 4}},
    {"name": "raw", "type": "bytes"},
    {"name": "text", "type": "string"},
]
_FLAT: Final[dict[str, Any]] = {"type": "record", "name": "Order", "fields": _FLAT_FIELDS}
_NESTED: Final[dict[str, Any]] = {
    "type": "record",
    "name": "Order",
    "fields": [
        *_FLAT_FIELDS,
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "counts", "type": {"type": "map", "values": "int"}},
        {"name": "home", "type": {"type": "record", "name": "Home", "fields": [{"name": "city", "type": "string"}]}},
        {"name": "contact", "type": ["null", "string", "long"]},
    ],
}


def _flat(n: int, pad: int) -> dict[str, Any]:
    return {
        "id": (-1) ** n * n**9,
        "customer": None if n % 4 == 0 else f"c{n % 7}",
        "amount": Decimal(n * 111 - 3000) / 100,
        "at": _START + timedelta(milliseconds=n * 86_400_123),
        "day": date(2026, 1, 1) + timedelta(days=n),
        "opens": time(n % 24, n % 60, 0, n * 1001),
        "score": n / 8,
        "ratio": None if n % 5 == 0 else -n / 4,
        "done": n % 3 == 0,
        "state": _STATES[n % 2],
        "token": n.to_bytes(4, "big"),
        "raw": bytes(range(n % 9)),
        "text": _TEXTS[n % len(_TEXTS)] + "x" * pad,
    }


def _nested(n: int, pad: int) -> dict[str, Any]:
    return {
        **_flat(n, pad),
        "tags": [f"t{i}" for i in range(n % 4)],
        "counts": {f"k{i}": n * i for i in range(n % 3)},
        "home": {"city": f"city {n % 5}"},
        "contact": (None, f"mail {n}", n)[n % 3],
    }


def _document(n: int, pad: int) -> dict[str, Any]:
    return {"id": n, "text": _TEXTS[n % len(_TEXTS)] + "x" * pad, "tags": [None, n / 4, {"deep": n % 2 == 0}]}


@dataclass(frozen=True)
class Case:
    """One object.

    Attributes:
        layout: of the topic.
        fill: append the records.
        read: the records of an object of the case, read by another library.
        expected: these records.
        libraries: those that the bytes depend on.
        partitions: of the topic.
    """

    layout: Layout
    fill: Callable[[Topic], object]
    read: Callable[[bytes], list[Any]]
    expected: Sequence[Any]
    libraries: tuple[str, ...] = ()
    partitions: int = 1


def versions() -> dict[str, str]:
    """The version of each library that bytes depend on. Those of Python's modules are not locked."""
    return {
        "deflate": version("deflate"),
        "isal": version("isal"),
        "pyarrow": pa.__version__,
        "zlib": zlib.ZLIB_RUNTIME_VERSION,
    }


def made(case: Case) -> tuple[str, bytes]:
    """The extension and the bytes of the object as they are made now."""
    topic = Topic(case.layout, case.partitions)
    case.fill(topic)
    topic.land()
    objects = {key: body for key, body in topic.objects().items() if not key.endswith(".index.json")}
    dead = [key for key in objects if "/_dead_letters/" in key]
    (key,) = dead or objects
    return "." + key.rpartition("/")[2].partition(".")[2], objects[key]


def path_of(name: str) -> Path:
    """The committed file of a case."""
    (path,) = FILES.glob(f"{name}.*")
    return path


_DECOMPRESS: Final[Mapping[CompressionName, Callable[[bytes], bytes]]] = {
    "none": bytes,
    "gzip": gzip.decompress,
    "zstd": lambda body: pa.CompressedInputStream(pa.BufferReader(body), "zstd").read(),
    "bzip2": bz2.decompress,
}
_LIBRARIES: Final[Mapping[str, tuple[str, ...]]] = {
    "gzip": ("isal",),
    "zstd": ("pyarrow",),
    "zstandard": ("pyarrow",),
    "snappy": ("pyarrow",),
    "deflate": ("zlib",),
}


def _append_values(schema: dict[str, Any], values: Sequence[dict[str, Any]]) -> Callable[[Topic], object]:
    def fill(topic: Topic) -> None:
        schema_id = topic.registry.register(json.dumps(schema))
        for value in values:
            datum = io.BytesIO()
            fastavro.schemaless_writer(datum, fastavro.parse_schema(schema), value)
            topic.append(topic.registry.frame(schema_id, datum.getvalue()))

    return fill


def _typed(record_format: Format) -> Layout:
    return Layout(topics_dir="lake", format=record_format, value_converter=AvroConverter())


def _json_lines(compression: CompressionName, level: int | None = None) -> Case:
    values = [_document(n, 0 if compression == "none" else _PAD) for n in range(_ROWS)]
    return Case(
        Layout(topics_dir="lake", format=JsonLines(compression=compression, compression_level=level)),
        lambda topic: topic.append(*(json.dumps(value).encode() for value in values)),
        lambda body: [json.loads(line) for line in _DECOMPRESS[compression](body).splitlines()],
        values,
        ("deflate",) if level == 6 else _LIBRARIES.get(compression, ()),
    )


def _blocks(encoder: GzipEncoder) -> Case:
    values = [_document(n, _PAD) for n in range(_ROWS)]
    return Case(
        Layout(topics_dir="lake", format=BlockGzip(block_size=20 * _PAD, encoder=encoder)),
        lambda topic: topic.append(*(json.dumps(value).encode() for value in values)),
        lambda body: [json.loads(line) for line in gzip.decompress(body).splitlines()],
        values,
        (encoder,),
    )


def _typed_json() -> Case:
    values = [_nested(n, 0) for n in range(_ROWS // 3)]
    return Case(
        _typed(JsonLines(decimal_format="NUMERIC")),
        _append_values(_NESTED, values),
        lambda body: [json.loads(line, parse_float=Decimal) for line in body.splitlines()],
        [_json_value(value) for value in values],
        ("pyarrow",),
    )


def _json_value(value: dict[str, Any]) -> dict[str, Any]:
    """What Kafka Connect writes; numbers with a point as Decimal."""
    midnight = datetime.combine(date.min, time.min)
    contact = value["contact"]
    return {
        **value,
        "at": round(value["at"].timestamp() * 1000),
        "day": (value["day"] - date(1970, 1, 1)).days,
        "opens": (datetime.combine(date.min, value["opens"]) - midnight) // timedelta(microseconds=1),
        "token": base64.b64encode(value["token"]).decode(),
        "raw": base64.b64encode(value["raw"]).decode(),
        "contact": contact if contact is None else _branches(contact),
    }


def _branches(contact: str | int) -> dict[str, Any]:
    return {
        "string": contact if isinstance(contact, str) else None,
        "long": contact if isinstance(contact, int) else None,
    }


def _rescued() -> Case:
    """Orders by a declared schema, with fields beside it and values that do not fit."""
    schema = {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "n", "type": ["null", "long"], "default": None},
            {"name": "home", "type": ["null", {"type": "record", "name": "Home", "fields": _HOME}], "default": None},
        ],
    }
    converter = JsonConverter(schema=json.dumps(schema), unknown_fields="rescue")
    surpluses = [_surplus(n) for n in range(_ROWS)]
    return Case(
        Layout(topics_dir="lake", format=Parquet(), value_converter=converter),
        lambda topic: topic.append(*(text.encode() for text, _ in surpluses)),
        lambda body: pq.read_table(io.BytesIO(body)).to_pylist(),
        [row for _, row in surpluses],
        ("pyarrow",),
    )


_HOME: Final = [{"name": "city", "type": ["null", "string"], "default": None}]
_LARGE: Final = "1" + "0" * 40


def _surplus(n: int) -> tuple[str, dict[str, Any]]:
    """A document and its row: the digits of numbers stay, and names are sorted."""
    city = f"city {n % 5}"
    cases: tuple[tuple[str, str | None, str | None], ...] = (
        ("", None, None),
        (f', "b": 1.10, "a": [{_LARGE}]', None, f'{{"a":[{_LARGE}],"b":1.10}}'),
        (f', "n": "{n}", "n2": null', None, f'{{"n":"{n}","n2":null}}'),
        (f', "home": {{"zip": {n}, "city": "{city}"}}', city, f'{{"home":{{"zip":{n}}}}}'),
        (', "home": "none", "é": "\\u00e9"', None, '{"home":"none","é":"\\u00e9"}'),
    )
    members, home, rescued = cases[n % len(cases)]
    row = {"id": n, "n": None, "home": None if home is None else {"city": home}, "_rescued": rescued}
    return f'{{"id": {n}{members}}}', row


def _raw(compression: CompressionName) -> Case:
    values = [bytes(range(n)).replace(b"\n", b"") + b"y" * (0 if compression == "none" else _PAD) for n in range(_ROWS)]
    return Case(
        Layout(topics_dir="lake", format=RawBytes(compression=compression)),
        lambda topic: topic.append(*values),
        lambda body: _DECOMPRESS[compression](body).split(b"\n")[:-1],
        values,
        _LIBRARIES.get(compression, ()),
    )


def _avro(codec: AvroCodec) -> Case:
    # Snappy shortens a run of one character to a twentieth only.
    pad = {"null": 0, "snappy": _PAD // 8}.get(codec, _PAD)
    values = [_nested(n, pad) for n in range(_ROWS)]
    return Case(
        _typed(AvroContainer(codec=codec)),
        _append_values(_NESTED, values),
        lambda body: list(fastavro.reader(io.BytesIO(unpacked(body, codec)))),
        values,
        _LIBRARIES.get(codec, ()),
    )


def _parquet(compression: ParquetCompression, **settings: Any) -> Case:
    values = [_nested(n, 0) for n in range(_ROWS)]
    return Case(
        _typed(Parquet(**{"compression": compression, "row_group_records": 40, "field_ids": "schema", **settings})),
        _append_values(_NESTED, values),
        lambda body: pq.read_table(io.BytesIO(body)).to_pylist(maps_as_pydicts="strict"),
        [{**value, "contact": None if value["contact"] is None else _branches(value["contact"])} for value in values],
        ("pyarrow",),
    )


def _csv(compression: CompressionName) -> Case:
    values = [_flat(n, 0 if compression == "none" else _PAD) for n in range(_ROWS)]
    return Case(
        _typed(Csv(compression=compression, null="NULL")),
        _append_values(_FLAT, values),
        lambda body: list(csv.reader(io.StringIO(_DECOMPRESS[compression](body).decode(), newline=""), strict=True)),
        [list(_NAMES), *(_csv_line(value) for value in values)],
        ("pyarrow", *_LIBRARIES.get(compression, ())),
    )


_NAMES: Final = tuple(field["name"] for field in _FLAT_FIELDS)


def _csv_line(value: dict[str, Any]) -> list[str]:
    texts = {
        "at": value["at"].strftime("%Y-%m-%d %H:%M:%S.") + f"{value['at'].microsecond // 1000:03}Z",
        "opens": value["opens"].isoformat("microseconds"),
        "done": str(value["done"]).lower(),
        "token": base64.b64encode(value["token"]).decode(),
        "raw": base64.b64encode(value["raw"]).decode(),
        "amount": f"{value['amount']:.2f}",
        "score": f"{value['score']:g}",
        "ratio": "NULL" if value["ratio"] is None else f"{value['ratio']:g}",
        "customer": "NULL" if value["customer"] is None else value["customer"],
    }
    return [texts.get(name, str(value[name])) for name in _NAMES]


def _dead_letters() -> Case:
    values = [b"{", None, b"", b"\xff\x00", b"[1,]", '{"é": nul}'.encode()]

    def fill(topic: Topic) -> None:
        for n, value in enumerate(values):
            topic.append(
                value, timestamp=n - 1, key=None if n % 2 else b"k%d" % n, headers=[("trace", b"\x01")][: n % 2]
            )

    return Case(
        Layout(topics_dir="lake", format=JsonLines(), errors="dead_letter"),
        fill,
        # The reason is a text for people, and may change.
        lambda body: [
            {name: value for name, value in json.loads(line).items() if name != "reason"} for line in body.splitlines()
        ],
        [
            {
                "topic": "orders",
                "partition": 0,
                "offset": n,
                "timestamp": None if n == 0 else n - 1,
                "key": None if n % 2 else base64.b64encode(b"k%d" % n).decode(),
                "value": None if value is None else base64.b64encode(value).decode(),
                "headers": [{"key": "trace", "value": "AQ=="}][: n % 2],
                "stage": "value",
            }
            for n, value in enumerate(values)
        ],
    )


def _merged() -> Case:
    values = [_document(n, _PAD) for n in range(_ROWS)]

    def fill(topic: Topic) -> None:
        for n, value in enumerate(values):
            topic.append(json.dumps(value).encode(), partition=n * 3 // _ROWS, timestamp=n)

    return Case(
        Layout(
            topics_dir="lake",
            format=JsonLines(compression="gzip"),
            partitioner=Daily(),
            rotation=Rotation(merge_partitions=True),
        ),
        fill,
        lambda body: [json.loads(line) for line in gzip.decompress(body).splitlines()],
        values,
        _LIBRARIES["gzip"],
        partitions=3,
    )


CASES: Final[Mapping[str, Case]] = {
    **{f"json-{name}": _json_lines(name) for name in get_args(CompressionName)},
    **{f"json-gzip-{level}": _json_lines("gzip", level) for level in (1, 6)},
    "json-typed": _typed_json(),
    **{f"blocks-{name}": _blocks(name) for name in get_args(GzipEncoder)},
    **{f"bytes-{name}": _raw(name) for name in get_args(CompressionName)},
    **{f"avro-{name}": _avro(name) for name in get_args(AvroCodec)},
    **{f"parquet-{name}": _parquet(name) for name in get_args(ParquetCompression)},
    "parquet-zstd-plain": _parquet("zstd", compression_level=3, integer_encoding="plain"),
    "parquet-zstd-ids": _parquet("zstd", field_ids="path"),
    **{f"csv-{name}": _csv(name) for name in get_args(CompressionName)},
    "json-rescued": _rescued(),
    "dead-letters": _dead_letters(),
    "merged": _merged(),
}
"""By the name of their file without its extension."""
