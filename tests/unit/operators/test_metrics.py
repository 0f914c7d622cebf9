"""Metrics of tasks, as StatsD and a collector of OpenTelemetry receive them."""

from __future__ import annotations

import contextlib
import gzip
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from airflow.providers.common.compat.sdk import (  # noqa: TID253 - after AIRFLOW_HOME is set, see conftest
    AirflowException,
    AirflowFailException,
)

from airflow_provider_kafka_s3.inspect.metrics import METRICS, PREFIX

if TYPE_CHECKING:
    from tests.unit.operators.conftest import Bench

SEND = Path(__file__).with_name("send_metrics.py")
TYPES = {"counter": "c", "gauge": "g", "timing": "ms"}


def send(settings: Mapping[str, object]) -> None:
    """Send every metric once, with settings of Airflow's section ``metrics``."""
    environment = {f"AIRFLOW__METRICS__{name.upper()}": str(text) for name, text in settings.items()}
    done = subprocess.run(
        [sys.executable, str(SEND)],
        env={**os.environ, "PYTHONPATH": os.getcwd(), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def our_metrics(server: socket.socket) -> list[str]:
    """As many metrics of ours as there are; Airflow sends others besides."""
    received: list[str] = []
    while len(received) < len(METRICS):
        line = server.recv(2000).decode()
        if line.startswith(f"airflow.{PREFIX}."):
            received.append(line)
    return received


@contextlib.contextmanager
def udp_server() -> Iterator[socket.socket]:
    """A socket that receives what StatsD would."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        server.bind(("127.0.0.1", 0))
        server.settimeout(20)
        yield server


def test_statsd_receives_every_metric_with_the_labels_in_its_name() -> None:
    """Plain StatsD has no tags; a dot of a topic is no part of the hierarchy."""
    with udp_server() as server:
        send({"statsd_on": True, "statsd_host": "127.0.0.1", "statsd_port": server.getsockname()[1]})
        received = our_metrics(server)
    labels = {"pipeline": "shop", "topic": "orders_eu", "kind": "terminal"}
    assert received == [
        f"airflow.{PREFIX}.{metric.name}.{'.'.join(labels[label] for label in metric.labels)}:"
        f"{'3000.000000' if metric.kind == 'timing' else 3}|{TYPES[metric.kind]}"
        for metric in METRICS
    ]


def test_backends_with_tags_receive_every_metric_under_one_name() -> None:
    """InfluxDB's form of StatsD; the names do not grow with the topics."""
    with udp_server() as server:
        send(
            {
                "statsd_on": True,
                "statsd_influxdb_enabled": True,
                "statsd_host": "127.0.0.1",
                "statsd_port": server.getsockname()[1],
            }
        )
        received = our_metrics(server)
    assert [line.partition(",")[0] for line in received] == [f"airflow.{PREFIX}.{metric.name}" for metric in METRICS]
    assert all("pipeline=shop" in line for line in received)
    assert all("topic=orders.eu" in line for line in received if PREFIX + ".lag" in line)


def test_a_collector_of_opentelemetry_receives_every_metric() -> None:
    """By HTTP, with the labels as attributes."""
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

    names: set[str] = set()
    attributes: set[tuple[str, str]] = set()

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            for of_resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                for scope in of_resource.scope_metrics:
                    for metric in scope.metrics:
                        names.add(metric.name)
                        data = getattr(metric, str(metric.WhichOneof("data")))
                        attributes.update((a.key, a.value.string_value) for p in data.data_points for a in p.attributes)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *args: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Collector)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        send({"otel_on": True, "otel_host": "127.0.0.1", "otel_port": server.server_port})
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert {f"airflow.{PREFIX}.{metric.name}" for metric in METRICS} <= names
    assert {("pipeline", "shop"), ("topic", "orders.eu"), ("kind", "terminal")} <= attributes


class Received:
    """What tasks have sent to a backend that fails, or does not."""

    def __init__(self) -> None:
        self.metrics: dict[str, float] = {}
        self.is_down = False

    def incr(self, stat: str, count: int = 1, *, tags: Mapping[str, str]) -> None:
        """Add to a counter."""
        self.gauge(stat, self.metrics.get(stat, 0) + count, tags=tags)

    def gauge(self, stat: str, value: float, *, tags: Mapping[str, str]) -> None:
        """Set a gauge."""
        if self.is_down:
            raise OSError("the backend is down")
        self.metrics[stat] = value

    def timing(self, stat: str, dt: float, *, tags: Mapping[str, str]) -> None:
        """Set a time."""
        self.gauge(stat, dt, tags=tags)

    def of_topic(self, name: str) -> float:
        """A metric of the topic of the tests."""
        return self.metrics[f"{PREFIX}.{name}.orders-to-lake.orders"]


@pytest.fixture
def received(monkeypatch: pytest.MonkeyPatch) -> Received:
    """Airflow with plain StatsD, whose client is replaced."""
    backend = Received()
    monkeypatch.setenv("AIRFLOW__METRICS__STATSD_ON", "True")
    # The default of Airflow 2 is deprecated, and a warning is an error here.
    monkeypatch.setenv("AIRFLOW__METRICS__METRICS_USE_PATTERN_MATCH", "True")
    from airflow.providers.common.compat import sdk

    monkeypatch.setattr(sdk, "Stats", backend, raising=False)
    return backend


def test_a_run_sends_what_it_has_landed_and_the_state_behind_it(topics: Bench, received: Received) -> None:
    """Counters are those of this run, totals those of the log: a second run adds to these alone what is new."""
    topics.run(topics.task(), run_id="r1")
    assert (received.of_topic("landed_records"), received.of_topic("landed_batches")) == (2, 1)
    assert (received.of_topic("records_total"), received.of_topic("lag_offsets")) == (2, 0)
    assert received.of_topic("small_objects") == received.of_topic("objects_total") == 1
    assert received.of_topic("newest_record_age_seconds") > 0
    assert {f"{PREFIX}.{part}_seconds.orders-to-lake" for part in ("plan", "spark", "commit")} <= {*received.metrics}
    topics.fill("orders", [{"n": 3}])
    topics.run(topics.task(), run_id="r2")
    topics.run(topics.task(), run_id="r2", try_number=2)
    assert (received.of_topic("landed_records"), received.of_topic("records_total")) == (3, 3)
    assert received.metrics[f"{PREFIX}.retries.orders-to-lake"] == 1


def test_a_task_that_ended_between_its_commit_and_its_return_is_in_the_totals(
    topics: Bench, received: Received, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its counters were never sent; a dashboard that adds up uses the totals."""
    from airflow_provider_kafka_s3.airflow.metrics import TaskMetrics

    with monkeypatch.context() as killed:
        killed.setattr(TaskMetrics, "landed", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            topics.run(topics.task(), run_id="r1")
    topics.run(topics.task(), run_id="r1", try_number=2)
    assert received.of_topic("records_total") == 2
    assert f"{PREFIX}.landed_records.orders-to-lake.orders" not in received.metrics


def test_failures_are_counted_by_kind(topics: Bench, received: Received) -> None:
    """Terminal: a person has to act; transient: a retry may succeed."""
    with pytest.raises(AirflowFailException):
        topics.run(topics.task(topics="never-made"))
    topics.spark.failing["orders"] = ("transient", "no answer")
    with pytest.raises(AirflowException):
        topics.run(topics.task(), run_id="r2")
    failures = f"{PREFIX}.failures.orders-to-lake"
    assert (received.metrics[f"{failures}.terminal"], received.metrics[f"{failures}.transient"]) == (1, 1)


def test_verify_sends_what_it_has_read_and_not_found(topics: Bench, received: Received) -> None:
    """Also if nothing is missing, so that a dashboard shows that it was verified."""
    topics.run(topics.task(), run_id="r1")
    topics.run(topics.task(action="verify"), run_id="r2")
    assert (received.of_topic("verified_objects"), received.of_topic("missing_objects")) == (1, 0)


def test_a_backend_that_is_down_fails_no_task(topics: Bench, received: Received) -> None:
    """Its error is logged at DEBUG."""
    received.is_down = True
    assert topics.run(topics.task())["records"] == 2


def test_without_a_backend_no_request_is_made_for_metrics(topics: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic with ten thousand batches costs nobody the reading of its log."""
    from airflow_provider_kafka_s3.airflow import metrics

    def fail(*_: Any, **__: Any) -> None:
        raise AssertionError("the gauges were read")

    monkeypatch.setattr(metrics, "topic_gauges", fail)
    assert topics.run(topics.task())["records"] == 2
