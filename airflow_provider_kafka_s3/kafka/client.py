"""Clients of librdkafka whose failures become errors of this package.

librdkafka reconnects for ever. It reports the reason of a failed connection to callbacks only, and the waiting call
ends with "timed out". So every client made here records the reasons in :class:`ClientEvents`, and :func:`to_error`
makes an error of a failure and the recorded reason.
"""

from __future__ import annotations

import concurrent.futures
import logging
import re
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

from airflow_provider_kafka_s3.exceptions import (
    AccessDeniedError,
    ConfigurationError,
    KafkaS3Error,
    KafkaUnavailableError,
    TopicNotFoundError,
)
from airflow_provider_kafka_s3.kafka.logins import python_login
from airflow_provider_kafka_s3.kafka.translations import CALLBACKS

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Producer
    from confluent_kafka.admin import AdminClient

__all__ = ["ClientEvents", "Unreachable", "admin_client", "consumer", "producer", "to_error", "unreachable", "wait_for"]

log = logging.getLogger(__name__)

T = TypeVar("T")

_POLL: Final = 0.1
"""Seconds between two polls of a client whose response is awaited."""

_FRESH: Final = 3.0
"""Seconds after which a client without any connection is replaced by a new one, which resolves the names again."""

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

# With TLS 1.3 a broker refuses a wrong or missing client certificate after the client's handshake is complete:
# librdkafka detects a broken connection, and tries again for ever.
_CERTIFICATE_REFUSED: Final = re.compile(
    r"alert (bad certificate|unsupported certificate|certificate (required|unknown|expired|revoked)|unknown ca|"
    r"access denied|decrypt error|handshake failure)"
)
# A connection that broke during a handshake: the broker stopped, or the network failed.
_BROKEN: Final = re.compile(r"SSL transport error|Disconnected|Connection reset|Broken pipe")
# An OpenID provider that refuses a token; _NO_ANSWER matches one that does not respond.
_NO_TOKEN: Final = "Failed to acquire SASL OAUTHBEARER token"
_NO_ANSWER: Final = re.compile(
    r"(?i)connect to|could ?n.t (connect|resolve)|could not (connect|resolve)|timed? ?out|reset by peer|empty reply|"
    r"\b(429|50[0234])\b|service unavailable|bad gateway"
)
# Ports, thread names and durations differ from try to try; the rest of the message does not.
_VARYING: Final = re.compile(r" \(after \d+ms in state [^)]*\)")
# Why librdkafka has no connection to a broker: "host:9092/bootstrap: Connect to ipv4#… failed: Connection refused".
_NO_CONNECTION: Final = re.compile(
    r"(?:\w+://)?(?P<broker>[^/\s]+)/\S+: (?:Connect to \S+ failed|Failed to resolve '[^']*'): (?P<reason>[^()]+)"
)


# The broker at the beginning of a message: "sasl_ssl://host:9092/bootstrap: SASL authentication error: …".
_BROKER_PREFIX: Final = re.compile(r"(?:\w+://)?([^/\s]+)/(?:bootstrap|\d+): ")


# A listener that is not the one of the connection's security.protocol closes each connection, or answers with something
# else. librdkafka names the state in which that happens, most often in its log only, and tries again for ever.
_CLOSED: Final = re.compile(
    r"(?:\w+://)?(?P<broker>[^/\s]+)/\S+: (?P<reason>.*(?:Disconnected|[Rr]eset by peer|wrong version number|"
    r"Invalid response size).*?) \(after \d+ms in state (?P<state>\w+)"
)
_NO_TLS: Final = "it has no TLS: set security.protocol to PLAINTEXT, or to SASL_PLAINTEXT with a login"
_HINTS: Final = {
    "APIVERSION_QUERY": "it expects TLS, or is none of Kafka: set security.protocol to SSL, or SASL_SSL with a login, "
    "or correct the port",
    "SSL_HANDSHAKE": _NO_TLS,
    "UP": "it expects a login, or is not for clients: set security.protocol to SASL_PLAINTEXT or SASL_SSL with "
    "sasl.mechanism and credentials, or give a client certificate (ssl.certificate.location), or correct the port",
}
_NOT_KAFKA: Final = "it answers with another protocol, such as HTTP or TLS: correct the port, or security.protocol"
_NO_LOGIN: Final = re.compile(r"supported mechanisms: *(\(|$)")


class Unreachable(Exception):
    """No broker can be talked to: each refuses or closes connections, or its name cannot be resolved."""


