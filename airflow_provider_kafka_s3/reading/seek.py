"""Finds landed records by their offset.

The log has the batch of an offset, and its manifest the objects that may have it. The index of an object of blocks has
the block: one request gets it, whatever the size of the object. Of other objects all bytes are read. Whole objects and
indexes are compared with the CRC-32 of the manifest, a block with its own in gzip.
"""

from __future__ import annotations

from airflow_provider_kafka_s3.batch.coverage import covering_downward
from airflow_provider_kafka_s3.batch.log import TopicLog
from airflow_provider_kafka_s3.documents.manifest import Manifest
from airflow_provider_kafka_s3.documents.marker import Marker
from airflow_provider_kafka_s3.documents.offsets import Offsets
from airflow_provider_kafka_s3.documents.plan import Plan
from airflow_provider_kafka_s3.exceptions import ConfigurationError, DataLossError, LogTamperedError
from airflow_provider_kafka_s3.messages import count
from airflow_provider_kafka_s3.reading.seek_in_batch import BatchSeek
from airflow_provider_kafka_s3.reading.sought import SoughtRecord

__all__ = ["SoughtRecord", "seek"]


def seek(
    log: TopicLog,
    partition: int,
    offset: int,
    *,
    records: int = 1,
    whole_block: bool = False,
    generation: int | None = None,
) -> list[SoughtRecord]:
    """The landed records of a Kafka partition from an offset on, in the order of their offsets.

    Offsets without a record (such as markers of transactions, and null values that were left out) are passed over, as a
    consumer does.

    Args:
        log: the control documents of the topic.
        partition: the Kafka partition.
        offset: the first one.
        records: how many, at most; fewer are returned at the end of what is landed, and before a gap.
        whole_block: if the format does not keep which record has the offset, return all records of the block, or of the
            object, that has it.
        generation: how many times the topic had been reset when the records were landed; None: the latest one.

    Raises:
        ConfigurationError: the offset is not landed; or which record has it is not known, without ``whole_block``.
        DataLossError: the offset was accepted as lost.
        MissingObjectError: an object is gone.
        ForeignObjectError: an object is not readable as the manifest and the plan describe it.
    """
    marker, _ = log.require_marker()
    generation = marker.generation if generation is None else generation
    if not 0 <= generation <= marker.generation:
        raise ConfigurationError(
            f"topic {log.topic!r} has no generation {generation}: it was reset {count(marker.generation, 'time')}"
        )
    _require_landed(log, marker, generation, partition, offset)
    sought: list[SoughtRecord] = []
    next_offset, covered, lost = offset, marker.covered_in(generation), marker.lost_in(generation)
    while covered & _one(partition, next_offset) and not lost & _one(partition, next_offset):
        plan, decision = _batch_of(log, marker, generation, partition, next_offset)
        end = next(end for start, end in plan.claim[partition] if start <= next_offset < end)
        for record in BatchSeek(log, plan, decision, partition, (next_offset, end), whole_block=whole_block).records():
            if record.offset is None or not sought or sought[-1].offset is not None:
                sought.append(record)
            if len(sought) >= records and sought[-1].offset is not None:
                return sought
        if sought and sought[-1].offset is None:
            return sought
        next_offset = end
    return sought


def _one(partition: int, offset: int) -> Offsets:
    return Offsets({partition: [(offset, offset + 1)]})


def _require_landed(log: TopicLog, marker: Marker, generation: int, partition: int, offset: int) -> None:
    where = f"topic {log.topic!r}, partition {partition}, offset {offset}"
    wanted = _one(partition, offset) if offset >= 0 and partition >= 0 else None
    covered = marker.covered_in(generation)
    if wanted is None or not covered & wanted:
        ranges = covered[partition] if partition >= 0 else ()
        landed = ", ".join(f"[{start}, {end})" for start, end in ranges[-3:])
        known = f"landed are {landed}" if landed else "nothing is landed of the partition"
        raise ConfigurationError(f"{where} is not landed: {known}. Open batches and gaps: {log.remedies.status()}")
    if marker.lost_in(generation) & wanted:
        raise DataLossError(f"{where} was accepted as lost: it is in no object")


def _batch_of(log: TopicLog, marker: Marker, generation: int, partition: int, offset: int) -> tuple[Plan, Manifest]:
    """The committed batch with an offset."""
    low, high = 1, marker.last_resolved
    # Most batches continue where others ended, so their order is that of the offsets.
    while low <= high:
        middle = (low + high) // 2
        plan, _ = log.require_plan(middle)
        ranges = plan.claim[partition] if plan.generation == generation else ()
        if (decision := _committed(log, plan, generation, partition, offset)) is not None:
            return plan, decision
        if plan.generation < generation or (ranges and offset >= ranges[-1][1]):
            low = middle + 1
        elif plan.generation > generation or (ranges and offset < ranges[0][0]):
            high = middle - 1
        else:
            break
    for covering in covering_downward(log, _one(partition, offset), generation=generation, marker=marker):
        return covering.plan, covering.decision
    raise LogTamperedError(
        f"topic {log.topic!r}, partition {partition}: the marker has offset {offset} as landed, and its batch was "
        f"abandoned. Nothing was changed. Compare the marker with the log: {log.remedies.repair()}"
    )


def _committed(log: TopicLog, plan: Plan, generation: int, partition: int, offset: int) -> Manifest | None:
    """The decision about a batch that has an offset; None if it has not landed it."""
    if plan.generation != generation or not plan.claim & _one(partition, offset):
        return None
    decision = log.read_manifest(plan.batch)
    return decision if decision is not None and decision.status == "commit" else None
