"""Random faults for requests."""

from __future__ import annotations

import collections
import random
import threading
from typing import Final

from dev.faults import Answer, Call, Delay, Fault, Flip, Hang, Lose, Reset, ResetInBody, Truncate, Twice

__all__ = ["Chaos"]

_ANY: Final[tuple[Fault, ...]] = (
    Answer(503, "SlowDown"),
    Answer(500, "InternalError"),
    Answer(403, "ExpiredToken"),
    Answer(500, "InternalError", applied=True),
    Reset(),
    Lose("RST"),
    Lose("FIN"),
    Truncate(),
    Delay(0.3),
)
_WRITES: Final[tuple[Fault, ...]] = (*_ANY, Answer(409, "ConditionalRequestConflict"), ResetInBody(), Twice())
_COMPLETES: Final[tuple[Fault, ...]] = (
    *_WRITES,
    Answer(200, "InternalError"),
    Answer(200, "InternalError", applied=True),
    Answer(404, "NoSuchUpload", applied=True),
)
# The answer to HEAD has no body that could name the credentials as the reason of a 403.
_HEADS: Final = tuple(fault for fault in _ANY if fault != Answer(403, "ExpiredToken"))


class Chaos:
    """Chooses a fault for one request in ``one_in``; a few of them outlast the timeout of the client.

    Attributes:
        counts: how often each kind of fault was chosen.
    """

    def __init__(self, seed: int, *, one_in: int = 12, patience: float = 2.0) -> None:
        """Describe the faults.

        Args:
            seed: of the choices; their order also depends on the order in which requests come.
            one_in: average number of requests per fault.
            patience: seconds that clients wait for an answer.
        """
        self.counts: collections.Counter[str] = collections.Counter()
        self._rng = random.Random(seed)
        self._lock = threading.Lock()
        self._one_in = one_in
        self._late = (Hang(), Hang(applied=False), Delay(patience * 1.5), Delay(patience * 1.5, applied=False))
        self._ended = False

    def end(self) -> None:
        """Choose no more faults."""
        self._ended = True

    def choose(self, call: Call) -> Fault | None:
        """The fault of a request, or None."""
        with self._lock:
            if self._ended or self._rng.randrange(self._one_in):
                return None
            fault = self._rng.choice(self._late if self._rng.random() < 0.05 else _fitting(call.operation))
            self.counts[type(fault).__name__] += 1
            return fault


def _fitting(operation: str) -> tuple[Fault, ...]:
    match operation:
        case "GetObject":
            return (*_ANY, Flip())
        case "HeadObject":
            return _HEADS
        case "CompleteMultipartUpload":
            return _COMPLETES
        case _:
            return _WRITES
