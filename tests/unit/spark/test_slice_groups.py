"""Slices that share objects are read by one task, whatever the order in which Spark has them."""

from __future__ import annotations

import io
import itertools
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_kafka_s3.batch.encode import write_slices
from airflow_provider_kafka_s3.config import Daily, JsonLines, Layout, Rotation, Upload
from airflow_provider_kafka_s3.documents.manifest import ObjectEntry, SliceResult, SliceRows
from airflow_provider_kafka_s3.documents.plan import Plan, Slice
from airflow_provider_kafka_s3.exceptions import RecordError, SparkJobError, error_of_kind
from airflow_provider_kafka_s3.retry import Retrier
from airflow_provider_kafka_s3.spark import task
from airflow_provider_kafka_s3.spark.frames import slice_frame
from airflow_provider_kafka_s3.spark.packing import RecordPacking
from airflow_provider_kafka_s3.spark.read_tasks import ReadTasks
from airflow_provider_kafka_s3.spark.reorder import OrderedSlices
from airflow_provider_kafka_s3.spark.rows import Row, error_row, from_bytes, gather, rows_of_slice
from airflow_provider_kafka_s3.spark.task import SliceTask
from airflow_provider_kafka_s3.storage.durable import DurableStore
from airflow_provider_kafka_s3.storage.memory import MemoryStore
from airflow_provider_kafka_s3.storage.uploads import UploadPool
from tests.plans import data_plan, slices_of
from tests.unit.spark.test_slice_ranks import plan_of
from tests.unit.spark.test_slice_task import make_task, run
from tests.unit.spark.test_task_rows import EMPTY, slice_rows

LAYOUT = Layout(format=JsonLines(), partitioner=Daily(), rotation=Rotation(merge_partitions=True))
SLICES = slices_of((0, 0, 4), (1, 0, 2), (1, 5, 9), (3, 2, 5), (4, 0, 9))
PLAN = data_plan(LAYOUT, SLICES, groups=((0, 1, 2, 3), (4,)), topic="a")
GROUP = PLAN.grouped[0]
DAY = 86_400_000_000


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    """The bucket of the task."""
    memory = MemoryStore()
    monkeypatch.setattr(task, "_client", lambda *_: None)
    monkeypatch.setattr(task, "S3Store", lambda *_: memory)
    return memory


def value_of(s: Slice, offset: int) -> bytes:
    """The value of a record; some are larger than one row of Spark's."""
    return b'"%d/%d%s"' % (s.partition, offset, b"x" * 5_000 * (offset == 3))


def packed(slices: Sequence[Slice], *, plan: Plan = PLAN, at: int | None = None) -> list[pa.RecordBatch]:
    """All records of some slices as Spark sends them, in batches of ``at`` rows; None: in one."""
    packing = RecordPacking([plan])
    rows: list[tuple[int, int, bytes]] = []
    for s in slices:
        for offset in range(s.start, s.end):
            value = value_of(s, offset)
            position = s.partition << packing._shift | offset
            rows += [(position, offset % 2 * DAY, value[i : i + 4096]) for i in range(0, len(value), 4096)]
    columns = [*zip(*rows, strict=True)] or [(), (), ()]
    kinds = (pa.int64(), pa.timestamp("us", "UTC"), pa.binary())
    arrays: list[Any] = [pa.array(c, kind) for c, kind in zip(columns, kinds, strict=True)]
    batch = pa.RecordBatch.from_arrays(arrays, names=["position", "timestamp", "value"])
    size = at or max(1, batch.num_rows)
    return [batch.slice(i, size) for i in range(0, batch.num_rows, size)]


def completed(memory: MemoryStore, entries: Sequence[ObjectEntry]) -> dict[str, bytes]:
    """Objects after their uploads are completed."""
    found = {}
    for entry in entries:
        memory.complete_upload(entry.key, entry.upload_id, entry.upload_parts())
        stored = memory.get(entry.key)
        assert stored is not None
        found[entry.key] = stored.body
    return found


def task_of(plans: Sequence[Plan], **upload: Any) -> SliceTask:
    """A task of these plans."""
    made = make_task([*plans])
    made._upload = Upload(**upload)
    return made


def results(rows: Sequence[Row]) -> tuple[list[SliceResult], list[ObjectEntry]]:
    """What a task returned."""
    return (
        [msgspec.json.decode(row.body, type=SliceRows).result for row in rows if row.kind == "slice"],
        [msgspec.json.decode(row.body, type=ObjectEntry) for row in rows if row.kind == "object"],
    )


