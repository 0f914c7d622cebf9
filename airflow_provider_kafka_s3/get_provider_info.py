"""Metadata of this package for Airflow's provider manager. Every Airflow process loads it, so it imports nothing."""

from __future__ import annotations

from typing import Any

__all__ = ["get_provider_info"]


def get_provider_info() -> dict[str, Any]:
    """Metadata by Airflow's ``provider_info.schema.json``; Airflow adds the version of the installed distribution."""
    integration = "Kafka to S3"
    return {
        "package-name": "airflow-provider-kafka-s3",
        "name": "Kafka to S3",
        "description": "Land Kafka topics in S3 with Spark: micro-batches, deterministic objects, exactly once.",
        "integrations": [
            {
                "integration-name": integration,
                "external-doc-url": "https://kafka.apache.org/documentation/",
                "tags": ["apache", "aws"],
            }
        ],
        "operators": [
            {
                "integration-name": integration,
                "python-modules": ["airflow_provider_kafka_s3.operators.kafka_to_s3"],
            }
        ],
        "sensors": [
            {
                "integration-name": integration,
                "python-modules": [
                    "airflow_provider_kafka_s3.sensors.kafka_lag",
                    "airflow_provider_kafka_s3.sensors.window_closed",
                ],
            }
        ],
        "triggers": [
            {
                "integration-name": integration,
                "python-modules": ["airflow_provider_kafka_s3.triggers.polling"],
            }
        ],
        # Airflow 2.11 shows no link of a class that is not named here.
        "extra-links": [
            "airflow_provider_kafka_s3.airflow.links.ManifestLink",
            "airflow_provider_kafka_s3.airflow.links.MarkerLink",
            "airflow_provider_kafka_s3.airflow.links.SparkHistoryLink",
        ],
    }
