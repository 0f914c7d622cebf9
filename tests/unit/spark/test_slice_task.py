"""The function of a Spark task, with a store in memory."""

from __future__ import annotations

import importlib
import io
import pickle
import pickletools
import platform
import subprocess
import sys
import threading
import zipfile
import zipimport
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from airflow_provider_kafka_s3.config import (
    MIB,
    Chain,
    CustomPartitioner,
    Daily,
    JsonConverter,
    JsonLines,
    Layout,
    Parquet,
    RawBytes,
    Upload,
)
from airflow_provider_kafka_s3.exceptions import (
    AccessDeniedError,
    RecordError,
    SparkJobError,
    SparkTimestampError,
    UnknownOutcomeError,
)
from airflow_provider_kafka_s3.retry import RetryPolicy
from airflow_provider_kafka_s3.spark import read_tasks, task
from airflow_provider_kafka_s3.spark.read_tasks import ReadTasks
from airflow_provider_kafka_s3.spark.rows import Row, error_from, from_bytes, gather
from airflow_provider_kafka_s3.spark.task import SliceTask
from airflow_provider_kafka_s3.storage.memory import MemoryStore
from airflow_provider_kafka_s3.storage.s3 import S3Credentials, S3Settings
from dev.waiting import wait_until
from tests.unit.spark.test_slice_ranks import plan_of

PLANS = [plan_of("a", [(0, 0, 50), (0, 50, 90), (1, 0, 10)]), plan_of("b", [(0, 0, 50)])]
Rows = list[tuple[str, int, int, int, bytes | None]]


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    """The bucket of the task."""
    memory = MemoryStore()
    monkeypatch.setattr(task, "_client", lambda *_: None)
    monkeypatch.setattr(task, "S3Store", lambda *_: memory)
    return memory


def make_task(plans: list[Any] = PLANS) -> SliceTask:
    """A task of both topics."""
    return SliceTask(
        plans,
        bucket="bucket",
        s3=S3Settings(region="us-east-1"),
        credentials=S3Credentials(access_key_id="id", secret_access_key="canary"),
        retry=RetryPolicy(max_retries=0),
        upload=Upload(),
    )


def spark_batch(rows: Rows) -> pa.RecordBatch:
    """Rows of ``(topic, partition, offset, microseconds, value)`` as Spark sends them for ``PLANS``."""
    topics, partitions, offsets, times, values = zip(*rows, strict=True) if rows else ((), (), (), (), ())
    columns: list[Any] = [
        pa.array([p << 62 | o for p, o in zip(partitions, offsets, strict=True)], pa.int64()),
        pa.array(times, pa.timestamp("us", "UTC")),
        pa.array(values, pa.binary()),
        pa.array(topics, pa.string()),
    ]
    return pa.RecordBatch.from_arrays(columns, names=["position", "timestamp", "value", "topic"])


def records(topic: str, partition: int, start: int, end: int, value: bytes = b"{}") -> Rows:
    """Records of a slice."""
    return [(topic, partition, offset, 0, value) for offset in range(start, end)]


def run(function: SliceTask, *batches: pa.RecordBatch) -> list[Row]:
    """All rows that a task yields."""
    return [from_bytes(value) for out in function(iter(batches)) for value in out.column("row").to_pylist()]


SLICES = [("a", 0, 3, 50), ("a", 0, 50, 90), ("b", 0, 0, 50), ("a", 1, 0, 10)]
"""All slices of two topics, one of them with a hole at its start."""


@pytest.mark.parametrize("batches", ["one task each", "one batch", "batches of seven"])
def test_a_task_finds_its_slices_by_their_records(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch, batches: str
) -> None:
    """Each slice is written to its own objects, whichever slices a task reads, and wherever Spark's batches end."""
    monkeypatch.setattr(read_tasks, "_PARALLELISM", 1)
    if batches == "one task each":
        monkeypatch.setattr(read_tasks, "_SMALL", 0)
        rows = [row for slice_ in SLICES for row in run(make_task(), spark_batch([]), spark_batch(records(*slice_)))]
    else:
        some = [record for slice_ in SLICES for record in records(*slice_)]
        size = len(some) if batches == "one batch" else 7
        rows = run(make_task(), *(spark_batch(some[at : at + size]) for at in range(0, len(some), size)))
    first, second = gather(ReadTasks(PLANS), rows)
    assert isinstance(first, list)
    assert isinstance(second, list)
    assert [s.result.records for s in first] == [47, 40, 10]
    assert [s.result.records for s in second] == [50]
    assert len(list(store.pending_uploads(""))) == 4


