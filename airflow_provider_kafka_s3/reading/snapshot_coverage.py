"""Which offsets of a topic the batches of a snapshot have, and which not."""

from __future__ import annotations

from collections.abc import Iterable

from airflow_provider_kafka_s3.batch.log import TopicLog
from airflow_provider_kafka_s3.documents.expiry import ExpiredObjects
from airflow_provider_kafka_s3.documents.log_index import IndexedBatch
from airflow_provider_kafka_s3.documents.marker import Marker
from airflow_provider_kafka_s3.documents.offsets import NO_OFFSETS, Offsets
from airflow_provider_kafka_s3.reading.summarized_batches import SummarizedBatches

__all__ = ["SnapshotCoverage"]


class SnapshotCoverage:
    """The offsets of a snapshot. The index of the log is read once for a generation, and only if they depend on it.

    Attributes:
        expired_objects: objects that were deleted on purpose, or will be, as the snapshot has read them.

    Args:
        log: the control documents of the topic.
        marker: as the snapshot has read it.
        batches: of the snapshot.
        batch: number of the last one.
        expired: objects that were deleted on purpose, or will be.
        is_latest: whether the snapshot is the latest state, and not one at a batch that was named.
        is_whole: whether it has all batches that the marker has as resolved.
    """

    def __init__(
        self,
        log: TopicLog,
        marker: Marker,
        batches: SummarizedBatches,
        batch: int,
        expired: ExpiredObjects,
        *,
        is_latest: bool,
        is_whole: bool,
    ) -> None:
        self._log = log
        self._marker = marker
        self._batches = batches
        self._batch = batch
        self._is_latest = is_latest
        self._is_whole = is_whole
        self.expired_objects = expired
        self._claimed: dict[int, Offsets] = {}
        self._expired: dict[tuple[int, bool], Offsets] = {}

    def claimed(self, generation: int) -> Offsets:
        """Offsets of a generation that its batches have, in objects or as accepted gaps; by hulls, maybe a few more."""
        if generation > self._marker.generation:
            return NO_OFFSETS
        covered = self._marker.covered_in(generation)
        if self._is_whole or not covered:
            return covered
        if generation not in self._claimed:

            def claims(batches: Iterable[IndexedBatch]) -> Offsets:
                offsets = NO_OFFSETS
                for batch in batches:
                    if batch.generation == generation and batch.covers:
                        offsets |= _hull(batch, covered) if batch.claim is None else batch.claim
                return offsets

            self._claimed[generation] = self._batches.read(claims) & covered
        return self._claimed[generation]

    def landed(self, generation: int) -> Offsets:
        """Offsets of a generation that committed batches have in objects."""
        claimed = self.claimed(generation)
        return claimed - self._marker.lost_in(generation) - self.expired(generation) if claimed else NO_OFFSETS

    def expired(self, generation: int, *, in_part: bool = False) -> Offsets:
        """Offsets of a generation whose batches have no object any more, on purpose; by hulls, maybe a few more.

        Args:
            generation: incarnation of the topic.
            in_part: also those of batches of which some objects have expired.
        """
        expired = self.expired_objects
        if not (expired if in_part else expired.batches) or generation > self._marker.generation:
            return NO_OFFSETS
        if (generation, in_part) not in self._expired:
            covered, in_parts = self._marker.covered_in(generation), dict(expired.before)

            def claims(batches: Iterable[IndexedBatch]) -> Offsets:
                ranges: list[tuple[int, int, int]] = []
                for batch in batches:
                    is_in_part = in_part and batch.batch in in_parts
                    if batch.generation != generation or not (is_in_part or expired.has_all(batch.batch)):
                        continue
                    claim = _hull(batch, covered) if batch.claim is None else batch.claim
                    ranges += [(p, start, end) for p, parts in claim.items() for start, end in parts]
                return Offsets.of(ranges)

            self._expired[generation, in_part] = self._batches.read(claims) & covered
        return self._expired[generation, in_part]

    def lost(self, generation: int, low: int | None = None, high: int | None = None) -> Offsets:
        """Offsets of a generation that are in no object: abandoned as lost, deleted by Kafka, or deleted on purpose.

        Args:
            generation: incarnation of the topic.
            low: lowest timestamp in milliseconds. Lost records have no times: those between offsets that are all
                earlier, or all later, are left out.
            high: end of the timestamps.
        """
        if generation > self._marker.generation:
            return NO_OFFSETS
        if not (lost := self._marker.lost_in(generation) | self.expired(generation)):
            return NO_OFFSETS
        return self._in_window(generation, lost & self.claimed(generation), low, high)

    def missing(self, generation: int, low: int | None = None, high: int | None = None) -> Offsets:
        """Offsets between landed ones that no batch of the snapshot has.

        They are of a batch that is open, of batches behind it, of batches that were abandoned and will be landed again,
        or lie between windows that were landed apart. For a state at an earlier batch, later ones are not looked at.

        Args:
            generation: incarnation of the topic.
            low: lowest timestamp in milliseconds, as of :meth:`lost`.
            high: end of the timestamps.
        """
        if generation > self._marker.generation:
            return NO_OFFSETS
        claimed = self.claimed(generation)
        around = self._marker.covered_in(generation) if self._is_latest else claimed
        hull = Offsets({partition: [(ranges[0][0], ranges[-1][1])] for partition, ranges in around.items()})
        return self._in_window(generation, hull - claimed, low, high)

    def why_missing(self, generation: int, missing: Offsets) -> str:
        """What to do about offsets that no batch of the snapshot has."""
        parts = []
        if held := missing & self._marker.covered_in(generation):
            if self._is_latest:
                why = (
                    f"landed, but batch {self._batch + 1} before them is open. Complete it by the run that planned it, "
                    f"or by {self._log.remedies.recover()}"
                )
            else:
                why = f"in batches behind batch {self._batch}"
            parts.append(f"offsets {held} are {why}")
        if open_ := missing - held:
            again = (
                "Land them first, if Kafka has them"
                if generation == self._marker.generation
                else "The topic was created again since, so they cannot be landed any more"
            )
            parts.append(f"offsets {open_} are in no complete batch. {again}")
        return "; ".join(parts)

    def _in_window(self, generation: int, offsets: Offsets, low: int | None, high: int | None) -> Offsets:
        """Those of the offsets whose records may have been in a window; objects around them have times."""
        if not offsets or (low is None and high is None):
            return offsets

        def around(batches: Iterable[IndexedBatch]) -> tuple[dict[int, int], dict[int, int]]:
            before: dict[int, int] = {}
            behind: dict[int, int] = {}
            for batch in batches:
                if batch.generation != generation or batch.status != "commit" or not batch.has_times:
                    continue
                for first, last, start, end in batch.boxes:
                    if first < last:
                        continue  # of several Kafka partitions, none of which may have all of these offsets
                    if low is not None and batch.max_timestamp < low:
                        before[first] = max(before.get(first, 0), end)
                    if high is not None and batch.min_timestamp >= high:
                        behind[first] = min(behind.get(first, start), start)
            return before, behind

        before, behind = self._batches.read(around)
        return Offsets(
            {
                partition: [
                    (start, end)
                    for start, end in ranges
                    if end > before.get(partition, 0) and start < behind.get(partition, end)
                ]
                for partition, ranges in offsets.items()
            }
        )


def _hull(batch: IndexedBatch, offsets: Offsets) -> Offsets:
    """What a batch may claim, of the Kafka partitions that some offsets have."""
    return Offsets(
        {
            partition: [(start, end)]
            for first, last, start, end in batch.boxes
            for partition, _ in offsets.items()
            if first <= partition <= last
        }
    )
