"""Connections that are stored in Airflow's database, by its UI or ``airflow connections add``."""

from __future__ import annotations

import json
import os
import shlex
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from cryptography.fernet import Fernet

from airflow_provider_kafka_s3.cli.stored_connections import has_connection
from tests.unit.cli.conftest import World

CANARY = "canary-77c1-secret"
PROCESS_CONTEXT = "_AIRFLOW_PROCESS_CONTEXT"


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A database with the table of connections, as Airflow's sessions and settings have it."""
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
    """The key that encrypts stored connections."""
    from airflow.models import crypto

    key = Fernet.generate_key().decode()
    monkeypatch.setenv("AIRFLOW__CORE__FERNET_KEY", key)
    forget = getattr(crypto.get_fernet, "cache_clear", lambda: monkeypatch.setattr(crypto, "_fernet", None))
    forget()
    yield key
    forget()


def store(**columns: Any) -> None:
    """Store a connection as ``airflow connections add`` does."""
    from airflow.models.connection import Connection
    from airflow.utils.session import create_session

    with create_session() as session:
        session.add(Connection(**columns))


@pytest.mark.parametrize("context", [None, "client"])
def test_stored_connections_are_used(
    world: World,
    opened: dict[str, Any],
    database: Path,
    fernet_key: str,
    monkeypatch: pytest.MonkeyPatch,
    context: str | None,
) -> None:
    """With their secrets, also in a task's process; Airflow's own variables are the same afterwards."""
    if context is not None:
        monkeypatch.setenv(PROCESS_CONTEXT, context)
    kafka = {"bootstrap.servers": "b:9092", "security.protocol": "SASL_SSL", "sasl.password": CANARY}
    store(conn_id="k", conn_type="kafka", extra=json.dumps(kafka))
    store(conn_id="a", conn_type="aws", login="AKIA", password=CANARY, extra='{"region_name": "eu-central-1"}')
    output = world.on_topic("status", "--kafka-conn-id", "k", "--aws-conn-id", "a", "--json", "--verbose")
    assert (output.code, opened["config"], opened["settings"].region) == (0, kafka, "eu-central-1")
    assert opened["credentials"].secret_access_key == CANARY
    assert CANARY not in output.out + output.err
    assert os.environ.get(PROCESS_CONTEXT) == context


def test_the_environment_wins(
    world: World, opened: dict[str, Any], database: Path, fernet_key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in Airflow's tasks."""
    store(conn_id="k", conn_type="kafka", extra='{"bootstrap.servers": "stored:9092"}')
    monkeypatch.setenv("AIRFLOW_CONN_K", '{"conn_type": "kafka", "extra": {"bootstrap.servers": "named:9092"}}')
    assert world.on_topic("status", "--kafka-conn-id", "k").code == 0
    assert opened["config"] == {"bootstrap.servers": "named:9092"}


def test_the_error_of_a_missing_connection_names_the_places_that_were_searched(
    world: World, opened: dict[str, Any], database: Path
) -> None:
    """Environment variables, the secrets backend, and the database by its URL."""
    output = world.on_topic("status", "--kafka-conn-id", "nobody")
    assert output.code == 2
    assert "there is no connection 'nobody' in the environment, a secrets backend or Airflow's database" in output.error
    assert f"sqlite:///{database}" in output.err
    (command,) = [line for line in output.err.splitlines() if line.startswith("    ")]
    assert shlex.split(command) == [
        *("airflow", "connections", "add", "nobody", "--conn-type", "kafka", "--conn-extra"),
        '{"bootstrap.servers": "broker:9092"}',
    ]


def test_a_database_that_is_not_initialised_is_named(world: World, opened: dict[str, Any], database: Path) -> None:
    """With the reason, and without a traceback."""
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("DROP TABLE connection")
    output = world.on_topic("status", "--kafka-conn-id", "k")
    assert output.code == 2
    assert f"Airflow's database sqlite:///{database} cannot be read" in output.error
    assert "no such table: connection" in output.err
    assert "AIRFLOW_HOME" in output.err
    assert "Traceback" not in output.err


def test_a_connection_that_another_key_encrypted_is_not_called_missing(
    world: World, opened: dict[str, Any], database: Path, fernet_key: str
) -> None:
    """The error names the setting of the key."""
    store(conn_id="k", conn_type="kafka", extra=json.dumps({"sasl.password": CANARY}))
    another = Fernet(Fernet.generate_key()).encrypt(b"{}").decode()
    with sqlite3.connect(database) as connection:
        connection.execute("UPDATE connection SET extra = ?", [another])
    connection.close()
    output = world.on_topic("status", "--kafka-conn-id", "k")
    assert output.code == 2
    assert "connection 'k' cannot be decrypted" in output.err
    assert "AIRFLOW__CORE__FERNET_KEY" in output.err
    assert "there is no connection" not in output.err


def test_the_login_of_the_database_is_not_shown(
    world: World, opened: dict[str, Any], database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither user nor password, wherever they are in its address."""
    url = f"postgresql+psycopg2://airflow:{CANARY}@db:5432/meta?sslpassword={CANARY}"
    monkeypatch.setenv("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN", url)
    output = world.on_topic("status", "--kafka-conn-id", "nobody")
    assert output.code == 2
    assert "Airflow's database postgresql+psycopg2://db:5432/meta. Set AIRFLOW_HOME" in output.error
    assert CANARY not in output.out + output.err
    assert "airflow:" not in output.err


def test_whether_airflow_has_a_connection_is_known_without_its_key(
    database: Path, fernet_key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stored, in the environment, or encrypted with another key; a database that cannot be read has none."""
    store(conn_id="k", conn_type="kafka", extra="{}")
    store(conn_id="other_key", conn_type="kafka", extra="{}")
    monkeypatch.setenv("AIRFLOW_CONN_E", '{"conn_type": "kafka"}')
    another = Fernet(Fernet.generate_key()).encrypt(b"{}").decode()
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("UPDATE connection SET extra = ? WHERE conn_id = 'other_key'", [another])
    assert [has_connection(conn_id) for conn_id in ("k", "e", "other_key", "absent")] == [True, True, True, False]
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("DROP TABLE connection")
    assert not has_connection("k")
