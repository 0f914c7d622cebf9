"""Settings of a Kafka connection's extra, as text."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from airflow_provider_kafka_s3.exceptions import ConfigurationError

__all__ = ["pem", "text"]


def text(name: str, value: object) -> str:
    """The value of a setting in Java's notation.

    Raises:
        ConfigurationError: the value has a type that no setting has.
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (str, int, float)):
        return str(value)
    raise ConfigurationError(
        f"{name} of the Kafka connection is a {type(value).__name__}: settings are text, numbers, true or false"
    )


def pem(config: Mapping[str, object], name: str) -> str | None:
    """The text of ``<name>.pem``, or of the file at ``<name>.location``; None if neither is set.

    Raises:
        ConfigurationError: the file cannot be read.
    """
    if f"{name}.pem" in config:
        return text(f"{name}.pem", config[f"{name}.pem"])
    if f"{name}.location" not in config:
        return None
    location = text(f"{name}.location", config[f"{name}.location"])
    if location == "probe":
        return None
    try:
        return Path(location).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as e:
        raise ConfigurationError(
            f"{name}.location={location!r} of the Kafka connection cannot be read as a PEM file ({e}); give a "
            f"readable file with certificates in PEM form"
        ) from e
