"""The Spark settings of a task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

__all__ = ["JAR_SETTINGS", "SparkSettings"]

JAR_SETTINGS: Final[Mapping[str, str]] = {
    "jars": "spark.jars",
    "packages": "spark.jars.packages",
    "driver_class_path": "spark.driver.extraClassPath",
}
"""The parameters by which jars are added to a job, and their settings in Spark's configuration."""


@dataclass(frozen=True, kw_only=True)
class SparkSettings:
    """Spark settings of a task, with templates rendered. The repr does not show the environment.

    Attributes:
        conn_id: of the Spark connection.
        conf: Spark configuration.
        env: environment variables of the driver, in addition to those of the worker.
        spark_binary: command to submit with; None: the connection's, or the installed one.
        deploy_mode: None: the connection's, or Spark's default.
        packages: Maven coordinates, separated by commas.
        jars: paths or URLs, separated by commas.
        py_files: paths or URLs, separated by commas.
        driver_class_path: as ``spark-submit`` takes it.
        properties_file: path of a file with further Spark configuration.
        more: further keyword arguments of Airflow's ``SparkSubmitHook``.
    """

    conn_id: str
    conf: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    spark_binary: str | None = None
    deploy_mode: str | None = None
    packages: str | None = None
    jars: str | None = None
    py_files: str | None = None
    driver_class_path: str | None = None
    properties_file: str | None = None
    more: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def jars_by(self, parameter: str) -> list[str]:
        """The values of a parameter of :data:`JAR_SETTINGS` and of its setting, as far as they are given."""
        values = (getattr(self, parameter), self.conf.get(JAR_SETTINGS[parameter]))
        return [value for value in values if value]
