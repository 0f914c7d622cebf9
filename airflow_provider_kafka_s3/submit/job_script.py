"""Find the script that spark-submit runs, wherever this package was installed from."""

from __future__ import annotations

from pathlib import Path

from airflow_provider_kafka_s3.exceptions import ConfigurationError

__all__ = ["job_script"]

_NAME = "kafka_to_s3.py"
_PACKAGE = Path(__file__).resolve().parents[1]


def job_script(package: Path = _PACKAGE) -> Path:
    """Where ``kafka_to_s3.py`` is: inside an installed package, or beside it in a checkout.

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
        f"{_NAME}, the script that spark-submit runs, is in none of its places: {', '.join(map(str, places))}. Install "
        f"airflow-provider-kafka-s3 from its wheel, or from a whole checkout"
    )
