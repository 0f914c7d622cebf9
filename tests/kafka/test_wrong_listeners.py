"""A connection to the wrong listener, or to no listener of Kafka, is explained within 30 seconds, and named."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from airflow_provider_kafka_s3.exceptions import ConfigurationError, KafkaS3Error, KafkaUnavailableError
from airflow_provider_kafka_s3.kafka import client, offsets
from airflow_provider_kafka_s3.kafka.offsets import KafkaCluster
from dev.kafka_broker import KafkaBroker
from tests.conftest import PASSWORD, USER

PLAIN_LOGIN: dict[str, object] = {"sasl.mechanism": "PLAIN", "sasl.username": USER, "sasl.password": PASSWORD}
ANY: dict[str, object] = {"enable.ssl.certificate.verification": False}


def fails(config: dict[str, object], kind: type[KafkaS3Error]) -> str:
    """The error of a request, which comes within the time limit and names the connection."""
    with pytest.raises(kind) as failed:
        KafkaCluster(config, connection="the Kafka connection 'main'", timeout=1.0).describe("t")
    message = str(failed.value)
    assert "the Kafka connection 'main'" in message
    assert "controller" not in message
    assert PASSWORD not in message
    return message


@pytest.mark.parametrize(
    ("listener", "protocol", "more", "kind", "expected"),
    [
        ("bootstrap_servers", "SASL_PLAINTEXT", PLAIN_LOGIN, ConfigurationError, "takes no login: .* PLAINTEXT or SSL"),
        ("bootstrap_servers", "SSL", ANY, KafkaUnavailableError, "it has no TLS: set security.protocol to PLAINTEXT"),
        ("bootstrap_servers", "SASL_SSL", ANY | PLAIN_LOGIN, KafkaUnavailableError, "no TLS: .*SASL_PLAINTEXT with"),
        ("sasl_bootstrap_servers", "PLAINTEXT", {}, KafkaUnavailableError, "it expects a login.*SASL_PLAINTEXT or"),
        ("tls_bootstrap_servers", "PLAINTEXT", {}, KafkaUnavailableError, "it expects TLS.*SSL, or SASL_SSL with"),
        ("tls_bootstrap_servers", "SASL_PLAINTEXT", PLAIN_LOGIN, KafkaUnavailableError, "it expects TLS.*SASL_SSL"),
        (
            "sasl_bootstrap_servers",
            "SASL_PLAINTEXT",
            PLAIN_LOGIN | {"sasl.mechanism": "SCRAM-SHA-256"},
            ConfigurationError,
            "use one of these as sasl.mechanism",
        ),
    ],
)
def test_what_the_listener_expects_is_named(
    kafka_broker: KafkaBroker,
    listener: str,
    protocol: str,
    more: dict[str, object],
    kind: type[KafkaS3Error],
    expected: str,
) -> None:
    """Login and TLS, each where it is not expected and the reverse."""
    config = {"bootstrap.servers": getattr(kafka_broker, listener), "security.protocol": protocol, **more}
    message = fails(config, kind)
    assert re.search(expected, message)


@contextlib.contextmanager
def listening(answer: Callable[[socket.socket], Any]) -> Iterator[str]:
    """A port that is not one of Kafka."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    connections.append(connection)
                    threading.Thread(target=answer, args=(connection,), daemon=True).start()

        connections: list[socket.socket] = []
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
        thread.join()
        for connection in connections:
            connection.close()


def http(connection: socket.socket) -> None:
    """As a web server answers to what it does not understand."""
    with contextlib.suppress(OSError):
        connection.recv(1_000)
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        connection.close()


def silence(_: socket.socket) -> None:
    """No answer."""


def test_a_port_of_another_protocol_is_named() -> None:
    """As that of a schema registry."""
    with listening(http) as server:
        message = fails({"bootstrap.servers": server}, KafkaUnavailableError)
    assert (
        f"{server}: the listener closes connections (it answers with another protocol, such as HTTP or TLS" in message
    )


def test_every_limit_is_below_30_seconds() -> None:
    """With what a client needs to notice that all brokers are down."""
    assert offsets.REACH + client._FRESH < 30
    assert offsets.REACH + offsets._AFTERWARDS < 30
    assert offsets.REACH == 2 * offsets._FIRST


def test_a_port_that_does_not_answer_is_given_up_in_time_for_all_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if many are requested at the same time, with the default retries; each error names the server."""
    for name, seconds in (("_FIRST", 1.0), ("REACH", 2.0), ("_AFTERWARDS", 0.1)):
        monkeypatch.setattr(offsets, name, seconds)
    with listening(silence) as server:
        cluster = KafkaCluster({"bootstrap.servers": server}, connection="the Kafka connection 'main'")
        began = time.monotonic()

        def describe(number: int) -> str:
            with pytest.raises(KafkaUnavailableError) as failed:
                cluster.describe(f"t{number}")
            return str(failed.value)

        with ThreadPoolExecutor(8) as pool:
            messages = [*pool.map(describe, range(8))]
    # Three times two seconds would be those of retries.
    assert time.monotonic() - began < 60
    assert all("no broker has responded" in message and "'main'" in message for message in messages)
