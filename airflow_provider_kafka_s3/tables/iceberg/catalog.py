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
    CommitFailedException,
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
    from pyiceberg.io import FileIO
    from pyiceberg.table.metadata import TableMetadata
    from requests import Session

__all__ = [
    "PatientRestCatalog",
    "catalog_errors",
    "error_text",
    "file_properties",
    "is_lost_race",
    "is_terminal",
    "open_catalog",
    "with_files",
]

_CLIENTS: Final = ("pyiceberg", "requests", "urllib3", "botocore", "sqlalchemy", "pydantic_core")
"""Packages with errors of catalogs and of what they answer."""

_CONNECT: Final = 10.0
"""Seconds for a connection to Glue."""

_RETRIES: Final = 3
"""Of a request to Glue; a commit that is carried out twice is refused the second time."""

_TIMEOUT: Final = 60.0
"""Seconds for a response of the catalog; pyiceberg waits for ever."""


class PatientRestCatalog(RestCatalog):
    """A REST catalog whose requests end after a minute without an answer."""

    @override
    def _config_headers(self, session: Session) -> None:
        # The first thing that is done with a new session: requests for tokens come later.
        super()._config_headers(session)
        timeout = float(self.properties.get("kafka-s3.timeout", _TIMEOUT))
        session.request = functools.partial(session.request, timeout=timeout)  # type: ignore[method-assign]

    @staticmethod
    @override
    def _delete_old_metadata(io: FileIO, base: TableMetadata, metadata: TableMetadata) -> None:
        """They are the server's, which deletes them itself: a second try would warn after each commit."""


def open_catalog(name: str, properties: Mapping[str, Any]) -> Catalog:
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
            if properties.get("type") == "glue":
                properties = {**properties, **_patient_glue(properties)}
            return load_catalog(name, **properties)
        except (NotInstalledError, ImportError) as e:
            raise ConfigurationError(f"catalog {name!r} needs a package that is not installed: {error_text(e)}") from e
        except ValueError as e:
            if _is_of_client(e):
                raise
            raise ConfigurationError(f"catalog {name!r}: {error_text(e)}") from e


def _patient_glue(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Properties with which requests to Glue end; pyiceberg waits a minute to connect, another to read, ten times."""
    import botocore.session
    from botocore.config import Config

    session = botocore.session.Session()
    timeout = float(properties.get("kafka-s3.timeout", _TIMEOUT))
    session.set_default_client_config(Config(connect_timeout=min(timeout, _CONNECT), read_timeout=timeout))
    # A number: botocore takes no text.
    return {"botocore_session": session, "glue.max-retries": int(properties.get("glue.max-retries", _RETRIES))}


def with_files(catalog: Mapping[str, Any], settings: S3Settings, credentials: S3Credentials | None) -> dict[str, Any]:
    """The properties of a catalog, and how its files are reached if they do not say it.

    Args:
        catalog: properties of the catalog.
        settings: of the store of the objects.
        credentials: for it.
    """
    # Keys of one source do not go with the session of another.
    own = credentials if "s3.access-key-id" not in catalog else None
    return {**file_properties(settings, own), **catalog}


def file_properties(settings: S3Settings, credentials: S3Credentials | None) -> dict[str, str]:
    """How pyiceberg reaches the store of the objects."""
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
        raise AccessDeniedError(
            f"{where}: the catalog refuses the credentials or the action: {error_text(e)}. Correct the connection"
        ) from e
    except NoSuchNamespaceError as e:
        raise ConfigurationError(f"{where}: there is no such namespace: {error_text(e)}. Create it") from e
    except NoSuchTableError as e:
        raise ConfigurationError(f"{where}: there is no such table: {error_text(e)}") from e
    except (BadRequestError, ValidationError, NotImplementedError) as e:
        raise ConfigurationError(f"{where}: the catalog does not take the request: {error_text(e)}") from e
    except Exception as e:
        if not _is_of_client(e):
            raise
        if _is_refusal(e):
            raise AccessDeniedError(f"{where}: access is denied: {error_text(e)}. Correct the connection") from e
        raise CatalogUnavailableError(f"{where}: no usable answer ({type(e).__name__}: {error_text(e)})") from e


def is_lost_race(error: BaseException) -> bool:
    """Whether another commit came before: a try on the new head may be the one that lands."""
    return isinstance(error, CommitFailedException)


def is_terminal(error: BaseException) -> bool:
    """Whether the same request is refused again."""
    return isinstance(error, UnauthorizedError | ForbiddenError | BadRequestError | NotImplementedError) or (
        _is_of_client(error) and _is_refusal(error)
    )


def _is_of_client(error: BaseException) -> bool:
    """Whether an error is that of a catalog, of a store, or of what they have answered."""
    return isinstance(error, OSError) or type(error).__module__.partition(".")[0] in _CLIENTS


def _is_refusal(error: BaseException) -> bool:
    """Whether AWS has refused the credentials, or there are none."""
    code = getattr(error, "response", None)
    named = code.get("Error", {}).get("Code", "") if isinstance(code, dict) else ""
    return "AccessDenied" in named or type(error).__name__ == "NoCredentialsError"


def error_text(error: BaseException) -> str:
    """What an error says, in one line that is not too long."""
    return " ".join(str(error).split())[:500]
