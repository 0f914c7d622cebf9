"""Runs of a partitioned DAG, which have a partition and neither a logical date nor a data interval."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.airflow.days import check_days, make_days

if TYPE_CHECKING:
    from airflow_provider_kafka_s3.storage.s3 import S3Store
    from dev.airflow_servers import AirflowServers
    from dev.kafka_broker import KafkaBroker


def test_a_run_of_a_partition_lands_its_day(servers: AirflowServers, store: S3Store, kafka_broker: KafkaBroker) -> None:
    """The day comes from Airflow's reading of the key; no record of another day is landed."""
    topic = "partitioned"
    make_days(kafka_broker, topic)
    servers.unpause(topic)
    run_id = servers.trigger(topic, partition_key="2013-01-03T00:00:00")
    assert servers.wait_for_run(topic, run_id) == "success", servers.task_log(topic, run_id, "land")
    check_days(store, topic, [3])
    window = servers.returned(topic, run_id, "land")["window"]
    assert window == {
        "source": "partition",
        "start": "2013-01-03T00:00:00+00:00",
        "end": "2013-01-04T00:00:00+00:00",
    }
