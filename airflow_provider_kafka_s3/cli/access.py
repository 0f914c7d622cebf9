"""Access of a command to the bucket and Kafka: by Airflow connections, or by options and environment variables.

Secrets are neither options nor variables of this package.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from airflow_provider_kafka_s3.batch.log import TopicLog
from airflow_provider_kafka_s3.batch.no_kafka import NoKafka
from airflow_provider_kafka_s3.batch.remedies import command_line
from airflow_provider_kafka_s3.batch.source import Source
from airflow_provider_kafka_s3.cli.defaults import default_of
from airflow_provider_kafka_s3.cli.stored_connections import read_connection
from airflow_provider_kafka_s3.config import Upload, parse_upload
from airflow_provider_kafka_s3.documents.addresses import TopicAddress
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.inspect.topics import nothing_there, owned_topics
from airflow_provider_kafka_s3.pipeline import TopicPipeline, open_topic
from airflow_provider_kafka_s3.reading.source_by_log import SourceByLog
from airflow_provider_kafka_s3.registry.client import RegistryClient
from airflow_provider_kafka_s3.registry.settings import RegistrySettings
from airflow_provider_kafka_s3.retry import Retrier
from airflow_provider_kafka_s3.storage import bucket as s3_bucket
from airflow_provider_kafka_s3.storage.credentials import S3Credentials
from airflow_provider_kafka_s3.storage.durable import DurableStore
from airflow_provider_kafka_s3.storage.s3 import S3Settings, make_client

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

__all__ = ["Access", "add_kafka_options", "add_options"]

_ADDRESSING_STYLES: Final = ("auto", "path", "virtual")
_S3_OPTIONS: Final = ("endpoint_url", "region", "ca_bundle", "addressing_style")
_KAFKA_EXAMPLE: Final = '{"bootstrap.servers": "broker:9092"}'
_KAFKA_WAYS: Final = ("kafka_conn_id", "kafka_config", "bootstrap_server")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for the bucket and Kafka, which every command has."""
    s3 = parser.add_argument_group("bucket (an Airflow connection, or options and boto3's own chain of credentials)")
    s3.add_argument("--bucket", help="name of the bucket [KAFKA_S3_BUCKET]")
    s3.add_argument("--aws-conn-id", metavar="ID", help="Airflow connection of type aws [KAFKA_S3_AWS_CONN_ID]")
    s3.add_argument("--endpoint-url", metavar="URL", help="URL of an S3-compatible store [KAFKA_S3_ENDPOINT_URL]")
    s3.add_argument("--region", help="region of the bucket; default: boto3's [KAFKA_S3_REGION]")
    s3.add_argument(
        "--ca-bundle", metavar="FILE", help="PEM file of trusted certificate authorities [KAFKA_S3_CA_BUNDLE]"
    )
    s3.add_argument(
        "--addressing-style",
        choices=_ADDRESSING_STYLES,
        help="where URLs contain the bucket's name [KAFKA_S3_ADDRESSING_STYLE]",
    )
    s3.add_argument(
        "--upload",
        metavar="JSON",
        help="the operator's upload, for what is written: encryption, acl, storage_class, on_tag_error "
        "[KAFKA_S3_UPLOAD]",
    )
    kafka = add_kafka_options(parser)
    kafka.add_argument(
        "--registry-conn-id",
        metavar="ID",
        help="Airflow connection of type http of a schema registry [KAFKA_S3_REGISTRY_CONN_ID]",
    )
    kafka.add_argument(
        "--registry-url", metavar="URL", help="URL of a schema registry without login [KAFKA_S3_REGISTRY_URL]"
    )


