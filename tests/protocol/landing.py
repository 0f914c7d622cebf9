"""What the processes of the simulation do: operators submit Spark jobs, jobs start tasks, people give commands.

This is the part of the product that needs Airflow and Spark, in as few lines as show how they use the protocol.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from airflow_provider_kafka_s3.batch.incarnation import require_topic_id
from airflow_provider_kafka_s3.batch.request import RunRequest, TopicResult
from airflow_provider_kafka_s3.documents.manifest import SliceRows
from airflow_provider_kafka_s3.documents.plan import Plan
from airflow_provider_kafka_s3.exceptions import DataLossError
from airflow_provider_kafka_s3.maintenance.abandon import abandon as abandon_batch
from airflow_provider_kafka_s3.maintenance.accept_loss import accept_loss
from airflow_provider_kafka_s3.maintenance.reset import reset as reset_topic
from tests.protocol.process import Process

if TYPE_CHECKING:
    from tests.protocol.simulation import World

__all__ = ["abandon", "accept_losses", "drive", "reset"]


def drive(world: World, process: Process, request: RunRequest) -> TopicResult:
    """What the operator does: let the run advance, submit a Spark job for the plan that it hands out, again."""
    run = process.engine.topic_run(request)
    while not isinstance(step := run.advance(), TopicResult):
        plan = step
        job = world.spawn("job", lambda p, plan=plan: _spark_job(world, p, plan, request))  # type: ignore[misc]
        if plan.run != request.run:
            world.seen["batches adopted"] += 1
        while not job.finished:
            process.pause()
        if job.error is not None:
            raise job.error
    return step


def _spark_job(world: World, process: Process, plan: Plan, request: RunRequest) -> None:
    """What the Spark driver does. It lives on when the process that submitted it dies."""
    committer = process.engine.committer
    require_topic_id(world.kafka, process.engine.log, plan.topic_id)
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
    """One attempt per slice counts; lost ones are started again, slow ones a second time beside the first."""
    attempts: dict[int, list[Process]] = {s.id: [] for s in plan.slices}
    rows: dict[int, SliceRows] = {}
    tries = 0
    while len(rows) < len(plan.slices):
        for s in plan.slices:
            for task in attempts[s.id]:
                if isinstance(task.error, DataLossError):
                    raise task.error
                if task.result is not None:
                    rows.setdefault(s.id, task.result)
            if s.id not in rows and all(task.finished for task in attempts[s.id]):
                tries += 1
                for _ in range(1 + (world.rng.random() < 0.2)):
                    attempts[s.id].append(
                        world.spawn("task", lambda p, s=s: p.engine.read_slice(plan, s))  # type: ignore[misc]
                    )
        if rows and tries > len(plan.slices) and world.rng.random() < 0.1:
            break
        process.pause()
    # A job that lost tasks hands over what it has, now and then: to refuse that is the committer's business.
    return list(rows.values())


def abandon(world: World, process: Process, batch: int, release: Literal["debt", "lost"]) -> None:
    """Somebody gives a batch up."""
    abandon_batch(process.engine.committer, batch, release=release, reason="stuck", operator="me")
    world.seen["abandoned"] += 1


def reset(process: Process) -> bool:
    """Somebody turns the pipeline to the live incarnation of its topic."""
    return reset_topic(process.engine.committer, operator="me")


def accept_losses(world: World, process: Process) -> None:
    """Somebody accepts what cannot be produced any more, for every batch that is decided and open."""
    committer = process.engine.committer
    for batch, plan in process.engine.log.view().open_plans.items():
        decision = process.engine.log.read_manifest(batch)
        if plan.type == "data" and decision is not None and decision.status == "commit":
            lost = accept_loss(committer, batch, reason="gone", operator="me")
            world.seen["objects accepted as lost"] += len(lost)
