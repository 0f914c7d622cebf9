"""Snapshots: the committed objects of a topic, at a batch.

A listing of the bucket is exact only while nothing is in flight and nothing was accepted as lost. The log is exact
always: an object is read if a resolved batch lists it, no amend records it as lost, and it has not expired.
"""

from __future__ import annotations

import datetime as dt
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from airflow_provider_kafka_s3.batch.expiry import current_expiry, expired_objects
from airflow_provider_kafka_s3.batch.location import TopicLocation
from airflow_provider_kafka_s3.batch.log import TopicLog
from airflow_provider_kafka_s3.batch.topic_summary import amended_batches, is_of_log, read_summary
from airflow_provider_kafka_s3.documents.addresses import TopicAddress
from airflow_provider_kafka_s3.documents.codec import MAX_BATCH
from airflow_provider_kafka_s3.documents.expiry import ExpiredObjects
from airflow_provider_kafka_s3.documents.log_index import IndexedBatch
from airflow_provider_kafka_s3.documents.manifest import Manifest
from airflow_provider_kafka_s3.documents.marker import Marker
from airflow_provider_kafka_s3.documents.offsets import Offsets
from airflow_provider_kafka_s3.documents.plan import Plan
from airflow_provider_kafka_s3.exceptions import ConfigurationError, LogTamperedError
from airflow_provider_kafka_s3.inspect.topics import require_begun
from airflow_provider_kafka_s3.messages import few
from airflow_provider_kafka_s3.parallel import in_threads
from airflow_provider_kafka_s3.reading.record_times import overlap, window
from airflow_provider_kafka_s3.reading.snapshot_coverage import SnapshotCoverage
from airflow_provider_kafka_s3.reading.snapshot_objects import SnapshotObject, snapshot_objects
from airflow_provider_kafka_s3.reading.summarized_batches import BatchSelection, SummarizedBatches, checksums_of
from airflow_provider_kafka_s3.storage.credentials import S3Credentials
from airflow_provider_kafka_s3.storage.s3 import S3Settings

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Losses", "Snapshot"]

T = TypeVar("T")

_READERS: Final = 16
"""Batches whose documents are read at the same time."""

_AMENDS_LOOKED_UP: Final = 32
"""Batches up to which amends are looked up one by one; the amends of more are listed."""

_OF_PAGE: Final = 500
"""Batches of a page of this listing: amends of batches that are further apart are looked up one by one, too."""

_LISTED: Final = 10
"""Batches that an error names."""


@dataclass(frozen=True)
class Losses:
    """Objects that a table may have, and no reader expects any more.

    Attributes:
        number: how many there are and were; it only grows.
        urls: gives the URLs of those that were not deleted on purpose yet; it may read many manifests.
    """

    number: int
    urls: Callable[[], frozenset[str]]


