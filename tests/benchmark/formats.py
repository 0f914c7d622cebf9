"""What encoding costs in a worker: values with a schema to Avro, Parquet, JSON lines and CSV, beside usual libraries.

No Spark and no servers: batches as Spark hands them to a worker go through ``write_slice`` and the uploads, to a store
that keeps nothing. The figures are CPU seconds of the process, with all its threads. Cases take turns, so that what
else the machine does meets all of them.
"""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import IO, Any, Final, Literal, TypedDict, cast

import fastavro
import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from airflow_provider_kafka_s3.arrays import RECORD_SCHEMA, WHOLE_RECORD_SCHEMA, binary_array, int64_array
from airflow_provider_kafka_s3.batch.encode import OpenObject, write_slice
from airflow_provider_kafka_s3.config import (
    MIB,
    AvroContainer,
    AvroConverter,
    Csv,
    Envelope,
    Hourly,
    JsonConverter,
    JsonLines,
    JsonSchemaConverter,
    Layout,
    Parquet,
    ProtobufConverter,
)
from airflow_provider_kafka_s3.config.formats import Format
from airflow_provider_kafka_s3.converters.registry_header import HEADER_SIZE
from airflow_provider_kafka_s3.schemas.arrow_types import arrow_type
from airflow_provider_kafka_s3.schemas.avro import parse_schema
from airflow_provider_kafka_s3.storage.durable import DurableStore
from airflow_provider_kafka_s3.storage.port import Part
from airflow_provider_kafka_s3.storage.uploads import FinishedUpload, UploadPool
from airflow_provider_kafka_s3.testing.registry import SimulatedRegistry
from tests.benchmark.measure import peak_memory
from tests.benchmark.orders_as import COLUMNS, JSON_SCHEMA, PROTOBUF, OrderMessage, as_message, as_row, newer
from tests.plans import data_plan, slices_of
from tests.spark.pipeline import ROOT

BATCH: Final = 10_000
"""Records of a batch, as Spark makes them."""
DISTINCT: Final = 4
"""Batches that are made; a case gets them several times, with offsets that go on."""
MESSAGE: Final = 1_000_000
MESSAGES: Final = 100
_MESSAGES_OF_A_BATCH: Final = 40
_TURNS: Final = 5
_PART: Final = Part(1, '"tag"', "AAAAAA==")
_START: Final = 1_735_689_600_000
_MEGABYTE: Final = 1_000_000

SCHEMA: Final[dict[str, Any]] = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "order_id", "type": "string"},
        {"name": "number", "type": "long"},
        {"name": "customer", "type": ["null", "string"], "default": None},
        {"name": "status", "type": {"type": "enum", "name": "Status", "symbols": ["NEW", "PAID", "SENT", "BACK"]}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "due", "type": {"type": "int", "logicalType": "date"}},
        {"name": "total", "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}},
        {"name": "weight", "type": "double"},
        {"name": "rating", "type": ["null", "float"], "default": None},
        {"name": "items", "type": "int"},
        {"name": "gift", "type": "boolean"},
        {
            "name": "address",
            "type": {
                "type": "record",
                "name": "Address",
                "fields": [
                    {"name": "street", "type": "string"},
                    {"name": "city", "type": "string"},
                    {"name": "zip", "type": ["null", "string"], "default": None},
                ],
            },
        },
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "attributes", "type": {"type": "map", "values": "string"}},
        {"name": "note", "type": "string"},
    ],
}
"""15 fields; a datum has 241 bytes on average."""

_FLAT: Final = {
    **SCHEMA,
    "fields": [f for f in SCHEMA["fields"] if f["name"] not in ("address", "tags", "attributes")],
}
"""What CSV can hold of it."""


class _Address(TypedDict):
    street: str
    city: str
    zip: str | None


class _Order(TypedDict):
    """An order as JSON, for msgspec."""

    order_id: str
    number: int
    customer: str | None
    status: Literal["NEW", "PAID", "SENT", "BACK"]
    at: datetime
    due: date
    total: Decimal
    weight: float
    rating: float | None
    items: int
    gift: bool
    address: _Address
    tags: list[str]
    attributes: dict[str, str]
    note: str


