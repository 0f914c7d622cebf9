"""The settings of a Kafka connection, for librdkafka and for Spark."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.kafka import client, translations
from airflow_provider_kafka_s3.kafka.options import SECRET_OPTIONS, SPARK_DEFAULTS, client_config, spark_options

SERVERS = {"bootstrap.servers": "a:9092,b:9092"}
SASL = {**SERVERS, "security.protocol": "SASL_SSL", "sasl.username": "u", "sasl.password": "p"}
KEY = "-----BEGIN PRIVATE KEY-----\nx\n-----END PRIVATE KEY-----\n"
CERTIFICATE = "-----BEGIN CERTIFICATE-----\ny\n-----END CERTIFICATE-----\n"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


def test_servers_alone_give_a_tuned_reader() -> None:
    """The defaults, committed records only, and nothing ever skipped or created."""
    assert spark_options(SERVERS) == {
        **SPARK_DEFAULTS,
        "kafka.bootstrap.servers": "a:9092,b:9092",
        "kafka.isolation.level": "read_committed",
        "kafka.allow.auto.create.topics": "false",
        "failOnDataLoss": "true",
    }


@pytest.mark.parametrize(
    ("setting", "value", "option", "translated"),
    [
        ("client.id", "me", "kafka.client.id", "me"),
        ("security.protocol", "ssl", "kafka.security.protocol", "SSL"),
        ("ssl.endpoint.identification.algorithm", "none", "kafka.ssl.endpoint.identification.algorithm", ""),
        ("ssl.endpoint.identification.algorithm", "https", "kafka.ssl.endpoint.identification.algorithm", "https"),
        ("socket.timeout.ms", 30000, "kafka.request.timeout.ms", "30000"),
        ("connections.max.idle.ms", 0, "kafka.connections.max.idle.ms", "-1"),
        ("socket.receive.buffer.bytes", 0, "kafka.receive.buffer.bytes", "-1"),
        ("socket.receive.buffer.bytes", 65536, "kafka.receive.buffer.bytes", "65536"),
        ("fetch.wait.max.ms", "500", "kafka.fetch.max.wait.ms", "500"),
        ("fetch.message.max.bytes", 1048576, "kafka.max.partition.fetch.bytes", "1048576"),
        ("max.partition.fetch.bytes", 1048576, "kafka.max.partition.fetch.bytes", "1048576"),
        ("fetch.max.bytes", 1048576, "kafka.fetch.max.bytes", "1048576"),
        ("check.crcs", False, "kafka.check.crcs", "false"),
    ],
)
def test_a_setting_is_translated_for_java(setting: str, value: object, option: str, translated: str) -> None:
    """Names and values that differ between the clients; the connection overrides the defaults."""
    assert spark_options({**SERVERS, setting: value})[option] == translated


def test_the_older_name_of_the_servers_counts_too() -> None:
    """metadata.broker.list is librdkafka's alias."""
    config = {"metadata.broker.list": "a:9092"}

    assert spark_options(config)["kafka.bootstrap.servers"] == "a:9092"
    assert client_config(config)["bootstrap.servers"] == "a:9092"


@pytest.mark.parametrize(
    "config", [{}, {"bootstrap.servers": ""}, {"bootstrap.servers": None}, {"bootstrap.servers": 1}]
)
def test_a_connection_without_servers_is_refused(config: dict[str, object]) -> None:
    """For both clients, with an example of the setting."""
    for function in (spark_options, client_config):
        with pytest.raises(ConfigurationError, match=r"bootstrap\.servers=.*broker-1:9092"):
            function(config)


def test_every_setting_is_in_one_table() -> None:
    """Nothing is both translated and ignored, or protected and translated."""
    tables: list[Any] = [
        translations.TRANSLATIONS,
        translations.LOGIN,
        translations.CERTIFICATES,
        translations.OIDC,
        translations.OF_OTHERS,
        translations.OF_LIBRDKAFKA,
        translations.PROTECTED,
        translations.UNTRANSLATABLE,
    ]
    names = [name for table in tables for name in table]

    assert sorted(names) == sorted(set(names))


# -------------------------------------------------------------------------------------------------------------- logins


@pytest.mark.parametrize(
    ("mechanism", "module"), [("PLAIN", PLAIN), ("plain", PLAIN), ("SCRAM-SHA-256", SCRAM), ("SCRAM-SHA-512", SCRAM)]
)
@pytest.mark.parametrize("name", ["sasl.mechanism", "sasl.mechanisms"])
def test_a_login_becomes_a_jaas_configuration(name: str, mechanism: str, module: str) -> None:
    """Both of librdkafka's names for the mechanism, whatever their case."""
    options = spark_options({**SASL, name: mechanism})

    assert options["kafka.sasl.mechanism"] == mechanism.upper()
    assert options["kafka.sasl.jaas.config"] == f'{module} required username="u" password="p";'
    assert "kafka.sasl.username" not in options
    assert "kafka.sasl.password" not in options


