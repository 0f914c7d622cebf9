"""Catalogs of Iceberg: opened with a time-out for every request, and their errors as those of this package."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import (
    BadRequestError,
    ForbiddenError,
    NoSuchNamespaceError,
    NoSuchTableError,
    NotInstalledError,
    UnauthorizedError,
    ValidationError,
)

from airflow_provider_kafka_s3.exceptions import (
    AccessDeniedError,
    CatalogUnavailableError,
    ConfigurationError,
    KafkaS3Error,
)
from airflow_provider_kafka_s3.overriding import override
from airflow_provider_kafka_s3.storage.credentials import S3Credentials
from airflow_provider_kafka_s3.storage.s3 import S3Settings

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from requests import Session

__all__ = ["PatientRestCatalog", "catalog_errors", "file_properties", "open_catalog"]

_CLIENTS: Final = ("pyiceberg", "requests", "urllib3", "botocore", "sqlalchemy", "pydantic_core")
"""Packages with errors of catalogs and of what they answer."""

_TIMEOUT: Final = 60.0
"""Seconds for a response of the catalog; pyiceberg waits for ever."""


class PatientRestCatalog(RestCatalog):
    """A REST catalog whose requests end after a minute without an answer."""

    @override
    def _create_session(self) -> Session:
        session = super()._create_session()
        timeout = float(self.properties.get("kafka-s3.timeout", _TIMEOUT))
        session.request = functools.partial(session.request, timeout=timeout)  # type: ignore[method-assign]
        return session


def open_catalog(name: str, properties: Mapping[str, str]) -> Catalog:
    """Open a catalog.

    Args:
        name: for messages: the id of its connection.
        properties: of pyiceberg: ``type``, ``uri``, ``warehouse``, ….

    Raises:
        ConfigurationError: they name no catalog that can be opened.
        CatalogUnavailableError: the catalog did not answer.
    """
    if properties.get("type", "rest") == "rest" and "py-catalog-impl" not in properties:
        ours = f"{PatientRestCatalog.__module__}.{PatientRestCatalog.__name__}"
        properties = {k: v for k, v in properties.items() if k != "type"} | {"py-catalog-impl": ours}
    with catalog_errors(f"catalog {name!r}"):
        try:
            return load_catalog(name, **properties)
        except NotInstalledError as e:
            raise ConfigurationError(f"catalog {name!r} needs a package that is not installed: {e}") from e
        except ValueError as e:
            raise ConfigurationError(f"catalog {name!r}: {e}") from e


def file_properties(settings: S3Settings, credentials: S3Credentials | None) -> dict[str, str]:
    """How pyiceberg reaches the store of the objects, for a catalog that says nothing else of its files."""
    properties = {"s3.connect-timeout": "10", "s3.request-timeout": "60"}
    if settings.endpoint_url:
        properties["s3.endpoint"] = settings.endpoint_url
    if settings.region:
        properties["s3.region"] = settings.region
    if credentials is not None:
        properties["s3.access-key-id"] = credentials.access_key_id
        properties["s3.secret-access-key"] = credentials.secret_access_key
        if credentials.session_token:
            properties["s3.session-token"] = credentials.session_token
    return properties


@contextlib.contextmanager
def catalog_errors(where: str) -> Iterator[None]:
    """Raise errors of a catalog as those of this package: what a person has to change, and what may pass."""
    try:
        yield
    except KafkaS3Error:
        raise
    except (UnauthorizedError, ForbiddenError) as e:
        raise AccessDeniedError(f"{where}: the catalog refuses the credentials or the action: {_text(e)}") from e
    except NoSuchNamespaceError as e:
        raise ConfigurationError(f"{where}: there is no such namespace: {_text(e)}. Create it") from e
    except NoSuchTableError as e:
        raise ConfigurationError(f"{where}: there is no such table: {_text(e)}") from e
    except (BadRequestError, ValidationError, NotImplementedError) as e:
        raise ConfigurationError(f"{where}: the catalog does not take the request: {_text(e)}") from e
    except Exception as e:
        if not isinstance(e, OSError) and type(e).__module__.partition(".")[0] not in _CLIENTS:
            raise
        raise CatalogUnavailableError(f"{where}: no usable answer ({type(e).__name__}: {_text(e)})") from e


def _text(error: Any) -> str:
    return " ".join(str(error).split())[:500]
