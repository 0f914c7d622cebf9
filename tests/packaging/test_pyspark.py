"""pyspark and pyspark-client install the same files: at different versions the result is a mixture of both."""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata

import pytest


@pytest.fixture
def pyspark() -> importlib.metadata.Distribution:
    """Spark with its jars and commands."""
    return importlib.metadata.distribution("pyspark")


@pytest.fixture
def client() -> importlib.metadata.Distribution:
    """Spark Connect's client, which Airflow's Spark provider depends on."""
    return importlib.metadata.distribution("pyspark-client")


def test_both_have_the_same_version(
    pyspark: importlib.metadata.Distribution, client: importlib.metadata.Distribution
) -> None:
    """The lock pins them equal."""
    assert pyspark.version == client.version


def test_the_installed_tree_is_not_mixed(
    pyspark: importlib.metadata.Distribution, client: importlib.metadata.Distribution
) -> None:
    """Every file on disk is the one that both distributions say they installed."""
    changed = []
    shared = {str(f) for f in pyspark.files or ()} & {str(f) for f in client.files or ()}
    for distribution in (pyspark, client):
        for file in distribution.files or ():
            if file.suffix == ".py" and file.hash is not None:
                digest = hashlib.new(file.hash.mode, file.read_binary()).digest()
                if base64.urlsafe_b64encode(digest).decode().rstrip("=") != file.hash.value:
                    changed.append(f"{distribution.name}: {file}")
    assert changed == []
    assert len(shared) > 100
