"""Whether the packages for tables of Iceberg and Hive are installed, which only those need who have such tables."""

from __future__ import annotations

import importlib.util

from airflow_provider_kafka_s3.exceptions import ConfigurationError

__all__ = ["require_hive", "require_iceberg"]


def require_iceberg() -> None:
    """Raise ConfigurationError without pyiceberg."""
    if importlib.util.find_spec("pyiceberg") is None:
        raise ConfigurationError(
            "pyiceberg is not installed, which adds objects to tables of Iceberg. Install the extra: "
            "`pip install 'airflow-provider-kafka-s3[iceberg]'`; for Glue also `pip install 'pyiceberg[glue]'`"
        )


def require_hive() -> None:
    """Raise ConfigurationError without the Thrift client of a Hive metastore."""
    if any(importlib.util.find_spec(name) is None for name in ("hive_metastore", "thrift")):
        raise ConfigurationError(
            "the client of a Hive metastore is not installed, which adds partitions to its tables. Install the extra: "
            "`pip install 'airflow-provider-kafka-s3[hive]'`"
        )
