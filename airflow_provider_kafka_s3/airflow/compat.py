"""Differences between versions of Airflow. Each branch has a comment with the version that makes it unnecessary.

Everything else is imported from ``airflow.providers.common.compat.sdk``, which has one name for Airflow 2 and 3, or is
read from the task's context by ``get``: keys that a version of Airflow does not have are absent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

__all__ = ["RunPartition", "run_conf", "run_params", "run_partition", "task_is_running"]

_RUNNING: Final = ("running", "restarting")
"""States of a task instance with a process; ``restarting``: it was cleared, and its process is being ended."""


@dataclass(frozen=True)
class RunPartition:
    """The partition of a DAG run.

    Attributes:
        date: its start, with a time zone; None: unknown.
        key: its name.
    """

    date: datetime | None
    key: str | None


def run_conf(context: Any) -> Mapping[str, Any]:
    """The ``conf`` that the run was triggered with; empty for a scheduled run."""
    # The DAG run is a database row in Airflow 2.11 and a model in 3.x; in both, its conf may be None.
    conf = getattr(context.get("dag_run"), "conf", None)
    return conf if isinstance(conf, Mapping) else {}


def run_params(context: Any) -> Mapping[str, Any]:
    """The task's ``params``: those of the DAG and the task, overridden by those that the run was triggered with."""
    params = context.get("params")
    return params if isinstance(params, Mapping) else {}


def run_partition(context: Any) -> RunPartition | None:
    """The partition of the run; None if the DAG is not partitioned.

    Before Airflow 3.2 there are no partitions, and the context has neither key, so no version is checked.
    """
    date, key = context.get("partition_date"), context.get("partition_key")
    if date is None and key is not None:
        date = _decoded(key, getattr(context.get("dag"), "timetable", None))
    return None if date is None and key is None else RunPartition(date, key)


def task_is_running(ti: Any, *, dag_id: str, task_id: str, run_id: str, map_index: int) -> bool | None:
    """Whether a task instance is running, by Airflow's state; None if there is no such task instance.

    Args:
        ti: the task instance of the context, through which the state is requested.
        dag_id: of the DAG.
        task_id: of the task.
        run_id: of the DAG run.
        map_index: of a mapped task; -1 of others.

    Raises:
        Exception: of any kind, if Airflow does not answer.
    """
    if (states_of := getattr(ti, "get_task_states", None)) is not None:
        # Airflow 3: by the API server.
        index = map_index if map_index >= 0 else None
        states = states_of(dag_id=dag_id, map_index=index, task_ids=[task_id], run_ids=[run_id]).get(run_id, {})
        name = task_id if index is None else f"{task_id}_{map_index}"
        return states[name] in _RUNNING if name in states else None
    if (instance_of := getattr(ti, "get_task_instance", None)) is not None:
        # Airflow 2.11: from the database. This can go with it.
        instance = instance_of(dag_id=dag_id, run_id=run_id, task_id=task_id, map_index=map_index)
        return None if instance is None else instance.state in _RUNNING
    return None


def _decoded(key: str, timetable: Any) -> datetime | None:
    """Parse a partition key by the format of the timetable.

    Airflow 3.2 passes only the key to the worker; 3.3 parses it by the same rule. This can go with 3.2.
    """
    pattern, zone = getattr(timetable, "key_format", None), getattr(timetable, "timezone", None)
    if pattern is None or zone is None:
        return None
    if isinstance(zone, str):
        from airflow_provider_kafka_s3.layout.zones import load_zone

        zone = load_zone(zone)
    try:
        return datetime.strptime(key, pattern).replace(tzinfo=zone)
    except ValueError:
        return None
