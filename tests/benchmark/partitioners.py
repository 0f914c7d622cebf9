"""What partitioners cost in a worker: CPU beside the default partitioner, and memory of objects that are open.

As :mod:`tests.benchmark.formats`, without Spark and servers: batches as Spark hands them to a worker, as JSON lines
without compression, so that the partitioner is what differs. Each record of the memory cases is for another object, so
all objects are open until the slice ends.
"""

from __future__ import annotations

import gc
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any, Final, cast

import msgspec
import numpy as np
import pyarrow as pa

from airflow_provider_kafka_s3.arrays import WHOLE_RECORD_SCHEMA, binary_array, int64_array
from airflow_provider_kafka_s3.config import (
    MIB,
    ByField,
    ByKey,
    ByPartition,
    BytesConverter,
    Chain,
    FieldTime,
    Hourly,
    JsonLines,
    Layout,
    Parquet,
    Partitioner,
    Rotation,
)
from airflow_provider_kafka_s3.config.formats import Format
from airflow_provider_kafka_s3.storage.durable import DurableStore
from airflow_provider_kafka_s3.storage.uploads import UploadPool
from airflow_provider_kafka_s3.testing.registry import SimulatedRegistry
from tests.benchmark.formats import BATCH, DISTINCT, Batches, Counted, Nowhere, land, orders_of
from tests.benchmark.measure import peak_memory
from tests.spark.pipeline import ROOT

BATCHES: Final = 20
"""Of :data:`~tests.benchmark.formats.BATCH` records: one turn of a case."""
_TURNS: Final = 5
_FIRST_TURNS: Final = 1
_START: Final = 1_735_689_600_000
_SPACING: Final = 172
"""Milliseconds between two records: the batches of a turn fill more than nine hours."""
_LATE: Final = 4 * 3_600_000
_COUNTRIES: Final = 50
_MEGABYTE: Final = 1_000_000
FIXED_BUFFER: Final = 25 * MIB
"""Bytes that Kafka Connect's sink takes for each open object by default."""
_RECORDS_OF_OBJECTS: Final = 600_000
_TOPICS: Final = 300

DEFAULT: Final = "partition"
CPU: Final[dict[str, tuple[Partitioner, str]]] = {
    DEFAULT: (ByPartition(), "ordered"),
    "hourly": (Hourly(), "ordered"),
    "hourly, 4 hours out of order": (Hourly(), "late"),
    "hourly, by a field of ISO 8601": (Hourly(timestamp_from=FieldTime(name="at")), "ordered"),
    "field of 50 texts": (ByField(names=("country",)), "ordered"),
    "nested field of 12 texts": (ByField(names=("address.city",)), "ordered"),
    "field of 29 numbers": (ByField(names=("items",)), "ordered"),
    "field of 50 texts, hourly": (Chain(partitioners=(ByField(names=("country",)), Hourly())), "ordered"),
    "key of 50 texts": (ByKey(), "keys"),
}
"""By the name of a case, the partitioner, and which records it gets."""
GOALS: Final = {
    "hourly": 1.25,
    "field of 50 texts": 2.0,
    "nested field of 12 texts": 2.0,
}

_OPEN: Final = (1, 100, 1_000, 3_000)
MEMORY: Final[dict[str, tuple[int, Format]]] = {
    **{f"JSON, {count} open": (count, JsonLines()) for count in _OPEN},
    **{f"JSON gzip, {count} open": (count, JsonLines(compression="gzip")) for count in _OPEN},
    "Parquet, 16 open": (16, Parquet()),
}
"""By the name of a case, the number of keys of the records, each of which has an object, and the format."""
_MANY_OPEN: Final = 100
"""Fewer open objects take less than a worker without any."""


def partitioners() -> dict[str, Any]:
    """Run all cases: CPU in one process, memory in a process for each case."""
    print("Partitioners: CPU …", flush=True)
    found: dict[str, Any] = {"cpu": json.loads(_part("cpu")), "memory_mb": {}}
    for name in MEMORY:
        print(f"Partitioners: memory, {name} …", flush=True)
        with tempfile.TemporaryFile() as batches:
            _part("write", name, stdout=batches)
            batches.seek(0)
            found["memory_mb"][name] = json.loads(_part("memory", name, stdin=batches))
    print(f"Partitioners: memory, {_TOPICS} topics …", flush=True)
    found["topics_mb"] = json.loads(_part("topics"))
    return found


def _part(*arguments: str, stdin: IO[bytes] | None = None, stdout: IO[bytes] | int = subprocess.PIPE) -> bytes:
    command = [sys.executable, "-m", "tests.benchmark.partitioners", *arguments]
    return subprocess.run(command, cwd=ROOT, stdin=stdin, stdout=stdout, check=True).stdout


def ratios(found: dict[str, Any]) -> dict[str, float]:
    """CPU of each case over that of the default partitioner."""
    return {name: us / found["cpu"][DEFAULT] for name, us in found["cpu"].items()}


def less_memory(found: dict[str, Any]) -> float:
    """The part of the memory of fixed buffers that is saved: the least of all cases of 100 open objects and more."""
    cases = ((megabytes, MEMORY[name][0]) for name, megabytes in found["memory_mb"].items())
    return min(1 - megabytes * _MEGABYTE / (count * FIXED_BUFFER) for megabytes, count in cases if count >= _MANY_OPEN)