class Snapshot:
    """The committed objects of a topic when a batch was the last one.

    It is fixed: objects that are landed later are in no answer. Documents are read when they are needed, and what is
    found is kept. Of more than ten thousand batches, only what a thousand of them have together is kept besides.

    Attributes:
        log: the control documents of the topic.
        batch: number of the last batch; 0: there is none.
        since: number of the batch behind which it begins; 0: it has all batches.
    """

    def __init__(self, log: TopicLog, *, at: int | None = None, since: int = 0) -> None:
        """Fix the state of a topic; the marker is read.

        Args:
            log: the control documents of the topic.
            at: number of the last batch; None: the last one before which all are complete.
            since: number of the batch behind which the snapshot begins; see :meth:`changes`.

        Raises:
            ConfigurationError: the pipeline has not begun to land the topic: a name may be wrong; a batch up to ``at``
                is not complete yet, or ``since`` is above it.
            MarkerMissingError: there is no marker, although batches exist.
        """
        saved = log.read_marker()
        if saved is None:
            if log.read_plan(1) is not None:
                saved = log.require_marker()
            else:
                require_begun(log)
        self.log = log
        self._is_latest = at is None
        self._marker = saved[0] if saved is not None else Marker(topic=log.topic, cluster_id="", topic_id="", start={})
        last = _contiguous(self._marker)
        self.batch = last if at is None else at
        self.since = since
        self._batches = SummarizedBatches(log, self._marker, since + 1, self.batch)
        # Named batches that were looked at.
        self._named: dict[int, IndexedBatch] = {}
        # The checksums of the documents of all batches that were selected.
        self._checksums: dict[int, bytes] = {}
        self._read: dict[int, tuple[SnapshotObject, ...]] = {}
        self._coverage: SnapshotCoverage | None = None
        if not 0 <= self.batch <= last:
            raise ConfigurationError(
                f"topic {log.topic!r} of pipeline {log.pipeline!r} has no state at batch {at}: batches up to {last} "
                f"are complete. Nothing was changed. Use a number from 0 to {last}, or none for the latest state"
                + (self._behind(last) if self.batch > last else "")
            )
        if not 0 <= since <= self.batch:
            raise ConfigurationError(
                f"topic {log.topic!r}: changes since batch {since} up to batch {self.batch} cannot be: the first "
                f"number must be from 0 to the second one. Use the batch of an earlier snapshot"
                + (self._behind(last) if since > last else "")
            )

    @classmethod
    def open(
        cls,
        bucket: str,
        topic: str,
        *,
        pipeline: str,
        topics_dir: str = "topics",
        at: int | None = None,
        endpoint_url: str | None = None,
        s3: S3Settings | None = None,
        credentials: S3Credentials | None = None,
    ) -> Snapshot:
        """The state of a topic in a bucket.

        Args:
            bucket: name of the bucket.
            topic: name of the topic.
            pipeline: name of its pipeline.
            topics_dir: prefix of the pipeline's keys.
            at: number of the last batch; None: the latest state.
            endpoint_url: URL of an S3-compatible store; None: AWS, or the one of ``s3``.
            s3: more settings of the store.
            credentials: for it; None: boto3's own chain.

        Raises:
            ConfigurationError: see :class:`Snapshot`; or both ``endpoint_url`` and ``s3`` name a store.
        """
        address = TopicAddress(topics_dir=topics_dir, pipeline=pipeline, topic=topic)
        location = TopicLocation(bucket, address, settings_of(endpoint_url, s3), credentials)
        return cls(location.open_log(), at=at)

    def __repr__(self) -> str:
        return (
            f"Snapshot(topic={self.log.topic!r}, pipeline={self.log.pipeline!r}, batch={self.batch}, "
            f"since={self.since})"
        )

    def changes(self, since: int) -> Snapshot:
        """What was landed behind a batch, up to the last one of this snapshot.

        Consecutive calls, each with the ``batch`` of the one before, have every object once. A batch that is open holds
        back the complete ones behind it: they are among the changes when it is complete.

        Args:
            since: the ``batch`` of an earlier snapshot. The number of a batch in the XCom of a run may be above that of
                an open one, whose records would be left out: it is for ``batches`` of :meth:`objects`.
        """
        return Snapshot(self.log, at=self.batch, since=since)

    def require_complete(self, batches: Iterable[int]) -> None:
        """Refuse batches that are not complete; only the log is read.

        Args:
            batches: their numbers; they may be outside of the snapshot.

        Raises:
            ConfigurationError: some were open, or did not exist, when the marker was read.
        """
        absent = sorted({batch for batch in batches if not self._marker.is_resolved(batch)})
        if not absent:
            return
        planned = [n for n in absent[:_LISTED] if 1 <= n <= MAX_BATCH and self.log.read_plan(n) is not None]
        unknown = [n for n in absent[:_LISTED] if n not in planned]
        message = (
            f"topic {self.log.topic!r} of pipeline {self.log.pipeline!r} has no complete batches {few(absent)}. "
            f"Nothing was read."
        )
        if planned:
            message += (
                f" Batches {few(planned)} are open: complete them by the runs that planned them, or by "
                f"{self.log.remedies.recover()}. Then open another snapshot."
            )
        if unknown:
            message += f" Batches {few(unknown)} have no plan: correct the numbers."
        raise ConfigurationError(message)

    # -- objects ------------------------------------------------------------------------------------------------------

    def objects(
        self,
        *,
        since: dt.datetime | None = None,
        until: dt.datetime | None = None,
        offsets: Mapping[int, tuple[int, int]] | None = None,
        partitions: Iterable[int] | None = None,
        folders: Callable[[Mapping[str, str]], bool] | None = None,
        generation: int | None = None,
        batches: Iterable[int] | None = None,
    ) -> tuple[SnapshotObject, ...]:
        """The objects that may have certain records, in the order of batches, Kafka partitions and offsets.

        Objects are not cut: other records of them may lie outside of the window or of the offsets.

        Args:
            since: objects with records at or after this time, which has a time zone.
            until: objects with records before this time. Objects whose times are unknown are in every window.
            offsets: objects with offsets ``[start, end)`` per Kafka partition, of one generation.
            partitions: objects with records of these Kafka partitions.
            folders: whether objects in these folders are wanted, see :attr:`SnapshotObject.columns`.
            generation: of the topic; None: all, or the latest one with ``offsets``.
            batches: only these, which may be any complete ones, also outside of the snapshot: a batch does not change.
                None: all of the snapshot.

        Raises:
            ConfigurationError: a time has no time zone, no time is in the window, or a batch of ``batches`` is not
                complete.
            ControlError: a document of the log is gone or cannot be trusted.
        """
        low, high = window(since, until)
        wanted = None if offsets is None else Offsets({p: [bounds] for p, bounds in offsets.items()})
        if wanted is not None and generation is None:
            generation = self.generation
        of_partitions = None if partitions is None else frozenset(partitions)
        chosen = self.select_batches(low, high, wanted, of_partitions, generation=generation, batches=batches)
        return tuple(
            one
            for one in self._objects_of(chosen)
            if (wanted is None or one.offsets & wanted)
            and (of_partitions is None or not of_partitions.isdisjoint(one.partitions))
            and (one.times is None or overlap(one.times, low, high))
            and (folders is None or folders(one.columns))
        )

    def select_batches(
        self,
        low: int | None = None,
        high: int | None = None,
        wanted: Offsets | None = None,
        of_partitions: frozenset[int] | None = None,
        *,
        generation: int | None = None,
        batches: Iterable[int] | None = None,
    ) -> list[int]:
        """Numbers of the committed batches that may have certain records; by the index, nothing else is read.

        Args:
            low: lowest timestamp, in milliseconds.
            high: end of the timestamps.
            wanted: offsets.
            of_partitions: Kafka partitions.
            generation: of the topic; None: all.
            batches: only these, which may be any complete ones; None: all of the snapshot.

        Raises:
            ConfigurationError: a batch of ``batches`` is not complete.
        """
        selection = BatchSelection(
            low=low, high=high, wanted=wanted, of_partitions=of_partitions, generation=generation
        )
        if batches is None:
            checksums = self._batches.select(selection)
        else:
            checksums = {one.batch: checksums_of(one) for one in self._of_numbers(batches) if selection.has(one)}
        self._checksums |= checksums
        return [batch for batch in checksums if not self._expired.has_all(batch)]

    @functools.cached_property
    def _expired(self) -> ExpiredObjects:
        """Objects that were deleted on purpose, or will be; fixed when they are first looked at."""
        return expired_objects(self.log)

    def read_index(self, use: Callable[[Iterable[IndexedBatch]], T]) -> T:
        """The result of a function of all its batches, in the order of their numbers; it may be called twice."""
        return self._batches.read(use)

    def complete_batches(self) -> Iterator[int]:
        """Numbers of the complete batches, the last one first; those behind an open one are among them."""
        return self._marker.resolved_downward()

    def losses(self, last: int) -> Losses:
        """The objects of the batches up to a number that were accepted as lost, or will be deleted on purpose.

        The summary of the topic names the batches of the first, of which only the amends are read. Without a summary
        the names of the log are listed, a request for each 500 batches.
        """
        summary = read_summary(self.log.store, self.log.address)
        if summary is None or not is_of_log(self.log, summary):
            amended = amended_batches(self.log, 1, last)
        else:
            amended = {batch for first, end in summary.amended for batch in range(first, min(end, last + 1))}
        lost = self._amended_keys(sorted(amended))
        keys = frozenset(key for of_batch in lost.values() for key in of_batch)
        expiry = current_expiry(self.log)

        def urls() -> frozenset[str]:
            waiting = {n for record in expiry.waiting for bounds in record.objects.numbers() for n in range(*bounds)}
            numbers, expired = sorted(n for n in waiting if n <= last), set[str]()
            for start in range(0, len(numbers), _READERS):
                for decision, _ in in_threads(self.log.require_decision, numbers[start : start + _READERS]):
                    batch = decision.batch
                    expired |= {one.key for one in decision.objects if expiry.objects.has(batch, one)}
                    self.log.forget(batch)
            return frozenset(map(self.log.store.url, keys | expired))

        return Losses(len(keys) + expiry.number, urls)

    def urls(self, **selection: Any) -> list[str]:
        """URLs of objects, for readers that take a list of files; arguments as of :meth:`objects`."""
        return [one.url for one in self.objects(**selection)]

    def schema(self, **selection: Any) -> pa.Schema:
        """The columns of values; arguments as of :meth:`objects`.

        Those of Parquet and Avro are the columns of all objects together, in the widest of their types; every one may
        be null. Objects of a declared schema take one request or two for each layout, others as many for each object.
        JSON lines, blocks and bytes have the column ``value``: their bytes. ``arrow_batches`` takes the result as it
        is, or with the fields of ``KAFKA_COLUMNS``; ``arrow_dataset`` has it as well.

        Raises:
            ConfigurationError: there is no object, the types of a column do not go together, or the format has no types
                (CSV).
            MissingObjectError: an object is gone.
            ForeignObjectError: an object is not of its format.
        """
        from airflow_provider_kafka_s3.reading.object_schemas import schema_of_objects

        return schema_of_objects(self.log.store, self.objects(**selection))

    @property
    def options(self) -> dict[str, str]:
        """Options of Spark's format ``kafka_s3`` for exactly this state; those of the S3 server are not among them.

        On Spark Connect a frame is analysed again by each action. With these options all of them read the same records.
        """
        return {
            "bucket": self.log.bucket,
            **msgspec.structs.asdict(self.log.address),
            "at": str(self.batch),
            "since": str(self.since),
        }

    @property
    def generations(self) -> tuple[int, ...]:
        """Those that committed batches have records of."""
        return tuple(sorted(self._batches.totals.generations))

    @property
    def generation(self) -> int:
        """How many times the topic was created again, up to the last batch."""
        last = self._batches.last
        if last is None:
            return self._marker.generation
        return last.generation + (last.status == "reset")

    @property
    def coverage(self) -> SnapshotCoverage:
        """Which offsets its batches have, and which not."""
        if self._coverage is None:
            is_whole = self.since == 0 and self.batch == self._marker.last_resolved
            self._coverage = SnapshotCoverage(
                self.log,
                self._marker,
                self._batches,
                self.batch,
                self._expired,
                is_latest=self._is_latest,
                is_whole=is_whole,
            )
        return self._coverage

    @property
    def records(self) -> int:
        """Records of all batches, expired ones included; dead letters, and null values that were left out, are not.

        Those of :meth:`objects` are less by :attr:`tombstones`.
        """
        return self._batches.totals.records

    @property
    def tombstones(self) -> int:
        """Records of all batches whose null value is in no object, but their key or headers are.

        Objects of values and null values beside them (``SiblingObjects`` with ``on_null="write"``) are different ones:
        :func:`~airflow_provider_kafka_s3.reading.records.read_records` gives the records of both.
        """
        return self._batches.totals.tombstones

    @property
    def dead_letters(self) -> int:
        """Records of all batches that could not be written."""
        return self._batches.totals.dead_letters

    def _behind(self, last: int) -> str:
        """The end of an error about a number behind the last contiguous batch."""
        if self._marker.last_resolved == last:
            return "; a run completes later ones"
        return (
            f". Batch {last + 1} is open, and holds back the complete ones behind it. Complete it by the run that "
            f"planned it, or by {self.log.remedies.recover()}; or select complete batches by batches="
        )

    def _of_numbers(self, batches: Iterable[int]) -> Sequence[IndexedBatch]:
        """Some complete batches, in the order of their numbers."""
        numbers = sorted(set(batches))
        self.require_complete(numbers)
        if missing := [batch for batch in numbers if batch not in self._named]:
            self._named |= {batch.batch: batch for batch in self._batches.named(missing)}
        return [self._named[batch] for batch in numbers]

    def _objects_of(self, batches: Sequence[int]) -> Iterator[SnapshotObject]:
        for plan, decision, lost in self.documents([batch for batch in batches if batch not in self._read]):
            self._read[plan.batch] = snapshot_objects(self.log, plan, decision, lost)
        return itertools.chain.from_iterable(self._read[batch] for batch in batches)

    def documents(self, batches: Sequence[int]) -> Iterator[tuple[Plan, Manifest, frozenset[str]]]:
        """The plan and the manifest of committed batches, and the keys that were accepted as lost since, or expired.

        Several batches are read at the same time; the log does not keep their documents.

        Args:
            batches: numbers from :meth:`select_batches`.

        Raises:
            LogTamperedError: the index of the log has other documents of a batch, so the selection may be wrong.
            ControlError: a document is gone or cannot be trusted.
        """
        lost = self._lost(batches)
        for start in range(0, len(batches), _READERS):
            group = batches[start : start + _READERS]
            plans = in_threads(self.log.require_plan, group)
            decisions = in_threads(self.log.require_decision, group)
            for (plan, plan_sha256), (decision, manifest_sha256) in zip(plans, decisions, strict=True):
                self.log.forget(plan.batch)
                self._compare(plan.batch, plan_sha256, manifest_sha256)
                expired = {entry.key for entry in decision.objects if self._expired.has(plan.batch, entry)}
                yield plan, decision, lost.get(plan.batch, frozenset()) | expired

    def _compare(self, batch: int, plan_sha256: str, manifest_sha256: str) -> None:
        """Raise LogTamperedError if the index of the log is not made from these documents."""
        known = self._checksums.get(batch)
        if known is not None and known.hex() != plan_sha256 + manifest_sha256:
            raise LogTamperedError(
                f"topic {self.log.topic!r} of pipeline {self.log.pipeline!r}: the index of the log has another plan or "
                f"manifest of batch {batch} than the stored ones, so it may hide batches. Nothing was changed. Write "
                f"the index again: {self.log.remedies.repair('--every-document')}. The documents: "
                f"{self.log.plan_url(batch)}, {self.log.manifest_url(batch)}"
            )

    def _lost(self, batches: Sequence[int]) -> dict[int, frozenset[str]]:
        """Keys that were accepted as lost after their batch was committed."""
        numbers = sorted(batches)
        if numbers and len(numbers) > max(_AMENDS_LOOKED_UP, (numbers[-1] - numbers[0]) // _OF_PAGE):
            numbers = sorted(amended_batches(self.log, numbers[0], numbers[-1]) & {*numbers})
        return self._amended_keys(numbers)

    def _amended_keys(self, batches: Sequence[int]) -> dict[int, frozenset[str]]:
        lost = in_threads(lambda batch: self.log.amended_keys(batch)[0], batches, threads=_READERS)
        return dict(zip(batches, lost, strict=True))


def settings_of(endpoint_url: str | None, s3: S3Settings | None) -> S3Settings:
    """The settings of the store of a reader, of which both arguments may be a part."""
    settings = s3 or S3Settings()
    if endpoint_url is None:
        return settings
    if settings.endpoint_url not in (None, endpoint_url):
        raise ConfigurationError(
            f"endpoint_url={endpoint_url!r} and s3, with endpoint_url={settings.endpoint_url!r}, name two stores; give "
            f"one"
        )
    return msgspec.structs.replace(settings, endpoint_url=endpoint_url)


def _contiguous(marker: Marker) -> int:
    """The last batch before which all are resolved; 0 if the first one is not."""
    return marker.resolved[0][1] - 1 if marker.resolved and marker.resolved[0][0] == 1 else 0
