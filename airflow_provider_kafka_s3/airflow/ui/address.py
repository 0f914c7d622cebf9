"""Where a browser finds the page of a topic, for the logs of tasks."""

from __future__ import annotations

from urllib.parse import quote

from airflow import __version__  # noqa: TID253 - a task that fails has imported it
from airflow.providers.common.compat.sdk import conf  # noqa: TID253 - as above

from airflow_provider_kafka_s3.airflow.ui.plugin import PREFIX
from airflow_provider_kafka_s3.airflow.ui.stores import configured_stores

__all__ = ["page_address"]


def page_address(bucket: str, topics_dir: str, pipeline: str, topic: str | None) -> str:
    """URL of the page of a topic; empty if the configuration names neither its place nor Airflow's own address.

    Args:
        bucket: of the pipeline.
        topics_dir: of the pipeline.
        pipeline: its name.
        topic: its name; None: the list of all topics.

    Raises:
        ConfigurationError: the setting is no JSON list of stores.
    """
    places = [(store.bucket, store.topics_dir) for store in configured_stores()]
    # The section `webserver` can go with Airflow 2.11.
    base = conf.get("webserver" if __version__.startswith("2.") else "api", "base_url", fallback="") or ""
    if not base or (bucket, topics_dir) not in places:
        return ""
    names = () if topic is None else ("topic", places.index((bucket, topics_dir)), pipeline, topic)
    return f"{base.rstrip('/')}{PREFIX}/" + "/".join(quote(str(name), safe="") for name in names)
