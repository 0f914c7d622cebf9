"""librdkafka's failures as errors of the package: with its mock cluster, and without any broker."""

from __future__ import annotations

import gc
import logging
import pickle
import socket
import time
import weakref
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from airflow_provider_kafka_s3.exceptions import (
    AccessDeniedError,
    ConfigurationError,
    KafkaS3Error,
    KafkaUnavailableError,
    TopicNotFoundError,
)
from airflow_provider_kafka_s3.kafka import records
from airflow_provider_kafka_s3.kafka.client import ClientEvents, admin_client, to_error
from airflow_provider_kafka_s3.kafka.offsets import KafkaCluster
from airflow_provider_kafka_s3.kafka.records import read_records
from airflow_provider_kafka_s3.retry import Retrier, RetryDetails, RetryPolicy

# Refused by the system's own check of names, which have parts of 63 characters at most, and never by a name server.
NO_HOST = f"{'a' * 64}.invalid:9092"
NOBODY = {"bootstrap.servers": "127.0.0.1:1"}
ONCE = Retrier(RetryPolicy(max_retries=0))


@pytest.fixture
def silent() -> Iterator[dict[str, object]]:
    """The configuration of a client of a broker that accepts connections and never responds."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield {"bootstrap.servers": f"127.0.0.1:{listening.getsockname()[1]}"}


@pytest.fixture
def mock_cluster() -> Iterator[Any]:
    """A producer with librdkafka's in-process mock cluster; topics are created automatically, with four partitions."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": "mock:1", "test.mock.num.brokers": 1, "log_level": 3})
    yield producer
    producer.flush()


def servers(producer: Any) -> dict[str, object]:
    """The configuration of a client of the mock cluster."""
    brokers = producer.list_topics(timeout=10).brokers.values()
    return {"bootstrap.servers": ",".join(f"{b.host}:{b.port}" for b in brokers)}


def test_offsets_and_records_of_the_mock_cluster(mock_cluster: Any) -> None:
    """The code works without a JVM, which fast tests of other layers depend on."""
    for n in range(3):
        mock_cluster.produce("t", b"v%d" % n, partition=1)
    mock_cluster.flush()
    config = servers(mock_cluster)

    cluster = KafkaCluster(config, timeout=10)

    assert cluster.earliest("t", [0, 1]) == {0: 0, 1: 0}
    assert cluster.ends("t", [0, 1], "read_uncommitted") == {0: 0, 1: 3}
    (batch,) = read_records(config, "t", 1, 0, 3, isolation="read_uncommitted", timeout=10)
    assert batch.column("value").to_pylist() == [b"v0", b"v1", b"v2"]


def test_brokers_that_are_not_there_are_named_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """Transient, with the address and the reason of the failed connection; librdkafka's own error lacks the reason."""
    monkeypatch.setattr(records, "_LOOK", 0.5)
    cluster = KafkaCluster(NOBODY, timeout=0.5, retrier=ONCE)

    for question in (
        lambda: cluster.describe("t"),
        lambda: cluster.ends("t", [0], "read_committed"),
        lambda: list(read_records(NOBODY, "t", 0, 0, 1, isolation="read_committed", timeout=0.5)),
    ):
        with pytest.raises(KafkaUnavailableError, match=r"be reached: 127\.0\.0\.1:1: Connection refused\. .*'t'"):
            question()


def test_a_host_name_without_an_address_is_transient() -> None:
    """Name servers fail too; the message names the host."""
    cluster = KafkaCluster({"bootstrap.servers": NO_HOST}, timeout=0.5, retrier=ONCE)

    with pytest.raises(KafkaUnavailableError, match=rf"be reached: {NO_HOST}: \w+"):
        cluster.describe("t")


@pytest.mark.parametrize("servers", ["127.0.0.1:1", NO_HOST, f"127.0.0.1:1,{NO_HOST}"])
def test_connections_to_brokers_that_refuse_them_are_tried_for_the_time_limit_once(servers: str) -> None:
    """For the time limit in all, however often requests are repeated and whatever is requested next; each is named."""
    retried: list[RetryDetails] = []
    retrier = Retrier(RetryPolicy(max_retries=50), on_retry=retried.append)
    cluster = KafkaCluster({"bootstrap.servers": servers}, timeout=3.0, retrier=retrier)
    began = time.monotonic()
    for question in (lambda: cluster.describe("t"), lambda: cluster.ends("t", [0], "read_committed")):
        with pytest.raises(KafkaUnavailableError, match=r"^no Kafka broker can be reached: ") as raised:
            question()
        assert all(f"{server}: " in str(raised.value) for server in servers.split(","))
    assert time.monotonic() - began < 60
    assert retried == []


