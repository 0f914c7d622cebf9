"""The error of a task whose Spark driver failed contains the end of the driver's output."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dev.airflow_connections import connection_variables

if TYPE_CHECKING:
    from airflow_provider_kafka_s3.storage.s3 import S3Store
    from tests.airflow.conftest import Worker


@pytest.mark.any_airflow
@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (
            {"driver_memory": "1m"},
            r"Error occurred during initialization of VM; Too small maximum heap\. ",
        ),
        ({"files": "/nowhere/at/all.txt"}, r"the Spark job failed: \S+FileNotFoundException: .*?/nowhere/at/all\.txt"),
    ],
    ids=["no JVM", "no Spark session"],
)
def test_the_end_of_the_driver_s_output_is_in_the_error_of_the_task(
    worker: Worker,
    store: S3Store,
    make_topic: Callable[..., str],
    produce: Callable[..., None],
    parameters: dict[str, str],
    message: str,
) -> None:
    """Whether it ends before a JVM starts, or with a Java trace, whose frames are left out."""
    topic = make_topic(1)
    produce(topic, [{"n": 1}])
    run = worker.run(topics=topic, **parameters)
    assert not run.succeeded
    error = re.search(rf"Exception: {message}.*?\[topic '{topic}': SparkJobError\]", run.log, re.DOTALL)
    assert error, run.log
    assert len(error[0]) < 5_000
    assert not re.search(r"\bat [\w.$]+\([\w.]+:\d+\)", error[0])
    assert list(store.list(f"topics/{topic}/")) == []


@pytest.mark.any_airflow
@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (
            {"spark_conn_id": "spark_yarn", "jars": None},
            r"Spark has no configuration of YARN: HADOOP_CONF_DIR is not set",
        ),
        (
            {"packages": "org.nobody:nothing_2.13:1.0", "jars": None},
            r"packages: org\.nobody:nothing_2\.13:1\.0 is in none of the searched repositories",
        ),
    ],
    ids=["YARN", "packages"],
)
def test_what_spark_submit_refuses_is_terminal_and_begins_with_the_cause(
    worker: Worker,
    store: S3Store,
    make_topic: Callable[..., str],
    produce: Callable[..., None],
    tmp_path: Path,
    parameters: dict[str, str | None],
    message: str,
) -> None:
    """The cause is above the first exception of the output, where Airflow's own error begins."""
    topic = make_topic(1)
    produce(topic, [{"n": 1}])
    settings = tmp_path / "ivysettings.xml"
    settings.write_text(
        '<ivysettings><settings defaultResolver="here"/><resolvers><filesystem name="here" m2compatible="true">'
        f'<artifact pattern="{tmp_path}/[organisation]/[artifact]-[revision].[ext]"/></filesystem></resolvers>'
        "</ivysettings>"
    )
    yarn = connection_variables({"spark_yarn": {"conn_type": "spark", "host": "yarn"}})
    conf = {"spark.jars.ivySettings": str(settings), "spark.jars.ivy": str(tmp_path / "ivy")}
    run = worker.run(topics=topic, environment=yarn, spark_conf=conf, **parameters)
    assert not run.succeeded
    pattern = rf"AirflowFailException: {message}.*?\[topic '{topic}': ConfigurationError\]"
    assert re.search(pattern, run.log, re.DOTALL), run.log
    assert list(store.list(f"topics/{topic}/")) == []
