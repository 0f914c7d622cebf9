"""Complete every open batch, and land the debt of abandoned batches, without Spark."""

from __future__ import annotations

import logging
import uuid
from typing import Literal

from airflow_provider_kafka_s3.batch.commit import Committer
from airflow_provider_kafka_s3.batch.derived.registry import follow_run
from airflow_provider_kafka_s3.batch.execute import execute_plan
from airflow_provider_kafka_s3.batch.request import RunRequest, TopicResult
from airflow_provider_kafka_s3.batch.roll_forward import Recovered, roll_forward
from airflow_provider_kafka_s3.batch.run import TopicRun
from airflow_provider_kafka_s3.config import Limits

__all__ = ["recover"]

log = logging.getLogger(__name__)

_THREADS = 4


def recover(
    committer: Committer,
    *,
    operator: str,
    on_data_loss: Literal["fail", "skip"] = "fail",
    records_per_slice: int = 1_000_000,
    wait: float = 0.0,
) -> Recovered:
    """Complete every open batch and land the debt of abandoned batches.

    Args:
        committer: decides and completes the batches of the topic.
        operator: person who runs it, for the record.
        on_data_loss: policy for offsets that are gone from Kafka: an error, or a recorded gap.
        records_per_slice: offsets of one slice of new batches at most; each slice is read by one thread.
        wait: seconds to wait for the run that planned a batch to decide it, before its work is done again.

    Raises:
        TerminalError: a person has to act, as the message describes.
        TransientError: try again.
    """
    open_before = committer.log.view()
    request = RunRequest(
        run=f"operator:{operator}:{uuid.uuid4()}",
        offsets="recover",
        layout=committer.log.last_layout(open_before.next),
        starting="earliest",
        limits=Limits(records_per_slice=records_per_slice),
        on_data_loss=on_data_loss,
        adopt_wait=wait,
        params={"operator": operator},
        attempt=f"kafka-s3 recover by {operator}",
    )
    run = TopicRun(committer, request)
    while not isinstance(step := run.advance(), TopicResult):
        execute_plan(committer, step, run=request.run, on_data_loss=on_data_loss)
    # A batch that was abandoned for debt covers nothing, so the run does not resolve it.
    roll_forward(committer)
    after = committer.log.view()
    follow_run(committer.log, after.marker, request.layout, committer.parallel, every_batch=True)
    completed = {*open_before.open_plans, *range(open_before.next, after.next)} - set(after.open_plans)
    return Recovered(tuple(sorted(completed)), tuple(sorted(after.open_plans)))
