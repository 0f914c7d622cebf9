"""``python -m airflow_provider_kafka_s3.cli``: the same as the script ``kafka-s3``."""

from __future__ import annotations

import sys

from airflow_provider_kafka_s3.cli.main import main

__all__: list[str] = []

sys.exit(main())
