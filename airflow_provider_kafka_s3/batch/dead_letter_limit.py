"""How many dead letters a run may have."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_provider_kafka_s3.documents.plan import Plan
from airflow_provider_kafka_s3.exceptions import RecordError

__all__ = ["DeadLetterLimit"]


@dataclass(frozen=True)
class DeadLetterLimit:
    """How many dead letters a batch may have.

    Attributes:
        most: of all batches of the topic that the run lands.
        landed: of the other batches that the run has landed.
    """

    most: int
    landed: int = 0

    @property
    def left(self) -> int:
        """Dead letters that the batch may have."""
        return max(0, self.most - self.landed)

    def error(self, plan: Plan, last: str) -> RecordError:
        """The error of a batch with more; ``last`` is the first one too many, or their number."""
        before = f" in this run, {self.landed:,} of them in batches that are landed" if self.landed else ""
        return RecordError(
            f"batch {plan.batch} of topic {plan.topic!r} has more dead letters than "
            f"max_dead_letters={self.most}{before}. Nothing of the batch was landed. Correct the converter or the "
            f"producer, or raise max_dead_letters. {last}"
        )