@pytest.mark.parametrize(
    ("password", "quoted"),
    [
        ('say "x"', r'"say \"x\""'),
        ("back\\slash", r'"back\\slash"'),
        ("trailing\\", r'"trailing\\"'),
        ("semi;colon='#", '"semi;colon=\'#"'),
        ("line\nbreak\r", r'"line\nbreak\r"'),
        ("päss wörd", '"päss wörd"'),
        ("", '""'),
    ],
)
def test_a_password_cannot_break_out_of_its_quotes(password: str, quoted: str) -> None:
    """Java's tokenizer reads the same password; no part of it becomes another option."""
    options = spark_options({**SASL, "sasl.mechanism": "PLAIN", "sasl.password": password})

    assert options["kafka.sasl.jaas.config"] == f'{PLAIN} required username="u" password={quoted};'


@pytest.mark.parametrize("missing", ["sasl.username", "sasl.password"])
def test_half_a_login_is_refused(missing: str) -> None:
    """The message names the missing half, without the value of the other."""
    config = {**SASL, "sasl.mechanism": "PLAIN", "sasl.password": "secret"}
    del config[missing]

    with pytest.raises(ConfigurationError, match=f"needs {missing}") as caught:
        spark_options(config)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "settings",
    [
        {"sasl.mechanism": "GSSAPI", "sasl.kerberos.service.name": "kafka"},
        {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.config": "principal=me"},
        {"sasl.mechanism": "OAUTHBEARER", "oauth_cb": print},
        {},
    ],
)
def test_other_logins_need_an_override(settings: dict[str, object]) -> None:
    """The error names the override; with the override, nothing else of the login is used."""
    config = {**SASL, **settings}

    with pytest.raises(ConfigurationError, match=r"kafka\.sasl\.jaas\.config"):
        spark_options(config)
    options = spark_options(config, overrides={"kafka.sasl.jaas.config": "mine"})
    assert options["kafka.sasl.jaas.config"] == "mine"


def test_an_unused_login_is_left_out() -> None:
    """Credentials for a listener without logins are not sent."""
    assert "kafka.sasl.jaas.config" not in spark_options({**SASL, "security.protocol": "SSL"})


# -------------------------------------------------------------------------------------------------------- certificates


def test_certificates_of_files_become_part_of_the_options(tmp_path: Path) -> None:
    """Executors need no files; text in the setting is used as it is."""
    for name, text in (("ca.pem", CERTIFICATE), ("me.pem", CERTIFICATE), ("me.key", KEY)):
        (tmp_path / name).write_text(text)
    files = {
        **SERVERS,
        "ssl.ca.location": str(tmp_path / "ca.pem"),
        "ssl.certificate.location": str(tmp_path / "me.pem"),
        "ssl.key.location": str(tmp_path / "me.key"),
    }
    texts = {**SERVERS, "ssl.ca.pem": CERTIFICATE, "ssl.certificate.pem": CERTIFICATE, "ssl.key.pem": KEY}

    options = spark_options(files)

    assert {k: v for k, v in options.items() if k.startswith("kafka.ssl.")} == {
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.certificates": CERTIFICATE,
        "kafka.ssl.keystore.type": "PEM",
        "kafka.ssl.keystore.certificate.chain": CERTIFICATE,
        "kafka.ssl.keystore.key": KEY,
    }
    assert spark_options(texts) == options


def test_a_pkcs12_store_stays_a_file() -> None:
    """Java reads it too, from a path on every executor."""
    options = spark_options({**SERVERS, "ssl.keystore.location": "/me.p12", "ssl.keystore.password": "k"})

    assert options["kafka.ssl.keystore.type"] == "PKCS12"
    assert options["kafka.ssl.keystore.location"] == "/me.p12"
    assert options["kafka.ssl.keystore.password"] == "k"


def test_the_certificates_of_the_machine_are_those_of_the_jvm() -> None:
    """With `probe`, librdkafka finds the machine's; Java uses its own."""
    assert not any("truststore" in name for name in spark_options({**SERVERS, "ssl.ca.location": "probe"}))


def test_a_certificate_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """A missing file, and a folder of certificates, which only OpenSSL supports."""
    for path in (tmp_path / "missing.pem", tmp_path):
        with pytest.raises(ConfigurationError, match=f"ssl.ca.location='{path}'"):
            spark_options({**SERVERS, "ssl.ca.location": str(path)})


