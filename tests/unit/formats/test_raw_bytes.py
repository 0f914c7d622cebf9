"""The bytes format: unchanged values, each followed by the separator."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_kafka_s3.arrays import contents
from airflow_provider_kafka_s3.config import RawBytes
from airflow_provider_kafka_s3.exceptions import ConfigurationError, RecordError
from airflow_provider_kafka_s3.formats.registry import make_format
from tests.unit.formats.preparing import prepare as prepared_or_error


def prepare(batch: Any, **settings: Any) -> Any:
    """Prepare a batch with some settings."""
    return prepared_or_error(make_format(RawBytes(**settings)), batch)


@given(st.lists(st.binary(max_size=5), max_size=6), st.sampled_from(["\n", "", "SEPARATOR", "é", "\r\n"]))
def test_every_value_is_followed_by_the_separator(make_batch: Any, values: list[bytes], separator: str) -> None:
    """K13: also the last one; nothing is escaped, and an empty value is a value."""
    prepared = prepare(make_batch(values), separator=separator)
    assert bytes(contents(prepared.payload)) == b"".join(v + separator.encode() for v in values)
    assert prepared.sizes.tolist() == [len(v) + len(separator.encode()) for v in values]


def test_without_a_separator_nothing_is_copied(make_batch: Any) -> None:
    """The frames are the values' own buffer."""
    batch = make_batch([b"a", b"bc"])
    assert prepare(batch, separator="").payload.buffers()[2].address == batch.column("value").buffers()[2].address


def test_null_values_are_refused_or_ignored_as_configured(make_batch: Any) -> None:
    """As in every format."""
    with pytest.raises(RecordError, match="topic 'flights', partition 3, offset 1: the value is null"):
        prepare(make_batch([b"a", None]))
    prepared = prepare(make_batch([b"a", None, b""]), on_null="ignore")
    assert bytes(contents(prepared.payload)) == b"a\n\n"
    assert prepared.ignored == 1


def test_a_separator_that_utf8_cannot_encode_is_refused() -> None:
    """When the format is made, not at the first record."""
    with pytest.raises(ConfigurationError, match=r"separator=.*UTF-8"):
        make_format(RawBytes(separator="\udcff"))