_TEXT: Final = {"type": "record", "name": "Text", "fields": [{"name": "body", "type": "string"}]}
_NUMBERS: Final = {
    "type": "record",
    "name": "Numbers",
    "fields": [{"name": "values", "type": {"type": "array", "items": "int"}}],
}

_MANY: Final = [{**SCHEMA, "name": f"Order{n}"} for n in range(100)]

Batches = list[pa.RecordBatch]
Case = Callable[[int], int]
"""Encodes so many batches; the bytes that come out."""


def formats() -> dict[str, Any]:
    """Run all cases: CPU in one process, memory in a process for each case."""
    print("Formats: CPU …", flush=True)
    found = {"cpu": json.loads(_part("cpu")), "memory_mb": {}}
    for name in _MEMORY:
        print(f"Formats: memory, {name} …", flush=True)
        with tempfile.TemporaryFile() as batches:
            _part("write", name, stdout=batches)
            batches.seek(0)
            found["memory_mb"][name] = json.loads(_part("memory", name, stdin=batches))
    return found


def _part(*arguments: str, stdin: IO[bytes] | None = None, stdout: IO[bytes] | int = subprocess.PIPE) -> bytes:
    command = [sys.executable, "-m", "tests.benchmark.formats", *arguments]
    return subprocess.run(command, cwd=ROOT, stdin=stdin, stdout=stdout, check=True).stdout


def ratios(found: dict[str, Any]) -> dict[str, float]:
    """The ratios of the goals."""
    cpu = {name: case["us"] for name, case in found["cpu"].items()}
    return {
        "Avro -> Avro / JSON lines": cpu["Avro -> Avro"] / cpu["JSON lines"],
        "fastavro to Avro / ours": cpu["fastavro -> Avro"] / cpu["Avro -> Avro"],
        "fastavro and pyarrow to Parquet / ours": cpu["fastavro, pyarrow -> Parquet zstd"]
        / cpu["Avro -> Parquet zstd"],
        "fastavro and gzip to JSON / ours": cpu["fastavro, msgspec -> JSON gzip"] / cpu["Avro -> JSON gzip"],
    }


def table(found: dict[str, Any]) -> list[str]:
    """The figures as lines of text."""
    lines = [f"  {'case':38}{'us/record':>11}{'krec/CPU s':>12}{'out B/record':>14}"]
    for name, case in found["cpu"].items():
        lines.append(f"  {name:38}{case['us']:11.2f}{1000 / case['us']:12.0f}{case['bytes']:14.0f}")
    memory = ", ".join(f"{name} {value:.0f}" for name, value in found["memory_mb"].items())
    return [*lines, f"  peak memory of a worker, MB: {memory}"]


# -- records ----------------------------------------------------------------------------------------------------------


def orders_of(count: int) -> Iterator[dict[str, Any]]:
    """So many orders, the same ones every time."""
    rng = random.Random(2026)
    words = ("amber", "birch", "cedar", "delta", "ember", "flint", "grove", "heath", "inlet", "jetty", "knoll", "larch")
    for n in range(count):
        some = rng.choices(words, k=11)
        yield {
            "order_id": f"{rng.getrandbits(128):032x}",
            "number": rng.getrandbits(40),
            "customer": None if n % 5 == 0 else f"customer-{rng.randrange(10**6):06d}",
            "status": rng.choice(("NEW", "PAID", "SENT", "BACK")),
            "at": datetime(2025, 1, 1, tzinfo=UTC) + timedelta(milliseconds=n * 86),
            "due": date(2025, 1, 1) + timedelta(days=rng.randrange(60)),
            "total": Decimal(rng.randrange(10**7)).scaleb(-2),
            "weight": rng.random() * 30,
            "rating": None if n % 3 else rng.random() * 5,
            "items": rng.randrange(1, 30),
            "gift": n % 7 == 0,
            "address": {
                "street": f"{some[0]} {some[1]} street {rng.randrange(100, 900)}",
                "city": some[2],
                "zip": None if n % 4 == 0 else f"{rng.randrange(10**5):05d}",
            },
            "tags": some[3 : 3 + rng.randrange(4)],
            "attributes": {"channel": some[6], "campaign": f"{some[7]}-{rng.getrandbits(24):06x}", "device": some[8]},
            "note": f"leave it at the {some[9]} door of the {some[10]}, {' '.join(some[:4])}",
        }


