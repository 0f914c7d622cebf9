"""Processes as greenlets: each runs until its next external request, then another one may run.

Exactly one actor runs at any time, and only the scheduler decides which, so a seed always gives the same result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from greenlet import GreenletExit, getcurrent, greenlet

from airflow_provider_kafka_s3.exceptions import KafkaS3Error

__all__ = ["Actor", "Scheduler"]


class Actor:
    """One process or task.

    Attributes:
        name: kind of process: ``driver``, ``job``, ``task``, ``operator``.
        clock: its monotonic clock in seconds; advances while it sleeps.
        asleep_until: time of the scheduler before which it does not run.
        finished: whether it has returned, failed or been killed.
        result: its return value.
        error: its error; None also if it was killed.
    """

    def __init__(self, scheduler: Scheduler, name: str) -> None:
        self.scheduler = scheduler
        self.name = name
        self.clock = 0.0
        self.asleep_until = 0
        self.finished = False
        self.result: Any = None
        self.error: KafkaS3Error | None = None
        self.greenlet: greenlet | None = None
        self._dying = False

    def pause(self) -> None:
        """Let other actors run; called by the actor itself."""
        self.greenlet.parent.switch()  # type: ignore[union-attr]
        if self._dying:
            raise GreenletExit

    def sleep(self, seconds: float) -> None:
        """Advance its clock and let other actors run; called by the actor itself."""
        self.clock += seconds
        self.pause()

    def monotonic(self) -> float:
        return self.clock

    def kill(self) -> None:
        """End it at once: it takes no further step."""
        self._dying = True
        self.finished = True
        if self.greenlet:
            self.greenlet.throw(GreenletExit)

    def step(self) -> bool:
        """Run it to its next request; return whether it has ended."""
        if not self.finished:
            before, self.scheduler.current = self.scheduler.current, self
            try:
                self.greenlet.switch()  # type: ignore[union-attr]
            finally:
                self.scheduler.current = before
        return self.finished


class Scheduler:
    """The actors. Its owner decides which one runs next.

    Attributes:
        actors: those that have not ended.
        current: the running one.
    """

    def __init__(self) -> None:
        self.actors: list[Actor] = []
        self.current: Actor | None = None

    def spawn(self, actor: Actor, body: Callable[[], Any]) -> Actor:
        """Start an actor. An error of the package ends it, any other error ends the simulation."""

        def run() -> None:
            try:
                actor.result = body()
            except KafkaS3Error as e:
                actor.error = e
            actor.finished = True

        # Control returns to the scheduler when an actor ends, whichever greenlet spawned it.
        root = getcurrent()
        while root.parent is not None:
            root = root.parent
        actor.greenlet = greenlet(run, parent=root)
        self.actors.append(actor)
        return actor

    def pause(self) -> None:
        """Let other actors run; does nothing outside of actors."""
        if self.current is not None:
            self.current.pause()

    def drop_finished(self) -> None:
        self.actors = [a for a in self.actors if not a.finished]

    def kill_all(self) -> None:
        """End all greenlets."""
        for actor in self.actors:
            actor.kill()
        self.actors.clear()
