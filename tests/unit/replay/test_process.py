"""The process that sends may be started by any worker of Airflow, shows no secret, and can be killed."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from airflow_provider_kafka_s3.batch.location import TopicLocation
from airflow_provider_kafka_s3.documents.addresses import TopicAddress
from airflow_provider_kafka_s3.documents.replay import ReplayObject, ReplayPlan
from airflow_provider_kafka_s3.exceptions import KafkaUnavailableError, TransientError
from airflow_provider_kafka_s3.replay.job import ReplayJob
from airflow_provider_kafka_s3.replay.process import ReplayProcess
from airflow_provider_kafka_s3.replay.request import ReplayRequest
from airflow_provider_kafka_s3.storage.credentials import S3Credentials
from airflow_provider_kafka_s3.storage.s3 import S3Settings

OBJECT = ReplayObject(batch=1, key="a", slice=0, records=1, low=0, high=0)


def job(server: str = "http://127.0.0.1:1", partitions: dict[int, Any] | None = None) -> ReplayJob:
    """A job whose store is at an address, and that has nothing to send by default."""
    plan = ReplayPlan(
        replay="r",
        nonce="0" * 8,
        topic="orders",
        target="again",
        cluster_id="",
        target_id="",
        batch=1,
        settings={},
        partitions=partitions or {},
    )
    place = TopicLocation(
        "lake",
        TopicAddress(topics_dir="topics", pipeline="p", topic="orders"),
        S3Settings(endpoint_url=server, region="us-east-1", addressing_style="path"),
        S3Credentials(access_key_id="AK", secret_access_key="hidden-from-others"),
    )
    config = {"bootstrap.servers": "127.0.0.1:1", "sasl.password": "hidden-from-others"}
    return ReplayJob(place, config, ReplayRequest(replay="r", target="again"), plan, stalled_after=300)


@contextlib.contextmanager
def waiting(process: ReplayProcess, errors: list[BaseException]) -> Iterator[psutil.Process]:
    """A process that waits for its store, until the block ends."""
    before = set(psutil.Process().children())
    with socket.create_server(("127.0.0.1", 0)) as store:
        host, port = store.getsockname()
        waits = job(f"http://{host}:{port}", {0: ((OBJECT,),)})

        def send() -> None:
            try:
                process.send(waits)
            except BaseException as e:  # noqa: BLE001 - the test looks at it
                errors.append(e)

        thread = threading.Thread(target=send)
        thread.start()
        connection, _ = store.accept()
        (child,) = set(psutil.Process().children()) - before
        with connection:
            yield child
        thread.join(60)
        assert not thread.is_alive()


def test_a_daemonic_worker_can_send() -> None:
    """As the processes of Celery's pool are: they may have no children of multiprocessing."""
    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()
    worker = context.Process(target=lambda: results.put(ReplayProcess().send(job())), daemon=True)
    worker.start()
    worker.join(120)
    assert worker.exitcode == 0
    assert results.get() == {}


def test_a_process_shows_no_secret() -> None:
    """Neither in its arguments nor in its environment."""
    process, errors = ReplayProcess(), list[BaseException]()
    with waiting(process, errors) as child:
        assert child.cmdline()[:1] == [sys.executable]
        shown = " ".join([*child.cmdline(), *child.environ().values()])
        process.kill()
    assert "hidden-from-others" not in shown


def test_after_a_kill_no_process_is_started() -> None:
    """Neither by the call that was interrupted, nor by a later one; the error is not repeated."""
    process, errors = ReplayProcess(), list[BaseException]()
    with waiting(process, errors) as child:
        process.kill()
    assert not child.is_running()
    with pytest.raises(TransientError, match="replay 'r' to topic 'again' was killed") as killed:
        process.send(job())
    for error in (*errors, killed.value):
        assert isinstance(error, TransientError)
        assert not error.repeatable
    assert len(errors) == 1


def test_a_process_that_dies_is_an_error_that_is_repeated() -> None:
    """Whoever killed it; the exit code is named."""
    errors: list[BaseException] = []
    with waiting(ReplayProcess(), errors) as child:
        child.kill()
    (error,) = errors
    assert isinstance(error, KafkaUnavailableError)
    assert error.repeatable
    assert "ended with exit code -9, without a result" in str(error)


def test_a_process_ends_with_its_parent_whatever_it_waits_for() -> None:
    """The kernel closes its input when the parent is killed: else it would send beside the next try."""
    with socket.create_server(("127.0.0.1", 0)) as store:
        host, port = store.getsockname()
        child = subprocess.Popen(
            [sys.executable, "-P", "-m", "airflow_provider_kafka_s3.replay.child"],
            stdin=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))},
        )
        assert child.stdin is not None
        pickle.dump(job(f"http://{host}:{port}", {0: ((OBJECT,),)}), child.stdin)
        child.stdin.flush()
        connection, _ = store.accept()
        with connection:
            assert child.poll() is None
            child.stdin.close()
            try:
                assert child.wait(30) == 1
            finally:
                child.kill()
