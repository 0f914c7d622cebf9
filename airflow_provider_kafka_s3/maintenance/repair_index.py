"""Write missing and damaged indexes of a log again, from its plans and manifests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from airflow_provider_kafka_s3.batch.commit import Committer
from airflow_provider_kafka_s3.batch.log_index import build_index, disjoint, possible_indexes
from airflow_provider_kafka_s3.documents.codec import encode
from airflow_provider_kafka_s3.documents.log_index import LogIndex
from airflow_provider_kafka_s3.documents.marker import Marker
from airflow_provider_kafka_s3.exceptions import CorruptControlError, TransientError

__all__ = ["repair_indexes"]

_TRIES = 4


def repair_indexes(committer: Committer, marker: Marker, *, every_document: bool, dry_run: bool) -> int:
    """Write the indexes of resolved batches that are missing or damaged, from plans and manifests.

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
    existing = committer.log.indexes()
    for numbers in _of_interest(committer, marker, existing, every_document):
        stored = _usable(committer, numbers)
        if stored is not None and not every_document:
            continue
        index = build_index(committer.log, marker, numbers, parallel=committer.parallel, from_documents=True)
        if stored == index:
            continue
        written += 1
        # Larger indexes are made if the smaller ones are few bytes.
        existing[numbers] = len(encode(index, {}))
        if not dry_run:
            _write(committer, index)
    return written


def _of_interest(
    committer: Committer, marker: Marker, existing: Mapping[range, int], every_document: bool
) -> Iterator[range]:
    """The indexes to look at, small ones first: whether there is a large one depends on these."""
    before = {*existing}
    read = before if every_document else {*disjoint(committer.log, marker, largest_first=True)}
    for numbers in possible_indexes(committer.log, marker, existing):
        if numbers in read or numbers not in before:
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
