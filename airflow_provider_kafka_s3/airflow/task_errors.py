"""Errors of a task: Airflow's exceptions, with or without a retry, and the message formatted for the log.

Airflow's UI shows an exception on one line, of which only the beginning is visible, so the message is logged before, on
several lines. Airflow then logs the exception with its traceback. So the message stands at its end, too, with what to
do and the address of the page in the last lines; the tracebacks of what the error came from are logged before, at
DEBUG.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException  # noqa: TID253 - light, and loaded

from airflow_provider_kafka_s3.exceptions import KafkaS3Error, TerminalError, message_of
from airflow_provider_kafka_s3.messages import readable

__all__ = ["as_task_error", "page_line", "task_error"]


def task_error(
    log: Any, message: str, *, terminal: bool, level: int = logging.ERROR, cause: BaseException | None = None
) -> AirflowException:
    """Log a message, and return the exception that fails the task, to be raised without ``from``.

    Args:
        log: logger of the task.
        message: what happened, and what to do.
        terminal: whether a retry cannot succeed.
        level: level of the log lines.
        cause: of the error. Its traceback is logged at DEBUG; or it stays part of that of the exception, if it is no
            error of this package, so that nobody knows what to do.

    Returns:
        ``AirflowFailException`` or ``AirflowException``, to be raised.
    """
    error = (AirflowFailException if terminal else AirflowException)(message)
    error.__suppress_context__ = True
    if cause is not None and not _is_expected(cause):
        error.__cause__ = cause
    elif cause is not None:
        log.debug("the error came from:", exc_info=cause)
    shown = readable(message)
    log.log(level, "%s", shown)
    if "\n" in shown:
        error.add_note(shown)
    return error


def _is_expected(cause: BaseException) -> bool:
    if isinstance(cause, BaseExceptionGroup):
        return all(_is_expected(error) for error in cause.exceptions)
    return isinstance(cause, KafkaS3Error)


@contextlib.contextmanager
def as_task_error(log: Any, *, level: int = logging.ERROR, page: Callable[[], str] = str) -> Iterator[None]:
    """Convert errors of this package to Airflow's exceptions, see :func:`task_error`.

    Args:
        log: logger of the task.
        level: level of the log lines.
        page: gives the line of :func:`page_line`, which an error ends with.
    """
    try:
        yield
    except KafkaS3Error as e:
        message = message_of(e) + page()
        error = task_error(log, message, terminal=isinstance(e, TerminalError), level=level, cause=e)
        raise error from error.__cause__


def page_line(operator: Any, topics: Sequence[str]) -> str:
    """The last line of a message: where people see the state of topics; empty if Airflow's page does not show them.

    Args:
        operator: with ``bucket``, ``topics_dir`` and ``pipeline``.
        topics: for one, its own page; for others, the list of all.
    """
    from airflow_provider_kafka_s3.airflow.ui.address import page_address

    topic = topics[0] if len(topics) == 1 else None
    # A wrong setting of the page hides no error of the task.
    with contextlib.suppress(KafkaS3Error):
        if address := page_address(operator.bucket, operator.topics_dir, operator.pipeline, topic):
            return f"\nThe page: {address}"
    return ""