# -- order ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [*itertools.permutations(GROUP)], ids=lambda o: "".join(str(s.id) for s in o))
def test_a_task_writes_the_same_objects_in_any_order_of_its_slices(
    store: MemoryStore, order: tuple[Slice, ...], tmp_path: Path
) -> None:
    """Those of the plan's order, whatever the batches, whose rows may be of several slices; no file is left."""
    expected = MemoryStore()
    with UploadPool(DurableStore(expected, Retrier()), part_size=LAYOUT.part_size) as pool:
        packing = RecordPacking([PLAN])
        written = write_slices(PLAN, GROUP, lambda s: packing.records(packed([s])), pool.open)
    objects = completed(expected, [entry for rows in written for entry in rows.objects])
    assert len(objects) == 2
    for at in (1, 3, None):
        rows = run(task_of([PLAN], spill_dir=str(tmp_path)), *packed(order, at=at))
        slices, entries = results(rows)
        assert slices == [rows.result for rows in written]
        assert [(e.key, e.slices, e.ranges, e.content) for e in entries] == [
            (e.key, e.slices, e.ranges, e.content) for rows in written for e in rows.objects
        ]
        assert completed(store, entries) == objects
        for key in objects:
            store.delete(key)
    assert not list(tmp_path.iterdir())


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 4), min_size=1, max_size=6),
    order=st.randoms(use_true_random=False),
    at=st.integers(1, 9),
)
def test_each_slice_has_its_records_once_in_the_order_of_the_plan(sizes: list[int], order: Any, at: int) -> None:
    """Slices without records, too; what comes early waits."""
    slices = slices_of(*((p, 10, 20) for p in range(len(sizes))))
    plan = data_plan(LAYOUT, slices, groups=(tuple(range(len(sizes))),))
    packing = RecordPacking([plan])
    parts = [msgspec.structs.replace(s, end=10 + size) for s, size in zip(slices, sizes, strict=True) if size]
    order.shuffle(parts)
    with OrderedSlices(packing, slices, packed(parts, plan=plan, at=at)) as ordered:
        found = [
            [offset for batch in packing.records(ordered.of(s)) for offset in batch.column("offset").to_pylist()]
            for s in slices
        ]
        ordered.end()
    assert found == [list(range(10, 10 + size)) for size in sizes]


@pytest.mark.parametrize(
    "order",
    [(0, 1, 0), (1, 0, 1), (2, 1, 2, 0), (0, 1, 2, 3, 0), (3, 0, 1, 2, 1)],
    ids=lambda order: "".join(map(str, order)),
)
def test_a_slice_that_comes_in_several_parts_is_an_error(store: MemoryStore, order: tuple[int, ...]) -> None:
    """Spark reads each once; nothing is guessed, and no upload is left."""
    seen: set[int] = set()
    parts = []
    for number in order:
        s = GROUP[number]
        half = (s.start + s.end) // 2
        again = number in seen
        more = number in order[order.index(number) + 1 :]
        parts.append(
            msgspec.structs.replace(s, start=half) if again else msgspec.structs.replace(s, end=half) if more else s
        )
        seen.add(number)
    with pytest.raises(SparkJobError, match="came to a task in several parts"):
        run(task_of([PLAN]), *packed(parts))
    assert not list(store.pending_uploads(""))


@pytest.mark.parametrize("foreign", [SLICES[4], Slice(id=9, partition=1, start=2, end=5)], ids=["group", "gap"])
@pytest.mark.parametrize("last", [True, False])
def test_a_record_of_another_group_is_an_error(store: MemoryStore, foreign: Slice, last: bool) -> None:
    """Also one in a gap between two slices of the group."""
    parts = [*GROUP, foreign] if last else [GROUP[0], foreign, *GROUP[1:]]
    with pytest.raises(SparkJobError, match="is in none of the slices"):
        run(task_of([PLAN]), *packed(parts))
    assert not list(store.pending_uploads(""))


def test_a_slice_of_a_group_is_not_written_apart_from_it(store: MemoryStore) -> None:
    """A task of small slices that gets one of a group ends: its objects would not be those of the plan."""
    with pytest.raises(SparkJobError, match=r"slice 0 of .* was read apart from its group"):
        run(task_of([PLAN]), *packed([SLICES[4], SLICES[0]]))
    assert not list(store.pending_uploads(""))


def test_an_invalid_record_in_any_slice_is_one_row_of_the_task(store: MemoryStore) -> None:
    """With its partition and offset; the driver takes it for the whole group."""
    bad = packed([GROUP[2]])[0]
    invalid = bad.set_column(2, "value", pa.array([b"{"] * bad.num_rows, pa.binary()))
    (row,) = run(task_of([PLAN]), *packed(GROUP[:2]), invalid)
    assert row.kind == "error"
    assert b"partition 1, offset 5" in bytes(row.body)
    (error,) = gather(ReadTasks([PLAN]), [row, EMPTY])
    assert isinstance(error, RecordError)
    assert not list(store.pending_uploads(""))


