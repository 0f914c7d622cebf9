"""Finish what is planned or owed without Spark: this process reads the records itself, a few slices at a time.

It follows the same plans through the same loop as the Spark job, so names and bytes are the same, and it may run beside
any job: one of them decides.
"""

from __future__ import annotations

import logging
import uuid
from typing import Literal

from airflow_provider_kafka_s3.batch import commands
from airflow_provider_kafka_s3.batch.commit import Committer
from airflow_provider_kafka_s3.batch.decided import Recovered, roll_forward
from airflow_provider_kafka_s3.batch.exits import last_layout
from airflow_provider_kafka_s3.batch.manifest import MAX_OBJECTS, Manifest, SliceRows
from airflow_provider_kafka_s3.batch.objects import too_many_objects, write_slice
from airflow_provider_kafka_s3.batch.plan import Plan, Slice
from airflow_provider_kafka_s3.batch.requests import RunRequest, TopicResult
from airflow_provider_kafka_s3.batch.runs import TopicRun
from airflow_provider_kafka_s3.batch.source import require_topic_id
from airflow_provider_kafka_s3.exceptions import AccessDeniedError, ConfigurationError, DataLossError, RecordError
from airflow_provider_kafka_s3.parallel import in_threads
from airflow_provider_kafka_s3.storage.uploads import UploadPool

__all__ = ["execute_plan", "recover"]

log = logging.getLogger(__name__)

_THREADS = 4


def recover(
    committer: Committer,
    *,
    operator: str,
    on_data_loss: Literal["fail", "skip"] = "fail",
    max_slice_records: int = 1_000_000,
    wait: float = 0.0,
) -> Recovered:
    """Finish every open batch and land every offset that abandoned batches owe.

    Args:
        committer: of the topic.
        operator: who asks, for the record.
        on_data_loss: offsets that are gone from Kafka: an error, or a recorded gap.
        max_slice_records: offsets of one slice of new batches at most; each is read by one thread.
        wait: seconds to let the run that planned a batch decide it, before its work is done again.

    Raises:
        TerminalError: a person has to act; the message says how.
        TransientError: try again.
    """
    open_before = committer.log.view()
    request = RunRequest(
        run=f"operator:{operator}:{uuid.uuid4()}",
        mode="recover",
        layout=last_layout(committer, open_before.next),
        starting="earliest",
        max_slice_records=max_slice_records,
        on_data_loss=on_data_loss,
        adopt_wait=wait,
        params={"operator": operator},
        attempt=f"kafka-s3 recover by {operator}",
    )
    run = TopicRun(committer, request)
    while not isinstance(step := run.advance(), TopicResult):
        execute_plan(committer, step, run=request.run, on_data_loss=on_data_loss)
    # A batch that was given up for its debt covers nothing: it is no part of what the run's target needed.
    roll_forward(committer)
    after = committer.log.view()
    finished = {*open_before.open_plans, *range(open_before.next, after.next)} - set(after.open_plans)
    return Recovered(tuple(sorted(finished)), tuple(sorted(after.open_plans)))


def execute_plan(
    committer: Committer, plan: Plan, *, run: str, on_data_loss: Literal["fail", "skip"] = "fail"
) -> Manifest:
    """Read a plan's slices, upload their objects, decide, and carry the stored decision out.

    Args:
        committer: of the topic.
        plan: that is not decided yet.
        run: key of the run that executes.
        on_data_loss: offsets that are gone: ``skip`` gives the batch up, so that what is left is planned again.

    Raises:
        DataLossError: offsets are gone and ``on_data_loss`` is ``fail``; nothing was decided.
        RecordError: a record cannot be written as planned; nothing was decided.
    """
    if plan.layout is None:
        raise ConfigurationError(f"batch {plan.batch} of topic {plan.topic!r} is a {plan.type}: it has no records")
    part_size, store = plan.layout.part_size, committer.store
    done: list[SliceRows] = []

    def read(s: Slice) -> None:
        records = committer.source.read(plan.topic, s.partition, s.start, s.end, plan.isolation)
        with UploadPool(store, part_size=part_size) as pool:
            try:
                done.append(write_slice(plan, s, records, pool.open))
            except BaseException:
                pool.abort_all()
                raise
        log.info("topic %s: batch %d: %d of %d slices read", plan.topic, plan.batch, len(done), len(plan.slices))

    try:
        require_topic_id(committer.source, committer.log, committer.incarnation(plan))
        in_threads(read, plan.slices, threads=_THREADS)
        if (count := sum(len(rows.objects) for rows in done)) > MAX_OBJECTS:
            raise too_many_objects(plan, f"{count:,}")
    except BaseException as e:
        # Nothing was decided, and nobody but this process knows of these uploads.
        store.abort_uploads([(entry.key, entry.upload_id) for rows in done for entry in rows.objects])
        if isinstance(e, RecordError | ConfigurationError) and not isinstance(e, AccessDeniedError):
            e.add_note(commands.way_out(committer.log, plan.batch))
        if not isinstance(e, DataLossError):
            raise
        if on_data_loss == "fail":
            e.add_note(commands.skip_gap(committer.log, plan.batch))
            raise
        log.warning("%s; the batch is given up and what is left of it planned again", e)
        decision = committer.abandon(plan, release="debt", reason=str(e), operator="on_data_loss=skip", run=run)
    else:
        decision = committer.decide(plan, done, run=run)
    committer.carry_out(plan, decision)
    return decision
