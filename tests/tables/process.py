"""A process that adds the batches of a topic to its table, to be killed: ``python -m tests.tables.process JSON``."""

from __future__ import annotations

import json
import sys

from airflow_provider_kafka_s3.batch.location import TopicLocation
from airflow_provider_kafka_s3.documents.addresses import TopicAddress
from airflow_provider_kafka_s3.storage.s3 import S3Credentials, S3Settings
from airflow_provider_kafka_s3.tables.iceberg.catalog import file_properties, open_catalog
from airflow_provider_kafka_s3.tables.iceberg.topic_table import TopicTable


def main() -> None:
    """Add what the table lacks."""
    given = json.loads(sys.argv[1])
    settings = S3Settings(endpoint_url=given["endpoint"], region="us-east-1", addressing_style="path")
    credentials = S3Credentials(access_key_id="a", secret_access_key="b")
    address = TopicAddress(topics_dir="lake", pipeline="orders-to-lake", topic="orders")
    log = TopicLocation(given["bucket"], address, settings, credentials).open_log()
    catalog = open_catalog("process", {"uri": given["catalog"], **file_properties(settings, credentials)})
    TopicTable(catalog, given["table"], log).add()


if __name__ == "__main__":
    main()
