"""Settings of a worker in the section ``kafka_s3`` of Airflow's configuration."""

from __future__ import annotations

from typing import Final

from airflow.providers.common.compat.sdk import conf  # noqa: TID253 - light, and loaded

from airflow_provider_kafka_s3.exceptions import ConfigurationError

__all__ = ["warm_driver_seconds"]

_DAY: Final = 86_400


def warm_driver_seconds() -> int:
    """Seconds for which a process with the modules of a driver waits for the next job of this worker; 0: there is none.

    Raises:
        ConfigurationError: it is no number of seconds.
    """
    value = conf.get("kafka_s3", "warm_driver_seconds", fallback="0") or "0"
    if value.isascii() and value.isdigit() and int(value) <= _DAY:
        return int(value)
    raise ConfigurationError(
        f"warm_driver_seconds={value!r} of the section kafka_s3 of Airflow's configuration is no whole number of "
        f"seconds from 0 to {_DAY:,}; 0: every job starts a driver of its own"
    )
