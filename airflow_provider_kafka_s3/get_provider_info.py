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
                "python-modules": [
                    "airflow_provider_kafka_s3.operators.kafka_s3_expire",
                    "airflow_provider_kafka_s3.operators.kafka_s3_to_iceberg",
                    "airflow_provider_kafka_s3.operators.kafka_to_s3",
                    "airflow_provider_kafka_s3.operators.s3_to_kafka",
                ],
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
        "config": {
            "kafka_s3": {
                "description": "Settings of KafkaToS3Operator on a worker, and of the page in the web interface.",
                "options": {
                    "stores": {
                        "description": (
                            "What the page shows: a JSON list of objects with bucket, topics_dir, aws_conn_id and "
                            "kafka_conn_id. All pipelines that are found there are shown."
                        ),
                        "version_added": "0.1.0",
                        "type": "string",
                        "example": '[{"bucket": "lake", "kafka_conn_id": "kafka_default"}]',
                        "default": "",
                    },
                    "class_archives": {
                        "description": (
                            "Folder on each worker for archives of Spark's classes (class-data sharing of Java). The "
                            "first job of a worker makes one at its end, of about 160 MB, which takes half a minute; "
                            "later jobs begin seconds sooner. No other user may be able to write there. "
                            "Empty: no archives."
                        ),
                        "version_added": "0.1.0",
                        "type": "string",
                        "example": "/var/cache/airflow/kafka_s3",
                        "default": "",
                    },
                    "warm_driver_seconds": {
                        "description": (
                            "Seconds for which a process with the modules of a driver waits for the next job of this "
                            "worker on a Spark Connect server. Such a job takes a second or two less. The process "
                            "takes about 170 MB, and ends with the worker. 0: every job starts a driver of its own."
                        ),
                        "version_added": "0.1.0",
                        "type": "integer",
                        "example": "3600",
                        "default": "0",
                    },
                },
            }
        },
        # Airflow 2.11 shows no link of a class that is not named here.
        "extra-links": [
            "airflow_provider_kafka_s3.airflow.links.ManifestLink",
            "airflow_provider_kafka_s3.airflow.links.MarkerLink",
            "airflow_provider_kafka_s3.airflow.links.SparkHistoryLink",
        ],
    }
