"""How a command reaches the bucket and Kafka: Airflow connections, or options and the environment. No secret is one."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

from airflow_provider_kafka_s3.batch.commit import Committer
from airflow_provider_kafka_s3.batch.log import TopicLog
from airflow_provider_kafka_s3.batch.source import Isolation, Source, TimedOffset, TopicView
from airflow_provider_kafka_s3.cli.stored_connections import read_connection
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.inspect.status import owned_topics
from airflow_provider_kafka_s3.layout import keys
from airflow_provider_kafka_s3.pipeline import TopicPipeline
from airflow_provider_kafka_s3.retry import Retrier
from airflow_provider_kafka_s3.storage.durable import DurableStore
from airflow_provider_kafka_s3.storage.s3 import S3Credentials, S3Settings, S3Store, make_client

if TYPE_CHECKING:
    import pyarrow as pa
    from mypy_boto3_s3 import S3Client

    from airflow_provider_kafka_s3.storage.port import ObjectStore

__all__ = ["Access", "add_options", "open_source", "open_store"]

_ENVIRONMENT: Final = {
    "bucket": "KAFKA_S3_BUCKET",
    "aws_conn_id": "KAFKA_S3_AWS_CONN_ID",
    "endpoint_url": "KAFKA_S3_ENDPOINT_URL",
    "kafka_conn_id": "KAFKA_S3_KAFKA_CONN_ID",
    "kafka_config": "KAFKA_S3_KAFKA_CONFIG",
    "bootstrap_server": "KAFKA_S3_BOOTSTRAP_SERVER",
}
_S3_OPTIONS: Final = ("endpoint_url", "region", "ca_bundle", "addressing_style")
_KAFKA_WAYS: Final = ("kafka_conn_id", "kafka_config", "bootstrap_server")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of every command that say where things are."""
    s3 = parser.add_argument_group("the bucket (a connection, or options and boto3's own chain of credentials)")
    s3.add_argument("--bucket", help="name of the bucket [KAFKA_S3_BUCKET]")
    s3.add_argument("--aws-conn-id", metavar="ID", help="Airflow connection of type aws [KAFKA_S3_AWS_CONN_ID]")
    s3.add_argument("--endpoint-url", metavar="URL", help="of an S3-compatible store [KAFKA_S3_ENDPOINT_URL]")
    s3.add_argument("--region", help="of the bucket; default: boto3's")
    s3.add_argument("--ca-bundle", metavar="FILE", help="PEM file of authorities to trust")
    s3.add_argument("--addressing-style", choices=("auto", "path", "virtual"), help="how URLs name the bucket")
    kafka = parser.add_argument_group("Kafka (one of these, for the commands that need it)")
    kafka.add_argument(
        "--kafka-conn-id", metavar="ID", help="Airflow connection of type kafka [KAFKA_S3_KAFKA_CONN_ID]"
    )
    kafka.add_argument(
        "--kafka-config", metavar="FILE", help="JSON file of librdkafka's settings, secrets too [KAFKA_S3_KAFKA_CONFIG]"
    )
    kafka.add_argument(
        "--bootstrap-server", metavar="HOST:PORT", help="of a cluster without a login [KAFKA_S3_BOOTSTRAP_SERVER]"
    )


def open_store(settings: S3Settings, credentials: S3Credentials | None, bucket: str) -> tuple[ObjectStore, S3Client]:
    """The bucket, and the client behind it; nothing is sent yet."""
    client = make_client(settings, credentials)
    return S3Store(client, bucket), client


def open_source(config: Mapping[str, Any], retrier: Retrier) -> Source:
    """Kafka. Nothing is sent yet."""
    from airflow_provider_kafka_s3.kafka.source import KafkaSource

    return KafkaSource(config, retrier=retrier)


