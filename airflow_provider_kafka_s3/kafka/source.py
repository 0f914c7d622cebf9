"""The Kafka cluster of the commit protocol: topics, offsets, and the records of a slice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from airflow_provider_kafka_s3.kafka.divergence import LogPosition
from airflow_provider_kafka_s3.kafka.offsets import Isolation, KafkaCluster, LogEnd, TimedOffset, TopicInfo
from airflow_provider_kafka_s3.kafka.records import read_records
from airflow_provider_kafka_s3.retry import Retrier

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["KafkaSource"]


class KafkaSource:
    """A :class:`~airflow_provider_kafka_s3.batch.source.Source` that uses librdkafka."""

    def __init__(
        self,
        config: Mapping[str, object],
        *,
        timeout: float = 30.0,
        read_timeout: float = 60.0,
        retrier: Retrier | None = None,
        connection: str = "the Kafka connection",
    ) -> None:
        """Make a source; it connects with the first request.

        Args:
            config: librdkafka settings: the extra of an Airflow connection of type ``kafka``.
            timeout: seconds to wait for one response.
            read_timeout: seconds without any record until a read fails.
            retrier: repeats requests that got no response; None: the package's defaults.
            connection: names the Airflow connection, for messages.

        Raises:
            ConfigurationError: a setting is missing, protected, unknown or malformed.
        """
        self._config = config
        self._read_timeout = read_timeout
        self._cluster = KafkaCluster(config, timeout=timeout, retrier=retrier, connection=connection)

    @property
    def bootstrap_servers(self) -> str:
        """Addresses of brokers, for messages."""
        return self._cluster.bootstrap_servers

    def describe(self, topic: str) -> TopicInfo:
        """See :meth:`KafkaCluster.describe`."""
        return self._cluster.describe(topic)

    def earliest(self, topic: str, partitions: Sequence[int]) -> dict[int, int]:
        """See :meth:`KafkaCluster.earliest`."""
        return self._cluster.earliest(topic, partitions)

    def ends(self, topic: str, partitions: Sequence[int], isolation: Isolation) -> dict[int, int]:
        """See :meth:`KafkaCluster.ends`."""
        return self._cluster.ends(topic, partitions, isolation)

    def log_ends(self, topic: str, partitions: Sequence[int], isolation: Isolation) -> dict[int, LogEnd]:
        """See :meth:`KafkaCluster.log_ends`."""
        return self._cluster.log_ends(topic, partitions, isolation)

    def divergences(self, topic: str, reached: Mapping[int, LogPosition]) -> dict[int, int]:
        """See :meth:`KafkaCluster.divergences`."""
        return self._cluster.divergences(topic, reached)

    def at_timestamp(self, topic: str, partitions: Sequence[int], timestamp_ms: int) -> dict[int, TimedOffset | None]:
        """See :meth:`KafkaCluster.at_timestamp`."""
        return self._cluster.at_timestamp(topic, partitions, timestamp_ms)

    def read(
        self, topic: str, partition: int, start: int, end: int, isolation: Isolation, *, whole: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """See :func:`read_records`."""
        return read_records(
            self._config, topic, partition, start, end, isolation=isolation, timeout=self._read_timeout, whole=whole
        )
