"""Offsets of topics: the first one, the end for a reader, and the one at a timestamp."""

from __future__ import annotations

import contextlib
import functools
import itertools
import logging
import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVar

from airflow_provider_kafka_s3.exceptions import KafkaS3Error, KafkaUnavailableError, TopicNotFoundError
from airflow_provider_kafka_s3.kafka.client import (
    ClientEvents,
    Unreachable,
    admin_client,
    to_error,
    unreachable,
    wait_for,
)
from airflow_provider_kafka_s3.kafka.divergence import LogPosition, find_divergences
from airflow_provider_kafka_s3.kafka.joint_requests import JointRequests
from airflow_provider_kafka_s3.kafka.options import Isolation, client_config
from airflow_provider_kafka_s3.messages import few
from airflow_provider_kafka_s3.retry import Retrier

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

__all__ = ["REACH", "ConsumerGroup", "Isolation", "KafkaCluster", "LogEnd", "LogPosition", "TimedOffset", "TopicInfo"]

log = logging.getLogger(__name__)

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

_PATIENCE: Final = 10.0
"""Seconds to wait for a response if the client got one before: its metadata of the cluster may be out of date."""

REACH: Final = 20.0
"""Seconds of all tries, if no broker accepts a connection or none of them responds: longer than most restarts, and than
elections of other leaders."""

_FIRST: Final = 10.0
"""Seconds to wait for a response if no client ever got one: then the address or the port may be wrong. The other
half of the time is for a new client, which resolves the names again."""

_LEAST: Final = 1.0
"""Seconds of a try that begins when this time is nearly over."""

_AFTERWARDS: Final = 1.0
"""Seconds to wait for each later response, such as that about another topic."""

_NAMED: Final = 5
"""Partitions that an error names; a topic may have thousands."""

_EARLIEST: Final = -2
_LATEST: Final = -1
"""What Kafka has in place of a timestamp for the first offset, and for the end."""

_NONE_AT_TIMESTAMP: Final = -1
"""Kafka's response if no record is as late as the timestamp."""


class TimedOffset(NamedTuple):
    """An offset and the timestamp of its record, in milliseconds since the epoch."""

    offset: int
    timestamp: int


class LogEnd(NamedTuple):
    """The offset after the last one of a log, and the leader epoch at which it was; None if the brokers have none."""

    offset: int
    epoch: int | None


class _Found(NamedTuple):
    """The response for a partition: an offset, the timestamp of its record, and the epoch of the leader."""

    offset: int
    timestamp: int
    epoch: int | None


class _Position(NamedTuple):
    """Where to look in partitions of a topic: at a timestamp, or :data:`_EARLIEST` or :data:`_LATEST`."""

    topic: str
    partitions: tuple[int, ...]
    at: int
    isolation: Isolation


class _Reached(NamedTuple):
    """What partitions of a topic had reached."""

    topic: str
    positions: tuple[tuple[int, LogPosition], ...]


@dataclass(frozen=True)
class TopicInfo:
    """Description of a topic.

    Attributes:
        name: its name.
        topic_id: identifies the topic among all topics that ever had this name; base64 in the URL-safe alphabet. None
            if the brokers have no topic IDs (before Kafka 2.8).
        cluster_id: of its cluster; None if the brokers return none.
        partitions: numbers of its partitions, ascending.
    """

    name: str
    topic_id: str | None
    cluster_id: str | None
    partitions: tuple[int, ...]


@dataclass(frozen=True)
class ConsumerGroup:
    """A consumer group of other software.

    Attributes:
        name: its id.
        state: of its members, such as ``stable``; empty if it has none, or there is no such group.
        offsets: committed ones, by topic and partition.
    """

    name: str
    state: str
    offsets: Mapping[str, Mapping[int, int]]


