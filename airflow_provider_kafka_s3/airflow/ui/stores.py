"""The places that Airflow's page shows, from its configuration."""

from __future__ import annotations

import json
from typing import Any, Final

from airflow_provider_kafka_s3.config.values import Value, make_value
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.ui.places import Connected, Place

__all__ = ["ShownStore", "configured_places"]

_KAFKA_SECONDS: Final = 5.0
"""Time for which the page waits for a response of Kafka."""


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
    return [_place(make_value("stores", (ShownStore,), store)) for store in stores]


def _place(store: ShownStore) -> Place:
    def connect() -> Connected:
        from airflow_provider_kafka_s3.airflow import connections
        from airflow_provider_kafka_s3.retry import Retrier, RetryPolicy
        from airflow_provider_kafka_s3.storage.bucket import open_bucket

        access = connections.s3_access(store.aws_conn_id)
        source: Any = None
        if store.kafka_conn_id is not None:
            from airflow_provider_kafka_s3.kafka.source import KafkaSource

            source = KafkaSource(
                connections.kafka_config(store.kafka_conn_id),
                timeout=_KAFKA_SECONDS,
                retrier=Retrier(RetryPolicy(max_retries=0)),
                connection=f"the Kafka connection {store.kafka_conn_id!r}",
            )
        options = connections.connection_options(store.kafka_conn_id or "kafka_default", store.aws_conn_id)
        return Connected(open_bucket(store.bucket, access.settings, access.credentials), source, options)

    return Place(f"s3://{store.bucket}/{store.topics_dir}", store.topics_dir, connect)
