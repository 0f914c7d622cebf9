"""Real Kafka brokers for tests in which some of them die: leaders move, partitions have no leader.

Of two, the first node is the controller and a broker, the second one a broker only, so that killing the second leaves a
cluster that works. Of three, each is a controller, too, so that the cluster works without any one of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from dev.kafka_broker import KafkaBroker, new_cluster_id
from dev.kafka_tools import KafkaTools
from dev.ports import HOST, free_ports
from dev.supervisor import Startable
from dev.waiting import wait_until

__all__ = ["KafkaCluster", "ThreeBrokers"]

CONTROLLER: Final = 1
OTHER: Final = 2


class _Node(KafkaBroker):
    """One broker of a cluster; all but the first have the controller's address in their settings."""

    def __init__(self, number: int, cluster_id: str, controller: _Node | None, config: Mapping[str, str]) -> None:
        super().__init__(config=config, heap="256m")
        self._number = number
        self._cluster_id = cluster_id
        self._controller = controller
        self.controller_port = 0

    def _format_options(self) -> list[str]:
        role = "--standalone" if self._controller is None else "--no-initial-controllers"
        return [f"--cluster-id={self._cluster_id}", role]

    def _settings(self, controller_port: int) -> dict[str, str]:
        settings = super()._settings(controller_port) | {"node.id": str(self._number)}
        self.controller_port = controller_port if self._controller is None else self._controller.controller_port
        if self._controller is not None:
            settings |= {
                "process.roles": "broker",
                "listeners": f"CLIENT://{HOST}:{self._port}",
                "controller.quorum.bootstrap.servers": f"{HOST}:{self.controller_port}",
            }
        return settings | self._config


_QUICK: Final = {"broker.heartbeat.interval.ms": "300", "broker.session.timeout.ms": "6000"}
"""A dead broker is detected sooner than by default, and one that waits for a processor or a disk is not dead."""


class _ReplicatedTopics(KafkaTools):
    """Topics whose replicas are on chosen nodes."""

    def create_replicated(
        self, name: str, replicas: Sequence[int], partitions: int = 1, config: Mapping[str, str] | None = None
    ) -> str:
        """Create a topic whose partitions are on these nodes; the first one leads. Returns the name."""
        from confluent_kafka.admin import NewTopic

        topic = NewTopic(
            name, num_partitions=partitions, replica_assignment=[list(replicas)] * partitions, config=dict(config or {})
        )
        self.admin.create_topics([topic])[name].result()
        wait_until(lambda: self._leaders(name) == partitions, f"a leader for all partitions of {name}")
        return name

    def leader(self, topic: str, partition: int = 0) -> int:
        """Number of the node that leads a partition; -1 if none does."""
        return int(self.admin.list_topics(topic, timeout=10).topics[topic].partitions[partition].leader)

    def in_sync(self, topic: str, partition: int = 0) -> set[int]:
        """Numbers of the nodes that have all records of a partition."""
        return {*self.admin.list_topics(topic, timeout=10).topics[topic].partitions[partition].isrs}

    def await_brokers(self, count: int) -> None:
        """Wait until the cluster has this number of brokers."""
        wait_until(lambda: len(self.admin.list_topics(timeout=10).brokers) == count, f"{count} brokers")


class KafkaCluster(_ReplicatedTopics, Startable):
    """A controller with a broker, and another broker, :attr:`other`, that can be killed and restarted.

    Args:
        config: more settings of ``server.properties`` of both.
    """

    def __init__(self, config: Mapping[str, str] | None = None) -> None:
        super().__init__("")
        quick = {**_QUICK, **(config or {})}
        cluster_id = new_cluster_id()
        self.controller = _Node(CONTROLLER, cluster_id, None, quick)
        self.other = _Node(OTHER, cluster_id, self.controller, quick)

    def _start(self) -> None:
        self.controller.start()
        self.other.start()
        self.bootstrap_servers = f"{self.controller.bootstrap_servers},{self.other.bootstrap_servers}"
        self.await_brokers(2)

    def stop(self) -> None:
        """Stop both brokers and delete their data."""
        self.__dict__.pop("admin", None)
        self.other.stop()
        self.controller.stop()

    def revive(self) -> None:
        """Start the other node again if it was killed, and wait until the cluster has it back."""
        if not self.other.running:
            self.other.restart()
        self.await_brokers(2)


