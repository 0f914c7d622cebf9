"""The DAGs that people copy: the examples and the one of the README."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from dev.airflow_home import AirflowHome

ROOT = Path(__file__).resolve().parents[2]

PARSE = """
import json, sys
from airflow.dag_processing.dagbag import DagBag
from airflow.serialization.serialized_objects import DagSerialization
bag = DagBag(dag_folder=sys.argv[1])
found = {}
for dag_id, dag in bag.dags.items():
    again = DagSerialization.from_dict(json.loads(json.dumps(DagSerialization.to_dict(dag))))
    found[dag_id] = [[task.task_id, task.task_type] for task in again.tasks]
print(json.dumps({"errors": {k: str(v) for k, v in bag.import_errors.items()}, "dags": found}))
"""


def parse(home: AirflowHome, folder: Path) -> dict[str, Any]:
    """What Airflow's DAG processor makes of a folder, without any connection."""
    environment = {n: v for n, v in home.environment.items() if not n.startswith("AIRFLOW_CONN_")}
    done = subprocess.run(
        [sys.executable, "-c", PARSE, str(folder)],
        cwd=home.folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    parsed: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return parsed


def test_the_examples_are_parsed_and_serialised_without_connections(airflow_home: AirflowHome) -> None:
    """No error, and the DAGs that the demo runs are there."""
    assert parse(airflow_home, ROOT / "dags") == {
        "errors": {},
        "dags": {
            "flights_daily": [["land_day", "KafkaToS3Operator"]],
            "flights_incremental": [["land_new", "KafkaToS3Operator"]],
        },
    }


def test_the_dag_of_the_readme_is_one(airflow_home: AirflowHome, tmp_path: Path) -> None:
    """What a newcomer copies works as it stands."""
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    (tmp_path / "readme.py").write_text(code)
    parsed = parse(airflow_home, tmp_path)
    assert parsed["errors"] == {}
    assert [task for tasks in parsed["dags"].values() for _, task in tasks] == ["KafkaToS3Operator"]
