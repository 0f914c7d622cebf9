"""What changes where a run has another layout than the batches before it, for people: no decision depends on it."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from airflow_provider_kafka_s3.documents.codec import builtins, printable
from airflow_provider_kafka_s3.exceptions import KafkaS3Error, LogTamperedError
from airflow_provider_kafka_s3.messages import few

if TYPE_CHECKING:
    from airflow_provider_kafka_s3.batch.log import TopicLog
    from airflow_provider_kafka_s3.batch.view import View
    from airflow_provider_kafka_s3.config import Layout
    from airflow_provider_kafka_s3.documents.log_index import IndexedBatch

__all__ = ["LayoutPeriod", "last_layout_period", "layout_changes", "warn_if_layout_changes"]

log = logging.getLogger(__name__)

_SHOWN: Final = 80
"""Characters of a value; a declared schema may have thousands."""

_LOOK_BACK: Final = 5
"""Batches to look at; all of them may be resets."""

_NONE: Final = object()


def warn_if_layout_changes(topic_log: TopicLog, view: View, layout: Layout) -> None:
    """Warn if the batch that is planned next will have another layout than the last one before it.

    Args:
        topic_log: the control documents of the topic.
        view: of the log.
        layout: of the next batch.
    """
    for batch in range(view.next - 1, max(0, view.next - 1 - _LOOK_BACK), -1):
        try:
            plan = topic_log.read_plan(batch)
        except KafkaS3Error:
            return  # Nothing depends on it.
        if batch not in view.open_plans:
            topic_log.forget(batch)
        if plan is None:
            return
        if plan.layout is None:
            continue  # A reset has none.
        if changes := layout_changes(plan.layout, layout):
            log.warning(
                "topic %s: the layout of objects changes from batch %d on: %s. Objects of earlier batches keep theirs",
                topic_log.topic,
                view.next,
                few(changes, by="; "),
            )
        return


@dataclass(frozen=True)
class LayoutPeriod:
    """Consecutive batches of data with one layout.

    Attributes:
        layout: of the last one of them.
        first: number of the first one.
        changes: settings in which the layout before it differs; empty: there is no batch of data before it.
    """

    layout: Layout
    first: int
    changes: tuple[str, ...]


def last_layout_period(topic_log: TopicLog, batches: Sequence[IndexedBatch]) -> LayoutPeriod | None:
    """The layout of the newest batch of data, and since which batch it holds; None: there is no such batch.

    Reads a plan for each layout of each index document back to the last change.

    Args:
        topic_log: the control documents of the topic.
        batches: of :func:`~airflow_provider_kafka_s3.batch.log_index.indexed_batches`, ascending.

    Raises:
        ControlError: a plan is gone or cannot be trusted.
        TransientError: try again.
    """
    newest: Layout | None = None
    first = 0
    alike: set[int] = set()
    for batch in reversed(batches):
        like = batch.same_layout_as
        if like is None:
            continue
        if newest is None:
            newest = _layout(topic_log, batch.batch)
        if like not in alike:
            if changes := layout_changes(_layout(topic_log, like), newest):
                return LayoutPeriod(newest, first, tuple(changes))
            alike.add(like)
        first = batch.batch
    return None if newest is None else LayoutPeriod(newest, first, ())


def _layout(topic_log: TopicLog, batch: int) -> Layout:
    plan, _ = topic_log.require_plan(batch)
    if plan.layout is None:
        raise LogTamperedError(
            f"topic {topic_log.topic!r}: the index of the log has batch {batch} as one of data, and its plan is none. "
            f"Write the index again: {topic_log.remedies.repair('--every-document')}. The plan: "
            f"{topic_log.plan_url(batch)}"
        )
    return plan.layout


def layout_changes(before: Layout, now: Layout) -> list[str]:
    """The settings in which two layouts differ, such as ``format.compression: None -> 'gzip'``.

    The time of the clock that a plan pins is none of them.
    """
    return list(_differences("", builtins(before.at(0)), builtins(now.at(0))))


def _differences(name: str, before: Any, now: Any) -> Iterator[str]:
    if before == now:
        return
    if isinstance(before, dict) and isinstance(now, dict):
        # Of another kind, a format or a partitioner has other settings: each of them would be a change.
        if (kind := before.get("kind")) != now.get("kind"):
            yield f"{name}: {kind} -> {now.get('kind')}"
            return
        for field in {**before, **now}:
            yield from _differences(
                f"{name}.{field}" if name else field, before.get(field, _NONE), now.get(field, _NONE)
            )
    elif isinstance(before, list | tuple) and isinstance(now, list | tuple) and len(before) == len(now):
        for i, (old, new) in enumerate(zip(before, now, strict=True)):
            yield from _differences(f"{name}[{i}]", old, new)
    else:
        yield f"{name}: {_shown(before)} -> {_shown(now)}"


def _shown(value: object) -> str:
    return "not set" if value is _NONE else printable(repr(value), shown=_SHOWN)
