"""How a task fails: Airflow's exception, by which a retry follows or not, and the message laid out in the log.

Airflow's UI shows the head of an exception in one line and leaves the rest to a scroll bar, so the way out is logged in
lines of its own before.
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
    """Log a message, and make the exception that a task fails with.

    Args:
        log: of the task.
        message: what happened, and how to mend it.
        terminal: whether trying again cannot help.
        level: of the log's lines.

    Returns:
        ``AirflowFailException`` or ``AirflowException``, to be raised.
    """
    log.log(level, "%s", readable(message))
    return (AirflowFailException if terminal else AirflowException)(message)


@contextlib.contextmanager
def as_task_error(log: Any, *, level: int = logging.ERROR) -> Iterator[None]:
    """Turn the errors of this package into those that Airflow knows, see :func:`task_error`."""
    try:
        yield
    except KafkaS3Error as e:
        raise task_error(log, message_of(e), terminal=isinstance(e, TerminalError), level=level) from e
