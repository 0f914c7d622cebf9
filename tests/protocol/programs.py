"""The programs of simulated processes: operators submit Spark jobs, jobs start tasks, people run commands.

This is a minimal version of the product's code that needs Airflow and Spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from airflow_provider_kafka_s3.batch.derived.chunk_markers import update_chunk_markers
from airflow_provider_kafka_s3.batch.incarnation import require_topic_id
from airflow_provider_kafka_s3.batch.log_index import summaries
from airflow_provider_kafka_s3.batch.request import RunRequest, TopicResult
from airflow_provider_kafka_s3.config import Landed
from airflow_provider_kafka_s3.documents.manifest import SliceRows
from airflow_provider_kafka_s3.documents.plan import Plan
from airflow_provider_kafka_s3.exceptions import DataLossError, MissingObjectError
from airflow_provider_kafka_s3.maintenance.abandon import abandon as abandon_batch
from airflow_provider_kafka_s3.maintenance.accept_loss import accept_deleted as accept_deleted_objects
from airflow_provider_kafka_s3.maintenance.accept_loss import accept_loss
from airflow_provider_kafka_s3.maintenance.expire import expire as expire_objects
from airflow_provider_kafka_s3.maintenance.expire import withdraw as withdraw_expiry
from airflow_provider_kafka_s3.maintenance.expiry_rule import ExpiryRule
from airflow_provider_kafka_s3.maintenance.gc import find_garbage
from airflow_provider_kafka_s3.maintenance.repair import repair
from airflow_provider_kafka_s3.maintenance.reset import reset as reset_topic
from airflow_provider_kafka_s3.reading.landed_elsewhere import landed_elsewhere
from airflow_provider_kafka_s3.testing.topic_state import expected_in_index
from tests.protocol.process import Process

if TYPE_CHECKING:
    from tests.protocol.simulation import World

__all__ = [
    "abandon",
    "accept_deleted",
    "accept_losses",
    "collect_garbage",
    "drive",
    "expire",
    "expiry_rule",
    "give_up_replaced",
    "read_summaries",
    "repair_chunk_markers",
    "repair_log",
    "reset",
    "withdraw",
]

_LATER: Final = 4_000_000_000.0
"""Seconds since the epoch: behind all times at which this test may run, which manifests have."""


def drive(world: World, process: Process, request: RunRequest) -> TopicResult:
    """Act as the operator: advance the run, submit a Spark job for the returned plan, repeat."""
    run = process.engine.topic_run(request)
    while not isinstance(step := run.advance(), TopicResult):
        plan = step
        job = world.spawn("job", lambda p, plan=plan: _spark_job(world, p, plan, request))  # type: ignore[misc]
        if plan.run != request.run:
            world.counts["batches adopted"] += 1
        while not job.finished:
            process.pause()
        if job.error is not None:
            raise job.error
    return step


def _spark_job(world: World, process: Process, plan: Plan, request: RunRequest) -> None:
    """Act as the Spark driver. It continues when the process that submitted it ends."""
    committer = process.engine.committer
    require_topic_id(process.engine.source, process.engine.log, plan.topic_id)
    try:
        rows = _read_slices(world, process, plan)
    except DataLossError:
        if request.on_data_loss == "fail":
            raise
        decision = committer.abandon(plan, release="debt", reason="gone", operator="", run=request.run)
    else:
        decision = committer.decide(plan, rows, run=request.run)
    committer.carry_out(plan, decision)


def _read_slices(world: World, process: Process, plan: Plan) -> list[SliceRows]:
    """One attempt per group of slices counts; failed tasks are started again, some tasks twice at the same time."""
    attempts: dict[int, list[Process]] = {number: [] for number in range(len(plan.grouped))}
    rows: dict[int, list[SliceRows]] = {}
    tries = 0
    while len(rows) < len(attempts):
        for number, group in enumerate(plan.grouped):
            for task in attempts[number]:
                if isinstance(task.error, DataLossError | MissingObjectError):
                    raise task.error
                if task.result is not None:
                    rows.setdefault(number, task.result)
            if number not in rows and all(task.finished for task in attempts[number]):
                tries += 1
                for _ in range(1 + (world.rng.random() < 0.2)):
                    attempts[number].append(
                        world.spawn("task", lambda p, group=group: p.engine.read_slices(plan, group))  # type: ignore[misc]
                    )
        if rows and tries > len(attempts) and world.rng.random() < 0.1:
            break
        process.pause()
    # A job with failed tasks sometimes returns incomplete rows, which the committer has to refuse.
    return [row for of_group in rows.values() for row in of_group]


def abandon(world: World, process: Process, batch: int, release: Literal["debt", "lost"]) -> None:
    """Abandon a batch."""
    abandon_batch(process.engine.committer, batch, release=release, reason="stuck", operator="me")
    world.counts["abandoned"] += 1


def reset(process: Process) -> bool:
    """Continue with the live incarnation of the topic."""
    return reset_topic(process.engine.committer, operator="me")


def accept_losses(world: World, process: Process) -> None:
    """Accept the losses of every batch that is decided and open."""
    committer = process.engine.committer
    for batch, plan in process.engine.log.view().open_plans.items():
        decision = process.engine.log.read_manifest(batch)
        if plan.type == "data" and decision is not None and decision.status == "commit":
            lost = accept_loss(committer, batch, reason="gone", operator="me")
            world.counts["objects accepted as lost"] += len(lost)


def accept_deleted(world: World, process: Process, batch: int) -> None:
    """Accept that the deleted objects of a complete batch stay gone."""
    lost = accept_deleted_objects(process.engine.committer, batch, reason="deleted", operator="me")
    world.counts["deleted objects that were accepted"] += len(lost)


def give_up_replaced(world: World, process: Process) -> None:
    """Complete what is decided, and abandon what is not: the remedies of batches whose offsets have other records."""
    for batch, plan in process.engine.log.view().open_plans.items():
        if plan.type == "data" and process.engine.log.read_manifest(batch) is None:
            abandon_batch(process.engine.committer, batch, release="debt", reason="replaced", operator="me")
            world.counts["batches given up after losses of leaders"] += 1
    accept_losses(world, process)


def read_summaries(world: World, process: Process) -> None:
    """Read the whole log by its indexes, as a reader of the landed data does."""
    committer = process.engine.committer
    marker, _ = committer.log.require_marker()
    for found in summaries(committer.log, marker, parallel=committer.parallel):
        expected = expected_in_index(world.watch.state, found.batch, found.same_layout_as)
        if found != expected and not world.forged:
            world.watch.fail(f"I9 a reader got {found} instead of {expected}")
        world.counts["summaries read"] += 1


def repair_chunk_markers(process: Process) -> None:
    """Write the marker files of all partitions, as ``repair`` does."""
    committer = process.engine.committer
    marker, _ = committer.log.require_marker()
    update_chunk_markers(committer.log, marker, parallel=committer.parallel, look_back=None)


def repair_log(world: World, process: Process, *, every_document: bool) -> None:
    """Write marker and indexes again where they are wrong; the runs go on meanwhile."""
    done = repair(process.engine.committer, start={}, every_document=every_document)
    if done.skipped_indexes:
        world.watch.fail(f"I9 indexes were not repaired: {done.skipped_indexes}")
    world.counts["repairs"] += 1
    world.counts["indexes repaired"] += done.indexes
    world.counts["markers repaired"] += done.written


def expire(world: World, process: Process, rule: ExpiryRule, *, verify: bool) -> None:
    """Record and delete what is no longer needed."""
    engine = process.engine
    done = expire_objects(
        engine.committer, rule, landed_in=landed_elsewhere(engine.pipeline, verify=verify), now=world.now + _LATER
    )
    world.counts["objects recorded as expired"] += done.recorded
    world.counts["batches kept from expiry"] += sum(map(len, done.kept.values()))


def withdraw(world: World, process: Process) -> None:
    """Take back what is recorded as no longer needed, as far as it is not being deleted."""
    taken, _ = withdraw_expiry(process.engine.committer)
    world.counts["expired objects withdrawn"] += taken


def expiry_rule(world: World, *, landed_in: Landed | None, at_once: bool) -> ExpiryRule:
    """A rule about objects of any age, or of those whose records are older than most."""
    rng = world.rng
    before = rng.choice((None, world.environment.clock / 1000 - rng.choice((0.0, 0.005, 0.02))))
    of_any_age = None if landed_in is not None else 0.0
    return ExpiryRule(
        older_than=of_any_age if before is None else world.now + _LATER - before,
        landed_in=landed_in,
        least_age=0.0,
        grace=0.0 if at_once else rng.choice((0.0, 20.0, 200.0)),
        operator="me",
    )


def collect_garbage(world: World, process: Process) -> None:
    """Abort the uploads that no open batch may need, as if all of them were old."""
    committer = process.engine.committer
    # Either all uploads are old, or none is.
    found = find_garbage(
        committer.log, now=world.rng.choice((0.0, 10 * 86_400.0)), landed=True, parallel=committer.parallel
    )
    committer.store.abort_uploads([(upload.key, upload.upload_id) for upload in found.garbage], threads=1)
    world.counts["uploads collected"] += len(found.garbage)