def private_key(form: str, password: str | None) -> str:
    """A new key as PEM."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if password is not None:
        encryption = serialization.BestAvailableEncryption(password.encode())
    key = ec.generate_private_key(ec.SECP256R1())
    return key.private_bytes(
        serialization.Encoding.PEM, getattr(serialization.PrivateFormat, form), encryption
    ).decode()


@pytest.mark.parametrize(
    ("form", "password"), [("TraditionalOpenSSL", None), ("TraditionalOpenSSL", "p"), ("PKCS8", "p")]
)
def test_a_key_that_java_cannot_read_is_converted(form: str, password: str | None) -> None:
    """OpenSSL's older forms and encrypted keys become plain PKCS#8; the password is not needed any more."""
    pem = private_key(form, password)
    config = {
        **SERVERS,
        "ssl.certificate.pem": CERTIFICATE,
        "ssl.key.pem": pem,
        "ssl.key.password": password or "unused",
    }
    if password is None:
        del config["ssl.key.password"]

    options = spark_options(config)

    assert options["kafka.ssl.keystore.key"].startswith("-----BEGIN PRIVATE KEY-----\n")
    assert "kafka.ssl.key.password" not in options


@pytest.mark.parametrize("password", [None, "wrong"])
def test_a_key_whose_password_is_wrong_is_refused(password: str | None) -> None:
    """Before the job, not by a stack trace of every executor; neither key nor password is in the message."""
    pem = private_key("PKCS8", "right")
    config = {**SERVERS, "ssl.certificate.pem": CERTIFICATE, "ssl.key.pem": pem}
    if password is not None:
        config["ssl.key.password"] = password

    with pytest.raises(ConfigurationError, match=r"ssl\.key .*ssl\.key\.password") as caught:
        spark_options(config)
    assert pem.splitlines()[1] not in str(caught.value)
    assert "wrong" not in str(caught.value)


def test_a_certificate_without_its_key_is_refused() -> None:
    """Otherwise Java would start, and the broker refuse it."""
    with pytest.raises(ConfigurationError, match="belong together"):
        spark_options({**SERVERS, "ssl.certificate.pem": CERTIFICATE})


def test_stores_given_as_overrides_replace_the_translation() -> None:
    """Then the connection's certificates are not even read."""
    store = {"kafka.ssl.truststore.location": "/jks", "kafka.ssl.truststore.password": "k"}

    options = spark_options({**SERVERS, "ssl.ca.location": "/missing"}, overrides=store)

    assert {k: v for k, v in options.items() if "truststore" in k} == store


# ---------------------------------------------------------------------------------------------- what is not passed on


def test_settings_for_others_are_left_out_with_a_log_line(caplog: pytest.LogCaptureFixture) -> None:
    """A connection may be shared with operators that consume in groups or produce."""
    caplog.set_level(logging.INFO)
    config = {**SERVERS, "group.id": "g", "session.timeout.ms": 6000, "linger.ms": 5, "debug": "all"}

    assert spark_options(config) == spark_options(SERVERS)
    assert "debug, group.id, linger.ms, session.timeout.ms" in caplog.text


@pytest.mark.parametrize(
    ("setting", "value", "advice"),
    [
        ("auto.offset.reset", "earliest", "starting_offsets"),
        ("enable.auto.commit", True, "stored in the bucket"),
        ("isolation.level", "read_uncommitted", "isolation"),
        ("key.deserializer", "x", "bytes"),
        ("value.deserializer", "x", "bytes"),
        ("interceptor.classes", "x", "as they are"),
        ("allow.auto.create.topics", True, "never created"),
    ],
)
def test_protected_settings_are_refused(setting: str, value: object, advice: str) -> None:
    """In the connection, for both clients, and as an override; the message has the alternative."""
    for function in (spark_options, client_config):
        with pytest.raises(ConfigurationError, match=rf"{setting}.*protected.*{advice}"):
            function({**SERVERS, setting: value})
    with pytest.raises(ConfigurationError, match=rf"kafka\.{setting} is protected.*{advice}"):
        spark_options(SERVERS, overrides={f"kafka.{setting}": value})


