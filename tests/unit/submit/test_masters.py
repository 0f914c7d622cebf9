"""Masters accept connections before a job is submitted to them."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator

import pytest

from airflow_provider_kafka_s3.exceptions import ConfigurationError, SparkJobError
from airflow_provider_kafka_s3.submit import masters


@pytest.fixture
def listening() -> Iterator[str]:
    """An address that accepts connections."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield f"127.0.0.1:{taken.getsockname()[1]}"


@pytest.fixture
def refusing() -> Iterator[str]:
    """An address that refuses connections."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{bound.getsockname()[1]}"


def test_one_master_of_several_is_enough(listening: str, refusing: str) -> None:
    """The others are standby masters; masters of other kinds are not checked."""
    masters.require_listening(f"spark://{refusing},{listening}", "spark_default")
    masters.require_listening("yarn", "spark_default")
    masters.require_listening("local[2]", "spark_default")


def test_masters_that_refuse_are_named_with_the_reason_and_the_connection(refusing: str) -> None:
    """A transient error: they may be starting."""
    with pytest.raises(SparkJobError) as raised:
        masters.require_listening(f"spark://{refusing},nowhere.invalid:7077", "my_spark")
    assert str(raised.value).startswith(f"no Spark master can be reached: {refusing}: Connection refused; nowhere.inv")
    assert "'my_spark'" in str(raised.value)


@pytest.mark.parametrize(
    "master",
    [
        "spark://host",
        "spark://:7077",
        "spark://a:7077,b",
        "spark://host:port",
        "spark://h:65536",
        "k8s://https://h:99999",
        "k8s://https://",
    ],
)
def test_a_master_without_host_or_port_is_an_error_of_the_connection(master: str) -> None:
    """Spark would detect it after ten seconds, and its error has no connection."""
    with pytest.raises(ConfigurationError, match=r"is no Spark master: write .*'my_spark'"):
        masters.require_listening(master, "my_spark")


@pytest.mark.parametrize(
    ("master", "address"),
    [
        ("k8s://https://api:6443", "api:6443"),
        ("k8s://https://api", "api:443"),
        ("k8s://http://api", "api:80"),
        ("k8s://api:6443", "api:6443"),
        ("k8s://https://[::1]:6443/prefix", "[::1]:6443"),
        ("k8s://https://[::1]", "[::1]:443"),
    ],
)
def test_kubernetes_is_reached_before_anything_is_submitted(
    master: str, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scheme and port are Spark's defaults; behind a proxy it is unknown whether it answers."""
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(masters, "connection_error", {address: "Connection refused"}.get)
    with pytest.raises(SparkJobError, match=re.escape(f"reached: {address}: Connection refused. ")):
        masters.require_listening(master, "my_spark")
    monkeypatch.setenv("https_proxy", "http://proxy:3128")
    monkeypatch.setenv("http_proxy", "http://proxy:3128")
    masters.require_listening(master, "my_spark")
