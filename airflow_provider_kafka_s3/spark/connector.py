"""Maven coordinates of the Kafka connector of a Spark."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["CONNECTOR", "SCALA", "connector_package", "coordinates", "plain_version", "release_of"]

SCALA: Final = "2.13"
"""Version of Scala that pyspark is built with."""

CONNECTOR: Final = "spark-sql-kafka-0-10"
"""Artifact of the connector, without the version of Scala."""


def coordinates(version: str, *, scala: str = SCALA) -> str:
    """Maven coordinates of the Kafka connector of a version of Spark."""
    return f"org.apache.spark:{CONNECTOR}_{scala}:{plain_version(version)}"


def connector_package() -> str:
    """Maven coordinates of the Kafka connector for the Spark of this driver."""
    from pyspark import __version__

    return coordinates(__version__)


def plain_version(version: str) -> str:
    """``4.0.1`` of ``4.0.1+vendor.1``."""
    return ".".join(map(str, release_of(version))) or version


def release_of(version: str) -> tuple[int, ...]:
    """The release numbers at the start of a version."""
    numbers = re.match(r"\d+(?:\.\d+)*", version)
    return () if numbers is None else tuple(map(int, numbers[0].split(".")))
