"""What a person reads when the Spark driver fails: its last words, in the error of the task."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from airflow_provider_kafka_s3.storage.s3 import S3Store
    from tests.airflow.conftest import Worker


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"driver_memory": "1m"}, r"the Spark driver ended without a result\. .*?Too small maximum heap"),
        ({"files": "/nowhere/at/all.txt"}, r"the Spark job failed: \S+FileNotFoundException: .*?/nowhere/at/all\.txt"),
    ],
    ids=["no JVM", "no Spark session"],
)
def test_the_last_words_of_the_driver_are_in_the_error_of_the_task(
    worker: Worker,
    store: S3Store,
    make_topic: Callable[..., str],
    produce: Callable[..., None],
    parameters: dict[str, str],
    words: str,
) -> None:
    """Whether it dies before there is a Java machine, or with a trace of Java; the frames of Java are left out."""
    topic = make_topic(1)
    produce(topic, [{"n": 1}])
    run = worker.run(topics=topic, **parameters)
    assert not run.succeeded
    told = re.search(rf"Exception: topic '{topic}': SparkJobError: {words}", run.log, re.DOTALL)
    assert told, run.log
    assert len(told[0]) < 5_000
    assert not re.search(r"\bat [\w.$]+\([\w.]+:\d+\)", told[0])
    assert list(store.list(f"topics/{topic}/")) == []
