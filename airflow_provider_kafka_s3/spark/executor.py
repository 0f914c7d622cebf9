"""What a Python worker of an executor is: which interpreter, from where it has this package, which libraries.

The executors' environment is made by somebody else, on other machines. What they run is said in the log of the task.
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
    """Say what this process is: ``Python 3.11.2 of /opt/bin/python with airflow_provider_kafka_s3-1f.zip, …``."""
    # Of a zip: …/airflow_provider_kafka_s3-<hash>.zip/airflow_provider_kafka_s3/__init__.py
    place = airflow_provider_kafka_s3.__file__.replace("\\", "/").split("/")[-3]
    package = place if place.endswith(".zip") else f"the installed {airflow_provider_kafka_s3.__name__}"
    libraries = [f"{name} {_version(name)}" for name in _LIBRARIES]
    return f"Python {platform.python_version()} of {sys.executable} with {', '.join([package, *libraries])}"


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "of unknown version"