@dataclass(frozen=True)
class Access:
    """What a command works with, as its options say; connected when it is used.

    Attributes:
        arguments: the parsed options.
    """

    arguments: argparse.Namespace

    @property
    def topics_dir(self) -> str:
        """Prefix of all keys."""
        return str(self.arguments.topics_dir)

    @property
    def bucket(self) -> str:
        """Name of the bucket."""
        bucket = self._option("bucket")
        if not bucket:
            raise ConfigurationError("no bucket is named; use --bucket, or the environment variable KAFKA_S3_BUCKET")
        return bucket

    @cached_property
    def _opened(self) -> tuple[ObjectStore, S3Client]:
        explicit = [name for name in _S3_OPTIONS if getattr(self.arguments, name)]
        connection = self.arguments.aws_conn_id
        if connection and explicit:
            raise ConfigurationError(
                f"--aws-conn-id says where the store is, and so do --{', --'.join(explicit).replace('_', '-')}; use "
                f"either"
            )
        if connection or (not explicit and (connection := self._option("aws_conn_id"))):
            from airflow_provider_kafka_s3.airflow import connections

            access = read_connection(connection, connections.s3_access, "aws_conn_id")
            return open_store(access.settings, access.credentials, self.bucket)
        settings = S3Settings(
            endpoint_url=self._option("endpoint_url"),
            region=self.arguments.region,
            ca_bundle=self.arguments.ca_bundle,
            addressing_style=self.arguments.addressing_style or "auto",
        )
        return open_store(settings, None, self.bucket)

    @property
    def client(self) -> S3Client:
        """The client of the bucket, for what is no part of the protocol."""
        return self._opened[1]

    @cached_property
    def retrier(self) -> Retrier:
        """Repeats requests to the store and the brokers."""
        return Retrier()

    @cached_property
    def store(self) -> DurableStore:
        """The bucket."""
        return DurableStore(self._opened[0], self.retrier)

    @property
    def has_kafka(self) -> bool:
        """Whether an option or a variable names Kafka."""
        return any(self._option(name) for name in _KAFKA_WAYS)

    @cached_property
    def kafka_config(self) -> dict[str, Any]:
        """Librdkafka's settings; secrets are in them."""
        given = [name for name in _KAFKA_WAYS if getattr(self.arguments, name)]
        ways = given or [name for name in _KAFKA_WAYS if self._option(name)]
        if len(ways) != 1:
            problem = (
                "nothing says where Kafka is" if not ways else f"--{' and --'.join(ways).replace('_', '-')} are given"
            )
            raise ConfigurationError(
                f"{problem}; use one of --kafka-conn-id, --kafka-config and --bootstrap-server, or its variable"
            )
        value = str(self._option(ways[0]))
        if ways[0] == "bootstrap_server":
            return {"bootstrap.servers": value}
        if ways[0] == "kafka_config":
            return _read_config(value)
        from airflow_provider_kafka_s3.airflow import connections

        return read_connection(value, connections.kafka_config, "kafka_conn_id")

    @cached_property
    def source(self) -> Source:
        """Kafka. Without an option or a variable that names it, every request is a ConfigurationError."""
        return open_source(self.kafka_config, self.retrier) if self.has_kafka else _NoKafka()

    @property
    def options(self) -> tuple[str, ...]:
        """These options again, for the commands that errors print."""
        names = ("kafka_conn_id", "kafka_config", "bootstrap_server", "aws_conn_id", *_S3_OPTIONS)
        return tuple(
            word
            for name in names
            if (value := getattr(self.arguments, name))
            for word in (f"--{name.replace('_', '-')}", str(value))
        )

    def topic_pipeline(self, pipeline: str, topic: str) -> TopicPipeline:
        """One topic of a pipeline, landed or not."""
        return TopicPipeline(
            self.store,
            self.source,
            topics_dir=self.topics_dir,
            pipeline=pipeline,
            topic=topic,
            connection_options=self.options,
        )

    def topic_log(self, pipeline: str, topic: str) -> TopicLog:
        """The log of a topic."""
        return self.topic_pipeline(pipeline, topic).log

    def committer(self) -> Committer:
        """Of the one topic that was named, which has to have been landed.

        Raises:
            ConfigurationError: the pipeline has never landed it.
        """
        committer = self.topic_pipeline(self.arguments.pipeline, self.arguments.topic).committer
        self.require_landed(committer.log)
        return committer

    def require_landed(self, topic_log: TopicLog) -> None:
        """Refuse what is probably a slip of the pen: a topic without marker and without batches."""
        if topic_log.store.head(keys.marker_key(topic_log.prefix)) is None and topic_log.read_plan(1) is None:
            raise ConfigurationError(
                f"there is nothing of pipeline {topic_log.pipeline!r} and topic {topic_log.topic!r} at "
                f"{self.store.url(topic_log.prefix)}; check --topics-dir, --pipeline, --topic and --bucket (`kafka-s3 "
                f"status` without --pipeline lists what is there)"
            )

    def topic_logs(self) -> list[TopicLog]:
        """The topics that were named, or else all of the pipeline, or else all under the ``topics_dir``."""
        pipeline, topics = self.arguments.pipeline, self.arguments.topic or ()
        if topics and not pipeline:
            raise ConfigurationError("--topic is named and --pipeline is not; a topic belongs to a pipeline")
        named: Sequence[tuple[str, str]] = [(pipeline, topic) for topic in topics]
        return [
            self.topic_log(*found)
            for found in named or owned_topics(self.store, topics_dir=self.topics_dir, pipeline=pipeline)
        ]

    def _option(self, name: str) -> str | None:
        return getattr(self.arguments, name) or os.environ.get(_ENVIRONMENT[name]) or None