class _Voter(KafkaBroker):
    """One of three brokers that are controllers, too."""

    def __init__(self, number: int, cluster_id: str, controllers: Sequence[int], config: Mapping[str, str]) -> None:
        super().__init__(config=config, heap="256m")
        self._number = number
        self._cluster_id = cluster_id
        self._controllers = controllers

    def _format_options(self) -> list[str]:
        return [f"--cluster-id={self._cluster_id}"]

    def _settings(self, controller_port: int) -> dict[str, str]:  # noqa: ARG002 - all ports are known before
        settings = super()._settings(self._controllers[self._number - 1])
        settings.pop("controller.quorum.bootstrap.servers")
        voters = ",".join(f"{n}@{HOST}:{port}" for n, port in enumerate(self._controllers, 1))
        replicated = {
            "offsets.topic.replication.factor": "3",
            "transaction.state.log.replication.factor": "3",
            "transaction.state.log.min.isr": "2",
        }
        quorum = {"node.id": str(self._number), "controller.quorum.voters": voters}
        return settings | replicated | quorum | self._config


class ThreeBrokers(_ReplicatedTopics, Startable):
    """Three brokers, numbered from 1, each of which can be killed and restarted.

    Args:
        config: more settings of ``server.properties`` of all.
    """

    replication_factor = 3

    def __init__(self, config: Mapping[str, str] | None = None) -> None:
        super().__init__("")
        self._config = {**_QUICK, **(config or {})}
        self.nodes: dict[int, KafkaBroker] = {}

    def _start(self) -> None:
        cluster_id, controllers = new_cluster_id(), free_ports(3)
        self.nodes = {n: _Voter(n, cluster_id, controllers, self._config) for n in (1, 2, 3)}
        # None of them answers before most of them run.
        with ThreadPoolExecutor(3) as pool:
            [*pool.map(KafkaBroker.start, self.nodes.values())]
        self.bootstrap_servers = ",".join(node.bootstrap_servers for node in self.nodes.values())
        self.await_brokers(3)

    def stop(self) -> None:
        """Stop all brokers and delete their data."""
        self.__dict__.pop("admin", None)
        for node in self.nodes.values():
            node.stop()

    def create_rotated(self, name: str) -> str:
        """Create a topic of three partitions, each on all brokers and led by another one. Returns the name."""
        from confluent_kafka.admin import NewTopic

        topic = NewTopic(name, num_partitions=3, replica_assignment=[[1, 2, 3], [2, 3, 1], [3, 1, 2]])
        self.admin.create_topics([topic])[name].result()
        wait_until(lambda: self._leaders(name) == 3, f"a leader for all partitions of {name}")
        return name

    def kill(self, *numbers: int) -> None:
        """Kill brokers."""
        for number in numbers:
            self.nodes[number].kill()

    def restart(self, number: int) -> None:
        """Start a killed broker again."""
        self.nodes[number].restart()

    def reassign(self, topic: str, replicas: Mapping[int, Sequence[int]], jars: Path) -> None:
        """Move partitions to other brokers, and wait until they are there: only a Java client has this request.

        Args:
            topic: name of the topic.
            replicas: per partition its new brokers.
            jars: of Kafka.
        """
        import pyspark
        from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

        (py4j_jar,) = (Path(pyspark.__file__).parent / "jars").glob("py4j-*.jar")
        port, token = launch_gateway(jarpath=str(py4j_jar), classpath=f"{jars}/*", die_on_exit=True, enable_auth=True)
        gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token, auto_convert=True))
        try:
            java = gateway.jvm
            client = java.org.apache.kafka.clients.admin
            admin = client.Admin.create({"bootstrap.servers": self.bootstrap_servers})
            moves = {
                java.org.apache.kafka.common.TopicPartition(topic, p): java.java.util.Optional.of(
                    client.NewPartitionReassignment([*numbers])
                )
                for p, numbers in replicas.items()
            }
            admin.alterPartitionReassignments(moves).all().get()
            wait_until(lambda: admin.listPartitionReassignments().reassignments().get().isEmpty(), "the moves")
            admin.close()
        finally:
            gateway.shutdown()
        wait_until(
            lambda: all(self.in_sync(topic, p) == {*numbers} for p, numbers in replicas.items()), "the new leaders"
        )

    def revive(self) -> None:
        """Start killed brokers again, and wait until the cluster has them back."""
        killed = [node for node in self.nodes.values() if not node.running]
        with ThreadPoolExecutor(3) as pool:
            [*pool.map(KafkaBroker.restart, killed)]
        self.await_brokers(3)
