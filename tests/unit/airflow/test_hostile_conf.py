"""Whoever may trigger a run chooses by ``conf`` which of the task's records it covers, and nothing else."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_kafka_s3.airflow.run_window import RunWindow, resolve_window
from airflow_provider_kafka_s3.batch.request import RunRequest
from airflow_provider_kafka_s3.config import JsonLines, Layout, Window
from airflow_provider_kafka_s3.documents.notation import parse_offsets as parse_option
from airflow_provider_kafka_s3.exceptions import ConfigurationError, TransientError

LAYOUT = Layout(format=JsonLines())
TOPIC = "orders"

names = st.sampled_from([TOPIC, "payments", "_kafka_s3", "..", "../x", "a" * 250, "a b", "", ".*", "orders,payments"])
numbers = st.integers() | st.sampled_from([0, 1, 2**31, 2**63 - 1, 2**63, 10**4_000, -1, True, 1.5, "1", None])
partitions = st.sampled_from(["0", "1", "01", "-1", "9" * 5_000, "2147483648", "٣", "0x1", "1e3", " 1"]) | numbers
times = st.sampled_from(
    [
        "2026-01-01T00:00:00+00:00",
        "2026-01-02T00:00:00+02:00",
        "2026-01-02T00:00:00",
        "1969-12-31T23:59:59+00:00",
        "1970-01-01T00:00:00+14:00",
        "0001-01-01T00:00:00+14:00",
        "9999-12-31T23:59:59-14:00",
        "2026-W01-1T00:00:00+00:00",
        "{{ ds }}",
        "\ud800",
        "\x00",
        "9" * 5_000,
    ]
)
anything = st.recursive(
    names | numbers | times | st.text(max_size=5) | st.floats(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
windows = st.tuples(times, times).map(list) | anything
ranges = st.tuples(numbers, numbers).map(list) | anything
offsets = (
    st.dictionaries(names | numbers, st.dictionaries(partitions, ranges, max_size=2) | anything, max_size=2) | anything
)
actions = st.sampled_from(["land", "verify", "restore", "LAND", "drop"]) | anything


def conf_of(**parts: Any) -> Any:
    """Any value of ``conf``."""
    ours = (
        st.fixed_dictionaries({}, optional={"action": actions, "window": windows, "offsets": offsets, "topics": names})
        | anything
    )
    others = {"bucket": names, "topics": names, "window": windows, "offsets": offsets}
    return st.fixed_dictionaries({}, optional={"action": actions, "kafka_s3": ours, **others})


@settings(max_examples=100)
@given(conf=conf_of(), incremental=st.booleans())
def test_any_conf_is_a_window_of_this_task_or_a_configuration_error(conf: Any, incremental: bool) -> None:
    """Never another exception; and a window can be logged, stored as JSON, and requested."""
    context = {"dag_run": SimpleNamespace(conf=conf), "params": {}}
    try:
        resolved = resolve_window(
            context,  # type: ignore[arg-type]
            offsets="incremental" if incremental else "data_interval",
            settings=Window(allow_open=True),
        )
        window = resolved.of_topic(TOPIC)
    except (ConfigurationError, TransientError):
        return
    assert isinstance(resolved, RunWindow)
    assert str(resolved).isprintable()
    resolved.to_xcom()
    with contextlib.suppress(ConfigurationError):
        RunRequest(
            run="r",
            offsets="incremental" if window is None else "data_interval",
            action=resolved.action,
            layout=LAYOUT,
            starting="earliest",
            window=window or None,
        )


def test_conf_names_no_topic_bucket_layout_or_connection() -> None:
    """Offsets of topics that are not the task's have no effect."""
    conf = {
        "topics": "payments",
        "bucket": "mine",
        "aws_conn_id": "root",
        "kafka_s3": {"offsets": {TOPIC: {"0": [0, 5]}, "payments": {"0": [0, 5]}}},
    }
    resolved = resolve_window({"dag_run": SimpleNamespace(conf=conf), "params": {}}, offsets="incremental")  # type: ignore[arg-type,typeddict-item]
    assert resolved.of_topic(TOPIC) == {0: (0, 5)}
    for name in ("topics", "bucket", "topics_dir", "on_data_loss", "pipeline"):
        with pytest.raises(ConfigurationError, match=f"kafka_s3 has no '{name}'"):
            resolve_window(
                {"dag_run": SimpleNamespace(conf={"kafka_s3": {name: "x"}}), "params": {}},  # type: ignore[arg-type,typeddict-item]
                offsets="incremental",
            )


@pytest.mark.parametrize(
    "text", ["9" * 5_000 + ":0-1", "0:0-" + "9" * 5_000, "0:0-9223372036854775808", "٣:0-1", "0:1-1"]
)
def test_offsets_of_an_option_are_numbers_that_kafka_can_have(text: str) -> None:
    """Digits that Python does not parse are a ConfigurationError."""
    with pytest.raises(ConfigurationError, match="is not a range"):
        parse_option(text)
