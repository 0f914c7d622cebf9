"""The view of Airflow 2.11, over the same pages."""

from __future__ import annotations

from typing import Any

from airflow.auth.managers.models.resource_details import AccessView  # noqa: TID253 - only a web server imports this
from airflow.www.auth import has_access_view  # noqa: TID253 - as above
from flask import Response, request
from flask_appbuilder import BaseView, expose

from airflow_provider_kafka_s3.airflow.ui.stores import configured_places
from airflow_provider_kafka_s3.airflow.ui.task_paths import task_path_2
from airflow_provider_kafka_s3.ui.pages import HEADERS, ROUTES, Pages

__all__ = ["KafkaS3View"]


class KafkaS3View(BaseView):  # type: ignore[misc]  # Any without its stubs
    """All pages; each route needs the permission to see plugins."""

    route_base = "/kafka-s3"
    default_view = "respond"

    def __init__(self) -> None:
        super().__init__()
        self._pages = Pages(configured_places, task_path=task_path_2)

    def _respond(self, **names: str) -> Any:
        del names
        raw = request.environ.get("RAW_URI") or request.full_path
        page = self._pages.respond(raw.partition("?")[0].removeprefix(request.script_root + self.route_base))
        return Response(page.body, page.status, dict(HEADERS), content_type=page.content_type)

    respond: Any = has_access_view(AccessView.PLUGINS)(_respond)
    for _route in ROUTES:
        respond = expose("/" + _route.replace("{", "<").replace("}", ">"))(respond)
