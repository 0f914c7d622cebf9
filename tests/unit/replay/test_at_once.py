"""Of the processes that send one replay at the same time, the one that began last goes on, and the others end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from airflow_provider_kafka_s3.exceptions import KafkaUnavailableError, ReplayOvertakenError
from airflow_provider_kafka_s3.replay import job
from tests.unit.replay.cluster import PARTITIONS, RECORDS, Replay


@pytest.fixture
def replay(monkeypatch: pytest.MonkeyPatch) -> Replay:
    """Nothing of it is sent."""
    return Replay(monkeypatch)


def outcome(done: Future[dict[int, int]]) -> dict[int, int] | BaseException:
    """The result, or the error."""
    return done.exception(60) or done.result()


@pytest.mark.parametrize("processes", [2, 3, 6])
def test_of_processes_that_fence_one_another_the_last_one_goes_on(replay: Replay, processes: int) -> None:
    """Each has begun all partitions before any has sent a record, and no one was the last one for all of them."""
    called, all_called = threading.Semaphore(0), threading.Barrier(processes * PARTITIONS)
    seen: set[tuple[int, int]] = set()

    def begin_in_turn(process: int, partition: int, begin: Callable[[], None]) -> None:
        if (process, partition) in seen:
            begin()
            return
        seen.add((process, partition))
        called.release()
        all_called.wait(30)
        if partition % processes != process:
            begin()
        all_called.wait(30)
        if partition % processes == process:
            begin()
        all_called.wait(30)

    replay.cluster.on_call = begin_in_turn
    with ThreadPoolExecutor(processes) as pool:
        futures = []
        for process in range(processes):
            futures.append(pool.submit(replay.send, process))
            for _ in range(PARTITIONS):
                assert called.acquire(timeout=30)
        *overtaken, last = map(outcome, futures)
    complete = dict.fromkeys(range(PARTITIONS), RECORDS)
    assert last == complete
    # One that looks when the last one has sent all finds nothing left to send.
    assert all(one == complete or isinstance(one, ReplayOvertakenError) for one in overtaken), overtaken
    replay.require_all_sent_once()


def test_a_process_that_kafka_itself_fences_is_repeated(replay: Replay, monkeypatch: pytest.MonkeyPatch) -> None:
    """No other one has begun: the error names what Kafka may have ended, and is no end of the replay."""
    monkeypatch.setattr(job, "_FENCED_TRIES", 2)
    calls: list[int] = []

    def fail(process: int, partition: int, begin: Callable[[], None]) -> None:
        calls.append(partition)
        raise ReplayOvertakenError("fenced")

    replay.cluster.on_call = fail
    with pytest.raises(KafkaUnavailableError, match=r"was fenced 2 times.*transaction\.timeout\.ms"):
        replay.send(0)
    assert sorted(calls) == sorted([*range(PARTITIONS)] * 2)
    replay.cluster.on_call = lambda process, partition, begin: begin()
    assert replay.send(1) == dict.fromkeys(range(PARTITIONS), RECORDS)
    replay.require_all_sent_once()


def test_a_process_that_is_overtaken_is_not_repeated_whatever_else_fails(replay: Replay) -> None:
    """It would overtake the other one, which goes on."""

    def fail(process: int, partition: int, begin: Callable[[], None]) -> None:
        if process == 1:
            begin()
        elif partition == 0:
            raise KafkaUnavailableError("no response")
        elif partition == 1:
            assert replay.send(1) == dict.fromkeys(range(PARTITIONS), RECORDS)
            raise ReplayOvertakenError("fenced")

    replay.cluster.on_call = fail
    with pytest.raises(ReplayOvertakenError, match=r"replay 'r' of partition \d to topic 'again': it has begun after"):
        replay.send(0)
    replay.require_all_sent_once()


def test_a_process_that_is_overtaken_begins_no_other_partition(replay: Replay, monkeypatch: pytest.MonkeyPatch) -> None:
    """So it does not take it from the one that goes on."""
    monkeypatch.setattr(job, "_THREADS", 1)
    calls: list[tuple[int, int]] = []

    def overtake(process: int, partition: int, begin: Callable[[], None]) -> None:
        calls.append((process, partition))
        begin()
        if process == 0:
            replay.send(1)

    replay.cluster.on_call = overtake
    with pytest.raises(ReplayOvertakenError):
        replay.send(0)
    assert calls == [(0, 0), *((1, partition) for partition in range(PARTITIONS))]
    replay.require_all_sent_once()
