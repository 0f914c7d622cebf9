"""What every test may ask for: the real parts, started once and only when a test wants them."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import pytest
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

from dev.certificates import Authority, server_context
from dev.kafka_broker import KafkaBroker
from dev.token_server import TokenServer

# The same examples in every run, however slow the machine is: a suite that fails has to fail again.
settings.register_profile("suite", deadline=None, derandomize=True)
settings.load_profile("suite")


class _ByWhatTheyStart(LoadScopeScheduling):
    """A file's tests run in one process, which starts their servers once; so do all that need Airflow's servers."""

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.partition("::")[0]
        return "tests/airflow/*_3.py" if path.startswith("tests/airflow/") and path.endswith("_3.py") else path


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> _ByWhatTheyStart | None:
    """Tell pytest-xdist which tests belong together, unless `--dist=worksteal` says that none do."""
    return None if config.getvalue("dist") == "worksteal" else _ByWhatTheyStart(config, log)


USER: Final = "reader"
# Everything that a JAAS string, a properties file or a shell could stumble over.
PASSWORD: Final = "p\"a'ss\\ w{o}$rd;=#%s"


# What an OpenID provider gives tokens for, and to whom.
CLIENT: Final = "robot"
CLIENT_SECRET: Final = "canary/5e0d+client=secret"
# Of the key of a client's certificate.
KEY_PASSWORD: Final = "canary-9a41 'of the key'"


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """The authority whose certificates the real parts show."""
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="session")
def token_server(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TokenServer]:
    """An OpenID provider with one client, behind TLS."""
    tls = server_context(authority.server("tokens"))
    with TokenServer(tmp_path_factory.mktemp("tokens") / "keys.json", {CLIENT: CLIENT_SECRET}, tls=tls) as server:
        yield server


@pytest.fixture(scope="session")
def kafka_broker(authority: Authority, token_server: TokenServer) -> Iterator[KafkaBroker]:
    """One Kafka broker for the whole session: an open listener, and others that ask who is there."""
    with KafkaBroker(users={USER: PASSWORD}, authority=authority, token_keys=token_server.keys) as broker:
        yield broker


@pytest.fixture
def kafka_config(kafka_broker: KafkaBroker) -> dict[str, object]:
    """What the extra of an Airflow connection to the broker holds."""
    return {"bootstrap.servers": kafka_broker.bootstrap_servers}


@pytest.fixture
def sasl_config(kafka_broker: KafkaBroker) -> dict[str, object]:
    """What the extra of an Airflow connection to the broker's listener with passwords holds."""
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
    """What the extra of an Airflow connection holds for each way to be let in over TLS with a private authority.

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
