"""The process from which Spark forks the Python workers of a local master, with all modules of tasks imported.

Spark's own imports none of them: each worker then spends half a CPU second on its first task before it reads a record.
Workers that get this package as a file of the job have Spark's own process: it starts without the files of jobs.
"""

from __future__ import annotations

import gc
import importlib
import runpy
from typing import Final

from airflow_provider_kafka_s3.spark.pyspark_start import import_installed_pyspark
from airflow_provider_kafka_s3.spark.worker_process import forget_zip_importers

__all__: list[str] = []

_MODULES: Final = ("boto3", "pyarrow.compute", "pyspark.worker", "airflow_provider_kafka_s3.spark.task")

if __name__ == "__main__":
    import_installed_pyspark()
    for name in _MODULES:
        importlib.import_module(name)
    forget_zip_importers()
    gc.freeze()  # a worker's collections leave out what it has from here
    runpy.run_module("pyspark.daemon", run_name="__main__")
