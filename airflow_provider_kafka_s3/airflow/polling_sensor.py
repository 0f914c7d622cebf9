"""Base class of the sensors: polls a condition in the worker, or in the triggerer without occupying a worker."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import (  # noqa: TID253 - the base class, and what is light and loaded
    AirflowException,
    AirflowFailException,
    AirflowSkipException,
    BaseSensorOperator,
    PokeReturnValue,
    conf,
)

from airflow_provider_kafka_s3.airflow import parameters
from airflow_provider_kafka_s3.airflow.task_errors import as_task_error, task_error

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context
    from airflow.triggers.base import BaseTrigger

    from airflow_provider_kafka_s3.airflow.conditions import Condition, PollResult

__all__ = ["PollingSensor"]


class PollingSensor(BaseSensorOperator):
    """Base class of the sensors of this package; ``kwargs`` are those of Airflow's sensors.

    Args:
        deferrable: whether to wait in the triggerer. There the first error ends the wait, also with ``silent_fail``,
            and the time between two polls is always ``poke_interval``. Default: Airflow's setting
            ``[operators] default_deferrable``.
    """

    def __init__(
        self,
        *,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        **kwargs: Any,
    ) -> None:
        parameters.require_known(type(self), kwargs)
        super().__init__(**kwargs)
        self.deferrable = deferrable

    @abstractmethod
    def _condition(self, context: Context) -> Condition | None:
        """The condition that this run waits for; None: there is nothing to wait for.

        Raises:
            KafkaS3Error: a parameter is wrong, or this run has no window.
        """

    @abstractmethod
    def _trigger(self, condition: Condition) -> BaseTrigger:
        """The trigger that polls the condition in the triggerer."""

    def poke(self, context: Context) -> PokeReturnValue:
        """Poll once."""
        polled = self._poll(context)[1]
        return PokeReturnValue(is_done=polled.done, xcom_value=dict(polled.result))

    def execute(self, context: Context) -> Any:
        """Wait until the condition is met; returns its result, see the class."""
        if not self.deferrable:
            return super().execute(context)
        try:
            condition, polled = self._poll(context)
        except AirflowException as e:
            # As Airflow's sensors do when they poke.
            if self.never_fail or (self.soft_fail and isinstance(e, AirflowFailException)):
                raise AirflowSkipException(f"skipped instead of failed: {e}") from e
            raise
        if condition is None or polled.done:
            return dict(polled.result)
        return self.defer(
            trigger=self._trigger(condition),
            method_name=self.execute_complete.__name__,
            timeout=timedelta(seconds=self.timeout),
        )

    def execute_complete(self, context: Context, event: Mapping[str, Any] | None = None) -> Any:  # noqa: ARG002 - Airflow calls it so
        """Continue with the event of the trigger.

        Raises:
            AirflowFailException: a retry cannot succeed.
            AirflowException: a retry may succeed.
        """
        if event is None:
            raise AirflowException("the trigger ended without an event")
        if event["status"] == "error":
            raise task_error(self.log, event["message"], terminal=event["terminal"], level=self._level)
        return event["result"]

    def _poll(self, context: Context) -> tuple[Condition | None, PollResult]:
        from airflow_provider_kafka_s3.airflow.conditions import PollResult

        with as_task_error(self.log, level=self._level):
            condition = self._condition(context)
            polled = PollResult(True, {}, "this run has nothing to wait for") if condition is None else condition.poll()
        self.log.info("%s", polled.summary)
        return condition, polled

    @property
    def _level(self) -> int:
        """Log level of errors: a WARNING if they do not fail the task."""
        return logging.WARNING if self.soft_fail or self.never_fail or self.silent_fail else logging.ERROR