class KafkaCluster:
    """Topics and offsets of a Kafka cluster; it reads no records and changes nothing.

    It neither joins a consumer group nor creates topics, whatever the brokers allow. Any number of threads may share an
    instance; it connects with the first request.
    """

    def __init__(
        self,
        config: Mapping[str, object],
        *,
        timeout: float = 30.0,
        retrier: Retrier | None = None,
        connection: str = "the Kafka connection",
    ) -> None:
        """Make a client; nothing is sent yet.

        Args:
            config: librdkafka settings: the extra of an Airflow connection of type ``kafka``.
            timeout: seconds to wait for one response. If no broker accepts a connection, connections are tried for the
                same time, and 20 seconds at most, which is also the time of all tries of a request together.
            retrier: repeats requests that got no response; None: the package's defaults.
            connection: names the Airflow connection, for messages.

        Raises:
            ConfigurationError: a setting is missing, protected, unknown or malformed.
        """
        self._config = client_config(config)
        self._connection = connection
        self._timeout = timeout
        self._retrier = retrier or Retrier()
        self._client = self._connect()
        self._unreachable_since: float | None = None
        self._responded = False
        self._first_try: float | None = None
        # Without a reference to this instance: a client that is not needed any more ends at once, with its threads.
        self._descriptions: JointRequests[str, TopicInfo] = JointRequests()
        self._offsets: JointRequests[_Position, dict[int, _Found]] = JointRequests()
        self._divergences: JointRequests[_Reached, dict[int, int]] = JointRequests()

    @property
    def bootstrap_servers(self) -> str:
        """Addresses of brokers, for messages."""
        return str(self._config["bootstrap.servers"])

    def describe(self, topic: str) -> TopicInfo:
        """Describe a topic.

        Raises:
            TopicNotFoundError: it does not exist.
            AccessDeniedError: the brokers refuse the credentials, or these lack the permission to describe the topic.
            ConfigurationError: the name is invalid, or settings do not fit the brokers.
            KafkaUnavailableError: no response in time.
        """
        action = f"describe topic {topic!r} at {self.bootstrap_servers}"
        try:
            return self._send_joint(self._descriptions, _describe, topic, action)
        except TopicNotFoundError as e:
            # The cluster may be another one than the user means.
            with contextlib.suppress(KafkaS3Error):
                e.cluster_id = self._send(self._cluster_id, action)
            raise

    def _cluster_id(self, client: _Client, timeout: float) -> str | None:
        action = f"describe the cluster at {self.bootstrap_servers}"
        return client.wait(client.admin.describe_cluster(request_timeout=timeout), timeout, action).cluster_id or None

    def topic_settings(self, topic: str) -> dict[str, str]:
        """The settings of a topic, with their defaults.

        Raises:
            KafkaS3Error: see :meth:`describe`.
        """
        action = f"describe the settings of topic {topic!r} at {self.bootstrap_servers}"

        def request(client: _Client, timeout: float) -> dict[str, str]:
            from confluent_kafka.admin import ConfigResource, ResourceType

            resource = ConfigResource(ResourceType.TOPIC, topic)
            response = client.admin.describe_configs([resource], request_timeout=timeout)[resource]
            return {name: str(entry.value) for name, entry in client.wait(response, timeout, action).items()}

        return self._send(request, action)

    def earliest(self, topic: str, partitions: Iterable[int]) -> dict[int, int]:
        """The first offset that Kafka still has, per partition; the end of the partition if it is empty.

        Raises:
            KafkaS3Error: see :meth:`describe`.
        """
        offsets = self._find(topic, partitions, _EARLIEST, "read_uncommitted", "find the start of")
        return {partition: at.offset for partition, at in offsets.items()}

    def ends(self, topic: str, partitions: Iterable[int], isolation: Isolation) -> dict[int, int]:
        """The offset after the last one that a reader may read, per partition.

        Args:
            topic: name of the topic.
            partitions: numbers of its partitions.
            isolation: of the reader: with ``read_committed`` an open transaction ends what can be read.

        Raises:
            KafkaS3Error: see :meth:`describe`.
        """
        return {partition: end.offset for partition, end in self.log_ends(topic, partitions, isolation).items()}

    def log_ends(self, topic: str, partitions: Iterable[int], isolation: Isolation) -> dict[int, LogEnd]:
        """:meth:`ends` with the epoch of the leader that gave each.

        An epoch grows with each election of a leader. Without one, no record of the log can have been replaced.

        Raises:
            KafkaS3Error: see :meth:`describe`.
        """
        offsets = self._find(topic, partitions, _LATEST, isolation, "find the end of")
        return {partition: LogEnd(at.offset, at.epoch) for partition, at in offsets.items()}

    def divergences(self, topic: str, reached: Mapping[int, LogPosition]) -> dict[int, int]:
        """Where logs are no longer those of an earlier leader epoch; see :func:`~.divergence.find_divergences`.

        Args:
            topic: name of the topic.
            reached: per partition the offset that its log had reached at a leader epoch.

        Returns:
            Per partition the first offset that was replaced or is gone. Partitions whose log is the same up to the
            offset, or of which the brokers do not know it, are left out.

        Raises:
            KafkaS3Error: see :meth:`describe`.
        """
        if not reached:
            return {}
        action = f"compare the log of topic {topic!r} ({_named(sorted(reached))}) with its landed offsets"
        key = _Reached(topic, tuple(sorted(reached.items())))
        request = functools.partial(_compare, self._config)
        return self._send_joint(self._divergences, request, key, f"{action} at {self.bootstrap_servers}")

    def at_timestamp(self, topic: str, partitions: Iterable[int], milliseconds: int) -> dict[int, TimedOffset | None]:
        """The first offset whose timestamp is at or after a point in time, per partition; None if there is none.

        It does not separate the records exactly: timestamps need not ascend, and the offset may be that of a
        transaction marker, which has the time of the broker. After a record with a timestamp far in the future, later
        records are not found.

        Args:
            topic: name of the topic.
            partitions: numbers of its partitions.
            milliseconds: since the epoch, not negative.

        Raises:
            KafkaS3Error: see :meth:`describe`.
        """
        offsets = self._find(topic, partitions, milliseconds, "read_uncommitted", "find a point in time in")
        return {p: TimedOffset(at.offset, at.timestamp) if at.offset >= 0 else None for p, at in offsets.items()}

    def consumer_group(self, name: str) -> ConsumerGroup:
        """A consumer group; one that does not exist has neither members nor offsets.

        Raises:
            KafkaS3Error: see :meth:`describe`.
        """
        action = f"read the committed offsets of consumer group {name!r} at {self.bootstrap_servers}"

        def request(client: _Client, timeout: float) -> ConsumerGroup:
            from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, KafkaException

            # librdkafka ends the process by SIGSEGV if the answer to the next request is that the coordinator of the
            # group is another broker, or still loads its offsets (confluentinc/librdkafka#5040). To this one it is an
            # error, which is repeated.
            (described,) = client.admin.describe_consumer_groups([name], request_timeout=timeout).values()
            client.wait(described, timeout, action)
            committed = client.admin.list_consumer_group_offsets(
                [ConsumerGroupTopicPartitions(name)], require_stable=True, request_timeout=timeout
            )[name]
            offsets: dict[str, dict[int, int]] = {}
            for position in client.wait(committed, timeout, action).topic_partitions:
                if position.error is not None:
                    raise KafkaException(position.error)
                if position.offset >= 0:
                    offsets.setdefault(position.topic, {})[position.partition] = int(position.offset)
            # A description has no members of groups with Kafka's newer protocol; a listing has the state of both.
            listed = client.wait(client.admin.list_consumer_groups(request_timeout=timeout), timeout, action)
            states = [group.state for group in listed.valid if group.group_id == name]
            if not states and listed.errors:
                raise KafkaException(listed.errors[0])
            at_rest = (ConsumerGroupState.EMPTY, ConsumerGroupState.DEAD)
            active = [state.name.lower().replace("_", " ") for state in states if state not in at_rest]
            return ConsumerGroup(name, active[0] if active else "", offsets)

        return self._send(request, action)

    def _find(
        self, topic: str, partitions: Iterable[int], at: int, isolation: Isolation, verb: str
    ) -> dict[int, _Found]:
        position = _Position(topic, tuple(sorted(set(partitions))), at, isolation)
        if not position.partitions:
            return {}
        action = f"{verb} topic {topic!r} ({_named(position.partitions)}) at {self.bootstrap_servers}"
        return self._send_joint(self._offsets, _list_offsets, position, action)

    def _send_joint(self, joint: JointRequests[K, T], request: _RequestOfKeys[K, T], key: K, what: str) -> T:
        """Send a request, repeated by the retrier; the first try includes the keys of other threads."""
        began = time.monotonic()

        def alone() -> T:
            return self._attempt(lambda client, timeout: request(client, [key], timeout, what)[key], what, began)

        def together(keys: Sequence[K]) -> Mapping[K, T]:
            client = self._client  # in a variable, as in _attempt()
            responses = request(client, keys, self._patience(client), what)
            self._has_responded(client)
            return responses

        first: Callable[[], T] = functools.partial(joint.response, key, alone, together)
        tries = itertools.chain([first], itertools.repeat(alone))

        def attempt() -> T:
            return next(tries)()

        return self._retrier.call(attempt, what=what)

    def _connect(self) -> _Client:
        events = ClientEvents(self._connection)
        return _Client(admin_client(self._config, events), events)

    def _send(self, request: _Request[T], what: str) -> T:
        """Send a request, repeated by the retrier."""
        began = time.monotonic()
        return self._retrier.call(lambda: self._attempt(request, what, began), what=what)

    def _attempt(self, request: _Request[T], what: str, first: float) -> T:
        """One try: while no broker accepts a connection, with a new client each time, for a limited time.

        Args:
            request: sends it.
            what: it is.
            first: when the first try began.
        """
        self._first_try = self._first_try or time.monotonic()
        while True:
            began = time.monotonic()
            # In a variable: futures of a client that is collected fail with _DESTROY.
            client = self._client
            timeout = self._patience(client)
            if (elapsed := began - first) >= _LEAST:
                timeout = min(timeout, max(REACH - elapsed, _LEAST))
            try:
                response = self._send_by(client, functools.partial(request, timeout=timeout), what)
            except Unreachable:
                self._require_time_left(client.events, what, began)
                continue
            except KafkaUnavailableError as e:
                e.repeatable = e.repeatable and not self._is_silent and time.monotonic() - first < REACH
                raise
            self._has_responded(client)
            return response

    def _has_responded(self, client: _Client) -> None:
        client.responded = self._responded = True
        self._unreachable_since = None

    @property
    def _is_silent(self) -> bool:
        """Whether no broker has responded to anything for the time limit."""
        return not self._responded and self._first_try is not None and time.monotonic() - self._first_try >= REACH

    def _patience(self, client: _Client) -> float:
        """Seconds to wait for a response.

        Once connected, a client sends its requests for minutes to the broker that was the controller then, even if that
        broker is down, and tries to connect to it thousands of times a second. So a client without a response is
        replaced, and after a shorter time if it had a response before.
        """
        if self._responded:
            return min(self._timeout, _PATIENCE) if client.responded else self._timeout
        return min(self._timeout, _AFTERWARDS if self._is_silent else _FIRST)

    def _send_by(self, client: _Client, request: Callable[[_Client], T], what: str) -> T:
        """Send a request by a client, which is replaced if the brokers are unavailable.

        Raises:
            Unreachable: no broker accepts a connection.
            KafkaS3Error: any other failure.
        """
        from confluent_kafka import KafkaException

        # The cause of an earlier refusal may be corrected by now.
        client.events.denied = None
        try:
            return request(client)
        except KafkaUnavailableError:
            self._client = self._connect()
            raise
        except (KafkaException, TimeoutError, Unreachable) as e:
            client.admin.poll(0)
            error = to_error(e.args[0] if isinstance(e, KafkaException) else None, client.events, what=what)
            if isinstance(error, KafkaUnavailableError):
                self._client = self._connect()
                if client.events.unreachable:
                    raise Unreachable from e
            raise error from e

    def _require_time_left(self, events: ClientEvents, what: str, began: float) -> None:
        """Raise if no broker has accepted a connection for the time limit, which counts from the last response."""
        since = self._unreachable_since = self._unreachable_since or began
        elapsed = time.monotonic() - since
        if elapsed >= min(self._timeout, REACH):
            error = unreachable(events, self.bootstrap_servers, what=what, seconds=elapsed)
            error.repeatable = False
            raise error from None


