"""The plugin: an app and its places in the menus, for Airflow 3 and 2.11.

Every process of Airflow imports this module. So apps and views are made when a web server asks for them.
"""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import urlsplit

from airflow.plugins_manager import AirflowPlugin  # noqa: TID253 - loads plugins, so it is loaded
from airflow.providers.common.compat.sdk import conf  # noqa: TID253 - light, and loaded

__all__ = ["NAME", "PREFIX", "KafkaS3Plugin"]

NAME: Final = "Kafka to S3"
PREFIX: Final = "/kafka-s3"
"""Path of the app below Airflow's own."""


class _LazyApp:
    """The app of Airflow 3, made by its first request."""

    def __init__(self) -> None:
        self._app: Any = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if self._app is None:
            from airflow_provider_kafka_s3.airflow.ui.fastapi_app import make_app

            self._app = make_app()
        await self._app(scope, receive, send)


class _FlaskViews:
    """The view of Airflow 2.11, made when its web server reads it."""

    def __get__(self, instance: object, owner: object) -> list[dict[str, Any]]:
        from airflow import __version__

        if not __version__.startswith("2."):
            return []
        from airflow_provider_kafka_s3.airflow.ui.flask_view import KafkaS3View

        return [{"name": NAME, "category": "Browse", "view": KafkaS3View()}]


def _external_views() -> list[dict[str, Any]]:
    root = urlsplit(conf.get("api", "base_url", fallback="") or "").path.rstrip("/")
    return [
        {
            "name": NAME,
            "href": f"{root}{PREFIX}/",
            "destination": "nav",
            "category": "browse",
            "url_route": "kafka-s3",
        },
        {
            "name": NAME,
            "href": f"{root}{PREFIX}/dag/{{DAG_ID}}",
            "destination": "dag",
            "url_route": "kafka-s3-dag",
        },
    ]


class KafkaS3Plugin(AirflowPlugin):
    """The page of all pipelines, and a tab of each DAG with its own."""

    name = "kafka_s3"
    fastapi_apps: Any = [{"app": _LazyApp(), "url_prefix": PREFIX, "name": NAME}]  # noqa: RUF012 - as Airflow has it
    external_views: Any = _external_views()
    appbuilder_views: Any = _FlaskViews()
