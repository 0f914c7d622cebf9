"""Who may see the page in Airflow 2.11: every route."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from airflow_provider_kafka_s3.ui.pages import HEADERS, ROUTES
from tests.unit.ui.conftest import Lake

# The web interface of Airflow 2 imports deprecated names of Flask.
pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::airflow.exceptions.RemovedInAirflow3Warning"
)

PATHS = [route.format(place=0, pipeline="shop", topic="orders", batch=1, dag="d") for route in ROUTES]


@pytest.fixture
def lake() -> Lake:
    """With a landed topic."""
    made = Lake()
    made.land("orders", 1, run="r1")
    return made


@pytest.fixture
def client(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A web server of Flask-AppBuilder with the view; who may see plugins is what a test says."""
    from airflow.www import auth
    from flask import Flask

    from airflow_provider_kafka_s3.airflow.ui import flask_view

    monkeypatch.setattr(flask_view, "configured_places", lambda: [lake.place])
    app = Flask("flask", root_path="/nowhere")
    view = flask_view.KafkaS3View()
    # As Flask-AppBuilder does it.
    for number, (url, methods) in enumerate(type(view).respond._urls):
        app.add_url_rule(view.route_base + url, f"respond-{number}", view.respond, methods=methods)
    with app.test_client() as opened:
        opened.auth = auth
        yield opened


@pytest.mark.parametrize("path", PATHS)
def test_each_route_is_for_those_who_may_see_plugins(client: Any, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who may not is refused before anything is read."""
    from airflow.auth.managers.models.resource_details import AccessView

    asked = []

    class Manager:
        allowed = False

        def is_authorized_view(self, *, access_view: AccessView) -> bool:
            asked.append(access_view)
            return self.allowed

        def is_logged_in(self) -> bool:
            return False

        def get_url_login(self, **_: Any) -> str:
            return "/login"

    manager = Manager()
    monkeypatch.setattr(client.auth, "get_auth_manager", lambda: manager)
    refused = client.get(f"/kafka-s3/{path}")
    assert refused.status_code in (302, 403)
    manager.allowed = True
    response = client.get(f"/kafka-s3/{path}")
    assert response.status_code == 200, response.text
    assert {name: response.headers[name] for name in HEADERS} == HEADERS
    assert {*asked} == {AccessView.PLUGINS}
