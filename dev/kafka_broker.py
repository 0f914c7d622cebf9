"""A real Kafka broker for tests, benchmarks and the demo: one KRaft node on free loopback ports.

``with KafkaBroker() as broker:`` starts one from the jars of ``.build/jars/kafka`` (``make`` puts them there) and waits
until it answers; ``python -m dev.kafka_broker`` does the same on a command line. The broker ends with the process that
started it, however that ends, and its data are in a temporary directory that is removed with it.
"""

from __future__ import annotations

import argparse
import base64
import logging
import signal
import socket
import subprocess
import sys
import threading
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dev.java import find_java
from dev.kafka_security import KafkaSecurity
from dev.kafka_tools import BrokerError, KafkaTools, Message
from dev.ports import HOST, free_ports, listens
from dev.supervisor import SupervisedServer
from dev.waiting import wait_for_start

if TYPE_CHECKING:
    from confluent_kafka.admin import UserScramCredentialAlteration

    from dev.certificates import Authority

__all__ = [
    "CLASS_ARCHIVE",
    "KAFKA_JARS",
    "BrokerError",
    "KafkaBroker",
    "Message",
    "main",
    "new_cluster_id",
    "write_class_archive",
]

KAFKA_JARS: Final = Path(__file__).resolve().parent.parent / ".build" / "jars" / "kafka"
CLASS_ARCHIVE: Final = KAFKA_JARS.parent.parent / "class-archives" / "kafka.jsa"
"""Checked classes of the broker, which ``make`` has written: a JVM that maps them starts in half of the time."""
MIB: Final = 1024 * 1024

_SHORT_LIVED: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""Code is not optimised, and garbage is collected by one thread: for a broker of some minutes the rest is a loss."""
_QUIET: Final = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off", "-Xlog:class+path=off")
"""An archive of another Java or of other jars is ignored."""

_LOG4J2: Final = """<?xml version="1.0" encoding="UTF-8"?>
<Configuration status="WARN">
  <Appenders>
    <Console name="out" target="SYSTEM_OUT"><PatternLayout pattern="%d{HH:mm:ss.SSS} %p %c{1}: %m%n"/></Console>
  </Appenders>
  <Loggers><Root level="WARN"><AppenderRef ref="out"/></Root></Loggers>
</Configuration>
"""

log = logging.getLogger(__name__)


def new_cluster_id() -> str:
    """A random id as Kafka makes them."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


def _port_in_use(port: int) -> bool:
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            s.bind((HOST, port))
        except OSError:
            return True
    return False


