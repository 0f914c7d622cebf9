"""Requests to a catalog that does not answer end."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest

from airflow_provider_kafka_s3.exceptions import CatalogUnavailableError
from airflow_provider_kafka_s3.tables.iceberg.catalog import catalog_errors, open_catalog


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a server that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize("kind", ["rest", "glue"])
def test_a_request_to_a_catalog_that_does_not_answer_ends(silent: str, kind: str) -> None:
    """As an error that a retry may pass."""
    properties: dict[str, Any] = {"type": "rest", "uri": silent}
    if kind == "glue":
        keys = {"glue.access-key-id": "a", "glue.secret-access-key": "b", "glue.region": "us-east-1"}
        properties = {"type": "glue", "glue.endpoint": silent, "glue.max-retries": "1", **keys}
    began = time.monotonic()
    with pytest.raises(CatalogUnavailableError), catalog_errors("table lake.orders"):
        open_catalog("test", {**properties, "kafka-s3.timeout": "0.2"}).load_table("lake.orders")
    assert time.monotonic() - began < 20


def test_glue_has_time_outs_and_few_tries_unless_the_connection_has_others() -> None:
    """The library has a minute for each of ten tries."""
    given: dict[str, Any] = {"type": "glue", "glue.region": "us-east-1"}
    config: Any = open_catalog("test", given).glue.meta.config  # type: ignore[attr-defined]
    assert (config.connect_timeout, config.read_timeout, config.retries["total_max_attempts"]) == (10, 60, 4)
