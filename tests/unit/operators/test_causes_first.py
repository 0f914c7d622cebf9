"""The beginning of an error, which is all that Airflow's UI shows, has the cause, however long addresses are."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider_kafka_s3.airflow import connections, run_window
from airflow_provider_kafka_s3.exceptions import KafkaS3Error
from airflow_provider_kafka_s3.kafka.client import ClientEvents, to_error
from airflow_provider_kafka_s3.kafka.offsets import KafkaCluster
from airflow_provider_kafka_s3.retry import Retrier, RetryPolicy
from airflow_provider_kafka_s3.spark import connect_session, registration
from airflow_provider_kafka_s3.spark.spec import ConnectServer

SHOWN = 75
HOST = "a-cluster-with-a-long-name.of-a-region.example.internal"
SERVERS = ",".join(f"broker-{n}.{HOST}:9092" for n in range(9))
DAY = (datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC))


def of_kafka(name: str, reason: str | None = None) -> KafkaS3Error:
    """The error for an error of a broker."""
    from confluent_kafka import KafkaError

    return to_error(KafkaError(getattr(KafkaError, name), reason), ClientEvents(), what=f"find 'orders' at {SERVERS}")


def by_leaders(answer: Any) -> None:
    """Request the ends of many partitions, with the same response for each."""

    class Admin:
        def list_offsets(self, requested: Any, **_: object) -> dict[Any, Future[object]]:
            futures = {tp: Future[object]() for tp in requested}
            for future in futures.values():
                future.set_exception(answer) if isinstance(answer, Exception) else future.set_result(answer)
            return futures

        def describe_topics(self, _: object, **__: object) -> dict[str, Future[Any]]:
            described: Future[Any] = Future()
            described.set_result(SimpleNamespace(partitions=[SimpleNamespace(id=n) for n in range(4_000)]))
            return {"orders": described}

        def poll(self, _: float) -> None: ...

    cluster = KafkaCluster({"bootstrap.servers": SERVERS}, retrier=Retrier(RetryPolicy(max_retries=0)))
    cluster._client.admin = Admin()  # type: ignore[assignment]
    cluster.ends("orders", range(4_000), "read_committed")


def silent_leaders() -> None:
    """As an error of librdkafka."""
    from confluent_kafka.admin import ListOffsetsResultInfo

    by_leaders(ListOffsetsResultInfo(-1001, -1, -1))


def no_leader() -> None:
    """As an error of librdkafka."""
    from confluent_kafka import KafkaError, KafkaException

    by_leaders(KafkaException(KafkaError(KafkaError._NOENT)))


def raised(error: KafkaS3Error) -> None:
    """Raise it."""
    raise error


def stopped() -> None:
    """The behaviour of Spark when no master answers."""

    class Jvm:
        def __getattr__(self, _: str) -> Any:
            return self

        def __call__(self) -> Any:
            return self

        def __iter__(self) -> Any:
            return iter(())

    with registration.registration(Jvm(), f"spark://{HOST}:7077"):
        raise RuntimeError("Cannot call methods on a stopped SparkContext")


def offsets(given: Any) -> Callable[[], object]:
    """Offsets of a run, parsed."""
    return lambda: run_window.parse_topic_offsets("conf", given)


@pytest.mark.parametrize(
    ("fail", "cause"),
    [
        (
            lambda: raised(of_kafka("UNKNOWN_TOPIC_OR_PART")),
            "there is no such topic or partition: cannot find 'orders'",
        ),
        (lambda: raised(of_kafka("_TIMED_OUT", "Timed out")), "Timed out (cannot find 'orders'"),
        (
            lambda: raised(of_kafka("_AUTHENTICATION", f"sasl_ssl://{HOST}:9092/bootstrap: SASL login failed")),
            "SASL login failed",
        ),
        (
            lambda: raised(of_kafka("_SSL", f"ssl://{HOST}:9092/1: tlsv13 alert certificate required")),
            "the broker refuses the client's certificate",
        ),
        (silent_leaders, "no response from the leaders of partitions 0, 1, 2, 3, 4 and 3995 more"),
        (no_leader, "a partition has no leader, its brokers are down"),
        (lambda: run_window._require_past("data interval", DAY[1], DAY[0], "x"), "ends in the future, at 2026-01-02"),
        (lambda: run_window._data_interval({}), "this run has no data interval"),  # type: ignore[typeddict-item]
        (
            lambda: run_window._data_interval({"data_interval_start": DAY[0], "data_interval_end": DAY[0]}),  # type: ignore[typeddict-item]
            "the data interval of this run is empty: [2026-01-01",
        ),
        (offsets([]), "kafka_s3.offsets: [] is not a mapping"),
        (offsets({"orders": {"0": [9, 3]}}), "kafka_s3.offsets: [9, 3] are not two whole numbers"),
        (offsets({"orders": {"a": [0, 3]}}), "'a' is not a Kafka partition of topic 'orders'"),
        (lambda: connections.spark_target("k8s"), "apache-airflow-providers-cncf-kubernetes is not installed"),
        (
            lambda: raised(
                connect_session._explain(ConnectServer(url=f"sc://{HOST}:1"), Exception("StatusCode.UNAVAILABLE"))
            ),
            "Spark Connect does not answer",
        ),
        (
            lambda: raised(
                connect_session._explain(ConnectServer(url=f"sc://{HOST}:1"), Exception("StatusCode.UNAUTHENTICATED"))
            ),
            "Spark Connect refuses the token",
        ),
        (stopped, "no answer from the Spark master"),
    ],
)
def test_the_cause_is_in_what_the_user_interface_shows(
    fail: Callable[[], object], cause: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Addresses, lists of partitions and help come after it, and are bounded where they are not for copying."""
    monkeypatch.setenv("AIRFLOW_CONN_K8S", f'{{"conn_type": "spark", "host": "k8s://https://{HOST}:6443"}}')
    monkeypatch.setattr(connections.spark, "_has_kubernetes", lambda: False)
    with pytest.raises(KafkaS3Error) as e:
        fail()
    assert cause in str(e.value)[:SHOWN]
    assert len(str(e.value)) < 1_500
