"""Triggers that ask a question until it is answered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent  # noqa: TID253 - it is the base class

from airflow_provider_kafka_s3.exceptions import KafkaS3Error, TerminalError, message_of
from airflow_provider_kafka_s3.triggers.questions import LagQuestion, Question, WindowQuestion

__all__ = ["KafkaLagTrigger", "KafkaWindowClosedTrigger", "PollingTrigger"]


class PollingTrigger(BaseTrigger):
    """Asks a question every ``poke_interval`` seconds and fires once: when it is answered, or at the first error.

    It keeps no state and changes nothing, so it may run in several triggerers at once, and be started anew at any time.
    The event is ``{"status": "done", "result": …}`` or
    ``{"status": "error", "kind": …, "terminal": …, "message": …}``.
    """

    def __init__(self, question: Question, poke_interval: float) -> None:
        """Prepare to ask.

        Args:
            question: what to ask.
            poke_interval: seconds between an answer and the next question.
        """
        super().__init__()  # type: ignore[no-untyped-call]
        self.question = question
        self.poke_interval = poke_interval

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """What Airflow stores: names and numbers; connections are looked up in the triggerer."""
        kind = type(self)
        return f"{kind.__module__}.{kind.__qualname__}", {
            **self.question.to_wire(),
            "poke_interval": self.poke_interval,
        }

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait for the answer."""
        from asgiref.sync import sync_to_async

        # A thread of its own, because the clients block. asgiref's, because from there Airflow 3.0 to 3.2 find the way
        # back to the event loop when they look up a connection.
        ask = sync_to_async(self.question.ask, thread_sensitive=False)
        while True:
            try:
                answer = await ask()
            except KafkaS3Error as e:
                terminal = isinstance(e, TerminalError)
                yield TriggerEvent({"status": "error", "kind": e.kind, "terminal": terminal, "message": message_of(e)})
                return
            self.log.info("%s", answer.said)
            if answer.done:
                yield TriggerEvent({"status": "done", "result": dict(answer.result)})
                return
            await asyncio.sleep(self.poke_interval)


class KafkaLagTrigger(PollingTrigger):
    """Fires when enough records wait to be landed."""

    def __init__(self, *, topics: list[str], poke_interval: float, **question: Any) -> None:
        """Prepare to ask.

        Args:
            topics: their names.
            poke_interval: seconds between an answer and the next question.
            question: the other attributes of :class:`~airflow_provider_kafka_s3.triggers.questions.LagQuestion`.
        """
        super().__init__(LagQuestion(topics=tuple(topics), **question), poke_interval)


class KafkaWindowClosedTrigger(PollingTrigger):
    """Fires when every partition has passed the end of a window."""

    def __init__(self, *, topics: list[str], poke_interval: float, **question: Any) -> None:
        """Prepare to ask.

        Args:
            topics: their names.
            poke_interval: seconds between an answer and the next question.
            question: the other attributes of :class:`~airflow_provider_kafka_s3.triggers.questions.WindowQuestion`.
        """
        super().__init__(WindowQuestion(topics=tuple(topics), **question), poke_interval)
