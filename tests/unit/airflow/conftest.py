"""The fixtures are those of the operator."""

from __future__ import annotations

from importlib.metadata import version

# It sets what Airflow reads when it is imported.
from tests.unit.operators.conftest import Bench, bench, connections, day

# A test file for one major version of Airflow has it at the end of its name, as those of tests/airflow.
collect_ignore_glob = ["test_*_3.py" if version("apache-airflow").startswith("2.") else "test_*_2.py"]

__all__ = ["Bench", "bench", "connections", "day"]
