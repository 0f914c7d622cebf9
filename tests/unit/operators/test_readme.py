"""What the README shows has to work as it stands."""

from __future__ import annotations

import re
from pathlib import Path

from airflow_provider_kafka_s3.operators.kafka_to_s3 import KafkaToS3Operator

README = Path(__file__).parents[3] / "README.md"


def test_the_dag_of_the_readme_is_a_dag_of_about_ten_lines() -> None:
    """It is executed as it is printed."""
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    names: dict[str, object] = {}

    exec(compile(code, str(README), "exec"), names)

    dag = names["dag"]
    assert type(dag).__name__ == "DAG"
    assert [type(task) for task in dag.tasks] == [KafkaToS3Operator]
    assert len(code.splitlines()) <= 10