def _batch(values: list[bytes], first: int) -> pa.RecordBatch:
    """A batch whose times are in eight hours by turns."""
    rows = np.arange(len(values))
    columns = [int64_array(first + rows), int64_array(_START + rows % 8 * 3_600_000)]
    return pa.RecordBatch.from_arrays([*columns, binary_array(values, large=False)], schema=RECORD_SCHEMA)


def _header(schema_id: int = 1) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big")


def _framed(schema: Any, values: Iterable[Any], schema_id: int = 1) -> list[bytes]:
    found = []
    parsed = fastavro.parse_schema(schema)
    for value in values:
        body = io.BytesIO()
        fastavro.schemaless_writer(body, parsed, value)
        found.append(_header(schema_id) + body.getvalue())
    return found


def _batches_of(values: list[bytes]) -> Batches:
    return [_batch(values[first : first + BATCH], first) for first in range(0, len(values), BATCH)]


def _repeated(batches: Batches, count: int) -> Iterator[pa.RecordBatch]:
    """So many batches, with offsets that go on."""
    for n, batch in zip(range(count), itertools.cycle(batches), strict=False):
        offsets = int64_array(np.arange(n * BATCH, n * BATCH + batch.num_rows))
        yield pa.RecordBatch.from_arrays([offsets, *batch.columns[1:]], schema=batch.schema)


