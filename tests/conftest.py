"""What every test may ask for: the real parts, started once and only when a test wants them."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import pytest
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

from dev.kafka_broker import KafkaBroker

# The same examples in every run, however slow the machine is: a suite that fails has to fail again.
settings.register_profile("suite", deadline=None, derandomize=True)
settings.load_profile("suite")


class _ByWhatTheyStart(LoadScopeScheduling):
    """A file's tests run in one process, which starts their servers once; so do all that need Airflow's servers."""

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.partition("::")[0]
        return "tests/airflow/*_3.py" if path.startswith("tests/airflow/") and path.endswith("_3.py") else path


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> _ByWhatTheyStart:
    """Tell pytest-xdist which tests belong together."""
    return _ByWhatTheyStart(config, log)


USER: Final = "reader"
# Everything that a JAAS string, a properties file or a shell could stumble over.
PASSWORD: Final = "p\"a'ss\\ w{o}$rd;=#%s"


@pytest.fixture(scope="session")
def kafka_broker() -> Iterator[KafkaBroker]:
    """One Kafka broker for the whole session, with an open listener and one that wants a password."""
    with KafkaBroker(users={USER: PASSWORD}) as broker:
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


@pytest.fixture
def make_topic(kafka_broker: KafkaBroker) -> Callable[..., str]:
    """Make a topic of its own for a test: ``make_topic(partitions, {"cleanup.policy": ...})`` returns its name."""

    def make(partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
        return kafka_broker.create_topic(f"test-{uuid.uuid4()}", partitions, config)

    return make
