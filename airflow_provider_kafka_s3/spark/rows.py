"""The rows that tasks return to the driver, and their evaluation.

A task yields one ``object`` row per object and then one final row: ``slice`` (all is uploaded), ``empty`` (the task got
no record) or ``error`` (a person has to act, a retry cannot help). If it reads several slices, it yields a final row
for each slice of a group, or for each small slice that has records, behind the rows of the objects that begin with a
record of the slice. Any other failure is an exception of the task, and Spark retries the task.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Literal

import msgspec
import pyarrow as pa

from airflow_provider_kafka_s3.arrays import binary_array
from airflow_provider_kafka_s3.batch.encode import too_many_objects
from airflow_provider_kafka_s3.documents.manifest import MAX_OBJECTS, ObjectEntry, SliceResult, SliceRows
from airflow_provider_kafka_s3.documents.plan import Plan, Slice
from airflow_provider_kafka_s3.exceptions import KafkaS3Error, SparkJobError, error_of_kind, message_of
from airflow_provider_kafka_s3.spark.read_tasks import ReadTasks
from airflow_provider_kafka_s3.structs import decode_struct

__all__ = [
    "ROW_DDL",
    "Row",
    "RowKind",
    "TaskError",
    "error_from",
    "error_row",
    "from_bytes",
    "gather",
    "rows_of_slice",
    "silent_slices",
    "to_batch",
    "uploads_of",
]

RowKind = Literal["slice", "object", "empty", "error"]

ROW_DDL: Final = "row binary"
"""One column, with the JSON of a :class:`Row`."""

_NOTHING: Final = msgspec.Raw(b"null")


class Row(msgspec.Struct, frozen=True):
    """One row of a task.

    Attributes:
        topic: index of the topic's plan among the plans of the action; -1 if ``empty``.
        slice: id of the slice in that plan; -1 if ``empty``.
        attempt: id of the attempt at the slice.
        kind: see the module.
        body: ``SliceRows`` without objects, an ``ObjectEntry``, a :class:`TaskError`, or nothing.
        python: in the final row of a task: its Python environment.
    """

    topic: int
    slice: int
    attempt: str
    kind: RowKind
    body: msgspec.Raw = _NOTHING
    python: str = ""


class TaskError(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A terminal error of a task: its kind, and its message with its notes."""

    kind: str
    message: str


def rows_of_slice(topic: int, attempt: str, rows: SliceRows) -> list[Row]:
    """The rows of a slice that was written, its final row last."""
    number = rows.result.id
    return [
        *(Row(topic, number, attempt, "object", _raw(entry)) for entry in rows.objects),
        Row(topic, number, attempt, "slice", _raw(msgspec.structs.replace(rows, objects=()))),
    ]


def error_row(topic: int, slice_: int, attempt: str, error: KafkaS3Error) -> Row:
    """The final row of a task with a terminal error."""
    return Row(topic, slice_, attempt, "error", _raw(TaskError(error.kind, message_of(error))))


def to_batch(rows: Sequence[Row]) -> pa.RecordBatch:
    """Rows as Arrow."""
    return pa.RecordBatch.from_arrays([binary_array([*map(msgspec.json.encode, rows)], large=False)], names=["row"])


def from_bytes(row: bytes | bytearray) -> Row:
    """Decode one row."""
    return decode_struct(row, Row)


