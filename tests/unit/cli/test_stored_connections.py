"""Connections that are stored in Airflow's database, by its UI or ``airflow connections add``."""

from __future__ import annotations

import json
import os
import shlex
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.fernet import Fernet

from tests.unit.cli.conftest import World

CANARY = "canary-77c1-secret"
PROCESS_CONTEXT = "_AIRFLOW_PROCESS_CONTEXT"


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A database with the table of connections, which Airflow's sessions and settings lead to."""
    from airflow import settings
    from airflow.models.connection import Connection
    from sqlalchemy import create_engine
    from sqlalchemy.orm import scoped_session, sessionmaker

    monkeypatch.delenv(PROCESS_CONTEXT, raising=False)
    path = tmp_path / "airflow.db"
    monkeypatch.setenv("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN", f"sqlite:///{path}")
    engine = create_engine(f"sqlite:///{path}")
    Connection.metadata.create_all(engine, [Connection.__table__])
    monkeypatch.setattr(settings, "Session", scoped_session(sessionmaker(bind=engine)))
    yield path
    engine.dispose()


@pytest.fixture
def fernet_key(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The key that encrypts what is stored."""
    from airflow.models import crypto

    key = Fernet.generate_key().decode()
    monkeypatch.setenv("AIRFLOW__CORE__FERNET_KEY", key)
    forget = getattr(crypto.get_fernet, "cache_clear", lambda: monkeypatch.setattr(crypto, "_fernet", None))
    forget()
    yield key
    forget()


def store(**columns: Any) -> None:
    """Do what ``airflow connections add`` does."""
    from airflow.models.connection import Connection
    from airflow.utils.session import create_session

    with create_session() as session:
        session.add(Connection(**columns))


@pytest.mark.parametrize("context", [None, "client"])
def test_they_are_used(
    world: World,
    told: dict[str, Any],
    database: Path,
    fernet_key: str,
    monkeypatch: pytest.MonkeyPatch,
    context: str | None,
) -> None:
    """With their secrets, also in a task's process, and Airflow's own variables are afterwards what they were."""
    if context is not None:
        monkeypatch.setenv(PROCESS_CONTEXT, context)
    kafka = {"bootstrap.servers": "b:9092", "security.protocol": "SASL_SSL", "sasl.password": CANARY}
    store(conn_id="k", conn_type="kafka", extra=json.dumps(kafka))
    store(conn_id="a", conn_type="aws", login="AKIA", password=CANARY, extra='{"region_name": "eu-central-1"}')
    said = world.about("status", "--kafka-conn-id", "k", "--aws-conn-id", "a", "--json", "--verbose")
    assert (said.code, told["config"], told["settings"].region) == (0, kafka, "eu-central-1")
    assert told["credentials"].secret_access_key == CANARY
    assert CANARY not in said.out + said.err
    assert os.environ.get(PROCESS_CONTEXT) == context


def test_the_environment_wins(
    world: World, told: dict[str, Any], database: Path, fernet_key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it does for Airflow's tasks."""
    store(conn_id="k", conn_type="kafka", extra='{"bootstrap.servers": "stored:9092"}')
    monkeypatch.setenv("AIRFLOW_CONN_K", '{"conn_type": "kafka", "extra": {"bootstrap.servers": "named:9092"}}')
    assert world.about("status", "--kafka-conn-id", "k").code == 0
    assert told["config"] == {"bootstrap.servers": "named:9092"}


def test_one_that_is_nowhere_is_named_with_the_places_that_were_searched(
    world: World, told: dict[str, Any], database: Path
) -> None:
    """Environment variables, the secrets backend and the database, which is named."""
    said = world.about("status", "--kafka-conn-id", "nobody")
    assert said.code == 2
    assert "there is no connection 'nobody' in the environment, a secrets backend or Airflow's database" in said.error
    assert f"sqlite:///{database}" in said.err
    (command,) = [line for line in said.err.splitlines() if line.startswith("    ")]
    assert shlex.split(command) == [
        *("airflow", "connections", "add", "nobody", "--conn-type", "kafka", "--conn-extra"),
        '{"bootstrap.servers": "broker:9092"}',
    ]


def test_a_database_that_is_not_initialised_is_named(world: World, told: dict[str, Any], database: Path) -> None:
    """With the reason, and without a traceback."""
    with sqlite3.connect(database) as connection:
        connection.execute("DROP TABLE connection")
    connection.close()
    said = world.about("status", "--kafka-conn-id", "k")
    assert said.code == 2
    assert f"Airflow's database sqlite:///{database} cannot be read" in said.error
    assert "no such table: connection" in said.err
    assert "AIRFLOW_HOME" in said.err
    assert "Traceback" not in said.err


def test_one_that_another_key_encrypted_is_not_called_missing(
    world: World, told: dict[str, Any], database: Path, fernet_key: str
) -> None:
    """The message names the setting of the key."""
    store(conn_id="k", conn_type="kafka", extra=json.dumps({"sasl.password": CANARY}))
    another = Fernet(Fernet.generate_key()).encrypt(b"{}").decode()
    with sqlite3.connect(database) as connection:
        connection.execute("UPDATE connection SET extra = ?", [another])
    connection.close()
    said = world.about("status", "--kafka-conn-id", "k")
    assert said.code == 2
    assert "connection 'k' cannot be decrypted" in said.err
    assert "AIRFLOW__CORE__FERNET_KEY" in said.err
    assert "there is no connection" not in said.err


def test_the_login_of_the_database_is_not_shown(
    world: World, told: dict[str, Any], database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither user nor password, wherever they are in its address."""
    url = f"postgresql+psycopg2://airflow:{CANARY}@db:5432/meta?sslpassword={CANARY}"
    monkeypatch.setenv("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN", url)
    said = world.about("status", "--kafka-conn-id", "nobody")
    assert said.code == 2
    assert "Airflow's database postgresql+psycopg2://db:5432/meta. Set AIRFLOW_HOME" in said.error
    assert CANARY not in said.out + said.err
    assert "airflow:" not in said.err
