"""Say how far a Spark action is, every few seconds, as long as something changes."""

from __future__ import annotations

import logging
import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ["Progress"]

log = logging.getLogger(__name__)

_EVERY: Final = 5.0


class Progress:
    """Logs finished slices from a thread of its own while the block runs.

    Args:
        context: whose jobs are looked at.
        what: the topics, for the log.
        total: slices in all.
        every: seconds between two looks.
    """

    def __init__(self, context: SparkContext, what: str, total: int, *, every: float = _EVERY) -> None:
        self._tracker = context.statusTracker()
        self._what = what
        self._total = total
        self._every = every
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="progress", daemon=True)
        self._started = 0.0

    def __enter__(self) -> Self:
        """Begin to look."""
        self._started = time.monotonic()
        log.info("%s: reading %d slices", self._what, self._total)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop looking, and say how long it took."""
        self._over.set()
        self._thread.join()
        if error is None:
            log.info("%s: %d slices read in %.1f s", self._what, self._total, time.monotonic() - self._started)

    def _run(self) -> None:
        last = 0
        while not self._over.wait(self._every):
            try:
                done = self._done()
            except Exception:  # noqa: BLE001 - the session may be ending, and progress is not worth an error
                return
            if done > last:
                last = done
                log.info(
                    "%s: %d of %d slices read, %.0f s", self._what, done, self._total, time.monotonic() - self._started
                )

    def _done(self) -> int:
        done = 0
        for stage in self._tracker.getActiveStageIds():
            info = self._tracker.getStageInfo(stage)
            done += info.numCompletedTasks if info is not None else 0
        return done