@pytest.mark.parametrize(
    ("setting", "value"),
    [("enable.auto.commit", False), ("enable.auto.commit", "False"), ("auto.offset.reset", "error")],
)
def test_protected_settings_without_effect_are_accepted(setting: str, value: object) -> None:
    """A connection may contain the value that is used in any case."""
    assert spark_options({**SERVERS, setting: value}) == spark_options(SERVERS)
    assert client_config({**SERVERS, setting: value}) == client_config(SERVERS)


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        (
            "oauth_cb",
            "package.login",
            "a Java client cannot call a Python function. Remove it and log in by",
        ),
        ("later_cb", print, "a Java client cannot call a Python function; remove it"),
        ("enable.ssl.certificate.verification", False, "ssl.ca.location"),
        ("ssl.crl.location", "/x", "revoked"),
        ("ssl.cipher.suites", "x", r"kafka\.ssl\.cipher\.suites"),
        ("no.such.setting", "x", r"kafka\.no\.such\.setting"),
        ("client.id", {"a": 1}, "a dict"),
    ],
)
def test_a_setting_without_a_translation_is_refused(setting: str, value: object, message: str) -> None:
    """No job reads with a part of its settings."""
    with pytest.raises(ConfigurationError, match=rf"{setting}.*{message}"):
        spark_options({**SERVERS, setting: value})


@pytest.mark.parametrize("name", ["error_cb", "throttle_cb", "stats_cb", "log_cb", "on_commit", "on_delivery"])
@pytest.mark.parametrize("value", ["package.module.function", print])
def test_callbacks_of_other_operators_are_left_out(name: str, value: object) -> None:
    """Airflow's Kafka provider imports them by their paths; what is read does not depend on them."""
    config = {**SERVERS, name: value}
    assert spark_options(config) == spark_options(SERVERS)
    assert client_config(config) == client_config(SERVERS)
    client.producer(config, client.ClientEvents())


def test_a_login_by_a_function_that_only_airflow_imports_is_refused() -> None:
    """By both clients, with the logins that both have."""
    config = {**SERVERS, "sasl.mechanism": "OAUTHBEARER", "oauth_cb": "package.module.function"}
    for function in (spark_options, client_config):
        with pytest.raises(ConfigurationError, match=r"oauth_cb .*sasl\.oauthbearer\.method=oidc"):
            function(config)


def test_an_override_replaces_a_setting_without_a_translation() -> None:
    """The override that the message names works."""
    options = spark_options({**SERVERS, "ssl.cipher.suites": "x"}, overrides={"kafka.ssl.cipher.suites": "TLS_AES"})

    assert options["kafka.ssl.cipher.suites"] == "TLS_AES"


def test_the_verification_of_certificates_may_be_set_explicitly() -> None:
    """It is what Java does in any case."""
    assert spark_options({**SERVERS, "enable.ssl.certificate.verification": True}) == spark_options(SERVERS)


def test_overrides_have_precedence() -> None:
    """Over the connection and the defaults; the names of the source's options are not case-sensitive."""
    options = spark_options(
        {**SERVERS, "client.id": "connection"},
        isolation="read_uncommitted",
        overrides={
            "kafka.client.id": "override",
            "kafka.max.poll.records": 5,
            "kafkaconsumer.polltimeoutms": 9,
            "groupIdPrefix": "team",
        },
    )

    assert options["kafka.client.id"] == "override"
    assert options["kafka.max.poll.records"] == "5"
    assert options["kafkaConsumer.pollTimeoutMs"] == "9"
    assert options["groupIdPrefix"] == "team"
    assert options["kafka.isolation.level"] == "read_uncommitted"


@pytest.mark.parametrize(
    "name",
    ["startingOffsets", "assign", "failOnDataLoss", "failondataloss", "minPartitions", "includeHeaders", "linger"],
)
def test_overrides_cannot_change_what_is_read(name: str) -> None:
    """The plan determines that; above all, nothing may be skipped silently."""
    with pytest.raises(ConfigurationError, match=f"{name} is refused"):
        spark_options(SERVERS, overrides={name: "x"})


def test_secret_options_are_listed() -> None:
    """Every option that contains a secret of the connection."""
    config = {
        **SASL,
        "sasl.mechanism": "PLAIN",
        "sasl.password": "secret-1",
        "ssl.certificate.pem": CERTIFICATE,
        "ssl.key.pem": KEY + "secret-2",
    }
    store = {
        **SERVERS,
        "ssl.keystore.location": "/x",
        "ssl.keystore.password": "secret-3",
        "ssl.key.password": "secret-4",
    }

    for options in (spark_options(config), spark_options(store)):
        carriers = {name for name, value in options.items() if "secret-" in value}
        assert carriers
        assert carriers <= SECRET_OPTIONS


def test_a_client_that_reads_gets_the_settings_for_reading() -> None:
    """Callbacks included; librdkafka checks them, and the caller's mapping is not changed."""
    config = {**SASL, "sasl.mechanism": "PLAIN", "group.id": "g", "linger.ms": 5, "oauth_cb": print, "bogus": 1}
    before = dict(config)

    assert client_config(config) == {**SASL, "sasl.mechanism": "PLAIN", "oauth_cb": print, "bogus": 1}
    assert config == before
