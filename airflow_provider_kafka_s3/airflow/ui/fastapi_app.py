"""The app of Airflow 3. Airflow does not authenticate apps of plugins, so each route does."""

from __future__ import annotations

from typing import Any

from airflow_provider_kafka_s3.airflow.ui.stores import configured_places
from airflow_provider_kafka_s3.airflow.ui.task_paths import task_path_3
from airflow_provider_kafka_s3.ui.pages import HEADERS, ROUTES, Pages

__all__ = ["make_app"]


def make_app(pages: Pages | None = None) -> Any:
    """The app; all of its routes need the permission to see plugins.

    Args:
        pages: what it shows; None: the places of Airflow's configuration.
    """
    from airflow.api_fastapi.auth.managers.models.resource_details import AccessView
    from airflow.api_fastapi.core_api.security import requires_access_view
    from fastapi import Depends, FastAPI, Request
    from fastapi.responses import Response

    shown = pages or Pages(configured_places, task_path=task_path_3)
    # The documentation routes of FastAPI would not be authenticated.
    app = FastAPI(
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        dependencies=[Depends(requires_access_view(AccessView.PLUGINS))],
    )

    # A function that is not async runs in a thread, so that a slow store does not stop Airflow's server.
    def respond(request: Request) -> Response:
        raw = request.scope.get("raw_path") or request.url.path.encode()
        root = request.scope.get("root_path", "")
        path = raw.decode("ascii", "replace").partition("?")[0].removeprefix(root)
        page = shown.respond(path)
        return Response(page.body, page.status, dict(HEADERS), page.content_type)

    # Its annotations are names of this function, which FastAPI does not resolve.
    respond.__annotations__ = {"request": Request, "return": Response}
    for route in ROUTES:
        app.add_api_route(f"/{route}", respond, methods=["GET"], include_in_schema=False, response_model=None)
    return app
