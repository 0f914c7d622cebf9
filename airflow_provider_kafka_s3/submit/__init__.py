"""Starts the Spark job and reads its output. Nothing here imports Airflow or pyspark."""
