"""Write missing and damaged indexes of a log again, from its plans and manifests."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from airflow_provider_kafka_s3.batch.commit import Committer
from airflow_provider_kafka_s3.batch.index_building import build_index, possible_indexes
from airflow_provider_kafka_s3.batch.log_index import disjoint
from airflow_provider_kafka_s3.documents.codec import encode
from airflow_provider_kafka_s3.documents.log_index import LogIndex
from airflow_provider_kafka_s3.documents.marker import Marker
from airflow_provider_kafka_s3.exceptions import (
    ControlError,
    CorruptControlError,
    TransientError,
    message_of,
)

__all__ = ["RepairedIndexes", "repair_indexes"]

log = logging.getLogger(__name__)

_TRIES: Final = 4


@dataclass(frozen=True)
class RepairedIndexes:
    """Result of a repair of the indexes.

    Attributes:
        written: number of indexes that were written, or would be.
        skipped: those that could not be, with the reason: first and last batch, such as ``1-100``.
    """

    written: int = 0
    skipped: Mapping[str, str] = field(default_factory=dict)


def repair_indexes(committer: Committer, marker: Marker, *, every_document: bool, dry_run: bool) -> RepairedIndexes:
    """Write the indexes of resolved batches that are missing or damaged, from plans and manifests.

    Nothing else is ever replaced but the marker. An index is a function of plans and manifests, so all who replace it
    write the same. One that a newer version wrote is skipped, and so is one for which a document of the log is gone or
    cannot be trusted; a warning names it.

    Args:
        committer: of the topic.
        marker: right; only what it has as resolved is indexed.
        every_document: compare every index with plans and manifests, too; else only those are read that take the
            fewest requests, and the others only exist.
        dry_run: write nothing.

    Raises:
        TransientError: try again.
    """
    written, skipped = 0, {}
    existing = committer.log.indexes()
    for numbers in _of_interest(committer, marker, existing, every_document):
        try:
            stored = _usable(committer, numbers)
            if stored is not None and not every_document:
                continue
            index = build_index(committer.log, marker, numbers, parallel=committer.parallel, from_documents=True)
        except ControlError as e:
            skipped[f"{numbers[0]}-{numbers[-1]}"] = message_of(e)
            log.warning(
                "topic %s: the index of batches %d to %d is skipped, and no run depends on it: %s",
                committer.log.topic,
                numbers[0],
                numbers[-1],
                message_of(e),
            )
            continue
        if stored == index:
            continue
        written += 1
        # Larger indexes are made if the smaller ones are few bytes.
        existing[numbers] = len(encode(index, {}))
        if not dry_run:
            _write(committer, index)
    return RepairedIndexes(written, skipped)


def _of_interest(
    committer: Committer, marker: Marker, existing: Mapping[range, int], every_document: bool
) -> Iterator[range]:
    """The indexes to look at, small ones first: whether there is a large one depends on these."""
    before = {*existing}
    read = before if every_document else {*disjoint(committer.log, marker, existing, largest_first=True)}
    for numbers in possible_indexes(committer.log, marker, existing):
        if numbers in read or numbers not in before:
            yield numbers


def _usable(committer: Committer, numbers: range) -> LogIndex | None:
    """The stored index; None if it is missing or damaged.

    Raises:
        UnsupportedFormatError: a newer version wrote it.
    """
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
