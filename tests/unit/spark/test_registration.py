"""A driver's registration with a standalone master ends in seconds, whether the master answers or not."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from airflow_provider_kafka_s3.exceptions import SparkJobError
from airflow_provider_kafka_s3.spark import registration


@pytest.mark.parametrize("address", ["a..b:7077", f"{'a' * 64}.b:7077", "127.0.0.1:65536"])
def test_an_invalid_address_is_an_error_of_the_connection(address: str) -> None:
    """Python raises no OSError for a name that it cannot encode, or a port that is too large."""
    assert registration.connection_error(address)


class Jvm:
    """A JVM whose thread is in some methods until it is interrupted."""

    def __init__(self, *methods: str) -> None:
        self.interrupted = threading.Event()
        frames = [SimpleNamespace(getMethodName=lambda method=method: method) for method in methods]
        thread = SimpleNamespace(getStackTrace=lambda: frames, interrupt=self.interrupted.set)
        lang = SimpleNamespace(Thread=SimpleNamespace(currentThread=lambda: thread))
        self.jvm = SimpleNamespace(java=SimpleNamespace(lang=lang))


def test_a_driver_that_waits_for_its_master_is_interrupted_and_the_master_named() -> None:
    """The error of the interrupted driver does not show the cause."""
    jvm = Jvm("acquire", "waitForRegistration", "start")

    def driver() -> None:
        with registration.registration(jvm, "spark://m:7077", patience=0.02, every=0.01):
            assert jvm.interrupted.wait(30)
            raise RuntimeError("java.lang.InterruptedException")

    with pytest.raises(
        SparkJobError, match=r"^no answer from the Spark master: .* did not answer for 0 s.*spark://m:7077$"
    ):
        driver()


def test_a_driver_that_is_slow_for_another_reason_is_not_interrupted() -> None:
    """Its machine may be busy; other errors are not changed."""
    jvm = Jvm("load", "start")
    with registration.registration(jvm, "spark://m:7077", patience=0.0, every=0.01):
        assert not jvm.interrupted.wait(0.05)
    with (
        pytest.raises(RuntimeError, match="another"),
        registration.registration(jvm, "spark://m:7077", patience=0.0, every=0.01),
    ):
        raise RuntimeError("another reason")


def test_the_end_of_the_jvm_ends_the_watching_thread_silently() -> None:
    """Its traceback would be above the driver's own error."""
    jvm = Jvm()
    looked = threading.Event()

    def gone() -> None:
        looked.set()
        raise ConnectionError("py4j")

    jvm.jvm.java.lang.Thread.currentThread().getStackTrace = gone
    with registration.registration(jvm, "spark://m:7077", every=0.001):
        assert looked.wait(30)


def test_an_application_that_spark_stopped_while_it_started_names_the_master() -> None:
    """Spark's own error has the place where its SparkContext was created."""
    with (
        pytest.raises(SparkJobError, match=r"^no answer from the Spark master, or it has ended .*spark://m:7077$"),
        registration.registration(Jvm(), "spark://m:7077"),
    ):
        raise RuntimeError("java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext.")
