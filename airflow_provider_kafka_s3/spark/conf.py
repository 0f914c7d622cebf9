"""Spark settings that the job wants, for whoever starts its session."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

__all__ = ["APPLICATION_FILE", "JOB_CONF", "connector_package", "with_job_conf"]

_SECRETS: Final = "(?i)secret|password|passwd|token|credential|access[._]?key|jaas|ssl[._]key|keystore"

JOB_CONF: Final[Mapping[str, str]] = MappingProxyType(
    {
        # Rows are small (see wire.py), so their number bounds what one batch brings into a Python worker. Spark's own
        # bound on bytes is off: a smaller one is measured after every record.
        "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
        "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
        # Consumers and what they fetched too much are kept for whoever reads on in the same group, which nobody does:
        # every frame has a group of its own. Five minutes (Spark's default) of that fill the heap of a long job.
        "spark.kafka.consumer.cache.timeout": "10s",
        "spark.kafka.consumer.cache.evictorThreadRunInterval": "10s",
        "spark.kafka.consumer.fetchedData.cache.timeout": "10s",
        "spark.kafka.consumer.fetchedData.cache.evictorThreadRunInterval": "10s",
        # One task is one slice: nothing may join tasks or cut them.
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        # Spark's own patterns do not know JAAS, nor the options of a reader.
        "spark.redaction.regex": _SECRETS,
        "spark.sql.redaction.options.regex": f"{_SECRETS}|url",
        # The driver's log ends up in the task's log.
        "spark.log.level": "WARN",
    }
)
"""Settings of the job; correctness depends on none of them, memory, noise and secrecy do.

A local master should be ``local[N,4]``: ``local[N]`` never tries a task again. ``spark.speculation`` is harmless and
useless.
"""


APPLICATION_FILE: Final = "spark.kafkaToS3.applicationFile"
"""Setting that says where the driver writes the id of its Spark application, for whoever wants to look it up."""


def with_job_conf(user: Mapping[str, str]) -> dict[str, str]:
    """The job's settings under the user's: what the user set wins, except that redaction only grows."""
    conf = {**JOB_CONF, **user}
    for name in ("spark.redaction.regex", "spark.sql.redaction.options.regex"):
        if name in user and JOB_CONF[name] not in user[name]:
            conf[name] = f"{JOB_CONF[name]}|{user[name]}"
    return conf


def connector_package() -> str:
    """Maven coordinates of the Kafka connector that fits the installed pyspark."""
    from pyspark import __version__

    return f"org.apache.spark:spark-sql-kafka-0-10_2.13:{__version__}"
