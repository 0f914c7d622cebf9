"""A run over one topic: pin a target once, then append, execute and finish batches until it is covered.

The run does not execute plans itself: :meth:`TopicRun.advance` hands out a plan that has to be executed and is called
again afterwards. So one Spark job can serve many topics, and the simulation can serve as Spark.
"""

from __future__ import annotations

import collections
import itertools
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import msgspec
from msgspec import UNSET, UnsetType

from airflow_provider_kafka_s3.batch.adoption import AdoptionWait
from airflow_provider_kafka_s3.batch.commit import Committer
from airflow_provider_kafka_s3.batch.coverage import Covering, covering_downward, covering_upward
from airflow_provider_kafka_s3.batch.derived.registry import follow_run
from airflow_provider_kafka_s3.batch.held_back import held_back, log_held_back
from airflow_provider_kafka_s3.batch.incarnation import refuse_replaced_log, refuse_shorter_log, require_topic_id
from airflow_provider_kafka_s3.batch.layout_changes import warn_if_layout_changes
from airflow_provider_kafka_s3.batch.planning import (
    Claimable,
    OffsetWindow,
    claimable,
    incremental_target,
    interval_target,
    next_claim,
    recovery_target,
)
from airflow_provider_kafka_s3.batch.presence import require_objects
from airflow_provider_kafka_s3.batch.request import BatchSummary, RunRequest, TopicResult
from airflow_provider_kafka_s3.batch.roll_forward import finish_decided, finish_reset
from airflow_provider_kafka_s3.batch.source import Isolation, PipelineSource, pipeline_source, source_of_plan
from airflow_provider_kafka_s3.batch.view import View
from airflow_provider_kafka_s3.batch.window_offsets import pipeline_start, window_of
from airflow_provider_kafka_s3.documents.marker import Marker
from airflow_provider_kafka_s3.documents.offsets import NO_OFFSETS, Offsets
from airflow_provider_kafka_s3.documents.plan import (
    LandedRange,
    Plan,
    SourceBatches,
    fair_share,
    join_ranges,
    layout_digest,
    plan_slices,
    writer_versions,
)
from airflow_provider_kafka_s3.documents.planner import TaskHasEnded
from airflow_provider_kafka_s3.documents.run import RunRecord
from airflow_provider_kafka_s3.exceptions import (
    ConfigurationError,
    DataLossError,
    KafkaUnavailableError,
    LogTamperedError,
    RunSupersededError,
    TopicNotFoundError,
    TopicRecreatedError,
    TransientError,
)
from airflow_provider_kafka_s3.extensions.loading import pinned
from airflow_provider_kafka_s3.layout.keys import data_prefix, hidden_names
from airflow_provider_kafka_s3.messages import count

__all__ = ["TopicRun"]

log = logging.getLogger(__name__)

_MANIFESTS_AT_ONCE: Final = 64
"""Manifests that are in memory together while dead letters are counted."""


