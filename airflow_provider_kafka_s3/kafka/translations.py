"""Tables that map the settings of librdkafka to those of Spark's Java client.

Every setting is in exactly one table: settings with one counterpart, settings of logins and certificates (of which
several make one), settings that are left out, protected settings, and settings without a counterpart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

__all__ = [
    "CALLBACKS",
    "CERTIFICATES",
    "LOGIN",
    "LOGIN_OVERRIDES",
    "LOGIN_PREFIXES",
    "OF_LIBRDKAFKA",
    "OF_OTHERS",
    "OIDC",
    "PROTECTED",
    "TRANSLATIONS",
    "UNTRANSLATABLE",
    "Translation",
]


@dataclass(frozen=True)
class Translation:
    """The Java counterpart of a librdkafka setting.

    Attributes:
        java: the Java name, without Spark's prefix ``kafka.``.
        value: converts librdkafka's value to Java's.
    """

    java: str
    value: Callable[[str], str] = str


def _endpoint_check(value: str) -> str:
    return "" if value.lower() == "none" else value


def _minus_one_for_zero(value: str) -> str:
    return "-1" if value == "0" else value


TRANSLATIONS: Final[Mapping[str, Translation]] = {
    "bootstrap.servers": Translation("bootstrap.servers"),
    "metadata.broker.list": Translation("bootstrap.servers"),
    "client.id": Translation("client.id"),
    "client.rack": Translation("client.rack"),
    "client.dns.lookup": Translation("client.dns.lookup"),
    "security.protocol": Translation("security.protocol", str.upper),
    "sasl.mechanism": Translation("sasl.mechanism", str.upper),
    "sasl.mechanisms": Translation("sasl.mechanism", str.upper),
    "ssl.endpoint.identification.algorithm": Translation("ssl.endpoint.identification.algorithm", _endpoint_check),
    "socket.timeout.ms": Translation("request.timeout.ms"),
    "socket.connection.setup.timeout.ms": Translation("socket.connection.setup.timeout.ms"),
    "socket.receive.buffer.bytes": Translation("receive.buffer.bytes", _minus_one_for_zero),
    "socket.send.buffer.bytes": Translation("send.buffer.bytes", _minus_one_for_zero),
    "connections.max.idle.ms": Translation("connections.max.idle.ms", _minus_one_for_zero),
    "metadata.max.age.ms": Translation("metadata.max.age.ms"),
    "reconnect.backoff.ms": Translation("reconnect.backoff.ms"),
    "reconnect.backoff.max.ms": Translation("reconnect.backoff.max.ms"),
    "retry.backoff.ms": Translation("retry.backoff.ms"),
    "retry.backoff.max.ms": Translation("retry.backoff.max.ms"),
    "fetch.min.bytes": Translation("fetch.min.bytes"),
    "fetch.max.bytes": Translation("fetch.max.bytes"),
    "fetch.wait.max.ms": Translation("fetch.max.wait.ms"),
    "fetch.message.max.bytes": Translation("max.partition.fetch.bytes"),
    "max.partition.fetch.bytes": Translation("max.partition.fetch.bytes"),
    "check.crcs": Translation("check.crcs"),
}
"""Settings with one counterpart. Functions translate logins and certificates, where several settings make one."""

LOGIN: Final = frozenset({"sasl.username", "sasl.password"})
OIDC: Final = frozenset(
    {
        "https.ca.location",
        "https.ca.pem",
        "sasl.oauthbearer.client.credentials.client.id",
        "sasl.oauthbearer.client.credentials.client.secret",
        "sasl.oauthbearer.client.id",
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.extensions",
        "sasl.oauthbearer.grant.type",
        "sasl.oauthbearer.method",
        "sasl.oauthbearer.scope",
        "sasl.oauthbearer.token.endpoint.url",
    }
)
"""Of a login by tokens of an OpenID provider."""

CERTIFICATES: Final = frozenset(
    {
        "ssl.ca.location",
        "ssl.ca.pem",
        "ssl.certificate.location",
        "ssl.certificate.pem",
        "ssl.key.location",
        "ssl.key.password",
        "ssl.key.pem",
        "ssl.keystore.location",
        "ssl.keystore.password",
    }
)

# Of groups and of producers: a connection is often shared with operators that need them. They have no effect on a
# reader with assigned partitions and stored offsets of its own.
OF_OTHERS: Final = frozenset(
    {
        "acks",
        "auto.commit.interval.ms",
        "batch.num.messages",
        "batch.size",
        "compression.codec",
        "compression.level",
        "compression.type",
        "delivery.timeout.ms",
        "enable.auto.offset.store",
        "enable.idempotence",
        "group.id",
        "group.instance.id",
        "group.protocol",
        "group.remote.assignor",
        "heartbeat.interval.ms",
        "linger.ms",
        "max.in.flight",
        "max.in.flight.requests.per.connection",
        "max.poll.interval.ms",
        "message.max.bytes",
        "message.send.max.retries",
        "message.timeout.ms",
        "partition.assignment.strategy",
        "partitioner",
        "queue.buffering.max.kbytes",
        "queue.buffering.max.messages",
        "queue.buffering.max.ms",
        "request.required.acks",
        "request.timeout.ms",
        "retries",
        "session.timeout.ms",
        "transaction.timeout.ms",
        "transactional.id",
    }
)
# Python functions, which other operators of a shared connection may need, in Airflow's provider by their import paths.
# None of them changes what is read, and this package reports errors and statistics itself.
CALLBACKS: Final = frozenset(
    {"dr_cb", "error_cb", "log_cb", "logger", "on_commit", "on_delivery", "stats_cb", "throttle_cb"}
)
# Of librdkafka's internals: the Java client has no counterpart, and reads the same records without them.
OF_LIBRDKAFKA: Final = frozenset(
    {
        "api.version.fallback.ms",
        "api.version.request",
        "api.version.request.timeout.ms",
        "broker.address.family",
        "broker.address.ttl",
        "broker.version.fallback",
        "debug",
        "enable.metrics.push",
        "enable.partition.eof",
        "fetch.error.backoff.ms",
        "fetch.queue.backoff.ms",
        "log.connection.close",
        "log.queue",
        "log.thread.name",
        "log_level",
        "metadata.recovery.rebootstrap.trigger.ms",
        "metadata.recovery.strategy",
        "queued.max.messages.kbytes",
        "queued.min.messages",
        "receive.message.max.bytes",
        "socket.keepalive.enable",
        "socket.max.fails",
        "socket.nagle.disable",
        "statistics.interval.ms",
        "topic.metadata.propagation.max.ms",
        "topic.metadata.refresh.fast.interval.ms",
        "topic.metadata.refresh.interval.ms",
        "topic.metadata.refresh.sparse",
    }
)

# Protected setting -> (values that have no effect and are accepted, what to do instead).
PROTECTED: Final[Mapping[str, tuple[tuple[str, ...], str]]] = {
    "allow.auto.create.topics": (
        ("false",),
        "remove it: a missing topic is an error, never created",
    ),
    "auto.offset.reset": (
        ("error", "none"),
        "remove it: the operator's starting_offsets sets where to begin, and a lost offset is an error, never skipped",
    ),
    "enable.auto.commit": (
        ("false",),
        "remove it: offsets are stored in the bucket, none are committed to Kafka",
    ),
    "interceptor.classes": ((), "remove it: records are read as they are"),
    "isolation.level": (
        (),
        "remove it and set isolation of the operator: offsets have to be planned at the same level",
    ),
    "key.deserializer": ((), "remove it: records are read as bytes"),
    "value.deserializer": ((), "remove it: records are read as bytes"),
}

# Setting without a counterpart -> (Spark options of which one replaces it, what to do).
LOGIN_OVERRIDES: Final = (
    "kafka.sasl.jaas.config",
    "kafka.sasl.login.callback.handler.class",
)
_TOKENS: Final = "sasl.oauthbearer.method=oidc, or by sasl.mechanism=AWS_MSK_IAM"
UNTRANSLATABLE: Final[Mapping[str, tuple[tuple[str, ...], str]]] = {
    "enable.ssl.certificate.verification": (
        (),
        "trust the broker's certificate by ssl.ca.location instead",
    ),
    "oauth_cb": (LOGIN_OVERRIDES, f"a Java client cannot call a Python function. Remove it and log in by {_TOKENS}"),
    "ssl.cipher.suites": (
        ("kafka.ssl.cipher.suites",),
        "Java has other names for ciphers",
    ),
    "ssl.crl.location": ((), "Java has no setting for a file of revoked certificates"),
    "ssl.curves.list": ((), "Java sets curves for the whole JVM: jdk.tls.namedGroups"),
    "ssl.sigalgs.list": (
        (),
        "Java sets algorithms for the whole JVM: jdk.tls.client.SignatureSchemes",
    ),
}
LOGIN_PREFIXES: Final = (
    "sasl.kerberos.",
    "sasl.oauthbearer.",
    "enable.sasl.oauthbearer.",
)
