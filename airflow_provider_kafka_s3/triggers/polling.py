"""Triggers that poll a condition until it is met."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent  # noqa: TID253 - it is the base class

from airflow_provider_kafka_s3.airflow.conditions import Condition, LagCondition, WindowCondition
from airflow_provider_kafka_s3.exceptions import KafkaS3Error, TerminalError, message_of

__all__ = ["KafkaLagTrigger", "KafkaWindowClosedTrigger", "PollingTrigger"]


class PollingTrigger(BaseTrigger):
    """Polls a condition every ``poke_interval`` seconds and fires once: when it is met, or at the first error.

    It keeps no state and changes nothing, so it may run in several triggerers at once, and be started anew at any time.
    The event is ``{"status": "done", "result": …}`` or
    ``{"status": "error", "kind": …, "terminal": …, "message": …}``.
    """

    def __init__(self, condition: Condition, poke_interval: float) -> None:
        """Make the trigger; nothing is polled yet.

        Args:
            condition: to poll.
            poke_interval: seconds between two polls.
        """
        super().__init__()  # type: ignore[no-untyped-call]
        self.condition = condition
        self.poke_interval = poke_interval

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """What Airflow stores: names and numbers; connections are looked up in the triggerer."""
        kind = type(self)
        return f"{kind.__module__}.{kind.__qualname__}", {
            **self.condition.to_json(),
            "poke_interval": self.poke_interval,
        }

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait until the condition is met."""
        from asgiref.sync import sync_to_async

        # A thread of its own, because the clients block. asgiref's, because from there Airflow 3.0 to 3.2 find the way
        # back to the event loop when they look up a connection.
        poll = sync_to_async(self.condition.poll, thread_sensitive=False)
        while True:
            try:
                polled = await poll()
            except KafkaS3Error as e:
                terminal = isinstance(e, TerminalError)
                yield TriggerEvent({"status": "error", "kind": e.kind, "terminal": terminal, "message": message_of(e)})
                return
            self.log.info("%s", polled.summary)
            if polled.done:
                yield TriggerEvent({"status": "done", "result": dict(polled.result)})
                return
            await asyncio.sleep(self.poke_interval)


class KafkaLagTrigger(PollingTrigger):
    """Fires when enough records wait to be landed."""

    def __init__(self, *, topics: list[str], poke_interval: float, **condition: Any) -> None:
        """Make the trigger; nothing is polled yet.

        Args:
            topics: their names.
            poke_interval: seconds between two polls.
            condition: the other attributes of :class:`~airflow_provider_kafka_s3.airflow.conditions.LagCondition`.
        """
        super().__init__(LagCondition(topics=tuple(topics), **condition), poke_interval)


class KafkaWindowClosedTrigger(PollingTrigger):
    """Fires when every partition has passed the end of a window."""

    def __init__(self, *, topics: list[str], poke_interval: float, **condition: Any) -> None:
        """Make the trigger; nothing is polled yet.

        Args:
            topics: their names.
            poke_interval: seconds between two polls.
            condition: the other attributes of :class:`~airflow_provider_kafka_s3.airflow.conditions.WindowCondition`.
        """
        super().__init__(WindowCondition(topics=tuple(topics), **condition), poke_interval)
