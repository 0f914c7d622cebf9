"""What a topic looks like, for a pipeline that is to land it: its values, its times and the rate of its records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from airflow_provider_kafka_s3.arrays import NO_TIMESTAMP
from airflow_provider_kafka_s3.batch.source import Isolation, Source
from airflow_provider_kafka_s3.converters.registry_header import other_header, schema_id
from airflow_provider_kafka_s3.documents.offsets import Offsets
from airflow_provider_kafka_s3.inspect.infer_schema import (
    NOT_JSON,
    WITH_HEADER,
    kind_of_value,
    sampled_offsets,
    sampled_records,
)

__all__ = ["TopicSample", "sample_topic"]

_HOUR: Final = 3_600_000
_DAY: Final = 24 * _HOUR
"""Milliseconds."""


@dataclass(frozen=True)
class TopicSample:
    """A topic, and what a sample of its records shows.

    Attributes:
        topic: its name.
        partitions: number of its partitions.
        retained: number of offsets that Kafka has.
        records: number of records that were looked at.
        null_values: number of these whose value is null, or has no bytes.
        kinds: numbers of the others by what their values are, see
            :func:`~airflow_provider_kafka_s3.inspect.infer_schema.kind_of_value`; the most frequent kind first.
        schema_ids: number of values by the id in the header of a schema registry; the most frequent id first.
        enveloped: number of JSON objects that are ``schema`` and ``payload``.
        with_line_breaks: number of values that are not JSON and have a line break.
        other_header: what values that are not JSON seem to begin with; empty if that is not known.
        without_time: number of records without a timestamp.
        oldest: lowest timestamp that was seen, in milliseconds since the epoch; None if there is none.
        newest: highest timestamp that was seen.
        per_hour: records of an hour, on the average of the day before the newest one; None without timestamps.
    """

    topic: str
    partitions: int
    retained: int
    records: int = 0
    null_values: int = 0
    kinds: Mapping[str, int] = field(default_factory=dict)
    schema_ids: Mapping[int, int] = field(default_factory=dict)
    enveloped: int = 0
    with_line_breaks: int = 0
    other_header: str = ""
    without_time: int = 0
    oldest: int | None = None
    newest: int | None = None
    per_hour: float | None = None

    @property
    def values(self) -> int:
        """Number of values that were looked at, without null values."""
        return sum(self.kinds.values())

    @property
    def json_values(self) -> int:
        """Number of values that are JSON of any kind."""
        return sum(number for kind, number in self.kinds.items() if kind not in (NOT_JSON, WITH_HEADER))

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {**vars(self), "kinds": {**self.kinds}, "schema_ids": {str(n): k for n, k in self.schema_ids.items()}}


def sample_topic(
    source: Source, topic: str, *, records: int = 1_000, isolation: Isolation = "read_committed"
) -> TopicSample:
    """Look at a topic: half of the records are the oldest ones of all partitions, half the newest.

    Nothing is written, and no consumer group is used.

    Args:
        source: the Kafka cluster.
        topic: name of the topic.
        records: number of records, at most.
        isolation: level of the reader.

    Raises:
        TopicNotFoundError: there is no such topic.
        KafkaS3Error: Kafka refuses a request, or is not available.
    """
    partitions = source.describe(topic).partitions
    lows, highs = source.earliest(topic, partitions), source.ends(topic, partitions, isolation)
    whole = Offsets({p: [(lows[p], highs[p])] for p in partitions if lows[p] < highs[p]})
    kinds: Counter[str] = Counter()
    schema_ids: Counter[int] = Counter()
    numbers: Counter[str] = Counter()
    times: list[int] = []
    header = ""
    for record in sampled_records(source, topic, sampled_offsets(whole, records), isolation):
        numbers["records"] += 1
        if record.timestamp == NO_TIMESTAMP:
            numbers["without_time"] += 1
        else:
            times.append(record.timestamp)
        if not record.value:
            numbers["null_values"] += 1
            continue
        kind, document, _ = kind_of_value(record.value)
        kinds[kind] += 1
        if kind == WITH_HEADER and (named := schema_id(record.value)) is not None:
            schema_ids[named] += 1
        elif kind == NOT_JSON:
            numbers["with_line_breaks"] += b"\n" in record.value
            header = header or other_header(record.value)
        elif isinstance(document, dict):
            numbers["enveloped"] += document.keys() == {"schema", "payload"}
    return TopicSample(
        topic=topic,
        partitions=len(partitions),
        retained=whole.count,
        kinds=dict(kinds.most_common()),
        schema_ids=dict(schema_ids.most_common()),
        other_header=header,
        oldest=min(times, default=None),
        newest=max(times, default=None),
        per_hour=_per_hour(source, topic, highs, times) if times else None,
        **numbers,
    )


def _per_hour(source: Source, topic: str, ends: Mapping[int, int], times: list[int]) -> float:
    """Records of an hour, by the offsets of the day before the newest record; of less, if the topic is younger."""
    newest, oldest = max(times), min(times)
    began = max(newest - _DAY, oldest)
    firsts = source.at_timestamp(topic, [*ends], began)
    offsets = sum(ends[p] - first.offset for p, first in firsts.items() if first is not None)
    return offsets / max((newest - began) / _HOUR, 1.0)
