"""The description of this package for Airflow's provider manager."""

from __future__ import annotations

import json
from importlib.metadata import entry_points, version
from pathlib import Path

import jsonschema

from airflow_provider_kafka_s3.get_provider_info import get_provider_info
from airflow_provider_kafka_s3.operators.kafka_s3_expire import KafkaS3ExpireOperator
from airflow_provider_kafka_s3.operators.kafka_s3_to_iceberg import KafkaS3ToIcebergOperator
from airflow_provider_kafka_s3.operators.kafka_to_s3 import KafkaToS3Operator
from airflow_provider_kafka_s3.operators.s3_to_kafka import S3ToKafkaOperator
from airflow_provider_kafka_s3.sensors.kafka_lag import KafkaLagSensor
from airflow_provider_kafka_s3.sensors.window_closed import KafkaWindowClosedSensor
from airflow_provider_kafka_s3.triggers.polling import KafkaLagTrigger, KafkaWindowClosedTrigger

CLASSES: dict[str, set[type]] = {
    "operators": {KafkaS3ExpireOperator, KafkaS3ToIcebergOperator, KafkaToS3Operator, S3ToKafkaOperator},
    "sensors": {KafkaLagSensor, KafkaWindowClosedSensor},
    "triggers": {KafkaLagTrigger, KafkaWindowClosedTrigger},
}


def test_it_is_valid_by_the_schema_of_this_airflow() -> None:
    """The provider manager refuses the whole package otherwise."""
    import airflow

    schema = json.loads(Path(airflow.__file__).with_name("provider_info.schema.json").read_text())
    jsonschema.validate(get_provider_info(), schema)


def test_every_class_that_a_dag_author_imports_is_in_a_module_that_it_names() -> None:
    """Operators, sensors, triggers, and the links that Airflow 2.11 shows only if they are named."""
    info = get_provider_info()
    named = {kind: {m for entry in info[kind] for m in entry["python-modules"]} for kind in CLASSES}
    assert named == {kind: {c.__module__ for c in classes} for kind, classes in CLASSES.items()}
    links = {f"{type(link).__module__}.{type(link).__name__}" for link in KafkaToS3Operator.operator_extra_links}
    assert set(info["extra-links"]) == links


def test_airflow_finds_it() -> None:
    """By its entry point, with the version of the installed distribution."""
    from airflow.providers_manager import ProvidersManager

    (point,) = [p for p in entry_points(group="apache_airflow_provider") if p.value.startswith("airflow_provider_k")]
    assert point.load() is get_provider_info
    found = ProvidersManager().providers["airflow-provider-kafka-s3"]
    assert found.version == version("airflow-provider-kafka-s3")
    assert found.data["sensors"] == get_provider_info()["sensors"]