@dataclass(eq=False)
class _Client:
    """A client of librdkafka."""

    admin: AdminClient
    events: ClientEvents
    responded: bool = False

    def wait(self, future: Any, timeout: float, what: str) -> Any:
        """The response to a request."""
        # The client's own timeout comes first, with an error; this one is for a client without it.
        return wait_for(future, self.admin, self.events, timeout=timeout + 5, what=what)


class _Request(Protocol[T_co]):
    """Sends a request by a client, with a time limit in seconds, and waits for the response."""

    def __call__(self, client: _Client, timeout: float) -> T_co: ...


_RequestOfKeys = Callable[["_Client", Sequence[K], float, str], Mapping[K, T]]
"""Sends a request for keys by a client, with a time limit in seconds and a description, and waits for the responses."""


def _describe(client: _Client, topics: Sequence[str], timeout: float, what: str) -> dict[str, TopicInfo]:
    from confluent_kafka import TopicCollection

    # Not list_topics(): a metadata request creates a missing topic on brokers that allow it.
    described = client.admin.describe_topics(TopicCollection([*topics]), request_timeout=timeout)
    cluster = client.admin.describe_cluster(request_timeout=timeout)
    descriptions = {topic: client.wait(future, timeout, what) for topic, future in described.items()}
    cluster_id = client.wait(cluster, timeout, what).cluster_id or None
    return {
        topic: TopicInfo(
            name=topic,
            topic_id=_url_safe(about.topic_id),
            cluster_id=cluster_id,
            partitions=tuple(sorted(p.id for p in about.partitions)),
        )
        for topic, about in descriptions.items()
    }