class ClientEvents:
    """The errors that one librdkafka client reports to callbacks, and its log.

    Each distinct message is logged once: a client that cannot connect repeats the same line twenty times a second.

    Attributes:
        denied: the last refusal of a login, a certificate or a permission.
        last: the last error.
        all_down_since: monotonic time at which all connections had failed.
        no_connection: broker -> reason of its failed connection.
        closed: broker -> why it closes connections, as far as that is known.
        connection: names the Airflow connection, for messages.
    """

    _REMEMBERED: Final = 100

    def __init__(self, connection: str = "the Kafka connection") -> None:
        self.connection = connection
        self.closed: dict[str, str] = {}
        self.denied: KafkaError | None = None
        self.last: KafkaError | None = None
        self.all_down_since: float | None = None
        self.no_connection: dict[str, str] = {}
        self._seen: set[str] = set()

    @property
    def unreachable(self) -> bool:
        """Whether no broker accepts a connection, or keeps one."""
        return self.all_down_since is not None and bool(self.no_connection or self.closed)

    def on_error(self, error: KafkaError) -> None:
        """Record an error; librdkafka's ``error_cb``."""
        if error.name() in _DENIED or _refused_by_tls(error.name(), error.str()):
            self.denied = error
        if error.name() == "_ALL_BROKERS_DOWN":
            self.all_down_since = self.all_down_since or time.monotonic()
        elif match := _NO_CONNECTION.search(error.str()):
            self.no_connection[match["broker"]] = match["reason"].strip()
        else:
            self._note_closed(error.str())
        # "All brokers are down" follows every failed connection, and does not contain the reason.
        if error.name() != "_ALL_BROKERS_DOWN" or self.last is None:
            self.last = error

    def log(self, level: int, message: str, *arguments: object) -> None:
        """Log a line of librdkafka, which calls it like ``logging.Logger.log``."""
        text = message % arguments if arguments else message
        self._note_closed(text.rpartition("]: ")[2])
        reason = _VARYING.sub("", text).rpartition(": ")[2]
        if reason not in self._seen and len(self._seen) < self._REMEMBERED:
            self._seen.add(reason)
            # That a setting is for producers only, or for consumers only, needs no action.
            quiet = logging.DEBUG if text.startswith("CONFWARN") else logging.WARNING
            log.log(min(level, quiet), "librdkafka: %s", text)

    def _note_closed(self, text: str) -> None:
        if match := _CLOSED.search(text):
            is_foreign = "Invalid response size" in match["reason"]
            hint = _NOT_KAFKA if is_foreign else _HINTS.get(match["state"], "the reason is not known")
            self.closed[match["broker"]] = f"the listener closes connections ({hint})"


def _refused_by_tls(name: str, reason: str) -> bool:
    """Whether client or broker refuses the other's certificate, or they have no common TLS parameters."""
    return (name == "_SSL" and not _BROKEN.search(reason)) or _CERTIFICATE_REFUSED.search(reason) is not None


def admin_client(config: Mapping[str, Any], events: ClientEvents) -> AdminClient:
    """Make an admin client. The caller must hold a reference to it until the last of its futures is done.

    Raises:
        ConfigurationError: librdkafka refuses a setting.
    """
    from confluent_kafka.admin import AdminClient

    return _make(AdminClient, config, events)


def consumer(config: Mapping[str, Any], events: ClientEvents) -> Consumer:
    """Make a consumer.

    Raises:
        ConfigurationError: librdkafka refuses a setting.
    """
    from confluent_kafka import Consumer

    return _make(Consumer, config, events)


def producer(config: Mapping[str, Any], events: ClientEvents) -> Producer:
    """Make a producer.

    Raises:
        ConfigurationError: librdkafka refuses a setting.
    """
    from confluent_kafka import Producer

    return _make(Producer, config, events)


def _make(client: Callable[..., T], config: Mapping[str, Any], events: ClientEvents) -> T:
    from confluent_kafka import KafkaException

    # A replay has the settings as they are in the connection, since a function cannot be sent to its processes.
    own = {name: value for name, value in config.items() if name not in CALLBACKS}
    try:
        return client({**own, **python_login(config), "error_cb": events.on_error}, logger=events)
    except (KafkaException, TypeError, ValueError) as e:
        raise _refused(e, events) from e


