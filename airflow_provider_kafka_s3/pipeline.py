"""One topic of a pipeline and all its operations.

Entry point for operators, sensors, the command line, the Spark job and tests.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal, TypedDict, Unpack

from airflow_provider_kafka_s3.batch.commit import Committer
from airflow_provider_kafka_s3.batch.dead_letter_limit import DeadLetterLimit
from airflow_provider_kafka_s3.batch.execute import execute_plan
from airflow_provider_kafka_s3.batch.log import TopicLog
from airflow_provider_kafka_s3.batch.pinned_schemas import NoRegistry, PinnedSchemas
from airflow_provider_kafka_s3.batch.planning import recovery_target
from airflow_provider_kafka_s3.batch.rebuild import BuildObjects
from airflow_provider_kafka_s3.batch.rebuilt_objects import object_builder
from airflow_provider_kafka_s3.batch.request import RunRequest, TopicResult
from airflow_provider_kafka_s3.batch.roll_forward import Recovered, roll_forward
from airflow_provider_kafka_s3.batch.run import TopicRun
from airflow_provider_kafka_s3.batch.source import Isolation, Source
from airflow_provider_kafka_s3.batch.view import View
from airflow_provider_kafka_s3.config import Landed, Layout, Upload
from airflow_provider_kafka_s3.documents.addresses import TopicAddress
from airflow_provider_kafka_s3.documents.manifest import Manifest
from airflow_provider_kafka_s3.documents.offsets import Offsets
from airflow_provider_kafka_s3.documents.plan import Plan
from airflow_provider_kafka_s3.documents.planner import TaskHasEnded
from airflow_provider_kafka_s3.inspect.lag import lag
from airflow_provider_kafka_s3.inspect.metrics import topic_gauges
from airflow_provider_kafka_s3.inspect.status import TopicStatus, topic_status
from airflow_provider_kafka_s3.inspect.topics import has_begun, require_begun, require_landed
from airflow_provider_kafka_s3.inspect.verify import VerifyRun
from airflow_provider_kafka_s3.kafka.offsets import ConsumerGroup
from airflow_provider_kafka_s3.maintenance.abandon import abandon
from airflow_provider_kafka_s3.maintenance.accept_loss import Absent, absent, accept_deleted, accept_gone, accept_loss
from airflow_provider_kafka_s3.maintenance.expire import expire, withdraw
from airflow_provider_kafka_s3.maintenance.expiry_rule import Expired, ExpiryGuard, ExpiryRule
from airflow_provider_kafka_s3.maintenance.gc import Garbage, collect, find_garbage
from airflow_provider_kafka_s3.maintenance.last_chunks import find_data_objects, offsets_of_last_chunks
from airflow_provider_kafka_s3.maintenance.named_batch import require_plan
from airflow_provider_kafka_s3.maintenance.recover import recover
from airflow_provider_kafka_s3.maintenance.release import release, undecided
from airflow_provider_kafka_s3.maintenance.repair import GoneRule, Repaired, repair
from airflow_provider_kafka_s3.maintenance.reset import live_topic_id, reset
from airflow_provider_kafka_s3.maintenance.takeover import Takeover, plan_takeover, take_over
from airflow_provider_kafka_s3.parallel import Parallel, in_threads
from airflow_provider_kafka_s3.registry.schemas import SchemaSource
from airflow_provider_kafka_s3.storage.durable import DurableStore

__all__ = ["Run", "TopicPipeline", "open_topic"]

_NO_RULE: Final = GoneRule()


class _TopicSettings(TypedDict, total=False):
    connection_options: Sequence[str]
    upload: Upload | None
    registry: SchemaSource | None
    unsafe_unproven_records: bool
    unsafe_given_objects: bool


def open_topic(
    store: DurableStore, address: TopicAddress, source: Source, **settings: Unpack[_TopicSettings]
) -> TopicPipeline:
    """A topic by its address; nothing is read or written yet.

    Args:
        store: the bucket.
        address: of the topic in it.
        source: the Kafka cluster.
        settings: see :class:`TopicPipeline`.
    """
    return TopicPipeline(
        store, source, topics_dir=address.topics_dir, pipeline=address.pipeline, topic=address.topic, **settings
    )


Run = TopicRun | VerifyRun
"""One attempt of a run over one topic."""


class TopicPipeline:
    """One topic of a pipeline.

    Attributes:
        log: its control documents.
        source: the Kafka cluster.
        committer: decides batches and rolls them forward.
    """

    def __init__(
        self,
        store: DurableStore,
        source: Source,
        *,
        topics_dir: str,
        pipeline: str,
        topic: str,
        connection_options: Sequence[str] = (),
        upload: Upload | None = None,
        registry: SchemaSource | None = None,
        build: BuildObjects | None = None,
        unsafe_unproven_records: bool = False,
        unsafe_given_objects: bool = False,
        parallel: Parallel = in_threads,
        sleep: Callable[[float], None] = time.sleep,
        monotonic: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        """Create a handle. Nothing is read or written yet.

        Args:
            store: the bucket.
            source: the Kafka cluster.
            topics_dir: prefix of all keys.
            pipeline: name of the pipeline.
            topic: name of the topic.
            connection_options: options with which the command line reaches the same store and cluster, such as
                ``("--kafka-conn-id", "kafka_default")``, for the commands in error messages.
            upload: upload settings of missing objects that are built again; None: the defaults.
            registry: schema registry of layouts that need one; None: only schemas that are stored already are used.
            build: builds missing objects again; None: with these settings.
            unsafe_unproven_records: write missing objects again from what Kafka has, also where the manifest of an
                earlier version has no digest of the records, and their bytes differ: nothing shows then whether these
                are the landed records.
            unsafe_given_objects: write missing objects again although they were given to a table, which may have their
                rows in other files.
            parallel: maps a function over objects, several at a time.
            sleep: sleeps for a number of seconds.
            monotonic: monotonic clock, in seconds.
            now: wall clock, in seconds since the epoch.
        """
        address = TopicAddress(topics_dir=topics_dir, pipeline=pipeline, topic=topic)
        self.log = TopicLog(store, address, connection_options)
        self.source = source
        self._registry = registry
        schemas = PinnedSchemas(store, self.log.prefix, registry or NoRegistry())
        build = build or object_builder(store, upload, schemas)
        self.committer = Committer(
            self.log,
            source,
            build,
            schemas=schemas,
            parallel=parallel,
            on_tag_error=(upload or Upload()).on_tag_error,
            unsafe_unproven_records=unsafe_unproven_records,
            unsafe_given_objects=unsafe_given_objects,
        )
        self._sleep = sleep
        self._monotonic = monotonic
        self._now = now

    # -- runs ---------------------------------------------------------------------------------------------------------

    def run(self, request: RunRequest, *, task_has_ended: TaskHasEnded | None = None) -> Run:
        """One attempt of a run. Its ``advance()`` returns a plan that has to be executed, or the result.

        Args:
            request: action and target of the run.
            task_has_ended: whether the Airflow task that planned a batch has ended; None if Airflow is not available.
        """
        if request.action != "land":
            return VerifyRun(self.committer, request)
        return TopicRun(
            self.committer,
            request,
            task_has_ended=task_has_ended,
            sleep=self._sleep,
            monotonic=self._monotonic,
            now=self._now,
        )

    def execute(
        self,
        plan: Plan,
        *,
        run: str,
        on_data_loss: Literal["fail", "skip"] = "fail",
        max_dead_letters: DeadLetterLimit | None = None,
    ) -> Manifest:
        """See :func:`~airflow_provider_kafka_s3.batch.execute.execute_plan`."""
        return execute_plan(self.committer, plan, run=run, on_data_loss=on_data_loss, max_dead_letters=max_dead_letters)

    def land(self, request: RunRequest) -> TopicResult:
        """Run to the end without Spark; this process executes the plans.

        Raises:
            KafkaS3Error: see :meth:`~airflow_provider_kafka_s3.batch.run.TopicRun.advance` and :meth:`execute`.
        """
        attempt = self.run(request)
        while not isinstance(step := attempt.advance(), TopicResult):
            self.execute(
                step,
                run=request.run,
                on_data_loss=request.on_data_loss,
                max_dead_letters=None
                if request.max_dead_letters is None
                else DeadLetterLimit(request.max_dead_letters, attempt.dead_letters),
            )
        return step

    # -- status -------------------------------------------------------------------------------------------------------

    def status(self, *, last: int = 0, use_kafka: bool = True) -> TopicStatus | None:
        """See :func:`~airflow_provider_kafka_s3.inspect.status.topic_status`.

        Args:
            last: number of the latest batches to read.
            use_kafka: whether to request the topic's offsets from Kafka; without them there is no lag.
        """
        return topic_status(self.log, self.source if use_kafka else None, last=last)

    def gauges(
        self, *, now: float, use_kafka: bool = True, isolation: Isolation = "read_committed"
    ) -> dict[str, float]:
        """See :func:`~airflow_provider_kafka_s3.inspect.metrics.topic_gauges`.

        Args:
            now: seconds since the epoch.
            use_kafka: whether to request the topic's offsets from Kafka; without them there is no lag.
            isolation: isolation level of the end offsets.
        """
        return topic_gauges(self.log, self.source if use_kafka else None, now=now, isolation=isolation)

    def lag(self, isolation: Isolation = "read_committed") -> int:
        """See :func:`~airflow_provider_kafka_s3.inspect.lag.lag`."""
        return lag(self.log, self.source, isolation)

    def has_begun(self) -> bool:
        """See :func:`~airflow_provider_kafka_s3.inspect.topics.has_begun`."""
        return has_begun(self.log)

    def require_begun(self) -> None:
        """See :func:`~airflow_provider_kafka_s3.inspect.topics.require_begun`."""
        require_begun(self.log)

    def require_landed(self) -> None:
        """See :func:`~airflow_provider_kafka_s3.inspect.topics.require_landed`."""
        require_landed(self.log)

    def require_plan(self, batch: int) -> Plan:
        """See :func:`~airflow_provider_kafka_s3.maintenance.named_batch.require_plan`."""
        return require_plan(self.committer, batch)

    def live_topic_id(self, view: View) -> str:
        """See :func:`~airflow_provider_kafka_s3.maintenance.reset.live_topic_id`."""
        return live_topic_id(self.committer, view)

    def owed(self, view: View) -> Offsets:
        """The offsets that :meth:`recover` lands."""
        return recovery_target(view)

    # -- maintenance --------------------------------------------------------------------------------------------------

    def roll_forward(self) -> Recovered:
        """See :func:`~airflow_provider_kafka_s3.batch.roll_forward.roll_forward`."""
        return roll_forward(self.committer)

    def recover(self, *, operator: str, on_data_loss: Literal["fail", "skip"] = "fail", wait: float = 0.0) -> Recovered:
        """See :func:`~airflow_provider_kafka_s3.maintenance.recover.recover`."""
        return recover(self.committer, operator=operator, on_data_loss=on_data_loss, wait=wait)

    def abandon(self, batch: int, *, release: Literal["debt", "lost"], reason: str, operator: str) -> Manifest:
        """See :func:`~airflow_provider_kafka_s3.maintenance.abandon.abandon`."""
        return abandon(self.committer, batch, release=release, reason=reason, operator=operator)

    def absent(self, batch: int) -> Absent:
        """See :func:`~airflow_provider_kafka_s3.maintenance.accept_loss.absent`."""
        return absent(self.committer, batch)

    def accept_loss(self, batch: int, *, reason: str, operator: str, other_cluster: bool = False) -> tuple[str, ...]:
        """See :func:`~airflow_provider_kafka_s3.maintenance.accept_loss.accept_loss`."""
        return accept_loss(self.committer, batch, reason=reason, operator=operator, other_cluster=other_cluster)

    def accept_deleted(self, batch: int, *, reason: str, operator: str) -> tuple[str, ...]:
        """See :func:`~airflow_provider_kafka_s3.maintenance.accept_loss.accept_deleted`."""
        return accept_deleted(self.committer, batch, reason=reason, operator=operator)

    def accept_gone(self, offsets: Offsets, *, reason: str, operator: str) -> Offsets:
        """See :func:`~airflow_provider_kafka_s3.maintenance.accept_loss.accept_gone`."""
        return accept_gone(self.committer, offsets, reason=reason, operator=operator)

    def expire(
        self,
        rule: ExpiryRule,
        *,
        landed_in: Callable[[Landed], ExpiryGuard],
        guards: Sequence[ExpiryGuard] = (),
        dry_run: bool = False,
    ) -> Expired:
        """See :func:`~airflow_provider_kafka_s3.maintenance.expire.expire`."""
        return expire(self.committer, rule, landed_in=landed_in, guards=guards, now=self._now(), dry_run=dry_run)

    def withdraw_expiry(self) -> tuple[int, int]:
        """See :func:`~airflow_provider_kafka_s3.maintenance.expire.withdraw`."""
        return withdraw(self.committer)

    def undecided(self) -> tuple[int, ...]:
        """See :func:`~airflow_provider_kafka_s3.maintenance.release.undecided`."""
        return undecided(self.committer)

    def release(self, *, reason: str, operator: str) -> None:
        """See :func:`~airflow_provider_kafka_s3.maintenance.release.release`."""
        release(self.committer, reason=reason, operator=operator)

    def reset(self, *, operator: str) -> bool:
        """See :func:`~airflow_provider_kafka_s3.maintenance.reset.reset`."""
        return reset(self.committer, operator=operator)

    def repair(
        self,
        *,
        start: Mapping[int, int],
        cluster_id: str = "",
        rule: GoneRule = _NO_RULE,
        every_document: bool = False,
        dry_run: bool = False,
    ) -> Repaired:
        """See :func:`~airflow_provider_kafka_s3.maintenance.repair.repair`."""
        return repair(
            self.committer,
            start=start,
            cluster_id=cluster_id,
            rule=rule,
            every_document=every_document,
            dry_run=dry_run,
        )

    def plan_takeover(
        self,
        group: ConsumerGroup,
        layout: Layout,
        *,
        isolation: Isolation = "read_committed",
        without_offset: Literal["fail", "earliest"] = "fail",
    ) -> Takeover:
        """See :func:`~airflow_provider_kafka_s3.maintenance.takeover.plan_takeover`."""
        return plan_takeover(
            self.committer,
            group,
            layout,
            isolation=isolation,
            without_offset=without_offset,
            schemas=self._registry or NoRegistry(),  # not the pinned schemas: nothing is written
        )

    def plan_takeover_by_chunks(
        self,
        group: ConsumerGroup,
        layout: Layout,
        *,
        isolation: Isolation = "read_committed",
        consumed: Isolation = "read_uncommitted",
        without_offset: Literal["fail", "earliest"] = "fail",
    ) -> Takeover:
        """Decide where a pipeline goes on after DeviantArt's sink; nothing is written.

        Args:
            group: of the connector; its offsets are not used.
            layout: of the pipeline's objects.
            isolation: of the pipeline's reads.
            consumed: isolation level of the sink's consumer.
            without_offset: see :func:`~airflow_provider_kafka_s3.maintenance.last_chunks.offsets_of_last_chunks`.
        """
        store, topics_dir, topic = self.log.store, self.log.topics_dir, self.log.topic
        began = self.log.read_marker() if self.log.read_plan(1) is not None else None
        if began is not None:
            # The marker files are those of the pipeline by now.
            offsets = {p: began[0].start.get(p, 0) for p in self.source.describe(topic).partitions}
        else:
            offsets = offsets_of_last_chunks(
                store,
                self.source,
                topics_dir=topics_dir,
                topic=topic,
                isolation=consumed,
                without_offset=without_offset,
            )
        return plan_takeover(
            self.committer,
            ConsumerGroup(group.name, group.state, {topic: offsets}),
            layout,
            isolation=isolation,
            find=lambda bounds: find_data_objects(store, topics_dir, topic, bounds),
        )

    def take_over(self, takeover: Takeover, layout: Layout) -> None:
        """See :func:`~airflow_provider_kafka_s3.maintenance.takeover.take_over`."""
        take_over(self.committer, takeover, layout)

    def find_garbage(self, *, older_than: float, landed: bool = False) -> Garbage:
        """See :func:`~airflow_provider_kafka_s3.maintenance.gc.find_garbage`."""
        return find_garbage(self.log, now=self._now(), older_than=older_than, landed=landed)

    def collect(self, garbage: Garbage) -> None:
        """See :func:`~airflow_provider_kafka_s3.maintenance.gc.collect`."""
        collect(self.log, garbage)
