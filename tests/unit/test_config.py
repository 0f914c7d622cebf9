"""Settings refuse values that could not work, and say which would."""

from __future__ import annotations

import pytest

from airflow_provider_kafka_s3.config import MIB, Format, Layout, Rotation
from airflow_provider_kafka_s3.exceptions import ConfigurationError


@pytest.mark.parametrize("most", [0, -1])
def test_some_object_may_be_open(most: int) -> None:
    """Nothing could be written otherwise."""
    with pytest.raises(ConfigurationError, match=f"max_open_objects={most} must be a positive number"):
        Rotation(max_open_objects=most)


def test_the_objects_open_at_once_are_bounded_unless_told_otherwise() -> None:
    """A slice whose records are out of order must fit into a worker."""
    assert Layout(format=Format(kind="json")).rotation.max_open_objects == 400


def test_parts_fit_into_memory() -> None:
    """A task holds several at once."""
    assert Layout(format=Format(kind="json"), part_size=512 * MIB).part_size == 512 * MIB
    with pytest.raises(ConfigurationError, match=r"above 512 MiB.*use a smaller one"):
        Layout(format=Format(kind="json"), part_size=512 * MIB + 1)
