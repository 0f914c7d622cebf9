"""The plugin with the page, as every process of Airflow imports it."""

from __future__ import annotations

import subprocess
import sys


def test_the_plugin_is_light() -> None:
    """Every process of Airflow imports it: neither Arrow nor boto3 nor a web framework comes with it."""
    code = (
        "import sys, airflow.plugins_manager; before = {*sys.modules};"
        "import airflow_provider_kafka_s3.airflow.ui.plugin as plugin; plugin.KafkaS3Plugin();"
        "print(*sorted({*sys.modules} - before))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    packages = {name.partition(".")[0] for name in done.stdout.splitlines()[-1].split()}
    assert not packages & {"pyarrow", "boto3", "botocore", "fastapi", "flask", "jinja2", "confluent_kafka", "msgspec"}