def test_a_broker_that_accepts_connections_again_has_the_time_limit_to_respond(
    silent: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """That it refused them before has no effect: requests are repeated as often as the policy allows."""
    monkeypatch.setattr("airflow_provider_kafka_s3.kafka.client._FRESH", 0.1)
    retries: list[RetryDetails] = []
    retrier = Retrier(RetryPolicy(max_retries=1), sleep=lambda _: None, on_retry=retries.append)
    cluster = KafkaCluster(NOBODY, timeout=1.0, retrier=retrier)
    with ThreadPoolExecutor(1) as pool:
        described = pool.submit(cluster.describe, "t")
        # As if the name of the broker had another address now.
        cluster._config |= silent
        with pytest.raises(KafkaUnavailableError, match="Timed out"):
            described.result()
    assert len(retries) == 1


def test_requests_are_repeated_by_the_retrier(silent: dict[str, object]) -> None:
    """As often as its policy allows, and reported to its hook."""
    retries: list[RetryDetails] = []
    retrier = Retrier(RetryPolicy(max_retries=2), sleep=lambda _: None, on_retry=retries.append)

    with pytest.raises(KafkaUnavailableError):
        KafkaCluster(silent, timeout=0.2, retrier=retrier).describe("t")

    assert [d.attempt for d in retries] == [1, 2]
    assert str(silent["bootstrap.servers"]) in retries[0].what


def test_all_tries_of_a_request_without_a_response_have_one_time_limit(
    silent: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many the policy allows: an error soon is worth more than another try of a broker that is down."""
    monkeypatch.setattr("airflow_provider_kafka_s3.kafka.offsets.REACH", 0.5)
    monkeypatch.setattr("airflow_provider_kafka_s3.kafka.offsets._LEAST", 0.1)
    retries: list[RetryDetails] = []
    retrier = Retrier(RetryPolicy(max_retries=1_000), sleep=lambda _: None, on_retry=retries.append)
    with pytest.raises(KafkaUnavailableError, match="Timed out"):
        KafkaCluster(silent, timeout=0.2, retrier=retrier).describe("t")
    assert 1 <= len(retries) <= 5


def test_a_read_ends_when_no_leader_responds(silent: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    """Long before the time in which a leader that responds has to give a record: that one may limit the rate."""
    monkeypatch.setattr(records, "_IS_THERE", 0.1)
    monkeypatch.setattr(records, "_LOOK", 0.2)
    began = time.monotonic()
    with pytest.raises(KafkaUnavailableError, match="cannot find the start of topic 't'"):
        next(read_records(silent, "t", 0, 0, 1, isolation="read_committed", timeout=600))
    assert time.monotonic() - began < 60


def test_a_client_that_gets_no_response_is_replaced(monkeypatch: pytest.MonkeyPatch, silent: dict[str, object]) -> None:
    """Its metadata may name a controller that is down: the next try uses a new client."""
    made: list[object] = []

    def make(config: dict[str, object], events: ClientEvents) -> object:
        made.append(events)
        return admin_client(config, events)

    monkeypatch.setattr("airflow_provider_kafka_s3.kafka.offsets.admin_client", make)
    cluster = KafkaCluster(silent, timeout=0.2, retrier=Retrier(RetryPolicy(max_retries=1), sleep=lambda _: None))
    with pytest.raises(KafkaUnavailableError, match="Timed out"):
        cluster.describe("t")
    assert len(made) == len(set(map(id, made))) == 3


@pytest.mark.parametrize("method", ["earliest", "ends", "at_timestamp"])
def test_a_result_without_an_offset_is_an_error(monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    """The result for a leader that does not respond is not taken for the end of the partition."""
    from confluent_kafka.admin import ListOffsetsResultInfo

    offsets = {0: 5, 1: -1001}

    class SilentLeader:
        def list_offsets(self, requested: Iterable[Any], **_: object) -> dict[Any, Future[object]]:
            results = {tp: Future[object]() for tp in requested}
            for tp, future in results.items():
                future.set_result(ListOffsetsResultInfo(offsets[tp.partition], -1, -1))
            return results

    monkeypatch.setattr("airflow_provider_kafka_s3.kafka.offsets.admin_client", lambda *_: SilentLeader())
    cluster = KafkaCluster(NOBODY, retrier=ONCE)
    more = {"earliest": (), "ends": ("read_committed",), "at_timestamp": (1_000,)}[method]
    with pytest.raises(KafkaUnavailableError, match=r"^no response from the leaders of partition 1: .* 't' "):
        getattr(cluster, method)("t", [0, 1], *more)
    assert getattr(cluster, method)("t", [0], *more) == {0: (5, -1) if method == "at_timestamp" else 5}


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"no.such.setting": 1}, "no.such.setting"),
        ({"socket.timeout.ms": "soon"}, "socket.timeout.ms"),
        ({"security.protocol": "SSL", "ssl.ca.location": "/nowhere"}, "ssl.ca.location"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}, "sasl.username"),
    ],
)
def test_a_wrong_setting_is_named_before_any_request(settings: dict[str, object], named: str) -> None:
    """By both clients."""
    for make in (
        lambda: KafkaCluster({**NOBODY, **settings}),
        lambda: list(read_records({**NOBODY, **settings}, "t", 0, 0, 1, isolation="read_committed")),
    ):
        with pytest.raises(ConfigurationError, match=f"Kafka connection|{named}") as caught:
            make()
        assert named in str(caught.value)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("_AUTHENTICATION", AccessDeniedError),
        ("TOPIC_AUTHORIZATION_FAILED", AccessDeniedError),
        ("SASL_AUTHENTICATION_FAILED", AccessDeniedError),
        ("UNKNOWN_TOPIC_OR_PART", TopicNotFoundError),
        ("_UNKNOWN_PARTITION", TopicNotFoundError),
        ("_NOENT", TopicNotFoundError),
        ("TOPIC_EXCEPTION", ConfigurationError),
        ("UNSUPPORTED_SASL_MECHANISM", ConfigurationError),
        ("_SSL", ConfigurationError),
        ("_TRANSPORT", KafkaUnavailableError),
        ("_ALL_BROKERS_DOWN", KafkaUnavailableError),
        ("LEADER_NOT_AVAILABLE", KafkaUnavailableError),
        ("OFFSET_NOT_AVAILABLE", KafkaUnavailableError),
        ("_BAD_MSG", KafkaUnavailableError),
    ],
)
def test_errors_are_grouped_by_what_to_do(name: str, kind: type[KafkaS3Error]) -> None:
    """Terminal where a person has to act, transient where time helps; all are picklable and name the request."""
    from confluent_kafka import KafkaError

    error = to_error(KafkaError(getattr(KafkaError, name)), ClientEvents(), what="describe 'x' at host:1")

    assert type(error) is kind
    assert "cannot describe 'x' at host:1" in str(error)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


@pytest.mark.parametrize(
    ("name", "reason", "kind"),
    [
        ("_SSL", "SSL handshake failed: error:0A000086: certificate verify failed", ConfigurationError),
        ("_SSL", "SSL handshake failed: SSL transport error: Connection reset by peer", KafkaUnavailableError),
        ("_TRANSPORT", "Receive failed: error:0A000412:SSL routines::ssl/tls alert bad certificate", AccessDeniedError),
        (
            "_TRANSPORT",
            "Receive failed: error:0A00045C:SSL routines::tlsv13 alert certificate required",
            AccessDeniedError,
        ),
        ("_AUTHENTICATION", 'Failed to acquire SASL OAUTHBEARER token: {"error": "invalid_client"}', AccessDeniedError),
        (
            "_AUTHENTICATION",
            "Failed to acquire SASL OAUTHBEARER token: Failed to connect to 127.0.0.1:1: Could not connect to server",
            KafkaUnavailableError,
        ),
    ],
)
def test_refusals_by_tls_and_logins_are_distinguished_from_broken_connections(
    name: str, reason: str, kind: type[KafkaS3Error]
) -> None:
    """A refusal is terminal; a connection that broke in a handshake and a provider that is down are transient."""
    from confluent_kafka import KafkaError

    events = ClientEvents()
    events.on_error(KafkaError(getattr(KafkaError, name), reason))

    assert type(to_error(events.denied or events.last, events, what="describe")) is kind
    assert (events.denied is None) == (kind is KafkaUnavailableError and name == "_SSL")


def test_a_refusal_explains_every_later_failure() -> None:
    """After a failed login everything else is "timed out" or "brokers down", which would mislead."""
    from confluent_kafka import KafkaError

    events = ClientEvents()
    events.on_error(KafkaError(KafkaError._AUTHENTICATION, "Invalid username or password"))
    events.on_error(KafkaError(KafkaError._ALL_BROKERS_DOWN))

    error = to_error(KafkaError(KafkaError._TIMED_OUT), events, what="describe")

    assert isinstance(error, AccessDeniedError)
    assert "Invalid username or password" in str(error)


def test_each_message_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """A client that cannot connect logs the same line twenty times a second; no line has the level ERROR."""
    caplog.set_level(logging.DEBUG)
    events = ClientEvents()

    for n in range(50):
        events.log(
            logging.ERROR,
            "FAIL [rdkafka#producer-1] [thrd:x]: x/bootstrap: Refused (after %dms in state SSL_HANDSHAKE)",
            n,
        )
    events.log(
        logging.WARNING, "CONFWARN [rdkafka#producer-1] [thrd:app]: Configuration property x is a consumer property"
    )

    assert [r.levelno for r in caplog.records] == [logging.WARNING, logging.DEBUG]


def test_a_cluster_that_is_not_needed_any_more_ends_at_once() -> None:
    """With the threads and connections of its client: a sensor makes one for each look."""
    collects = gc.isenabled()
    gc.disable()
    try:
        cluster = KafkaCluster(NOBODY)
        ended = weakref.ref(cluster)
        del cluster
        assert ended() is None
    finally:
        if collects:
            gc.enable()
