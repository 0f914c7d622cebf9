"""The options for Spark, passed to the Java client of Spark's connector, have the intended effect."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_kafka_s3.kafka.options import spark_options
from dev.airflow_home import SPARK_JARS
from dev.certificates import Authority
from dev.kafka_broker import KAFKA_JARS


@pytest.fixture(scope="module")
def java() -> Iterator[Any]:
    """A JVM with nothing but the Kafka client that Spark's connector uses."""
    import pyspark
    from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

    (client,) = SPARK_JARS.glob("kafka-clients-*.jar")
    # Spark brings these itself.
    of_spark = [jar for name in ("slf4j-api", "jackson-*") for jar in KAFKA_JARS.glob(f"{name}-*.jar")]
    (py4j_jar,) = (Path(pyspark.__file__).parent / "jars").glob("py4j-*.jar")
    port, token = launch_gateway(
        jarpath=str(py4j_jar), classpath=":".join(map(str, [client, *of_spark])), die_on_exit=True, enable_auth=True
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token, auto_convert=True))
    yield gateway.jvm
    gateway.shutdown()


def client_settings(options: dict[str, str]) -> dict[str, str]:
    """The options that Spark passes to the Kafka client: the options that begin with ``kafka.``."""
    return {k.removeprefix("kafka."): v for k, v in options.items() if k.startswith("kafka.")}


def test_every_translated_setting_is_one_of_the_java_consumer(java: Any) -> None:
    """No name is misspelt: the Java client ignores unknown names."""
    from airflow_provider_kafka_s3.kafka.options import SPARK_DEFAULTS
    from airflow_provider_kafka_s3.kafka.translations import TRANSLATIONS

    names = set(java.org.apache.kafka.clients.consumer.ConsumerConfig.configNames())

    assert {t.java for t in TRANSLATIONS.values()} <= names
    assert client_settings(dict(SPARK_DEFAULTS)).keys() <= names
    assert {"isolation.level", "allow.auto.create.topics", "sasl.jaas.config"} <= names


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_the_java_client_logs_in_with_a_difficult_password(
    java: Any, sasl_config: dict[str, object], make_topic: Callable[..., str], mechanism: str
) -> None:
    """Quotes, backslashes and all reach the broker as they were typed."""
    topic = make_topic(3)

    assert partitions_of(java, spark_options({**sasl_config, "sasl.mechanism": mechanism}), topic) == 3


def partitions_of(java: Any, options: dict[str, str], topic: str) -> int:
    """Number of partitions that the Java client finds."""
    deserializer = "org.apache.kafka.common.serialization.ByteArrayDeserializer"
    consumer = java.org.apache.kafka.clients.consumer.KafkaConsumer(
        {**client_settings(options), "key.deserializer": deserializer, "value.deserializer": deserializer}
    )
    try:
        return len(consumer.partitionsFor(topic))
    finally:
        consumer.close()


@pytest.mark.parametrize("way", ["scram", "plain", "certificate", "token"])
def test_the_java_client_logs_in_by_every_kind_of_login(
    java: Any, secured: Mapping[str, Mapping[str, object]], make_topic: Callable[..., str], way: str
) -> None:
    """Passwords, an encrypted client key and an OpenID provider behind TLS, from the settings of librdkafka."""
    assert partitions_of(java, spark_options(secured[way]), make_topic(3)) == 3


def test_iam_needs_a_jar_whose_absence_is_explained(java: Any) -> None:
    """The error of the Java client becomes one with the jar to add."""
    from py4j.protocol import Py4JJavaError

    from airflow_provider_kafka_s3.spark.failures import explain

    servers = "b-1.demo.abcde1.c2.kafka.eu-north-1.amazonaws.com:9098"
    config = {"bootstrap.servers": servers, "security.protocol": "SASL_SSL", "sasl.mechanism": "AWS_MSK_IAM"}

    with pytest.raises(Py4JJavaError) as caught:
        partitions_of(java, spark_options(config), "t")
    assert "packages='software.amazon.msk:aws-msk-iam-auth:" in str(explain(caught.value))


@pytest.mark.parametrize("encrypted", [False, True])
def test_the_java_client_reads_the_certificates(java: Any, tmp_path: Path, encrypted: bool) -> None:
    """A CA, a certificate and its key from files, the key with and without a password."""
    password = "key \"pass'word" if encrypted else None
    authority = Authority(tmp_path)
    client = authority.client(password=password)
    client.certificate.write_text(f"some words before it\n{client.certificate_pem}")
    config: dict[str, object] = {
        "bootstrap.servers": "localhost:1",
        "security.protocol": "ssl",
        "ssl.ca.location": str(authority.certificate),
        "ssl.certificate.location": str(client.certificate),
        "ssl.key.location": str(client.key),
        **({"ssl.key.password": password} if password else {}),
    }
    settings = client_settings(spark_options(config))

    parsed = java.org.apache.kafka.clients.admin.AdminClientConfig(
        {k: v for k, v in settings.items() if k.startswith(("ssl.", "bootstrap.", "security."))}
    )
    engines = java.org.apache.kafka.common.security.ssl.DefaultSslEngineFactory()
    engines.configure(parsed.values())

    assert engines.truststore().size() == 1
    assert engines.keystore().size() == 1