def _list_offsets(
    client: _Client, positions: Sequence[_Position], timeout: float, what: str
) -> dict[_Position, dict[int, _Found]]:
    from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
    from confluent_kafka.admin import OffsetSpec

    special = {_EARLIEST: OffsetSpec.earliest(), _LATEST: OffsetSpec.latest()}
    levels = {"read_committed": IsolationLevel.READ_COMMITTED, "read_uncommitted": IsolationLevel.READ_UNCOMMITTED}
    futures: dict[tuple[Isolation, str, int], Any] = {}
    for isolation in {position.isolation for position in positions}:
        batch = [position for position in positions if position.isolation == isolation]
        specs = {
            TopicPartition(position.topic, number): special.get(position.at) or OffsetSpec.for_timestamp(position.at)
            for position in batch
            for number in position.partitions
        }
        if len(specs) < sum(len(position.partitions) for position in batch):
            raise ValueError(f"a request has one position of a partition: {batch}")
        sent = client.admin.list_offsets(specs, isolation_level=levels[isolation], request_timeout=timeout)
        futures |= {(isolation, of.topic, of.partition): future for of, future in sent.items()}
    try:
        results = {of: client.wait(future, timeout, what) for of, future in futures.items()}
    except KafkaException as e:
        # The error is the same for partitions that do not exist, and for those whose brokers are down.
        if e.args[0].name() != "_NOENT" or not _exist(client, positions, timeout, what):
            raise
        raise KafkaUnavailableError(
            f"a partition has no leader, its brokers are down: cannot {what}; try again when they are running"
        ) from e
    # librdkafka returns "no offset" as a result if the leader did not respond in time.
    silent = sorted({of[2] for of, result in results.items() if result.offset < _NONE_AT_TIMESTAMP})
    if silent:
        raise KafkaUnavailableError(
            f"no response from the leaders of {_named(silent)}: cannot {what}; try again when they respond"
        )
    offsets = {of: _Found(int(r.offset), int(r.timestamp), _known(r.leader_epoch)) for of, r in results.items()}
    return {p: {number: offsets[p.isolation, p.topic, number] for number in p.partitions} for p in positions}


