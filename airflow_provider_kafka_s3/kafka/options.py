"""One set of Kafka settings for two clients: librdkafka's names in, what librdkafka and Spark's Java client need out.

The settings are the extra of an Airflow connection of type ``kafka``, whose keys are librdkafka's configuration
properties. Spark reads with the Java client, which has other names, and other ideas of certificates and logins:
``translations`` is the whole dictionary. A key that neither translates nor can be left out is refused, because a
job that quietly reads with half of its settings is worse than one that does not start.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final, Literal

from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.kafka.logins import java_login, python_login, uses_oidc
from airflow_provider_kafka_s3.kafka.settings import pem, text
from airflow_provider_kafka_s3.kafka.translations import (
    CERTIFICATES,
    LOGIN,
    LOGIN_OVERRIDES,
    LOGIN_PREFIXES,
    OF_LIBRDKAFKA,
    OF_OTHERS,
    OIDC,
    PROTECTED,
    TRANSLATIONS,
    UNTRANSLATABLE,
)

__all__ = ["SECRET_OPTIONS", "SPARK_DEFAULTS", "Isolation", "client_config", "spark_options"]

log = logging.getLogger(__name__)

Isolation = Literal["read_committed", "read_uncommitted"]

SECRET_OPTIONS: Final = frozenset(
    {
        "kafka.sasl.jaas.config",
        "kafka.ssl.key.password",
        "kafka.ssl.keystore.key",
        "kafka.ssl.keystore.password",
        "kafka.ssl.truststore.password",
    }
)
"""Names of Spark options whose values must not be logged, stored or shown."""

SPARK_DEFAULTS: Final[Mapping[str, str]] = {
    # Spark asks the broker twice for offsets after every poll: few large polls cost 3-4 times less CPU in the broker
    # and a fifth less in the executor than the Java client's defaults of 500 records and 1 MiB.
    "kafka.max.poll.records": "20000",
    "kafka.max.partition.fetch.bytes": str(16 * 1024 * 1024),
    "kafka.fetch.max.bytes": str(50 * 1024 * 1024),
    "kafka.receive.buffer.bytes": str(1024 * 1024),
    # Spark's own default is its network timeout, two minutes: too long to wait for a broker that does not answer.
    "kafkaConsumer.pollTimeoutMs": "60000",
}
"""How Spark's consumers are tuned unless the connection or the overrides say otherwise."""


# The source's own options that may be overridden; what is read is the plan's, and so is how it is cut.
_SOURCE_OPTIONS: Final = {
    name.lower(): name
    for name in (
        "kafkaConsumer.pollTimeoutMs",
        "fetchOffset.numRetries",
        "fetchOffset.retryIntervalMs",
        "groupIdPrefix",
    )
}


def client_config(config: Mapping[str, object]) -> dict[str, Any]:
    """Settings for a librdkafka client that only reads: those of the connection, less what is not for reading.

    Args:
        config: the connection's extra.

    Returns:
        A new dictionary, with everything that librdkafka can check left for it to check. Secrets are in it.

    Raises:
        ConfigurationError: no ``bootstrap.servers``, or a setting that the package decides itself.
    """
    _require_servers(config)
    for name, value in config.items():
        _refuse_protected(name, value)
    ours = {name: value for name, value in config.items() if name not in OF_OTHERS and name not in PROTECTED}
    ours.setdefault("bootstrap.servers", config.get("metadata.broker.list"))
    return {**ours, **python_login(config)}


def spark_options(
    config: Mapping[str, object],
    *,
    isolation: Isolation = "read_committed",
    overrides: Mapping[str, object] | None = None,
) -> dict[str, str]:
    """Options for ``spark.read.format("kafka")``, all but what to read: ``assign`` and the offsets.

    Certificates and keys given as files are read here and become part of the options, so that the executors need no
    files, and keys are turned into the form that Java reads; a PKCS#12 key store stays a path that must exist on every
    executor.

    Args:
        config: the connection's extra.
        isolation: what the reader may see.
        overrides: Spark options by their own names (``kafka.`` and a Java setting, or an option of the source): they
            win over the translation, and settle what cannot be translated.

    Returns:
        Options by name. Those in :data:`SECRET_OPTIONS` hold secrets.

    Raises:
        ConfigurationError: a setting is missing, protected, or has no translation; the message names it and the exit.
    """
    overridden = _checked_overrides(overrides or {})
    _require_servers(config)
    translated: dict[str, str] = {}
    ignored = []
    for name, value in config.items():
        _refuse_protected(name, value)
        if name in PROTECTED or name in LOGIN or name in CERTIFICATES or (name in OIDC and uses_oidc(config)):
            continue
        if name in TRANSLATIONS:
            translation = TRANSLATIONS[name]
            translated[translation.java] = translation.value(text(name, value))
        elif name in OF_OTHERS or name in OF_LIBRDKAFKA:
            ignored.append(name)
        else:
            _refuse_untranslatable(name, value, overridden)
    if ignored:
        log.info(
            "Settings of the Kafka connection that mean nothing to Spark's consumer: %s", ", ".join(sorted(ignored))
        )
    if not overridden.keys() & set(LOGIN_OVERRIDES):
        translated |= java_login(config, translated)
    if not any(name.startswith(("kafka.ssl.truststore.", "kafka.ssl.keystore.")) for name in overridden):
        translated |= _certificates(config)
    return {
        **SPARK_DEFAULTS,
        **{f"kafka.{name}": value for name, value in translated.items()},
        **overridden,
        "kafka.isolation.level": isolation,
        # The Java client's default is true: asking for a topic that was deleted would bring it back, empty.
        "kafka.allow.auto.create.topics": "false",
        "failOnDataLoss": "true",
    }


