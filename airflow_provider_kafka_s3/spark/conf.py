"""The Spark settings of the job."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

__all__ = [
    "APPLICATION_FILE",
    "JOB_CONF",
    "SERVER_CONF",
    "SMALL_JOB",
    "of_server",
    "session_conf",
    "start_conf",
    "with_job_conf",
]

_SECRETS: Final = "(?i)secret|password|passwd|token|credential|access[._]?key|jaas|ssl[._]key|keystore"

JOB_CONF: Final[Mapping[str, str]] = MappingProxyType(
    {
        # Rows are small (see packing.py), so their number bounds the bytes of one batch in a Python worker. Spark's own
        # limit on bytes is off: a smaller one is measured after every record.
        "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
        "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
        # Spark keeps consumers and excess fetched data for later reads in the same group. Every frame has its own
        # group, so there are none, and five minutes (Spark's default) of these fill the heap of a long job.
        "spark.kafka.consumer.cache.timeout": "10s",
        "spark.kafka.consumer.cache.evictorThreadRunInterval": "10s",
        "spark.kafka.consumer.fetchedData.cache.timeout": "10s",
        "spark.kafka.consumer.fetchedData.cache.evictorThreadRunInterval": "10s",
        # One task is one slice: tasks must be neither joined nor split.
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        # Spark's own patterns cover neither JAAS nor the options of a reader.
        "spark.redaction.regex": _SECRETS,
        "spark.sql.redaction.options.regex": f"{_SECRETS}|url",
        # The driver's log ends up in the task's log.
        "spark.log.level": "WARN",
    }
)
"""Settings of the job. Correctness does not depend on them; memory, log volume and secrecy do.

A local master should be ``local[N,4]``: ``local[N]`` never retries a task. ``spark.speculation`` is harmless and has no
benefit.
"""


APPLICATION_FILE: Final = "spark.kafkaToS3.applicationFile"
"""Setting with the path of the file to which the driver writes the id of its Spark application."""


SMALL_JOB: Final = 2_000_000
"""Offsets up to which a job ends so soon that its start counts."""


def with_job_conf(user: Mapping[str, str]) -> dict[str, str]:
    """The job's settings, overridden by the user's, except that redaction patterns are combined."""
    return _merged(JOB_CONF, user)


def start_conf(master: str, *, offsets: int, installed: bool) -> dict[str, str]:
    """Settings with which a job begins sooner; those of the user have precedence.

    Args:
        master: of the job.
        offsets: that it reads.
        installed: whether the Python of the workers, if they run on this machine, has this package.
    """
    conf = {}
    if offsets <= SMALL_JOB:
        # The web interface takes a CPU second to start. Events for Spark's history server do not need it.
        conf["spark.ui.enabled"] = "false"
    if installed and master.startswith("local"):
        conf["spark.python.daemon.module"] = "airflow_provider_kafka_s3.spark.worker_daemon"
    return conf


SERVER_CONF: Final[Mapping[str, str]] = MappingProxyType(
    {
        **{name: value for name, value in JOB_CONF.items() if not name.startswith("spark.sql.")},
        # Idle time after which the shared session of the jobs ends. Spark's default is 1 hour.
        "spark.connect.session.manager.defaultSessionTimeout": "6h",
    }
)
"""Settings with which a Spark Connect server should be started, since sessions cannot set them."""

_OPTIONS_OF_READERS: Final = rf'(?s)key: "[^"]*{_SECRETS.replace("(?i)", "(?i:")})[^"]*"\s+value: "(?:[^"\\]|\\.)*"'
"""A secret option of a reader and its value, in the text format of protocol buffers."""

_SESSION_CONF: Final[Mapping[str, str]] = MappingProxyType(
    {
        **{name: value for name, value in JOB_CONF.items() if name.startswith("spark.sql.")},
        # The web interface of a Connect server shows its clients' messages, including the options of readers.
        "spark.sql.redaction.string.regex": _OPTIONS_OF_READERS,
    }
)


def session_conf(user: Mapping[str, str]) -> dict[str, str]:
    """Settings of a session on a Spark Connect server: the job's session settings, overridden by the user's.

    Redaction patterns are combined.
    """
    return _merged(_SESSION_CONF, {name: value for name, value in user.items() if name not in of_server(user)})


def _merged(defaults: Mapping[str, str], user: Mapping[str, str]) -> dict[str, str]:
    redaction = {
        name: f"{defaults[name]}|{value}"
        for name, value in user.items()
        if "redaction" in name and name in defaults and defaults[name] not in value
    }
    return {**defaults, **user, **redaction}


def of_server(user: Mapping[str, str]) -> list[str]:
    """Names of settings that a session cannot set: the server has to be started with them."""
    return sorted(name for name in user if not name.startswith("spark.sql."))
