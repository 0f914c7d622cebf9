"""Land Kafka topics in S3 from Airflow, in micro-batches, exactly once."""

__all__ = ["__version__"]

__version__ = "0.1.0"
