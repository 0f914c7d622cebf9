"""Roll decided batches forward: all of them, those before a reset, or those of a topic that is gone.

It needs Kafka only for objects whose uploads are gone. A batch that cannot be completed does not block the others:
their uploads expire.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from airflow_provider_kafka_s3.batch.commit import Committer
from airflow_provider_kafka_s3.batch.view import View
from airflow_provider_kafka_s3.documents.manifest import Manifest
from airflow_provider_kafka_s3.documents.plan import Plan
from airflow_provider_kafka_s3.exceptions import (
    ControlError,
    KafkaS3Error,
    KafkaUnavailableError,
    TerminalError,
    TopicNotFoundError,
    TopicRecreatedError,
    TransientError,
    message_of,
    raise_first,
)

__all__ = ["Recovered", "carry_out_all", "finish_decided", "finish_reset", "roll_forward"]


@dataclass(frozen=True)
class Recovered:
    """Result of a recovery.

    Attributes:
        batches: numbers of the batches that were open, or were planned for debt, and are complete now.
        undecided: numbers of the batches that stay open, since their records have not been read yet.
    """

    batches: tuple[int, ...]
    undecided: tuple[int, ...] = ()


def finish_reset(committer: Committer, view: View, pending: Plan) -> None:
    """Complete an open reset. It is a barrier: all older batches are decided and resolved first.

    Raises:
        KafkaS3Error: an older batch cannot be completed; all others were.
    """
    older = [plan for batch, plan in sorted(view.open_plans.items()) if batch < pending.batch]
    carry_out_all(
        committer,
        older,
        lambda plan: committer.abandon(plan, release="lost", reason="topic reset", operator="reset", run=pending.run),
    )
    decision = committer.log.create_manifest(
        Manifest(
            batch=pending.batch,
            plan_sha256=committer.log.require_plan(pending.batch)[1],
            status="reset",
            run=pending.run,
        )
    )
    committer.carry_out(pending, decision)


def carry_out_all(
    committer: Committer, plans: Iterable[Plan], decide: Callable[[Plan], Manifest | None]
) -> tuple[list[int], list[int]]:
    """Apply the decisions of several batches. The failure of one does not block the others.

    Args:
        committer: decides and completes the batches of the topic.
        plans: of the batches.
        decide: plan -> its decision; None if it is undecided.

    Returns:
        Numbers of the completed batches, and of the undecided ones.

    Raises:
        TerminalError: the first one; its notes hold the others, and transient ones.
        TransientError: there is no terminal one.
    """
    done: list[int] = []
    undecided: list[int] = []
    errors: list[KafkaS3Error] = []
    for plan in plans:
        try:
            decision = decide(plan)
            if decision is None:
                undecided.append(plan.batch)
                continue
            committer.carry_out(plan, decision)
        except (TerminalError, TransientError) as e:
            errors.append(e)
        else:
            done.append(plan.batch)
    raise_first(errors)
    return done, undecided


def roll_forward(committer: Committer) -> Recovered:
    """Roll forward all decided batches, and nothing else; needs Kafka only if an upload was lost.

    Raises:
        KafkaS3Error: see :func:`carry_out_all`.
    """
    finished: list[int] = []
    view = committer.log.view()
    while (pending := view.open_reset) is not None:
        finished += [n for n in view.open_plans if n <= pending.batch]
        finish_reset(committer, view, pending)
        view = committer.log.view()
    done, undecided = carry_out_all(
        committer,
        [plan for _, plan in sorted(view.open_plans.items())],
        lambda plan: committer.log.read_manifest(plan.batch),
    )
    return Recovered((*finished, *done), tuple(undecided))


def finish_decided(
    committer: Committer, error: KafkaUnavailableError | TopicNotFoundError | TopicRecreatedError
) -> None:
    """Roll forward the decided batches of a topic that cannot be read, and add the result to the error.

    A decided batch needs no Kafka until its uploads expire.

    Args:
        committer: decides and completes the batches of the topic.
        error: the error that made the topic unreadable; gets a note with the result and the command.
    """
    try:
        # A topic that was never landed has no log.
        if committer.log.read_marker() is None:
            return
        recovered = roll_forward(committer)
    except ControlError as e:
        result = f"the log of the topic cannot be trusted either: {message_of(e)}"
    except KafkaS3Error as e:
        result = f"a batch that was decided before could not be completed: {message_of(e)}"
    else:
        completed = list(recovered.batches)
        result = f"batches {completed} were decided before and are completed now" if completed else ""
    if result or isinstance(error, TopicNotFoundError):
        remedy = (
            f"to complete the decided batches of the topic without Kafka: {committer.log.remedies.recover_decided()}"
        )
        error.add_note(f"{result}; {remedy}" if result else remedy)
