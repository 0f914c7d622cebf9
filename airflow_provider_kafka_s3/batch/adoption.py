"""Waiting for another run that is ahead. A wait saves work; it decides nothing."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from airflow_provider_kafka_s3.batch.log import TopicLog
from airflow_provider_kafka_s3.documents.manifest import Manifest
from airflow_provider_kafka_s3.documents.plan import Plan
from airflow_provider_kafka_s3.documents.planner import TaskHasEnded, process_is_gone

__all__ = ["AdoptionWait"]

log = logging.getLogger(__name__)

_POLL_SECONDS: Final = 2.0

_FIRST_PLAN_SECONDS: Final = 10.0
"""Time that the run which created the marker has to claim its window."""

_FIRST_PLAN_POLL_SECONDS: Final = 0.5


class AdoptionWait:
    """The waits of one run.

    Args:
        topic_log: log of the topic, which holds the documents of other runs.
        most: seconds to wait at most.
        task_has_ended: whether the Airflow task that planned a batch has ended; None if Airflow is not available.
        sleep: sleeps for a number of seconds.
        monotonic: monotonic clock, in seconds.
    """

    def __init__(
        self,
        topic_log: TopicLog,
        *,
        most: float,
        task_has_ended: TaskHasEnded | None,
        sleep: Callable[[float], None],
        monotonic: Callable[[], float],
    ) -> None:
        self._log = topic_log
        self._limit = most
        self._task_has_ended = task_has_ended
        self._sleep = sleep
        self._monotonic = monotonic

    def first_plan_appears(self) -> bool:
        """Wait at most ten seconds for the first plan of the log; return whether it was created.

        First runs over several windows begin at the same time. The offsets below the window of one are the window of
        another, so without this wait a run might claim them before the other run does, and fail with its errors.
        """
        deadline = self._monotonic() + min(self._limit, _FIRST_PLAN_SECONDS)
        while self._monotonic() < deadline:
            self._sleep(_FIRST_PLAN_POLL_SECONDS)
            if self._log.read_plan(1) is not None:
                return True
        return False

    def decision_of(self, plan: Plan) -> Manifest | None:
        """Wait for the decision about another run's batch.

        None if it is undecided when its planner has ended or the time limit is reached.
        """
        deadline: float | None = None
        while not self._planner_is_gone(plan):
            if deadline is None:
                log.info(
                    "topic %s: batch %d was planned by another run, %s (%s); waiting up to %.0f s for it, then working "
                    "in parallel, which is harmless",
                    plan.topic,
                    plan.batch,
                    plan.run,
                    self._log.planned_by(plan.batch),
                    self._limit,
                )
                deadline = self._monotonic() + self._limit
            if self._monotonic() >= deadline:
                return None
            self._sleep(min(_POLL_SECONDS, self._limit))
            if (decision := self._log.read_manifest(plan.batch)) is not None:
                return decision
        # The planner may have decided just before it ended.
        return self._log.read_manifest(plan.batch)

    def _planner_is_gone(self, plan: Plan) -> bool:
        """Whether the planner of a batch has certainly ended."""
        process, task = self._log.planner(plan.batch)
        if process is not None and process_is_gone(process):
            evidence = f"process {process.pid} on this host has ended"
        elif task is not None and self._task_has_ended is not None and self._task_has_ended(task):
            evidence = "its Airflow task is not running"
        else:
            return False
        log.info(
            "topic %s: batch %d was planned by another run, %s (%s), which has ended: %s. It is executed now",
            plan.topic,
            plan.batch,
            plan.run,
            self._log.planned_by(plan.batch),
            evidence,
        )
        return True