def _require_servers(config: Mapping[str, object]) -> None:
    servers = config.get("bootstrap.servers", config.get("metadata.broker.list"))
    if not isinstance(servers, str) or not servers.strip():
        raise ConfigurationError(
            f"bootstrap.servers={servers!r} in the Kafka connection: set it in the connection's extra, such as "
            '{"bootstrap.servers": "broker-1:9092,broker-2:9092"}'
        )


def _refuse_protected(name: str, value: object) -> None:
    if name in PROTECTED:
        harmless, advice = PROTECTED[name]
        if text(name, value).lower() not in harmless:
            raise ConfigurationError(f"{name}={value!r} of the Kafka connection is protected; {advice}")


def _refuse_untranslatable(name: str, value: object, overridden: Mapping[str, str]) -> None:
    if name == "enable.ssl.certificate.verification" and text(name, value).lower() == "true":
        return
    replacements: tuple[str, ...]
    if name.startswith(LOGIN_PREFIXES):
        replacements, why = (LOGIN_OVERRIDES, "this way to log in differs too much between the clients")
    elif name in UNTRANSLATABLE:
        replacements, why = UNTRANSLATABLE[name]
    elif callable(value):
        replacements, why = ((), "a Python callback cannot be called by a Java client; remove it from the connection")
    else:
        replacements, why = ((f"kafka.{name}",), "no Java setting of this meaning is known")
    if not overridden.keys() & set(replacements):
        instead = f"; set {' or '.join(replacements)} in the Spark overrides instead" if replacements else ""
        raise ConfigurationError(f"{name} of the Kafka connection cannot be passed on to Spark: {why}{instead}")


def _checked_overrides(overrides: Mapping[str, object]) -> dict[str, str]:
    checked = {}
    for name, value in overrides.items():
        if name.startswith("kafka."):
            if name.removeprefix("kafka.") in PROTECTED:
                _, advice = PROTECTED[name.removeprefix("kafka.")]
                raise ConfigurationError(f"Spark override {name} is protected; {advice}")
            checked[name] = text(name, value)
        elif name.lower() in _SOURCE_OPTIONS:
            checked[_SOURCE_OPTIONS[name.lower()]] = text(name, value)
        else:
            raise ConfigurationError(
                f"Spark override {name} is refused: settings of the Kafka client begin with 'kafka.', and of the "
                f"source's own options only {', '.join(sorted(_SOURCE_OPTIONS.values()))} may be set; what is read, "
                f"and in which pieces, is the plan's"
            )
    return checked


def _certificates(config: Mapping[str, object]) -> dict[str, str]:
    java: dict[str, str] = {}
    # "probe" and nothing mean: whom the machine trusts. For Java that is what the JVM trusts.
    if (ca := pem(config, "ssl.ca")) is not None:
        java |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": ca}
    certificate, key = pem(config, "ssl.certificate"), pem(config, "ssl.key")
    if (certificate is None) != (key is None):
        raise ConfigurationError("ssl.certificate and ssl.key of the Kafka connection belong together; give both")
    if certificate is not None and key is not None:
        java |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": certificate,
            "ssl.keystore.key": _plain_key(key, config.get("ssl.key.password")),
        }
    elif "ssl.keystore.location" in config:
        java |= {"ssl.keystore.type": "PKCS12"}
        stores = ("ssl.keystore.location", "ssl.keystore.password", "ssl.key.password")
        java |= {name: text(name, config[name]) for name in stores if name in config}
    return java


def _plain_key(key: str, password: object) -> str:
    """The key as PKCS#8 without a password, the one form that every Java reads.

    Java 17 knows neither OpenSSL's older forms nor today's encryption of PKCS#8. The password would go the same way as
    the key, so without it nothing is given away that was not before.
    """
    if "BEGIN PRIVATE KEY" in key:
        return key
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives import serialization
    except ImportError as e:
        raise ConfigurationError(
            "ssl.key of the Kafka connection is not in the form that Java reads, and the package `cryptography` that "
            "converts it is not installed; install it, or convert the key: `openssl pkcs8 -topk8 -nocrypt -in old.key`"
        ) from e
    try:
        secret = None if password is None else text("ssl.key.password", password).encode()
        loaded = serialization.load_pem_private_key(key.encode(), secret)
    except (TypeError, ValueError, UnsupportedAlgorithm) as e:
        raise ConfigurationError(
            f"ssl.key of the Kafka connection cannot be read ({e}); give a private key in PEM form and, if it is "
            f"encrypted, its ssl.key.password"
        ) from e
    return loaded.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