class TopicRun:
    """One attempt of a run over one topic.

    Attributes:
        dead_letters: of the other batches that the run has landed, when :meth:`advance` returns a plan; counted only
            if the request limits them.
    """

    def __init__(
        self,
        committer: Committer,
        request: RunRequest,
        *,
        task_has_ended: TaskHasEnded | None = None,
        sleep: Callable[[float], None] = time.sleep,
        monotonic: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        """Prepare an attempt; nothing is read or written yet.

        Args:
            committer: decides and completes the batches of the topic.
            request: what to do.
            task_has_ended: whether the Airflow task that planned a batch has ended; None if Airflow is not available.
            sleep: sleeps for a number of seconds.
            monotonic: monotonic clock, in seconds.
            now: the current time, in seconds since the epoch. Used only to detect records from the future.
        """
        self.committer = committer
        self.log = committer.log
        self.source = committer.source
        self.topic = committer.log.topic
        self.request = request
        self._adoption = AdoptionWait(
            committer.log,
            most=request.adopt_wait,
            task_has_ended=task_has_ended,
            sleep=sleep,
            monotonic=monotonic,
        )
        self._now = now
        self._record: RunRecord | None = None
        self._verify_first = False
        self._wrote = False
        self._made_marker = False
        # Batches of this run whose planner needs no log line any more.
        self._planned: set[int] = set()
        self.dead_letters = 0
        self._counted: set[int] = set()
        self._pinned_from: View | None = None
        self._held_back = NO_OFFSETS

    def advance(self) -> Plan | TopicResult:
        """Do all that can be done without reading records.

        Returns:
            A plan that has to be executed before this is called again, or the result.

        Raises:
            TerminalError: a person has to act, as the message describes.
            TransientError: try the run again.
        """
        try:
            return self._advance()
        except (KafkaUnavailableError, TopicNotFoundError, TopicRecreatedError) as e:
            finish_decided(self.committer, e)
            raise

    def _advance(self) -> Plan | TopicResult:
        if self._record is None:
            self._record = self.log.read_run(self.request.run)
            self._verify_first = self._record is not None
            if self._record is None:
                pinned = self._pin()
                if isinstance(pinned, TopicResult):
                    return pinned
                self._record = pinned
            else:
                self._warn_if_different(self._record)
        while True:
            step = self._step(self._record)
            if step is not None:
                return step

    # -- pinning the target -------------------------------------------------------------------------------------------

    def _pin(self) -> RunRecord | TopicResult:
        while True:
            view = self._view_or_create()
            if (pending := view.open_reset) is None:
                break
            finish_reset(self.committer, view, pending)
        partitions = self.source.describe(self.topic).partitions
        log_ends = self.source.log_ends(self.topic, partitions, self.request.isolation)
        # Behind the ends, so that they are those of the topic in the log, and not of one that was created again.
        self._require_topic(view)
        ends = {p: end.offset for p, end in log_ends.items()}
        refuse_shorter_log(self.source, self.topic, view.marker, ends)
        refuse_replaced_log(self.source, self.log, view, log_ends)
        window: OffsetWindow | None = None
        landed = pipeline_source(self.source)
        if landed is None:
            self._held_back = held_back(self.source, self.topic, ends, self.request.isolation)
            log_held_back(self.topic, self._held_back, view.marker.covered)
        readable = None if landed is None else landed.readable(self.topic)
        if self.request.window is not None:
            window = window_of(
                self.source,
                self.topic,
                self.request.window,
                ends,
                now_ms=int(self._now() * 1000),
                on_future_timestamp=self.request.on_future_timestamp,
            )
            target = self._whole(interval_target(view, window, readable), view, widened=True)
        elif self.request.offsets == "incremental":
            target = incremental_target(view, ends, readable)
            if self.request.limits.records_per_run is not None:
                target = self._whole(fair_share(target, self.request.limits.records_per_run), view)
        else:
            target = recovery_target(view)
        if not target:
            return self._nothing_to_do(view, window)
        below = NO_OFFSETS if window is None else target - window.offsets()
        if below and view.next == 1 and not self._made_marker and self._adoption.first_plan_appears():
            return self._pin()
        if isinstance(self.request.window, Mapping) and (unclaimed := target - view.claims):
            # Explicit offsets are checked before the run record pins them.
            self._claimable(unclaimed, ends, self.request.isolation)
        self._log_target(target, below)
        self._warn_if_hidden()
        record = RunRecord(
            run=self.request.run,
            offsets=self.request.offsets,
            params=dict(self.request.params),
            topic_id=view.marker.topic_id,
            generation=view.marker.generation,
            target=target,
            window=self.request.window if isinstance(self.request.window, tuple) else None,
            # An older batch that stays open, such as a backfill that cannot be executed, does not lower this number.
            low=min((n for n, plan in view.open_plans.items() if plan.claim & target), default=view.next),
            layout_sha256=layout_digest(self.request.layout),
            isolation=self.request.isolation,
        )
        self._wrote = True
        # No plan is written before this record exists: a retry after any crash must have the same target.
        stored = self.log.create_run(record, attempt=self.request.attempt)
        self._pinned_from = view if stored == record else None
        return stored

    def _require_topic(self, view: View) -> str:
        """The topic's id; an error if it is not that of the log, see :func:`require_topic_id`."""
        return require_topic_id(self.source, self.log, view.topic_id, cluster_id=view.marker.cluster_id)

    def _whole(self, target: Offsets, view: View, *, widened: bool = False) -> Offsets:
        """The offsets of a target that can be read as a whole, see :meth:`_ranges`."""
        landed = pipeline_source(self.source)
        if landed is None or not target:
            return target
        ranges = self._ranges(landed, target, view, widened=widened)
        return Offsets.of((part.partition, part.start, part.end) for part in ranges)

    def _ranges(
        self, source: PipelineSource, claim: Offsets, view: View, *, widened: bool = False
    ) -> list[LandedRange]:
        """The ranges that are inside of a claim; of a partition that has none, its first range, which is larger.

        Args:
            source: the pipeline that is read.
            claim: some offsets of the target.
            view: of the log.
            widened: take all ranges that have some of the offsets, as for a window.

        Raises:
            ConfigurationError: some offsets of a range are landed or claimed already.
            TopicRecreatedError: the source was reset since the run began.
        """
        ranges = source.ranges(self.topic, claim, self.request.layout)
        # What was read of the source until now is of one incarnation.
        self._require_topic(view)
        chosen: list[LandedRange] = []
        for partition, of_partition in itertools.groupby(ranges, key=lambda part: part.partition):
            overlapping = [*of_partition]
            inside = [part for part in overlapping if Offsets({partition: [(part.start, part.end)]}) <= claim]
            chosen += overlapping if widened else inside or overlapping[:1]
        known = view.marker.covered | view.claims
        # Whole ranges are those of an open batch, for which the run waits, or which it completes. What the source has
        # lost can be divided anywhere.
        whole = Offsets.of(part[:3] for part in chosen if not part.batch or Offsets.of([part[:3]]) <= known)
        if twice := (Offsets.of(part[:3] for part in chosen) - whole) & known:
            raise ConfigurationError(
                f"topic {self.topic!r}: offsets {twice} are landed or claimed already, and pipeline "
                f"{source.landed.pipeline!r} has landed them together with others, which are read as a whole. Nothing "
                f"was planned. They came from another source: use another pipeline and topics_dir for this one"
            )
        return chosen

    def _view_or_create(self) -> View:
        stored = self.log.read_marker()
        if stored is None:
            # The marker is read again after the plan: another run may be creating both now.
            if self.log.read_plan(1) is not None:
                self.log.require_marker()
            else:
                self._create_marker()
        return self.log.view(stored)

    def _create_marker(self) -> None:
        info = self.source.describe(self.topic)
        start = pipeline_start(self.source, self.topic, self.request, info.partitions)
        if info.topic_id is None:
            log.warning(
                "the brokers of topic %s return no topic ids (before Kafka 2.8): a topic that is deleted and created "
                "again is detected only if it is shorter than the stored offsets",
                self.topic,
            )
        self._wrote = True
        self._made_marker = self.log.create_marker(
            Marker(
                topic=self.topic,
                cluster_id=info.cluster_id or "",
                topic_id=info.topic_id or "",
                start=start,
            ),
            data_prefix=data_prefix(self.request.layout, self.topic),
            unsafe_single_writer=self.request.unsafe_single_writer,
        )

    def _nothing_to_do(self, view: View, window: OffsetWindow | None) -> TopicResult:
        # Where another pipeline is read, it may lack offsets of the window.
        offsets = window.offsets() & view.marker.covered if window is not None else NO_OFFSETS
        if not offsets:
            self._follow(view.marker)
            return TopicResult(
                topic=self.topic,
                status="empty",
                target=offsets,
                batches=(),
                skipped=offsets,
                wrote=self._wrote,
                held_back=self._held_back,
            )
        generation = view.marker.generation
        covering = covering_downward(
            self.log, offsets, generation=generation, marker=view.marker, parallel=self.committer.parallel
        )
        return self._result(view.marker, generation, offsets, covering, look=True)

    def _log_target(self, target: Offsets, below: Offsets) -> None:
        log.info("topic %s: %s to land: %s", self.topic, count(target.count, "offset"), target)
        if below:
            log.info(
                "topic %s: %d of these offsets are below the window and were never landed; they are landed with it, so "
                "that no gap is left: %s",
                self.topic,
                below.count,
                ", ".join(f"{Offsets({p: r}).count:,} of partition {p}" for p, r in below.items()),
            )

    def _warn_if_hidden(self) -> None:
        for name, remedy in hidden_names(self.request.layout, self.topic).items():
            log.warning(
                "topic %s: Spark, Hive, Athena, Trino and pyarrow skip names that begin with '_' or '.' (but Spark "
                "reads folders _name=value), so they do not read its objects, %s. To avoid this, %s; landed objects "
                "keep their names",
                self.topic,
                name,
                remedy,
            )

    def _warn_if_different(self, record: RunRecord) -> None:
        first = (record.offsets, record.params, record.isolation)
        now = (self.request.offsets, dict(self.request.params), self.request.isolation)
        if first != now:
            log.warning(
                "topic %s: the first try of this run had %s %s, %s, and the run keeps that target; requested now, and "
                "ignored: %s %s, %s",
                self.topic,
                *first,
                *now,
            )
        if record.layout_sha256 != layout_digest(self.request.layout):
            log.warning(
                "topic %s: the layout has changed since the first try of this run; planned batches keep theirs, the "
                "rest of the run gets the new one",
                self.topic,
            )

    # -- towards the target -------------------------------------------------------------------------------------------

    def _step(self, record: RunRecord) -> Plan | TopicResult | None:
        # The first step uses the view that the target was made from. If a plan was created since, its number is taken.
        view, self._pinned_from = self._pinned_from or self.log.view(), None
        covered = view.marker.covered_in(record.generation)
        if record.generation < view.marker.generation and not record.target <= covered:
            raise RunSupersededError(
                f"topic {self.topic!r} was reset after run {self.request.run!r} was planned; its offsets "
                f"{record.target - covered} belong to the earlier incarnation and were never landed. Start a new run"
            )
        if record.target <= covered:
            return self._succeed(record, view)
        self._verify_first = False
        if (pending := view.open_reset) is not None:
            finish_reset(self.committer, view, pending)
            return None
        topic_id = self._require_topic(view)
        free = record.target - covered - view.claims
        if free:
            plan = self._append(record, view, free, topic_id)
            return None if plan is None else self._finish(plan, record, view)
        mine = [p for _, p in sorted(view.open_plans.items()) if p.run == self.request.run]
        needed = mine or [p for _, p in sorted(view.open_plans.items()) if p.claim & record.target]
        return self._finish(needed[0], record, view)

    def _append(self, record: RunRecord, view: View, free: Offsets, topic_id: str) -> Plan | None:
        """Append the next plan towards the target; None if another process was faster and the view is stale."""
        claim, tail = next_claim(view, free, max_records=self.request.limits.records_per_batch)
        ranges: list[LandedRange] = []
        if (landed := pipeline_source(self.source)) is not None:
            ranges = self._ranges(landed, claim, view)
            if not ranges:
                raise DataLossError(
                    f"topic {self.topic!r}: offsets {claim} are owed, and pipeline {landed.landed.pipeline!r} has "
                    f"neither landed them nor recorded them as lost. Nothing was planned. Let it land them; or accept "
                    f"them as lost: {self.log.remedies.accept_gone(claim)}"
                )
            claim = Offsets.of((part.partition, part.start, part.end) for part in ranges)
        # The epochs of the plan are compared with those of earlier plans: the log may have changed since the target.
        log_ends = self.source.log_ends(self.topic, tuple(claim), record.isolation)
        refuse_replaced_log(self.source, self.log, view, log_ends)
        split = self._claimable(claim, {p: end.offset for p, end in log_ends.items()}, record.isolation)
        largest = self.request.limits.records_per_slice
        if self.request.layout.rotation.whole_partitions:
            largest = max(largest, split.read.count)
        layout = pinned(self.request.layout.at(int(self._now() * 1000)))
        merge = layout.rotation.merge_partitions
        source: SourceBatches | UnsetType = UNSET
        if landed is None:
            # With many gaps or small slices, the rest is left to the next batch.
            slices, groups = plan_slices(split.read, max_records=largest, merge=merge)
        else:
            # A batch of the source is deleted as a whole.
            left = [part for part in ranges if not Offsets.of([part[:3]]) & split.skipped]
            slices, groups, batches = join_ranges(left, max_records=largest, merge=merge)
            source = SourceBatches(**msgspec.structs.asdict(landed.landed), batches=batches)
        plan = Plan(
            batch=view.next,
            type="data",
            topic=self.topic,
            topic_id=topic_id,
            generation=view.marker.generation,
            run=self.request.run,
            tail=tail,
            isolation=record.isolation,
            slices=slices,
            groups=groups,
            skipped=split.skipped,
            layout=layout,
            layout_sha256=layout_digest(layout),
            start=view.start_of_log,
            writer=writer_versions(),
            source=source,
            epochs={
                p: epoch
                for p in sorted({s.partition for s in slices} | {*split.skipped})
                if (epoch := log_ends[p].epoch) is not None
            },
        )
        if not self._planned:
            warn_if_layout_changes(self.log, view, layout)
        self._wrote = True
        # The same body is never sent under another number: if the number is taken, everything is read again.
        if not self.log.create_plan(plan, attempt=self.request.attempt, task=self.request.task):
            return None
        self._planned.add(plan.batch)
        if self.log.require_marker()[0].is_resolved(plan.batch):
            if self.log.read_manifest(plan.batch, expected=True) is None:
                raise LogTamperedError(
                    f"batch {plan.batch} of topic {self.topic!r} is resolved, yet its number was free: control objects "
                    f"below {self.log.prefix} were deleted. Restore them (bucket versioning); this run wrote "
                    f"{self.log.plan_url(plan.batch)}"
                )
            return None
        log.info("topic %s: batch %d claims %s", self.topic, plan.batch, plan.claim)
        return plan

    def _claimable(self, claim: Offsets, ends: Mapping[int, int], isolation: Isolation) -> Claimable:
        beyond = Offsets({p: [(ends.get(p, 0), 2**63 - 1)] for p in claim}) & claim
        if beyond and isolation == "read_committed":
            written = self.source.ends(self.topic, tuple(beyond), "read_uncommitted")
            if not beyond - Offsets({p: [(0, end)] for p, end in written.items()}):
                raise TransientError(
                    f"topic {self.topic!r}: offsets {beyond} are behind an open transaction, so they cannot be read at "
                    f"isolation read_committed yet; an abandoned batch with read_uncommitted had claimed them. Nothing "
                    f"was planned. Run again when the transaction has ended, or with isolation='read_uncommitted' as "
                    f"a new run"
                )
        earliest, landed = self.source.earliest(self.topic, tuple(claim)), pipeline_source(self.source)
        return claimable(
            self.topic,
            claim,
            earliest=earliest,
            ends=ends,
            on_data_loss=self.request.on_data_loss,
            accept=self.log.remedies.accept_gone,
            expired=NO_OFFSETS if landed is None else landed.gone(self.topic),
        )

    def _finish(self, plan: Plan, record: RunRecord, view: View) -> Plan | None:
        """Carry out an open plan if it is decided, else return it to be executed."""
        decision = self.log.read_manifest(plan.batch)
        planned_before = plan.batch not in self._planned
        if decision is None and plan.run != self.request.run:
            decision = self._adoption.decision_of(plan)
        elif plan.run == self.request.run and planned_before:
            self._planned.add(plan.batch)
            log.info(
                "topic %s: batch %d was planned by an earlier try of this run (%s) and is executed now. If that try's "
                "Spark driver is still alive, this is harmless: one of the two decides the batch",
                self.topic,
                plan.batch,
                self.log.planned_by(plan.batch),
            )
        self._wrote = True
        if decision is None:
            if plan.slices:
                if planned_before and plan.reached:
                    log_ends = self.source.log_ends(self.topic, tuple(plan.reached), plan.isolation)
                    refuse_replaced_log(self.source, self.log, view, log_ends)
                self._count_dead_letters(record.low, view.next, other_than=plan.batch)
                source_of_plan(self.source, plan)  # refuses a plan of another source
                return plan
            decision = self.committer.decide(plan, (), run=self.request.run)
        self.committer.carry_out(plan, decision)
        return None

    def _count_dead_letters(self, low: int, next_: int, *, other_than: int) -> None:
        """Count those of the batches that this run has decided, in whichever try and whoever planned them."""
        if self.request.max_dead_letters is None:
            return
        batches = [n for n in range(low, next_) if n not in self._counted and n != other_than]
        for start in range(0, len(batches), _MANIFESTS_AT_ONCE):
            block = batches[start : start + _MANIFESTS_AT_ONCE]
            for batch, decision in zip(block, self.committer.parallel(self.log.read_manifest, block), strict=True):
                if decision is None:
                    continue
                self._counted.add(batch)
                if decision.run == self.request.run:
                    self.dead_letters += decision.dead_letters
                if len(batches) > _MANIFESTS_AT_ONCE:
                    # A run that is cleared long after its first try.
                    self.log.forget(batch)

    # -- the end ------------------------------------------------------------------------------------------------------

    def _succeed(self, record: RunRecord, view: View) -> TopicResult:
        covering = covering_upward(
            self.log,
            record.target,
            generation=record.generation,
            low=record.low,
            marker=view.marker,
            parallel=self.committer.parallel,
        )
        return self._result(view.marker, record.generation, record.target, covering, look=self._verify_first)

    def _follow(self, marker: Marker) -> None:
        """Write what a process that ended behind its last batch has not written."""
        wrote = follow_run(self.log, marker, self.request.layout, self.committer.parallel)
        self._wrote = self._wrote or wrote

    def _result(
        self, marker: Marker, generation: int, target: Offsets, covering: Iterator[Covering], *, look: bool
    ) -> TopicResult:
        summaries: list[BatchSummary] = []

        def one_by_one() -> Iterator[Covering]:
            # A window may have many batches, and each may list many objects: only one is in memory at a time.
            before = 0
            for batch in covering:
                summaries.append(batch.summary(self.log, self.request.run))
                # The last one stays, for the documents that follow it.
                self.log.forget(before)
                before = batch.plan.batch
                yield batch

        verified = restored = 0
        if look:
            verified, restored = require_objects(
                self.committer, one_by_one(), target, on_missing=self.request.on_missing
            )
        else:
            collections.deque(one_by_one(), maxlen=0)
        self._wrote = self._wrote or bool(restored)
        self._follow(marker)
        return TopicResult(
            topic=self.topic,
            status="ok",
            target=target,
            batches=tuple(sorted(summaries, key=lambda b: b.batch)),
            skipped=marker.lost_in(generation) & target,
            verified=verified,
            wrote=self._wrote,
            held_back=self._held_back,
        )
