"""The driver accepts rows only if every slice ended once."""

from __future__ import annotations

import msgspec
import pytest

from airflow_provider_kafka_s3.documents.manifest import ObjectEntry, SliceResult, SliceRows, UnknownFields
from airflow_provider_kafka_s3.exceptions import ConfigurationError, RecordError, SparkJobError
from airflow_provider_kafka_s3.layout.hidden_fields import HiddenFields
from airflow_provider_kafka_s3.spark import read_tasks
from airflow_provider_kafka_s3.spark.read_tasks import ReadTasks
from airflow_provider_kafka_s3.spark.rows import (
    Row,
    error_row,
    from_bytes,
    gather,
    rows_of_slice,
    silent_slices,
    to_batch,
    uploads_of,
)
from tests.unit.spark.test_slice_ranks import plan_of

PLANS = [plan_of("a", [(0, 0, 10_000), (0, 10_000, 20_000)]), plan_of("b", [(0, 0, 10_000)])]
SMALL = [plan_of("a", [(0, 0, 5), (0, 5, 9), (0, 9, 10_000)]), plan_of("b", [(0, 0, 5)])]
"""Three small slices, which one task reads, and a large one."""
EMPTY = Row(-1, -1, "x", "empty")


@pytest.fixture(autouse=True)
def few_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """All small slices are read by one task."""
    monkeypatch.setattr(read_tasks, "_PARALLELISM", 1)


def slice_rows(number: int, end: int, *, objects: int = 1) -> SliceRows:
    """Rows of a slice."""
    entries = tuple(
        ObjectEntry(
            key=f"key-{number}-{i}",
            slices=(number,),
            nonce="nonce",
            upload_id=f"upload-{number}-{i}",
            parts=(("etag", "sum"),),
            checksum_algorithm="CRC32",
            size=1,
            crc32="00000000",
            content="",
            records=1,
            min_offset=i,
            max_offset=i,
        )
        for i in range(objects)
    )
    return SliceRows(
        result=SliceResult(
            id=number,
            records=objects,
            ignored=0,
            next_offset=end,
            unknown=UnknownFields(records=1, names=("x", "é\n")) if number else msgspec.UNSET,
        ),
        objects=entries,
        hidden=HiddenFields(behind_folders=(f"year{number}",), alike=("id", "ID")),
    )


A0, A1, B0 = slice_rows(0, 10_000, objects=2), slice_rows(1, 20_000), slice_rows(0, 10_000)


def test_rows_become_the_results_of_their_slices() -> None:
    """In any order of the tasks, through Arrow and JSON."""
    rows = [*rows_of_slice(1, "p", B0), *rows_of_slice(0, "q", A1), *rows_of_slice(0, "r", A0)]
    stored = [from_bytes(value) for value in to_batch(rows).column("row").to_pylist()]
    assert gather(ReadTasks(PLANS), stored) == [[A0, A1], [B0]]
    assert uploads_of(0, stored) == [(e.key, e.upload_id) for e in (*A1.objects, *A0.objects)]


def test_tasks_without_records_are_the_unreported_slices() -> None:
    """They have no objects and were read to their ends."""
    nothing = SliceRows(result=SliceResult(id=1, records=0, ignored=0, next_offset=20_000), objects=())
    rows = [*rows_of_slice(0, "r", A0), EMPTY, *rows_of_slice(1, "p", B0)]
    assert gather(ReadTasks(PLANS), rows) == [[A0, nothing], [B0]]
    assert silent_slices(ReadTasks(PLANS), rows) == []


def test_an_error_belongs_to_its_topic_only() -> None:
    """It keeps its class and its message; the other topic is complete."""
    failed = error_row(0, 1, "q", RecordError("offset 7"))
    first, second = gather(ReadTasks(PLANS), [*rows_of_slice(0, "r", A0), failed, *rows_of_slice(1, "p", B0)])
    assert isinstance(first, RecordError)
    assert str(first) == "offset 7"
    assert second == [B0]


def test_too_many_objects_are_an_error_of_their_topic_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """All slices of a batch count together; the error names topic, batch, number and what to change."""
    monkeypatch.setattr("airflow_provider_kafka_s3.spark.rows.MAX_OBJECTS", 2)
    first, second = gather(
        ReadTasks(PLANS), [row for s in ((0, "r", A0), (0, "q", A1), (1, "p", B0)) for row in rows_of_slice(*s)]
    )
    assert type(first) is ConfigurationError
    assert "batch 1 of topic 'a' has too many objects for one commit: 3; the limit is 100,000" in str(first)
    for setting in ("partitioner", "flush_size", "limits"):
        assert setting in str(first)
    assert second == [B0]


def test_an_error_of_an_unknown_kind_is_still_an_error() -> None:
    """A kind of another version does not become anything else."""
    row = error_row(0, 1, "q", RecordError("?"))
    unknown = msgspec.structs.replace(row, body=msgspec.Raw(b'{"kind":"of_the_future","message":"?"}'))
    rows = [*rows_of_slice(0, "r", A0), unknown, *rows_of_slice(1, "p", B0)]
    assert isinstance(gather(ReadTasks(PLANS), rows)[0], SparkJobError)


