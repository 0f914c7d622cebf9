"""The Spark that runs a job."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["SparkTarget"]


@dataclass(frozen=True)
class SparkTarget:
    """The Spark that runs a job, from a Spark connection.

    Attributes:
        master: as ``spark-submit`` takes it.
        deploy_mode: of the connection; None: Spark's default, ``client``.
        spark_binary: command in the connection, or None.
        history_url: address of the Spark history server, or None.
        connect_url: of a Spark Connect server, with its token; None: ``spark-submit`` starts the job.
    """

    master: str
    deploy_mode: str | None
    spark_binary: str | None
    history_url: str | None = None
    connect_url: str | None = field(default=None, repr=False)

    @property
    def is_local(self) -> bool:
        """Whether driver and executors are one process on this machine."""
        return self.master == "local" or self.master.startswith("local[")
