"""The conf of a run in a real Airflow: its window, and the actions verify and restore."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from airflow_provider_kafka_s3.testing.invariants import check_unchanged, snapshot
from tests.airflow.conftest import BUCKET

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

    from airflow_provider_kafka_s3.storage.s3 import S3Store
    from airflow_provider_kafka_s3.testing.invariants import BucketSummary
    from dev.kafka_broker import KafkaBroker
    from tests.airflow.conftest import Worker

JANUARY_1 = 1_356_998_400_000
DAY = 86_400_000


def test_a_window_of_a_run_is_landed_verified_and_restored_as_its_conf_says(
    worker: Worker,
    store: S3Store,
    bucket_client: S3Client,
    kafka_broker: KafkaBroker,
    make_topic: Callable[..., str],
    check: Callable[..., BucketSummary],
) -> None:
    """A DAG without a schedule lands a day by conf; a deleted object is reported, and restored with the same bytes."""
    from dev.kafka_broker import Message

    topic = make_topic(1)
    values = [Message(json.dumps({"n": n}).encode(), timestamp=JANUARY_1 + n * DAY // 2) for n in range(4)]
    kafka_broker.produce(topic, values)
    parameters: dict[str, Any] = {"topics": topic, "offsets": "data_interval", "partitioner": "daily"}
    conf: dict[str, Any] = {"kafka_s3": {"window": ["2013-01-01T00:00:00+00:00", "2013-01-02T00:00:00Z"]}}

    landed = worker.run(conf=conf, **parameters)
    assert landed.succeeded, landed.log
    assert landed.returned is not None
    assert landed.returned["window"]["source"] == "conf"
    assert landed.returned["topics"][topic]["batches"][0]["offsets"] == {"0": [[0, 2]]}
    before = snapshot(store)
    verified = worker.run(conf={"kafka_s3": conf["kafka_s3"] | {"action": "verify"}}, **parameters)
    assert verified.succeeded, verified.log
    report = (verified.returned or {})["topics"][topic]["verification"]
    assert (report["objects"], report["size"]) == (1, landed.returned["size"])
    check_unchanged(before, snapshot(store))

    (info,) = store.list(f"topics/{topic}/")
    written = store.get(info.key)
    bucket_client.delete_object(Bucket=BUCKET, Key=info.key)
    missed = worker.run(conf=conf, **parameters)
    assert not missed.succeeded
    assert "MissingObjectError" in missed.log
    assert info.key in missed.log
    restored = worker.run(conf={"kafka_s3": conf["kafka_s3"] | {"action": "restore"}}, **parameters)
    assert restored.succeeded, restored.log
    assert (restored.returned or {})["topics"][topic]["verification"]["restored"] == [info.key]
    again = store.get(info.key)
    assert written is not None
    assert again is not None
    assert again.body == written.body
    assert [run.java_starts for run in (verified, missed, restored)] == [0, 0, 0]
    assert check(topic, complete=False).records == 2


def test_a_run_with_an_invalid_conf_lands_nothing(worker: Worker, make_topic: Callable[..., str]) -> None:
    """A misspelt key in conf is a terminal error that names the right one."""
    run = worker.run(conf={"kafka_s3": {"windw": []}}, topics=make_topic(1))
    assert not run.succeeded
    assert "AirflowFailException" in run.log
    assert "kafka_s3 has no 'windw'; did you mean 'window'" in run.log