class KafkaBroker(KafkaTools, SupervisedServer):
    """One Kafka broker in a process group of its own, whose id is :attr:`pid`.

    :meth:`start` returns when the broker serves metadata. It raises a :class:`BrokerError` if there are no jars, if the
    port is taken, or, with the end of the log, if the broker ends or does not answer.

    Args:
        port: port of the plain listener; None takes a free one.
        users: names and passwords; if there are any, a second listener (``sasl_bootstrap_servers``) requires them,
            by PLAIN or SCRAM-SHA-512.
        authority: if there is one, other listeners use TLS with certificates that it issues: one requires passwords or
            tokens (``tls_bootstrap_servers``), one requires client certificates (``mutual_bootstrap_servers``).
        token_keys: JWKS file; tokens that are signed by one of its keys are accepted, too.
        config: more settings of ``server.properties``.
        heap: size of the Java heap, as in ``-Xmx``.
        optimised: Java optimises what runs often, for a broker under load, as those of benchmarks.
        archive: file in which Java writes the classes of the broker at its end; None: it writes none.
        jars: folder of the broker's jars.
    """

    _NAME = "kafka-broker"

    def __init__(
        self,
        *,
        port: int | None = None,
        users: Mapping[str, str] | None = None,
        authority: Authority | None = None,
        token_keys: Path | None = None,
        config: Mapping[str, str] | None = None,
        heap: str = "512m",
        optimised: bool = False,
        archive: Path | None = None,
        jars: Path = KAFKA_JARS,
    ) -> None:
        super().__init__("")
        self._given_port = port
        self._security = KafkaSecurity(dict(users or {}), authority, token_keys)
        self._config = dict(config or {})
        self._heap = heap
        self._optimised = optimised
        self._archive = archive
        self._jars = jars
        self._port = 0
        self._ports: dict[str, int] = {}

    @property
    def sasl_bootstrap_servers(self) -> str:
        """``host:port`` of the SASL_PLAINTEXT listener, if the broker has users."""
        return f"{HOST}:{self._ports['SASL']}"

    @property
    def tls_bootstrap_servers(self) -> str:
        """``host:port`` of the SASL_SSL listener, if the broker has an authority, and users or keys of tokens."""
        return f"{HOST}:{self._ports['TLS']}"

    @property
    def mutual_bootstrap_servers(self) -> str:
        """``host:port`` of the SSL listener that demands certificates, if the broker has an authority."""
        return f"{HOST}:{self._ports['MUTUAL']}"

    @property
    def running(self) -> bool:
        """Whether the broker's process is running."""
        return self._process is not None and self._process.poll() is None

    def _start(self) -> None:
        if not any(self._jars.glob("kafka_*.jar")):
            raise BrokerError(f"no Kafka in {self._jars}; run `make jars`")
        if self._given_port is not None and _port_in_use(self._given_port):
            raise BrokerError(f"port {self._given_port} is in use; choose another or stop the server that uses it")
        self._launch()
        self._await_metadata()
        self._create_scram_users()

    def stop(self) -> None:
        """Stop the broker and delete its data; a broker that is not running is fine."""
        self.__dict__.pop("admin", None)
        super().stop()

    def lose_log(self, topic: str, partition: int = 0) -> None:
        """Delete the records of a partition, as if a disk was lost, of a broker that was killed."""
        if self.running or self._directory is None:
            raise BrokerError("the broker is running; kill() it first")
        data = Path(self._directory) / "data"
        for file in (data / f"{topic}-{partition}").iterdir():
            if file.name != "partition.metadata":
                file.unlink()
        # Otherwise the high watermark would be that of the log before.
        for checkpoint in data.glob("*-checkpoint"):
            checkpoint.unlink()

    def restart(self) -> None:
        """Start a broker that was killed again, on the same data and ports, and wait until it serves metadata."""
        if self.running:
            raise BrokerError("the broker is running; kill() it first")
        self._spawn()
        self._await_metadata()

    def _launch(self) -> None:
        directory = self._make_directory()
        controller, client, *others = free_ports(2 + len(self._security.listeners))
        self._port = self._given_port or client
        self.bootstrap_servers = f"{HOST}:{self._port}"
        self._ports = dict(zip(self._security.listeners, others, strict=True))
        properties = directory / "server.properties"
        properties.write_text(
            "".join(f"{name}={value}\n" for name, value in self._settings(controller).items()), encoding="utf-8"
        )
        (directory / "log4j2.xml").write_text(_LOG4J2, encoding="utf-8")
        formatted = subprocess.run(
            [
                *(*self._java_command(), *_SHORT_LIVED, *_shared_classes()),
                *("kafka.tools.StorageTool", "format", "-c", str(properties), *self._format_options()),
            ],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if formatted.returncode:
            raise BrokerError(f"Kafka's storage cannot be formatted:\n{formatted.stdout}{formatted.stderr}")
        self._spawn()

    def _format_options(self) -> list[str]:
        # With "=": one id in 64 begins with a dash, and would be parsed as an option.
        return [f"--cluster-id={new_cluster_id()}", "--standalone"]

    def _java_command(self) -> list[str]:
        return [
            find_java(),
            f"-Dlog4j2.configurationFile={self._directory}/log4j2.xml",
            "-Djava.awt.headless=true",
            *self._security.java_options,
            "-cp",
            f"{self._jars}/*",
        ]

    def _spawn(self) -> None:
        if self._archive is not None:
            classes = [*_SHORT_LIVED, f"-XX:ArchiveClassesAtExit={self._archive}", *_QUIET]
        else:
            classes = [] if self._optimised else [*_SHORT_LIVED, *_shared_classes()]
        properties = f"{self._directory}/server.properties"
        self._run([*self._java_command(), f"-Xmx{self._heap}", *classes, "kafka.Kafka", properties])

    def _settings(self, controller_port: int) -> dict[str, str]:
        assert self._directory is not None
        listeners = {"CLIENT": self._port, "CONTROLLER": controller_port, **self._ports}
        protocols = {"CLIENT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT", **self._security.listeners}
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.bootstrap.servers": f"{HOST}:{controller_port}",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "CLIENT",
            "listeners": ",".join(f"{name}://{HOST}:{port}" for name, port in listeners.items()),
            "listener.security.protocol.map": ",".join(f"{name}:{p}" for name, p in protocols.items()),
            "log.dirs": f"{self._directory}/data",
            # One node holds every replica there is.
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            "auto.create.topics.enable": "false",
            # Records carry timestamps of years ago: retention by time would delete them within minutes.
            "log.retention.ms": "-1",
            # Compaction is tested too: it has to come soon, and not reserve the default 128 MiB.
            "log.cleaner.dedupe.buffer.size": str(16 * MIB),
            "log.cleaner.backoff.ms": "200",
            "message.max.bytes": str(16 * MIB),
            **self._security.settings(self._directory),
            **self._config,
        }

    def _await_metadata(self) -> None:
        assert self._process is not None
        wait_for_start(
            f"the Kafka broker at {self.bootstrap_servers}",
            self._answers,
            [self._process],
            timeout=90,
            log=self.last_lines,
            interval=0.05,
            error=BrokerError,
        )

    def _answers(self) -> bool:
        from confluent_kafka import KafkaException

        # This check comes first, since librdkafka backs off while no server listens.
        if not listens(self._port):
            return False
        try:
            return bool(self.admin.list_topics(timeout=5).brokers)
        except KafkaException:
            return False

    def _create_scram_users(self) -> None:
        from confluent_kafka.admin import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        upsertions: list[UserScramCredentialAlteration] = [
            UserScramCredentialUpsertion(name, info, password.encode())
            for name, password in self._security.users.items()
        ]
        if upsertions:
            for future in self.admin.alter_user_scram_credentials(upsertions).values():
                future.result()


