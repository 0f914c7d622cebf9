"""Time zones from the ``tzdata`` package, never from the machine.

The system databases of driver and executors may have different releases. The package is a pinned dependency, so all of
them assign a record to the same hour.
"""

from __future__ import annotations

import importlib.resources
import re
import zoneinfo
from typing import Final

import tzdata  # type: ignore[import-untyped]

from airflow_provider_kafka_s3.exceptions import ConfigurationError

__all__ = ["load_zone", "package_requirement", "zone_database_version"]

_NAME: Final = re.compile(r"[A-Za-z0-9_+-]+(?:/[A-Za-z0-9_+-]+)*")


def zone_database_version() -> str:
    """Release of the IANA database, such as ``2026a``."""
    return str(tzdata.IANA_VERSION)


def package_requirement(version: str) -> str:
    """The requirement for pip of a release of the database: ``2026a`` -> ``tzdata==2026.1``."""
    release = re.fullmatch(r"(\d{4})([a-z])", version)
    return f"tzdata=={release[1]}.{ord(release[2]) - ord('a') + 1}" if release else f"tzdata=={version}"


def load_zone(name: str) -> zoneinfo.ZoneInfo:
    """The time zone of this name.

    Raises:
        ConfigurationError: the database has no such zone.
    """
    if _NAME.fullmatch(name):
        file = importlib.resources.files("tzdata").joinpath("zoneinfo", *name.split("/"))
        if file.is_file():
            with file.open("rb") as stream:
                try:
                    return zoneinfo.ZoneInfo.from_file(stream, key=name)
                except ValueError:
                    pass  # a table of the package, not a zone
    raise ConfigurationError(
        f"timezone={name!r} is not in the time zone database {zone_database_version()} (package tzdata); use an IANA "
        f"name such as 'Europe/Berlin', or upgrade tzdata"
    )
