"""One Spark session, one S3 server and one schema registry for all tests of the job; they end behind the last one."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_kafka_s3.registry.settings import RegistrySettings
from airflow_provider_kafka_s3.spark.conf import start_conf
from airflow_provider_kafka_s3.submit.driver_jvm import jvm_variables
from dev.airflow_home import AVRO_JARS, SPARK_JARS
from dev.kafka_broker import KafkaBroker
from dev.s3_server import S3Server
from dev.schema_registry import SchemaRegistry
from dev.spark_connect import SparkConnectServer
from tests.spark.pipeline import CREDENTIALS, MASTER, MakePipeline, Pipeline, spark_conf

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


REGISTRY_USER, REGISTRY_PASSWORD = "reader", "canary p$s"


@contextlib.contextmanager
def environment_of_jvm(options: Mapping[str, str] | None = None) -> Iterator[None]:
    """For a JVM that is started here: its options, and the store's credentials.

    Python workers that read objects without a job find these by boto3's chain.
    """
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (options or {}).items():
            patch.setenv(name, value)
        patch.setenv("AWS_ACCESS_KEY_ID", CREDENTIALS.access_key_id)
        patch.setenv("AWS_SECRET_ACCESS_KEY", CREDENTIALS.secret_access_key)
        yield


@pytest.fixture(scope="package")
def spark() -> Iterator[SparkSession]:
    """A session with two cores that tries a task four times."""
    import pyspark
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    # Connections to the JVM are closed when the process ends. By then pytest has closed the stream of Airflow's log.
    logging.getLogger("py4j").setLevel(logging.WARNING)
    # The JVM starts the Python workers, and takes their interpreter from the environment.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder
    conf = {**start_conf(MASTER, offsets=0, installed=True), **spark_conf(spark_log_level="ERROR")}
    # Spark's reader of Avro is fetched for the oldest version only.
    avro = AVRO_JARS.glob(f"spark-avro_*-{pyspark.__version__}.jar")
    conf["spark.jars"] = ",".join([conf["spark.jars"], *map(str, avro)])
    for name, value in conf.items():
        builder = builder.config(name, value)
    with environment_of_jvm(jvm_variables({}, offsets=0, archive=None, serial=True)):
        session = builder.getOrCreate()
    yield session
    session.stop()
    # Else the JVM lives as long as this process, with a gigabyte of memory.
    gateway: Any = SparkContext._gateway
    SparkContext._gateway = SparkContext._jvm = None
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()


@pytest.fixture(scope="package")
def connect_server() -> Iterator[SparkConnectServer]:
    """A Spark Connect server with two cores and a web interface."""
    server = SparkConnectServer(sorted(SPARK_JARS.glob("*.jar")), ui=True)
    with environment_of_jvm():
        server.start()
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="package")
def s3_server() -> Iterator[S3Server]:
    """An S3 server in a process of its own."""
    with S3Server() as server:
        yield server


@pytest.fixture(scope="package")
def registry() -> Iterator[SchemaRegistry]:
    """One that demands a password."""
    with SchemaRegistry(users={REGISTRY_USER: REGISTRY_PASSWORD}) as started:
        yield started


@pytest.fixture(scope="package")
def login(registry: SchemaRegistry) -> RegistrySettings:
    """The address of the registry, with the password."""
    return RegistrySettings(urls=(registry.url,), user=REGISTRY_USER, password=REGISTRY_PASSWORD)


@pytest.fixture
def make_pipeline(s3_server: S3Server, kafka_broker: KafkaBroker) -> Iterator[MakePipeline]:
    """Make a pipeline in an empty bucket: ``make_pipeline(layout=…, …)``."""
    with contextlib.ExitStack() as stack:

        def make(**settings: Any) -> Pipeline:
            pipeline = Pipeline(
                **{
                    "kafka": {"bootstrap.servers": kafka_broker.bootstrap_servers},
                    "endpoint": s3_server.endpoint,
                    **settings,
                }
            )
            stack.callback(pipeline.close)
            return pipeline

        yield make