def _shared_classes() -> list[str]:
    """The options by which a JVM maps the archive, if there is one."""
    is_written = CLASS_ARCHIVE.is_file() and CLASS_ARCHIVE.stat().st_size > 0
    return [f"-XX:SharedArchiveFile={CLASS_ARCHIVE}", *_QUIET] if is_written else []


def write_class_archive() -> None:
    """Write the archive, by a broker that is started and stopped; an empty one if this Java makes none."""
    CLASS_ARCHIVE.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    written = CLASS_ARCHIVE.with_suffix(f".{uuid.uuid4().hex}")
    try:
        with KafkaBroker(archive=written) as broker:
            broker.create_topic("any")
            broker.produce("any", [Message(b"any")])
    except BrokerError as e:
        print(f"kafka_broker: this Java archives no classes, so brokers start slowly: {e}", file=sys.stderr)
    if not written.exists():
        written.touch()
    written.replace(CLASS_ARCHIVE)


def main(arguments: list[str] | None = None) -> int:
    """Run a broker until SIGINT or SIGTERM; 2 if it cannot start."""
    parser = argparse.ArgumentParser(prog="python -m dev.kafka_broker", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--port", type=int, default=9092, help="port on 127.0.0.1 (default: %(default)s)")
    parser.add_argument("--topic", action="append", default=[], metavar="NAME[:PARTITIONS]", help="create a topic")
    parser.add_argument("--archive", action="store_true", help=f"only write {CLASS_ARCHIVE.name}, for later brokers")
    options = parser.parse_args(arguments)
    if options.archive:
        write_class_archive()
        return 0
    over = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: over.set())
    try:
        with KafkaBroker(port=options.port) as broker:
            for topic in options.topic:
                name, _, partitions = topic.partition(":")
                broker.create_topic(name, int(partitions or 1))
            print(f"Kafka is ready: bootstrap.servers={broker.bootstrap_servers} (Ctrl-C stops it)", flush=True)
            while broker.running and not over.wait(0.5):
                pass
            if not broker.running:
                raise BrokerError(f"the Kafka broker died; its log ends with:\n{broker.last_lines()}")
    except (RuntimeError, TimeoutError) as e:
        print(f"kafka_broker: {e}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