def gather(read_tasks: ReadTasks, rows: Iterable[Row]) -> list[list[SliceRows] | KafkaS3Error]:
    """Group the rows of an action by its plans.

    A topic is complete when all its slices have ended. Spark fails a task that does not reach the end of its offsets,
    and every task has final rows, so as many tasks have some as :class:`ReadTasks` has. A task without a record cannot
    determine its slices, but these can only be some without other final rows. Numbers of records prove nothing and are
    not compared. What the number of tasks does not show, :func:`silent_slices` have to.

    Args:
        read_tasks: of the action.
        rows: of all its tasks.

    Returns:
        Per plan the results of its slices, or the terminal error of one of them, or the error that they have too many
        objects together.

    Raises:
        SparkJobError: the rows are inconsistent with the plans.
    """
    plans = read_tasks.plans
    ends: dict[tuple[int, int], Row] = {}
    objects: dict[tuple[int, int], list[Row]] = {}
    errors: dict[int, KafkaS3Error] = {}
    tasks: set[str] = set()
    empty = 0
    for row in rows:
        where = (row.topic, row.slice)
        if row.kind == "object":
            objects.setdefault(where, []).append(row)
            continue
        tasks.add(row.attempt)
        if row.kind == "empty":
            empty += 1
        elif where in ends:
            raise SparkJobError(
                f"slice {row.slice} of topic {plans[row.topic].topic!r} was read by two tasks. Nothing was decided; "
                f"try again"
            )
        else:
            ends[where] = row
            if row.kind == "error":
                errors.setdefault(row.topic, error_from(row.body))
    groups = [(topic, group) for topic, plan in enumerate(plans) for group in plan.grouped]
    silent = silent_small = 0
    for topic, group in groups:
        reported = [end for s in group if (end := ends.get((topic, s.id))) is not None]
        if not reported and read_tasks.is_small(plans[topic], group[0]):
            silent_small += 1
        elif not reported:
            silent += 1
        whole = len(reported) == len(group) or any(end.kind == "error" for end in reported)
        if len({end.attempt for end in reported}) > 1 or (reported and not whole):
            raise SparkJobError(
                f"slices {group[0].id} to {group[-1].id} of topic {plans[topic].topic!r} share objects, and were not "
                f"all read by one task. Nothing was decided; try again"
            )
    possible = range(silent, silent + min(silent_small, read_tasks.of_small) + 1)
    if len(tasks) != read_tasks.count or empty not in possible or not objects.keys() <= ends.keys():
        raise SparkJobError(
            f"Spark ended {len(tasks)} of {read_tasks.count} tasks, {empty} of them without records, for {len(groups)} "
            f"slices or groups, of which {len(groups) - silent - silent_small} were reported. Nothing was decided; try "
            f"again"
        )
    for topic, plan in enumerate(plans):
        count = sum(len(objects.get((topic, s.id), ())) for s in plan.slices)
        if count > MAX_OBJECTS:
            errors.setdefault(topic, too_many_objects(plan, f"{count:,}"))
    return [
        errors[topic] if topic in errors else [_slice(topic, plan, s.id, ends, objects) for s in plan.slices]
        for topic, plan in enumerate(plans)
    ]


def silent_slices(read_tasks: ReadTasks, rows: Iterable[Row]) -> list[tuple[int, Slice]]:
    """The slices of which nothing was returned, by index of the plan, if tasks have read several small slices.

    They have no records, or Spark has not read them: a task does not name those without records, so the number of tasks
    does not show it.
    """
    if not read_tasks.small:
        return []
    ended = {(row.topic, row.slice) for row in rows if row.kind in ("slice", "error")}
    return [
        (topic, s)
        for topic, plan in enumerate(read_tasks.plans)
        for group in plan.grouped
        if not any((topic, s.id) in ended for s in group)
        for s in group
    ]


def uploads_of(topic: int, rows: Iterable[Row]) -> list[tuple[str, str]]:
    """``(key, upload id)`` of all objects that tasks uploaded for a topic."""
    entries = (decode_struct(r.body, ObjectEntry) for r in rows if r.topic == topic and r.kind == "object")
    return [(entry.key, entry.upload_id) for entry in entries]


def error_from(body: msgspec.Raw) -> KafkaS3Error:
    """The error of an ``error`` row."""
    stored = decode_struct(body, TaskError)
    return error_of_kind(stored.kind, stored.message)


def _raw(value: SliceRows | ObjectEntry | TaskError) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))


def _slice(
    topic: int,
    plan: Plan,
    number: int,
    ends: dict[tuple[int, int], Row],
    objects: dict[tuple[int, int], list[Row]],
) -> SliceRows:
    end = ends.get((topic, number))
    if end is None:
        empty = SliceResult(id=number, records=0, ignored=0, next_offset=plan.slices[number].end)
        return SliceRows(result=empty, objects=())
    entries = objects.get((topic, number), [])
    if any(row.attempt != end.attempt for row in entries):
        raise SparkJobError(
            f"slice {number} of topic {plan.topic!r} came from two attempts. Nothing was decided; try again"
        )
    objects_of_slice = tuple(decode_struct(row.body, ObjectEntry) for row in entries)
    return msgspec.structs.replace(decode_struct(end.body, SliceRows), objects=objects_of_slice)
