"""Several threads share requests, and each has its own response or error."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from airflow_provider_kafka_s3.kafka.joint_requests import JointRequests
from dev.waiting import wait_until


class Broker:
    """Answers each key with the number of its request, and holds the first request until it is released."""

    def __init__(self) -> None:
        self.requests: list[list[str]] = []
        self.released = threading.Event()
        self.fails: Callable[[Sequence[str]], object] = lambda _: False
        self.joint: JointRequests[str, int] = JointRequests()
        self._calls = ThreadPoolExecutor(20)

    def _send(self, keys: Sequence[str]) -> Mapping[str, int]:
        self.requests.append([*keys])
        number = len(self.requests)
        if number == 1:
            assert self.released.wait(30)
        if self.fails(keys):
            raise ValueError(f"request {number} failed")
        return dict.fromkeys(keys, number)

    def call(self, key: str) -> Future[int]:
        """Request a key in a thread of its own."""
        return self._calls.submit(self.joint.response, key, lambda: self._send([key])[key], self._send)

    def behind_the_first(self, *keys: str) -> dict[str, Future[int]]:
        """Request ``first``, and the other keys while this request is under way."""
        calls = {"first": self.call("first")}
        wait_until(lambda: self.requests, "the first request")
        for key in keys:
            calls[key] = self.call(key)
            wait_until(lambda key=key: self._waits(key), f"the call for {key}")  # type: ignore[misc]
        self.released.set()
        return calls

    def _waits(self, key: str) -> bool:
        request = self.joint._next
        return request is not None and key in request.keys


@pytest.fixture
def broker() -> Any:
    """A broker whose threads have ended at the end."""
    made = Broker()
    yield made
    made.released.set()
    made._calls.shutdown()


def test_a_single_thread_sends_each_request_at_once(broker: Broker) -> None:
    """It waits for nobody."""
    broker.released.set()
    assert [broker.call(key).result(30) for key in "aba"] == [1, 2, 3]
    assert broker.requests == [["a"], ["b"], ["a"]]


def test_calls_during_a_request_are_sent_as_one(broker: Broker) -> None:
    """So requests do not grow with threads, and no response is older than its call."""
    calls = broker.behind_the_first("a", "b", "c")
    assert {key: call.result(30) for key, call in calls.items()} == {"first": 1, "a": 2, "b": 2, "c": 2}
    assert broker.requests == [["first"], ["a", "b", "c"]]


def test_an_error_of_one_key_is_not_that_of_the_others(broker: Broker) -> None:
    """After a request of several keys has failed, each is requested by itself."""
    broker.fails = lambda keys: "bad" in keys
    calls = broker.behind_the_first("a", "bad", "c")
    with pytest.raises(ValueError, match="failed"):
        calls.pop("bad").result(30)
    assert calls.pop("first").result(30) == 1
    assert all(call.result(30) > 2 for call in calls.values())
    assert sorted(broker.requests[2:]) == [["a"], ["bad"], ["c"]]


def test_a_thread_that_is_interrupted_leaves_the_others_their_requests(broker: Broker) -> None:
    """Airflow ends a task by an exception in its thread."""

    def interrupted(keys: Sequence[str]) -> bool:
        if len(keys) > 1:
            raise KeyboardInterrupt
        return False

    broker.fails = interrupted
    calls = broker.behind_the_first("a", "b")
    with pytest.raises(KeyboardInterrupt):
        calls.pop("a").result(30)
    assert all(call.result(30) for call in calls.values())
    assert broker.call("later").result(30) == len(broker.requests)


def test_threads_that_request_one_key_have_their_responses(broker: Broker) -> None:
    """The same topic may be in two pipelines."""
    calls = broker.behind_the_first("a")
    again = broker.call("a")
    assert calls["first"].result(30) == 1
    assert calls["a"].result(30) > 1
    assert again.result(30) > 1


def test_many_threads_have_each_their_response(broker: Broker) -> None:
    """Whichever of them sends it."""
    broker.released.set()
    echo: JointRequests[int, int] = JointRequests()

    def negative(n: int) -> int:
        return echo.response(n, lambda: -n, lambda keys: {key: -key for key in keys})

    with ThreadPoolExecutor(16) as pool:
        assert [*pool.map(negative, range(5_000))] == [-n for n in range(5_000)]