def _exist(client: _Client, positions: Iterable[_Position], timeout: float, what: str) -> bool:
    """Whether all partitions exist."""
    from confluent_kafka import TopicCollection

    topics = TopicCollection([*{position.topic for position in positions}])
    described = client.admin.describe_topics(topics, request_timeout=timeout)
    existing = {(topic, p.id) for topic, f in described.items() for p in client.wait(f, timeout, what).partitions}
    return all((position.topic, number) in existing for position in positions for number in position.partitions)


def _known(epoch: int | None) -> int | None:
    return None if epoch is None or epoch < 0 else int(epoch)


def _compare(
    config: Mapping[str, object],
    client: _Client,  # noqa: ARG001 - no request of an admin client has the answer
    keys: Sequence[_Reached],
    timeout: float,
    what: str,
) -> dict[_Reached, dict[int, int]]:
    reached = {(key.topic, partition): position for key in keys for partition, position in key.positions}
    if len(reached) < sum(len(key.positions) for key in keys):
        raise ValueError(f"a request has one position of a partition: {keys}")
    diverged = find_divergences(config, reached, timeout=timeout, what=what)
    return {key: {p: diverged[key.topic, p] for p, _ in key.positions if (key.topic, p) in diverged} for key in keys}


def _named(partitions: Sequence[int]) -> str:
    """Partitions for an error: the first few, and the number of the others."""
    return f"{'partition' if len(partitions) == 1 else 'partitions'} {few(partitions, most=_NAMED)}"


def _url_safe(topic_id: object) -> str | None:
    """A topic ID in the URL-safe alphabet of base64; None for the ID of all zeros, which means "none"."""
    text = str(topic_id)
    return None if not text.strip("A=") else text.rstrip("=").replace("+", "-").replace("/", "_")
