"""Sensors that defer, a mapped operator, its assets and links: one DAG in a real Airflow, with all parts real."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_provider_kafka_s3.retry import Retrier, RetryPolicy
from airflow_provider_kafka_s3.storage.durable import DurableStore
from dev.airflow_connections import connection_variables
from tests.airflow.conftest import BUCKET, PIPELINE

if TYPE_CHECKING:
    from airflow_provider_kafka_s3.storage.s3 import S3Store
    from airflow_provider_kafka_s3.testing.invariants import BucketSummary
    from dev.airflow_home import AirflowHome

DAG = """
from datetime import datetime, timezone

from airflow.providers.common.compat.sdk import DAG, Asset
from airflow.timetables.interval import CronDataIntervalTimetable

from airflow_provider_kafka_s3.operators.kafka_to_s3 import KafkaToS3Operator
from airflow_provider_kafka_s3.sensors.kafka_lag import KafkaLagSensor
from airflow_provider_kafka_s3.sensors.window_closed import KafkaWindowClosedSensor

SETTINGS = {settings!r}

with DAG(
    "waiting_and_mapping",
    schedule=CronDataIntervalTimetable("@daily", timezone="UTC"),
    start_date=datetime(2013, 1, 1, tzinfo=timezone.utc),
    catchup=False,
):
    waits = {{"poke_interval": 1, "timeout": 100, "deferrable": True}}
    lag = KafkaLagSensor(
        task_id="lag",
        topics=SETTINGS["topics"],
        bucket=SETTINGS["bucket"],
        pipeline=SETTINGS["pipeline"],
        min_records=2,
        **waits,
    )
    closed = KafkaWindowClosedSensor(task_id="closed", topics=SETTINGS["topics"], grace=0, **waits)
    land = KafkaToS3Operator.partial(
        task_id="land",
        bucket=SETTINGS["bucket"],
        pipeline=SETTINGS["pipeline"],
        format="json",
        offsets="incremental",
        starting_offsets="earliest",
        jars=SETTINGS["jars"],
        outlets=[Asset("s3://" + SETTINGS["bucket"] + "/topics")],
    ).expand(topics=[*SETTINGS["topics"], "never-made"])
    lag >> closed >> land
"""


def test_sensors_defer_and_mapped_topics_fail_alone(
    airflow_home: AirflowHome,
    store: S3Store,
    make_topic: Callable[..., str],
    produce: Callable[..., None],
    check: Callable[..., BucketSummary],
) -> None:
    """Records come while the sensor waits in the triggerer; of two mapped topics one is missing, the other is landed.

    Its asset event has the landed offsets, and its links lead to documents that exist.
    """
    topic = make_topic(1)
    produce(topic, [{"n": 1}])
    settings = {
        "topics": [topic],
        "bucket": BUCKET,
        "pipeline": PIPELINE,
        "jars": airflow_home.environment["SPARK_KAFKA_JARS"],
    }
    folder = Path(airflow_home.environment["AIRFLOW__CORE__DAGS_FOLDER"])
    (folder / "waiting_and_mapping.py").write_text(DAG.format(settings=settings))
    produced: list[str] = []

    def more_records(line: str) -> None:
        if "1 of 2 offsets wait to be landed" in line and not produced:
            produced.append(line)
            produce(topic, [{"n": 2}])

    spark = {"conn_type": "spark", "host": "local[1]", "extra": {"history-url": "http://history:18080"}}
    run = airflow_home.test(
        "waiting_and_mapping",
        "2013-01-02",
        environment=connection_variables({"spark_default": spark}),
        on_line=more_records,
    )
    assert produced, run.output
    assert states(airflow_home) == {
        ("lag", -1): "success",
        ("closed", -1): "success",
        ("land", 0): "success",
        ("land", 1): "failed",
    }, run.output
    assert returned(airflow_home, "lag") == {topic: 2}
    assert returned(airflow_home, "closed")["topics"] == {topic: {"passed": [0], "quiet": []}}
    assert " [topic 'never-made': TopicNotFoundError]" in run.output
    assert check(topic).records == 2

    reader = DurableStore(store, Retrier(RetryPolicy()))
    urls = [returned(airflow_home, "land", key=key) for key in ("marker_url", "manifest_url")]
    for url in urls:
        where, _, key = url.partition(f"/{BUCKET}/")
        assert where.startswith("http://")
        assert reader.get(key) is not None
    urls.append(returned(airflow_home, "land", key="spark_url"))
    assert re.fullmatch(r"http://history:18080/history/local-\d+/", urls[-1])
    if version("apache-airflow").startswith("3."):
        # Airflow 2.11 records no datasets in `dags test`, and computes a link when its page is opened.
        keys = ("_link_MarkerLink", "_link_ManifestLink", "_link_SparkHistoryLink")
        assert [returned(airflow_home, "land", key=key) for key in keys] == urls
        ((extra,),) = airflow_home.query("SELECT extra FROM asset_event")
        event = json.loads(extra)
        assert (event["status"], event["landed"]["records"], event["pipeline"]) == ("ok", 2, PIPELINE)
        assert event["topics"][topic]["offsets"] == {"0": [[0, 2]]}


def states(home: AirflowHome) -> dict[tuple[str, int], str]:
    """States of the tasks, by task and map index."""
    sql = "SELECT task_id, map_index, state FROM task_instance WHERE dag_id = 'waiting_and_mapping'"
    return {(task, index): state for task, index, state in home.query(sql)}


def returned(home: AirflowHome, task: str, *, key: str = "return_value") -> Any:
    """An XCom of a task; of the first topic, if it is mapped."""
    sql = "SELECT value FROM xcom WHERE dag_id = 'waiting_and_mapping' AND task_id = ? AND key = ? AND map_index < 1"
    ((value,),) = home.query(sql, task, key)
    return json.loads(value)
