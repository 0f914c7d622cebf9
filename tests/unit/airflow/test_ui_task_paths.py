"""Links of the page to task instances, compared with Airflow's own."""

from __future__ import annotations

import datetime as dt
from importlib.metadata import version
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qsl, unquote, urljoin, urlsplit

import pytest
from airflow.models.taskinstance import TaskInstance  # noqa: TID253 - after AIRFLOW_HOME is set, see conftest

from airflow_provider_kafka_s3.airflow.ui.task_paths import task_path_2, task_path_3
from airflow_provider_kafka_s3.documents.planner import PlannerTask

IS_2 = version("apache-airflow").startswith("2.")


@pytest.mark.parametrize("map_index", [-1, 0, 7])
def test_a_task_is_where_airflow_has_it(map_index: int) -> None:
    """Below the path at which Airflow is, which is a folder above the page."""
    names: Any = {
        "dag_id": "d",
        "task_id": "g.t",
        "run_id": "by-hand__2026-01-01T00:00+00:00",
        "map_index": map_index,
    }
    task = PlannerTask(**names)
    instance: Any = SimpleNamespace(**names, try_number=0, execution_date=dt.datetime(2026, 1, 1, tzinfo=dt.UTC))
    expected = urlsplit(TaskInstance.log_url.fget(instance))
    ours = urlsplit(urljoin("http://localhost:8080/kafka-s3/", (task_path_2 if IS_2 else task_path_3)(task)))
    assert unquote(ours.path) == unquote(expected.path)
    assert {*parse_qsl(ours.query)} == {
        (name, value) for name, value in parse_qsl(expected.query) if name not in ("base_date", "tab")
    }
