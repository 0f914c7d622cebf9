"""The process from which Spark forks the Python workers of a local master, with all modules of tasks imported.

Spark's own imports none of them: each worker then spends half a CPU second on its first task before it reads a record.
Workers that get this package as a file of the job have Spark's own process: it starts without the files of jobs.
"""

from __future__ import annotations

import gc
import runpy

import boto3  # noqa: F401, TID253 - a worker needs it for its first request
import pyarrow.compute  # noqa: F401
import pyspark.worker  # noqa: F401, TID253 - the module that this process runs

import airflow_provider_kafka_s3.spark.task  # noqa: F401
from airflow_provider_kafka_s3.spark.worker_process import forget_zip_importers

__all__: list[str] = []

if __name__ == "__main__":
    forget_zip_importers()
    gc.freeze()  # a worker's collections leave out what it has from here
    runpy.run_module("pyspark.daemon", run_name="__main__")
