"""The driver accepts rows only if every slice ended once."""

from __future__ import annotations

import msgspec
import pytest

from airflow_provider_kafka_s3.documents.manifest import ObjectEntry, SliceResult, SliceRows
from airflow_provider_kafka_s3.exceptions import ConfigurationError, RecordError, SparkJobError
from airflow_provider_kafka_s3.spark.rows import Row, error_row, from_bytes, gather, rows_of_slice, to_batch, uploads_of
from tests.unit.spark.test_slice_ranks import plan_of

PLANS = [plan_of("a", [(0, 0, 5), (0, 5, 9)]), plan_of("b", [(0, 0, 5)])]
EMPTY = Row(-1, -1, "x", "empty")


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
    return SliceRows(result=SliceResult(id=number, records=objects, ignored=0, next_offset=end), objects=entries)


A0, A1, B0 = slice_rows(0, 5, objects=2), slice_rows(1, 9), slice_rows(0, 5)


def test_rows_become_the_results_of_their_slices() -> None:
    """In any order of the tasks, through Arrow and JSON."""
    rows = [*rows_of_slice(1, "p", B0), *rows_of_slice(0, "q", A1), *rows_of_slice(0, "r", A0)]
    stored = [from_bytes(value) for value in to_batch(rows).column("row").to_pylist()]
    assert gather(PLANS, stored) == [[A0, A1], [B0]]
    assert uploads_of(0, stored) == [(e.key, e.upload_id) for e in (*A1.objects, *A0.objects)]


def test_tasks_without_records_are_the_unreported_slices() -> None:
    """They have no objects and were read to their ends."""
    nothing = SliceRows(result=SliceResult(id=1, records=0, ignored=0, next_offset=9), objects=())
    assert gather(PLANS, [*rows_of_slice(0, "r", A0), EMPTY, *rows_of_slice(1, "p", B0)]) == [[A0, nothing], [B0]]


def test_an_error_belongs_to_its_topic_only() -> None:
    """It keeps its class and its message; the other topic is complete."""
    failed = error_row(0, 1, "q", RecordError("offset 7"))
    first, second = gather(PLANS, [*rows_of_slice(0, "r", A0), failed, *rows_of_slice(1, "p", B0)])
    assert isinstance(first, RecordError)
    assert str(first) == "offset 7"
    assert second == [B0]


def test_too_many_objects_are_an_error_of_their_topic_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """All slices of a batch count together; the error names topic, batch, number and what to change."""
    monkeypatch.setattr("airflow_provider_kafka_s3.spark.rows.MAX_OBJECTS", 2)
    first, second = gather(
        PLANS, [row for s in ((0, "r", A0), (0, "q", A1), (1, "p", B0)) for row in rows_of_slice(*s)]
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
    assert isinstance(gather(PLANS, rows)[0], SparkJobError)


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
        gather(PLANS, rows)
