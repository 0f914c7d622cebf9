"""The places that Airflow's page shows, from its configuration."""

from __future__ import annotations

import json
from functools import partial

from airflow_provider_kafka_s3.config.values import Value, make_value
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.ui.places import Connected, Place, impatient_source

__all__ = ["ShownStore", "configured_places", "configured_stores"]


class ShownStore(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A place of the setting ``stores`` in the section ``kafka_s3``.

    Attributes:
        bucket: its name.
        topics_dir: prefix of the pipelines' keys.
        aws_conn_id: connection of type ``aws``; None: boto3's own chain of credentials.
        kafka_conn_id: connection of type ``kafka``; None: no lag is shown.
    """

    bucket: str
    topics_dir: str = "topics"
    aws_conn_id: str | None = "aws_default"
    kafka_conn_id: str | None = None


def configured_places() -> list[Place]:
    """The places of the configuration; a connection is opened when a page needs it.

    Raises:
        ConfigurationError: the setting is no JSON list of stores.
    """
    return [_place(store) for store in configured_stores()]


def configured_stores() -> list[ShownStore]:
    """The stores of the configuration.

    Raises:
        ConfigurationError: the setting is no JSON list of stores.
    """
    from airflow.providers.common.compat.sdk import conf

    text = conf.get("kafka_s3", "stores", fallback="") or "[]"
    try:
        stores = json.loads(text)
    except ValueError:
        stores = None
    if not isinstance(stores, list):
        raise ConfigurationError(
            "stores of the section kafka_s3 of Airflow's configuration is no JSON list, such as "
            '[{"bucket": "lake", "kafka_conn_id": "kafka_default"}]'
        )
    return [make_value("stores", (ShownStore,), store) for store in stores]


def _place(store: ShownStore) -> Place:
    def connect() -> Connected:
        from airflow_provider_kafka_s3.airflow import connections
        from airflow_provider_kafka_s3.storage.browser import browser_url
        from airflow_provider_kafka_s3.storage.bucket import open_bucket

        access = connections.s3_access(store.aws_conn_id)
        source = None
        if store.kafka_conn_id is not None:
            config = connections.kafka_config(store.kafka_conn_id)
            source = impatient_source(config, f"the Kafka connection {store.kafka_conn_id!r}")
        options = connections.connection_options(store.kafka_conn_id, store.aws_conn_id)
        bucket = open_bucket(store.bucket, access.settings, access.credentials)
        return Connected(bucket, source, options, partial(browser_url, access.settings, store.bucket))

    return Place(f"s3://{store.bucket}/{store.topics_dir}", store.topics_dir, connect)
