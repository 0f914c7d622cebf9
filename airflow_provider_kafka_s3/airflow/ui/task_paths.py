"""Where Airflow's own UI has a task instance, relative to the page, which is a folder below its root."""

from __future__ import annotations

from urllib.parse import quote, urlencode

from airflow_provider_kafka_s3.documents.planner import PlannerTask

__all__ = ["task_path_2", "task_path_3"]


def task_path_2(task: PlannerTask) -> str:
    """In Airflow 2.11."""
    query = {"dag_run_id": task.run_id, "task_id": task.task_id}
    mapped = {"map_index": task.map_index} if task.map_index >= 0 else {}
    return f"../dags/{_segment(task.dag_id)}/grid?{urlencode(query | mapped)}"


def task_path_3(task: PlannerTask) -> str:
    """In Airflow 3."""
    mapped = f"/mapped/{task.map_index}" if task.map_index >= 0 else ""
    dag, run, name = map(_segment, (task.dag_id, task.run_id, task.task_id))
    return f"../dags/{dag}/runs/{run}/tasks/{name}{mapped}"


def _segment(text: str) -> str:
    return quote(text, safe="")
