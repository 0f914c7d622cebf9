"""What happens when the schema of records changes inside an object.

The rules are those of Kafka Connect's storage sinks (``schema.compatibility``). A record is kept as it is, projected to
the schema of the open object of its encoded partition, or closes all open objects of its Kafka partition and begins a
new one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from airflow_provider_kafka_s3.config import Compatibility
from airflow_provider_kafka_s3.schemas.nodes import Node, is_recursive
from airflow_provider_kafka_s3.schemas.projection import SchemaChangeError, mismatch, projection, same_schema

__all__ = [
    "NO_SCHEMA",
    "Compatibility",
    "SchemaRotation",
    "SchemaVersion",
    "Verdict",
    "decide",
    "object_counts",
    "schema_groups",
    "version_in_subject",
]

Verdict: TypeAlias = Literal["keep", "project", "roll"]
Indices: TypeAlias = npt.NDArray[np.intp]

NO_SCHEMA: Final = -1
"""Schema index of a record without a schema, such as a tombstone."""

_FIRST_WINDOW: Final = 64


@dataclass(frozen=True, eq=False)
class SchemaVersion:
    """A schema, and its version in the subject that it was registered for.

    Attributes:
        node: the schema.
        version: greater for a newer schema; None if the subject does not list it.
        name: of the schema in Kafka Connect, where a schema without one has ``null``.
    """

    node: Node
    version: int | None
    name: str = "null"


def version_in_subject(versions: Mapping[str, int], topic: str) -> int | None:
    """The version of a schema that values of a topic have.

    Args:
        versions: highest version of the schema per subject.
        topic: whose subject is ``<topic>-value``. If it does not list the schema, its only subject counts.

    Returns:
        The version; None if the schema has several other subjects, or none.
    """
    if (version := versions.get(f"{topic}-value")) is not None:
        return version
    return next(iter(versions.values())) if len(versions) == 1 else None


def decide(compatibility: Compatibility, current: SchemaVersion, record: SchemaVersion) -> Verdict:
    """What to do with a record while an object is open.

    Args:
        compatibility: NONE: nothing is projected. BACKWARD and FULL: older records are projected to the newer schema of
            the object. FORWARD: newer records are projected to the older schema of the object.
        current: schema of the object.
        record: schema of the record.

    Returns:
        ``keep``: the schemas are the same, the record is written as it is. ``project``: the record is written with the
        schema of the object. ``roll``: all open objects of the Kafka partition are closed first.

    Raises:
        SchemaChangeError: a schema has no version, and the mode is not NONE; or a default of the object's schema, which
            the record would get, does not fit its type.
    """
    same = same_schema(current.node, record.node)
    if same and current.version == record.version:
        return "keep"
    if compatibility == "NONE":
        return "roll"
    if current.version is None or record.version is None:
        whose = "record's" if record.version is None else "open object's"
        raise SchemaChangeError(
            f"the schema changes inside an object and the {whose} schema has no version, which the compatibility "
            f"{compatibility} compares"
        )
    older, newer = record.version < current.version, record.version > current.version
    if older if compatibility == "FORWARD" else newer:
        return "roll"
    if same:
        return "keep"
    if mismatch(record.node, current.node) is not None:
        return "roll"
    if is_recursive(record.node) or is_recursive(current.node):
        return "roll"  # it has no columns that could be projected
    projection(record.node, current.node)  # refuses a default that does not fit
    return "project"


class SchemaRotation:
    """Decides where the schemas of records close the open objects of one Kafka partition.

    The first record of an object sets the object's schema. A record whose schema does not fit closes all open objects
    of the Kafka partition, whatever their encoded partitions. Nothing is carried over to objects that begin later, so
    the result depends only on the records since the beginning of the slice, not on their batches.

    Args:
        compatibility: see :func:`decide`.
        schemas: by index; the caller may append to it.
    """

    def __init__(self, compatibility: Compatibility, schemas: Sequence[SchemaVersion]) -> None:
        self._compatibility = compatibility
        self._schemas = schemas
        self._targets: dict[str, int] = {}
        self._verdicts: dict[tuple[int, int], Verdict] = {}

    def first_roll(self, ids: Indices, codes: Indices, paths: Sequence[str], start: int, stop: int) -> int:
        """The first row before which all open objects have to be closed; ``stop`` if there is none.

        The rows before it are taken as written: :meth:`target` is the schema of their objects. Where an object ends for
        another reason, the caller passes no row beyond that end, then calls :meth:`close` or :meth:`reset`. It calls
        :meth:`reset` after a roll, too.

        Args:
            ids: index of each record's schema, or :data:`NO_SCHEMA`.
            codes: index of each record's encoded partition in ``paths``.
            paths: the encoded partitions.
            start: the first row to look at.
            stop: the row after the last one.

        Raises:
            SchemaChangeError: a schema has no version to compare; ``row`` is the record's row. No row is taken as
                written then: those before it can be passed alone.
        """
        targets: dict[str, int] = {}
        low, size = start, _FIRST_WINDOW
        while low < stop:  # windows grow, since rows after a roll are looked at again
            high = min(stop, low + size)
            for row in _first_rows(ids[low:high], codes[low:high]):
                path, index = paths[codes[low + row]], int(ids[low + row])
                target = self._targets.get(path, targets.get(path))
                if target is None:
                    targets[path] = index
                elif self._verdict(target, index, low + row) == "roll":
                    self._targets.update(targets)
                    return low + row
            low, size = high, size * 4
        self._targets.update(targets)
        return stop

    def target(self, path: str) -> int:
        """Index of the schema of the open object of an encoded partition.

        Raises:
            KeyError: it has no open object.
        """
        return self._targets[path]

    def close(self, path: str) -> None:
        """Forget the object of one encoded partition: its next record begins a new one."""
        self._targets.pop(path, None)

    def reset(self) -> None:
        """Forget all objects: after a roll, and whenever all are closed."""
        self._targets.clear()

    def _verdict(self, target: int, index: int, row: int) -> Verdict:
        if target == index:
            return "keep"
        if NO_SCHEMA in (target, index):
            return "roll"
        if (target, index) not in self._verdicts:
            try:
                verdict = decide(self._compatibility, self._schemas[target], self._schemas[index])
            except SchemaChangeError as e:
                e.row = row
                raise
            self._verdicts[target, index] = verdict
        return self._verdicts[target, index]


def _first_rows(ids: Indices, codes: Indices) -> list[int]:
    """The first row of each pair of encoded partition and schema, in ascending order."""
    edges = np.flatnonzero((ids[1:] != ids[:-1]) | (codes[1:] != codes[:-1])) + 1
    starts = np.concatenate(([0], edges))
    if len(starts) == 1:
        return [0]
    _, first = np.unique(_pairs(ids[starts], codes[starts]), return_index=True)
    return [int(row) for row in starts[np.sort(first)]]


def _pairs(ids: Indices, codes: Indices) -> Indices:
    return codes * (int(ids.max()) - NO_SCHEMA + 1) + ids - NO_SCHEMA


def schema_groups(ids: Indices, codes: Indices) -> tuple[Indices, list[tuple[int, int]]]:
    """Codes of records if each schema of an encoded partition has an open object of its own, so that nothing rolls.

    Args:
        ids: index of each record's schema, or :data:`NO_SCHEMA`.
        codes: code of each record's encoded partition.

    Returns:
        A code for each record, and the encoded partition's code and the schema's index of each of these codes, in the
        order of their first records.
    """
    if len(ids) == 0:
        return codes, []
    pairs = _pairs(ids, codes)
    if (pairs == pairs[0]).all():
        return np.zeros_like(codes), [(int(codes[0]), int(ids[0]))]
    _, first, inverse = np.unique(pairs, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return rank[inverse], [(int(codes[row]), int(ids[row])) for row in first[order]]


def object_counts(
    compatibility: Compatibility,
    schemas: Sequence[SchemaVersion],
    ids: Indices,
    codes: Indices,
    *,
    flush_size: int | None = None,
) -> tuple[int, int]:
    """How many objects records make: with objects that roll, and with an object for each schema.

    Args:
        compatibility: of the objects that roll.
        schemas: by index.
        ids: index of each record's schema.
        codes: code of each record's encoded partition.
        flush_size: records after which all open objects are closed.
    """
    paths = [str(code) for code in range(int(codes.max()) + 1)] if len(codes) else []
    flush = flush_size or max(len(ids), 1)
    grouped = sum(len(schema_groups(ids[i : i + flush], codes[i : i + flush])[1]) for i in range(0, len(ids), flush))
    rolled, start, records = 0, 0, 0
    rotation = SchemaRotation(compatibility, schemas)
    opened: set[int] = set()
    while start < len(ids):
        stop = rotation.first_roll(ids, codes, paths, start, min(len(ids), start + flush - records))
        opened.update(codes[start:stop].tolist())
        records = 0 if stop == start else records + stop - start
        if stop == start or records == flush:
            rolled, records = rolled + len(opened), 0
            opened.clear()
            rotation.reset()
        start = stop
    return rolled + len(opened), grouped
