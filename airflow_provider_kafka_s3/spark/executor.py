"""Describes the Python environment of an executor: its interpreter, the origin of this package, its libraries.

Executors run on other machines, with an environment that others set up. The log of the Airflow task shows it.
"""

from __future__ import annotations

import functools
import platform
import sys
from importlib import metadata
from typing import Final

import airflow_provider_kafka_s3

__all__ = ["python_of_worker"]

_LIBRARIES: Final = ("boto3", "isal", "msgspec", "numpy", "pyarrow")
"""Distributions that write the objects."""


@functools.cache
def python_of_worker() -> str:
    """Description of this process: ``Python 3.11.2 of /opt/bin/python with airflow_provider_kafka_s3-1f.zip, …``."""
    # In a zip: …/airflow_provider_kafka_s3-<hash>.zip/airflow_provider_kafka_s3/__init__.py
    parent = airflow_provider_kafka_s3.__file__.replace("\\", "/").split("/")[-3]
    package = parent if parent.endswith(".zip") else f"the installed {airflow_provider_kafka_s3.__name__}"
    libraries = [f"{name} {_version(name)}" for name in _LIBRARIES]
    return f"Python {platform.python_version()} of {sys.executable} with {', '.join([package, *libraries])}"


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "of unknown version"