def test_a_single_topic_needs_no_topic_column(store: MemoryStore) -> None:
    """Then Spark does not send it."""
    batch = spark_batch(records("b", 0, 0, 50)).drop_columns(["topic"])
    assert [(r.topic, r.slice, r.kind) for r in run(make_task([PLANS[1]]), batch)] == [
        (0, 0, "object"),
        (0, 0, "slice"),
    ]


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (("a", 0, 90, 0, b"{}"), "partition 0 offset 90 is in none of the slices"),
        (("b", 1, 0, 0, b"{}"), "partition 1 offset 0 is in none of the slices"),
        (("c", 0, 0, 0, b"{}"), "topic 'c' is in no slice"),
    ],
)
def test_a_record_of_no_slice_is_an_error(
    store: MemoryStore, record: tuple[str, int, int, int, bytes], message: str
) -> None:
    """Past the end, of another partition, of another topic."""
    with pytest.raises(SparkJobError, match=message):
        run(make_task(), spark_batch([record]))
    with pytest.raises(SparkJobError, match=message):
        run(make_task(), spark_batch([*records("a", 0, 0, 5), record]))
    assert not list(store.pending_uploads(""))


def test_no_records_end_in_one_row(store: MemoryStore) -> None:
    """The driver determines the slice."""
    assert [(r.topic, r.slice, r.kind) for r in run(make_task(), spark_batch([]))] == [(-1, -1, "empty")]


def test_the_final_row_of_a_task_has_its_python_environment(store: MemoryStore) -> None:
    """Its Python, this package, and the libraries that write the objects; the rows before are not made longer."""
    for batch in (spark_batch(records("b", 0, 0, 50)), spark_batch([])):
        *others, last = run(make_task(), batch)
        assert last.python.startswith(f"Python {platform.python_version()} of {sys.executable} with the installed ")
        assert f", pyarrow {pa.__version__}" in last.python
        assert {row.python for row in others} <= {""}


def test_a_terminal_error_is_a_row_and_leaves_no_upload(store: MemoryStore) -> None:
    """Spark would retry an exception in vain; the uploads are aborted."""
    large = records("a", 0, 0, 1, b'"' + b"x" * 9 * MIB + b'"')
    rows = run(make_task(), spark_batch(large), spark_batch([("a", 0, 1, 0, b"{")]))
    (failed,) = rows
    assert (failed.kind, failed.topic, failed.slice) == ("error", 0, 0)
    assert b'"kind":"record"' in bytes(failed.body)
    assert b"offset 1" in bytes(failed.body)
    assert not list(store.pending_uploads(""))


def test_a_terminal_error_of_a_slice_leaves_those_beside_it(store: MemoryStore) -> None:
    """A task with several slices writes the others, of its topic and of others; the bad one has no upload."""
    rows = run(
        make_task(),
        spark_batch(
            [*records("a", 0, 0, 50), *records("a", 0, 50, 60), ("a", 0, 60, 0, b"{"), *records("a", 0, 61, 90)]
        ),
        spark_batch([*records("a", 1, 0, 10), *records("b", 0, 0, 50)]),
    )
    assert [(row.topic, row.slice, row.kind) for row in rows if row.kind != "object"] == [
        *((0, 0, "slice"), (0, 1, "error")),
        *((0, 2, "slice"), (1, 0, "slice")),
    ]
    assert len(list(store.pending_uploads(""))) == 3


