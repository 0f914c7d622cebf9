"""Write missing and damaged indexes of a log again, from its plans and manifests."""

from __future__ import annotations

from collections.abc import Iterator

from airflow_provider_kafka_s3.batch.commit import Committer
from airflow_provider_kafka_s3.batch.log_index import build_index, disjoint, possible_indexes
from airflow_provider_kafka_s3.documents.log_index import LogIndex
from airflow_provider_kafka_s3.documents.marker import Marker
from airflow_provider_kafka_s3.exceptions import CorruptControlError, TransientError

__all__ = ["repair_indexes"]

_TRIES = 4


def repair_indexes(committer: Committer, marker: Marker, *, every_document: bool, dry_run: bool) -> int:
    """Write the indexes of resolved batches that are missing or damaged.

    Nothing else is ever replaced but the marker. An index is a function of plans and manifests, so all who replace it
    write the same.

    Args:
        committer: of the topic.
        marker: right; only what it has as resolved is indexed.
        every_document: compare every index with plans and manifests, too; else only those are read that take the
            fewest requests, and the others only exist.
        dry_run: write nothing.

    Returns:
        The number of indexes that were written, or would be.

    Raises:
        ControlError: a plan or a manifest of a resolved batch is gone or cannot be trusted.
        UnsupportedFormatError: a newer version wrote an index.
        TransientError: try again.
    """
    written = 0
    for numbers in _of_interest(committer, marker, every_document):
        stored = _usable(committer, numbers)
        if stored is not None and not every_document:
            continue
        index = build_index(
            committer.log, marker, numbers, parallel=committer.parallel, from_documents=every_document or dry_run
        )
        if stored == index:
            continue
        written += 1
        if not dry_run:
            _write(committer, index)
    return written


def _of_interest(committer: Committer, marker: Marker, every_document: bool) -> Iterator[range]:
    """The indexes to look at, small ones first: large ones are made from these."""
    topic_log = committer.log
    if every_document:
        yield from possible_indexes(topic_log, marker)
        return
    existing = topic_log.indexes()
    read = {*disjoint(topic_log, marker, largest_first=True)}
    for numbers in possible_indexes(topic_log, marker):
        if numbers not in existing or numbers in read:
            yield numbers


def _usable(committer: Committer, numbers: range) -> LogIndex | None:
    try:
        return committer.log.read_index(numbers)
    except CorruptControlError:
        return None


def _write(committer: Committer, index: LogIndex) -> None:
    for _ in range(_TRIES):
        if committer.log.replace_index(index):
            return
    raise TransientError(
        f"an index of topic {committer.log.topic!r} changed {_TRIES} times while it was written again; try again: "
        f"{committer.log.index_url(range(index.first, index.first + len(index.batches)))}"
    )
