"""The objects of decided batches: completed from their uploads, or else written again from Kafka."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from airflow_provider_kafka_s3.batch.incarnation import require_topic_id, topic_id_of
from airflow_provider_kafka_s3.batch.log import TopicLog
from airflow_provider_kafka_s3.batch.object_metadata import BATCH_METADATA, CONTENT_METADATA, CRC32_METADATA, matches
from airflow_provider_kafka_s3.batch.rebuild import BuildObjects, BuiltObject, Lost, rebuild
from airflow_provider_kafka_s3.batch.source import Source
from airflow_provider_kafka_s3.documents.manifest import Manifest, ObjectEntry
from airflow_provider_kafka_s3.documents.plan import Plan, Slice
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
from airflow_provider_kafka_s3.messages import few
from airflow_provider_kafka_s3.parallel import Parallel
from airflow_provider_kafka_s3.storage.durable import CompleteResult

__all__ = ["BatchObjects"]

log = logging.getLogger(__name__)

_SETTLE_LOOKS: Final = 6
"""How often to look for an object whose upload is gone before it counts as absent: a Complete may be in progress."""

_TRIES: Final = 4
"""How often to ask when the store gives no usable answer, or refuses."""

_Upload = Literal["visible", "gone", "refused"]
"""What became of a listed upload: its object is there; it is gone without one; it is pending, the store refuses it."""

_AT_ONCE: Final = 512
"""Objects that are completed before a look whether any of them could be: a store that is down is not asked for all."""


@dataclass(frozen=True)
class _Unanswered:
    """A listed upload that is pending, and whose Complete gets no usable answer."""

    error: KafkaS3Error


class BatchObjects:
    """The objects of the decided batches of one topic."""

    def __init__(self, topic_log: TopicLog, source: Source, build: BuildObjects, *, parallel: Parallel) -> None:
        """Bind the objects of a topic to Kafka.

        Args:
            topic_log: of the topic.
            source: to read again what an expired upload lost.
            build: how objects are built again from records.
            parallel: how several objects are completed, looked at or read at once.
        """
        self.log = topic_log
        self.store = topic_log.store
        self.parallel = parallel
        self._source = source
        self._build = build

    def complete(
        self, plan: Plan, decision: Manifest, *, accepting: bool = False
    ) -> tuple[list[Lost], list[KafkaS3Error]] | None:
        """Make all objects of a committed batch visible that can be had, from their uploads or else from Kafka.

        Args:
            plan: of the batch.
            decision: about it.
            accepting: a person accepts losses: an upload that stays pending without a usable answer counts as refused.

        Returns:
            The objects that can be had from neither, and what went wrong with others; None if the batch turned out to
            be resolved already.
        """
        # This look precedes any Complete: a resolved batch may have lost objects since, to a user's own clean-up, and
        # they must not come back.
        if self.log.require_marker()[0].is_resolved(plan.batch):
            return None
        found = self._make_all_visible(plan, decision.objects, accepting=accepting)
        final = frozenset(e.key for e, became in found if isinstance(became, _Unanswered))
        if len(found) < len(decision.objects):
            # Objects that were not seen to must not pass for complete: all that was seen stays an error.
            final = frozenset()
        elif final and not accepting:
            # Whoever accepted these may have died before it could abort them.
            final &= self.log.amended_keys(plan.batch)[0]
        found = [(e, "refused" if e.key in final else became) for e, became in found]
        missing = {e: became for e, became in found if became in ("gone", "refused")}
        errors = [
            became.error if isinstance(became, _Unanswered) else became
            for _, became in found
            if not isinstance(became, str)
        ]
        lost: list[Lost] = []
        if missing:
            log.warning(
                "%d objects of batch %d lost their uploads and are read again from Kafka: %s",
                len(missing),
                plan.batch,
                few([self.store.url(entry.key) for entry in missing]),
            )
            refused = {entry.key for entry, became in missing.items() if became == "refused"}
            written = self._write_again(plan, list(missing), refused=refused, only_unresolved=True)
            if written is None:
                return None
            lost, failed = written
            errors += failed
        return lost, errors

    def abort(self, entries: Sequence[ObjectEntry]) -> None:
        """Abort uploads, as well as possible: one that stays pending is for the lifecycle rule."""
        self.parallel(self._abort, entries)

    def abort_refused(self, lost: Sequence[Lost]) -> None:
        """Abort the pending uploads of objects that a person accepted as lost: they must not come to light later."""
        self.abort([one.entry for one in lost if one.refused])

    def _make_all_visible(
        self, plan: Plan, entries: Sequence[ObjectEntry], *, accepting: bool
    ) -> list[tuple[ObjectEntry, _Upload | _Unanswered | KafkaS3Error]]:
        """See :meth:`_make_visible`; without the rest if the store does nothing for many in a row.

        Whoever accepts losses accepts them of all objects, so then all are seen to.
        """
        at_once = max(_AT_ONCE, len(entries)) if accepting else _AT_ONCE
        found: list[tuple[ObjectEntry, _Upload | _Unanswered | KafkaS3Error]] = []
        for at in range(0, len(entries), at_once):
            some = entries[at : at + at_once]
            became = self.parallel(lambda entry: self._make_visible(plan, entry), some)
            found += zip(some, became, strict=True)
            if all(isinstance(one, _Unanswered | TransientError | ConfigurationError) for one in became):
                break
        return found

    def _make_visible(self, plan: Plan, entry: ObjectEntry) -> _Upload | _Unanswered | KafkaS3Error:
        """Complete an upload, or return why not: one object keeps no other from it."""
        try:
            return self._complete(plan, entry)
        except KafkaS3Error as e:
            return e

    def _complete(self, plan: Plan, entry: ObjectEntry) -> _Upload | _Unanswered:
        """Complete an upload. One that the store refuses stays as it is: it may be all that is left of the records."""
        refusals = 0
        error: KafkaS3Error = UnknownOutcomeError(
            f"an object of topic {plan.topic!r}, batch {plan.batch}, could not be completed: the store gave no usable "
            f"answer {_TRIES} times. The batch is decided and loses nothing; try again: {self.store.url(entry.key)}"
        )
        for attempt in range(1, _TRIES + 1):
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
        # One refusal may be the work of whatever lies between: of a request that was damaged on its way.
        if refusals == _TRIES:
            return "refused"
        error.add_note(
            f"if it stays so, write the object again from Kafka, or accept that it is lost: "
            f"{self.log.remedies.accept_loss(plan.batch)}"
        )
        return _Unanswered(error)

    def are_intact(self, plan: Plan, entries: Sequence[ObjectEntry]) -> list[bool]:
        """See :meth:`is_intact`, for many."""
        return self.parallel(lambda entry: self.is_intact(plan, entry), entries)

    def is_intact(self, plan: Plan, entry: ObjectEntry) -> bool:
        """Whether the object is there; ForeignObjectError if something else is."""
        info = self.store.head(entry.key)
        if info is not None and not matches(info, plan.batch, entry):
            # An answer that breaks off before the metadata looks whole: nobody is sent after a stranger for one look.
            info = self.store.head(entry.key)
        if info is None:
            return False
        if not matches(info, plan.batch, entry):
            raise ForeignObjectError(
                f"a key of topic {plan.topic!r}, batch {plan.batch}, holds an object that the batch did not write: "
                f"{info.size} bytes where {entry.size} with metadata {BATCH_METADATA}={plan.batch} are expected. It "
                f"was not touched. Move it away and run again: {self.store.url(entry.key)}"
            )
        return True

    def _abort(self, entry: ObjectEntry) -> bool:
        """See :meth:`abort`."""
        self.store.abort_uploads([(entry.key, entry.upload_id)])
        return True

    def _appears(self, plan: Plan, entry: ObjectEntry) -> _Upload:
        """Whether an object whose upload is gone comes to light: somebody else's Complete may be in progress."""
        for attempt in range(1, _SETTLE_LOOKS + 1):
            if self.is_intact(plan, entry):
                return "visible"
            self.store.retrier.pause(attempt)
        return "gone"

    def write_again(
        self,
        plan: Plan,
        entries: Sequence[ObjectEntry],
        *,
        refused: Collection[str] = (),
        only_unresolved: bool = False,
    ) -> list[Lost] | None:
        """Write absent objects again from Kafka, all that it still has the records of.

        Args:
            plan: of the committed batch.
            entries: the objects.
            refused: keys whose uploads are pending and cannot be completed. Each is aborted when its object is there.
            only_unresolved: stop if the batch is resolved by now.

        Returns:
            The objects that cannot be written again; None if the batch is resolved by now.

        Raises:
            KafkaS3Error: a key holds something else, or store or Kafka gave no usable answer; all others were written
                first.
        """
        done = self._write_again(plan, entries, refused=refused, only_unresolved=only_unresolved)
        if done is None:
            return None
        lost, errors = done
        raise_first(errors)
        return lost

    def _write_again(
        self, plan: Plan, entries: Sequence[ObjectEntry], *, refused: Collection[str], only_unresolved: bool
    ) -> tuple[list[Lost], list[KafkaS3Error]] | None:
        """See :meth:`write_again`; what went wrong is returned, too."""
        lost: list[Lost] = []
        errors: list[KafkaS3Error] = []
        try:
            for entry, built in self.rebuild(plan, entries):
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
                    f"upload any more: only Kafka has their records"
                )
            errors.append(e)
        return lost, errors

    def rebuild(self, plan: Plan, entries: Sequence[ObjectEntry]) -> Iterator[tuple[ObjectEntry, BuiltObject | str]]:
        """See :func:`~airflow_provider_kafka_s3.batch.rebuild.rebuild`."""
        return rebuild(plan, entries, lambda s, wanted: self._read_again(plan, s, wanted))

    def _read_again(self, plan: Plan, s: Slice, wanted: Sequence[str]) -> Mapping[str, BuiltObject]:
        topic_id = topic_id_of(self.log, plan)
        require_topic_id(self._source, self.log, topic_id)
        built = self._build(plan, s, wanted, self._source.read(plan.topic, s.partition, s.start, s.end, plan.isolation))
        require_topic_id(self._source, self.log, topic_id)
        return built

    def put_again(self, plan: Plan, entry: ObjectEntry, built: BuiltObject, *, only_unresolved: bool) -> bool:
        """Store an object that was built again, unless its key exists.

        Args:
            plan: of the committed batch.
            entry: the object.
            built: its bytes.
            only_unresolved: do nothing, and return False, if the batch is resolved by now.

        Raises:
            ForeignObjectError: the key holds something else.
        """
        metadata = {
            BATCH_METADATA: str(plan.batch),
            CONTENT_METADATA: entry.content,
            CRC32_METADATA: built.crc32,
        }
        for attempt in range(1, _TRIES + 1):
            # The last look before each write: what a user deleted after the batch was resolved must not come back.
            if only_unresolved and self.log.require_marker()[0].is_resolved(plan.batch):
                return False
            built.put(metadata)
            if self.is_intact(plan, entry):
                return True
            self.store.retrier.pause(attempt)
        raise UnknownOutcomeError(
            f"an object of topic {plan.topic!r}, batch {plan.batch}, could not be written again: the store gave no "
            f"usable answer {_TRIES} times. Try again: {self.store.url(entry.key)}"
        )
