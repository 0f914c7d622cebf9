"""Errors of a task: Airflow's exceptions, with or without a retry, and the message formatted for the log.

Airflow's UI shows an exception on one line, of which only the beginning is visible, so the message is logged before, on
several lines.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import Any

from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException  # noqa: TID253 - light, and loaded

from airflow_provider_kafka_s3.exceptions import KafkaS3Error, TerminalError, message_of
from airflow_provider_kafka_s3.messages import readable

__all__ = ["as_task_error", "task_error"]


def task_error(log: Any, message: str, *, terminal: bool, level: int = logging.ERROR) -> AirflowException:
    """Log a message, and return the exception that fails the task.

    Args:
        log: logger of the task.
        message: what happened, and what to do.
        terminal: whether a retry cannot succeed.
        level: level of the log lines.

    Returns:
        ``AirflowFailException`` or ``AirflowException``, to be raised.
    """
    log.log(level, "%s", readable(message))
    return (AirflowFailException if terminal else AirflowException)(message)


@contextlib.contextmanager
def as_task_error(log: Any, *, level: int = logging.ERROR) -> Iterator[None]:
    """Convert errors of this package to Airflow's exceptions, see :func:`task_error`."""
    try:
        yield
    except KafkaS3Error as e:
        raise task_error(log, message_of(e), terminal=isinstance(e, TerminalError), level=level) from e
