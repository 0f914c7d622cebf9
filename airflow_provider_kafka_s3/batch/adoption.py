"""How long a run waits for another run that is ahead of it. It is pure thrift: nothing is decided by a wait."""

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
"""How long the run that made the marker may take to claim its window."""

_FIRST_PLAN_POLL_SECONDS: Final = 0.5


class AdoptionWait:
    """The waits of one run.

    Args:
        topic_log: where other runs show what they do.
        most: seconds to wait at most.
        task_has_ended: whether Airflow has a task that planned a batch as not running; None: nobody can say.
        sleep: seconds.
        monotonic: the process's own clock, seconds.
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
        self._most = most
        self._task_has_ended = task_has_ended
        self._sleep = sleep
        self._monotonic = monotonic

    def first_plan_appears(self) -> bool:
        """Whether the first plan of the log appears, within ten seconds at most.

        First runs over several windows begin at the same time. What lies below the window of one is the window of
        another, so without this wait a run might claim it before its own run does, and fail with what fails there.
        """
        deadline = self._monotonic() + min(self._most, _FIRST_PLAN_SECONDS)
        while self._monotonic() < deadline:
            self._sleep(_FIRST_PLAN_POLL_SECONDS)
            if self._log.read_plan(1) is not None:
                return True
        return False

    def decision_of(self, plan: Plan) -> Manifest | None:
        """The decision about another run's batch; None: there is none, and its planner is gone or the time is over."""
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
                    self._most,
                )
                deadline = self._monotonic() + self._most
            if self._monotonic() >= deadline:
                return None
            self._sleep(min(_POLL_SECONDS, self._most))
            if (decision := self._log.read_manifest(plan.batch)) is not None:
                return decision
        # Its last act may have been the decision.
        return self._log.read_manifest(plan.batch)

    def _planner_is_gone(self, plan: Plan) -> bool:
        """Whether whoever planned a batch certainly lives no more."""
        process, task = self._log.planner(plan.batch)
        if process is not None and process_is_gone(process):
            why = f"process {process.pid} on this host has ended"
        elif task is not None and self._task_has_ended is not None and self._task_has_ended(task):
            why = "Airflow has its task as not running"
        else:
            return False
        log.info(
            "topic %s: batch %d was planned by another run, %s (%s), which lives no more: %s. It is carried out now",
            plan.topic,
            plan.batch,
            plan.run,
            self._log.planned_by(plan.batch),
            why,
        )
        return True
