"""``kafka-s3``: the command line for people, thin over :mod:`airflow_provider_kafka_s3.batch`."""
