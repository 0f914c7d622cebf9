"""The script that spark-submit runs: ``kafka_to_s3.py --job-file PATH``."""

import sys

from airflow_provider_kafka_s3.spark.job import main

if __name__ == "__main__":
    sys.exit(main())