def _read_config(path: str) -> dict[str, Any]:
    try:
        config = json.loads(Path(path).read_bytes())
    except OSError as e:
        raise ConfigurationError(f"--kafka-config {path}: it cannot be read ({e.strerror})") from e
    except ValueError:
        config = None
    if not isinstance(config, dict):
        # Neither the text nor the parser's error is quoted: secrets are in there.
        raise ConfigurationError(
            f"--kafka-config {path}: it is not a JSON object of librdkafka's settings, such as "
            f'{{"bootstrap.servers": "broker:9092"}}'
        ) from None
    return config


class _NoKafka:
    """In the place of Kafka, where no option and no variable names it."""

    def describe(self, topic: str) -> TopicView:
        """See :class:`~airflow_provider_kafka_s3.batch.source.Source`."""
        self._refuse(topic)

    def earliest(self, topic: str, partitions: Sequence[int]) -> dict[int, int]:  # noqa: ARG002 - the port's
        """See :class:`~airflow_provider_kafka_s3.batch.source.Source`."""
        self._refuse(topic)

    def ends(self, topic: str, partitions: Sequence[int], isolation: Isolation) -> dict[int, int]:  # noqa: ARG002
        """See :class:`~airflow_provider_kafka_s3.batch.source.Source`."""
        self._refuse(topic)

    def at_timestamp(self, topic: str, partitions: Sequence[int], timestamp_ms: int) -> dict[int, TimedOffset | None]:  # noqa: ARG002
        """See :class:`~airflow_provider_kafka_s3.batch.source.Source`."""
        self._refuse(topic)

    def read(
        self,
        topic: str,
        partition: int,  # noqa: ARG002
        start: int,  # noqa: ARG002
        end: int,  # noqa: ARG002
        isolation: Isolation,  # noqa: ARG002
        *,
        whole: bool = False,  # noqa: ARG002
    ) -> Iterator[pa.RecordBatch]:
        """See :class:`~airflow_provider_kafka_s3.batch.source.Source`."""
        self._refuse(topic)

    def _refuse(self, topic: str) -> NoReturn:
        raise ConfigurationError(
            f"topic {topic!r} has to be looked at in Kafka, and nothing says where that is; give one of "
            f"--kafka-conn-id, --kafka-config and --bootstrap-server"
        )
