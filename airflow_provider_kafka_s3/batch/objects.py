"""The objects of decided batches: completed from their uploads, or written again from Kafka."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from airflow_provider_kafka_s3.batch.incarnation import require_topic_id, topic_id_of
from airflow_provider_kafka_s3.batch.log import TopicLog
from airflow_provider_kafka_s3.batch.object_metadata import BATCH_METADATA, CONTENT_METADATA, CRC32_METADATA, matches
from airflow_provider_kafka_s3.batch.rebuild import BuildObjects, BuiltObject, Lost, rebuild, spans
from airflow_provider_kafka_s3.batch.source import Source, source_of_plan
from airflow_provider_kafka_s3.config import OnTagError
from airflow_provider_kafka_s3.documents.manifest import Manifest, ObjectEntry
from airflow_provider_kafka_s3.documents.offsets import Offsets
from airflow_provider_kafka_s3.documents.plan import Plan
from airflow_provider_kafka_s3.exceptions import (
    AccessDeniedError,
    BucketNotFoundError,
    ConfigurationError,
    ForeignObjectError,
    KafkaS3Error,
    ThrottledError,
    TransientError,
    UnknownOutcomeError,
    raise_first,
)
from airflow_provider_kafka_s3.messages import count, few
from airflow_provider_kafka_s3.parallel import Parallel
from airflow_provider_kafka_s3.storage.durable import LATER, CompleteResult

__all__ = ["BatchObjects"]

log = logging.getLogger(__name__)

_SETTLE_LOOKS: Final = 6
"""HEAD requests for an object whose upload is gone before it counts as absent: a Complete may be in progress."""

_S3_TRIES: Final = 4
"""Attempts at a request while the store gives no usable answer, or refuses."""

_Upload = Literal["visible", "gone", "refused"]
"""State of a listed upload: its object is visible; it is gone without an object; it is pending, and refused."""

_OBJECTS_AT_ONCE: Final = 512
"""Objects completed before a check whether any succeeded: a store that is down does not get requests for all."""


@dataclass(frozen=True)
class _Unanswered:
    """A listed upload that is pending, and whose Complete request gets no usable answer."""

    error: KafkaS3Error


class BatchObjects:
    """The objects of the decided batches of one topic."""

    def __init__(
        self,
        topic_log: TopicLog,
        source: Source,
        build: BuildObjects,
        *,
        parallel: Parallel,
        on_tag_error: OnTagError = "fail",
        unsafe_unproven_records: bool = False,
    ) -> None:
        """Handle the objects of one topic.

        Args:
            topic_log: the control documents of the topic.
            source: used to read the records of expired uploads again.
            build: builds objects again from records.
            parallel: runs requests for several objects at once.
            on_tag_error: for an object whose tags the store refuses.
            unsafe_unproven_records: a person vouches that Kafka has the landed records, where the manifest of an
                earlier version does not show it.
        """
        self.log = topic_log
        self.store = topic_log.store
        self.parallel = parallel
        self._source = source
        self._build = build
        self._on_tag_error = on_tag_error
        self._unproven = unsafe_unproven_records

    def complete(
        self, plan: Plan, decision: Manifest, *, accepting: bool = False
    ) -> tuple[list[Lost], list[KafkaS3Error]] | None:
        """Make the objects of a committed batch visible, from their uploads or else from Kafka.

        Args:
            plan: of the batch.
            decision: of the batch.
            accepting: a person accepts losses: an upload that stays pending without a usable answer counts as refused.

        Returns:
            The objects available from neither, and the errors of others; None if the batch is resolved already.
        """
        # This check precedes any Complete: objects of a resolved batch that a user has deleted since must not come
        # back.
        if self.log.require_marker()[0].is_resolved(plan.batch):
            return None
        results = self._make_all_visible(plan, decision.objects, accepting=accepting)
        final = frozenset(e.key for e, result in results if isinstance(result, _Unanswered))
        if len(results) < len(decision.objects):
            # Objects that were not processed must not count as complete: the errors of the others stay errors.
            final = frozenset()
        elif final and not accepting:
            # The process that accepted these may have ended before it aborted them.
            final &= self.log.amended_keys(plan.batch)[0]
        results = [(e, "refused" if e.key in final else result) for e, result in results]
        missing = {e: result for e, result in results if result in ("gone", "refused")}
        errors = [
            result.error if isinstance(result, _Unanswered) else result
            for _, result in results
            if not isinstance(result, str)
        ]
        lost: list[Lost] = []
        if missing:
            log.warning(
                "uploads of %s of batch %d are gone or refused, and read again from %s: %s",
                count(len(missing), "object"),
                plan.batch,
                plan.origin,
                few([self.store.url(entry.key) for entry in missing]),
            )
            refused = {entry.key for entry, result in missing.items() if result == "refused"}
            written = self._write_again(plan, list(missing), refused=refused, only_unresolved=True)
            if written is None:
                return None
            lost, failed = written
            errors += failed
        return lost, errors

    def abort(self, entries: Sequence[ObjectEntry]) -> None:
        """Abort uploads, best effort: the bucket's lifecycle rule removes one that stays pending."""
        self.parallel(self._abort, entries)

    def abort_refused(self, lost: Sequence[Lost]) -> None:
        """Abort the pending uploads of objects that a person accepted as lost: they must not become visible later."""
        self.abort([loss.entry for loss in lost if loss.refused])

    def _make_all_visible(
        self, plan: Plan, entries: Sequence[ObjectEntry], *, accepting: bool
    ) -> list[tuple[ObjectEntry, _Upload | _Unanswered | KafkaS3Error]]:
        """:meth:`_make_visible` for many; stops after a block without success.

        Losses are accepted for all objects of a batch, so then no object is left out.
        """
        at_once = max(_OBJECTS_AT_ONCE, len(entries)) if accepting else _OBJECTS_AT_ONCE
        results: list[tuple[ObjectEntry, _Upload | _Unanswered | KafkaS3Error]] = []
        for start in range(0, len(entries), at_once):
            block = entries[start : start + at_once]
            block_results = self.parallel(lambda entry: self._make_visible(plan, entry), block)
            results += zip(block, block_results, strict=True)
            if all(isinstance(r, _Unanswered | TransientError | ConfigurationError) for r in block_results):
                break
        return results

    def _make_visible(self, plan: Plan, entry: ObjectEntry) -> _Upload | _Unanswered | KafkaS3Error:
        """Complete an upload, or return the error: one object does not block the others."""
        try:
            result = self._complete(plan, entry)
            if result == "visible":
                self._tag(plan, entry)
            return result
        except KafkaS3Error as e:
            return e

    def _complete(self, plan: Plan, entry: ObjectEntry) -> _Upload | _Unanswered:
        """Complete an upload. A refused upload is kept: it may be the last copy of the records."""
        refusals = 0
        error: KafkaS3Error = UnknownOutcomeError(
            f"an object of topic {plan.topic!r}, batch {plan.batch}, could not be completed: the store gave no usable "
            f"answer {_S3_TRIES} times. The batch is decided and loses nothing; try again: {self.store.url(entry.key)}"
        )
        for attempt in range(1, _S3_TRIES + 1):
            try:
                answer = self.store.complete(entry.key, entry.upload_id, entry.upload_parts())
            except (AccessDeniedError, BucketNotFoundError, ThrottledError):
                raise
            except (ConfigurationError, TransientError) as e:
                answer, error = CompleteResult.UNKNOWN, e
            if self.is_intact(plan, entry):
                if answer not in (CompleteResult.DONE, CompleteResult.GONE):
                    self._abort(entry)
                return "visible"
            if answer in (CompleteResult.DONE, CompleteResult.GONE):
                return self._appears(plan, entry)
            refusals += answer is CompleteResult.REFUSED
            self.store.retrier.pause(attempt)
        if not self.store.upload_exists(entry.key, entry.upload_id):
            return self._appears(plan, entry)
        if not self._is_gone(plan, entry):
            self._abort(entry)
            return "visible"
        # A single refusal may have another cause, such as a request damaged in transit.
        if refusals == _S3_TRIES:
            return "refused"
        error.add_note(
            f"if the error persists, write the object again from {plan.origin}, or accept that it is lost: "
            f"{self.log.remedies.accept_loss(plan.batch)}"
        )
        return _Unanswered(error)

    def are_intact(self, plan: Plan, entries: Sequence[ObjectEntry]) -> list[bool]:
        """:meth:`is_intact` for many."""
        return self.parallel(lambda entry: self.is_intact(plan, entry), entries)

    def is_intact(self, plan: Plan, entry: ObjectEntry) -> bool:
        """Whether the object exists; ForeignObjectError if the key holds an object that the batch did not write."""
        info = self.store.head(entry.key)
        if info is not None and not matches(info, plan.batch, entry):
            # A response truncated before the metadata looks complete, so a mismatch counts only if it is repeated.
            info = self.store.head(entry.key)
        if info is None:
            return False
        if not matches(info, plan.batch, entry):
            raise ForeignObjectError(
                f"a key of topic {plan.topic!r}, batch {plan.batch}, holds an object that the batch did not write: "
                f"{info.size} bytes where {entry.size} with metadata {BATCH_METADATA}={plan.batch} are expected. It "
                f"was not changed. Move it away and run again: {self.store.url(entry.key)}"
            )
        return True

    def gone(self, plan: Plan, entries: Sequence[ObjectEntry]) -> list[ObjectEntry]:
        """Of objects that HEAD requests did not find, those that are to be given up: neither they nor others find them.

        Raises:
            UnknownOutcomeError: only others find one.
        """
        if entries:
            self.store.retrier.pause(LATER)
        gone = self.parallel(lambda entry: self._is_gone(plan, entry), entries)
        return [entry for entry, is_gone in zip(entries, gone, strict=True) if is_gone]

    def _is_gone(self, plan: Plan, entry: ObjectEntry) -> bool:
        if self.is_intact(plan, entry):
            return False
        try:
            self.store.require_gone(entry.key, by="HEAD")
        except UnknownOutcomeError:
            # Another process may have completed its upload between the two requests.
            if self.is_intact(plan, entry):
                return False
            raise
        return True

    def _tag(self, plan: Plan, entry: ObjectEntry) -> None:
        """Tag a visible object with its offsets; again after a crash, since only then the batch is resolved.

        The end of an object is unknown when its upload begins, and an upload takes no tags later.

        Raises:
            KafkaS3Error: the store refuses the tags, and this is not ignored, or gave no usable answer.
        """
        if plan.layout is None or not plan.layout.tags.offsets:
            return
        tags = plan.layout.tags.of(entry.min_offset, entry.max_offset, entry.records)
        try:
            self.store.put_tags(entry.key, tags)
        except (AccessDeniedError, ConfigurationError) as e:
            if self._on_tag_error == "ignore":
                log.warning("an object stays without the tags of its offsets: %s", e)
                return
            e.add_note(
                f"the objects of batch {plan.batch} are visible, and the next run tags them: allow "
                f"s3:PutObjectTagging, or set upload={{'on_tag_error': 'ignore'}}"
            )
            raise

    def _abort(self, entry: ObjectEntry) -> bool:
        """See :meth:`abort`."""
        self.store.abort_uploads([(entry.key, entry.upload_id)])
        return True

    def _appears(self, plan: Plan, entry: ObjectEntry) -> _Upload:
        """Wait for an object whose upload is gone: another process's Complete may be in progress."""
        for attempt in range(1, _SETTLE_LOOKS + 1):
            if self.is_intact(plan, entry):
                return "visible"
            self.store.retrier.pause(attempt)
        return "gone" if self._is_gone(plan, entry) else "visible"

    def write_again(
        self,
        plan: Plan,
        entries: Sequence[ObjectEntry],
        *,
        refused: Collection[str] = (),
        only_unresolved: bool = False,
    ) -> list[Lost] | None:
        """Write absent objects again from Kafka, as far as it still has their records.

        Args:
            plan: of the committed batch.
            entries: the objects.
            refused: keys whose uploads are pending and cannot be completed. Each is aborted once its object exists.
            only_unresolved: stop if the batch is resolved by now.

        Returns:
            The objects that cannot be written again; None if the batch is resolved by now.

        Raises:
            KafkaS3Error: a key holds an object that the batch did not write, or store or Kafka gave no usable answer;
                all others were written first.
        """
        written = self._write_again(plan, entries, refused=refused, only_unresolved=only_unresolved)
        if written is None:
            return None
        lost, errors = written
        raise_first(errors)
        return lost

    def _write_again(
        self, plan: Plan, entries: Sequence[ObjectEntry], *, refused: Collection[str], only_unresolved: bool
    ) -> tuple[list[Lost], list[KafkaS3Error]] | None:
        """:meth:`write_again` that returns the errors instead of raising them."""
        lost: list[Lost] = []
        errors: list[KafkaS3Error] = []
        try:
            for entry, built in self.rebuild(plan, entries, complete=not only_unresolved):
                if isinstance(built, str):
                    lost.append(Lost(plan, entry, built, refused=entry.key in refused))
                    continue
                try:
                    if not self.put_again(plan, entry, built, only_unresolved=only_unresolved):
                        return None
                except (ForeignObjectError, TransientError) as e:
                    errors.append(e)
                    continue
                if entry.key in refused:
                    self._abort(entry)
        except (ConfigurationError, TransientError) as e:
            if isinstance(e, ConfigurationError):
                e.add_note(
                    f"batch {plan.batch} of topic {plan.topic!r} is decided, and {len(entries)} of its objects have no "
                    f"upload any more: only {plan.origin} has their records"
                )
            errors.append(e)
        return lost, errors

    def rebuild(
        self, plan: Plan, entries: Sequence[ObjectEntry], *, complete: bool = True
    ) -> Iterator[tuple[ObjectEntry, BuiltObject | str]]:
        """See :func:`~airflow_provider_kafka_s3.batch.rebuild.rebuild`.

        Args:
            plan: of the committed batch.
            entries: the objects.
            complete: whether the batch is complete, so that only a restore writes its objects.
        """
        remedies = self.log.remedies
        word = remedies.restore([plan.batch], unproven=True) if complete else remedies.recover_decided(unproven=True)
        return rebuild(
            plan,
            entries,
            lambda some: self._read_again(plan, some),
            lambda partitions: self._kept(plan, partitions),
            on_a_persons_word=None if self._unproven else word,
        )

    def _read_again(self, plan: Plan, entries: Sequence[ObjectEntry]) -> Mapping[str, BuiltObject]:
        topic_id, source = topic_id_of(self.log, plan), source_of_plan(self._source, plan)
        require_topic_id(source, self.log, topic_id)
        whole = plan.layout is not None and plan.layout.whole_records
        span_of = spans(plan, entries)
        built = self._build(
            plan,
            entries,
            lambda s: source.read(plan.topic, s.partition, *span_of[s], plan.isolation, whole=whole),
        )
        require_topic_id(source, self.log, topic_id)
        return built

    def _kept(self, plan: Plan, partitions: Sequence[int]) -> Offsets:
        """The offsets between the beginnings and the ends of the logs of partitions."""
        source = source_of_plan(self._source, plan)
        starts = source.earliest(plan.topic, partitions)
        ends = source.ends(plan.topic, partitions, "read_uncommitted")
        return Offsets({p: [(starts[p], ends[p])] for p in partitions})

    def put_again(self, plan: Plan, entry: ObjectEntry, built: BuiltObject, *, only_unresolved: bool) -> bool:
        """Store an object that was built again, unless its key exists.

        Args:
            plan: of the committed batch.
            entry: the object.
            built: its bytes.
            only_unresolved: do nothing, and return False, if the batch is resolved by now.

        Raises:
            ForeignObjectError: the key holds an object that the batch did not write.
        """
        metadata = {
            BATCH_METADATA: str(plan.batch),
            CONTENT_METADATA: entry.content,
            CRC32_METADATA: built.crc32,
        }
        for attempt in range(1, _S3_TRIES + 1):
            # The last check before each write: an object that a user deleted after the batch was resolved must not
            # come back.
            if only_unresolved and self.log.require_marker()[0].is_resolved(plan.batch):
                return False
            built.put(metadata)
            if self.is_intact(plan, entry):
                self._tag(plan, entry)
                return True
            self.store.retrier.pause(attempt)
        raise UnknownOutcomeError(
            f"an object of topic {plan.topic!r}, batch {plan.batch}, could not be written again: the store gave no "
            f"usable answer {_S3_TRIES} times. Try again: {self.store.url(entry.key)}"
        )
