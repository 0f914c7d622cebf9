"""Where the seconds of one task go: ``airflow dags test`` with a small and a large run, cold, by ``spark-submit``.

A stage ends with a line of the task's log. Its CPU is that of all processes, as a control group counts it, and 0 on a
machine where the benchmark cannot make one.
"""

from __future__ import annotations

import itertools
import statistics
import tempfile
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from airflow_provider_kafka_s3.storage.s3 import make_client
from dev.airflow_connections import connection_variables, kafka_connection, s3_connection
from dev.airflow_home import AirflowHome
from dev.java import find_java
from tests.benchmark.whole import WITHOUT_BYTECODE, CommandFailed, control_group, cpu_of, in_control_group
from tests.spark.pipeline import CREDENTIALS, s3_settings

RECORDS: Final = (1_000, 2_000_000)
DAG: Final = "stages"
CLASS_ARCHIVES: Final = "AIRFLOW__KAFKA_S3__CLASS_ARCHIVES"

_STAGES: Final = (
    ("Airflow, to the operator", "land all records since the stored offsets"),
    ("planning", "submitting batch"),
    ("spark-submit, until Python runs", "looking up the plans"),
    ("plans, pyspark's imports", "starting Spark at master"),
    ("Spark's context and session", "Spark's session is ready"),
    ("frames and the plan of the read", ": reading "),
    ("reading, converting, uploading", " read in "),
    ("the commit", "is committed"),
    ("Spark's end, the result", ") landed"),
    ("Airflow's end", None),
)
"""Each stage, and text of the line that ends it; None: the end of the command."""

_DAG: Final = """
import os
from datetime import datetime, timezone

from airflow.providers.common.compat.sdk import DAG

from airflow_provider_kafka_s3 import Daily, JsonLines, KafkaToS3Operator, Limits

with DAG("stages", schedule=None, start_date=datetime(2026, 1, 1, tzinfo=timezone.utc)):
    KafkaToS3Operator(
        task_id="land",
        topics={topic!r},
        bucket={bucket!r},
        pipeline={pipeline!r},
        offsets="incremental",
        starting_offsets="earliest",
        format=JsonLines(compression="gzip"),
        partitioner=Daily(),
        limits=Limits(records_per_run={records}),
        jars=os.environ["SPARK_KAFKA_JARS"],
    )
"""


@dataclass(frozen=True)
class _Moment:
    """Seconds since the command began, and CPU seconds of its processes until then."""

    wall: float
    cpu: float


def stages(config: dict[str, Any]) -> dict[str, Any]:
    """Measure; seconds and CPU seconds by number of records and stage.

    Args:
        config: of the benchmark: ``bootstrap_servers``, ``endpoint``, ``topic`` and ``rounds``.
    """
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="stages-") as folder:
        home = airflow_home(Path(folder), config, archives=Path(folder, "classes"))
        for records in RECORDS:
            print(f"Stages of a task with {records:,} records …", flush=True)
            # The first run makes the archive of Spark's classes.
            rounds = [_run(home, config, records) for _ in range(config["rounds"] + 1)][1:]
            found[str(records)] = {
                stage: {
                    part: round(statistics.median(one[stage][part] for one in rounds), 2) for part in ("wall", "cpu")
                }
                for stage, _ in _STAGES
            }
    return found


def airflow_home(folder: Path, config: Mapping[str, Any], *, archives: Path | None) -> AirflowHome:
    """An Airflow with the Java and the bytecode that a user has.

    Args:
        folder: an existing one, for its state.
        config: ``bootstrap_servers`` and ``endpoint``.
        archives: folder of archives of Spark's classes; None: the default, without.
    """
    connections = {
        "kafka_default": kafka_connection({"bootstrap.servers": config["bootstrap_servers"]}),
        "aws_default": s3_connection(config["endpoint"], CREDENTIALS.access_key_id, CREDENTIALS.secret_access_key),
        "spark_default": {"conn_type": "spark", "host": "local[2]"},
    }
    for name in ("home", "dags"):
        (folder / name).mkdir()
    home = AirflowHome(
        folder / "home",
        folder / "dags",
        environment={
            # With the options of a user's Java, not those of the tests'.
            "JAVA_HOME": str(Path(find_java()).resolve().parent.parent),
            CLASS_ARCHIVES: str(archives or ""),
            **connection_variables(connections),
        },
    )
    home.environment = {name: value for name, value in home.environment.items() if name != WITHOUT_BYTECODE}
    home.migrate()
    return home


def write_dag(home: AirflowHome, topic: str, bucket: str, records: int) -> None:
    """Write the DAG ``stages``, whose task lands a number of records of a topic; the pipeline is new."""
    dag = _DAG.format(topic=topic, bucket=bucket, pipeline=bucket, records=records)
    Path(home.environment["AIRFLOW__CORE__DAGS_FOLDER"], f"{DAG}.py").write_text(dag)


def _run(home: AirflowHome, config: dict[str, Any], records: int) -> dict[str, dict[str, float]]:
    bucket = f"stages-{uuid.uuid4().hex}"
    client = make_client(s3_settings(config["endpoint"]), CREDENTIALS)
    client.create_bucket(Bucket=bucket)
    write_dag(home, config["topic"], bucket, records)
    moments: list[_Moment] = []
    with control_group() as group, in_control_group(group):
        began, used = time.perf_counter(), cpu_of(group)

        def now() -> _Moment:
            return _Moment(time.perf_counter() - began, cpu_of(group) - used)

        def look(line: str) -> None:
            text = _STAGES[len(moments)][1]
            if text is not None and text in line:
                moments.append(now())

        ran = home.test(DAG, on_line=look)
        moments.append(now())
    if not ran.succeeded or len(moments) != len(_STAGES):
        raise CommandFailed(
            f"the task failed, or its log has not the line {_STAGES[len(moments) - 1][1]!r}:\n{ran.output}"
        )
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket):
        for item in page.get("Contents", []):
            client.delete_object(Bucket=bucket, Key=item["Key"])
    spans = itertools.pairwise([_Moment(0.0, 0.0), *moments])
    return {
        stage: {"wall": to.wall - of.wall, "cpu": to.cpu - of.cpu}
        for (stage, _), (of, to) in zip(_STAGES, spans, strict=True)
    }


def table(found: dict[str, Any]) -> list[str]:
    """The figures as lines of text."""
    lines = [f"  {'':36}" + "".join(f"{int(records):>10,} records{'':5}" for records in found)]
    for stage, _ in _STAGES:
        figures = (f"{of[stage]['wall']:8.2f} s {of[stage]['cpu']:6.2f} CPU s" for of in found.values())
        lines.append(f"  {stage:36}" + "".join(figures))
    for records, of in found.items():
        wall, cpu = (sum(one[part] for one in of.values()) for part in ("wall", "cpu"))
        lines.append(f"  {int(records):,} records: {wall:.1f} s, {cpu:.1f} CPU s")
    return lines
