"""Path of the script that spark-submit runs."""

from __future__ import annotations

from pathlib import Path

from airflow_provider_kafka_s3.exceptions import ConfigurationError

__all__ = ["job_script"]

_NAME = "kafka_to_s3.py"
_PACKAGE = Path(__file__).resolve().parents[1]


def job_script(package: Path = _PACKAGE) -> Path:
    """Path of ``kafka_to_s3.py``: inside an installed package, or next to the package in a checkout.

    Args:
        package: folder of ``airflow_provider_kafka_s3``.

    Raises:
        ConfigurationError: it is in neither place.
    """
    places = (package / "spark_jobs" / _NAME, package.parent / "spark_jobs" / _NAME)
    for place in places:
        if place.is_file():
            return place
    raise ConfigurationError(
        f"{_NAME}, the script that spark-submit runs, is missing; searched: {', '.join(map(str, places))}. Install "
        f"airflow-provider-kafka-s3 from its wheel, or from a complete checkout"
    )
