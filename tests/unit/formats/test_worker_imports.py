"""Modules that a Python worker imports."""

from __future__ import annotations

import io
import subprocess
import sys
from typing import Any

import pyarrow as pa

SCRIPT = """
import sys
import pyarrow as pa
from airflow_provider_kafka_s3.config import Layout, Rotation, JsonLines, Hourly
from airflow_provider_kafka_s3.formats.registry import make_format
from airflow_provider_kafka_s3.layout.split import Append, Splitter

layout = Layout(
    format=JsonLines(on_null="ignore"),
    partitioner=Hourly(),
    rotation=Rotation(flush_size=3, max_bytes=8),
)
json = make_format(layout.format)
splitter = Splitter(layout, topic="t", partition=0, generation=0)
size = 0
for batch in pa.ipc.open_stream(sys.stdin.buffer):
    prepared = json.prepare(batch)
    for event in splitter.feed(prepared.records, prepared.sizes):
        if isinstance(event, Append):
            size += sum(len(data) for data in json.open("k", None).write(prepared.take(event.rows)))
print(size, "pandas" in sys.modules)
"""


COLUMNS = """
import io
import sys
import pyarrow as pa
from airflow_provider_kafka_s3.formats.avro import AvroWriter
from airflow_provider_kafka_s3.formats.compression import make_compression
from airflow_provider_kafka_s3.config import Csv, Parquet
from airflow_provider_kafka_s3.formats.csv import CsvEncoder, CsvWriter
from airflow_provider_kafka_s3.formats.parquet import ParquetWriter

batches = list(pa.ipc.open_stream(sys.stdin.buffer))
schema = batches[0].schema
encoder = CsvEncoder(schema, Csv())
writers = [
    (ParquetWriter(schema, Parquet(row_group_records=2)), lambda batch: batch),
    (AvroWriter(b'"bytes"', "snappy", sync=bytes(range(16))), lambda batch: batch.column("value").drop_null()),
    *((CsvWriter(encoder.header, make_compression(name)), encoder.encode) for name in ("gzip", "zstd", "bzip2")),
]
made = []
for writer, payload in writers:
    data = [bytes(piece) for batch in batches for piece in writer.write(payload(batch))]
    made.append(len(b"".join(data + [bytes(piece) for piece in writer.close()])) > 0)
print(made, "pandas" in sys.modules)
"""


def test_writing_columns_does_not_import_pandas(make_batch: Any) -> None:
    """Parquet, Avro and CSV with each compression; bytes, nulls and several row groups."""
    batch = make_batch([b"1", None, b'"2"', b"3,", b""])
    stream = io.BytesIO()
    with pa.ipc.new_stream(stream, batch.schema) as writer:
        for part in (batch, batch.slice(2, 1)):
            writer.write_batch(part)
    done = subprocess.run([sys.executable, "-c", COLUMNS], input=stream.getvalue(), capture_output=True, check=False)
    assert (done.stdout.decode(), done.stderr.decode()) == ("[True, True, True, True, True] False\n", "")


def test_writing_objects_does_not_import_pandas(make_batch: Any) -> None:
    """It would need a second and 50 MB; with slices, mixed hours, nulls, non-ASCII text and newlines."""
    times = [0, 0, 7_200_000, 0, 7_200_000, 0]
    batch = make_batch([b'{"a":1}', None, '"é"'.encode(), b"[\n1]", b"2", b"3"], timestamps=times)
    stream = io.BytesIO()
    with pa.ipc.new_stream(stream, batch.schema) as writer:
        for part in (batch, batch.slice(2, 1), batch.slice(4)):
            writer.write_batch(part)
    done = subprocess.run([sys.executable, "-c", SCRIPT], input=stream.getvalue(), capture_output=True, check=False)
    assert (done.stdout.decode(), done.stderr.decode()) == ("30 False\n", "")