def _refused(error: Exception, events: ClientEvents) -> ConfigurationError:
    from confluent_kafka import KafkaError

    reason = error.args[0].str() if error.args and isinstance(error.args[0], KafkaError) else str(error)
    return ConfigurationError(
        f"the Kafka client refuses its configuration: {reason}; correct the extra of {events.connection} "
        f"(its keys are librdkafka's configuration properties)"
    )


def wait_for(
    future: concurrent.futures.Future[T], client: AdminClient, events: ClientEvents, *, timeout: float, what: str
) -> T:
    """Wait for an admin request; not any longer once the broker has refused the client, which would try for ever.

    Raises:
        KafkaException: the request failed.
        KafkaS3Error: the broker refused the client.
        Unreachable: no broker has accepted a connection for some seconds.
        TimeoutError: no response within ``timeout`` seconds.
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
    """The error if no broker accepts a connection.

    Args:
        events: of the last client.
        servers: the cluster's ``bootstrap.servers``.
        what: the request, as in :func:`to_error`.
        seconds: for which connections were tried.
    """
    # A broker that restarts first closes connections, and then refuses them.
    reasons = events.closed | events.no_connection
    why = "; ".join(f"{broker}: {reason}" for broker, reason in sorted(reasons.items()))
    return KafkaUnavailableError(
        f"no Kafka broker can be reached: {why}. Check that bootstrap.servers of {events.connection} is right "
        f"({servers}), and that the brokers are running and accept connections of this machine. Tried for "
        f"{seconds:.0f} s to {what}"
    )


def to_error(error: KafkaError | None, events: ClientEvents, *, what: str) -> KafkaS3Error:
    """The package's error for one of librdkafka's.

    Args:
        error: of librdkafka; None: there was no response in time.
        events: of its client.
        what: the request and the brokers, for the message: "describe topic 'x' at host:9092".

    Returns:
        An error whose message begins with the cause, before the addresses of the brokers.
    """
    if events.denied is not None:
        error = events.denied
    name = error.name() if error is not None else "_TIMED_OUT"
    reason = error.str() if error is not None else "no response in time"
    if name == "_TIMED_OUT" and "controller" in reason:
        # No client sends anything before it has found the controller, so that is no finding about it.
        reason = "no broker has responded: Timed out"
    cause, broker = _BROKER_PREFIX.sub("", reason, count=1), _BROKER_PREFIX.match(reason)
    message = f"{cause} ({f'broker {broker[1]}; ' if broker else ''}cannot {what})"
    if name == "_SSL" and not _refused_by_tls(name, reason):
        return KafkaUnavailableError(f"{message}; try again, and check that the brokers are reachable from here")
    if _NO_TOKEN in reason and _NO_ANSWER.search(reason):
        return KafkaUnavailableError(f"{message}; check sasl.oauthbearer.token.endpoint.url and that it is reachable")
    if _CERTIFICATE_REFUSED.search(reason):
        return AccessDeniedError(
            f"the broker refuses the client's certificate, or requires one: {message}; check ssl.certificate.* and "
            f"ssl.key.* of {events.connection}"
        )
    if "wrong version number" in reason:
        return ConfigurationError(f"{message}; the listener is none with TLS: {_NO_TLS}, in {events.connection}")
    if "supported mechanisms:" in reason:
        use = (
            "the listener takes no login: set security.protocol to PLAINTEXT or SSL, or use a listener with SASL"
            if _NO_LOGIN.search(reason)
            else "use one of these as sasl.mechanism"
        )
        return ConfigurationError(f"{message}; {use}, in {events.connection}")
    if name in _DENIED:
        needed = "to DESCRIBE the group" if name == "GROUP_AUTHORIZATION_FAILED" else "to DESCRIBE and READ the topic"
        return AccessDeniedError(
            f"{message}; check the credentials of {events.connection}, and their permissions {needed}"
        )
    if name in _NO_SUCH_TOPIC:
        return TopicNotFoundError(
            f"there is no such topic or partition: cannot {what}; create the topic, or correct its name, its "
            f"partitions or the connection (without the permission to DESCRIBE a topic, the response is the same). "
            f"Kafka's error: {reason}"
        )
    if name in _MISCONFIGURED:
        return ConfigurationError(f"{message}; correct the extra of {events.connection} or the topic's name")
    if events.last is not None and events.last.str() not in reason:
        message += f" (the last connection error: {events.last.str()})"
    return KafkaUnavailableError(
        f"{message}; check bootstrap.servers of {events.connection}, and that the brokers are reachable from here"
    )
