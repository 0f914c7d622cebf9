"""Carry out what is decided: of a batch, of several, or all of them before a reset or when a topic is gone.

It needs no Kafka but for objects whose uploads are gone. One batch that cannot be completed keeps no other from it: the
uploads of the others do not live for ever.
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
    """What was finished.

    Attributes:
        batches: numbers of the batches that were open, or were planned for what was owed, and are finished.
        undecided: numbers of the batches that stay open, since nobody has read their records yet.
    """

    batches: tuple[int, ...]
    undecided: tuple[int, ...] = ()


def finish_reset(committer: Committer, view: View, pending: Plan) -> None:
    """Carry an open reset out: a barrier, everything older is decided and resolved first.

    Raises:
        KafkaS3Error: an older batch cannot be carried out; all others were.
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
    """Carry out the decisions about several batches. What keeps one from it keeps no other.

    Args:
        committer: of the topic.
        plans: of the batches.
        decide: plan -> its decision; None: there is none.

    Returns:
        Numbers of the batches that are carried out, and of those that are not decided.

    Raises:
        TerminalError: the first one; the others, and transient ones, stand in its notes.
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
    """Carry out what is decided, and nothing else; needs Kafka only if an upload was lost.

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
    """Carry out what is decided of a topic that cannot be read, and say so in the error about that.

    A decided batch needs no Kafka while its uploads live, and these do not live for ever.

    Args:
        committer: of the topic.
        error: gets a note with what was done, and the command that does it.
    """
    try:
        # A topic that was never landed has no log.
        if committer.log.read_marker() is None:
            return
        done = roll_forward(committer)
    except ControlError as e:
        told = f"and the log of the topic cannot be trusted: {message_of(e)}"
    except KafkaS3Error as e:
        told = f"a batch that was decided before could not be completed: {message_of(e)}"
    else:
        told = f"completed now, since they were decided before: batches {list(done.batches)}" if done.batches else ""
    if told or isinstance(error, TopicNotFoundError):
        how = f"what is decided of the topic is completed without Kafka by {committer.log.remedies.recover_decided()}"
        error.add_note(f"{told}; {how}" if told else how)
