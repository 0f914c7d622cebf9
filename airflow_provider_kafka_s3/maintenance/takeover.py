"""Where a pipeline goes on after a stopped sink of Kafka Connect, and its first marker, which has these offsets.

Nothing is deleted or moved: objects in the way are named, and a person moves them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from airflow_provider_kafka_s3.batch.commit import Committer
from airflow_provider_kafka_s3.batch.log import TopicLog
from airflow_provider_kafka_s3.batch.source import Isolation
from airflow_provider_kafka_s3.config import Layout
from airflow_provider_kafka_s3.documents.addresses import set_aside_key
from airflow_provider_kafka_s3.documents.marker import Marker
from airflow_provider_kafka_s3.documents.offsets import Offsets
from airflow_provider_kafka_s3.exceptions import ConfigurationError, DataLossError, ForeignObjectError
from airflow_provider_kafka_s3.kafka.offsets import ConsumerGroup
from airflow_provider_kafka_s3.layout.keys import data_prefix
from airflow_provider_kafka_s3.maintenance.leftovers import Comparison, Leftover, compare, find_leftovers
from airflow_provider_kafka_s3.messages import count, few
from airflow_provider_kafka_s3.registry.schemas import SchemaSource

__all__ = [
    "FindLeftovers",
    "FoundObjects",
    "PartitionTakeover",
    "Takeover",
    "ToMove",
    "plan_takeover",
    "take_over",
]

_NO_END: Final = 2**63 - 1


@dataclass(frozen=True)
class FoundObjects:
    """Objects of the sink.

    Attributes:
        leftovers: per Kafka partition those past the committed offset.
        duplicates: keys of those before it whose records are also in another object, with what was found.
    """

    leftovers: Mapping[int, Sequence[Leftover]]
    duplicates: Mapping[str, str] = field(default_factory=dict)


FindLeftovers: TypeAlias = Callable[[Mapping[int, tuple[int, int]]], FoundObjects]
"""Objects of the sink, by the bounds of first offsets of those past the committed offset, per Kafka partition."""


@dataclass(frozen=True)
class ToMove:
    """An object with records that readers would find twice.

    Attributes:
        key: of the object.
        why: what was found.
        move_to: a key that readers skip.
    """

    key: str
    why: str
    move_to: str


@dataclass(frozen=True)
class PartitionTakeover:
    """One Kafka partition.

    Attributes:
        partition: its number.
        committed: offset of the consumer group; None: there is none.
        start: where the pipeline begins.
        held: objects past the committed offset that have all records up to ``start``.
        in_the_way: all other objects past the committed offset.
    """

    partition: int
    committed: int | None
    start: int
    held: tuple[str, ...]
    in_the_way: tuple[ToMove, ...]

    @property
    def why(self) -> str:
        """Why the pipeline begins there."""
        if self.committed is None:
            return "no committed offset: the first one in Kafka" + (
                ", and behind what objects have" if self.held else ""
            )
        if self.held:
            return "objects have all records up to here"
        return "the committed offset"


@dataclass(frozen=True)
class Takeover:
    """What is decided for a topic.

    Attributes:
        topic: its name.
        topic_id: its incarnation; empty on brokers without topic ids.
        cluster_id: of its cluster; empty if brokers return none.
        partitions: all of them.
        done: whether the pipeline has these offsets already.
        first_batch: offsets that the first batch would land now, without a limit; None: there are batches already.
        duplicates: objects of the sink with records that readers read twice.
    """

    topic: str
    topic_id: str
    cluster_id: str
    partitions: tuple[PartitionTakeover, ...]
    done: bool
    first_batch: Offsets | None
    duplicates: tuple[ToMove, ...] = ()

    @property
    def start(self) -> dict[int, int]:
        """Per partition the offset where the pipeline begins."""
        return {one.partition: one.start for one in self.partitions}

    @property
    def in_the_way(self) -> tuple[ToMove, ...]:
        """Objects that have to be moved first."""
        return tuple(found for one in self.partitions for found in one.in_the_way)


def plan_takeover(
    committer: Committer,
    group: ConsumerGroup,
    layout: Layout,
    *,
    isolation: Isolation = "read_committed",
    without_offset: Literal["fail", "earliest"] = "fail",
    schemas: SchemaSource | None = None,
    find: FindLeftovers | None = None,
) -> Takeover:
    """Decide where a pipeline goes on; nothing is written.

    Args:
        committer: decides and completes the batches of the topic.
        group: of the connector.
        layout: that the connector's configuration stands for.
        isolation: of the pipeline's reads.
        without_offset: what a partition with records and without a committed offset does: it is an error, or begins at
            the first offset in Kafka.
        schemas: of the registry, by id; None: the layout needs none.
        find: finds the sink's objects; None: they have the keys of the layout.

    Raises:
        ConfigurationError: the connector still runs, the group has no offsets or impossible ones, or the pipeline began
            elsewhere.
        DataLossError: Kafka has deleted records that were never landed.
    """
    topic_log, source, topic = committer.log, committer.source, committer.log.topic
    if group.state:
        raise ConfigurationError(
            f"consumer group {group.name!r} has active members (it is {group.state}): the connector still runs. "
            f"Nothing was changed. Stop it, wait until the group is empty, then try again"
        )
    info = source.describe(topic)
    partitions = info.partitions
    earliest = source.earliest(topic, partitions)
    ends = source.ends(topic, partitions, "read_uncommitted")
    committed = group.offsets.get(topic, {})
    begin = _begin(group, topic, earliest=earliest, ends=ends, without_offset=without_offset)
    stored = topic_log.read_marker()
    has_batches = topic_log.read_plan(1) is not None
    if stored is None and has_batches:
        stored = topic_log.require_marker()
    marker = None if stored is None else stored[0]
    if marker is not None and (marker.generation or (info.topic_id and info.topic_id != marker.topic_id)):
        raise _began_elsewhere(committer, marker, begin)
    # Once there are batches, the objects at and behind the start of the marker are those of the pipeline.
    until = {p: marker.start.get(p, 0) if marker is not None and has_batches else _NO_END for p in partitions}
    bounds = {p: (begin[p], until[p]) for p in partitions}
    objects = FoundObjects(find_leftovers(committer.store, layout, topic, bounds)) if find is None else find(bounds)
    leftovers = objects.leftovers
    _require_records(topic, {p: begin[p] for p in partitions if marker is None or leftovers[p]}, earliest)
    readable = source.ends(topic, partitions, isolation)
    decided = []
    for p in partitions:
        held: Comparison = Comparison(begin[p], (), ())
        if leftovers[p]:
            held = compare(
                committer.store,
                layout,
                topic=topic,
                partition=p,
                start=begin[p],
                leftovers=leftovers[p],
                records=source.read(topic, p, begin[p], max(begin[p], readable[p]), isolation),
                schemas=schemas,
            )
        decided.append(
            PartitionTakeover(
                partition=p,
                committed=committed.get(p),
                start=held.end,
                held=tuple(leftover.key for leftover in held.held),
                in_the_way=tuple(_to_move(topic_log, leftover.key, why) for leftover, why in held.others),
            )
        )
    start = {one.partition: one.start for one in decided}
    same = marker is not None and {p: marker.start.get(p, 0) for p in partitions} == start
    if marker is not None and not same:
        raise _began_elsewhere(committer, marker, start)
    return Takeover(
        topic=topic,
        topic_id=info.topic_id or "",
        cluster_id=info.cluster_id or "",
        partitions=tuple(decided),
        done=same and not any(one.in_the_way for one in decided),
        first_batch=None
        if has_batches
        else Offsets({p: [(offset, readable[p])] for p, offset in start.items() if offset < readable[p]}),
        duplicates=tuple(_to_move(topic_log, key, why) for key, why in objects.duplicates.items()),
    )


def take_over(committer: Committer, takeover: Takeover, layout: Layout, *, unsafe_single_writer: bool = False) -> None:
    """Create the marker of a pipeline that goes on after a sink; harmless when repeated.

    Args:
        committer: decides and completes the batches of the topic.
        takeover: what was decided just now.
        layout: of the pipeline's objects.
        unsafe_single_writer: do not check that the store honours conditional writes.

    Raises:
        ForeignObjectError: objects are in the way. Nothing was changed.
        ConfigurationError: another run created the marker meanwhile, from other offsets; or see
            :meth:`~airflow_provider_kafka_s3.batch.log.TopicLog.create_marker`.
    """
    if blocking := takeover.in_the_way:
        urls = few([committer.store.url(one.key) for one in blocking])
        raise ForeignObjectError(
            f"topic {takeover.topic!r} has {count(len(blocking), 'object')} in the way, past the committed offsets: "
            f"{urls}. The records are still in Kafka and are landed again, so readers would see them twice. Nothing "
            f"was changed. Move all of these, by the commands of a dry run (without --apply), then try again"
        )
    if takeover.done:
        return
    marker = Marker(
        topic=takeover.topic, cluster_id=takeover.cluster_id, topic_id=takeover.topic_id, start=takeover.start
    )
    topic_log = committer.log
    if not topic_log.create_marker(
        marker, data_prefix=data_prefix(layout, takeover.topic), unsafe_single_writer=unsafe_single_writer
    ):
        stored, _ = topic_log.require_marker()
        if stored.start != takeover.start:
            raise _began_elsewhere(committer, stored, takeover.start)


def _begin(
    group: ConsumerGroup,
    topic: str,
    *,
    earliest: Mapping[int, int],
    ends: Mapping[int, int],
    without_offset: Literal["fail", "earliest"],
) -> dict[int, int]:
    """The committed offsets; where there is none, the first one in Kafka if that is allowed, or nothing was written."""
    committed = group.offsets.get(topic, {})
    absent = [p for p in earliest if p not in committed]
    if without_offset == "fail" and (open_ones := [p for p in absent if earliest[p] != ends[p] or earliest[p]]):
        raise ConfigurationError(
            f"consumer group {group.name!r} has no committed offset for partitions {few(open_ones)} of topic "
            f"{topic!r}, which have records. Nothing was changed. Check the name of the group (--group) and the Kafka "
            f"connection. If the sink has never ended an object of them, or the brokers have deleted the offsets since "
            f"(offsets.retention.minutes), begin at the first offset in Kafka: --without-offset earliest"
        )
    if beyond := {p: (o, ends.get(p)) for p, o in sorted(committed.items()) if p not in ends or o > ends[p]}:
        partition, (offset, end) = next(iter(beyond.items()))
        there = "there is no such partition" if end is None else f"the log ends at {end}"
        raise ConfigurationError(
            f"consumer group {group.name!r} has committed offset {offset} of topic {topic!r}, partition {partition}, "
            f"and {there}: the topic was created again, or the Kafka connection is to another cluster. Nothing was "
            f"changed. Land the topic as a new one, with starting_offsets"
        )
    return {p: committed.get(p, first) for p, first in earliest.items()}


def _require_records(topic: str, begin: Mapping[int, int], earliest: Mapping[int, int]) -> None:
    if lost := {p: (o, earliest[p]) for p, o in begin.items() if o < earliest[p]}:
        listed = few([f"partition {p}: [{a}, {b})" for p, (a, b) in lost.items()])
        raise DataLossError(
            f"topic {topic!r}: Kafka has deleted {count(sum(b - a for a, b in lost.values()), 'offset')} that the "
            f"group has not committed: {listed}. Nothing was changed. Objects past the committed offsets may have "
            f"their records, and cannot be compared with Kafka any more. Look at them, then choose where the pipeline "
            f"begins, by starting_offsets of the operator"
        )


def _to_move(log: TopicLog, key: str, why: str) -> ToMove:
    return ToMove(key, why, set_aside_key(log.prefix, key))


def _began_elsewhere(committer: Committer, marker: Marker, start: Mapping[int, int]) -> ConfigurationError:
    differing = sorted(p for p in {*start, *marker.start} if marker.start.get(p, 0) != start.get(p))
    listed = [f"{p}: {marker.start.get(p, 0)}, not {start.get(p)}" for p in differing]
    difference = f"from other offsets (partition {few(listed)})" if listed else "with another incarnation of the topic"
    remedy = "It has landed batches, so it cannot begin elsewhere: use another pipeline and topics_dir"
    if committer.log.read_plan(1) is None:
        remedy = (
            f"It has no batches yet: delete {committer.log.marker_url()}, while no run of it is active, and try again"
        )
    return ConfigurationError(
        f"pipeline {committer.log.pipeline!r} has begun topic {marker.topic!r} already, {difference}. Nothing was "
        f"changed. {remedy}"
    )
