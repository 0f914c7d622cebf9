"""The fixtures are those of the operator."""

from __future__ import annotations

# It sets what Airflow reads when it is imported.
from tests.unit.operators.conftest import Bench, bench, connections, day

__all__ = ["Bench", "bench", "connections", "day"]
