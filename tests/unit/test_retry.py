"""The retry loop: its waits, the errors that it repeats, and its last error."""

from __future__ import annotations

import json
import logging
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_kafka_s3.exceptions import (
    AccessDeniedError,
    ConfigurationError,
    KafkaS3Error,
    KafkaUnavailableError,
    PreconditionFailed,
    ThrottledError,
    TransientError,
    UnknownOutcomeError,
    UploadGone,
)
from airflow_provider_kafka_s3.retry import MAX_CAP, Retrier, RetryDetails, RetryPolicy

VECTORS: dict[str, Any] = json.loads(
    (Path(__file__).parents[1] / "vectors" / "retry_backoff.json").read_text(encoding="utf-8")
)
ROWS = [(int(n), delay, VECTORS["cumulative_max_s"][n]) for n, delay in VECTORS["max_delay_s"].items()]


class Clock:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.sleeps: list[float] = []

    def __call__(self) -> float:
        """The time, in seconds."""
        return self.now

    def sleep(self, seconds: float) -> None:
        """Remember the wait and pass the time."""
        self.sleeps.append(seconds)
        self.now += seconds


@pytest.fixture
def clock() -> Clock:
    """A fake clock."""
    return Clock()


def make(clock: Clock, policy: RetryPolicy | None = None, *, rng: float = 1.0, **more: Any) -> Retrier:
    """A retrier on the fake clock that always draws the same number."""
    return Retrier(policy, sleep=clock.sleep, monotonic=clock, rng=lambda: rng, **more)


def failing(*errors: Exception) -> Callable[[], str]:
    """An operation that raises these errors one after another, and then returns."""
    rest: Iterator[Exception] = iter(errors)

    def operation() -> str:
        for error in rest:
            raise error
        return "done"

    return operation


@pytest.mark.parametrize(("retry", "longest", "cumulative"), ROWS)
def test_longest_wait_is_the_vector_row(clock: Clock, retry: int, longest: float, cumulative: float) -> None:
    """With the largest random number, n retries wait exactly as in the vectors, singly and together."""
    policy = RetryPolicy(max_retries=retry, base=VECTORS["base_s"], cap=VECTORS["cap_s"])
    assert make(clock, policy).call(failing(*[TransientError("x")] * retry), what="w") == "done"
    assert clock.sleeps[-1] == longest
    assert sum(clock.sleeps) == pytest.approx(cumulative)


@pytest.mark.parametrize("retry", [row[0] for row in ROWS])
def test_shortest_wait_is_zero(clock: Clock, retry: int) -> None:
    """Full jitter starts at zero: with the smallest random number nothing waits."""
    policy = RetryPolicy(max_retries=retry, base=VECTORS["base_s"], cap=VECTORS["cap_s"])
    assert make(clock, policy, rng=0.0).call(failing(*[TransientError("x")] * retry), what="w") == "done"
    assert clock.sleeps == [0.0] * retry


def test_defaults_are_those_of_the_vectors() -> None:
    """Base and number of retries come from the acceptance vectors; single waits end at 20 s."""
    policy = RetryPolicy()
    assert (policy.base, policy.max_retries) == (VECTORS["base_s"], VECTORS["default_retries"])
    assert policy.longest_wait(50) == 20.0


@given(st.integers(1, 100_000), st.floats(0, MAX_CAP), st.floats(0, MAX_CAP), st.booleans())
def test_no_wait_leaves_its_bounds(retry: int, base: float, cap: float, throttled: bool) -> None:
    """Whatever the settings and the attempt, the longest wait is in [0, cap] and nothing overflows."""
    policy = RetryPolicy(base=base, throttle_base=base, cap=cap)
    assert 0 <= policy.longest_wait(retry, throttled=throttled) <= cap


def test_attempt_ten_thousand_waits_the_cap(clock: Clock) -> None:
    """The exponent is clamped: ten thousand retries neither overflow nor wait longer than the cap."""
    retrier = make(clock, RetryPolicy(max_retries=10_000))
    assert retrier.call(failing(*[TransientError("x")] * 10_000), what="w") == "done"
    assert max(clock.sleeps) == clock.sleeps[-1] == 20.0


def test_thirty_seconds_of_503_pass_with_the_defaults(clock: Clock) -> None:
    """A run survives a store that throttles for 30 s."""
    end = clock.now + 30

    def operation() -> str:
        if clock.now < end:
            raise ThrottledError("503 SlowDown")
        return "done"

    assert make(clock, rng=0.5).call(operation, what="PUT s3://b/k") == "done"
    assert 30 <= clock.now - 1_000 <= 50


def test_throttling_ends_at_its_deadline(clock: Clock) -> None:
    """Throttling is retried until 180 s after the first throttled response, with a last try exactly then."""

    def operation() -> str:
        if clock.now == 1_000:
            clock.now += 7  # The first response takes long; the deadline counts from it, not from the call.
        raise ThrottledError("503")

    with pytest.raises(ThrottledError) as caught:
        make(clock).call(operation, what="w")
    assert clock.now == 1_000 + 7 + 180
    assert clock.sleeps[:6] == [1.0, 2.0, 4.0, 8.0, 16.0, 20.0]
    assert caught.value.__notes__ == [f"gave up: w, {len(clock.sleeps) + 1} tries in 187.0 s"]