@pytest.mark.parametrize(
    "rows",
    [
        rows_of_slice(0, "r", A0),
        [*rows_of_slice(0, "r", A0), *rows_of_slice(0, "q", A1)],
        [*rows_of_slice(0, "r", A0), *rows_of_slice(0, "s", A0), *rows_of_slice(1, "p", B0)],
        [*rows_of_slice(0, "r", A0), *rows_of_slice(0, "q", A1), *rows_of_slice(1, "p", B0), EMPTY],
        [*rows_of_slice(0, "r", A0)[:-1], *rows_of_slice(0, "s", A0), *rows_of_slice(0, "q", A1), EMPTY],
        [*rows_of_slice(0, "r", A0), *rows_of_slice(0, "q", A1)[:-1], EMPTY, *rows_of_slice(1, "p", B0)],
    ],
    ids=[
        "only-one-ended",
        "a-topic-missing",
        "a-slice-twice",
        "a-task-too-many",
        "two-attempts",
        "objects-without-end",
    ],
)
def test_rows_that_do_not_fit_decide_nothing(rows: list[Row]) -> None:
    """A transient error: the job is tried again."""
    with pytest.raises(SparkJobError, match="Nothing was decided"):
        gather(ReadTasks(PLANS), rows)


def one_task(*slices: tuple[int, SliceRows]) -> list[Row]:
    """The rows of a task that read several slices."""
    return [row for topic, found in slices for row in rows_of_slice(topic, "one", found)]


SMALL_A0, SMALL_A1, LARGE_A2, SMALL_B0 = slice_rows(0, 5), slice_rows(1, 9), slice_rows(2, 10_000), slice_rows(0, 5)


def test_small_slices_end_in_one_task() -> None:
    """Those of several topics, beside a slice that has a task of its own."""
    rows = [*one_task((1, SMALL_B0), (0, SMALL_A1), (0, SMALL_A0)), *rows_of_slice(0, "r", LARGE_A2)]
    assert gather(ReadTasks(SMALL), rows) == [[SMALL_A0, SMALL_A1, LARGE_A2], [SMALL_B0]]
    assert silent_slices(ReadTasks(SMALL), rows) == []


def test_small_slices_without_rows_are_named() -> None:
    """They have no records, as far as Spark has read: the number of tasks does not show whether it has read them."""
    nothing = SliceRows(result=SliceResult(id=0, records=0, ignored=0, next_offset=5), objects=())
    rows = [*one_task((0, SMALL_A0), (0, SMALL_A1)), *rows_of_slice(0, "r", LARGE_A2)]
    assert gather(ReadTasks(SMALL), rows) == [[SMALL_A0, SMALL_A1, LARGE_A2], [nothing]]
    assert silent_slices(ReadTasks(SMALL), rows) == [(1, SMALL[1].slices[0])]
    rows = [EMPTY, *rows_of_slice(0, "r", LARGE_A2)]
    assert [len(found) for found in gather(ReadTasks(SMALL), rows) if isinstance(found, list)] == [3, 1]
    silent = [(0, SMALL[0].slices[0]), (0, SMALL[0].slices[1]), (1, SMALL[1].slices[0])]
    assert silent_slices(ReadTasks(SMALL), rows) == silent


def test_a_large_slice_without_rows_is_named_beside_small_ones() -> None:
    """Rows of a Spark that has read small slices by two tasks, and the large one by none, have the same number."""
    rows = [*one_task((0, SMALL_A0), (0, SMALL_A1), (1, SMALL_B0)), EMPTY]
    gather(ReadTasks(SMALL), rows)
    assert silent_slices(ReadTasks(SMALL), rows) == [(0, SMALL[0].slices[2])]


@pytest.mark.parametrize(
    "rows",
    [
        one_task((0, SMALL_A0), (0, SMALL_A1), (1, SMALL_B0)),
        [*one_task((0, SMALL_A0), (0, SMALL_A1)), EMPTY, *rows_of_slice(0, "r", LARGE_A2)],
        [*one_task((0, SMALL_A0), (0, SMALL_A1)), *rows_of_slice(1, "s", SMALL_B0), *rows_of_slice(0, "r", LARGE_A2)],
        [*one_task((0, SMALL_A0), (0, SMALL_A0)), *rows_of_slice(0, "r", LARGE_A2)],
        [*one_task((0, SMALL_A0), (0, SMALL_A1), (1, SMALL_B0)), msgspec.structs.replace(EMPTY, attempt="y"), EMPTY],
    ],
    ids=["the large one missing", "a task too many", "in two tasks", "a slice twice", "two without records"],
)
def test_small_slices_that_were_not_read_as_planned_decide_nothing(rows: list[Row]) -> None:
    """Their number of tasks is known, and each ends at most once."""
    with pytest.raises(SparkJobError, match="Nothing was decided"):
        gather(ReadTasks(SMALL), rows)
