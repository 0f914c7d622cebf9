"""Fixtures of all tests: Kafka, its logins and its certificates, started once, when a test first uses them."""

from __future__ import annotations

import gc
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import pytest
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

from dev.certificates import Authority, server_context
from dev.kafka_broker import KafkaBroker
from dev.token_server import TokenServer

# The same examples in every run, on slow machines too, so that a failure can be reproduced.
settings.register_profile("suite", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("suite")


class _ByServers(LoadScopeScheduling):
    """Keeps tests with the same servers in one process: those of a file, and all that use Airflow's servers."""

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.partition("::")[0]
        return "tests/airflow/*_3.py" if path.startswith("tests/airflow/") and path.endswith("_3.py") else path


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> _ByServers | None:
    """Keep tests that share servers in one process, except with `--dist=worksteal`."""
    return None if config.getvalue("dist") == "worksteal" else _ByServers(config, log)


def pytest_collection_finish() -> None:
    """Spare the collector of garbage the objects of some ten thousand tests, which live as long as the process."""
    gc.collect()
    gc.freeze()


USER: Final = "reader"
# Characters that have a meaning in a JAAS string, a properties file or a shell.
PASSWORD: Final = "p\"a'ss\\ w{o}$rd;=#%s"


# The client of the OpenID provider, and its secret.
CLIENT: Final = "robot"
CLIENT_SECRET: Final = "canary/5e0d+client=secret"
# Of the private key of the client's certificate.
KEY_PASSWORD: Final = "canary-9a41 'of the key'"


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """The authority that issues the certificates of all servers and clients."""
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="session")
def token_server(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TokenServer]:
    """An OpenID provider with one client, behind TLS."""
    tls = server_context(authority.server("tokens"))
    with TokenServer(tmp_path_factory.mktemp("tokens") / "keys.json", {CLIENT: CLIENT_SECRET}, tls=tls) as server:
        yield server


@pytest.fixture(scope="session")
def kafka_broker(authority: Authority, token_server: TokenServer) -> Iterator[KafkaBroker]:
    """One Kafka broker for the whole session: an open listener, and others that authenticate clients."""
    with KafkaBroker(users={USER: PASSWORD}, authority=authority, token_keys=token_server.keys) as broker:
        yield broker


@pytest.fixture
def kafka_config(kafka_broker: KafkaBroker) -> dict[str, object]:
    """The extra of an Airflow connection to the broker."""
    return {"bootstrap.servers": kafka_broker.bootstrap_servers}


@pytest.fixture
def sasl_config(kafka_broker: KafkaBroker) -> dict[str, object]:
    """The extra of an Airflow connection to the broker's listener with passwords."""
    return {
        "bootstrap.servers": kafka_broker.sasl_bootstrap_servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": USER,
        "sasl.password": PASSWORD,
    }


@pytest.fixture(scope="session")
def secured(
    kafka_broker: KafkaBroker, authority: Authority, token_server: TokenServer
) -> Mapping[str, Mapping[str, object]]:
    """For each kind of login over TLS with a private authority, the extra of an Airflow connection.

    ``scram`` and ``plain`` have a password, ``certificate`` a client certificate with an encrypted key, ``token`` an
    OpenID provider.
    """
    password = {"sasl.username": USER, "sasl.password": PASSWORD}
    over_tls = {
        "bootstrap.servers": kafka_broker.tls_bootstrap_servers,
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(authority.certificate),
    }
    client = authority.client(CLIENT, password=KEY_PASSWORD)
    return {
        "scram": {**over_tls, **password, "sasl.mechanism": "SCRAM-SHA-512"},
        "plain": {**over_tls, **password, "sasl.mechanism": "PLAIN"},
        "certificate": {
            "bootstrap.servers": kafka_broker.mutual_bootstrap_servers,
            "security.protocol": "SSL",
            "ssl.ca.pem": authority.certificate_pem,
            "ssl.certificate.pem": client.certificate_pem,
            "ssl.key.pem": client.key_pem,
            "ssl.key.password": KEY_PASSWORD,
        },
        "token": {
            **over_tls,
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.client.id": CLIENT,
            "sasl.oauthbearer.client.secret": CLIENT_SECRET,
            "sasl.oauthbearer.scope": "kafka",
            "sasl.oauthbearer.token.endpoint.url": token_server.url,
            "https.ca.location": str(authority.certificate),
        },
    }


@pytest.fixture
def make_topic(kafka_broker: KafkaBroker) -> Callable[..., str]:
    """Make a topic of its own for a test: ``make_topic(partitions, {"cleanup.policy": ...})`` returns its name."""

    def make(partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
        return kafka_broker.create_topic(f"test-{uuid.uuid4()}", partitions, config)

    return make