def table(found: dict[str, Any]) -> list[str]:
    """The figures as lines of text."""
    lines = [f"  {'case':34}{'us/record':>11}{'/ ' + DEFAULT:>13}"]
    of_default = ratios(found)
    for name, us in found["cpu"].items():
        lines.append(f"  {name:34}{us:11.2f}{of_default[name]:13.2f}")
    memory = ", ".join(f"{name} {value:.0f}" for name, value in found["memory_mb"].items())
    few, many = found["topics_mb"]
    return [
        *lines,
        f"  peak memory of a worker, MB: {memory}",
        f"  one topic after another, MB: 3 topics {few:.0f}, {_TOPICS} topics {many:.0f}",
    ]


# -- records ----------------------------------------------------------------------------------------------------------


def _documents() -> list[bytes]:
    rng = random.Random(2026)
    return [
        msgspec.json.encode({**order, "country": f"country-{rng.randrange(_COUNTRIES):02d}"})
        for order in orders_of(BATCH * DISTINCT)
    ]


def _batches(documents: Sequence[bytes], count: int, records: str, keys: int = _COUNTRIES) -> Iterator[pa.RecordBatch]:
    rng = np.random.default_rng(2026)
    for n in range(count):
        first = n % DISTINCT * BATCH
        offsets = np.arange(n * BATCH, (n + 1) * BATCH)
        times = _START + offsets * _SPACING
        if records == "late":
            times = times - rng.integers(0, _LATE, BATCH)
        values = binary_array(documents[first : first + BATCH], large=False)
        columns: list[Any] = [int64_array(offsets), int64_array(times), values]
        if records == "keys":
            of_records = rng.integers(0, keys, BATCH).tolist()
            columns.append(binary_array([b"customer-%d" % key for key in of_records], large=False))
            columns.append(pa.nulls(BATCH, WHOLE_RECORD_SCHEMA.field("headers").type))
        yield pa.RecordBatch.from_arrays(columns, schema=pa.schema(list(WHOLE_RECORD_SCHEMA)[: len(columns)]))


# -- measuring --------------------------------------------------------------------------------------------------------


def _case(partitioner: Partitioner, batches: Batches) -> Callable[[], int]:
    layout, registry = Layout(format=JsonLines(), partitioner=partitioner), SimulatedRegistry()
    return lambda: land(layout, batches, registry, lambda key, _: Counted(key))


def _cpu() -> dict[str, float]:
    """Microseconds per record of each case; the least of the turns, since other load adds time."""
    documents = _documents()
    of = {name: list(_batches(documents, BATCHES, name)) for name in {records for _, records in CPU.values()}}
    cases = {name: _case(partitioner, of[records]) for name, (partitioner, records) in CPU.items()}
    del documents
    gc.collect()
    gc.freeze()  # a worker has no such objects, which the collector would look at
    times: dict[str, list[float]] = {name: [] for name in cases}
    for turn in range(_FIRST_TURNS + _TURNS):
        for name, case in cases.items():
            started = time.process_time()
            case()
            if turn >= _FIRST_TURNS:
                times[name].append(time.process_time() - started)
    return {name: round(min(some) * 1_000_000 / (BATCHES * BATCH), 3) for name, some in times.items()}


def _write_batches(name: str) -> None:
    """Write the batches of a case to standard output, so that making them does not count."""
    keys, _ = MEMORY[name]
    with pa.ipc.new_stream(sys.stdout.buffer, WHOLE_RECORD_SCHEMA) as stream:
        for batch in _batches(_documents(), _RECORDS_OF_OBJECTS // BATCH, "keys", keys):
            stream.write_batch(batch)


def _memory() -> float:
    """The peak memory of a case in megabytes; its batches come from standard input, one at a time."""
    keys, record_format = MEMORY[sys.argv[2]]
    converter = BytesConverter() if isinstance(record_format, Parquet) else None
    rotation = Rotation(max_open_objects=keys)
    layout = Layout(format=record_format, partitioner=ByKey(), rotation=rotation, value_converter=converter)
    with UploadPool(cast("DurableStore", Nowhere()), part_size=layout.part_size) as pool:
        land(layout, pa.ipc.open_stream(sys.stdin.buffer), SimulatedRegistry(), pool.open)
    return round(peak_memory() / _MEGABYTE)


def _topics() -> tuple[float, float]:
    """The peak memory after few topics, and after many, one after another in a worker, each with 100 open objects."""
    batches = list(_batches(_documents(), 2, "keys", 100))
    layout, peaks = Layout(format=JsonLines(compression="gzip"), partitioner=ByKey()), []
    for count in (3, _TOPICS - 3):
        for _ in range(count):
            with UploadPool(cast("DurableStore", Nowhere()), part_size=layout.part_size) as pool:
                land(layout, batches, SimulatedRegistry(), pool.open)
        peaks.append(round(peak_memory() / _MEGABYTE))
    return peaks[0], peaks[1]


def main() -> None:
    """Run a part of the benchmark; print its figures as a line of JSON."""
    match sys.argv[1]:
        case "cpu":
            print(json.dumps(_cpu()), flush=True)
        case "write":
            _write_batches(sys.argv[2])
        case "memory":
            print(json.dumps(_memory()), flush=True)
        case "topics":
            print(json.dumps(_topics()), flush=True)


if __name__ == "__main__":
    main()
