"""Retries with full jitter: the only retry loop of the package, so that tries are counted in one place.

The wait before retry n (n = 1 is the first *extra* try) is uniform in
``[0, min(cap, base * 2**(n - 1))]``. The type of the error decides whether there is a retry:

* ``ThrottledError`` is retried, more slowly, until a deadline: the server works, but limits the rate of requests.
* Any other ``TransientError`` is retried ``max_retries`` times, unless its ``repeatable`` is False.
* Everything else is raised at once: terminal errors, and responses (412, 409, a gone upload) that the caller handles.
"""

from __future__ import annotations

import logging
import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Final, TypeVar

from msgspec import Meta

from airflow_provider_kafka_s3.config.values import Value
from airflow_provider_kafka_s3.exceptions import ThrottledError, TransientError

__all__ = ["MAX_CAP", "Retrier", "RetryDetails", "RetryPolicy"]

log = logging.getLogger(__name__)

T = TypeVar("T")

MAX_CAP: Final = 86_400
"""No single wait is longer than a day, whatever the settings (seconds)."""

Seconds = Annotated[float, Meta(ge=0, le=MAX_CAP, description="seconds")]

_MAX_EXPONENT: Final = 1_000
"""2**1000 still fits into a float with any base up to ``MAX_CAP``; every cap is reached long before."""


class RetryPolicy(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Number of retries and waits between them; all times in seconds.

    Attributes:
        max_retries: extra tries after the first one; 0 means one try.
        base: longest wait before the first retry.
        cap: longest wait before any retry.
        throttle_base: like ``base``, after a throttled request.
        throttle_deadline: how long throttled requests are repeated, counted from the first throttled response.
    """

    max_retries: Annotated[int, Meta(ge=0, extra={"why": "0 is one try only"})] = 3
    base: Seconds = 0.2
    cap: Seconds = 20.0
    throttle_base: Seconds = 1.0
    throttle_deadline: Seconds = 180.0

    def longest_wait(self, retry: int, *, throttled: bool = False) -> float:
        """The upper end of the wait before retry number ``retry`` (from 1), in seconds."""
        base = self.throttle_base if throttled else self.base
        return min(self.cap, math.ldexp(base, min(retry - 1, _MAX_EXPONENT)))


@dataclass(frozen=True, kw_only=True)
class RetryDetails:
    """The next retry, as the argument of a hook.

    Attributes:
        what: the operation, as the caller names it.
        attempt: number of the try that failed, from 1.
        delay: seconds until the next try.
        elapsed: seconds since the first try began.
        throttled: whether the request was throttled.
        reason: class and message of the error.
    """

    what: str
    attempt: int
    delay: float
    elapsed: float
    throttled: bool
    reason: str


class Retrier:
    """Repeats operations by one policy. It has no state between calls, so any number of threads may share it."""

    def __init__(
        self,
        policy: RetryPolicy | None = None,
        *,
        sleep: Callable[[float], None] = time.sleep,
        monotonic: Callable[[], float] = time.monotonic,
        rng: Callable[[], float] = random.random,
        on_retry: Callable[[RetryDetails], None] | None = None,
    ) -> None:
        """Make a retrier.

        Args:
            policy: number of retries and waits; None: the defaults.
            sleep: waits for a number of seconds.
            monotonic: the time in seconds; it must advance while ``sleep`` waits, else throttling never ends.
            rng: a number in [0, 1), or 1.0 for the longest waits.
            on_retry: called for every retry before its wait.
        """
        self.policy = policy or RetryPolicy()
        self._sleep = sleep
        self._monotonic = monotonic
        self._rng = rng
        self._on_retry = on_retry

    def call(self, operation: Callable[[], T], *, what: str) -> T:
        """Call ``operation`` until it returns, raises an error that is not retried, or the policy is exhausted.

        Args:
            operation: must be safe to repeat.
            what: names operation and object in logs and errors, such as ``"GET s3://bucket/key"``; no secrets.

        Raises:
            TransientError: the last one, with the number and the duration of the tries as a note.
        """
        started = self._monotonic()
        attempt = failures = throttles = 0
        first_throttled = 0.0
        while True:
            attempt += 1
            try:
                return operation()
            except TransientError as error:
                if not error.repeatable:
                    raise
                now = self._monotonic()
                delay: float | None
                if isinstance(error, ThrottledError):
                    throttles += 1
                    if throttles == 1:
                        first_throttled = now
                    delay = self._throttle_delay(throttles, now - first_throttled, error.retry_after)
                else:
                    failures += 1
                    delay = self._delay(failures) if failures <= self.policy.max_retries else None
                if delay is None:
                    error.add_note(f"gave up: {what}, {attempt} tries in {now - started:.1f} s")
                    raise
                self._report(
                    RetryDetails(
                        what=what,
                        attempt=attempt,
                        delay=delay,
                        elapsed=now - started,
                        throttled=isinstance(error, ThrottledError),
                        reason=f"{type(error).__name__}: {error}",
                    )
                )
            self._sleep(delay)

    def pause(self, attempt: int) -> float:
        """Wait as before a retry, for an operation that lost a race instead of failing.

        Args:
            attempt: number of the try that lost, from 1.

        Returns:
            The seconds.
        """
        delay = self._delay(attempt)
        self._sleep(delay)
        return delay

    def _delay(self, retry: int) -> float:
        return self._rng() * self.policy.longest_wait(retry)

    def _throttle_delay(self, retry: int, elapsed: float, retry_after: float | None) -> float | None:
        remaining = self.policy.throttle_deadline - elapsed
        at_least = retry_after if retry_after is not None and retry_after > 0 else 0.0
        if remaining <= 0 or at_least > remaining:
            return None
        # Never sleep past the deadline: the last try is made at the deadline.
        return max(at_least, min(remaining, self._rng() * self.policy.longest_wait(retry, throttled=True)))

    def _report(self, details: RetryDetails) -> None:
        log.warning(
            "%s failed (try %d, %.1f s so far), trying again in %.2f s: %s",
            details.what,
            details.attempt,
            details.elapsed,
            details.delay,
            details.reason,
        )
        if self._on_retry is not None:
            self._on_retry(details)
