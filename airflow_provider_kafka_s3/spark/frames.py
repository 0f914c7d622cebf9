"""From slices to a data frame in which one task reads exactly one slice.

Where Spark cuts an offset range differs from version to version, so Spark gets nothing to cut: the k-th slice of every
Kafka partition makes one frame with an explicit start and end for each partition, which Spark reads with one task per
partition, and a union of frames keeps their tasks.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Final

from airflow_provider_kafka_s3.batch.source import Isolation
from airflow_provider_kafka_s3.documents.plan import Plan
from airflow_provider_kafka_s3.spark.wire import Wire

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Rank", "read_directly", "record_frame", "slice_frame", "slice_ranks"]

_V1_SOURCES: Final = "spark.sql.sources.useV1SourceList"


@dataclass(frozen=True)
class Rank:
    """What one frame reads: at most one slice of each Kafka partition.

    Attributes:
        isolation: of the read.
        ranges: per topic and Kafka partition, ``(start, end)``.
    """

    isolation: Isolation
    ranges: Mapping[str, Mapping[int, tuple[int, int]]]

    def options(self) -> dict[str, str]:
        """What to read, in the words of Spark's Kafka source."""
        return {
            "assign": _json({topic: sorted(parts) for topic, parts in self.ranges.items()}),
            "startingOffsets": _json(
                {t: {str(p): start for p, (start, _) in parts.items()} for t, parts in self.ranges.items()}
            ),
            "endingOffsets": _json(
                {t: {str(p): end for p, (_, end) in parts.items()} for t, parts in self.ranges.items()}
            ),
        }


def slice_ranks(plans: Sequence[Plan]) -> list[Rank]:
    """Sort the slices of plans of different topics into as few frames as can read them."""
    ranks: dict[tuple[Isolation, int], dict[str, dict[int, tuple[int, int]]]] = {}
    for plan in plans:
        seen: dict[int, int] = {}
        for s in plan.slices:
            rank = seen.get(s.partition, 0)
            seen[s.partition] = rank + 1
            frame = ranks.setdefault((plan.isolation, rank), {})
            frame.setdefault(plan.topic, {})[s.partition] = (s.start, s.end)
    return [Rank(isolation, ranges) for (isolation, _), ranges in sorted(ranks.items())]


def read_directly(spark: SparkSession) -> None:
    """Let a session read Kafka as its streams do.

    By default batches take Spark's older way, which turns every record into a ``Row`` of seven objects and back: a
    fourth of the CPU of reading. Partitions, offsets and errors are the same on both.
    """
    sources = [s for s in (spark.conf.get(_V1_SOURCES) or "").split(",") if s.strip().lower() != "kafka"]
    spark.conf.set(_V1_SOURCES, ",".join(sources))


def record_frame(
    spark: SparkSession, plans: Sequence[Plan], options: Mapping[Isolation, Mapping[str, str]]
) -> DataFrame:
    """The records of all slices of some plans, one task per slice.

    Args:
        spark: the session.
        plans: of different topics; together they have at least one slice.
        options: of the Kafka source, per isolation level, without what to read.

    Returns:
        A frame with the columns of :class:`~airflow_provider_kafka_s3.spark.wire.Wire`.

    Raises:
        ConfigurationError: an offset is too large for the wire.
    """
    wire = Wire(plans)
    return slice_frame(spark, plans, options, wire.pieces).selectExpr(*wire.columns)


def slice_frame(
    spark: SparkSession,
    plans: Sequence[Plan],
    options: Mapping[Isolation, Mapping[str, str]],
    columns: Sequence[str],
) -> DataFrame:
    """What Spark's Kafka source reads of all slices, one task per slice.

    Args:
        spark: the session.
        plans: of different topics; together they have at least one slice.
        options: of the Kafka source, per isolation level, without what to read.
        columns: SQL over the columns of the source.
    """

    def frame(rank: Rank) -> DataFrame:
        # Never fewer records than the plan asked for: what is gone has to be an error.
        how = {**options[rank.isolation], **rank.options(), "failOnDataLoss": "true"}
        return spark.read.format("kafka").options(**how).load().selectExpr(*columns)

    return reduce(lambda a, b: a.unionByName(b), map(frame, slice_ranks(plans)))


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))
