"""A sensor that asks a question: in its worker, or in the triggerer while no worker is taken."""

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

from airflow_provider_kafka_s3.operators import parameters
from airflow_provider_kafka_s3.operators.failing import as_task_error, task_error

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from airflow_provider_kafka_s3.triggers.polling import PollingTrigger
    from airflow_provider_kafka_s3.triggers.questions import Answer, Question

__all__ = ["AskingSensor"]


class AskingSensor(BaseSensorOperator):
    """What the sensors of this package have in common; ``kwargs`` are those of Airflow's sensors.

    Args:
        deferrable: whether to wait in the triggerer. There the first error ends the wait, whatever ``silent_fail``
            says, and the time between two questions is always ``poke_interval``. Default: Airflow's setting
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
    def _question(self, context: Context) -> Question | None:
        """What to ask in this run; None: it has nothing to wait for.

        Raises:
            KafkaS3Error: a parameter is wrong, or this run has no window.
        """

    @abstractmethod
    def _trigger(self, question: Question) -> PollingTrigger:
        """Who asks it in the triggerer."""

    def poke(self, context: Context) -> PokeReturnValue:
        """Ask once."""
        answer = self._ask(context)[1]
        return PokeReturnValue(is_done=answer.done, xcom_value=dict(answer.result))

    def execute(self, context: Context) -> Any:
        """Wait; returns what the class documents."""
        if not self.deferrable:
            return super().execute(context)
        try:
            question, answer = self._ask(context)
        except AirflowException as e:
            # As Airflow's sensors do it while they poke.
            if self.never_fail or (self.soft_fail and isinstance(e, AirflowFailException)):
                raise AirflowSkipException(f"skipped instead of failed: {e}") from e
            raise
        if question is None or answer.done:
            return dict(answer.result)
        return self.defer(
            trigger=self._trigger(question),
            method_name=self.execute_complete.__name__,
            timeout=timedelta(seconds=self.timeout),
        )

    def execute_complete(self, context: Context, event: Mapping[str, Any] | None = None) -> Any:  # noqa: ARG002 - Airflow calls it so
        """Go on where the triggerer has got an answer.

        Raises:
            AirflowFailException: asking again cannot help.
            AirflowException: it may.
        """
        if event is None:
            raise AirflowException("the trigger ended without an answer")
        if event["status"] == "error":
            raise task_error(self.log, event["message"], terminal=event["terminal"], level=self._level)
        return event["result"]

    def _ask(self, context: Context) -> tuple[Question | None, Answer]:
        from airflow_provider_kafka_s3.triggers.questions import Answer

        with as_task_error(self.log, level=self._level):
            question = self._question(context)
            answer = Answer(True, {}, "this run has nothing to wait for") if question is None else question.ask()
        self.log.info("%s", answer.said)
        return question, answer

    @property
    def _level(self) -> int:
        """Of the log's lines about an error: one that does not fail the task is no ERROR."""
        return logging.WARNING if self.soft_fail or self.never_fail or self.silent_fail else logging.ERROR
