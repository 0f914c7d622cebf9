"""The runs of several topics: they share Spark jobs, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from airflow_provider_kafka_s3.batch.request import TopicResult
from airflow_provider_kafka_s3.exceptions import SparkJobError
from airflow_provider_kafka_s3.parallel import in_threads

if TYPE_CHECKING:
    from airflow_provider_kafka_s3.documents.plan import Plan
    from airflow_provider_kafka_s3.pipeline import Run

__all__ = ["ExecutePlans", "LandedTopics", "land_topics"]

_THREADS: Final = 16
"""Topics that are advanced at the same time; each spends its time waiting for the store and the broker."""

ExecutePlans = Callable[[Mapping[str, "Plan"]], Mapping[str, Exception]]
"""Executes one plan per topic, in one job. Returns the known errors per topic."""


@dataclass
class LandedTopics:
    """Outcomes of the topics.

    Attributes:
        results: results of the topics that succeeded.
        errors: errors of the others.
    """

    results: dict[str, TopicResult] = field(default_factory=dict)
    errors: dict[str, Exception] = field(default_factory=dict)


def land_topics(runs: Mapping[str, Run], execute: ExecutePlans) -> LandedTopics:
    """Advance every topic until it is done or has failed; the plans that are made meanwhile go into one job.

    Args:
        runs: per topic.
        execute: see :data:`ExecutePlans`; an exception that it raises ends all topics.
    """
    landed = LandedTopics()
    todo = list(runs)
    while todo:
        plans: dict[str, Plan] = {}
        for topic, step in zip(todo, in_threads(lambda t: _advance(runs[t]), todo, threads=_THREADS), strict=True):
            if isinstance(step, TopicResult):
                landed.results[topic] = step
            elif isinstance(step, Exception):
                landed.errors[topic] = step
            else:
                plans[topic] = step
        if not plans:
            break
        errors = execute(plans)
        ended = in_threads(
            lambda topic: _undecided(runs[topic], plans[topic], errors.get(topic)),  # noqa: B023 - called at once
            list(plans),
            threads=_THREADS,
        )
        todo = []
        for topic, error in zip(plans, ended, strict=True):
            if error is None:
                todo.append(topic)
            else:
                landed.errors[topic] = error
    return landed


def _advance(run: Run) -> Plan | TopicResult | Exception:
    # Any error is the error of this topic; the others continue.
    try:
        return run.advance()
    except Exception as e:  # noqa: BLE001 - whatever it is, it is raised in the end
        return e


def _undecided(run: Run, plan: Plan, reported: Exception | None) -> Exception | None:
    """Why a batch has no decision after its job; None if it has one. The error of the job counts only without one."""
    try:
        if run.log.read_manifest(plan.batch) is not None:
            return None
    except Exception as e:  # noqa: BLE001 - as above
        return e
    return reported or SparkJobError(
        f"the Spark job ended without a decision about batch {plan.batch} of topic {plan.topic!r} and without an error"
    )
