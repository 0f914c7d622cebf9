"""Whether a standalone master answers, before and while a driver registers with it."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from airflow_provider_kafka_s3.exceptions import ConfigurationError, SparkJobError
from airflow_provider_kafka_s3.spark import masters


@pytest.fixture
def listening() -> Iterator[str]:
    """The address of somebody who takes connections."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield f"127.0.0.1:{taken.getsockname()[1]}"


@pytest.fixture
def refusing() -> Iterator[str]:
    """An address where nobody listens."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{bound.getsockname()[1]}"


def test_one_master_of_several_is_enough(listening: str, refusing: str) -> None:
    """The others stand by; masters of other kinds are not looked at."""
    masters.require_listening(f"spark://{refusing},{listening}", "spark_default")
    masters.require_listening("yarn", "spark_default")
    masters.require_listening("local[2]", "spark_default")


def test_masters_that_refuse_are_named_with_the_reason_and_the_connection(refusing: str) -> None:
    """Worth a retry: they may be starting."""
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
def test_a_master_without_host_or_port_is_a_mistake_of_the_connection(master: str) -> None:
    """Spark would find out after ten seconds, and its error would name no connection."""
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
    """Scheme and port are Spark's own; behind a proxy nobody can say from here whether it answers."""
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(masters, "no_connection", {address: "Connection refused"}.get)
    with pytest.raises(SparkJobError, match=re.escape(f"reached: {address}: Connection refused. ")):
        masters.require_listening(master, "my_spark")
    monkeypatch.setenv("https_proxy", "http://proxy:3128")
    monkeypatch.setenv("http_proxy", "http://proxy:3128")
    masters.require_listening(master, "my_spark")


@pytest.mark.parametrize("address", ["a..b:7077", f"{'a' * 64}.b:7077", "127.0.0.1:65536"])
def test_an_address_that_is_none_has_no_connection(address: str) -> None:
    """Python raises no OSError for a name that it cannot encode, or a port that is too large."""
    assert masters.no_connection(address)


class Jvm:
    """A JVM whose thread is in some methods until it is interrupted."""

    def __init__(self, *methods: str) -> None:
        self.interrupted = threading.Event()
        frames = [SimpleNamespace(getMethodName=lambda method=method: method) for method in methods]
        thread = SimpleNamespace(getStackTrace=lambda: frames, interrupt=self.interrupted.set)
        lang = SimpleNamespace(Thread=SimpleNamespace(currentThread=lambda: thread))
        self.jvm = SimpleNamespace(java=SimpleNamespace(lang=lang))


def test_a_driver_that_waits_for_its_master_is_interrupted_and_the_master_named() -> None:
    """What the interrupted driver raises says nothing of it."""
    jvm = Jvm("acquire", "waitForRegistration", "start")

    def driver() -> None:
        with masters.registration(jvm, "spark://m:7077", patience=0.02, every=0.01):
            assert jvm.interrupted.wait(30)
            raise RuntimeError("java.lang.InterruptedException")

    with pytest.raises(SparkJobError, match=r"^no answer from the Spark master: .* silent for 0 s.*spark://m:7077$"):
        driver()


def test_a_driver_that_is_slow_for_another_reason_is_left_alone() -> None:
    """Its machine may be busy; and errors of its own stay what they are."""
    jvm = Jvm("load", "start")
    with masters.registration(jvm, "spark://m:7077", patience=0.0, every=0.01):
        assert not jvm.interrupted.wait(0.05)
    with (
        pytest.raises(RuntimeError, match="another"),
        masters.registration(jvm, "spark://m:7077", patience=0.0, every=0.01),
    ):
        raise RuntimeError("another reason")


def test_a_jvm_that_has_ended_is_left_to_the_driver() -> None:
    """The thread that watches it ends without a traceback, which would stand above the driver's own error."""
    jvm = Jvm()
    looked = threading.Event()

    def gone() -> None:
        looked.set()
        raise ConnectionError("py4j")

    jvm.jvm.java.lang.Thread.currentThread().getStackTrace = gone
    with masters.registration(jvm, "spark://m:7077", every=0.001):
        assert looked.wait(30)


def test_an_application_that_spark_stopped_while_it_started_names_the_master() -> None:
    """Spark's own error says where its SparkContext was made."""
    with (
        pytest.raises(SparkJobError, match=r"^no answer from the Spark master, or it has ended .*spark://m:7077$"),
        masters.registration(Jvm(), "spark://m:7077"),
    ):
        raise RuntimeError("java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext.")
