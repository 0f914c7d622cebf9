"""A process that runs tasks in a real Airflow, one by one: commands come by standard input, results go to a pipe.

Airflow takes seconds to start; this way it starts once for all tests. Everything else is as in ``airflow dags test``.
"""

from __future__ import annotations

import json
import os
import sys
from datetime import UTC, datetime
from typing import Any


def run(command: dict[str, Any]) -> dict[str, Any]:
    """Run a DAG of one operator: ``{"dag_id", "parameters", "date", "environment"}``; returns its state and run id."""
    from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db
    from airflow.models.dagbundle import DagBundleModel
    from airflow.sdk import DAG
    from airflow.timetables.interval import CronDataIntervalTimetable
    from airflow.utils.session import create_session

    from airflow_provider_kafka_s3.operators.kafka_to_s3 import KafkaToS3Operator

    os.environ.update(command["environment"])
    schedule = CronDataIntervalTimetable("@daily", timezone="UTC") if command["date"] else None
    with DAG(command["dag_id"], schedule=schedule, start_date=datetime(2013, 1, 1, tzinfo=UTC), catchup=False) as dag:
        KafkaToS3Operator(task_id="land", **command["parameters"])
    with create_session() as session:
        session.merge(DagBundleModel(name="testing"))
    bag = DagBag(dag_folder=os.devnull)
    bag.bag_dag(dag)
    sync_bag_to_db(bag, "testing", None)
    date = datetime.fromisoformat(command["date"]) if command["date"] else datetime.now(UTC)
    dag_run = dag.test(logical_date=date)
    return {"state": str(getattr(dag_run.state, "value", dag_run.state)), "run_id": dag_run.run_id}


def main() -> None:
    """Serve until standard input ends."""
    with os.fdopen(int(os.environ["RESULT_PIPE"]), "w") as results:
        for line in sys.stdin:
            print(json.dumps(run(json.loads(line))), file=results, flush=True)


if __name__ == "__main__":
    main()
