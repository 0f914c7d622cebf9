"""Marker files of DeviantArt's sink, kept behind the pipeline's own marker, for tools that read them.

``last_chunk_index.<topic>-00003.txt`` has the key of the index of the object with the highest offset of a Kafka
partition, so the last chunk of this index has the next offset. The files are derived from the log and never read for a
decision. They are replaced, like the marker, by compare-and-swap. A file is read before the marker that decides its
content. So a late process either sees what a faster one has landed, or does not replace the file that the faster one
has written since.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from typing import Final, TypeAlias

from airflow_provider_kafka_s3.batch.derived.port import DerivedDocuments, Rewritten
from airflow_provider_kafka_s3.batch.log import TopicLog
from airflow_provider_kafka_s3.config import DeviantArtNaming, Layout
from airflow_provider_kafka_s3.documents.manifest import ObjectEntry
from airflow_provider_kafka_s3.documents.marker import Marker
from airflow_provider_kafka_s3.documents.offsets import Offsets
from airflow_provider_kafka_s3.documents.plan import Plan
from airflow_provider_kafka_s3.exceptions import TransientError
from airflow_provider_kafka_s3.layout import keys
from airflow_provider_kafka_s3.overriding import override
from airflow_provider_kafka_s3.parallel import Parallel, growing_blocks
from airflow_provider_kafka_s3.storage.port import StoredObject

__all__ = ["ChunkMarkers", "newest_indexes", "update_chunk_markers"]

_LOOK_BACK: Final = 4
"""Resolved batches whose objects are looked at, the last ones. Each process that resolves a batch looks at them, so a
file that another one did not write is written with the next batch."""

_BATCHES_AT_ONCE: Final = 64
_WRITE_TRIES: Final = 10
_NO_END: Final = 2**63 - 1

_Found: TypeAlias = tuple[int, str]
"""Last offset of an object, and the key of its index."""


class ChunkMarkers(DerivedDocuments):
    """The marker files of layouts with the sink's names and indices; others have none."""

    name = "marker files of DeviantArt's names"
    harm = "tools that read them may find an older object than the newest one"

    @override
    def after_batch(self, topic_log: TopicLog, marker: Marker, plan: Plan, parallel: Parallel) -> None:
        if _has_chunk_markers(plan.layout):
            update_chunk_markers(topic_log, marker, parallel=parallel)

    @override
    def after_run(
        self, topic_log: TopicLog, marker: Marker, layout: Layout | None, parallel: Parallel, *, every_batch: bool
    ) -> int:
        if not _has_chunk_markers(layout):
            return 0
        return update_chunk_markers(topic_log, marker, parallel=parallel, look_back=None if every_batch else _LOOK_BACK)

    def repair(
        self, topic_log: TopicLog, marker: Marker, parallel: Parallel, *, every_document: bool, dry_run: bool
    ) -> Rewritten:
        """See :class:`DerivedDocuments`; a dry run does not count them."""
        del every_document
        if dry_run or not marker.resolved or not _has_chunk_markers(topic_log.last_layout(marker.last_resolved + 1)):
            return Rewritten()
        return Rewritten(update_chunk_markers(topic_log, marker, parallel=parallel, look_back=None))


def _has_chunk_markers(layout: Layout | None) -> bool:
    return layout is not None and layout.has_index and isinstance(layout.naming, DeviantArtNaming)


def update_chunk_markers(
    topic_log: TopicLog, marker: Marker, *, parallel: Parallel, look_back: int | None = _LOOK_BACK
) -> int:
    """Write the marker files that differ from the log; harmless when repeated.

    Args:
        topic_log: the control documents of the topic.
        marker: read or written just now.
        parallel: runs requests for several partitions at once.
        look_back: number of resolved batches to look at, the last ones; None: all of them.

    Returns:
        Number of the files that were written.

    Raises:
        KafkaS3Error: a file could not be read or written.
    """
    written: set[int] = set()
    for _ in range(_WRITE_TRIES):
        expected = newest_indexes(topic_log, marker, parallel=parallel, look_back=look_back)
        if not (differing := _differing(topic_log, expected, parallel)):
            return len(written)
        # What was decided by a marker from before the files were read may be older than what they have.
        marker, _ = topic_log.require_marker()
        now = newest_indexes(topic_log, marker, parallel=parallel, look_back=look_back)
        swaps = [(p, stored, now[p]) for p, stored in differing.items() if now.get(p) == expected[p]]
        done = parallel(lambda swap: _swap(topic_log, *swap), swaps)
        written |= {partition for (partition, *_), is_written in zip(swaps, done, strict=True) if is_written}
    raise TransientError(
        f"the marker files of topic {topic_log.topic!r} changed {_WRITE_TRIES} times while they were written; try again"
    )


