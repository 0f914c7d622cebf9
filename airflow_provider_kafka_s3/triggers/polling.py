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

    It has no state and writes nothing, so it may run in several triggerers at once, and be restarted at any time.
    The event is ``{"status": "done", "result": …}`` or
    ``{"status": "error", "kind": …, "terminal": …, "message": …}``.
    """

    def __init__(self, condition: Condition, poke_interval: float) -> None:
        """Create the trigger; nothing is polled yet.

        Args:
            condition: the condition to poll.
            poke_interval: seconds between two polls.
        """
        super().__init__()  # type: ignore[no-untyped-call]
        self.condition = condition
        self.poke_interval = poke_interval

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Serialize for Airflow's database: names and numbers. Connections are looked up in the triggerer."""
        kind = type(self)
        return f"{kind.__module__}.{kind.__qualname__}", {
            **self.condition.to_json(),
            "poke_interval": self.poke_interval,
        }

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait until the condition is met."""
        from asgiref.sync import sync_to_async

        # In a thread, because the clients block. A thread of asgiref, because Airflow 3.0 to 3.2 look up connections in
        # the event loop, which they find from such a thread only.
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
    """Fires when the lag is large enough."""

    def __init__(self, *, topics: list[str], poke_interval: float, **condition: Any) -> None:
        """Create the trigger; nothing is polled yet.

        Args:
            topics: names of the topics.
            poke_interval: seconds between two polls.
            condition: the other attributes of :class:`~airflow_provider_kafka_s3.airflow.conditions.LagCondition`.
        """
        super().__init__(LagCondition(topics=tuple(topics), **condition), poke_interval)


class KafkaWindowClosedTrigger(PollingTrigger):
    """Fires when every partition has passed the end of a window."""

    def __init__(self, *, topics: list[str], poke_interval: float, **condition: Any) -> None:
        """Create the trigger; nothing is polled yet.

        Args:
            topics: names of the topics.
            poke_interval: seconds between two polls.
            condition: the other attributes of :class:`~airflow_provider_kafka_s3.airflow.conditions.WindowCondition`.
        """
        super().__init__(WindowCondition(topics=tuple(topics), **condition), poke_interval)
