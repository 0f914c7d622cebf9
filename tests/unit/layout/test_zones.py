"""Time zones: the package's database, not the machine's."""

from __future__ import annotations

import importlib.metadata
import importlib.resources
from datetime import UTC, datetime
from typing import Any

import pytest

from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.layout.zones import load_zone, package_requirement, zone_database_version


def test_zones_come_from_the_package_and_not_from_the_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """With or without another database on the machine, local times are the same."""
    monkeypatch.setenv("PYTHONTZPATH", str(tmp_path))
    monkeypatch.setattr("zoneinfo.TZPATH", (str(tmp_path),))
    (tmp_path / "Europe").mkdir()
    (tmp_path / "Europe" / "Berlin").write_bytes(
        importlib.resources.files("tzdata").joinpath("zoneinfo", "Asia", "Tokyo").read_bytes()
    )
    noon = datetime(2026, 7, 1, 12, tzinfo=UTC).astimezone(load_zone("Europe/Berlin"))
    assert noon.hour == 14


@pytest.mark.parametrize(
    "name", ["UTC", "America/Argentina/Buenos_Aires", "Etc/GMT+5", "CET", "America/Port-au-Prince"]
)
def test_iana_names_are_supported(name: str) -> None:
    """Also names in folders of folders, and with signs."""
    assert load_zone(name).key == name


@pytest.mark.parametrize(
    "name", ["LLL", "", "Mars/Olympus", "../zones", "/etc/passwd", "America", "zone.tab", "iso3166.tab"]
)
def test_other_names_are_refused(name: str) -> None:
    """TE4: neither unknown names nor other files of the package or the machine."""
    with pytest.raises(ConfigurationError, match=r"timezone=.* is not in the time zone database \d{4}[a-z].*IANA name"):
        load_zone(name)


def test_files_of_the_package_that_are_no_zones_are_refused() -> None:
    """The folder of zones contains a table, too."""
    with pytest.raises(ConfigurationError, match="is not in the time zone database"):
        load_zone("leapseconds")


def test_the_database_has_a_version() -> None:
    """It is recorded in plans: the release of the IANA database."""
    assert len(zone_database_version()) == 5
    assert zone_database_version()[:4].isdigit()


def test_a_release_of_the_database_has_a_package() -> None:
    """The package numbers the releases, the database uses letters."""
    assert package_requirement("2026a") == "tzdata==2026.1"
    assert package_requirement("2025c") == "tzdata==2025.3"
    assert package_requirement("custom") == "tzdata==custom"
    assert package_requirement(zone_database_version()) == f"tzdata=={importlib.metadata.version('tzdata')}"
