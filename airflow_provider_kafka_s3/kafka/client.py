"""librdkafka's clients, made to speak the package's errors.

librdkafka reconnects for ever and tells why it cannot only to callbacks, while the call that waits reports no more than
"timed out". Every client made here therefore remembers the last reason; ``KafkaClient.error`` turns a failure and that
reason into one of our errors.
"""

from __future__ import annotations

import concurrent.futures
import logging
import re
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

from airflow_provider_kafka_s3.exceptions import (
    AccessDeniedError,
    ConfigurationError,
    KafkaS3Error,
    KafkaUnavailableError,
    TopicNotFoundError,
)

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError
    from confluent_kafka.admin import AdminClient

__all__ = ["ClientEvents", "Unreachable", "admin_client", "consumer", "to_error", "unreachable", "wait_for"]

log = logging.getLogger(__name__)

T = TypeVar("T")

_POLL: Final = 0.1
"""Seconds between two looks at what a waiting client has to say."""

_FRESH: Final = 3.0
"""Seconds that a client without any broker may go on trying, before a new one looks the names up again."""

# Names of librdkafka error codes, as KafkaError.name() gives them: comparing names needs no import at module level.
_DENIED: Final = frozenset(
    {
        "_AUTHENTICATION",
        "CLUSTER_AUTHORIZATION_FAILED",
        "GROUP_AUTHORIZATION_FAILED",
        "SASL_AUTHENTICATION_FAILED",
        "SECURITY_DISABLED",
        "TOPIC_AUTHORIZATION_FAILED",
    }
)
_MISCONFIGURED: Final = frozenset(
    {
        "_INVALID_ARG",
        "_NOT_IMPLEMENTED",
        "_SSL",
        "_UNSUPPORTED_FEATURE",
        "ILLEGAL_SASL_STATE",
        "INVALID_REQUEST",
        "TOPIC_EXCEPTION",
        "UNSUPPORTED_SASL_MECHANISM",
        "UNSUPPORTED_VERSION",
    }
)
_NO_SUCH_TOPIC: Final = frozenset({"_NOENT", "_UNKNOWN_PARTITION", "_UNKNOWN_TOPIC", "UNKNOWN_TOPIC_OR_PART"})

# Since TLS 1.3 a broker refuses the client's certificate, or that there is none, when the client takes the handshake
# for done: librdkafka sees a broken connection, and would try again for ever.
_CERTIFICATE_REFUSED: Final = re.compile(
    r"alert (bad certificate|unsupported certificate|certificate (required|unknown|expired|revoked)|unknown ca|"
    r"access denied|decrypt error|handshake failure)"
)
# A connection that broke in the middle of a handshake: the broker stopped, or something on the way did.
_BROKEN: Final = re.compile(r"SSL transport error|Disconnected|Connection reset|Broken pipe")
# An OpenID provider that gives no token, as against one that does not answer.
_NO_TOKEN: Final = "Failed to acquire SASL OAUTHBEARER token"
_NO_ANSWER: Final = re.compile(
    r"(?i)connect to|could ?n.t (connect|resolve)|could not (connect|resolve)|timed? ?out|reset by peer|empty reply|"
    r"\b(429|50[0234])\b|service unavailable|bad gateway"
)
# Ports, thread names and durations differ from try to try: what stands between them does not.
_VARYING: Final = re.compile(r" \(after \d+ms in state [^)]*\)")
# Why librdkafka has no connection to a broker: "host:9092/bootstrap: Connect to ipv4#… failed: Connection refused".
_NO_CONNECTION: Final = re.compile(
    r"(?:\w+://)?(?P<broker>[^/\s]+)/\S+: (?:Connect to \S+ failed|Failed to resolve '[^']*'): (?P<reason>[^()]+)"
)


# Who says what follows: "sasl_ssl://host:9092/bootstrap: SASL authentication error: …".
_SPEAKER: Final = re.compile(r"(?:\w+://)?([^/\s]+)/(?:bootstrap|\d+): ")


class Unreachable(Exception):
    """No broker takes a connection: each refuses it, or its name cannot be resolved."""


class ClientEvents:
    """What one librdkafka client said on the side: the reason it cannot connect, and its log.

    The log goes to the logger of this module, every different message once: a client that cannot connect repeats the
    same line twenty times a second.
    """

    _REMEMBERED: Final = 100

    def __init__(self) -> None:
        self.denied: KafkaError | None = None
        self.last: KafkaError | None = None
        self.all_down_since: float | None = None
        self.no_connection: dict[str, str] = {}
        self._seen: set[str] = set()

    @property
    def unreachable(self) -> bool:
        """Whether no broker takes a connection."""
        return self.all_down_since is not None and bool(self.no_connection)

    def on_error(self, error: KafkaError) -> None:
        """Remember an error; librdkafka's ``error_cb``."""
        if error.name() in _DENIED or _refused_by_tls(error.name(), error.str()):
            self.denied = error
        if error.name() == "_ALL_BROKERS_DOWN":
            self.all_down_since = self.all_down_since or time.monotonic()
        elif found := _NO_CONNECTION.search(error.str()):
            self.no_connection[found["broker"]] = found["reason"].strip()
        # "All brokers are down" follows every failed connection and hides what was wrong with it.
        if error.name() != "_ALL_BROKERS_DOWN" or self.last is None:
            self.last = error

    def log(self, level: int, message: str, *arguments: object) -> None:
        """Log a line of librdkafka; it calls this like ``logging.Logger.log``."""
        text = message % arguments if arguments else message
        reason = _VARYING.sub("", text).rpartition(": ")[2]
        if reason not in self._seen and len(self._seen) < self._REMEMBERED:
            self._seen.add(reason)
            # That a setting is for producers only, or for consumers, is nothing to act on.
            quiet = logging.DEBUG if text.startswith("CONFWARN") else logging.WARNING
            log.log(min(level, quiet), "librdkafka: %s", text)


