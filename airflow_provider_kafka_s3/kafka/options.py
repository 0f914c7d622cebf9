"""Configuration of librdkafka and of Spark's Java client, from the settings of one Airflow connection.

The settings are the extra of a connection of type ``kafka``, whose keys are librdkafka's configuration properties.
Spark reads with the Java client, which has other names, and other formats of certificates and logins: see
``translations``. A setting that can be neither translated nor left out is refused, so that no job reads with a part of
its settings.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final, Literal

from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.kafka.logins import java_login, python_login, uses_oidc
from airflow_provider_kafka_s3.kafka.settings import pem, text
from airflow_provider_kafka_s3.kafka.translations import (
    CALLBACKS,
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
    # Spark sends two requests for offsets after every poll: few large polls need a third to a quarter of the CPU time
    # in the broker, and a fifth less in the executor, than the Java client's defaults of 500 records and 1 MiB.
    "kafka.max.poll.records": "20000",
    "kafka.max.partition.fetch.bytes": str(16 * 1024 * 1024),
    "kafka.fetch.max.bytes": str(50 * 1024 * 1024),
    "kafka.receive.buffer.bytes": str(1024 * 1024),
    # A consumer that has read to the end of a log fetches again at once, and the broker answers other requests of that
    # connection only after this time: with the Java client's default, each slice that ends there takes half a second.
    "kafka.fetch.max.wait.ms": "10",
    # Spark's own default is its network timeout, two minutes: too long for a broker that does not respond.
    "kafkaConsumer.pollTimeoutMs": "60000",
}
"""Settings of Spark's consumers that neither the connection nor the overrides contain."""


# Options of the source that may be overridden; the plan determines what is read, and in which slices.
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
    """Settings of a librdkafka client that only reads: those of the connection without those of producers and groups.

    Args:
        config: the connection's extra.

    Returns:
        A new dictionary, with secrets. Only librdkafka checks the values.

    Raises:
        ConfigurationError: there is no ``bootstrap.servers``, or a protected setting, or a login by a function that
            only Airflow imports.
    """
    _require_servers(config)
    for name, value in config.items():
        _refuse_protected(name, value)
    if isinstance(config.get("oauth_cb"), str):
        raise ConfigurationError(
            f"oauth_cb of the Kafka connection is the import path of a function, which is not imported here: "
            f"{UNTRANSLATABLE['oauth_cb'][1]}"
        )
    left_out = OF_OTHERS | CALLBACKS | PROTECTED.keys()
    reading = {name: value for name, value in config.items() if name not in left_out}
    reading.setdefault("bootstrap.servers", config.get("metadata.broker.list"))
    return {**reading, **python_login(config)}


def spark_options(
    config: Mapping[str, object],
    *,
    isolation: Isolation = "read_committed",
    overrides: Mapping[str, object] | None = None,
) -> dict[str, str]:
    """Options of ``spark.read.format("kafka")`` without ``assign`` and the offsets.

    Files of certificates and keys are read here, so that executors need no files, and keys are converted to the format
    that Java reads. A PKCS#12 key store stays a path, which has to exist on every executor.

    Args:
        config: the connection's extra.
        isolation: level of the reader.
        overrides: Spark options by their own names (``kafka.`` and a Java setting, or an option of the source). They
            replace translated settings, and those that cannot be translated.

    Returns:
        Options by name. Those in :data:`SECRET_OPTIONS` are secrets.

    Raises:
        ConfigurationError: a setting is missing, protected, or cannot be translated; the message contains the setting
            and its replacement.
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
        elif name in OF_OTHERS or name in OF_LIBRDKAFKA or name in CALLBACKS:
            ignored.append(name)
        else:
            _refuse_untranslatable(name, value, overridden)
    if ignored:
        log.info("settings of the Kafka connection that Spark's consumer does not have: %s", ", ".join(sorted(ignored)))
    if not overridden.keys() & set(LOGIN_OVERRIDES):
        translated |= java_login(config, translated)
    if not any(name.startswith(("kafka.ssl.truststore.", "kafka.ssl.keystore.")) for name in overridden):
        translated |= _certificates(config)
    return {
        **SPARK_DEFAULTS,
        **{f"kafka.{name}": value for name, value in translated.items()},
        **overridden,
        "kafka.isolation.level": isolation,
        # The Java client's default is true: its metadata request would create a deleted topic again, empty.
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
        replacements, why = (LOGIN_OVERRIDES, "the two clients configure this login differently")
    elif name in UNTRANSLATABLE:
        replacements, why = UNTRANSLATABLE[name]
    elif callable(value):
        replacements, why = ((), "a Java client cannot call a Python function; remove it from the connection")
    else:
        replacements, why = ((f"kafka.{name}",), "there is no Java setting with this meaning")
    if not overridden.keys() & set(replacements):
        instead = f"; set {' or '.join(replacements)} in the Spark overrides instead" if replacements else ""
        raise ConfigurationError(f"{name} of the Kafka connection cannot be translated for Spark: {why}{instead}")


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
                f"source's own options only {', '.join(sorted(_SOURCE_OPTIONS.values()))} may be set; the plan "
                f"determines what is read"
            )
    return checked


def _certificates(config: Mapping[str, object]) -> dict[str, str]:
    java: dict[str, str] = {}
    # "probe", or no setting: the authorities that the machine trusts. For Java, those that the JVM trusts.
    if (ca := pem(config, "ssl.ca")) is not None:
        java |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": ca}
    certificate, key = pem(config, "ssl.certificate"), pem(config, "ssl.key")
    if (certificate is None) != (key is None):
        raise ConfigurationError("ssl.certificate and ssl.key of the Kafka connection belong together; set both")
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
    """The key as PKCS#8 without a password, the only format that every Java version reads.

    Java 17 reads neither OpenSSL's older formats nor the current encryption of PKCS#8. The password would be sent
    together with the key, so it would protect nothing.
    """
    if "BEGIN PRIVATE KEY" in key:
        return key
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives import serialization
    except ImportError as e:
        raise ConfigurationError(
            "ssl.key of the Kafka connection is not in the format that Java reads, and the package `cryptography` that "
            "converts it is not installed; install it, or convert the key: `openssl pkcs8 -topk8 -nocrypt -in old.key`"
        ) from e
    try:
        secret = None if password is None else text("ssl.key.password", password).encode()
        loaded = serialization.load_pem_private_key(key.encode(), secret)
    except (TypeError, ValueError, UnsupportedAlgorithm) as e:
        raise ConfigurationError(
            f"ssl.key of the Kafka connection cannot be read ({e}); set it to a private key in PEM format and, if it "
            f"is encrypted, set ssl.key.password"
        ) from e
    return loaded.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
