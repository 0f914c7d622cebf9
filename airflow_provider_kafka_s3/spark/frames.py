"""Data frames in which each task reads one slice, a group of slices that share objects, or several small slices.

How Spark splits an offset range differs between versions, so it gets no range to split: the k-th slice of every Kafka
partition forms one frame with an explicit start and end for each partition. Spark reads it with one task per partition,
and a union of frames keeps their tasks. The slices of a group, and the small slices, form frames of their own, whose
tasks are made fewer, without a shuffle: each then reads some slices one after another. Their order is undefined, see
:mod:`airflow_provider_kafka_s3.spark.reorder`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from airflow_provider_kafka_s3.batch.source import Isolation
from airflow_provider_kafka_s3.documents.plan import Plan, Slice
from airflow_provider_kafka_s3.spark.packing import RecordPacking
from airflow_provider_kafka_s3.spark.read_tasks import ReadTasks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Rank", "read_directly", "record_frame", "slice_frame", "slice_ranks"]

_V1_SOURCES: Final = "spark.sql.sources.useV1SourceList"
_UNION_PARTITIONING: Final = "spark.sql.unionOutputPartitioning"


@dataclass(frozen=True)
class Rank:
    """The slices of one frame: at most one of each Kafka partition.

    Attributes:
        isolation: of the read.
        ranges: per topic and Kafka partition, ``(start, end)``.
    """

    isolation: Isolation
    ranges: Mapping[str, Mapping[int, tuple[int, int]]]

    def options(self) -> dict[str, str]:
        """The offsets to read, as options of Spark's Kafka source."""
        return {
            "assign": _json({topic: sorted(parts) for topic, parts in self.ranges.items()}),
            "startingOffsets": _json(
                {t: {str(p): start for p, (start, _) in parts.items()} for t, parts in self.ranges.items()}
            ),
            "endingOffsets": _json(
                {t: {str(p): end for p, (_, end) in parts.items()} for t, parts in self.ranges.items()}
            ),
        }


def slice_ranks(slices: Iterable[tuple[Plan, Slice]]) -> list[Rank]:
    """Distribute slices of plans of different topics over as few frames as possible."""
    ranks: dict[tuple[Isolation, int], dict[str, dict[int, tuple[int, int]]]] = {}
    seen: Counter[tuple[str, int]] = Counter()
    for plan, s in slices:
        rank = seen[plan.topic, s.partition]
        seen[plan.topic, s.partition] += 1
        frame = ranks.setdefault((plan.isolation, rank), {})
        frame.setdefault(plan.topic, {})[s.partition] = (s.start, s.end)
    return [Rank(isolation, ranges) for (isolation, _), ranges in sorted(ranks.items())]


def read_directly(spark: SparkSession) -> None:
    """Make a session read Kafka with Spark's data source V2, as streams do, and keep the tasks of unions.

    By default batch reads use V1, which converts every record to a ``Row`` of seven objects and back: a fourth of the
    CPU of reading. Partitions, offsets and errors are the same with both. Since Spark 4.1 a union of frames of one task
    each may become one task by default.
    """
    spark.conf.set(_UNION_PARTITIONING, "false")
    sources = [s for s in (spark.conf.get(_V1_SOURCES) or "").split(",") if s.strip().lower() != "kafka"]
    spark.conf.set(_V1_SOURCES, ",".join(sources))


def record_frame(spark: SparkSession, tasks: ReadTasks, options: Mapping[Isolation, Mapping[str, str]]) -> DataFrame:
    """The records of all slices of some plans.

    Args:
        spark: the session.
        tasks: that read them, at least one.
        options: of the Kafka source, per isolation level, without the offsets.

    Returns:
        A frame with the columns of :class:`~airflow_provider_kafka_s3.spark.packing.RecordPacking`.

    Raises:
        ConfigurationError: an offset is too large to share a number with its partition.
    """
    packing = RecordPacking(tasks.plans)
    source_options = {isolation: {**of_level, **packing.source_options} for isolation, of_level in options.items()}
    return slice_frame(spark, tasks, source_options, packing.pieces, packing.columns)


def slice_frame(
    spark: SparkSession,
    tasks: ReadTasks,
    options: Mapping[Isolation, Mapping[str, str]],
    *columns: Sequence[str],
) -> DataFrame:
    """Columns of Spark's Kafka source for all slices of some plans.

    They are selected before frames are put together. Spark keeps all rows that it makes of one record until it gives
    them to the next step, and a union or fewer tasks are such a step: pieces beside the value that they are cut from
    would take the square of its size.

    Args:
        spark: the session.
        tasks: that read them, at least one.
        options: of the Kafka source, per isolation level, without the offsets.
        columns: SQL expressions over the columns of the source; each further list is over those of the one before.
    """

    def frame(rank: Rank) -> DataFrame:
        # Missing records have to be an error: a task never reads fewer than the plan has.
        source_options = {**options[rank.isolation], **rank.options(), "failOnDataLoss": "true"}
        records = spark.read.format("kafka").options(**source_options).load()
        for step in columns:
            records = records.selectExpr(*step)
        return records

    def in_tasks(slices: Iterable[tuple[Plan, Slice]], number: int) -> DataFrame:
        return _union([*map(frame, slice_ranks(slices))]).coalesce(number)

    frames = [*map(frame, slice_ranks(tasks.alone))]
    frames += [in_tasks(((plan, s) for s in group), 1) for plan, group in tasks.groups]
    if tasks.small:
        frames.append(in_tasks(tasks.small, tasks.of_small))
    return _union(frames)


def _union(frames: Sequence[DataFrame]) -> DataFrame:
    """The union of frames as a flat tree: Spark descends into a plan by recursion, and many topics have many groups."""
    if len(frames) == 1:
        return frames[0]
    half = len(frames) // 2
    return _union(frames[:half]).unionByName(_union(frames[half:]))


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))
