"""A Spark job, as the operator runs it: by ``spark-submit`` or on a Spark Connect server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from airflow_provider_kafka_s3.spark.spec import JobResult, JobSpec

__all__ = ["JobOutcome", "SparkJob"]


@dataclass(frozen=True)
class JobOutcome:
    """How a job ended.

    Attributes:
        result: of the driver; None: it wrote none.
        output: how the job failed, and below it the end of what the driver printed; empty: it ended without a failure.
        application_id: of the Spark application; None: it is not known.
    """

    result: JobResult | None
    output: str
    application_id: str | None = None


class SparkJob(Protocol):
    """One job. It runs once."""

    def run(self, spec: JobSpec) -> JobOutcome:
        """Run the job to its end.

        Args:
            spec: its ``result_path`` lies in a private folder that is there until this returns.

        Raises:
            KafkaS3Error: the job cannot be submitted.
        """
        ...

    def kill(self) -> None:
        """End the driver, at any moment, also from a signal handler."""
        ...
