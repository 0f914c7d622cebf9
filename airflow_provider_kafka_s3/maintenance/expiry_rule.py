"""Which objects of a topic are no longer needed, what keeps them nevertheless, and what a call has done about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from airflow_provider_kafka_s3.config import Landed
from airflow_provider_kafka_s3.documents.manifest import Manifest
from airflow_provider_kafka_s3.documents.plan import Plan
from airflow_provider_kafka_s3.exceptions import ConfigurationError

__all__ = ["DEFAULT_GRACE", "DEFAULT_LEAST_AGE", "CommittedBatch", "Expired", "ExpiryGuard", "ExpiryRule"]

DEFAULT_GRACE: Final = 86_400.0
"""Seconds between the record and the deletion: longer than readers and runs take that began before."""

DEFAULT_LEAST_AGE: Final = 86_400.0
"""Seconds since a batch was landed, at least, whatever the times of its records are."""

_NAMED: Final = 100
"""Objects that were not deleted and are named, at most."""

CommittedBatch = tuple[Plan, Manifest]
"""A committed batch, by its documents."""


class ExpiryGuard(Protocol):
    """Keeps what something else still needs."""

    def kept(self, batches: Sequence[CommittedBatch], *, final: bool) -> Mapping[int, str]:
        """Why batches are kept, by their numbers; all others may be deleted.

        Args:
            batches: some that would be deleted, ascending.
            final: whether they are deleted next, and not just recorded.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class ExpiryRule:
    """Which objects are no longer needed.

    Attributes:
        older_than: seconds: objects whose records are all older, and those of batches that were landed earlier; None:
            of any age, if they are landed elsewhere.
        landed_in: the pipeline that has to have their records; None: none has to.
        least_age: seconds since a batch was landed, at least.
        grace: seconds between the record and the deletion.
        tables: names of tables of the topic that guards look at, or that are gone. While the topic has another one,
            nothing is recorded or deleted.
        reason: why, for the record.
        operator: person who decides, for the record.
    """

    older_than: float | None = None
    landed_in: Landed | None = None
    least_age: float = DEFAULT_LEAST_AGE
    grace: float = DEFAULT_GRACE
    tables: frozenset[str] = frozenset()
    reason: str = "none given"
    operator: str

    def __post_init__(self) -> None:
        if self.older_than is None and self.landed_in is None:
            raise ConfigurationError(
                "it is not said which objects are no longer needed. Nothing was changed. Give their age (older_than), "
                "or the pipeline that has their records (landed_in), or both"
            )
        if min(self.older_than or 0.0, self.least_age, self.grace) < 0:
            raise ConfigurationError("older_than, least_age and grace cannot be negative. Nothing was changed")


@dataclass
class Expired:
    """What a call has done, or would do.

    Attributes:
        batches: number of batches with objects that were recorded as expired.
        recorded: number of these objects.
        recorded_size: bytes of these objects.
        deleted: number of objects that were deleted; of a dry run, that would be.
        deleted_size: their bytes.
        absent: number of objects to delete that were gone already.
        kept: batches that are kept, by the reason.
        refused: number of objects that were not deleted.
        named: keys of the first of these, with the reason.
        waiting: number of objects that are recorded and not deleted yet.
        waiting_size: their bytes.
        delete_from: when the first of these may be deleted, in seconds since the epoch; None: none waits.
    """

    batches: int = 0
    recorded: int = 0
    recorded_size: int = 0
    deleted: int = 0
    deleted_size: int = 0
    absent: int = 0
    kept: dict[str, list[int]] = field(default_factory=dict)
    refused: int = 0
    named: dict[str, str] = field(default_factory=dict)
    waiting: int = 0
    waiting_size: int = 0
    delete_from: float | None = None

    def keep(self, why: str, batch: int) -> None:
        """Note why a batch is kept."""
        numbers = self.kept.setdefault(why, [])
        if batch not in numbers[-1:]:
            numbers.append(batch)

    def refuse(self, key: str, why: str) -> None:
        """Note an object that was not deleted."""
        self.refused += 1
        if len(self.named) < _NAMED:
            self.named[key] = why
