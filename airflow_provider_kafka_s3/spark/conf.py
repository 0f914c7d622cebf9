"""Spark settings that the job wants, for whoever starts its session."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

__all__ = [
    "APPLICATION_FILE",
    "JOB_CONF",
    "SERVER_CONF",
    "of_server",
    "session_conf",
    "with_job_conf",
]

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
    return _under(JOB_CONF, user)


SERVER_CONF: Final[Mapping[str, str]] = MappingProxyType(
    {
        **{name: value for name, value in JOB_CONF.items() if not name.startswith("spark.sql.")},
        # The warm session of the jobs ends when nobody has used it for so long. Spark's own is 1 hour.
        "spark.connect.session.manager.defaultSessionTimeout": "6h",
    }
)
"""What a Spark Connect server should be started with: settings that no session can have."""

_OPTIONS_OF_READERS: Final = rf'(?s)key: "[^"]*{_SECRETS.replace("(?i)", "(?i:")})[^"]*"\s+value: "(?:[^"\\]|\\.)*"'
"""A reader's option with a secret name and its value, as the text of a protocol buffer."""

_SESSION_CONF: Final[Mapping[str, str]] = MappingProxyType(
    {
        **{name: value for name, value in JOB_CONF.items() if name.startswith("spark.sql.")},
        # The web interface of a Connect server shows the messages of its clients, with the options of readers.
        "spark.sql.redaction.string.regex": _OPTIONS_OF_READERS,
    }
)


def session_conf(user: Mapping[str, str]) -> dict[str, str]:
    """Settings of a session on a Spark Connect server: those of the job that a session may have, under the user's.

    What the user set wins, except that redaction only grows.
    """
    return _under(_SESSION_CONF, {name: value for name, value in user.items() if name not in of_server(user)})


def _under(ours: Mapping[str, str], user: Mapping[str, str]) -> dict[str, str]:
    grown = {
        name: f"{ours[name]}|{value}"
        for name, value in user.items()
        if "redaction" in name and name in ours and ours[name] not in value
    }
    return {**ours, **user, **grown}


def of_server(user: Mapping[str, str]) -> list[str]:
    """Names of settings that no session has: the server had to be started with them."""
    return sorted(name for name in user if not name.startswith("spark.sql."))
