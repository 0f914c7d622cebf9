"""The interface of a Spark job, run by ``spark-submit`` or on a Spark Connect server."""

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
        result: result of the driver; None if it wrote none.
        output: the failure, followed by the end of the driver's output; empty if the job did not fail.
        application_id: of the Spark application; None if unknown.
    """

    result: JobResult | None
    output: str
    application_id: str | None = None


class SparkJob(Protocol):
    """One job. It runs once."""

    def run(self, spec: JobSpec) -> JobOutcome:
        """Run the job to its end.

        Args:
            spec: its ``result_path`` is in a private folder that exists until this returns.

        Raises:
            KafkaS3Error: the job cannot be submitted.
        """
        ...

    def kill(self) -> None:
        """End the driver. May be called at any time, also from a signal handler."""
        ...
