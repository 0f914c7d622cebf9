"""librdkafka's clients, made to speak the package's errors.

librdkafka reconnects for ever and tells why it cannot only to callbacks, while the call that waits reports no more than
"timed out". Every client made here therefore remembers the last reason; ``KafkaClient.error`` turns a failure and that
reason into one of our errors.
"""

from __future__ import annotations

import concurrent.futures
import logging
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

__all__ = ["ClientEvents", "admin_client", "consumer", "to_error", "wait_for"]

log = logging.getLogger(__name__)

T = TypeVar("T")

_POLL: Final = 0.1
"""Seconds between two looks at what a waiting client has to say."""

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


class ClientEvents:
    """What one librdkafka client said on the side: the reason it cannot connect, and its log.

    The log goes to the logger of this module, every different message once: a client that cannot connect repeats the
    same line twenty times a second.
    """

    _REMEMBERED: Final = 100

    def __init__(self) -> None:
        self.denied: KafkaError | None = None
        self.last: KafkaError | None = None
        self._seen: set[str] = set()

    def on_error(self, error: KafkaError) -> None:
        """Remember an error; librdkafka's ``error_cb``."""
        if error.name() in _DENIED or error.name() == "_SSL":
            self.denied = error
        # "All brokers are down" follows every failed connection and hides what was wrong with it.
        if error.name() != "_ALL_BROKERS_DOWN" or self.last is None:
            self.last = error

    def log(self, level: int, message: str, *arguments: object) -> None:
        """Log a line of librdkafka; it calls this like ``logging.Logger.log``."""
        text = message % arguments if arguments else message
        # Ports, thread names and durations differ from try to try: the reason after the last colon does not.
        if text.rpartition(": ")[2] not in self._seen and len(self._seen) < self._REMEMBERED:
            self._seen.add(text.rpartition(": ")[2])
            # That a setting is for producers only, or for consumers, is nothing to act on.
            quiet = logging.DEBUG if text.startswith("CONFWARN") else logging.WARNING
            log.log(min(level, quiet), "librdkafka: %s", text)


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
        if time.monotonic() > deadline:
            raise TimeoutError


def to_error(error: KafkaError | None, events: ClientEvents, *, what: str) -> KafkaS3Error:
    """The package's error for one of librdkafka's.

    Args:
        error: what librdkafka said; None: it said nothing in time.
        events: of the client it came from.
        what: what was asked of which broker, for the message: "describe topic 'x' at host:9092".
    """
    if events.denied is not None:
        error = events.denied
    name = error.name() if error is not None else "_TIMED_OUT"
    reason = error.str() if error is not None else "no answer in time"
    message = f"cannot {what}: {reason}"
    if name in _DENIED:
        return AccessDeniedError(
            f"{message}; check the credentials of the Kafka connection and that they may DESCRIBE and READ the topic"
        )
    if name in _NO_SUCH_TOPIC:
        return TopicNotFoundError(f"{message}; create the topic, or correct its name, partitions or the connection")
    if name in _MISCONFIGURED:
        return ConfigurationError(f"{message}; correct the extra of the Kafka connection or the topic's name")
    if events.last is not None and events.last.str() not in message:
        message += f" (the last connection error: {events.last.str()})"
    return KafkaUnavailableError(f"{message}; check bootstrap.servers and that the brokers are reachable from here")
