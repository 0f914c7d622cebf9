"""The pods that a job requests from Kubernetes contain nothing secret, since everybody who may list pods reads them."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psutil

from airflow_provider_kafka_s3.config import JsonLines, Layout
from airflow_provider_kafka_s3.spark.conf import with_job_conf
from airflow_provider_kafka_s3.spark.package_zip import package_zip
from airflow_provider_kafka_s3.submit import spark_command
from airflow_provider_kafka_s3.submit.job_script import job_script
from dev.airflow_home import SPARK_JARS
from dev.kafka_broker import KafkaBroker, Message
from dev.supervisor import ThreadServer
from tests.conftest import PASSWORD
from tests.spark.pipeline import CREDENTIALS, ROOT, MakePipeline
from tests.spark.probes import command_lines

CLUSTER_SECRET = "canary-9d2c-cluster-secret"


class Kubernetes(ThreadServer):
    """An API server that accepts every request and starts nothing.

    Attributes:
        endpoint: its address.
        pods: the specifications of the requested pods.
        other: bodies of all other requests.
    """

    def __init__(self) -> None:
        self.pods: list[dict[str, Any]] = []
        self.other: list[str] = []
        self._requested, self._over = threading.Event(), threading.Event()
        api = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                """Log nothing."""

            def do_GET(self) -> None:
                if "watch=" in self.path:
                    self.send_response(200)
                    self.send_header("Transfer-Encoding", "chunked")
                    self.end_headers()
                    api._over.wait()
                else:
                    self.answer({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": []})

            def do_POST(self) -> None:
                text = self.rfile.read(int(self.headers["Content-Length"])).decode()
                written = json.loads(text)
                if self.path.partition("?")[0].endswith("/pods"):
                    api.pods.append(json.loads(text))
                    api._requested.set()
                else:
                    api.other.append(text)
                written["metadata"]["uid"] = "uid"
                self.answer(written, 201)

            do_PUT = do_PATCH = do_DELETE = do_POST  # noqa: N815 - names of the base class

            def answer(self, document: object, status: int = 200) -> None:
                body = json.dumps(document).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        super().__init__(server, "Kubernetes")
        self.endpoint = f"http://127.0.0.1:{server.server_port}"

    def stop(self) -> None:
        self._over.set()
        super().stop()

    def wait_for_pods(self, driver: subprocess.Popen[bytes]) -> None:
        """Return when a driver has requested a pod."""
        while not self._requested.wait(0.1):
            assert driver.poll() is None, "the driver ended"


@contextlib.contextmanager
def submitted(command: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command until the block ends, then kill it and all that it started."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
    with log.open("wb") as out:
        process = subprocess.Popen(
            command,
            env={**environment, "SPARK_LOCAL_HOSTNAME": "127.0.0.1"},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def example() -> dict[str, str]:
    """The ``conf`` of the example in the documentation."""
    text = (ROOT / "docs" / "clusters.md").read_text().split("\n## Kubernetes\n")[1]
    (code,) = re.findall(r"    conf=(\{.*?\n    \}),", text, re.DOTALL)
    conf: dict[str, str] = json.loads(re.sub(r",(\s*\})", r"\1", code))
    return conf


def test_the_pods_of_executors_have_the_documented_settings_and_no_secret(
    kafka_broker: KafkaBroker,
    sasl_config: dict[str, object],
    make_topic: Any,
    make_pipeline: MakePipeline,
    tmp_path: Path,
) -> None:
    """The example of the documentation, submitted: names of secrets are in the pods, and their values nowhere."""
    topic = make_topic(1)
    kafka_broker.produce(topic, [Message(b"{}")])
    pipeline = make_pipeline(kafka=sasl_config, layout=Layout(format=JsonLines()))
    spec = pipeline.spec({topic: pipeline.plan(topic, "run")}, "run", tmp_path / "result.json")
    job_file = tmp_path / "job.json"
    secret = tmp_path / "secret"
    secret.touch(mode=0o600)
    secret.write_text(CLUSTER_SECRET)
    conf = {
        **example(),
        "spark.pyspark.driver.python": sys.executable,
        "spark.kubernetes.namespace": "landing",
        "spark.kubernetes.executor.secretKeyRef.AWS_ACCESS_KEY_ID": "lake:access-key",
        # In the worker's pod the file has the path of the example; here it has another one.
        "spark.authenticate.secret.driver.file": str(secret),
        "spark.authenticate.secret.executor.file": example()["spark.authenticate.secret.file"],
        "spark.ui.enabled": "false",
    }
    with Kubernetes() as api:
        command = [
            str(spark_command.find_spark_submit(local=True)),
            *("--master", f"k8s://{api.endpoint}", "--num-executors", "2"),
            *(part for name, value in with_job_conf(conf).items() for part in ("--conf", f"{name}={value}")),
            *(
                "--py-files",
                str(package_zip(tmp_path)),
                "--jars",
                ",".join(map(str, SPARK_JARS.glob("*.jar"))),
            ),
            *(str(job_script()), "--job-file", str(job_file)),
        ]
        with spec.offered(job_file), submitted(command, tmp_path / "log") as driver:
            api.wait_for_pods(driver)
            jvm = psutil.Process(driver.pid)
            arguments = json.dumps(command_lines([jvm, *jvm.children(recursive=True)]))
            assert not job_file.exists(), "the driver removes it when it has read it"
    for text in (json.dumps(api.pods), "".join(api.other), arguments, (tmp_path / "log").read_text()):
        for value in (PASSWORD, json.dumps(PASSWORD)[1:-1], CREDENTIALS.secret_access_key, CLUSTER_SECRET):
            assert value not in text
    assert pipeline.data_keys() == []

    pod = api.pods[0]["spec"]
    (container,) = pod["containers"]
    variables = {variable["name"]: variable for variable in container["env"]}
    reference = {"key": "access-key", "name": "lake"}
    assert variables["AWS_ACCESS_KEY_ID"]["valueFrom"]["secretKeyRef"] == reference
    assert variables["AWS_DEFAULT_REGION"]["value"] == "eu-central-1"
    assert "@127.0.0.1:" in variables["SPARK_DRIVER_URL"]["value"], "SPARK_LOCAL_HOSTNAME is where executors connect to"
    assert "_SPARK_AUTH_SECRET" not in variables
    assert container["image"] == "registry.example.com/spark-kafka-s3:4.2.0"
    assert pod["serviceAccountName"] == "landing-executors"
    assert {"mountPath": "/etc/spark-auth", "name": "spark-auth-volume"} in container["volumeMounts"]