def test_slices_of_few_bytes_wait_for_the_store_together(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four requests are under way at once; a slice of many bytes is uploaded while it is read, and not held."""
    together = threading.Barrier(4)
    create = store.create_upload

    def create_upload(key: str, *args: Any, **kwargs: Any) -> str:
        if "a+1+0000000010" not in key:
            together.wait(30)
        return create(key, *args, **kwargs)

    monkeypatch.setattr(store, "create_upload", create_upload)
    plans = [plan_of("a", [(0, 0, 50), (0, 50, 90), (1, 0, 10), (1, 10, 13)]), plan_of("b", [(0, 0, 50)])]
    large = records("a", 1, 10, 13, b'"' + b"x" * MIB + b'"')
    some = [record for slice_ in SLICES for record in records(*slice_)]
    rows = run(make_task(plans), spark_batch(some), spark_batch(large))
    assert next((row.topic, row.slice) for row in rows if row.kind == "slice") == (0, 3)
    assert len(list(store.pending_uploads(""))) == 5


CUSTOM = CustomPartitioner(import_path="their_package:TheirPartitioner")


@pytest.mark.parametrize(
    ("layout", "aside"),
    [
        (Layout(format=JsonLines()), True),
        (Layout(format=RawBytes(), partitioner=Daily()), True),
        (Layout(format=Parquet(), value_converter=JsonConverter(schemas_enable=True)), False),
        (Layout(format=JsonLines(), partitioner=Chain(partitioners=(CUSTOM, Daily()))), False),
    ],
    ids=["lines", "bytes", "values with a schema", "a class of another package"],
)
def test_classes_of_others_and_values_with_a_schema_stay_in_the_thread_of_the_task(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch, layout: Layout, aside: bool
) -> None:
    """Classes may use state of their module, and columns take many times the bytes of their records."""
    threads = []

    def write_slices(*_: object, **__: object) -> None:
        threads.append(threading.current_thread() is threading.main_thread())
        raise RecordError("nothing is written here")

    monkeypatch.setattr(task, "write_slices", write_slices)
    plans = [msgspec.structs.replace(plan, layout=layout) for plan in PLANS]
    run(make_task(plans), spark_batch([record for slice_ in SLICES for record in records(*slice_)]))
    assert threads == [not aside] * len(SLICES)


def test_threads_of_a_task_share_one_client(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client takes a twentieth of a CPU second, and another request for credentials."""
    monkeypatch.undo()
    made = []

    def make_client(*_: object) -> None:
        made.append(threading.current_thread().name)

    task._client.cache_clear()
    monkeypatch.setattr(task, "make_client", make_client)
    monkeypatch.setattr(task, "S3Store", lambda *_: store)
    run(make_task(), spark_batch([record for slice_ in SLICES for record in records(*slice_)]))
    assert made == ["MainThread"]


def test_a_task_that_fails_aborts_the_uploads_of_all_its_slices(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows are lost with it, so nobody else has the ids of the uploads."""
    create = store.create_upload

    def create_upload(key: str, *args: Any, **kwargs: Any) -> str:
        if "/b/" in key:
            wait_until(lambda: len(list(store.pending_uploads(""))) == 3, "the uploads of the other slices")
            raise UnknownOutcomeError("no answer")
        return create(key, *args, **kwargs)

    monkeypatch.setattr(store, "create_upload", create_upload)
    with pytest.raises(UnknownOutcomeError):
        run(
            make_task(),
            spark_batch([record for slice_ in SLICES[:2] for record in records(*slice_)]),
            spark_batch(records(*SLICES[3])),
            spark_batch(records(*SLICES[2])),
        )
    assert not list(store.pending_uploads(""))


@pytest.mark.parametrize("error", [UnknownOutcomeError("no answer"), KeyboardInterrupt(), ZeroDivisionError()])
def test_a_transient_error_is_raised_and_leaves_no_upload(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    """Spark tries the task again; the attempt cleans up after itself."""
    send = store.upload_part

    def upload_part(key: str, upload_id: str, number: int, body: bytes) -> Any:
        if number > 1:
            raise error
        return send(key, upload_id, number, body)

    monkeypatch.setattr(store, "upload_part", upload_part)
    with pytest.raises(type(error)):
        run(make_task(), spark_batch(records("a", 0, 0, 1, b'"' + b"x" * 20 * MIB + b'"')))
    assert not list(store.pending_uploads(""))


def test_a_store_that_refuses_is_a_row(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong credentials stay wrong for every retry."""

    def refuse(*_: object, **__: object) -> str:
        raise AccessDeniedError("PutObject on bucket")

    monkeypatch.setattr(store, "create_upload", refuse)
    (row,) = run(make_task(), spark_batch(records("a", 0, 0, 5)))
    assert (row.kind, b'"kind":"access_denied"' in bytes(row.body)) == ("error", True)


def test_uploads_in_yielded_rows_are_never_aborted(store: MemoryStore) -> None:
    """When Spark stops listening after the first rows, a decision may already list them."""
    rows = make_task()(iter([spark_batch(records("a", 0, 0, 50))]))
    next(iter(rows))
    rows.close()  # type: ignore[attr-defined]
    assert len(list(store.pending_uploads(""))) == 1


def test_a_source_that_breaks_off_ends_the_attempt(store: MemoryStore) -> None:
    """An error of Spark while it transfers records is an error of the attempt."""

    def batches() -> Iterator[pa.RecordBatch]:
        yield spark_batch(records("a", 0, 0, 1, b'"' + b"x" * 9 * MIB + b'"'))
        raise EOFError

    with pytest.raises(EOFError):
        list(make_task()(batches()))
    assert not list(store.pending_uploads(""))


def test_a_task_can_be_pickled_and_shows_no_secret() -> None:
    """Credentials are in the pickle, for the executor, and nowhere a log would show them."""
    travelled = pickle.loads(pickle.dumps(make_task()))
    assert repr(travelled) == "SliceTask([('a', 1), ('b', 1)], bucket='bucket')"
    assert "canary" not in f"{travelled} {vars(travelled)}"


def test_a_task_unpickles_its_own_plan_alone(store: MemoryStore) -> None:
    """Spark unpickles the function for each task: with all plans, a job of 500 topics took the square of that."""
    pickled = pickle.dumps(make_task())
    assert "Plan" not in [value for _, value, _ in pickletools.genops(pickled)]
    task._unpickled.cache_clear()
    assert list(pickle.loads(pickled)([spark_batch(records("b", 0, 0, 1, b"1"))]))
    assert task._unpickled.cache_info().misses == 1


SCRIPT = """
import gc
import sys
import threading
import zipfile
import zipimport
import pyarrow as pa
import pyspark.worker
from tests.unit.spark.test_slice_task import MemoryStore, from_bytes, make_task, task

task._client = lambda *_: None
task.S3Store = lambda *_: MemoryStore()
written = make_task()(pa.ipc.open_stream(sys.stdin.buffer))
rows = [from_bytes(row) for batch in written for row in batch.column("row").to_pylist()]
print(*(row.kind for row in rows), "pandas" in sys.modules, len(gc.get_objects()) < gc.get_freeze_count())
"""


def test_a_task_imports_no_pandas_and_exempts_modules_from_collections() -> None:
    """Pandas would cost every worker a second and 50 MB; Spark's collection after each task 50 ms."""
    batch = spark_batch(records("a", 0, 0, 50))
    stream = io.BytesIO()
    with pa.ipc.new_stream(stream, batch.schema) as writer:
        writer.write_batch(batch)
    done = subprocess.run([sys.executable, "-c", SCRIPT], input=stream.getvalue(), capture_output=True, check=False)
    assert (done.stdout.decode(), done.stderr.decode()) == ("object slice False True\n", "")


def test_a_task_leaves_no_zip_to_be_read_again(store: MemoryStore, tmp_path: Path) -> None:
    """Spark drops import caches before every task; what is in a zip can be imported all the same."""
    archive = tmp_path / "shipped.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        packed.writestr("shipped_early.py", "")
        packed.writestr("shipped_late.py", "")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(archive)
        importlib.import_module("shipped_early")
        run(make_task(), spark_batch([]))
        assert not [i for i in sys.path_importer_cache.values() if isinstance(i, zipimport.zipimporter)]
        importlib.invalidate_caches()
        importlib.import_module("shipped_late")


def test_a_timestamp_that_spark_shifts_ends_a_task_whose_objects_depend_on_it(store: MemoryStore) -> None:
    """The driver gets the error, and no upload is left; if the layout does not use times, the record is landed."""
    old = [("a", 1, 3, -2_208_988_800_000_000, b"{}"), ("a", 1, 4, -2_208_988_800_001_000, b"{}")]
    daily = Layout(format=JsonLines(), partitioner=Daily())
    dated = [msgspec.structs.replace(plan, layout=daily) for plan in PLANS]
    (row,) = run(make_task(dated), spark_batch(old))
    assert row.kind == "error"
    error = error_from(row.body)
    assert isinstance(error, SparkTimestampError)
    assert "topic 'a', partition 1, offset 4: the record's timestamp is before the year 1900" in str(error)
    assert not list(store.pending_uploads(""))
    assert [r.kind for r in run(make_task(dated), spark_batch(old[:1]))] == ["object", "slice"]
    assert [r.kind for r in run(make_task(), spark_batch(old))] == ["object", "slice"]