def add_kafka_options(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """Add the options for Kafka alone; returns their group."""
    kafka = parser.add_argument_group("Kafka (one of these, for commands that need it)")
    kafka.add_argument(
        "--kafka-conn-id", metavar="ID", help="Airflow connection of type kafka [KAFKA_S3_KAFKA_CONN_ID]"
    )
    kafka.add_argument(
        "--kafka-config", metavar="FILE", help="JSON file of librdkafka settings, with secrets [KAFKA_S3_KAFKA_CONFIG]"
    )
    kafka.add_argument(
        "--bootstrap-server", metavar="HOST:PORT", help="broker of a cluster without login [KAFKA_S3_BOOTSTRAP_SERVER]"
    )
    return kafka


@dataclass(frozen=True)
class Access:
    """The bucket and the Kafka cluster of a command. Connections are opened on first use.

    Attributes:
        arguments: parsed options.
    """

    arguments: argparse.Namespace

    @property
    def topics_dir(self) -> str:
        """Prefix of all keys."""
        return str(self.arguments.topics_dir)

    @property
    def bucket(self) -> str:
        """Name of the bucket."""
        bucket = self.option("bucket")
        if not bucket:
            raise ConfigurationError("no bucket is named; use --bucket, or the environment variable KAFKA_S3_BUCKET")
        return bucket

    @cached_property
    def s3_access(self) -> tuple[S3Settings, S3Credentials | None]:
        """How the store is reached, with secrets."""
        explicit = [name for name in _S3_OPTIONS if getattr(self.arguments, name)]
        connection = self.arguments.aws_conn_id
        if connection and explicit:
            raise ConfigurationError(
                f"--aws-conn-id cannot be combined with --{', --'.join(explicit).replace('_', '-')}: the connection "
                f"has these settings; use either"
            )
        if connection or (not explicit and (connection := self.option("aws_conn_id"))):
            from airflow_provider_kafka_s3.airflow import connections

            access = read_connection(connection, connections.s3_access, "aws_conn_id")
            return access.settings.for_upload(self.upload), access.credentials
        settings = S3Settings(
            endpoint_url=self.option("endpoint_url"),
            region=self.option("region"),
            ca_bundle=self.option("ca_bundle"),
            addressing_style=self._addressing_style,
        )
        return settings.for_upload(self.upload), None

    def glue_access(self, conn_id: str | None, region: str | None) -> tuple[S3Settings, S3Credentials | None]:
        """How Glue is reached, with secrets: by the bucket's connection, or boto3's own chain, if none is named."""
        explicit = any(getattr(self.arguments, name) for name in _S3_OPTIONS)
        connection = conn_id or (None if explicit and not self.arguments.aws_conn_id else self.option("aws_conn_id"))
        if not connection:
            return S3Settings(region=region or self.option("region"), ca_bundle=self.option("ca_bundle")), None
        from airflow_provider_kafka_s3.airflow import connections

        access = read_connection(connection, lambda named: connections.glue_access(named, region), "aws_conn_id")
        return access.settings, access.credentials

    @property
    def _addressing_style(self) -> Literal["auto", "path", "virtual"]:
        style = self.option("addressing_style") or "auto"
        if style not in _ADDRESSING_STYLES:
            raise ConfigurationError(
                f"KAFKA_S3_ADDRESSING_STYLE={style!r} is not known; use {', '.join(_ADDRESSING_STYLES)}"
            )
        return cast("Literal['auto', 'path', 'virtual']", style)

    @cached_property
    def upload(self) -> Upload:
        """What objects and documents are stored with."""
        text = self.option("upload")
        if text is None:
            return Upload()
        try:
            fields = json.loads(text)
        except ValueError:
            fields = None
        if not isinstance(fields, dict):
            raise ConfigurationError(
                f'--upload {text}: it is not a JSON object of settings, such as {{"encryption": "kms"}}'
            )
        return parse_upload(fields)

    @cached_property
    def client(self) -> S3Client:
        """A client for requests that are not part of the store's port."""
        return make_client(*self.s3_access)

    @cached_property
    def retrier(self) -> Retrier:
        """Retries requests to the store and the brokers."""
        return Retrier()

    @cached_property
    def store(self) -> DurableStore:
        """The bucket."""
        settings, credentials = self.s3_access
        return s3_bucket.open_bucket(self.bucket, settings, credentials, retrier=self.retrier)

    @property
    def has_kafka(self) -> bool:
        """Whether an option or a variable names a Kafka cluster."""
        return any(self.option(name) for name in _KAFKA_WAYS)

    @cached_property
    def kafka_config(self) -> dict[str, Any]:
        """Settings of librdkafka, with secrets."""
        named = [name for name in _KAFKA_WAYS if getattr(self.arguments, name)]
        ways = named or [name for name in _KAFKA_WAYS if self.option(name)]
        if len(ways) != 1:
            problem = (
                "no Kafka cluster is named" if not ways else f"--{' and --'.join(ways).replace('_', '-')} are given"
            )
            raise ConfigurationError(
                f"{problem}; use one of --kafka-conn-id, --kafka-config and --bootstrap-server, or its variable"
            )
        value = str(self.option(ways[0]))
        if ways[0] == "bootstrap_server":
            return {"bootstrap.servers": value}
        if ways[0] == "kafka_config":
            return read_settings("--kafka-config", value, " of librdkafka's settings, such as " + _KAFKA_EXAMPLE)
        from airflow_provider_kafka_s3.airflow import connections

        return read_connection(value, connections.kafka_config, "kafka_conn_id")

    @cached_property
    def source(self) -> Source:
        """Kafka. If no option or variable names a cluster, every request raises a ConfigurationError."""
        if not self.has_kafka:
            return NoKafka(
                "no Kafka cluster is named; use one of --kafka-conn-id, --kafka-config and --bootstrap-server"
            )
        from airflow_provider_kafka_s3.kafka.source import KafkaSource

        return KafkaSource(self.kafka_config, retrier=self.retrier, connection=self.kafka_name)

    @property
    def kafka_name(self) -> str:
        """The connection to Kafka, for messages."""
        named = self.option("kafka_conn_id") if not self.arguments.kafka_config else None
        return "the Kafka options" if named is None else f"the Kafka connection {named!r} (--kafka-conn-id)"

    @property
    def options(self) -> tuple[str, ...]:
        """The given options for the bucket and Kafka, for the commands in error messages."""
        names = (
            "kafka_conn_id",
            "kafka_config",
            "bootstrap_server",
            "aws_conn_id",
            "registry_conn_id",
            "registry_url",
            "upload",
            *_S3_OPTIONS,
        )
        return tuple(
            word
            for name in names
            if (value := getattr(self.arguments, name))
            for word in (f"--{name.replace('_', '-')}", str(value))
        )

    def command(self, name: str) -> str:
        """A command over the same topics, for a message."""
        arguments = self.arguments
        pipeline = ("--pipeline", arguments.pipeline) if arguments.pipeline else ()
        topics = [word for topic in arguments.topic or () for word in ("--topic", topic)]
        return command_line(name, self.options, self.bucket, self.topics_dir, *pipeline, *topics)

    @cached_property
    def registry(self) -> RegistryClient | None:
        """The schema registry, if an option or a variable names its connection or its address."""
        url, connection = self.arguments.registry_url, self.arguments.registry_conn_id
        if url and connection:
            raise ConfigurationError("--registry-conn-id and --registry-url are given; use one of them")
        if not connection and (url := url or self.option("registry_url")):
            return RegistryClient(RegistrySettings(urls=(url.rstrip("/"),)), self.retrier)
        if not (connection := self.option("registry_conn_id")):
            return None
        from airflow_provider_kafka_s3.airflow import connections

        return RegistryClient(
            read_connection(connection, connections.registry_access, "registry_conn_id"), self.retrier
        )

    @property
    def has_registry(self) -> bool:
        """Whether an option or a variable names a schema registry."""
        return bool(self.option("registry_conn_id") or self.option("registry_url"))

    def require_registry(self) -> RegistryClient:
        """The schema registry.

        Raises:
            ConfigurationError: no option or variable names its connection, or the connection is wrong.
        """
        if self.registry is None:
            raise ConfigurationError(
                "no schema registry is named; use --registry-conn-id or --registry-url, or its variable"
            )
        return self.registry

    def topic_pipeline(self, topic: str) -> TopicPipeline:
        """One topic of the named pipeline, landed or not."""
        return self._open(self._address(topic))

    def _address(self, topic: str) -> TopicAddress:
        return TopicAddress(topics_dir=self.topics_dir, pipeline=self.arguments.pipeline, topic=topic)

    def _open(self, address: TopicAddress) -> TopicPipeline:
        return open_topic(
            self.store,
            address,
            SourceByLog(self.source, TopicLog(self.store, address)),
            connection_options=self.options,
            upload=self.upload,
            registry=self.registry,
            unsafe_unproven_records=getattr(self.arguments, "unsafe_unproven_records", False),
            unsafe_given_objects=getattr(self.arguments, "unsafe_given_objects", False),
        )

    def topic_pipelines(self) -> list[TopicPipeline]:
        """The named topics; if none is named, all topics of the pipeline, or else all under the ``topics_dir``.

        Raises:
            ConfigurationError: topics are named without a pipeline; no run has begun to land what is named, so a name
                is probably misspelt.
        """
        pipelines = self.known_topics()
        if not pipelines:
            raise nothing_there(self.store, topics_dir=self.topics_dir, pipeline=self.arguments.pipeline)
        if self.arguments.topic:
            for topic in pipelines:
                topic.require_begun()
        return pipelines

    def known_topics(self) -> list[TopicPipeline]:
        """As :meth:`topic_pipelines`, but named topics may be unknown, and there may be none."""
        pipeline, topics = self.arguments.pipeline, self.arguments.topic or ()
        if topics and not pipeline:
            raise ConfigurationError("--topic is given without --pipeline; a topic belongs to a pipeline")
        named = [self._address(topic) for topic in topics] or owned_topics(
            self.store, topics_dir=self.topics_dir, pipeline=pipeline
        )
        return [self._open(address) for address in named]

    def landed_topics(self) -> list[TopicPipeline]:
        """As :meth:`topic_pipelines`, without those whose first run has ended before its first batch.

        Raises:
            ConfigurationError: as there; or a topic that is named is one of these.
        """
        pipelines = self.topic_pipelines()
        if not self.arguments.topic:
            return [topic for topic in pipelines if topic.has_begun()]
        for topic in pipelines:
            topic.require_landed()
        return pipelines

    def landed_topic(self) -> TopicPipeline:
        """The topic of a command that has exactly one.

        Raises:
            ConfigurationError: the pipeline has never landed it.
        """
        topic = self.topic_pipeline(self.arguments.topic)
        topic.require_landed()
        return topic

    def option(self, name: str) -> str | None:
        """The value of an option for the bucket, Kafka or the registry; None: neither it nor a default is given.

        Args:
            name: of the option, with ``_``.
        """
        return getattr(self.arguments, name) or default_of(name)


def read_settings(option: str, path: str, what: str = "") -> dict[str, Any]:
    """The settings, with secrets, in a file that an option names.

    Args:
        option: for errors.
        path: of the file.
        what: the JSON object is, for the error of a file that has none.

    Raises:
        ConfigurationError: the file cannot be read, or is no JSON object.
    """
    try:
        settings = json.loads(Path(path).read_bytes())
    except OSError as e:
        raise ConfigurationError(f"{option} {path}: it cannot be read ({e.strerror})") from e
    except ValueError:
        settings = None
    if not isinstance(settings, dict):
        # Neither the text nor the parser's error is quoted: they may contain secrets.
        raise ConfigurationError(f"{option} {path}: it is not a JSON object{what}") from None
    return settings