def test_keys_and_headers_of_records_that_wait_are_kept(tmp_path: Path) -> None:
    """Whole records come back from the file as they were."""
    plan = msgspec.structs.replace(PLAN, layout=msgspec.structs.replace(LAYOUT, errors="dead_letter"))
    packing = RecordPacking([plan])

    def whole(s: Slice) -> pa.RecordBatch:
        (batch,) = packed([s], plan=plan)
        keys = pa.array([b"key" if row % 2 else None for row in range(batch.num_rows)], pa.binary())
        header = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
        headers = pa.array([[{"key": "k", "value": b"%d" % row}] * (row % 3) for row in range(batch.num_rows)], header)
        return batch.append_column("key", keys).append_column("headers", headers)

    with OrderedSlices(packing, GROUP, map(whole, reversed(GROUP)), str(tmp_path)) as ordered:
        found = [pa.Table.from_batches([*packing.records(ordered.of(s))]) for s in GROUP]
        ordered.end()
    assert found == [pa.Table.from_batches([*packing.records([whole(s)])]) for s in GROUP]
    assert not list(tmp_path.iterdir())


SCRIPT = """
import sys
from tests.unit.spark.test_slice_groups import GROUP, PLAN, OrderedSlices, RecordPacking, pa

packing = RecordPacking([PLAN])
sys.modules.pop("pandas", None)
with OrderedSlices(packing, GROUP, pa.ipc.open_stream(sys.stdin.buffer)) as ordered:
    print(*(sum(batch.num_rows for batch in packing.records(ordered.of(s))) for s in GROUP), "pandas" in sys.modules)
"""


