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
            size += sum(len(data) for data in json.open().write(prepared.take(event.rows)))
print(size, "pandas" in sys.modules)
"""


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
