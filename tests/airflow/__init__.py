"""Whole DAGs on a real Airflow."""
