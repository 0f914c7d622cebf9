"""Whether the packages for tables of Iceberg are installed, which only those need who have such tables."""

from __future__ import annotations

import importlib.util

from airflow_provider_kafka_s3.exceptions import ConfigurationError

__all__ = ["require_iceberg"]


def require_iceberg() -> None:
    """Raise ConfigurationError without pyiceberg."""
    if importlib.util.find_spec("pyiceberg") is None:
        raise ConfigurationError(
            "pyiceberg is not installed, which adds objects to tables of Iceberg. Install the extra: "
            "`pip install 'airflow-provider-kafka-s3[iceberg]'`; for Glue also `pip install 'pyiceberg[glue]'`"
        )
