"""Checks the versions of the installed Spark and its connector.

Only metadata is read: importing pyspark takes half a second, and a mixture of two versions may not be importable.
"""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.spark.connector import CONNECTOR, SCALA, coordinates, plain_version, release_of

__all__ = [
    "TESTED",
    "Flaw",
    "connector_flaw",
    "installed_versions",
    "pyspark_flaw",
    "raise_flaw",
    "reinstall",
]

TESTED: Final = ("4.0.0", "4.2.0")
"""Versions of Spark that the tests run with, the oldest first. The extra ``spark`` installs the last one."""

_BELOW: Final = (4, 3)
"""First unsupported version. Later patches of a tested minor version are supported."""

_DISTRIBUTIONS: Final = ("pyspark", "pyspark-client")
"""Both install the same files, pyspark some more. Airflow's Spark provider depends on the client."""

_COORDINATES: Final = re.compile(rf"org\.apache\.spark:{CONNECTOR}_([\d.]+):([^:\s]+)")
_JAR: Final = re.compile(rf"{CONNECTOR}_([\d.]+)-(.+)\.jar")
_TOKEN_PROVIDER: Final = re.compile(r"spark-token-provider-kafka-0-10_([\d.]+)-(\d+)\..+\.jar")


class Flaw(NamedTuple):
    """An incompatibility, and its remedy.

    Attributes:
        what: the problem; begins with the cause.
        fix: the remedy; begins with a verb.
    """

    what: str
    fix: str


def installed_versions() -> dict[str, str]:
    """The versions of pyspark and pyspark-client, as far as they are installed."""
    versions = {}
    for name in _DISTRIBUTIONS:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def raise_flaw(flaw: Flaw | None) -> None:
    """Raise a flaw, if there is one.

    Raises:
        ConfigurationError: there is one.
    """
    if flaw is not None:
        raise ConfigurationError(f"{flaw.what}. To fix it, {flaw.fix}")


def pyspark_flaw(versions: Mapping[str, str]) -> Flaw | None:
    """The flaw of these distributions, if they cannot be used together, or at all.

    Args:
        versions: as :func:`installed_versions` returns them; a missing distribution is not a flaw.
    """
    installed = " and ".join(f"{name} {version}" for name, version in versions.items())
    if len(set(versions.values())) > 1:
        return Flaw(
            f"{installed} are incompatible: they install the same files, so each has overwritten some of the other",
            f"install one version of both: `{reinstall(versions)}`",
        )
    if any(not release_of(TESTED[0]) <= release_of(version) < _BELOW for version in versions.values()):
        below = ".".join(map(str, _BELOW))
        return Flaw(
            f"{installed}: only Spark from {TESTED[0]} to below {below} is supported",
            f"install a tested version: `{reinstall(versions)}`",
        )
    return None


def reinstall(versions: Mapping[str, str]) -> str:
    """The command that replaces both distributions with one version.

    Both are removed first: pip would remove files of the other distribution with each.
    """
    # Tested versions exist of both; not every version of pyspark has a client.
    version = next((v for v in versions.values() if v in TESTED), TESTED[-1])
    requirements = " ".join(f"'{name}=={version}'" for name in _DISTRIBUTIONS)
    return f"pip uninstall --yes {' '.join(_DISTRIBUTIONS)} && pip install {requirements}"


def connector_flaw(pyspark: str, *, packages: Iterable[str] = (), jars: Iterable[str] = ()) -> Flaw | None:
    """The flaw of a job's Kafka connector, if it is incompatible with its Spark.

    Args:
        pyspark: version of Spark. A suffix that a vendor appends to the release is ignored.
        packages: Maven coordinates, comma-separated in each text.
        jars: paths or URLs, comma-separated in each text. A name without a version is not checked.
    """
    pyspark = plain_version(pyspark)
    for name in _parts(packages):
        match = _COORDINATES.fullmatch(name)
        if match is not None and (match[1], plain_version(match[2])) != (SCALA, pyspark):
            return Flaw(
                f"packages={name!r} is the Kafka connector of another Spark: pyspark {pyspark} is installed",
                f"use packages={coordinates(pyspark)!r}",
            )
    for path in _parts(jars):
        name = path.rpartition("/")[2]
        connector, provider = _JAR.fullmatch(name), _TOKEN_PROVIDER.fullmatch(name)
        # The part of the provider that the connector uses is the same in every Spark 4.
        if (connector and (connector[1], plain_version(connector[2])) != (SCALA, pyspark)) or (
            provider and provider.groups() != (SCALA, pyspark.partition(".")[0])
        ):
            return Flaw(
                f"{name} among the jars is of another Spark: pyspark {pyspark} is installed",
                f"use the jars of {coordinates(pyspark)}",
            )
    return None


def _parts(texts: Iterable[str]) -> list[str]:
    return [part.strip() for text in texts for part in text.split(",") if part.strip()]