def _whole(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The records with keys, and without headers."""
    keys = binary_array([b"customer-%d" % (n % 1000) for n in range(batch.num_rows)], large=False)
    headers = pa.nulls(batch.num_rows, WHOLE_RECORD_SCHEMA.field("headers").type)
    return pa.RecordBatch.from_arrays([*batch.columns, keys, headers], schema=WHOLE_RECORD_SCHEMA)


# -- ours -------------------------------------------------------------------------------------------------------------


class Counted:
    """The destination of an object of which only the size is kept."""

    def __init__(self, key: str) -> None:
        self._key = key
        self._size = 0

    def write(self, data: bytes | memoryview) -> None:
        self._size += memoryview(data).nbytes

    def seal(self) -> None:
        pass

    def finish(self) -> FinishedUpload:
        return FinishedUpload(self._key, "upload", (_PART,), self._size, 0)


class Nowhere:
    """A store that keeps nothing, with the methods that uploads use."""

    def create_upload(self, key: str, metadata: Mapping[str, str], tags: Mapping[str, str]) -> str:
        del key, metadata, tags
        return "upload"

    def upload_part(self, key: str, upload_id: str, number: int, body: bytearray) -> Part:
        del key, upload_id, body
        return replace(_PART, number=number)


def land(
    layout: Layout, batches: Iterable[pa.RecordBatch], registry: SimulatedRegistry, open_object: OpenObject
) -> int:
    """Write a slice as a worker does; the bytes of its objects."""
    (slice_,) = slices_of((0, 0, 10**9))
    plan = data_plan(layout, [slice_], topic="orders")
    rows = write_slice(plan, slice_, batches, open_object, schemas=registry)
    return sum(entry.size for entry in rows.objects)


def _registry(*schemas: Any) -> SimulatedRegistry:
    registry = SimulatedRegistry()
    for number, schema in enumerate(schemas, 1):
        registry.register(json.dumps(schema), versions={"orders-value": number})
    return registry


def _ours(record_format: Format, batches: Batches, registry: SimulatedRegistry | None = None, **layout: Any) -> Case:
    settings = Layout(format=record_format, **layout)
    registry = registry or _registry(SCHEMA)

    def run(count: int) -> int:
        return land(settings, _repeated(batches, count), registry, lambda key, _: Counted(key))

    return run


# -- fastavro ---------------------------------------------------------------------------------------------------------


def _decoded(batch: pa.RecordBatch, of: Any = SCHEMA) -> list[Any]:
    schema, read = fastavro.parse_schema(of), fastavro.schemaless_reader
    values: list[Any] = batch.column("value").to_pylist()
    return [read(io.BytesIO(value[HEADER_SIZE:]), schema, None) for value in values]


def _fastavro_avro(batches: Batches) -> Case:
    def run(count: int) -> int:
        body = io.BytesIO()
        schema = fastavro.parse_schema(SCHEMA)
        fastavro.writer(body, schema, itertools.chain.from_iterable(map(_decoded, _repeated(batches, count))))
        return body.tell()

    return run


def _fastavro_parquet(batches: Batches) -> Case:
    schema, read = fastavro.parse_schema(SCHEMA), fastavro.schemaless_reader
    return _parquet_of(
        batches, _columns(SCHEMA), lambda values: [read(io.BytesIO(v[HEADER_SIZE:]), schema, None) for v in values]
    )


def _fastavro_csv(batches: Batches) -> Case:
    names = [field["name"] for field in _FLAT["fields"]]

    def run(count: int) -> int:
        body = io.StringIO()
        writer = csv.DictWriter(body, names)
        writer.writeheader()
        for batch in _repeated(batches, count):
            writer.writerows(_decoded(batch, _FLAT))
        return body.tell()

    return run


def _parquet_of(batches: Batches, columns: pa.Schema, rows: Callable[[Sequence[bytes]], list[Any]]) -> Case:
    """Rows of Python, made by a library, and pyarrow's writer."""

    def run(count: int) -> int:
        body = io.BytesIO()
        with pq.ParquetWriter(body, columns, compression="zstd", compression_level=3) as writer:
            for batch in _repeated(batches, count):
                values = cast("Sequence[bytes]", batch.column("value").to_pylist())
                writer.write_table(pa.Table.from_pylist(rows(values), columns))
        return body.tell()

    return run


def _columns(schema: Any) -> pa.Schema:
    return pa.schema(list(cast("pa.StructType", arrow_type(parse_schema(json.dumps(schema))))))


def _msgspec_parquet(batches: Batches) -> Case:
    decode = msgspec.json.Decoder(_Order).decode
    return _parquet_of(batches, _columns(SCHEMA), lambda values: [decode(value) for value in values])


def _google_parquet(batches: Batches) -> Case:
    read, begin = OrderMessage.FromString, HEADER_SIZE + 1
    return _parquet_of(batches, COLUMNS, lambda values: [as_row(read(value[begin:])) for value in values])


def _fastavro_json(batches: Batches) -> Case:
    def run(count: int) -> int:
        body, encode = io.BytesIO(), msgspec.json.Encoder().encode
        with gzip.GzipFile(fileobj=body, mode="wb", compresslevel=6) as file:
            for batch in _repeated(batches, count):
                file.write(b"".join(encode(order) + b"\n" for order in _decoded(batch)))
        return body.tell()

    return run


# -- measuring --------------------------------------------------------------------------------------------------------


def _cpu() -> dict[str, dict[str, float]]:
    """Microseconds and bytes per record of each case; the least of the turns, since other load adds time."""
    orders = list(orders_of(BATCH * DISTINCT))
    avro = _batches_of(_framed(SCHEMA, orders))
    texts = [msgspec.json.encode(order) for order in orders]
    documents, headed = _batches_of(texts), _batches_of([_header() + text for text in texts])
    messages = _batches_of([_header() + b"\0" + as_message(order) for order in orders])
    flat = _batches_of(_framed(_FLAT, orders))
    whole = [_whole(batch) for batch in avro]
    # The newer version first, so that the older one is projected.
    both = (_framed(newer(SCHEMA), orders, 2), _framed(SCHEMA, orders))
    mixed = _batches_of([both[n % 2][n] for n in range(len(orders))])
    versions = _registry(SCHEMA, newer(SCHEMA))
    backward: dict[str, Any] = {"schema_compatibility": "BACKWARD"}
    json_schemas, protobufs = SimulatedRegistry(), SimulatedRegistry()
    json_schemas.register(json.dumps(JSON_SCHEMA), type="JSON")
    protobufs.register(PROTOBUF, type="PROTOBUF")
    converted: dict[str, Any] = {"value_converter": AvroConverter()}
    declared = JsonConverter(schema=json.dumps(SCHEMA), decimal_format="NUMERIC")
    by_json_schema = JsonSchemaConverter()
    # Name, the case, and the batches of a turn: fewer for those that take long.
    cases: list[tuple[str, Case, int]] = [
        ("JSON lines", _ours(JsonLines(), documents), 20),
        ("JSON gzip", _ours(JsonLines(compression="gzip"), documents), 10),
        *(
            (f"JSON gzip, level {level}", _ours(JsonLines(compression="gzip", compression_level=level), documents), 10)
            for level in (1, 3, 5, 6)
        ),
        ("Avro -> Avro", _ours(AvroContainer(), avro, **converted), 20),
        ("Avro -> Parquet zstd", _ours(Parquet(), avro, **converted), 10),
        *(
            (
                f"Avro -> Parquet zstd, {parquet.integer_encoding}, level {parquet.compression_level}",
                _ours(parquet, avro, **converted),
                10,
            )
            for parquet in (
                Parquet(integer_encoding="plain"),
                Parquet(integer_encoding="plain", compression_level=3),
                Parquet(compression_level=3),
            )
        ),
        ("Avro -> JSON lines", _ours(JsonLines(), avro, **converted), 10),
        ("Avro -> JSON gzip", _ours(JsonLines(compression="gzip"), avro, **converted), 10),
        ("Avro -> Parquet zstd, envelope", _ours(Parquet(), whole, **converted, content=Envelope()), 10),
        ("Avro -> Parquet zstd, BACKWARD", _ours(Parquet(), mixed, versions, **converted, **backward), 10),
        ("Avro -> CSV", _ours(Csv(), flat, _registry(_FLAT), **converted), 10),
        ("JSON -> Parquet zstd", _ours(Parquet(), documents, value_converter=declared), 10),
        ("JSON Schema -> Parquet zstd", _ours(Parquet(), headed, json_schemas, value_converter=by_json_schema), 10),
        ("Protobuf -> Parquet zstd", _ours(Parquet(), messages, protobufs, value_converter=ProtobufConverter()), 10),
        ("fastavro -> Avro", _fastavro_avro(avro), 2),
        ("fastavro, csv -> CSV", _fastavro_csv(flat), 2),
        ("msgspec, pyarrow -> Parquet zstd", _msgspec_parquet(documents), 2),
        ("google.protobuf, pyarrow -> Parquet zstd", _google_parquet(messages), 2),
        ("fastavro, pyarrow -> Parquet zstd", _fastavro_parquet(avro), 2),
        ("fastavro, msgspec -> JSON gzip", _fastavro_json(avro), 2),
    ]
    times: dict[str, list[float]] = {name: [] for name, _, _ in cases}
    sizes = {name: case(1) for name, case, _ in cases}
    for _ in range(_TURNS):
        for name, case, count in cases:
            started = time.process_time()
            sizes[name] = case(count) // count
            times[name].append((time.process_time() - started) / count)
    scale = 1_000_000 / BATCH
    return {name: {"us": round(min(times[name]) * scale, 3), "bytes": sizes[name] // BATCH} for name in times}


def _large(schema: Any, value: Callable[[random.Random], Any]) -> Batches:
    """Messages of one megabyte, as many in a batch as Spark puts there."""
    rng = random.Random(1)
    values = _framed(schema, (value(rng) for _ in range(MESSAGES)))
    firsts = range(0, MESSAGES, _MESSAGES_OF_A_BATCH)
    return [_batch(values[n : n + _MESSAGES_OF_A_BATCH], n) for n in firsts]


def _small() -> Batches:
    return list(_repeated(_batches_of(_framed(SCHEMA, orders_of(BATCH * DISTINCT))), 40))


def _many_schemas() -> Batches:
    """As many records as :func:`_small`; their schemas follow in turn."""
    count = len(_MANY)
    orders = list(orders_of(BATCH * DISTINCT))
    of_schema = [_framed(schema, orders[n::count], n + 1) for n, schema in enumerate(_MANY)]
    values = [of_schema[n % count][n // count] for n in range(len(orders))]
    return list(_repeated(_batches_of(values), 40))


def _interleaved() -> Batches:
    """Records whose folders follow in turn, so that all their row groups fill at the same time: 320 MB."""
    texts = _framed(_TEXT, ({"body": random.Random(n).randbytes(5_000).hex()} for n in range(1_000)))
    hours = int64_array(_START + np.arange(len(texts)) % 16 * 3_600_000)
    batches = _repeated([_batch(texts, 0)], 32)
    return [pa.RecordBatch.from_arrays([b.columns[0], hours, b.columns[2]], schema=b.schema) for b in batches]


def _texts() -> Batches:
    return _large(_TEXT, lambda rng: {"body": rng.randbytes(MESSAGE // 2).hex()})


def _numbers() -> Batches:
    return _large(_NUMBERS, lambda rng: {"values": list(rng.randbytes(MESSAGE))})


def _layout(record_format: Format, **more: Any) -> Layout:
    return Layout(format=record_format, value_converter=AvroConverter(), **more)


_MEMORY: Final[dict[str, tuple[Layout, Any, Callable[[], Batches]]]] = {
    "Avro": (_layout(AvroContainer()), SCHEMA, _small),
    "Parquet": (_layout(Parquet()), SCHEMA, _small),
    "Parquet, 8 open": (_layout(Parquet(), partitioner=Hourly()), SCHEMA, _small),
    "Parquet, 16 filling": (_layout(Parquet(), partitioner=Hourly()), _TEXT, _interleaved),
    "JSON gzip": (_layout(JsonLines(compression="gzip")), SCHEMA, _small),
    "Avro, 100 schemas": (_layout(AvroContainer()), _MANY, _many_schemas),
    "Parquet, 100 schemas": (_layout(Parquet(row_group_bytes=2 * MIB)), _MANY, _many_schemas),
    "Avro, texts of 1 MB": (_layout(AvroContainer()), _TEXT, _texts),
    "Avro, arrays of 1 MB": (_layout(AvroContainer()), _NUMBERS, _numbers),
    "Parquet, texts of 1 MB": (_layout(Parquet()), _TEXT, _texts),
    "Parquet, texts of 1 MB, 8 open": (_layout(Parquet(), partitioner=Hourly()), _TEXT, _texts),
    "Parquet, arrays of 1 MB": (_layout(Parquet()), _NUMBERS, _numbers),
    "JSON gzip, texts of 1 MB": (_layout(JsonLines(compression="gzip")), _TEXT, _texts),
    "JSON gzip, arrays of 1 MB": (_layout(JsonLines(compression="gzip")), _NUMBERS, _numbers),
}


def _write_batches(name: str) -> None:
    """Write the batches of a case to standard output, so that making them does not count."""
    with pa.ipc.new_stream(sys.stdout.buffer, RECORD_SCHEMA) as stream:
        for batch in _MEMORY[name][2]():
            stream.write_batch(batch)


def _memory() -> float:
    """The peak memory of a case in megabytes; its batches come from standard input, one at a time."""
    layout, schema, _ = _MEMORY[sys.argv[2]]
    with UploadPool(cast("DurableStore", Nowhere()), part_size=layout.part_size) as pool:
        schemas = schema if isinstance(schema, list) else [schema]
        land(layout, pa.ipc.open_stream(sys.stdin.buffer), _registry(*schemas), pool.open)
    return round(peak_memory() / _MEGABYTE)


def main() -> None:
    """Run a part of the benchmark; print its figures as a line of JSON."""
    match sys.argv[1]:
        case "cpu":
            print(json.dumps(_cpu()), flush=True)
        case "write":
            _write_batches(sys.argv[2])
        case "memory":
            print(json.dumps(_memory()), flush=True)


if __name__ == "__main__":
    main()