def test_throttling_does_not_use_up_other_retries(clock: Clock) -> None:
    """Throttled responses and failures are counted separately."""
    errors = [ThrottledError("503"), TransientError("x")] * 3
    assert make(clock).call(failing(*errors), what="w") == "done"
    assert clock.sleeps == [1.0, 0.2, 2.0, 0.4, 4.0, 0.8]


@pytest.mark.parametrize("rng", [0.0, 1.0])
def test_retry_after_is_the_shortest_wait(clock: Clock, rng: float) -> None:
    """If the server demands a wait, no try is made before its end."""
    assert make(clock, rng=rng).call(failing(ThrottledError("503", retry_after=11.0)), what="w") == "done"
    assert clock.sleeps == [11.0]


def test_retry_after_beyond_the_deadline_gives_up_at_once(clock: Clock) -> None:
    """A wait that cannot fit into the deadline is not begun."""
    with pytest.raises(ThrottledError):
        make(clock).call(failing(ThrottledError("503", retry_after=181.0)), what="w")
    assert clock.sleeps == []


@pytest.mark.parametrize("error", [UnknownOutcomeError("x"), KafkaUnavailableError("x"), TransientError("x")])
def test_retries_are_extra_tries(clock: Clock, error: TransientError) -> None:
    """Three retries are four tries; then the last error is raised with a note about them."""
    calls = 0

    def operation() -> str:
        nonlocal calls
        calls += 1
        raise error

    with pytest.raises(type(error)) as caught:
        make(clock).call(operation, what="GET s3://b/k")
    assert calls == 4
    assert caught.value.__notes__ == ["gave up: GET s3://b/k, 4 tries in 1.4 s"]


def test_no_retries_is_one_try(clock: Clock) -> None:
    """max_retries=0 tries once."""
    with pytest.raises(TransientError):
        make(clock, RetryPolicy(max_retries=0)).call(failing(TransientError("x")), what="w")
    assert clock.sleeps == []


@pytest.mark.parametrize(
    "error",
    [AccessDeniedError("x"), ConfigurationError("x"), PreconditionFailed("x"), UploadGone("x"), KeyError("x")],
)
def test_everything_else_is_raised_at_once(clock: Clock, error: Exception) -> None:
    """Terminal errors, responses of the protocol and bugs are not retried."""
    with pytest.raises(type(error)):
        make(clock).call(failing(error), what="w")
    assert clock.sleeps == []


def test_an_error_that_is_not_repeatable_is_raised_at_once(clock: Clock) -> None:
    """Its operation has made its own repetitions; nothing is noted on it."""
    error = KafkaUnavailableError("no broker")
    error.repeatable = False
    with pytest.raises(KafkaUnavailableError) as caught:
        make(clock).call(failing(error), what="w")
    assert (clock.sleeps, getattr(caught.value, "__notes__", [])) == ([], [])


def test_every_retry_is_logged_and_reported_to_the_hook(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    """Before its wait, with operation, attempt, delay, elapsed time and reason."""
    seen: list[RetryDetails] = []
    retrier = make(clock, on_retry=seen.append)
    with caplog.at_level(logging.WARNING):
        retrier.call(failing(UnknownOutcomeError("reset"), ThrottledError("slow", 3.0)), what="PUT s3://b/k")
    assert seen == [
        RetryDetails(
            what="PUT s3://b/k",
            attempt=1,
            delay=0.2,
            elapsed=0.0,
            throttled=False,
            reason="UnknownOutcomeError: reset",
        ),
        RetryDetails(
            what="PUT s3://b/k",
            attempt=2,
            delay=3.0,
            elapsed=pytest.approx(0.2),
            throttled=True,
            reason="ThrottledError: slow",
        ),
    ]
    assert [record.message for record in caplog.records] == [
        "PUT s3://b/k failed (try 1, 0.0 s so far), trying again in 0.20 s: UnknownOutcomeError: reset",
        "PUT s3://b/k failed (try 2, 0.2 s so far), trying again in 3.00 s: ThrottledError: slow",
    ]


def test_pause_waits_with_the_same_jitter(clock: Clock) -> None:
    """A lost race waits like a failure, without being one."""
    retrier = make(clock)
    assert [retrier.pause(n) for n in (1, 2, 3, 10_000)] == [0.2, 0.4, 0.8, 20.0]
    assert clock.sleeps == [0.2, 0.4, 0.8, 20.0]


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_retries": -1},
        {"base": -0.1},
        {"cap": MAX_CAP + 1},
        {"throttle_base": float("nan")},
        {"throttle_deadline": float("inf")},
    ],
)
def test_impossible_policies_are_refused(wrong: dict[str, Any]) -> None:
    """The error names the setting."""
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        RetryPolicy(**wrong)


def test_policy_can_be_sent_between_processes() -> None:
    """Spark tasks get the same policy as the driver."""
    policy = RetryPolicy(max_retries=7)
    assert pickle.loads(pickle.dumps(policy)) == policy


def test_the_last_error_is_raised_itself(clock: Clock) -> None:
    """Giving up raises the last error itself, not a wrapper."""
    last = UnknownOutcomeError("fourth")
    errors: list[KafkaS3Error] = [UnknownOutcomeError("x")] * 3
    with pytest.raises(UnknownOutcomeError) as caught:
        make(clock).call(failing(*errors, last), what="w")
    assert caught.value is last
