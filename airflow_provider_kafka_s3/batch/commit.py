"""Decide a batch, roll it forward, fold it into the marker. Any process may repeat any step at any time.

The decision is the manifest, created once. Before it nothing of a batch is visible. After it only the uploads that it
lists are ever completed. An upload id works once, so a late process can neither undo nor repeat anything.
"""

from __future__ import annotations

import functools
import logging
import operator
from collections.abc import Sequence
from typing import Final, Literal

from airflow_provider_kafka_s3.batch.dead_letter_limit import DeadLetterLimit
from airflow_provider_kafka_s3.batch.derived.registry import follow_batch
from airflow_provider_kafka_s3.batch.early_ends import early_ends
from airflow_provider_kafka_s3.batch.incarnation import require_topic_id, topic_id_of
from airflow_provider_kafka_s3.batch.log import TopicLog
from airflow_provider_kafka_s3.batch.objects import BatchObjects
from airflow_provider_kafka_s3.batch.rebuild import BuildObjects, batch_loss
from airflow_provider_kafka_s3.batch.source import Source
from airflow_provider_kafka_s3.config import RESCUED, JsonConverter, OnTagError
from airflow_provider_kafka_s3.documents.manifest import Manifest, SliceRows
from airflow_provider_kafka_s3.documents.marker import fold
from airflow_provider_kafka_s3.documents.plan import Plan
from airflow_provider_kafka_s3.exceptions import (
    SparkJobError,
    UnknownOutcomeError,
    raise_first,
)
from airflow_provider_kafka_s3.layout.hidden_fields import HiddenFields
from airflow_provider_kafka_s3.messages import count, few, printable
from airflow_provider_kafka_s3.parallel import Parallel, in_threads
from airflow_provider_kafka_s3.registry.schemas import SchemaSource

__all__ = ["Committer"]

log = logging.getLogger(__name__)

_NAMES: Final = 5
"""Unknown fields that a message names."""
_SHOWN: Final = 60
"""Characters of such a name."""
_MARKER_TRIES: Final = 4
"""Attempts to replace the marker while the store gives no usable answer."""