def newest_indexes(
    topic_log: TopicLog, marker: Marker, *, parallel: Parallel, look_back: int | None = None
) -> dict[int, str]:
    """Per Kafka partition the key of the index of its object with the highest offset, as far as it is known.

    Objects of offsets below the start of the pipeline are not the newest ones: they were filled in, or another sink
    wrote those behind them.

    Args:
        topic_log: the control documents of the topic.
        marker: of the topic; batches that it has not resolved are ignored.
        parallel: reads several documents at once.
        look_back: number of resolved batches to look at, the last ones. A partition is not in the result if another
            batch may have its newest object. None: all of them.
    """
    start = marker.start
    unseen = Offsets({p: [(start.get(p, 0), _NO_END)] for p in marker.covered}) & marker.covered
    newest: dict[int, _Found] = {}
    for block in growing_blocks(itertools.islice(marker.resolved_downward(), look_back), most=_BATCHES_AT_ONCE):
        plans = [plan for plan in parallel(topic_log.read_plan, block) if plan is not None]
        mine = [plan for plan in plans if plan.generation == marker.generation and plan.claim & unseen]
        entries = parallel(lambda plan: _indexes(topic_log, plan), mine)
        for plan, of_plan in zip(mine, entries, strict=True):
            if of_plan is None:
                continue
            unseen -= plan.claim
            for partition, candidate in of_plan:
                if candidate[0] >= start.get(partition, 0):
                    newest[partition] = max(newest.get(partition, candidate), candidate)
        behind = {p: [(newest[p][0] + 1 if p in newest else 0, _NO_END)] for p in unseen}
        unseen &= Offsets(behind)
        if not unseen or any(plan.generation < marker.generation for plan in plans):
            break
    return {partition: key for partition, (_, key) in sorted(newest.items()) if not unseen[partition]}


def _indexes(topic_log: TopicLog, plan: Plan) -> Sequence[tuple[int, _Found]] | None:
    """The newest objects of a batch that have an index and are not accepted as lost, with their Kafka partitions.

    None: the batch was abandoned for another one to land its offsets.
    """
    layout, decision = plan.layout, topic_log.read_manifest(plan.batch)
    if decision is None or decision.is_released:
        return None
    if layout is None or not _has_chunk_markers(layout):
        return ()
    partitions = {s.id: s.partition for s in plan.slices}
    newest: dict[int, ObjectEntry] = {}
    lost: Collection[str] | None = None
    for entry in sorted(decision.objects, key=lambda one: one.max_offset, reverse=True):
        partition = partitions[entry.slices[0]]
        if partition in newest or keys.sibling_of_key(layout, entry.key) != keys.INDEX:
            continue
        lost = topic_log.amended_keys(plan.batch)[0] if lost is None else lost
        if entry.key not in lost:
            newest[partition] = entry
    return [(partition, (entry.max_offset, entry.key)) for partition, entry in newest.items()]


def _differing(topic_log: TopicLog, expected: dict[int, str], parallel: Parallel) -> dict[int, StoredObject | None]:
    """The stored files that have another content, by Kafka partition; None for absent ones."""
    partitions = [*expected]
    stored = parallel(lambda p: topic_log.store.get(_key(topic_log, p)), partitions)
    return {
        p: one for p, one in zip(partitions, stored, strict=True) if one is None or one.body != expected[p].encode()
    }


def _swap(topic_log: TopicLog, partition: int, stored: StoredObject | None, content: str) -> bool:
    """Write a file, unless it changed since it was read; whether this is certain."""
    key, body = _key(topic_log, partition), content.encode()
    if stored is None:
        return topic_log.store.create(key, body) == body
    return topic_log.store.replace(key, body, stored.etag)


def _key(topic_log: TopicLog, partition: int) -> str:
    return keys.chunk_marker_key(topic_log.topics_dir, topic_log.topic, partition)
