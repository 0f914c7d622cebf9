"""The process that sends the records of a replay, as the one that starts it sees it.

It is no child of `multiprocessing`: the workers of Celery are daemonic processes, which may not have those. It gets its
job, with secrets, by its standard input, and ends when this is closed: at the latest when its parent has ended, however
that ends.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import pickle
import subprocess
import sys
from typing import IO, Final

from airflow_provider_kafka_s3.exceptions import KafkaUnavailableError, TransientError, error_of_kind
from airflow_provider_kafka_s3.replay.job import ReplayJob

__all__ = ["ReplayProcess"]

log = logging.getLogger(__name__)

_CHILD: Final = "airflow_provider_kafka_s3.replay.child"
_PATIENCE: Final = 10.0
"""Seconds in which a process ends that has given its result."""


class ReplayProcess:
    """Sends by a process, and by another one if that ends without a result; after :meth:`kill` by none any more."""

    def __init__(self) -> None:
        self._running: subprocess.Popen[bytes] | None = None
        self._killed = False

    def kill(self) -> None:
        """End the process, and start no other one. May be called at any time, also from a signal handler."""
        self._killed = True
        if (running := self._running) is not None:
            running.kill()

    def send(self, job: ReplayJob) -> dict[int, int]:
        """Run a job to its end.

        Returns:
            Number of records that were sent, by this process and earlier ones, per Kafka partition.

        Raises:
            TransientError: it was killed.
            KafkaUnavailableError: the process ended without a result.
            KafkaS3Error: that of the process.
        """
        self._require_not_killed(job)
        # Modules are found where this process finds them, but not in the folder that it happens to be in.
        path = os.pathsep.join(map(os.path.abspath, sys.path))
        child = subprocess.Popen(
            [sys.executable, "-P", "-m", _CHILD],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path},
        )
        self._running = child
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            if self._killed:
                # It was called before the process was known.
                child.kill()
            # It may have ended already: then its output ends, too.
            with contextlib.suppress(BrokenPipeError):
                pickle.dump(job, child.stdin)
                child.stdin.flush()
            result = self._result(child.stdout)
        finally:
            with contextlib.suppress(BrokenPipeError):
                child.stdin.close()
            _end(child)
            child.stdout.close()
            self._running = None
        self._require_not_killed(job)
        if result is None:
            raise KafkaUnavailableError(
                f"the process that sent replay {job.plan.replay!r} ended with exit code {child.returncode}, without a "
                f"result. What it has sent is known: repeat the replay, and it continues"
            )
        return result

    def _result(self, output: IO[bytes]) -> dict[int, int] | None:
        """What the process sends back; None: it ended before."""
        for line in output:
            if not line.endswith(b"\n"):
                break
            kind, content = json.loads(line)
            if kind == "sent":
                return {int(partition): number for partition, number in content.items()}
            if kind == "error":
                name, message, repeatable = content
                error = error_of_kind(name, message)
                if isinstance(error, TransientError):
                    error.repeatable = repeatable
                raise error
            log.info("%s", content)
        return None

    def _require_not_killed(self, job: ReplayJob) -> None:
        if self._killed:
            error = TransientError(
                f"replay {job.plan.replay!r} to topic {job.plan.target!r} was killed. What it has sent is known: "
                f"repeat it with the same id, and it continues"
            )
            error.repeatable = False
            raise error


def _end(child: subprocess.Popen[bytes]) -> None:
    """Wait for the end of a process whose input is closed."""
    try:
        child.wait(_PATIENCE)
    except subprocess.TimeoutExpired:
        pass
    finally:
        child.kill()
        child.wait()
