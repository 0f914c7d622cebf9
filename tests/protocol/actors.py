"""Processes as greenlets: each runs until it asks the outside world for something, then another one may run.

Exactly one actor runs at any time, and only the scheduler decides which, so a seed replays to the same end.
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
        name: what it is: ``driver``, ``job``, ``task``, ``operator``.
        clock: its own monotonic seconds; pass while it sleeps.
        asleep_until: the scheduler leaves it alone until its own time reaches this.
        finished: whether it ended, by returning, failing or dying.
        result: what it returned.
        error: how it failed; None also if it died.
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
        """Called by the actor itself: let others run."""
        self.greenlet.parent.switch()  # type: ignore[union-attr]
        if self._dying:
            raise GreenletExit

    def sleep(self, seconds: float) -> None:
        """Called by the actor itself: its clock advances, and others may run."""
        self.clock += seconds
        self.pause()

    def monotonic(self) -> float:
        return self.clock

    def kill(self) -> None:
        """It is gone: nothing it had in mind happens any more."""
        self._dying = True
        self.finished = True
        if self.greenlet:
            self.greenlet.throw(GreenletExit)

    def step(self) -> bool:
        """Let it run to its next request; whether it has ended."""
        if not self.finished:
            before, self.scheduler.current = self.scheduler.current, self
            try:
                self.greenlet.switch()  # type: ignore[union-attr]
            finally:
                self.scheduler.current = before
        return self.finished


class Scheduler:
    """All actors there are. Which one runs next is up to whoever holds it.

    Attributes:
        actors: those that have not ended.
        current: the one that runs right now.
    """

    def __init__(self) -> None:
        self.actors: list[Actor] = []
        self.current: Actor | None = None

    def spawn(self, actor: Actor, body: Callable[[], Any]) -> Actor:
        """Let an actor begin; an error of the package ends it, any other error ends the simulation."""

        def run() -> None:
            try:
                actor.result = body()
            except KafkaS3Error as e:
                actor.error = e
            actor.finished = True

        # Ends are reported to the scheduler, whoever spawned the actor.
        root = getcurrent()
        while root.parent is not None:
            root = root.parent
        actor.greenlet = greenlet(run, parent=root)
        self.actors.append(actor)
        return actor

    def pause(self) -> None:
        """Let others run; does nothing outside of actors."""
        if self.current is not None:
            self.current.pause()

    def drop_finished(self) -> None:
        self.actors = [a for a in self.actors if not a.finished]

    def kill_all(self) -> None:
        """Leave no greenlet behind."""
        for actor in self.actors:
            actor.kill()
        self.actors.clear()
