"""A short soak, so that ``make soak`` keeps working."""

from __future__ import annotations

import pytest

from dev.kafka_broker import KafkaBroker
from tests.kinds import KindName
from tests.soak.soak import soak


@pytest.mark.parametrize("kind", ["registry", "blocks"])
def test_every_offset_is_landed_once_whatever_happens(kafka_broker: KafkaBroker, kind: KindName) -> None:
    """Processes killed, requests lost, doubled and late, batches abandoned: the checkers find nothing."""
    lines: list[str] = []

    figures = soak(kafka_broker, seconds=2, seed=20260101, kind=kind, workers=2, report=lines.append)

    assert figures.bucket is not None
    assert figures.bucket.records > 0
    assert figures.kills >= 3
    assert "faults end" in lines[-1]
