"""Options that are not given: from variables such as ``KAFKA_S3_BUCKET``, or from a file.

The file is ``~/.kafka-s3.toml``, or the one that ``KAFKA_S3_DEFAULTS`` names. Options have ``_`` in the place of ``-``.
"""

from __future__ import annotations

import functools
import json
import os
import tomllib
from pathlib import Path
from typing import Any, Final

from airflow_provider_kafka_s3.exceptions import ConfigurationError

__all__ = ["default_of"]

_NAMES: Final = frozenset(
    {
        *("bucket", "topics_dir", "pipeline", "upload"),
        *("aws_conn_id", "endpoint_url", "region", "ca_bundle", "addressing_style"),
        *("kafka_conn_id", "kafka_config", "bootstrap_server", "registry_conn_id", "registry_url"),
        "iceberg_conn_id",
    }
)


def default_of(name: str) -> str | None:
    """The value of an option that is not given; None: there is none. A variable wins over the file.

    Args:
        name: of the option, with ``_``.

    Raises:
        ConfigurationError: the file is named and cannot be read, or it has something else than these options.
    """
    assert name in _NAMES, name
    return os.environ.get(f"KAFKA_S3_{name.upper()}") or _stored(os.environ.get("KAFKA_S3_DEFAULTS")).get(name) or None


@functools.cache
def _stored(named: str | None) -> dict[str, str]:
    """The content of the file, which a command reads once; ``named`` by a variable, or the default one."""
    path = Path(named or "~/.kafka-s3.toml").expanduser()
    try:
        content: dict[str, Any] = tomllib.loads(path.read_text())
    except FileNotFoundError:
        if named is None:
            return {}
        raise ConfigurationError(f"KAFKA_S3_DEFAULTS names {path}, which does not exist") from None
    except OSError as e:
        raise ConfigurationError(f"{path}, with the defaults of options, cannot be read ({e.strerror})") from e
    except ValueError as e:
        raise ConfigurationError(f"{path}, with the defaults of options, is not TOML ({e})") from e
    content = {name: json.dumps(value) if name == "upload" else value for name, value in content.items()}
    for name, value in content.items():
        if name not in _NAMES or not isinstance(value, str):
            raise ConfigurationError(
                f"{path}: {name} = {value!r} is no default of an option; use texts for {', '.join(sorted(_NAMES))}"
            )
    return content