def test_the_file_of_a_task_needs_no_pandas() -> None:
    """It would cost every worker a second and 50 MB."""
    batches = packed(GROUP[::-1])
    stream = io.BytesIO()
    with pa.ipc.new_stream(stream, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    done = subprocess.run([sys.executable, "-c", SCRIPT], input=stream.getvalue(), capture_output=True, check=False)
    assert (done.stdout.decode(), done.stderr.decode()) == ("4 2 4 3 False\n", "")


# -- rows -------------------------------------------------------------------------------------------------------------

MERGED: Plan = msgspec.structs.replace(plan_of("m", [(0, 0, 5), (1, 0, 9), (2, 0, 3)]), groups=((0, 1), (2,)))
M0, M1, M2 = slice_rows(0, 5, objects=2), slice_rows(1, 9, objects=0), slice_rows(2, 3)


def test_a_group_ends_with_a_row_for_each_of_its_slices() -> None:
    """One task reports them; a group without a record is one task without records."""
    rows = [*rows_of_slice(0, "r", M0), *rows_of_slice(0, "r", M1)]
    assert gather(ReadTasks([MERGED]), [*rows, *rows_of_slice(0, "q", M2)]) == [[M0, M1, M2]]
    (found,) = gather(ReadTasks([MERGED]), [EMPTY, *rows_of_slice(0, "q", M2)])
    assert isinstance(found, list)
    assert [(s.result.records, s.result.next_offset, s.objects) for s in found[:2]] == [(0, 5, ()), (0, 9, ())]


@pytest.mark.parametrize(
    "rows",
    [
        [*rows_of_slice(0, "r", M0), *rows_of_slice(0, "q", M2)],
        [*rows_of_slice(0, "r", M0), *rows_of_slice(0, "s", M1), *rows_of_slice(0, "q", M2)],
        [*rows_of_slice(0, "r", M0), *rows_of_slice(0, "q", M2), EMPTY],
        [EMPTY, msgspec.structs.replace(EMPTY, attempt="y"), *rows_of_slice(0, "q", M2)],
        [
            *rows_of_slice(0, "r", M0),
            *rows_of_slice(0, "r", M1),
            *rows_of_slice(0, "s", M1),
            *rows_of_slice(0, "q", M2),
        ],
    ],
    ids=["a slice missing", "two tasks", "a slice missing, and a task without records", "a task too many", "twice"],
)
def test_a_group_that_was_not_read_by_one_task_decides_nothing(rows: list[Row]) -> None:
    """If Spark read its slices by several tasks, their objects would not be those of the plan."""
    with pytest.raises(SparkJobError, match="Nothing was decided"):
        gather(ReadTasks([MERGED]), rows)


def test_a_group_that_two_tasks_have_read_decides_nothing_beside_a_task_too_few() -> None:
    """One task has read both small slices, so the number of all tasks is the expected one."""
    slices = [(0, 0, 5), (1, 0, 9), (2, 0, 3), (3, 0, 3)]
    plan = msgspec.structs.replace(plan_of("m", slices), groups=((0, 1), (2,), (3,)))
    small = [*rows_of_slice(0, "q", M2), *rows_of_slice(0, "q", slice_rows(3, 3))]
    with pytest.raises(SparkJobError, match="slices 0 to 1 of topic 'm' share objects, and were not all read by one"):
        gather(ReadTasks([plan]), [*rows_of_slice(0, "r", M0), *rows_of_slice(0, "s", M1), *small])


def test_an_error_in_a_group_is_that_of_its_topic() -> None:
    """Its other slices have no rows."""
    failed = error_row(0, 1, "r", error_of_kind("record", "offset 7"))
    (error,) = gather(ReadTasks([MERGED]), [failed, *rows_of_slice(0, "q", M2)])
    assert isinstance(error, RecordError)


# -- frames -----------------------------------------------------------------------------------------------------------


def test_a_group_has_frames_of_its_own() -> None:
    """One for the slices of different partitions; slices that share no objects share frames with other topics."""
    alone = plan_of("b", [(0, 0, 50_000), (0, 50_000, 90_000)])
    tasks = ReadTasks([PLAN, alone])
    assert [(plan.topic, s.partition, s.end) for plan, s in tasks.alone] == [
        ("a", 4, 9),
        ("b", 0, 50_000),
        ("b", 0, 90_000),
    ]
    assert tasks.groups == ((PLAN, GROUP),)
    assert (tasks.small, tasks.count) == ((), 4)


class Frame:
    """Replaces a frame: the tasks that read it, each a list of (partition, start, end)."""

    def __init__(self, tasks: list[list[tuple[int, int, int]]], depth: int = 0) -> None:
        self.tasks = tasks
        self.depth = depth

    def selectExpr(self, *columns: str) -> Frame:  # noqa: N802 - Spark's name
        return self

    def unionByName(self, other: Frame) -> Frame:  # noqa: N802 - Spark's name
        return Frame([*self.tasks, *other.tasks], 1 + max(self.depth, other.depth))

    def coalesce(self, count: int) -> Frame:
        return Frame([[part for tasks in self.tasks[n::count] for part in tasks] for n in range(count)], self.depth)


class Reader:
    """Replaces a session and its reader."""

    @property
    def read(self) -> Reader:
        return self

    def format(self, _: str) -> Reader:
        return self

    def options(self, **options: str) -> Reader:
        self._starts, self._ends = (msgspec.json.decode(options[name]) for name in ("startingOffsets", "endingOffsets"))
        return self

    def load(self) -> Frame:
        return Frame(
            [
                [(int(p), start, self._ends[topic][p])]
                for topic, starts in self._starts.items()
                for p, start in starts.items()
            ]
        )


@given(st.data())
def test_one_task_reads_exactly_the_slices_of_a_group(data: st.DataObject) -> None:
    """In whichever order, and no slice twice."""
    spec = data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=12))
    slices = slices_of(*((p, 10 * i, 10 * i + 5) for i, p in enumerate(sorted(spec))))
    cuts = sorted(data.draw(st.sets(st.integers(1, len(slices) - 1)))) if len(slices) > 1 else []
    edges = [0, *cuts, len(slices)]
    groups = tuple(tuple(range(a, b)) for a, b in itertools.pairwise(edges))
    plan = data_plan(LAYOUT, slices, groups=groups, topic="a")
    small = {s.id for _, s in ReadTasks([plan]).small}
    frame = cast("Any", slice_frame(cast("Any", Reader()), ReadTasks([plan]), {"read_committed": {}}, ["offset"]))
    found = [sorted(task_) for task_ in frame.tasks]
    for group in plan.grouped:
        if group[0].id not in small:
            assert sorted((s.partition, s.start, s.end) for s in group) in found
    assert sorted(itertools.chain(*found)) == sorted((s.partition, s.start, s.end) for s in plan.slices)
    assert len(found) == ReadTasks([plan]).count


def test_the_plan_of_many_groups_is_flat() -> None:
    """Spark descends into it by recursion: a chain of 500 topics would be 500 calls deep, or several times that."""
    plans = [
        data_plan(LAYOUT, slices_of((0, 0, 5), (1, 0, 5)), groups=((0, 1),), topic=f"t{number}")
        for number in range(500)
    ]
    frame = cast("Any", slice_frame(cast("Any", Reader()), ReadTasks(plans), {"read_committed": {}}, ["offset"]))
    assert (len(frame.tasks), frame.depth) == (500, 9)


def test_rows_of_a_group_survive_the_transfer(store: MemoryStore) -> None:
    """Entries with ranges pass through Arrow and JSON, and make a manifest's slices."""
    rows = run(task_of([PLAN]), *packed([GROUP[3], *GROUP[:3]]))
    (found,) = gather(ReadTasks([PLAN]), [*rows, EMPTY])
    assert isinstance(found, list)
    assert [row.result.records for row in found] == [4, 2, 4, 3, 0]
    assert [entry.slices for row in found for entry in row.objects] == [(0, 1, 2, 3), (0, 1, 2, 3)]
    assert [from_bytes(msgspec.json.encode(row)) for row in rows] == rows
