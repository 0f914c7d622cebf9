"""Which Spark this environment has, and whether its parts are of one version.

Only metadata is read: importing pyspark takes half a second, and a mixture of two versions may not even be importable.
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
    "reinstall",
    "require",
]

TESTED: Final = ("4.0.0", "4.2.0")
"""Versions of Spark that the tests run with, the oldest first. The extra ``spark`` installs the last one."""

_BELOW: Final = (4, 3)
"""Of a minor version that is tested, the later patches are taken. This one is not tested."""

_DISTRIBUTIONS: Final = ("pyspark", "pyspark-client")
"""They install the same files, pyspark more of them. Airflow's Spark provider depends on the client."""

_COORDINATES: Final = re.compile(rf"org\.apache\.spark:{CONNECTOR}_([\d.]+):([^:\s]+)")
_JAR: Final = re.compile(rf"{CONNECTOR}_([\d.]+)-(.+)\.jar")
_TOKEN_PROVIDER: Final = re.compile(r"spark-token-provider-kafka-0-10_([\d.]+)-(\d+)\..+\.jar")


class Flaw(NamedTuple):
    """What does not fit, and what to do about it.

    Attributes:
        what: begins with the cause.
        fix: begins with a verb.
    """

    what: str
    fix: str


def installed_versions() -> dict[str, str]:
    """The versions of pyspark and pyspark-client, of those that are installed."""
    found = {}
    for name in _DISTRIBUTIONS:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def require(flaw: Flaw | None) -> None:
    """Raise a flaw, if there is one.

    Raises:
        ConfigurationError: there is one.
    """
    if flaw is not None:
        raise ConfigurationError(f"{flaw.what}. To mend it, {flaw.fix}")


def pyspark_flaw(versions: Mapping[str, str]) -> Flaw | None:
    """Why these distributions cannot be used together, or at all.

    Args:
        versions: as :func:`installed_versions` returns them; a distribution that is not there is no flaw.
    """
    told = " and ".join(f"{name} {version}" for name, version in versions.items())
    if len(set(versions.values())) > 1:
        return Flaw(
            f"{told} do not fit together: they install the same files, so each has overwritten some of the other",
            f"install one version of both: `{reinstall(versions)}`",
        )
    if any(not release_of(TESTED[0]) <= release_of(version) < _BELOW for version in versions.values()):
        below = ".".join(map(str, _BELOW))
        return Flaw(
            f"{told}: only Spark from {TESTED[0]} to below {below} is supported here",
            f"install one that is tested: `{reinstall(versions)}`",
        )
    return None


def reinstall(versions: Mapping[str, str]) -> str:
    """The command that puts one version of both distributions in place of what is installed.

    Both are removed first: whichever pip removes later would take files of the other one along.
    """
    # Tested versions exist of both, whereas not every version of pyspark has a client.
    version = next((v for v in versions.values() if v in TESTED), TESTED[-1])
    wanted = " ".join(f"'{name}=={version}'" for name in _DISTRIBUTIONS)
    return f"pip uninstall --yes {' '.join(_DISTRIBUTIONS)} && pip install {wanted}"


def connector_flaw(pyspark: str, *, packages: Iterable[str] = (), jars: Iterable[str] = ()) -> Flaw | None:
    """Why the Kafka connector that a job gets does not fit its Spark.

    Args:
        pyspark: version of Spark. What a vendor appends to the numbers of a release does not count.
        packages: Maven coordinates, comma-separated in each text.
        jars: paths or URLs, comma-separated in each text. A name without a version is not judged.
    """
    pyspark = plain_version(pyspark)
    for name in _parts(packages):
        found = _COORDINATES.fullmatch(name)
        if found is not None and (found[1], plain_version(found[2])) != (SCALA, pyspark):
            return Flaw(
                f"packages={name!r} is the Kafka connector of another Spark: pyspark {pyspark} is installed",
                f"use packages={coordinates(pyspark)!r}",
            )
    for path in _parts(jars):
        name = path.rpartition("/")[2]
        connector, provider = _JAR.fullmatch(name), _TOKEN_PROVIDER.fullmatch(name)
        # The connector calls little of the provider, which has stayed as it was: that of any Spark 4 fits.
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
