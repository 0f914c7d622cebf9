"""Sends landed records back to Kafka, exactly once. Nothing here imports Airflow."""