def _refused_by_tls(name: str, reason: str) -> bool:
    """Whether one side refuses the other's certificate, or both cannot agree."""
    return (name == "_SSL" and not _BROKEN.search(reason)) or _CERTIFICATE_REFUSED.search(reason) is not None


def admin_client(config: Mapping[str, Any], events: ClientEvents) -> AdminClient:
    """Make an admin client; keep it in a variable until the last of its futures is done.

    Raises:
        ConfigurationError: librdkafka refuses a setting.
    """
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    try:
        settings: dict[str, Any] = {**config, "error_cb": events.on_error}
        return AdminClient(settings, logger=events)
    except (KafkaException, TypeError, ValueError) as e:
        raise _refused(e) from e


def consumer(config: Mapping[str, Any], events: ClientEvents) -> Consumer:
    """Make a consumer.

    Raises:
        ConfigurationError: librdkafka refuses a setting.
    """
    from confluent_kafka import Consumer, KafkaException

    try:
        return Consumer({**config, "error_cb": events.on_error}, logger=events)
    except (KafkaException, TypeError, ValueError) as e:
        raise _refused(e) from e


def _refused(error: Exception) -> ConfigurationError:
    from confluent_kafka import KafkaError

    reason = error.args[0].str() if error.args and isinstance(error.args[0], KafkaError) else str(error)
    return ConfigurationError(
        f"the Kafka client refuses its configuration: {reason}; correct the extra of the Kafka connection "
        f"(its keys are librdkafka's configuration properties)"
    )


def wait_for(
    future: concurrent.futures.Future[T], client: AdminClient, events: ClientEvents, *, timeout: float, what: str
) -> T:
    """Wait for an admin request, but not on after the broker has refused us: librdkafka itself would try for ever.

    Raises:
        KafkaException: the request failed.
        KafkaS3Error: the broker refused us.
        Unreachable: no broker has taken a connection for some seconds.
        TimeoutError: no answer within ``timeout`` seconds.
    """
    deadline = time.monotonic() + timeout
    while True:
        try:
            return future.result(timeout=_POLL)
        except concurrent.futures.TimeoutError:
            pass
        client.poll(0)
        if events.denied is not None:
            raise to_error(events.denied, events, what=what)
        now = time.monotonic()
        if events.unreachable and events.all_down_since is not None and now - events.all_down_since > _FRESH:
            raise Unreachable
        if now > deadline:
            raise TimeoutError


def unreachable(events: ClientEvents, servers: str, *, what: str, seconds: float) -> KafkaUnavailableError:
    """The error if no broker takes a connection.

    Args:
        events: of the last client that tried.
        servers: the cluster's ``bootstrap.servers``.
        what: what was asked, as in :func:`to_error`.
        seconds: for which brokers were looked for.
    """
    why = "; ".join(f"{broker}: {reason}" for broker, reason in sorted(events.no_connection.items()))
    return KafkaUnavailableError(
        f"no Kafka broker can be reached: {why}. Check that bootstrap.servers of the Kafka connection is right "
        f"({servers}) and that the brokers run and let this machine connect. Tried for {seconds:.0f} s to {what}"
    )


def to_error(error: KafkaError | None, events: ClientEvents, *, what: str) -> KafkaS3Error:
    """The package's error for one of librdkafka's.

    Args:
        error: what librdkafka said; None: it said nothing in time.
        events: of the client it came from.
        what: what was asked of which broker, for the message: "describe topic 'x' at host:9092".

    Returns:
        An error whose message begins with the cause: addresses of many brokers would hide it.
    """
    if events.denied is not None:
        error = events.denied
    name = error.name() if error is not None else "_TIMED_OUT"
    reason = error.str() if error is not None else "no answer in time"
    said, speaker = _SPEAKER.sub("", reason, count=1), _SPEAKER.match(reason)
    message = f"{said} ({f'broker {speaker[1]}; ' if speaker else ''}cannot {what})"
    if name == "_SSL" and not _refused_by_tls(name, reason):
        return KafkaUnavailableError(f"{message}; try again, and check that the brokers are reachable from here")
    if _NO_TOKEN in reason and _NO_ANSWER.search(reason):
        return KafkaUnavailableError(f"{message}; check sasl.oauthbearer.token.endpoint.url and that it is reachable")
    if _CERTIFICATE_REFUSED.search(reason):
        return AccessDeniedError(
            f"the broker refuses the certificate of the client, or wants one: {message}; check ssl.certificate.* and "
            f"ssl.key.* of the Kafka connection"
        )
    if name in _DENIED:
        return AccessDeniedError(
            f"{message}; check the credentials of the Kafka connection and that they may DESCRIBE and READ the topic"
        )
    if name in _NO_SUCH_TOPIC:
        return TopicNotFoundError(
            f"there is no such topic or partition: cannot {what}; create the topic, or correct its name, "
            f"partitions or the connection (to a user who may not DESCRIBE a topic it can look as if there were none). "
            f"Kafka said: {reason}"
        )
    if name in _MISCONFIGURED:
        return ConfigurationError(f"{message}; correct the extra of the Kafka connection or the topic's name")
    if events.last is not None and events.last.str() not in reason:
        message += f" (the last connection error: {events.last.str()})"
    return KafkaUnavailableError(f"{message}; check bootstrap.servers and that the brokers are reachable from here")
