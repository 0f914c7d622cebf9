"""Where the pages find pipelines: buckets, and the Kafka clusters beside them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

from airflow_provider_kafka_s3.batch.no_kafka import NoKafka
from airflow_provider_kafka_s3.batch.source import Source
from airflow_provider_kafka_s3.batch.topic_summary import read_summary
from airflow_provider_kafka_s3.documents import addresses
from airflow_provider_kafka_s3.documents.addresses import TopicAddress
from airflow_provider_kafka_s3.documents.topic_summary import TopicSummary
from airflow_provider_kafka_s3.exceptions import KafkaS3Error, TransientError, message_of
from airflow_provider_kafka_s3.inspect.topics import owned_topic
from airflow_provider_kafka_s3.parallel import in_threads
from airflow_provider_kafka_s3.pipeline import TopicPipeline, open_topic
from airflow_provider_kafka_s3.retry import Retrier, RetryPolicy
from airflow_provider_kafka_s3.storage.durable import DurableStore
from airflow_provider_kafka_s3.storage.port import ObjectInfo
from airflow_provider_kafka_s3.ui.by_etag import ByEtag

__all__ = ["Connected", "Place", "impatient_source"]

T = TypeVar("T")

_KAFKA_SECONDS: Final = 5.0
"""Time for which a page waits for a response of Kafka."""

_THREADS: Final = 64
"""Documents that are read at the same time."""

_SUMMARY_BYTES: Final = 256 * 1024
"""Bytes of a summary that is kept, at most; topics with a larger one are read from their logs."""

_SILENT_SECONDS: Final = 60.0
"""Time for which a cluster that gave no answer is not looked up again."""


def impatient_source(config: Mapping[str, object], connection: str) -> Source:
    """A Kafka cluster for pages: each request has one try, and waits some seconds.

    Args:
        config: settings of librdkafka.
        connection: names the connection, for messages.

    Raises:
        ConfigurationError: a setting is missing, protected, unknown or malformed.
    """
    from airflow_provider_kafka_s3.kafka.source import KafkaSource

    retrier = Retrier(RetryPolicy(max_retries=0))
    return KafkaSource(config, timeout=_KAFKA_SECONDS, retrier=retrier, connection=connection)


@dataclass(frozen=True)
class Connected:
    """The clients of a place.

    Attributes:
        store: the bucket.
        source: the Kafka cluster; None: there is none, so there is no lag.
        connection_options: options with which the command line reaches both, for the commands that are shown.
        browser_url: makes the URL of a key for a browser; None: the store has none.
    """

    store: DurableStore
    source: Source | None = None
    connection_options: tuple[str, ...] = ()
    browser_url: Callable[[str], str] | None = None


@dataclass
class Place:
    """A prefix of a bucket that has pipelines.

    Attributes:
        name: for people, such as ``s3://lake/topics``.
        topics_dir: prefix of all keys.
        connect: makes the clients; called once, when a page needs them first.
        monotonic: clock in seconds.
    """

    name: str
    topics_dir: str
    connect: Callable[[], Connected]
    monotonic: Callable[[], float] = time.monotonic
    _connected: Connected | None = None
    _owners: ByEtag[TopicAddress] = field(default_factory=ByEtag)
    _summaries: ByEtag[TopicSummary] = field(default_factory=ByEtag)
    _silent_until: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def connected(self) -> Connected:
        """The clients.

        Raises:
            KafkaS3Error: a connection is missing or wrong.
        """
        with self._lock:
            if self._connected is None:
                self._connected = self.connect()
            return self._connected

    def topics(self) -> tuple[list[tuple[TopicAddress, TopicSummary | None]], list[str]]:
        """The topics that are there, with their stored summaries, and what cannot be read of other topics.

        Two listings, and a request for each topic that has changed since the last call, or two: a summary with objects
        shows the owner of its topic, since a topic of which something is landed cannot be released. There is no summary
        where it is missing, damaged or large, or cannot be read.
        """
        store, problems = self.connected.store, list[str]()
        written = store.list(addresses.summaries_prefix(self.topics_dir))
        owners = store.list(addresses.owners_prefix(self.topics_dir))
        self._summaries.keep(written)
        self._owners.keep(owners)
        of_topics: dict[str, list[tuple[TopicAddress, ObjectInfo]]] = {}
        for info in written:
            address = addresses.topic_of_summary(info.key, self.topics_dir)
            if address is not None:
                of_topics.setdefault(address.owner_key, []).append((address, info))

        def summary(address: TopicAddress, info: ObjectInfo) -> TopicSummary | None:
            if info.size > _SUMMARY_BYTES:
                return None
            return self._summaries.get(info, lambda _: read_summary(store, address))

        def topic(owner: ObjectInfo) -> tuple[TopicAddress, TopicSummary | None] | None:
            of_topic = of_topics.get(owner.key, [])
            # A pipeline that has released the topic may have left a summary without objects.
            if len(of_topic) == 1 and (shown := summary(*of_topic[0])) is not None and shown.activity.objects:
                return of_topic[0][0], shown
            try:
                address = self._owners.get(owner, lambda key: owned_topic(store, key, topics_dir=self.topics_dir))
            except KafkaS3Error as e:
                problems.append(message_of(e))
                return None
            if address is None:
                return None
            info = next((info for other, info in of_topic if other == address), None)
            return address, None if info is None else summary(address, info)

        topics = in_threads(topic, owners, threads=_THREADS)
        return [known for known in topics if known is not None], problems

    def open(self, pipeline: str, topic: str) -> TopicPipeline:
        """A topic by its names."""
        address = TopicAddress(topics_dir=self.topics_dir, pipeline=pipeline, topic=topic)
        clients = self.connected
        source = clients.source or NoKafka("this page has no connection to it")
        return open_topic(clients.store, address, source, connection_options=clients.connection_options)

    def with_kafka(self, look: Callable[[bool], T]) -> tuple[T, str]:
        """Look something up, with Kafka if it answers.

        Args:
            look: takes whether to use Kafka.

        Returns:
            What it returned, and why it had no Kafka; empty: it had.
        """
        if self.connected.source is None:
            return look(False), "there is no connection to Kafka"
        if self.monotonic() >= self._silent_until:
            try:
                return look(True), ""
            except TransientError:
                # Of the store, it comes again.
                self._silent_until = self.monotonic() + _SILENT_SECONDS
        return look(False), "Kafka gave no answer"
