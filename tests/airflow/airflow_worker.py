"""A process that runs tasks in a real Airflow, one by one: commands come from standard input, results go to a pipe.

Airflow takes seconds to start; this way it starts once for all tests. Everything else is as in ``airflow dags test``.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

from setproctitle import setproctitle


def run(command: dict[str, Any]) -> dict[str, Any]:
    """Run a DAG of one operator, or one of a folder; returns its state and run id.

    The command: ``{"dag_id", "date", "conf", "environment"}``, and ``"parameters"`` of the operator or ``"folder"``.
    """
    with _environment(command["environment"]):
        return _run(command)


@contextlib.contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _run(command: dict[str, Any]) -> dict[str, Any]:
    dag = _dag_of_folder(command) if "folder" in command else _dag_of_one_operator(command)
    date = datetime.fromisoformat(command["date"]) if command["date"] else datetime.now(UTC)
    test = _test_on_2 if version("apache-airflow").startswith("2.") else _test_on_3
    state, run_id = test(dag, date, command["conf"])
    return {"state": str(getattr(state, "value", state)), "run_id": run_id}


def _dag_of_one_operator(command: dict[str, Any]) -> Any:
    from airflow.providers.common.compat.sdk import DAG
    from airflow.timetables.interval import CronDataIntervalTimetable

    from airflow_provider_kafka_s3.operators.kafka_to_s3 import KafkaToS3Operator

    schedule = CronDataIntervalTimetable("@daily", timezone="UTC") if command["date"] else None
    with DAG(command["dag_id"], schedule=schedule, start_date=datetime(2013, 1, 1, tzinfo=UTC), catchup=False) as dag:
        KafkaToS3Operator(task_id="land", **command["parameters"])
    return dag


def _dag_of_folder(command: dict[str, Any]) -> Any:
    if version("apache-airflow").startswith("2."):
        from airflow.models.dagbag import DagBag
    else:
        from airflow.dag_processing.dagbag import DagBag

    return DagBag(dag_folder=command["folder"]).dags[command["dag_id"]]


def _test_on_3(dag: Any, date: datetime, conf: dict[str, Any] | None) -> tuple[Any, str]:
    from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db
    from airflow.models.dagbundle import DagBundleModel
    from airflow.utils.session import create_session

    with create_session() as session:
        session.merge(DagBundleModel(name="testing"))
    bag = DagBag(dag_folder=os.devnull)
    bag.bag_dag(dag)
    sync_bag_to_db(bag, "testing", None)
    dag_run = dag.test(logical_date=date, run_conf=conf)
    return dag_run.state, dag_run.run_id


def _test_on_2(dag: Any, date: datetime, conf: dict[str, Any] | None) -> tuple[Any, str]:
    # The notes of a run refer to the tables of users, without which the second run of a process fails.
    import airflow.providers.fab.auth_manager.models  # noqa: F401
    from airflow.exceptions import AirflowTaskTerminated
    from airflow.models.dagbag import DagBag
    from airflow.models.dagrun import DagRun
    from airflow.utils.types import DagRunType

    bag = DagBag(dag_folder=os.devnull, include_examples=False)
    bag.bag_dag(dag, root_dag=dag)
    bag.sync_to_db()
    try:
        dag_run = dag.test(execution_date=date, run_conf=conf)
    except AirflowTaskTerminated:
        # It ends the loop over the tasks too, which would otherwise set the state of the run.
        return "failed", DagRun.generate_run_id(DagRunType.MANUAL, date)
    return dag_run.state, dag_run.run_id


def main() -> None:
    """Serve until standard input ends."""
    # Tasks know the process of Airflow by its title, as they know Airflow's own.
    setproctitle("airflow worker -- tests")
    with os.fdopen(int(os.environ["RESULT_PIPE"]), "w") as results:
        for line in sys.stdin:
            print(json.dumps(run(json.loads(line))), file=results, flush=True)


if __name__ == "__main__":
    main()
