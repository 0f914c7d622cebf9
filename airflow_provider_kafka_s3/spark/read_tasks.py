"""Which Spark task reads which slices of an action.

A task costs more than a few records: Spark and its Python worker take a tenth of a CPU second for one. So small slices,
of any topics, are read by tasks of several slices, one after the other. Which of these tasks reads which small slice is
up to Spark; objects and their bytes are those of the plans. A slice of more offsets, and a group of slices that share
objects, have a task of their own.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Final

from msgspec import UNSET

from airflow_provider_kafka_s3.documents.plan import Plan, Slice

__all__ = ["ReadTasks"]

_SMALL: Final = 5_000
"""Offsets of a small slice at most."""

_SLICES: Final = 16
"""Small slices of a task, on average at most: each waits for the first response of its broker."""

_OFFSETS: Final = 20_000
"""Offsets of all small slices of a task, on average at most."""

_PARALLELISM: Final = 8
"""Tasks of small slices at least, if there are so many slices: their records may be large."""


class ReadTasks:
    """The tasks that read the slices of some plans.

    Args:
        plans: of different topics.
        parallelism: tasks that Spark runs at the same time, as far as known.

    Attributes:
        plans: of different topics.
        alone: slices that have a task each.
        groups: slices that share objects and have one task together.
        small: slices of the tasks that read several ones. Either none or at least two.
        landed: per task that reads the objects of another pipeline the index of the plan, and the ids of the slices.
    """

    def __init__(self, plans: Sequence[Plan], *, parallelism: int = 0) -> None:
        self.plans = plans
        self._least = max(parallelism, _PARALLELISM)
        self.landed = tuple(
            (number, tuple(s.id for s in group))
            for number, plan in enumerate(plans)
            for group in plan.grouped
            if plan.source is not UNSET
        )
        of_kafka = [plan for plan in plans if plan.source is UNSET]
        single = [(plan, group[0]) for plan in of_kafka for group in plan.grouped if len(group) == 1]
        small = [(plan, s) for plan, s in single if s.end - s.start <= _SMALL]
        self.groups = tuple((plan, group) for plan in of_kafka for group in plan.grouped if len(group) > 1)
        self.small = tuple(small) if len(small) > 1 else ()
        self.alone = tuple((plan, s) for plan, s in single if not self.small or s.end - s.start > _SMALL)

    @functools.cached_property
    def of_small(self) -> int:
        """Number of tasks that read the small slices."""
        offsets = sum(s.end - s.start for _, s in self.small)
        return max(-(-len(self.small) // _SLICES), -(-offsets // _OFFSETS), min(len(self.small), self._least))

    @property
    def count(self) -> int:
        """Number of all tasks."""
        return self.of_kafka + len(self.landed)

    @property
    def of_kafka(self) -> int:
        """Number of the tasks that read Kafka."""
        return len(self.alone) + len(self.groups) + self.of_small

    @functools.cached_property
    def _small_ids(self) -> frozenset[tuple[str, int]]:
        return frozenset((plan.topic, s.id) for plan, s in self.small)

    def is_small(self, plan: Plan, slice_: Slice) -> bool:
        """Whether a task reads this slice and others."""
        return (plan.topic, slice_.id) in self._small_ids
