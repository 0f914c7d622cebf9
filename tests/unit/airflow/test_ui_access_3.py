"""Who may see the page in Airflow 3: every route, for each role."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any

import httpx
import pytest

from airflow_provider_kafka_s3.ui.pages import HEADERS, ROUTES
from tests.unit.ui.conftest import Lake

# Airflow imports Starlette's client for tests.
pytestmark = pytest.mark.filterwarnings("ignore:Using .httpx. with .starlette.testclient. is deprecated")

PATHS = [route.format(place=0, pipeline="shop", topic="orders", batch=1, dag="d") for route in ROUTES]


class Client:
    """A browser of an app in this process."""

    def __init__(self, app: Any) -> None:
        self.app = app

    def get(self, path: str, headers: Mapping[str, str] | None = None, method: str = "GET") -> httpx.Response:
        """A request."""

        async def send() -> httpx.Response:
            transport = httpx.ASGITransport(app=self.app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://airflow") as client:
                return await client.request(method, path, headers=headers)

        return asyncio.run(send())


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A server with Airflow's manager of users, and the app of the plugin below a path, over a landed topic."""
    from airflow.api_fastapi import app as server
    from airflow.models.revoked_token import RevokedToken
    from fastapi import FastAPI

    from airflow_provider_kafka_s3.airflow.ui.fastapi_app import make_app

    lake = Lake()
    lake.land("orders", 1, run="r1")
    with pytest.MonkeyPatch.context() as patch:
        passwords = tmp_path_factory.mktemp("users") / "passwords.json"
        patch.setenv("AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE", str(passwords))
        patch.setenv("AIRFLOW__API_AUTH__JWT_SECRET", "secret-of-this-test-" * 4)
        # There is no database.
        patch.setattr(RevokedToken, "is_revoked", lambda *_: False)
        parent = FastAPI()
        server.init_auth_manager(parent)
        parent.mount("/kafka-s3", make_app(lake.pages))
        yield Client(parent)


def token(role: str) -> dict[str, str]:
    """The header of a user with a role."""
    from airflow.api_fastapi.app import get_auth_manager
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser

    user = SimpleAuthManagerUser(username="someone", role=role)
    return {"Authorization": f"Bearer {get_auth_manager().generate_jwt(user, expiration_time_in_seconds=60)}"}


def test_the_app_has_the_routes_of_the_pages_alone(client: Client) -> None:
    """No documentation of FastAPI, which would not be authenticated."""
    (mount,) = [route for route in client.app.routes if getattr(route, "path", "") == "/kafka-s3"]
    assert sorted(route.path for route in mount.app.routes) == sorted(f"/{route}" for route in ROUTES)
    assert all(route.methods == {"GET"} for route in mount.app.routes)


@pytest.mark.parametrize("path", PATHS)
def test_each_route_is_for_those_who_may_see_plugins(client: Client, path: str) -> None:
    """Nobody without a login; a viewer may."""
    assert client.get(f"/kafka-s3/{path}").status_code == 401
    assert client.get(f"/kafka-s3/{path}", headers={"Authorization": "Bearer forged"}).status_code in (401, 403)
    response = client.get(f"/kafka-s3/{path}", headers=token("viewer"))
    assert response.status_code == 200, response.text
    assert {name: response.headers[name] for name in HEADERS} == HEADERS


@pytest.mark.parametrize("path", PATHS)
def test_who_may_not_see_plugins_gets_nothing(client: Client, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever else the role may do."""
    from airflow.api_fastapi.app import get_auth_manager
    from airflow.api_fastapi.auth.managers.models.resource_details import AccessView

    manager = get_auth_manager()
    allowed = manager.is_authorized_view
    monkeypatch.setattr(
        manager,
        "is_authorized_view",
        lambda *, access_view, user: (
            access_view is not AccessView.PLUGINS and allowed(access_view=access_view, user=user)
        ),
    )
    assert client.get(f"/kafka-s3/{path}", headers=token("admin")).status_code == 403


def test_other_methods_are_refused(client: Client) -> None:
    """The page writes nothing."""
    assert client.get("/kafka-s3/", headers=token("admin"), method="POST").status_code == 405


def test_links_hold_below_the_path_of_the_app(client: Client) -> None:
    """Names with other characters are escaped once."""
    page = client.get("/kafka-s3/topic/0/shop/orders", headers=token("viewer")).text
    assert 'href="../../../batch/0/shop/orders/1"' in page