class Committer:
    """Commits batches of one topic: decides, rolls forward, resolves."""

    def __init__(
        self,
        topic_log: TopicLog,
        source: Source,
        build: BuildObjects,
        *,
        schemas: SchemaSource | None = None,
        parallel: Parallel = in_threads,
        on_tag_error: OnTagError = "fail",
        unsafe_unproven_records: bool = False,
        unsafe_given_objects: bool = False,
    ) -> None:
        """Commit batches of one topic.

        Args:
            topic_log: log of the topic.
            source: used to check the topic's incarnation, and to read the records of expired uploads again.
            build: builds objects again from records.
            schemas: of values, by id; None: layouts need none.
            parallel: runs requests for several objects at once.
            on_tag_error: for an object whose tags the store refuses.
            unsafe_unproven_records: see :class:`~.objects.BatchObjects`.
            unsafe_given_objects: missing objects that were given to a table are written again, too.
        """
        self.log = topic_log
        self.source = source
        self.store = topic_log.store
        self.schemas = schemas
        self.parallel = parallel
        self.unsafe_given_objects = unsafe_given_objects
        self._warned: set[str] = set()
        self.objects = BatchObjects(
            topic_log,
            source,
            build,
            parallel=parallel,
            on_tag_error=on_tag_error,
            unsafe_unproven_records=unsafe_unproven_records,
        )

    # -- decide -------------------------------------------------------------------------------------------------------

    def decide(
        self, plan: Plan, rows: Sequence[SliceRows], *, run: str, max_dead_letters: DeadLetterLimit | None = None
    ) -> Manifest:
        """Decide to commit these rows, unless the batch is decided. Returns the stored decision.

        Afterwards the uploads of the rows are aborted, unless the decision lists them or may list them.

        Args:
            plan: of the batch.
            rows: one result per slice, each from exactly one attempt.
            run: key of the run that executes.
            max_dead_letters: limit of the batch; None: no limit.

        Raises:
            RecordError: there are more dead letters; nothing was decided.
            SparkJobError: rows are missing or do not fit the plan; nothing was decided.
            TopicRecreatedError: the topic changed while it was read; nothing was decided.
        """
        try:
            manifest = self._commit(plan, sorted(rows, key=lambda r: r.result.id), run)
            if max_dead_letters is not None and manifest.dead_letters > max_dead_letters.left:
                raise max_dead_letters.error(plan, f"The batch has {manifest.dead_letters:,}")
            require_topic_id(self.source, self.log, topic_id_of(self.log, plan))
        except Exception:
            # No decision that lists these uploads was ever sent, so none can take effect later.
            self.objects.abort([o for r in rows for o in r.objects])
            raise
        decision = self.log.create_manifest(manifest)
        # Only the decision read from the store proves that uploads which it does not list will never be completed.
        listed = {o.upload_id for o in decision.objects}
        self.objects.abort([o for o in manifest.objects if o.upload_id not in listed])
        if decision.run == run and (warning := early_ends(plan, decision)) is not None:
            log.warning("%s", warning)
        self._warn_of_hidden_fields(rows)
        if decision.run == run:
            self._warn_of_unknown_fields(plan, decision)
        return decision

    def _warn_of_unknown_fields(self, plan: Plan, decision: Manifest) -> None:
        """Say what was left out, or rescued; warn once of the same fields, which most batches have."""
        unknown = decision.unknown_fields
        converter = None if plan.layout is None else plan.layout.value_converter
        if not unknown.records or not isinstance(converter, JsonConverter):
            return
        newest = few([printable(name, shown=_SHOWN) for name in reversed(unknown.names)], most=_NAMES)
        fates = {
            "leave_out": "these fields are left out",
            "rescue": f"they are in {RESCUED}",
            "fail": "these records are dead letters",
        }
        is_news = not self._warned.issuperset(unknown.names)
        self._warned.update(unknown.names)
        log.log(
            logging.WARNING if is_news and converter.unknown_fields != "rescue" else logging.INFO,
            "topic %s: batch %d has %s with fields that the declared schema does not have; %s (the newest: %s)",
            self.log.topic,
            plan.batch,
            count(unknown.records, "record"),
            fates[converter.unknown_fields],
            newest,
        )

    def _warn_of_hidden_fields(self, rows: Sequence[SliceRows]) -> None:
        """Warn once of the same fields, which most batches have."""
        hidden = functools.reduce(operator.or_, (one.hidden for one in rows), HiddenFields())
        for finding, remedy in hidden.findings().items():
            if finding not in self._warned:
                self._warned.add(finding)
                log.warning("topic %s: %s. To avoid this, %s", self.log.topic, finding, remedy)

    def _commit(self, plan: Plan, rows: Sequence[SliceRows], run: str) -> Manifest:
        plan_sha256 = self.log.require_plan(plan.batch)[1]
        try:
            manifest = Manifest(
                batch=plan.batch,
                plan_sha256=plan_sha256,
                status="commit",
                run=run,
                slices=tuple(r.result for r in rows),
                objects=tuple(o for r in rows for o in r.objects),
            )
            manifest.check_against(plan)
        except ValueError as e:
            raise SparkJobError(
                f"batch {plan.batch} of topic {plan.topic!r} was not read as planned: {e}. Nothing was decided; try "
                "again"
            ) from e
        return manifest

    def abandon(
        self, plan: Plan, *, release: Literal["debt", "lost"], reason: str, operator: str, run: str
    ) -> Manifest:
        """Decide to abandon a batch, unless it is decided. Returns the stored decision."""
        return self.log.create_manifest(
            Manifest(
                batch=plan.batch,
                plan_sha256=self.log.require_plan(plan.batch)[1],
                status="abandoned",
                run=run,
                release=release,
                reason=reason,
                operator=operator,
            )
        )

    # -- roll forward -------------------------------------------------------------------------------------------------

    def carry_out(self, plan: Plan, decision: Manifest) -> None:
        """Apply a decision and fold it into the marker; harmless if that is done already.

        Raises:
            ForeignObjectError: a key holds an object that the batch did not write.
            BatchLossError: an object can be neither completed nor built again.
        """
        if decision.status == "commit" and not self.roll_forward(plan, decision):
            return
        self.resolve(plan, decision)

    def roll_forward(self, plan: Plan, decision: Manifest) -> bool:
        """Make every object of a committed batch visible; False if the batch is resolved already.

        All other objects are processed before an error is raised.

        Raises:
            ForeignObjectError: a key holds an object that the batch did not write.
            BatchLossError: objects can be neither completed nor built again, and their loss is not accepted.
            TransientError: store or Kafka gave no usable answer about some objects.
        """
        completed = self.objects.complete(plan, decision)
        if completed is None:
            return False
        lost, errors = completed
        if lost:
            accepted = self.log.amended_keys(plan.batch)[0]
            if left := [loss for loss in lost if loss.entry.key not in accepted]:
                accept = (
                    f"Complete the batch without what cannot be written: {self.log.remedies.accept_loss(plan.batch)}"
                )
                if any(loss.rebuildable for loss in left):
                    accept = (
                        "No loss can be accepted before the objects that another installation can write are written"
                    )
                errors.append(batch_loss(self.log, left, accept))
        raise_first(errors)
        self.objects.abort_refused(lost)
        return True

    def resolve(self, plan: Plan, decision: Manifest) -> None:
        """Fold a decided batch into the marker by compare-and-swap; repeat until it is resolved."""
        tries, last_etag = 0, ""
        while True:
            marker, etag = self.log.require_marker()
            if marker.is_resolved(plan.batch):
                if tries:
                    follow_batch(self.log, marker, plan, self.parallel)
                return
            # A lost swap means that another process advanced; only tries that changed nothing are counted.
            tries = tries + 1 if etag == last_etag else 1
            if tries > _MARKER_TRIES:
                raise UnknownOutcomeError(
                    f"the marker of topic {plan.topic!r} could not be replaced: the store gave no usable answer "
                    f"{_MARKER_TRIES} times. Batch {plan.batch} is decided and loses nothing; try again: "
                    f"{self.log.marker_url()}"
                )
            last_etag = etag
            folded = fold(marker, plan, decision)
            if self.log.replace_marker(folded, etag):
                follow_batch(self.log, folded, plan, self.parallel)
                return
            self.store.retrier.pause(tries)
